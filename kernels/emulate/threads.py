"""The threads, blocks, clusters and grid of an emulation, the memory blocks share, and who a thread is.

Shared arrays watch how they are used: an access that no barrier orders after another thread's conflicting one is an
error, as is an index outside the array, or reading the memory of a block that has not declared it or has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from redalg.kernels.emulate.warp import KINDS, Request

PARTS = 105  # of a thread: 32 threads in equal parts for every number of quads


class Place(NamedTuple):
    x: int = 0
    y: int = 0
    z: int = 0


@dataclass(eq=False)
class Grid:
    """The blocks that run together, and what is under way among them: copies by the tensor memory accelerator."""

    size: Place
    block: Place  # threads of one
    shared: int = 0  # bytes of shared memory given at the launch
    rounds: bool = True  # whether numbers are rounded to the formats they are packed and stored in
    sample: frozenset[int] | None = None  # numbers of the threads of a block that run beyond their first product
    clusters: list[Cluster] = field(default_factory=list)
    under_way: list[Callable[[], None]] = field(default_factory=list)

    @property
    def sampled_warps(self) -> frozenset[int]:
        return frozenset(n // 32 for n in self.sample or ())


@dataclass(eq=False)
class Cluster:
    grid: Grid
    blocks: list[Block] = field(default_factory=list)
    barriers: int = 0  # that all its threads have passed


@dataclass(eq=False)
class Block:
    place: Place
    rank: int  # within the cluster
    cluster: Cluster
    alive: int  # threads that have not ended
    barriers: int = 0
    warps: dict[int, int] = field(default_factory=dict)  # warp -> barriers of the warp
    shared: dict[Any, Shared] = field(default_factory=dict)  # by the place in the source that declares them
    tiles: Any = None  # shared memory by its addresses, once it is asked for (`redalg.kernels.emulate.tiles`)

    @property
    def grid(self) -> Grid:
        return self.cluster.grid


@dataclass(eq=False)
class Thread:
    place: Place
    number: int  # within the block
    block: Block
    copies: list[list[Callable[[], None]]] = field(default_factory=lambda: [[]])  # under way, by groups: arrivals
    products: list[Any] = field(default_factory=list)  # under way, by groups (`redalg.kernels.emulate.wgmma`)
    turns: dict[int, int] = field(default_factory=dict)  # named barrier -> how often this thread came to it
    multiplied: bool = False  # whether it has come past its first product
    waited: list[Mbarrier] = field(default_factory=list)  # mbarriers of values that were sent, waited for

    @property
    def lane(self) -> int:
        return self.number % 32

    @property
    def warp(self) -> int:
        return self.number // 32

    @property
    def sampled(self) -> bool:
        sample = self.block.grid.sample
        return sample is None or self.number in sample

    @property
    def absent(self) -> bool:
        """Whether threads that are not of the sample do not come to where this one is."""
        return self.multiplied and self.block.grid.sample is not None

    def warps_stood_for(self) -> int:
        """Warps whose arrivals this thread's stand for: its own, and with the first of the sample those that ended."""
        warps, first = self.block.grid.sampled_warps, self.number // 128 * 4
        mine = [w for w in range(first, first + 4) if w in warps]
        return 5 - len(mine) if self.absent and mine and mine[0] == self.warp else 1

    def threads_stood_for(self) -> int:
        """Threads whose coming to a named barrier this one's stands for, in parts: `PARTS` are one thread."""
        if not self.absent:
            return PARTS
        held = sum(1 for n in self.block.grid.sample or () if n // 32 == self.warp)
        return 32 * PARTS * self.warps_stood_for() // held

    def __str__(self) -> str:
        return f"thread {self.place.x} of block {self.block.place.x}"


class Now:
    """The thread that is running."""

    thread: Thread

    def stamp(self) -> Stamp:
        t = self.thread
        return Stamp(t, t.block.cluster.barriers, t.block.barriers, t.block.warps.get(t.warp, 0))


class Stamp(NamedTuple):
    """Who, and after how many barriers of the cluster, the block and the warp."""

    thread: Thread
    cluster: int
    block: int
    warp: int

    def before(self, later: Stamp) -> bool:
        """Whether a barrier, or being the same thread, puts this before a later access."""
        a, b = self.thread, later.thread
        if a is b or self.cluster < later.cluster:
            return True
        if a.block is not b.block:
            return False
        return self.block < later.block or a.warp == b.warp and self.warp < later.warp


now = Now()


def poison(count: int, dtype: Any) -> Any:
    """Values that stand for memory nobody has written: NaN, true, or a pattern of bits."""
    dtype = np.dtype(dtype)
    if dtype.kind in "fb":
        return np.full(count, np.nan if dtype.kind == "f" else True, dtype)
    return np.full(count * dtype.itemsize, 0x5A, np.uint8).view(dtype)


@dataclass(eq=False)
class Mbarrier:
    count: int
    pending: int = 0
    bytes: int = 0  # that are still to come
    phase: int = 0

    def check(self) -> None:
        if self.pending < 0:
            raise RuntimeError("more arrivals at an mbarrier than it counts")
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase ^ 1, self.count


class Shared:
    """An array of `cuda.shared.array`."""

    def __init__(self, site: Any, count: int, dtype: Any) -> None:
        self.site, self.name, self.cells = site, f"the shared array of line {site[0]}", poison(count, dtype)
        self.dtype, self.size, self.shape = self.cells.dtype, count, (count,)
        self._written: dict[int, tuple[Stamp, bool]] = {}  # the last write, and whether it was atomic
        self._read: dict[int, dict[Thread, Stamp]] = {}
        self._sent: dict[int, Mbarrier] = {}  # elements that came with an mbarrier's bytes
        self.mbarriers: dict[int, Mbarrier] = {}  # elements that are one

    def __len__(self) -> int:
        return self.size

    def _place(self, index: Any) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"index {index} of {self.name}, which has {self.size} elements")
        return int(index)

    def __getitem__(self, index: Any) -> Any:
        at, stamp = self._place(index), now.stamp()
        self._require_wait(at, stamp)
        self._check(at, stamp, "reads", self._written.get(at))
        self._read.setdefault(at, {})[stamp.thread] = stamp
        return self.cells[at]

    def __setitem__(self, index: Any, value: Any) -> None:
        at, stamp = self._place(index), now.stamp()
        self._require_wait(at, stamp)
        value = self.dtype.type(value)
        same = self.cells[at] == value or self.cells[at] != self.cells[at] and value != value
        if not same:
            self._check(at, stamp, "writes", self._written.get(at), *((s, False) for s in self._readers(at)))
        self._record(at, stamp, value, atomic=False)

    def send(self, index: Any, value: Any, barrier: Mbarrier) -> None:
        """A store that counts its bytes in at an mbarrier of the same block."""
        at = self._place(index)
        self._check(at, now.stamp(), "writes", self._written.get(at), *((s, False) for s in self._readers(at)))
        self._sent[at] = barrier

        def arrive() -> None:
            self.cells[at] = self.dtype.type(value)
            barrier.bytes -= self.dtype.itemsize
            barrier.check()

        now.thread.block.grid.under_way.append(arrive)

    def _require_wait(self, at: int, stamp: Stamp) -> None:
        barrier = self._sent.get(at)
        if barrier is not None and barrier not in stamp.thread.waited:
            raise RuntimeError(f"{stamp.thread} uses {self.name}[{at}] and has not waited for its bytes")

    def atomic(self, index: Any, change: Callable[[Any], Any]) -> Any:
        """Replace an element by a function of it, in one step; what it was."""
        at, stamp = self._place(index), now.stamp()
        last = self._written.get(at)
        self._check(at, stamp, "changes", None if last and last[1] else last, *((s, False) for s in self._readers(at)))
        before = self.cells[at]
        self._record(at, stamp, change(before), atomic=True)
        return before

    def _readers(self, at: int) -> list[Stamp]:
        return list(self._read.get(at, {}).values())

    def _record(self, at: int, stamp: Stamp, value: Any, atomic: bool) -> None:
        self.cells[at] = value
        self._written[at] = (stamp, atomic)
        self._read.pop(at, None)

    def _check(self, at: int, stamp: Stamp, does: str, *earlier: tuple[Stamp, bool] | None) -> None:
        for other in earlier:
            if other is not None and not other[0].before(stamp):
                raise RuntimeError(
                    f"{stamp.thread} {does} {self.name}[{at}], which {other[0].thread} uses without a barrier between"
                )


@dataclass(frozen=True)
class SharedRows:
    """A shared array of two dimensions, whose rows are arrays."""

    whole: Shared
    shape: tuple[int, int]

    def __getitem__(self, k: Any) -> SharedRow:
        if not 0 <= k < self.shape[0]:
            raise IndexError(f"row {k} of {self.whole.name}, which has {self.shape[0]}")
        return SharedRow(self.whole, int(k) * self.shape[1], self.shape[1])


@dataclass(frozen=True)
class SharedRow:
    whole: Shared
    first: int
    size: int

    def _place(self, index: Any) -> int:
        if not 0 <= index < self.size:
            raise IndexError(f"index {index} of a row of {self.whole.name}, which has {self.size} elements")
        return self.first + int(index)

    def __getitem__(self, index: Any) -> Any:
        return self.whole[self._place(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.whole[self._place(index)] = value


# --- emulations ------------------------------------------------------------------------------------------------------


def declared(site: Any, count: int, dtype: Any) -> Shared:
    """The array that this block declares at a place in the source; one of no length has what the launch gives."""
    block = now.thread.block
    return _of_block(block, site, count or block.grid.shared // np.dtype(dtype).itemsize, dtype)


def _of_block(block: Block, site: Any, count: int, dtype: Any) -> Shared:
    if site not in block.shared:
        block.shared[site] = Shared(site, count, dtype)
    return block.shared[site]


def _remote(array: Shared, rank: Any) -> Shared:
    cluster = now.thread.block.cluster
    if not 0 <= rank < len(cluster.blocks):
        raise IndexError(f"block {rank} of a cluster of {len(cluster.blocks)}")
    block = cluster.blocks[int(rank)]
    if block is not now.thread.block and not (block.alive and cluster.barriers):
        what = "may not have begun: no cluster_sync came before" if block.alive else "has ended"
        raise RuntimeError(f"{now.thread} reaches {array.name} of block {rank} of its cluster, which {what}")
    return _of_block(block, array.site, array.size, array.dtype)


def _dsm_load(kind: str) -> Callable[..., Any]:
    return lambda array, index, rank: KINDS[kind](_remote(array, rank)[index])


def _dsm_store(kind: str) -> Callable[..., Any]:
    def store(array: Shared, index: Any, rank: Any, value: Any) -> None:
        _remote(array, rank)[index] = KINDS[kind](value)

    return store


def _tx_init(bars: Shared, i: Any) -> None:
    bars.mbarriers[int(i)] = Mbarrier(1, 1)


def _tx_expect(bars: Shared, i: Any, count: Any) -> None:
    barrier = bars.mbarriers[int(i)]
    barrier.bytes, barrier.pending = barrier.bytes + int(count), barrier.pending - 1
    barrier.check()


def _tx_wait(bars: Shared, i: Any) -> Request:
    barrier = bars.mbarriers[int(i)]
    now.thread.waited.append(barrier)
    return Request("tx_wait", "self", ready=lambda: barrier.phase == 1)


def _dsm_send(kind: str) -> Callable[..., Any]:
    def send(array: Shared, index: Any, rank: Any, value: Any, bars: Shared, i: Any) -> None:
        target, theirs = _remote(array, rank), _remote(bars, rank)
        if int(i) not in theirs.mbarriers:
            raise RuntimeError(f"{now.thread} sends to an mbarrier of block {rank} that is not made yet")
        target.send(index, KINDS[kind](value), theirs.mbarriers[int(i)])

    return send


def _whole(a: Any, b: Any) -> int:
    if a < 0:
        raise ValueError(f"{a} is divided as an unsigned number")
    return int(a) // int(b)


def _group_mask(width: Any) -> Any:
    first = now.thread.lane // int(width) * int(width)
    return np.uint32(((1 << int(width)) - 1) << first)


EMULATED: dict[str, Callable[..., Any]] = {
    "lane_id": lambda: now.thread.lane,
    "group_mask": _group_mask,
    "and_i32": lambda a, b: int(a) & int(b),
    "div_u32": _whole,
    "rem_u32": lambda a, b: int(a) - _whole(a, b) * int(b),
    "div_u64": _whole,
    "cluster_rank": lambda: now.thread.block.rank,
    "cluster_size": lambda: len(now.thread.block.cluster.blocks),
    "cluster_arrive": lambda: None,
    "kernel_before_wait": lambda: None,
    "kernel_behind_launch": lambda: None,
    **{f"dsm_load_{k}": _dsm_load(k) for k in KINDS},
    **{f"dsm_store_{k}": _dsm_store(k) for k in KINDS},
    **{f"dsm_send_{k}": _dsm_send(k) for k in KINDS if k != "b1"},
    "tx_init": _tx_init,
    "tx_expect": _tx_expect,
    "tx_wait": _tx_wait,
}
