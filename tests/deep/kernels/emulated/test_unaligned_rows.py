"""Rows that start anywhere, by emulation: whole vectors of every family of schedules, and what lies beside them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.joint import derived
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import form_of
from tests.support.profiles import examples
from tests.support.simulated import run
from tests.support.unaligned_cases import NAMES, arrays, error, schedules

DTYPES = {"float32": (np.float32, 4, 2e-5), "bfloat16": (ml_dtypes.bfloat16, 8, 2.0**-7)}


@st.composite
def calls(draw: Any) -> tuple[str, str, Schedule, int, int, int, int]:
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    vector = DTYPES[dtype][1]
    length = draw(st.integers(2 * vector - 1, 5 * vector) | st.integers(100, 400))
    schedule = draw(st.sampled_from(list(schedules(vector, length))))
    offset, gap = draw(st.sampled_from([(0, 0), (1, 0), (3, 0), (0, 1), (0, vector), (2, 5)]))
    return draw(st.sampled_from(NAMES)), dtype, schedule, draw(st.integers(1, 4)), length, offset, gap


@examples(40)
@given(calls(), st.integers(0, 3))
def test_every_family_takes_each_element_once(call: Any, seed: int) -> None:
    name, dtype, schedule, rows, length, offset, gap = call
    kind, _, bound = DTYPES[dtype]
    form = form_of(name)
    given_arrays = arrays(form.spec, rows, length, kind, np.random.default_rng(seed), offset, gap)
    try:
        found, planned, moved = run(form, given_arrays, schedule, seed)
    except RedalgError as refused:  # a law of the program, or copies of rows that start elsewhere than results
        assert refused.where == "schedule=", refused
        return
    assert planned.choice.schedule.peel
    assert error(form.spec, found, given_arrays) <= bound
    once = dtype == "float32"  # of others, threads without an element of their own read the last one again
    if once and offset == gap == 0 and schedule.resident and name in ("softmax", "absmax", "logsumexp"):
        each = np.dtype(kind).itemsize
        idle = -(-rows // schedule.rows) * schedule.rows - rows  # threads beyond the last row read it again
        assert moved["operand x"].loaded == (rows + idle) * length * each


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "variance"])
def test_special_values_at_the_ends_of_rows(name: str, dtype: str) -> None:
    """Infinities and NaN in what lies beside vectors reach results as anywhere else."""
    kind, vector, _ = DTYPES[dtype]
    form = form_of(name)
    for schedule in schedules(vector, 101):
        for at, value in ((0, np.inf), (100, np.nan), (1, -np.inf)):
            given_arrays = arrays(form.spec, 2, 101, kind, np.random.default_rng(1), 0, 0)
            given_arrays["x"][1, at] = value
            try:
                found, _, _ = run(form, given_arrays, schedule)
            except RedalgError:
                continue
            alone, _, _ = run(form, given_arrays, Schedule(32, 1, 1, 4))
            for a, b in zip(found.values(), alone.values(), strict=True):
                np.testing.assert_array_equal(np.isnan(np.float32(a)), np.isnan(np.float32(b)))
                np.testing.assert_array_equal(np.isinf(np.float32(a)), np.isinf(np.float32(b)))


def test_ties_have_the_first_position() -> None:
    form = form_of("argmax")
    x = np.zeros((3, 101), np.float32)
    x[1, [0, 50]] = x[2, [99, 100]] = 1
    for schedule in schedules(4, 101):
        try:
            found, _, _ = run(form, {"x": x}, schedule)
        except RedalgError:
            continue
        assert next(iter(found.values())).tolist() == [0, 0, 99]


@pytest.mark.parametrize("rows, length", [(777, 3333), (20011, 777), (33, 50257), (9, 300007), (4096, 129), (3, 65)])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "variance", "argmax"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_chosen_schedules_read_whole_vectors(name: str, rows: int, length: int, dtype: str) -> None:
    from redalg.kernels.ir.layouts import View
    from redalg.kernels.pipeline import plan
    from redalg.kernels.schedule.target import H200

    form = form_of(name)
    kinds: dict[str, Any] = {t.name: dtype if t.axes else float for t in form.spec.tensors}
    shapes = {t.name: (rows, length)[-len(t.axes) :] for t in form.spec.tensors if t.axes}
    made = plan(form, kinds, {n: View.contiguous(s) for n, s in shapes.items()}, H200)
    assert re.search(r"(load|copy)_(shared_|early_)?" + dtype + r"x\d", made.module.source), made.choice.schedule


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("length", [7, 37, 64, 313])
def test_rows_that_are_written_and_not_read(length: int, dtype: str) -> None:
    """The gradient of a maximum: zeros and one number in a row, at a position that is given. Nothing of x is loaded."""
    form = derived(ra.parse("return y = max[j](x[i,j])").vjp().specs["x"])
    kind, vector, _ = DTYPES[dtype]
    at, cotangent = np.arange(5) * 13 % length, (np.arange(5) - 2.5).astype(kind)
    expected = np.zeros((5, length))
    expected[np.arange(5), at] = cotangent
    given_arrays = {"x": np.full((5, length), np.nan, kind), "argmax1": at, "grad_y": cotangent}
    fields = {"vector": vector, "peel": True} if length % vector and length > vector else {"vector": vector}
    for schedule in (None, fields) if length > vector else (None,):
        found, planned, moved = run(form, given_arrays, schedule)
        assert (np.asarray(found["grad_x"], np.float64) == expected).all()
        assert moved["operand x"].loaded == 0
        assert schedule is None or planned.choice.schedule.vector == vector


@examples(30)
@given(
    st.sampled_from(sorted(DTYPES)),
    st.integers(1, 700),
    st.sampled_from([(32, 1), (64, 2), (32, 4)]),
    st.integers(1, 3),
    st.booleans(),
)
def test_maps_whose_rows_blocks_share(dtype: str, length: int, shape: tuple[int, int], rows: int, peel: bool) -> None:
    """Rows without a reduction, in as many splits as have a tile each, and in more and fewer of them."""
    kind, vector, bound = DTYPES[dtype]
    form = derived(ra.parse("tensors x[i,j], s[i], w[j]; return y = exp(x[i,j] - s[i])*w[j]"))
    rng = np.random.default_rng(length)
    own = {n: rng.standard_normal(s).astype(kind) for n, s in (("x", (rows, length)), ("s", (rows,)), ("w", (length,)))}
    expected = np.float64(ra.reference(form.spec, **own))
    whole = -(-length // (shape[0] * shape[1] * vector))
    for split in {max(2, whole), whole + 1, 2}:
        schedule = Schedule(shape[0], 1, vector if peel else 1, shape[1] * vector, split=split, peel=peel)
        try:
            found, _, _ = run(form, own, schedule)
        except RedalgError as refused:
            assert refused.where == "schedule=", refused
            continue
        np.testing.assert_allclose(np.float64(found["y"]), expected, rtol=4 * bound, atol=bound)
