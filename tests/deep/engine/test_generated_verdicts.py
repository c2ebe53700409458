"""Random specs of known verdict: the verdict, the rank, the witness, and the form against the definition."""

from __future__ import annotations

import functools
import sys
from random import Random
from typing import Any

import pytest

import redalg as ra
from redalg.testing import sampling
from redalg.testing.form_laws import LAWS, Subject
from redalg.testing.generator import KINDS, Generated, generate
from tests.support.witness_recompute import check

# how many of each kind; chosen so that all of them together take under a minute on one core
COUNTS = {
    "known_rank": 90,
    "masked": 24,
    "masked_scores": 12,
    "weighted": 8,
    "monotone": 30,
    "positions": 24,
    "splitting": 20,
    "near_miss_derived": 30,
    "near_miss_refuted": 24,
    "inseparable": 40,
}
BLOCK = 10
BLOCKS = [(kind, start) for kind, count in COUNTS.items() for start in range(0, count, BLOCK)]
MOST_UNDECIDED = 0.05


@functools.cache
def judged(kind: str, seed: int) -> tuple[Generated, Any]:
    generated = generate(seed, kind)
    try:
        return generated, ra.verdict(generated.spec, axis="j")
    except Exception as failure:  # no verdict at all: reported by the tests of verdicts, spec and all
        return generated, failure


def judged_all(*kinds: str) -> list[tuple[Generated, Any]]:
    return [judged(kind, seed) for kind in kinds for seed in range(COUNTS[kind])]


def test_every_kind_is_drawn() -> None:
    assert set(COUNTS) == set(KINDS)


def test_specs_known_to_be_derivable_are_derived(capfd: pytest.CaptureFixture[str]) -> None:
    kinds = [k for k in COUNTS if generate(0, k).expected == "derived"]
    verdicts = judged_all(*kinds)
    missed = [f"{type(v).__name__} {v}\n{g}" for g, v in verdicts if not isinstance(v, ra.Form)]
    with capfd.disabled():
        print(f"\nknown to be derivable: {len(verdicts) - len(missed)} of {len(verdicts)} derived", file=sys.stderr)
    assert not missed, "\n".join(missed)


def test_specs_known_to_be_inseparable_are_refuted(capfd: pytest.CaptureFixture[str]) -> None:
    verdicts = judged_all("inseparable", "near_miss_refuted")
    wrong = [f"{type(v).__name__}: {g}" for g, v in verdicts if not isinstance(v, ra.NotDecomposable | ra.Undecided)]
    open_ = [str(g) for g, v in verdicts if isinstance(v, ra.Undecided)]
    with capfd.disabled():
        rates = f"{len(wrong)} derived, {len(open_)} undecided"
        print(f"\nknown to be inseparable: {len(verdicts)} specs, {rates}", file=sys.stderr)
    assert not wrong, "\n".join(wrong)
    assert len(open_) <= MOST_UNDECIDED * len(verdicts), "\n".join(open_)


def test_the_rank_is_the_one_of_the_construction() -> None:
    checked = 0
    for generated, form in judged_all("known_rank", "masked", "weighted", "masked_scores"):
        if isinstance(form, ra.Form):
            assert list(form.ranks.values())[-1] == generated.rank, generated
            checked += 1
    assert checked


def subject(error: Any, generated: Generated) -> Any:
    """What a witness is about: the stage as the refusal prints it, read anew, or the spec's output."""
    if error.witness.kind == "jacobian":
        return generated.spec.outputs["y"]
    printed = str(error).splitlines()[0].removeprefix("refused: ")
    return ra.parse(f"return y = {printed}").outputs["y"]


def test_witnesses_are_recomputed_by_other_code() -> None:
    kinds = {"minor": 0, "jacobian": 0}
    for generated, verdict in judged_all("inseparable", "near_miss_refuted"):
        if isinstance(verdict, ra.NotDecomposable):
            check(verdict.witness, subject(verdict, generated), sample=24)
            kinds[verdict.witness.kind] += 1
    assert kinds["minor"]


@pytest.mark.parametrize(("kind", "start"), BLOCKS)
def test_generated_forms_keep_the_laws(kind: str, start: int) -> None:
    for seed in range(start, min(start + BLOCK, COUNTS[kind])):
        generated, form = judged(kind, seed)
        if not isinstance(form, ra.Form):
            continue
        rng = Random(seed)
        arrays = sampling.arguments(form.spec, rng, j=rng.choice((1, 2, 5, 8)))
        for law in LAWS:
            try:
                law(Subject(form, arrays, rng))
            except AssertionError as failure:
                raise AssertionError(f"{law}: {failure}\n{generated}\n{arrays}") from failure
