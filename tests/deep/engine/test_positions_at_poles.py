"""Positions beside stage values that are 0 or infinite: the definition's, or none (-1), and never another number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import Forms
from tests.support.profiles import examples

FORMS = Forms(
    {
        "by a variance": "tensors v[j] positive; u = mean[j](v[j]); return y = argmax[j](v[j]/mean[j]((v[j]-u)**2))",
        "by a sum": "s = sum[j](w[j]); return y = argmin[j](x[j]/s)",
        "by a moment": "s = sum[j](x[j]*w[j]); return y = argmax[j](abs(x[j])/s)",
        "from the largest of a mask": "m = max[j](where(x[j] < w[j], x[j], -oo)); return y = argmax[j]((x[j] - m)**3)",
        "from the least of a mask": "m = min[j](where(x[j] < w[j], x[j], oo)); return y = argmin[j](2*x[j] - m)",
        "lists from a mask": "m = max[j](where(x[j] < w[j], x[j], -oo)); return y = topk[j:2](exp(x[j] - m)).indices",
        "of the k largest": "s = sum[j](w[j]); return y = topk[j:2](x[j]/s).indices",
    }
)
NUMBER = st.sampled_from([0.0, 1.0, -1.0, 2.0])
COLUMNS = st.integers(1, 4).flatmap(lambda n: st.tuples(*[st.lists(NUMBER, min_size=n, max_size=n)] * 2))


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("name", sorted(FORMS))
@given(columns=COLUMNS)
@examples(40)
def test_positions_at_poles(name: str, target: str, columns: Any) -> None:
    form = FORMS[name]
    held = {"x": columns[0], "w": columns[1], "v": np.abs(columns[0]) + 1}
    arrays = {d.name: np.array(held[d.name]) for d in form.spec.tensors}
    with np.errstate(all="ignore"):
        wanted = np.asarray(ra.reference(form.spec, **arrays))
    found = np.asarray(form.compile(target)(**arrays))
    assert ((found == wanted) | (found == -1)).all()
    assert (found == wanted).all() or "finite_stage_values" in form.assumptions
