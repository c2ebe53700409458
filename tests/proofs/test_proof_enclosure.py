"""Enclosures contain the value (mpmath with far more digits says which) and are narrow."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from redalg.proofs.numbers import dyadic
from redalg.proofs.numbers.enclosure import CAP, Interval, Reals, Unbounded, Undefined

BITS = 224
REALS = Reals(BITS)
MP = mpmath.MPContext()
MP.prec = 1400


def mp(x: Fraction) -> Any:
    return MP.mpf(x.numerator) / x.denominator


def end(x: tuple[int, int]) -> Any:
    return MP.ldexp(MP.mpf(x[0]), x[1])


def point(x: Fraction) -> Interval:
    """The dyadic x as an interval without width."""
    found = REALS.of(x)
    assert dyadic.compare(found.low, found.high) == 0
    return found


def draws(seed: str, count: int, magnitudes: tuple[int, ...]) -> Iterator[Fraction]:
    draw = random.Random(seed)
    for _ in range(count):
        yield Fraction(draw.randint(-(2**50), 2**50), 2**50) * Fraction(2) ** draw.choice(magnitudes)


def check(found: Interval, value: Any, size: Any, note: Any, lost: int = 6) -> None:
    assert end(found.low) <= value <= end(found.high), note
    assert end(found.high) - end(found.low) <= MP.ldexp(abs(size), lost - BITS), note


REFERENCE: dict[str, Callable[[Any], Any]] = {
    "log": MP.ln,
    "sigmoid": lambda v: 1 / (1 + MP.exp(-v)),
    **{
        name: getattr(MP, name)
        for name in "exp sqrt log1p expm1 tanh erf erfc sin cos tan sinh cosh asin acos atan asinh acosh atanh".split()
    },
}
DOMAIN: dict[str, Callable[[Fraction], bool]] = {
    "log": lambda x: x > 0,
    "sqrt": lambda x: x >= 0,
    "log1p": lambda x: x > -1,
    "acosh": lambda x: x >= 1,
    **dict.fromkeys(("asin", "acos"), lambda x: abs(x) <= 1),
    "atanh": lambda x: abs(x) < 1,
}


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_function_at_a_point_is_enclosed_to_nearly_all_bits(name: str) -> None:
    inside = DOMAIN.get(name, lambda x: True)
    points = [*draws(name, 90, (0, 0, 1, 3, 4, -3, -20, -90)), Fraction(0), Fraction(1), Fraction(-1)]
    points += [sign * (1 + Fraction(s, 2**k)) for sign in (1, -1) for k in (3, 40, 90) for s in (1, -1)]
    hit = 0
    for x in points:
        if not inside(x) or (name == "log" and x == 1):
            continue
        value = REFERENCE[name](mp(x))
        flat = MP.mpf(2) ** -10 if name in ("sin", "cos", "tan") else 0  # absolute precision near a zero
        size = max(abs(value), flat, abs(mp(x)) if name == "tan" and abs(value) > 1 else 0)
        lost = 14 if name == "tan" else 8
        check(REALS.call(name, point(x)), value, size, (name, x), lost)
        hit += 1
    assert hit >= 20


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_function_of_an_interval_encloses_every_point_of_it(name: str) -> None:
    inside, draw, hit = DOMAIN.get(name, lambda x: True), random.Random(name), 0
    for x in draws(name + "wide", 90, (0, 1, 3)):
        wide = x + abs(x) * Fraction(draw.randint(0, 40), 32)
        if not (inside(x) and inside(wide)):
            continue
        try:
            found = REALS.call(name, Interval(point(x).low, point(wide).high))
        except Unbounded:
            assert name in ("tan", "log")
            continue
        for k in range(5):
            value = REFERENCE[name](mp(x + (wide - x) * Fraction(k, 4)))
            slack = MP.ldexp(max(1, abs(value)), -1200)  # mpmath's own rounding
            assert end(found.low) - slack <= value <= end(found.high) + slack, (name, x, wide, k)
        hit += 1
    assert hit >= 10


def test_the_four_operations_round_outwards() -> None:
    numbers = list(draws("four", 80, (0, 4, -70, 200)))
    thirds = [x / 3 for x in numbers]
    for x, y in zip(thirds, reversed(thirds), strict=True):
        a, b = REALS.of(x), REALS.of(y)
        assert REALS.contains(REALS.plus(a, b), x + y) and REALS.contains(REALS.times(a, b), x * y)
        assert REALS.contains(REALS.times(a, a), x * x) and REALS.contains(REALS.negated(a), -x)
        check(REALS.times(a, b), mp(x * y), mp(x * y), (x, y))
        if y:
            assert REALS.contains(REALS.over(a, b), x / y)
            check(REALS.over(a, b), mp(x / y), mp(x / y), (x, y))


def test_operations_on_wide_intervals_contain_every_result() -> None:
    draw = random.Random(5)
    for _ in range(300):
        a, b = (sorted(Fraction(draw.randint(-20, 20), 4) for _ in range(2)) for _ in range(2))
        x, y = REALS.between(*a), REALS.between(*b)
        for s in (a[0], a[1], sum(a) / 2):
            for t in (b[0], b[1], sum(b) / 2):
                assert REALS.contains(REALS.times(x, y), s * t) and REALS.contains(REALS.plus(x, y), s + t)
                if b[0] > 0 or b[1] < 0:
                    assert REALS.contains(REALS.over(x, y), s / t)
            for n in (1, 2, 3, 6, 7):
                assert REALS.contains(REALS.power(x, Fraction(n)), s**n)
            assert REALS.contains(REALS.magnitude_of(x), abs(s))
        top = REALS.times(x, y)
        assert max(s * t for s in a for t in b) == dyadic.as_fraction(top.high)
        assert min(s * t for s in a for t in b) == dyadic.as_fraction(top.low)


@pytest.mark.parametrize("exponent", ["2", "-3", "17", "1/2", "-3/2", "1/3", "-7/5", "1001", "355/113"])
def test_powers(exponent: str) -> None:
    y = Fraction(exponent)
    for x in draws(exponent, 30, (0, 1, 5, -9)):
        base = x if y.denominator == 1 else abs(x)
        if base:
            value = MP.power(mp(base), mp(y))
            check(REALS.power(point(base), y), value, value, (base, y), 16)


def test_a_power_with_an_enclosed_exponent() -> None:
    for x, y in zip(draws("b", 20, (0, 3)), draws("e", 20, (0, 6)), strict=True):
        value = MP.power(mp(abs(x)), mp(y / 3))
        check(REALS.power(point(abs(x)), REALS.of(y / 3)), value, value * 64, (x, y), 16)


def test_a_root_of_an_interval_from_zero_starts_at_zero() -> None:
    for y in (Fraction(1, 2), Fraction(1, 3), Fraction(3, 2)):
        found = REALS.power(REALS.between(Fraction(0), Fraction(8)), y)
        assert found.low == dyadic.ZERO
        assert REALS.contains(found, Fraction(1)) and dyadic.compare(found.high, (32, 0)) <= 0


def test_huge_and_tiny_arguments_are_widened_or_refused() -> None:
    huge, tiny = Fraction(10) ** 580, Fraction(1, 10**580)
    below = REALS.call("exp", REALS.of(-huge))
    assert below.low == dyadic.ZERO and dyadic.magnitude(below.high) <= -CAP + 1
    with pytest.raises(Unbounded):
        REALS.call("exp", REALS.of(huge))
    assert REALS.contains(REALS.call("sin", REALS.of(huge)), Fraction(0))
    assert REALS.contains(REALS.call("erf", REALS.of(huge)), Fraction(1))
    for name in ("sin", "tan", "expm1", "log1p", "sinh", "asinh", "atan", "asin", "atanh", "tanh"):
        found = REALS.call(name, REALS.of(tiny))
        check(found, REFERENCE[name](mp(tiny)), mp(tiny), name)
    for name in ("log", "asinh", "atan", "tanh", "sigmoid", "erfc", "acosh", "sqrt", "log1p"):
        found = REALS.call(name, REALS.of(huge))
        if name not in ("erfc", "tanh", "sigmoid"):
            check(found, REFERENCE[name](mp(huge)), REFERENCE[name](mp(huge)), name)


def test_repeated_squaring_ends_in_a_refusal_and_not_in_a_long_number() -> None:
    x, y = REALS.of(Fraction(3)), REALS.of(Fraction(1, 3))
    with pytest.raises(Unbounded):
        for _ in range(100):
            x = REALS.times(x, x)
    for _ in range(100):
        y = REALS.times(y, y)
    assert y.low == dyadic.ZERO and dyadic.magnitude(y.high) >= -2 * CAP
    with pytest.raises(Unbounded):
        REALS.power(REALS.of(Fraction(3)), Fraction(10**300))
    with pytest.raises(Unbounded):
        REALS.power(REALS.of(Fraction(3)), Fraction(10**300, 7))


@pytest.mark.parametrize(
    ("name", "low", "high", "error"),
    [
        ("log", -2, -1, Undefined),
        ("log", -1, 1, Unbounded),
        ("log", 0, 1, Unbounded),
        ("sqrt", -2, -1, Undefined),
        ("sqrt", -1, 4, Unbounded),
        ("asin", 2, 3, Undefined),
        ("acos", -3, 0, Unbounded),
        ("acosh", 0, Fraction(1, 2), Undefined),
        ("atanh", 2, 3, Undefined),
        ("atanh", 0, 1, Unbounded),
        ("log1p", -3, -2, Undefined),
        ("tan", 1, 2, Unbounded),
    ],
)
def test_outside_a_domain_nothing_is_returned(name: str, low: Any, high: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        REALS.call(name, REALS.between(Fraction(low), Fraction(high)))


def test_a_quotient_by_an_interval_around_zero_is_refused() -> None:
    with pytest.raises(Unbounded):
        REALS.inverse(REALS.between(Fraction(-1), Fraction(1)))
    with pytest.raises(Unbounded):
        REALS.power(REALS.between(Fraction(0), Fraction(1)), Fraction(-1, 2))


@pytest.mark.parametrize("bits", [64, 600, 1500])
def test_the_precision_is_chosen(bits: int) -> None:
    reals, context = Reals(bits), mpmath.MPContext()
    context.prec = 2 * bits + 200
    for name in ("exp", "log", "sin", "atan", "erf", "erfc", "tanh"):
        found = reals.call(name, reals.of(Fraction(7, 4)))
        value = {"log": context.ln}.get(name, getattr(context, name))(context.mpf(7) / 4)
        low, high = (context.ldexp(context.mpf(e[0]), e[1]) for e in (found.low, found.high))
        assert low <= value <= high and high - low <= context.ldexp(abs(value), 8 - bits)
        assert high > low


def test_dyadics_compare_without_being_written_out() -> None:
    assert dyadic.compare((1, 10**15), (3, 10**15 - 1)) == -1
    assert dyadic.compare((-1, 10**15), (1, -(10**15))) == -1
    assert dyadic.compare((8, 0), (1, 3)) == 0
    assert dyadic.plus((1, 10**12), (-1, 0), 50, False)[1] < 10**12  # rounded down, below 2^(10^12)
    assert dyadic.compare(dyadic.plus((1, 10**12), (1, 0), 50, True), (1, 10**12)) == 1
    with pytest.raises(OverflowError):
        dyadic.as_fraction((1, 10**12))
