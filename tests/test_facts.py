"""The engine's tables of facts about functions, each row by sampling: direction, strictness, parity, range, sums."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import pytest

from redalg.facts import ADDITION, EXPONENTIAL, FUNCTIONS
from redalg.graph import UNARY
from redalg.testing.arithmetic import Digits

NUMBER = Digits(60)
# where each domain is sampled; the real line in pieces near 0, where kinks are, and far out
DOMAINS = {
    "": (-9, 9), "positive": (0, 9), "nonnegative": (0, 9), "unit": (-1, 1), "above_one": (1, 9),
    "above_minus_one": (-1, 9),
}  # fmt: skip
REAL = sorted(set(FUNCTIONS) - {"conj", "re", "im"})


def samples(domain: str, seed: int, count: int = 60) -> list[Fraction]:
    low, high = DOMAINS[domain]
    rng = Random(seed)
    points = {low + (high - low) * Fraction(rng.randint(1, 9999), 10_000) for _ in range(count)}
    return sorted(points | {Fraction(v) for v in (-1, 0, 1, 2) if low < v < high})


def values(name: str, points: list[Fraction]) -> list[Any]:
    return [NUMBER.wide(NUMBER.unary(name, t)) for t in points]


def test_the_table_covers_the_language() -> None:
    assert set(FUNCTIONS) == set(UNARY)


@pytest.mark.parametrize("name", [n for n in REAL if FUNCTIONS[n].direction])
def test_monotone_where_said(name: str) -> None:
    fact = FUNCTIONS[name]
    steps = [(b - a) * fact.direction for a, b in _neighbours(values(name, samples(fact.domain, 1)))]
    assert all(s > 0 for s in steps) if fact.strict else all(s >= 0 for s in steps)


@pytest.mark.parametrize("name", [n for n in REAL if not FUNCTIONS[n].strict])
def test_not_called_monotone_or_strict_for_nothing(name: str) -> None:
    """A row without a direction really turns; one that is not strict really has equal values: nothing is given away."""
    fact = FUNCTIONS[name]
    steps = [b - a for a, b in _neighbours(values(name, samples(fact.domain, 2, 400)))]
    if fact.direction:
        assert any(s == 0 for s in steps)
    else:
        assert any(s > 0 for s in steps) and any(s < 0 for s in steps)


@pytest.mark.parametrize("name", [n for n in REAL if FUNCTIONS[n].parity])
def test_parity(name: str) -> None:
    points = samples(FUNCTIONS[name].domain, 3)
    sign = {"odd": -1, "even": 1}[FUNCTIONS[name].parity]
    for t, value in zip(points, values(name, points), strict=True):
        assert abs(values(name, [-t])[0] - sign * value) <= NUMBER.context.mpf(10) ** -50 * (1 + abs(value))


@pytest.mark.parametrize("name", REAL)
def test_range_and_domain(name: str) -> None:
    """Inside the domain every value is a real number in the range; outside there is none."""
    fact = FUNCTIONS[name]
    for value in values(name, samples(fact.domain, 4)):
        assert value == value
        assert value > 0 if fact.range == "positive" else value >= 0 if fact.range == "nonnegative" else True
    outside = {"positive": -1, "unit": 2, "above_one": 0, "above_minus_one": -2}
    if fact.domain in outside:
        value = NUMBER.unary(name, Fraction(outside[fact.domain]))
        assert value != value or isinstance(value, NUMBER.context.mpc)


@pytest.mark.parametrize("name", sorted(ADDITION))
def test_addition_theorems(name: str) -> None:
    for s, t in _pairs(5):
        whole = NUMBER.wide(NUMBER.unary(name, s + t))
        split = sum(c * values(f, [s])[0] * values(h, [t])[0] for c, f, h in ADDITION[name])
        assert abs(whole - split) <= NUMBER.context.mpf(10) ** -50


@pytest.mark.parametrize("name", sorted(EXPONENTIAL))
def test_functions_as_sums_of_exponentials(name: str) -> None:
    for t, _ in _pairs(6):
        wide, exp = NUMBER.wide, NUMBER.context.exp
        total = sum(wide(Fraction(p, q)) * exp(rate * wide(t)) for p, q, rate in EXPONENTIAL[name])
        value = values(name, [t])[0]
        assert abs(total - value) <= NUMBER.context.mpf(10) ** -50 * (1 + abs(value))


def _neighbours(items: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(items, items[1:], strict=False))


def _pairs(seed: int) -> list[tuple[Fraction, Fraction]]:
    points = samples("", seed, 20)
    Random(seed).shuffle(points)
    return list(zip(points[::2], points[1::2], strict=False))
