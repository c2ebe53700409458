"""The functions of the language on values that need no enclosure: exact maps, known values, limits at infinity.

What a value is, is said in `redalg.proofs.numbers.values`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import TYPE_CHECKING, Any

from redalg.proofs.document.functions import FUNCTIONS
from redalg.proofs.document.work import spend
from redalg.proofs.numbers.enclosure import Interval

if TYPE_CHECKING:
    from redalg.proofs.numbers.values import Numbers

Value = Any  # bool | Fraction | Interval | float | Complex | Unknown
INF, NEG_INF, NAN = float("inf"), float("-inf"), float("nan")
ZERO, ONE = Fraction(0), Fraction(1)


class Unknown:
    """A value of which nothing is known, or a truth that is not decided."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an undecided truth is no bool")


UNKNOWN = Unknown()


def is_nan(x: Value) -> bool:
    return type(x) is float and x != x


def is_finite(x: Value) -> bool:
    """Certainly a finite number (or a truth)."""
    return x is not UNKNOWN and type(x) is not float


def exact_root(base: Fraction, degree: int) -> Fraction | None:
    """The rational root of a rational (positive unless the degree is 1), or None."""
    if degree == 1:
        return base
    roots = [_whole_root(n, degree) for n in (base.numerator, base.denominator)]
    return Fraction(roots[0], roots[1]) if roots[0] is not None and roots[1] is not None else None


def _whole_root(n: int, degree: int) -> int | None:
    if degree == 2:
        found = isqrt(n)
        return found if found * found == n else None
    length = n.bit_length()
    spend(length // degree * (1 + (length * length >> 23)))
    low, high = 0, 1 << -(-length // degree)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= n else (low, middle - 1)
    return low if low**degree == n else None


def _sign(numbers: Numbers, x: Value) -> Value:
    if type(x) is Interval:
        sign = x.sign()
        return numbers.reals.between(-ONE, ONE) if sign is None else Fraction(sign)
    return Fraction((x > 0) - (x < 0))


def _whole(numbers: Numbers, x: Value, up: bool) -> Value:
    if type(x) is Fraction:
        return Fraction(-((-x) // 1) if up else x // 1)
    try:
        low, high = (Fraction(-((-v) // 1) if up else v // 1) for v in numbers.reals.ends(x))
    except OverflowError:
        return UNKNOWN
    return low if low == high else numbers.reals.between(low, high)


def _size(numbers: Numbers, x: Value) -> Value:
    return abs(x) if type(x) is Fraction else numbers.enclosed("abs", numbers.reals.magnitude_of, x)


EXACT: dict[str, Callable[[Numbers, Value], Value]] = {
    "abs": _size,
    "sign": _sign,
    "relu": lambda n, x: n.extremum("max", [x, ZERO]),
    "floor": lambda n, x: _whole(n, x, up=False),
    "ceil": lambda n, x: _whole(n, x, up=True),
    "conj": lambda n, x: x,
    "re": lambda n, x: x,
    "im": lambda n, x: ZERO,
}
_SPECIAL = {"oo": INF, "-oo": NEG_INF, "nan": NAN, "?": UNKNOWN}


def _limit(text: str) -> Value:
    return _SPECIAL[text] if text in _SPECIAL else Fraction(text)


KNOWN: dict[tuple[str, Fraction], Value] = {
    (name, Fraction(x)): _limit(y) for name, row in FUNCTIONS.items() for x, y in row.at
}
LIMITS: dict[str, tuple[Value, Value]] = {  # at oo and at -oo
    name: (_limit(row.high), _limit(row.low)) for name, row in FUNCTIONS.items()
}
