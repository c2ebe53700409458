"""Weights of any size: those that add up to a subnormal number weigh as others do."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running

SPECS = {
    "mean": "s = sum[j](w[j]); return y = sum[j](w[j]*x[j])/s",
    "variance": "s = sum[j](w[j]); u = sum[j](w[j]*x[j])/s; return y = sum[j](w[j]*(x[j] - u)**2)/s",
    "twice": "s = sum[j](w[j]); u = sum[j](w[j]*x[j])/s; return y = 2*sum[j](w[j]*(x[j] - u)**2)/s - u",
    "third": "s = sum[j](w[j]); u = sum[j](w[j]*x[j])/s; return y = sum[j](w[j]*(x[j] - u)**3)/s",
    "covariance": "s = sum[j](w[j]); u = sum[j](w[j]*x[j])/s; v = sum[j](w[j]*z[j])/s;"
    " return y = sum[j](w[j]*(x[j] - u)*(z[j] - v))/s",
    "share": "s = sum[j](w[j]); return y = sum[j](w[j]*x[j])/s + max[j](w[j])/s",
    "logarithms": "return y = sum[j](log(w[j]/sum[j](w[j])))",
    "entropy": "s = sum[j](w[j]); return y = -sum[j](w[j]/s*log(w[j]/s))",
    "entropy beside the mean": "u = mean[j](w[j]); return y = sum[j](w[j]*log(w[j]/u))/u",
    "logarithms by groups": "s = sum[j](where(t[j], w[j], 0)); return y = sum[j](where(t[j], log(w[j]/s) + x[j], 0))",
    "of groups": "s = sum[j](where(t[j], w[j], 0)); u = sum[j](where(t[j], w[j]*x[j], 0))/s;"
    " return y = sum[j](where(t[j], w[j]*(x[j] - u)**2, 0))/s",
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SPECS)
def test_weights_of_any_size(name: str, dtype: str) -> None:
    """A weight of k units of the least number is exact; products with it are off by half a unit each."""
    domains = {"w": " positive", "t": " bool"}
    declared = ", ".join(f"{n}[j]{domains.get(n, '')}" for n in "wxzt" if f"{n}[j]" in SPECS[name])
    form = ra.derive_incremental(ra.parse(f"tensors {declared}; {SPECS[name]}"))
    least = float(np.finfo(dtype).smallest_subnormal)
    for seed, units in product(range(3), (10**6, 10**4, 1e30)):
        rng = np.random.default_rng(seed)
        drawn = {
            "w": (rng.integers(1, 10, 9) * units * least),
            "x": rng.integers(-8, 9, 9) / 4,
            "z": rng.normal(size=9),
        }
        arrays = {n: drawn[n].astype(dtype) for n in "wxz" if f"{n}[j]" in SPECS[name]}
        arrays |= {"t": rng.random(9) < 0.7} if "t[j]" in SPECS[name] else {}
        wanted = float(ra.reference(form.spec, exact=True, **arrays))
        got = [form.compile(target)(**arrays) for target in ("numpy", "cpu")]
        for value in (*got, running.merged(form, arrays, [0, 2, 2, 9], [1, 0])["y"]):
            # an anchor that starts at an element is off by what w·(x - A) has rounded: some units of 10·units each
            bound = 1e3 / units + (1e-12 if dtype == "float64" else 1e-4)
            assert abs(float(value) - wanted) <= bound * (1 + abs(wanted)), (value, wanted, units)
