"""An audit draws numbers of all magnitudes and counts of every power of two; each mutant is wrong for some of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from redalg.proofs import audit

PLAIN: dict[str, Any] = {"domain": "finite", "specials": ()}
COUNTED: dict[str, Any] = {"domain": ("count", "real"), "valid": lambda s: s[0] or not s[1], "specials": ()}
LIFTED: dict[str, Any] = {"domain": "real", "lift": lambda xs: (len(xs), sum(xs) / max(len(xs), 1)), "specials": ()}

MUTANTS: dict[str, Callable[[float, float], float]] = {
    "saturates": lambda a, b: min(a + b, 2.0**17),
    "drops small ones": lambda a, b: (a if abs(a) > 2**-9 else 0) + b,
    "drops what is small beside a large one": lambda a, b: a if 1000 * abs(b) < abs(a) else a + b,
    "wrong at 1024": lambda a, b: a + b + (a == 1024),
    "wrong at powers of two from 64": lambda a, b: a + b + (a >= 64 and math.frexp(a)[0] == 0.5),
    "wrong for large negative ones": lambda a, b: a + b if a > -10000 else a - b,
    "wrong where two large ones meet": lambda a, b: a if a > 10000 and b > 10000 else a + b,
    "keeps a large first one": lambda a, b: a if abs(a) > 10000 and 0 < abs(b) < 100 else a + b,
}


def mean(a: Any, b: Any) -> Any:
    n = a[0] + b[0]
    return (n, (a[0] * a[1] + b[0] * b[1]) / n) if n else a


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_a_sum_are_caught(name: str) -> None:
    assert audit(MUTANTS[name], 0.0, **PLAIN).broken


def test_a_lifted_sum_that_saturates_is_caught() -> None:
    report = audit(MUTANTS["saturates"], 0.0, lift=lambda xs: float(sum(xs)), **PLAIN)
    assert "magnitudes" in report.broken


@pytest.mark.parametrize("options", [COUNTED, LIFTED], ids=["drawn", "lifted"])
@pytest.mark.parametrize("power", [6, 33])
def test_counts_of_a_power_of_two(options: dict[str, Any], power: int) -> None:
    wrong = lambda a, b: (a[0] + b[0], b[1]) if a[0] == 2**power else mean(a, b)  # noqa: E731
    assert "large counts" in audit(wrong, (0, 0.0), **options).broken


@pytest.mark.parametrize("length", [512, 4096])
def test_chunks_of_a_power_of_two(length: int) -> None:
    lift = lambda xs: float(sum(xs)) + (len(xs) == length)  # noqa: E731
    assert "homomorphism" in audit(lambda a, b: a + b, 0.0, lift=lift, **PLAIN).broken


def log_sum_exp(a: float, b: float) -> float:
    m = max(a, b)
    return m + math.log(math.exp(a - m) + math.exp(b - m)) if m > -math.inf else m


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_right_operators_pass(dtype: Any) -> None:
    for combine, identity in ((lambda a, b: a + b, 0.0), (log_sum_exp, -math.inf)):
        assert audit(combine, identity, dtype=dtype, **PLAIN).ok
