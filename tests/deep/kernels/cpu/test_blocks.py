"""Short rows that are turned, beside the definition: whatever their number, length, strides and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels.cpu import run as cpu_run
from redalg.kernels.cpu import walk as cpu_walk
from redalg.kernels.cpu.blocks import FIRST, SQUARES, SUM, size_of
from redalg.kernels.cpu.schedule import TURNED
from tests.support.forms import form_of_text
from tests.support.numba_kernels import functions_by_numba
from tests.support.profiles import examples

TEXTS = {  # exact in integers of moderate size, whatever the order
    "one axis": "m = max[j](x[i,j]); s = sum[j](w[j]*x[i,j]); return y = m - x[i,j], s, at = argmin[j](x[i,j])",
    "two axes": "m = max[j](x[h,i,j]); return y = (m - x[h,i,j])*w[j], m, at = argmax[j](x[h,i,j])",
    "numbers of rows": "m = max[j](x[i,j]);"
    "return y = where(index[j] <= index[i], x[i,j] - m, 0), s = m + size[i] - index[i]",
    "numbers of two axes": "m = max[j](x[h,i,j]);"
    "return y = where(index[j] == index[i] + index[h], m, x[h,i,j]), s = m + size[h]*index[i]",
    "totals": "m = max[j](x[i,j]); return s = sum[j]((x[i,j] - m)*w[j]), at = argmax[j](x[i,j]), low = min[j](x[i,j])",
    "by row": "m = max[j](x[i,j]); return y = (x[i,j] - m)*t[i] + w[j], s = sum[j](x[i,j]*t[i])",
}
RUNS: dict[str, Any] = {}


def run_of(name: str) -> Any:
    if name not in RUNS:
        RUNS[name] = form_of_text(TEXTS[name]).compile("cpu")
    return RUNS[name]


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, np.ndarray]]:
    name = draw(st.sampled_from(sorted(TEXTS)))
    length = draw(
        st.one_of(
            st.integers(1, TURNED + 2), st.sampled_from([1, 2, 3, *SQUARES, 7, 9, SUM, SUM + 1, FIRST, 2 * FIRST])
        )
    )
    size = size_of(length)
    rows = draw(st.sampled_from([1, 2, 7, 8, 9, size - 1, size, size + 1, 2 * size + 3]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    dtype = draw(st.sampled_from(["f4", "f8", "f2", "i2"]))

    def of(*shape: int) -> np.ndarray:
        gap = draw(st.sampled_from([1, 1, 2]))
        whole = rng.integers(0, 5, (*shape[:-1], shape[-1] * gap + draw(st.sampled_from([0, 0, 3]))))
        found = whole.astype(dtype)[..., : shape[-1] * gap : gap]
        return found[::-1] if draw(st.integers(0, 4)) == 0 else found

    shape = (3, max(1, rows // 3), length) if "two axes" in name else (rows, length)
    arrays = {"x": of(*shape), "w": of(length)}
    if name == "by row":
        arrays["t"] = of(rows)
    elif "two axes" in name and draw(st.booleans()):
        arrays["x"] = arrays["x"].transpose(1, 0, 2).copy().transpose(1, 0, 2)  # rows in unequal steps
    used = {t.name for t in form_of_text(TEXTS[name]).spec.tensors}
    return name, {n: a for n, a in arrays.items() if n in used}


@given(calls())
@examples(60)
def test_rows_of_all_lengths(call: tuple[str, dict[str, np.ndarray]]) -> None:
    """Results of their own, and those that lie over the input where that may be."""
    name, arrays = call
    found = run_of(name)(**arrays)
    wanted = ra.reference(form_of_text(TEXTS[name]).spec, **{n: a.astype("f8") for n, a in arrays.items()})
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key].astype("f8"), value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_specials_and_results_over_the_input(dtype: str) -> None:
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
    rng = np.random.default_rng(0)
    for rows, length in ((1, 3), (700, 7), (33, 17)):
        x = rng.normal(size=(rows, length)).astype(dtype)
        x[0, 0], x[rows // 2, 1], x[-1] = -np.inf, np.nan, 0.0
        assert "turned" in (run(x=x), run.schedule)[1]
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                run(x=x), ra.reference(run.form.spec, x=x), rtol=2e-3 if dtype == "float16" else 1e-5
            )
        own = run(x=x)
        assert run(x=x, out=x) is x
        np.testing.assert_array_equal(x, own)


def test_a_row_alone_has_the_bits_it_has_among_others(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ra.derive_incremental(ra.catalog["layer_norm"]).compile("cpu")
    monkeypatch.setattr(cpu_walk, "SHARE", 1.0)
    rng = np.random.default_rng(1)
    for length in (2, 7, 31, 47):
        x, weight, bias = (rng.normal(size=s).astype("f4") for s in ((1000, length), length, length))
        found = []
        for workers in ("1", "3"):
            monkeypatch.setenv("REDALG_THREADS", workers)
            found.append(run(x=x, weight=weight, bias=bias, eps=1e-5))
        alone = np.concatenate([run(x=x[r : r + 1], weight=weight, bias=bias, eps=1e-5) for r in range(0, 1000, 37)])
        np.testing.assert_array_equal(found[0], found[1])
        np.testing.assert_array_equal(found[0][::37], alone)


def test_native_blocks_beside_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What turns blocks, beside the same in NumPy around the same kernel compiled by Numba."""
    monkeypatch.setattr(cpu_run, "functions", functions_by_numba)
    x = np.random.default_rng(2).integers(-9, 9, (1700, 5)).astype("f4")
    by_numba = ra.derive_incremental(ra.catalog["argmax"]).compile("cpu")(x=x)
    np.testing.assert_array_equal(by_numba, x.argmax(1))
    form = form_of_text(TEXTS["one axis"])
    w = np.arange(5, dtype="f4")
    for key, value in form.compile("cpu")(x=x, w=w).items():
        np.testing.assert_array_equal(value, run_of("one axis")(x=x, w=w)[key])
