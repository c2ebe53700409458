"""Run a printed CUDA kernel on the CPU, thread by thread: for tests of its indices and barriers, without numba.

Every thread is a generator that runs until it has to wait, for threads of its warp, warpgroup, block, cluster or grid,
or until something is so (an mbarrier, a counter); one that cannot be released is an error that says where it waits for
whom. Blocks run one after another, those of a cluster, or as many as `together` says, at the same time. Copies by the
tensor memory accelerator arrive when nothing else can go on. A seed shuffles blocks and threads, lets copies arrive at
any time, and lets one block or warpgroup of several lag behind.

What this shows is that indices are right, that threads meet at the same barriers, that none reads shared memory before
another is done with it, and that asynchronous copies and products are waited for; it is no evidence of types, of PTX,
or of how memory is ordered between blocks.

A tile of scores takes a warpgroup minutes rather than seconds in Python. With `sample` all threads run up to their
first product, which is made for all of them, and after it the sample alone. Where others would come, threads of the
sample stand for them: copies that a block shares out are made for them by the first thread, and at mbarriers and named
barriers the first warp of a warpgroup arrives for those that ended. So a sample holds the first four threads of every
warp that it has threads of, and some of every warpgroup that multiplies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.emulate.arguments import Arguments
from redalg.kernels.emulate.memory import Pointer
from redalg.kernels.emulate.source import FILE, loaded
from redalg.kernels.emulate.threads import Block, Cluster, Grid, Place, Thread, now
from redalg.kernels.emulate.warp import Request
from redalg.kernels.emulate.wgmma import finish
from redalg.kernels.ir.program import Module

Extent = int | tuple[int, ...]
Key = tuple[Any, ...]  # of threads that ask together
Part = tuple[Block, int]  # a warpgroup
SOON = 0.5  # how likely a copy arrives, round by round
SELDOM = 0.04  # how often what lags behind goes on


@dataclass(frozen=True)
class Moved:
    """Bytes that a kernel loaded and stored through one pointer."""

    loaded: int
    stored: int


@dataclass(eq=False)
class _Running:
    thread: Thread
    steps: Any  # the generator; None where the kernel never waits
    line: int = 0
    request: Request | None = None
    answer: Any = None
    ended: bool = False
    left: bool = False  # ended since it is not of the sample


def run(
    module: Module,
    arrays: Arguments | Sequence[Any],
    grid: Extent,
    threads: Extent = 0,
    cluster: int = 1,
    together: int = 0,
    seed: int | None = None,
    sample: Iterable[int] | None = None,
    rounds: bool = True,
) -> list[Moved | None]:
    """Run a kernel; for every argument that is an array or a `Pointer`, what was moved through it.

    `arrays`: what the module's parameters stand for, or the arguments in their order: contiguous arrays (changed in
    place), `Pointer`, `TensorMaps` and numbers. `grid`: blocks; `threads`: of one, where the module does not say: each
    a number or up to three. `cluster`: blocks of a cluster along x; `together`: blocks that run at the same time (those
    of a cluster). `seed`: shuffle blocks, and threads wherever they run. `sample`: numbers of the threads of a block
    that run beyond their first product (all); `rounds`: whether numbers are rounded to the formats that hold them in
    registers, shared memory and `Numbers`. Raises: RedalgError, with the thread and the line, for everything that goes
    wrong in a thread.

    >>> source = '''
    ... from numba import cuda
    ... from redalg.kernels.cuda.intrinsics import load_float32, store_float32, shfl_xor_f32
    ...
    ... @cuda.jit
    ... def total(x, y):
    ...     s = load_float32(x, cuda.threadIdx.x)
    ...     for k in range(5):
    ...         s += shfl_xor_f32(s, 1 << k)
    ...     if cuda.threadIdx.x == 0:
    ...         store_float32(y, cuda.blockIdx.x, s)
    ... '''
    >>> x, y = np.arange(32, dtype=np.float32), np.zeros(2, np.float32)
    >>> run(Module(source, "total", (), 32), [x, y], 2)
    [Moved(loaded=256, stored=0), Moved(loaded=0, stored=8)]
    >>> y
    array([496., 496.], dtype=float32)
    """
    kernel, size, block = loaded(module.source)[module.entry], _place(grid), _place(threads or module.threads)
    args = arrays.of(module.params) if isinstance(arrays, Arguments) else arrays
    given = [Pointer(a) if isinstance(a, np.ndarray) else a for a in args]
    order = None if seed is None else random.Random(seed)
    chosen = None if sample is None else frozenset(sample)
    with np.errstate(all="ignore"):
        for group in _groups(size, cluster, together or cluster, order):
            blocks = Grid(size, block, module.shared, rounds, chosen)
            _Schedule(_threads(kernel, given, group, blocks, cluster), blocks, order).run()
    return [Moved(a.loaded, a.stored) if isinstance(a, Pointer) else None for a in given]


def _groups(size: Place, cluster: int, together: int, order: random.Random | None) -> list[list[Place]]:
    """The first blocks of the clusters that run at the same time."""
    if cluster < 1 or size.x % cluster or together % cluster:
        raise RedalgError(f"{size.x} blocks", "emulation", f"they make no whole clusters of {cluster}", "add blocks")
    clusters = [Place(x, y, z) for z, y, x in product(range(size.z), range(size.y), range(0, size.x, cluster))]
    held = together // cluster
    groups = [clusters[k : k + held] for k in range(0, len(clusters), held)]
    if order:
        order.shuffle(groups)
    return groups


def _place(extent: Extent) -> Place:
    given = (extent,) if isinstance(extent, int) else extent
    return Place(*(*given, 1, 1)[:3])


def _threads(
    kernel: Callable[..., Any], args: list[Any], firsts: list[Place], grid: Grid, blocks: int
) -> list[_Running]:
    found, size = [], grid.block
    for first in firsts:
        cluster = Cluster(grid)
        grid.clusters.append(cluster)
        for rank in range(blocks):
            block = Block(Place(first.x + rank, first.y, first.z), rank, cluster, size.x * size.y * size.z)
            cluster.blocks.append(block)
            places = product(range(size.z), range(size.y), range(size.x))
            for number, (z, y, x) in enumerate(places):
                found.append(_Running(Thread(Place(x, y, z), number, block), (kernel, args)))
    return found


# --- running ---------------------------------------------------------------------------------------------------------


class _Schedule:
    """Who may go on, among threads that run together, until every one has ended."""

    def __init__(self, threads: list[_Running], grid: Grid, order: random.Random | None) -> None:
        self.threads, self.grid, self.order = threads, grid, order
        self.ready, self.polling = list(threads), list[_Running]()
        self.asking: dict[Key, list[_Running]] = {}
        self.sizes: dict[Key, int] = {}
        self.slow = order.choice(_parts(grid)) if order else frozenset[Part]()

    def run(self) -> None:
        moved = True
        while self.ready or self.polling or self.asking or self.grid.under_way:
            seldom = not moved or self.order is None or self.order.random() < SELDOM
            slow = frozenset[Part]() if seldom else self.slow
            moved = self._advance(slow) | self._arrive() | self._poll()
            if not moved and not slow and not self._arrives():
                raise self._stuck()

    def _advance(self, slow: frozenset[Part]) -> bool:
        """Let all threads go on that may, each until it waits or ends."""
        ready, self.ready = self.ready, []
        if self.order:
            self.order.shuffle(ready)
        moved = False
        for t in ready:
            if slow and (t.thread.block, t.thread.number >> 7) in slow:
                self.ready.append(t)
                continue
            moved = True
            _advance(t)
            if t.request is not None:
                self._ask(t, t.request)
        return moved

    def _ask(self, t: _Running, request: Request) -> None:
        if request.ready is not None:
            self.polling.append(t)
            return
        key = _group(t)
        self.asking.setdefault(key, []).append(t)
        self._complete(key)

    def _complete(self, key: Key) -> None:
        """Answer threads that ask together once all of them do."""
        asking = self.asking[key]
        if key not in self.sizes:
            self.sizes[key] = sum(1 for m in _members(key, self.threads) if not m.left)
        if len(asking) < self.sizes[key]:
            return
        del self.asking[key]
        product_made = _answer(key, asking)
        gone = [t for t in asking if product_made and not t.thread.sampled]
        for t in gone:
            _leave(t)
        self.ready += [t for t in asking if not t.left]
        if gone:
            self.sizes.clear()
            for other in list(self.asking):
                if other in self.asking:
                    self._complete(other)

    def _poll(self) -> bool:
        """Threads that wait until something is so, and it is."""
        free = [t for t in self.polling if t.request is not None and t.request.ready is not None and t.request.ready()]
        for t in free:
            t.request = None
        self.ready += free
        self.polling = [t for t in self.polling if t.request is not None] if free else self.polling
        return bool(free)

    def _arrive(self) -> bool:
        """With a seed, copies arrive in any order at any time."""
        moved = False
        while self.order and self.grid.under_way and self.order.random() < SOON:
            moved = self._arrives()
        return moved

    def _arrives(self) -> bool:
        waiting = self.grid.under_way
        if not waiting:
            return False
        arrive = waiting.pop(self.order.randrange(len(waiting)) if self.order else 0)
        try:
            arrive()
        except Exception as problem:
            raise _wrong(problem, "a copy by the tensor memory accelerator") from problem
        return True

    def _stuck(self) -> RedalgError:
        """Nobody can go on: the first thread that waits, and for whom."""
        t = next(t for t in self.threads if t.request is not None)
        assert t.request is not None
        if t.request.ready is not None:
            why = "every thread waits, and nothing is under way that would release one"
        else:
            key = _group(t)
            absent = [m for m in _members(key, self.threads) if not m.left and (m.request is None or _group(m) != key)]
            other = absent[0]
            where = "has ended" if other.ended else f"waits on line {other.line}"
            why = f"{len(absent)} threads do not come: {other.thread} {where}"
        return RedalgError(
            f"{t.request.name} on line {t.line}",
            str(t.thread),
            why,
            "let every thread of the group reach the call, or leave before it",
        )


def _parts(grid: Grid) -> list[frozenset[Part]]:
    """What may lag behind: nothing, a block, or a warpgroup, where there are several that run together."""
    size = grid.block.x * grid.block.y * grid.block.z
    blocks = [
        frozenset((b, warpgroup) for warpgroup in range(-(-size // 128))) for c in grid.clusters for b in c.blocks
    ]
    warpgroups = [frozenset([part]) for parts in blocks for part in sorted(parts, key=lambda part: part[1])]
    return [frozenset(), *(blocks if len(blocks) > 1 else ()), *(warpgroups if len(warpgroups) > len(blocks) else ())]


def _advance(t: _Running) -> None:
    """Let a thread run until it waits or ends."""
    now.thread = t.thread
    try:
        if isinstance(t.steps, tuple):
            kernel, args = t.steps
            t.steps = kernel(*args)
            if t.steps is None:
                raise StopIteration
        t.line, t.request = t.steps.send(t.answer)
        t.answer = None
    except StopIteration:
        t.ended, t.request = True, None
        t.thread.block.alive -= 1
    except RedalgError:
        raise
    except Exception as problem:
        raise _wrong(problem, f"{t.thread}, {_line_of(problem)}") from problem


def _leave(t: _Running) -> None:
    """A thread that is not of the sample ends; what it copies arrives, and it waits for its products."""
    t.ended = t.left = True
    t.steps.close()
    t.thread.block.alive -= 1
    for arrive in (a for group in t.thread.copies for a in group):
        arrive()
    finish(t.thread, 0)


def _line_of(problem: Exception) -> str:
    trace, found = problem.__traceback__, "before its first line"
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(FILE[:-1]):
            found = f"line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _group(t: _Running) -> Key:
    """Who has to ask together with this thread."""
    block, request = t.thread.block, t.request
    assert request is not None
    if request.scope == "grid":
        return ("grid",)
    if request.scope == "cluster":
        return ("cluster", block.cluster)
    if request.scope == "block":
        return ("block", block)
    if request.scope == "self":
        return ("self", t)
    return ("group", block, request.width, t.thread.number // request.width)


def _members(key: Key, threads: list[_Running]) -> Iterator[_Running]:
    for t in threads:
        block = t.thread.block
        inside = key[0] == "grid" or key[0] == "cluster" and block.cluster is key[1]
        if key[0] in ("block", "group"):
            inside = block is key[1] and (key[0] == "block" or t.thread.number // key[2] == key[3])
        if inside:
            yield t


def _answer(key: Key, asking: list[_Running]) -> bool:
    """Give threads that ask together their answers; whether they asked for a product."""
    asking.sort(key=lambda t: t.thread.number)
    first = asking[0]
    for t in asking:
        if t.line != first.line:
            raise _apart(first, t)
    now.thread = first.thread
    lanes = [(t.thread.lane, t.request) for t in asking if t.request is not None]
    request = lanes[0][1]
    try:
        answers = request.answer(lanes)
    except Exception as problem:
        raise _wrong(problem, f"{first.thread}, line {first.line}") from problem
    for t, answer in zip(asking, answers, strict=True):
        t.answer, t.request, t.thread.multiplied = answer, None, t.thread.multiplied or request.product
    if request.orders:
        _order(key, first.thread)
    return request.product


def _order(key: Key, first: Thread) -> None:
    """A barrier has been passed."""
    block = first.block
    if key[0] == "grid":
        for cluster in block.grid.clusters:
            cluster.barriers += 1
    elif key[0] == "cluster":
        block.cluster.barriers += 1
    elif key[0] == "block":
        block.barriers += 1
    else:
        block.warps[first.warp] = block.warps.get(first.warp, 0) + 1


# --- what went wrong -------------------------------------------------------------------------------------------------


def _wrong(problem: Exception, where: str) -> RedalgError:
    return RedalgError(f"{type(problem).__name__}: {problem}", where, "the emulated kernel raised it")


def _apart(a: _Running, b: _Running) -> RedalgError:
    def one(t: _Running) -> str:
        assert t.request is not None
        return f"{t.thread} calls {t.request.name} on line {t.line}"

    return RedalgError(
        "threads that have come apart",
        f"{one(a)}, {one(b)}",
        "they would have to meet at one call",
        "move the call out of the branch",
    )
