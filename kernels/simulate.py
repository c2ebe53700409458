"""Run a printed CUDA kernel on the CPU, thread by thread: for tests of its indices and barriers, without numba.

Every thread is a generator that runs until it has to wait; one that cannot be released is an error that says where it
waits for whom. Blocks run one after another (the blocks of a cluster together). A seed shuffles blocks and threads.
What this shows is that indices are right, that threads meet at the same barriers, and that none reads shared memory
before another is done with it; it is no evidence of types, of PTX, or of how memory is ordered between blocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.simulate_source import loaded
from redalg.kernels.twins_memory import Pointer
from redalg.kernels.twins_threads import Block, Cluster, Place, Thread, now
from redalg.kernels.twins_warp import Request

Extent = int | tuple[int, ...]


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


def simulate(
    source: str,
    entry: str,
    grid: Extent,
    block: Extent,
    args: Sequence[Any],
    cluster: int = 1,
    seed: int | None = None,
    shared: int = 0,
) -> list[Moved | None]:
    """Run `entry` of a kernel's source; for every argument that is an array or a `Pointer`, what was moved through it.

    `grid`: blocks, `block`: threads of one, each a number or up to three; `cluster`: blocks of a cluster along x;
    `shared`: bytes of shared memory that the launch gives every block.
    `args`: contiguous arrays (changed in place) or `Pointer`, and numbers. `seed`: shuffle blocks, and threads wherever
    they run. Raises: RedalgError, with the thread and the line, for everything that goes wrong in a thread.

    >>> source = '''
    ... from numba import cuda
    ... from redalg.kernels.intrinsics import load_float32, store_float32, shfl_xor_f32
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
    >>> simulate(source, "total", 2, 32, [x, y])
    [Moved(loaded=256, stored=0), Moved(loaded=0, stored=8)]
    >>> y
    array([496., 496.], dtype=float32)
    """
    kernel, grid, block = loaded(source)[entry], _place(grid), _place(block)
    if cluster < 1 or grid.x % cluster:
        raise RedalgError(f"{grid.x} blocks", "simulate", f"they make no whole clusters of {cluster}", "add blocks")
    given = [Pointer(a) if isinstance(a, np.ndarray) else a for a in args]
    order = random.Random(seed) if seed is not None else None
    clusters = [list(row) for row in product(range(grid.z), range(grid.y), range(0, grid.x, cluster))]
    if order:
        order.shuffle(clusters)
    with np.errstate(all="ignore"):
        for z, y, x in clusters:
            _run(_threads(kernel, given, Place(x, y, z), grid, block, cluster, shared), order)
    return [Moved(a.loaded, a.stored) if isinstance(a, Pointer) else None for a in given]


def _place(extent: Extent) -> Place:
    given = (extent,) if isinstance(extent, int) else extent
    return Place(*(*given, 1, 1)[:3])


def _threads(
    kernel: Callable[..., Any], args: list[Any], first: Place, grid: Place, size: Place, blocks: int, shared: int
) -> list[_Running]:
    cluster, found = Cluster(), []
    for rank in range(blocks):
        block = Block(
            Place(first.x + rank, first.y, first.z),
            rank,
            cluster,
            size,
            grid,
            alive=size.x * size.y * size.z,
            room=shared,
        )
        cluster.blocks.append(block)
        places = product(range(size.z), range(size.y), range(size.x))
        for number, (z, y, x) in enumerate(places):
            found.append(_Running(Thread(Place(x, y, z), number, block), (kernel, args)))
    return found


# --- running ---------------------------------------------------------------------------------------------------------


def _run(threads: list[_Running], order: random.Random | None) -> None:
    """All threads of a cluster, until every one has ended."""
    ready, sizes = list(threads), dict[tuple[Any, ...], int]()
    while ready:
        if order:
            order.shuffle(ready)
        for t in ready:
            _advance(t)
        ready = [t for group in _complete(threads, sizes) for t in group]
    waiting = [t for t in threads if not t.ended]
    if waiting:
        raise _stuck(waiting, threads)


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
    except StopIteration:
        t.ended, t.request = True, None
        t.thread.block.alive -= 1
    except RedalgError:
        raise
    except Exception as problem:
        raise RedalgError(
            f"{type(problem).__name__}: {problem}", f"{t.thread}, {_line_of(problem)}", "the simulated kernel raised it"
        ) from problem


def _line_of(problem: Exception) -> str:
    trace, found = problem.__traceback__, "before its first line"
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith("<simulated kernel"):
            found = f"line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _group(t: _Running) -> tuple[Any, ...]:
    """Who has to ask together with this thread."""
    block, request = t.thread.block, t.request
    assert request is not None
    if request.scope == "cluster":
        return ("cluster",)
    if request.scope == "block":
        return ("block", block.rank)
    return ("group", block.rank, t.thread.warp, request.width, t.thread.lane // request.width)


def _members(key: tuple[Any, ...], threads: list[_Running]) -> Iterator[_Running]:
    for t in threads:
        inside = key[0] == "cluster" or t.thread.block.rank == key[1]
        if key[0] == "group" and inside:
            inside = t.thread.warp == key[2] and t.thread.lane // key[3] == key[4]
        if inside:
            yield t


def _complete(threads: list[_Running], sizes: dict[tuple[Any, ...], int]) -> Iterator[list[_Running]]:
    """The groups all of whose threads ask, each with its answers given. `sizes`: threads of groups, once counted."""
    groups: dict[tuple[Any, ...], list[_Running]] = {}
    for t in threads:
        if t.request is not None:
            groups.setdefault(_group(t), []).append(t)
    for key, asking in groups.items():
        if key not in sizes:
            sizes[key] = sum(1 for _ in _members(key, threads))
        if len(asking) == sizes[key]:
            _answer(key, asking)
            yield asking


def _answer(key: tuple[Any, ...], asking: list[_Running]) -> None:
    first = asking[0]
    for t in asking:
        if t.line != first.line:
            raise _apart(first, t)
    lanes = [(t.thread.lane, t.request) for t in asking if t.request is not None]
    assert first.request is not None
    for t, answer in zip(asking, first.request.answer(lanes), strict=True):
        t.answer, t.request = answer, None
    if lanes[0][1].orders:
        _order(key, first.thread.block)


def _order(key: tuple[Any, ...], block: Block) -> None:
    """A barrier has been passed."""
    if key[0] == "cluster":
        block.cluster.barriers += 1
    elif key[0] == "block":
        block.barriers += 1
    else:
        block.warps[key[2]] = block.warps.get(key[2], 0) + 1


# --- what went wrong -------------------------------------------------------------------------------------------------


def _apart(a: _Running, b: _Running) -> RedalgError:
    def one(t: _Running) -> str:
        assert t.request is not None
        return f"{t.thread} calls {t.request.name} on line {t.line}"

    return RedalgError(
        "threads that have come apart", f"{one(a)}, {one(b)}",
        "they would have to meet at one call", "move the call out of the branch",
    )  # fmt: skip


def _stuck(waiting: list[_Running], threads: list[_Running]) -> RedalgError:
    t = waiting[0]
    assert t.request is not None
    absent = [m for m in _members(_group(t), threads) if m.request is None or _group(m) != _group(t)]
    other = absent[0]
    where = "has ended" if other.ended else f"waits on line {other.line}"
    return RedalgError(
        f"{t.request.name} on line {t.line}",
        str(t.thread),
        f"{len(absent)} threads do not come: {other.thread} {where}",
        "let every thread of the group reach the call, or leave before it",
    )
