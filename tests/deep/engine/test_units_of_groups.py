"""Groups of very different sizes: each has a unit of its own, where masks along an axis select its elements."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running

SPECS = (
    "return y = sqrt(sum[j](where(G[j,g], x[j]**2, 0)))",
    "return y = sum[j](where(G[j,g], abs(x[j])**3, 0))**(1/3)",
    "s = sqrt(sum[j](where(G[j,g], x[j]**2, 0))); return y = max[j](where(G[j,g], abs(x[j]), -oo)) / s",
    "return y = sum[j](where(G[j,g], x[j]**2, 0)) / sum[j](where(G[j,g], x[j], 0))**2",
    "return y = sum[j](where(G[j,g], x[j]**4, 0)) / sum[j](where(G[j,g], x[j]**2, 0))**2",
    "s = sum[j](where(G[j,g], x[j], 0)); return y = sum[j](where(G[j,g], (x[j] / s)**2, 0))",
    "n = sum[j](where(G[j,g], 1, 0)); m = sum[j](where(G[j,g], x[j], 0)) / n;"
    " return y = sqrt(sum[j](where(G[j,g], (x[j] - m)**2, 0)) / n)",
    "n = sum[j](where(G[j,g], 1, 0)); m = sum[j](where(G[j,g], x[j], 0)) / n;"
    " return y = sum[j](where(G[j,g], (x[j] - m)**3, 0)) / sum[j](where(G[j,g], (x[j] - m)**2, 0))**(3/2)",
    "return y = sum[g](sqrt(sum[j](where(G[j,g], x[j]**2, 0))))",
    "return y = sqrt(sum[j](where(G[j,g], x[j]**2, 0))), z = max[j](x[j])",
)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("text", SPECS)
def test_each_group_has_its_unit(text: str, dtype: str) -> None:
    form = ra.derive_incremental(ra.parse(f"tensors x[j], G[j,g] bool; {text}"), axis="j")
    far, small = (1e140, 1e-140) if dtype == "float64" else (1e15, 1e-17)
    cpu, program = form.compile("cpu"), form.compile("numpy")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        groups = rng.permutation([0, 0, 0, 1, 1, 1, 2, 2, 2])
        scale = np.array([far, small, 1.0])[groups]
        arrays = {"x": (rng.uniform(0.5, 2.0, 9) * scale).astype(dtype), "G": groups[:, None] == np.arange(4)[:3]}
        found = ra.reference(form.spec, exact=True, **arrays)
        wanted = found if isinstance(found, dict) else {"y": found}
        merged = running.merged(form, arrays, [0, 2, 2, 6, 9], [1, 0, 0])
        for got in (cpu(**arrays), program(**arrays), running.streamed(form, arrays, [0, 1, 1, 9]), merged):
            for name, value in (got if isinstance(got, dict) else {"y": got}).items():
                exact = np.asarray(wanted[name], dtype=float)
                rtol = 1e-11 if dtype == "float64" else 5e-3 if "**3" in text else 1e-4  # anchors start elsewhere
                np.testing.assert_allclose(np.asarray(value, float), exact, rtol=rtol, err_msg=name)
