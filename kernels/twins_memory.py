"""The loads, stores and atomics of `redalg.kernels.intrinsics` on NumPy arrays: the same names.

A pointer is a `Pointer`: an array of cells with an offset, which checks every access and counts what is moved. The ways
and orders of a name (``stream``, ``relaxed``, …) change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from redalg.kernels.ir import STORAGE
from redalg.kernels.schedule import COPIED, MOST_LEAD
from redalg.kernels.twins_math import NARROW, narrowed, widened
from redalg.kernels.twins_threads import now

WIDTHS = (1, 2, 4, 8, 16)
WAYS = ("", "stream_", "shared_")
ORDERS = ("load_relaxed", "load_acquire", "store_relaxed", "store_release")
CELL = {d: np.dtype(NARROW.get(d, "uint8" if d == "bool" else d)) for d in STORAGE}


class Pointer:
    """The address of an element of an array of cells (narrow floats as unsigned integers).

    >>> p = Pointer(np.arange(6, dtype=np.float32), offset=2)
    >>> p.read(1, np.dtype(np.float32), 1)
    array([3.], dtype=float32)
    >>> p.loaded, p.stored
    (4, 0)
    """

    def __init__(self, array: Any, offset: int = 0) -> None:
        flat = array.reshape(-1)
        if flat.size and not np.shares_memory(flat, array):
            raise ValueError("the array of a pointer must be contiguous")
        unsigned = flat.dtype.kind in "Vbf" and flat.dtype not in (np.float32, np.float64)
        self.cells = flat.view(f"u{flat.dtype.itemsize}") if unsigned else flat
        self.offset, self.loaded, self.stored = offset, 0, 0

    def _place(self, index: Any, cell: np.dtype[Any], count: int) -> slice:
        first = self.offset + int(index)
        if self.cells.dtype != cell:
            raise TypeError(f"cells of {self.cells.dtype} are accessed as {cell}")
        if first < 0 or first + count > self.cells.size:
            raise IndexError(f"elements {first} to {first + count - 1} of {self.cells.size} are accessed")
        size = min(16, count * cell.itemsize)
        if first * cell.itemsize % size:
            raise ValueError(f"{count} elements at {first} are not at a multiple of {size} bytes")
        return slice(first, first + count)

    def read(self, index: Any, cell: np.dtype[Any], count: int) -> Any:
        place = self._place(index, cell, count)
        self.loaded += count * cell.itemsize
        return self.cells[place].copy()

    def write(self, index: Any, cell: np.dtype[Any], values: Any) -> None:
        place = self._place(index, cell, len(values))
        self.stored += len(values) * cell.itemsize
        self.cells[place] = values


def _read(array: Any, index: Any, cell: np.dtype[Any], count: int) -> list[Any]:
    if isinstance(array, Pointer):
        return list(array.read(index, cell, count))
    return [array[int(index) + k] for k in range(count)]


def _write(array: Any, index: Any, cell: np.dtype[Any], values: list[Any]) -> None:
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


def _load(pointer: Any, index: Any, dtype: str, width: int, value: Callable[[str, Any], Any] = _value) -> Any:
    found = [value(dtype, cell) for cell in _read(pointer, index, CELL[dtype], width)]
    return tuple(found) if width > 1 else found[0]


def _store(pointer: Any, index: Any, given: Any, dtype: str, width: int) -> None:
    values = given if width > 1 else (given,)
    if len(values) != width:
        raise TypeError(f"{len(values)} values are stored as {width}")
    _write(pointer, index, CELL[dtype], [_cell(dtype, v) for v in values])


def _load32(pointer: Any, index: Any, dtype: str) -> Any:
    return np.int64(_load(pointer, index, dtype, 1)).astype(np.int32)


def _word(dtype: str, cell: Any) -> Any:
    return cell if dtype == "uint64" else _value(dtype, cell)


def atomic_inc_acq_rel(pointer: Any, index: Any) -> Any:
    before = _read(pointer, index, CELL["uint32"], 1)[0]
    _write(pointer, index, CELL["uint32"], [before + np.uint32(1)])
    return np.int64(before)


def _copy(room: Any, place: Any, pointer: Any, index: Any, dtype: str, width: int) -> None:
    """What is copied arrives when the thread has waited for it."""
    found = _read(pointer, index, CELL[dtype], width)
    now.thread.copies[-1] += [(room, int(place) + k, value) for k, value in enumerate(found)]


def _copies_sent() -> None:
    now.thread.copies.append([])


def _copies_left(count: int) -> None:
    """Everything but the last `count` groups arrives, and but what is in no group yet where some may be left."""
    groups = now.thread.copies
    stay = groups[-1 - count :] if count else [[]]
    for group in groups if not count else groups[: -1 - count]:
        for room, place, value in group:
            room[place] = value
    now.thread.copies = stay


def _makers() -> Iterator[tuple[str, Callable[..., Any]]]:
    for dtype, size in STORAGE.items():
        for width in (w for w in WIDTHS if w * size <= 32):
            for way in WAYS:
                end = f"{way}{dtype}x{width}" if width > 1 else f"{way}{dtype}"
                yield f"load_{end}", partial(_load, dtype=dtype, width=width)
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
                yield f"{order}_{dtype}", partial(_load, dtype=dtype, width=1, value=_word)
            else:
                yield f"{order}_{dtype}", partial(_store, dtype=dtype, width=1)
    yield "atomic_inc_acq_rel", atomic_inc_acq_rel
    yield "fence_gpu", lambda: None
    yield "copies_sent", _copies_sent
    yield "copies_here", partial(_copies_left, 0)
    yield from ((f"copies_left_{n}", partial(_copies_left, n)) for n in range(1, MOST_LEAD + 1))


TWINS = dict(_makers())
