"""The narrow number formats a cast may name, and the exact rounding of a rational to them.

A cast changes values, never the dtype an evaluator computes in: ``cast(x, "float8_e4m3fn")`` is the nearest number of
that format, held in float32 or float64 (or as a Fraction). Rounding is to nearest, ties to even, once, straight from
the wide value. Past the largest number ``float8_e4m3fn`` saturates, infinities included (as hardware conversions do),
the other floats give infinity, integers saturate; NaN stays NaN, also through an integer cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class FloatFormat:
    """A binary format: ``bits`` of fraction, exponent of the least normal number, largest finite number."""

    bits: int
    least_exponent: int
    largest: Fraction
    saturates: bool = False


def _ieee(bits: int, greatest_exponent: int) -> FloatFormat:
    return FloatFormat(bits, 1 - greatest_exponent, (2 - Fraction(1, 2**bits)) * Fraction(2) ** greatest_exponent)


FLOATS: dict[str, FloatFormat] = {
    "float8_e4m3fn": FloatFormat(3, -6, Fraction(448), saturates=True),
    "float8_e5m2": _ieee(2, 15),
    "bfloat16": _ieee(7, 127),
    "float16": _ieee(10, 15),
    "float32": _ieee(23, 127),
    "float64": _ieee(52, 1023),
}
INTEGERS: dict[str, tuple[int, int]] = {
    **{f"int{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (4, 8, 16, 32, 64)},
    **{f"uint{b}": (0, 2**b - 1) for b in (4, 8, 16, 32, 64)},
}
NAMES = frozenset(FLOATS) | frozenset(INTEGERS) | {"bool"}


def cast_fraction(x: Fraction, name: str) -> Fraction | float:
    """The same for an exact rational; ``inf`` of the right sign where the format overflows to infinity.

    >>> cast_fraction(Fraction(449), "float8_e4m3fn"), cast_fraction(Fraction(5, 2), "int8")
    (Fraction(448, 1), Fraction(2, 1))
    """
    if name in INTEGERS:
        low, high = INTEGERS[name]
        return Fraction(min(max(round(x), low), high))
    form = FLOATS[name]
    if x == 0:
        return x
    unit = Fraction(2) ** (max(_exponent(abs(x)), form.least_exponent) - form.bits)
    y = round(x / unit) * unit
    if abs(y) <= form.largest:
        return y
    limit: Fraction | float = form.largest if form.saturates else float("inf")
    return limit if x > 0 else -limit


def _exponent(x: Fraction) -> int:
    """floor(log2 x) of a positive rational, exactly."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1
