"""Outputs that share the unit of an element, one of which also reads a parameter in it, derive beside each other."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra

SHARED = "mean[j]((x[j]**2 - q**2)/p)", "sum[j]((x[j]**2 - q**2)/p)", "mean[j]((x[j]**3 - q**3)/p)"
OTHERS = (
    "sqrt(mean[j]((x[j] - mean[j](x[j]))**2))",
    "sqrt(sum[j](x[j]**2))",
    "norm[j](x[j])",
    "max[j](abs(x[j]))/sqrt(mean[j](x[j]**2))",
)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("shared", SHARED)
def test_they_are_what_each_of_them_is(shared: str, other: str) -> None:
    rng = np.random.default_rng(0)
    given = {"x": rng.standard_normal(9) * 3, "q": 1.5, "p": 0.25}
    form = ra.derive_incremental(ra.parse(f"a = {shared}; b = {other}; return a, b"), axis="j")
    found, expected = form.compile("numpy")(**given), ra.reference(form.spec, **given)
    total = form.accumulator(q=given["q"], p=given["p"])
    for low, high in ((0, 4), (4, 4), (4, 9)):
        total.update(x=given["x"][low:high])
    for result in (found, total.result()):
        for name, x in expected.items():
            np.testing.assert_allclose(result[name], x, rtol=1e-13)
