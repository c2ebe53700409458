"""How a callable is called, and what it may not do whatever it computes.

It may not write to its arguments, then or later, hand back their memory or memory that a later call writes to, or let
earlier calls, the strides of an array, its alignment or whether it may be written decide what comes out. None of this
shows in one call on fresh contiguous arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from redalg.numeric.array_origin import to_numpy

LAYOUTS = ("contiguous", "fortran", "strided", "reversed", "unaligned", "sliced", "turned", "read-only", "broadcast")
Arrays = dict[str, Any]
Named = dict[str, np.ndarray]


class Misbehaved(Exception):
    """A call did something else than compute; the text says what."""


def call(
    implementation: Callable[..., Any],
    arrays: Arrays,
    names: Sequence[str],
    by_name: bool,
    convert: Callable[[Any], Any] | None = None,
    layout: str = "contiguous",
    given: Arrays | None = None,
) -> Named:
    """The outputs by name, as NumPy arrays on the host; `given`: what is handed over, for these numbers.

    Raises: Misbehaved; and whatever the callable raises.
    """
    if given is None:
        given = handed(arrays, convert, layout)
    try:
        found = implementation(**given) if by_name else implementation(*given.values())
    except ValueError as error:
        closed = [k for k, v in given.items() if isinstance(v, np.ndarray) and not v.flags.writeable]
        if closed and "read-only" in str(error):
            raise Misbehaved(f"it wrote to its argument {' or '.join(closed)} ({error})") from None
        raise
    results = _outputs(found, names)
    if name := written_to(given, arrays):
        raise Misbehaved(f"it wrote to its argument {name}")
    for name, value in given.items():
        for output, array in results.items():
            if _lies_in(array, value):
                raise Misbehaved(f"its result {output} lies in the memory of its argument {name}")
    return results


def _lies_in(result: np.ndarray, given: Any) -> bool:
    """Whether a result changes when its caller writes to an argument; what cannot be written to may be shared."""
    if isinstance(given, bool | int | float | complex):
        return False
    try:
        value = on_host(given)
    except Exception:  # an array that cannot be read back cannot be compared
        return False
    return value.flags.writeable and np.may_share_memory(result, value)


def _outputs(found: Any, names: Sequence[str]) -> Named:
    if isinstance(found, Mapping):
        results = {name: on_host(found[name]) for name in names}
    else:
        parts = found if isinstance(found, tuple | list) and len(names) > 1 else [found]
        results = {name: on_host(part) for name, part in zip(names, parts, strict=True)}
    for name, array in results.items():
        if array.dtype.kind not in "biufV":  # V: the narrow floats of ml_dtypes
            raise Misbehaved(f"its result {name} has the dtype {array.dtype}")
    return results


def handed(arrays: Arrays, convert: Callable[[Any], Any] | None = None, layout: str = "contiguous") -> Arrays:
    """What a callable is given for these arrays: copies of its own, converted or laid out otherwise."""
    return {k: _handed(v, convert, layout) for k, v in arrays.items()}


def written_to(given: Arrays, arrays: Arrays) -> str:
    """The name of an argument that no longer holds the numbers it was made of; empty where all do."""
    return next((k for k, v in given.items() if isinstance(arrays[k], np.ndarray) and not _unchanged(v, arrays[k])), "")


def _handed(value: Any, convert: Callable[[Any], Any] | None, layout: str) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return convert(value.copy()) if convert is not None else laid_out(value, layout)


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same numbers in memory of their own, laid out otherwise.

    >>> laid_out(np.arange(6.0).reshape(2, 3), "strided").strides, laid_out(np.arange(3.0), "reversed").strides
    ((96, 16), (-8,))
    """
    if layout == "broadcast":
        return _broadcast(array)
    if layout == "fortran":
        return np.array(array, order="F")
    if layout in ("strided", "reversed") and array.ndim:
        step = 2 if layout == "strided" else -1
        whole = np.zeros(tuple(2 * n if step > 0 else n for n in array.shape), array.dtype)
        view = whole[(slice(None, None, step),) * array.ndim]
        view[...] = array
        return view
    if layout == "unaligned" and array.dtype.itemsize > 1:
        view = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view
    if layout in ("sliced", "turned") and array.ndim:
        return _sliced(array) if layout == "sliced" else _sliced(array.T).T
    found = array.copy()
    found.flags.writeable = layout != "read-only" or not array.size
    return found


def _sliced(array: np.ndarray) -> np.ndarray:
    """Some columns of a wider array: elements of a row lie together, rows apart, and no row begins where one should."""
    whole = np.zeros((*array.shape[:-1], array.shape[-1] + 3), array.dtype)
    view = whole[..., 1:-2]
    view[...] = array
    return view


def _broadcast(array: np.ndarray) -> np.ndarray:
    """An axis along which all numbers are equal has a stride of 0."""
    few = array.copy()
    if not array.size:
        return few
    for axis in range(array.ndim):
        if same_bits(alike(array, axis), array):
            few = few.take([0], axis=axis)
    return np.broadcast_to(few, array.shape)


def alike(array: np.ndarray, axis: int) -> np.ndarray:
    """The first numbers along an axis at all places along it."""
    return np.repeat(array.take([0], axis=axis), array.shape[axis], axis=axis)


def _unchanged(given: Any, original: np.ndarray) -> bool:
    try:
        now = on_host(given)
    except Exception:  # an array that cannot be read back cannot be compared
        return True
    return now.shape != original.shape or same_bits(now, original) or now.dtype != original.dtype


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shapes, dtypes and bits; a NaN is a NaN, whatever its payload."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes():
        return True
    x, y = a.astype(float), b.astype(float)
    alike = (x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)
    return bool(alike.all()) and a.dtype.kind not in "iu"


def repeated(calls: Sequence[Callable[[], Named]], times: int) -> str:
    """How one of several calls, made again and again in irregular order, changes; empty where none does.

    A callable that answers from memory of its own shows in a result that changes when other arguments are given.
    """
    draw, kept = Random(times), list[tuple[Named, Named]]()
    for number in range(1, times + 1):
        which = len(kept) if len(kept) < len(calls) else draw.randrange(len(calls))
        try:
            results = calls[which]()
        except Misbehaved as misbehaved:
            return f"in call {number} with arguments it took before {misbehaved}"
        except Exception as error:
            return f"call {number} with arguments it took before raised {type(error).__name__}: {error}"
        if which == len(kept):
            kept.append((results, {name: array.copy() for name, array in results.items()}))
        for name, before in kept[which][1].items():
            if not same_bits(results[name], before):
                found = _difference(results[name], before)
                return f"call {number} with the same arguments gave other bits for {name}: {found}"
        if any(not same_bits(now[name], before[name]) for now, before in kept for name in before):
            return f"call {number} wrote to the result of an earlier one"
    return ""


def refilled(run: Callable[[Arrays, Arrays], Named], arrays: Arrays, others: Arrays) -> str:
    """What goes wrong where the arrays of a call hold other numbers in the next one; empty where nothing does."""
    given = handed(arrays)
    first = run(arrays, given)
    before = {name: array.copy() for name, array in first.items()}
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            value[...] = others[name]
        else:
            given[name] = others[name]
    second, fresh = run(others, given), run(others, handed(others))
    for name, array in before.items():
        if not same_bits(first[name], array):
            return f"its result {name} changed when its arguments were written to afterwards"
        if not same_bits(second[name], fresh[name]):
            return f"arrays that were written to since an earlier call gave other bits for {name} than fresh ones"
    return ""


def _difference(now: np.ndarray, before: np.ndarray) -> str:
    if now.shape != before.shape or now.dtype != before.dtype:
        return f"{now.dtype} of shape {now.shape} instead of {before.dtype} of shape {before.shape}"
    x, y = now.astype(float), before.astype(float)
    places = np.argwhere(~((x == y) & (np.signbit(x) == np.signbit(y)) | np.isnan(x) & np.isnan(y)))
    at = tuple(int(i) for i in places[0]) if len(places) else ()
    return f"{now[at]} instead of {before[at]} at {list(at)}"


def on_host(array: Any) -> np.ndarray:
    """An array of any library as NumPy sees it, copied from a device if it lies on one."""
    for method in ("copy_to_host", "get"):
        if hasattr(array, "__cuda_array_interface__") and hasattr(array, method):
            return np.asarray(getattr(array, method)())
    if type(array).__module__.partition(".")[0] == "torch":
        array = array.detach().cpu()
    return np.asarray(to_numpy(array))
