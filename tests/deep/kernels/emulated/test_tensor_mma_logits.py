"""Kernels by mma.sync without columns, run on the CPU: positions, lists of the largest, masks as bits.

The specs and what they are given are those of `tests/deep/kernels/print/test_tensor_logits.py`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.schedule.target import A100
from redalg.kernels.tile.mma_sync_plan import long_mma
from tests.deep.kernels.print import test_tensor_logits as logits
from tests.support.tensor_cases import form_of
from tests.support.tensor_emulated import Emulated


@pytest.mark.parametrize("tall, j", [(1, 129), (2, 140)])
@pytest.mark.parametrize("name", logits.SPECS)
def test_positions_lists_and_masks(name: str, tall: int, j: int) -> None:
    """Whole numbers, exact in every type, with many ties: what is found has to be what the definition says."""
    text = logits.SPECS[name]
    made, _, sizes = logits.prepared(text, 70, j)
    made, tiles = long_mma(made, sizes, 8, A100)
    arrays = logits.drawn(made, sizes)
    found = Emulated(made, replace(tiles, tall=tall, warps=4), arrays).run([(-1, 0, 0), (-1, 3, 0)])
    doubled = {n: a.astype(float) if np.ndim(a) and a.dtype.kind == "f" else a for n, a in arrays.items()}
    spec = form_of(text).spec
    true = ra.reference(spec, **doubled)
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    rows = [0, 5, 8, 15, 48, 63] if tall == 1 else [0, 5, 8, 31]
    for output, value in true.items():
        np.testing.assert_array_equal(found[output][rows], np.asarray(value, float)[rows], err_msg=output)
