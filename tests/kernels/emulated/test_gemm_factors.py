"""Factors that leave a sum of products for the epilogue: infinite, NaN and 0, as each term has them."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.schedule.target import A100
from tests.support.chain_cases import emulated
from tests.support.gemm_cases import form_of, planned

TEXTS = {
    "rows": "y = sum[j](x[i,j]*s[i]*w[j,k]); return y",
    "columns": "return y = clip(sum[j](x[i,j]*w[j,k]*c[k]), -1, 1)",
    "both": "return y = sigmoid(sum[j](x[i,j]*w[j,k]*c[k]*s[i]))",
    "a stage": "a = mean[j](x[i,j]); return y = clip(sum[j](x[i,j]/a*w[j,k]), -1, 1)",
    "beside another": "return y = relu(sum[j](x[i,j]*s[i]*w[j,k])) + c[k]",
    "outside": "return y = clip(s[i]*sum[j](x[i,j]*w[j,k]), -1, 1)",
}
FACTORS = np.array([1.0, -2.0, 0.0, np.inf, -np.inf, np.nan])
SIZES = {"i": 48, "j": 2, "k": 24}


@pytest.mark.parametrize("name", TEXTS)
def test_a_result_is_the_definition_or_nan(name: str) -> None:
    """Every factor beside terms of one sign, of both, and zeros; NaN only where a factor or a mean is no number."""
    form, rng = form_of(TEXTS[name]), np.random.default_rng(1)
    made = planned(TEXTS[name], SIZES, target=A100, schedule="mma", s="float32", c="float32")
    drawn = {
        "x": rng.integers(-1, 2, (48, 2)).astype(float),
        "w": rng.integers(-1, 2, (2, 24)).astype(float),
        "s": np.repeat(FACTORS, 8),
        "c": np.repeat(FACTORS, 4) if name != "beside another" else np.ones(24),
    }
    given = {t.name: drawn[t.name] for t in form.spec.tensors}
    with np.errstate(all="ignore"):
        found, true = emulated(made, given)["y"], ra.reference(form.spec, **given)
        mean = drawn["x"].mean(-1)
        rows = {"columns": np.ones(48), "a stage": mean / mean}.get(name, drawn["s"])
    no_number = np.isnan(found)
    np.testing.assert_allclose(found[~no_number], true[~no_number], rtol=0.01)
    finite = np.isfinite(rows)[:, None] & np.isfinite(drawn["c"] if name not in ("rows", "a stage", "outside") else 1.0)
    assert not (no_number & finite).any()
