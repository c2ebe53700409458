"""Loops written out as vectors: what is found depends neither on where rows lie in memory nor on rows beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu import walk
from redalg.kernels.cpu.loops import ALIGNED
from tests.support.forms import form_of_text

NORM = "u = mean[j](x[i,j]); v = mean[j]((x[i,j] - u)**2); return y = (x[i,j] - u)/sqrt(v + 1)"
SOFTMAX = "m = max[j](x[i,j]); return y = x[i,j] - m - log(sum[j](exp(x[i,j] - m)))"
SUM = "return y = sum[j](x[i,j])"


def run_of(text: str) -> Any:
    return form_of_text(text).compile("cpu")


@pytest.mark.parametrize("text, dtype", [(SUM, "float32"), (NORM, "float16")])
def test_bits_do_not_tell_where_rows_begin(text: str, dtype: str) -> None:
    run, rng = run_of(text), np.random.default_rng(3)
    for length in (ALIGNED - 1, ALIGNED, 331):
        x = rng.normal(size=(3, length)).astype(dtype)
        found = set()
        for shift in range(0, 33, 3):
            room = np.zeros(3 * (length + 40) + shift, dtype)[shift:].reshape(3, -1)[:, :length]
            room[...] = x
            found.add(run(x=room).tobytes())
        assert len(found) == 1
        wide = ra.reference(form_of_text(text).spec, x=x.astype("f8"))
        np.testing.assert_allclose(
            np.frombuffer(found.pop(), dtype).reshape(wide.shape),
            wide,
            rtol=2e-3 if dtype == "float16" else 1e-4,
            atol=1e-2 if dtype == "float16" else 1e-5,
        )


@pytest.mark.parametrize("columns", [51, 160])
def test_blocks_of_columns_and_groups_of_elements(columns: int) -> None:
    """Groups are of rows that one block holds: columns beyond it belong to no element that follows."""
    x = np.random.default_rng(columns).integers(-9, 9, (300, columns)).astype("float32")
    run = run_of("return y = sum[j](x[j,i])")
    np.testing.assert_array_equal(run(x=x), x.astype("f8").sum(0))


@pytest.mark.parametrize("rows", [1, 17])
def test_rows_in_turn_are_rows_alone(rows: int) -> None:
    """Functions of sixteen rows are computed together, whatever is left of them."""
    x = np.random.default_rng(rows).normal(size=(rows, 300)).astype("float32")
    x[0, 7] = np.nan
    x[-1] = -np.inf
    run = run_of(SOFTMAX)
    with np.errstate(all="ignore"):
        alone = [run(x=x[n : n + 1]) for n in range(rows)]
        np.testing.assert_array_equal(run(x=x), np.concatenate(alone))
        wide = ra.reference(form_of_text(SOFTMAX).spec, x=x.astype("f8"))
    np.testing.assert_allclose(run(x=x), wide, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("text", [SUM, SOFTMAX])
def test_calls_by_python_and_by_ctypes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(40, 300)).astype("float32")
    quick = run_of(text)
    assert quick(x=x).tobytes() == quick(x=x).tobytes()
    monkeypatch.setattr(walk, "caller", lambda *given: None)
    assert run_of(text)(x=x).tobytes() == quick(x=x).tobytes()


def test_a_row_out_of_range_is_told_of_again_and_again() -> None:
    """Marks are of one call: a later one has none, where no row left the range."""
    run = run_of("return y = sum[j](x[i,j]**2)")
    x = np.ones((3, 300), np.float32)
    for big in (1e25, 1.0, 1e25, 1.0):
        x[1] = np.float32(big)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(run(x=x), (x.astype("f8") ** 2).sum(1).astype("f4"), rtol=1e-5)
