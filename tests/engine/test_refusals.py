"""The specs that are timed as refusals: refused, with a witness that holds, in time and without a bare exception."""

from __future__ import annotations

import re
import time

import pytest

import redalg as ra
from benchmarks.harness.refusals import REFUSED
from tests.support.sample import one_in
from tests.support.witness_recompute import check

SECONDS = 3.0


@pytest.mark.parametrize("name", one_in(2, sorted(REFUSED), first=1))
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


@pytest.mark.deep
def test_most_refusals_have_a_witness() -> None:
    verdicts = [ra.verdict(ra.parse(text)) for text in REFUSED.values()]
    assert sum(getattr(v, "witness", None) is not None for v in verdicts) >= 0.8 * len(verdicts)


@pytest.mark.parametrize(
    "text",
    [
        "return rows = sum[j](x[i,j]), columns = sum[i](x[i,j])",
        "return a = max[k](x[i,j,k]), b = mean[i](x[i,j,k]), c = sum[j](x[i,j,k])",
        "return y = sum[k](sum[n](R[n,k])), z = sum[n](R[n,k])",
    ],
)
def test_every_axis_that_could_be_streamed_is_suggested(text: str) -> None:
    with pytest.raises(ra.RedalgError) as refused:
        ra.derive_incremental(ra.parse(text))
    suggested = re.findall(r"axis='(\w+)'", str(refused.value).rpartition("try:")[2])
    assert len(suggested) > 1
    for axis in suggested:
        assert ra.derive_incremental(ra.parse(text), axis=axis).plan.axis == (axis,)


def powers(size: int) -> str:
    terms = " + ".join(f"x[j]**{k}*tanh(m)**{k}" for k in range(size))
    return f"m = mean[j](x[j]); return y = sum[j](abs(x[j] - m)*({terms}))"


@pytest.mark.parametrize("steps", [400_000, 40_000])
def test_a_refusal_is_one_whose_certificate_holds(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the budget of work that a certificate may take: what needs more is undecided, and says so."""
    monkeypatch.setattr("redalg.proofs.refusals.proof.STEPS", steps)
    verdict = ra.verdict(ra.parse(powers(3)))
    if isinstance(verdict, ra.NotDecomposable):
        assert verdict.certificate.verify().excluded_slots == len(verdict.witness.points)
    else:
        assert steps == 40_000
        assert "a proof of the witness against stage2" in verdict.missing and f"{steps} steps of" in verdict.missing
