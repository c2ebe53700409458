"""The functions of `redalg.kernels.cuda.intrinsics.wgmma`: mbarriers, TMA boxes, products of a warpgroup.

What the hardware does is modelled from PTX ISA 9.0. Boxes arrive some time after they were asked for, in any order,
with the swizzle of 128 bytes. A product reads its operands when all threads of its warpgroup have come to it, and gives
its numbers when they have waited for it: until then its registers are NaN, what it reads of shared memory may not be
overwritten, nor the words it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from redalg.kernels.emulate.fragments import left_terms, rows_of, score_columns
from redalg.kernels.emulate.memory import counted, loaded
from redalg.kernels.emulate.threads import PARTS, Block, Thread, now
from redalg.kernels.emulate.tiles import (
    BASE,
    Mbarrier,
    Reading,
    TensorMaps,
    Tiles,
    Word,
    here,
    rounded,
    shared_load_b32,
    shared_load_f32,
    shared_store_b32,
    shared_store_f32,
    swizzled,
    tiles_of,
)
from redalg.kernels.emulate.warp import Lanes, Request
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import STEP

ROW = 128  # bytes of a row of a chunk
LIMIT = 1 << 31


# --- mbarriers and named barriers ------------------------------------------------------------------------------------


def _mbarrier(block: Block, address: int) -> Mbarrier:
    found = tiles_of(block).mbarriers.get(int(address))
    if found is None:
        raise RuntimeError(f"there is no mbarrier at {address}")
    return found


def _barrier_init(address: int, count: int) -> None:
    barriers = here().mbarriers
    if address % 8 or address in barriers:
        raise ValueError(f"an mbarrier at {address}, where there is one or which is no multiple of 8")
    barriers[int(address)] = Mbarrier(count, count)


def _barrier_expect(address: int, size: int) -> None:
    barrier = _mbarrier(now.thread.block, address)
    barrier.bytes += size
    barrier.pending -= 1
    barrier.check()


def _arrived(block: Block, address: int) -> None:
    if not block.alive:
        raise RuntimeError("the other block has ended")
    barrier = _mbarrier(block, address)
    barrier.pending -= now.thread.warps_stood_for()
    barrier.check()


def _barrier_arrive(address: int, go: Any) -> None:
    if go:
        _arrived(now.thread.block, address)


def _pair() -> list[Block]:
    cluster, first = now.thread.block.cluster, now.thread.block.rank & ~1
    return cluster.blocks[first : first + 2]


def _arrive_pair(address: int, go: Any) -> None:
    for block in _pair() if go else ():
        _arrived(block, address)


def _peer(rank: int) -> Block:
    """A block of the cluster, which must run."""
    cluster = now.thread.block.cluster
    block = cluster.blocks[int(rank)]
    if block is not now.thread.block and not (block.alive and cluster.barriers):
        what = "may not have begun: no cluster_sync came before" if block.alive else "has ended"
        raise RuntimeError(f"{now.thread} reaches block {rank} of its cluster, which {what}")
    return block


def _arrive_peer(address: int, rank: int, go: Any) -> None:
    if go:
        _arrived(_peer(rank), address)


def _peer_store(address: int, rank: int, *values: Any) -> None:
    tiles, size = tiles_of(_peer(rank)), 4 * len(values)
    if int(address) % size:
        raise ValueError(f"{size} bytes at address {address}")
    tiles.not_read(int(address), int(address) + size)
    tiles.write(int(address) + 4 * np.arange(len(values)), np.array(values, np.float32), 4)


def _barrier_wait(address: int, parity: Any) -> Request:
    barrier = _mbarrier(now.thread.block, address)
    return Request("mbarrier_wait", "self", ready=lambda: barrier.phase != parity)


def _turn(number: int, count: int) -> Callable[[], bool]:
    """Come to a named barrier of `count` threads; whether all of this turn have come."""
    turns, thread = here().turns, now.thread
    turns[number] = turns.get(number, 0) + thread.threads_stood_for()
    turn = thread.turns[number] = thread.turns.get(number, 0) + 1
    return lambda: bool(turns[number] >= turn * count * PARTS)


def _turn_wait(number: int, count: int) -> Request:
    return Request("named_barrier_sync", "self", ready=_turn(number, count))


def _turn_pass(number: int, count: int) -> None:
    _turn(number, count)


# --- counters in memory ----------------------------------------------------------------------------------------------


def _count_wait(pointer: Any, index: Any, least: int) -> Request:
    counters, at = counted(pointer, index)
    return Request("counter_wait_acquire", "self", ready=lambda: counters[at] >= least)


def _count_up(pointer: Any, index: Any) -> int:
    counters, at = counted(pointer, index)
    counters[at] += 1
    return int(counters[at]) - 1


# --- copies ----------------------------------------------------------------------------------------------------------


def _multicast(dimensions: int, offsets: int = 0) -> Callable[..., None]:
    def load(address: int, maps: TensorMaps, barrier: int, blocks: int, *at: int) -> None:
        if len(at) != dimensions + offsets:
            raise TypeError(f"{len(at)} coordinates of {dimensions}")
        box, size = maps.map.box(at), maps.map.size
        for rank in range(len(now.thread.block.cluster.blocks)):
            if blocks >> rank & 1:
                block = _peer(rank)
                block.grid.under_way.append(partial(_arrives, block, int(address), int(barrier), box, size))

    return load


def _tensor_load(dimensions: int, pair: bool = False, offsets: int = 0) -> Callable[..., None]:
    def load(address: int, maps: TensorMaps, barrier: int, *at: int) -> None:
        if len(at) != dimensions + offsets:
            raise TypeError(f"{len(at)} coordinates of {dimensions}")
        box, size = maps.map.box(at), maps.map.size
        for block in _pair() if pair else [now.thread.block]:
            block.grid.under_way.append(partial(_arrives, block, int(address), int(barrier), box, size))

    return load


def _arrives(block: Block, address: int, barrier: int, box: Any, size: int) -> None:
    if not block.alive:
        raise RuntimeError("a TMA box arrives at a block that has ended")
    tiles = tiles_of(block)
    tiles.not_read(address, address + box.size * size)
    tiles.write(swizzled(address + size * np.arange(box.size)), box.reshape(-1), size)
    _mbarrier(block, barrier).bytes -= box.size * size
    _mbarrier(block, barrier).check()


# --- products --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Group:
    """A product of one thread that is under way: what its tiles will hold; the words that it reads, as they were."""

    tiles: list[Any]
    values: list[Any]
    words: Any
    before: list[Any]
    reading: Reading


@lru_cache(maxsize=256)
def _offsets(count: int, terms: int, size: int, chunk: int, first: int) -> Any:
    """Where [count, terms] elements lie from the tile's first address on: rows of 128 bytes, in chunks along them."""
    row, byte = np.meshgrid(np.arange(count), np.arange(terms) * size + first * STEP * 2, indexing="ij")
    return swizzled(byte // ROW * chunk + row * ROW + byte % ROW)


@lru_cache(maxsize=256)
def _offsets_across(count: int, terms: int, size: int, chunk: int, first: int) -> Any:
    """The same of a matrix whose rows lie side by side: [terms, count] in memory."""
    byte, term = np.meshgrid(np.arange(count) * size, np.arange(terms) + first * STEP, indexing="ij")
    return swizzled(byte // ROW * chunk + term * ROW + byte % ROW)


def _matrix(tiles: Tiles, start: int, offsets: Any, size: int) -> tuple[Any, tuple[int, int]]:
    """Numbers, and the range of addresses they lie in."""
    at = start + offsets
    return tiles.read(at, size).astype(np.float64), (int(at.min()), int(at.max()) + size)


@dataclass(frozen=True)
class _Shape:
    """A `tile_product` by its arguments."""

    columns: int
    terms: int  # of 16 bits each
    dtype: str
    a: str = "registers"
    rows: int = 64
    b_rows: int = 64
    fresh: bool = True
    transposed: bool = False
    first: int = 0
    a_rows: int = 64
    tiles: int = 1
    a_transposed: bool = False

    @property
    def sizes(self) -> list[int]:
        return [STORAGE[d] for d in (self.dtype.split("/") * 2)[:2]]

    def __call__(self, *given: Any) -> Request:
        tiles, (left, right) = given[: self.tiles], given[self.tiles :]
        value = now.thread, tiles, left, right
        return Request("tile_product", "group", 128, value, 0, self._multiply, product=True)

    def _multiply(self, lanes: Lanes) -> list[Any]:
        threads = [request.value[0] for _, request in lanes]
        tiles, places = tiles_of(threads[0].block), [request.value[3] for _, request in lanes]
        if len(set(places)) > 1:
            raise ValueError("the threads of a warpgroup give different descriptors")
        start, leading = places[0]
        size = self.sizes[1]
        steps = -(-self.terms // STEP) * STEP * 2 // size
        how = _offsets_across if self.transposed else _offsets
        chunk = leading if self.transposed else self.b_rows * ROW
        right, held = _matrix(tiles, start, how(self.columns, steps, size, chunk, self.first), size)
        rows = sorted({t.number % 128 // 4 for t in threads})
        left, ranges = self._left(tiles, lanes, rows, steps)
        made = (left @ right.T).astype(np.float32)
        reading = Reading((held, *ranges), len(lanes))
        tiles.reading.append(reading)
        for _, request in lanes:
            self._start(request.value, made, rows, reading)
        return [None] * len(lanes)

    def _left(self, tiles: Tiles, lanes: Lanes, quads: list[int], steps: int) -> tuple[Any, list[tuple[int, int]]]:
        """The rows of A that quads of threads hold, two each, and the ranges of addresses that were read."""
        if self.a == "shared":
            size = self.sizes[0]
            start, _ = lanes[0][1].value[2]
            how = _offsets_across if self.a_transposed else _offsets
            offsets = how(64, steps, size, self.rows * ROW, self.first)
            at = np.array([q // 8 * 16 + q % 8 + 8 * r for q in quads for r in range(2)])
            found, there = np.full((2 * len(quads), steps), np.nan), at < self.a_rows
            if not there.any():
                return found, []
            found[there], held = _matrix(tiles, start, offsets[at[there]], size)
            return found, [held]
        found = np.full((2 * len(quads), steps), np.nan)
        place = {q: 2 * k for k, q in enumerate(quads)}
        for _, request in lanes:
            thread, _, words, _ = request.value
            rows, terms = left_terms("pairs", 1, len(words), thread.number % 4)
            found[place[thread.number % 128 // 4] + rows[:, None], terms] = [w.numbers for w in words]
        return found, []

    def _start(self, value: Any, made: Any, quads: list[int], reading: Reading) -> None:
        thread, tiles, left, _ = value
        if any(len(tile) * self.tiles != self.columns // 2 for tile in tiles):
            raise TypeError(f"tiles of {[*map(len, tiles)]} registers for {self.columns} columns")
        first = 2 * quads.index(thread.number % 128 // 4)
        whole = made[first + rows_of(self.columns, 1), score_columns(self.columns, 1, thread.number % 4)]
        parts = np.split(whole, self.tiles)
        values = [p if self.fresh else _before(thread, t) + p for t, p in zip(tiles, parts, strict=True)]
        words = left if self.a == "registers" else ()
        thread.products.append(Group([*tiles], values, words, list(words), reading))
        for tile in tiles:
            tile[:] = np.nan


def _before(thread: Thread, tile: Any) -> Any:
    """What a tile will hold after the products that are under way."""
    held = ((t, v) for g in reversed(thread.products) for t, v in zip(g.tiles, g.values, strict=True))
    return next((v for t, v in held if t is tile), tile)


def _tile_wait(groups: int, count: int, held: int = 0) -> Callable[..., Request]:
    def wait(tile: Any, words: Any = None) -> Request:
        if len(tile) != count or held and len(words) != held:
            raise TypeError(f"a wait for {count} registers and {held} words, given {len(tile)}")
        return Request("wgmma_wait", "group", 32, now.thread, groups, _waited)

    return wait


def _waited(lanes: Lanes) -> list[Any]:
    for _, request in lanes:
        finish(request.value, request.by)
    return [None] * len(lanes)


def finish(thread: Thread, groups: int) -> None:
    """Products but for the last `groups` have ended: their tiles hold their numbers."""
    done = thread.products[: len(thread.products) - groups]
    del thread.products[: len(done)]
    open_tiles = [tile for g in thread.products for tile in g.tiles]
    for group in done:
        if any(a is not b for a, b in zip(group.words, group.before, strict=True)):
            raise RuntimeError(f"{thread} writes words that a product still reads")
        for tile, values in zip(group.tiles, group.values, strict=True):
            if not any(tile is other for other in open_tiles):
                tile[:] = values
        group.reading.left -= 1
        if group.reading.left == 0:
            tiles_of(thread.block).reading.remove(group.reading)


# --- matrices between registers and shared memory --------------------------------------------------------------------


def _load_matrices(words: Any, k: int, address: int) -> Request:
    return Request("ldmatrix_x4", "group", 32, (words, int(k), int(address)), 0, _matrices_loaded)


def _matrices_loaded(lanes: Lanes) -> list[Any]:
    """Rows are asked for by lanes: 16 rows of 16 bytes, then the 16 bytes beside them. All lanes mean one part."""
    parts = set()
    for lane, request in lanes:
        at = request.value[2]
        row, unit = at >> 7, (at >> 4 & 7) ^ (at >> 7 & 7)
        parts.add((row - (lane & 15), unit - (lane >> 4), at % 16))
    if len(parts) > 1 or next(iter(parts))[2]:
        raise ValueError(f"the lanes of a warp ask for different parts of a tile: {sorted(parts)}")
    ((row, unit, _),) = parts
    tiles = here()
    for lane, request in lanes:
        words, k, _ = request.value
        for j in range(4):
            line = row + (lane >> 2) + 8 * (j & 1)
            at = swizzled((line << 7) + (unit + (j >> 1) << 4) + 4 * (lane & 3))
            words[k + j] = Word(tuple(tiles.read(np.array([at, at + 2]), 2)))
    return [None] * len(lanes)


def _store_matrices(address: int, *words: Word) -> Request:
    return Request("stmatrix_x4", "group", 32, (int(address), words), 0, _matrices_stored)


def _matrices_stored(lanes: Lanes) -> list[Any]:
    """Words of four 8 × 8 matrices to rows of 16 bytes, which begin where lanes 8·m to 8·m + 7 say."""
    rows, tiles = {lane: request.value[0] for lane, request in lanes}, here()
    if len(rows) < 32:
        raise RuntimeError("stmatrix_x4 takes whole warps")
    at = np.array([[rows[8 * m + lane // 4] + 4 * (lane % 4) for m in range(4)] for lane, _ in lanes])
    if (at % 4).any():
        raise ValueError("rows of stmatrix_x4 begin at multiples of 16 bytes")
    numbers = np.array([[w.numbers for w in request.value[1]] for _, request in lanes], np.float32)
    tiles.write(np.stack([at, at + 2], -1), numbers, 2)
    return [None] * len(lanes)


def _load_numbers(count: int, numbers: Any, k: int, address: Any) -> None:
    if int(address) % (4 * count):
        raise ValueError(f"{count} numbers at address {address}")
    numbers[int(k) : int(k) + count] = here().read(int(address) + 4 * np.arange(count), 4)


def _copy_vector(pointer: Any, index: int, address: int) -> None:
    """16 bytes from shared memory to element `index` and those after it."""
    size = pointer.size
    values = here().read(np.arange(int(address), int(address) + 16, size), size)
    if address % 16:
        raise ValueError(f"16 bytes at address {address}")
    pointer.write_numbers(index, values)


def _fetch(dtype: str, pointer: Any, index: int, address: int) -> None:
    """Eight elements that arrive when the thread has waited for its copies."""
    tiles, at = here(), np.arange(int(address), int(address) + 16, 2)
    if int(address) % 16:
        raise ValueError(f"16 bytes at address {address}")
    values = np.array(loaded(pointer, index, dtype, 8), np.float32)
    tiles.arriving(at, 2)
    now.thread.copies[-1].append(lambda: tiles.write(at, values, 2))


def _load_narrow(address: Any) -> Any:
    return np.float32(here().read(np.array([int(address)]), 2)[0])


def _bulk_store(pointer: Any, index: int, address: int, size: int) -> None:
    """Bytes of one row go at once: what is written to it later, before `tma_store_wait`, is not noticed."""
    each = pointer.size
    if address % 16 or int(index) * each % 16 or size % 16:
        raise ValueError(f"{size} bytes from address {address} to element {index}")
    pointer.write_numbers(index, here().read(np.arange(int(address), int(address) + int(size), each), each))


def _tensor_store(dimensions: int) -> Callable[..., None]:
    """A box goes the other way at once: what is written to it later, before `tma_store_wait`, is not noticed."""

    def store(address: int, maps: TensorMaps, *at: int) -> None:
        m = maps.map
        wide = ROW // m.size
        places = swizzled(int(address) + m.size * np.arange(m.rows * wide))
        m.put(at, here().read(places, m.size).reshape(m.rows, wide))

    return store


# --- plain functions -------------------------------------------------------------------------------------------------


def _quotient(a: int, b: int) -> int:
    if not 0 <= a < LIMIT or not 0 < b < LIMIT:
        raise ValueError(f"quotient({a}, {b})")
    return a // b


def _descriptor(address: int, leading: int) -> tuple[int, int]:
    if address % BASE:
        raise ValueError(f"a tile begins at {address}, no multiple of {BASE}")
    return int(address), int(leading)


def _has_bit(word: Any, k: int) -> bool:
    if not 0 <= k < 32:
        raise ValueError(f"bit {k} of a word")
    return bool(int(word) >> k & 1)


def _pack(dtype: str, a: Any, b: Any) -> Word:
    return Word(tuple(rounded(np.array([a, b], np.float32), dtype)))


def _same(x: Any) -> Any:
    return x


def _no_effect(*_: Any) -> None:
    return


WAITING: dict[str, Callable[..., Request]] = {
    "mbarrier_wait": _barrier_wait,
    "mbarrier_wait_cluster": _barrier_wait,
    "named_barrier_sync": _turn_wait,
    "counter_wait_acquire": _count_wait,
    "ldmatrix_x4": _load_matrices,
    "stmatrix_x4": _store_matrices,
}
WAITING_FACTORIES: dict[str, Callable[..., Any]] = {"tile_product": _Shape, "wgmma_wait": _tile_wait}
EMULATED: dict[str, Callable[..., Any]] = {
    **WAITING,
    **WAITING_FACTORIES,
    "tma_load": _tensor_load,
    "tma_multicast": _multicast,
    "mbarrier_arrive_peer": _arrive_peer,
    "fence_cluster": _no_effect,
    "prefetch_map": _no_effect,
    "peer_store_quad": _peer_store,
    "tma_store": _tensor_store,
    "setmaxnreg": lambda count, more: _no_effect,
    "shared_base": lambda array: here() and BASE,
    "descriptor": _descriptor,
    "copy_vector": _copy_vector,
    "bulk_store": _bulk_store,
    **{f"fetch_{d}x8": partial(_fetch, d) for d in ("bfloat16", "float16")},
    **{f"shared_load_{d}": _load_narrow for d in ("bfloat16", "float16")},
    "shared_load_pair": partial(_load_numbers, 2),
    "shared_load_quad": partial(_load_numbers, 4),
    "tma_store_wait": _no_effect,
    "stage_at": lambda first, size, k: first + size * k,
    "pack_bfloat16": partial(_pack, "bfloat16"),
    "pack_float16": partial(_pack, "float16"),
    "mbarrier_init": _barrier_init,
    "fence_mbarrier_init": _no_effect,
    "mbarrier_expect_tx": _barrier_expect,
    "mbarrier_arrive": _barrier_arrive,
    "mbarrier_arrive_pair": _arrive_pair,
    "named_barrier_arrive": _turn_pass,
    "opaque": _same,
    "warp_uniform": _same,
    "quotient": _quotient,
    "exp2_fast": lambda x: np.float32(np.exp2(np.float32(x))),
    "f32_i32": np.float32,
    "has_bit": _has_bit,
    "shared_load_b32": shared_load_b32,
    "shared_store_b32": shared_store_b32,
    "shared_load_f32": shared_load_f32,
    "shared_store_f32": shared_store_f32,
    "fence_proxy_async": _no_effect,
    "fence_proxy_async_global": _no_effect,
    "counter_add_release": _count_up,
    "counter_add_acq_rel": _count_up,
    "fma_f32": lambda a, b, c: np.float32(np.float64(a) * np.float64(b) + np.float64(c)),
}


def __getattr__(name: str) -> Any:
    if name not in EMULATED:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    return EMULATED[name]
