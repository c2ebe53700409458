"""Specs whose parts lie on ranks: attention over split keys, losses over a split vocabulary, norms over split rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import redalg as ra
from tests.support.forms import form_of_text

LENGTH = 40
CASES = {
    "attention": None,
    "loss": "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m)); "
    "return lse = m + log(s), z = sum[j](exp(x[i,j] - m)*w[j])/s",
    "layer norm": "u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); "
    "return y = (x[i,j] - u)/sqrt(v + 1/100), v = v, u = u",
    "labels": "m = max[j](x[i,j]); l = m + log(sum[j](exp(x[i,j] - m))); "
    "return loss = l - sum[j](where(index[j] == t[i], x[i,j], 0))",
    "softmax": "m = max[j](x[i,j]); return y = exp(x[i,j] - m) / sum[j](exp(x[i,j] - m))",
    "root mean square": "return y = x[i,j]/sqrt(mean[j](x[i,j]**2) + 1/1000)",
    "covariance": "return c = cov[j](x[i,j], z[i,j]), a = any[j](x[i,j] > 9)",
    "norm": "return n = norm[j](x[i,j]), l = min[j](x[i,j])",
}


def form_of_case(name: str) -> ra.Form:
    text = CASES[name]
    return ra.derive_incremental(ra.catalog["attention"]) if text is None else form_of_text(text)


def arguments(form: ra.Form, seed: int, dtype: Any = np.float64, length: int = LENGTH) -> dict[str, Any]:
    rng, found = np.random.default_rng(seed), {}
    sizes = {a: 3 + k for k, a in enumerate(form.spec.axes)} | {form.plan.axis[0]: length}
    for d in form.spec.tensors:
        x = rng.normal(size=[sizes[a] for a in d.axes]) * 3 if d.axes else 0.5
        found[d.name] = np.asarray(x, dtype) if d.axes else x
        if d.name == "t":
            found[d.name] = rng.integers(0, length, sizes[d.axes[0]])
    return found


def part(form: ra.Form, arrays: dict[str, Any], a: int, b: int) -> dict[str, Any]:
    axis, found = form.plan.axis[0], {}
    for d in form.spec.tensors:
        at = (slice(None),) * d.axes.index(axis) + (slice(a, b),) if axis in d.axes else ...
        found[d.name] = arrays[d.name][at] if d.axes else arrays[d.name]
    return found


def checked(form: ra.Form, arrays: dict[str, Any], found: dict[str, Any], a: int, b: int, rounding: float = 0) -> None:
    """Outputs without the axis for the whole, and those that keep it for one part; `rounding` of shorter floats."""
    wide = {n: np.asarray(x, np.float64) if np.ndim(x) and n != "t" else x for n, x in arrays.items()}
    whole = ra.reference(form.spec, **wide)
    whole = whole if isinstance(whole, dict) else {next(iter(form.spec.outputs)): whole}
    axis = form.plan.axis[0]
    for name, expected in whole.items():
        axes = form.spec.output_axes[name]
        if axis in axes:
            expected = expected[(slice(None),) * axes.index(axis) + (slice(a, b),)]
        got = np.asarray(found[name], np.float64)
        assert got.shape == expected.shape, name
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(got, expected, rtol=0, atol=(rounding or 1e-13) * scale * 64, err_msg=name)
