"""The specs that are timed as refusals: refused, with a witness that holds, in time and without a bare exception."""

from __future__ import annotations

import time

import pytest

import redalg as ra
from benchmarks.harness.refusals import REFUSED
from tests.support.witness_recompute import check

SECONDS = 3.0


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_evidence_or_with_what_is_missing(name: str) -> None:
    spec = ra.parse(REFUSED[name])
    start = time.process_time()
    verdict = ra.verdict(spec)
    assert time.process_time() - start < SECONDS
    assert isinstance(verdict, ra.NotDecomposable | ra.Undecided), verdict
    if isinstance(verdict, ra.Undecided):
        assert verdict.missing and verdict.stage
        return
    assert verdict.reason and verdict.scope and verdict.stage
    if verdict.witness is None:
        return
    printed = str(verdict).splitlines()[0].removeprefix("refused: ")
    stage = ra.parse(f"return y = {printed}").outputs["y"] if verdict.witness.kind == "minor" else spec.outputs["y"]
    check(verdict.witness, stage, sample=20)


def test_most_refusals_have_a_witness() -> None:
    verdicts = [ra.verdict(ra.parse(text)) for text in REFUSED.values()]
    assert sum(getattr(v, "witness", None) is not None for v in verdicts) >= 0.8 * len(verdicts)
