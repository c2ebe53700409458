"""Schedules of states that blocks share out (`redalg.kernels.schedule.outer`): their sizes, and what they cost."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, gcd, prod

from redalg.graph.node import Node
from redalg.graph.node import walk as below
from redalg.kernels.ir.layouts import VECTOR_BYTES, View, Walk
from redalg.kernels.ir.program import STORAGE, Program
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.schedule.case import MOST_REGISTERS
from redalg.kernels.schedule.choose import Choice
from redalg.kernels.schedule.cost_terms import work_of
from redalg.kernels.schedule.outer import Outer, Side, outers
from redalg.kernels.schedule.target import Target

VECTORS = ("float32", "float16", "bfloat16")  # of which there are stores of 2 and 4
TOGETHER = 8  # loads of what splits have found that a thread has under way at a time
SEEN = 64  # moments about anchors that one in so many elements was looked at for are at most so much larger


@dataclass(frozen=True)
class Shape:
    """The sizes of a schedule's parts, which its kernel is printed for."""

    found: Outer
    schedule: Schedule

    def count(self, side: Side) -> int:
        """Tiles along an axis."""
        return -(-side.width // self.schedule.entries)

    def pad(self, side: Side) -> int:
        """Columns of a table: whole tiles."""
        return self.count(side) * self.schedule.entries

    def quads(self, side: Side) -> int:
        """Neighbouring threads that bring the runs of one column; 0 where every thread has columns of its own, since
        reductions along the axis have them, too."""
        if side.run < 2 or side.folds or side.guesses or self.schedule.vector > 1:
            return 0
        found = self.chunk // side.run
        whole = self.chunk % side.run == self.schedule.threads % found == 0 if found else False
        return found if whole and self.pad(side) * found % self.schedule.threads == 0 else 0

    def brought(self, side: Side) -> int:
        """Elements of a chunk that a thread brings of a side, where `quads` do."""
        return self.pad(side) * self.chunk // self.schedule.threads

    def pitch(self, side: Side) -> int:
        """Values of an element in a table. Runs are written across its lines: to fewer banks at once."""
        return self.pad(side) + (4 if self.quads(side) else 0)

    def across(self, side: Side) -> int:
        """Threads that bring an element, some columns each."""
        return self.pad(side) // self.schedule.vector

    @property
    def lines(self) -> int:
        """Elements that the threads of a block bring at a time."""
        return self.schedule.threads // max(map(self.across, self.found.made))

    @property
    def tiles(self) -> int:
        a, b = map(self.count, self.found.sides)
        return a * (a + 1) // 2 if self.found.symmetric else a * b

    @property
    def shares(self) -> int:
        """Threads that have the same tile, each for other elements."""
        return self.schedule.threads // self.tiles

    @property
    def used(self) -> float:
        """The part of the threads that have a tile."""
        return self.tiles * self.shares / self.schedule.threads

    @property
    def chunk(self) -> int:
        """Elements that lie in shared memory at a time: as many as threads bring in `tile` turns."""
        return self.lines * self.schedule.tile

    @property
    def alone(self) -> bool:
        """Whether threads write results themselves: each has all of its tile's elements."""
        return self.schedule.split == self.shares == 1 and self.found.plain

    @property
    def warps(self) -> int:
        """Warps beside each other along the second axis, where each has 4 by 8 tiles; 0 where tiles are in a line."""
        a, b = map(self.count, self.found.sides)
        return b // 8 if self.alone and not (a % 4 or b % 8) else 0

    @property
    def pace(self) -> int:
        """Elements that splits begin at multiples of."""
        return max(1, *(side.run for side in self.found.made))

    @property
    def cells(self) -> int:
        """Entries of a split in scratch."""
        return self.tiles * self.schedule.entries**2

    @property
    def slots(self) -> int:
        """Values of every thread that the first table holds, which is free before chunks come and after them."""
        first = self.found.made[0]
        return 2 * self.chunk * self.pad(first) // self.schedule.threads if first.values else 0

    @property
    def together(self) -> int:
        """Entries of a thread that go to shared memory at a time."""
        return min(self.slots or 8, self.schedule.entries**2)

    @property
    def lanes(self) -> int:
        """Threads that add up the splits of an entry; 32 of a warp have neighbouring entries."""
        s, found = self.schedule, 1
        while 2 * found <= s.split and 2 * found * self.cells <= s.split * s.threads and s.threads % (64 * found) == 0:
            found *= 2
        return found

    @property
    def seen(self) -> bool:
        """Whether a chunk of elements, evenly spaced in a whole row, is enough to find its anchors by."""
        loops = [loop for side in self.found.made for loop in side.loops]
        return all(loop.part for loop in loops) and self.found.length <= SEEN * self.chunk

    @property
    def shared(self) -> int:
        """Bytes of shared memory, where every value has 32 bits."""
        tables = sum(2 * self.chunk * self.pitch(side) * len(side.values) for side in self.found.made)
        return 4 * (tables + sum(side.width * (len(side.folds) + len(self.found.kept)) for side in self.found.made))


def choose_outer(
    program: Program,
    sizes: Mapping[str, int],
    walk: Walk,
    views: Mapping[str, View],
    target: Target,
    deterministic: bool = False,
    wanted: Schedule | None = None,
    turned: Collection[str] = (),
) -> tuple[Choice, Outer] | None:
    """The fastest schedule by which blocks share out a state, or the one that is wanted; None where there is none.
    `turned`: results that are not contiguous."""
    best: tuple[Choice, Outer] | None = None
    for found in (lying(found, program, views, turned) for found in outers(program, sizes)):
        widest = _widest(found, program, views)
        for s in [wanted] if wanted is not None else candidates(found, widest, program, sizes, target, deterministic):
            if not fits(Shape(found, s), target) or widest % s.vector:
                continue
            choice = _choice(found, s, program, sizes, walk, views, target)
            if best is None or choice.seconds < best[0].seconds:
                best = choice, found
    return best


def candidates(
    found: Outer, widest: int, program: Program, sizes: Mapping[str, int], target: Target, deterministic: bool
) -> Iterator[Schedule]:
    """Tiles of 4 by 4 and 8 by 8 entries, with as many splits as blocks run at once."""
    if deterministic:
        return
    rows = found.areas * max(1, prod(sizes[a] for a in program.rows if a not in found.axes))
    length = prod(sizes[a] for a in program.stream)
    guessed = any(side.guesses for side in found.made)  # with anchors in registers, 512 threads have too few of them
    several = (256, 384) if guessed else (256, 384, 512)
    if found.plain and not guessed:
        several = (64, 128, *several)  # where blocks are many, several of them are on a multiprocessor
    for entries, threads, together, elements in product((8, 4), several, (1, 2), (16, 8)):
        if threads < several[-1] // 2 and threads != Shape(found, Schedule(threads, 1, 1, 1, entries=entries)).tiles:
            continue
        most = max(1, min(together * target.multiprocessors // rows, length // LEAST))
        s = Schedule(threads, 1, widest, elements // widest, split=most, persistent=True, entries=entries)
        shape = Shape(found, s)
        whole = -(-length // shape.chunk) if shape.lines > 0 else most  # splits of a chunk each
        for split in {most, min(most, whole)}:
            yield replace(s, split=split)


LEAST = 32  # elements of a split
CROWD = 512  # threads of a multiprocessor, which have half as many registers each as 256 of them
WARPS = 8  # of a multiprocessor, below which its issue slots are not used
FUSED = ("mul", "pow")  # multiplied and added at once
ALONE = 128  # registers of a thread that leave a multiprocessor `CROWD` of them, where blocks wait for no others


def fits(shape: Shape, target: Target) -> bool:
    s = shape.schedule
    whole = s.rows == s.cluster == 1 and s.persistent and s.threads % 32 == 0
    widest = max(side.width for side in shape.found.made)
    vectors = all(shape.pad(side) % s.vector == 0 for side in shape.found.made)
    fit = vectors and max(shape.tiles, widest) <= s.threads and shape.lines > 0
    return whole and fit and shape.shared <= target.block.shared


def _choice(
    found: Outer,
    s: Schedule,
    program: Program,
    sizes: Mapping[str, int],
    walk: Walk,
    views: Mapping[str, View],
    target: Target,
) -> Choice:
    """A schedule with what it is predicted to take."""
    shape = Shape(found, s)
    work = work_of(program, sizes)
    rows = found.areas * prod(sizes[a] for a in program.rows if a not in found.axes)
    length = prod(sizes[a] for a in program.stream)
    repeats = {n.attr.name: found.areas / side.areas for side in found.made for n in side.leaves}
    reads = (r.elements * r.size * repeats.get(r.name, 1) for r in work.reads if r.name not in _mirrored(found))
    moved = work.other + sum(reads)
    blocks = max(1, min(target.multiprocessors, rows * s.split))
    guessed = any(side.guesses for side in found.made)
    walks = 2 if any(not loop.part for side in found.made for loop in side.loops) else 1
    each = -(-length // s.split)
    turns = each // shape.chunk * -(-shape.chunk // shape.shares) + -(-(each % shape.chunk) // shape.shares)
    uneven = max(1.0, turns * shape.shares / max(1, each))
    limit, issued = _issued(shape, rows * s.split / target.multiprocessors, target)
    slots = target.multiprocessors * 128 * target.clock * issued
    compute = rows * length * _instructions(shape, walks, uneven) / slots
    memory = walks * moved * _scatter(found, views) / target.reachable
    merging = -(-rows * s.split // blocks) * _merging(shape, guessed)
    seconds = (memory**4 + compute**4) ** 0.25 + merging + target.launch
    reasons = (
        f"{rows // found.areas} rows of {length} along {', '.join(program.stream)}, {program.real}, on {target.name}: "
        f"{s.split} blocks of {s.threads} threads share out a state along {' and '.join(found.axes)}, "
        f"{s.entries} by {s.entries} entries to a thread"
        + f", in {found.areas} areas of {' by '.join(str(x.width) for x in found.sides)}" * (found.areas > 1)
        + ".",
        f"predicted {seconds * 1e6:.1f} µs: memory {memory * 1e6:.1f} µs, instructions {compute * 1e6:.1f} µs, "
        f"merging {merging * 1e6:.1f} µs, launch {target.launch * 1e6:.1f} µs.",
    )
    return Choice(
        s, walk.layout(1, 1, False), reasons, seconds, round(moved), limit if limit < 255 else None, None, round(moved)
    )


def _issued(shape: Shape, each: float, target: Target) -> tuple[int, float]:
    """Registers that a thread may have, and the part of issue slots that are used; `each`: blocks of a multiprocessor,
    one after another or together."""
    found, s = shape.found, shape.schedule
    waiting = -(-s.split // target.multiprocessors)  # blocks of a multiprocessor, all of which meet at a barrier
    limit = target.multiprocessor.registers // (s.threads * waiting) // 8 * 8
    needed = _registers(found, s)
    if shape.alone and each * s.threads >= CROWD and needed <= ALONE + 8:  # a few are spilled, outside of loops
        limit = ALONE
    crowded = s.threads * waiting >= CROWD and not any(side.guesses for side in found.made)
    issued = ISSUED * (CROWDED if crowded else 1.0) * (SPILLED if needed > min(limit, MOST_REGISTERS) else 1.0)
    whole = max(1, ceil(each))
    return limit, issued * min(1.0, whole * s.threads / 32 / WARPS) * each / whole


# Fitted to schedules that were timed (H100, 2026-11-26, `benchmarks/records/gpu_states.md`), and judged by the same:
# times of 64 to 128 columns are off by up to a fifth, that of 2^22 x 8 is predicted a quarter too short.
ISSUED, CROWDED, SPILLED = 0.75, 1.15, 0.85  # the part of issue slots that are used
# Instructions for an element, as ptxas prints them: of a tile, of a thread that brings columns, or runs, of a column.
TILE, LINE, RUN, VALUE = 9, 16, 2, 4
# Seconds, of stamps that blocks wrote on their way through a covariance of 4096 x 64 (H100, 2026-11-26): the first
# loads, anchors, a grid barrier, a round of loads of what all splits have found, and a round of entries on their way to
# scratch, of which a thread adds up some for all shares.
LOADED, ANCHORED, MET, READ = 1.2e-6, 0.9e-6, 1.7e-6, 0.6e-6
LEFT, ENTRY, SHARE = 0.4e-6, 40e-9, 10e-9


def _merging(shape: Shape, guessed: bool) -> float:
    """Seconds of a row besides its loads and its instructions: anchors, what is left in scratch, and merging it."""
    s, left = shape.schedule, LEFT
    if shape.alone:
        return LOADED + left + (ANCHORED if guessed else 0.0)
    if shape.shares > 1:
        rounds = -(-(s.entries**2) // shape.together)
        left += rounds * (LEFT + shape.together * shape.tiles / s.threads * (ENTRY + SHARE * shape.shares))
    seconds = LOADED + left + (ANCHORED if guessed else 0.0)
    if s.split > 1:
        entries = -(-shape.cells * shape.lanes // (s.split * s.threads))
        seconds += MET + READ * (2 + entries * -(-s.split // shape.lanes // TOGETHER))
        seconds += (MET + LEFT + READ) * (guessed and not shape.seen)
    return seconds


def _instructions(shape: Shape, walks: int, uneven: float) -> float:
    """Instructions of all threads of a block for an element of the stream."""
    found, entries = shape.found, shape.schedule.entries
    known = {n for side in found.sides for n in side.values}
    ops = sum(_operations(f.bodies[0], known) + (f.bodies[0].op not in FUSED) for f in found.cells)
    loads = sum(-(-entries * len(side.values) // 4) for side in found.sides)
    cells = shape.tiles * (entries**2 * ops + loads + TILE)
    each = [VALUE + 2 * (len(side.values) + len(side.folds)) for side in found.made]
    brought = sum(
        shape.across(side) * ((RUN if side.run else LINE) + shape.schedule.vector * n)
        for side, n in zip(found.made, each, strict=True)
    )
    return cells * uneven / shape.used + walks * brought


def _operations(body: Node, known: set[Node]) -> int:
    """Of an entry: what it is made of, each node once."""
    return sum(bool(n.args) for n in below(body, done=known))


def _registers(found: Outer, s: Schedule) -> int:
    """Estimated registers of a thread: its tile, operands, what is on its way, sums and anchors."""
    brought = sum(s.tile + 3 * len(side.folds) + 3 * len(side.loops) for side in found.made)
    return (
        s.entries**2 * len(found.cells)
        + 2 * s.entries * len(found.sides[0].values)
        + s.vector * brought
        + (72 if brought > s.tile * len(found.made) else 24)
    )


def lying(found: Outer, program: Program, views: Mapping[str, View], turned: Collection[str] = ()) -> Outer:
    """With runs along the stream where arrays lie along it, and vectors of results that are contiguous along the second
    axis."""
    dtypes = {o.name: o.dtype for o in program.operands}
    first, second = (replace(side, run=_run(side, program, dtypes, views)) for side in found.sides)
    rows = all(r.axes[-1:] == (second.axis,) and r.name not in turned and r.dtype in VECTORS for r in program.results)
    stored = gcd(4, second.whole) if rows and {first.axis, second.axis} <= set(program.results[0].axes) else 1
    return replace(found, sides=(first, second), stored=stored)


def _run(side: Side, program: Program, dtypes: Mapping[str, str], views: Mapping[str, View]) -> int:
    """Elements of the stream that a load brings; 0 where columns are neighbours, or arrays lie in different ways."""
    (stream,) = program.stream
    own = [n.attr for n in side.leaves if {side.axis, stream} <= n.axes and n.attr.name in views]
    run = VECTOR_BYTES // STORAGE[program.real]
    for d in own:
        steps = dict(zip(d.axes, views[d.name].strides, strict=True))
        if steps[side.axis] == 1 or steps[stream] != 1:
            return 0
        fit = dtypes[d.name] in (program.real, "float16", "bfloat16")
        apart = gcd(*(s for a, s in steps.items() if a != stream), views[d.name].align // STORAGE[dtypes[d.name]])
        run = gcd(run, apart) if fit else 1
    return run if own else 0


def _scatter(found: Outer, views: Mapping[str, View]) -> int:
    """How much more is read where neighbours along an axis are no neighbours in memory."""
    for side in (side for side in found.made if not side.run):
        for n in side.leaves:
            d = n.attr
            if side.axis in d.axes and d.name in views and views[d.name].strides[d.axes.index(side.axis)] != 1:
                return 8
    return 1


def _widest(found: Outer, program: Program, views: Mapping[str, View]) -> int:
    """Columns that a load brings: where neighbours are neighbours in memory, 16 bytes of float32; no last load of a row
    brings fewer."""
    dtypes = {o.name: o.dtype for o in program.operands}
    widest = VECTOR_BYTES // STORAGE[program.real]
    for side in found.made:
        own = [n.attr for n in side.leaves if side.axis in n.attr.axes and n.axes & {*program.stream}]
        for d in own:
            steps = dict(zip(d.axes, views[d.name].strides, strict=True))
            apart = gcd(side.width, side.whole, *(s for a, s in steps.items() if a != side.axis))
            fit = steps[side.axis] == 1 and dtypes[d.name] in (program.real, "float16", "bfloat16")
            aligned = gcd(apart, views[d.name].align // STORAGE[dtypes[d.name]])
            widest = gcd(widest, aligned) if fit else 1
    return widest


def _mirrored(found: Outer) -> set[str]:
    """Operands that are read under another name."""
    own = {n.attr.name for side in found.made for n in side.leaves}
    return {n.attr.name for side in found.sides for n in side.leaves} - own
