"""Maps that have no value at some elements (a logarithm below 0) inside what is ordered: NaN as in the definition."""

from __future__ import annotations

from itertools import product
from random import Random

import numpy as np
import pytest

import redalg as ra

MAPS = ("sqrt", "log", "log1p", "acosh", "asin", "atanh")
ARGUMENTS = ("x[j]", "x[j] - M", "x[j]*M", "x[j]/exp(M)")
STAGES = (
    "any[j]({} > 0)",
    "all[j]({} > 0)",
    "any[j](not {} < M)",
    "all[j](where(x[j] > 0, {} > M, x[j] < 1))",
    "max[j]({} + M)",
    "min[j](-{}*M)",
    "max[j](-{} - M)",
    "max[j](where(x[j] < 1, {} + M, -oo))",
    "max[j](relu({} - M))",
    "argmax[j]({} - M)",
    "argmin[j](-{}*exp(M))",
    "argmax[j](abs({} - M))",
    "topk[j:2:t]({} - M).values",
    "topk[j:2:t](-{} - M).indices",
    "topk[j:3:t](exp({} - M)).values",
)
ELEMENTS = [np.array(x) for x in product((-3.0, 0.0, 0.5, 2.0), repeat=3)]


@pytest.mark.parametrize("name", MAPS)
def test_what_has_no_value_is_nan(name: str) -> None:
    draw, derived = Random(name), 0
    for argument, stage in product(ARGUMENTS, STAGES):
        spec = ra.parse("return y = " + stage.format(f"{name}({argument})").replace("M", "max[j](w[j])"))
        form = ra.verdict(spec)
        if not isinstance(form, ra.form.Form):
            continue
        derived += 1
        run = form.compile("numpy")
        for x in draw.sample(ELEMENTS, 24):
            arrays = {
                t.name: x if t.name == "x" else np.array(draw.choice(([1.0, 0.5, -1.0], [-1.0, -2.0, -3.0])))
                for t in spec.tensors
            }
            with np.errstate(all="ignore"):
                wanted, found = ra.reference(spec, **arrays), run(**arrays)
            right = np.isclose(found, wanted, equal_nan=True)
            if "finite_stage_values" in form.assumptions:
                right |= np.isnan(found) | (np.asarray(found) == -1)
            assert right.all(), (str(spec), arrays, found, wanted)
    assert derived > 10
