"""Conditions on stage values under any, all and sum: NaN makes every comparison false, and differs from everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import Forms
from tests.support.profiles import examples

STAGES = {
    "sum": "m = sum[j](w[j])",
    "max": "m = max[j](x[j])",
    "mean": "m = mean[j](x[j])",
    "scale": "m = 2*sum[j](w[j])",
}
CONDITIONS = {
    "all above": "all[j](x[j]*m > 1)",
    "all below": "all[j](x[j]/m < w[j]/m)",
    "all equal": "all[j](eq(x[j]*m, 1))",
    "any different": "any[j](ne(x[j]*m, 1))",
    "any not a number": "any[j](isnan(x[j]*m))",
    "any sum not a number": "any[j](isnan(abs(x[j] - m)*w[j]))",
    "masked": "all[j](where(w[j] > 0, x[j]*m > -3, w[j] < 5))",
    "none": "all[j](not x[j]*m < 1)",
    "count of no numbers": "sum[j](where(isnan(x[j]*m), 1, 0))",
    "sum beside no numbers": "sum[j](where(isnan(abs(x[j] - m) + exp(x[j])), 1, w[j]))",
    "count of one sign": "sum[j](where(x[j]*m >= 0, 1, 0))",
    "sum of one sign": "sum[j](where(x[j]*m < 0, x[j], 0))",
    "count of zeros": "sum[j](where(eq(x[j]*m, 0), 1, 0))",
}
FORMS = Forms({f"{s}, {c}": f"{STAGES[s]}; return y = {CONDITIONS[c]}" for s in STAGES for c in CONDITIONS})
NUMBER = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -3.0, np.nan])
COLUMNS = st.integers(1, 4).flatmap(lambda n: st.tuples(*[st.lists(NUMBER, min_size=n, max_size=n)] * 2))


def merged(form: Any, arrays: dict[str, Any], cut: int) -> Any:
    first, nothing, second = (form.accumulator() for _ in range(3))
    first.update(**{name: x[:cut] for name, x in arrays.items()})
    nothing.update(**{name: x[:0] for name, x in arrays.items()})
    second.update(**{name: x[cut:] for name, x in arrays.items()})
    first.merge(nothing)
    first.merge(second)
    return first.result()


@pytest.mark.parametrize("condition", sorted(CONDITIONS))
@pytest.mark.parametrize("stage", sorted(STAGES))
@given(columns=COLUMNS, cut=st.integers(0, 4))
@examples(20)
def test_conditions_of_nan_are_those_of_the_definition(stage: str, condition: str, columns: Any, cut: int) -> None:
    form = FORMS[f"{stage}, {condition}"]
    arrays = {d.name: np.array(columns["xw".index(d.name)]) for d in form.spec.tensors}
    if "/" in CONDITIONS[condition] and not all(stage_values(stage, *columns)):
        return  # a divisor 0
    with np.errstate(all="ignore"):
        wanted = ra.reference(form.spec, **arrays)
        for got in (form.compile("numpy")(**arrays), merged(form, arrays, min(cut, len(columns[0])))):
            floats = wanted.dtype.kind == "f"
            nothing = floats and not stage_values(stage, *columns) and "finite_stage_values" in form.assumptions
            assert np.array_equal(got, wanted, equal_nan=floats) or nothing and np.isnan(got)


def stage_values(stage: str, x: list[float], w: list[float]) -> list[float]:
    """The stage value, if it is a number; a NaN is one of the cases."""
    value = {"sum": np.sum(w), "max": np.max(x), "mean": np.mean(x), "scale": 2 * np.sum(w)}[stage]
    return [] if np.isnan(value) else [float(value)]
