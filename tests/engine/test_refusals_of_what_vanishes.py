"""A stage that an output holds in disguise alone (a constant, an identity) refuses nothing; one that it needs, does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

STAGES = {
    "deviation": "u = mean[j](x[j]); a = sum[j](abs(x[j]-u))",
    "scaled": "u = max[j](x[j]); a = sum[j](x[j]**2*relu(x[j]-u/2))",
    "count": "u = mean[j](x[j]); a = sum[j](where(x[j] > u, 1, 0))",
    "product": "u = mean[j](x[j]); a = prod[j](x[j]**2+u**2+1)",
    "rows": "u = mean[j](x[i,j]); a = sum[j](abs(x[i,j]-2*u))",
}
INSIDE = ["a", "a/3+1", "tanh(a)", "1/(1+a**2)", "u*a/9", "sin(a)+u", "sqrt(1+a**2)"]
BOUNDED = ["sigmoid({})", "tanh({})**2", "1/(1+({})**2)", "sin({})**2/2+1/4", "exp(-({})**2)"]  # in [0, 1]
VANISHING = [
    "floor({B}/2)",
    "ceil({B}/2-1)",
    "cast({B}/1000, int8)",
    "maximum({B}, 2)",
    "minimum({B}, -1)",
    "minimum(maximum(2+{B}, 0), 1)",
    "relu(-{B})",
    "sign(1+{B})",
    "abs(1+{B})-{B}",
    "where({B} > 2, {E}, u)",
    "where({B} < 3/2, u, {E})",
    "relu(-exp({E}))*{E}",
    "(abs({B})-{B})*{E}",
    "sin({E})**2+cos({E})**2",
    "cosh({B})**2-sinh({B})**2",
    "log(exp({B}))-{B}",
    "sqrt(({E})**2)-abs({E})",
    "maximum({E}, u)+minimum({E}, u)-({E})",
    "relu({E})-relu(-({E}))-({E})",
    "floor(sin({E})**2+cos({E})**2-1/2)",
]
LIVING = [
    "floor(a)",
    "exp(-a/9)",
    "a/(1+a**2)",
    "maximum(sigmoid(a/9), 3/4)",
    "where(a > 2, a, u)",
    "relu(a-1)+u",
    "tanh(a/9)*u+u**2",
    "where(u > 0, a, 0)",
    "a**2+u",
    "cast(a/8, int32)",
]


@st.composite
def disguises(draw: Any) -> tuple[str, str]:
    """(stages, an output that holds them and does not depend on them)."""
    inside = draw(st.sampled_from(INSIDE))
    text = draw(st.sampled_from(VANISHING)).format(
        E=f"({inside})", B=f"({draw(st.sampled_from(BOUNDED)).format(inside)})"
    )
    wrapped = draw(st.sampled_from(["{}", "{}+u", "({})*u", "exp(u-({}))", "u/(2+({}))"])).format(text)
    return STAGES[draw(st.sampled_from(sorted(STAGES)))], f"{wrapped}, n = u"


@examples(16)
@given(disguises())
def test_what_vanishes_is_not_refused_and_its_certificate_names_other_outputs(spec: tuple[str, str]) -> None:
    stages, output = spec
    alone = ra.verdict(ra.parse(f"{stages}; return y = {output}"))
    assert not isinstance(alone, ra.NotDecomposable), (spec, alone)
    beside = ra.verdict(ra.parse(f"{stages}; return y = {output}, z = a"))
    assert isinstance(beside, ra.NotDecomposable) and beside.certificate.verify().outputs == ("z",), spec


@pytest.mark.parametrize(
    "output",
    [
        "sin(a)*cos(b)-cos(a)*sin(b)",
        "(a**3-b**3)/(a**2+a*b+b**2)",
        "maximum(a, b)-minimum(a, b)",
        "floor((cosh(a-b)+sinh(a-b))*2)",
    ],
)
def test_stages_whose_difference_has_a_form_are_not_refused_for_functions_of_it(output: str) -> None:
    text = "u = max[j](x[j]); a = sum[j](relu(x[j]-u/2)); b = sum[j](relu(u/2-x[j])); return y = "
    assert not isinstance(ra.verdict(ra.parse(text + output)), ra.NotDecomposable)


HIDDEN = [
    "argmax[j](x[j]*exp(a))",
    "topk[j:2](x[j]+a).indices",
    "max[j](x[j]+a)-a",
    "a*sum[j](where(x[j] > max[j](x[j]), 1, 0))",
    "where(any[j](x[j] > max[j](x[j])+a), a, u)",
    "prod[j](where(x[j] > max[j](x[j]), a, 1))",
    "max[j](minimum(x[j], max[j](x[j])+a))",
    "sum[j](relu(x[j]-u-a))",
    "abs(a)/(a+1)+1/(a+1)",
]


@pytest.mark.parametrize("output", HIDDEN)
def test_a_stage_in_an_element_that_never_tells_of_it_refuses_nothing(output: str) -> None:
    text = f"u = mean[j](x[j]); a = sum[j](abs(x[j]-u)); return y = {output}, n = u"
    assert not isinstance(ra.verdict(ra.parse(text)), ra.NotDecomposable)


SAME = [
    "sum[j](sqrt((x[j]-u)**2))",
    "sum[j](where(x[j] > u, x[j]-u, u-x[j]))",
    "sum[j](maximum(x[j]-u, u-x[j]))",
    "sum[j](relu(x[j]-u)) + sum[j](relu(u-x[j]))",
    "sum[j](maximum(x[j], u)) - sum[j](minimum(x[j], u))",
    "2*sum[j](relu(x[j]-u))",
    "2*sum[j](where(u > x[j], u-x[j], 0))",
]


@pytest.mark.parametrize(
    "output", ["a-c+u", "floor(a-c+1/2)", "maximum(a, c)-a", "where(a < c+1, u, a)", "sin(a)-sin(c)"]
)
def test_two_stages_of_one_value_refuse_nothing(output: str) -> None:
    """Deviations written otherwise: some have the same normal form, none refutes the output."""
    for number, same in enumerate(SAME):
        text = f"u = mean[j](x[j]); a = sum[j](abs(x[j]-u)); c = {same}; return y = {output}, n = u"
        if number % 5 == len(output) % 5:
            assert not isinstance(ra.verdict(ra.parse(text)), ra.NotDecomposable), text


@examples(8)
@given(st.sampled_from(sorted(STAGES)), st.sampled_from(LIVING))
def test_what_an_output_needs_is_refused_with_a_certificate_that_holds(name: str, output: str) -> None:
    verdict = ra.verdict(ra.parse(f"{STAGES[name]}; return y = {output}"))
    assert isinstance(verdict, ra.NotDecomposable), (name, output, verdict)
    assert verdict.certificate.verify().outputs == ("y",)
