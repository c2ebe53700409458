"""Sums over rows in the reading that computes the rows, by emulation: against the definitions, and bit by bit."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.joint import Joint, units
from redalg.kernels import joint as planning
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Outside
from tests.support.joint_cases import FORWARD, SMALL, SPECS, drawn, dtypes_of, emulated, joint_of, plan_of, truth
from tests.support.profiles import examples

UNIT = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}
FIELDS: tuple[dict[str, Any], ...] = (
    {},
    {"threads": 32},
    {"threads": 64, "rows": 2},
    {"threads": 128, "rows": 1},
    {"vector": 1},
    {"peel": True, "vector": 4, "prefetch": 0},
    {"cluster": 2, "threads": 128},
    {"staged": True},
    {"staged": True, "threads": 64, "rows": 4},
)


def sizes_of(name: str, rows: int, length: int) -> dict[str, int]:
    if name == "two axes":
        return {"a": rows, "b": 3, "c": length}
    return {"i": rows, "c": 3, "d": length} if name in ("two streams", "an axis of two") else {"i": rows, "j": length}


def bound(name: str, kind: str, arrays: dict[str, Any], expected: np.ndarray, rows: int, length: int) -> float:
    """Rounding of the result, and of sums of so many terms in float32, whose largest partial sum is at most
    the number of rows times the largest term; terms are products of a few numbers below 10."""
    unit = UNIT["float32"]
    terms = 64 * (8 + np.log2(max(2, length * rows))) * (1 + np.sqrt(rows)) * unit
    scale = max(1.0, float(np.nanmax(np.abs(expected), initial=0.0)))
    return scale * (UNIT[kind] + terms)


@st.composite
def calls(draw: Any) -> tuple[str, int, int, str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(SPECS) + sorted(FORWARD)))
    length = draw(st.sampled_from([1, 2, 3, 31, 33, 64, 96, 100]) | st.integers(1, 130))
    if name in ("two axes", "an axis of two", "two streams"):
        length = -(-length // 3)
    return name, draw(st.integers(1, 9)), length, draw(st.sampled_from(sorted(UNIT))), draw(st.sampled_from(FIELDS))


@examples(20)
@given(calls(), st.integers(0, 3))
def test_sums_and_rows_are_those_of_the_definitions(call: Any, seed: int) -> None:
    name, rows, length, kind, fields = call
    rows *= 5 if seed == 3 else 1  # and blocks have several rows one after another
    sizes = sizes_of(name, rows, length)
    try:
        made = plan_of(name, sizes, kind, fields, target=SMALL if seed == 3 else H200)
    except RedalgError as refused:  # a law: the row does not fit such threads, or has no such vectors
        assert refused.where in ("schedule=", "form.compile"), refused
        return
    arrays = drawn(name, sizes, kind, seed)
    found, expected = emulated(made, arrays, seed), truth(name, arrays)
    assert set(found) == set(expected)
    for output, value in expected.items():
        most = bound(name, kind, arrays, value, rows, length)
        beyond = np.abs(value) > 65504 - most if kind == "float16" else np.zeros(value.shape, bool)
        assert np.all((np.abs(found[output]) > 65504 - 2 * most)[beyond]), output  # infinite, or rounded just below
        error = np.max(np.abs(found[output] - value)[~beyond], initial=0.0)
        assert error <= most, (output, error)


@pytest.mark.parametrize("given_", ["all", "none"])
@pytest.mark.parametrize("name", sorted(SPECS))
def test_stage_values_of_rows_are_saved_or_their_own(name: str, given_: str) -> None:
    """With nothing saved elements of sums read what the same kernel reduced a moment before."""
    sizes = sizes_of(name, 5, 72)
    made = plan_of(name, sizes, given=given_)
    arrays = drawn(name, sizes, given=given_)
    found, expected = emulated(made, arrays), truth(name, arrays, given_)
    for output, value in expected.items():
        np.testing.assert_allclose(found[output], value, rtol=2e-5, atol=2e-5)


STAGED = {"vector": 1, "resident": True, "persistent": True, "staged": True, "prefetch": 0}


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("threads, rows", [(16, 8), (16, 2), (64, 1), (32, 4), (1, 32)])
def test_staged_groups_one_after_another(threads: int, rows: int, kind: str) -> None:
    """Groups of rows that begin at any element of a vector, the last one cut, and more of them than blocks; sums of the
    rows of a block are one partial sum."""
    sizes = {"i": 7 * rows + max(1, rows // 3), "j": 37}
    schedule = Schedule(threads, rows, tile=-(-37 // threads), **STAGED)
    made, arrays = plan_of("layer_norm", sizes, kind, schedule, target=SMALL), drawn("layer_norm", sizes, kind)
    own = made.before[0]
    assert own.geometry.blocks < 7 and own.shapes["grad_w_sum1"][0] == own.geometry.blocks
    assert "added" in own.module.source if rows > 1 else "added" not in own.module.source
    found, expected = emulated(made, arrays, 1), truth("layer_norm", arrays)
    for output, value in expected.items():
        most = bound("layer_norm", kind, arrays, value, sizes["i"], 37)
        assert np.max(np.abs(found[output] - value)) <= most, output


@pytest.mark.parametrize(
    "fields", [{}, {"threads": 32, "rows": 4}, {"threads": 64, "peel": True, "vector": 4, "prefetch": 0}]
)
def test_sums_do_not_depend_on_who_comes_first(fields: dict[str, Any]) -> None:
    """Blocks and threads in any order: the same bits."""
    made, arrays = (
        plan_of("layer_norm", {"i": 37, "j": 131}, "float32", fields),
        drawn("layer_norm", {"i": 37, "j": 131}),
    )
    assert made.before[0].choice.schedule.peel == fields.get("peel", False)
    first = emulated(made, arrays, 1)
    for seed in (2, 3):
        again = emulated(made, arrays, seed)
        assert all((first[n] == again[n]).all() for n in first)


@pytest.mark.parametrize("place", [0, 30, 32, 130])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_special_values_stay_in_their_columns(special: float, place: int) -> None:
    """An infinite cotangent makes its row, and its column of the sums, what the definition makes of it."""
    sizes = {"i": 6, "j": 131}
    arrays = drawn("rms_norm", sizes)
    arrays["grad_y"][2, place] = special
    made = emulated(plan_of("rms_norm", sizes), arrays)
    with np.errstate(all="ignore"):
        expected = truth("rms_norm", arrays)
    for output, value in expected.items():
        np.testing.assert_array_equal(np.isnan(made[output]), np.isnan(value))
        np.testing.assert_array_equal(np.isposinf(made[output]), np.isposinf(value))
        fine = np.isfinite(value)
        np.testing.assert_allclose(made[output][fine], value[fine], rtol=1e-4, atol=1e-4)


def test_what_is_not_one_reading_says_why() -> None:
    with pytest.raises(Outside, match="no elements"):
        plan_of("rms_norm", {"i": 0, "j": 8})
    long = {"i": 16, "j": 1 << 20}
    with pytest.raises(RedalgError, match="in registers"):
        plan_of("rms_norm", long)


def test_reasons_name_the_sums_and_their_cost() -> None:
    made = plan_of("layer_norm", {"i": 4096, "j": 1024}, "bfloat16")
    text = "\n".join(made.choice.reasons)
    assert "one reading for grad_x, grad_w, grad_b" in text and "partial sums" in text
    assert [r.name for r in made.before[0].program.summed] == sorted(joint_of("layer_norm").elements, reverse=True)


@pytest.mark.parametrize("kind, length, blocks", [("bfloat16", 16384, 1), ("float32", 16384, 2)])
def test_rows_in_pairs_of_elements_take_fewer_blocks(kind: str, length: int, blocks: int) -> None:
    made = plan_of("rms_norm", {"i": 4096, "j": length}, kind).before[0].choice.schedule
    assert made.cluster == blocks and made.resident


@examples(5)
@given(calls(), st.integers(0, 2))
def test_kernels_side_by_side_are_the_definitions(call: Any, seed: int) -> None:
    """Each kernel is printed to begin while the one before it runs, and to end after it."""
    name, rows, length, kind, _ = call
    joint, sizes = joint_of(name), sizes_of(name, rows, length)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in joint.spec.tensors if t.axes}
    with mock.patch.object(planning, "_seconds", lambda *_: 0.0):
        made = planning.planned(joint, dtypes_of(joint, kind), views, H200)
        old = planning.planned(joint, dtypes_of(joint, kind), views, H200.having(cc=(8, 0), cluster=1, cluster_limit=1))
    assert "side by side" in made.choice.reasons[0] and not made.over and not made.scratch
    arrays = drawn(name, sizes, kind, seed)
    found = emulated(made, arrays, seed)
    for output, expected in truth(name, arrays).items():
        limit = bound(name, kind, arrays, expected, rows, length)
        np.testing.assert_allclose(found[output], expected, rtol=0, atol=limit)
    sources = [p.module.source for p in (*made.before, made)]
    assert ["kernel_behind_launch()" in s for s in sources] == [True] * len(made.before) + [False]
    for p, source in zip(made.before, sources, strict=False):
        assert not p.geometry.early and "kernel_before_wait()" not in source
    assert made.geometry.early and sources[-1].rstrip().endswith("kernel_before_wait()")
    assert not any("kernel_b" in p.module.source or p.geometry.early for p in (*old.before, old))


@pytest.mark.parametrize("texts", [("y", "t", "x[i,j]*y[i,j]"), ("y", "x", "x[i,j]"), ("x", "t", "x[i,j]")])
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_results_that_are_called_what_tensors_are(texts: tuple[str, str, str], seconds: float) -> None:
    """Kernels side by side, and in one reading, write a result of a name under which they read something else."""
    (rows, name, element), sizes = texts, {"i": 3, "j": 40}
    specs = [ra.parse(f"return {rows} = x[i,j]/sum[j](x[i,j]**2)"), ra.parse(f"return {name} = sum[i]({element})")]
    (joint,) = units(specs)
    assert isinstance(joint, Joint)
    own = {t.name: tuple(sizes[a] for a in t.axes) for t in joint.spec.tensors}
    with mock.patch.object(planning, "_seconds", lambda *_: seconds):
        views = {n: View.contiguous(shape) for n, shape in own.items()}
        made = planning.planned(joint, dict.fromkeys(own, "float32"), views, H200)
    arrays = {n: np.random.default_rng(1).standard_normal(shape) for n, shape in own.items()}
    found = emulated(made, arrays)
    for spec in specs:
        (output,) = spec.outputs
        expected = ra.reference(spec, **{t.name: arrays[t.name] for t in spec.tensors})
        np.testing.assert_allclose(found[output], expected, rtol=1e-4, atol=1e-5)
