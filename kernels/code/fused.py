"""Rows of one element side by side: loops over the stream turn once, and loops over rows that follow each other join.

A kernel that walks columns has a loop over them for every step of a pass, and keeps what a step gives in a table. Where
a row is one element, that is all there is to do: in one loop values stay in registers, and tables that nobody else
reads are never written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from redalg.graph.functions import FUNCTIONS
from redalg.kernels.code.roles import Role
from redalg.source.render import text
from redalg.source.statements import (
    Assign,
    Block,
    Comment,
    Expression,
    For,
    If,
    Statement,
    While,
    assigned_names,
    changed,
    expression,
    expressions,
    names,
    reads,
    walk,
)

DEAR = {f"{name}_" for name in FUNCTIONS} - {"sqrt_", "rsqrt_", "abs_"}  # whose constants alone fill the registers


def once(block: Block) -> Block:
    """The statements where the stream has one element: what loops over it repeat is done once.

    >>> from redalg.source.builder import Builder
    >>> from redalg.source.render import render
    >>> out = Builder()
    >>> with out.block("for k in range(0, unrolled, 4):", Role.GROUPS):
    ...     out("f(k)")
    >>> with out.block("for k in range(unrolled, count):", Role.ELEMENTS):
    ...     out("g(k)")
    >>> print(render(once(out.body())), end="")
    k = 0
    g(k)
    """
    return changed(block, _once)


def _once(s: Statement) -> Block:
    if s.role in (Role.GROUPS, Role.AHEAD, Role.NEXT_TILE):
        return ()
    if isinstance(s, While) and s.role is Role.TILES:
        return s.body
    if isinstance(s, For) and s.role is Role.ELEMENTS:
        return (Assign(targets=(s.target,), value=expression("0")), *s.body)
    return (s,)


def fused(block: Block) -> Block:
    """The statements with loops over columns joined to those before them, where every element is computed as it was.

    >>> from redalg.kernels.code.roles import each_column
    >>> from redalg.source.builder import Builder
    >>> from redalg.source.render import render
    >>> def loops(first):
    ...     out = Builder()
    ...     with each_column(out):
    ...         out(first)
    ...     out("n = 1")
    ...     with each_column(out):
    ...         out("b[m] = a[m]")
    ...     return out.body()
    >>> print(render(fused(loops("a[m] = f(m)"))), end="")
    n = 1
    for m in range(COLUMNS):
        a[m] = f(m)
        b[m] = a[m]
    >>> print(render(fused(loops("a[0] = f(m)"))), end="")
    n = 1
    for m in range(COLUMNS):
        a[0] = f(m)
    for m in range(COLUMNS):
        b[m] = a[m]
    """
    return _fused(block, _same(block))


def _same(block: Block) -> dict[str, str]:
    """One name for all that may be names of the same table."""
    found: dict[str, str] = {}
    for s in walk(block):
        if isinstance(s, Assign) and isinstance(s.value, ast.Name):
            kept = found.get(s.value.id, s.value.id)
            for name in assigned_names(s):
                gone = found.get(name, name)
                found |= {n: kept for n, other in found.items() if other == gone} | {gone: kept, name: kept}
    return found


def _fused(block: Block, aliases: Mapping[str, str]) -> Block:
    made: list[Statement] = []
    loop: int | None = None  # where the loop lies that others may join
    values: dict[str, Assign] = {}  # what the variables are that were assigned in this block
    for s in block:
        if isinstance(s, For) and s.role is Role.COLUMNS:
            s = replace(s, body=_fused(s.body, aliases))
            _forget_all(s.body, values)
            before = None if loop is None else made[loop]
            if loop is not None and isinstance(before, For) and _joins(before, s, aliases):
                made[loop] = replace(before, body=(*before.body, *s.body))
                continue
            loop = len(made)
            made.append(s)
        elif isinstance(s, Assign) and not s.operator:
            if _known(s, values):
                continue
            _remember(s, values)
            if loop is not None and _passes(s, made[loop], aliases):
                made.insert(loop, s)
                loop += 1
            else:
                made.append(s)
                loop = None
        else:
            if not isinstance(s, Comment):
                loop, values = None, {}
            made.append(_inside(s, aliases))
    return tuple(made)


def _inside(s: Statement, aliases: Mapping[str, str]) -> Statement:
    if isinstance(s, If):
        return replace(s, body=_fused(s.body, aliases), orelse=_fused(s.orelse, aliases))
    return replace(s, body=_fused(s.body, aliases)) if isinstance(s, For | While) else s


# --- variables outside loops -----------------------------------------------------------------------------------------


def _known(s: Assign, values: dict[str, Assign]) -> bool:
    """Whether a variable has this value already."""
    (target, *others) = s.targets
    before = values.get(text(target))
    return not others and before is not None and text(before.value) == text(s.value)


def _remember(s: Assign, values: dict[str, Assign]) -> None:
    assigned = assigned_names(s)
    for name in assigned:
        _forget(name, values)
    if len(s.targets) == 1 and isinstance(s.targets[0], ast.Name) and not names(s.value) & {*assigned}:
        if not any(isinstance(n, ast.Call | ast.Subscript) for n in ast.walk(s.value)):
            values[assigned[0]] = s


def _forget(name: str, values: dict[str, Assign]) -> None:
    for other in [n for n, s in values.items() if n == name or name in names(s.value)]:
        del values[other]


def _forget_all(block: Block, values: dict[str, Assign]) -> None:
    for name in assigned(block):
        _forget(name, values)


def _passes(s: Assign, loop: Statement, aliases: Mapping[str, str]) -> bool:
    """Whether a statement behind a loop may stand before it."""
    assert isinstance(loop, For)
    given = {n for t in s.targets for n in names(t)}
    read, written = names(s.value) | given, {*assigned(loop.body), *_filled(loop.body), text(loop.target)}
    used = reads(loop.body) | written
    loads = any(isinstance(n, ast.Call) for n in ast.walk(s.value))
    arrays = {_table(cell) for cell in _all_cells((s,))}
    if _unaliased(arrays, aliases) & _unaliased(used, aliases):
        return False
    if isinstance(s.value, ast.Name) and not arrays:  # another name, of a table perhaps, wherever it is filled
        written = {*assigned(loop.body), text(loop.target)}
    return not (read & written or {*assigned_names(s)} & used or loads and any(_stores(loop.body)))


def _unaliased(tables: Iterable[str], aliases: Mapping[str, str]) -> set[str]:
    return {aliases.get(n, n) for n in tables}


# --- loops -----------------------------------------------------------------------------------------------------------


def _joins(first: Statement, then: For, aliases: Mapping[str, str]) -> bool:
    """Whether every turn of two loops may follow each other: no variable is carried from one to the other, what either
    fills is looked at in its own place alone, and so is what either stores."""
    assert isinstance(first, For)
    if text(first.target) != text(then.target):
        return False
    one, two = first.body, then.body
    if {*assigned(one)} & _carried(two) or {*assigned(two)} & _carried(one):
        return False
    both = (*one, *two)
    if sum(map(is_dear, (one, two))) > 1:
        return False
    if not _in_place(both, text(first.target), aliases):
        return False
    stored = {*_stores(both)}
    reached = {_place(c) for s in walk(both) for e in expressions(s) for c in _calls(e) if _is_memory(c)}
    return all(sum(p == pointer for p, _ in reached) == 1 for pointer, _ in stored)


def _in_place(block: Block, index: str, aliases: Mapping[str, str]) -> bool:
    """Whether a turn looks at one entry of each table that it fills, and no other turn at the same."""
    filled = _unaliased(_filled(block), aliases)
    places: dict[str, set[str]] = {}
    for cell in _all_cells(block):
        places.setdefault(aliases.get(_table(cell), _table(cell)), set()).add(text(cell.slice))
    moving = {*assigned(block)}
    for name in filled:
        if len(places[name]) > 1:
            return False
        (place,) = places[name]
        inside = names(expression(place))
        if index not in inside or inside & moving:
            return False
    return True


def _carried(block: Block) -> set[str]:
    """Variables that are read before the block assigns them."""
    found: set[str] = set()
    known: set[str] = set()
    for s in block:
        found |= reads([s]) - known
        known |= {*assigned_names(s)} if isinstance(s, Assign) and not s.operator else set()
        found |= {*assigned_names(s)} if isinstance(s, Assign) and s.operator else set()
    return found


def assigned(block: Iterable[Statement]) -> Iterator[str]:
    """The names that statements assign, those of loops among them."""
    for s in walk(block):
        if isinstance(s, Assign):
            yield from assigned_names(s)
        elif isinstance(s, For):
            yield from names(s.target)


def _filled(block: Block) -> Iterator[str]:
    """The tables that statements write into."""
    for s in walk(block):
        if isinstance(s, Assign):
            yield from (_table(cell) for t in s.targets for cell in _cells(t))


def _all_cells(block: Block) -> Iterator[ast.Subscript]:
    for s in walk(block):
        for e in expressions(s):
            yield from _cells(e)


def _cells(e: Expression) -> Iterator[ast.Subscript]:
    return (n for n in ast.walk(e) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name))


def _table(cell: ast.Subscript) -> str:
    assert isinstance(cell.value, ast.Name)
    return cell.value.id


def _calls(e: Expression) -> Iterator[ast.Call]:
    return (n for n in ast.walk(e) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))


def is_dear(block: Iterable[Statement]) -> bool:
    """Whether statements compute a function whose constants alone fill the registers."""
    calls = (text(c.func) for s in walk(block) for e in expressions(s) for c in _calls(e))
    return any(f"{name.rpartition('_')[0]}_" in DEAR for name in calls)


def _is_memory(c: ast.Call) -> bool:
    return isinstance(c.func, ast.Name) and c.func.id.startswith(("load_", "store_"))


def _place(c: ast.Call) -> tuple[str, str]:
    return text(c.args[0]), text(c.args[1])


def _stores(block: Block) -> Iterator[tuple[str, str]]:
    for s in walk(block):
        for e in expressions(s):
            yield from (_place(c) for c in _calls(e) if isinstance(c.func, ast.Name) and c.func.id.startswith("store_"))
