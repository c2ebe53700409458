"""Rigorous enclosures of real numbers: intervals with dyadic endpoints, and the functions of the language on them.

An `Interval` stands for one finite real number that lies between its endpoints. `Reals(bits)` computes with about
`bits` bits and rounds outwards, so that the exact result lies in the interval it returns. Where no finite enclosure is
known (a quotient by an interval around 0, a number beyond 2^(2^44)) it raises `Unbounded`, outside a function's domain
`Undefined`; it never loops and never writes a number out that it has not bounded.

>>> from fractions import Fraction
>>> reals = Reals(200)
>>> half = reals.of(Fraction(1, 2))
>>> reals.contains(reals.call("sqrt", reals.times(half, half)), Fraction(1, 2))
True
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.proofs.numbers import elementary
from redalg.proofs.numbers.dyadic import (
    ONE,
    ZERO,
    Dyadic,
    as_fraction,
    compare,
    compare_rational,
    extreme_products,
    greatest,
    least,
    magnitude,
    negated,
    of_fraction,
    over,
    plus,
    root,
    sign,
    times,
    trim,
)
from redalg.proofs.numbers.elementary import GREATEST, Enclosed

BITS = 224  # 67 decimal digits
CAP = 1 << 44  # the largest magnitude (in bits) of an endpoint
SPARE = 48  # bits an exponent y·log x may lose: it is below 2^GREATEST


class Unbounded(ArithmeticError):
    """No finite enclosure of the result is known."""


class Undefined(ArithmeticError):
    """The argument is certainly outside the function's domain."""


class Interval:
    """A finite real number between two dyadics."""

    __slots__ = ("low", "high")

    def __init__(self, low: Dyadic, high: Dyadic) -> None:
        self.low, self.high = low, high

    def sign(self) -> int | None:
        """-1 or 1 where it is certain, 0 for the number 0, None where the interval contains 0 and other numbers."""
        low, high = sign(self.low), sign(self.high)
        return low if low == high else None

    def is_narrow(self, bits: int) -> bool:
        """Whether the endpoints are at most 2^-bits·max(1, |x|) apart."""
        span = plus(self.high, negated(self.low), 32, True)
        size = greatest(ONE, greatest(negated(self.low), self.high))
        return compare(span, (size[0], size[1] - bits)) <= 0

    def __repr__(self) -> str:
        return f"<{self.low[0]}·2^{self.low[1]}, {self.high[0]}·2^{self.high[1]}>"


Pointwise = Callable[[Dyadic, int], Enclosed]


class Reals:
    """Arithmetic on intervals at one precision."""

    def __init__(self, bits: int = BITS) -> None:
        self.bits = bits

    # --- building ---

    def _make(self, low: Dyadic, high: Dyadic) -> Interval:
        sizes = [m.bit_length() + e for m, e in (low, high) if m]
        if not sizes or -CAP <= min(sizes) and max(sizes) <= CAP:
            return Interval(low, high)
        if max(sizes) > CAP:
            raise Unbounded("beyond the largest number")
        if low[0] and magnitude(low) < -CAP:
            low = ZERO if low[0] > 0 else (-1, -CAP)
        if high[0] and magnitude(high) < -CAP:
            high = ZERO if high[0] < 0 else (1, -CAP)
        return Interval(low, high)

    def of(self, x: Fraction) -> Interval:
        return self._make(of_fraction(x, self.bits, False), of_fraction(x, self.bits, True))

    def between(self, low: Fraction, high: Fraction) -> Interval:
        return self._make(of_fraction(low, self.bits, False), of_fraction(high, self.bits, True))

    def hull(self, a: Interval, b: Interval) -> Interval:
        return Interval(least(a.low, b.low), greatest(a.high, b.high))

    @staticmethod
    def ends(x: Interval) -> tuple[Fraction, Fraction]:
        return as_fraction(x.low), as_fraction(x.high)

    @staticmethod
    def contains(x: Interval, value: Fraction) -> bool:
        return compare_rational(x.low, value) <= 0 <= compare_rational(x.high, value)

    # --- rational operations ---

    def plus(self, a: Interval, b: Interval) -> Interval:
        return self._make(plus(a.low, b.low, self.bits, False), plus(a.high, b.high, self.bits, True))

    def negated(self, x: Interval) -> Interval:
        return Interval(negated(x.high), negated(x.low))

    def times(self, a: Interval, b: Interval) -> Interval:
        if a is b:
            return self.whole_power(a, 2)
        s, t = a.sign(), b.sign()
        if s and t:  # each end is made of the ends that lie farther from 0, or nearer to it
            (near, far), (close, wide) = ((x.low, x.high)[::v] for x, v in ((a, s), (b, t)))
            ends = ((near, close), (far, wide))[:: s * t]
        elif s is None and t is None:
            downs = extreme_products((a.low, b.high), (a.high, b.low))
            ends = downs[0], extreme_products((a.low, b.low), (a.high, b.high))[1]
        else:
            four = [(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
            ends = extreme_products(*four)
        return self._make(times(*ends[0], self.bits, False), times(*ends[1], self.bits, True))

    def inverse(self, x: Interval) -> Interval:
        if x.sign() in (0, None):
            raise Unbounded("a quotient by an interval that contains 0")
        return self._make(over(ONE, x.high, self.bits, False), over(ONE, x.low, self.bits, True))

    def over(self, a: Interval, b: Interval) -> Interval:
        return self.times(a, self.inverse(b))

    def magnitude_of(self, x: Interval) -> Interval:
        s = x.sign()
        if s is None:
            return Interval(ZERO, greatest(negated(x.low), x.high))
        return self.negated(x) if s < 0 else x

    def whole_power(self, x: Interval, n: int) -> Interval:
        """x^n for n >= 1."""
        if n.bit_length() > GREATEST:
            raise Unbounded("a power whose exponent is too long")
        s = x.sign()
        if s is None:
            base = self.magnitude_of(x) if n % 2 == 0 else x
            low = self._end_power(base.low, n, False) if n % 2 else ZERO
            return self._make(low, self._end_power(base.high, n, True))
        if s < 0:
            result = self.whole_power(self.negated(x), n)
            return self.negated(result) if n % 2 else result
        return self._make(self._end_power(x.low, n, False), self._end_power(x.high, n, True))

    def _end_power(self, x: Dyadic, n: int, up: bool) -> Dyadic:
        """|x|^n rounded away from or towards 0, so that sign(x)·|x|^n is rounded in the direction asked for."""
        if x[0] < 0:
            return negated(self._end_power(negated(x), n, not up))
        inner, result = self.bits + n.bit_length() + 2, ONE
        for bit in bin(n)[2:]:
            result = times(result, result, inner, up)
            if bit == "1":
                result = times(result, x, inner, up)
        return trim(*result, self.bits, up)

    # --- powers ---

    def power(self, x: Interval, y: Fraction | Interval) -> Interval:
        """x^y for x > 0, and for x = 0 where y > 0; x < 0 only for integers y."""
        s = x.sign()
        if isinstance(y, Fraction):
            if y.denominator == 1 and y:
                result = self.whole_power(x, abs(y.numerator))
                return self.inverse(result) if y < 0 else result
            if y.denominator == 2 and abs(y.numerator) < 1 << GREATEST:
                result = self.whole_power(self.call("sqrt", x), abs(y.numerator))
                return self.inverse(result) if y < 0 else result
        if s == -1 and isinstance(y, Fraction):
            raise Undefined("a root of a negative number")
        if s == 1:
            return self._positive_power(x, y)
        if s is None and sign(x.low) == 0 and isinstance(y, Fraction) and y > 0:
            above = self._positive_power(Interval(x.high, x.high), y)
            return Interval(ZERO, above.high)
        raise Unbounded("a power of an interval that contains 0")

    def _positive_power(self, x: Interval, y: Fraction | Interval) -> Interval:
        inner = precise(self.bits + SPARE)
        exponent = inner.of(y) if isinstance(y, Fraction) else y
        return self._rounded(inner.call("exp", inner.times(exponent, inner.call("log", x))))

    def _rounded(self, x: Interval) -> Interval:
        return self._make(trim(*x.low, self.bits, False), trim(*x.high, self.bits, True))

    # --- functions ---

    def pi(self) -> Interval:
        return Interval(*elementary.pi(self.bits))

    def call(self, name: str, x: Interval) -> Interval:
        """A function of the language, or `sqrt`, at an interval."""
        lowest, highest = _DOMAIN.get(name, (None, None))
        if lowest is not None and compare(x.low, lowest) < 0:
            raise Undefined(name) if compare(x.high, lowest) < 0 else Unbounded(name)
        if highest is not None and compare(x.high, highest) > 0:
            raise Undefined(name) if compare(x.low, highest) > 0 else Unbounded(name)
        if name in _OTHERS:
            return _OTHERS[name](self, x)
        rising = _INCREASING.get(name)
        if rising is not None:
            low = rising(self, x.low).low
            return self._make(low, rising(self, x.high).high)
        row = FUNCTIONS[name]
        formula = row.written or row.enclosed
        if not formula:
            raise Unbounded(f"{name} has no enclosure")
        if not row.rises:
            return evaluated(formula, _Formulas(self), x)
        ends = [evaluated(formula, _Formulas(self), Interval(end, end)) for end in (x.low, x.high)]
        return self._make(ends[0].low, ends[1].high)

    def _at(self, f: Pointwise, x: Dyadic, more: int = 0) -> Interval:
        return self._make(*f(x, self.bits + more))

    def _exp(self, x: Dyadic) -> Interval:
        if magnitude(x) <= GREATEST or not x[0]:
            return self._at(elementary.exp, x)
        if x[0] > 0:
            raise Unbounded("an exponential of a huge number")
        return Interval(ZERO, (1, -CAP))

    def _log(self, x: Dyadic) -> Interval:
        if x[0] <= 0:
            raise Unbounded("a logarithm of an interval that contains 0")
        return self._at(elementary.log, x)

    def _expm1(self, x: Dyadic) -> Interval:
        if not x[0]:
            return Interval(ZERO, ZERO)
        size = magnitude(x)
        if size < -self.bits:  # x <= e^x - 1 <= x + x²
            above = plus(x, times(x, x, self.bits, True), self.bits, True)
            return self._make(trim(*x, self.bits, False), above)
        inner = precise(self.bits + max(0, -size) + 8)
        return self._rounded(inner.plus(inner._exp(x), Interval((-1, 0), (-1, 0))))

    def _log1p(self, x: Dyadic) -> Interval:
        if not x[0]:
            return Interval(ZERO, ZERO)
        size = magnitude(x)
        if size < -self.bits:  # x - x² <= log(1 + x) <= x
            below = plus(x, negated(times(x, x, self.bits, True)), self.bits, False)
            return self._make(below, trim(*x, self.bits, True))
        exact = max(0, -size) + self.bits + x[0].bit_length() + max(0, size) + 2 if size < 4 * self.bits else self.bits
        inner = precise(exact)
        near = Interval(plus(ONE, x, exact, False), plus(ONE, x, exact, True))
        return self._rounded(inner.call("log", near))

    def _sqrt(self, x: Dyadic) -> Interval:
        return self._make(root(x, self.bits, False), root(x, self.bits, True))

    def _sigmoid(self, x: Dyadic) -> Interval:
        if x[0] > 0:
            small = self._exp(negated(x))
            return self.inverse(self.plus(_UNIT, small))
        large = self._exp(x)
        return self.over(large, self.plus(_UNIT, large))

    def _tanh(self, x: Dyadic) -> Interval:
        if x[0] < 0:
            return self.negated(self._tanh(negated(x)))
        if magnitude(x) > 30:
            return Interval(plus(ONE, (-1, -2 * self.bits), 2 * self.bits, False), ONE)
        grown = self._expm1((x[0], x[1] + 1))
        return self.over(grown, self.plus(grown, Interval((2, 0), (2, 0))))

    def _sinh(self, x: Dyadic) -> Interval:
        if x[0] < 0:
            return self.negated(self._sinh(negated(x)))
        grown = self._expm1(x)  # g = e^x - 1;  sinh x = (g + g / (1 + g)) / 2
        return self._halved(self.plus(grown, self.over(grown, self.plus(_UNIT, grown))))

    def _halved(self, x: Interval) -> Interval:
        return Interval((x.low[0], x.low[1] - 1), (x.high[0], x.high[1] - 1))

    def _asinh(self, x: Dyadic) -> Interval:
        """log(1 + |x| + x²/(1 + √(1 + x²))) with the sign of x."""
        if x[0] < 0:
            return self.negated(self._asinh(negated(x)))
        point = Interval(x, x)
        square = self.times(point, point)
        lower = self.plus(_UNIT, self.call("sqrt", self.plus(_UNIT, square)))
        return self.call("log1p", self.plus(point, self.over(square, lower)))

    def _acosh(self, x: Dyadic) -> Interval:
        """log(1 + t + √(t·(t + 2))), t = x - 1."""
        rest = Interval(plus(x, (-1, 0), self.bits, False), plus(x, (-1, 0), self.bits, True))
        inside = self.times(rest, self.plus(rest, Interval((2, 0), (2, 0))))
        return self.call("log1p", self.plus(rest, self.call("sqrt", inside)))

    def _atanh(self, x: Dyadic) -> Interval:
        """log(1 + 2x/(1 - x)) / 2."""
        if x[0] < 0:
            return self.negated(self._atanh(negated(x)))
        lower = Interval(plus(ONE, negated(x), self.bits, False), plus(ONE, negated(x), self.bits, True))
        return self._halved(self.call("log1p", self.over(Interval((x[0], x[1] + 1), (x[0], x[1] + 1)), lower)))

    def _asin(self, x: Dyadic) -> Interval:
        if x[0] < 0:
            return self.negated(self._asin(negated(x)))
        if compare(x, ONE) == 0:
            return self._halved(self.pi())
        up, down = (Interval(plus(ONE, v, self.bits, False), plus(ONE, v, self.bits, True)) for v in (x, negated(x)))
        return self.call("atan", self.over(Interval(x, x), self.call("sqrt", self.times(up, down))))

    def _acos(self, x: Interval) -> Interval:
        return self._make(self._acos_at(x.high).low, self._acos_at(x.low).high)

    def _acos_at(self, x: Dyadic) -> Interval:
        """2·atan √((1 - x)/(1 + x))."""
        if compare(x, (-1, 0)) == 0:
            return self.pi()
        up, down = (Interval(plus(ONE, v, self.bits, False), plus(ONE, v, self.bits, True)) for v in (x, negated(x)))
        half = self.call("atan", self.call("sqrt", self.over(down, up)))
        return Interval((half.low[0], half.low[1] + 1), (half.high[0], half.high[1] + 1))

    def _cosh(self, x: Interval) -> Interval:
        size = self.magnitude_of(x)
        ends = []
        for end in (size.low, size.high):
            large = self._exp(end)
            ends.append(self._halved(self.plus(large, self.inverse(large))))
        return Interval(greatest(ends[0].low, ONE), ends[1].high)

    def _erfc(self, x: Interval) -> Interval:
        return self._make(self._erfc_at(x.high).low, self._erfc_at(x.low).high)

    def _erfc_at(self, x: Dyadic) -> Interval:
        if x[0] > 0 and magnitude(x) > 19:
            return Interval(ZERO, (1, -CAP))  # e^(-x²) where x² >= 2^38
        return self._at(elementary.erfc, x)

    def _circular(self, x: Interval, which: int) -> Interval:
        """Sine (0) or cosine (1): the value at one end, and no further from it than the other end is (|f'| <= 1)."""
        low, high = elementary.sine_cosine(x.low, self.bits)[which]
        span = plus(x.high, negated(x.low), self.bits, True)
        low, high = plus(low, negated(span), self.bits, False), plus(high, span, self.bits, True)
        return Interval(greatest(low, (-1, 0)), least(high, ONE))

    def _tan(self, x: Interval) -> Interval:
        return self.over(self._circular(x, 0), self._circular(x, 1))


@lru_cache(maxsize=64)
def precise(bits: int) -> Reals:
    return Reals(bits)


class _Formulas:
    """Formulas of the table of functions on intervals."""

    def __init__(self, reals: Reals) -> None:
        self.pi, self.plus, self.times, self.call = reals.pi, reals.plus, reals.times, reals.call
        self.number, self.inverse = reals.of, reals.inverse

    def power(self, base: Interval, exponent: Fraction) -> Interval:
        if exponent != -1:
            raise Unbounded(f"the power {exponent} in a formula")
        return self.inverse(base)


_UNIT = Interval(ONE, ONE)
_DOMAIN: dict[str, tuple[Dyadic | None, Dyadic | None]] = {
    "sqrt": (ZERO, None),
    "log": (ZERO, None),
    "log1p": ((-1, 0), None),
    "asin": ((-1, 0), ONE),
    "acos": ((-1, 0), ONE),
    "acosh": (ONE, None),
    "atanh": ((-1, 0), ONE),
}
_INCREASING: dict[str, Callable[[Reals, Dyadic], Interval]] = {
    "exp": Reals._exp,
    "log": Reals._log,
    "expm1": Reals._expm1,
    "log1p": Reals._log1p,
    "sqrt": Reals._sqrt,
    "sigmoid": Reals._sigmoid,
    "tanh": Reals._tanh,
    "sinh": Reals._sinh,
    "asinh": Reals._asinh,
    "acosh": Reals._acosh,
    "atanh": Reals._atanh,
    "asin": Reals._asin,
    "atan": lambda r, x: r._at(elementary.atan, x),
    "erf": lambda r, x: r._at(elementary.erf, x),
}
_OTHERS: dict[str, Callable[[Reals, Interval], Interval]] = {
    "acos": Reals._acos,
    "cosh": Reals._cosh,
    "erfc": Reals._erfc,
    "sin": lambda r, x: r._circular(x, 0),
    "cos": lambda r, x: r._circular(x, 1),
    "tan": Reals._tan,
}
