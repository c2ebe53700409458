"""Rows of several axes that start anywhere: what lies beside whole vectors is where its indices say, by emulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.simulated import run
from tests.support.unaligned_cases import schedules

SPECS = {  # over c and s as one axis; weights along one of them, positions, outputs that keep both
    "weighted": "return y = sum[c,s](x[i,c,s]*w[c])",
    "norm": "u = mean[c,s](x[i,c,s]); v = mean[c,s]((x[i,c,s] - u)**2); "
    "return y = (x[i,c,s] - u)/sqrt(v + 1/100)*w[c] + b[s]",
    "softmax": "m = max[c,s](x[i,c,s]); p = exp(x[i,c,s] - m); return y = p/sum[c,s](p)",
    "position": "return at = argmax[c,s](x[i,c,s]), y = sum[c,s](where(index[s] < index[c], x[i,c,s], 0))",
    "two": "return y = sum[c,s](x[i,c,s]*z[i,c,s])",
}


@st.composite
def calls(draw: Any) -> tuple[str, Schedule | None, tuple[int, int, int], str]:
    c, s = draw(st.tuples(st.integers(1, 12), st.integers(1, 13)).filter(lambda n: n[0] * n[1] > 2))
    legal = [*schedules(4, max(9, c * s)), None]
    layout = draw(st.sampled_from(("contiguous", "padded", "turned", "offset")))
    return draw(st.sampled_from(sorted(SPECS))), draw(st.sampled_from(legal)), (draw(st.integers(1, 5)), c, s), layout


def laid(x: np.ndarray, layout: str) -> np.ndarray:
    """The same numbers, elsewhere in memory."""
    if x.ndim < 3 or layout == "contiguous":
        return x
    if layout == "turned":
        return np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
    if layout == "padded":
        room = np.full((x.shape[0], x.shape[1] + 1, x.shape[2]), np.nan, x.dtype)
        room[:, :-1] = x
        return room[:, :-1]
    room = np.full(x.size + 3, np.nan, x.dtype)
    room[3:] = x.ravel()
    return room[3:].reshape(x.shape)


@examples(60)
@given(calls(), st.integers(0, 3))
def test_composite_rows_take_each_element_once(call: Any, seed: int) -> None:
    name, schedule, (rows, c, s), layout = call
    form = form_of_text(SPECS[name], ("c", "s"), 3)
    rng = np.random.default_rng(seed)
    sizes = {"i": rows, "c": c, "s": s}
    arrays = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(np.float32) for t in form.spec.tensors}
    truth = ra.reference(form.spec, **{n: x.astype(np.float64) for n, x in arrays.items()})
    try:
        found, _, _ = run(form, {n: laid(x, layout) for n, x in arrays.items()}, schedule, seed)
    except RedalgError as refused:
        assert schedule is not None and refused.where == "schedule=", refused
        return
    truth = truth if isinstance(truth, dict) else {next(iter(form.spec.outputs)): truth}
    for n, expected in truth.items():
        np.testing.assert_allclose(found[n], expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", SPECS)
def test_unasked_schedules_peel_odd_rows(name: str) -> None:
    """Not only by name: rows of 3 x 65 are read in vectors, and are right."""
    form = form_of_text(SPECS[name], ("c", "s"), 3)
    rng = np.random.default_rng(0)
    sizes = {"i": 3, "c": 3, "s": 65}
    arrays = {t.name: rng.standard_normal([sizes[a] for a in t.axes]).astype(np.float32) for t in form.spec.tensors}
    found, _, _ = run(form, arrays, None, 0)
    truth = ra.reference(form.spec, **{n: x.astype(np.float64) for n, x in arrays.items()})
    truth = truth if isinstance(truth, dict) else {next(iter(form.spec.outputs)): truth}
    for n, expected in truth.items():
        np.testing.assert_allclose(found[n], expected, rtol=2e-5, atol=2e-5 * max(1, np.abs(expected).max()))
