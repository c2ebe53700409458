"""Rows in turn for several rows at a time: what all need of their elements first, functions of rows, then results.

A row that is walked twice, with a logarithm of what the first walk gives before the second one begins, keeps the
processor waiting: it looks ahead by a few hundred instructions, and the next row lies behind them. So first walks of a
group of rows follow each other, then functions of all of these rows are one vector's, and then second walks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from redalg.kernels.code.fused import assigned, is_dear
from redalg.kernels.code.roles import Role
from redalg.source.render import text
from redalg.source.statements import (
    Assign,
    Block,
    Do,
    Expression,
    For,
    Function,
    Statement,
    While,
    assigned_names,
    expression,
    expressions,
    names,
    reads,
    renamed,
    statements,
    walk,
)

ROWS = 16  # of a group: a vector of their numbers
ELEMENTS = 8192  # of a group's rows, which are read again from the first-level cache
FORMATS = {"float32": "f32", "float64": "f64", "float16": "f32", "bfloat16": "f32"}
DTYPES = {"f32": "float32", "f64": "float64"}


def in_turn(f: Function, real: str) -> Function:
    """The function with its rows in groups, where a function of a row stands between two walks over its elements; else
    as it is. `real`: f32 or f64.

    >>> from redalg.source.render import render
    >>> from redalg.source.statements import function
    >>> f = function('''
    ... def rows(x, y, length, low, high):
    ...     for row in range(low, high):
    ...         x_row = row * length
    ...         total = f32(0)
    ...         for k in range(length):
    ...             total = total + load_float32(x, x_row + k)
    ...         t1 = log_f32(total)
    ...         for k in range(length):
    ...             store_float32(y, x_row + k, t1)
    ... '''.strip())
    >>> f = replace(f, body=(replace(f.body[0], role=Role.ROWS),))
    >>> print(render(in_turn(f, "f32").body[-1].body[2:3]), end="")
    for rows_each in range(rows_last - rows_first):
        rows_t1[rows_each] = log_f32(rows_total[rows_each])
    """
    at = next((n for n, s in enumerate(f.body) if s.role is Role.ROWS), None)
    if at is None or len(f.body) != at + 1 or "length" not in reads(f.body):
        return f
    loop = f.body[at]
    assert isinstance(loop, For)
    parts = _parts(loop.body, real)
    row = text(loop.target)
    known = {*f.arguments, *reads(f.body), *assigned(f.body)}
    if parts is None or row != "row" or any(name.startswith("rows_") for name in known):
        return f
    return replace(f, body=(*f.body[:at], *parts.printed(loop.target, real)))


class _Parts:
    """A row's statements: indices, the first walk, functions of the row, the second walk; numbers that are kept."""

    def __init__(self, indices: Block, first: Block, middle: Block, second: Block) -> None:
        self.indices, self.first, self.middle, self.second = indices, first, middle, second
        given, made = {*assigned(first)}, {*assigned(middle)}
        later = _entering(second)
        self.given = sorted(given & (_entering(middle) | later))
        self.made = sorted(made)
        self.late = sorted((given | made) & later)

    def printed(self, row: Expression, real: str) -> Block:
        cells = {name: expression(f"rows_{name}[rows_each]") for name in (*self.given, *self.made)}
        here = {name: f"rows_{name}[row - rows_first]" for name in cells}
        over = expression("range(rows_first, rows_last)")
        kept = tuple(s for name in self.given for s in statements(f"{here[name]} = {name}"))
        found = tuple(s for name in self.late for s in statements(f"{name} = {here[name]}"))
        first = For(target=row, over=over, body=(*self.indices, *self.first, *kept))
        turn, turns = expression("rows_each"), expression("range(rows_last - rows_first)")
        middle = For(target=turn, over=turns, body=renamed(self.middle, cells))
        second = For(target=row, over=over, body=(*self.indices, *found, *self.second))
        rooms = tuple(s for name in cells for s in statements(f"rows_{name} = stack_{DTYPES[real]}({ROWS})"))
        begin = statements(
            f"rows_size = max(1, min({ROWS}, {ELEMENTS} // max(1, length)))\nrows_first = low\n"
            "while rows_first < high:\n    rows_last = min(rows_first + rows_size, high)\n    rows_first = rows_last"
        )
        *before, group = begin
        assert isinstance(group, While)
        last, following = group.body
        return (*rooms, *before, replace(group, body=(last, first, middle, second, following)))


def _parts(body: Block, real: str) -> _Parts | None:
    """None where a row's statements are others, or what is kept of a row is no number."""
    found = _split(body)
    if found is None or _cells(body):
        return None
    kinds = _kinds((*found.first, *found.middle), real)
    made = {*assigned([*found.first, *found.middle])}
    twice = {*assigned(found.indices)} & made or {*found.given} & {*found.made}
    plain = all(kinds.get(name) == real for name in (*found.given, *found.made))
    return found if is_dear(found.middle) and plain and not twice else None


def _split(body: Block) -> _Parts | None:
    """Indices, loops that store nothing, assignments, and the rest, if that is the order."""
    firsts = [n for n, s in enumerate(body) if isinstance(s, For) and not any(_stores([s]))]
    if not firsts or not all(isinstance(s, Assign | For | Do) for s in body):
        return None
    begin = next(n for n, s in enumerate(body) if not _counts(s))
    end = firsts[-1] + 1
    first, rest = body[begin:end], body[end:]
    middle: Block = tuple(s for s in rest if isinstance(s, Assign))
    second = tuple(s for s in rest if not isinstance(s, Assign))
    if rest != (*middle, *second) or any(_stores(first)):
        return None
    return _Parts(body[:begin], first, *_taken_out(middle, second))


def _taken_out(middle: Block, second: Block) -> tuple[Block, Block]:
    """What is stored of a row alone, as a number of its own."""
    made: list[Statement] = []
    left: list[Statement] = []
    for s in second:
        call = s.value if isinstance(s, Do) else None
        if isinstance(s, Do) and isinstance(call, ast.Call) and len(call.args) == 3 and is_dear((s,)):
            name = f"given{len(made) + 1}"
            made.append(Assign(targets=(ast.Name(name, ast.Store()),), value=call.args[2]))
            new = ast.Call(call.func, [*call.args[:2], expression(name)], call.keywords)
            left.append(replace(s, value=new))
        else:
            left.append(s)
    return (*middle, *made), tuple(left)


def _counts(s: Statement) -> bool:
    """Whether a statement computes an index."""
    plain = ast.Name | ast.Constant | ast.BinOp | ast.Add | ast.Sub | ast.Mult | ast.Load
    return isinstance(s, Assign) and not s.operator and all(isinstance(n, plain) for n in ast.walk(s.value))


def _kinds(block: Block, real: str) -> dict[str, str]:
    """The variables that are real numbers, whatever way leads to them; others are ""."""
    found: dict[str, str] = {}
    for s in walk(block):
        if isinstance(s, Assign):
            kind = real if not s.operator and _is_real(s.value, found, real) else ""
            for name in assigned_names(s):
                found[name] = kind if found.get(name, kind) == kind else ""
    return found


def _is_real(e: Expression, known: Mapping[str, str], real: str) -> bool:
    if isinstance(e, ast.Name):
        return known.get(e.id, real if e.id in ("INF", "NAN", "PI", "E") else "") == real
    if isinstance(e, ast.UnaryOp):
        return isinstance(e.op, ast.USub) and _is_real(e.operand, known, real)
    if isinstance(e, ast.BinOp):
        return _is_real(e.left, known, real) and _is_real(e.right, known, real)
    if isinstance(e, ast.IfExp):
        return _is_real(e.body, known, real) and _is_real(e.orelse, known, real)
    if not (isinstance(e, ast.Call) and isinstance(e.func, ast.Name)):
        return False
    begin, _, end = e.func.id.rpartition("_")
    if begin in ("load", "largest", "smallest"):
        return FORMATS.get(end) == real
    return end == real and not begin.startswith("is_")


def _entering(block: Iterable[Statement]) -> set[str]:
    """What statements read that they have not assigned themselves."""
    found: set[str] = set()
    known: set[str] = set()
    for s in block:
        if isinstance(s, For):
            found |= (names(s.over) | _entering(s.body) - names(s.target)) - known
        else:
            found |= reads([s]) - known
            known |= {*assigned_names(s)} if isinstance(s, Assign) else set()
    return found


def _cells(block: Block) -> bool:
    """Whether statements look at tables."""
    return any(isinstance(n, ast.Subscript) for s in walk(block) for e in expressions(s) for n in ast.walk(e))


def _calls(block: Iterable[Statement]) -> Iterator[str]:
    for s in walk(block):
        for e in expressions(s):
            yield from (text(n.func) for n in ast.walk(e) if isinstance(n, ast.Call))


def _stores(block: Iterable[Statement]) -> Iterator[str]:
    """Calls for what they do, not for what they give."""
    return (name for name in _calls(block) if name.startswith(("store_", "stream_", "every_", "prefetch")))
