"""The functions of `redalg.kernels.cuda.intrinsics.mma` and `mma_types`: copies of tiles, products of a warp.

A product is that of the matrices its addresses and words stand for, in the order of terms and columns in which
instructions take them; `tests/kernels/emulated/test_tensor_lanes.py` holds that the printed instructions take them so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from math import gcd
from typing import Any

import numpy as np

from redalg.kernels.emulate.fragments import left_terms, mixed, rows_of, score_columns, tf32
from redalg.kernels.emulate.math import NARROW, widened
from redalg.kernels.emulate.memory import Numbers, copies_left, cp_async_commit
from redalg.kernels.emulate.threads import Thread, now
from redalg.kernels.emulate.tiles import BASE, TF32, Tiles, Word, here
from redalg.kernels.emulate.warp import Lanes, Request
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import TF32 as SINGLE
from redalg.kernels.ir.tensor_cores import UNIT

# --- addresses -------------------------------------------------------------------------------------------------------

LANES: dict[str, Callable[[int, int], int]] = {  # (lane, pitch) -> offset of what the lane's address points at
    "left_lane": lambda lane, pitch: (lane & 15) * pitch + (lane >> 4) * 16,
    "right_lane": lambda lane, pitch: ((lane & 7) + (lane >> 1 & 8)) * pitch + (lane >> 3 & 1) * 16,
    "row_lane": lambda lane, pitch: lane * pitch,
    "quad_lane": lambda lane, pitch: (lane >> 2) * pitch + (lane & 3) * 8,
    "values_lane": lambda lane, pitch: 2 * (lane & 3) * pitch + (lane >> 2) * 4,
}


def _lane(name: str) -> Callable[[int, int, int], int]:
    return lambda address, lane, pitch: int(address) + LANES[name](int(lane), int(pitch))


def _start(name: str, pitch: int, lanes: Lanes, places: list[Any]) -> int:
    """Where the tile begins that the lanes of a warp point at, each at its own part."""
    found = {int(at) - LANES[name](lane, pitch) for (lane, _), at in zip(lanes, places, strict=True)}
    if len(found) > 1:
        raise ValueError(f"the lanes of a warp point at different tiles: {sorted(found)}")
    return found.pop()


# --- copies ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Copy:
    """A `tile_copy` by its arguments: 16 bytes at a time, shared out to threads; they arrive when waited for."""

    rows: int
    units: int
    pitch: int
    threads: int
    wide: int = 0
    ragged: bool = False
    exact: bool = False

    def __call__(self, place: int, pointer: Any, offset: int, step: int, count: int, t: int, *inside: int) -> None:
        if int(t) != now.thread.number or len(inside) != self.ragged or int(place) % UNIT:
            raise ValueError(f"a copy to {place} by thread {t} with {len(inside)} lengths")
        row, unit = self._parts()
        size = pointer.size
        each = np.arange(UNIT // size)
        limit = int(inside[0]) if inside else self.units
        last = unit[:, None] * UNIT + size * (each + 1) if self.exact else unit[:, None] + 1 + 0 * each
        there = (row < int(count))[:, None] & (last <= limit)
        source = (int(offset) + row * int(step) + unit * (UNIT // size))[:, None] + each
        values = np.zeros(source.shape, np.float32)
        values[there] = _numbers(pointer, source[there])
        at = (int(place) + row * self.pitch + unit * UNIT)[:, None] + size * each
        tiles = here()
        tiles.arriving(at, size)
        now.thread.copies[-1].append(partial(tiles.write, at, values, size))

    def _parts(self) -> tuple[Any, Any]:
        """Rows and units that this thread copies, and those of threads that do not come."""
        thread = now.thread
        sample = thread.block.grid.sample
        if not thread.absent or sample is None:
            return _shared_out(self, (thread.number,))
        if thread.number > min(sample):
            return _shared_out(self, (thread.number,))
        return _shared_out(self, (thread.number, *(n for n in range(self.threads) if n not in sample)))


@lru_cache(maxsize=1024)
def _shared_out(copy: _Copy, threads: tuple[int, ...]) -> tuple[Any, Any]:
    wide = max(copy.wide, copy.units)
    each = gcd(wide, 8)  # threads of one row
    high = copy.threads // each
    row, unit = np.divmod(np.arange(copy.rows * wide), wide)
    mine = np.isin(row % high * each + unit % each, threads)
    return row[mine], unit[mine]


def _numbers(pointer: Any, at: Any) -> Any:
    """The numbers of elements of an array, without counting them as moved."""
    at = at + pointer.offset
    if at.size and (at.min() < 0 or at.max() >= pointer.cells.size):
        raise IndexError(f"a copy of elements {at.min()} to {at.max()} of {pointer.cells.size}")
    found = pointer.cells[at]
    return widened(found, pointer.dtype) if not isinstance(pointer, Numbers) and pointer.dtype in NARROW else found


# --- the left operand from memory ------------------------------------------------------------------------------------


def _left_load(terms: int, there: int, tall: int = 1, first: int = 0) -> Callable[..., None]:
    return partial(_fragments, "pairs", terms, there, tall, first, False)


def _converted_load(
    terms: int, there: int, dtype: str, kind: str, tall: int = 1, first: int = 0
) -> Callable[..., None]:
    order = "single" if kind == SINGLE else "fours"
    return partial(_fragments, order, terms, there, tall, first, kind == SINGLE)


def _fragments(order: str, terms: int, there: int, tall: int, first: int, single: bool, *given: Any) -> None:
    """Words of 16·tall rows; `offset` is that of the thread's first element, `count` of rows from its first one on.

    What an instruction takes beyond `there` is zero, but for the rest of a step that begins before it.
    """
    words, pointer, offset, step, count = given
    deep = 16 if order == "fours" else 8  # terms that are there, or not, together
    begin = 2 * tall * (first // 8) if not single else 4 * tall * (first // 8)
    rows, places = left_terms(order, tall, (4 if single else 2) * tall * (terms // 8), now.thread.lane & 3)
    mine = places - places[0, 0]
    for k, (row, term, along) in enumerate(zip(rows, places, mine, strict=True)):
        numbers: Any = np.zeros(len(along), np.float32)
        if 8 * row < count and term[0] // deep * deep < there:
            numbers = _numbers(pointer, int(offset) + 8 * int(row) * int(step) + along).astype(np.float32)
        numbers = tf32(numbers) if single and now.thread.block.grid.rounds else numbers
        words[begin + k] = Word(tuple(numbers), single)


# --- products --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Product:
    """A `tile_product` or `converted_product`; `right`, `left`: types in shared memory, "" for 16 bits as they are."""

    columns: int
    terms: int
    kind: str
    right: str
    pitch: int
    left: str = ""
    a: str = "registers"
    a_pitch: int = 0
    fresh: bool = True
    transposed: bool = False
    tall: int = 1
    a_transposed: bool = False

    def __call__(self, tile: Any, left: Any, place: int) -> Request:
        if len(tile) != self.columns * self.tall // 2:
            raise TypeError(f"a tile of {len(tile)} registers for {self.columns} columns")
        return Request("tile_product", "group", 32, (now.thread, tile, left, place), 0, self._multiply, product=True)

    @property
    def single(self) -> bool:
        return self.kind == SINGLE

    @property
    def narrow(self) -> bool:
        return self.right in NARROW

    def _multiply(self, lanes: Lanes) -> list[Any]:
        tiles, rounds = here(), now.thread.block.grid.rounds
        quads = sorted({lane >> 2 for lane, _ in lanes})
        left, right = self._left(tiles, lanes, quads), self._right(tiles, lanes)
        if self.single and rounds:
            left, right = tf32(left), tf32(right)
        made = (left.astype(np.float64) @ right.astype(np.float64).T).astype(np.float32)
        for lane, request in lanes:
            columns = score_columns(self.columns, self.tall, lane & 3)
            if self.transposed and self.narrow:
                columns = mixed(columns)
            tile, first = request.value[1], 2 * self.tall * quads.index(lane >> 2)
            part = made[first + rows_of(self.columns, self.tall), columns]
            tile[:] = part if self.fresh else tile + part
        return [None] * len(lanes)

    def _right(self, tiles: Tiles, lanes: Lanes) -> Any:
        """B as [columns, terms]."""
        size = STORAGE[self.right] if self.right else 2
        name = "values_lane" if self.single else "left_lane"
        if not self.transposed:
            name = "row_lane" if self.narrow else "right_lane"
        start = _start(name, self.pitch, lanes, [request.value[3] for _, request in lanes])
        column, term = np.meshgrid(np.arange(self.columns), np.arange(self.terms), indexing="ij")
        if self.transposed:
            return tiles.read(start + term * self.pitch + column * size, size)
        return tiles.read(start + column * self.pitch + term * size, size)

    def _left(self, tiles: Tiles, lanes: Lanes, quads: list[int]) -> Any:
        """The rows of A that quads of threads hold, 2·tall each."""
        if self.a == "shared":
            return self._left_shared(tiles, lanes, quads)
        order = "pairs"
        if self.single:
            order = "scores" if self.transposed else "single"
        elif self.narrow and not self.transposed:
            order = "fours"
        found = np.full((2 * self.tall * len(quads), self.terms), np.nan, np.float32)
        for lane, request in lanes:
            words = request.value[2]
            rows, terms = left_terms(order, self.tall, len(words), lane & 3)
            found[2 * self.tall * quads.index(lane >> 2) + rows[:, None], terms] = [w.numbers for w in words]
        return found

    def _left_shared(self, tiles: Tiles, lanes: Lanes, quads: list[int]) -> Any:
        rows = np.array([quad + 8 * r for quad in quads for r in range(2 * self.tall)])
        if self.a_transposed:
            start = _start("right_lane", self.a_pitch, lanes, [request.value[2] for _, request in lanes])
            return tiles.read(start + 2 * rows[:, None] + self.a_pitch * np.arange(self.terms), 2)
        size = 2 if not self.left and not self.single else 4 if self.single else STORAGE[self.left]
        name = "quad_lane" if self.narrow and not self.left and not self.transposed else "left_lane"
        start = _start(name, self.a_pitch, lanes, [request.value[2] for _, request in lanes])
        at = start + rows[:, None] * self.a_pitch + size * np.arange(self.terms)
        return tiles.read(at, TF32 if self.single and not self.left else size)


def _tile_product(columns: int, terms: int, dtype: str, pitch: int, **more: Any) -> _Product:
    return _Product(columns, terms, dtype, "", pitch, **more)


def _lanes_sorted(columns: int, tall: int = 1) -> Callable[[Any], Request]:
    """After products of a transposed B of 8 bits: every number where its column is."""

    def sort(lanes: Lanes) -> list[Any]:
        quads: dict[int, Any] = {lane >> 2: np.full((2 * tall, columns), np.nan, np.float32) for lane, _ in lanes}
        rows = rows_of(columns, tall)
        for lane, request in lanes:
            quads[lane >> 2][rows, mixed(score_columns(columns, tall, lane & 3))] = request.value
        for lane, request in lanes:
            request.value[:] = quads[lane >> 2][rows, score_columns(columns, tall, lane & 3)]
        return [None] * len(lanes)

    return lambda sums: Request("lanes_sorted", "group", 32, sums, 0, sort)


# --- plain functions -------------------------------------------------------------------------------------------------


def _tf32_word(x: Any) -> Word:
    return Word((np.float32(tf32(x)) if now.thread.block.grid.rounds else x,), True)


def _this_thread() -> int:
    thread: Thread = now.thread
    return thread.number


WAITING_FACTORIES = frozenset({"tile_product", "converted_product", "lanes_sorted"})
PLAIN: dict[str, Callable[..., Any]] = {  # those of `mma`
    "tile_product": _tile_product,
    **{name: _lane(name) for name in ("left_lane", "right_lane")},
    "shared_start": lambda array: here() and BASE,
    "this_thread": _this_thread,
    "cp_async_commit": cp_async_commit,
    "cp_async_wait": lambda groups: partial(copies_left, groups),
    "tile_copy": _Copy,
    "left_load": _left_load,
}
CONVERTED: dict[str, Callable[..., Any]] = {  # those of `mma_types`
    "converted_product": _Product,
    "lanes_sorted": _lanes_sorted,
    **{name: _lane(name) for name in ("row_lane", "quad_lane", "values_lane")},
    "converted_load": _converted_load,
    "tf32_word": _tf32_word,
}
EMULATED = {**PLAIN, **CONVERTED}


def __getattr__(name: str) -> Any:
    if name not in EMULATED:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    return EMULATED[name]
