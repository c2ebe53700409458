"""How the arrays of a call lie in memory, for CPU kernels: rows side by side, and columns side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import gcd, prod

from redalg.graph.node import Node, walk
from redalg.graph.operators import Binary, NumberExtremum
from redalg.kernels.cpu.schedule import NARROW
from redalg.kernels.ir.layouts import View, lengths_of, readings, steps_nodes, walk_of
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.ir.program import Loop, Pass, Program
from redalg.kernels.ir.schedule import Layout

LEAST = 8  # rows side by side from which on walking them together pays, but in groups
SIDES = 64, 16  # columns that groups of fewer rows make up, or a multiple of them
MOST = 1024  # columns of groups at most
TOGETHER = 4  # groups at a time, and elements of a row at least as many as these have


def layout_of(program: Program, views: Mapping[str, View]) -> Layout:
    """What the strides of a call allow a kernel to assume.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["variance"]), {"x": "float32"})
    >>> layout_of(program, {"x": View.contiguous((2, 9)), "var made": View.contiguous((2,))}).unit
    frozenset({'x'})
    """
    found = walk_of(program, views).layout(1)
    unit = found.unit - {r.key for r in program.results if program.passes}
    return replace(found, unit=unit, across=_side_by_side(program, views, program.columns))


def across_of(program: Program, views: Mapping[str, View]) -> tuple[str, ...]:
    """The last axes of the rows, as many as lie side by side, where that is how the stream is better walked.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["variance"]), {"x": "float32"})
    >>> across_of(program, {"x": View((64, 9), (1, 64)), "var made": View.contiguous((64,))})
    ('i',)
    """
    sizes, rows = lengths_of(program, views), program.rows
    if program.columns or not program.passes or not rows or _contracted(program) & set(rows):
        return ()
    patterns = _patterns(program, views)
    if "rows" not in patterns.values() or "stream" in patterns.values():
        return ()
    side = {n for n, pattern in patterns.items() if pattern == "rows"}
    for first in range(len(rows)):
        axes = rows[first:]
        if side <= _side_by_side(program, views, axes):
            wide = prod(sizes[a] for a in axes) >= LEAST or groups_of(program, views, axes) > 1
            return axes if wide else ()
    return ()


def groups_of(program: Program, views: Mapping[str, View], axes: tuple[str, ...]) -> int:
    """Elements of the stream that are walked together, as columns of their own, where few rows (along `axes`) lie side
    by side without gaps: a vector then holds elements of several. 1 where their places have to be known, or where
    anything else lies along the stream.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["variance"]), {"x": "float32"})
    >>> [groups_of(program, {"x": View((n, 900), (1, n))}, ("i",)) for n in (1, 2, 5, 12, 48, 51, 64)]
    [1, 32, 64, 16, 4, 16, 1]
    """
    sizes = lengths_of(program, views)
    count = prod(sizes[a] for a in axes)
    sides = [side // gcd(side, count) for side in SIDES]
    groups = next((n for n in sides if n * count <= MOST), MOST)
    most = min(MOST // groups, NARROW)  # columns of one block
    if not (LEAST if program.keeps else 2) <= count <= most or len(program.stream) != 1:
        return 1
    (stream,) = program.stream
    if sizes[stream] < TOGETHER * groups or not all(map(_grouped, program.passes)):
        return 1
    nodes = [*walk(*_bodies(program))]
    return groups if nodes and all(_is_dense(n, views, {*axes, stream}, stream, count) for n in nodes) else 1


def _bodies(program: Program) -> Iterator[Node]:
    """What is computed for every element."""
    steps = [s for p in program.passes for s in (*p.lift, *p.update)]
    return (b for s in steps if isinstance(s, Loop) for f in s.folds for b in f.bodies)


def _grouped(p: Pass) -> bool:
    """Whether a pass does not care for the order of its elements, nor for their places."""
    ops = [f.op for s in (*p.lift, *p.update) if isinstance(s, Loop) for f in s.folds]
    plain = all(isinstance(op, Binary) and not isinstance(op, NumberExtremum) for op in ops)
    return not p.ordered and plain and {op.kind for op in ops} <= {"sum", "max", "min"}


def _is_dense(n: Node, views: Mapping[str, View], axes: set[str], stream: str, count: int) -> bool:
    """Whether a node is no element but of arrays along all these axes, without gaps along the stream."""
    if n.op in ("index", "reduce"):
        return False
    if n.op != "tensor" or n.attr.name not in views:
        return True
    steps = dict(zip(n.attr.axes, views[n.attr.name].strides, strict=True))
    return axes <= {*steps} and steps[stream] == count


def interleaved(program: Program, views: Mapping[str, View]) -> bool:
    """Whether rows lie side by side, and nothing that differs from row to row lies along the stream.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["variance"]), {"x": "float32"})
    >>> interleaved(program, {"x": View((3, 9), (1, 3))}), interleaved(program, {"x": View.contiguous((3, 9))})
    (True, False)
    """
    if program.columns or not program.passes or not program.rows:
        return False
    found = _patterns(program, views).values()
    return "rows" in found and "stream" not in found


def _patterns(program: Program, views: Mapping[str, View]) -> dict[str, str]:
    """How arrays lie that differ from row to row and along the stream; one element lies wherever rows do."""
    sizes, rows, found = lengths_of(program, views), program.rows, walk_of(program, views)
    single = prod(sizes[a] for a in program.stream) == 1
    moving = {n for n, axes in readings(program) if rows[-1] in axes and set(axes) & set(program.stream)}
    return {n: "rows" if single else found.pattern(n) for n in moving if n in views}


def _contracted(program: Program) -> set[str]:
    """Axes along which something reduced inside an element varies."""
    steps = [s for p in program.passes for s in (*p.lift, *p.update)]
    nodes = [*steps_nodes(steps), *(r.node for r in program.results)]
    return {a for n in walk(*nodes) if n.op == "reduce" and one_hot_of(n) is None for a in n.axes}


def _side_by_side(program: Program, views: Mapping[str, View], axes: tuple[str, ...]) -> frozenset[str]:
    """Arrays that hold all these axes, one after the other without gaps, the last one innermost."""
    sizes = lengths_of(program, views)
    held: dict[str, bool] = {}
    for name, its in readings(program):
        if name in views and axes:
            steps = dict(zip(its, views[name].strides, strict=True))
            step, fits = 1, set(axes) <= set(its)
            for a in reversed(axes) if fits else ():
                fits &= sizes[a] == 1 or steps[a] == step
                step *= sizes[a]
            if fits or set(axes) & set(its):
                held[name] = held.get(name, True) and fits
    return frozenset(n for n, fits in held.items() if fits)
