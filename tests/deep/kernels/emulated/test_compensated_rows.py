"""CUDA kernels of rows with ``accuracy="compensated"``, by emulation: every family of schedules, against fractions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import form_of, form_of_text
from tests.support.profiles import examples
from tests.support.simulated import run
from tests.support.sums_of_pairs import TEXTS, arrays, excess
from tests.support.unaligned_cases import schedules

COLUMN = Schedule(4, 32, 1, 4, column=True)


@st.composite
def calls(draw: Any) -> tuple[str, Schedule | None, int, int, type, int]:
    n = draw(st.integers(1, 150))
    schedule = draw(st.sampled_from([None, COLUMN, *schedules(4, max(n, 9))]))
    return (
        draw(st.sampled_from(sorted(TEXTS))),
        schedule,
        draw(st.integers(1, 4)),
        n,
        draw(st.sampled_from((np.float32, np.float64))),
        draw(st.integers(0, 99)),
    )


@examples(50)
@given(calls())
def test_every_schedule_keeps_the_bound(call: Any) -> None:
    name, schedule, rows, n, dtype, seed = call
    form = replace(form_of_text(TEXTS[name], "j"), accuracy="compensated")
    made = arrays(np.random.default_rng(seed), rows, n, dtype)
    try:
        found, _, _ = run(form, {t.name: made[t.name] for t in form.spec.tensors}, schedule, seed)
    except RedalgError as refused:
        assert schedule is not None and refused.where == "schedule=", refused
        return
    assert max(excess(name, found["y"], made)) <= 1


@pytest.mark.parametrize("name", ["logsumexp", "softmax", "variance", "layer_norm", "cosine_similarity"])
def test_forms_with_anchors(name: str) -> None:
    form = replace(form_of(name), accuracy="compensated")
    rng = np.random.default_rng(6)
    for schedule in (None, Schedule(8, 4, 4, 8), Schedule(32, 1, 4, 4, cluster=2)):
        given = {
            t.name: rng.normal(size=(3, 72)[2 - len(t.axes) :]).astype(np.float32) if t.axes else 1e-5
            for t in form.spec.tensors
        }
        found, _, _ = run(form, given, schedule, 1)
        wide = {k: np.asarray(v, np.float64) if np.ndim(v) else v for k, v in given.items()}
        truth = ra.reference(form.spec, **wide)
        truth = truth if isinstance(truth, dict) else {next(iter(form.spec.outputs)): truth}
        for output, expected in truth.items():
            np.testing.assert_allclose(found[output], expected, rtol=2e-5, atol=2e-6)


def test_tensor_cores_are_refused() -> None:
    form = replace(form_of_text("return y = max[j](sum[k](A[i,k]*B[j,k]))", "j"), accuracy="compensated")
    given = {n: np.ones((64, 64), np.float16) for n in "AB"}
    with pytest.raises(RedalgError, match="tensor cores"):
        run(form, given, "tensor")
