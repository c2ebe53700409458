"""Products of ratios Π x/u: held at the value that divides, they are as large as the definition says, everywhere.

Truth is the definition in exact arithmetic. A product of n quotients rounds 3n times (quotient, product, stage value),
a merge some ten times more, whatever n is; the kernels raise a rounded ratio to the power n at each of their merges.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import redalg as ra
from redalg.proofs.checker.check import Judge
from tests.support.anchor_cases import folded
from tests.support.profiles import examples
from tests.support.simulated import run as simulated

EPS = float(np.finfo(np.float64).eps)
SPECS = {
    "mean": "u = mean[j](x[j]); return y = prod[j](x[j]/u)",
    "maximum": "u = max[j](abs(x[j])); return y = prod[j](x[j]/u)",
    "magnitude": "u = mean[j](abs(x[j])); return y = prod[j](abs(x[j]/u))",
    "weighted mean": "u = sum[j](w[j]*x[j])/sum[j](w[j]); return y = prod[j](x[j]/u)",
    "square": "u = mean[j](abs(x[j])); return y = prod[j]((x[j]/u)**2)",
    "masked": "u = mean[j](abs(x[j])); return y = prod[j](where(w[j] < 1, x[j]/u, 1))",
    "one sign": "u = mean[j](abs(x[j])); return y = prod[j](where(x[j] < 0, 2, x[j]/u))",
    "two tensors": "u = mean[j](abs(x[j])); v = max[j](w[j]); return y = prod[j](x[j]*w[j]/(u*v))",
}


@lru_cache
def form_of(name: str) -> Any:
    return ra.derive_incremental(ra.parse(SPECS[name]))


def drawn(form: Any, n: int, scale: float, signs: str, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Elements within 1/8 of the scale (in size), so that the product of 5000 ratios stays in range."""
    spread = min(0.125, 4 / math.sqrt(max(n, 1)))
    x = scale * rng.uniform(1 - spread, 1 + spread, n)
    if signs == "mixed":  # sums of signed elements do not cancel: most are positive
        x *= np.where(rng.random(n) < 2 / max(n, 4), -1, 1)
    arrays = {"x": -x if signs == "negative" else x, "w": rng.uniform(1 - spread, 1 + spread, n)}
    return {d.name: arrays[d.name] for d in form.spec.tensors}


def error(value: Any, true: Any) -> float:
    """The relative error against an exact number, in units of roundoff."""
    true = np.asarray(true).item()
    true = true if isinstance(true, Fraction) else Fraction(float(true))  # a root is no fraction
    found = float(np.asarray(value).item())
    assert math.isfinite(found)
    return float(abs(Fraction(found) - true) / abs(true)) / EPS


def condition(arrays: dict[str, np.ndarray]) -> float:
    """How much more than an element its mean is off: Σ|x|/|Σx|."""
    x = arrays["x"]
    return float(np.abs(x).sum() / abs(x.sum())) if x.size else 1.0


@examples(40)
@given(
    name=st.sampled_from(sorted(SPECS)),
    n=st.sampled_from([1, 2, 3, 33, 400]),
    exponent=st.integers(-200, 200),
    signs=st.sampled_from(["positive", "negative", "mixed"]),
    seed=st.integers(0, 99),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
@example(name="mean", n=400, exponent=3, signs="positive", seed=0, cuts=[])
@example(name="mean", n=5000, exponent=-200, signs="mixed", seed=1, cuts=[0, 0, 1, 2500, 4999])
@example(name="masked", n=5000, exponent=200, signs="negative", seed=2, cuts=[7, 7, 4000])
def test_products_of_ratios_are_exact_to_roundoff(
    name: str, n: int, exponent: int, signs: str, seed: int, cuts: list[int]
) -> None:
    form, rng = form_of(name), np.random.default_rng(seed)
    arrays = drawn(form, n, 10.0**exponent, signs, rng)
    true = ra.reference(form.spec, exact=True, **arrays)
    cuts = sorted({0, *(c % (n + 1) for c in cuts)})
    bound = 12 * n * condition(arrays) + 32 * len(cuts) + 16
    assert error(folded(form, arrays, [0, *cuts], rng)["y"], true) <= bound
    assert error(form.compile("numpy")(**arrays), true) <= bound


DIVISORS = {  # whose own sums are in units, or are products, powers and quotients of sums
    "root mean square": ("x[j]/sqrt(mean[j](x[j]**2))", 1),
    "cube root of cubes": ("x[j]/mean[j](x[j]**3)**(1/3)", 1),
    "contraharmonic": ("x[j]*mean[j](x[j])/mean[j](x[j]**2)", 1),
    "both": ("x[j]/sqrt(mean[j](x[j]*w[j]))", 1),
    "two": ("x[j]*w[j]/(mean[j](x[j])*max[j](w[j]))", 2),
    "three": ("x[j]*w[j]/(mean[j](w[j])*sum[j](x[j])/size[j])", 2),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", sorted(DIVISORS))
def test_a_divisor_is_in_range_in_one_way_everywhere(name: str, dtype: Any) -> None:
    """An anchor and what is left of it outside are one number, or the product is wrong by its n-th power."""
    body, degree = DIVISORS[name]
    form, rng, n = ra.derive_incremental(ra.parse(f"return y = prod[j]({body})")), np.random.default_rng(5), 60
    top = np.log10(float(np.finfo(dtype).max)) / degree
    for scale in (0.97 * top, 0.7 * top, -0.7 * top, 0.0):
        arrays = {d.name: (10.0**scale * rng.uniform(0.95, 1.0, n)).astype(dtype) for d in form.spec.tensors}
        true = ra.reference(form.spec, exact=True, **arrays)
        bound = 30 * n * float(np.finfo(dtype).eps) / EPS
        assert error(form.compile("numpy")(**arrays), true) <= bound
        assert error(folded(form, arrays, [0, 7, 7, 40, n], rng)["y"], true) <= bound


@pytest.mark.parametrize("name", ["mean", "masked"])
def test_one_element_at_a_time_loses_no_digits(name: str) -> None:
    """A ratio of anchors is raised to the number of elements at every step: its rounding must not be."""
    form, rng = form_of(name), np.random.default_rng(3)
    arrays = drawn(form, 400, 1e3, "positive", rng)
    arrays["x"] *= np.linspace(0.9, 1.1, 400)  # the mean moves at every step
    acc = form.accumulator()
    for k in range(400):
        acc.update(**{t: a[k : k + 1] for t, a in arrays.items()})
    true = ra.reference(form.spec, exact=True, **arrays)
    assert error(acc.result(), true) <= 16 * 400
    assert acc.count == 400


@pytest.mark.parametrize("name", sorted(SPECS))
def test_the_slot_is_centred_and_in_range(name: str) -> None:
    form = form_of(name)
    (product,) = [s for p in form.plan.passes for s in p.slots if s.kind == "prod" and s.anchors]
    arrays = drawn(form, 400, 1e3, "positive", np.random.default_rng(4))
    acc = form.accumulator()
    acc.update(**arrays)
    assert 1e-200 < abs(acc.state[product.parts[0]].item()) < 1e200


@pytest.mark.parametrize("name", sorted(SPECS))
def test_products_of_ratios_are_proved(name: str) -> None:
    assert form_of(name).certificate.verify().proved


@pytest.mark.parametrize("name", sorted(SPECS))
def test_how_products_move_is_stated_as_a_law_of_whole_streams(name: str) -> None:
    """Their action distributes over times, and the product over a ++ b is that of both sides, moved; nothing else."""
    form = form_of(name)
    doc = form.certificate.document
    products = {s.name for p in form.plan.passes for s in p.slots if s.kind == "prod" and s.anchors}
    judge, t = Judge(doc), doc.terms
    for law in ("O5", "O8"):
        stated = [o for o in doc.obligations if o.law == law and o.subject in products]
        assert len(stated) == len(products) > 0
        for o in stated:
            assert judge.proves(o)
            factors = o.left.args
            fewer = (t.mul(*factors[:k], *factors[k + 1 :]) for k in range(len(factors)))
            assert not any(judge.proves(replace(o, left=left)) for left in fewer)
            assert not judge.proves(replace(o, left=t.mul(*factors, factors[-1])))


def test_a_product_that_is_wanted_itself_is_one() -> None:
    form = ra.derive_incremental(ra.parse("return y = prod[j](x[j])"))
    assert [(s.kind, s.anchors) for p in form.plan.passes for s in p.slots] == [("prod", ())]


@pytest.mark.parametrize("name", ["mean", "masked", "square"])
def test_no_elements_and_one(name: str) -> None:
    form = form_of(name)
    none = drawn(form, 0, 1.0, "positive", np.random.default_rng(5))
    with np.errstate(all="ignore"):
        true = np.asarray(ra.reference(form.spec, **none), dtype=float)
        np.testing.assert_array_equal(form.compile("numpy")(**none), true)
    one = drawn(form, 1, 1e-300, "negative", np.random.default_rng(5))
    got = folded(form, one, [0, 0], np.random.default_rng(6))["y"]
    assert got == np.asarray(ra.reference(form.spec, **one), dtype=float)


STREAMS = {
    "zeros": [0.0, 0.0, 0.0],
    "a zero": [3.0, 0.0, 5.0, 1.0],
    "cancels at the end": [1.0, 2.0, -3.0],
    "cancels on the way": [1.0, -1.0, 2.0, 4.0],
    "infinite": [1.0, np.inf, 2.0],
    "both": [1.0, np.inf, -np.inf],
    "nan": [1.0, np.nan, 2.0],
    "zero first": [0.0, 2.0, 3.0, 4.0],
}


@pytest.mark.parametrize("stream", sorted(STREAMS))
@pytest.mark.parametrize("name", ["mean", "maximum", "magnitude", "masked"])
def test_values_that_cannot_divide(name: str, stream: str) -> None:
    """The definition's value where what divides is 0, infinite or NaN, at the end or on the way."""
    form, x = form_of(name), np.array(STREAMS[stream])
    arrays = {d.name: {"x": x, "w": np.linspace(0.5, 1.5, x.size)}[d.name] for d in form.spec.tensors}
    with np.errstate(all="ignore"):
        true = np.asarray(ra.reference(form.spec, **arrays), dtype=float)
        values = [folded(form, arrays, cuts, np.random.default_rng(7))["y"] for cuts in ([], [0, 1], [1, 2], [2, 2])]
        values.append(form.compile("numpy")(**arrays))
    for value in values:
        np.testing.assert_allclose(value, true, rtol=64 * EPS, equal_nan=True)


@pytest.mark.parametrize("exponent", [-200, 100, 200])
@pytest.mark.parametrize("name", ["mean", "masked", "square", "one sign"])
def test_pieces_without_a_divisor_stay_in_range(name: str, exponent: int) -> None:
    """A piece whose stage value cancels is held at its largest element until there is something to divide by."""
    text = SPECS[name].replace("mean[j](abs(x[j]))", "mean[j](x[j])")
    form = ra.derive_incremental(ra.parse(text))
    zero = np.array([1.0, -1.0] * 4) * 10.0**exponent
    x = np.concatenate([zero, 10.0**exponent * np.linspace(0.5, 1.5, 20)])
    arrays = {d.name: {"x": x, "w": np.linspace(0.5, 1.2, x.size)}[d.name] for d in form.spec.tensors}
    true = ra.reference(form.spec, exact=True, **arrays)
    for cuts in ([8], [2, 4, 4, 6, 8], [0, 8, 20], [7, 9]):
        with np.errstate(all="ignore"):
            value = folded(form, arrays, [0, *cuts], np.random.default_rng(9))["y"]
        assert error(value, true) <= 48 * x.size * condition(arrays) + 64
    none = {t: a[:8] for t, a in arrays.items()}
    with np.errstate(all="ignore"):
        wanted = np.asarray(ra.reference(form.spec, **none), float)
        np.testing.assert_array_equal(folded(form, none, [0, 4], np.random.default_rng(9))["y"], wanted)


def test_kernels_hold_products_at_what_divides() -> None:
    rows = "u = mean[j](x[i,j]); return y = prod[j](where(x[i,j] > 0, x[i,j]/u, 1))"
    form, rng = ra.derive_incremental(ra.parse(rows), axis="j"), np.random.default_rng(8)
    x = 1000 + rng.normal(size=(3, 400))
    x[1] *= 1e-150
    x[2] *= np.where(np.arange(400) % 50 == 0, -1, 1)
    true = ra.reference(form.spec, exact=True, x=x)
    found = {target: form.compile(target)(x=x) for target in ("cpu", "numpy")}
    found["cuda"] = simulated(form, {"x": x})[0]["y"]
    for target, value in found.items():
        for k in range(3):
            assert error(value[k], true[k]) <= 400 * (16 if target != "cuda" else 64), target
