"""Scalar arithmetics a graph can be evaluated in: the protocol, and `Digits` (rational where possible, else digits).

An *arithmetic* turns leaves into scalars and applies the operations of `redalg.graph.node` to them, one number at a
time. It exists for tests: nothing here is shared with the evaluators of the library, so that agreement means something.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, Protocol

import mpmath

from redalg.graph.formula import Operations, evaluated
from redalg.graph.functions import FUNCTIONS, Function

# name -> (bits of significand, least exponent of a normal number, largest finite value, saturates)
NARROW: dict[str, tuple[int, int, float, bool]] = {
    "float8_e4m3fn": (4, -6, 448.0, True),
    "float8_e5m2": (3, -14, 57344.0, False),
    "bfloat16": (8, -126, 3.3895313892515355e38, False),
    "float16": (11, -14, 65504.0, False),
    "float32": (24, -126, 3.4028234663852886e38, False),
    "float64": (53, -1022, 1.7976931348623157e308, False),
}


class Arithmetic(Operations, Protocol):
    """What `redalg.testing.evaluator.Evaluator` needs of a number system. Booleans are `True`, `False` or `None`
    ("cannot be told", only in arithmetics with error bounds)."""

    def number(self, value: Any) -> Any: ...
    def less(self, a: Any, b: Any, or_equal: bool) -> bool | None: ...
    def equal(self, a: Any, b: Any) -> bool | None: ...
    def hull(self, a: Any, b: Any) -> Any: ...
    def middle(self, a: Any) -> float: ...
    def cast(self, a: Any, dtype: str) -> Any: ...


def round_to(value: Fraction, bits: int, least: int) -> Fraction:
    """Nearest multiple of the unit in the last place, ties to even. ``round_to(Fraction(9, 8), 3, -14) -> 1``."""
    if value == 0:
        return value
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > abs(value):
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - bits + 1)
    return round(value / unit) * unit


def round_narrow(value: Fraction, dtype: str) -> Fraction | float:
    """`value` in a narrow float type; beyond the largest number: saturated (e4m3) or infinite."""
    bits, least, largest, saturates = NARROW[dtype]
    rounded = round_to(value, bits, least)
    if abs(rounded) <= Fraction(largest):
        return rounded
    edge = Fraction(largest) if saturates else math.inf
    return edge if value > 0 else -edge


class Digits:
    """Exact rationals while the operations allow it, `mpmath` numbers of `digits` digits afterwards.

    >>> Digits().unary("exp", Fraction(0)), Digits().add([Fraction(1, 3), Fraction(2, 3)])
    (Fraction(1, 1), Fraction(1, 1))
    """

    def __init__(self, digits: int = 60) -> None:
        self.context = mpmath.MPContext()
        self.context.dps = digits

    def number(self, value: Any) -> Any:
        if isinstance(value, Fraction | int):
            return Fraction(value)
        if isinstance(value, self.context.mpf):
            return value
        value = float(value)
        return Fraction(value) if math.isfinite(value) else self.context.mpf(value)

    def wide(self, a: Any) -> Any:
        return self.context.mpf(a.numerator) / a.denominator if isinstance(a, Fraction) else a

    def add(self, terms: Sequence[Any]) -> Any:
        if all(isinstance(t, Fraction) for t in terms):
            return sum(terms, Fraction(0))
        return reduce(lambda a, b: a + b, map(self.wide, terms))

    def mul(self, factors: Sequence[Any]) -> Any:
        if all(isinstance(f, Fraction) for f in factors):
            return math.prod(factors, start=Fraction(1))
        return reduce(lambda a, b: a * b, map(self.wide, factors))

    def power(self, base: Any, exponent: Any) -> Any:
        if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
            if base == 0 and exponent < 0:
                return self.context.inf
            return base ** int(exponent)
        b, e = self.wide(base), self.wide(exponent)
        if b == 0 and e < 0:
            return self.context.inf
        if b < 0 and e != int(e):
            return self.context.nan
        return b**e

    def unary(self, name: str, a: Any) -> Any:
        if name in ("abs", "conj", "re", "relu", "sign", "floor", "ceil"):
            return self._simple(name, a)
        if a == 0 and name in ("sin", "tan", "tanh", "log1p", "expm1", "erf", "asin", "atan", "sinh", "asinh"):
            return Fraction(0)
        if a == 0 and name in ("exp", "cos", "cosh"):
            return Fraction(1)
        if name == "log" and a == 1:
            return Fraction(0)
        if name == "pow2":
            return _pow2(a if isinstance(a, Fraction) else _as_fraction(a))
        return self._transcendental(name, self.wide(a))

    def _simple(self, name: str, a: Any) -> Any:
        if a != a:
            return a
        if name in ("conj", "re"):
            return a
        if name in ("floor", "ceil") and isinstance(a, Fraction):
            return Fraction(math.floor(a) if name == "floor" else math.ceil(a))
        if name == "abs":
            return abs(a)
        if name == "relu":
            return a if a > 0 else Fraction(0)
        return Fraction((a > 0) - (a < 0)) if name == "sign" else a

    def _transcendental(self, name: str, a: Any) -> Any:
        c = self.context
        if a != a:
            return a
        if name in ("log", "log1p"):
            a = a if name == "log" else 1 + a
            return -c.inf if a == 0 else (c.nan if a < 0 else c.log(a))
        if name == "sigmoid":
            return 1 / (1 + c.exp(-a)) if a > -c.inf else c.mpf(0)
        if name == "tanh" and abs(a) > 1000:
            return c.sign(a)
        if name in ("asin", "acos") and abs(a) > 1:
            return c.nan
        row = FUNCTIONS[name]
        return getattr(c, row.mpmath)(a) if row.mpmath else self._written(row, a)

    def _written(self, row: Function, a: Any) -> Any:
        """A function without a name in mpmath, by its formula; the table says what it is at an infinity."""
        if abs(a) < self.context.inf:
            return evaluated(row.computed or row.equal, self, a)
        limit = row.limits[a > 0]
        return limit if isinstance(limit, Fraction) else self.context.mpf(limit)

    def special(self, name: str) -> Any:
        return getattr(self.context, name)

    def extremum(self, op: str, a: Any, b: Any) -> Any:
        return (max if op == "maximum" else min)(a, b, key=self.wide)

    def less(self, a: Any, b: Any, or_equal: bool) -> bool | None:
        return bool(self.wide(a) <= self.wide(b)) if or_equal else bool(self.wide(a) < self.wide(b))

    def equal(self, a: Any, b: Any) -> bool | None:
        return bool(self.wide(a) == self.wide(b)) if type(a) is not type(b) else bool(a == b)

    def hull(self, a: Any, b: Any) -> Any:
        raise AssertionError("every comparison of exact numbers is decided")

    def middle(self, a: Any) -> float:
        return float(a)

    def cast(self, a: Any, dtype: str) -> Any:
        exact = a if isinstance(a, Fraction) else _as_fraction(a)
        if dtype in NARROW:
            return self.number(a if exact is None else round_narrow(exact, dtype))
        if dtype.startswith(("int", "uint")):
            return _to_integer(exact, a, dtype)
        return a


def _as_fraction(a: Any) -> Fraction | None:
    if not mpmath.isfinite(a):
        return None
    sign, mantissa, exponent, _ = a._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def _pow2(a: Fraction | None) -> Fraction:
    """The largest power of 2 that is at most |a|; 1 where there is none."""
    if not a:
        return Fraction(1)
    power = Fraction(2) ** (abs(a.numerator).bit_length() - a.denominator.bit_length())
    return power / 2 if power > abs(a) else power


def _to_integer(exact: Fraction | None, a: Any, dtype: str) -> Any:
    bits = int(dtype.lstrip("uint"))
    low, high = (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if exact is None:
        return Fraction(high if a > 0 else low) if a == a else a
    return Fraction(min(max(round(exact), low), high))
