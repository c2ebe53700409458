"""Deviations times a stage value, size·u - Σu: centred where they are 0, for every value u of elements.

Values stand a million times their spread away from 0. One that is computed is rounded by 2^-53 of itself: its moments
are off by some 10^-16·10^6, and without an anchor they would be off by 10^-16·10^12. The bound of each is derived, for
the pieces and the tree of a merge (`redalg.testing.bounds`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running
from redalg.testing.bounds import assert_within, error_bounds

RATIO = 1e6
CENTRED = 1e-8  # of a moment: what bounds of centred values are below, and those of others far above
TREES = (([0, 2, 2, 9, 10, 24], [2, 0, 1, 0]), ([0, 1, 24], [0]), ([0, 23, 24], [0]))
WHOLE = ([0, 24], [])
TENSORS = "x[j] positive, z[j], w[j], s[j], k[j] bool, X[i,j], Z[i,j], P[i,j]"
VALUES = {
    "element": "x[j]",
    "square": "x[j]**2",
    "seventh": "x[j]**7",
    "root": "sqrt(x[j])",
    "reciprocal": "1/x[j]",
    "logarithm": "log(x[j])",
    "cosine": "cos(x[j])",
    "product": "x[j]*z[j]",
    "cubic": "x[j]**2*z[j]",
    "quotient": "x[j]/z[j]",
    "sum": "(x[j] + z[j]**2)",
    "difference": "(2*x[j] - 3*z[j])",
    "selected": "where(x[j] > 1, x[j], z[j])",
    "row": "X[i,j]",
    "row of products": "X[i,j]*Z[i,j]",
    "row and element": "X[i,j]*x[j]",
}
MOMENTS = {
    "size": "mean[j]((size[j]*V - sum[j](V))**2)",
    "cube": "sum[j]((sum[j](V) - size[j]*V)**4)",
    "weighted": "sum[j](w[j]*(sum[j](w[j])*V - sum[j](w[j]*V))**2)",
    "masked": "sum[j](where(k[j], sum[j](where(k[j], 1, 0))*V - sum[j](where(k[j], V, 0)), 0)**2)",
    "relative": "mean[j]((V*size[j]/sum[j](V) - 1)**2)",
    "scaled": "mean[j]((sum[j](s[j])*V - sum[j](s[j])*mean[j](V))**2)",
    "left out": "sum[j]((V - (sum[j](V) - V)/(size[j] - 1))**2)",
    "gated": "sum[j](tanh(w[j])*(sum[j](w[j])*V - sum[j](w[j]*V))**2)",
}
OTHERS = {
    "two values": (
        "s = sum[j](x[j]); return y = mean[j]((s*x[j]**2 - s*z[j]**3 - s*mean[j](x[j]**2) + s*mean[j](z[j]**3))**2)"
    ),
    "two deviations": (
        "return y = sum[j]((size[j]*(x[j]*z[j]) - sum[j](x[j]*z[j]))*(size[j]*x[j]**2 - sum[j](x[j]**2)))"
    ),
    "added slopes": (
        "s = sum[j](x[j]); t = sum[j](z[j]); m = mean[j](x[j]*z[j]); "
        "return y = mean[j]((s*(x[j]*z[j]) + t*(x[j]*z[j]) - (s + t)*m)**2)"
    ),
    "inner axis": "return y = sum[j](sum[i](size[j]*(X[i,j]*Z[i,j]) - sum[j](X[i,j]*Z[i,j]))**2)",
    "weights of rows": (
        "W = sum[j](P[i,j]); return y = sum[j](P[i,j]*(W*(X[i,j]*Z[i,j]) - sum[j](P[i,j]*X[i,j]*Z[i,j]))**2)"
    ),
    "maximum": "s = sum[j](x[j]); M = max[j](x[j]*z[j]); return y = sum[j]((s*M - s*(x[j]*z[j]))**2)",
}


def form_of(text: str) -> ra.Form:
    tensors = ", ".join(t for t in TENSORS.split(", ") if re.search(rf"\b{re.escape(t.split()[0])}", text))
    tensors = tensors.replace("x[j] positive", "x[j] positive" if "log" in text or "sqrt" in text else "x[j]")
    return ra.derive_incremental(ra.parse(f"tensors {tensors}; {text}"), axis="j")


def draw(form: ra.Form, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {t.name: (3, 24) if "i" in t.axes else (24,) for t in form.spec.tensors}
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        near = (1.5 if name in "xX" else 3.0) * (1 + rng.normal(size=shape) / RATIO)
        found[name] = {"w": rng.uniform(0.5, 1.5, shape), "P": rng.uniform(0.5, 1.5, shape)}.get(name, near)
        found[name] = {"s": rng.normal(size=shape), "k": rng.random(shape) < 0.6}.get(name, found[name])
    return found


def check(form: ra.Form, kernels: bool = True) -> None:
    for seed in range(2):
        arrays = draw(form, seed)
        true = np.asarray(ra.reference(form.spec, exact=True, **arrays), float)
        found = [(form.compile(target)(**arrays), WHOLE) for target in ("numpy", "cpu")[: 1 + kernels]]
        found += [(running.merged(form, arrays, *pieces)["y"], pieces) for pieces in TREES]
        for got, pieces in found:
            bound = error_bounds(form.plan, form.spec, arrays, *pieces)["y"]
            assert np.all(bound <= CENTRED * np.abs(true)), (bound, true)
            assert_within(got, true, bound)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("value", VALUES)
def test_slopes_leave_values_their_anchor(value: str, moment: str) -> None:
    check(form_of("return y = " + MOMENTS[moment].replace("V", VALUES[value])))


@pytest.mark.parametrize("name", OTHERS)
def test_several_values_and_slopes_have_theirs(name: str) -> None:
    check(form_of(OTHERS[name]), kernels=name != "inner axis")  # kernels have one index per axis


@pytest.mark.parametrize("value", ["square", "product", "selected", "row of products"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_certificates_prove_them(value: str, moment: str) -> None:
    form_of("return y = " + MOMENTS[moment].replace("V", VALUES[value])).certificate.verify()


def test_exponentials_keep_the_maximum_that_holds_them_in_range() -> None:
    """Σ(e^z·x/l - o)² of l = Σe^z: the product e^z·x is no one value, which would be infinite."""
    form = form_of("l = sum[j](exp(z[j])); o = sum[j](exp(z[j])*x[j])/l; return y = sum[j]((exp(z[j])*x[j]/l - o)**2)")
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=24), "z": 2000 + rng.normal(size=24)}
    low = arrays | {"z": arrays["z"] - 2000}  # exact: z lies between 2^10 and 2^11, and so do the bits of what is left
    true = np.asarray(ra.reference(form.spec, exact=True, **low), float)
    found = [(form.compile("numpy")(**arrays), WHOLE), *((running.merged(form, arrays, *t)["y"], t) for t in TREES)]
    for got, pieces in found:
        assert_within(got, true, error_bounds(form.plan, form.spec, low, *pieces)["y"])
