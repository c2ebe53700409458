"""Stages without a form of their own that cancel in every output: whatever stands beside them, a form is found."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

import redalg as ra

STAGES = (  # pairs whose difference has a form, neither of which has one
    "u = {c}*mean[j](x[j]); A = sum[j](relu(x[j]-u)); B = sum[j](relu(u-x[j]))",
    "u = {c}*mean[j](x[j]); A = sum[j](maximum(x[j], u)); B = sum[j](abs(x[j]-u)/2)",
)
OUTPUTS = (
    "y = A-B; return y, z = {c}*x[j]+y",
    "return z = x[j]+{c}*A-{c}*B",
    "return y = 3*A-3*B, z = x[j]*(A-B)",
    "return z = (A+x[j]-B)**2",
    "return z = exp(x[j]/9-(A-B)/50), y = A-B",
    "return z = A*u+x[j]-B*u",
    "return z = x[j]*exp(A/9)*exp(-B/9)",
    "return z = where(x[j]>{c}, A-B, B-A)",
)


@pytest.mark.parametrize("stages", STAGES)
def test_what_cancels_is_found_beside_elements(stages: str) -> None:
    rng = np.random.default_rng(2)
    for c, outputs in zip(cycle((2, 5)), OUTPUTS, strict=False):
        spec = ra.parse(f"{stages}; {outputs}".format(c=c))
        arrays = {d.name: rng.uniform(-2, 2, 7 if "j" in d.axes else 3) for d in spec.tensors}
        form = ra.derive_incremental(spec, axis="j")
        found, wanted = form.compile("numpy")(**arrays), ra.reference(spec, **arrays)
        for name in spec.outputs:
            got, want = (v[name] if isinstance(v, dict) else v for v in (found, wanted))
            assert got == pytest.approx(want, rel=1e-10, abs=1e-10), spec


@pytest.mark.parametrize("outputs", ["return z = x[j]+2*A-B", "return y = A-B, z = x[j]+A", "return z = x[j]*A+B"])
def test_what_does_not_cancel_is_refused(outputs: str) -> None:
    for stages in STAGES:
        verdict = ra.verdict(ra.parse(f"{stages}; {outputs}".format(c=2)), axis="j")
        assert isinstance(verdict, ra.NotDecomposable)
