"""Products whose rows are several axes of an array, or windows of it (convolutions), against the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from redalg.kernels.gemm import passes
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.match import Outside
from tests.support import window_cases
from tests.support.window_cases import CASES, CONVOLUTION, case, drawn, emulated, form_of, planned, read, truth


@pytest.mark.parametrize(("name", "padding"), [*((n, "-" not in CASES[n][0]) for n in CASES), ("no images", True)])
def test_rows_that_are_pixels_give_the_definition(name: str, padding: bool) -> None:
    form, arrays, kind = case(name)
    cells = read(form, arrays, kind, padding)
    made = planned(form, cells, kind)
    assert not made.before and made.maps[0].operand == "x"
    true, size = truth(form, arrays)
    found = emulated(made, cells, arrays)
    for n, value in found.items():  # the emulator rounds nothing; sums of float32
        assert (abs(value - true[n]) <= 2.0**-8 * abs(true[n]) + 2.0**-20 * size[n]).all()


@pytest.mark.parametrize("blocks", [(4, 1), (2, 2)])
def test_blocks_that_share_pixels(blocks: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each brings rows of its own of a box, from a pixel of its own on; some of them lie beyond the last one."""

    def pick(made: Narrow) -> GemmPlan:
        legal = (p for p in made.plans() if (p.sharing.blocks, p.split) == blocks and p.consumers == 1)
        return min(legal, key=made.seconds)

    monkeypatch.setattr(passes, "narrow", pick)
    form = form_of("return y = sum[r,c](x[b,2*h+r-1,c]*U[r,c,n])")
    arrays = drawn({"x": (4, 15, 8), "U": (3, 8, 256)}, "bfloat16")
    cells = read(form, arrays, "bfloat16", padding=False)
    made = planned(form, cells, "bfloat16")
    assert made.geometry.cluster == blocks[0] * blocks[1] and made.maps[0].pixels is not None
    true, size = truth(form, arrays)
    bound = 2.0**-8 * abs(true["y"]) + 2.0**-20 * size["y"]
    assert (abs(emulated(made, cells, arrays)["y"] - true["y"]) <= bound).all()


def test_tiles_that_are_written_while_the_next_one_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks compute all tiles: rows and columns of the last ones are not there, and every row goes by itself."""
    monkeypatch.setattr(window_cases, "H200", replace(H200, multiprocessors=2))
    form = form_of("return y = relu(sum[c](x[b,h,c]*U[n,c]))*a[n]")
    arrays = drawn({"x": (2, 131, 8), "U": (72, 8), "a": (72,)}, "float16")
    cells = read(form, arrays, "float16")
    made = planned(form, cells, "float16")
    assert made.fixed["tiles"] > made.geometry.blocks == 2 and "bulk_store" in made.module.source
    true, size = truth(form, arrays)
    bound = 2.0**-8 * abs(true["y"]) + 2.0**-20 * size["y"]
    assert (abs(emulated(made, cells, arrays)["y"] - true["y"]) <= bound).all()


def test_a_chain_begins_with_a_convolution() -> None:
    form = form_of("return z = sum[n](relu(sum[r,s,c](x[b,h+r-1,w+s-1,c]*U[r,s,c,n]))*V[n,m])", "n")
    arrays = drawn({"x": (1, 4, 3, 8), "U": (2, 3, 8, 16), "V": (16, 8)}, "bfloat16")
    cells = read(form, arrays, "bfloat16", padding=False)
    made = planned(form, cells, "bfloat16")
    assert made.before[0].maps[0].pixels is not None
    true, size = truth(form, arrays)
    assert (abs(emulated(made, cells, arrays)["z"] - true["z"]) <= 2.0**-8 * size["z"]).all()


REFUSED = {  # what no map of pixels reads, and why
    "return y = sum[r,s,c](x[b,9*h+r,w+s,c]*U[r,s,c,n])": ((1, 20, 5, 8), (2, 2, 8, 8), "steps of more than 8"),
    "return y = sum[r,s,c](x[b,h+200*r,w+s,c]*U[r,s,c,n])": ((1, 405, 3, 8), (3, 2, 8, 8), "reach 128 elements"),
    "return y = sum[r,s,c](x[b,h+r+s,c]*U[r,s,c,n])": ((1, 9, 8), (2, 3, 8, 8), "a sum of more than two axes"),
    "return y = sum[s,c](x[a,b,e,h,w+s,c]*U[s,c,n])": ((1, 2, 2, 2, 6, 8), (2, 8, 8), "3 dimensions of pixels"),
    "return y = sum[r,s,c](x[b,h+r,w+s,c]*U[b,r,s,c,n])": ((2, 4, 6, 8), (2, 2, 2, 8, 8), "a dimension more"),
    "return y = sum[r,c](x[b,c,h+r]*U[r,c,n])": ((2, 8, 9), (2, 8, 8), "not contiguous along c"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_map_walks_is_a_matrix_that_is_prepared(text: str) -> None:
    x, u, why = REFUSED[text]
    form = form_of(text)
    cells = read(form, drawn({"x": x, "U": u}, "bfloat16"), "bfloat16")
    made = planned(form, cells, "bfloat16")
    assert [r.name for r in made.before[0].program.results] == ["left"]
    assert any(line.startswith("left = ") and why in line for line in made.choice.reasons)


def test_windows_that_a_call_passes_itself_are_no_array() -> None:
    """A copy of every window has strides of its own: a map of the array would read something else."""
    form = form_of(CONVOLUTION)
    arrays = drawn({"x": (1, 4, 5, 16), "U": (3, 3, 16, 16)}, "bfloat16")
    cells = read(form, arrays, "bfloat16")
    made = planned(form, cells | {"x": np.ascontiguousarray(cells["x"])}, "bfloat16")
    assert all(m.pixels is None for m in made.maps)
    assert any("do not lie over each other" in line for line in made.choice.reasons)


def test_channels_that_do_not_start_at_16_bytes_are_prepared() -> None:
    form = form_of(CONVOLUTION)
    arrays = drawn({"x": (1, 4, 5, 12), "U": (3, 3, 12, 16)}, "bfloat16")
    cells = read(form, arrays, "bfloat16")
    made = planned(form, cells, "bfloat16")
    assert [r.name for r in made.before[0].program.results] == ["left"]
    assert any("a stride of 24 bytes" in line for line in made.choice.reasons)
    with pytest.raises(Outside):
        planned(form, read(form, arrays, "bfloat16", padding=False), "bfloat16")
