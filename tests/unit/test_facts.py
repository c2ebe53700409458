"""Every row of the table of functions, by sampling with 50 digits."""

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS, INTEGERS, SAMPLES

mpmath.mp.dps = 50

# What has no name in mpmath, as its definition.
VALUES = {
    "relu": lambda t: t if t > 0 else mpmath.mpf(0),
    "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "softplus": lambda t: mpmath.log1p(mpmath.exp(t)),
    "log2": lambda t: mpmath.log(t, 2),
    "exp2": lambda t: mpmath.mpf(2) ** t,
    "abs": abs,
    "sign": mpmath.sign,
    "conj": mpmath.conj,
    "re": mpmath.re,
    "im": mpmath.im,
    "pow2": lambda t: mpmath.mpf(2) ** mpmath.floor(mpmath.log(abs(t), 2)),
}
REAL_LINE = ("re", "conj")  # complex functions, of which the real line says nothing


def value(name: str, t: mpmath.mpf) -> mpmath.mpf:
    return VALUES.get(name, getattr(mpmath, name, None))(t)


def points(name: str, count: int = 60) -> list[mpmath.mpf]:
    low, high = SAMPLES[FUNCTIONS[name].domain]
    rng = random.Random(name)
    return sorted(mpmath.mpf(rng.uniform(low, high)) for _ in range(count))


class Digits:
    """Formulas of the table in mpmath."""

    @staticmethod
    def number(value: Fraction) -> mpmath.mpf:
        return mpmath.mpf(value.numerator) / value.denominator

    @staticmethod
    def special(name: str) -> mpmath.mpf:
        return +getattr(mpmath, name)

    @staticmethod
    def add(terms: Sequence[Any]) -> mpmath.mpf:
        return mpmath.fsum(terms)

    @staticmethod
    def mul(factors: Sequence[Any]) -> mpmath.mpf:
        return mpmath.fprod(factors)

    @staticmethod
    def power(base: Any, exponent: Any) -> mpmath.mpf:
        return base**exponent

    @staticmethod
    def extremum(op: str, a: Any, b: Any) -> mpmath.mpf:
        return max(a, b) if op == "maximum" else min(a, b)

    @staticmethod
    def unary(name: str, x: Any) -> mpmath.mpf:
        return value(name, x)


def near(a: mpmath.mpf, b: mpmath.mpf, digits: int = 44) -> bool:
    return bool(abs(a - b) <= mpmath.mpf(10) ** -digits * max(1, abs(b)))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_direction_and_strictness_are_what_the_function_does(name: str) -> None:
    fact, xs = FUNCTIONS[name], points(name)
    steps = [value(name, b) - value(name, a) for a, b in zip(xs, xs[1:], strict=False)]
    if fact.direction == 0:
        if name in REAL_LINE:
            return
        assert not all(s > 0 for s in steps) and not all(s < 0 for s in steps)
        return
    assert all(s * fact.direction >= 0 for s in steps)
    assert all(s != 0 for s in steps) == fact.strict


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].pieces))
def test_pieces(name: str) -> None:
    xs = points(name)
    steps = [(a, value(name, b) - value(name, a)) for a, b in zip(xs, xs[1:], strict=False) if a > 0 or b < 0]
    assert all(s * FUNCTIONS[name].pieces[int(a > 0)] > 0 for a, s in steps)


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].derivative))
def test_derivatives_and_slopes(name: str) -> None:
    row = FUNCTIONS[name]
    for x in points(name, 20):
        with mpmath.workdps(80):
            step = mpmath.mpf(10) ** -30
            slope = (value(name, x + step) - value(name, x - step)) / (2 * step)
        given = evaluated(row.derivative, Digits, x, value(name, x))
        assert near(given, slope, 30)
        assert not row.slope or abs(given) <= Digits.number(Fraction(row.slope))
    if row.kinks:
        kink = mpmath.mpf(3 if row.kinks == INTEGERS else 0)
        step = mpmath.mpf(10) ** -20
        left, here, right = (value(name, kink + k * step) for k in (-1, 0, 1))
        assert abs(right - left) > 1e-3 or not near((here - left) / step, (right - here) / step, 10)


@pytest.mark.parametrize("field", ["equal", "computed"])
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_formulas_are_the_function(name: str, field: str) -> None:
    text = getattr(FUNCTIONS[name], field)
    for x in points(name) if text else ():
        assert near(evaluated(text, Digits, x), value(name, x))


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].at))
def test_exact_values_and_limits(name: str) -> None:
    row = FUNCTIONS[name]
    for x, y in row.values.items():
        if abs(y) < float("inf"):
            assert near(value(name, Digits.number(x)), Digits.number(y))
        else:
            inside = Digits.number(x) + mpmath.mpf(10) ** -40
            assert value(name, inside) * mpmath.sign(y) > 50
    for far, limit in zip((-200, 200), row.limits, strict=True):
        if limit == limit and abs(limit) < float("inf"):
            assert near(value(name, mpmath.mpf(far)), Digits.number(limit), 40)
        elif limit == limit:
            assert value(name, mpmath.mpf(far)) * limit > 4


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].parity))
def test_parity(name: str) -> None:
    sign = 1 if FUNCTIONS[name].parity == "even" else -1
    for x in points(name):
        assert abs(value(name, -x) - sign * value(name, x)) <= mpmath.mpf(10) ** -45


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].range))
def test_range(name: str) -> None:
    found = [value(name, x) for x in points(name)]
    assert min(found) >= 0
    if FUNCTIONS[name].range == "positive":
        assert min(found) > 0


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].addition))
def test_addition_theorems(name: str) -> None:
    rng = random.Random(name)
    for _ in range(40):
        s, t = mpmath.mpf(rng.uniform(-5, 5)), mpmath.mpf(rng.uniform(-5, 5))
        total = sum(c * value(f, s) * value(h, t) for c, f, h in FUNCTIONS[name].addition)
        assert abs(value(name, s + t) - total) <= mpmath.mpf(10) ** -45


@pytest.mark.parametrize("name", sorted(n for n in FUNCTIONS if FUNCTIONS[n].exponential))
def test_exponential_forms(name: str) -> None:
    for x in points(name):
        terms = FUNCTIONS[name].exponential
        total = sum(Digits.number(Fraction(c)) * mpmath.exp(evaluated(rate, Digits, x) * x) for c, rate in terms)
        assert abs(value(name, x) - total) <= mpmath.mpf(10) ** -44
