"""One operation on exact numbers: `Fraction`, `Residue`, `Ball`, or the floats inf, -inf, nan.

NaN also stands for "not decided": whatever depends on it is dropped from a witness, never used. A condition is True,
False or None (not decided).
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any, Protocol

from redalg.graph.formats import cast_fraction
from redalg.graph.functions import FUNCTIONS
from redalg.numeric.exact_numbers import arithmetic, exact_root
from redalg.verdicts.balls import Ball, BallNumbers, hull
from redalg.verdicts.residues import FieldNumbers, NeedsEnclosures, Residue

Number = Any  # Fraction | Residue | Ball | float (not finite)
Truth = bool | None
NAN = math.nan
RATIONAL = arithmetic(10)  # of which maps that keep rationals are taken
LONGEST = 1 << 15  # bits of a rational; a longer one is not decided: nobody reads a witness that has it


class Numbers(Protocol):
    """A mode of evaluation: what becomes of values that are not rational."""

    name: str
    price: int  # of one operation, where one on rationals costs 1

    def unary(self, op: str, argument: Any) -> Any: ...

    def root(self, base: Any, exponent: Any) -> Any: ...


def is_nan(value: Number) -> bool:
    return isinstance(value, float) and math.isnan(value)


def is_finite(value: Number) -> bool:
    return not isinstance(value, float)


def unary(op: str, x: Number, numbers: Numbers) -> Number:
    """One function of one argument.

    >>> unary("relu", Fraction(-2), FieldNumbers())
    Fraction(0, 1)
    """
    if isinstance(x, float):
        return NAN if math.isnan(x) else FUNCTIONS[op].limits[x > 0]
    if isinstance(x, (bool, int)):
        x = Fraction(x)
    if isinstance(x, Fraction):
        if FUNCTIONS[op].exact:
            return RATIONAL.unary(op, x)
        if x in FUNCTIONS[op].values:
            return FUNCTIONS[op].values[x]
    if op in ("conj", "re"):
        return x
    if isinstance(x, Ball) and op in ("sign", "floor", "ceil"):
        return _constant_on(op, x)
    return numbers.unary(op, x)


def _constant_on(op: str, x: Ball) -> Number:
    lo, hi = (RATIONAL.unary(op, end) for end in x.bounds())
    return lo if lo == hi else NAN


def cast(x: Number, name: str) -> Number:
    """One rounding to a narrow format; undecided where an enclosure straddles a rounding boundary."""
    if isinstance(x, float):
        return x
    if isinstance(x, Residue):
        raise NeedsEnclosures("rounding")
    if isinstance(x, Ball):
        lo, hi = (cast_fraction(end, name) for end in x.bounds())
        return lo if lo == hi else NAN
    return cast_fraction(Fraction(x), name)


def power(base: Number, exponent: Number, numbers: Numbers) -> Number:
    """base**exponent, exact for rational roots that are rational."""
    if is_nan(base) or is_nan(exponent):
        return NAN
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        return _integer_power(base, int(exponent))
    if isinstance(base, float) or isinstance(exponent, float):
        return _infinite_power(base, exponent)
    if isinstance(base, Fraction):
        if base == 0:
            positive = order(Fraction(0), exponent) == -1
            return Fraction(0) if positive else NAN
        if base < 0:
            return NAN
        root = exact_root(base, exponent.denominator) if isinstance(exponent, Fraction) else None
        if root is not None:
            return root**exponent.numerator
    return numbers.root(base, exponent)


def _integer_power(base: Number, exponent: int) -> Number:
    if isinstance(base, float):
        if exponent < 0:
            return Fraction(0)
        return math.inf if base > 0 or exponent % 2 == 0 else -math.inf
    if exponent < 0 and (base == 0 if isinstance(base, (int, Fraction)) else _may_vanish(base)):
        return NAN
    if not isinstance(base, (int, Fraction)):
        return base**exponent
    base = Fraction(base)
    return NAN if (bits(base) - 1) * abs(exponent) > LONGEST else base**exponent


def bits(value: Number) -> int:
    """The length of a rational; 0 of every other number, whose length its mode bounds."""
    return max(value.numerator.bit_length(), value.denominator.bit_length()) if type(value) is Fraction else 0


def weight(length: int) -> int:
    """What an operation on so many bits costs beyond one on few: divisions and common divisors take their square."""
    return length * length >> 19


def _short(value: Fraction) -> Number:
    return NAN if max(value.numerator.bit_length(), value.denominator.bit_length()) > LONGEST else value


def _may_vanish(base: Residue | Ball) -> bool:
    return base.contains_zero() if isinstance(base, Ball) else base.r == 0


def _infinite_power(base: Number, exponent: Number) -> Number:
    if isinstance(base, float) and isinstance(exponent, Fraction) and base > 0:
        return math.inf if exponent > 0 else Fraction(0)
    return NAN


def times(a: Number, b: Number) -> Number:
    """a·b; 0·inf is NaN as in IEEE arithmetic."""
    if type(a) is Fraction and type(b) is Fraction:  # derivatives are mostly 0 and 1
        return a if not a.numerator or b == 1 else b if not b.numerator or a == 1 else _short(a * b)
    if isinstance(a, float) or isinstance(b, float):
        if a != a or b != b:
            return NAN
        signs = [_sign(a), _sign(b)]
        return NAN if None in signs or 0 in signs else math.copysign(math.inf, signs[0] * signs[1])  # type: ignore[operator]
    return a * b


def plus(a: Number, b: Number) -> Number:
    if type(a) is Fraction and type(b) is Fraction:
        return b if not a.numerator else a if not b.numerator else _short(a + b)
    if isinstance(a, float):
        return a + b if isinstance(b, float) else a
    return b if isinstance(b, float) else a + b


def _sign(x: Number) -> int | None:
    if is_nan(x):
        return None
    if isinstance(x, Residue):
        raise NeedsEnclosures("a sign")
    return x.sign() if isinstance(x, Ball) else (x > 0) - (x < 0)


def order(a: Number, b: Number) -> int | None:
    """-1, 0 or 1 as a is below, equal to or above b; None where that is not decided or a value is NaN."""
    if type(a) is Fraction and type(b) is Fraction:
        x, y = a.numerator * b.denominator, b.numerator * a.denominator
        return (x > y) - (x < y)
    if a is b and not is_nan(a):
        return 0
    if is_nan(a) or is_nan(b):
        return None
    if isinstance(a, Residue) or isinstance(b, Residue):
        raise NeedsEnclosures("a comparison")
    if isinstance(a, float) or isinstance(b, float):
        u, v = (n if isinstance(n, float) else 0.0 for n in (a, b))
        return (u > v) - (u < v)
    if isinstance(a, Ball) or isinstance(b, Ball):
        return (a - b).sign()
    return (a > b) - (a < b)


_HOLDS: dict[str, tuple[int, ...]] = {"lt": (-1,), "le": (-1, 0), "eq": (0,), "ne": (-1, 1)}


def compare(op: str, a: Number, b: Number) -> Truth:
    sign = order(a, b)
    return None if sign is None else sign in _HOLDS[op]


def conjunction(a: Truth, b: Truth) -> Truth:
    if a is False or b is False:
        return False
    return None if a is None or b is None else bool(a) and bool(b)


def negation(a: Truth) -> Truth:
    return None if a is None else not a


def disjunction(a: Truth, b: Truth) -> Truth:
    return negation(conjunction(negation(a), negation(b)))


def select(condition: Truth, then: Number, other: Number) -> Number:
    if condition is None:
        return then if then is other else NAN
    return then if condition else other


def extremum(op: str, a: Number, b: Number) -> Number:
    """The larger (`maximum`) or smaller of two numbers; an enclosure of it where their order is not decided."""
    if is_nan(a) or is_nan(b):
        return NAN
    sign = order(a, b)
    if sign is None:
        return hull(op, a, b)
    return a if sign * (1 if op == "maximum" else -1) >= 0 else b


class Formulas:
    """What formulas and folds need of an arithmetic, in a mode of evaluation."""

    add = staticmethod(lambda terms: functools.reduce(plus, terms))
    mul = staticmethod(lambda factors: functools.reduce(times, factors))
    number = staticmethod(Fraction)
    extremum = staticmethod(extremum)
    conjunction = staticmethod(lambda truths: functools.reduce(conjunction, truths))
    disjunction = staticmethod(lambda truths: functools.reduce(disjunction, truths))

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def special(self, name: str) -> Number:
        return special(name, self.numbers)

    def power(self, base: Number, exponent: Number) -> Number:
        return power(base, exponent, self.numbers)

    def unary(self, name: str, x: Number) -> Number:
        return unary(name, x, self.numbers)


def special(name: str, numbers: Numbers) -> Number:
    """oo, -oo, nan, pi, e; the imaginary unit is outside the numbers decided here."""
    if name in ("oo", "-oo"):
        return math.inf if name == "oo" else -math.inf
    if name == "e":
        return numbers.unary("exp", Fraction(1))
    if name == "pi" and isinstance(numbers, BallNumbers):
        return numbers.unary("acos", Fraction(-1))
    if name == "pi":
        raise NeedsEnclosures("pi")
    return NAN


__all__ = ["FieldNumbers", "Number", "Numbers", "Truth", "cast", "compare", "extremum", "order", "power", "unary"]
