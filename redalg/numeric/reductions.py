"""Reductions and contractions on NumPy arrays whose last axis is the reduced one (or whose factors share it).

Every function takes ``x`` of shape (..., n) and gives shape (...). Empty axes give the identity: sum 0, prod 1,
max -inf, min inf (also of integers, as floats), any false, all true, argmax and argmin -1. Top-k of integers pads with
the least integer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from redalg.numeric import integers

Array = Any
_BLOCK = 4096  # longest sum that is left to one matrix product


def pairwise_sum(x: Array) -> Array:
    """Sum over the last axis with an error that grows with log n, whatever the memory layout."""
    n = x.shape[-1]
    if x.dtype.kind in "iub":
        return integers.total(x.astype(np.int64) if x.dtype.kind == "b" else x)
    if n == 0:
        return _full(x, 0)
    if x.dtype != object and (n <= 8 or x.strides[-1] == x.itemsize):
        return np.sum(x, axis=-1)
    while x.shape[-1] > 8:
        n = x.shape[-1]
        half = n // 2
        folded = x[..., :half] + x[..., half : 2 * half]
        if n % 2:
            folded[..., 0] += x[..., -1]
        x = folded
    return _held(np.sum(x, axis=-1))


def _held(result: Any) -> Array:
    """The result of a reduction of objects to a single one, which NumPy gives as it is, and would take for uint64."""
    return result if isinstance(result, np.ndarray | np.generic) else np.asarray(result, dtype=object)


def _full(x: Array, value: Any) -> Array:
    return np.full(x.shape[:-1], value, dtype=x.dtype)


def product(x: Array) -> Array:
    if x.dtype.kind in "iub":
        return integers.product(x.astype(np.int64) if x.dtype.kind == "b" else x)
    return _held(np.prod(x, axis=-1, dtype=x.dtype))


def identity(kind: str, dtype: np.dtype) -> Any:
    """The identity of max or min in a dtype."""
    if dtype.kind == "b":
        return kind == "min"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max
    return -np.inf if kind == "max" else np.inf


SHORT, MANY = 8, 128  # elements of a row, and rows, of which one element after the other is taken from all rows


def reduced(ufunc: np.ufunc, x: Array, axes: Sequence[int]) -> Array:
    """x along dimensions, which are kept with length 1, reduced by an operation that rounds nothing, in any order.

    Nothing has the operation's identity. Of many short rows one column after the other is taken: NumPy takes longer to
    begin a row than to compare some elements.

    >>> reduced(np.maximum, np.array([[1.0, 3.0], [2.0, 0.0]]), (1,)).tolist()
    [[3.0], [2.0]]
    """
    length = prod(x.shape[p] for p in axes)
    if not length and ufunc.identity is None:
        shape = [1 if p in axes else n for p, n in enumerate(x.shape)]
        return np.full(shape, identity("max" if ufunc in (np.maximum, np.fmax) else "min", x.dtype), dtype=x.dtype)
    if not 1 < length <= SHORT or x.size < MANY * length or x.dtype == object:
        return np.asarray(ufunc.reduce(x, axis=tuple(axes), keepdims=True))
    for p in axes:
        columns = [x[(*(slice(None),) * p, slice(k, k + 1))] for k in range(x.shape[p])]
        x = functools.reduce(ufunc, columns)
    return x


def extremum(kind: str, x: Array) -> Array:
    if x.shape[-1] == 0:
        dtype = np.dtype(np.float64) if x.dtype.kind in "iub" else x.dtype
        return np.full(x.shape[:-1], identity(kind, dtype), dtype=dtype)
    return _held(reduced(np.maximum if kind == "max" else np.minimum, x, (x.ndim - 1,))[..., 0])


def position(kind: str, x: Array) -> Array:
    """The first index of the largest (smallest) element; the first NaN if there is one; -1 where there is nothing."""
    if x.shape[-1] == 0:
        return np.full(x.shape[:-1], -1, dtype=np.int64)
    return (np.argmax if kind == "argmax" else np.argmin)(x, axis=-1).astype(np.int64)


def top_k(x: Array, k: int) -> tuple[Array, Array]:
    """The k largest elements, descending, and their indices: NaN first, ties by lowest index; (identity, -1) pads."""
    n = x.shape[-1]
    if x.dtype.kind == "b":
        x = x.astype(np.int64)
    order = n - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    order = order[..., :k].astype(np.int64)
    values = np.take_along_axis(x, order, axis=-1)
    if n >= k:
        return values, order
    widths = [(0, 0)] * (x.ndim - 1) + [(0, k - n)]
    whole = x.dtype == object and x.size and isinstance(x.flat[0], int)  # integers beyond int64
    rest = np.full((*values.shape[:-1], k - n), identity("max", np.dtype(np.int64) if whole else x.dtype), x.dtype)
    return np.concatenate([values, rest], axis=-1), np.pad(order, widths, constant_values=-1)


def unfilled(values: Array, places: Array) -> Array:
    """Lists as others calculate with them: of integers, those that are not full hold -oo, and are floats.

    Where floats do not hold the integers they stay as they are.

    >>> unfilled(np.array([3, np.iinfo(np.int64).min]), np.array([0, -1])).astype(float).tolist()
    [3.0, -inf]
    """
    if values.dtype.kind not in "iuO" or not (nothing := places < 0).any():
        return values
    wide = np.longdouble if np.finfo(np.longdouble).nmant >= 63 else np.float64
    floats = np.where(nothing, -np.inf, values.astype(wide))
    if values.dtype == object:  # beyond int64, where every result is
        return floats
    with np.errstate(invalid="ignore"):
        same = floats.astype(values.dtype) == values
    return floats if (same | nothing).all() else values


def reduce_last(kind: str, x: Array) -> Array:
    """One of the plain reductions over the last axis."""
    if kind == "sum":
        return pairwise_sum(x)
    if kind == "prod":
        return product(x)
    if kind in ("any", "all"):
        ufunc = np.logical_or if kind == "any" else np.logical_and
        return reduced(ufunc, x != 0 if x.dtype == object else x, (x.ndim - 1,))[..., 0]
    return extremum(kind, x) if kind in ("max", "min") else position(kind, x)


def fold(parts: Sequence[Array], combine: Callable[..., Sequence[Array]]) -> list[Array]:
    """Combine neighbours level by level (a balanced tree in stream order), all free axes at once; needs n >= 1."""
    states = list(parts)
    while (n := states[0].shape[-1]) > 1:
        even = n - n % 2
        merged = combine([s[..., 0:even:2] for s in states], [s[..., 1:even:2] for s in states])
        if n % 2:
            merged = [np.concatenate([m, s[..., -1:]], axis=-1) for m, s in zip(merged, states, strict=True)]
        states = list(merged)
    return [s[..., 0] for s in states]


def contract(a: Array, b: Array, positions: Sequence[int]) -> Array:
    """Sum of a·b over the given dimensions (kept with length 1), as batched matrix products: nothing of full size.

    Both arrays have the same number of dimensions, length 1 where they do not vary; both vary along ``positions``.
    Long sums are cut into blocks whose results are added pairwise.
    """
    if a.dtype.kind in "iu" and not integers.contracts(a, b, prod(a.shape[p] for p in positions)):
        return integers.fitted(contract(a.astype(object), b.astype(object), positions))
    free = [p for p in range(a.ndim) if p not in positions]
    batch = [p for p in free if a.shape[p] != 1 and b.shape[p] != 1]
    left = [p for p in free if b.shape[p] == 1]
    right = [p for p in free if p not in batch and p not in left]
    x = _matrix(a, batch, left, positions)
    y = _matrix(b, batch, positions, right)
    starts = range(0, max(x.shape[-1], 1), _BLOCK)
    pieces = [np.matmul(x[..., s : s + _BLOCK], y[..., s : s + _BLOCK, :]) for s in starts]
    z = pieces[0] if len(pieces) == 1 else pairwise_sum(np.moveaxis(np.stack(pieces), 0, -1))
    order = batch + left + right
    lengths = [a.shape[p] for p in batch + left] + [b.shape[p] for p in right]
    z = z.reshape(lengths).transpose([order.index(p) for p in free])
    return np.expand_dims(z, tuple(positions))


def _matrix(x: Array, *groups: Sequence[int]) -> Array:
    """The dimensions of each group flattened into one (dimensions in no group have length 1)."""
    kept = [p for group in groups for p in group]
    rest = [p for p in range(x.ndim) if p not in kept]
    return x.transpose(kept + rest).reshape([prod(x.shape[p] for p in group) for group in groups])
