"""Products of quotients, moments about the mean of a power or a product: in units of every tensor in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from redalg.testing.bounds import assert_within, error_bounds
from tests.deep.engine.test_units import HOMOGENEOUS, times
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
WORST = 2.0**-12  # of bounds of float32: below, none of them says nothing


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


def checked(form: ra.Form, arrays: dict[str, np.ndarray], plain: dict[str, np.ndarray], schedules: Any = ()) -> None:
    """Results of float32, within the bounds that are derived for plain data, of which these are powers of 2."""
    true = np.asarray(ra.reference(form.spec, **arrays, exact=True), float)
    like = np.asarray(ra.reference(form.spec, **plain, exact=True), float)
    length = next(iter(plain.values())).shape[-1]
    whole, parts = ([0, length], []), (list(range(length + 1)), [0] * (length - 1))
    with np.errstate(all="ignore"):
        found = [(form.compile("numpy")(**arrays), whole), (form.compile("cpu")(**arrays), whole)][
            : 2 - bool(schedules)
        ]
        found += [(x, t) for x, t in zip(merged(form, arrays), TREES, strict=True) if not schedules]
        found += [(next(iter(simulated(form, arrays, s)[0].values())), parts) for s in schedules]
        for got, pieces in found:
            bound = error_bounds(form.plan, form.spec, plain, *pieces, dtype="float32")["y"] / np.abs(like)
            assert np.all(bound < WORST), bound
            assert_within(got, true, bound * np.abs(true), dtype="float32")


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
    plain = {n: a.astype(np.float32) for n, a in draw(form, 5).items()}
    for k in (-100, -66, -40, -12, 0, 12, 40, 66, 100):
        checked(form, {n: np.float32(a) for n, a in times(plain, 2.0 ** (k // written)).items()}, plain)


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_tensor_has_its_own_unit(name: str, forms: dict[str, ra.Form]) -> None:
    """One is 10^24 times the other, and the product of both near 1."""
    form, written = forms[name], PRODUCTS[name][1]
    for low, high in ((-80, 80), (80, -80), (-100, 20)):
        scales = {"z": high, "Z": high, "w": low - high}
        plain = {n: np.float32(a) for n, a in draw(form, 6).items()}
        exponents = {n: 0 if n == "k" else scales.get(n, low) // (2 * written) for n in plain}
        checked(form, {n: np.ldexp(a, exponents[n]) for n, a in plain.items()}, plain)


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
                        same = np.isclose(got, wanted, rtol=1e-9, equal_nan=True)  # numbers of other kinds
                        assert np.all(same | undefined), (tensor, value, got, wanted)


@pytest.mark.parametrize("name", PRODUCTS)
def test_certificates_prove_them(name: str, forms: dict[str, ra.Form]) -> None:
    assert forms[name].plan.passes[-1].units
    forms[name].certificate.verify()


@pytest.mark.parametrize("name", ["shares", "relative squares", "spread of products"])
def test_kernels_of_gpus_have_them(name: str) -> None:
    text, written = PRODUCTS[name]
    form = form_of(text.replace("x[j]", "x[i,j]").replace("z[j]", "z[i,j]"))
    plain = {n: np.float32(a) for n, a in draw(form, 8, 70).items()}
    for k in (-80, 0, 80):
        checked(form, {n: np.ldexp(a, k // written) for n, a in plain.items()}, plain, ("block", "warp"))


def test_kernels_that_split_rows_take_quotients_before_they_multiply() -> None:
    """A correlation of float32 near 1e-20 was off by 1e-3 in rows of millions: (a - a')·(b - b')/(S·T). Powers of 2
    change no digit."""
    form = form_of(PRODUCTS["correlation"][0])
    plain = draw(form, 7, 1_200_001)
    plain = {"x": np.float32(plain["x"]), "z": np.float32(plain["z"] + plain["x"] / 2)}
    compiled = form.compile("cpu")
    here = compiled(**plain)
    for exponent in (-66, -64, -32, 32, 62):
        assert compiled(**{n: np.ldexp(a, exponent) for n, a in plain.items()}) == here, exponent
