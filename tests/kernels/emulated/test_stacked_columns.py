"""Reductions down columns in two steps, over stacked columns: by emulation, against the definition."""

from __future__ import annotations

from typing import Any

import pytest

from redalg.kernels.ir.layouts import View
from redalg.kernels.lower.draft import Call
from redalg.kernels.lower.stacked import stacked
from redalg.kernels.pipeline import plan
from redalg.kernels.programs import ROW_PROGRAM, program_of
from redalg.kernels.schedule.target import H200
from redalg.kernels.stacked import lines_of
from tests.support.column_cases import FORMS, SPECS, agree, arrays_of
from tests.support.sample import one_in
from tests.support.stacked_cases import SPECS as CASES
from tests.support.stacked_cases import agrees, drawn, emulated, form_of, planned_of

WHOLE = ("var_mean", "standard_scores", "softmax", "masked", "scaled", "kurtosis")


@pytest.mark.parametrize(("name", "lines", "columns", "count"), [("softmax", 37, 9, 16), ("var_mean", 24, 5, 8)])
def test_states_of_stacked_columns_are_those_of_the_columns(name: str, lines: int, columns: int, count: int) -> None:
    arrays = arrays_of(name, lines, columns, "float16" if count == 16 else "float32", 1)
    agree(name, emulated(planned_of(FORMS[name], arrays, count), arrays, 3), arrays, "float16")


@pytest.mark.parametrize("name", one_in(3, sorted(CASES), first=2))
def test_every_part_of_a_state_is_merged(name: str) -> None:
    arrays = drawn(name, 19, 8, "float32", 2)
    agrees(name, emulated(planned_of(form_of(name), arrays, 4), arrays), arrays)


REFUSED = {
    "weighted": "does not lie as all elements do",
    "argmax": "positions",
    "largest": "more than numbers",
    "entropy": "more than one pass",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_two_steps_says_why(name: str) -> None:
    found = stacked(program_of(FORMS[name], {t.name: "float32" for t in SPECS[name].tensors}, ROW_PROGRAM))
    assert isinstance(found, str) and REFUSED[name] in found


@pytest.mark.parametrize("name", WHOLE)
def test_the_rest_has(name: str) -> None:
    found = stacked(program_of(FORMS[name], {t.name: "float32" for t in SPECS[name].tensors}, ROW_PROGRAM))
    assert not isinstance(found, str), found


def lines(x: View, dtype: str = "float32", **more: Any) -> Any:
    form = FORMS["softmax"]
    program = program_of(form, {"x": dtype}, ROW_PROGRAM)
    return lines_of(Call(form, {"x": dtype}, {"x": x}, H200, **more), program, {})


def test_lines_are_stacked_until_they_begin_at_sectors() -> None:
    """L lines of C columns: M·C columns have a multiple of 32 bytes, and at least 512."""
    for columns, dtype, size in ((515, "float16", 2), (77, "float32", 4), (33, "float64", 8), (6, "float32", 4)):
        found = lines(View.contiguous((1 << 20, columns)), dtype)
        assert found.width * size % 32 == 0 and found.width * size >= 512
        assert found.whole * found.stacked + found.left == 1 << 20
        half = found.stacked // 2 * columns * size
        assert half % 32 or half < 512, "fewer lines would do"
    assert lines(View.contiguous((1 << 18, 256))).stacked == 1


def test_other_arrays_are_not_stacked() -> None:
    assert lines(View.contiguous((1000, 77))) is None  # small
    assert lines(View.contiguous((1 << 18, 77), align=4)) is None
    assert lines(View((1 << 18, 77), (80, 1))) is None  # gaps
    assert lines(View((1 << 18, 77), (1, 1 << 18))) is None  # columns lie in one piece
    assert lines(View.contiguous((100, 1 << 17 | 1)), "bfloat16") is None  # few lines
    assert lines(View.contiguous((1 << 18, 77)), deterministic=True) is None
    assert lines(View.contiguous((1 << 18, 77)), schedule="column") is None


@pytest.mark.deep
def test_the_faster_way_is_taken_and_told() -> None:
    shape = View.contiguous((300001, 77))
    made = plan(FORMS["softmax"], {"x": "float32"}, {"x": shape}, H200)
    assert [p.program.name for p in (*made.before, made)][-1] == "y_mapped" and len(made.before) == 4
    assert made.shapes == {"y": (300001, 77)} and made.sizes["i"] == 300001
    assert "read as one" in made.choice.reasons[0] and "by one kernel" in made.choice.reasons[-1]
    assert not plan(FORMS["softmax"], {"x": "float32"}, {"x": shape}, H200, deterministic=True).before
    assert not plan(FORMS["softmax"], {"x": "float32"}, {"x": shape}, H200, schedule="column").before
