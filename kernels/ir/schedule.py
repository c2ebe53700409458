"""Schedules: who computes a program. What is computed is the program's business (`redalg.kernels.ir.program`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from redalg._moved import deprecated

MOST_DISTANCE = 31  # tiles that may be under way while a row is walked
COPIED = (4, 8, 16)  # bytes of an asynchronous copy (PTX ISA 9.0, "cp.async")
# Elements of a row that a block and a thread of it write at a time where results turn, at least: log_softmax of a
# transposed 251779x115 float32 takes 251 us with 8 of a block, 170 with 32 and 167 with 64, of 163104x20 float16 20 us
# with 4 and 13 with 20; softmax of 4000x8192 float32 240 us with 2 of a thread and 142 with 4 (H100, 2026-11-26).
TURNED, TURNED_THREAD = 64, 4
SECTOR = 32  # bytes in which memory is read and written
EARLY = 32  # elements of what all rows share that a thread loads together with its row
SPLIT_WORDS = 8  # values of splits of a row that a thread asks for at a time, when their states are joined
AHEAD = 32  # elements of what is read where results are written that a thread asks for at a time
TENSOR = "tensor"  # on tensor cores, by whichever class of programs fits (`redalg.kernels.tile`, `redalg.kernels.gemm`)
MMA = "mma"  # attention by mma.sync, whatever the compute capability
FROZEN_MAX = "frozen_max"  # attention with a frozen maximum, validation and fallback (`redalg.kernels.tile.frozen_max`)
FUSED_PROLOGUE = "fused_prologue"  # of a GEMM: what prepares an operand runs inside its kernel


class Family(StrEnum):
    """Who shares a row; ``schedule=`` takes these words."""

    THREAD = "thread"
    WARP = "warp"
    BLOCK = "block"
    CLUSTER = "cluster"
    SPLIT = "split"
    COLUMN = "column"

    def __repr__(self) -> str:
        return repr(self.value)


FAMILIES = tuple(Family)


class Neighbours(NamedTuple):
    """Kernels of the same call that read nothing of each other: one may begin as soon as all blocks of the one before
    it have, and ends after it; so may one behind it.

    Where a kernel reads what the one before wrote, and waits for it first of all, that gains nothing: 14.4 us for 14.5
    of two kernels of RMSNorm's backward pass, 11.5 for 11.0 (H100, replayed graphs, 2026-11-26).
    """

    before: bool = False
    behind: bool = False


ALONE = Neighbours()


@dataclass(frozen=True)
class Schedule:
    """How a GPU walks the rows of a program.

    ``threads`` threads share a row inside a block, ``rows`` rows lie side by side in a block (block size =
    threads·rows, at most 1024). A thread holds ``tile`` elements at a time, loaded ``vector`` at a time.
    ``resident``: the row fits the registers of its threads (n <= cluster·split·threads·tile): it is read once, and
    every reduction is over the whole group before the next one starts. Otherwise every thread folds its own elements
    and states are merged at the end, as they are with ``split`` where the row is resident.
    ``persistent``: the grid has as many blocks as run at once, and each goes on with further rows; with ``split`` the
    launch is cooperative, and the blocks of a row meet at a grid barrier.
    ``prefetch``: elements of a row, or of a block's part of it, that lie in shared memory: while a block of a
    persistent grid computes one row, asynchronous copies bring the next one there (0: rows are read where they are).
    ``prefetch_distance``: tiles of the rows after that which lie there besides, so that copies are always under way.
    ``column``: neighbouring threads take neighbouring rows (for streams that are not contiguous), and each thread
    ``coarsen`` of them, which it loads together; else threads that hold rows have ``coarsen`` of them at once, ``rows``
    apart, so that as many are on their way. ``columns_per_thread``: free output axes are shared out among a row's
    threads, so many elements to each. ``cluster`` blocks share a row through distributed shared memory, ``split``
    blocks through global memory, where the last one merges.
    ``kept``: elements of a row, in whole tiles, that a column schedule which walks its rows leaves in shared memory as
    they were loaded, for the walks after the first: every thread finds those there that it put there itself. With
    ``split`` they are those of a block's part, and where rows can be copied, asynchronous copies bring the next ones to
    the places of those that have been read for the last time.
    ``peel``: rows start anywhere. Vectors begin at multiples of their size, and the elements before the first and after
    the last are taken one by one, at most one by each thread of a row; what starts elsewhere than the array that is led
    by (`Layout.leader`) is read by two aligned loads. Without a leader vectors begin with the row.
    ``staged``: short rows that follow each other in memory without gaps: a block copies all of its rows to shared
    memory in vectors of 16 bytes, wherever each row begins, threads take their elements from there, and results go the
    same way back; where the grid is persistent, the next rows while these are computed.
    ``entries``: a block shares out a state along two axes; each of its threads adds to a tile of so many entries along
    both of them, and brings ``tile`` elements of a chunk at a time (`redalg.kernels.rows.outer`).
    ``exact``: n is exactly cluster·split·threads·tile (resident), or a multiple of it: no bounds are tested.

    >>> Schedule(threads=128, rows=1, vector=4, tile=32, resident=True)
    Schedule(threads=128, rows=1, vector=4, tile=32, resident=True)
    """

    threads: int = 32
    rows: int = 4
    vector: int = 1
    tile: int = 4
    resident: bool = False
    column: bool = False
    cluster: int = 1
    split: int = 1
    exact: bool = False
    persistent: bool = False
    deterministic: bool = False
    columns_per_thread: int = 1  # where the program has columns
    coarsen: int = 1  # rows of a thread: neighbours in a column schedule
    prefetch: int = 0
    prefetch_distance: int = 0
    peel: bool = False
    staged: bool = False
    entries: int = 0
    kept: int = 0

    @property
    def block(self) -> int:
        return self.threads * self.rows

    @property
    def rows_per_block(self) -> int:
        """Rows of a block."""
        return self.rows * self.coarsen

    @property
    def neighbours(self) -> int:
        """Rows of a thread that lie side by side."""
        return self.coarsen if self.column else 1

    @property
    def blocks_per_row(self) -> int:
        """Blocks that share a row."""
        return self.cluster * self.split

    @property
    def tiles(self) -> int:
        """Tiles of a thread, of a row that is prefetched."""
        return self.prefetch // (self.threads * self.tile)

    @property
    def turned(self) -> int:
        """Elements of a thread that are written at a time where results turn in shared memory (column schedules)."""
        least = max(TURNED_THREAD, TURNED // self.threads)
        whole = (n for n in range(least, self.tile) if self.tile % n == 0)
        return next(whole, self.tile) if self.resident else self.tile

    @property
    def ring(self) -> int:
        """Elements of a row's array that a block holds in shared memory, where rows are prefetched."""
        return self.prefetch + self.prefetch_distance * self.threads * self.tile

    def asked(self, arrays: int) -> int:
        """Vectors of each of so many arrays that a thread asks for before it goes on: 4, 2 or 1, a part of a tile.
        One where rows are short: they are many blocks, which fill each other's waits."""
        if self.resident and self.blocks_per_row == 1 and self.tile < (48 if self.threads > 32 else 64):
            return 1
        fit = (n for n in (4, 2) if n * self.vector * arrays <= AHEAD and self.tile // self.vector % n == 0)
        return next(fit, 1)

    def early(self, arrays: int) -> bool:
        """Whether what all rows share is loaded with the row, before it is reduced: so many arrays, where registers are
        free. Elsewhere it is loaded vector by vector where results are written, and waited for there, while other warps
        go on."""
        # LayerNorm of 61x353 float16 takes 2.5 us so, 2.9 else, by 8 elements a thread; RMSNorm of 11801x1962 bfloat16
        # 37.3 for 34.8 by 32 (H100, 2026-11-27).
        return self.together and 0 < arrays * self.tile <= (EARLY if self.column else EARLY // 2)

    @property
    def merges_at_once(self) -> bool:
        """Whether states of threads are merged by all-reduce where the program allows it: few threads of different
        warps meet as often in a tree, as do those that have several rows anywhere."""
        return self.threads > 8 if self.column else self.coarsen == 1

    @property
    def together(self) -> bool:
        """Whether all threads of a row reduce its elements together, one reduction after the other."""
        return self.resident and self.split == 1

    @property
    def family(self) -> Family:
        """Who shares a row."""
        if self.column:
            return Family.COLUMN
        if self.split > 1:
            return Family.SPLIT
        if self.cluster > 1:
            return Family.CLUSTER
        return Family.THREAD if self.threads == 1 else Family.WARP if self.threads <= 32 else Family.BLOCK

    def __repr__(self) -> str:
        """What differs from one element at a time, four rows to a block; always the threads and the rows."""
        shown = [f"{f.name}={v}" for f in fields(self) if (v := getattr(self, f.name)) != f.default or f.name in _SHOWN]
        return f"Schedule({', '.join(shown)})"


def lanes_of(s: Schedule) -> int:
    """Threads of a row in a warp, in a column schedule.

    >>> lanes_of(Schedule(64, 8, column=True)), lanes_of(Schedule(8, 64, column=True))
    (4, 1)
    """
    return min(s.threads, max(1, 32 // s.rows))


def parts_of(s: Schedule) -> int:
    """Parts of the block that hold threads of a row: warps, or as many threads as there are of every row.

    >>> parts_of(Schedule(64, 8, column=True)), parts_of(Schedule(8, 64, column=True))
    (16, 8)
    """
    return s.threads // lanes_of(s)


def table_entries(s: Schedule) -> int:
    """Entries of the tables of one value of a reduction: a line for every part, and a value for every row.

    >>> table_entries(Schedule(64, 8, column=True)), table_entries(Schedule(4, 8, column=True))
    (152, 0)
    """
    parts = parts_of(s)
    found = parts * (s.rows | 1) + s.rows if parts > 1 else 0
    return found + (s.rows * (s.cluster + 1) if s.cluster > 1 else 0)


def added_bytes(s: Schedule, size: int) -> int:
    """Shared memory in which a block adds up the sums, of so many bytes each, that the threads of its rows have over
    these; 0 where each row's threads write sums of their own.

    >>> added_bytes(Schedule(8, 16, 4, 8, resident=True), 4), added_bytes(Schedule(128, 1, 4, 8, resident=True), 4)
    (4096, 0)
    """
    needed = s.block * s.tile * size
    return needed if s.rows > 1 and not s.peel and needed <= ADDED else 0


def partial_sums(s: Schedule, blocks: int, size: int) -> int:
    """How many sums over rows so many blocks leave for every place of a row."""
    return blocks // s.cluster * (1 if added_bytes(s, size) else s.rows)


def staged_span(s: Schedule, size: int) -> int:
    """Bytes of the table of an array whose rows pass through shared memory in a persistent grid: whole vectors, and
    one more where groups of rows begin inside of one."""
    held = s.rows * s.threads * s.tile * size
    return -(-held // 16) * 16 + (16 if s.rows * size % 16 else 0)


def skewed(s: Schedule, size: int) -> int:
    """Elements of a sector of memory (`size` bytes each) where lines of results that turn are written in whole sectors:
    every row's begin so many elements later, at most, as its next sector does. 0 where lines hold no whole number of
    sectors, or are not written from the last to the first."""
    sector = SECTOR // size
    return 0 if s.prefetch or s.kept or s.threads * s.turned % sector else sector


def turned_pitch(s: Schedule, size: int) -> int:
    """Entries of a line of results that turn: a tile of all threads, and what is left to the tile before it."""
    return s.threads * s.turned + skewed(s, size) | 1


def kept_pitch(s: Schedule, size: int, turned: bool) -> int:
    """Elements between two places of a kept row: those of all rows of the block, and so many more, where results turn
    there, that neighbouring places lie in different banks and the neighbours of a thread still in one vector.

    >>> s = Schedule(64, 8, 1, 8, column=True, coarsen=2, kept=512)
    >>> kept_pitch(s, 2, True), kept_pitch(s, 2, False)
    (18, 16)
    """
    return s.rows_per_block + (max(s.coarsen, WORD // size, 1) if turned and s.rows_per_block > 1 else 0)


def kept_bytes(s: Schedule, size: int, turned: bool) -> int:
    """Bytes of shared memory of the kept rows of an array whose elements have so many.

    >>> kept_bytes(Schedule(64, 8, 1, 8, column=True, coarsen=2, kept=512), 2, True)
    18432
    """
    return -(-size * s.kept * kept_pitch(s, size, turned) // ALIGNED) * ALIGNED


WORD = 4  # bytes of a bank of shared memory
ALIGNED = 16  # bytes that every array in shared memory starts at a multiple of
ADDED = 32 << 10  # bytes of a block's shared memory that the sums of one result over its rows may take
NETWORKED = 16  # entries of the longest list that sorting networks keep: two of them are held in registers at once


def by_network(s: Schedule, k: int) -> bool:
    """Whether the k largest are found by sorting networks: by threads of a warp, from a row that they hold."""
    return s.together and 1 < s.threads <= 32 and k <= NETWORKED and s.tile * s.threads >= k


_SHOWN = ("threads", "rows", "vector", "tile")
RENAMED = {  # deprecated words of ``schedule=`` and fields of a `Schedule`, until 0.2
    "optimistic": "frozen_max",
    "one launch": "fused_prologue",
    "lanes": "columns_per_thread",
    "beside": "coarsen",
    "room": "prefetch",
    "lead": "prefetch_distance",
}


def renamed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by the names they have now; a name of before warns, and counts where both are given (`replace`)."""
    old = [name for name in fields if name in RENAMED]
    for name in old:
        deprecated(f"Schedule({name}=…)", f"{RENAMED[name]}=")
    return {k: v for k, v in fields.items() if k not in old} | {RENAMED[k]: fields[k] for k in old}


def current(asked: Any) -> Any:
    """What ``schedule=`` asks for, in the words of now."""
    if isinstance(asked, str) and asked in RENAMED:
        deprecated(f"schedule={asked!r}", f"{RENAMED[asked]!r}")
        return RENAMED[asked]
    return renamed(asked) if isinstance(asked, Mapping) else asked


def _accepting_old_names(cls: type[Schedule]) -> None:
    made = cls.__init__

    def __init__(self: Schedule, *values: Any, **named: Any) -> None:
        made(self, *values, **(named if RENAMED.keys().isdisjoint(named) else renamed(named)))

    def __getattr__(self: Schedule, name: str) -> Any:
        if name in RENAMED:
            deprecated(f"Schedule.{name}", f".{RENAMED[name]}")
            return getattr(self, RENAMED[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    __init__.__wrapped__ = made  # type: ignore[attr-defined]  # what inspect.signature and completion show
    cls.__init__ = __init__  # type: ignore[method-assign]
    cls.__getattr__ = __getattr__  # type: ignore[attr-defined]


_accepting_old_names(Schedule)


@dataclass(frozen=True)
class Layout:
    """What the strides of a call allow.

    ``unit``: arrays (operands and results) with stride 1 along the flattened stream, whose rows start at multiples of
    the schedule's vector. ``flat``: every array that varies along a composite stream varies along all of it with one
    stride, so that it is walked as one axis. ``across``: arrays in which all columns lie side by side (CPU).
    ``coarsened``: arrays whose neighbouring rows are loaded together (column schedules); ``astride``: operands where
    they are though they start anywhere, put together from two loads. ``leader``: the array whose rows say where vectors
    begin, where they are peeled; ``unit`` then are those whose rows start as its do, and ``shifted`` operands with
    stride 1 that start anywhere. ``turned``: results of a column schedule whose rows lie in memory one after another,
    unlike those of the operands. ``staged``: arrays that pass through shared memory, all rows of a block at once
    (`Schedule.staged`). ``packed``: operands of which a vector of elements is as many vectors of memory as an element
    has entries there, with the axes of these entries, in their order. ``adjacent``: operands of which a load brings so
    many entries of an element, with the axes of all of them.
    """

    unit: frozenset[str] = field(default_factory=frozenset)
    flat: bool = True
    across: frozenset[str] = field(default_factory=frozenset)
    coarsened: frozenset[str] = field(default_factory=frozenset)
    shifted: frozenset[str] = field(default_factory=frozenset)
    leader: str | None = None
    turned: frozenset[str] = field(default_factory=frozenset)
    staged: frozenset[str] = field(default_factory=frozenset)
    astride: frozenset[str] = field(default_factory=frozenset)
    packed: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    adjacent: tuple[tuple[str, int, tuple[tuple[str, ...], ...]], ...] = ()
