"""The loads, stores and atomics of `redalg.kernels.cuda.intrinsics` on NumPy arrays: the same names.

A pointer is a `Pointer`: an array of cells with an offset, which checks every access and counts what is moved, or
`Numbers`, whose narrow floats need not be rounded. The ways and orders of a name (``stream``, ``relaxed``, …) change
nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from redalg.kernels.emulate.math import NARROW, narrowed, nearest, widened
from redalg.kernels.emulate.threads import now
from redalg.kernels.ir.program import CELLS, STORAGE
from redalg.kernels.ir.schedule import COPIED, MOST_DISTANCE

WIDTHS = (1, 2, 4, 8, 16)
WAYS = ("", "stream_", "shared_", "early_")
ORDERS = ("load_relaxed", "load_acquire", "store_relaxed", "store_release")
CELL = {d: np.dtype(cell) for d, cell in CELLS.items()}


class Pointer:
    """The address of an element of an array of cells (narrow floats as unsigned integers).

    >>> p = Pointer(np.arange(6, dtype=np.float32), offset=2)
    >>> p.read(1, np.dtype(np.float32), 1)
    array([3.], dtype=float32)
    >>> p.loaded, p.stored
    (4, 0)
    """

    def __init__(self, array: Any, offset: int = 0, dtype: str = "") -> None:
        """`dtype`: what the cells stand for, where more than the cells' own type has to be known."""
        flat = array.reshape(-1)
        if flat.size and not np.shares_memory(flat, array):
            raise ValueError("the array of a pointer must be contiguous")
        unsigned = flat.dtype.kind in "Vbf" and flat.dtype not in (np.float32, np.float64)
        self.cells = flat.view(f"u{flat.dtype.itemsize}") if unsigned else flat
        self.offset, self.loaded, self.stored, self.dtype = offset, 0, 0, dtype

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.cells.itemsize

    def _place(self, index: Any, cell: np.dtype[Any], count: int, aligned: bool = True) -> slice:
        first = self.offset + int(index)
        if self.cells.dtype != cell:
            raise TypeError(f"cells of {self.cells.dtype} are accessed as {cell}")
        if first < 0 or first + count > self.cells.size:
            raise IndexError(f"elements {first} to {first + count - 1} of {self.cells.size} are accessed")
        size = min(16, count * cell.itemsize)
        if aligned and first * cell.itemsize % size:
            raise ValueError(f"{count} elements at {first} are not at a multiple of {size} bytes")
        return slice(first, first + count)

    def read(self, index: Any, cell: np.dtype[Any], count: int, aligned: bool = True) -> Any:
        place = self._place(index, cell, count, aligned)
        self.loaded += count * cell.itemsize
        return self.cells[place].copy()

    def write(self, index: Any, cell: np.dtype[Any], values: Any) -> None:
        place = self._place(index, cell, len(values))
        self.stored += len(values) * cell.itemsize
        self.cells[place] = values

    def write_numbers(self, index: Any, values: Any) -> None:
        """Numbers that the format of the cells holds exactly, or, without rounding, any."""
        values = values if self.dtype not in NARROW else narrowed(values, self.dtype, np.float32)
        self.write(index, self.cells.dtype, values)


class Numbers(Pointer):
    """The address of an element of an array of numbers that stand for elements of `dtype`, rounded or not.

    Whole numbers and truth values are those of the array; a bound is held and alignment is that of `dtype`. With `once`
    an element that holds a number already, not NaN, is not written again.

    >>> p = Numbers(np.full(4, np.nan, np.float32), "bfloat16", once=True)
    >>> _store(p, 2, (1.0, 2.0), "bfloat16", 2)
    >>> loaded(p, 2, "bfloat16", 1)
    np.float32(1.0)
    """

    def __init__(self, array: Any, dtype: str, offset: int = 0, once: bool = False) -> None:
        super().__init__(array, offset)
        self.cells, self.dtype, self.once = array.reshape(-1), dtype, once

    @property
    def size(self) -> int:
        return STORAGE[self.dtype]

    def at(self, index: Any, dtype: str, count: int) -> int:
        first = self.offset + int(index)
        if dtype != self.dtype:
            raise TypeError(f"elements of {self.dtype} are accessed as {dtype}")
        if first < 0 or first + count > self.cells.size:
            raise IndexError(f"elements {first} to {first + count - 1} of {self.cells.size} are accessed")
        if count > 1 and first * self.size % min(16, count * self.size):
            raise ValueError(f"{count} elements at {first} are not at a multiple of {min(16, count * self.size)} bytes")
        return first

    def load(self, index: Any, dtype: str, width: int) -> Any:
        at = self.at(index, dtype, width)
        found = self.cells[at : at + width]
        kind = np.float32 if found.dtype.kind == "f" else bool if found.dtype.kind == "b" else np.int64
        values = tuple(kind(x) for x in found)
        return values if width > 1 else values[0]

    def store(self, index: Any, values: Any, dtype: str) -> None:
        at = self.at(index, dtype, len(values))
        place = self.cells[at : at + len(values)]
        if self.once and not np.isnan(np.asarray(place, np.float64)).all():
            raise RuntimeError(f"element {at} is written twice")
        place[:] = self._kept(np.asarray(values))

    def _kept(self, values: Any) -> Any:
        if self.dtype not in NARROW or not hasattr(now, "thread") or not now.thread.block.grid.rounds:
            return values
        return nearest(values, self.dtype)

    def write_numbers(self, index: Any, values: Any) -> None:
        self.store(index, values, self.dtype)


def counted(pointer: Any, index: Any) -> tuple[Any, int]:
    """The cells that hold a counter, and its place: what is read and written there is no traffic."""
    at = pointer.offset + int(index)
    if not 0 <= at < pointer.cells.size:
        raise IndexError(f"counter {at} of {pointer.cells.size}")
    return pointer.cells, at


def _read(array: Any, index: Any, cell: np.dtype[Any], count: int) -> list[Any]:
    if isinstance(array, Pointer):
        return list(array.read(index, cell, count))
    return [array[int(index) + k] for k in range(count)]


def _write(array: Any, index: Any, cell: np.dtype[Any], values: Any) -> None:
    if isinstance(array, Pointer):
        array.write(index, cell, values)
    else:
        for k, value in enumerate(values):
            array[int(index) + k] = value


def _value(dtype: str, cell: Any) -> Any:
    if dtype in NARROW:
        return widened(cell, dtype)
    if dtype == "bool":
        return cell != 0
    return cell if "float" in dtype else np.int64(cell.astype(np.int64))


def _cell(dtype: str, value: Any) -> Any:
    if dtype in NARROW:
        return narrowed(value, dtype, np.float64 if isinstance(value, np.float64) else np.float32)
    if dtype == "bool":
        return np.uint8(value != 0)
    if "float" in dtype:
        return CELL[dtype].type(value)
    if isinstance(value, float | np.floating):
        raise TypeError(f"{value!r} is stored as {dtype}")
    wide = value if isinstance(value, np.integer) else np.int64(value)
    return wide.astype(CELL[dtype])


def loaded(pointer: Any, index: Any, dtype: str, width: int, value: Callable[[str, Any], Any] = _value) -> Any:
    if isinstance(pointer, Numbers):
        return pointer.load(index, dtype, width)
    cells = _read(pointer, index, CELL[dtype], width)
    if dtype in NARROW and width > 1:
        return tuple(widened(np.array(cells, CELL[dtype]), dtype))
    found = [value(dtype, cell) for cell in cells]
    return tuple(found) if width > 1 else found[0]


def _store(pointer: Any, index: Any, given: Any, dtype: str, width: int) -> None:
    values = given if width > 1 else (given,)
    if len(values) != width:
        raise TypeError(f"{len(values)} values are stored as {width}")
    if isinstance(pointer, Numbers):
        return pointer.store(index, values, dtype)
    if dtype in NARROW and all(type(v) is np.float32 for v in values):
        _write(pointer, index, CELL[dtype], narrowed(np.array(values), dtype, np.float32))
    else:
        _write(pointer, index, CELL[dtype], [_cell(dtype, v) for v in values])


def _shifted(pointer: Pointer, index: Any, dtype: str, width: int) -> Any:
    """A vector that begins anywhere."""
    cells = pointer.read(index, CELL[dtype], width, aligned=False)
    if dtype in NARROW:
        return tuple(widened(cells, dtype))
    return tuple(_value(dtype, cell) for cell in cells)


def _unaligned(pointer: Pointer, index: Any, width: int) -> Any:
    """Elements before the next multiple of a vector; the array is taken to start at one."""
    return np.int64(-(pointer.offset + int(index)) % width)


def _load32(pointer: Any, index: Any, dtype: str) -> Any:
    return np.int64(loaded(pointer, index, dtype, 1)).astype(np.int32)


def _word(dtype: str, cell: Any) -> Any:
    return cell if dtype == "uint64" else _value(dtype, cell)


def atomic_inc_acq_rel(pointer: Any, index: Any) -> Any:
    before = _read(pointer, index, CELL["uint32"], 1)[0]
    _write(pointer, index, CELL["uint32"], [before + np.uint32(1)])
    return np.int64(before)


def _copy(cells: Any, place: Any, pointer: Any, index: Any, dtype: str, width: int) -> None:
    """What is copied arrives when the thread has waited for it."""
    found = _read(pointer, index, CELL[dtype], width)

    def arrive() -> None:
        for k, value in enumerate(found):
            cells[int(place) + k] = value

    now.thread.copies[-1].append(arrive)


def cp_async_commit() -> None:
    now.thread.copies.append([])


def copies_left(count: int) -> None:
    """Everything but the last `count` groups arrives, and but what is in no group yet where some may be left."""
    groups = now.thread.copies
    stay = groups[-1 - count :] if count else [[]]
    for group in groups if not count else groups[: -1 - count]:
        for arrive in group:
            arrive()
    now.thread.copies = stay


def _makers() -> Iterator[tuple[str, Callable[..., Any]]]:
    for dtype, size in STORAGE.items():
        for width in (w for w in WIDTHS if w * size <= 32):
            for way in WAYS:
                end = f"{way}{dtype}x{width}" if width > 1 else f"{way}{dtype}"
                yield f"load_{end}", partial(loaded, dtype=dtype, width=width)
                yield f"store_{end}", partial(_store, dtype=dtype, width=width)
            if width * size in COPIED:
                yield (
                    f"copy_{dtype}x{width}" if width > 1 else f"copy_{dtype}",
                    partial(_copy, dtype=dtype, width=width),
                )
        if "int" in dtype and size <= 4:
            yield f"load32_{dtype}", partial(_load32, dtype=dtype)
        for order in ORDERS:
            if order.startswith("load"):
                yield f"{order}_{dtype}", partial(loaded, dtype=dtype, width=1, value=_word)
            else:
                yield f"{order}_{dtype}", partial(_store, dtype=dtype, width=1)
    yield "atomic_inc_acq_rel", atomic_inc_acq_rel
    yield "cp_async_commit", cp_async_commit
    yield "cp_async_wait_all", partial(copies_left, 0)
    yield from ((f"cp_async_wait_{n}", partial(copies_left, n)) for n in range(1, MOST_DISTANCE + 1))


def _anywhere() -> Iterator[tuple[str, Callable[..., Any]]]:
    for dtype, width in ((d, w) for d, size in STORAGE.items() for w in WIDTHS if 1 < w and w * size <= 16):
        if width * STORAGE[dtype] >= 4:
            for way in ("", "early_"):
                yield f"load_{way}shifted_{dtype}x{width}", partial(_shifted, dtype=dtype, width=width)
        yield f"unaligned_{dtype}x{width}", partial(_unaligned, width=width)


EMULATED = {**dict(_makers()), **dict(_anywhere())}
