"""Rounding to the number formats a cast may name: to nearest, ties to even, once.

A binary format has p bits of significand (the leading one included), a least exponent (of its normal numbers) and a
largest number. IEEE formats overflow to infinity; float8_e4m3fn saturates, and so do integers.
"""

from __future__ import annotations

from fractions import Fraction

#: name: significand bits, least exponent of a normal number, largest finite number, whether it saturates
FLOATS: dict[str, tuple[int, int, Fraction, bool]] = {
    "float8_e4m3fn": (4, -6, Fraction(448), True),
    "float8_e5m2": (3, -14, Fraction(57344), False),
    "float16": (11, -14, Fraction(65504), False),
    "bfloat16": (8, -126, Fraction((2**8 - 1) * 2**120), False),
    "float32": (24, -126, Fraction((2**24 - 1) * 2**104), False),
    "float64": (53, -1022, Fraction((2**53 - 1) * 2**971), False),
}
INTEGERS: dict[str, tuple[int, int]] = {
    **{f"int{n}": (-(1 << n - 1), (1 << n - 1) - 1) for n in (4, 8, 16, 32, 64)},
    **{f"uint{n}": (0, (1 << n) - 1) for n in (4, 8, 16, 32, 64)},
}


def rounded(x: Fraction, name: str) -> Fraction | float:
    """The number of the format nearest to x.

    >>> rounded(Fraction(5, 2), "int8"), rounded(Fraction(1000), "float8_e4m3fn"), rounded(Fraction(10**5), "float16")
    (Fraction(2, 1), Fraction(448, 1), inf)
    """
    if name in INTEGERS:
        low, high = INTEGERS[name]
        return Fraction(max(low, min(high, _nearest(x.numerator, x.denominator))))
    bits, least, largest, saturates = FLOATS[name]
    if not x:
        return x
    n, d = abs(x.numerator), x.denominator
    top = n.bit_length() - d.bit_length()  # 2^(top-1) < |x| < 2^(top+1)
    if (n << -top if top < 0 else n) < (d << top if top > 0 else d):
        top -= 1
    unit = max(top, least) - bits + 1  # the spacing of the format there is 2^unit
    count = _nearest(n << -unit, d) if unit < 0 else _nearest(n, d << unit)
    value = Fraction(count) * Fraction(2) ** unit
    if value > largest:
        return (largest if x > 0 else -largest) if saturates else float("inf" if x > 0 else "-inf")
    return value if x > 0 else -value


def _nearest(n: int, d: int) -> int:
    """The integer nearest to n/d, the even one of two."""
    whole, rest = divmod(n, d)
    return whole + (2 * rest > d or (2 * rest == d and whole % 2 == 1))
