"""Every row of the tables of facts, by sampling with 50 digits."""

import random

import mpmath
import pytest

from redalg.facts import ADDITION, EXPONENTIAL, FUNCTIONS

mpmath.mp.dps = 50

VALUES = {
    "relu": lambda t: t if t > 0 else mpmath.mpf(0),
    "sigmoid": lambda t: 1 / (1 + mpmath.exp(-t)),
    "abs": abs,
    "sign": mpmath.sign,
    "conj": mpmath.conj,
    "re": mpmath.re,
    "im": mpmath.im,
}
DOMAINS = {
    "": (-6, 6),
    "positive": (1e-6, 6),
    "nonnegative": (0, 6),
    "unit": (-0.999, 0.999),
    "above_one": (1, 6),
    "above_minus_one": (-0.999, 6),
}


def value(name: str, t: mpmath.mpf) -> mpmath.mpf:
    return VALUES.get(name, getattr(mpmath, name, None))(t)


def points(name: str, count: int = 60) -> list[mpmath.mpf]:
    low, high = DOMAINS[FUNCTIONS[name].domain]
    rng = random.Random(name)
    return sorted(mpmath.mpf(rng.uniform(low, high)) for _ in range(count))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_direction_and_strictness_are_what_the_function_does(name: str) -> None:
    fact, xs = FUNCTIONS[name], points(name)
    steps = [value(name, b) - value(name, a) for a, b in zip(xs, xs[1:], strict=False)]
    if fact.direction == 0:
        if name in ("re", "conj"):  # complex functions, for which the real line says nothing
            return
        assert not all(s > 0 for s in steps) and not all(s < 0 for s in steps)
        return
    assert all(s * fact.direction >= 0 for s in steps)
    assert all(s != 0 for s in steps) == fact.strict


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


@pytest.mark.parametrize("name", sorted(ADDITION))
def test_addition_theorems(name: str) -> None:
    rng = random.Random(name)
    for _ in range(40):
        s, t = mpmath.mpf(rng.uniform(-5, 5)), mpmath.mpf(rng.uniform(-5, 5))
        total = sum(c * value(f, s) * value(h, t) for c, f, h in ADDITION[name])
        assert abs(value(name, s + t) - total) <= mpmath.mpf(10) ** -45


@pytest.mark.parametrize("name", sorted(EXPONENTIAL))
def test_exponential_forms(name: str) -> None:
    for x in points(name):
        total = sum(mpmath.mpf(n) / d * mpmath.exp(rate * x) for n, d, rate in EXPONENTIAL[name])
        assert abs(value(name, x) - total) <= mpmath.mpf(10) ** -44
