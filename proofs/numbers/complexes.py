"""Complex values: pairs of real ones, for specs over complex tensors.

A `Complex` has two finite parts and an imaginary part that is not exactly 0 (such a number is its real part). Functions
are the principal ones; what is not modelled here, and what is not finite, is `UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING

from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.proofs.numbers.value_maps import ONE, UNKNOWN, ZERO, Value, is_finite

if TYPE_CHECKING:
    from redalg.proofs.numbers.values import Numbers

HALF, TWO = Fraction(1, 2), Fraction(2)


class Complex:
    """re + i·im."""

    __slots__ = ("re", "im")

    def __init__(self, re: Value, im: Value) -> None:
        self.re, self.im = re, im

    def __repr__(self) -> str:
        return f"({self.re}, {self.im})"


def joined(re: Value, im: Value) -> Value:
    if not (is_finite(re) and is_finite(im)):
        return UNKNOWN
    return re if type(im) is Fraction and im == 0 else Complex(re, im)


def parts(x: Value) -> tuple[Value, Value]:
    return (x.re, x.im) if type(x) is Complex else (x, ZERO)


def total(n: Numbers, values: Sequence[Value]) -> Value:
    re, im = zip(*map(parts, values), strict=True)
    return joined(n.add(re), n.add(im))


def product(n: Numbers, values: Sequence[Value]) -> Value:
    return reduce(lambda a, b: _times(n, a, b), values, ONE)


def _times(n: Numbers, a: Value, b: Value) -> Value:
    (p, q), (r, s) = parts(a), parts(b)
    if type(b) is not Complex:
        return joined(n.mul([p, r]), n.mul([q, r]))
    re = n.add([n.mul([p, r]), n.mul([-ONE, q, s])])
    return joined(re, n.add([n.mul([p, s]), n.mul([q, r])]))


def scaled(n: Numbers, factor: Value, x: Value) -> Value:
    re, im = parts(x)
    return joined(n.mul([factor, re]), n.mul([factor, im]))


def square_size(n: Numbers, x: Value) -> Value:
    return n.add([n.power(part, TWO) for part in parts(x)])


def inverse(n: Numbers, x: Value) -> Value:
    if type(x) is not Complex:
        return n.power(x, -ONE)
    scale = n.power(square_size(n, x), -ONE)
    return joined(n.mul([x.re, scale]), n.mul([-ONE, x.im, scale]))


def power(n: Numbers, base: Value, exponent: Value) -> Value:
    """Whole powers by multiplication, others as exp(exponent·log base)."""
    if type(exponent) is Fraction and exponent.denominator == 1 and abs(exponent) < 1 << 12:
        result: Value = ONE
        for bit in bin(abs(exponent.numerator))[2:]:
            result = _times(n, result, result)
            result = _times(n, result, base) if bit == "1" else result
        return inverse(n, result) if exponent < 0 else result
    if not (type(base) is Complex or n.order(ZERO, base) == -1):
        return UNKNOWN
    return function(n, "exp", _times(n, exponent, function(n, "log", base)))


def function(n: Numbers, name: str, x: Value) -> Value:
    if type(x) is not Complex:
        return n.map(name, x)
    rule = _FUNCTIONS.get(name)
    if rule is not None:
        return rule(n, x)
    written = FUNCTIONS[name].written
    return evaluated(written, _Formulas(n), x) if written else UNKNOWN


class _Formulas:
    """Formulas of the table of functions on complex values."""

    def __init__(self, n: Numbers) -> None:
        self.n = n

    def number(self, value: Fraction) -> Value:
        return value

    def pi(self) -> Value:
        return self.n.special("pi")

    def plus(self, a: Value, b: Value) -> Value:
        return total(self.n, [a, b])

    def times(self, a: Value, b: Value) -> Value:
        return _times(self.n, a, b)

    def power(self, base: Value, exponent: Fraction) -> Value:
        return power(self.n, base, exponent)

    def call(self, name: str, x: Value) -> Value:
        return function(self.n, name, x)


def equal(n: Numbers, op: str, a: Value, b: Value) -> Value:
    same = n.conjunction(n.compare("eq", p, q) for p, q in zip(parts(a), parts(b), strict=True))
    return same if op == "eq" else n.negation(same)


def _angle(n: Numbers, x: Complex) -> Value:
    """In (-π, π]."""
    side, above = n.order(x.re, ZERO), n.order(x.im, ZERO)
    if side == 1:
        return n.map("atan", n.mul([x.im, n.power(x.re, -ONE)]))
    if above not in (-1, 1):
        return UNKNOWN
    quarter = n.mul([n.special("pi"), HALF if above > 0 else -HALF])
    return n.add([quarter, n.mul([-ONE, n.map("atan", n.mul([x.re, n.power(x.im, -ONE)]))])])


def _exp(n: Numbers, x: Complex) -> Value:
    size = n.map("exp", x.re)
    return joined(n.mul([size, n.map("cos", x.im)]), n.mul([size, n.map("sin", x.im)]))


def _log(n: Numbers, x: Complex) -> Value:
    return joined(n.mul([HALF, n.map("log", square_size(n, x))]), _angle(n, x))


def _both(n: Numbers, x: Complex, sign: Fraction) -> Value:
    """(e^x + sign·e^-x) / 2."""
    large = _exp(n, x)
    return scaled(n, HALF, total(n, [large, scaled(n, sign, inverse(n, large))]))


_FUNCTIONS: dict[str, Callable[[Numbers, Complex], Value]] = {
    "exp": _exp,
    "log": _log,
    "abs": lambda n, x: n.power(square_size(n, x), HALF),
    "conj": lambda n, x: joined(x.re, n.mul([-ONE, x.im])),
    "re": lambda n, x: x.re,
    "im": lambda n, x: x.im,
    "sigmoid": lambda n, x: inverse(n, total(n, [ONE, function(n, "exp", scaled(n, -ONE, x))])),
    "tanh": lambda n, x: _times(n, _both(n, x, -ONE), inverse(n, _both(n, x, ONE))),
    "cos": lambda n, x: joined(
        n.mul([n.map("cos", x.re), n.map("cosh", x.im)]), n.mul([-ONE, n.map("sin", x.re), n.map("sinh", x.im)])
    ),
    "sin": lambda n, x: joined(
        n.mul([n.map("sin", x.re), n.map("cosh", x.im)]), n.mul([n.map("cos", x.re), n.map("sinh", x.im)])
    ),
}
