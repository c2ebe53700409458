"""Schedules of CPU kernels: which functions a program becomes, and what each of them is shared out by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod
from typing import Self

from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node, walk
from redalg.kernels.ir.layouts import steps_nodes
from redalg.kernels.ir.one_hot import one_hot_of
from redalg.kernels.ir.program import STORAGE, Module, Program

TILE = 1024  # elements of a tile where a row is walked in tiles
IN_PLACE = 4096  # elements of a tile that is read where it lies
STRIP = 2048  # elements of a row among which a position is searched for
LANES = 32  # compensated sums that run side by side in a row
WHOLE = 8192  # the longest row that is one tile whose buffers lie on the stack
LONG = 1 << 18  # bytes of the longest row that is one tile: it stays in the second-level cache, and so do its buffers
SPAN = 1 << 16  # elements of a split of a row whose elements are cheap
QUICK = 1 << 15  # where no function is computed for an element, so that reading a row twice costs little
DEAR = 1 << 14  # of few rows side by side, of which functions are computed
INSIDE = 1 << 13  # of rows that lie in one another, whose lines are then found in the caches by the next row
STRIPE = 1024  # elements of a result that are gathered in the first-level cache on their way past the caches
PAST = 1 << 25  # bytes of results that are worth it: what is read next would not find them in the caches
NEAR = 1 << 23  # bytes of operands up to which caches may hold them, and asking ahead costs more than it saves
BLOCK = 1024  # columns of rows that lie side by side, walked together, at most
NARROW, BLOCKS = 128, 8  # columns of a block at least, and blocks that threads share out where there are columns enough
ROWS = 64  # elements of a tile of such a block
KEPT = 1024  # elements of such rows whose dear values are kept until results read them
TURNED = 192  # elements of a row that is turned, at most
FEWEST = 1 << 10  # elements of a split of any row
INSTRUCTIONS = frozenset({"abs", "floor", "ceil", "relu", "sign"})  # functions that are not dear
ELEMENT, FUNCTION, ROW = 0.08, 0.15, 10.0  # nanoseconds, of float32 in vectors of 256 to 512 bits


class Family(StrEnum):
    """How threads share out the work; ``schedule=`` takes these words."""

    ROWS = "rows"
    SPLIT = "split"
    COLUMNS = "columns"

    def __repr__(self) -> str:
        return repr(self.value)


FAMILIES = tuple(Family)


@dataclass(frozen=True)
class CpuSchedule:
    """How a CPU walks the rows of a program.

    ``resident``: a row is one tile, which stays in the first or second-level caches; ``whole``: of at most so many
    elements. ``split``: a row is cut into splits of a
    length that depends on nothing but the sizes; splits are shared out among threads, and their states are merged in
    the order of the stream, so that every number of threads gives the same bits. ``across``: axes of rows that lie side
    by side in memory while the stream does not; blocks of them are walked together, one element of the stream after the
    other. ``past``: results with an element for each of the stream go to memory past the caches, which spares reading
    the lines they are written to. ``turned``: blocks of short rows are transposed first, and then walked like rows that
    lie side by side (`redalg.kernels.cpu.blocks`). ``interleaved``: few rows lie side by side, so that the same lines
    of memory hold elements of all: the splits of all rows at one place follow each other and find them in the caches,
    and results with gaps between their elements are gathered first, so that their loop is one of vectors. ``single``:
    a row is one element. ``near``: rows side by side that caches hold, of which no element is asked for ahead.
    ``groups``: elements of the stream that are columns of their own, where few rows lie side by side
    (`redalg.kernels.cpu.layout.groups_of`).
    """

    resident: bool = False
    split: bool = False
    across: tuple[str, ...] = ()
    past: bool = False
    whole: int = WHOLE
    turned: bool = False
    interleaved: bool = False
    single: bool = False
    near: bool = False
    groups: int = 1

    @property
    def family(self) -> Family:
        return Family.SPLIT if self.split else Family.ROWS

    def __str__(self) -> str:
        what = f"blocks of {BLOCK} rows side by side along {','.join(self.across)}" if self.across else "rows"
        what += f" ({self.groups} elements of each at a time)" if self.groups > 1 else ""
        what = "blocks of short rows, turned so that they lie side by side," if self.turned else what
        what += " that lie in one another," if self.interleaved else ""
        end = "; results go past the caches" if self.past else ""
        if self.split:
            return (
                f"{what} in splits, shared out among threads; their states are merged in the order of the stream{end}"
            )
        how = f"as one tile of at most {self.whole} elements" if self.resident else "in tiles"
        return f"{what} shared out among threads, each walked {how}{end}"


@dataclass(frozen=True)
class Stage:
    """One function of a module. It takes a range of what it counts: "rows", or "splits" (those of a row together).

    ``does`` says what it computes, for its docstring.
    """

    name: str
    counts: str
    does: str = ""


@dataclass(frozen=True)
class CpuModule(Module):
    """Functions that share their arguments and run one after the other; `Module.entry` is the first."""

    stages: tuple[Stage, ...] = ()

    def renamed(self, source: str, names: Mapping[str, str]) -> Self:
        stages = tuple(replace(s, name=names.get(s.name, s.name)) for s in self.stages)
        return replace(super().renamed(source, names), stages=stages)


def past_caches(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether what is written for every element is more than caches hold, and rows are long enough for whole lines."""
    kept = [r for r in program.results if r.keeps]
    written = sum(prod(sizes[a] for a in r.axes) * STORAGE[r.dtype] for r in kept)
    return (
        bool(kept) and not program.columns and written >= PAST and prod(sizes[a] for a in program.stream) >= STRIPE // 4
    )


def near(program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether caches may hold all that is read."""
    return sum(prod(sizes.get(a, 1) for a in p.axes) * STORAGE[p.dtype] for p in program.operands) <= NEAR


def span_of(program: Program, sizes: Mapping[str, int], interleaved: bool = False, groups: int = 1) -> int:
    """Elements of the stream in one split: fewer where an element is dear, and where rows lie in one another. Of few
    rows side by side, which threads do not share out, whole groups.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["logsumexp"]), {"x": "float32"})
    >>> span_of(program, {"i": 1, "j": 1 << 20})
    65536
    """
    inner = _inside(program, sizes)
    columns = prod(sizes[a] for a in program.columns)
    whole = SPAN if program.columns or functions_of(program) else QUICK
    whole = INSIDE if interleaved and not program.keeps else whole
    whole = DEAR if groups > 1 and functions_of(program) else whole
    step = 4 * groups if groups > 1 else 1
    return max(FEWEST, whole // max(1, inner * min(columns, BLOCK)) // step * step)


def functions_of(program: Program) -> int:
    """Functions, such as exp, that are computed for an element."""
    return sum(is_dear(n) and bool(n.axes & {*program.stream}) for n in walk(*_nodes(program)))


def is_dear(node: Node) -> bool:
    """Whether a node is a function that takes dozens of instructions."""
    return node.op in FUNCTIONS and node.op not in INSTRUCTIONS


def keeps_dear(program: Program) -> bool:
    """Whether results with an element for each of the stream compute functions of it."""
    nodes = walk(*(r.node for r in program.results if r.keeps))
    return any(is_dear(n) and bool(n.axes & {*program.stream}) for n in nodes)


def width_of(columns: int, split: bool) -> int:
    """Columns that are walked together: blocks of them are the work of one thread each, unless splits are.

    >>> [width_of(n, False) for n in (9, 300, 1500, 3000, 100000)], width_of(1500, True)
    ([128, 128, 192, 384, 1024], 1024)
    """
    return BLOCK if split else min(BLOCK, max(NARROW, -(-columns // (64 * BLOCKS)) * 64))


def _inside(program: Program, sizes: Mapping[str, int]) -> int:
    """Elements that are reduced inside one element of the stream."""
    loops = [n for n in walk(*_nodes(program)) if n.op == "reduce" and one_hot_of(n) is None]
    return max([1, *(prod(sizes.get(a, 1) for a in n.attr.axes) for n in loops)])


def _nodes(program: Program) -> list[Node]:
    steps = [s for p in program.passes for s in (*p.lift, *p.update)]
    return [*steps_nodes(steps), *(r.node for r in program.results)]


def nanoseconds_of(program: Program, sizes: Mapping[str, int]) -> float:
    """About how long one thread takes, from what is computed for an element and for a row.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> 2e5 < nanoseconds_of(program, {"i": 1000, "j": 1000}) < 1e6
    True
    """
    axes = program.rows, program.columns, program.stream
    rows, columns, length = (prod(sizes[a] for a in each) for each in axes)
    functions = functions_of(program)
    arrays = 1 + sum(r.keeps for r in program.results)  # that are walked
    width = STORAGE[program.real] / STORAGE["float32"]
    element = (ELEMENT * arrays + FUNCTION * functions) * width * _inside(program, sizes)
    return rows * (ROW + columns * length * element)
