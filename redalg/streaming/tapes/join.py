"""⊕ on arrays that are held at the same anchors. `a` comes first in the stream or in position; shapes agree."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from redalg.numeric import integers

Array = Any
Pair = tuple[Array, Array]  # a number as an unevaluated sum: high part and what rounding took away


def two_sum(a: Array, b: Array) -> Pair:
    """a + b = s + e exactly (Knuth 1969, The Art of Computer Programming 2, 4.2.2, theorem B)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def every(x: Array) -> bool:
    """Whether all are true; a single one is looked at without a reduction."""
    return bool(x.item() if x.size == 1 else x.all())


def all_finite(x: Array) -> bool:
    """Whether all numbers are finite."""
    if x.size == 1 and x.dtype.char in "fd":
        return isfinite(x.item())
    return bool(np.isfinite(x).all())


def settled(high: Array, low: Array) -> Pair:
    """The pair with the high part rounded to nearest; nothing is kept beside an infinity or NaN."""
    s = high + low
    e = low - (s - high)
    if not all_finite(e):
        e = np.where(np.isfinite(s) & np.isfinite(e), e, 0).astype(e.dtype)
        s = np.where(np.isfinite(high), s, high).astype(s.dtype)
    return s, e


def added(a: Pair, b: Pair) -> Pair:
    if _single(*a, *b):
        return _arrays(a[0].shape, *_settled(*_added(*(x.item() for x in (*a, *b)))))
    s, e = two_sum(a[0], b[0])
    return settled(s, e + (a[1] + b[1]))


def averaged(a: Pair, b: Pair, na: int, nb: int) -> Pair:
    """The mean of both: the longer side plus a small multiple of the difference. No large product, no cancellation."""
    if nb > na:
        a, b, na, nb = b, a, nb, na
    if _single(*a, *b):
        numbers = _averaged(a[0].item(), a[1].item(), b[0].item(), b[1].item(), nb / (na + nb))
        if numbers is not None:
            return _arrays(a[0].shape, *_settled(*numbers))
    step = ((b[0] - a[0]) + (b[1] - a[1])) * a[0].dtype.type(nb / (na + nb))
    s, e = two_sum(a[0], step)
    if not all_finite(s):  # an infinite mean stays: inf - inf is no step
        infinite = np.isinf(a[0]) | np.isinf(b[0])
        s, e = np.where(infinite, a[0] + b[0], s).astype(s.dtype), np.where(infinite, 0, e).astype(e.dtype)
    return settled(s, e + a[1])


# Single float64 numbers go the same way as Python floats, which round as arrays do and take a tenth of the time.


def _single(*arrays: Array) -> bool:
    shape = arrays[0].shape
    return arrays[0].size == 1 and all(x.shape == shape and x.dtype.char == "d" for x in arrays)


def _arrays(shape: tuple[int, ...], *numbers: float) -> tuple[Array, ...]:
    found = tuple(np.empty(shape) for _ in numbers)
    for x, number in zip(found, numbers, strict=True):
        x.fill(number)
    return found


def _added(high: float, low: float, other_high: float, other_low: float) -> tuple[float, float]:
    s, e = two_sum(high, other_high)
    return s, e + (low + other_low)


def _averaged(a: float, a_low: float, b: float, b_low: float, share: float) -> tuple[float, float] | None:
    """None where the mean is not finite."""
    s, e = two_sum(a, ((b - a) + (b_low - a_low)) * share)
    return (s, e + a_low) if isfinite(s) else None


def _settled(high: float, low: float) -> tuple[float, float]:
    s = high + low
    e = low - (s - high)
    if isfinite(e):
        return s, e
    return s if isfinite(high) else high, 0.0


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
        order = np.lexsort((tie, ~values, places < 0), axis=-1)  # Python's integers may be less than the padding
    order = order[..., :k]
    return np.take_along_axis(values, order, axis=-1), np.take_along_axis(places, order, axis=-1)


def plus(a: Array, b: Array) -> Array:
    return integers.add(a, b) if _whole(a, b) else a + b


def multiplied(a: Array, b: Array) -> Array:
    return integers.multiply(a, b) if _whole(a, b) else a * b


def _whole(a: Array, b: Array) -> bool:
    return a.dtype.kind in "iO" and b.dtype.kind in "iO"


PLAIN: dict[str, Callable[[Array, Array], Array]] = {
    "sum": plus,
    "prod": multiplied,
    "max": np.maximum,
    "min": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


# --- anchors that move -----------------------------------------------------------------------------------------------

Shifts = tuple[tuple[Array | None, int], ...]  # how anchors move, and the shift of one that stays


class Overflow(Exception):
    """A sum left the range of its dtype although both sides are finite: combine again with more range."""


def spread(x: Array | None, axes: tuple[str, ...], target: tuple[str, ...]) -> Array | None:
    """An array along `axes`, behind the batch, as it broadcasts along `target`."""
    if x is None:
        return None
    order, index = _alignment(axes, target)
    return x.transpose(order)[index]


@lru_cache(maxsize=4096)
def _alignment(axes: tuple[str, ...], target: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    order = sorted(range(len(axes)), key=lambda d: target.index(axes[d]))
    index = tuple(slice(None) if axis in axes else None for axis in target)
    return (0, *(d + 1 for d in order)), (slice(None), *index)


def difference(new: Array, old: Array) -> Array | None:
    """How an anchor moves, exactly 0 where it does not; None if it moves nowhere."""
    same = new == old
    if every(same):
        return None
    return np.where(same, 0, integers.subtract(new, old) if _whole(new, old) else new - old)


def ratio(new: Array, old: Array) -> Array | None:
    """How a scale moves, exactly 1 where it does not; None if it moves nowhere."""
    same = new == old
    return None if every(same) else np.where(same, 1, old / new)


def rescaled(new: Array, old: Array, *largest: Array) -> Array | None:
    """How a unit moves: nowhere where all that it measures is 0, which is 0 in every unit.

    That unit is the least there is, and its powers in another one would leave the range.
    """
    zero: Any = functools.reduce(np.logical_and, [x == 0 for x in largest])
    return ratio(new, np.where(zero, new, old) if np.any(zero) else old)


def still(shift: Array | None, like: Array, value: int) -> Array:
    """The shift of an anchor, which is `value` where it stays."""
    if shift is not None:
        return shift
    return np.full(like.shape, value, np.float64 if value and like.dtype.kind not in "fc" else like.dtype)


def usable(value: Array, home: Array) -> Array:
    """An anchor where it is finite, else where it was."""
    finite = np.isfinite(value)
    return value if every(finite) else np.where(finite, value, home)


def _floats(coefficient: Array, source: Array) -> Pair:
    """Factors one of which is of floats; the other may be of integers beyond int64."""
    if source.dtype == object:
        return coefficient, integers.as_float(source, coefficient.dtype)
    if coefficient.dtype == object:
        return integers.as_float(coefficient, source.dtype), source
    return coefficient, source


def times(coefficient: Array, source: Array, selects: bool = False) -> Array:
    """coefficient · source, where 0 elements contribute 0."""
    if selects:
        source = np.where(coefficient != 0, source, 0)
    if _whole(coefficient, source):
        return integers.multiply(coefficient, source)
    coefficient, source = _floats(coefficient, source)
    product = coefficient * source
    return product if all_finite(product) else np.where(source == 0, source, product)


def term(coefficient: Array, source: Array, shifts: Shifts) -> Array:
    """coefficient · source of another slot: 0, too, where T(0) = I does not mention it."""
    if _whole(coefficient, source):
        return integers.multiply(coefficient, source)
    coefficient, source = _floats(coefficient, source)
    product = coefficient * source
    if all_finite(product):
        return product
    product = np.where(source == 0, source, product)
    for shift, value in shifts:
        stays = True if shift is None else shift == value
        product = np.where(stays & (coefficient == 0), 0, product).astype(product.dtype)
    return product


def scaled(coefficient: Array, high: Array, low: Array, less_one: Array | None, selects: bool = False) -> Pair:
    """(high + low)·coefficient; with coefficient - 1 given, as high plus a small change where that is small: a
    thousand small moves in one direction then round like one large move."""
    if selects:
        kept = coefficient != 0
        high, low = np.where(kept, high, 0), np.where(kept, low, 0)
    product = times(coefficient, high)
    if less_one is None:
        return product, coefficient * low
    near = less_one > -0.5
    s, e = two_sum(high, high * less_one)
    near = near & np.isfinite(e)
    return np.where(near, s, product), np.where(near, e, 0) + coefficient * low


def rested(total: Array, rest: Array | None, high: Array, low: Array | None, shifts: Shifts) -> tuple[Array, Any]:
    """The moved sum, and the one that was where no anchor moves: a test of equality and not of arithmetic."""
    if rest is not None and not all_finite(rest):
        rest = np.where(np.isfinite(rest), rest, 0)
    stays: Any = True
    for shift, value in shifts:
        if shift is not None:
            stays = stays & (shift == value)
    if not np.any(stays):
        return total, rest
    return np.where(stays, high, total), None if rest is None else np.where(stays, low, rest)


def check_range(high: Array, made_of: tuple[Array, ...]) -> None:
    """Raises: Overflow if some sum is not finite although everything it is made of is."""
    sound = ~np.isfinite(high)
    for x in made_of:
        sound = sound & np.isfinite(x)
    if sound.any():
        raise Overflow
