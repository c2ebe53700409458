"""Sums of what a condition on an extremum selects: what threads selected before is dropped, infinities included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import Forms
from tests.support.simulated import agree, run

FORMS = Forms(
    {
        "ties": "return v = sum[j](where(x[i,j] == max[j](x[i,j]), w[j], 0))",
        "ties beside a mean": "return v = mean[j](where(x[i,j] == min[j](x[i,j]), w[j], 0)), m = mean[j](x[i,j])",
        "weighted ties": "m = max[j](x[i,j]); return v = sum[j](where(x[i,j] == m, w[j], 0))/(1 + m**2), "
        "n = count[j](x[i,j] == m)",
    }
)
SCHEDULES = (
    Schedule(4, 1, 1, 1),
    Schedule(4, 4, 1, 2, resident=True),
    Schedule(4, 4, 1, 1, column=True),
    Schedule(2, 1, 1, 1, split=2),
    Schedule(32, 1, 1, 1, cluster=2),
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", ["ties", "ties beside a mean", "weighted ties"])
def test_infinities_and_nan_that_are_not_selected(name: str, schedule: Schedule) -> None:
    form: Any = FORMS[name]
    x = np.array([[1.0, 2, 3, 0, 3, -1, 2], [3, -1, 0, 2, -1, 0, 1]])
    for special in (np.nan, np.inf):
        for place in (0, 5):
            w = np.arange(1.0, 8)
            w[place] = special
            agree(form.spec, run(form, {"x": x, "w": w}, schedule)[0], {"x": x, "w": w}, 1e-12)
