"""Specs and hostile streams that every engine's adapter is tested on, and the definition's results for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

import redalg as ra
from redalg.form import Form
from tests.support.forms import form_of_text

TEXTS: dict[str, tuple[str, int]] = {  # text, passes
    "moments": ("return v = var[j](x[j]), m = mean[j](x[j]), s = sum[j](x[j])", 1),
    "covariance": ("return c = cov[j](x[j], w[j])", 1),
    "softmax mean": ("p = exp(w[j] - max[j](w[j])); return y = sum[j](p * x[j]) / sum[j](p)", 1),
    "extremes": ("return a = max[j](x[j]), b = min[j](x[j]), n = count[j](x[j] > 0)", 1),
    "positions": ("return p = argmax[j](x[j]), k = topk[j:3](x[j]).indices", 1),
    "kept": ("m = max[j](x[j]); e = exp(x[j] - m); return y = e / sum[j](e), m = m", 1),
    "deviation": ("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))", 2),
}
HOSTILE = [0.0, -0.0, 1.0, 1.0, -1.0, 5e-324, 1e300, np.inf, -np.inf, np.nan, 3.25, 3.25]
DTYPES = ["float64", "float32", "float16", "int64", "int8", "uint16"]


def form(name: str) -> Form:
    text, passes = TEXTS[name]
    return form_of_text(text, "j", passes)


@st.composite
def streams(draw: st.DrawFn, dtypes: list[str] = DTYPES) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
    """Columns x and w, and lengths of parts, some of them empty."""
    sizes = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 7]), min_size=1, max_size=6)))
    hostile = draw(st.booleans())
    columns = {}
    for name in "xw":
        dtype = np.dtype(draw(st.sampled_from(dtypes)))
        numbers = HOSTILE if hostile and dtype.kind == "f" else [0.0, 1.0, 2.0, 2.0, 5.0, 3.0]
        with np.errstate(over="ignore"):
            drawn = [draw(st.sampled_from(numbers)) for _ in range(sum(sizes))]
            columns[name] = np.array(drawn, float).astype(dtype)
    return columns, sizes


def columns_of(form: Form, columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {d.name: columns[d.name] for d in form.spec.tensors}


def by_name(form: Form, found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}


def check(form: Form, found: Any, columns: Mapping[str, np.ndarray]) -> None:
    """As one accumulator over the whole gives to some units in the last place, and as the definition does."""
    arrays = columns_of(form, columns)
    run = by_name(form, form.compile("numpy")(**arrays))
    with np.errstate(all="ignore"):
        definition = by_name(form, ra.reference(form.spec, **arrays))
    for name, value in by_name(form, found).items():
        value, wanted = np.asarray(value), np.asarray(run[name])
        assert value.dtype == wanted.dtype and value.shape == wanted.shape, name
        if wanted.dtype.kind in "iub":
            assert np.array_equal(value, wanted), name
            continue
        close = 8 * float(np.finfo(wanted.dtype).eps)
        finite = np.isfinite(wanted.astype(float))
        scale = np.max(np.abs(wanted.astype(float)[finite]), initial=1e-300)
        np.testing.assert_allclose(value, wanted, rtol=close, atol=close * _size(arrays) ** 2 / 8, err_msg=name)
        if all(np.all(np.isfinite(x)) and np.all(np.abs(x.astype(float)) < 1e9) for x in arrays.values()):
            both = np.asarray(definition[name])
            np.testing.assert_allclose(value, both, rtol=8 * close, atol=close * max(1.0, scale), err_msg=name)


def _size(arrays: Mapping[str, np.ndarray]) -> float:
    """The largest finite number that is not huge, which bounds what rounding leaves of a difference."""
    sizes = [np.abs(x.astype(float)) for x in arrays.values()]
    return float(max([1.0, *(np.max(x[np.isfinite(x) & (x < 1e9)], initial=0.0) for x in sizes)]))
