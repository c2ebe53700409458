"""Cascades whose stages use all earlier ones: derived, printed and pickled by work that follows the shared graph."""

from __future__ import annotations

import cProfile
import pickle
import pstats
from random import Random

import pytest

import redalg as ra
from redalg.testing import sampling
from redalg.testing.form_laws import Subject, the_algebra_is_exact, updates_give_the_definition


def cascade(stages: int, kind: str) -> ra.Spec:
    """d_k is a reduction of (x, all d before k); as a tree its size would double with every stage."""
    x, y = ra.tensors("x[j] y[j]")
    done = [ra.max(x, "j")]
    for k in range(1, stages):
        everything = sum(done[1:], done[0]) / (2 * k)
        bodies = {
            "moments": (x - everything) ** 2 / 8 if k % 2 else (y - everything) / 4,
            "exponentials": ra.exp((x - done[0]) / (k + 1)) * (y + everything) / 8,
            "extrema": ra.abs(x - everything) if k % 2 else x * k + everything,
        }
        done.append((ra.max if kind == "extrema" else ra.mean)(bodies[kind], "j"))
    return ra.Spec(y=done[-1])


def calls(stages: int, kind: str) -> int:
    """Calls of functions that deriving, explaining, parsing and pickling a cascade take."""
    with cProfile.Profile() as profile:
        spec = cascade(stages, kind)
        form = ra.derive_incremental(spec)
        assert len(str(spec)) < 6000 and len(form.explain()) > 0
        assert ra.parse(str(spec)) == spec
        again = pickle.loads(pickle.dumps(form))
    assert again.spec == spec and again.plan == form.plan
    return int(pstats.Stats(profile).total_calls)


@pytest.mark.parametrize("kind", ["moments", "exponentials", "extrema"])
def test_the_work_for_a_cascade_does_not_double_with_every_stage(kind: str) -> None:
    """Twice the stages are four times the terms and 14 times the calls at most (measured); as trees, 64 times."""
    calls(6, kind)  # what is derived once and kept
    assert calls(12, kind) < 2**5 * calls(6, kind)


@pytest.mark.parametrize("kind", ["moments", "exponentials", "extrema"])
def test_a_deep_cascade_is_right(kind: str) -> None:
    form = ra.derive_incremental(cascade(5, kind))
    rng = Random(kind)
    arrays = sampling.arguments(form.spec, rng, j=5)
    for law in (the_algebra_is_exact, updates_give_the_definition):
        law(Subject(form, arrays, rng))
