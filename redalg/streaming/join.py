"""⊕ on arrays that are held at the same anchors. `a` comes first in the stream or in position; shapes agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redalg import numeric_integers as integers

Array = Any
Pair = tuple[Array, Array]  # a number as an unevaluated sum: high part and what rounding took away


def two_sum(a: Array, b: Array) -> Pair:
    """a + b = s + e exactly (Knuth 1969, The Art of Computer Programming 2, 4.2.2, theorem B)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def settled(high: Array, low: Array) -> Pair:
    """The pair with the high part rounded to nearest; nothing is kept beside an infinity or NaN."""
    s = high + low
    e = low - (s - high)
    if not np.isfinite(e).all():
        e = np.where(np.isfinite(s) & np.isfinite(e), e, 0).astype(e.dtype)
        s = np.where(np.isfinite(high), s, high).astype(s.dtype)
    return s, e


def added(a: Pair, b: Pair) -> Pair:
    s, e = two_sum(a[0], b[0])
    return settled(s, e + (a[1] + b[1]))


def averaged(a: Pair, b: Pair, na: int, nb: int) -> Pair:
    """The mean of both: the longer side plus a small multiple of the difference. No large product, no cancellation."""
    if nb > na:
        a, b, na, nb = b, a, nb, na
    step = ((b[0] - a[0]) + (b[1] - a[1])) * a[0].dtype.type(nb / (na + nb))
    s, e = two_sum(a[0], step)
    if not np.isfinite(s).all():  # an infinite mean stays: inf - inf is no step
        infinite = np.isinf(a[0]) | np.isinf(b[0])
        s, e = np.where(infinite, a[0] + b[0], s).astype(s.dtype), np.where(infinite, 0, e).astype(e.dtype)
    return settled(s, e + a[1])


def carried(value: Array, old: Array, new: Array, n: Array | int) -> Array:
    """value·(old/new)^n, 0 where the value is 0, to a few roundings whatever n is.

    The quotient's own rounding, which the power would multiply by n, is put right to first order; its power of 2 is
    applied last, so that a large factor and a small value meet before either leaves the range.
    """
    (a, i), (b, j) = (np.frexp(np.asarray(x, np.float64)) for x in (old, new))
    q = a / b
    shift = (q < 0.75) & (q > -0.75) & (q != 0)
    a, i = np.where(shift, 2 * a, a), i - shift
    q = a / b
    rest = _residual(a, q, b) / a
    times = np.asarray(n, np.float64)
    half = np.floor(times / 2)
    moved = np.asarray(value, np.float64) * np.power(q, half) * np.power(q, times - half) * (1 + times * rest)
    exponent = np.clip((i - j) * times, -(2**30), 2**30).astype(np.int64)
    near = exponent // 2
    moved = np.ldexp(np.ldexp(moved, near.astype(np.int32)), (exponent - near).astype(np.int32))
    return np.where((value == 0) | (old == new), value, moved).astype(value.dtype)


def _residual(a: Array, q: Array, b: Array) -> Array:
    """a - q·b, exactly (Dekker 1971), for numbers whose products stay in range."""
    def parts(x: Array) -> Pair:
        c = x * 134217729.0
        high = c - (c - x)
        return high, x - high

    (qh, ql), (bh, bl) = parts(q), parts(b)
    product = q * b
    error = ((qh * bh - product) + qh * bl + ql * bh) + ql * bl
    return (a - product) - error


def positions(kind: str, a: Pair, b: Pair) -> Pair:
    """The larger (smaller) value with its position; the first NaN; the lowest position among equals."""
    better = (b[0] > a[0]) if kind == "argmax" else (b[0] < a[0])
    same = b[0] == a[0]
    if a[0].dtype.kind == "f":
        nan_a, nan_b = a[0] != a[0], b[0] != b[0]
        better = (better | nan_b) & ~nan_a
        same = same | (nan_a & nan_b)
    take = better | (same & (b[1] < a[1]))
    return np.where(take, b[0], a[0]), np.where(take, b[1], a[1])


def top(a: Pair, b: Pair) -> Pair:
    """The first k of two descending lists; NaN first, the lowest position among equals, padding last."""
    k = a[0].shape[-1]
    values, places = np.concatenate([a[0], b[0]], axis=-1), np.concatenate([a[1], b[1]], axis=-1)
    tie = np.where(places < 0, np.iinfo(np.int64).max, places)
    if values.dtype.kind == "f":
        order = np.lexsort((tie, -values, values == values), axis=-1)
    else:
        order = np.lexsort((tie, ~values), axis=-1)
    order = order[..., :k]
    return np.take_along_axis(values, order, axis=-1), np.take_along_axis(places, order, axis=-1)


def _either(ufunc: np.ufunc) -> Callable[[Array, Array], Array]:
    checked = integers.CHECKED[ufunc]
    return lambda a, b: checked(a, b) if a.dtype.kind in "iO" and b.dtype.kind in "iO" else ufunc(a, b)


PLAIN: dict[str, Callable[[Array, Array], Array]] = {
    "sum": _either(np.add),
    "prod": _either(np.multiply),
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}
