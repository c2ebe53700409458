"""Schedules: who computes a program. What is computed is the program's business (`redalg.kernels.ir`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

MOST_LEAD = 31  # tiles that may be under way while a row is walked
COPIED = (4, 8, 16)  # bytes of a copy that runs behind (PTX ISA 9.0, "cp.async")
AHEAD = 32  # elements of what is read where results are written that a thread asks for at a time
FAMILIES = ("thread", "warp", "block", "cluster", "split", "column")


@dataclass(frozen=True)
class Schedule:
    """How a GPU walks the rows of a program.

    ``threads`` threads share a row inside a block, ``rows`` rows lie side by side in a block (block size =
    threads·rows, at most 1024). A thread holds ``tile`` elements at a time, loaded ``vector`` at a time.
    ``resident``: the row fits the registers of its threads (n <= cluster·split·threads·tile): it is read once, and
    every reduction is over the whole group before the next one starts. Otherwise every thread folds its own elements
    and states are merged at the end, as they are with ``split`` where the row is resident.
    ``persistent``: the grid has as many blocks as run at once, and each goes on with further rows; with ``split`` the
    blocks of a row wait for each other.
    ``room``: elements of a row, or of a block's part of it, that lie in shared memory: while a block of a persistent
    grid computes one row, the next one is brought there by copies that run behind (0: rows are read where they are).
    ``lead``: tiles of the rows after that which lie there besides, so that copies are under way all the time.
    ``column``: neighbouring threads take neighbouring rows (for streams that are not contiguous), and each thread
    ``beside`` of them, which it loads together. ``cluster`` blocks share a row through distributed shared memory,
    ``split`` blocks through global memory, where the last one merges.
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
    lanes: int = 1  # per thread, where the program has lanes
    beside: int = 1  # neighbouring rows of a thread, in a column schedule
    room: int = 0
    lead: int = 0

    @property
    def block(self) -> int:
        return self.threads * self.rows

    @property
    def abreast(self) -> int:
        """Rows of a block."""
        return self.rows * self.beside

    @property
    def pieces(self) -> int:
        """Blocks that share a row."""
        return self.cluster * self.split

    @property
    def tiles(self) -> int:
        """Tiles of a thread, of a row that is brought ahead."""
        return self.room // (self.threads * self.tile)

    @property
    def ring(self) -> int:
        """Elements of a row's array that a block has room for, where rows are brought ahead."""
        return self.room + self.lead * self.threads * self.tile

    def asked(self, arrays: int) -> int:
        """Vectors of each of so many arrays that a thread asks for before it goes on: 4, 2 or 1, a part of a tile."""
        fit = (n for n in (4, 2) if n * self.vector * arrays <= AHEAD and self.tile // self.vector % n == 0)
        return next(fit, 1)

    @property
    def together(self) -> bool:
        """Whether all threads of a row reduce its elements together, one reduction after the other."""
        return self.resident and self.split == 1

    @property
    def family(self) -> str:
        """One of `FAMILIES`: who shares a row."""
        if self.column:
            return "column"
        if self.split > 1:
            return "split"
        if self.cluster > 1:
            return "cluster"
        return "thread" if self.threads == 1 else "warp" if self.threads <= 32 else "block"

    def __repr__(self) -> str:
        """What differs from one element at a time, four rows to a block; always the threads and the rows."""
        shown = [f"{f.name}={v}" for f in fields(self) if (v := getattr(self, f.name)) != f.default or f.name in _SHOWN]
        return f"Schedule({', '.join(shown)})"


_SHOWN = ("threads", "rows", "vector", "tile")


@dataclass(frozen=True)
class Layout:
    """What the strides of a call allow.

    ``unit``: arrays (operands and results) with stride 1 along the flattened stream, whose rows start at multiples of
    the schedule's vector. ``flat``: every array that varies along a composite stream varies along all of it with one
    stride, so that it is walked as one axis. ``across``: arrays in which all lanes lie side by side (CPU).
    ``beside``: arrays whose neighbouring rows are loaded together (column schedules).
    """

    unit: frozenset[str] = field(default_factory=frozenset)
    flat: bool = True
    across: frozenset[str] = field(default_factory=frozenset)
    beside: frozenset[str] = field(default_factory=frozenset)
