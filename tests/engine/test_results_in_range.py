"""Results that keep the axis, and maps without a reduction, by NumPy and accumulators: products in them may leave the
range of float32 where the results do not."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra

TEXTS = {
    "shares": "return y = g[j]/sum[j](abs(x[j])) - sign(x[j])*sum[j](g[j]*x[j])/sum[j](abs(x[j]))**2",
    "cubes": "s = sum[j](x[j]**2); return y = x[j]*sum[j](x[j]*g[j])/s**(3/2)",
    "square beside its root": "s = sum[j](abs(x[j])); return y = sqrt(s**2 + x[j]**2)",
    "hidden": "s = sum[j](abs(x[j])); return y = g[j] + 1/(1 + s**4*x[j]**2/(s**6 + s**5))",
    "map by a number": "return y = x[j]*a/(1 + a**2)",
    "map of a row": "return y = g[j]*t**2*x[j]/(t**3 + t**2*abs(x[j]))",
}


UNDER = ("square beside its root", "hidden", "map of a row")  # what underflows in them is not noticed


@pytest.mark.parametrize(
    ("name", "scale"), [(n, s) for n in TEXTS for s in (1e25, 1e15, 1.0, 1e-15, 1e-25) if s >= 1 or n not in UNDER]
)
def test_they_are_those_of_float64(name: str, scale: float) -> None:
    spec, rng = ra.parse(TEXTS[name]), np.random.default_rng(len(name))
    x = (rng.standard_normal(5) * scale).astype(np.float32)
    given = {"x": x, "g": rng.standard_normal(5).astype(np.float32), "a": np.float32(scale), "t": np.float32(scale)}
    given = {d.name: given[d.name] for d in spec.tensors}
    want = ra.reference(spec, **{n: np.asarray(v, float) for n, v in given.items()})
    form = ra.derive_incremental(spec)
    within = {"rtol": 1e-5, "atol": 1e-5 * np.abs(want).max() + 1e-37}
    np.testing.assert_allclose(form.compile("numpy")(**given), want, **within)
    if form.plan.axis:
        acc = form.accumulator()
        for part in (slice(2), slice(2, None)):
            acc.update(**{n: v[part] for n, v in given.items()})
        np.testing.assert_allclose(acc.apply(**given), want, **within)


def test_what_an_exponent_takes_away_is_not_repeated() -> None:
    """The state has the elements as they were rounded: beside another output that overflows weights add up to 1."""
    spec = ra.parse("u = x[j]/c; p = exp(u - max[j](u)); return p = p/sum[j](p), big = x[j]**9/sum[j](x[j]**8)")
    x = (1e5 + np.arange(6) / 4).astype(np.float32)
    found = ra.derive_incremental(spec).compile("numpy")(x=x, c=np.float32(0.387))["p"]
    assert abs(found.sum() - 1) < 1e-5
