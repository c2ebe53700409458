"""Exponentials weighed by sums, 1 - w: an element whose weight is 0 while its terms are not hides nothing.

Its exponential may be larger than all others by more than a format's range: multiplied out, e^(x-u) - w·e^(x-u), both
terms would be held at the largest x. And exponentials of sums: the largest x + z is not near those of x and z together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from tests.support.forms import Forms
from tests.support.streams import three_ways

WEIGHTS = {
    "difference": "(1 - w[j])",
    "power": "(1 - w[j])**2",
    "product": "(1 - w[j])*(z[j] + w[j])",
    "quotient": "(w[j] - 1)/(1 + z[j])",
    "root": "(w[j]**0.5 - w[j])",
    "chosen": "where(z[j] > 0.7, 1 - w[j], 2*w[j] - 2)",
    "function": "log(2 - 1/w[j])*(w[j] - 1)",
    "two tensors": "(w[j]*z[j] - z[j])",
}
BODIES = {
    "exp": "{w}*exp(x[j] - u)",
    "expm1": "{w}*(exp(x[j] - u) - 1)",
    "cosh": "{w}*(exp(x[j] - u) + exp(u - x[j]))/2",
    "of a sum": "{w}*exp(x[j] + z[j] - u)",
    "deviation": "{w}*(z[j] - u)*exp(x[j] - u)",
    "two": "{w}*(exp(x[j] - u) - exp(z[j] - u))",
}
SPECS = {
    f"{weight} {body}": f"u = mean[j](y[j]); return s = sum[j]({BODIES[body].format(w=WEIGHTS[weight])})"
    for weight in WEIGHTS
    for body in BODIES
    if weight == "difference" or body in ("exp", "expm1")
}
SPECS |= {
    "written out": "u = mean[j](y[j]); return s = sum[j](exp(x[j] - u) - w[j]*exp(x[j] - u))",
    "factors beside": "u = mean[j](y[j]); return s = sum[j](2*z[j]*exp(x[j] - u) - z[j]*u - 2*w[j]*z[j]*exp(x[j] - u))",
    "variance": "u = mean[j](y[j]); return s = var[j]((1 - w[j])*exp(x[j] - u))",
    "logarithm": "u = mean[j](y[j]); return s = log(sum[j]((w[j] - 1)**2*exp(x[j] - u)))",
    "its own maximum": "u = max[j](x[j]); v = max[j]((1 - w[j])**2*exp(x[j] - u));"
    " return s = sum[j]((1 - w[j])*exp(x[j] - u))/v",
}
FORMS = Forms(SPECS, "j")
Arrays = dict[str, np.ndarray]


def drawn(seed: int, far: float, weight: float = 1.0) -> Arrays:
    """Elements about 0, one of them far above the others; its w is such that its weight is 0."""
    rng = np.random.default_rng(seed)
    n = 3 + seed % 6
    x, y, z, w = rng.normal(size=n), rng.normal(size=n), rng.uniform(0.5, 1, n), rng.uniform(1.25, 3, n)
    place = rng.integers(n)
    x[place], w[place] = far, weight
    return {"x": x, "y": y, "z": z, "w": w}


def found(form: Any, given: Arrays) -> list[tuple[str, Any]]:
    """What the form and its accumulators give, one of whose pieces is empty."""
    n = len(given["x"])
    borders = [0, n // 3, n // 3, n - 1, n]
    whole = form.accumulator()
    for start, end in zip(borders, borders[1:], strict=False):
        whole.update(**{k: a[start:end] for k, a in given.items()})
    merged = running.merged(form, given, borders, [2, 1, 0])
    return [("numpy", form.compile("numpy")(**given)), ("streamed", whole.result()), ("merged", merged)]


def single(value: Any) -> float:
    value = value["s"] if isinstance(value, dict) else value
    return float(np.asarray(value).item())


@pytest.mark.parametrize("name", SPECS)
def test_what_a_weight_of_several_terms_masks_hides_nothing(name: str) -> None:
    form = FORMS[name]
    for seed, far in enumerate((0.0, 3.0, 40.0, 110.0, 300.0) * 2):
        if "maximum" in name and far > 60 or name == "difference cosh" and far > 300:
            continue  # the definition subtracts the largest x itself
        every = drawn(seed, far)
        given = {t.name: every[t.name] for t in form.spec.tensors}
        true = single(ra.reference(form.spec, exact=True, **given))
        for where, value in found(form, given):
            assert abs(single(value) - true) <= 1e-11 * (abs(true) + 1e-2 * (name == "variance")), (where, far, true)


@pytest.mark.parametrize("name", SPECS)
def test_what_a_weight_of_several_terms_masks_is_infinite_all_the_same(name: str) -> None:
    """0·e^oo and 0·NaN are no numbers, 0·e^-oo is 0, with any weight."""
    form, oo = FORMS[name], np.inf
    rows = ([], [], []), ([oo, 1], [1, 2], [1, 1]), ([np.nan, 1], [1, 3], [1, 1]), ([-oo, 1], [1, 2], [1, 1])
    more = (
        ([1.0], [1.0], [1.0]),
        ([1, 2, 3], [2, oo, 1], [1, 1, 1]),
        ([1, 2], [1, 1], [0.6, 1]),
        ([1, 2], [np.nan, 1], [1, 1]),
    )
    for x, w, z in (*rows, *more):
        every = {"x": x, "w": w, "z": z, "y": np.ones(len(x))}
        given = {t.name: np.array(every[t.name], float) for t in form.spec.tensors}
        with np.errstate(all="ignore"):
            wanted = single(ra.reference(form.spec, **given))
            values = found(form, given) if x else [("numpy", form.compile("numpy")(**given))]
        for where, value in values:
            if np.isinf(wanted) and name.split()[-1] in ("expm1", "two"):
                continue  # a sum in two terms, oo - oo: NaN, as the form says it may be
            np.testing.assert_allclose(single(value), wanted, 1e-12, 1e-14, err_msg=f"{where} {x} {w}")


UNPROVED = ("difference deviation", "difference two", "chosen exp", "chosen expm1", "its own maximum")


@pytest.mark.parametrize("name", [n for n in SPECS if n not in UNPROVED])
def test_forms_of_weights_of_several_terms_are_proved(name: str) -> None:
    FORMS[name].certificate.verify()


SUMS = {
    "alone": "return s = logsumexp[j](x[j] + z[j])",
    "beside both": "return a = logsumexp[j](x[j]), b = logsumexp[j](z[j]), s = logsumexp[j](x[j] + z[j])",
    "shifted": "u = max[j](y[j]); return a = sum[j](exp(x[j] - u)), b = sum[j](exp(z[j] - u)),"
    " s = log(sum[j](exp(x[j] + z[j] - u)))",
    "difference": "return a = logsumexp[j](x[j]), b = logsumexp[j](-z[j]), s = logsumexp[j](x[j] - 2*z[j])",
    "weighed": "u = max[j](y[j]); return a = sum[j](w[j]*exp(x[j] - u)), b = sum[j](w[j]*exp(z[j] - u)),"
    " s = log(sum[j](z[j]**2*exp(x[j] + z[j] - u)))",
    "both subtracted": "a = max[j](x[j]); b = max[j](z[j]); return a, b, s = sum[j](exp(x[j] - a)*exp(z[j] - b))",
    "both divided": "return a = max[j](x[j]), s = sum[j](softmax[j](x[j])*softmax[j](z[j]))",
}
OF_SUMS = Forms(SUMS, "j")


@pytest.mark.parametrize("name", SUMS)
def test_exponents_that_are_sums_have_a_maximum_of_their_own(name: str) -> None:
    form = OF_SUMS[name]
    for seed, far in enumerate((0.0, 30.0, 800.0, 1600.0)):
        rng = np.random.default_rng(seed)
        n = 5
        every = {k: rng.normal(size=n) for k in "xyz"} | {"w": rng.uniform(0.5, 2, n)}
        every["x"][2] += far
        every["z"][rng.integers(2)] += far * (-1 if name == "difference" else 1)
        every["w"][2] = 0 if name == "weighed" else 1
        if name == "weighed" and far:
            every["z"] = np.array([0.3, 0.2, 0.0, 0.1, 0.5])
        given = {t.name: every[t.name] for t in form.spec.tensors}
        with np.errstate(all="ignore"):
            true = {
                k: float(np.asarray(v).item()) for k, v in _named(ra.reference(form.spec, exact=True, **given)).items()
            }
            for where, value in found(form, given):
                for k, v in _named(value).items():
                    small = abs(true[k]) < 1e-300 and abs(float(v)) < 1e-300  # below the range
                    beyond = abs(true[k]) > 1e300 and np.isinf(float(v))
                    assert small or beyond or abs(float(v) - true[k]) <= 1e-11 * abs(true[k]), (
                        where,
                        far,
                        k,
                        float(v),
                        true,
                    )


def _named(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {"s": value}


ALONE = {  # one exponential has a weight, and another, or 1, has none
    "more": "exp(x[j] - u) + {W}*exp(x[j])",
    "beside both": "exp(x[j] - u) + {W}*(exp(x[j]) + exp(x[j] - u))",
    "less both": "exp(x[j] - u) - {W}*(exp(x[j]) - exp(x[j] - u))",
    "less one": "exp(x[j] - u) - 1 - {W}*exp(x[j])",
    "less a growth": "exp(x[j] - u) - 1 - {W}*(exp(x[j]) - exp(x[j] - u))",
}
LIGHT = {"one": "w[j]", "a difference": "(1 - w[j])", "a sum": "(w[j] + v[j])", "a product": "w[j]*(w[j] - v[j])"}


@pytest.mark.parametrize("weight", LIGHT)
@pytest.mark.parametrize("body", ALONE)
def test_a_weight_of_0_beside_exponentials_without_one(body: str, weight: str) -> None:
    """What is largest counts for nothing in one sum, and for everything in the other."""
    text = f"u = max[j](x[j]); return y = sum[j]({ALONE[body].format(W=LIGHT[weight])})"
    form = ra.derive_incremental(ra.parse(text))
    form.certificate.verify(allow={"tested", "unknown"})
    rng = np.random.default_rng(len(text))
    for far in (0.0, 5.0, 40.0, 700.0):
        for n in (1, 2, 7):
            x, w, v = rng.normal(size=n), rng.uniform(0.5, 2, n), rng.uniform(0.5, 2, n)
            largest = rng.integers(n)
            x[largest] += far
            w[largest], v[largest] = {"a difference": (1, 1), "a sum": (-1e-9, 1e-9)}.get(weight, (0, 0))
            given = {k: a for k, a in {"x": x, "w": w, "v": v}.items() if k in {t.name for t in form.spec.tensors}}
            true = float(np.asarray(ra.reference(form.spec, exact=True, **given)).item())
            held = {"one": w, "a difference": 1 - w, "a sum": w + v, "a product": w * (w - v)}[weight]
            near = np.exp(x - x.max())
            terms = np.where(held == 0, 0, abs(held) * np.exp(np.minimum(x, 700)) * (1 + abs(x))) + (near + 1) * (
                1 + abs(held)
            )
            for where, found in three_ways(form, given, n):
                assert abs(found - true) <= 64 * n * 2.0**-53 * terms.sum(), (where, far, n, found, true)
