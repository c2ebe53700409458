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
BESIDE = tuple(
    f"y = {y}, z = {z}"
    for y, z in product(
        ("var[j](x[j]/p - q)", "sum[j](q*x[j])/q", "var[j](x[j]*log(p) - q)", "mean[j](x[j]/p)"), OTHERS
    )
)
EXPONENTIALS = tuple(
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


@pytest.mark.parametrize("text", BESIDE)
def test_what_a_guard_alone_reads_needs_no_domain(text: str) -> None:
    """A guard asks of x/p whether it is a number; what does not read x/p has a value at p = 0."""
    verified(text)


@pytest.mark.parametrize("text", EXPONENTIALS)
def test_divisors_stand_under_every_condition_that_leads_to_them(text: str) -> None:
    """Values that are held in two ways stand inside of one another: more ways lead to a divisor than can be walked."""
    verified(text)
