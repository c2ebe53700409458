"""Reductions inside an element over an axis that the state has as well, Σ_d q·(k - mean k): a value for each element.

Results that keep the streamed axis, and passes after the one that finds the statistic, on CPUs and as CUDA threads.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from tests.support.simulated import run as simulated

STATISTICS = ("mean[j]({k})", "max[j]({k})", "sum[j](p[j]*{k})", "min[j]({k}) - sum[j]({k})")
INNER = {
    "sum": "sum[d](q[d]*({k} - u))",
    "distance": "sum[d](({k} - u)**2)",
    "largest": "max[d]({k} - u)",
    "least": "min[d](abs({k} - u))",
    "product": "prod[d](1 + {k}/(1 + u**2))",
    "any": "where(any[d]({k} > u), 1, 2)",
    "all": "where(all[d]({k} <= u), p[j], 0)",
    "two axes": "sum[d](w[d,e]*({k} - u))",
    "inside": "sum[d](({k} - u)*sum[c](v[c]*{k}))",
    "twice": "sum[d](({k} - u)*max[d]({k}*u))",
}
AROUND = (
    "y = {b}",
    "y = exp(-abs({b}))*p[j], v = sum[d](u)",
    "y = softmax[j]({b})",
    "y = sum[j](tanh({b})), s = {b}*2",
)
LENGTHS = (0, 1, 5, 1030)  # tiles of CPU kernels hold 1024 elements


@pytest.mark.parametrize("name", INNER)
def test_an_inner_reduction_over_elements_and_state(name: str) -> None:
    number = list(INNER).index(name)
    rows, dtype = [("k[j,d]", "float64"), ("k[i,j,d]", "float32")][number % 2]
    around, statistic = AROUND[number // 2 % len(AROUND)], STATISTICS[number % len(STATISTICS)]
    text = f"u = {statistic.format(k=rows)}; return {around.format(b=INNER[name].format(k=rows))}"
    form = ra.derive_incremental(ra.parse(text), axis="j", max_passes=3)
    for length in LENGTHS:
        rng = np.random.default_rng(length)
        sizes = {"i": 2, "j": length, "d": 3, "e": 2, "c": 4}
        arrays = {d.name: rng.normal(size=[sizes[a] for a in d.axes]).astype(dtype) for d in form.spec.tensors}
        with np.errstate(all="ignore"):
            wanted = running.named(form, ra.reference(form.spec, **arrays))
            found = {"cpu": running.named(form, form.compile("cpu")(**arrays))}
            if length == 5:  # threads are slow here
                found["cuda"] = simulated(form, arrays)[0]
        for (target, got), (key, value) in product(found.items(), wanted.items()):
            size = 1 + np.abs(np.where(np.isfinite(value), value, 0)).max(initial=0)
            unit = 1e-12 if dtype == "float64" else 1e-4
            np.testing.assert_allclose(got[key], value, unit, unit * size, err_msg=f"{target} {length}: {text}")


TWO = (
    "u = mean[j](k[j,d]); s = sum[d](q[i,d]*(k[j,d] - u)); m = max[j](s);"
    " return y = sum[j](exp(s - m)*v[j,e])/sum[j](exp(s - m))",
    "u = mean[j](k[j,d]); m = max[j](v[j,e]); return y = sum[d]((k[j,d] - u)**2) + sum[e](v[j,e]*m), z = sum[d](u)*m",
)


@pytest.mark.parametrize("text", TWO)
def test_a_reduction_over_one_of_two_axes_of_the_state(text: str) -> None:
    form, rng = ra.derive_incremental(ra.parse(text), axis="j"), np.random.default_rng(2)
    sizes = dict(zip("ijde", (2, 5, 3, 4), strict=True))
    arrays = {d.name: rng.normal(size=[sizes[a] for a in d.axes]) for d in form.spec.tensors}
    for got in (running.named(form, form.compile("cpu")(**arrays)), simulated(form, arrays)[0]):
        for key, value in running.named(form, ra.reference(form.spec, **arrays)).items():
            np.testing.assert_allclose(got[key], value, 1e-12, 1e-12)
