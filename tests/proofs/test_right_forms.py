"""Certificates of forms that are right: whatever they cannot prove, they refute nothing.

What a form computes stands under conditions, and several outputs share its state: domains matter where something that
is wanted reads them.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra

X = np.array([0.75, 2.5, -1.25, 1.0])
ARRAYS = {"x": X, "w": np.array([0.5, -1.0, 0.0, 2.0]), "p": 1.5, "q": 0.25}

OTHERS = ("mean[j](x[j] - q)*mean[j](x[j])", "sum[j](x[j])", "logsumexp[j](x[j])")
GUARDED = ("var[j](x[j]/p - q)", "sum[j](q*x[j])/q", "var[j](x[j]*log(p) - q)", "mean[j](x[j]/p)")
BESIDE = tuple(  # a guard asks of x/p whether it is a number; what does not read x/p has a value at p = 0
    f"y = {y}, z = {z}" for y, z in product(GUARDED, OTHERS)
)
CHOSEN = tuple(  # a root of q has no value where no output reads what it is in
    f"y = where({condition}, {stage}, {other}), z = {beside}"
    for condition, (stage, other), beside in product(
        ("q > 0", "q > 0 and p > q", "not (q <= 0 or p < 1)", "q > 0 and mean[j](x[j]) > 0"),
        (("sum[j](exp(sqrt(q)*x[j]))", "0"), ("logsumexp[j](log(q)*x[j])", "p"), ("mean[j](x[j]/q)", "max[j](x[j])")),
        OTHERS[1:],
    )
)
VOID = (  # the laws are of anchors that are numbers
    "y = logsumexp[j](where(w[j] > 0, x[j], -oo)) - logsumexp[j](x[j])",
    "y = logsumexp[j](where(x[j] > 1, exp(2*w[j]), -oo))",
    "y = where(q > 0, mean[j](x[j] - logsumexp[j](x[j])), logsumexp[j](where(x[j] > 1, exp(2*w[j]), -oo)))",
    "y = var[j](x[j] + where(w[j] > -2, w[j], -oo))",
)
EXPONENTIALS = tuple(  # held in two ways, one inside of another: more ways lead to a divisor than can be walked
    f"y = {statistic}[j]({w}*(exp(2*(x[j] - {u})) - exp(x[j] - {u})))"
    for statistic, w, u in product(("var", "mean"), ("w[j]", "p"), ("q", "mean[j](x[j])", "max[j](x[j])"))
)


def verified(text: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return {text}"), axis="j")
    form.certificate.verify(allow={"tested", "unknown"})
    arrays = {d.name: ARRAYS[d.name] for d in form.spec.tensors}
    wanted, got = ra.reference(form.spec, **arrays), form.compile("numpy")(**arrays)
    wanted, got = (found if isinstance(found, dict) else {"y": found} for found in (wanted, got))
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("text", [*BESIDE, *EXPONENTIALS, *CHOSEN, *VOID])
def test_right_forms_are_not_refuted(text: str) -> None:
    verified(text)


PLACES = (
    "where(q[i] > 0, sum[j](sum[i](log(q[i])*x[j])), 0)",
    "sum[i](where(q[i] > 0, sum[j](log(q[i])*x[j])*sum[i](sum[j](log(q[i])*x[j])), 0))",
)


@pytest.mark.parametrize("body", PLACES)
def test_a_condition_of_one_place_says_nothing_of_the_others(body: str) -> None:
    """Of these no certificate is without an assumption or a doubt: what is read at one place is computed at all."""
    form = ra.derive_incremental(ra.parse(f"return y = {body}"), axis="j")
    report = form.certificate.verify(allow={"tested", "unknown"})
    assert report.assumptions or not report.proved
