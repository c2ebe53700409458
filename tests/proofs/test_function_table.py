"""The judges' table of functions: against 50 digits, and against the engine's."""

import random
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from redalg.graph import functions as engine
from redalg.proofs.document.functions import FUNCTIONS, RISES, STRICTLY, evaluated
from redalg.proofs.numbers.enclosure import Interval, Reals
from redalg.proofs.numbers.values import Numbers

mpmath.mp.dps = 50
DEFINED = {  # what has no name in mpmath
    "relu": lambda t: t if t > 0 else mpmath.mpf(0),
    "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "softplus": lambda t: mpmath.log1p(mpmath.exp(t)),
    "log2": lambda t: mpmath.log(t, 2),
    "exp2": lambda t: mpmath.mpf(2) ** t,
    "abs": abs,
}
DOMAINS = {"": (-6, 6), "lt a": (1e-6, 6), "lt 1+a": (-0.999, 6), "le a-1": (1, 6)}


def value(name: str, t: mpmath.mpf) -> mpmath.mpf:
    return DEFINED.get(name, getattr(mpmath, name, None))(t)


def points(name: str) -> list[mpmath.mpf]:
    low, high = DOMAINS.get(FUNCTIONS[name].domain, (-0.999, 0.999))
    rng = random.Random(name)
    return sorted(mpmath.mpf(rng.uniform(low, high)) for _ in range(40))


class Digits:
    """Formulas of the table in mpmath."""

    @staticmethod
    def number(value: Fraction) -> mpmath.mpf:
        return mpmath.mpf(value.numerator) / value.denominator

    @staticmethod
    def pi() -> mpmath.mpf:
        return +mpmath.pi

    @staticmethod
    def plus(a: Any, b: Any) -> mpmath.mpf:
        return a + b

    @staticmethod
    def times(a: Any, b: Any) -> mpmath.mpf:
        return a * b

    @staticmethod
    def power(base: Any, exponent: Fraction) -> mpmath.mpf:
        return base ** Digits.number(exponent)

    @staticmethod
    def call(name: str, x: Any) -> mpmath.mpf:
        return value(name, x)


def near(a: mpmath.mpf, b: mpmath.mpf, digits: int = 44) -> bool:
    return bool(abs(a - b) <= mpmath.mpf(10) ** -digits * max(1, abs(b)))


def test_both_tables_have_the_same_functions() -> None:
    assert set(FUNCTIONS) == {name for name, row in engine.FUNCTIONS.items() if row.word}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_facts(name: str) -> None:
    row, xs = FUNCTIONS[name], points(name)
    values = [value(name, x) for x in xs]
    if row.sign:
        assert min(values) > 0 if row.sign == "positive" else min(values) >= 0
    steps = [b - a for a, b in zip(values, values[1:], strict=False)]
    assert row.rises != STRICTLY or min(steps) > 0
    assert row.rises != RISES or min(steps) >= 0
    for x in xs if row.mirror else ():
        assert near(value(name, -x), {"-y": -value(name, x), "1 - y": 1 - value(name, x)}[row.mirror])
    for x, y in row.at:
        if "oo" not in y:
            assert near(value(name, Digits.number(Fraction(x))), Digits.number(Fraction(y)))
    for end, far in ((row.low, -200), (row.high, 200)):
        if end in ("oo", "-oo"):
            assert value(name, mpmath.mpf(far)) * (1 if end == "oo" else -1) > 4
        elif end not in ("nan", "?"):
            assert near(value(name, mpmath.mpf(far)), Digits.number(Fraction(end)), 40)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_formulas(name: str) -> None:
    row = FUNCTIONS[name]
    for x in points(name):
        for text in filter(None, (row.written, row.enclosed)):
            assert near(evaluated(text, Digits, x), value(name, x))
        if row.derivative:
            with mpmath.workdps(80):
                h = mpmath.mpf(10) ** -30
                slope = (value(name, x + h) - value(name, x - h)) / (2 * h)
            assert near(evaluated(row.derivative, Digits, x, value(name, x)), slope, 30)


@pytest.mark.parametrize("name", sorted(n for n, row in FUNCTIONS.items() if not row.whole))
@pytest.mark.parametrize("width", [0, 3])
def test_enclosures_contain_the_value(name: str, width: int) -> None:
    reals = Reals(200)
    for x in points(name)[::3]:
        middle = Fraction(float(x))
        ends = [middle - Fraction(width, 2**20), middle + Fraction(width, 2**20)]
        if FUNCTIONS[name].domain == "le a-1" and ends[0] < 1:
            continue
        found = reals.call(name, reals.between(*ends))
        assert type(found) is Interval
        low, high = (Digits.number(v) for v in reals.ends(found))
        for t in (*ends, middle):
            true = value(name, Digits.number(t))
            assert low - mpmath.mpf(10) ** -45 * abs(true) <= true <= high + mpmath.mpf(10) ** -45 * abs(true)
        assert width or high - low <= mpmath.mpf(2) ** -150 * max(1, abs(high))


@pytest.mark.parametrize("name", sorted(n for n, row in FUNCTIONS.items() if row.rises == STRICTLY))
def test_a_rising_function_never_falls_between_numbers_far_apart(name: str) -> None:
    numbers = Numbers()
    low, high = DOMAINS.get(FUNCTIONS[name].domain, (-1, 1))
    found = [numbers.map(name, Fraction(x)) for x in (low, (low + high) / 2, high)]
    assert all(numbers.order(a, b) == -1 for a, b in zip(found, found[1:], strict=False))
