"""Few rows side by side, and short ones: any number, length, dtype and gaps, beside the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

TEXTS = {  # exact in integers of moderate size, whatever the order
    "sums": "return s = sum[j](x[i,j]), q = sum[j](x[i,j]**2)",
    "extrema": "return high = max[j](x[i,j]), low = min[j](x[i,j]), far = max[j](abs(x[i,j]))",
    "in turn": "m = max[j](x[i,j]); return s = sum[j](m - x[i,j]), m",
    "kept": "m = max[j](x[i,j]); return y = m - x[i,j], s = sum[j](m - x[i,j])",
    "position": "return at = argmax[j](x[i,j]), s = sum[j](x[i,j])",
    "weighted": "return s = sum[j](w[j]*x[i,j]), t = sum[j](x[i,j]*v[i])",
}
RUNS: dict[str, Any] = {}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray]]:
    name = draw(st.sampled_from(sorted(TEXTS)))
    rows, length = draw(st.integers(2, 70)), draw(st.sampled_from([1, 3, 7, 16, 63, 64, 100, 257, 900, 4097, 20000]))
    if draw(st.booleans()):
        rows = draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    dtype = draw(st.sampled_from(["f4", "f8", "f2", "i2", "i8"]))
    small = 2 if dtype == "f2" else 5
    x = rng.integers(0, small, (length, rows + draw(st.sampled_from([0, 0, 0, 1])))).astype(dtype)[:, :rows].T
    if draw(st.booleans()) and np.dtype(dtype).kind == "f" and dtype != "f2" and name == "extrema":
        x[draw(st.integers(0, rows - 1)), draw(st.integers(0, length - 1))] = np.nan
    arrays = {"x": x, "w": rng.integers(0, 2, length).astype(dtype), "v": rng.integers(0, 2, rows).astype(dtype)}
    used = {t.name for t in form_of_text(TEXTS[name]).spec.tensors}
    return name, {n: a for n, a in arrays.items() if n in used}


@given(calls())
@examples(80)
def test_few_rows(call: tuple[str, dict[str, np.ndarray]]) -> None:
    name, arrays = call
    run = RUNS.setdefault(name, form_of_text(TEXTS[name]).compile("cpu"))
    found = run(**arrays)
    wanted = ra.reference(form_of_text(TEXTS[name]).spec, **{n: a.astype("f8") for n, a in arrays.items()})
    for key, value in wanted.items():
        if arrays["x"].dtype == np.float16 and np.abs(value).max() > 2048:  # sums that the format does not hold
            value = value.astype("f2").astype("f8")
        np.testing.assert_array_equal(found[key].astype("f8"), value)
