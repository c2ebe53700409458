"""What printed kernels for mma.sync compute beside the definition, run on the CPU by
`tests/support/tensor_emulated.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.program import Module
from redalg.kernels.pipeline import mma_tiles
from redalg.kernels.schedule.target import A100, Target
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from tests.deep.kernels.emulated.test_tensor_kernels import APART, BATCH, SUM, bound, drawn
from tests.deep.kernels.print.test_tensor_class import INSIDE
from tests.support.tensor_cases import CLASS, class_of, form_of, views_of
from tests.support.tensor_emulated import Emulated

PLACES = [(-1, 0, 0), (-1, 3, 5)]  # quads of the first warp and of the fourth


def prepared(
    text: str, target: Target = A100, i: int = 70, j: int = 150, d: int = 16, e: int = 16, r: int = 16, **changes: Any
) -> tuple[Class, MmaPlan, dict[str, int]]:
    made = class_of(text)
    sizes = dict.fromkeys((a for o in made.program.operands for a in o.axes), BATCH) | made.program.lengths
    sizes |= ({made.column: e} if made.column else {}) | {made.row: i, made.stream: j}
    for p, length in zip(made.products, (d, r), strict=False):
        sizes[made.program.inner.get(p.terms, p.terms)] = length
    made, tiles = mma_tiles(made, sizes, views_of(made.program, sizes), target, deterministic=True)
    if not tiles.uneven and "splits" in changes:  # as `best_splits` has it
        changes["splits"] = min(changes["splits"], -(-j // tiles.columns))
    return made, replace(tiles, **changes), sizes


def judge(text: str, seed: int = 1, given: Mapping[str, Any] | None = None, spread: float = 1.0, **more: Any) -> None:
    """Run some rows of every tile; compare them with the definition."""
    made, tiles, sizes = prepared(text, **more)
    arrays = drawn(made, sizes, seed, spread) | (given or {})
    compare(Emulated(made, tiles, arrays), arrays, text)


def compare(quads: Emulated, arrays: Mapping[str, Any], text: str) -> None:
    made, tiles, spec = quads.made, quads.plan, form_of(text).spec
    places = [(team, warp, 0) for team, warp, _ in PLACES] if quads.size > 4 else PLACES
    found = quads.run(places)
    doubled = {n: a.astype(float) if np.ndim(a) and a.dtype.kind == "f" else a for n, a in arrays.items()}
    true = ra.reference(spec, **doubled)
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    most = bound(made, arrays)
    for r in made.program.results:
        at = r.axes.index(made.row)
        size = found[r.name].shape[at]
        rows = {
            t + 16 * tiles.tall * warp + row + 8 * k
            for t in range(0, size, tiles.rows)
            for _, warp, first in places
            for row in range(first, first + quads.size // 4)
            for k in range(tiles.held)
        }
        here = sorted(x for x in rows if x < size)
        ours, theirs = (np.take(np.asarray(x, float), here, at) for x in (found[r.name], true[r.name]))
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs), err_msg=r.name)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=most, err_msg=r.name)


KNOWN = {n: t for n, t in INSIDE.items() if n not in APART}


@pytest.mark.parametrize("text", [*CLASS, *KNOWN.values()], ids=[*CLASS, *KNOWN])
def test_every_kernel_of_the_class(text: str) -> None:
    judge(text)


SHAPES = [
    {"tall": 1, "warps": 8, "columns": 64, "stages": 2, "in_registers": True},
    {"tall": 1, "warps": 4, "columns": 32, "stages": 3, "in_registers": False},
    {"tall": 2, "warps": 4, "columns": 48, "stages": 2, "in_registers": False},
    {"tall": 2, "warps": 4, "columns": 16, "stages": 4, "in_registers": True},
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: " ".join(map(str, s.values())))
@pytest.mark.parametrize("name", ["attention_causal", "attention_bias", "attention_sink", "attention_window"])
def test_tiles_of_any_shape(name: str, shape: dict[str, Any]) -> None:
    judge(name, i=150, j=170, d=24, e=40, spread=0.5, **shape)


@pytest.mark.parametrize("i, j", [(1, 300), (9, 117), (64, 63), (65, 128), (130, 129)])
@pytest.mark.parametrize("name", ["attention_causal", "attention_masked"])
def test_lengths_that_divide_nothing(name: str, i: int, j: int) -> None:
    judge(name, i=i, j=j, d=256 if i < 10 else 24, seed=i)


@pytest.mark.parametrize("splits, j", [(2, 150), (3, 300), (5, 129)])
@pytest.mark.parametrize("name", ["attention_causal", "attention_window", "attention_with_lse", "splade"])
def test_splits_of_the_stream(name: str, splits: int, j: int) -> None:
    """Unequal ones; where a condition leaves fewer blocks than splits, some are empty."""
    judge(name, i=9, j=j, d=128, spread=0.5, splits=splits)


@pytest.mark.parametrize("d", [8, 72, 128, 200])
def test_contractions_in_chunks(d: int) -> None:
    judge("splade", i=70, j=150, d=d, spread=0.5)
    judge("splade", i=70, j=150, d=d, spread=0.5, stages=3, warps=4)


@pytest.mark.parametrize("scale", [-0.7, 0.0, 0.3])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: " ".join(map(str, s.values())))
def test_scales_of_either_sign(shape: dict[str, Any], scale: float) -> None:
    judge("attention_scaled", given={"scale": scale}, **shape)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: " ".join(map(str, s.values())))
@pytest.mark.parametrize("i, j", [(30, 117), (150, 170)])
def test_sums_of_contractions(i: int, j: int, shape: dict[str, Any]) -> None:
    """Terms of both lie side by side in a tile; neither is a multiple of 16."""
    judge(SUM, i=i, j=j, d=40, r=24, spread=0.5, **shape)
    judge(SUM.replace("+ bias[h,j] ", "").replace(", bias[h,j]", ""), i=i, j=j, d=24, r=8, spread=0.5, splits=2)


WRONG = [
    ("cp_async_wait(0)", "cp_async_wait(1)"),
    ("right_at + read_at", "right_at + STAGE - read_at"),
    ("values_at + read_at", "values_at"),
    ("if prefetch_block >= low", "if prefetch_block > low"),
    ("^ sign_bits", ""),
    ("size_j - prefetch_block * COLUMNS", "size_j"),
    ("prefetch_block * (COLUMNS * V_s1)", "prefetch_block * (COLUMNS * K_s1)"),
    ("(k >> 1) & 3]", "(k >> 1) & 1]"),
]


@pytest.mark.parametrize("case", WRONG, ids=[f"{new or 'without'}" for _, new in WRONG])
def test_a_kernel_with_a_mistake_is_noticed(case: tuple[str, str]) -> None:
    old, new = case
    made, tiles, sizes = prepared("attention_scaled", i=200, j=300, e=24)
    arrays = drawn(made, sizes, 1) | {"scale": -0.7}
    quads = Emulated(made, tiles, arrays)
    text = quads.module.source
    assert old in text
    text = text.replace(old, new).replace("STAGE", str(tiles.stage_bytes))
    quads.module = Module(text, *[getattr(quads.module, f) for f in ("entry", "params", "threads", "shared")])
    with pytest.raises((AssertionError, RedalgError)):
        compare(quads, arrays, "attention_scaled")
