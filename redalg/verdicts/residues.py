"""Arithmetic modulo a prime that turns "is this closed number zero?" into a machine-word question.

Let R be the ring generated over Q by i, e^r and e^{ir} for rational r. By Lindemann-Weierstrass e^{1/L} and e^{i/L} are
algebraically independent over Q for every L, so R is a Laurent polynomial ring and may be mapped into F_p at will::

    i -> sqrt(-1)        e^(a/b) -> g^(a/b mod q)        e^(ia/b) -> t^(a/b mod q)

with p = 4q + 1, q prime, g and t of order q. A *non-zero* image proves that the number is not zero; an image of zero
proves nothing. Square roots, logarithms and exponentials of anything but rationals lie outside R and are refused.
"""

from __future__ import annotations

import functools
import operator
from fractions import Fraction

from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS

P = 2305843009213691357
Q = (P - 1) // 4
I_ROOT = pow(2, Q, P)  # 2 is a non-residue, so its Q-th power is a primitive fourth root of one
G = pow(1234577, 4, P)
T = pow(7654321, 4, P)


class NeedsEnclosures(ArithmeticError):
    """The number lies outside the ring above (or has to be compared): only an enclosure can decide."""


def inverse(a: int) -> int:
    """The inverse modulo P. Raises `ZeroDivisionError` for multiples of P.

    >>> inverse(3) * 3 % P
    1
    """
    if a % P == 0:
        raise ZeroDivisionError("division by a number whose image is zero")
    return pow(a, -1, P)


def to_residue(number: Fraction | int | Residue) -> int:
    """The image of a rational (or of a `Residue`) in F_p.

    >>> to_residue(Fraction(1, 2)) * 2 % P
    1
    """
    if isinstance(number, Residue):
        return number.r
    n, d = number.numerator, number.denominator
    return n % P if d == 1 else n * inverse(d) % P


def _rational_power(base: int, exponent: Fraction) -> int:
    if exponent.denominator % Q == 0:
        raise NeedsEnclosures("a denominator divisible by the group order")
    return pow(base, exponent.numerator * pow(exponent.denominator, -1, Q) % Q, P)


class Residue:
    """The image of a number of R in F_p. Mixes with `Fraction`; cannot be ordered.

    >>> e2, e3 = Residue.exp(Fraction(2)), Residue.exp(Fraction(3))
    >>> (e2 * e3 - Residue.exp(Fraction(5))).r
    0
    """

    __slots__ = ("r",)

    def __init__(self, r: int) -> None:
        self.r = r % P

    @staticmethod
    def exp(argument: Fraction) -> Residue:
        """The image of e^argument."""
        return Residue(_rational_power(G, argument))

    @staticmethod
    def cis(argument: Fraction) -> Residue:
        """The image of e^(i·argument)."""
        return Residue(_rational_power(T, argument))

    def __repr__(self) -> str:
        return f"Residue({self.r})"

    def __add__(self, other: Fraction | Residue) -> Residue:
        return Residue(self.r + to_residue(other))

    __radd__ = __add__

    def __neg__(self) -> Residue:
        return Residue(-self.r)

    def __sub__(self, other: Fraction | Residue) -> Residue:
        return Residue(self.r - to_residue(other))

    def __rsub__(self, other: Fraction | Residue) -> Residue:
        return Residue(to_residue(other) - self.r)

    def __mul__(self, other: Fraction | Residue) -> Residue:
        return Residue(self.r * to_residue(other))

    __rmul__ = __mul__

    def __truediv__(self, other: Fraction | Residue) -> Residue:
        return Residue(self.r * inverse(to_residue(other)))

    def __rtruediv__(self, other: Fraction | Residue) -> Residue:
        return Residue(to_residue(other) * inverse(self.r))

    def __pow__(self, exponent: int) -> Residue:
        return Residue(pow(inverse(self.r) if exponent < 0 else self.r, abs(exponent), P))


class FieldNumbers:
    """The mode of evaluation in which transcendental values of rational arguments become residues."""

    name = "field"
    price = 1

    def unary(self, op: str, argument: Fraction | Residue) -> Residue:
        """exp, sine and their rational combinations at a rational; anything else raises `NeedsEnclosures`."""
        equal = FUNCTIONS[op].equal
        if not isinstance(argument, Fraction) or op not in _RULES and not equal:
            raise NeedsEnclosures(f"{op} of {argument}")
        found: Residue = _RULES[op](argument) if op in _RULES else evaluated(equal, _Formulas, argument)
        return found

    def root(self, base: Fraction | Residue, exponent: Fraction | Residue) -> Residue:
        raise NeedsEnclosures(f"{base} to the power {exponent}")


class _Formulas:
    """Formulas of the table of functions at rationals, in the field."""

    number = staticmethod(Fraction)
    add = staticmethod(lambda terms: functools.reduce(operator.add, terms))
    mul = staticmethod(lambda factors: functools.reduce(operator.mul, factors))

    @staticmethod
    def special(name: str) -> Residue:
        raise NeedsEnclosures(name)

    @staticmethod
    def extremum(op: str, a: Fraction | Residue, b: Fraction | Residue) -> Residue:
        raise NeedsEnclosures(op)

    @staticmethod
    def power(base: Fraction | Residue, exponent: Fraction | Residue) -> Fraction | Residue:
        if not isinstance(exponent, Fraction) or exponent.denominator != 1:
            raise NeedsEnclosures(f"{base} to the power {exponent}")
        return base ** int(exponent)

    @staticmethod
    def unary(name: str, x: Fraction | Residue) -> Residue:
        return FieldNumbers().unary(name, x)


def _sin(r: Fraction) -> Residue:
    return (Residue.cis(r) - Residue.cis(-r)) / Residue(2 * I_ROOT)


def _cos(r: Fraction) -> Residue:
    return (Residue.cis(r) + Residue.cis(-r)) * Fraction(1, 2)


_RULES = {"exp": Residue.exp, "sin": _sin, "cos": _cos}
