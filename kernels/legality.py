"""When a schedule computes what the program says: the laws and limits it needs, each with the way out if one fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from redalg.errors import RedalgError
from redalg.kernels.ir import Program
from redalg.kernels.layouts import VECTOR_BYTES, Walk, brought
from redalg.kernels.schedule import COPIED, MOST_LEAD, Schedule
from redalg.kernels.target import Target
from redalg.kernels.work import Work, work_of

MOST_REGISTERS = 255  # a thread can address; CUDA C++ Programming Guide 13, compute capabilities
COPIES = (8, 0)  # the compute capability from which on there are copies that run behind (PTX ISA 9.0, "cp.async")
RESERVED = 1 << 10  # bytes of shared memory that every block takes beside its own; the same source
MOST_BLOCKS = 2**31 - 1  # of a grid along x; the same source
LISTED_TILE = 16  # the largest tile whose loop is still unrolled where every element may enter a sorted list
UNROLLED = 1000  # instructions a loop over a tile may have to be unrolled
PASSING = 16  # registers for elements that are read once: ptxas 13 keeps some 8 of their loads in flight (sm_90)
LARGEST_TILE = 64  # elements of a thread that stay in registers, whatever else it holds


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

    @property
    def ordered(self) -> bool:
        return any(p.ordered for p in self.program.passes)

    @property
    def stream(self) -> str:
        return ",".join(self.program.stream) or "the whole"

    @property
    def lane_count(self) -> int:
        """Lanes each of 32 threads holds: a power of two, so that few kernels serve many lengths."""
        return power(-(-self.work.lanes // 32)) if self.program.lanes else 1

    def widest(self) -> int:
        """Elements of the widest vector: 16 bytes of the widest type, dividing the length and all strides of rows."""
        return self._vector([min(a.width, VECTOR_BYTES // a.size) for a in self.walk.arrays if a.pattern == "stream"])

    @property
    def most_beside(self) -> int:
        """Neighbouring rows a thread may have: 16 bytes of the widest type, where they lie side by side everywhere."""
        beside = [a for a in self.walk.arrays if a.pattern == "rows" and a.width > 1]
        return min([a.width for a in beside] + [VECTOR_BYTES // a.size for a in beside], default=1)

    def widest_by_type(self) -> int:
        """The same by length and types alone: arrays whose strides do not allow it are loaded by single elements."""
        return self._vector([VECTOR_BYTES // a.size for a in self.walk.arrays if a.pattern != "same"])

    def _vector(self, limits: list[int]) -> int:
        if self.program.lanes:
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
    """Whether no thread of the schedule meets the end of a row."""
    if not s.resident:
        return work.length > 0 and work.length % (s.pieces * s.threads * s.tile) == 0
    return work.length == s.pieces * s.threads * s.tile


def registers(work: Work, s: Schedule) -> int:
    """Estimated registers of a thread: addresses, states (the row's and the tile's), tiles, and room for a formula.

    Fitted to what ptxas 13 reports for sm_90; it is seldom more than 10 short and seldom more than 20 too many.
    """
    words = 2 if work.double else 1
    arrays = 2 * len(work.reads) + 2 * len(work.writes)
    arrays += 24 if work.double and work.lifted > 10 else 0  # constants of the special functions
    arrays += 6 * s.tile if work.lanes > 1 else 0
    arrays += 4 * s.beside * len(work.writes) if s.beside > 1 else 0
    state = work.state * s.beside
    if not s.exact:
        arrays += (6 if work.writes else 4) * s.tile if s.column else 8  # an address for every element, and bounds
    if s.resident:
        state *= 1 if s.together else 3
        return 18 + arrays + state + s.beside * s.tile * max(1, work.tiles_resident) * words
    merged = 3 if s.threads * s.pieces > 1 or work.per_tile > 5 else 2
    tiles = s.beside * s.tile * max(1, work.tiles_streamed) * words
    if s.beside > 1 and not (work.again or work.writes) and work.tiles_streamed == 1:  # what is read once is not held
        tiles = min(tiles, PASSING)
    return 15 + arrays + merged * state + tiles


def refusals(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    """Why a schedule is not legal, and what to try instead, for every law or limit it breaks."""
    yield from _shape(case, s)
    yield from _laws(case, s)
    yield from _fit(case, s)


def _shape(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    target = case.target
    for name in ("threads", "rows", "vector", "cluster", "beside"):
        value = getattr(s, name)
        if value < 1 or value & (value - 1):
            yield f"{name}={value} is not a power of two: threads exchange values in a tree", f"{name}={power(value)}"
    if min(s.tile, s.split, s.lanes) < 1:
        yield "tile, split and lanes count from 1", "tile=1, split=1, lanes=1"
    elif s.block > target.block_threads:
        yield (
            f"threads·rows = {s.threads}·{s.rows} = {s.block}, and a block has at most {target.block_threads} threads",
            f"rows={max(1, target.block_threads // s.threads)}",
        )
    if s.cluster > target.cluster_limit:
        limit = target.cluster_limit
        has = f"{target.name} has clusters of at most {limit} blocks" if limit > 1 else f"{target.name} has no clusters"
        yield has, f"cluster={limit}" + ("" if limit > 1 else ', or schedule="split"')
    if s.vector > 0 and s.tile % s.vector:
        yield f"tile={s.tile} is not a multiple of vector={s.vector}", f"tile={-(-s.tile // s.vector) * s.vector}"


def _laws(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    program = case.program
    if s.cluster > 1 and s.split > 1:
        yield "pieces are merged in distributed shared memory or in global memory, not both", "cluster=1 or split=1"
    if s.persistent and program.lanes:
        yield "a warp that shares out lanes walks one row", "persistent=False"
    if s.split > 1 and case.reduces:
        if program.keeps and not s.persistent:
            yield (
                _kept(case),
                'schedule="cluster" or "block", which keep the row on chip or read it twice, or persistent=True',
            )
        if program.keeps and (s.column or s.rows > 1):
            yield "blocks that wait for each other have one row", "rows=1, column=False"
        if program.keeps and s.split > case.target.multiprocessors:
            most = case.target.multiprocessors
            yield f"{s.split} blocks that wait for each other, on {most} multiprocessors", f"split={most}"
        if s.persistent and not program.keeps:
            yield "the block that comes last goes on and the others end: they walk no further rows", "persistent=False"
        if len(program.passes) > 1:
            yield (
                f"pass 2 of {len(program.passes)} needs the whole row's state of pass 1, which only the last piece of "
                "a split row knows",
                'schedule="cluster" or "block", or derive with max_passes=1',
            )
    if s.split > 1 and s.resident and not (s.persistent and case.reduces):
        yield "what a piece holds is read once anyway where the blocks do not wait for each other", "resident=False"
    if s.cluster > 1 and not case.reduces:
        yield "a map has no states for the blocks of a cluster to exchange", 'schedule="split"'
    longest = max((part.top or 0 for p in program.passes for part in p.parts), default=0)
    if longest and s.resident and s.pieces > 1:
        yield "the blocks of a row select the largest of their own part only", "one block, or resident=False"
    if longest and s.resident and 1 < s.threads < longest:
        yield f"{s.threads} threads give no bound for the {longest} largest", f"threads={power(2 * longest - 1)} or 1"
    if case.ordered and s.resident and s.threads * s.cluster > 1:
        yield (
            "the monoid is not commutative: elements must be combined in the order of the stream, and a resident row "
            "is dealt out to threads in turns",
            "resident=False, where every thread folds consecutive elements",
        )
    if case.ordered and s.vector > 1 and s.threads > 1:
        yield "consecutive elements of a thread need not start at a multiple of the vector", "vector=1"
    if s.beside > 1:
        yield from _beside(case, s)
    if s.column and s.cluster > 1:
        yield "the threads of a column schedule are not whole warps of one row", 'cluster=1, or schedule="split"'
    if s.column and s.resident and s.threads > 1:
        yield "threads of one row lie in different warps there and fold their own elements", "resident=False"
    if s.cluster > 1 and (s.threads < 32 or s.rows > 1):
        yield "a cluster exchanges the states of whole warps, one row to a block", "threads=32 or more, rows=1"
    if program.lanes:
        yield from _lanes(case, s)
    if s.room or s.lead:
        yield from _ahead(case, s)


def _kept(case: Case) -> str:
    kept = ", ".join(r.name for r in case.program.results if r.keeps)
    return (
        f"{kept} keeps the axis {case.stream}: every piece needs the state of the whole row before it writes, and "
        "blocks can wait for each other only if all of them are running"
    )


def _beside(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    if not s.column or case.program.lanes or s.vector > 1 or s.split > 1 and case.program.keeps:
        yield "only a column schedule gives a thread neighbouring rows, and loads nothing else together", "beside=1"
    elif s.beside > case.most_beside:
        most = case.most_beside
        yield f"no array has {s.beside} neighbouring rows that can be loaded together everywhere", f"beside={most}"


def _ahead(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    if not s.persistent:
        yield "a block that has one row brings no other one", "persistent=True"
    if case.target.cc < COPIES:
        yield f"{case.target.name} has no copies that run behind", "room=0"
    if s.column or s.beside > 1 or case.program.lanes or case.ordered:
        yield "threads copy the elements they read themselves, a vector at a time in turns", "room=0"
        return
    unit = {a.name: a.size for a in case.walk.arrays if a.pattern == "stream" and a.width >= s.vector}
    own = [name for name, _ in brought(case.program)]
    for r in case.work.reads:
        if r.by_row and (not r.held or own.count(r.name) != 1 or r.name not in unit):
            yield f"{r.name} is not read in vectors of {s.vector} that every row has for itself", "room=0"
        elif r.by_row and s.vector * r.size not in COPIED:
            yield f"copies have 4, 8 or 16 bytes, and {s.vector} elements of {r.name} {s.vector * r.size}", "room=0"
    if not own:
        yield "no row has elements of its own", "room=0"
    span = s.threads * s.tile
    if s.room != span if s.resident else s.room % span or s.room * s.pieces < case.work.length:
        least = span if s.resident else -(-case.work.length // (s.pieces * span)) * span
        yield f"room={s.room} is not what {s.threads} threads with tiles of {s.tile} walk of a row", f"room={least}"
    elif s.lead and not (s.exact and s.room * s.pieces == case.work.length):
        yield "threads that have fewer tiles than others would lose count of their copies", "lead=0"
    elif not 0 <= s.lead <= MOST_LEAD:
        yield f"lead={s.lead}, and at most {MOST_LEAD} tiles are left under way", f"lead={MOST_LEAD}"


def _lanes(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    along = ",".join(case.program.lanes)
    plain = s.resident or s.column or s.pieces > 1 or s.vector > 1 or s.exact
    if plain or s.threads != 32:
        yield f"the state holds arrays along {along}: a warp walks the row and shares them out", 'schedule="warp"'
    elif s.lanes * 32 < case.work.lanes:
        yield f"{case.work.lanes} lanes along {along} on 32 threads", f"lanes={case.lane_count}"


def _fit(case: Case, s: Schedule) -> Iterator[tuple[str, str]]:
    work = case.work
    blocks = -(-work.rows // s.abreast) * s.pieces
    if blocks > MOST_BLOCKS:
        yield f"{blocks} blocks, and a grid has at most 2**31 - 1", "more rows to a block"
    if work.length % s.vector:
        yield f"vector={s.vector} does not divide the length {work.length} of {case.stream}", f"vector={case.widest()}"
    unit = case.walk.layout(s.vector).unit
    wide = [a for a in case.walk.arrays if a.name in unit and s.vector * a.size > VECTOR_BYTES]
    if s.vector > 1 and wide:
        yield f"{s.vector} elements of {wide[0].name} are more than 16 bytes", f"vector={VECTOR_BYTES // wide[0].size}"
    held = s.pieces * s.threads * s.tile
    if s.resident and work.length > held:
        factors = f"split·threads·tile = {s.split}" if s.split > 1 else f"cluster·threads·tile = {s.cluster}"
        yield (
            f"{factors}·{s.threads}·{s.tile} = {held} is less than the length {work.length} of {case.stream}",
            "resident=False, or more threads",
        )
    if s.tile > LARGEST_TILE:
        yield f"tile={s.tile}: a thread keeps at most {LARGEST_TILE} elements in registers", f"tile={LARGEST_TILE}"
    if s.exact and not exact(work, s):
        yield f"exact, and the length {work.length} of {case.stream} is not what the threads hold", "exact=False"
    states, room = states_bytes(work, s), room_bytes(work, s)
    if states > case.target.block_shared:
        yield (
            f"states take {states} bytes of shared memory, a block has {case.target.block_shared}",
            "fewer threads or rows",
        )
    if room and states + room > case.target.shared - RESERVED:
        has = f"a block has {case.target.shared - RESERVED}"
        yield f"rows and states take {states + room} bytes of shared memory, {has}", "room=0, or more blocks to a row"


def room_bytes(work: Work, s: Schedule) -> int:
    """Shared memory of rows that are brought ahead."""
    return s.rows * s.ring * work.own_bytes


def states_bytes(work: Work, s: Schedule) -> int:
    """Static shared memory: one state per thread (columns) or per warp, and one for the other blocks of a cluster."""
    state = 4 * work.state + 8
    times = 2 if s.split > 1 else 1  # the threads of a block, then the pieces
    if s.column:
        return times * s.block * s.beside * state if s.threads > 1 else 0
    warps = s.block // 32 if s.threads > 32 else 0
    return times * (warps + (1 if s.cluster > 1 else 0)) * state


def spills(case: Case, s: Schedule) -> bool:
    """Whether the schedule is estimated to need more registers than its threads can have, or a loop over its tile is
    too large to be unrolled, which puts the tile into local memory."""
    heaviest = min(case.work.heaviest, case.work.lifted) if s.resident else case.work.heaviest
    size = s.tile * s.beside * heaviest * (2.5 if case.work.double else 1)
    listed = case.work.lists and (case.work.double or not s.resident)  # resident float32 lists hold no tile of keys
    if listed and s.tile > LISTED_TILE or s.tile > 4 and size > UNROLLED:
        return True
    return registers(case.work, s) > min(MOST_REGISTERS, case.target.registers // max(32, s.block))


def require(case: Case, s: Schedule) -> None:
    """Refuse an illegal schedule, naming the first law or limit it breaks."""
    for why, fix in refusals(case, s):
        raise RedalgError(f"{s} for {case.program.name}", "schedule=", why, fix)
