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
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from redalg.source.breaking import INDENT, WIDTH, broken, documented
from redalg.source.names import prose
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
    Nested,
    Parameter,
    Pass,
    Raise,
    Return,
    Statement,
    Table,
    While,
    with_names,
)

Names = Mapping[str, str]  # how identifiers are spelled (`redalg.source.names.spellings`)
NONE: Names = {}

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
_PLAIN = frozenset({int, bool, type(None)})  # constants whose text is what `repr` says
ALONE = (Function,)  # what stands between blank lines


# --- expressions -----------------------------------------------------------------------------------------------------


def text(e: Expression, level: int = TUPLE, names: Names = NONE) -> str:
    """An expression, in parentheses if it binds weaker than `level`."""
    rule = _RULES.get(type(e), _other)
    own, found = rule(e, names)
    return f"({found})" if own < level else found


def _other(e: Expression, names: Names) -> tuple[int, str]:
    return ATOM if isinstance(e, WHOLE) else LAMBDA, ast.unparse(with_names(e, names))


def _constant(e: ast.Constant, names: Names) -> tuple[int, str]:
    if isinstance(e.value, str):
        return ATOM, '"' + repr(f"'{e.value}")[2:-1].replace('"', '\\"') + '"' if "'" not in e.value else repr(e.value)
    return ATOM, e.kind or (repr(e.value) if type(e.value) in _PLAIN else ast.unparse(e))


def _binary(e: ast.BinOp, names: Names) -> tuple[int, str]:
    sign, own = BINARY[type(e.op)]
    if own == POWER:
        space = "" if _is_simple(e.left) and _is_simple(e.right) else " "
        return own, f"{text(e.left, ATOM, names)}{space}**{space}{text(e.right, SIGN, names)}"
    left, right = (ATOM if own in BITWISE and _is_mixed(x, e.op) else own for x in (e.left, e.right))
    return own, f"{text(e.left, left, names)} {sign} {text(e.right, max(right, own + 1), names)}"


def _is_mixed(operand: Expression, with_: ast.operator) -> bool:
    """Whether an operand of bits is another operation: few readers know these precedences, so they get parentheses."""
    return isinstance(operand, ast.BinOp) and type(operand.op) is not type(with_)


def _is_simple(e: Expression) -> bool:
    return isinstance(e, ast.Name | ast.Constant | ast.Attribute)


def _unary(e: ast.UnaryOp, names: Names) -> tuple[int, str]:
    sign, own = UNARY[type(e.op)]
    return own, f"{sign}{text(e.operand, BITOR if own == NOT else own, names)}"


def _junction(e: ast.BoolOp, names: Names) -> tuple[int, str]:
    own, word = (AND, " and ") if isinstance(e.op, ast.And) else (OR, " or ")
    return own, word.join(text(x, own + 1, names) for x in e.values)


def _comparison(e: ast.Compare, names: Names) -> tuple[int, str]:
    found = text(e.left, BITOR, names)
    for relation, right in zip(e.ops, e.comparators, strict=True):
        found += f" {RELATIONS[type(relation)]} {text(right, BITOR, names)}"
    return COMPARE, found


def _choice(e: ast.IfExp, names: Names) -> tuple[int, str]:
    return CHOICE, f"{text(e.body, OR, names)} if {text(e.test, OR, names)} else {text(e.orelse, CHOICE, names)}"


def _call(e: ast.Call, names: Names) -> tuple[int, str]:
    given = [text(a, LAMBDA, names) for a in e.args]
    for k in e.keywords:
        given.append(f"{k.arg}={text(k.value, LAMBDA, names)}" if k.arg else f"**{text(k.value, OR, names)}")
    return ATOM, f"{text(e.func, ATOM, names)}({', '.join(given)})"


def _subscript(e: ast.Subscript, names: Names) -> tuple[int, str]:
    inside = e.slice
    if isinstance(inside, ast.Tuple) and inside.elts:
        found = ", ".join(text(x, LAMBDA, names) for x in inside.elts) + ("," if len(inside.elts) == 1 else "")
    else:
        found = text(inside, TUPLE, names)
    return ATOM, f"{text(e.value, ATOM, names)}[{found}]"


def _slice(e: ast.Slice, names: Names) -> tuple[int, str]:
    ends = [text(x, LAMBDA, names) if x is not None else "" for x in (e.lower, e.upper)]
    return LAMBDA, ":".join([*ends, *([text(e.step, LAMBDA, names)] if e.step is not None else [])])


def _tuple(e: ast.Tuple, names: Names) -> tuple[int, str]:
    if not e.elts:
        return ATOM, "()"
    return TUPLE, ", ".join(text(x, LAMBDA, names) for x in e.elts) + ("," if len(e.elts) == 1 else "")


def _list(e: ast.List, names: Names) -> tuple[int, str]:
    return ATOM, f"[{', '.join(text(x, LAMBDA, names) for x in e.elts)}]"


def _set(e: ast.Set, names: Names) -> tuple[int, str]:
    return ATOM, f"{{{', '.join(text(x, LAMBDA, names) for x in e.elts)}}}"


def _dict(e: ast.Dict, names: Names) -> tuple[int, str]:
    pairs = ((k, v) for k, v in zip(e.keys, e.values, strict=True) if k is not None)
    found = (f"{text(k, LAMBDA, names)}: {text(v, LAMBDA, names)}" for k, v in pairs)
    return ATOM, f"{{{', '.join(found)}}}"


_RULES: dict[type, Callable[[Any, Names], tuple[int, str]]] = {
    ast.Name: lambda e, names: (ATOM, names.get(e.id, e.id)),
    ast.Attribute: lambda e, names: (ATOM, f"{text(e.value, ATOM, names)}.{e.attr}"),
    ast.Starred: lambda e, names: (LAMBDA, f"*{text(e.value, OR, names)}"),
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


def render(block: Iterable[Statement], width: int = WIDTH, names: Names = NONE) -> str:
    """The text of a module, or of statements alone, with identifiers as they are spelled."""
    lines: list[str] = []
    _write(lines, tuple(block), _Page(width, names), 0)
    lines.append("")
    return "\n".join(lines)


class _Page(NamedTuple):
    width: int
    names: Names

    def prose(self, said: str) -> str:
        return prose(said, self.names) if said and self.names else said

    def line(self, said: str, comment: str, depth: int) -> list[str]:
        margin, comment = " " * INDENT * depth, self.prose(comment)
        whole = f"{margin}{said}  # {comment}" if comment and said else f"{margin}{said or f'# {comment}'}"
        return broken(whole, self.width)


def _write(lines: list[str], block: Block, page: _Page, depth: int) -> None:
    """The lines of statements; functions, and what is of another kind than what stands above, after blank lines."""
    before: Statement | None = None
    for s in block:
        if before is not None and not depth:
            lines += [""] * _blank(before, s)
        _statement(lines, s, page, depth)
        before = s


def _blank(above: Statement, s: Statement) -> int:
    if isinstance(above, ALONE) or isinstance(s, ALONE):
        return 2
    if isinstance(above, Import) and isinstance(s, Import):
        return above.module.startswith("redalg") != s.module.startswith("redalg")
    return isinstance(above, Import) != isinstance(s, Import)


def _statement(lines: list[str], s: Statement, page: _Page, depth: int) -> None:
    if isinstance(s, Function):
        _function(lines, s, page, depth)
        return
    said = _HEADS[type(s)](s, page.names) if page.names else _head(s)
    if said and not s.comment:
        line = f"{' ' * INDENT * depth}{said}"
        lines += [line] if len(line) <= page.width else broken(line, page.width)
    else:
        lines += page.line(said, s.comment, depth)
    if isinstance(s, Nested):
        _write(lines, s.body, page, depth + 1)
    if isinstance(s, If) and s.orelse:
        lines += page.line("else:", "", depth)
        _write(lines, s.orelse, page, depth + 1)


@lru_cache(maxsize=1 << 14)
def _head(s: Statement) -> str:
    """A statement's own line where identifiers stay as they are: statements are kept, one for every text."""
    return _HEADS[type(s)](s, NONE)


def _function(lines: list[str], s: Function, page: _Page, depth: int) -> None:
    names = page.names
    for decorator in s.decorators:
        lines += page.line(f"@{text(decorator, TUPLE, names)}", "", depth)
    given = ", ".join(_parameter(p, names) for p in s.parameters)
    lines += page.line(f"def {names.get(s.name, s.name)}({given}):", s.comment, depth)
    if s.doc:
        margin, doc = " " * INDENT * depth, [page.prose(part) for part in s.doc]
        lines += [margin + line if line else "" for line in documented(doc[0], doc[1:], page.width)]
    _write(lines, s.body, page, depth + 1)


def _parameter(p: Parameter, names: Names) -> str:
    name = names.get(p.name, p.name)
    return name if p.default is None else f"{name}={text(p.default, LAMBDA, names)}"


def _assign(s: Assign, names: Names) -> str:
    sign = "=" if s.operator is None else f"{BINARY[type(s.operator)][0]}="
    return f"{' = '.join(text(t, TUPLE, names) for t in s.targets)} {sign} {text(s.value, TUPLE, names)}"


def _import(s: Import, names: Names) -> str:
    called = [names.get(n, n) for n in s.names]
    if not s.whole:
        return f"from {s.module} import {', '.join(called)}"
    return f"import {s.module}" + (f" as {called[0]}" if called[0] != s.module else "")


_HEADS: dict[type[Statement], Callable[[Any, Names], str]] = {
    Assign: _assign,
    Table: _assign,
    Import: _import,
    Comment: lambda s, names: "",
    Pass: lambda s, names: "pass",
    Do: lambda s, names: text(s.value, TUPLE, names),
    Return: lambda s, names: "return" if s.value is None else f"return {text(s.value, TUPLE, names)}",
    Raise: lambda s, names: f"raise {text(s.value, TUPLE, names)}",
    For: lambda s, names: f"for {text(s.target, TUPLE, names)} in {text(s.over, TUPLE, names)}:",
    While: lambda s, names: f"while {text(s.test, TUPLE, names)}:",
    If: lambda s, names: f"if {text(s.test, TUPLE, names)}:",
}
