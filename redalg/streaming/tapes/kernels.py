"""The array operations of a tape: reductions that keep their dimensions, contractions, and a few fused ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from redalg.numeric.casts import cast_array
from redalg.numeric.integers import LARGEST, as_array, as_float, multiply, quotient
from redalg.numeric.reductions import contract, pairwise_sum, position, product, reduced, top_k, unfilled

Array = Any


def _last(x: Array, axes: Sequence[int]) -> Array:
    """The reduced dimensions, row-major, as the last one."""
    moved = np.moveaxis(x, axes, range(-len(axes), 0)) if axes else x[..., None]
    kept = moved.ndim - len(axes)
    return moved.reshape(*moved.shape[:kept], prod(moved.shape[kept:])) if len(axes) > 1 else moved


def _kept(x: Array, axes: Sequence[int]) -> Array:
    return np.expand_dims(x, tuple(axes)) if axes else x


# --- what enters and leaves a tape -----------------------------------------------------------------------------------


def entered(x: Array, dtype: np.dtype | type, contiguous: bool = False) -> Array:
    """An argument in the dtype that is calculated in; integers beyond int64 (objects) stay, and those beside -oo."""
    if x.dtype != (dtype := _own(x, dtype)):
        return x.astype(dtype, order="C" if contiguous else "K")
    return np.ascontiguousarray(x) if contiguous else x


def _own(x: Array, dtype: np.dtype | type) -> Any:
    """The dtype, or that of integers which it does not hold."""
    return x.dtype if x.dtype == object or x.dtype.kind == "f" and np.dtype(dtype).kind == "i" else dtype


def single(value: Any, rank: int, dtype: np.dtype | type) -> Any:
    """An array without dimensions with `rank` of them; numbers stay what they are."""
    if not isinstance(value, np.ndarray):
        return value
    return value.astype(_own(value, dtype), copy=False)[(None,) * rank]


def left(
    value: Any,
    order: tuple[int, ...],
    kept: int,
    dtype: type,
    copy: bool = False,
    shape: tuple[int, ...] | None = None,
) -> Array:
    """A result: the first `kept` dimensions in this order, broadcast behind the batch to `shape`."""
    if not isinstance(value, np.ndarray) or not value.ndim:
        wide = isinstance(value, int) and np.dtype(dtype).kind == "i" and abs(value) > LARGEST
        value = np.asarray(value, object if wide else _own(np.asarray(value), dtype)).reshape((1,) * len(order))
    result = value.transpose(order)[(slice(None),) * kept + (0,) * (len(order) - kept)]
    if shape is not None:
        result = np.broadcast_to(result, (result.shape[0], *shape))
    if copy or result.dtype != _own(result, dtype):
        result = result.astype(_own(result, dtype), order="C")
    return result


def along(x: Any, *sizes: int, places: tuple[int, ...], rank: int, dtype: type) -> Array:
    """A value written out along dimensions that it does not have."""
    x = (as_array(x) if np.dtype(dtype).kind == "i" else np.asarray(x, dtype)) if not np.ndim(x) else x
    x = x.reshape((1,) * rank) if not x.ndim else x
    shape = list(x.shape)
    for p, n in zip(places, sizes, strict=True):
        shape[p] = n
    return np.broadcast_to(x, shape)


# --- elements --------------------------------------------------------------------------------------------------------


def counted(x: Array) -> Array:
    """Booleans as 0 and 1."""
    return x.astype(np.int64)


def masked_exp(x: Any, masked: Any, out: Array | None = None) -> Any:
    """exp(x), and 0 where that is masked."""
    result = np.exp(x, out=out)
    if masked is None:
        return result
    if not isinstance(result, np.ndarray):
        return result * 0 if masked else result
    np.copyto(result, 0, where=masked)
    return result


def integer_power(x: Any, e: int) -> Any:
    """x**e for e >= 1 by squaring: a handful of multiplications."""
    result = None
    while e:
        if e & 1:
            result = x if result is None else result * x
        e >>= 1
        if e:
            x = x * x
    return result


def ratio_of(above: Any, below: Any, dtype: type) -> Any:
    """Two integers divided with one rounding."""
    if np.dtype(dtype) == np.float64:
        return quotient(above, below)
    return np.true_divide(as_float(above, dtype), as_float(below, dtype))


def three_halves(x: Any) -> Any:
    """x**(3/2)."""
    return x * np.sqrt(x)


def constant_power(x: Any, e: float) -> Any:
    """x**e, in the dtype of x."""
    return np.power(x, x.dtype.type(e))


def chosen(condition: Any, then: Any, other: Any, dtype: type) -> Any:
    """One of two numbers."""
    return np.where(condition, dtype(then), dtype(other))


def cast_to(x: Any, name: str, dtype: type) -> Any:
    """Rounded to a format, and held in the dtype that is calculated in."""
    held = np.asarray(x)
    return cast_array(held if held.dtype == object and dtype is np.int64 else held.astype(dtype, copy=False), name)


# --- reductions ------------------------------------------------------------------------------------------------------


def sum_over(x: Array, axes: tuple[int, ...]) -> Array:
    """Sum with pairwise accuracy whatever the memory layout; integers and Booleans in int64."""
    if not axes:
        return x
    if len(axes) == 1 and x.dtype.kind in "fc":
        (p,) = axes
        if x.shape[p] <= 8 or x.strides[p] == x.itemsize:
            return np.add.reduce(x, axis=p, keepdims=True)
    return _kept(pairwise_sum(_last(x, axes)), axes)


def prod_over(x: Array, axes: tuple[int, ...]) -> Array:
    return _kept(product(_last(x, axes)), axes)


def max_over(x: Array, axes: tuple[int, ...]) -> Array:
    return reduced(np.maximum, x, axes)


def min_over(x: Array, axes: tuple[int, ...]) -> Array:
    return reduced(np.minimum, x, axes)


def number_max_over(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest, NaN apart; of nothing but NaN -inf."""
    return _number(reduced(np.fmax, x, axes), -np.inf)


def number_min_over(x: Array, axes: tuple[int, ...]) -> Array:
    """The least, NaN apart; of nothing but NaN inf."""
    return _number(reduced(np.fmin, x, axes), np.inf)


def _number(best: Array, otherwise: float) -> Array:
    return np.where(best == best, best, otherwise).astype(best.dtype) if best.dtype.kind == "f" else best


def any_over(x: Array, axes: tuple[int, ...]) -> Array:
    return reduced(np.logical_or, x, axes)


def all_over(x: Array, axes: tuple[int, ...]) -> Array:
    return reduced(np.logical_and, x, axes)


def argmax_over(x: Array, axes: tuple[int, ...]) -> Array:
    return _kept(position("argmax", _last(x, axes)), axes)


def argmin_over(x: Array, axes: tuple[int, ...]) -> Array:
    return _kept(position("argmin", _last(x, axes)), axes)


def top_over(x: Array, k: int, axes: tuple[int, ...], target: int) -> tuple[Array, Array]:
    """Both lists of a top-k, the new dimension at the layout's place for it."""
    values, indices = top_k(_last(x, axes), k)
    return _place(values, axes, target), _place(indices, axes, target)


def listed(values: Any, places: Any, dtype: type) -> Any:
    """Integers where a list has entries, and -oo beside them: in floats that hold them, if there are such."""
    values, places = np.asarray(values), np.asarray(places)
    found = unfilled(values, places)
    if found is not values or not (places < 0).any():
        return found
    return np.where(places < 0, -np.inf, values if values.dtype.kind == "f" else as_float(values, dtype))


def _place(values: Array, axes: Sequence[int], target: int) -> Array:
    """Restore the reduced dimensions with length 1 and move the list's dimension where the layout has it."""
    return np.moveaxis(np.squeeze(_kept(values, axes), axis=target), -1, target)


def fold_over(*bodies: Array, axes: tuple[int, ...], combine: Callable[..., Sequence[Array]]) -> list[Array]:
    """A monoid's fold in stream order: neighbours combined level by level; needs at least one element."""
    shape = np.broadcast_shapes(*(b.shape for b in bodies))
    parts = [_last(np.broadcast_to(b, shape), axes) for b in bodies]
    while (n := parts[0].shape[-1]) > 1:
        even = n - n % 2
        merged = folded([p[..., 0:even:2] for p in parts], [p[..., 1:even:2] for p in parts], combine)
        tails = [p[..., even:] for p in parts]
        parts = [np.concatenate([m, t], axis=-1) if n % 2 else m for m, t in zip(merged, tails, strict=True)]
    return [_kept(p[..., 0], axes) for p in parts]


def folded(left: Sequence[Array], right: Sequence[Array], combine: Callable[..., Sequence[Array]]) -> list[Array]:
    """A monoid's operation on lists of arrays of one shape."""
    shape, size = left[0].shape, left[0].size
    found = combine(*(x.reshape(-1) for x in (*left, *right)))
    return [v.reshape(shape) if v.size == size else np.broadcast_to(v, shape) for v in found]


def contraction(a: Array, b: Array, axes: tuple[int, ...]) -> Array:
    return contract(a, b, axes)


def fixed_sum(x: Array, axes: tuple[int, ...]) -> Array:
    """A sum whose bits do not depend on how many rows are done together: always along contiguous memory."""
    if x.dtype.kind in "iub":
        return _kept(pairwise_sum(_last(x, axes)), axes)
    return _kept(np.add.reduce(np.ascontiguousarray(_last(x, axes)), axis=-1), axes)


def fixed_contraction(a: Array, b: Array, axes: tuple[int, ...]) -> Array:
    """A contraction written out, for the same reason."""
    return fixed_sum(multiply(a, b) if a.dtype.kind in "iO" else a * b, axes)
