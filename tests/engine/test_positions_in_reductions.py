"""What reductions make of positions: the definition's number, or -1 where a form that assumes finite stage values says
that there is none; drawn specs, infinities and NaN in any place, in one part and in unequal ones."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

SHAPES = [
    "{o}[t](topk[j:2:t]({e}).indices)",
    "sum[t](where(topk[j:2:t]({e}).indices == 1, 1, 0))",
    "3*argmax[j]({e}) + argmin[j]({e})",
    "max[i](argmax[j](x[i,j] - max[j](x[i,j])))",
    "where(argmax[j]({e}) == 0, 7, 5)",
    "abs(argmax[j]({e}))",
    "argmin[j]({e})**2 + sign(argmin[j]({e}))",
    "relu(cast(argmax[j]({e}), int8) - 1)",
    "argmin[j]({e})*size[j]",
]
ELEMENTS = ["exp(x[j] - max[j](x[j]))", "x[j] - max[j](x[j])", "(x[j] - min[j](x[j]))**3", "x[j]*sum[j](x[j]**2)"]
VALUES = st.sampled_from([1.0, 2.0, 3.0, -1.0, 0.0, np.inf, -np.inf, np.nan])


@given(st.sampled_from(SHAPES), st.sampled_from(ELEMENTS), st.sampled_from(["max", "min", "sum"]), st.data())
@examples(400)
def test_they_are_those_of_the_definition_or_none(shape: str, element: str, over: str, data: st.DataObject) -> None:
    form = form_of_text("return y = " + shape.format(o=over, e=element))
    row = st.lists(VALUES, min_size=4, max_size=4)
    axes = form.spec.tensors[0].axes
    x = np.array(data.draw(row if len(axes) == 1 else st.lists(row, min_size=2, max_size=2)))
    expected, cut = ra.reference(form.spec, x=x), data.draw(st.integers(0, 4))
    parts = form.accumulator()
    for part in np.split(x, [cut], axis=axes.index(form.plan.axis[0])):
        parts.update(x=part)
    allowed = {int(expected)} | ({-1} if "finite_stage_values" in form.assumptions else set())
    for got in (form.compile("numpy")(x=x), parts.result()):
        assert int(got) in allowed, (form.spec, x)


@pytest.mark.parametrize("value", ["a*t - 1", "a + sum[j](k[j])", "max[i](a + l[i])"])
def test_beside_tensors_of_integers(value: str) -> None:
    """These have no NaN either: what says that there is no position is -1."""
    tensors = {"a*t": "t integer", "k[j]": "k[j] integer", "l[i]": "l[i] integer"}
    (declared,) = (words for name, words in tensors.items() if name in value)
    form = form_of_text(f"tensors x[j], {declared}; a = argmin[j](x[j] - max[j](x[j])); return y = {value}", "j")
    drawn = {"t": 3, "k": np.arange(3), "l": np.array([2, 1])}
    for x in ([np.inf, 0.0, 1.0], [2.0, -np.inf, 1.0], [2.0, 0.0, 1.0]):
        arrays = {t.name: drawn.get(t.name, np.array(x)) for t in form.spec.tensors}
        expected = int(ra.reference(form.spec, **arrays))
        assert int(form.compile("numpy")(**arrays)) in ({expected} if max(x) < np.inf else {expected, -1})
