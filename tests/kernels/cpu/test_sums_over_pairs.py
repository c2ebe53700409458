"""Sums of functions of two tensors by tiles (`redalg.kernels.cpu.products.terms`), and maps around products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.kernels.cpu.products import calls
from tests.support import forms
from tests.support.sample import deep

UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
Function = Callable[[Any, Any], Any]
# an element, and what it is made of without signs: every one of its roundings is at most a unit of that
CASES: dict[str, tuple[str, Function]] = {
    "square": ("(x[i,d] - c[k,d])**2", lambda x, c: (x + c) ** 2),
    "absolute": ("abs(x[i,d] - c[k,d])", lambda x, c: x + c),
    "scaled": ("0.125*(3*x[i,d] - c[k,d])**2", lambda x, c: (3 * x + c) ** 2 / 8),
    "cubes": ("abs(x[i,d] - c[k,d])**3/5 + 2*x[i,d]*c[k,d]", lambda x, c: (x + c) ** 3 / 5 + 2 * x * c),
    "extrema": ("minimum(x[i,d], c[k,d])*maximum(x[i,d], 2*c[k,d])", lambda x, c: (x + c) * (x + 2 * c)),
    "hinge": ("relu(1 - x[i,d] + c[k,d])", lambda x, c: 1 + x + c),
    "roots": ("(sqrt(abs(x[i,d])) - sqrt(abs(c[k,d])))**2", lambda x, c: x + c + 2 * np.sqrt(x * c)),
    "count": ("where(x[i,d] < c[k,d], 1, 0) + where(x[i,d] != 0, x[i,d], c[k,d])", lambda x, c: 1 + x + c),
    "Canberra": (
        "abs(x[i,d] - c[k,d])/(1 + abs(x[i,d]) + abs(c[k,d]))",
        lambda x, c: (x + c) / (1 + x + c),
    ),
    "chi squared": ("(x[i,d] - c[k,d])**2/(2 + abs(x[i,d] + c[k,d]))", lambda x, c: (x + c) ** 2),
}
LOST = (  # a factor may leave the range, and others bring the element back
    "x[i,d]*x[i,d]*c[k,d]*c[k,d]",
    "c[k,d]/(x[i,d]*x[i,d])",
    "(x[i,d]/3 - c[k,d])*c[k,d]",
    "(x[i,d]*c[k,d] + 1)**2",
    "sqrt(x[i,d]*c[k,d])",
    "where(x[i,d] + c[k,d] < 2*x[i,d], 1, 0)",
    "exp(x[i,d] - c[k,d])",
    "index[d]*abs(x[i,d] - c[k,d])",
)
FAST = ("chi squared",)
SIZES = {"i": 41, "k": 70, "d": 48}


def term(text: str) -> Any:
    return calls.factors_of(ra.parse(f"return y = sum[d]({text})"))


def drawn(data: st.DataObject, dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    scale = data.draw(st.sampled_from((1.0, 1e-3, 1e4)))
    found = {n: scale * rng.standard_normal((SIZES[a], SIZES["d"])) for n, a in (("x", "i"), ("c", "k"))}
    found["c"][:3] = found["x"][:3]  # ties
    return {n: x.astype(dtype) for n, x in found.items()}


@pytest.mark.parametrize("name", [*FAST, *deep(n for n in CASES if n not in FAST)])
@given(data=st.data())
def test_they_are_the_definition(name: str, data: st.DataObject) -> None:
    """Each operation rounds once, and so does each addition; where a result is no number, kernels of rows go on."""
    text, size = CASES[name]
    form, dtype = forms.form_of_text(f"return y = sum[d]({text})", "d"), data.draw(st.sampled_from(sorted(UNIT)))
    arrays = drawn(data, dtype)
    for special in data.draw(st.lists(st.sampled_from((np.inf, -np.inf, np.nan, 0.0, -0.0)), max_size=2)):
        x = arrays[data.draw(st.sampled_from("xc"))]
        x[tuple(data.draw(st.integers(0, n - 1)) for n in x.shape)] = special
    run = form.compile("cpu")
    with np.errstate(all="ignore"):
        found = run(**arrays)
        wide = {n: x.astype(np.float64) for n, x in arrays.items()}
        true = ra.reference(form.spec, **wide)
        x, c = (np.where(np.isfinite(v), np.abs(v), 0) for v in (wide["x"][:, None], wide["c"][None]))
        bound = (SIZES["d"] + 20) * UNIT[dtype] * size(x, c).sum(-1) + np.finfo(dtype).tiny
    assert run.schedule.startswith("sums of ")
    finite = np.isfinite(true)
    np.testing.assert_array_equal(found[~finite], true[~finite].astype(dtype))
    assert (np.abs(found[finite] - true[finite]) <= bound[finite]).all()


@pytest.mark.parametrize("text", LOST)
def test_what_may_lose_its_range_is_left_to_rows(text: str) -> None:
    assert term(text) is None


@pytest.mark.parametrize("power", (30, -30))
@pytest.mark.parametrize("name", ["cubes", *deep(n for n in CASES if n not in ("cubes", "hinge", "count"))])
def test_numbers_of_any_size(name: str, power: int) -> None:
    """Near the ends of float32: the definition, in wider numbers, rounded; what overflows there, does."""
    form = forms.form_of_text(f"return y = sum[d]({CASES[name][0]})", "d")
    rng = np.random.default_rng(abs(power))
    x, c = (np.exp2(rng.uniform(-8, 8, (SIZES[a], SIZES["d"])) + 3.3 * power).astype("f4") for a in "ik")
    with np.errstate(all="ignore"):
        found = form.compile("cpu")(x=x, c=c)
        true = ra.reference(form.spec, x=x.astype("f8"), c=c.astype("f8"))
        size = CASES[name][1](x.astype("f8")[:, None], c.astype("f8")[None]).sum(-1)
        near = np.abs(found - true) <= (SIZES["d"] + 20) * UNIT["float32"] * size + 48 * 2.0**-149
        assert (near | (found == true.astype("f4"))).all()


AROUND = {
    "bias": ("sum[d](x[i,d]*c[k,d]) + b[k]", lambda p, b: p + b),
    "gelu": ("gelu(sum[d](x[i,d]*c[k,d])/4)", None),
    "distance": ("sqrt(sum[d]((x[i,d] - c[k,d])**2))", None),
    "kernel": ("exp(-sum[d](abs(x[i,d] - c[k,d]))/9)*b[k]", None),
}


@pytest.mark.parametrize("name", ["bias", *deep(n for n in AROUND if n != "bias")])
def test_a_map_around_it_is_a_kernel_of_its_own(name: str) -> None:
    form = forms.form_of_text(f"return y = {AROUND[name][0]}", "d")
    rng = np.random.default_rng(3)
    sizes = {"i": 96, "k": 80, "d": 64}
    arrays = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype("f4") for t in form.spec.tensors}
    run = form.compile("cpu")
    found, true = run(**arrays), ra.reference(form.spec, **{n: x.astype("f8") for n, x in arrays.items()})
    assert run.schedule.startswith("in parts: 2 kernels") and "llvm" in run.source
    # an element rounds its sum of 64 terms of size 1, and a slope of at most 1 passes that on
    assert np.abs(found - true).max() <= 100 * UNIT["float32"] * 64
    few = run(**{n: x[:1] if n == "x" else x for n, x in arrays.items()})
    np.testing.assert_allclose(few[0], found[0], rtol=0, atol=100 * UNIT["float32"] * 64)


TINY = {  # what reads a sum that is 0 in float32
    "root": ("return y = sqrt(sum[d]((x[i,d] - c[k,d])**2))", "d"),
    "logarithm": ("return y = log(sum[d]((x[i,d] - c[k,d])**2))", "d"),
    "quotient": ("return y = relu(sum[d](x[i,d]*c[k,d]))/b[k]", "d"),
    "constant": ("return y = 1e30*sum[d](x[i,d]*c[k,d])", "d"),
    "nearest": ("return y = argmin[k](sum[d]((x[i,d] - c[k,d])**2))", "k"),
    "largest": ("return y = argmax[k](sum[d](x[i,d]*c[k,d]))", "k"),
    "sign": ("return y = sign(sum[d]((x[i,d] - c[k,d])**2))", "d"),
    "share": ("s = sum[d]((x[i,d] - c[k,d])**2); return y = s/sum[k](s)", "k"),
}


@pytest.mark.parametrize("name", ["root", "largest", *deep(n for n in TINY if n not in ("root", "largest"))])
@pytest.mark.parametrize("power", (-83, -40, 0))
def test_sums_below_the_range_are_the_definition_where_they_are_read(name: str, power: int) -> None:
    """Between parts they would be 0; with points that are met, and rows of zeros, whose sums are."""
    text, axis = TINY[name]
    form, rng = forms.form_of_text(text, axis, 8), np.random.default_rng(abs(power))
    x, c = (rng.standard_normal((n, 40)).astype("f4") * np.float32(2.0**power) for n in (64, 72))
    c[3], x[5], c[7] = x[4], 0, 0
    arrays = {"x": x, "c": c, "b": np.full(72, max(2.0 ** (2 * power), 2.0**-120), "f4")}
    arrays = {t.name: arrays[t.name] for t in form.spec.tensors}
    run = form.compile("cpu")
    with np.errstate(all="ignore"):
        found = np.asarray(run(**arrays), np.float64)
        true = np.asarray(ra.reference(form.spec, **{n: v.astype("f8") for n, v in arrays.items()}), np.float64)
    assert run.schedule.startswith("in parts")
    if name in ("nearest", "largest"):  # sums of the two places may be equal, to a rounding of each
        places = np.arange(64), found.astype(int)
        sums = x.astype("f8") @ c.astype("f8").T if name == "largest" else -((x[:, None].astype("f8") - c) ** 2).sum(-1)
        assert (sums.max(1) - sums[places] <= 50 * UNIT["float32"] * np.abs(sums).max(1)).all()
        return
    with np.errstate(all="ignore"):
        size = np.abs(x.astype("f8")) @ np.abs(c.astype("f8")).T
        scale = {"quotient": size / arrays.get("b", 1), "constant": 1e30 * size}.get(name, np.abs(true))
        near = np.abs(found - true) <= 60 * UNIT["float32"] * (scale + (name == "logarithm"))
    assert (near | (found == true) | (np.isnan(found) & np.isnan(true)) | ~np.isfinite(true.astype("f4"))).all()


def test_rows_of_zeros_are_not_looked_into_for_long() -> None:
    form = forms.form_of_text(TINY["largest"][0], "k", 8)
    rng = np.random.default_rng(0)
    x, c = (rng.standard_normal((n, 40)).astype("f4") for n in (64, 72))
    x[::2] = 0
    run = form.compile("cpu")
    np.testing.assert_array_equal(run(x=x, c=c), (x.astype("f8") @ c.astype("f8").T).argmax(1))
    assert "(0 so far)" in run.explain()
