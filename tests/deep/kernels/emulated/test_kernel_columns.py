"""Kernels whose threads have several neighbouring rows: printed, simulated, compared with the definition, refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.code.coarsen import coarsened
from redalg.kernels.ir.layouts import View, walk_of
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.programs import lower
from redalg.kernels.schedule.families import candidates_of
from redalg.source.render import render
from redalg.source.statements import function
from tests.support.column_cases import FORMS, SCHEDULES, SPECS, agree, arrays_of, drawn
from tests.support.forms import form_of
from tests.support.kernel_cases import case_of, program
from tests.support.simulated import run


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_several_rows_of_a_thread_are_what_one_is(name: str, schedule: dict[str, Any]) -> None:
    """Streams of unequal parts, one of them empty; numbers of columns that do and do not fill the blocks."""
    for seed, (n, columns, dtype, count) in enumerate(
        [
            (13, 24, "float32", 4),
            (2, 8, "bfloat16", 8),
            (3, 70, "float32", 2),
            (35, 40, "bfloat16", 4),
        ]
    ):
        if name == "largest" and n < 3 or name == "scaled" and dtype != "float32":
            continue
        arrays = arrays_of(name, n, columns, dtype, seed)
        asked = Schedule(**{"tile": 4, **schedule}, column=True, coarsen=count)
        try:
            found, planned, moved = run(FORMS[name], arrays, asked, seed=seed)
        except RedalgError as refusal:
            assert schedule.get("split") and refusal.where == "schedule="
            assert "keeps the axis" in refusal.why or "pass 2" in refusal.why
            return
        agree(name, found, arrays, dtype)
        assert re.search(rf"load_(early_)?{dtype}x{count}\(", planned.module.source)
        kept = any(r.keeps for r in planned.program.results)
        assert bool(re.search(rf"store_(stream_)?\w+x{count}\(", planned.module.source)) == kept
        assert moved["operand x"].loaded >= arrays["x"].nbytes


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", ["softmax", "argmax", "masked"])
def test_several_rows_of_a_thread_that_start_anywhere(name: str, schedule: dict[str, Any]) -> None:
    """Numbers of columns that are no multiple of a thread's, lines of odd lengths, arrays that begin anywhere: the bits
    of one column to a thread, and nothing is touched beside the array."""
    for seed, (n, columns, pad, dtype, count) in enumerate(
        [(5, 21, 0, "bfloat16", 2), (9, 23, 2, "float16", 2), (2, 10, 1, "float8_e4m3fn", 4)]
    ):
        whole = arrays_of(name, n, columns + pad, dtype, seed)
        arrays = {k: a[..., :columns] if a.shape[-1:] == (columns + pad,) else a for k, a in whole.items()}
        asked = Schedule(**{"tile": 4, **schedule}, column=True, coarsen=count)
        try:
            found, planned, _ = run(FORMS[name], arrays, asked, seed=seed, align=2)
        except RedalgError as refusal:
            assert schedule.get("split") and refusal.where == "schedule="
            assert "keeps the axis" in refusal.why or "pass 2" in refusal.why
            return
        agree(name, found, arrays, dtype)
        assert re.search(rf"load_(early_)?shifted_{dtype}x{count}\(", planned.module.source)
        one = run(FORMS[name], arrays, Schedule(**{"tile": 4, **schedule}, column=True), seed=seed, align=2)[0]
        for output in one:
            np.testing.assert_array_equal(one[output].view(np.uint8), found[output].view(np.uint8))


@pytest.mark.parametrize("dtype, count", [("float16", 8), ("float64", 2), ("float8_e4m3fn", 8)])
def test_every_width_of_numbers(dtype: str, count: int) -> None:
    arrays = arrays_of("softmax", 21, 32, dtype, 5)
    asked = Schedule(threads=4, rows=8, tile=4, column=True, coarsen=count)
    agree("softmax", run(FORMS["softmax"], arrays, asked, seed=3)[0], arrays, dtype)


@pytest.mark.parametrize("name", ["var_mean", "softmax", "argmax", "largest", "entropy"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 0.0, 1e-40])
def test_special_values_stay_in_their_column(name: str, special: float) -> None:
    arrays = arrays_of(name, 11, 8, "float32", 9)
    arrays["x"][4, 3] = special
    one = run(FORMS[name], arrays, Schedule(threads=4, rows=8, tile=2, column=True), seed=1)[0]
    several = run(FORMS[name], arrays, Schedule(threads=4, rows=2, tile=2, column=True, coarsen=4), seed=1)[0]
    for output in one:  # bit for bit: neighbours change nothing about the order of additions
        np.testing.assert_array_equal(one[output].view(np.uint8), several[output].view(np.uint8))
    others = [c for c in range(8) if c != 3]
    arrays["x"][4, 3] = 0.5
    plain = run(FORMS[name], arrays, Schedule(threads=4, rows=2, tile=2, column=True, coarsen=4), seed=1)[0]
    for output in one:
        kept = (slice(None), others) if SPECS[name].output_axes[output][0] == "i" else others
        np.testing.assert_array_equal(several[output][kept], plain[output][kept])


@pytest.mark.parametrize(
    "columns, pad, align, most",
    [
        (24, 0, 16, 4),
        (24, 4, 16, 4),
        (20, 0, 16, 4),
        (22, 0, 16, 2),
        (21, 0, 16, 1),
        (24, 1, 16, 1),
        (24, 0, 8, 2),
        (24, 0, 4, 1),
    ],
)
def test_rows_are_loaded_together_where_they_lie_side_by_side_everywhere(
    columns: int, pad: int, align: int, most: int
) -> None:
    p = lower(FORMS["var_mean"], {"x": "float32"})
    sizes = {"i": 40, "j": columns}
    walk = walk_of(p, {"x": View((40, columns), (columns + pad, 1), align)})
    from redalg.kernels.schedule.case import Case
    from redalg.kernels.schedule.legality import refusals
    from redalg.kernels.schedule.target import H200

    case = Case.of(p, sizes, walk, H200)
    assert case.most_coarsening == most
    assert {s.coarsen for s in candidates_of(case)} <= {1, 2, 4, 8}
    assert max(s.coarsen for s in candidates_of(case)) == most
    assert {s.coarsen for s in candidates_of(case, deterministic=True)} == {1}
    why, fix = next(refusals(case, Schedule(4, 8, 1, 4, column=True, coarsen=2 * most)))
    assert "neighbouring rows" in why and fix == f"coarsen={most}"
    if most > 1:
        arrays = {"x": drawn((40, columns + pad), "float32", 2)[:, :columns]}
        found = run(FORMS["var_mean"], arrays, Schedule(4, 8, 1, 4, column=True, coarsen=most), align=align)[0]
        agree("var_mean", found, arrays, "float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "absmax", "argmax"])
def test_rows_of_a_thread_that_lie_apart(name: str, dtype: str) -> None:
    """Bit for bit what one row of a thread gives: rows that fill no block, lengths that fill no vector, no elements."""
    form = form_of(name)
    for seed, (rows, length, gap, schedule) in enumerate(
        [
            (1, 3, 0, Schedule(1, 32, 1, 4, resident=True)),
            (37, 4, 0, Schedule(1, 8, 4, 4, resident=True)),
            (13, 44, 0, Schedule(8, 4, 2, 6, resident=True)),
            (9, 45, 2, Schedule(16, 2, 4, 4, resident=True, peel=True)),
            (5, 0, 0, Schedule(4, 8, 1, 2, resident=True)),
        ]
    ):
        if length == 0 and name in ("argmax", "layer_norm"):  # of nothing there is neither a place nor a mean
            continue
        given = {}
        for t in form.spec.tensors:
            wide = (rows, length + gap) if len(t.axes) == 2 else (length,)
            given[t.name] = drawn(wide, dtype, seed)[..., :length] if t.axes else 1e-5
        schedule = replace(schedule, exact=schedule.threads * schedule.tile == length)
        one = run(form, given, schedule, seed=seed)[0]
        for coarsen in (2, 4):
            found, planned, _ = run(form, given, replace(schedule, coarsen=coarsen), seed=seed)
            assert planned.geometry.blocks == -(-rows // (schedule.rows * coarsen))
            for output in one:
                np.testing.assert_array_equal(one[output].view(np.uint8), found[output].view(np.uint8))


def test_only_columns_have_neighbours() -> None:
    _, _, case = case_of(program("variance"), 64, 64)
    from redalg.kernels.schedule.legality import refusals

    for s in (Schedule(32, 4, 1, 4, coarsen=2), Schedule(4, 8, 2, 4, column=True, coarsen=2)):
        assert next(refusals(case, s))[1] == "coarsen=1"
    assert all(s.coarsen == 1 for s in candidates_of(case))


def test_turned_tensors_of_the_catalog() -> None:
    """Streams along the last axis of turned arrays, beside arrays that lie otherwise."""
    for name in ("softmax", "cross_entropy", "weighted_mean", "moe_softmax_topk", "kl_divergence", "layer_norm"):
        entry = ra.catalog.entry(name)
        form = form_of(name)
        arrays = entry.sample(7, dtype="float32", i=16)
        arrays = {n: np.asfortranarray(a) if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        found = run(form, arrays, Schedule(threads=2, rows=4, tile=4, column=True, coarsen=4), seed=5)[0]
        wanted = ra.reference(form.spec, **arrays)
        for output, value in (wanted if isinstance(wanted, dict) else {next(iter(found)): wanted}).items():
            np.testing.assert_allclose(found[output], value, rtol=2e-5, atol=2e-5)


def test_a_barrier_where_the_row_decides_is_an_error() -> None:
    with pytest.raises(ValueError, match="barrier"):
        coarsened(function("def f(x):\n    if side == 0:\n        cuda.syncthreads()"), 2, frozenset())


def test_what_a_branch_of_some_rows_assigns_depends_on_the_row() -> None:
    text = """def f(x, n):
    best = -1
    for k in range(n):
        if load_float32(x, side) > k:
            best = k
    store_int64(x, 0, best)"""
    made = coarsened(function(text), 2, frozenset({"x"}))
    assert render([made]).split("\n")[1:3] == ["    best_c0 = -1", "    best_c1 = -1"]


def test_neighbours_that_cannot_be_walked_together_are_walked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> str:
        raise ValueError("a barrier where the row decides: if x_c0 > 0:")

    monkeypatch.setattr("redalg.kernels.rows.kernel.coarsened", refused)
    arrays = arrays_of("softmax", 21, 32, "float32", 5)
    found, planned, _ = run(FORMS["softmax"], arrays, Schedule(threads=4, rows=8, tile=4, column=True, coarsen=4))
    agree("softmax", found, arrays, "float32")
    assert planned.choice.schedule.coarsen == 1 and planned.geometry.blocks == 4
    assert "one row to a thread: there is a barrier where the row decides" in planned.choice.reasons[-1]
