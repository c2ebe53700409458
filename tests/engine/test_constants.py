"""Constants far from 1 stay with the elements they multiply: forms have the range of their definitions.

Truth is the definition in exact arithmetic. Of y = c·x the elements are near 1, whatever c is, so that an element of
degree p is off by p + 4 roundings of a body's magnitude at |y|, a sum or mean of n of them by n more, and each of the
merges by some; deviations have the magnitude (|y| + mean|y|)^p.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mpf

import redalg as ra
from tests.support.profiles import examples
from tests.support.simulated import run as simulated

# C is the constant; magnitudes are those of the bodies, at y = |C·x| and v, k as they are
BODIES: dict[str, tuple[str, int, Any]] = {
    "squares": ("y = sum[j]((C*x[j])**2)", 2, lambda y, v: y**2),
    "mean square": ("y = mean[j]((C*x[j])**2)", 2, lambda y, v: y**2),
    "a high power": ("y = sum[j]((C*x[j])**6)", 6, lambda y, v: y**6),
    "a broken power": ("y = sum[j](abs(C*x[j])**(5/2))", 3, lambda y, v: y**2.5),
    "an inverse": ("y = sum[j]((1/(C*x[j]))**2)", 2, lambda y, v: y**-2),
    "weighted": ("y = sum[j](v[j]*(C*x[j])**2)", 3, lambda y, v: v * y**2),
    "squared products": ("y = sum[j]((C*x[j]*v[j])**2)", 4, lambda y, v: (v * y) ** 2),
    "masked": ("y = sum[j](where(v[j] < 1, (C*x[j])**2, 0))", 2, lambda y, v: y**2),
    "masked inside": ("y = sum[j](where(v[j] < 1, C*x[j], 0)**2)", 2, lambda y, v: y**2),
    "from a number": ("y = sum[j]((C*x[j] - 1)**2)", 2, lambda y, v: (y + 1) ** 2),
    "two tensors": ("y = sum[j]((C*x[j] - v[j])**2)", 2, lambda y, v: (y + v) ** 2),
    "deviations": ("y = sum[j]((C*(x[j] - mean[j](x[j])))**2)", 2, lambda y, v: (y + y.mean()) ** 2),
    "central moment": ("m = mean[j](x[j]); y = mean[j](((x[j] - m)*C)**4)", 4, lambda y, v: (y + y.mean()) ** 4),
    "weighted deviations": (
        "m = sum[j](v[j]*x[j])/sum[j](v[j]); y = sum[j](v[j]*((x[j] - m)*C)**2)",
        3,
        lambda y, v: v * (y + y.mean() * 3) ** 2,
    ),
    "covariance": (
        "a = mean[j](x[j]); b = mean[j](v[j]); y = mean[j]((x[j] - a)*C*(v[j] - b))",
        2,
        lambda y, v: (y + y.mean()) * (v + v.mean()),
    ),
    "from the largest": ("y = sum[j]((C*(x[j] - max[j](x[j])))**2)", 2, lambda y, v: (y + y.max()) ** 2),
    "norm": ("y = sqrt(sum[j]((C*x[j])**2))", 2, lambda y, v: y),
    "contraction": ("y = sum[j]((sum[d](q[j,d]*k[d])*C)**2)", 3, None),
    "beside the mean": (
        "m = mean[j](x[j]); y = sum[j](((x[j] - m)*C)**2) + m*C",
        2,
        lambda y, v: (y + y.mean()) ** 2 + y,
    ),
}
PLACED = sorted(BODIES.keys() - {"contraction"})


@lru_cache
def form_of(name: str, exponent: int) -> Any:
    """The constant 10^exponent as the float it is."""
    *bindings, last = BODIES[name][0].replace("C", f"(1e{exponent})").split("; ")
    return ra.derive_incremental(ra.parse("; ".join([*bindings, f"return {last}"])), axis="j")


def drawn(form: Any, n: int, exponent: int, dtype: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"x": n, "v": n, "q": (n, 3), "k": 3}
    scales = {"x": 10.0**-exponent, "q": 10.0**-exponent}
    draw = {t: rng.uniform(0.5, 1.5, s) * scales.get(t, 1.0) for t, s in shapes.items()}
    return {d.name: draw[d.name].astype(dtype) for d in form.spec.tensors}


def in_pieces(form: Any, arrays: dict[str, np.ndarray], cuts: list[int]) -> Any:
    """Pieces merged from the right, one of them empty."""
    n = next(a.shape[0] for t, a in arrays.items() if t != "k")
    bounds = [0, *sorted(c % (n + 1) for c in cuts), n, n]
    parts = []
    for low, high in zip(bounds, bounds[1:], strict=False):
        acc = form.accumulator(**{t: a for t, a in arrays.items() if t == "k"})
        acc.update(**{t: a[low:high] for t, a in arrays.items() if t != "k"})
        parts.append(acc)
    for left, right in zip(reversed(parts[:-1]), reversed(parts[1:]), strict=True):
        left.merge(right)
    return parts[0].result()


def bound(name: str, arrays: dict[str, np.ndarray], exponent: int, merges: int) -> float:
    _, degree, magnitude = BODIES[name]
    if magnitude is None:
        y = (arrays["q"].astype(np.longdouble) * 10.0**exponent) @ arrays["k"]
        sizes = y**2
    else:
        sizes = magnitude(arrays["x"].astype(np.longdouble) * 10.0**exponent, arrays.get("v", 1.0))
    n = len(sizes)
    eps = float(np.finfo(next(iter(arrays.values())).dtype).eps)
    return float((2 * n + 8 * degree + 16 + 4 * merges) * eps * sizes.sum())


@examples(60)
@given(
    name=st.sampled_from(sorted(BODIES)),
    exponent=st.sampled_from([-290, -200, -151, -77, -30, 30, 77, 151, 200, 290]),
    n=st.sampled_from([1, 2, 9, 40]),
    single=st.booleans(),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    seed=st.integers(0, 99),
)
@example(name="squares", exponent=-200, n=40, single=False, cuts=[3, 3], seed=0)
@example(name="deviations", exponent=-200, n=40, single=False, cuts=[0, 17], seed=0)
@example(name="a high power", exponent=-30, n=9, single=True, cuts=[], seed=0)
@example(name="mean square", exponent=-30, n=9, single=True, cuts=[1], seed=0)
def test_forms_have_the_range_of_their_definitions(
    name: str, exponent: int, n: int, single: bool, cuts: list[int], seed: int
) -> None:
    dtype = np.float32 if single and abs(exponent) == 30 else np.float64
    form, rng = form_of(name, exponent), np.random.default_rng(seed)
    arrays = drawn(form, n, exponent, dtype, rng)
    true = Fraction(str(ra.reference(form.spec, exact=True, **arrays)))
    with np.errstate(all="ignore"):
        found = [in_pieces(form, arrays, cuts), form.compile("numpy")(**arrays)]
    for value in found:
        assert np.isfinite(value)
        assert abs(Fraction(float(value)) - true) <= bound(name, arrays, exponent, len(cuts)), (value, float(true))


EXPONENTIALS = {  # over exp(x) near 1/C; the last number is the degree
    "squares": ("y = sum[j]((exp(x[j])*C)**2)", 2),
    "weighted": ("y = sum[j](exp(x[j])*C*v[j])", 1),
    "cubes": ("y = mean[j](v[j]*(C*exp(x[j]))**3)", 3),
    "deviations": ("y = mean[j]((C*(exp(x[j]) - mean[j](exp(x[j]))))**2)", 2),
    "from a number": ("y = sum[j]((exp(x[j])*C - 1)**2)", 2),
    "masked": ("y = sum[j](where(v[j] > 1, (exp(x[j])*C)**2, 0))", 2),
    "norm": ("y = sqrt(sum[j]((exp(x[j])*C)**2))", 1),
}


@lru_cache
def of_exponentials(name: str, exponent: int) -> Any:
    return ra.derive_incremental(ra.parse(f"return {EXPONENTIALS[name][0].replace('C', f'(1e{exponent})')}"))


@pytest.mark.parametrize("name", EXPONENTIALS)
@pytest.mark.parametrize("exponent", [-290, -160, 160, 290])
def test_exponentials_have_the_range_of_their_definitions(name: str, exponent: int) -> None:
    """An error of x is one of e^x: |x| roundings of it for each degree, and some for the sums of magnitudes below 9."""
    form, rng = of_exponentials(name, exponent), np.random.default_rng(3)
    for n, cuts in ((1, []), (2, [0, 1]), (17, [3, 3, 11])):
        arrays = {"x": rng.uniform(-0.3, 0.3, n) - exponent * np.log(10), "v": rng.uniform(0.5, 1.5, n)}
        arrays = {d.name: arrays[d.name] for d in form.spec.tensors}
        true = Fraction(str(ra.reference(form.spec, exact=True, **arrays)))
        allowed = 2.0**-52 * n * 9 * EXPONENTIALS[name][1] * (abs(exponent) * 3 + 60)
        with np.errstate(all="ignore"):
            found = [in_pieces(form, arrays, cuts), form.compile("numpy")(**arrays)]
        for value in found:
            assert np.isfinite(value) and abs(Fraction(float(value)) - true) <= allowed, (value, float(true))


def test_exponentials_are_proved_and_special_values_the_definitions() -> None:
    for name in EXPONENTIALS:
        form = of_exponentials(name, -160)
        form.certificate.verify()
        for value in (np.inf, -np.inf, np.nan, 800.0, -800.0):
            x = np.array([368.0, value, 367.0])
            arrays = {d.name: x if d.name == "x" else np.array([1.0, 2.0, 1.5]) for d in form.spec.tensors}
            with np.errstate(all="ignore"):
                wanted, got = float(ra.reference(form.spec, **arrays)), float(in_pieces(form, arrays, [1, 1]))
            exact = float(mpf(str(ra.reference(form.spec, exact=True, **arrays)))) if np.isfinite(value) else wanted
            same = np.isclose(got, [wanted, exact], rtol=1e-12, equal_nan=True)  # accumulators go on in wider numbers
            assert same.any() or form.assumptions and np.isnan(got), (name, value, got, wanted)


def test_an_anchor_is_worth_more_than_a_constant() -> None:
    form = ra.derive_incremental(ra.parse("return y = sum[j](exp(x[j] - max[j](x[j]))*1e-200*v[j])"))
    x, v = np.array([4000.0, 4001.0]), np.array([1e200, 1e150])
    assert in_pieces(form, {"x": x, "v": v}, [1]) == pytest.approx(np.exp(-1.0), rel=1e-14)


@pytest.mark.parametrize("exponent", [-160, -200, -290])
def test_integers_that_become_fractions_have_the_range_of_their_definitions(exponent: int) -> None:
    c = f"(1e{exponent})"
    form = ra.derive_incremental(ra.parse(f"tensors n[j] integer, v[j]; return y = sum[j]((n[j]*{c})**2*v[j])"))
    n, v = np.array([3, -5, 10**9, 0]), np.array([1.0, 1.5, 0.5, 2]) * 10.0 ** min(-2 * exponent - 18, 290)
    with np.errstate(all="ignore"):
        true = float(ra.reference(form.spec, n=n, v=v))
        for got in (form.compile("numpy")(n=n, v=v), in_pieces(form, {"n": n, "v": v}, [1, 1])):
            assert got == pytest.approx(true, rel=1e-12)


@pytest.mark.parametrize("name", sorted(BODIES))
def test_their_certificates_are_proved(name: str) -> None:
    form = form_of(name, -200)
    form.certificate.verify(allow={"tested"} if name == "a broken power" else set())


@pytest.mark.parametrize("value", [0.0, np.inf, -np.inf, np.nan, 5e-324])
@pytest.mark.parametrize("name", PLACED)
def test_special_values_are_those_of_the_definition(name: str, value: float) -> None:
    form, rng = form_of(name, -200), np.random.default_rng(1)
    for place in (0, 4, slice(None)):
        arrays = drawn(form, 9, -200, np.float64, rng)
        arrays["x"][place] = value
        with np.errstate(all="ignore"):
            wanted = np.asarray(ra.reference(form.spec, **arrays), float)
            for got in (form.compile("numpy")(**arrays), in_pieces(form, arrays, [0, 4, 5])):
                if np.isinf(wanted) and form.plan.assumptions and np.isnan(got):
                    continue  # an assumption is listed
                np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12 if np.isfinite(value) else 0)


def test_subnormal_elements_keep_their_digits() -> None:
    form = form_of("squares", 290)
    x = np.array([3, 5, 9, 1]) * 2.0**-1074
    true = Fraction(str(ra.reference(form.spec, x=x, exact=True)))
    assert abs(Fraction(float(in_pieces(form, {"x": x}, [2]))) - true) <= true * Fraction(2) ** -48


def test_what_the_spec_wants_of_the_elements_themselves_is_not_in_units() -> None:
    """A sum of squares near 1 beside one of squares over 1e200: two slots, each in the range of its own."""
    form = ra.derive_incremental(ra.parse("return a = sum[j](x[j]**2), b = sum[j]((x[j]/1e200)**2)"))
    for scale in (1.0, 1e-100, 1e200):
        x = np.arange(1, 5) * scale
        with np.errstate(all="ignore"):
            found, true = form.compile("numpy")(x=x), ra.reference(form.spec, x=x)
        for key in "ab":
            np.testing.assert_allclose(found[key], true[key], rtol=1e-14)


@pytest.mark.parametrize("text", ["sum[j]((x[j]/1000)**2)", "sum[j](x[j]*1e100)", "mean[j](x[j]/1e30)"])
def test_constants_that_do_no_harm_stay_outside(text: str) -> None:
    form = ra.derive_incremental(ra.parse(f"return y = {text}"))
    assert not any("scaled" in s.name for p in form.plan.passes for s in p.slots)


def test_names_are_those_of_no_tensor() -> None:
    form = ra.derive_incremental(ra.parse("return y = sum[j]((x[j]/1e200)**2 * scaled_x[j])"))
    x, w = np.full(3, 1e200), np.arange(3.0)
    assert form.compile("numpy")(x=x, scaled_x=w) == pytest.approx(3, rel=1e-15)


def test_two_passes() -> None:
    form = ra.derive_incremental(ra.parse("m = mean[j](x[j]); return y = sum[j]((abs(x[j]-m)/1e200)**3)"), max_passes=2)
    x = np.random.default_rng(0).uniform(0.5, 1.5, 20) * 1e200
    assert form.compile("numpy")(x=x) == pytest.approx(float(ra.reference(form.spec, x=x)), rel=1e-13)
    form.certificate.verify()


@pytest.mark.parametrize("name", ["squares", "deviations", "from the largest"])
def test_kernels_have_the_range_too(name: str) -> None:
    text = BODIES[name][0].replace("C", "1e-30").replace("[j](", "[t](").replace("x[j]", "x[r,t]")
    form = ra.derive_incremental(ra.parse(f"return {text}"))
    x = (np.random.default_rng(2).uniform(0.5, 1.5, (3, 70)) * 1e30).astype(np.float32)
    true = np.asarray(ra.reference(form.spec, x=x.astype(np.float64)), float)
    with np.errstate(all="ignore"):
        found = [form.compile("cpu")(x=x), next(iter(simulated(form, {"x": x}, "block")[0].values()))]
    for y in found:
        np.testing.assert_allclose(y, true, rtol=3e-5)
