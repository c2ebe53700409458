"""Extrema of what leaves the range of its numbers: nearest neighbours, positions, scalings and quantisation.

Elements are small integers times a power of 2, so that products and differences are exact wherever they are in the
range: positions are those of the definition, ties among them, and other results are within roundings.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
ROWS = {  # of x[i,j] and w[i,j]
    "least square": "at = argmin[j](x[i,j]**2); d = sqrt(min[j](x[i,j]**2)); return at, d",
    "largest square": "at = argmax[j](x[i,j]**2); d = sqrt(max[j](x[i,j]**2)); return at, d",
    "product": "at = argmax[j](x[i,j]*w[i,j]); low = argmin[j](x[i,j]*w[i,j]); return at, low",
    "product of three": "at = argmin[j](abs(x[i,j]**2*w[i,j])); return at",
    "quotient": "at = argmax[j](x[i,j]/w[i,j]); low = argmin[j](abs(x[i,j])/abs(w[i,j])); return at, low",
    "distance": "at = argmax[j](abs(x[i,j] - w[i,j])); near = argmin[j]((x[i,j] - w[i,j])**2); return at, near",
    "sum of squares": "at = argmin[j](x[i,j]**2 + w[i,j]**2); far = argmax[j](x[i,j]**2 + w[i,j]**2); return at, far",
    "ratio of extrema": "y = max[j](x[i,j]**2)/(max[j](x[i,j]**2) + max[j](w[i,j]**2)); return y",
    "compared": "y = any[j](2*x[i,j]**2 > max[j](x[i,j]**2)); m = max[j](x[i,j]**2); return y, m",
    "selected": "at = argmin[j](where(w[i,j] > 0, x[i,j]**2, oo)); return at",
    "pairwise": "at = argmax[j](minimum(x[i,j]**2, w[i,j]**2)); return at",
    "largest": "y = x[i,j]/max[j](abs(x[i,j])); return y",
    "scaled to 0 and 1": "low = min[j](x[i,j]); y = (x[i,j] - low)/(max[j](x[i,j]) - low); return y",
    "int8": "s = max[j](abs(x[i,j]))/127; y = cast(x[i,j]/s, int8); return y",
    "float8": "s = max[j](abs(x[i,j]))/448; y = cast(x[i,j]/s, float8_e4m3fn); return y",
    "zero point": "low = min[j](x[i,j]); s = (max[j](x[i,j]) - low)/255; y = cast((x[i,j] - low)/s, uint8); return y",
    "quarters": "low = min[j](x[i,j]); y = 4*(x[i,j] - low)/(max[j](x[i,j]) - low) - 2; return y",
    "softmax of products": "m = max[j](x[i,j]*w[i,j]); y = exp(x[i,j]*w[i,j] - m); return y",
    "logarithm": "y = log(max[j](x[i,j]**2)); return y",
}
NEIGHBOURS = {  # of q[i,d] and x[j,d]
    "nearest": "at = argmin[j](sum[d]((q[i,d] - x[j,d])**2));"
    " y = sqrt(min[j](sum[d]((q[i,d] - x[j,d])**2))); return at, y",
    "largest product": "at = argmax[j](sum[d](q[i,d]*x[j,d])); return at",
    "city block": "at = argmax[j](sum[d](abs(q[i,d] - x[j,d]))); return at",
}
# sums of numbers of one size are exact; what leaves the range inside an element may be any number (docs/limits.md)
OF_ONE_SIZE = ("distance", "sum of squares", "product of three", *NEIGHBOURS)
CASTS = ("int8", "float8", "zero point")
TEXTS = {**ROWS, **NEIGHBOURS}
LEAST, MOST = {"float32": -149, "float64": -1074}, {"float32": 124, "float64": 1020}


@cache
def run(name: str) -> tuple[Any, Any]:
    spec = ra.parse(TEXTS[name])
    form = ra.derive_incremental(spec, assume=("cast_commutes",), max_passes=2)
    return spec, form.compile("cpu")


def definition(name: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    spec, kind = run(name)[0], arrays["x"].dtype
    exact = kind == np.float64
    true = ra.reference(spec, exact=exact, **{n: a.astype(np.float64) for n, a in arrays.items()})
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    return {n: _rounded(np.asarray(x), kind) for n, x in true.items()}


def _rounded(x: np.ndarray, kind: Any) -> np.ndarray:
    if x.dtype.kind == "O":
        x = np.array([_float(v) for v in x.ravel().tolist()]).reshape(x.shape)
    return x.astype(kind) if x.dtype.kind == "f" else x


def _float(x: Any) -> Any:
    try:
        return x if isinstance(x, int | bool) else float(x)
    except OverflowError:
        return np.inf if x > 0 else -np.inf


def agree(found: Any, true: np.ndarray, cast: bool) -> None:
    """Positions and conditions are equal, casts but for a step, others within roundings of the row's largest."""
    found = np.asarray(found)
    assert found.shape == true.shape
    if found.dtype.kind in "ib":
        np.testing.assert_array_equal(found, true)
        return
    info = np.finfo(np.float64 if found.dtype.itemsize == 8 else np.float32)
    a, b = found.astype(np.longdouble), true.astype(np.longdouble)
    size = np.where(np.isfinite(b), np.abs(b), 0).max(axis=-1, keepdims=True, initial=0) if b.ndim == 2 else np.abs(b)
    near = np.abs(a - b) <= size * info.eps * 64 + info.smallest_subnormal * 4
    if cast:
        near = np.abs(a - b) <= np.maximum(1, np.abs(b) / 8)
    wrong = np.isfinite(b) & ~near | ~np.isfinite(b) & ~((a == b) | np.isnan(a))
    assert not wrong.any(), (found[wrong][:4], true[wrong][:4])


@st.composite
def arrays_of(draw: st.DrawFn, name: str) -> dict[str, np.ndarray]:
    """Small integers by powers of 2: of a row, of an element now and then; ties, zeros, infinities, NaN."""
    kind = draw(st.sampled_from(("float32", "float32", "float64")))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    rows, n = draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 3, 5, 9, 33)))
    sizes = {"i": rows, "j": n, "d": draw(st.sampled_from((1, 3)))}
    low, high = LEAST[kind], MOST[kind]
    power = draw(st.integers(low, high))
    spread, special = draw(st.sampled_from((0, 0, 3, 60))), draw(st.sampled_from((0, 0, 0.1)))
    apart = draw(st.sampled_from((0, 0, 0, 1))) * draw(st.integers(low, high))
    if name in OF_ONE_SIZE:
        spread, apart = min(spread, 3), 0
    found = {}
    for t in run(name)[0].tensors:
        shape = [sizes[a] for a in t.axes]
        whole = rng.integers(-7, 8, shape).astype(np.float64)
        e = power + rng.integers(-spread, spread + 1, shape)
        if apart and t.name != "x":
            e = e - power + apart
        with np.errstate(all="ignore"):
            x = np.ldexp(whole, np.clip(e, low, high)).astype(kind)
        odd = rng.random(shape) < special
        x[odd] = rng.choice([np.inf, -np.inf, np.nan, 0.0], int(odd.sum()))
        found[t.name] = x
    return found


def check(name: str, arrays: dict[str, np.ndarray]) -> None:
    """Compare rows of numbers with the definition."""
    spec, call = run(name)
    true, found = definition(name, arrays), call(**arrays)
    found = found if isinstance(found, dict) else {next(iter(true)): found}
    finite = {t.name: np.isfinite(arrays[t.name]) for t in spec.tensors}
    ordinary = np.array(True)
    for t in spec.tensors:
        ordinary = ordinary & (finite[t.name].all(axis=1) if t.axes[0] == "i" else finite[t.name].all())
    for output, value in found.items():
        agree(value[ordinary], true[output][ordinary], name in CASTS)


@pytest.mark.parametrize("name", TEXTS)
@given(data=st.data())
def test_extrema_of_any_size(name: str, data: st.DataObject) -> None:
    check(name, data.draw(arrays_of(name)))


@pytest.mark.parametrize("power", (-110, -100, 0, 100, 110))
def test_products_that_return_to_the_range(power: int) -> None:
    """The squares are all 0 or infinite, and the products 0 or infinite, although their bounds are in the range."""
    x = np.ldexp([[5.0, 3, 7, -2, 4]], power).astype(np.float32)
    check("product of three", {"x": x, "w": np.ldexp([[1.0, -1, 1, 2, 1]], -power).astype(np.float32)})


@pytest.mark.parametrize("name", ("least square", "product", "nearest", "largest", "scaled to 0 and 1"))
@pytest.mark.parametrize("power", (-100, 0, 100))
def test_long_rows_in_splits(name: str, power: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in splits, of which the last is short; infinities and NaN elsewhere change no other row."""
    monkeypatch.setenv("REDALG_THREADS", "3")
    rng = np.random.default_rng(3)
    sizes = {"i": 3, "j": 30011, "d": 2}
    arrays = {
        t.name: np.ldexp(rng.integers(-999, 1000, [sizes[a] for a in t.axes]), power).astype(np.float32)
        for t in run(name)[0].tensors
    }
    arrays.get("q", arrays["x"])[1, 1] = np.inf
    check(name, arrays)


@pytest.mark.parametrize("name", TEXTS)
def test_rows_of_no_elements(name: str) -> None:
    """An extremum of nothing is an infinity, which leaves no range: nothing is computed anew."""
    spec, call = run(name)
    sizes = {"i": 2, "j": 0, "d": 2}
    arrays = {t.name: np.ones([sizes[a] for a in t.axes], np.float32) for t in spec.tensors}
    found = call(**arrays)
    for n, x in (found if isinstance(found, dict) else {"": found}).items():
        true = ra.reference(spec, **arrays)
        np.testing.assert_array_equal(np.asarray(x), np.asarray(true[n] if n else true).astype(x.dtype))
