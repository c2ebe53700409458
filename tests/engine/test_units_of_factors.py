"""Sums of powers are in units of their own tensors: a factor of other tensors, far larger, changes no digit of them."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.simulated import run

TEXTS = [
    "n = norm[j](x[i,j]); return n, k = (x[i,j] - sum[j](w[j]))*n",
    "n = norm[j](x[i,j]**2); return n, k = (x[i,j] - sum[j](where(x[i,j] == max[j](x[i,j]), w[j], 0)))*n",
    "n = norm[j](x[i,j]); return n, k = (max[j](x[i,j]) + max[j](w[j]))/n",
    "n = sum[j](x[i,j]**2)/sum[j](abs(x[i,j])); return n, k = n*(mean[j](w[j]) + x[i,j])",
]


@pytest.mark.parametrize("text", TEXTS)
def test_larger_tensors_beside_a_norm(text: str) -> None:
    form = ra.derive_incremental(ra.parse(text), axis="j")
    x = np.array([[2, 1, 0.5, -2, -1], [0.25, 0.125, 0, 1, 3]], np.float32)
    alone = run(form, {"x": x, "w": np.ones(5, np.float32)})[0]["n"]
    for scale in (1e8, 1e16, 1e30):
        found = run(form, {"x": x, "w": np.full(5, scale, np.float32)})[0]["n"]
        np.testing.assert_allclose(found, alone, rtol=1e-6)
