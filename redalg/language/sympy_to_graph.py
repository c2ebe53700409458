"""From SymPy expressions to the shared graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node
from redalg.language import functions as f
from redalg.language.broadcast import as_number
from redalg.language.equal_powers import joined
from redalg.language.leaves import Carrier
from redalg.language.operand import check_constant, exact_fraction, operand
from redalg.text.nodes import short

UNSUPPORTED = "unsupported"  # a node a spec refuses; attr is (what, name)

_UNARY: dict[type, str] = {
    **{cls: name for name, cls in f.MAPS.items()},
    **{getattr(sympy, row.sympy): name for name, row in FUNCTIONS.items() if row.sympy},
}
_COMPARE: dict[type, str] = {
    sympy.StrictLessThan: "lt",
    sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt",
    sympy.GreaterThan: "ge",
}
_EQUAL: dict[type, str] = {f.eq: "eq", f.ne: "ne", sympy.Eq: "eq", sympy.Ne: "ne"}
_CONSTANTS = {
    sympy.S.Infinity: g.INF,
    sympy.S.NegativeInfinity: g.NEG_INF,
    sympy.S.NaN: g.special("nan"),
    sympy.S.Pi: g.special("pi"),
    sympy.S.Exp1: g.special("e"),
    sympy.S.ImaginaryUnit: g.special("i"),
    sympy.true: g.TRUE,
    sympy.false: g.FALSE,
}
SUPPORTED = (
    "exp log sqrt and powers, Abs sign floor ceiling, sin cos tan asin acos atan, sinh cosh tanh asinh acosh atanh, "
    "erf erfc, Max Min Piecewise ITE Heaviside, conjugate re im, And Or Not Xor Implies, comparisons"
)


def to_node(expr: Any, symbols: Mapping[Any, Node] | None = None, strict: bool = True) -> Node:
    """The graph of a SymPy expression; `symbols` maps plain symbols to nodes.

    Visits every object of the expression once, and no body of a reduction. With `strict`, raises RedalgError for
    functions and symbols outside the language (else they become `unsupported` nodes, which a spec refuses).
    """
    node = _Translator(symbols or {}).visit(operand(expr, "an expression"))
    if strict:
        refuse_unsupported(node)
    return node


def refuse_unsupported(*nodes: Node, where: str = "ra.Spec") -> None:
    """Raise RedalgError for the first function or symbol outside the language."""
    for n in g.walk(*nodes):
        if n.op == UNSUPPORTED:
            kind, text = n.attr
            why, fix = {
                "function": ("it is not in the spec language", f"use ra's maps or SymPy's {SUPPORTED}"),
                "symbol": ("its axes are unknown", 'declare it: ra.tensors("x[j]") or ra.scalar("x")'),
                "number": ("it is no number of the spec language", "write it as a float"),
            }[kind]
            raise RedalgError(f"the {kind} {text}", where, why, fix)


class _Translator:
    def __init__(self, symbols: Mapping[Any, Node]) -> None:
        self.symbols = symbols
        self.done: dict[int, tuple[Any, Node]] = {}  # by object (kept alive): equality tests could walk trees

    def visit(self, e: Any) -> Node:
        """The node of an expression; what it is made of is translated first, so that no nest is too deep for Python."""
        stack = [] if id(e) in self.done else [e]
        while stack:
            found = stack[-1]
            todo = [a for a in self.parts(found) if id(a) not in self.done]
            stack.extend(todo)
            if not todo:
                stack.pop()
                if id(found) not in self.done:
                    self.done[id(found)] = (found, self.translate(found))
        return self.done[id(e)][1]

    def parts(self, e: Any) -> list[Any]:
        """The expressions that one is made of."""
        if isinstance(e, Carrier | sympy.Number) or not e.args or e in self.symbols:
            return []
        inside = [b for a in e.args for b in (a.args if isinstance(a, ExprCondPair) else (a,))]
        return [a for a in inside if isinstance(a, sympy.Expr | Boolean)]

    def number(self, e: Any) -> Node:
        return as_number(self.visit(e))

    def condition(self, e: Any) -> Node:
        node = self.visit(e)
        if node.is_boolean or node.op == UNSUPPORTED:
            return node
        raise RedalgError(
            f"{short(node)} as a condition",
            "where, any, all, and, or, not",
            "it is a number, not a condition",
            "compare it: x > 0, or ra.ne(x, 0); declare 0/1 tensors with bool=True",
        )

    def translate(self, e: Any) -> Node:
        if isinstance(e, Carrier):
            return e.node
        if e in self.symbols:
            return self.symbols[e]
        if e is sympy.S.ComplexInfinity:
            raise RedalgError(
                "the complex infinity `zoo`", "ra.Spec", "the expression divides by zero", "guard with where"
            )
        if isinstance(e, sympy.Number) or e in _CONSTANTS:
            return _number(e)
        for cls in type(e).__mro__:
            rule = _RULES.get(cls)
            if rule is not None:
                return rule(self, e)
        if isinstance(e, sympy.Symbol):
            return Node(UNSUPPORTED, (), ("symbol", str(e)))
        if isinstance(e, Boolean):
            raise RedalgError(f"the condition {type(e).__name__}", "ra.Spec", "it is not in the language", SUPPORTED)
        if e.is_Atom:
            return Node(UNSUPPORTED, (), ("number", type(e).__name__))
        return Node(UNSUPPORTED, tuple(self.visit(a) for a in e.args), ("function", type(e).__name__))


def _number(e: Any) -> Node:
    if e in _CONSTANTS:
        return _CONSTANTS[e]
    if isinstance(e, sympy.Rational):
        check_constant(e, "ra.Spec")
        return g.const(Fraction(int(e.p), int(e.q)))
    return g.const(exact_fraction(e))


def _compare(t: _Translator, e: Any) -> Node:
    sides = [t.visit(a) for a in e.args]
    if any(s.is_boolean for s in sides):
        raise RedalgError(f"{e}", "a comparison", "conditions have no order", "use ra.eq, ra.ne, & | ~ on conditions")
    return g.compare(_COMPARE[type(e)], *sides)


def _equal(t: _Translator, e: Any) -> Node:
    sides = [t.visit(a) for a in e.args]
    if not all(s.is_boolean for s in sides):
        sides = [as_number(s) for s in sides]
    return g.compare(_EQUAL[type(e)], *sides)


def _piecewise(t: _Translator, e: sympy.Piecewise) -> Node:
    result = g.special("nan")
    for value, condition in reversed(e.args):
        result = g.where(t.condition(condition), t.number(value), result)
    return result


def _heaviside(t: _Translator, e: Any) -> Node:
    x, at_zero = t.number(e.args[0]), t.number(e.args[1])
    rest = g.where(g.compare("eq", x, g.ZERO), at_zero, g.special("nan"))
    return g.where(g.compare("lt", x, g.ZERO), g.ZERO, g.where(g.compare("lt", g.ZERO, x), g.ONE, rest))


def _xor(t: _Translator, e: Any) -> Node:
    result = g.FALSE
    for c in map(t.condition, e.args):
        both = g.logical("and", result, g.negate(c)), g.logical("and", g.negate(result), c)
        result = g.logical("or", *both)
    return result


def _log(t: _Translator, e: Any) -> Node:
    value = g.fn("log", t.number(e.args[0]))
    return value if len(e.args) == 1 else g.div(value, g.fn("log", t.number(e.args[1])))


def _where(t: _Translator, e: Any) -> Node:
    return g.where(t.condition(e.args[0]), t.number(e.args[1]), t.number(e.args[2]))


def _choose(t: _Translator, e: Any) -> Node:
    return g.where(*map(t.condition, e.args))


_RULES: dict[type, Callable[[_Translator, Any], Node]] = {
    sympy.Add: lambda t, e: g.add(*map(t.number, e.args)),
    sympy.Mul: lambda t, e: joined(g.mul(*map(t.number, e.args))),
    sympy.Pow: lambda t, e: joined(g.power(*map(t.number, e.args))),
    **{cls: (lambda t, e, op=op: g.fn(op, t.number(e.args[0]))) for cls, op in _UNARY.items()},  # type: ignore[misc]
    sympy.log: _log,
    f.log: _log,
    f.maximum: lambda t, e: g.extremum("maximum", *map(t.number, e.args)),
    f.minimum: lambda t, e: g.extremum("minimum", *map(t.number, e.args)),
    sympy.Max: lambda t, e: g.extremum("maximum", *map(t.number, e.args)),
    sympy.Min: lambda t, e: g.extremum("minimum", *map(t.number, e.args)),
    f.where: _where,
    f.choose: _choose,
    sympy.ITE: _choose,
    sympy.Piecewise: _piecewise,
    sympy.Heaviside: _heaviside,
    f.cast: lambda t, e: Node("cast", (t.number(e.args[0]),), str(e.args[1])),
    **dict.fromkeys(_COMPARE, _compare),
    **dict.fromkeys(_EQUAL, _equal),
    sympy.And: lambda t, e: g.logical("and", *map(t.condition, e.args)),
    sympy.Or: lambda t, e: g.logical("or", *map(t.condition, e.args)),
    sympy.Not: lambda t, e: g.negate(t.condition(e.args[0])),
    sympy.Xor: _xor,
    sympy.Implies: lambda t, e: g.logical("or", g.negate(t.condition(e.args[0])), t.condition(e.args[1])),
}
