"""One call to choose a schedule for, and what a schedule takes of the device: registers, shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from redalg.graph.operators import TopK
from redalg.kernels.ir.kinds import program_kinds, short_keys
from redalg.kernels.ir.layouts import VECTOR_BYTES, Walk, kept_arrays, kept_places, turned
from redalg.kernels.ir.program import STORAGE, Fold, Loop, Program
from redalg.kernels.ir.schedule import Schedule, added_bytes, kept_bytes, staged_span, table_entries, turned_pitch
from redalg.kernels.schedule.cost_terms import Work, work_of
from redalg.kernels.schedule.target import Target

MOST_REGISTERS = 255  # a thread can address; CUDA C++ Programming Guide 13, compute capabilities
LISTED_TILE = 16  # the largest tile whose loop is still unrolled where every element may enter a sorted list
LINES, TURNS = 12, 16  # registers of places in columns, and of results that turn (16 rows by 16 threads, ptxas 13)
LARGE, MORE = 64, 1.3  # elements of a thread's rows in a tile from which on ptxas holds so many times as many registers
UNROLLED = 1000  # instructions a loop over a tile may have to be unrolled
LINED = ("stream", "packed")  # patterns of arrays that are read in vectors along the stream
PASSING = 16  # registers for elements that are read once: ptxas 13 keeps some 8 of their loads in flight (sm_90)


@dataclass(frozen=True)
class Case:
    """One call to choose a schedule for: a program at given sizes and strides on a device."""

    program: Program
    work: Work
    walk: Walk
    target: Target

    @staticmethod
    def of(program: Program, sizes: Mapping[str, int], walk: Walk, target: Target) -> Case:
        return Case(program, work_of(program, sizes), walk, target)

    @property
    def reduces(self) -> bool:
        return bool(self.program.passes)

    @cached_property
    def ordered(self) -> bool:
        return any(p.ordered for p in self.program.passes)

    @property
    def stream(self) -> str:
        return ",".join(self.program.stream) or "the whole"

    @cached_property
    def keyed(self) -> bool:
        """Whether the largest elements are selected as keys: they are float32, as whatever they are computed from."""
        kinds = program_kinds(self.program).names
        return self.program.real == "float32" and all(kinds[f.names[0].removesuffix("_b")] == "f" for f in self._tops)

    @cached_property
    def short_keys(self) -> bool:
        """Whether these keys have 32 bits."""
        return all(short_keys(self.program, f.bodies[0]) for f in self._tops)

    @property
    def _tops(self) -> list[Fold]:
        loops = [s for p in self.program.passes for s in p.lift if isinstance(s, Loop)]
        return [f for loop in loops for f in loop.folds if isinstance(f.op, TopK)]

    @cached_property
    def turned(self) -> frozenset[str]:
        """Results that a column schedule writes through shared memory."""
        return turned(self.program, self.walk)

    def turned_bytes(self, s: Schedule) -> int:
        """Shared memory of their tables."""
        if not (s.column and self.turned):
            return 0
        each = 8 if self.work.double else 4
        results = [r for r in self.program.results if r.key in self.turned]
        if s.kept and kept_places(self.program, results):
            return 0
        entry = [8 if r.dtype.startswith(("int", "uint")) else each for r in results]
        lines = [turned_pitch(s, STORAGE[r.dtype]) for r in results]
        return s.rows_per_block * sum(n * size for n, size in zip(lines, entry, strict=True))

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Bytes of an element of each array whose rows may be kept in shared memory."""
        names = {n for n, _ in kept_arrays(self.program)}
        return tuple(r.size for r in self.work.reads if r.name in names)

    def kept_bytes(self, s: Schedule) -> int:
        """Shared memory of rows that are kept there."""
        if not s.kept:
            return 0
        turns = bool(self.turned)
        return sum(kept_bytes(s, size, turns) for size in self.kept)

    @cached_property
    def dense(self) -> frozenset[str]:
        """Arrays whose rows follow each other without gaps, and whose elements are held in tiles."""
        loose = {r.name for r in self.work.reads if not r.held}
        return frozenset(a.name for a in self.walk.arrays if a.dense and a.held and a.name not in loose)

    def staged_bytes(self, s: Schedule) -> int:
        """Shared memory of the rows of a block that pass through it."""
        if s.staged and s.persistent:
            return sum(staged_span(s, a.size) for a in self.walk.arrays if a.name in self.dense)
        sizes = sum(a.size for a in self.walk.arrays if a.name in self.dense) if s.staged else 0
        return s.rows * s.threads * s.tile * sizes

    @property
    def column_count(self) -> int:
        """Columns each of 32 threads holds: a power of two, so that few kernels serve many lengths."""
        return power(-(-self.work.columns // 32)) if self.program.columns else 1

    @cached_property
    def widest(self) -> int:
        """Elements of the widest vector: 16 bytes of the widest type, dividing the length and all strides of rows."""
        return self._vector([min(a.width, VECTOR_BYTES // a.size) for a in self.walk.arrays if a.pattern in LINED])

    @cached_property
    def widest_peeled(self) -> int:
        """Of rows that start anywhere (`Schedule.peel`): by types alone; 1 where nothing is loaded in vectors, or
        stored where nothing is read."""
        along = self.walk.peelable
        own = {r.name for r in self.work.reads if r.by_row or not self.program.rows}
        own = own if self.work.reads else {a.name for a in along if a.written}
        sizes = [a.size for a in along if any(b.name in own for b in along)]
        return VECTOR_BYTES // max(sizes) if sizes and not (self.program.columns or self.ordered) else 1

    @cached_property
    def most_coarsening(self) -> int:
        """Neighbouring rows a thread may have: 16 bytes of the widest type, where they lie side by side everywhere, or
        of what is put together from two loads."""
        neighbours = [a for a in self.walk.arrays if a.pattern == "rows" and a.width > 1]
        aligned = min([a.width for a in neighbours] + [VECTOR_BYTES // a.size for a in neighbours], default=1)
        most = (w for w in (4, 2) if w <= self.work.rows and any(a.astride(w) for a in self.walk.arrays))
        return max(aligned, next(most, 1))

    @cached_property
    def widest_by_type(self) -> int:
        """The same by length and types alone: arrays whose strides do not allow it are loaded by single elements."""
        return self._vector([VECTOR_BYTES // a.size for a in self.walk.arrays if a.pattern != "same"])

    def _vector(self, limits: list[int]) -> int:
        if self.program.columns:
            return 1
        width = min(limits, default=1)
        while self.work.length % width:
            width //= 2
        return max(1, width)


def power(n: int) -> int:
    """The least power of two that is not smaller.

    >>> power(1), power(5), power(8)
    (1, 8, 8)
    """
    return 1 << max(0, n - 1).bit_length()


def exact(work: Work, s: Schedule) -> bool:
    """Whether no thread of the schedule meets the end of a row. Rows that are staged in turn, and that there are not,
    have their end before the first element."""
    if s.peel or s.staged and s.persistent and s.rows > 1:
        return False
    if not s.resident:
        return work.length > 0 and work.length % (s.blocks_per_row * s.threads * s.tile) == 0
    return work.length == s.blocks_per_row * s.threads * s.tile


def registers(case: Case, s: Schedule) -> int:
    """Estimated registers of a thread: addresses, states (the row's and the tile's), tiles, and room for a formula.

    Fitted to what ptxas 13 reports for sm_90; it is seldom more than 10 short and seldom more than 20 too many.
    """
    work = case.work
    words = 2 if work.double else 1
    tile = s.tile + s.peel
    arrays, state = _addresses(case, s), work.held.state * s.coarsen
    if s.resident:
        state *= 1 if s.together else 3
        held = max(1, work.held.resident) + work.held.summed
        arrays *= 1 if s.column else s.coarsen
        requested = 0 if work.instructions.narrow else _asked(work, s) - _asked(work, s, 1)
        return round(18 + arrays + state + (s.coarsen * held + _early(work, s)) * tile * words + requested)
    merged = 3 if s.threads * s.blocks_per_row > 1 or work.instructions.per_tile > 5 else 2
    tiles = s.coarsen * tile * max(1, work.held.streamed) * words
    if (
        s.coarsen > 1 and not (work.rewalked or work.writes) and work.held.streamed == 1
    ):  # what is read once is not held
        tiles = min(tiles, PASSING)
    walked = tiles * (MORE if s.column and s.coarsen * s.tile >= LARGE else 1.0)
    return round(15 + arrays + merged * state + walked + _asked(work, s) + _scattered(case, s))


def _scattered(case: Case, s: Schedule) -> int:
    """Registers of addresses of elements that do not lie along the stream, of 64 bits each, where threads walk it."""
    found = sum(1 for a in case.walk.arrays if a.pattern in ("rows", "apart") and not a.written)
    return 0 if s.column or s.exact else 2 * found * s.tile


def _asked(work: Work, s: Schedule, most: int = 4) -> int:
    """Registers of what all rows share, where results are written and it begins elsewhere than the row: two loads for
    each of the vectors that are asked for at a time (RMSNorm of float32 by tiles of 16: 96 registers, 49 without;
    LayerNorm of rows that a thread holds 64 elements of: 146, 102 without)."""
    common = [r.size for r in work.reads if r.held and not r.by_row] if work.writes and s.peel else []
    return (
        2 * min(most, s.asked(len(common))) * s.vector * sum(common) // 4 if common and not s.early(len(common)) else 0
    )


def _early(work: Work, s: Schedule) -> int:
    """Arrays that all rows share and a thread holds together with its rows."""
    common = sum(1 for r in work.reads if r.held and not r.by_row) if work.writes else 0
    return common if s.early(common) else 0


def _copies(work: Work, s: Schedule) -> float:
    """Registers of addresses of copies of rows, which are unrolled, where sums over rows are held beside them."""
    if s.prefetch and work.held.summed:
        return max(0.0, 2 * (s.tile / s.vector - 4))
    if not (s.staged and s.persistent):
        return 0.0
    each = max((staged_span(s, r.size) for r in work.reads if r.by_row), default=0) / (16 * s.block)
    return max(0.0, 6 * (each - 2))


def _addresses(case: Case, s: Schedule) -> float:
    """Registers of addresses, bounds and constants."""
    work = case.work
    found = 2.0 * len(work.reads) + 2 * len(work.writes)
    found += 24 if work.double and work.instructions.lifted > 10 else 0  # constants of the special functions
    found += 6 * s.tile if work.columns > 1 else 0
    found += _copies(work, s)
    found += 4 * s.coarsen * len(work.writes) if s.coarsen > 1 and not s.resident else 0
    if s.column and s.resident:
        return found + 6
    if not s.exact:  # in columns, the numbers of lines: those of neighbours are the same
        found += (LINES + (TURNS + s.tile if case.turned else 0)) / s.coarsen if s.column else 8
        found += 2 * s.tile if s.kept and not case.turned else 0  # where results go, of all elements at once
    return found


def grid_of_sums(case: Case, s: Schedule, resident_blocks: int) -> int:
    """How many blocks add sums over rows: as many as run at once, or so few that all of them have as many rows."""
    groups = -(-case.work.rows // s.rows_per_block)
    most = max(1, case.target.multiprocessors * resident_blocks // s.cluster)
    turns = -(-groups // most)
    return -(-groups // max(1, turns)) * s.cluster


def prefetch_bytes(work: Work, s: Schedule) -> int:
    """Shared memory of prefetched rows."""
    return s.rows * s.ring * work.own_bytes


def states_bytes(work: Work, s: Schedule) -> int:
    """Static shared memory: one state per thread (columns) or per warp, and one for the other blocks of a cluster; sums
    over rows."""
    added = added_bytes(s, 4 * (1 + work.double)) if work.held.summed else 0
    state = 4 * work.held.state + 8
    if s.column and s.together:
        return 4 * table_entries(s) * s.coarsen * (work.held.state + (1 + work.double) * work.reductions.resident)
    words = 4 * work.reductions.words if s.merges_at_once else 0
    if s.column and words:
        return table_entries(s) * s.coarsen * words
    if s.column:
        return s.block * s.coarsen * state if s.threads > 1 else 0
    warps = s.block // 32 if s.threads > 32 else 0
    if words:
        return (warps + (s.cluster if s.cluster > 1 else 0)) * words + added
    return (warps + (s.cluster > 1)) * state + added


def spills(case: Case, s: Schedule) -> bool:
    """Whether the schedule is estimated to need more registers than its threads can have, or a loop over its tile is
    too large to be unrolled, which puts the tile into local memory."""
    counts = case.work.instructions
    heaviest = min(counts.heaviest, counts.lifted) if s.resident else counts.heaviest
    size = s.tile * s.coarsen * heaviest * (2.5 if case.work.double else 1)
    listed = case.work.held.lists and (case.work.double or not s.resident)  # resident float32 lists: no tile of keys
    if listed and s.tile > LISTED_TILE or s.tile > 4 and size > UNROLLED:
        return True
    return short_of(case, s) > 0


def short_of(case: Case, s: Schedule) -> int:
    """How many registers more a thread is estimated to need than it can have; negative where it has enough.

    Where sums over rows take registers too, elements of 16 bits stay in pairs before anything goes to memory: the
    backward pass of RMSNorm of 4096 rows of 16384 bfloat16 takes an H200 123 us by 512 threads that hold 32 of each,
    and 193 by clusters of two (2026-11-28).
    """
    least = registers(case, s) - (in_pairs(case, s) if case.program.summed else 0)
    return least - min(MOST_REGISTERS, case.target.multiprocessor.registers // max(32, s.block))


def in_pairs(case: Case, s: Schedule) -> int:
    """Registers that a thread saves where the elements of 16 bits of its row stay in pairs, as they were loaded."""
    if not s.resident or s.coarsen > 1:
        return 0
    return s.tile // 2 * sum(1 for r in case.work.reads if r.size == 2 and r.held and r.by_row)
