"""Kernels by mma.sync without a GPU: what is decided and refused, and what ptxas makes of them.

`tests/deep/kernels/emulated/test_tensor_mma_kernels.py` runs them on the CPU,
`tests/deep/kernels/gpu/test_gpu_tensor_mma.py` on
a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.pipeline import mma_tiles, plan
from redalg.kernels.schedule.target import A100, H200, L40S, Target
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import Outside
from tests.deep.kernels.emulated.test_tensor_kernels import SUM
from tests.support.tensor_cases import class_of, dtypes_of, form_of, sizes_of, views_of

A10 = replace(L40S, name="A10", cc=(8, 6))
BLACKWELL = H200.having(name="RTX 5090", cc=(12, 0), shared=100 << 10)
TARGETS = (A100, A10, L40S, BLACKWELL)
needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")


def tiles_of(
    name: str, target: Target, terms: int = 128, value_columns: int | None = None, kind: str = "bfloat16"
) -> Any:
    made = class_of(name, kind)
    sizes = sizes_of(made, terms, value_columns)
    return mma_tiles(made, sizes, views_of(made.program, sizes), target, deterministic=True)  # without splits


# --- decisions -------------------------------------------------------------------------------------------------------


def planned(target: Target, schedule: str | None = None, **changes: Any) -> Planned:
    form = form_of("attention")
    sizes = {"h": 4, "i": 1000, "j": 1000, "d": 64, "e": 64}
    views = {
        n: View.contiguous(tuple(sizes[a] for a in axes)) for n, axes in (("Q", "hid"), ("K", "hjd"), ("V", "hje"))
    }
    return plan(form, dtypes_of(form.spec), views | changes, target, schedule=schedule)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_devices_other_than_hopper_take_this_path_by_themselves(target: Target) -> None:
    for schedule in (None, "tensor", "mma"):
        found = planned(target, schedule)
        assert "tensor cores by mma.sync" in found.choice.reasons[0]
        assert f"{16 if 'of 16 rows' in found.choice.reasons[0] else 32} rows of i" in "".join(found.choice.reasons)
        assert "mma" in found.module.source and "barrier_" not in found.module.source and not found.maps
        assert found.module.shared <= target.most_shared and found.geometry.threads == found.module.threads
    assert planned(target).geometry.blocks == found.fixed["tiles"]


def test_hopper_takes_it_where_it_is_asked_for() -> None:
    assert "mma.sync" not in planned(H200).choice.reasons[0] and planned(H200).maps
    assert "mma.sync" in planned(H200, "mma").choice.reasons[0]


@pytest.mark.parametrize("schedule", ["tensor", "mma", "frozen_max"])
def test_devices_without_such_tensor_cores_are_refused(schedule: str) -> None:
    with pytest.raises(RedalgError) as error:
        planned(replace(A100, name="T4", cc=(7, 5)), schedule)
    assert "7.5" in error.value.why and schedule in error.value.what and error.value.fix


def test_an_anchor_that_stays_is_hopper_s() -> None:
    with pytest.raises(RedalgError) as error:
        planned(A100, "frozen_max")
    assert "9.0" in error.value.why


def test_strides_that_copies_of_16_bytes_do_not_fit_are_refused() -> None:
    whole = (4, 1000, 64)
    wrong = {
        "contiguous": View(whole, (64000, 1, 1000), 256),
        "stride of 130": View(whole, (65000, 65, 1), 256),
        "multiples of 16": View(whole, (64000, 64, 1), 8),
    }
    for word, view in wrong.items():
        for name in "QKV":
            with pytest.raises(RedalgError) as error:
                planned(A100, "mma", **{name: view})
            assert word in error.value.why and name in error.value.why
            reasons = planned(A100, **{name: view}).choice.reasons  # scores, then a product with their weights
            said = f"not on tensor cores: {error.value.why}"
            assert reasons[0].startswith("in parts") or any(r.startswith(said) for r in reasons)
    for view in (View(whole, (64, 256, 1), 16), View(whole, (0, 64, 1), 16), View(whole, (-64000, 64, 1), 16)):
        assert "mma.sync" in planned(A100, "mma", K=view).choice.reasons[0]


def test_the_order_of_a_row_does_not_follow_from_the_number_of_rows() -> None:
    made = class_of("attention_causal")
    for target in TARGETS:
        columns = set()
        for rows in (1, 33, 64, 129, 4096):
            sizes = sizes_of(made, 64) | {made.row: rows}
            found = mma_tiles(made, sizes, views_of(made.program, sizes), target)[1]
            columns.add((found.columns, found.stages))
            assert found.rows < 2 * max(64, rows)
        assert len(columns) == 1


def test_few_rows_are_spread_over_the_device() -> None:
    made = class_of("attention_grouped_query")
    sizes = sizes_of(made, 128) | {made.row: 8, made.stream: 32768}
    views = views_of(made.program, sizes)
    tiles = mma_tiles(made, sizes, views, A100)[1]
    assert tiles.splits > 1 and tiles.rows == 64
    assert mma_tiles(made, sizes, views, A100, deterministic=True)[1] == replace(tiles, splits=1)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_tiles_fit_the_device(target: Target) -> None:
    for terms, value_columns in ((8, 8), (64, 64), (80, 40), (128, 128), (192, 128), (256, 256)):
        for name in ("attention_causal", "attention_bias"):
            found = tiles_of(name, target, terms, value_columns)[1]
            assert found.shared <= target.most_shared and found.columns % 16 == 0 and found.stages >= 2
    assert tiles_of("splade", target)[1].shared <= target.most_shared
    with pytest.raises(Outside, match="264"):
        tiles_of("attention", target, 264)


# --- assembly --------------------------------------------------------------------------------------------------------

STANDARD = [("attention_causal", 128), ("attention_scaled", 64), ("attention_with_lse", 128), ("splade", 768)]
OTHERS = [("attention_bias", 128), ("attention_alibi", 96), ("attention_masked", 80), ("attention_causal", 192)]


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS[:3], ids=lambda t: t.name)
@pytest.mark.parametrize("case", STANDARD, ids=lambda c: f"{c[0]} {c[1]}")
def test_nothing_spills(case: tuple[str, int], target: Target) -> None:
    name, terms = case
    made, tiles = tiles_of(name, target, terms)
    found = assemble(emit_tensor(made, tiles), target.cc)
    assert found.registers * tiles.threads <= target.multiprocessor.registers
    assert (found.spill_stores, found.spill_loads) == (0, 0)


@needs_ptxas
@pytest.mark.parametrize("target", [A100, L40S], ids=lambda t: t.name)
def test_sums_of_contractions_do_not_spill(target: Target) -> None:
    made = class_of(SUM)
    sizes = sizes_of(made, 64) | {p.terms: n for p, n in zip(made.products, (64, 40), strict=True)}
    made, tiles = mma_tiles(made, sizes, views_of(made.program, sizes), target, deterministic=True)
    assert (tiles.widths, tiles.terms, tiles.given) == ((64, 40), 112, 104)
    assert tiles.parts == ((0, 64, 64), (64, 40, 48)) and tiles.shared <= target.most_shared
    found = assemble(emit_tensor(made, tiles), target.cc)
    assert (found.spill_stores, found.spill_loads) == (0, 0)


def test_sums_of_contractions_without_columns_are_refused() -> None:
    made = class_of(SUM.replace("O = sum[j](p * V[h,j,e]) / sum[j](p)", "l = sum[j](p)").replace(", V[h,j,e]", ""))
    sizes = sizes_of(made, 64)
    with pytest.raises(Outside, match="one contraction, not 2"):
        mma_tiles(made, sizes, views_of(made.program, sizes), A100)


@needs_ptxas
@pytest.mark.parametrize("case", OTHERS, ids=lambda c: f"{c[0]} {c[1]}")
def test_other_heads_and_loads_do_not_spill_either(case: tuple[str, int]) -> None:
    test_nothing_spills(case, L40S)
