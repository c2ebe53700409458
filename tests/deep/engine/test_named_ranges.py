"""What a form cannot do better is named: products held apart, conditions that rounding decides."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.graph.plan import APART
from redalg.testing import running

HELD = {
    "a mean": "u = mean[j](p[j]); return y = prod[j](p[j]/u)",
    "under a mask": "u = mean[j](p[j]); return y = prod[j](where(t[j], p[j]/u, 1))",
    "alone": "return y = prod[j](p[j]), u = mean[j](p[j])",
    "by a constant": "return y = prod[j](p[j]/3)",
}
RAW = {
    "rows of a divisor": "u = mean[j](x[i,j]); return y = prod[j](p[j]/(1 + u**2))",
    "a power": "u = max[j](x[i,j]); return y = prod[j](p[j]**2/(1 + u**2))",
    "complex": "u = sum[j](z[j]); return y = prod[j](z[j]/u)",
    "by name": "s = sum[m](q[m]); return y = prod[m](q[m]/(1 + s*h[i]**2)**2)",
}


def derived(text: str) -> ra.Form:
    domains = {"p[j]": " positive", "t[j]": " bool", "z[j]": " complex", "q[m]": " positive"}
    leaves = [t for t in ("x[i,j]", "p[j]", "t[j]", "z[j]", "q[m]", "h[i]") if t in text]
    return ra.derive_incremental(ra.parse(f"tensors {', '.join(t + domains.get(t, '') for t in leaves)}; {text}"))


@pytest.mark.parametrize("name", [*HELD, *RAW])
def test_a_product_that_may_leave_the_range_says_so(name: str) -> None:
    form = derived((HELD | RAW)[name])
    assert (APART in form.assumptions) == (name in RAW)
    if "z[j]" not in RAW.get(name, ""):  # the certificate is about real numbers: it claims nothing of the kind
        assert form.certificate.verify(allow={"tested"})
        assert APART not in form.certificate.document.assumptions


STAGES = ("mean[j](x[j])", "sum[j](x[j])", "sum[j](w[j]*x[j])", "sum[j](x[j]) - sum[j](w[j])", "max[j](x[j])")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("body", ["where(s > 0, x[j], w[j])", "where(s >= 0, w[j]**2, x[j])", "w[j]*sign(s)"])
def test_a_condition_that_rounding_decides_says_so(stage: str, body: str) -> None:
    """Streams of small multiples of 1/4, whose sums are exact and often 0: the definition's value, or it is named."""
    form = derived_with(f"s = {stage}; return y = sum[j]({body})")
    rng, text = np.random.default_rng(3), form.assumptions.get("finite_stage_values", "")
    for length in (2, 3, 4, 5, 6, 7, 9):
        for _ in range(12):
            x = rng.integers(-6, 7, length) / 4
            x[-1] -= x.sum()
            arrays = {n: a for n, a in {"x": x, "w": rng.integers(-6, 7, length) / 4}.items() if n in names(form)}
            wanted = float(ra.reference(form.spec, **arrays))
            for got in (form.compile("numpy")(**arrays), running.merged(form, arrays, [0, 1, 1, length], [1, 0])["y"]):
                assert abs(float(got) - wanted) < 1e-12 or "rounding decides" in text, (arrays, got, wanted)


def derived_with(text: str) -> ra.Form:
    return ra.derive_incremental(ra.parse(text))


def names(form: ra.Form) -> set[str]:
    return {d.name for d in form.spec.tensors}
