"""Divisors that are an element in one branch and a stage value in the other: the element's pole is the definition's."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra

BODIES = (
    "w[j]/where(x[j] < 0, p, w[j])",
    "w[j]*where(x[j] < 0, p, 1/w[j])",
    "w[j]*where(x[j] < 0, p, w[j])**-2",
    "w[j]/where(x[j] < 0, p, where(x[j] < 3, w[j], 2*w[j]))",
    "w[j]/where(x[j] < 0 or p < 2, p, w[j])",
    "(w[j] - 3)/where(x[j] < 0, p, w[j] - 3)",
    "where(x[j] < 0, p, w[j] - 3)/(w[j] - 3)",
)
STAGES = ("max[j](x[j])", "sum[j](x[j])", "mean[j](w[j])")
X = ((1.0, 2.0, 4.0), (-1.0, 2.0, 4.0), (-1.0, -2.0, -4.0), (0.0, -0.0, 1.0))
W = ((0.0, 1.0, 2.0), (3.0, -0.0, 1.0), (1.0, 2.0, 0.5), (np.inf, 1.0, 2.0), (np.nan, 1.0, 2.0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", BODIES)
def test_an_element_at_its_own_pole_is_no_number(body: str) -> None:
    derived = 0
    for stage in STAGES:
        try:
            form = ra.derive_incremental(ra.parse(f"p = {stage}; return s = sum[j]({body})"))
        except ra.Undecided:
            continue
        derived += 1
        for x, w in product(map(np.array, X), map(np.array, W)):
            wanted = ra.reference(form.spec, x=x, w=w)
            acc = form.accumulator()
            for piece in (slice(0, 0), slice(0, 1), slice(1, None)):
                acc.update(x=x[piece], w=w[piece])
            for got in (form.compile("numpy")(x=x, w=w), acc.result()):
                void = np.isnan(got) and "finite_stage_values" in form.assumptions
                assert void or np.isclose(got, wanted, equal_nan=True), f"{got} and not {wanted}: {x}, {w}, {stage}"
    assert derived
