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
