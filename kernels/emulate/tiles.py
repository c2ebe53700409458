"""Shared memory of run-time size by its addresses, where tiles of matrices lie, and words of packed numbers.

Numbers are kept as float32 at the byte address of their first byte, with the bytes they take: what is read with another
width, or was never written, or is still on its way, is an error. So a launch may run without rounding (`Grid.rounds`):
tests then compare with the definition to a few float32 units, whatever the formats.

>>> word = Word((1.5, -2.0))
>>> (word & np.uint32(0xFFFFFFFF)) ^ np.uint32(0x80008000)
Word(numbers=(-1.5, 2.0), rounded=False)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.kernels.emulate.math import narrowed, nearest, widened
from redalg.kernels.emulate.threads import Block, Mbarrier, now
from redalg.kernels.ir.program import STORAGE

BASE = 1024  # where shared memory begins
TF32 = 5  # "bytes" of a float32 that has been rounded to tf32
INTEGER = 6  # "bytes" of a whole number that blocks hand on: of a tile
ARRIVING = 255  # "bytes" of what is on its way


@dataclass(frozen=True)
class Word:
    """32 bits that hold one, two or four numbers, or none known; `rounded`: one, to tf32. Masks change signs or keep
    nothing."""

    numbers: tuple[Any, ...]
    rounded: bool = False

    def _masks(self, mask: Any) -> list[int]:
        bits = 32 // max(1, len(self.numbers))
        return [int(mask) >> bits * k & (1 << bits) - 1 for k in range(len(self.numbers))]

    def __and__(self, mask: Any) -> Word:
        ones = (1 << 32 // max(1, len(self.numbers))) - 1
        masks = self._masks(mask)
        if not set(masks) <= {0, ones}:
            raise ValueError(f"the mask {int(mask):#x} cuts numbers")
        return Word(tuple(x if m else x * 0 for x, m in zip(self.numbers, masks, strict=True)), self.rounded)

    def __xor__(self, mask: Any) -> Word:
        sign = 1 << 32 // max(1, len(self.numbers)) - 1
        masks = self._masks(mask)
        if not set(masks) <= {0, sign}:
            raise ValueError(f"the mask {int(mask):#x} changes more than signs")
        return Word(tuple(-x if m else x for x, m in zip(self.numbers, masks, strict=True)), self.rounded)


@dataclass(eq=False)
class Reading:
    """Ranges of addresses that a product reads until all `left` threads have waited for it."""

    ranges: tuple[tuple[int, int], ...]
    left: int


class Tiles:
    """The shared memory of a block, its mbarriers and named barriers, and what products read of it."""

    def __init__(self, size: int) -> None:
        self.numbers = np.full(BASE + size, np.nan, np.float32)
        self.bytes = np.zeros(BASE + size, np.uint8)  # of the number that begins here
        self.mbarriers: dict[int, Mbarrier] = {}
        self.turns: dict[int, Any] = {}  # named barrier -> threads that came, over all its turns
        self.reading: list[Reading] = []

    def _inside(self, at: Any, size: int) -> None:
        if at.size and (int(at.min()) < BASE or int(at.max()) + size > self.numbers.size):
            raise IndexError(f"addresses {at.min()} to {at.max()} of shared memory, which ends at {self.numbers.size}")

    def read(self, at: Any, size: int) -> Any:
        """The numbers of `size` bytes (or `TF32`) at these addresses."""
        at = np.asarray(at)
        found = self.bytes[at]
        wrong = found != size
        if size == 4:
            wrong &= found != TF32
        if wrong.any() or at.size and at.min() < BASE:
            self._unreadable(at, wrong, size)
        return self.numbers[at]

    def _unreadable(self, at: Any, wrong: Any, size: int) -> None:
        self._inside(at, min(size, 4))
        place = at[wrong].reshape(-1)[0]
        state = {0: "nothing was written", ARRIVING: "a copy is on its way"}
        what = state.get(int(self.bytes[place]), f"numbers of {self.bytes[place]} bytes lie")
        raise RuntimeError(f"numbers of {size} bytes are read at address {place}, where {what}")

    def write(self, at: Any, values: Any, size: int) -> None:
        at = np.asarray(at)
        self._inside(at, min(size, 4))
        for k in range(1, min(size, 4)):
            self.bytes[at + k] = 0
        self.bytes[at], self.numbers[at] = size, values

    def arriving(self, at: Any, size: int) -> None:
        """What lies here is overwritten by a copy that has started."""
        at = np.asarray(at)
        self._inside(at, size)
        for k in range(size):
            self.bytes[at + k] = ARRIVING

    def not_read(self, low: int, high: int) -> None:
        """Nothing between these addresses may be overwritten while a product reads it."""
        for reading in self.reading:
            if any(low < b and a < high for a, b in reading.ranges):
                raise RuntimeError(f"a product still reads what is overwritten at {low}")


def tiles_of(block: Block) -> Tiles:
    if block.tiles is None:
        block.tiles = Tiles(block.grid.shared)
    found: Tiles = block.tiles
    return found


def here() -> Tiles:
    return tiles_of(now.thread.block)


# --- rounding --------------------------------------------------------------------------------------------------------


def rounded(x: Any, dtype: str) -> Any:
    """Numbers as a format holds them, if the launch rounds."""
    if dtype == "float32" or not now.thread.block.grid.rounds:
        return x
    return nearest(x, dtype)


# --- words and numbers -----------------------------------------------------------------------------------------------


def shared_load_b32(address: Any) -> Any:
    tiles, at = here(), int(address)
    if at % 4 or not BASE <= at < tiles.bytes.size:
        raise IndexError(f"a word at address {at} of shared memory, which ends at {tiles.bytes.size}")
    size = int(tiles.bytes[at])
    if not size:  # between rows nothing is written, and kernels change words wherever they lie
        return Word(())
    if size == INTEGER:
        return np.int64(tiles.read(np.array([at]), size)[0])
    return Word(tuple(tiles.read(np.arange(at, at + 4, min(size, 4)), size)), size == TF32)


def shared_store_b32(address: Any, word: Any) -> None:
    if int(address) % 4:
        raise ValueError(f"a word at address {address}")
    if not isinstance(word, Word):
        if abs(int(word)) > 2**24:
            raise ValueError(f"{word} is kept as a float32 here")
        here().write(np.array([int(address)]), np.array([word], np.float32), INTEGER)
        return
    if not word.numbers:
        return
    size = 4 // len(word.numbers)
    at = np.arange(int(address), int(address) + 4, size)
    here().write(at, np.array(word.numbers, np.float32), TF32 if word.rounded else size)


def shared_load_f32(address: Any) -> Any:
    tiles, at = here(), int(address)
    if BASE <= at < tiles.bytes.size and not tiles.bytes[at]:  # as above
        return np.float32(np.nan)
    return np.float32(tiles.read(np.array([at]), 4)[0])


def shared_store_f32(address: Any, value: Any) -> None:
    here().write(np.array([int(address)]), np.float32(value), 4)


@dataclass(frozen=True)
class TensorMap:
    """A tensor as the tensor memory accelerator is told of it.

    `array`: a view of it with the innermost axis last, of cells of `dtype`, or of numbers; `rows`: of a box, which has
    128 bytes of the innermost axis.
    """

    array: Any
    dtype: str
    rows: int

    @property
    def size(self) -> int:
        return STORAGE[self.dtype]

    def _part(self, at: tuple[int, ...]) -> Any:
        """What a box holds of the tensor: fewer rows and columns at its end."""
        whole = self.array
        if len(at) != whole.ndim:
            raise TypeError(f"{len(at)} coordinates of a tensor of {whole.ndim} dimensions")
        if any(not 0 <= place < length for place, length in zip(at[2:], whole.shape[-3::-1], strict=True)):
            raise IndexError(f"a box at {at} of a tensor of {whole.shape[::-1]}")
        if at[0] < 0 or at[1] < 0:
            raise IndexError(f"a box at {at}")
        for place in reversed(at[2:]):
            whole = whole[place]
        return whole[at[1] : at[1] + self.rows, at[0] : at[0] + 128 // self.size]

    def box(self, at: tuple[int, ...]) -> Any:
        """rows × (128 / size) numbers; zeros beyond the tensor."""
        part = self._part(at)
        found = np.zeros((self.rows, 128 // self.size), np.float32)
        found[: part.shape[0], : part.shape[1]] = self._cells(part)
        return found

    def _cells(self, part: Any) -> Any:
        return part if part.dtype.kind == "f" or not part.size else widened(part, self.dtype)

    def put(self, at: tuple[int, ...], box: Any) -> None:
        """Write a box of numbers, but for what lies beyond the tensor."""
        part = self._part(at)
        held = box[: part.shape[0], : part.shape[1]]
        part[...] = held if part.dtype.kind == "f" else narrowed(held, self.dtype, np.float32)


@dataclass(frozen=True)
class PixelMap:
    """A map in im2col mode: `array` is the whole tensor, images first and channels last; for each dimension between
    them, the innermost first, the corners of what is walked and the step; `rows`: pixels of a box, which has 128 bytes
    of channels (PTX ISA 9.0, "im2col mode")."""

    array: Any
    dtype: str
    rows: int
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def size(self) -> int:
        return STORAGE[self.dtype]

    @property
    def ends(self) -> list[int]:
        return [n - 1 + high for n, high in zip(self.array.shape[-2:0:-1], self.upper, strict=True)]

    def box(self, at: tuple[int, ...]) -> Any:
        """rows × (128 / size) numbers: pixel after pixel from a coordinate on, each moved by the offsets; zeros beyond
        the tensor."""
        whole, count = self.array, len(self.lower)
        if len(at) != whole.ndim + count:
            raise TypeError(f"{len(at)} coordinates and offsets of a tensor of {whole.ndim} dimensions")
        place, image, offsets = [int(x) for x in at[1 : 1 + count]], int(at[1 + count]), at[2 + count :]
        corners = zip(place, self.lower, self.ends, self.steps, strict=True)
        if min(at[0], image) < 0 or any(not low <= x <= end or (x - low) % step for x, low, end, step in corners):
            raise IndexError(f"a box of pixels at {at}")
        if any(not 0 <= o < 1 << 16 // count for o in offsets):
            raise IndexError(f"offsets {offsets} of {1 << 16 // count}")
        found = np.zeros((self.rows, 128 // self.size), np.float32)
        for row in found:
            part = self._channels(image, [x + int(o) for x, o in zip(place, offsets, strict=True)])[int(at[0]) :]
            part = part[: row.size]
            row[: part.size] = part if part.dtype.kind == "f" or not part.size else widened(part, self.dtype)
            image += self._step(place)
        return found

    def _channels(self, image: int, place: list[int]) -> Any:
        """Of a pixel; nothing of one that is not there."""
        images, *lengths = self.array.shape[:-1]
        there = image < images and all(0 <= x < n for x, n in zip(place, reversed(lengths), strict=True))
        return self.array[(image, *reversed(place))] if there else self.array[:0].reshape(-1)

    def _step(self, place: list[int]) -> int:
        """On to the next pixel of an image; whether that is the first one of the next image."""
        for k, (low, end, step) in enumerate(zip(self.lower, self.ends, self.steps, strict=True)):
            place[k] += step
            if place[k] <= end:
                return 0
            place[k] = low
        return 1


@dataclass(frozen=True)
class TensorMaps:
    """The address of a tensor map; the next one is 128 bytes behind it."""

    maps: tuple[TensorMap | PixelMap, ...]
    first: int = 0

    def __add__(self, size: int) -> TensorMaps:
        if size % 128:
            raise ValueError(f"tensor maps are 128 bytes apart, not {size}")
        return TensorMaps(self.maps, self.first + size // 128)

    @property
    def map(self) -> Any:
        return self.maps[self.first]


def swizzled(at: Any) -> Any:
    """Where the tensor memory accelerator puts what would lie at an address (128-byte swizzle)."""
    return at ^ ((at >> 7 & 7) << 4)
