"""Few rows side by side: several elements of each are columns of their own, and are joined; results as ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu.layout import SIDES, TOGETHER
from redalg.kernels.cpu.schedule import ROWS
from tests.support.forms import form_of_text

# Exact in integers of moderate size, whatever the order.
TEXT = "m = max[j](x[i,j]); return high = m, s = sum[j](m - x[i,j]), low = min[j](x[i,j])"


def run_of(text: str = TEXT) -> Any:
    return form_of_text(text).compile("cpu")


def side_by_side(rows: int, length: int, dtype: str) -> np.ndarray:
    return np.random.default_rng(rows * length).integers(-9, 10, (length, rows)).astype(dtype).T


def as_defined(run: Any, x: np.ndarray) -> None:
    found = run(x=x)
    with np.errstate(invalid="ignore"):
        for key, value in ra.reference(form_of_text(TEXT).spec, x=x.astype("f8")).items():
            np.testing.assert_array_equal(found[key].astype("f8"), value)


@pytest.mark.parametrize("rows", [12])
def test_any_length_and_what_groups_leave(rows: int) -> None:
    groups, run = SIDES[0] // np.gcd(SIDES[0], rows), run_of()
    for length in (65, TOGETHER * groups + 1, 9 * groups + groups - 1, ROWS * groups + TOGETHER * groups + groups + 1):
        as_defined(run, side_by_side(rows, length, "float32"))
        assert f"({groups} elements of each at a time)" in run.schedule


@pytest.mark.parametrize("at", [0, 255, 256, 999])
def test_what_is_no_number_stays_in_its_row(at: int) -> None:
    x = side_by_side(12, 1000, "float32")
    x[3, at], x[1, at] = np.nan, -np.inf
    as_defined(run_of(), x)


def test_gaps_between_rows_positions_and_weights_are_walked_one_by_one() -> None:
    wide, plain = side_by_side(20, 600, "float32"), run_of("return s = sum[j](x[i,j])")
    for x in (wide[:5], wide[::4]):
        np.testing.assert_array_equal(plain(x=x), x.sum(1))
        assert "at a time" not in plain.schedule
    run = run_of("return s = sum[j](w[j]*x[i,j]), at = argmax[j](x[i,j])")
    x, w = side_by_side(6, 600, "float32"), np.arange(600, dtype="f4") % 7
    found = run(x=x, w=w)
    assert "at a time" not in run.schedule
    np.testing.assert_array_equal(found["s"], (x.astype("f8") * w).sum(1))
    np.testing.assert_array_equal(found["at"], x.argmax(1))
