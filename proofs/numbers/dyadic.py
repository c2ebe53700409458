"""Dyadic numbers m·2^e with directed rounding: the endpoints of enclosures.

A number is a pair of integers (m, e). Every operation takes the number of bits of the result and a direction; what it
returns is never on the wrong side of the exact value. No operation shifts by an exponent that is not bounded first.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

Dyadic = tuple[int, int]
ZERO: Dyadic = (0, 0)
ONE: Dyadic = (1, 0)
LONGEST = 200_000  # bits of an exponent's shift that is still written out


def trim(m: int, e: int, bits: int, up: bool) -> Dyadic:
    """m·2^e rounded to `bits` bits, downwards or upwards."""
    excess = m.bit_length() - bits
    if excess <= 0:
        return m, e
    return (-(-m >> excess) if up else m >> excess), e + excess


def magnitude(x: Dyadic) -> int:
    """The k with 2^(k-1) <= |x| < 2^k, for x other than 0."""
    return x[0].bit_length() + x[1]


def negated(x: Dyadic) -> Dyadic:
    return -x[0], x[1]


def sign(x: Dyadic) -> int:
    return (x[0] > 0) - (x[0] < 0)


def compare(a: Dyadic, b: Dyadic) -> int:
    """-1, 0 or 1 as a is below, equal to or above b."""
    s, t = sign(a), sign(b)
    if s != t or s == 0:
        return (s > t) - (s < t)
    difference = magnitude(a) - magnitude(b)
    if difference:
        return s if difference > 0 else -s
    shift = a[1] - b[1]  # at most the length of a mantissa, because the magnitudes agree
    x, y = (a[0] << shift, b[0]) if shift >= 0 else (a[0], b[0] << -shift)
    return (x > y) - (x < y)


def compare_rational(a: Dyadic, b: Fraction) -> int:
    """-1, 0 or 1 as a is below, equal to or above b, exactly."""
    return compare((a[0] * b.denominator, a[1]), (b.numerator, 0))


def plus(a: Dyadic, b: Dyadic, bits: int, up: bool) -> Dyadic:
    if not a[0] or not b[0]:
        return trim(*(a if a[0] else b), bits, up)
    if a[1] < b[1]:
        a, b = b, a
    shift = a[1] - b[1]
    if shift > 2 * bits + b[0].bit_length():  # b lies far below the last bit of the result: only its sign counts
        far = 2 * bits
        return trim((a[0] << far) + (int(b[0] > 0) if up else -int(b[0] < 0)), a[1] - far, bits, up)
    return trim((a[0] << shift) + b[0], b[1], bits, up)


def times(a: Dyadic, b: Dyadic, bits: int, up: bool) -> Dyadic:
    return trim(a[0] * b[0], a[1] + b[1], bits, up)


def over(a: Dyadic, b: Dyadic, bits: int, up: bool) -> Dyadic:
    """a / b for b other than 0."""
    shift = max(0, bits + 2 + b[0].bit_length() - a[0].bit_length())
    n = a[0] << shift
    quotient = -(-n // b[0]) if up else n // b[0]
    return trim(quotient, a[1] - b[1] - shift, bits, up)


def root(a: Dyadic, bits: int, up: bool) -> Dyadic:
    """√a for a >= 0."""
    if not a[0]:
        return ZERO
    shift = max(0, 2 * bits + 4 - a[0].bit_length())
    shift += (a[1] - shift) % 2
    n = a[0] << shift
    found = isqrt(n)
    return trim(found + (up and found * found != n), (a[1] - shift) // 2, bits, up)


def least(a: Dyadic, b: Dyadic) -> Dyadic:
    return a if compare(a, b) <= 0 else b


def greatest(a: Dyadic, b: Dyadic) -> Dyadic:
    return a if compare(a, b) >= 0 else b


def extreme_products(*pairs: tuple[Dyadic, Dyadic]) -> tuple[tuple[Dyadic, Dyadic], tuple[Dyadic, Dyadic]]:
    """The pairs with the least and the greatest product."""
    products = [(a[0] * b[0], a[1] + b[1]) for a, b in pairs]
    low = high = 0
    for i in range(1, len(pairs)):
        low = i if compare(products[i], products[low]) < 0 else low
        high = i if compare(products[i], products[high]) > 0 else high
    return pairs[low], pairs[high]


def of_fraction(x: Fraction, bits: int, up: bool) -> Dyadic:
    return over((x.numerator, 0), (x.denominator, 0), bits, up)


def as_fraction(x: Dyadic) -> Fraction:
    """The rational a dyadic is; OverflowError where it is too long to be written out."""
    m, e = x
    if abs(e) > LONGEST:
        raise OverflowError(f"2^{e}")
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)


def fixed(x: Dyadic, w: int) -> tuple[int, int]:
    """floor and ceiling of x·2^w, for x of bounded magnitude."""
    m, e = x
    shift = e + w
    if shift >= 0:
        if shift > LONGEST:
            raise OverflowError(f"2^{shift}")
        return m << shift, m << shift
    return m >> -shift, -(-m >> -shift)
