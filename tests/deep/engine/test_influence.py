"""A stage without a form refutes a spec only where an output needs its value; verdicts are refusals or say so."""

from __future__ import annotations

import pytest

import redalg as ra

STAGES = {
    "deviation": "m = mean[j](x[j]); a = sum[j](abs(x[j] - m))",
    "tanh": "m = max[j](x[j]); a = sum[j](1 + tanh(x[j] - m)**2)",
    "rows": "m = mean[j](x[i,j]); a = sum[j](abs(x[i,j] - m))",
}
NEEDED = ["a", "a*m", "exp(-a)", "m + floor(a)", "where(m > 0, 1, a)", "maximum(a, 1/2) - m"]
FREE = [  # each is made of a >= 0 and the same for every such a
    "maximum(a, 0) - a + m",
    "minimum(a, -1) + m",
    "sign(exp(a)) * m",
    "where(exp(a) > 0, m, 1)",
    "floor(sigmoid(a)/2) + m",
    "maximum(a, -1) - a + m",
]


@pytest.mark.parametrize("body", NEEDED)
def test_a_stage_that_an_output_needs_is_refused(body: str) -> None:
    stage = list(STAGES)[NEEDED.index(body) % len(STAGES)]
    verdict = ra.verdict(ra.parse(f"{STAGES[stage]}; return y = {body}"))
    assert isinstance(verdict, ra.NotDecomposable)
    assert verdict.certificate.verify().excluded_slots > 8


@pytest.mark.parametrize("body", FREE)
def test_a_stage_that_no_output_needs_refutes_nothing(body: str) -> None:
    stage = list(STAGES)[FREE.index(body) % len(STAGES)]
    verdict = ra.verdict(ra.parse(f"{STAGES[stage]}; return y = {body}"))
    assert isinstance(verdict, ra.Undecided) and "an output needs" in verdict.missing


def test_one_output_of_several_is_enough() -> None:
    verdict = ra.verdict(ra.parse(f"{STAGES['deviation']}; return y = maximum(a, 0) - a, z = m, w = a + m"))
    assert isinstance(verdict, ra.NotDecomposable)


ENDS = {  # stages that end at 0, where no element differs from its mean: that asks for extrema alone
    "of truths": "tensors {n}[j] bool, x[j]; m = mean[j](x[j]); a = sum[j](where({n}[j], abs(x[j] - m), 0))",
    "of whole numbers": "tensors {n}[j] integer; m = mean[j]({n}[j]); a = sum[j](abs({n}[j] - m))",
    "of whole numbers above": "tensors {n}[j] integer; m = mean[j]({n}[j]); a = sum[j](relu({n}[j] - m)**3)",
}
AT_THE_END = [
    "sign(a)",
    "where(a > 0, 1, 0)",
    "m*where(a <= 0, 2, 1)",
    "floor(exp(-a))",
    "ceil(tanh(a)) + m",
    "where(eq(a, 0), m, 1)",
    "cast(sign(a), int8)",
]
BEYOND = ["a", "floor(a)", "m + floor(a)"]


@pytest.mark.parametrize("stage", ENDS)
@pytest.mark.parametrize("name", ["b", "k", "q", "r"])
def test_a_step_at_the_end_of_a_stage_refutes_nothing_whatever_names_are(stage: str, name: str) -> None:
    """Drawn streams of truths and whole numbers reach the end; what they draw depends on the tensor's name."""
    for body in AT_THE_END:
        verdict = ra.verdict(ra.parse(f"{ENDS[stage].format(n=name)}; return y = {body}"))
        assert isinstance(verdict, ra.Undecided), body


@pytest.mark.parametrize("stage", ENDS)
def test_a_step_within_a_stage_refutes(stage: str) -> None:
    for body in BEYOND:
        verdict = ra.verdict(ra.parse(f"{ENDS[stage].format(n='b')}; return y = {body}"))
        assert isinstance(verdict, ra.NotDecomposable) and verdict.certificate.verify().stage, body
