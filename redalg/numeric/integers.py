"""Integer arithmetic that never wraps: int64 arrays where everything fits, arrays of Python integers where not.

Every function takes int64 arrays, object arrays of Python integers, or Python integers. A bound on the result, from the
largest magnitude of the operands, decides whether int64 can hold it; where the bound says no, the operation is done on
Python integers, and the result is int64 again if all of it fits.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from redalg.errors import RedalgError

Array = Any
LARGEST = 2**63 - 1
WRITTEN = 2**17  # bits that a power of integers may have
_SHOWN = 256  # bits of an integer that a message writes out
EXACT = 2**53  # integers up to here are floats


def ends(x: Any) -> tuple[int, int]:
    """The least and the largest of the integers; 0 of nothing, and of those beside -oo, which are floats."""
    if not isinstance(x, np.ndarray | np.floating):
        return int(x), int(x)
    return (int(x.min()), int(x.max())) if x.size and x.dtype.kind != "f" else (0, 0)


def magnitude(x: Any) -> int:
    """The largest |x|; 0 where there is nothing."""
    return max(map(abs, ends(x)))


class Beyond(ArithmeticError):
    """An integer that no float holds meets floats: a definition is then computed on rationals."""


def fitted(x: Any) -> Any:
    """Python integers as int64 where all of them fit."""
    if isinstance(x, np.ndarray) and x.dtype == object:
        if not x.size or x.max() <= LARGEST and x.min() >= -LARGEST - 1:
            return x.astype(np.int64)
    return x


def as_array(x: Any) -> Array:
    """A number as an array; a Python integer outside int64 stays one, where NumPy would take uint64."""
    return np.asarray(x, dtype=object if isinstance(x, int) and not -LARGEST - 1 <= x <= LARGEST else None)


def _wide(x: Any) -> Any:
    return x.astype(object) if isinstance(x, np.ndarray) else int(x)


Ends = tuple[int, int]


def _elementwise(
    ufunc: np.ufunc, number: Callable[[int, int], int], bound: Callable[[Ends, Ends], Ends]
) -> Callable[[Any, Any], Any]:
    """The operation on arrays; of two numbers it is Python's, for NumPy's would wrap."""

    def run(a: Any, b: Any) -> Any:
        if not _is_array(a, b):
            return number(int(a), int(b))
        if _is_float(a) or _is_float(b):
            return ufunc(*_floats(a, b))
        one, other = ends(a), ends(b)
        low, high = bound(one, other)
        # An operand that int64 does not hold may give a result that it does: 0 times a number.
        if min(low, *one, *other) >= -LARGEST - 1 and max(high, *one, *other) <= LARGEST:
            return ufunc(a, b)
        return fitted(ufunc(_wide(a), _wide(b)))

    run.__name__ = run.__qualname__ = ufunc.__name__
    return run


def _product_ends(a: Ends, b: Ends) -> Ends:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


add = _elementwise(np.add, operator.add, lambda a, b: (a[0] + b[0], a[1] + b[1]))
subtract = _elementwise(np.subtract, operator.sub, lambda a, b: (a[0] - b[1], a[1] - b[0]))
multiply = _elementwise(np.multiply, operator.mul, _product_ends)


def _objects(*values: Any) -> bool:
    """Whether one of them is not of int64."""
    return any(
        v.dtype == object if isinstance(v, np.ndarray) else not -LARGEST - 1 <= int(v) <= LARGEST for v in values
    )


def _extremum(ufunc: np.ufunc, number: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    def run(a: Any, b: Any) -> Any:
        if not _is_array(a, b):
            return number(int(a), int(b))
        if _is_float(a) or _is_float(b):
            return ufunc(*_floats(a, b))
        return fitted(ufunc(_wide(a), _wide(b))) if _objects(a, b) else ufunc(a, b)

    run.__name__ = run.__qualname__ = ufunc.__name__
    return run


maximum = _extremum(np.maximum, max)
minimum = _extremum(np.minimum, min)
CHECKED: dict[Any, Callable[[Any, Any], Any]] = {
    np.add: add,
    np.subtract: subtract,
    np.multiply: multiply,
    np.maximum: maximum,
    np.minimum: minimum,
}


def select(condition: Any, then: Any, other: Any) -> Any:
    """One of two integers each, by a condition."""
    if _is_float(then) or _is_float(other):
        return np.where(condition, *_floats(then, other))
    if not _objects(then, other):
        return np.where(condition, then, other)
    return fitted(np.where(condition, *(np.asarray(_wide(v), dtype=object) for v in (then, other))))


def power(x: Any, e: int) -> Any:
    """x**e for e >= 0. Raises: RedalgError where it has more digits than are worked out."""
    size = magnitude(x)
    if size > 1 and (size.bit_length() - 1) * e > WRITTEN:
        raise RedalgError(
            f"the power {size}**{e}" if size < EXACT else f"a power **{e} of an integer beyond 2^53",
            "arithmetic of integers",
            f"it has more than {WRITTEN} bits, and integers are exact",
            "pass the integers as float64",
        )
    if size > 1 and size.bit_length() * e > 63:
        return fitted(_wide(x) ** e)
    return x**e


def total(x: Array) -> Array:
    """The sum over the last axis, exactly."""
    if x.dtype == object:
        return fitted(np.asarray(np.add.reduce(x, axis=-1, initial=0), dtype=object))
    if magnitude(x) * max(1, x.shape[-1]) <= LARGEST:
        return np.sum(x, axis=-1, dtype=x.dtype if x.dtype.kind == "f" else np.int64)
    low = np.sum(x & 0xFFFFFFFF, axis=-1, dtype=np.int64)  # two limbs: each sum fits for up to 2^31 elements
    high = np.sum(x >> 32, axis=-1, dtype=np.int64)
    return fitted(np.asarray(_wide(np.asarray(high)) * 2**32 + _wide(np.asarray(low)), dtype=object))


def product(x: Array) -> Array:
    """The product over the last axis, exactly."""
    size = magnitude(x)
    if size <= 1 or size.bit_length() * x.shape[-1] <= 63:
        return np.prod(x, axis=-1, dtype=np.int64 if x.dtype.kind in "iub" else None)
    return fitted(np.asarray(np.multiply.reduce(_wide(x), axis=-1, initial=1), dtype=object))


def contracts(a: Array, b: Array, terms: int) -> bool:
    """Whether a contraction of so many terms stays in int64."""
    return magnitude(a) * magnitude(b) * max(1, terms) <= LARGEST


def quotient(above: Any, below: Any) -> Any:
    """Two integers divided in float64 with one rounding; c/0 is infinite and 0/0 NaN. Those beside -oo are floats."""
    if any(_is_float(v) for v in (above, below)):
        with np.errstate(all="ignore"):
            return np.true_divide(*_floats(above, below)).astype(np.float64)
    small = magnitude(above) <= EXACT and magnitude(below) <= EXACT
    if small and not any(v.dtype == object for v in (above, below) if _is_array(v)):
        with np.errstate(all="ignore"):
            return np.true_divide(above, below)
    return _QUOTIENT(above, below).astype(np.float64) if _is_array(above, below) else _ratio(above, below)


def _is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.floating) and x.dtype.kind == "f"


def _floats(*values: Any) -> list[Any]:
    """Integers beside -oo, which a list has that is not full, in the widest floats."""
    return [as_float(v, np.longdouble) for v in values]


def _is_array(*values: Any) -> bool:
    return any(isinstance(v, np.ndarray) for v in values)


def _ratio(a: Any, b: Any) -> float:
    a, b = int(a), int(b)
    if not b:
        return float("nan") if not a else float("inf") if a > 0 else float("-inf")
    try:
        return a / b
    except OverflowError:
        return float("inf") if (a > 0) == (b > 0) else float("-inf")


_QUOTIENT = np.frompyfunc(_ratio, 2, 1)


def as_float(x: Any, dtype: Any) -> Any:
    """Integers in a float dtype, each rounded once; beyond the largest float infinite."""
    if not isinstance(x, np.ndarray):
        return dtype(_ratio(x, 1)) if isinstance(x, int) and abs(x) >= 2**1000 else dtype(x)
    if x.dtype != object or magnitude(x) < 2**1000:
        return x.astype(dtype)
    return _QUOTIENT(x, 1).astype(dtype)


def nearest_float(value: Any) -> float:
    """An exact number, rounded once; beyond the largest float infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def within(x: Array, what: str, where: str) -> Array:
    """The integers as int64. Raises: RedalgError where one is outside."""
    x = fitted(x.astype(object) if x.dtype == np.uint64 else x)
    if x.dtype != object:
        return x
    beyond = [v for v in x.flat if not -LARGEST - 1 <= v <= LARGEST]
    raise RedalgError(
        f"{what} beyond int64",
        where,
        f"it {told(beyond[0])}, and integer results are int64: at most {LARGEST} in magnitude",
        "pass the integers as float64, or divide by a size in the spec (a mean is a float)",
    )


def told(value: int) -> str:
    """A large integer in words: Python writes no more than some thousand digits, and nobody reads a hundred."""
    bits = value.bit_length()
    return f"is {value}" if bits <= _SHOWN else f"has {bits} bits (about {round(bits * math.log10(2))} digits)"
