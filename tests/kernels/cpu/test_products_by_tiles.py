"""Products of matrices by tiles of sums (`redalg.kernels.cpu.products.tiles`), and calls in blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels.cpu.products import blocks as in_blocks
from redalg.kernels.cpu.products import calls as multiplied
from redalg.kernels.cpu.products.tiles import Product, Shape, tile_of
from tests.support import forms

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
ATTENTION = "s = sum[d](Q[h,i,d]*K[h,j,d])/2; p = exp(s - max[j](s)); return O = sum[j](p*V[h,j,e])/sum[j](p)"


def lying(data: st.DataObject, x: np.ndarray) -> np.ndarray:
    """The same numbers, otherwise in memory: axes turned, with gaps, or backwards."""
    order = data.draw(st.permutations(range(x.ndim)))
    turned = np.ascontiguousarray(x.transpose(order))
    wide = np.repeat(turned, data.draw(st.sampled_from((1, 2))), axis=-1)
    found = wide[..., :: wide.shape[-1] // turned.shape[-1]]
    if data.draw(st.booleans()):
        found = found[..., ::-1].copy()[..., ::-1]
    return found.transpose(np.argsort(order))


@given(data=st.data())
def test_a_product_of_any_shape(data: st.DataObject) -> None:
    """Every sum is off by a rounding for each of its terms at most, and one for the factor: of tiles that are not full,
    of several blocks of rows and terms, of batches, and of one element."""
    dtype = data.draw(st.sampled_from(sorted(UNIT)))
    tile = tile_of(np.dtype(dtype).itemsize)
    near = [1, 2, tile.rows - 1, tile.rows, tile.rows + 1, 8 * tile.rows + 3]
    batches, rows = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(near))
    columns = data.draw(st.sampled_from((1, 3, tile.columns - 1, tile.columns, 2 * tile.columns + 5)))
    terms = data.draw(st.sampled_from((1, 2, 7, 64, 383, 384, 385, 800)))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a = lying(data, rng.standard_normal((batches, rows, terms)).astype(dtype))
    b = lying(data, rng.standard_normal((batches, columns, terms)).astype(dtype))
    c = lying(data, np.full((batches, rows, columns), np.nan, dtype))
    steps = [tuple(s // x.itemsize for s in x.strides) for x in (a, b, c)]
    product = Product(Shape(batches, rows, columns, terms, *steps), np.dtype(dtype), -0.75)
    product(*(x.__array_interface__["data"][0] for x in (a, b, c)))
    wide = a.astype(np.longdouble), b.astype(np.longdouble)
    true = -0.75 * np.einsum("bik,bjk->bij", *wide)
    size = 0.75 * np.einsum("bik,bjk->bij", *map(np.abs, wide))
    assert (np.abs(c - true) <= (terms + 2) * UNIT[dtype] * size).all()
    if rows > 1:  # a row alone has the bits that it has among others
        alone, own = (
            np.full((batches, 1, columns), np.nan, dtype),
            Shape(batches, 1, columns, terms, *steps[:2], (columns, 0, 1)),
        )
        Product(own, np.dtype(dtype), -0.75)(
            a[:, -1:].__array_interface__["data"][0], b.__array_interface__["data"][0], alone.ctypes.data
        )
        np.testing.assert_array_equal(alone[:, 0], c[:, -1])


SPECS = {
    "Y": ("return Y = sum[k](X[m,k]*W[n,k])", "mk,nk->mn"),
    "turned": ("Y = sum[k](X[k,m]*W[n,k])*0.5; order Y = n m; return Y", "km,nk->nm"),
    "batch": ("Y = sum[k](X[b,m,k]*W[b,k,n]); order Y = m b n; return Y", "bmk,bkn->mbn"),
    "two rows": ("return Y = sum[k](X[a,m,k]*W[k,n])/4", "amk,kn->amn"),
    "two terms": ("return Y = sum[k,l](X[m,k,l]*W[n,k,l])", "mkl,nkl->mn"),
}
SIZES = {"m": 40, "n": 72, "k": 64, "a": 2, "b": 3, "l": 2}


@pytest.mark.parametrize("name", SPECS)
@given(data=st.data())
def test_calls(name: str, data: st.DataObject) -> None:
    """As the definition has it, with numbers that are none: those rows are computed as they were before."""
    text, formula = SPECS[name]
    form, dtype = forms.form_of_text(text), data.draw(st.sampled_from(sorted(UNIT)))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    drawn = {t.name: rng.standard_normal([SIZES[a] for a in t.axes]).astype(dtype) for t in form.spec.tensors}
    for special in data.draw(st.lists(st.sampled_from((np.inf, -np.inf, np.nan, 0.0, 3e38)), max_size=2)):
        x = drawn[data.draw(st.sampled_from("XW"))]
        x[tuple(data.draw(st.integers(0, n - 1)) for n in x.shape)] = special
    arrays = {n: lying(data, x) for n, x in drawn.items()}
    run = form.compile("cpu")
    with np.errstate(all="ignore"):
        found = run(**arrays)
        true = ra.reference(form.spec, **{n: x.astype(np.float64) for n, x in drawn.items()})
        size = np.einsum(formula, *(np.abs(drawn[n].astype(np.float64)) for n in "XW"))
        low = true.astype(dtype)
    finite = np.isfinite(low)
    np.testing.assert_array_equal(found[~finite], low[~finite])
    assert (np.abs(found[finite] - true[finite]) <= 200 * UNIT[dtype] * size[finite]).all()


@pytest.mark.parametrize("name", SPECS)
def test_what_runs_is_said(name: str) -> None:
    form = forms.form_of_text(SPECS[name][0])
    arrays = {t.name: np.ones([SIZES[a] for a in t.axes], "f4") for t in form.spec.tensors}
    run, exact = form.compile("cpu"), form.compile("cpu", deterministic=True)
    np.testing.assert_array_equal(run(**arrays), exact(**arrays))
    assert run.schedule.startswith("a product of matrices by tiles of") and "llvm.fma" in run.source
    assert "product" not in exact.schedule and exact.source.count("njit")


def test_out_may_lie_over_an_operand() -> None:
    form = forms.form_of_text("return Y = sum[k](X[m,k]*W[n,k])")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((64, 64)).astype("f4") for _ in range(2))
    run = form.compile("cpu")
    wanted = run(X=x, W=w)
    for out in (np.empty_like(x), np.empty((64, 128), "f4")[:, ::2], x):
        assert run(X=x, W=w, out=out) is out
        np.testing.assert_array_equal(out, wanted)


@pytest.mark.deep
@given(data=st.data())
def test_blocks_of_rows(data: st.DataObject) -> None:
    """Blocks of an axis that is no multiple of them, of the rows or of a batch; one element that is infinite."""
    form = forms.form_of_text(ATTENTION, "j")
    sizes = {"h": data.draw(st.integers(1, 3)), "i": data.draw(st.integers(33, 70)), "j": 48, "d": 16, "e": 24}
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    arrays = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype("f4") for t in form.spec.tensors}
    if special := data.draw(st.sampled_from((0.0, np.inf, np.nan))):
        arrays["V"][0, 5, 3] = special
    rows, kept = data.draw(st.integers(1, 40)), (in_blocks.USUAL, in_blocks.LEAST, in_blocks.MOST, multiplied.WORK)
    in_blocks.USUAL, in_blocks.LEAST, in_blocks.MOST, multiplied.WORK = 1, rows, 1 << 30, 1
    try:
        run: Any = form.compile("cpu")
        found = run(**arrays)
        out = np.full_like(found, np.nan)
        assert run(**arrays, out=out) is out
    finally:
        in_blocks.USUAL, in_blocks.LEAST, in_blocks.MOST, multiplied.WORK = kept
    np.testing.assert_array_equal(out, found)
    assert (f"blocks of {rows} of i" in run.schedule) is (rows < sizes["i"])
    true = ra.reference(form.spec, **{n: x.astype(np.float64) for n, x in arrays.items()})
    off = 64 * UNIT["float32"] * np.einsum("hid,hjd->hij", np.abs(arrays["Q"]), np.abs(arrays["K"])).max()
    np.testing.assert_allclose(
        found, true, rtol=0, atol=(off + 1e-5) * np.abs(arrays["V"][np.isfinite(arrays["V"])]).max()
    )
