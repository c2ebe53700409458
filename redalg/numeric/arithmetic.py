"""The numbers an evaluation computes with: one float dtype, int64 counts, Booleans, weak Python scalars.

With dtype ``object`` the floats are Fractions and rational arithmetic is exact; NaN and infinities are Python floats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph.formats import FLOATS, cast_fraction
from redalg.numeric import integers
from redalg.numeric.casts import cast_array
from redalg.numeric.maps import EXACT_MAPS, FLOAT_MAPS, of_integers

Array = Any
COMPARE: dict[str, Callable[..., Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
}
_EXTREMA: dict[str, Callable[..., Array]] = {"maximum": np.maximum, "minimum": np.minimum}
SPECIAL = {"oo": np.inf, "-oo": -np.inf, "nan": np.nan, "pi": np.pi, "e": np.e, "i": 1j}


def compute_dtype(arrays: Sequence[Any]) -> np.dtype:
    """The float dtype for inexact arithmetic on these arrays: their result type, at least float32; float64 for none."""
    dtypes = [a.dtype for a in arrays if isinstance(a, np.ndarray | np.generic) and a.dtype.kind not in "iub"]
    if not dtypes:
        return np.dtype(np.float64)
    if any(d.hasobject for d in dtypes):
        return np.dtype(object)
    found = np.result_type(np.float32, *dtypes)
    return np.dtype(f"f{found.itemsize // 2}") if found.kind == "c" else found


class Arithmetic:
    """Operations on arrays and Python numbers in one float dtype (``real``)."""

    def __init__(self, dtype: np.dtype) -> None:
        self.limit = 0  # larger integers raise Beyond instead of being rounded; 0: none do
        self.real = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
        self.exact = self.real.hasobject
        self.divide: Callable[[Any, Any], Any] = _EXACT_DIVIDE if self.exact else np.true_divide

    @property
    def complex(self) -> np.dtype:
        return np.dtype(f"c{2 * self.real.itemsize}")

    # --- kinds ---------------------------------------------------------------------------------------------------

    def admit(self, value: Any) -> Any:
        """Input as this arithmetic holds it: a weak Python number, or an array of bool, int64, float or complex."""
        if isinstance(value, bool | int | float | complex | Fraction) and not isinstance(value, np.generic):
            return value if isinstance(value, bool | complex) else self.number(value)
        array = np.asarray(value)
        if array.dtype.kind == "b":
            return array
        if array.dtype.kind in "iu":
            return array.astype(np.int64, copy=False)
        return array.astype(self.complex if array.dtype.kind == "c" else self.real, copy=False)

    def number(self, value: int | float | Fraction) -> Any:
        if self.exact:
            return Fraction(value) if np.isfinite(float(value)) else value
        if isinstance(value, Fraction):
            return value.numerator if value.denominator == 1 else integers.nearest_float(value)
        return value

    def special(self, name: str) -> Any:
        return SPECIAL[name]

    def constant(self, value: Any) -> Array:
        """A Python number as an array without dimensions, in the dtype its kind has here."""
        if isinstance(value, bool):
            return np.array(value)
        if isinstance(value, int) and not self.exact:
            return integers.as_array(value)
        return np.array(value, dtype=self.complex if isinstance(value, complex) else self.real)

    def counted(self, value: Any) -> Any:
        """Booleans as 0 and 1."""
        if isinstance(value, np.ndarray) and value.dtype.kind == "b":
            return value.astype(np.int64)
        return int(value) if isinstance(value, bool) else value

    def inexact(self, value: Any) -> Any:
        """The value in the float dtype (complex stays complex)."""
        value = self.counted(value)
        if isinstance(value, np.ndarray):
            if value.dtype.kind in "iu" and self.exact:
                return _TO_FRACTION(value)
            return self._rounded(value) if self.integer(value) else value
        if self.exact:
            return self.number(value)
        if isinstance(value, int):
            return self._rounded(value)
        return float(value) if isinstance(value, Fraction) else value

    def integer(self, value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return value.dtype.kind in ("iu" if self.exact else "iuO")
        return isinstance(value, int)

    def _rounded(self, value: Any) -> Any:
        if self.limit and isinstance(value, np.ndarray) and integers.magnitude(value) > self.limit:
            raise integers.Beyond
        return integers.as_float(value, self.real.type if isinstance(value, np.ndarray) else float)

    def unify(self, values: Sequence[Any]) -> list[Any]:
        """All integers, or all in the float dtype: an integer never widens a float."""
        counted = [self.counted(v) for v in values]
        return counted if all(map(self.integer, counted)) else [self.inexact(v) for v in counted]

    # --- operations ----------------------------------------------------------------------------------------------

    def total(self, values: Sequence[Any], negative: Sequence[bool]) -> Any:
        """Sum in the order given, subtracting where ``negative`` (never for the first)."""
        values = self.unify(values)
        result = values[0]
        for value, minus in zip(values[1:], negative[1:], strict=True):
            ufunc = np.subtract if minus else np.add
            result = (integers.CHECKED[ufunc] if self.integer(value) else ufunc)(result, value)
        return settle(result, values)

    def quotient(self, above: Sequence[Any], below: Sequence[Any]) -> Any:
        """Product over product: a single rounding for x/n, where x·(1/n) has two."""
        values = self.unify(sorted(above, key=np.size)) if above else [1]
        whole = all(map(self.integer, values))
        result = functools.reduce(integers.multiply if whole else np.multiply, values)
        counts = [self.counted(v) for v in below]
        if below and whole and not self.exact and all(map(self.integer, counts)):
            result = np.asarray(_whole_quotient(result, counts), self.real)
        elif below:
            divisors = [self.inexact(v) for v in sorted(below, key=np.size)]
            result = self.divide(self.inexact(result), functools.reduce(np.multiply, divisors))
        return settle(result, [*above, *below])

    def power(self, base: Any, exponent: Fraction) -> Any:
        """base ** exponent for a constant exponent; NaN for a fractional power of a negative number."""
        if exponent < 0:
            one = Fraction(1) if self.exact else 1.0
            return settle(self.divide(one, self.power(self.inexact(base), -exponent)), [base])
        return settle(self._positive_power(self.counted(base), exponent), [base])

    def _positive_power(self, base: Any, e: Fraction) -> Any:
        if e.denominator == 1 and (e <= 4 or self.exact or self.integer(base)):
            return integers.power(base, int(e)) if self.integer(base) else _integer_power(base, int(e))
        base = self.inexact(base)
        if e.denominator == 2 and e <= 4:
            return np.multiply(np.sqrt(base), _integer_power(base, int(e))) if e > 1 else np.sqrt(base)
        if e.denominator == 3 and e <= 4 and not np.iscomplexobj(base):
            root = np.where(np.less(base, 0), np.nan, np.cbrt(base))  # x**(1/3) would use a rounded exponent
            return _integer_power(root.astype(self.real), e.numerator)
        return self.general_power(base, float(e))

    def general_power(self, base: Any, exponent: Any) -> Any:
        """base ** exponent; C's pow(-inf, 1/3) is inf, here a fractional power of any negative number is NaN."""
        base, exponent = self.inexact(base), self.inexact(exponent)
        result = np.power(base, exponent)
        if not np.iscomplexobj(result):
            result = np.where((np.asarray(base) < 0) & (np.floor(exponent) != exponent), np.nan, result)
            result = result.astype(self.real, copy=False)
        return settle(result, [base, exponent])

    def unary(self, name: str, x: Any) -> Any:
        return settle(self._unary(name, x), [x])

    def _unary(self, name: str, x: Any) -> Any:
        if name in FLOAT_MAPS:
            return FLOAT_MAPS[name](np.asarray(self.inexact(x)))
        x = self.counted(x)
        if self.integer(x) and isinstance(x, np.ndarray):
            return of_integers(x, name)
        return (_OBJECT_MAPS if self.exact else EXACT_MAPS)[name](x)

    def compare(self, op: str, *values: Any) -> Any:
        alike = len({self.integer(v) for v in values}) == 1
        result = COMPARE[op](*(values if alike else map(self.inexact, values)))
        return settle(np.asarray(result).astype(bool), values)

    def extremum(self, op: str, *values: Any) -> Any:
        values, ufunc = tuple(self.unify(values)), _EXTREMA[op]
        return settle((integers.CHECKED[ufunc] if self.integer(values[0]) else ufunc)(*values), values)

    def conjunction(self, values: Sequence[Any]) -> Any:
        return settle(functools.reduce(np.logical_and, values), values)

    def disjunction(self, values: Sequence[Any]) -> Any:
        return settle(functools.reduce(np.logical_or, values), values)

    def negation(self, value: Any) -> Any:
        return settle(np.logical_not(value), [value])

    def cast(self, value: Any, name: str) -> Any:
        if self.exact and name != "bool":
            return settle(np.frompyfunc(lambda x: _cast_object(x, name), 1, 1)(self.inexact(value)), [value])
        x = self.inexact(value) if name in FLOATS else self.counted(value)
        return settle(cast_array(x if isinstance(x, np.ndarray) else np.asarray(x), name), [value])

    def where(self, condition: Any, then: Any, other: Any, boolean: bool) -> Any:
        branches = [then, other] if boolean else self.unify([then, other])
        select = np.where if boolean or not self.integer(branches[0]) else integers.select
        return settle(select(condition, *branches), [condition, *branches])


def settle(result: Any, values: Sequence[Any]) -> Any:
    """Keep a result of Python numbers a Python number: NumPy's own scalars would be strong in the next promotion."""
    if any(isinstance(v, np.ndarray) for v in values):
        return result if isinstance(result, np.ndarray) else integers.as_array(result)
    return result.item() if isinstance(result, np.ndarray | np.generic) else result


def _integer_power(base: Any, e: int) -> Any:
    result, square = None, base
    while e:
        if e & 1:
            result = square if result is None else np.multiply(result, square)
        e >>= 1
        if e:
            square = np.multiply(square, square)
    return result if result is not None else np.multiply(base, 0) + 1


def _whole_quotient(above: Any, counts: Sequence[Any]) -> Any:
    """Integers divided by a product of integers, rounded once; what is divided by 0 has the sign of the others."""
    divisor = functools.reduce(integers.multiply, counts)
    result = integers.quotient(above, divisor)
    if len(counts) == 1 or np.all(divisor != 0):
        return result
    signs = functools.reduce(np.multiply, [np.where(np.less(c, 0), -1.0, 1.0) for c in counts])
    return np.where(np.equal(divisor, 0), np.multiply(result, signs), result)


def _exact_divide(a: Any, b: Any) -> Any:
    if b != 0:
        return a / b if b not in (np.inf, -np.inf) or isinstance(a, float) else Fraction(0)
    return float("nan") if a == 0 or a != a else float("inf") if a > 0 else float("-inf")


def _floor_object(x: Any) -> Any:
    return Fraction(x // 1) if np.isfinite(float(x)) else x


def _sign_object(x: Any) -> Any:
    return x if x != x else Fraction((x > 0) - (x < 0))


_OBJECT_MAPS: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "sign": np.frompyfunc(_sign_object, 1, 1),
    "relu": np.frompyfunc(lambda x: Fraction(0) if x < 0 else x, 1, 1),
    "floor": np.frompyfunc(_floor_object, 1, 1),
    "ceil": np.frompyfunc(lambda x: -_floor_object(-x), 1, 1),
    "conj": np.frompyfunc(lambda x: x, 1, 1),
    "re": np.frompyfunc(lambda x: x, 1, 1),
    "im": np.frompyfunc(lambda x: Fraction(0), 1, 1),
}


def _cast_object(x: Any, name: str) -> Any:
    if isinstance(x, float):
        return cast_array(np.float64(x), name).item()
    return cast_fraction(Fraction(x), name)


_EXACT_DIVIDE = np.frompyfunc(_exact_divide, 2, 1)
_TO_FRACTION = np.frompyfunc(lambda n: Fraction(int(n)), 1, 1)
