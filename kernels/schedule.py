"""Schedules: who computes a program. What is computed is the program's business (`redalg.kernels.ir`)."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Schedule:
    """How a GPU walks the rows of a program.

    ``threads`` threads share a row inside a block, ``rows`` rows lie side by side in a block (block size = threads·rows,
    at most 1024). A thread holds ``tile`` elements at a time, loaded ``vector`` at a time. ``resident``: the row fits
    the registers of its threads (n <= cluster·threads·tile): it is read once, and every reduction is over the whole
    group before the next one starts. Otherwise every thread folds its own elements and states are merged at the end.
    ``column``: neighbouring threads take neighbouring rows (for streams that are not contiguous). ``cluster`` blocks
    share a row through distributed shared memory, ``split`` blocks through global memory, where the last one merges.
    ``exact``: n is exactly cluster·threads·tile (resident) or a multiple of split·threads·tile: no bounds are tested.
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
    lanes: int = 1  # per thread, where the program has lanes
    deterministic: bool = False

    @property
    def block(self) -> int:
        return self.threads * self.rows


@dataclass(frozen=True)
class Layout:
    """What the strides of a call allow. ``unit``: arrays (operands and results) with stride 1 along the flattened stream
    whose rows start at multiples of 16 bytes, so that vectors may be used. ``flat``: every array that varies along a
    composite stream varies along all of it with one stride, so that it is walked as one axis."""

    unit: frozenset[str] = field(default_factory=frozenset)
    flat: bool = True
