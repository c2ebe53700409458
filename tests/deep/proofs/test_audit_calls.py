"""An audit finds what depends on calls, on large counts and on long chunks; right operators pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redalg.errors import RedalgError
from redalg.proofs import audit

Operator = Callable[[Any, Any], Any]
PLAIN: dict[str, Any] = {"specials": ()}


def mean(a: Any, b: Any) -> Any:
    n = a[0] + b[0]
    return (n, (a[0] * a[1] + b[0] * b[1]) / n) if n else a


def lift(xs: Any) -> Any:
    return (len(xs), sum(xs) / len(xs) if xs else 0.0)


def changes_first(a: Any, b: Any) -> Any:
    a += b
    return a


def changes_second(a: Any, b: Any) -> Any:
    b[1] = a[1] + b[1]
    return [a[0] + b[0], b[1]]


def changes_dict(a: Any, b: Any) -> Any:
    a["n"] += b["n"]
    return dict(a)


def empties(a: Any, b: Any) -> Any:
    found = a + b
    b[...] = 0
    return found


@pytest.mark.parametrize(
    "combine, identity, word",
    [
        (changes_first, np.zeros(2), "first"),
        (changes_second, [0.0, 0.0], "second"),
        (changes_dict, {"n": 0}, "first"),
        (empties, np.zeros((2, 1), "f4"), "second"),
    ],
)
def test_arguments_are_kept(combine: Operator, identity: Any, word: str) -> None:
    report = audit(combine, identity, **PLAIN)
    assert "arguments kept" in report.broken and f"{word} argument changed" in str(report["arguments kept"])
    assert _fails(report, "arguments kept")
    assert audit(lambda a, b: a + b, np.zeros(2), **PLAIN).ok


def _fails(report: Any, law: str) -> bool:
    """Whether the printed test of a law, with the operator given by name, fails."""
    space: dict[str, Any] = {"GIVEN": report.operator}
    given = "combine, lift, valid = GIVEN.combine, GIVEN.lift, GIVEN.valid"
    exec(report.hypothesis_test(law, imports=given), space)  # noqa: S102
    (test,) = (f for name, f in space.items() if name.startswith("test_"))
    try:
        test()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("period", [3, 97])
@pytest.mark.parametrize("how", ["wrong", "raises", "last bit"])
def test_calls_do_not_depend_on_calls_before(period: int, how: str) -> None:
    count = itertools.count(1)

    def sometimes(a: float, b: float) -> float:
        if next(count) % period:
            return a + b
        if how == "raises":
            raise ValueError("busy")
        return a + b + 1 if how == "wrong" else float(np.nextafter(float(a + b), 10))

    report = audit(sometimes, 0.0, domain="finite", **PLAIN)
    assert "repetition" in report.broken, str(report)
    assert _fails(report, "repetition")


def test_an_answer_from_memory() -> None:
    last = [0.0]

    def remembers(a: float, b: float) -> float:
        last[0], before = a, last[0]
        return a + b + (before == 3)

    assert "repetition" in audit(remembers, 0.0, domain="finite", **PLAIN).broken


def _beyond(limit: int) -> Operator:
    return lambda a, b: mean(a, b) if a[0] + b[0] <= limit else (a[0] + b[0], (a[1] + b[1]) / 2)


@pytest.mark.parametrize("limit", [300, 2**24, 2**40])
def test_large_counts_are_drawn_and_merged(limit: int) -> None:
    valid = lambda s: s[0] or not s[1]  # noqa: E731
    drawn = audit(_beyond(limit), (0, 0.0), domain=("count", "real"), valid=valid, **PLAIN)
    lifted = audit(_beyond(limit), (0, 0.0), domain="real", lift=lift, **PLAIN)
    assert "large counts" in drawn.broken and "large counts" in lifted.broken
    assert _fails(drawn, "large counts") and _fails(lifted, "large counts")


def test_right_merges_pass_with_large_counts_of_every_type() -> None:
    options: dict[str, Any] = {"lift": lift, "domain": "real", "commutative": True, **PLAIN}
    assert audit(mean, (0, 0.0), **options).ok
    assert audit(mean, (0, 0.0), dtype="float32", **options).ok
    add = lambda a, b: a + b  # noqa: E731
    assert audit(add, 0, **PLAIN).ok and audit(add, np.int32(0), **PLAIN).ok
    assert audit(add, np.int64(0), **PLAIN)["large counts"].status == "holds"
    narrow = audit(lambda a, b: np.int32(a) + np.int32(b), np.int64(0), **PLAIN)
    assert "large counts" in narrow.broken
    times = audit(lambda a, b: a * b, 1.0, domain="real", lift=lambda xs: np.prod([float(x) for x in xs]), **PLAIN)
    assert times.ok  # it stops before it overflows


def test_an_operator_that_does_not_commute_may_not_do_so_with_large_counts() -> None:
    def first(a: Any, b: Any) -> Any:
        return (a[0] + b[0], a[1] if a[0] else b[1])

    report = audit(first, (0, 0.0), domain="real", lift=lambda xs: (len(xs), xs[0] if xs else 0.0), **PLAIN)
    assert report.ok and report["large counts"].status == "holds"


@pytest.mark.parametrize("length", [64, 1000, 2048])
def test_long_chunks(length: int) -> None:
    add = lambda a, b: (a[0] + b[0], a[1] + b[1])  # noqa: E731
    cut = lambda xs: (len(xs[:length]), sum(xs[:length]))  # noqa: E731
    report = audit(add, (0, 0.0), domain="real", lift=cut, **PLAIN)
    assert "homomorphism" in report.broken and "] * " in str(report["homomorphism"])
    assert _fails(report, "homomorphism")
    assert audit(add, (0, 0.0), domain="real", lift=lambda xs: (len(xs), sum(xs)), **PLAIN).ok


@pytest.mark.parametrize("wrong", [lambda n: n and n % 7 == 0, lambda n: n == 11, lambda n: 5 <= n <= 30])
def test_chunks_of_every_short_length(wrong: Callable[[int], bool]) -> None:
    merge = lambda a, b: (mean(a, b)[0], mean(a, b)[1] + (1 if wrong(a[0]) and b[0] else 0))  # noqa: E731
    assert "homomorphism" in audit(merge, (0, 0.0), domain="real", lift=lift, **PLAIN).broken


def test_long_chunks_against_a_definition() -> None:
    total = lambda xs: sum(xs[:200])  # noqa: E731
    options: dict[str, Any] = {"domain": "real", "lift": lambda xs: sum(xs), "specials": ()}
    assert "definition" in audit(lambda a, b: a + b, 0.0, definition=total, **options).broken
    assert audit(lambda a, b: a + b, 0.0, definition=sum, **options).ok


@pytest.mark.parametrize(
    "options",
    [{"rtol": float("nan")}, {"rtol": float("inf")}, {"rtol": -1.0}, {"rtol": "a"}, {"seed": "a"}, {"samples": 1.5}]
    + [{"domain": set()}, {"domain": range(0)}, {"specials": "nothing"}],
    ids=str,
)
def test_bounds_and_numbers_that_are_none_let_no_operator_pass(options: dict[str, Any]) -> None:
    for operator in (lambda a, b: a + b, lambda a, b: a - b):
        for exact in (None, False):
            with pytest.raises(RedalgError) as caught:
                audit(operator, 0.0, exact=exact, **options)
            assert caught.value.what and caught.value.why and caught.value.fix


def test_one_kind_of_special_numbers_may_be_a_word() -> None:
    assert audit(max, -float("inf"), specials="zeros", samples=20).ok
