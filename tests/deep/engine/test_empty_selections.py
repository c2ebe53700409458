"""Extrema of bounded maps under masks that select nothing: -oo (oo), never a map of it."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.form import Form
from redalg.testing import running

STAGES = ("sum[j](w[j])", "max[j](abs(w[j]))")
MAPS = ("tanh({})", "exp(-{})", "{}**3")
BESIDE = ("{}/s", "{}*s", "{} - s", "s/(1 + s**2)*{} + s")


@pytest.mark.parametrize("mask", ["t[j]", "y[j] < x[j]"])
@pytest.mark.parametrize("stage", STAGES)
def test_nothing_is_selected(stage: str, mask: str) -> None:
    derived = 0
    for kind, nothing in (("max", "-oo"), ("min", "oo")):
        for body in (beside.replace("{}", f.format("x[j]")) for f in MAPS for beside in BESIDE):
            text = f"s = {stage}; return q = {kind}[j](where({mask}, {body}, {nothing}))"
            names = "x[j], t[j] bool, w[j]" if mask == "t[j]" else "x[j], y[j], w[j]"
            form = ra.verdict(ra.parse(f"tensors {names}; {text}"))
            if not isinstance(form, Form):
                continue
            derived += 1
            for selected in (0, 1, 3):
                arrays = {"x": np.array([-1.0, 2.0, 0.5]), "w": np.array([-1.0, -2.0, 0.25])}
                chosen = np.arange(3) < selected
                arrays |= {"t": chosen} if mask == "t[j]" else {"y": arrays["x"] - np.where(chosen, 1, -1)}
                wanted = ra.reference(form.spec, **arrays)
                merged = running.merged(form, arrays, [0, 1, 1, 3], [0, 0])["q"]
                for got in (form.compile("numpy")(**arrays), merged):
                    if np.isnan(got) and "finite_stage_values" in form.assumptions:
                        continue
                    np.testing.assert_allclose(got, wanted, rtol=1e-12, err_msg=text)
    assert derived >= 16
