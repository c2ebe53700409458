"""Exponentials of k·(v - max v), a temperature: they are centred on v's extremum, which the spec writes, and not on
another one of k·v, since both would be rounded apart by as much as they are large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.graph.node import leaves

EXPONENTS = {
    "temperature": "(x[j] - max[j](x[j]))/T",
    "coldness": "T*(x[j] - max[j](x[j]))",
    "from below": "-2*T*(x[j] - min[j](x[j]))",
    "of a product": "(x[j]*w[j] - max[j](x[j]*w[j]))/T",
    "factored": "x[j]*w[j] + z[j]*x[j] - max[j](x[j]*w[j] + z[j]*x[j])",
    "masked": "(where(b[j], x[j], -oo) - max[j](where(b[j], x[j], -oo)))/T",
    "even": "(x[j] - max[j](x[j]))*U**2",
    "of a choice": "T*(where(b[j], x[j], w[j]) - max[j](where(b[j], x[j], w[j])))",
}
RESULTS = {
    "normaliser": "n = sum[j](e)",
    "mean": "y = sum[j](e*v[j])/sum[j](e)",
    "of squares": "y = sum[j](e**2)/sum[j](e)**2",
    "beside its logarithm": "y = sum[j](e*log(e))/sum[j](e)",
    "variance": "y = mean[j]((e - mean[j](e))**2)",
}


def _spec(exponent: str, result: str) -> ra.Spec:
    declared = [d for d in ("T positive", "b[j] bool") if d.partition(" ")[0] in exponent]
    head = f"tensors {', '.join(declared)}; " if declared else ""
    return ra.parse(f"{head}e = exp({exponent}); return {result}")


def _drawn(spec: ra.Spec, length: int, scale: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays = {d.name: rng.normal(size=[length] * len(d.axes)) for d in spec.tensors}
    arrays |= {n: np.arange(length) % 3 != 1 for n in arrays if n == "b"}
    return {n: np.asarray(np.abs(a) + 0.5 if n == "T" else a * scale if n == "x" else a) for n, a in arrays.items()}


def _cut(form: Any, arrays: dict[str, np.ndarray], length: int) -> np.ndarray:
    """The result of unequal parts, one of them empty, the last one first."""
    parts = []
    for low, high in ((0, length // 3), (length // 3, length // 3), (length // 3, length)):
        part = form.accumulator(start=low, **{n: a for n, a in arrays.items() if not a.ndim})
        part.update(**{n: a[low:high] for n, a in arrays.items() if a.ndim})
        parts.append(part)
    return parts[2].merge(parts[0]).merge(parts[1]).result()


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_exponentials_at_a_temperature_are_as_exact_as_the_definition(exponent: str) -> None:
    """For elements of any size: 1 at the largest element, and no rounding of k·v in the rest."""
    rng = np.random.default_rng(len(exponent))
    for name in ("normaliser", "mean", "of squares"):
        form = ra.derive_incremental(_spec(EXPONENTS[exponent], RESULTS[name]))
        run = form.compile("numpy")
        for length, scale in ((1, 1e12), (2, 1.0), (3, 1e6), (7, 1e3), (17, 1e12), (17, 10.0)):
            arrays = _drawn(form.spec, length, scale, rng)
            expected = ra.reference(form.spec, **arrays)
            for found in (run(**arrays), _cut(form, arrays, length)):
                # "factored" cancels inside v, which both round alike; the rest is exact but for roundings of sums
                np.testing.assert_allclose(found, expected, 1e-12 if exponent != "factored" else 1e-9)


@pytest.mark.parametrize("result", RESULTS)
def test_anchors_at_a_temperature_are_proved(result: str) -> None:
    for exponent in ("temperature", "from below", "masked", "factored"):
        if result in ("beside its logarithm", "variance") and exponent != "temperature":
            continue
        form = ra.derive_incremental(_spec(EXPONENTS[exponent], RESULTS[result]))
        form.certificate.verify()
        assert sum(s.monoid in ("max", "min") for s in form.slots) == 1, exponent


def test_multiples_of_contractions_stay_whole() -> None:
    """Tiles of scores are multiplied in one operation with the subtraction, and look for a maximum of multiples."""
    text = "S = sum[d](q[i,d]*k[j,d]); p = exp((S - max[j](S))*s); return O = sum[j](p*v[j])/sum[j](p)"
    form = ra.derive_incremental(ra.parse(f"tensors q[i,d], k[j,d], v[j], s positive; {text}"), axis="j")
    (anchor,) = form.plan.passes[0].anchors
    assert {leaf.attr.name for leaf in leaves(anchor.generator)} == {"q", "k", "s"}


@pytest.mark.parametrize("scale", ["/8", "*2", "*0.3", "/sqrt(64)"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_scaled_products_are_centred_on_their_own_maximum(scale: str, sign: str) -> None:
    """c·v - max c·v of products v: one anchor, max c·v, whatever the sign of c; split and merged, the definition."""
    text = f"s = {sign}sum[d](q[i,d]*k[j,d]){scale}; p = exp(s - max[j](s)); return y = sum[j](p*v[j])/sum[j](p)"
    form = ra.derive_incremental(ra.parse(text))
    pieces = str(form).partition("combine")[2].partition("finalize")[0]
    assert "max_u " in pieces and "A_u" not in pieces
    rng = np.random.default_rng(3)
    q, k, v = 30 * rng.standard_normal((3, 4)), rng.standard_normal((7, 4)), rng.standard_normal(7)
    acc = form.accumulator(q=q)
    for a, b in ((0, 2), (2, 2), (2, 3), (3, 7)):
        acc.update(k=k[a:b], v=v[a:b])
    expected = ra.reference(form.spec, q=q, k=k, v=v)
    # exponents of up to 300 are rounded by as many half units, and weights by them
    np.testing.assert_allclose(acc.result(), expected, atol=1e3 * np.finfo(float).eps * np.abs(v).max(), rtol=0)
