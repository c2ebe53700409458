"""Moments of a function of elements and of a statistic that lies far from them: their spread keeps its digits."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running

STATISTICS = {
    "sum": "sum[j](x[j])",
    "mean": "mean[j](x[j])",
    "largest": "max[j](x[j])",
    "weighted": "sum[j](p[j] * x[j]) / sum[j](p[j])",
    "two": "sum[j](x[j]) - mean[j](w[j])",
}
BODIES = ("(w[j] - s)**2", "(w[j] - s)**3", "(2*w[j] + s)**2", "w[j]*s", "(w[j] - s)*(w[j] - mean[j](w[j]))")
MOMENTS = ("var[j](a)", "sum[j]((a - mean[j](a))**2)", "cov[j](a, w[j])")


@pytest.mark.parametrize("statistic", STATISTICS)
def test_the_spread_of_powers_of_a_distance(statistic: str) -> None:
    """(w - s)^k about its mean is Σ c·((w - A)^i - its mean): no power of the distance of A and s cancels."""
    checked = 0
    for body, moment in product(BODIES, MOMENTS):
        text = f"s = {STATISTICS[statistic]}; a = {body}; return v = {moment}"
        form = ra.derive_incremental(ra.parse(f"tensors x[j], w[j], p[j] positive; {text}" if "p[j]" in text else text))
        run = form.compile("numpy")
        for distance in (1.0, 1e3, 1e6, 1e9):
            rng = np.random.default_rng(int(distance))
            arrays = {d.name: rng.uniform(0.5, 1.5, 8) for d in form.spec.tensors}
            arrays["x"] = distance * (1 + arrays["x"] / 1e3)
            exact = float(ra.reference(form.spec, exact=True, **arrays))
            for got in (run(**arrays), running.merged(form, arrays, [0, 1, 1, 8], [1, 0])["v"]):
                assert abs(float(got) / exact - 1) < 1e-11, (text, distance, got, exact)
                checked += 1
    assert checked == 8 * len(BODIES) * len(MOMENTS)
