"""Integers under an exponential in every walk of rows: an anchor of nothing is int64's end, and must not wrap."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.sample import deep

SPECS = (
    "m = max[j](x[i,j]); return s = sum[j](exp(x[i,j] - m))",
    "m = min[j](x[i,j]); return s = sum[j](exp(m - x[i,j])), d = sum[j](x[i,j] - m)",
    "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)",
)


@pytest.mark.parametrize("text", [SPECS[0], *deep(SPECS[1:])])
@pytest.mark.parametrize(
    "dtype", ["int32", *(pytest.param(d, marks=pytest.mark.deep) for d in ("int8", "int64", "uint8"))]
)
@pytest.mark.parametrize("order", ["C", pytest.param("F", marks=pytest.mark.deep)])
def test_extrema_of_integers_anchor_exponentials(text: str, dtype: str, order: str) -> None:
    spec = ra.parse(text)
    run = ra.derive_incremental(spec).compile("cpu")
    for shape in ((1, 1), (3, 2), (5, 37), (64, 9), (300, 100), (2, 9000), (0, 3)):
        x = np.random.default_rng(1).integers(0 if dtype == "uint8" else -60, 60, shape).astype(dtype, order=order)
        found, truth = run(x=x), ra.reference(spec, x=x)
        found, truth = ((r if isinstance(r, dict) else {"": r}) for r in (found, truth))
        for n, expected in truth.items():
            np.testing.assert_allclose(found[n], expected, rtol=1e-12)
