"""Arithmetic on exact numbers: a Fraction as long as everything is rational, an mpmath float otherwise.

Infinities and NaN are mpmath's. The conventions are IEEE's (inf - inf, 0·inf and 0/0 are NaN, c/0 is infinite), with
one zero only; a real function outside its domain gives NaN, not a complex number.
"""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Iterable
from fractions import Fraction
from math import isqrt
from typing import Any

import mpmath

from redalg.errors import RedalgError
from redalg.graph.formats import INTEGERS, cast_fraction
from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS

Number = Any  # bool, Fraction, mpf or mpc
_RATIONAL = (Fraction, bool)  # in the order in which they are met
_GUARD = 50
_PERIODIC = frozenset({"sin", "cos", "tan"})
_SETTLED = frozenset({"expm1", "sinh", "cosh", "tanh", "erf", "erfc"})  # what they are far out is their limit
_LARGEST_LOGARITHM = 64  # bits of a logarithm whose exponential is still written out
_LARGEST_EXPONENT = 100_000  # bits of a rational power, and of an exponential's argument, that are still written out


@functools.lru_cache(maxsize=16)
def arithmetic(digits: int) -> ExactArithmetic:
    """The arithmetic that works with ``digits`` decimal digits and 50 more to spare."""
    return ExactArithmetic(digits)


class ExactArithmetic:
    """Operations on exact numbers at one precision. Holds its own mpmath context: nothing global is changed."""

    def __init__(self, digits: int) -> None:
        self.mp = mpmath.MPContext()
        self.mp.dps = digits + _GUARD
        self.inf, self.ninf, self.nan = self.mp.inf, self.mp.ninf, self.mp.nan

    # --- conversion --------------------------------------------------------------------------------------------------

    def admit(self, value: Any) -> Number:
        """A Python, NumPy, mpmath or SymPy number as an exact one; floats become the rationals they hold."""
        if isinstance(value, _RATIONAL):
            return value
        if hasattr(value, "_mpf_"):
            return self.mp.make_mpf(value._mpf_)
        if hasattr(value, "_mpc_"):
            return self.mp.make_mpc(value._mpc_)
        if hasattr(value, "dtype") and value.dtype.kind == "b":
            return bool(value)
        if isinstance(value, numbers.Rational):
            return Fraction(int(value.numerator), int(value.denominator))
        if hasattr(value, "imag") and isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real):
            return self.mp.mpc(self.inexact(self.admit(value.real)), self.inexact(self.admit(value.imag)))
        wide = float(value)
        return Fraction(wide) if abs(wide) < float("inf") else self.mp.mpf(wide)

    def inexact(self, x: Number) -> Any:
        """As an mpmath number."""
        if isinstance(x, _RATIONAL):
            return self.mp.mpf(x.numerator) / x.denominator
        return x

    def number(self, value: Fraction) -> Fraction:
        return value

    def special(self, name: str) -> Number:
        if name == "i":
            return self.mp.mpc(0, 1)
        return +getattr(self.mp, name) if name in ("pi", "e") else self.mp.mpf(name.replace("oo", "inf"))

    def rational(self, x: Any) -> Fraction:
        """A finite mpf as the rational it holds; magnitudes outside 2^±5000 are cut there."""
        sign, mantissa, exponent, bits = x._mpf_
        if not mantissa:
            return Fraction(0)
        if abs(exponent + bits) > 5000:
            value = Fraction(2) ** (5000 if exponent > 0 else -5000)
        else:
            value = Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
        return -value if sign else value

    @staticmethod
    def public(x: Number) -> Number:
        """The number as a caller sees it: Fraction, bool, or mpmath's own mpf or mpc with all its digits."""
        if hasattr(x, "_mpf_"):
            return mpmath.mp.make_mpf(x._mpf_)
        return mpmath.mp.make_mpc(x._mpc_) if hasattr(x, "_mpc_") else x

    # --- predicates --------------------------------------------------------------------------------------------------

    def is_nan(self, x: Number) -> bool:
        return not isinstance(x, _RATIONAL) and bool(self.mp.isnan(x))

    def is_infinite(self, x: Number) -> bool:
        return not isinstance(x, _RATIONAL) and bool(self.mp.isinf(x))

    def is_complex(self, x: Number) -> bool:
        return hasattr(x, "_mpc_")

    def compare(self, op: str, a: Number, b: Number) -> bool:
        if not (isinstance(a, _RATIONAL) and isinstance(b, _RATIONAL)):
            a, b = self.inexact(a), self.inexact(b)
        if op in ("eq", "ne"):
            return bool(a == b) is (op == "eq")
        return bool(a < b) if op == "lt" else bool(a <= b)

    conjunction, disjunction, negation = staticmethod(all), staticmethod(any), staticmethod(operator.not_)

    # --- arithmetic --------------------------------------------------------------------------------------------------

    def add(self, terms: Iterable[Number]) -> Number:
        return self._folded(terms, Fraction(0), operator.add)

    def mul(self, factors: Iterable[Number]) -> Number:
        return self._folded(factors, Fraction(1), operator.mul)

    def _folded(self, values: Iterable[Number], start: Fraction, op: Callable[[Any, Any], Any]) -> Number:
        exact, rest = None, []
        for v in values:
            if type(v) is Fraction:
                exact = v if exact is None else op(exact, v)
            elif isinstance(v, _RATIONAL):
                exact = Fraction(v) if exact is None else op(exact, Fraction(v))
            else:
                rest.append(v)
        if not rest:
            return start if exact is None else exact
        return functools.reduce(op, rest if exact is None or exact == start else [*rest, self.inexact(exact)])

    def extremum(self, op: str, a: Number, b: Number) -> Number:
        """The larger (or smaller) value; the first one where they are equal, NaN if one is."""
        if self.is_nan(a) or self.is_nan(b):
            return a if self.is_nan(a) else b
        low, high = (a, b) if op == "maximum" else (b, a)
        return b if self.compare("lt", low, high) else a

    def power(self, base: Number, exponent: Number) -> Number:
        base = Fraction(base) if isinstance(base, bool) else base
        exponent = Fraction(exponent) if isinstance(exponent, bool) else exponent
        if exponent == 0 or base == 1:
            return Fraction(1)
        if self.is_nan(base) or self.is_nan(exponent):
            return self.nan
        if self.is_complex(base) or self.is_complex(exponent):
            return self._complex_power(base, exponent)
        if self.is_infinite(exponent):
            return self._infinite_power(abs(base), exponent > 0)
        return self._real_power(base, exponent)

    def _real_power(self, base: Number, exponent: Number) -> Number:
        if base == 0:
            return Fraction(0) if exponent > 0 else self.inf
        whole = exponent.denominator == 1 if isinstance(exponent, Fraction) else self.mp.isint(exponent)
        if base < 0 and not whole:
            return self.nan
        if self.is_infinite(base):
            size = self.inf if exponent > 0 else Fraction(0)
            return -size if base < 0 and self._is_odd(exponent) else size
        return self._finite_power(base, exponent)

    def _complex_power(self, base: Number, exponent: Number) -> Number:
        if base == 0:
            return base if isinstance(exponent, Fraction) and exponent > 0 else self.nan
        return self.mp.power(self.inexact(base), self.inexact(exponent))

    def _infinite_power(self, size: Number, upwards: bool) -> Number:
        if size == 1:
            return Fraction(1)
        return self.inf if (size > 1) is upwards else Fraction(0)

    def _finite_power(self, base: Number, exponent: Number) -> Number:
        if isinstance(base, Fraction) and isinstance(exponent, Fraction):
            bits = base.numerator.bit_length() + base.denominator.bit_length()
            if abs(exponent) * bits < _LARGEST_EXPONENT:
                root = exact_root(base, exponent.denominator)
                if root is not None:
                    return root**exponent.numerator
        if self.mp.mag(self.inexact(exponent)) > _LARGEST_LOGARITHM:
            return self._power_far_out(base, exponent)
        if isinstance(exponent, Fraction) and exponent.denominator == 1:
            return self.inexact(base) ** exponent.numerator
        if exponent == Fraction(1, 2):
            return self.mp.sqrt(self.inexact(base))
        return self.mp.power(self.inexact(base), self.inexact(exponent))

    def _power_far_out(self, base: Number, exponent: Number) -> Number:
        """A power whose logarithm is not written out: 1, 0 or infinite."""
        size = self._infinite_power(abs(base), exponent > 0)
        return -size if base < 0 and self._is_odd(exponent) else size

    def _is_odd(self, whole: Number) -> bool:
        if isinstance(whole, Fraction):
            return whole.numerator % 2 == 1
        _, mantissa, exponent, _ = whole._mpf_
        return exponent == 0 and mantissa % 2 == 1

    # --- maps --------------------------------------------------------------------------------------------------------

    def unary(self, name: str, x: Number) -> Number:
        x = Fraction(x) if isinstance(x, bool) else x
        if self.is_nan(x):
            return x
        if name in _RATIONAL_MAPS:
            return _RATIONAL_MAPS[name](self, x)
        row = FUNCTIONS[name]
        if isinstance(x, Fraction) and x in row.values:
            return self._of_table(row.values[x])
        value = self._function(name, self.inexact(x))
        return self.nan if self.is_complex(value) and not self.is_complex(x) else value

    def _of_table(self, value: Fraction | float) -> Number:
        return value if isinstance(value, Fraction) else self.mp.mpf(value)

    def _function(self, name: str, x: Any) -> Number:
        mp, row = self.mp, FUNCTIONS[name]
        far = None if self.is_complex(x) else self._far_out(name, x)
        if far is not None:
            return far
        if not row.mpmath:
            at_infinity = not self.is_complex(x) and mp.isinf(x)
            formula = row.computed or row.equal
            return self._of_table(row.limits[x > 0]) if at_infinity else evaluated(formula, self, x)
        if name in _PERIODIC and mp.isinf(x):
            return self.nan
        try:
            return getattr(mp, row.mpmath)(x)
        except (ZeroDivisionError, ValueError):
            return self.nan

    def _far_out(self, name: str, x: Any) -> Number | None:
        """What is not calculated of a real number with so large an exponent: limits, and what is refused."""
        mp = self.mp
        if name == "exp" and (mp.isinf(x) or mp.mag(x) > _LARGEST_LOGARITHM):
            return Fraction(0) if x < 0 else self.inf
        if mp.isinf(x):
            return None
        if name in _SETTLED and mp.mag(x) > _LARGEST_LOGARITHM:
            return self._of_table(FUNCTIONS[name].limits[x > 0])
        if name in _PERIODIC and mp.mag(x) > _LARGEST_EXPONENT:
            raise _too_far(name, mp.mag(x))
        return None

    def cast(self, x: Number, name: str) -> Number:
        if name == "bool":
            return x != 0
        if self.is_nan(x):
            return x
        if self.is_complex(x):
            return self.mp.mpc(*(self.inexact(self.cast(part, name)) for part in (x.real, x.imag)))
        if self.is_infinite(x):
            if name in INTEGERS:
                return Fraction(INTEGERS[name][x > 0])
            return x if name != "float8_e4m3fn" else Fraction(448 if x > 0 else -448)
        rounded = cast_fraction(Fraction(x) if isinstance(x, _RATIONAL) else self.rational(x), name)
        return rounded if isinstance(rounded, Fraction) else self.mp.mpf(rounded)


def _too_far(name: str, bits: int) -> RedalgError:
    return RedalgError(
        f"{name} of a number of {bits} bits",
        "exact arithmetic (ra.reference(exact=True), or a witness)",
        f"its period is subtracted with as many bits of pi, and a budget is {_LARGEST_EXPONENT}",
        "pass smaller numbers, or exact=False",
    )


def exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational degree-th root of a positive rational (any sign for degree 1), or None."""
    if degree == 1:
        return base
    roots = [_integer_root(n, degree) for n in (base.numerator, base.denominator)]
    return Fraction(roots[0], roots[1]) if roots[0] is not None and roots[1] is not None else None


def _integer_root(n: int, degree: int) -> int | None:
    if n.bit_length() <= degree:  # less than 2^degree
        return n if n < 2 else None
    root = isqrt(n) if degree == 2 else 1 << -(-n.bit_length() // degree)  # from above, by Newton's steps
    while (less := ((degree - 1) * root + n // root ** (degree - 1)) // degree) < root:
        root = less
    return root if root**degree == n else None


def _sign(a: ExactArithmetic, x: Number) -> Number:
    if a.is_complex(x):
        return x / abs(x) if x != 0 else Fraction(0)
    return Fraction((x > 0) - (x < 0))


def _whole(a: ExactArithmetic, x: Number, up: bool) -> Number:
    if a.is_infinite(x):
        return x
    value = x if isinstance(x, Fraction) else None
    if value is not None:
        return Fraction(-((-value) // 1) if up else value // 1)
    return (a.mp.ceil if up else a.mp.floor)(x)


def _pow2(a: ExactArithmetic, x: Number) -> Number:
    """The largest power of 2 that is at most |x|; 1 where there is none."""
    if a.is_infinite(x) or a.is_nan(x) or x == 0:
        return Fraction(1)
    size = abs(x)
    if isinstance(size, Fraction):
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
    else:
        exponent = int(a.mp.mag(size)) - 1
        if abs(exponent) > _LARGEST_EXPONENT:
            return a.mp.ldexp(1, exponent)
    power = Fraction(2) ** exponent
    return power / 2 if power > size else power


_RATIONAL_MAPS: dict[str, Callable[[ExactArithmetic, Number], Number]] = {
    "abs": lambda a, x: abs(x),
    "sign": _sign,
    "relu": lambda a, x: x if x > 0 else Fraction(0),
    "floor": lambda a, x: _whole(a, x, up=False),
    "ceil": lambda a, x: _whole(a, x, up=True),
    "conj": lambda a, x: a.mp.conj(x) if a.is_complex(x) else x,
    "re": lambda a, x: x.real,
    "im": lambda a, x: x.imag if a.is_complex(x) else Fraction(0),
    "pow2": _pow2,
}
