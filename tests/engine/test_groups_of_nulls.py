"""Groups of which nulls leave no row: they stay, as what the definition makes of no element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.groups.grouped import Grouped
from tests.support.forms import form_of_text

FORMS = {
    "moments": ("return m = max[j](x[j]), s = sum[j](x[j]), v = var[j](x[j]), n = size[j]", 1),
    "weights": ("return y = sum[j](x[j]*c[i])", 1),
    "two passes": ("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u)), n = size[j]", 2),
}
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-4, 4), st.booleans()), max_size=8)


def _grouped(form: ra.Form, rows: list[Any], cuts: list[int], dtype: str, passes: int) -> Grouped:
    groups = form.grouped(nulls="skip", **({"c": np.array([1.0, 2.0])} if form.spec.axes != ("j",) else {}))
    for number in range(passes):
        if number:
            groups.next_pass()
        for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
            part = rows[low:high]
            x = np.ma.MaskedArray(np.array([v for _, v, _ in part], dtype), [gone for *_, gone in part])
            groups.update(by=[key for key, *_ in part], x=x)
    return groups


@pytest.mark.parametrize("name", FORMS)
@given(ROWS, ROWS, st.lists(st.integers(0, 8), max_size=2), st.sampled_from(["int32", "float32"]))
def test_every_key_has_what_the_definition_makes_of_its_elements(
    name: str, rows: list[Any], more: list[Any], cuts: list[int], dtype: str
) -> None:
    text, passes = FORMS[name]
    form = form_of_text(text, max_passes=passes)
    cuts = sorted(min(c, len(rows)) for c in cuts)
    groups = _grouped(form, rows, cuts, dtype, passes)
    if passes == 1:
        groups = groups + _grouped(form, more, [], dtype, passes)
        rows = rows + more
    keys, found = groups.result()
    assert keys.tolist() == list(dict.fromkeys(key for key, *_ in rows))
    found = found if isinstance(found, dict) else {"y": found}
    bound = {"c": np.array([1.0, 2.0])} if name == "weights" else {}
    for k, key in enumerate(keys.tolist()):
        left = np.array([v for of, v, gone in rows if of == key and not gone], dtype)
        with np.errstate(all="ignore"):
            expected: Any = ra.reference(form.spec, x=left, **bound)
        expected = expected if isinstance(expected, dict) else {"y": expected}
        for output, value in expected.items():
            assert found[output].dtype == value.dtype or not len(left)
            np.testing.assert_allclose(found[output][k], value, rtol=1e-6, atol=1e-6)
