"""Sums over several inner axes, of terms that lack some of them, and products of sums over axes that nothing links."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running

SIZES = {"i": 2, "j": 5, "a": 2, "b": 3, "c": 4}
SPECS = (
    "return v = max[j](sum[a,b](x[j] * z[b]**2 + s * y[a]))",
    "return v = sum[j](exp(sum[a,b](x[j] * z[b] + s * y[a]) / 100))",
    "return v = max[j](tanh(sum[a,b](x[j] * y[a] + s * z[b])))",
    "return v = min[j](sum[a,b,c](x[j] * z[b] - s * y[a] * u[c]))",
    "return v = sum[j]((sum[a,b](x[j] * y[a] - s * z[b]))**2)",
    "return v = sum[j]((sum[a,b](x[j] * y[a] * z[b]))**2 * s)",
    "return v = sum[j]((sum[a](x[j] / s * y[a]))**3)",
    "return v = sum[j]((sum[a](x[j] * y[a] - s) - sum[b](z[b] * s))**2)",
    "return v = sum[j](sum[a](x[j] * y[a] + s) * sum[a,b](y[a] * z[b] * s - x[j]))",
)


@pytest.mark.parametrize("text", SPECS)
def test_terms_that_lack_an_axis(text: str) -> None:
    """They count once for each of its positions, in every target, and sums over other axes are factors."""
    form = ra.derive_incremental(ra.parse(f"s = mean[j](x[j]); {text}"), axis="j")
    cpu = form.compile("cpu")
    for seed in range(5):
        rng = np.random.default_rng(seed)
        arrays = {d.name: rng.standard_normal([SIZES[a] for a in d.axes]) for d in form.spec.tensors}
        wanted = ra.reference(form.spec, **arrays)
        for got in (form.compile("numpy")(**arrays), running.merged(form, arrays, [0, 2, 2, 5], [0, 0])["v"]):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(cpu(**arrays), wanted, rtol=1e-9, atol=1e-9)
