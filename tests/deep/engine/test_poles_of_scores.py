"""Scores with a pole at an end, as those of a Gumbel softmax: derived, and the definition's at the pole."""

from __future__ import annotations

import re

import numpy as np
import pytest

import redalg as ra

POLES = ["-log(-log(u[j]))", "-log(abs(u[j] - 1))", "x[j] - log(1 - u[j])", "atanh(u[j]) + x[j]"]
SOFTMAX = "e = exp(s - max[j](s)); z = sum[j](e); return {y}"
OUTPUTS = {"weights": "w = e/z", "average": "y = sum[j](e*x[j])/z", "saved": "w = e/z, m = max[j](s), z = z"}


@pytest.mark.parametrize("pole", POLES)
@pytest.mark.parametrize("scale", ["({})/t", "t*({})", "2*({})"])
@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("sign", ["", "positive"])
def test_scores_with_a_pole_are_derived(pole, scale, outputs, sign):
    rng = np.random.default_rng(5)
    text = f"s = {scale.format(pole)}; {SOFTMAX.format(y=OUTPUTS[outputs])}"
    named = re.findall(r"\b[tux]\b", text)
    read = [d for d in (f"t {sign}", "u[j] positive", "x[j]") if d[0] in named]
    spec = ra.parse(f"tensors {', '.join(read)}; {text}")
    form = ra.derive_incremental(spec)
    u = rng.uniform(0.1, 0.9, 7)
    for at in (slice(0), 0, 4):
        u[at] = 1
        arrays = {d.name: {"u": u, "x": rng.normal(size=7), "t": 0.5}[d.name] for d in spec.tensors}
        with np.errstate(all="ignore"):
            wanted, found = ra.reference(spec, **arrays), form.compile("numpy")(**arrays)
        for name in spec.outputs:
            left, right = (r[name] if isinstance(r, dict) else r for r in (found, wanted))
            np.testing.assert_allclose(left, right, rtol=1e-12)
