"""Powers of selected values: 1/where(c, x, 0) is 1/0 where the condition fails, whatever rules make of a selection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import Undecided
from tests.support.forms import form_of_text

POWERS = [
    "1/{w}",
    "{w}**(-2)",
    "x[i]/{w}",
    "y[i]/{w}**3",
    "{w}**2/{w}",
    "(2*{w})**(-1)",
    "1/({w}*x[i])",
]
BESIDE_STAGES = ["m/{w}", "exp(x[i] - m)/{w}"]
CASES = [(fold, power) for fold in ("sum", "max", "mean", "logsumexp") for power in POWERS]
CASES += [(fold, power) for fold in ("sum", "max", "mean") for power in BESIDE_STAGES]
SELECTED = ["where(c[i] > 1, 1, 0)", "where(c[i] > 1, x[i], 0)", "where(c[i] > 1, 2, 0)"]
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, -1.5, 0.5])


@pytest.mark.parametrize("selected", SELECTED)
@pytest.mark.parametrize(("fold", "power"), CASES)
@given(data=st.data())
def test_what_is_divided_by_a_selection_has_its_poles(
    fold: str, selected: str, power: str, data: st.DataObject
) -> None:
    stage = "m = max[i](x[i]); " if power in BESIDE_STAGES else ""
    form = form_of_text(f"{stage}return s = {fold}[i]({power.format(w=selected)})", "i", 1)
    n = data.draw(st.integers(0, 5))
    names = [t.name for t in form.spec.tensors]
    arrays = {name: np.array(data.draw(st.lists(NUMBERS, min_size=n, max_size=n)), float) for name in names}
    acc, cut = form.accumulator(), n // 3
    for begin, end in ((0, cut), (cut, cut), (cut, n)):
        acc.update(**{name: x[begin:end] for name, x in arrays.items()})
    with np.errstate(all="ignore"):
        true = ra.reference(form.spec, **arrays)
    found = acc.result()
    if "finite_stage_values" in form.assumptions and np.isnan(found):
        assert not np.isfinite(true)  # as the form says of stages that are infinite
        return
    np.testing.assert_allclose(found, true, rtol=1e-12, atol=1e-12)


def test_a_condition_that_a_stage_decides_is_not_divided_by() -> None:
    """No form counts what is infinite: a threshold that moves decides which elements are poles."""
    with pytest.raises(Undecided):
        form_of_text("m = max[i](x[i]); return s = sum[i](1/where(c[i] < m, 1, 0))", "i", 1)
