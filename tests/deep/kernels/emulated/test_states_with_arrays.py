"""States that hold arrays along columns: split over blocks, by emulation, and what they cost is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels import programs
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from tests.support.forms import form_of
from tests.support.simulated import run


@pytest.fixture(autouse=True)
def no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small states, as if they were too large to be held as single values (`test_tiles_of_states`)."""
    monkeypatch.setattr(programs, "tilings", lambda *_: iter(()))


def matrix() -> Any:
    """Second moments about no centre: arrays along two axes."""
    x = ra.tensors("x[j,a]")
    return ra.derive_incremental(ra.Spec(G=ra.sum(x * x["j", "b"], "j"), s=ra.sum(x, "j")))


@pytest.mark.parametrize("tile, split", [(1, 2), (2, 3), (4, 7)])
@pytest.mark.parametrize("length", [1, 5, 33, 300])
@pytest.mark.parametrize("name", ["moment_of_inertia", "matrix"])
def test_states_with_arrays_are_split(name: str, length: int, tile: int, split: int) -> None:
    """Splits of few elements, and of none, merged in their order by the block that comes last."""
    form = matrix() if name == "matrix" else form_of(name)
    rng = np.random.default_rng(length)
    sizes = {"j": length, "a": 3, "b": 3, "d": 3}
    arrays = {t.name: rng.uniform(0.5, 2, [sizes[a] for a in t.axes]).astype(np.float32) for t in form.spec.tensors}
    true = ra.reference(form.spec, **{n: a.astype(np.float64) for n, a in arrays.items()})
    for seed in (None, 1):
        found, planned, _ = run(form, arrays, {"split": split, "tile": tile, "rows": 1}, seed)
        assert planned.choice.schedule.split == split
        for output, value in found.items():
            np.testing.assert_allclose(value, true[output], rtol=2e-5, atol=1e-5)


def test_long_streams_are_split() -> None:
    form = form_of("moment_of_inertia")
    assert _planned(form, 1 << 24, 132).choice.schedule.split >= 132
    assert _planned(form, 64, 132).choice.schedule.split == 1


def test_what_arrays_in_a_state_cost_is_told() -> None:
    with pytest.warns(UserWarning, match=r"slow: .* times as long as reading"):
        made = _planned(form_of("moment_of_inertia"), 1 << 24, 8)
    assert any("adds one element after another" in line for line in made.choice.reasons)


def _planned(form: Any, length: int, processors: int) -> Any:
    shapes = {t.name: tuple(length if a == "j" else 3 for a in t.axes) for t in form.spec.tensors}
    views = {n: View.contiguous(s) for n, s in shapes.items()}
    return plan(form, dict.fromkeys(shapes, "float32"), views, replace(H200, multiprocessors=processors))


def test_a_split_of_arrays_has_one_warp() -> None:
    form = form_of("moment_of_inertia")
    arrays = {t.name: np.ones((8, 3)[: len(t.axes)], np.float32) for t in form.spec.tensors}
    with pytest.raises(ra.RedalgError, match="a block of one warp"):
        run(form, arrays, Schedule(32, 2, 1, 1, split=2))
