"""Means in later passes, beside what earlier passes found of all elements: kernels whose threads merge their states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from tests.support.sample import deep
from tests.support.simulated import agree, run

TEXTS = {
    "covariance beside a maximum": "m = max[j](-x[i,j]); return y = cov[j](maximum(m, x[i,j]), x[i,j])",
    "mean of distances": "m = mean[j](x[i,j]); return y = mean[j](abs(x[i,j] - m)), v = var[j](abs(x[i,j] - m))",
    "mean over a mean": "m = mean[j](x[i,j]); s = mean[j](sqrt(abs(x[i,j] - m))); "
    "return y = var[j](tanh(x[i,j] - s)), m",
    "size beside": "m = mean[j](x[i,j]); t = tanh(x[i,j] - m); return y = size[j]*mean[j](t), n = sum[j](t)/size[j]",
}
SCHEDULES = (
    Schedule(64, 1, 1, 4),
    Schedule(8, 2, 1, 2),
    Schedule(4, 4, 1, 4, column=True),
    Schedule(8, 2, 1, 4, resident=True),
    Schedule(8, 2, 1, 2, cluster=2),
    Schedule(8, 2, 1, 2, split=2),
    Schedule(4, 2, 1, 4, column=True, split=2, persistent=True),
)
CALLS = [(name, number) for name in TEXTS for number in range(len(SCHEDULES))]


@pytest.mark.parametrize("name, number", [*CALLS[:4], *deep(CALLS[4:])])
def test_means_of_later_passes(name: str, number: int) -> None:
    form: Any = ra.derive_incremental(ra.parse(TEXTS[name]), axis="j", max_passes=4)
    rng = np.random.default_rng(number)
    for length in (7, 29):
        given = {"x": rng.normal(size=(3, length))}
        try:
            found, _, _ = run(form, given, SCHEDULES[number], number)
        except ra.RedalgError as refused:
            assert refused.where == "schedule=" and number > 1, refused
            continue
        agree(form.spec, found, given, 1e-12)
