"""Rows side by side, walked in short tiles of which several are summed about one anchor: stages beside one another."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from tests.support.sample import deep
from tests.support.simulated import agree, run

STAGES = {
    "mean": "mean[j](x[i,j])",
    "variance": "var[j](x[i,j]*w[j])",
    "logsumexp": "logsumexp[j](x[i,j])",
    "weights": "sum[j](exp(x[i,j] - max[j](x[i,j]))*w[j])",
    "mass": "sum[j](exp(min[j](w[j]*x[i,j]) - w[j]*x[i,j]))",
    "ties": "sum[j](where(x[i,j] == max[j](x[i,j]), w[j], 0))",
    "distances": "sum[j](abs(x[i,j] - max[j](x[i,j])))",
    "covariance": "cov[j](x[i,j], w[j])",
    "place": "argmax[j](x[i,j])",
    "product": "prod[j](x[i,j]/8)",
    "norm": "norm[j](x[i,j])",
    "any": "any[j](x[i,j] > 2)",
}
WALKED = Schedule(threads=4, rows=4, vector=1, tile=4, column=True)
QUICK = [("mean", "logsumexp"), ("variance", "weights"), ("mean", "ties")]
REST = [pair for pair in combinations(STAGES, 2) if pair not in QUICK]


def form_of(a: str, b: str) -> Any:
    return ra.derive_incremental(ra.parse(f"return a = {STAGES[a]}, b = {STAGES[b]}"), axis="j")


@pytest.mark.parametrize("a, b", [*QUICK, *deep(REST)])
def test_pairs_of_stages(a: str, b: str) -> None:
    rng, form = np.random.default_rng(len(a + b)), form_of(a, b)
    for length in (3, 18, 50):
        drawn = {"x": rng.normal(size=(5, length)) + 3, "w": np.round(rng.normal(size=length), 1)}
        given = {t.name: drawn[t.name] for t in form.spec.tensors}
        found, _, _ = run(form, given, WALKED)
        agree(form.spec, found, given, 1e-11)
