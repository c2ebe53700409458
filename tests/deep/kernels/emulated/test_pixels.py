"""Products whose rows are several axes of an array, or windows of it (convolutions), against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from redalg.kernels.tile.match import Outside
from tests.support.window_cases import CASES, CONVOLUTION, case, drawn, emulated, form_of, planned, read, truth


@pytest.mark.parametrize(("name", "padding"), [(n, p) for n in CASES for p in (True, False) if p or "-" in CASES[n][0]])
def test_rows_that_are_pixels_give_the_definition(name: str, padding: bool) -> None:
    form, arrays, kind = case(name)
    cells = read(form, arrays, kind, padding)
    made = planned(form, cells, kind)
    assert not made.before and made.maps[0].operand == "x"
    true, size = truth(form, arrays)
    found = emulated(made, cells, arrays)
    for n, value in found.items():  # the emulator rounds nothing; sums of float32
        assert (abs(value - true[n]) <= 2.0**-8 * abs(true[n]) + 2.0**-20 * size[n]).all()


def test_channels_that_do_not_start_at_16_bytes_are_prepared() -> None:
    form = form_of(CONVOLUTION)
    arrays = drawn({"x": (1, 4, 5, 12), "U": (3, 3, 12, 16)}, "bfloat16")
    cells = read(form, arrays, "bfloat16")
    made = planned(form, cells, "bfloat16")
    assert [r.name for r in made.before[0].program.results] == ["left"]
    assert any("a stride of 24 bytes" in line for line in made.choice.reasons)
    windows = np.asarray(read(form, arrays, "bfloat16")["x"])
    assert windows.shape == (1, 4, 3, 5, 3, 12)
    with pytest.raises(Outside):
        planned(form, read(form, arrays, "bfloat16", padding=False), "bfloat16")
