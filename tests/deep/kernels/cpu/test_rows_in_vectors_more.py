"""Few columns in groups, blocks of columns, rows in vectors: more of `tests/kernels/cpu/test_rows_in_vectors.py`."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.kernels.cpu import test_rows_in_vectors as fast
from tests.support.forms import form_of_text


@pytest.mark.parametrize("columns, length", [(9, 300), (13, 2000), (33, 200), (45, 700)])
def test_few_columns_that_keep_an_element_for_each(columns: int, length: int) -> None:
    x = np.random.default_rng(columns).normal(size=(length, columns)).astype("float32")
    x[3, 1], x[length - 1, 2], x[:, 4] = np.nan, np.inf, -np.inf
    for text in (fast.SOFTMAX, fast.NORM, "m = max[j](x[i,j]); e = exp(x[i,j] - m); return y = e/sum[j](e)"):
        text = text.replace("x[i,j]", "x[j,i]")
        with np.errstate(all="ignore"):
            wide = ra.reference(form_of_text(text).spec, x=x.astype("f8"))
            np.testing.assert_allclose(fast.run_of(text)(x=x), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [96, 100, 200, 288, 320])
def test_blocks_of_columns(columns: int) -> None:
    fast.test_blocks_of_columns_and_groups_of_elements(columns)


@pytest.mark.parametrize("text", [fast.SUM, fast.NORM])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_bits_of_every_format(text: str, dtype: str) -> None:
    fast.test_bits_do_not_tell_where_rows_begin(text, dtype)


@pytest.mark.parametrize("rows", [15, 16, 33])
def test_rows_in_turn(rows: int) -> None:
    fast.test_rows_in_turn_are_rows_alone(rows)
