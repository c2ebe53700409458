"""Conditions and counts have no NaN: at infinities they are the definition's, or the form says what it assumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

NAMES = [("x[j]", "w[j]", "j"), ("shift[i,n1]", "n[n1]", "n1"), ("K[k]", "v1[k]", "k")]
STAGES = [
    "m = max[{j}]({x})",
    "m = max[{j}](where({x} < {w}, {x}, -oo))",
    "m = min[{j}](where({w} > 0, {x}, oo))",
    "m = mean[{j}]({x})",
    "s = sum[{j}]({w}); m = min[top](topk[{j}:2:top](({x}/s)**2).values)",
    "s = sum[{j}]({w}); m = max[top](topk[{j}:3:top](abs({x} - s)).values)",
]
BODIES = [
    "{x} - m",
    "({x} - m)**3",
    "{x}*m",
    "abs({x} - m)",
    "exp({x} - m)",
    "sigmoid(({x} - m)**3)",
    "m/(1 + {x}**2)",
]
ENDS = [
    "any[{j}]({b} > 0)",
    "all[{j}]({b} <= 2)",
    "sum[{j}](where({b} > 0, 1, 0))",
    "sum[{j}](where({b} <= 0, 1, 0))",
    "any[{j}]({x} > m)",
    "argmax[{j}]({b})",
    "argmin[{j}]({b})",
]
NUMBER = st.sampled_from([1.0, -2.0, 0.5, 0.0, 3.0, np.inf, -np.inf, np.nan])
PAIRS = st.integers(1, 5).flatmap(lambda n: st.tuples(*[st.lists(NUMBER, min_size=n, max_size=n)] * 2))
FORMS: dict[str, Any] = {}


def form_of(text: str) -> Any:
    if text not in FORMS:
        FORMS[text] = ra.verdict(ra.parse(text))
    return FORMS[text]


@given(
    names=st.sampled_from(NAMES),
    stage=st.sampled_from(STAGES),
    body=st.sampled_from(BODIES),
    end=st.sampled_from(ENDS),
    data=PAIRS,
    cut=st.integers(0, 5),
)
@examples(25)
def test_they_are_the_definition_or_say_what_they_assume(
    names: Any, stage: str, body: str, end: str, data: Any, cut: int
) -> None:
    x, w, j = names
    known = {"x": x, "w": w, "j": j}
    form = form_of(f"{stage.format(**known)}; return y = {end.format(b=body.format(**known), **known)}")
    if isinstance(form, ra.Undecided | ra.NotDecomposable):
        return
    rows = [data[0], data[0][::-1]] if "i," in x else data[0]
    columns = {x.split("[")[0]: np.array(rows), w.split("[")[0]: np.array(data[1])}
    arrays = {d.name: columns[d.name] for d in form.spec.tensors}
    first, second = form.accumulator(), form.accumulator()
    with np.errstate(all="ignore"):
        wanted = ra.reference(form.spec, **arrays)
        first.update(**{name: a[..., :cut] for name, a in arrays.items()})
        second.update(**{name: a[..., cut:] for name, a in arrays.items()})
        first.merge(second)
        results = first.result(), form.compile("numpy")(**arrays)
    for got in results:
        assert got.dtype == wanted.dtype
        said = form.assumptions.get("finite_stage_values", "")
        assert np.array_equal(got, wanted) or ("conditions and counts" in said if "arg" not in end else said)


@pytest.mark.parametrize("name", ["exp", "exp2"])
@pytest.mark.parametrize("end", ["sum[j](where({} > 0, 1, 0))", "any[j]({} <= 0)", "all[j](0 < {})"])
def test_what_vanishes_at_an_infinity_is_not_positive_there(name: str, end: str) -> None:
    form = form_of(f"m = max[j](x[j]); return y = {end.format(f'{name}(x[j] - m)')}")
    for x in ([1.0, -np.inf], [-np.inf], [2.0, 1.0], [-np.inf, 0.0, -np.inf]):
        with np.errstate(all="ignore"):
            wanted = ra.reference(form.spec, x=x)
            assert (
                form.compile("numpy")(x=x) == wanted or "finite_stage_values" in form.assumptions and max(x) == -np.inf
            )
