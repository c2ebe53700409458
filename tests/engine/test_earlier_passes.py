"""Outputs that one pass computes beside others that need two: what parameters make of them is said in that pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra

FIRST = {
    "sum": "sum[j](c*x[j])",
    "differences": "sum[j](x[j] - c)",
    "least": "min[j](x[j] - c)",
    "largest": "max[j](c*x[j])",
    "share": "sum[j](c*x[j])/c",
    "logsumexp": "log(sum[j](exp(c*x[j])))",
    "norm": "sqrt(sum[j]((c*x[j])**2))",
}
SECOND = {"deviation": "sum[j](abs(x[j] - u))", "gated": "max[j](relu(x[j] - c)*abs(x[j] - u))"}
FORMS: dict[tuple[str, str], Any] = {}
ELEMENTS = st.sampled_from([0.0, -0.0, 1.0, -2.0, 0.5, 3.0, np.inf, -np.inf, np.nan])


def _form(first: str, second: str) -> Any:
    if (first, second) not in FORMS:
        text = f"u = mean[j](x[j]); return s = {FIRST[first]}, y = {SECOND[second]}"
        FORMS[first, second] = ra.derive_incremental(ra.parse(text), max_passes=2)
    return FORMS[first, second]


def _in_pieces(form: Any, c: float, pieces: Sequence[np.ndarray]) -> Any:
    acc = form.accumulator(c=c)
    for number in range(form.passes.statistics):
        if number:
            acc.next_pass()
        for piece in pieces:
            acc.update(x=piece)
    return acc.result()


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
@given(data=st.data())
def test_they_have_a_form_and_the_values_of_the_definition(first: str, second: str, data: st.DataObject) -> None:
    form = _form(first, second)
    x = np.array(data.draw(st.lists(ELEMENTS, max_size=7)), np.float64)
    c = data.draw(ELEMENTS)
    low, high = sorted(data.draw(st.lists(st.integers(0, len(x)), min_size=2, max_size=2)))
    with np.errstate(all="ignore"):
        wanted = ra.reference(form.spec, x=x, c=c)
        whole = form.compile("numpy")(x=x, c=c)
        pieces = _in_pieces(form, c, (x[:low], x[low:low], x[low:high], x[high:])) if len(x) else whole
    for name, right in wanted.items():
        for found in (whole[name], pieces[name]):
            np.testing.assert_allclose(found, right, rtol=1e-13, atol=1e-13)


VANISHING = ("min[j](abs(x[j] - min[j](x[j])))", "sum[j](x[j] - u)", "log(max[j](exp(x[j] - max[j](x[j]))))")
LATER = ("/s", "*log(s)", "/sqrt(s)", "*s**-2", "/(1 - s)")


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("vanishing", VANISHING)
@given(x=st.lists(st.sampled_from([0.0, 1.0, -2.0, 0.5, 3.0]), min_size=1, max_size=4))
def test_poles_of_a_later_pass_stay_where_what_they_divide_has_cancelled(
    vanishing: str, later: str, x: list[float]
) -> None:
    key = vanishing, later
    if key not in FORMS:
        text = f"u = mean[j](x[j]); s = sum[j](abs(x[j] - u)); return y = {vanishing}{later}"
        FORMS[key] = ra.derive_incremental(ra.parse(text), max_passes=2)
    elements = np.array(x)
    with np.errstate(all="ignore"):
        wanted = float(ra.reference(FORMS[key].spec, exact=False, x=elements))
        found = float(FORMS[key].compile("numpy")(x=elements))
    assert np.isnan(found) if np.isnan(wanted) else abs(found - wanted) <= 1e-12
