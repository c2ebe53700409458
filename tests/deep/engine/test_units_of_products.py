"""Products of quotients, moments about the mean of a power or a product: in units of every tensor in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from tests.deep.engine.test_units import HOMOGENEOUS, close, times
from tests.support.simulated import run as simulated

# Bodies over x, z, w (positive), k (a mask) and X, Z along i, too; the degree of what is written in x, z and w scaled
# together: a tensor may be as large as the range allows for that.
PRODUCTS = {
    "shares": ("y = sum[j]((x[j]/sum[j](x[j]))*(z[j]/sum[j](z[j])))", 1),
    "norms": ("y = sum[j]((x[j]/sqrt(sum[j](x[j]**2)))*(z[j]/sqrt(sum[j](z[j]**2))))", 1),
    "maxima": ("y = sum[j]((x[j]/max[j](abs(x[j])))*(z[j]/max[j](abs(z[j]))))", 1),
    "three": ("y = sum[j]((x[j]/sum[j](x[j]))*(z[j]/sum[j](z[j]))*(w[j]/sum[j](w[j])))", 1),
    "weighted": ("y = sum[j](w[j]*(x[j]/sum[j](x[j]))*(z[j]/sum[j](z[j])))", 1),
    "masked": ("y = sum[j](where(k[j] > 0, (x[j]/sum[j](x[j]))*(z[j]/sum[j](z[j])), 0))", 1),
    "rows": ("y = sum[j]((X[i,j]/sum[j](X[i,j]))*(Z[i,j]/sum[j](Z[i,j])))", 1),
    "a row and rows": ("y = sum[j]((X[i,j]/sum[j](X[i,j]))*(z[j]/sum[j](z[j])))", 1),
    "relative deviations": ("y = mean[j]((x[j]/mean[j](x[j]) - 1)*(z[j]/mean[j](z[j]) - 1))", 1),
    "correlation": (
        "a = mean[j](x[j]); b = mean[j](z[j]); "
        "y = mean[j]((x[j] - a)*(z[j] - b))/sqrt(mean[j]((x[j] - a)**2)*mean[j]((z[j] - b)**2))",
        1,
    ),
    "co-skewness": (
        "a = mean[j](x[j]); b = mean[j](z[j]); "
        "y = mean[j]((x[j] - a)**2*(z[j] - b))/(mean[j]((x[j] - a)**2)*sqrt(mean[j]((z[j] - b)**2)))",
        1,
    ),
    "spread of squares": ("v = mean[j](x[j]**2); y = mean[j]((x[j]**2 - v)**2)/v**2", 2),
    "relative squares": ("v = mean[j](x[j]**2); y = mean[j]((x[j]**2/v - 1)**2)", 2),
    "skewness of squares": (
        "v = mean[j](x[j]**2); s = mean[j]((x[j]**2 - v)**2); y = mean[j]((x[j]**2 - v)**3)/s**(3/2)",
        2,
    ),
    "kurtosis of squares": (
        "v = mean[j](x[j]**2); s = mean[j]((x[j]**2 - v)**2); y = mean[j]((x[j]**2 - v)**4)/s**2",
        2,
    ),
    "spread of cubes": ("v = mean[j](x[j]**3); y = sqrt(mean[j]((x[j]**3 - v)**2))/v", 3),
    "spread of products": ("v = mean[j](x[j]*z[j]); y = mean[j]((x[j]*z[j] - v)**2)/v**2", 2),
    "weighted products": (
        "v = sum[j](w[j]*(x[j]*z[j]))/sum[j](w[j]); y = sum[j](w[j]*(x[j]*z[j] - v)**2)/(sum[j](w[j])*v**2)",
        2,
    ),
    "masked squares": (
        "n = sum[j](where(k[j] > 0, 1, 0)); v = sum[j](where(k[j] > 0, x[j]**2, 0))/n; "
        "y = sum[j](where(k[j] > 0, (x[j]**2 - v)**2, 0))/v**2",
        2,
    ),
    "squares of rows": ("v = mean[j](X[i,j]**2); y = mean[j]((X[i,j]**2 - v)**2)/v**2", 2),
    "correlated squares": (
        "a = mean[j](x[j]**2); b = mean[j](z[j]**2); "
        "y = mean[j]((x[j]**2 - a)*(z[j]**2 - b))/sqrt(mean[j]((x[j]**2 - a)**2)*mean[j]((z[j]**2 - b)**2))",
        2,
    ),
    "size times products": (
        "y = mean[j]((size[j]*(x[j]*z[j]) - sum[j](x[j]*z[j]))**2)/sum[j](x[j]*z[j])**2",
        2,
    ),
}
TREES = (([0, 2, 2, 5, 9], [2, 0, 0]), ([0, 1, 9], [0]), ([0, 9], []))
LENGTH = 9


def form_of(text: str) -> ra.Form:
    *bindings, last = text.split("; ")
    return ra.derive_incremental(ra.parse("; ".join([*bindings, f"return {last}"])), axis="j")


@pytest.fixture(scope="module")
def forms() -> dict[str, ra.Form]:
    return {name: form_of(text) for name, (text, _) in PRODUCTS.items()}


def draw(form: ra.Form, seed: int, length: int = LENGTH) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {t.name: (2, length) if "i" in t.axes else (length,) for t in form.spec.tensors}
    found = {n: rng.random(shape) * 1.5 + 0.5 for n, shape in shapes.items()}
    return {n: (np.arange(length) % 3 > 0) * 1.0 if n == "k" else a for n, a in found.items()}


def merged(form: ra.Form, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        trees = [running.merged(form, arrays, borders, tree) for borders, tree in TREES]
    return [np.asarray(found["y"], float) for found in trees]


@pytest.mark.parametrize("name", PRODUCTS)
def test_powers_of_two_change_no_digit_at_any_exponent(name: str, forms: dict[str, ra.Form]) -> None:
    """Not near ±512 either, where a product of two leaves the range and one of them does not."""
    written = PRODUCTS[name][1]
    arrays = draw(forms[name], 3)
    here = merged(forms[name], arrays)
    for exponent in range(-980 // written, 980 // written, 13):
        for one, there in zip(here, merged(forms[name], times(arrays, 2.0**exponent)), strict=True):
            ratio = np.frexp(one)[0] / np.frexp(there)[0]
            assert np.all(ratio == 1), (exponent, one, there)


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_nor_do_they_in_other_results_of_lower_degree(name: str) -> None:
    text, d = HOMOGENEOUS[name]
    form = form_of(text.replace("v[", "z["))
    arrays = draw(form, 4)
    here = merged(form, arrays)
    for exponent in (*range(-560, -480, 9), *range(480, 560, 9)):
        for one, there in zip(here, merged(form, times(arrays, 2.0**exponent)), strict=True):
            assert np.array_equal(np.ldexp(one, exponent * d), there), (exponent, one, there)


@pytest.mark.parametrize("name", PRODUCTS)
def test_they_are_the_definition_at_every_scale(name: str, forms: dict[str, ra.Form]) -> None:
    """In float32, whose squares leave the range at 1e-19 and fourth powers at 1e-10; in compiled kernels, too."""
    form, written = forms[name], PRODUCTS[name][1]
    compiled = form.compile("cpu")
    for k in (-100, -66, -40, -12, 0, 12, 40, 66, 100):
        arrays = {n: a.astype(np.float32) for n, a in times(draw(form, 5), 2.0 ** (k // written)).items()}
        true = ra.reference(form.spec, **arrays, exact=True)
        with np.errstate(all="ignore"):
            for got in (form.compile("numpy")(**arrays), compiled(**arrays), *merged(form, arrays)):
                close(got, true, np.float32, 2000)


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_tensor_has_its_own_unit(name: str, forms: dict[str, ra.Form]) -> None:
    """One is 10^24 times the other, and the product of both near 1."""
    form, written = forms[name], PRODUCTS[name][1]
    for low, high in ((-80, 80), (80, -80), (-100, 20)):
        scales = {"z": high, "Z": high, "w": low - high}
        plain = draw(form, 6).items()
        arrays = {n: np.float32(a if n == "k" else np.ldexp(a, scales.get(n, low) // (2 * written))) for n, a in plain}
        true = ra.reference(form.spec, **arrays, exact=True)
        with np.errstate(all="ignore"):
            for got in (form.compile("numpy")(**arrays), form.compile("cpu")(**arrays), *merged(form, arrays)):
                close(got, true, np.float32, 2000)


@pytest.mark.parametrize("name", PRODUCTS)
def test_special_values_are_those_of_the_definition(name: str, forms: dict[str, ra.Form]) -> None:
    form = forms[name]
    for number, value in enumerate((0.0, np.inf, -np.inf, np.nan)):
        for place in (0, 4, slice(None)):
            arrays: dict[str, Any] = draw(form, number)
            for tensor in sorted(set(arrays) - {"k"}):
                held = arrays | {tensor: arrays[tensor].copy()}
                held[tensor][..., place] = value
                with np.errstate(all="ignore"):
                    wanted = np.asarray(ra.reference(form.spec, **held))
                    for got in (form.compile("numpy")(**held), *merged(form, held)):
                        undefined = np.isnan(got) & ("finite_stage_values" in form.assumptions)
                        same = np.isclose(got, wanted, rtol=1e-9, equal_nan=True)
                        assert np.all(same | undefined), (tensor, value, got, wanted)


@pytest.mark.parametrize("name", PRODUCTS)
def test_certificates_prove_them(name: str, forms: dict[str, ra.Form]) -> None:
    assert forms[name].plan.passes[-1].units
    forms[name].certificate.verify()


@pytest.mark.parametrize("name", ["shares", "relative squares", "spread of products"])
def test_kernels_of_gpus_have_them(name: str) -> None:
    text, written = PRODUCTS[name]
    form = form_of(text.replace("x[j]", "x[i,j]").replace("z[j]", "z[i,j]"))
    plain = draw(form, 8, 70)
    for k in (-80, 0, 80):
        arrays = {n: np.float32(np.ldexp(a, k // written)) for n, a in plain.items()}
        true = ra.reference(form.spec, **arrays, exact=True)
        for schedule in ("block", "warp"):
            with np.errstate(all="ignore"):
                close(next(iter(simulated(form, arrays, schedule)[0].values())), true, np.float32, 2000)


def test_kernels_that_split_rows_take_quotients_before_they_multiply() -> None:
    """A correlation of float32 near 1e-20 was off by 1e-3 in rows of millions: (a - a')·(b - b')/(S·T)."""
    form = form_of(PRODUCTS["correlation"][0])
    plain = draw(form, 7, 1_200_001)
    plain["z"] = plain["z"] + plain["x"] / 2
    wanted = form.compile("numpy")(**plain)
    for scale in (2.0**-66, 2.0**-64, 1.0, 2.0**62):
        got = form.compile("cpu")(**{n: np.float32(a * scale) for n, a in plain.items()})
        assert abs(got - wanted) < 1e-5, (scale, got, wanted)
