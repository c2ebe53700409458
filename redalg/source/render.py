"""Statements as text: the one printer of generated code, for numba.cuda, Numba and NumPy alike.

Parentheses stand where precedence asks for them, and where readers would not know it (``(t >> 5) & 3``). Lines longer
than `WIDTH` are broken (`redalg.source.breaking`).

>>> from redalg.source.statements import statements
>>> print(render(statements("if (a>b) and not c:\\n  x[i,j] += 2**k * (a+b)  # grows")))
if a > b and not c:
    x[i, j] += 2**k * (a + b)  # grows
<BLANKLINE>
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from redalg.source.breaking import INDENT, WIDTH, broken, documented
from redalg.source.statements import (
    Assign,
    Block,
    Comment,
    Do,
    Expression,
    For,
    Function,
    If,
    Import,
    Parameter,
    Pass,
    Raise,
    Return,
    Statement,
    While,
)

# How strongly what is printed binds: an operand is put in parentheses where it binds weaker than its place asks for.
TUPLE, LAMBDA, CHOICE, OR, AND, NOT, COMPARE, BITOR, BITXOR, BITAND, SHIFT, ADD, MUL, SIGN, POWER, ATOM = range(16)
BINARY: dict[type[ast.operator], tuple[str, int]] = {
    ast.BitOr: ("|", BITOR),
    ast.BitXor: ("^", BITXOR),
    ast.BitAnd: ("&", BITAND),
    ast.LShift: ("<<", SHIFT),
    ast.RShift: (">>", SHIFT),
    ast.Add: ("+", ADD),
    ast.Sub: ("-", ADD),
    ast.Mult: ("*", MUL),
    ast.Div: ("/", MUL),
    ast.FloorDiv: ("//", MUL),
    ast.Mod: ("%", MUL),
    ast.MatMult: ("@", MUL),
    ast.Pow: ("**", POWER),
}
UNARY: dict[type[ast.unaryop], tuple[str, int]] = {
    ast.Not: ("not ", NOT),
    ast.USub: ("-", SIGN),
    ast.UAdd: ("+", SIGN),
    ast.Invert: ("~", SIGN),
}
RELATIONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
WHOLE = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.JoinedStr)  # in brackets of their own
BITWISE = (BITOR, BITXOR, BITAND, SHIFT)
ALONE = (Function,)  # what stands between blank lines


# --- expressions -----------------------------------------------------------------------------------------------------


def text(e: Expression, level: int = TUPLE) -> str:
    """An expression, in parentheses if it binds weaker than `level`."""
    rule = _RULES.get(type(e))
    own, found = rule(e) if rule is not None else (ATOM if isinstance(e, WHOLE) else LAMBDA, ast.unparse(e))
    return f"({found})" if own < level else found


def _constant(e: ast.Constant) -> tuple[int, str]:
    if isinstance(e.value, str):
        return ATOM, '"' + repr(f"'{e.value}")[2:-1].replace('"', '\\"') + '"' if "'" not in e.value else repr(e.value)
    return ATOM, e.kind or ast.unparse(e)


def _binary(e: ast.BinOp) -> tuple[int, str]:
    sign, own = BINARY[type(e.op)]
    if own == POWER:
        space = "" if _is_simple(e.left) and _is_simple(e.right) else " "
        return own, f"{text(e.left, ATOM)}{space}**{space}{text(e.right, SIGN)}"
    left, right = (ATOM if own in BITWISE and _is_mixed(x, e.op) else own for x in (e.left, e.right))
    return own, f"{text(e.left, left)} {sign} {text(e.right, max(right, own + 1))}"


def _is_mixed(operand: Expression, with_: ast.operator) -> bool:
    """Whether an operand of bits is another operation: few readers know these precedences, so they get parentheses."""
    return isinstance(operand, ast.BinOp) and type(operand.op) is not type(with_)


def _is_simple(e: Expression) -> bool:
    return isinstance(e, ast.Name | ast.Constant | ast.Attribute)


def _unary(e: ast.UnaryOp) -> tuple[int, str]:
    sign, own = UNARY[type(e.op)]
    return own, f"{sign}{text(e.operand, BITOR if own == NOT else own)}"


def _junction(e: ast.BoolOp) -> tuple[int, str]:
    own, word = (AND, " and ") if isinstance(e.op, ast.And) else (OR, " or ")
    return own, word.join(text(x, own + 1) for x in e.values)


def _comparison(e: ast.Compare) -> tuple[int, str]:
    found = text(e.left, BITOR)
    for relation, right in zip(e.ops, e.comparators, strict=True):
        found += f" {RELATIONS[type(relation)]} {text(right, BITOR)}"
    return COMPARE, found


def _choice(e: ast.IfExp) -> tuple[int, str]:
    return CHOICE, f"{text(e.body, OR)} if {text(e.test, OR)} else {text(e.orelse, CHOICE)}"


def _call(e: ast.Call) -> tuple[int, str]:
    given = [text(a, LAMBDA) for a in e.args]
    given += [f"{k.arg}={text(k.value, LAMBDA)}" if k.arg else f"**{text(k.value, OR)}" for k in e.keywords]
    return ATOM, f"{text(e.func, ATOM)}({', '.join(given)})"


def _subscript(e: ast.Subscript) -> tuple[int, str]:
    inside = e.slice
    several = isinstance(inside, ast.Tuple) and inside.elts
    found = ", ".join(text(x, LAMBDA) for x in inside.elts) if several else text(inside)  # type: ignore[attr-defined]
    return ATOM, f"{text(e.value, ATOM)}[{found}{',' if several and len(inside.elts) == 1 else ''}]"  # type: ignore[attr-defined]


def _slice(e: ast.Slice) -> tuple[int, str]:
    ends = [text(x, LAMBDA) if x is not None else "" for x in (e.lower, e.upper)]
    return LAMBDA, ":".join([*ends, *([text(e.step, LAMBDA)] if e.step is not None else [])])


def _tuple(e: ast.Tuple) -> tuple[int, str]:
    if not e.elts:
        return ATOM, "()"
    return TUPLE, ", ".join(text(x, LAMBDA) for x in e.elts) + ("," if len(e.elts) == 1 else "")


def _list(e: ast.List) -> tuple[int, str]:
    return ATOM, f"[{', '.join(text(x, LAMBDA) for x in e.elts)}]"


def _set(e: ast.Set) -> tuple[int, str]:
    return ATOM, f"{{{', '.join(text(x, LAMBDA) for x in e.elts)}}}"


def _dict(e: ast.Dict) -> tuple[int, str]:
    pairs = zip(e.keys, e.values, strict=True)
    return ATOM, "{" + ", ".join(f"{text(k, LAMBDA)}: {text(v, LAMBDA)}" for k, v in pairs if k is not None) + "}"


_RULES: dict[type, Callable[[Any], tuple[int, str]]] = {
    ast.Name: lambda e: (ATOM, e.id),
    ast.Attribute: lambda e: (ATOM, f"{text(e.value, ATOM)}.{e.attr}"),
    ast.Starred: lambda e: (LAMBDA, f"*{text(e.value, OR)}"),
    ast.Constant: _constant,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _junction,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Dict: _dict,
    ast.Set: _set,
}


# --- statements ------------------------------------------------------------------------------------------------------


def render(block: Iterable[Statement], width: int = WIDTH) -> str:
    """The text of a module, or of statements alone."""
    return "\n".join([*lines(tuple(block), 0, width), ""])


def lines(block: Block, depth: int = 0, width: int = WIDTH) -> Iterator[str]:
    """The lines of statements; functions, and what is of another kind than what stands above, after blank lines."""
    before: Statement | None = None
    for s in block:
        if before is not None:
            yield from [""] * _blank(before, s, depth)
        yield from _statement(s, depth, width)
        before = s


def _blank(above: Statement, s: Statement, depth: int) -> int:
    if depth:
        return 0
    if isinstance(above, ALONE) or isinstance(s, ALONE):
        return 2
    if isinstance(above, Import) and isinstance(s, Import):
        return above.module.startswith("redalg") != s.module.startswith("redalg")
    return isinstance(above, Import) != isinstance(s, Import)


def _statement(s: Statement, depth: int, width: int) -> Iterator[str]:
    if isinstance(s, Function):
        yield from _function(s, depth, width)
        return
    yield from _line(_HEADS[type(s)](s), s.comment, depth, width)
    if isinstance(s, For | While | If):
        yield from lines(s.body, depth + 1, width)
    if isinstance(s, If) and s.orelse:
        yield from _line("else:", "", depth, width)
        yield from lines(s.orelse, depth + 1, width)


def _line(said: str, comment: str, depth: int, width: int) -> list[str]:
    margin = " " * INDENT * depth
    return broken(f"{margin}{said}  # {comment}" if comment and said else f"{margin}{said or f'# {comment}'}", width)


def _function(s: Function, depth: int, width: int) -> Iterator[str]:
    for decorator in s.decorators:
        yield from _line(f"@{text(decorator)}", "", depth, width)
    yield from _line(f"def {s.name}({', '.join(map(_parameter, s.parameters))}):", s.comment, depth, width)
    if s.doc:
        margin = " " * INDENT * depth
        yield from (margin + line if line else "" for line in documented(s.doc[0], s.doc[1:], width))
    yield from lines(s.body, depth + 1, width)


def _parameter(p: Parameter) -> str:
    return p.name if p.default is None else f"{p.name}={text(p.default, LAMBDA)}"


def _assign(s: Assign) -> str:
    sign = "=" if s.operator is None else f"{BINARY[type(s.operator)][0]}="
    return f"{' = '.join(map(text, s.targets))} {sign} {text(s.value)}"


def _import(s: Import) -> str:
    if not s.whole:
        return f"from {s.module} import {', '.join(s.names)}"
    return f"import {s.module}" + (f" as {s.names[0]}" if s.names[0] != s.module else "")


_HEADS: dict[type[Statement], Callable[[Any], str]] = {
    Assign: _assign,
    Import: _import,
    Comment: lambda s: "",
    Pass: lambda s: "pass",
    Do: lambda s: text(s.value),
    Return: lambda s: "return" if s.value is None else f"return {text(s.value)}",
    Raise: lambda s: f"raise {text(s.value)}",
    For: lambda s: f"for {text(s.target)} in {text(s.over)}:",
    While: lambda s: f"while {text(s.test)}:",
    If: lambda s: f"if {text(s.test)}:",
}
