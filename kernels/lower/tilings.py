"""Along which axes of a state a thread may hold single values (`redalg.kernels.lower.unrolled`), and how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from redalg.kernels.ir.layouts import program_nodes
from redalg.kernels.ir.program import Program
from redalg.kernels.lower.unrolled import Tile

MOST_PARTS = 32  # values of a state: three times as many registers, and a function that merges twice as many
MOST_ENTRIES = 49  # of a state that is held whole, before those that are alike are counted once
PAIRS, SINGLES = ((4, 4), (4, 2)), (8, 4)  # entries of a tile along two axes, and along one


def tilings(program: Program, sizes: Mapping[str, int], columns_only: bool = False) -> Iterator[dict[str, Tile]]:
    """Tiles worth comparing: all of a small state, then a few entries along the longest axes. Columns are held whole.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> form = ra.derive_incremental(ra.parse("return s = sum[j](X[j,a] * X[j,b])"))
    >>> program = lower(form, {"X": "float32", "X_j_b": "float32"})
    >>> [[t.held for t in tiles.values()] for tiles in tilings(program, {"j": 1000, "a": 3, "b": 3})]
    [[3, 3], [3, 3], [3, 2]]
    >>> [[t.held for t in tiles.values()] for tiles in tilings(program, {"j": 1000, "a": 64, "b": 64})]
    [[4, 4], [4, 2]]
    """
    if not program.passes or program.keeps or program.lengths or _contracts(program):
        return
    axes = [*(program.columns or (() if columns_only else shared_axes(program, sizes)))]
    if not axes or min(sizes[a] for a in axes) < 1:
        return
    if prod(sizes[a] for a in axes) <= MOST_ENTRIES:
        yield {a: Tile(sizes[a], sizes[a]) for a in axes}
    if not program.columns:
        yield from _of_the_longest(axes, sizes)


def _of_the_longest(axes: list[str], sizes: Mapping[str, int]) -> Iterator[dict[str, Tile]]:
    """A few entries along the two longest axes, or the longest."""
    longest = sorted(axes, key=lambda a: -sizes[a])[:2]
    for held in PAIRS if len(longest) > 1 else ((n,) for n in SINGLES):
        pairs = zip(longest, held, strict=True)
        tiles = {a: Tile(sizes[a], min(n, sizes[a])) for a, n in pairs}
        yield {a: tiles[a] for a in axes if a in tiles}


def _contracts(program: Program) -> bool:
    """Whether an element holds a contraction, which threads of a warp share (`redalg.kernels.rows.columns`)."""
    stream = {*program.stream}
    return any(n.op == "reduce" and a.axes & stream for n in program_nodes(program) for a in n.args)


def shared_axes(program: Program, sizes: Mapping[str, int]) -> list[str]:
    """Axes of rows along which at least half of what is read of an element does not vary."""
    stream = {*program.stream}
    read = {n.attr.axes for n in program_nodes(program) if n.op == "tensor" and n.axes & stream}
    bytes_of = {axes: prod(sizes.get(a, 1) for a in axes) for axes in read}
    whole = sum(bytes_of.values())
    return [a for a in program.rows if 2 * sum(n for axes, n in bytes_of.items() if a not in axes) >= whole > 0]
