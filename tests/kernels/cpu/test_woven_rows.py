"""Short rows without gaps, which whole vectors turn and turn back: every element comes where it belongs."""

from __future__ import annotations

import numpy as np
import pytest

from redalg.kernels.cpu.blocks import WIDTHS, WOVEN
from redalg.kernels.cpu.vectors import picked
from tests.support.forms import form_of_text

TEXT = "m = max[j](x[i,j]); return y = m - x[i,j], at = argmin[j](x[i,j])"


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("length", WOVEN)
def test_vectors_are_put_together_of_the_lanes_they_name(length: int, lanes: int) -> None:
    vectors = np.arange(length * lanes).reshape(length, lanes)
    for first in range(length):
        places = [divmod(at * length + first, lanes) for at in range(lanes)]
        found = vectors[0]
        for v, masks in picked(places, lanes):
            found = np.concatenate([found, vectors[v]])[masks]
        np.testing.assert_array_equal(found, np.arange(lanes) * length + first)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_rows_of_every_length_and_width(dtype: str) -> None:
    """Fewer rows than a vector has lanes, as many, and more than whole vectors hold."""
    assert np.dtype(dtype).itemsize * 8 in WIDTHS
    rng, run = np.random.default_rng(3), form_of_text(TEXT).compile("cpu")
    for length in WOVEN:
        for rows in (1, 7, 8, 16, 45):
            x = rng.integers(-9, 10, (rows, length)).astype(dtype)
            found = run(x=x)
            np.testing.assert_array_equal(found["y"], x.max(1, keepdims=True) - x)
            np.testing.assert_array_equal(found["at"], x.argmin(1))
