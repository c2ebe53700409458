"""Rows that whole vectors take apart: short ones that are turned, and those that lie in one another."""

from __future__ import annotations

import numpy as np
import pytest

from redalg.kernels.cpu.blocks import WOVEN
from redalg.kernels.cpu.build import functions
from redalg.kernels.cpu.math.vectors import APART, shuffles
from redalg.kernels.ir.program import Param
from tests.support.forms import form_of_text

TEXT = "m = max[j](x[i,j]); return y = m - x[i,j], at = argmin[j](x[i,j])"


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("length", WOVEN)
def test_vectors_are_put_together_of_the_lanes_they_name(length: int, lanes: int) -> None:
    vectors = np.arange(length * lanes).reshape(length, lanes)
    for first in range(length):
        places = [divmod(at * length + first, lanes) for at in range(lanes)]
        found = vectors[0]
        for v, masks in shuffles(places, lanes):
            found = np.concatenate([found, vectors[v]])[masks]
        np.testing.assert_array_equal(found, np.arange(lanes) * length + first)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_of_every_length_and_width(dtype: str) -> None:
    """Fewer rows than a vector has lanes, as many, and more than whole vectors hold."""
    rng, run = np.random.default_rng(3), form_of_text(TEXT).compile("cpu")
    for length in WOVEN:
        for rows in (1, 7, 8, 16, 45):
            x = rng.integers(-9, 10, (rows, length)).astype(dtype)
            found = run(x=x)
            np.testing.assert_array_equal(found["y"], x.max(1, keepdims=True) - x)
            np.testing.assert_array_equal(found["at"], x.argmin(1))


EVERY = """
import numpy as np
from numba import njit
from redalg.kernels.cpu.memory import every_DTYPE, pointer_DTYPE, pointer_REAL
@njit(nogil=True)
def every(x, y, index, step, count, low, high):
    x = pointer_DTYPE(x)
    y = pointer_REAL(y)
    every_DTYPE(x, index, step, y, count)
"""
PARAMS = [
    Param("operand", "x", "int64"),
    Param("result", "y", "int64"),
    *(Param("size", n, "int64") for n in ("index", "step", "count")),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_so_manieth_element_from_any_address(dtype: str) -> None:
    """Nothing is written but what was asked for, whatever steps, begins and counts are."""
    text = EVERY.replace("DTYPE", dtype).replace("REAL", dtype)
    every = functions(text, ["every"], PARAMS)["every"]
    x = np.arange(900).astype(dtype)
    for step in (1, *APART, APART.stop, -3):
        for index in range(19) if step > 0 else (700,):
            for count in (0, 1, 2, 17, 18, 40, 83):
                y = np.full(count + 20, -1, dtype)
                every(x.ctypes.data, y.ctypes.data, index, step, count, 0, 1)
                np.testing.assert_array_equal(y[:count], index + step * np.arange(count))
                assert (y[count:] == -1).all()
