"""`redalg.proofs.audit` on states of every shape: tuples, dicts, classes, arrays, chunks that are lifted, Numba."""

from __future__ import annotations

import cmath
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from redalg.proofs import audit
from tests.support.audit_operators import texts_fail

INF = math.inf


class Pair(NamedTuple):
    total: float
    n: int


@dataclass(frozen=True)
class Box:
    low: float
    high: float


def pairs(a: Pair, b: Pair) -> Pair:
    return Pair(a.total + b.total, a.n + b.n)


def boxes(a: Box, b: Box) -> Box:
    return Box(min(a.low, b.low), max(a.high, b.high))


def wrong_boxes(a: Box, b: Box) -> Box:
    return Box(min(a.low, b.low), a.high)


def test_tuples_dicts_dataclasses_and_nested_states() -> None:
    assert audit(pairs, Pair(0.0, 0), commutative=True).ok
    assert audit(boxes, Box(INF, -INF), domain="finite", commutative=True).ok
    report = audit(wrong_boxes, Box(INF, -INF), domain="finite")
    assert report.broken == ("left identity",) and texts_fail(report) == [True]
    nested = lambda a, b: {"n": a["n"] + b["n"], "m": [max(a["m"][0], b["m"][0])]}  # noqa: E731
    assert audit(nested, {"n": 0, "m": [-INF]}, domain="finite").ok
    assert audit(lambda a, b: a * b, 1 + 0j, commutative=True).ok
    assert audit(lambda a, b: a * b * cmath.exp(a - b), 1 + 0j).broken
    assert audit(lambda a, b: a != b, False, commutative=True).ok
    assert audit(lambda a, b: a and not b, True).broken


def test_arrays_and_operators_that_write_into_their_arguments() -> None:
    def in_place(a: Any, b: Any) -> Any:
        a += b
        return a

    report = audit(in_place, np.zeros(3), commutative=True)
    assert report.broken == ("arguments kept",) and texts_fail(report) == [True]
    assert audit(np.logical_xor, np.zeros(2, bool), commutative=True).ok
    report = audit(lambda a, b: a + np.roll(b, 1), np.zeros(2, np.float32), domain="finite")
    assert "left identity" in report.broken and "float32" in str(report)
    assert texts_fail(report, "left identity") == [True]


def test_lifts_definitions_and_partitions_with_empty_parts() -> None:
    def lift(xs: Any) -> Any:
        n = Fraction(len(xs))
        m = sum(xs) / n if n else Fraction(0)
        return (n, m, sum((x - m) ** 2 for x in xs))

    def merge(a: Any, b: Any) -> Any:
        if not a[0] or not b[0]:
            return a if a[0] else b
        n, d = a[0] + b[0], b[1] - a[1]
        return (n, a[1] + d * b[0] / n, a[2] + b[2] + d * d * a[0] * b[0] / n)

    variance = lambda s: s[2] / s[0] if s[0] else 0  # noqa: E731
    options: dict[str, Any] = {"lift": lift, "finalize": variance, "domain": "finite", "commutative": True}
    right = audit(merge, (0, 0, 0), definition=lambda xs: variance(lift(xs)), **options)
    assert right.ok and right["definition"].status == right["homomorphism"].status == "holds"
    assert right["definition"].equality == "in Fractions and in float64"  # long chunks are judged in floats
    wrong = audit(merge, (0, 0, 0), definition=lambda xs: lift(xs)[2] / max(len(xs) - 1, 1), **options)
    assert wrong.broken == ("definition",)
    example = wrong["definition"].counterexample
    assert example is not None and sorted(map(len, example.states.values())) == [0, 0, 2]


def test_array_lifts_and_tuple_elements() -> None:
    lift = lambda xs: (xs.size, xs.sum())  # noqa: E731
    assert audit(lambda a, b: (a[0] + b[0], a[1] + b[1]), (0, 0.0), lift=lift, domain="finite").ok
    weighted = lambda xs: (sum(w for _, w in xs), sum(x * w for x, w in xs))  # noqa: E731
    merge = lambda a, b: (a[0] + b[0], a[1] + b[1])  # noqa: E731
    assert audit(merge, (0.0, 0.0), lift=weighted, domain=("finite", "finite positive"), commutative=True).ok
    report = audit(merge, None, lift=weighted, domain=("finite", "finite positive"))
    assert report.ok and "left identity" not in report.laws
    raising = audit(merge, (0.0, 0.0), lift=lambda xs: (max(xs), min(xs)), domain="finite")
    assert "homomorphism" in raising.broken and any("lift([]) raises" in n for n in raising.notes)


def test_numba_functions() -> None:
    import numba

    @numba.njit
    def merge(a: Any, b: Any) -> Any:
        n = a[0] + b[0]
        return (n, (a[0] * a[1] + b[0] * b[1]) / n) if n > 0 else (0.0, 0.0)

    @numba.njit
    def swapped(a: Any, b: Any) -> Any:
        return (max(a[0], b[0]), b[1] if a[0] > b[0] else a[1])

    state = {"domain": ("finite nonnegative", "finite"), "valid": lambda s: s[0] or not s[1], "samples": 60}
    assert audit(merge, (0.0, 0.0), commutative=True, specials=("zeros",), **state).ok
    report = audit(merge, (0.0, 0.0), **state)
    assert report["associativity"].equality == "in Fractions and in float64"  # two empty states give floats
    assert set(report.broken) == {"subnormals", "huge"}  # n·mean loses a tiny n and overflows with a huge mean
    assert "associativity" in audit(swapped, (-INF, 0.0), domain="finite", samples=60).broken
