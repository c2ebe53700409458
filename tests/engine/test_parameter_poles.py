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
