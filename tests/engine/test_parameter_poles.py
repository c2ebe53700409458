"""Definitions that divide by a function of a parameter: at its zeros they have no value, and judge no form."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.graph.plan import Obligation
from redalg.laws.check import check

WEIGHTS = {
    "shares": "tensors {w}[j] positive, {q}; s = sum[j]({w}[j]); p = {w}[j]/s",
    "softmax": "tensors {w}[j], {q}; m = max[j]({w}[j]); e = exp({w}[j] - m); s = sum[j](e); p = e/s",
    "roots": "tensors {w}[j] positive, {q}; s = sum[j](sqrt({w}[j])); p = sqrt({w}[j])/s",
}
ENTROPIES = {
    "tsallis": "(1 - sum[j](p**{q}))/({q} - 1)",
    "renyi": "log(sum[j](p**{q}))/(1 - {q})",
    "two poles": "log(sum[j](p**{q}))/({q}*(1 - {q}))",
    "pole at 2": "(sum[j](p**2) - sum[j](p**{q}))/({q} - 2)",
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("entropy", ENTROPIES)
def test_entropies_of_any_order_are_derived(weights, entropy):
    for name, order in (("w1", "q1"), ("v", "al"), ("w2", "q2")):
        text = f"{WEIGHTS[weights]}; return y = {ENTROPIES[entropy]}".format(w=name, q=order)
        form = ra.derive_incremental(ra.parse(text))
    w = np.random.default_rng(3).uniform(0.1, 2, 9)
    for q in (0.5, 1.75, 3):
        acc = form.accumulator(**{order: q})
        for piece in (w[:0], w[:2], w[2:]):
            acc.update(**{name: piece})
        wanted = ra.reference(form.spec, **{name: w, order: q})
        np.testing.assert_allclose(acc.result(), wanted, rtol=1e-13)


def _pair(left: str, right: str) -> Obligation:
    sides = [ra.parse(f"return y = {text}").outputs["y"] for text in (left, right)]
    return Obligation("O8", "y", *sides)


@pytest.mark.parametrize("pole", ["q - 1", "q", "2*q - 4", "q*(q + 1)"])
def test_only_points_without_a_value_are_left_out(pole):
    left, right = "1 - cos(2*x) - 2*sin(x)**2", "sin(x)**2 + cos(x)**2 - 1"  # 0, but for the last digit
    rounded = _pair(f"({left})/({pole})", f"({right})/({pole})")
    assert check(rounded, points=60) == "tested"
    assert check(_pair(f"x/({pole})", f"2*x/({pole})")) == "refuted"


def test_a_number_at_a_pole_is_refuted():
    zero_by_pole = ra.parse("tensors q, x; return y = (x - abs(x))/(q - 1)").outputs["y"]
    number = ra.parse("tensors q, x; return y = where(q == 1, 7, (x - abs(x))/(q - 1))").outputs["y"]
    assert check(Obligation("O8", "y", number, zero_by_pole), points=200) == "refuted"


SUMS = (
    "sum[j](x[j]*{f})",
    "mean[j](x[j]*{f})",
    "var[j](x[j]*{f})",
    "sum[j](x[j]*w[j]*{f})*{f}",
    "sum[j](where(w[j] > 0.7, x[j]*{f}, 0))",
    "sum[j](x[j]*{f} + w[j])",
    "max[j](x[j]*{f}) - min[j](x[j])",
    "where(p > q, mean[j](x[j]*{f}), sum[j](w[j]))",
    "sum[j](softmax[j](w[j])*x[j])*{f}",
)
POLES = {
    "1/(q - 2)": (2.0,),
    "1/(3*q + 4.5)": (-1.5,),
    "1/(q - p)": (1.0,),
    "1/(q**2 - 4)": (2.0, -2.0),
    "log(q - 2)": (2.0, 1.0),
    "log1p(q - 3)": (2.0, 3.0),
    "atanh(q/2)": (2.0, -2.0, 3.0),
    "1/(1 - exp(q - 2))": (2.0,),
    "1/(2 - sqrt(q))": (4.0, -1.0),
}
ELEMENTS = ((1.0, -2.0, 4.0), (1.0, 0.0, 2.0), (0.0, 0.0), (2.0, 1.0), (3.0,), ())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("pole", POLES)
@pytest.mark.parametrize("shape", SUMS)
def test_sums_at_a_pole_of_what_leaves_them(shape: str, pole: str) -> None:
    """Elements at a pole are infinities of either sign, and what is taken out of their sum is one of them."""
    form = ra.derive_incremental(ra.parse("return y = " + shape.format(f=f"({pole})")), axis="j")
    for q in (*POLES[pole], 0.25, np.inf, np.nan):
        for elements in ELEMENTS:
            x = np.array(elements)
            given = {"x": x, "w": 0.5 + np.arange(len(x)), "q": q, "p": 1.0}
            arrays = {d.name: given[d.name] for d in form.spec.tensors}
            wanted, got = ra.reference(form.spec, **arrays), form.compile("numpy")(**arrays)
            said = np.isnan(got) and "finite_stage_values" in form.assumptions
            assert said or got == pytest.approx(wanted, nan_ok=True), f"{got} and not {wanted} of {arrays}"
