"""A frozen maximum: rows are the definition, or their warps raise flags, and the second kernel gives the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.pipeline import wgmma_tiles
from redalg.kernels.schedule.target import H200
from redalg.kernels.tile.plan import Anchor, Fallback, Frozen
from tests.support.sample import deep
from tests.support.tensor_cases import class_of, form_of, views_of
from tests.support.tensor_emulated import Emulated

MEAN = "O = sum[j](exp(u - m)*V[j,e])/sum[j](exp(u - m))"
SIZES = {"i": 16, "j": 130, "d": 16, "e": 16}
# of the values, and how much larger scores are in a block that is visited later
CASES = [(1.0, 0.0, False), (1e28, 30.0, True), *deep([(1e28, 10.0, False), (1e20, 43.0, True), (1.0, 60.0, True)])]


@pytest.mark.parametrize("result", [MEAN, *deep([f"O = tanh({MEAN[4:]})"])])
@pytest.mark.parametrize("size, step, noted", CASES)
def test_rows_are_right_or_repeated(size: float, step: float, noted: bool, result: str) -> None:
    """Weights larger than 1 times large values may overflow where their sum does not."""
    text = f"u = sum[d](Q[i,d]*K[j,d]) + b[j]; m = max[j](u); return {result}"
    made = class_of(text)
    made, plan = wgmma_tiles(made, SIZES, views_of(made.program, SIZES), H200, deterministic=True)
    rng = np.random.default_rng(5)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in (("Q", (16, 16)), ("K", (130, 16)))}
    arrays |= {"V": (size * rng.standard_normal((130, 16))).astype(np.float32)}
    arrays |= {"b": np.where(np.arange(130) < 40, step, 0).astype(np.float32)}
    wanted = ra.reference(form_of(text).spec, **arrays)[0]
    anchors: list[Anchor] = [Fallback(), Frozen()]
    for anchor in anchors:
        quads = Emulated(made, replace(plan, anchor=anchor, staged=False), arrays, blocks=1, rounds=True)
        quads.flags[:] = 1
        found = quads.run([(0, 0, 0)])["O"][0]
        if isinstance(anchor, Fallback) or not quads.flags[0]:
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2.0**-7 * abs(wanted).max())
    assert quads.flags[0] == noted
