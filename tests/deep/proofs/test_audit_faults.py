"""Every fault of a merge is found in every shape of a state: lists, positions, histograms, arrays, dicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from redalg.proofs import audit

Operator = Callable[[Any, Any], Any]
K = 3
EDGES = (-1.0, 0.0, 1.0)


def lift_list(xs: Any) -> Any:
    """(count, the K largest with their positions, lowest position first among equals)"""
    return len(xs), _first([(x, i) for i, x in enumerate(xs)])


def _first(rows: Any) -> Any:
    rows = sorted(rows, key=lambda row: (-row[0], row[1]))[:K]
    return rows + [(float("-inf"), -1)] * (K - len(rows))


def merge_lists(a: Any, b: Any) -> Any:
    rows = [row for row in a[1] if row[1] >= 0] + [(x, i + a[0]) for x, i in b[1] if i >= 0]
    return a[0] + b[0], _first(rows)


def lift_position(xs: Any) -> Any:
    at = max(range(len(xs)), key=lambda i: (xs[i], -i), default=0)
    return len(xs), xs[at] if xs else float("-inf"), at


def merge_positions(a: Any, b: Any) -> Any:
    later = b[1] > a[1]
    return a[0] + b[0], b[1] if later else a[1], b[2] + a[0] if later else a[2]


def lift_quantiles(xs: Any) -> Any:
    """Counts between edges, of which quantiles are read."""
    return np.array([sum(lo <= x < hi for x in xs) for lo, hi in itertools.pairwise((-np.inf, *EDGES, np.inf))])


def lift_outputs(xs: Any) -> Any:
    return {"n": len(xs), "sum": sum(xs), "max": max(xs, default=float("-inf"))}


def merge_outputs(a: Any, b: Any) -> Any:
    return {"n": a["n"] + b["n"], "sum": a["sum"] + b["sum"], "max": max(a["max"], b["max"])}


def lift_array(xs: Any) -> Any:
    """(count, sums along an axis of two, their products)"""
    rows = np.array([[x, 1 - x] for x in xs], dtype=object).reshape(-1, 2)
    return len(xs), rows.sum(axis=0) + 0, (rows[:, :, None] * rows[:, None, :]).sum(axis=0) + 0


def merge_arrays(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


STATES: dict[str, tuple[Operator, Callable[[Any], Any], Callable[[Any], int]]] = {
    "list": (merge_lists, lift_list, lambda s: s[0]),
    "position": (merge_positions, lift_position, lambda s: s[0]),
    "quantiles": (lambda a, b: a + b, lift_quantiles, lambda s: int(sum(s))),
    "outputs": (merge_outputs, lift_outputs, lambda s: s["n"]),
    "array": (merge_arrays, lift_array, lambda s: s[0]),
}


def _audited(name: str, fault: Callable[[Operator, Callable[[Any], int]], Operator] | None) -> Any:
    merge, lift, count = STATES[name]
    merge = fault(merge, count) if fault else merge
    return audit(merge, lift([]), lift=lift, domain="real", specials=())


def _changing(which: int) -> Callable[[Operator, Any], Operator]:
    """A merge that changes one of its arguments."""

    def fault(merge: Operator, count: Any) -> Operator:
        def changed(*states: Any) -> Any:
            found = merge(*states)
            _spoil(states[which])
            return found

        return changed

    return fault


changes_first, changes_second = _changing(0), _changing(1)


def _spoil(state: Any) -> None:
    """Write to whatever of a state can be written to."""
    if isinstance(state, np.ndarray):
        state[...] = state + 1
    elif isinstance(state, dict):
        state["n"] += 1
    elif isinstance(state, list):
        state[0] = (7.0, 0)
    elif isinstance(state, tuple):
        for part in state:
            _spoil(part)


def fails_now_and_then(merge: Operator, count: Any) -> Operator:
    calls = itertools.count(1)

    def sometimes(a: Any, b: Any) -> Any:
        if next(calls) % 97:
            return merge(a, b)
        raise ValueError("busy")

    return sometimes


def wrong_now_and_then(merge: Operator, count: Any) -> Operator:
    calls = itertools.count(1)
    return lambda a, b: merge(a, b) if next(calls) % 97 else merge(merge(a, b), b)


def wrong_for_large_counts(limit: int) -> Callable[[Operator, Callable[[Any], int]], Operator]:
    return lambda merge, count: lambda a, b: merge(a, b) if count(a) + count(b) < limit else merge(a, merge(b, b))


def later_of_equals(merge: Operator, count: Any) -> Operator:
    """Exchanged arguments: positions and ties go wrong, and nothing else."""
    return lambda a, b: merge(b, a)


@pytest.mark.parametrize("name", STATES)
def test_a_right_merge_passes(name: str) -> None:
    report = _audited(name, None)
    assert report.ok, str(report)


@pytest.mark.parametrize("name", sorted(STATES.keys() - {"position"}))  # nothing of that can be written to
@pytest.mark.parametrize("fault", [changes_first, changes_second])
def test_arguments_that_are_changed(name: str, fault: Any) -> None:
    assert "arguments kept" in _audited(name, fault).broken


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("fault", [fails_now_and_then, wrong_now_and_then])
def test_every_97th_call(name: str, fault: Any) -> None:
    assert "repetition" in _audited(name, fault).broken


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("limit", [300, 2**33])
def test_large_counts(name: str, limit: int) -> None:
    report = _audited(name, wrong_for_large_counts(limit))
    assert report.broken and {"large counts", "homomorphism"} & set(report.broken), str(report)


@pytest.mark.parametrize("name", ["list", "position"])
def test_the_order_of_equal_elements(name: str) -> None:
    assert "homomorphism" in _audited(name, later_of_equals).broken
