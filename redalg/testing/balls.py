"""Running error analysis as an arithmetic: every number is a ball (computed value, bound on its error).

The ball of a result is `(m, r)` with ``|computed - exact| <= r`` for the exact value of the *same expression at the
exact inputs*. Rules, with unit roundoff ``u`` (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.3)::

    a ± b      r = ra + rb + u·|m|                      two terms: one rounding
    Σ of k     r = Σ r_i + (k-1)·u·Σ(|m_i| + r_i)       any bracketing of k terms
    a·b        r = |a|rb + |b|ra + ra·rb + u·|m|
    f(a)       r = ra·sup|f'| over [a-ra, a+ra] + c·u·|m|,  c = 4: the accuracy NumPy documents for its functions
    max, min   r = max r_i                              |max a - max b| <= max |a_i - b_i|

Underflow adds the least positive number of the type once per operation (with `flush` the least normal one). A
comparison that the errors leave open is `None`; a `where` on it is the hull of both branches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from redalg.graph.formula import evaluated
from redalg.graph.functions import COMPUTED
from redalg.testing.arithmetic import NARROW, round_narrow

FUNCTION_ULPS = 4.0
LARGEST = NARROW["float64"][2]


class Ball(NamedTuple):
    """A computed value and a bound on its distance from the exact one."""

    mid: float
    rad: float

    @property
    def low(self) -> float:
        return self.mid - self.rad

    @property
    def high(self) -> float:
        return self.mid + self.rad


def _guard(mid: float, rad: float) -> Ball:
    """Infinities and NaN are exact (they are compared by kind); an unusable radius is infinite, never NaN."""
    if not math.isfinite(mid):
        return Ball(mid, 0.0)
    return Ball(mid, rad if rad == rad else math.inf)


def total(values: Sequence[float]) -> float:
    """The sum rounded once; beyond the largest number infinite."""
    if not all(map(math.isfinite, values)):
        return sum(values)
    try:
        return math.fsum(values)
    except OverflowError:
        exact = sum(map(Fraction, values), Fraction(0))
        return float(exact) if abs(exact) <= Fraction(LARGEST) else math.inf if exact > 0 else -math.inf


def _call(f: Any, *args: float) -> float:
    try:
        return f(*args)
    except OverflowError:
        return math.inf
    except (ValueError, ZeroDivisionError):
        return math.nan


def _exp(x: float) -> float:
    return _call(math.exp, x)


# derivative bounds on [low, high]: what sup|f'| is at most
_SLOPES: dict[str, Any] = {
    "exp": lambda lo, hi: _exp(hi),
    "expm1": lambda lo, hi: _exp(hi),
    "log": lambda lo, hi: 1 / lo if lo > 0 else math.inf,
    "log2": lambda lo, hi: 1 / (lo * math.log(2)) if lo > 0 else math.inf,
    "exp2": lambda lo, hi: math.log(2) * _call(math.pow, 2.0, hi),
    "log1p": lambda lo, hi: 1 / (1 + lo) if lo > -1 else math.inf,
    "sigmoid": lambda lo, hi: min(0.25, _exp(hi), _exp(-lo)),
    "tanh": lambda lo, hi: 1.0,
    "erf": lambda lo, hi: 2 / math.sqrt(math.pi),
    "erfc": lambda lo, hi: 2 / math.sqrt(math.pi),
    "sin": lambda lo, hi: 1.0,
    "cos": lambda lo, hi: 1.0,
    "atan": lambda lo, hi: 1.0,
    "asinh": lambda lo, hi: 1.0,
    "sinh": lambda lo, hi: _call(math.cosh, max(abs(lo), abs(hi))),
    "cosh": lambda lo, hi: _call(math.cosh, max(abs(lo), abs(hi))),
}
_VALUES: dict[str, Any] = {
    "exp2": lambda x: math.pow(2.0, x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x)),
}


def _signed(a: Ball, b: Ball) -> Ball:
    """a·b where one of them is exactly 1 or -1: no rounding."""
    unit, other = (a, b) if abs(a.mid) == 1.0 and a.rad == 0 else (b, a)
    return Ball(unit.mid * other.mid, other.rad)


class Balls:
    """Float arithmetic with unit roundoff `u` (float64 unless told otherwise), carrying error bounds.

    With `casts_round` a cast leaves its argument's value and adds the most that rounding can change: half a unit in the
    last place of the type, for the value and every other one that was rounded in its place.

    >>> b = Balls(); b.add([b.number(1.0), b.number(1e-17)])
    Ball(mid=1.0, rad=1.1102230246251565e-16)
    """

    def __init__(self, dtype: str = "float64", casts_round: bool = False, flush: bool = False) -> None:
        bits, least, _, _ = NARROW[dtype]
        self.u = 2.0**-bits
        self.tiny = 2.0 ** (least if flush else least - bits + 1)
        self.casts_round = casts_round

    def number(self, value: Any) -> Ball:
        if isinstance(value, Ball):
            return value
        mid = float(value)
        exact = not isinstance(value, Fraction) or not math.isfinite(mid) or Fraction(mid) == value
        return Ball(mid, 0.0 if exact else self.u * abs(mid))

    def add(self, terms: Sequence[Ball]) -> Ball:
        if len(terms) == 1:
            return terms[0]
        mid, rad = total([t.mid for t in terms]), total([t.rad for t in terms])
        zeros = sum(t.mid == 0 == t.rad for t in terms)
        roundings = len(terms) - 1 - zeros
        if roundings <= 0:
            return _guard(mid, rad)
        size = abs(mid) + rad if len(terms) - zeros == 2 else sum(abs(t.mid) + t.rad for t in terms)
        return _guard(mid, rad + roundings * self.u * size)

    def mul(self, factors: Sequence[Ball]) -> Ball:
        result = factors[0]
        for f in factors[1:]:
            if any(abs(t.mid) == 1.0 and t.rad == 0 for t in (f, result)):
                result = _signed(result, f)
                continue
            mid = result.mid * f.mid
            rad = abs(result.mid) * f.rad + abs(f.mid) * result.rad + result.rad * f.rad if math.isfinite(mid) else 0.0
            result = _guard(mid, rad + self.u * (abs(mid) + rad) + self.tiny)
        return result

    def power(self, base: Ball, exponent: Ball) -> Ball:
        if exponent.rad:
            return self.unary("exp", self.mul([exponent, self.unary("log", base)]))
        e = exponent.mid
        if base.mid == 0 and base.rad == 0 and e < 0:
            return Ball(math.inf, 0.0)
        mid = _call(lambda: base.mid**e)
        if isinstance(mid, complex):
            return Ball(math.nan, 0.0)
        slope = self._power_slope(base, e)
        # integer powers are products (|e| - 1 of them and a division); others a library function
        roundings = abs(e) if math.isfinite(e) and e == int(e) else (1.0 if e == 0.5 else FUNCTION_ULPS)
        return _guard(mid, (base.rad * slope if base.rad else 0.0) + roundings * self.u * abs(mid) + self.tiny)

    @staticmethod
    def _power_slope(base: Ball, e: float) -> float:
        if e - 1 < 0 and base.low <= 0 <= base.high:
            return math.inf
        ends = (abs(base.low), abs(base.high))
        return abs(e) * max(_call(lambda t=t: t ** (e - 1)) for t in ends)

    def unary(self, name: str, a: Ball) -> Ball:
        if name in ("conj", "re"):
            return a
        if name == "abs":
            return Ball(abs(a.mid), a.rad)
        if name == "relu":
            return Ball(a.mid if a.mid != a.mid else max(a.mid, 0.0), a.rad)
        if name == "pow2":  # whichever it is, what it divides is multiplied by it again
            return Ball(math.ldexp(1.0, math.frexp(a.mid)[1] - 1) if 0 < abs(a.mid) < math.inf else 1.0, 0.0)
        if name in ("sign", "floor", "ceil"):
            return self._step(name, a)
        if name in COMPUTED:
            return evaluated(COMPUTED[name], self, a)
        return self._smooth(name, a)

    def special(self, name: str) -> Ball:
        return Ball(getattr(math, name), self.u * getattr(math, name))

    def extremum(self, op: str, a: Ball, b: Ball) -> Ball:
        least = self.less(a, b, False) if a.mid == a.mid and b.mid == b.mid else a.mid == a.mid
        return self.hull(b, a) if least is None else b if least is (op == "maximum") else a

    def _smooth(self, name: str, a: Ball) -> Ball:
        if name in ("log", "log2") and a.mid == 0 and a.rad == 0:
            return Ball(-math.inf, 0.0)
        mid = _call(_VALUES.get(name) or getattr(math, name), a.mid)
        slope = _SLOPES.get(name, lambda lo, hi: math.inf)(a.low, a.high) if a.rad else 0.0
        exact = a.rad == 0 and (a.mid == 0 or (name == "log" and a.mid == 1))
        return _guard(mid, a.rad * slope + (0.0 if exact else FUNCTION_ULPS * self.u * abs(mid) + self.tiny))

    @staticmethod
    def _step(name: str, a: Ball) -> Ball:
        if a.mid != a.mid:
            return a
        f = {"sign": lambda t: float((t > 0) - (t < 0)), "floor": math.floor, "ceil": math.ceil}[name]
        values = {float(f(t)) for t in (a.low, a.mid, a.high)}
        return Ball(float(f(a.mid)), max(values) - min(values))

    def less(self, a: Ball, b: Ball, or_equal: bool) -> bool | None:
        if a.rad + b.rad > 0 and abs(a.mid - b.mid) <= a.rad + b.rad:
            return None
        return a.mid <= b.mid if or_equal else a.mid < b.mid

    def equal(self, a: Ball, b: Ball) -> bool | None:
        if a.rad + b.rad > 0 and abs(a.mid - b.mid) <= a.rad + b.rad:
            return None
        return a.mid == b.mid

    def hull(self, a: Ball, b: Ball) -> Ball:
        if a.mid == b.mid or (a.mid != a.mid and b.mid != b.mid):
            return Ball(a.mid, max(a.rad, b.rad))
        return Ball(a.mid, max(a.rad, abs(a.mid - b.mid) + b.rad))

    def middle(self, a: Ball) -> float:
        return a.mid

    def cast(self, a: Ball, dtype: str) -> Ball:
        if not math.isfinite(a.mid):
            return a
        if self.casts_round:
            return Ball(a.mid, a.rad + self._half_unit(a, dtype))
        if dtype in NARROW:
            return self._narrow(a, dtype)
        low, high = math.ceil(a.low - 0.5), math.floor(a.high + 0.5)
        return Ball(float(round(a.mid)), float(max(high - round(a.mid), round(a.mid) - low)) if a.rad else 0.0)

    @staticmethod
    def _half_unit(a: Ball, dtype: str) -> float:
        if dtype not in NARROW:
            return 0.5
        bits, least, largest, _ = NARROW[dtype]
        size = abs(a.mid) + a.rad
        return max(size * 2.0**-bits, 2.0 ** (least - bits), size - largest)

    @staticmethod
    def _narrow(a: Ball, dtype: str) -> Ball:
        ends = [float(round_narrow(Fraction(t), dtype)) for t in (a.low, a.mid, a.high)]
        return _guard(ends[1], max(ends[2] - ends[1], ends[1] - ends[0]))
