"""Calls of short functions replaced by what they do: a call takes Python as long as five operations on numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from redalg.source.statements import (
    Assign,
    Block,
    Expression,
    Function,
    If,
    Return,
    Statement,
    assigned_names,
    renamed,
    rewritten,
    walk,
    with_names,
)


def inlined(function: Function, functions: Mapping[str, Function]) -> Function:
    """The function with calls of `functions` written out, wherever they are evaluated in any case.

    A function may be given its arguments in tuples that its parameters name one by one, and gives up by returning None
    early: so does its caller then.

    >>> from redalg.source.render import render
    >>> from redalg.source.statements import function
    >>> twice = function("def twice(x, y):\\n    s = x + y\\n    return [s, s]")
    >>> f = function("def f(a):\\n    b, c = twice((a, 2.0))\\n    return b * c")
    >>> print(render([inlined(f, {"twice": twice})]))
    def f(a):
        s_call1 = a + 2.0
        b, c = s_call1, s_call1
        return b * c
    <BLANKLINE>
    """
    return replace(function, body=tuple(_Inliner(functions).block(function.body)))


class _Inliner:
    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions, self.count = functions, 0

    def block(self, block: Block) -> Iterator[Statement]:
        for s in block:
            before: list[Statement] = []
            if isinstance(s, If):
                yield replace(s, body=tuple(self.block(s.body)), orelse=tuple(self.block(s.orelse)))
                continue
            if isinstance(s, Assign | Return) and s.value is not None:
                s = replace(s, value=self._without_calls(s.value, before))
            yield from before
            yield _apart(s) if isinstance(s, Assign) else s

    def _without_calls(self, e: Expression, before: list[Statement]) -> Expression:
        """An expression whose calls are written out before it; what is evaluated in some cases only stays."""

        def rule(inner: Expression) -> Expression | None:
            if isinstance(inner, ast.IfExp | ast.BoolOp):
                return inner
            if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
                value = self._without_calls(inner.value, before)
                if isinstance(value, ast.List | ast.Tuple):
                    return value.elts[ast.literal_eval(inner.slice)]
                return ast.Subscript(value, inner.slice, inner.ctx)
            if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Name):
                return None
            found = self.functions.get(inner.func.id)
            if found is None or inner.keywords:
                return None
            return self._written(found, [self._without_calls(a, before) for a in inner.args], before)

        return rewritten(e, rule)

    def _written(self, f: Function, given: Sequence[Expression], before: list[Statement]) -> Expression:
        """What a function gives, its statements written before."""
        if len(given) < len(f.parameters):
            given = [x for a in given for x in (a.elts if isinstance(a, ast.Tuple) else [a])]
        self.count += 1
        new: dict[str, str | Expression] = {}
        made = {name for s in walk(f.body) if isinstance(s, Assign) for name in assigned_names(s)}
        for name, value in zip(f.arguments, given, strict=True):
            if name not in made and isinstance(value, ast.Name | ast.Constant):
                new[name] = value
                continue
            new[name] = own = f"{name}_call{self.count}"
            before.append(Assign(targets=(ast.Name(own, ast.Store()),), value=value))
        new |= {name: f"{name}_call{self.count}" for name in made - new.keys()}
        before += self.block(renamed(f.body[:-1], new))
        last = f.body[-1]
        assert isinstance(last, Return) and last.value is not None
        return with_names(last.value, new)


def _apart(s: Assign) -> Assign:
    """``[a] = [x]`` as ``a = x``, ``[a, b] = [x, y]`` without lists."""
    (target, *more), value = s.targets, s.value
    sides = (target, value)
    if more or not all(isinstance(side, ast.List | ast.Tuple) for side in sides):
        return s
    elements = [side.elts for side in sides if isinstance(side, ast.List | ast.Tuple)]
    if len(elements[0]) != len(elements[1]):
        return s
    if len(elements[0]) == 1:
        return replace(s, targets=(elements[0][0],), value=elements[1][0])
    return replace(s, targets=(ast.Tuple(elements[0], ast.Store()),), value=ast.Tuple(elements[1], ast.Load()))
