"""Kernels by mma.sync that convert their operands: float32 as tf32, float8 as 16 bits. What is decided and
refused, and what ptxas makes of it.

`tests/deep/kernels/emulated/test_tensor_mma_types_kernels.py` runs kernels on the CPU,
`tests/deep/kernels/gpu/test_gpu_tensor_mma_types.py` on a GPU, and `tests/kernels/emulated/test_tensor_lanes.py`
holds where
fragments lie.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble
from redalg.kernels.pipeline import mma_tiles, plan, wgmma_tiles
from redalg.kernels.schedule.target import A100, H200, L40S, Target
from redalg.kernels.tile.level.cascade_print import emit_tensor
from redalg.kernels.tile.match import Class, Outside
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from tests.deep.kernels.emulated.test_tensor_kernels import BATCH, SUM
from tests.deep.kernels.emulated.test_tensor_mma import A10, TARGETS, needs_ptxas
from tests.support.tensor_cases import CLASS, class_of, dtypes_of, form_of, outside, sizes_of, views_of

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"
TYPES: dict[str, dict[str, str]] = {
    "tf32": dict.fromkeys("QKVHEAB", "float32"),
    "cache": {"Q": "bfloat16", "E": "bfloat16", "K": E4M3, "V": E4M3, "H": E4M3, "A": "bfloat16", "B": E4M3},
    "values": {"Q": "float16", "K": "float16", "V": E5M2, "H": "float16", "E": E5M2},
    "all": {"Q": E5M2, "K": E4M3, "V": E4M3, "H": E4M3, "E": E4M3, "A": E5M2, "B": E4M3},
}
MMA = {"tf32": "tf32", "cache": "mma", "values": "mma", "all": "mma"}


def converted(text: str, types: str) -> Class:
    names = {t.name for t in form_of(text).spec.tensors}
    kinds = {n: k for n, k in TYPES[types].items() if n in names}
    return class_of(text, "float32" if types == "tf32" else "bfloat16", **kinds)


def prepared(
    text: str, types: str, target: Target = A100, i: int = 70, j: int = 150, d: int = 16, e: int = 16, **changes: Any
) -> tuple[Class, MmaPlan, dict[str, int]]:
    made = converted(text, types)
    sizes = dict.fromkeys((a for o in made.program.operands for a in o.axes), BATCH) | made.program.lengths
    sizes |= ({made.column: e} if made.column else {}) | {made.row: i, made.stream: j}
    for p, length in zip(made.products, (d, 2 * d), strict=False):
        sizes[made.program.inner.get(p.terms, p.terms)] = length
    made, tiles = mma_tiles(made, sizes, views_of(made.program, sizes), target, deterministic=True)
    if not tiles.uneven and "splits" in changes:
        changes["splits"] = min(changes["splits"], -(-j // tiles.columns))
    return made, replace(tiles, **changes), sizes


def inside(text: str, types: str) -> str:
    """Why a spec is outside of the class with these types; "" if it is inside."""
    try:
        converted(text, types)
    except Outside as why:
        return str(why)
    return ""


# --- what is decided -------------------------------------------------------------------------------------------------


def test_what_operands_are_multiplied_as() -> None:
    found = {types: converted("attention", types) for types in TYPES}
    assert {n: (c.multiplied, c.dtype) for n, c in found.items()} == {
        "tf32": ("tf32", "tf32"),
        "cache": ("bfloat16", "float16"),
        "values": ("float16", "float16"),
        "all": ("float16", "float16"),
    }
    assert all(c.converted for c in found.values()) and not class_of("attention").converted
    # weights that may be larger than 1 are no float16; bfloat16 holds the values as well
    assert converted("attention_relu", "cache").dtype == "bfloat16"
    assert "larger than 1" in outside("attention_relu", "float16")
    assert converted("attention", "cache").stored == ("bfloat16", E4M3, E4M3)


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", CLASS)
def test_the_catalog_is_in_the_class(name: str, types: str) -> None:
    if name == "splade" and types == "values":
        pytest.skip("it has no columns")
    assert inside(name, types) == ""


def test_types_that_do_not_go_together() -> None:
    assert "narrower" in outside("attention", Q=E4M3)
    assert "and" in outside("attention", Q="float16", K="bfloat16", V=E4M3)
    assert "the scores another" in outside("attention", V="float32")
    assert "the scores another" in outside("attention", Q=E4M3, K=E4M3, V="float32")
    assert "float32" in outside("attention", Q="float32", K=E4M3, V=E4M3)
    with pytest.raises(Outside, match="its contractions different ones"):
        class_of(SUM, A="bfloat16", B=E4M3)
    with pytest.raises(Outside, match="tf32 is what float32 is rounded to"):
        class_of("attention", "float32", Q="bfloat16")
    assert "schedule" in outside("attention", "float32")


def planned(target: Target, types: str, schedule: str | None = None, **changes: Any) -> Planned:
    form = form_of("attention")
    sizes = {"h": 4, "i": 1000, "j": 1000, "d": 64, "e": 64}
    views = {
        n: View.contiguous(tuple(sizes[a] for a in axes)) for n, axes in (("Q", "hid"), ("K", "hjd"), ("V", "hje"))
    }
    dtypes = dtypes_of(form.spec) | {n: k for n, k in TYPES[types].items() if n in "QKV"}
    return plan(form, dtypes, views | changes, target, schedule=schedule)


@pytest.mark.parametrize("target", [*TARGETS, H200], ids=lambda t: t.name)
@pytest.mark.parametrize("types", ["cache", "values", "all"])
def test_float8_takes_this_path_by_itself_everywhere(types: str, target: Target) -> None:
    for schedule in (None, "tensor", "mma"):
        found = planned(target, types, schedule)
        reasons = "\n".join(found.choice.reasons)
        assert "tensor cores by mma.sync" in reasons and "holds it exactly" in reasons and not found.maps
        assert "wgmma reads shared memory" in reasons and found.module.shared <= target.most_shared


@pytest.mark.parametrize("target", [*TARGETS, H200], ids=lambda t: t.name)
def test_float32_takes_it_where_it_is_asked_for(target: Target) -> None:
    found = planned(target, "tf32", "tf32")
    assert "mma.sync" in found.choice.reasons[0] and "rounded to tf32" in found.choice.reasons[1]
    assert "wgmma" in found.choice.reasons[2] and found.module.shared <= target.most_shared
    assert not any("tensor cores by" in line for line in planned(target, "tf32").choice.reasons)
    for schedule in ("tensor", "mma"):
        with pytest.raises(RedalgError) as error:
            planned(target, "tf32", schedule)
        assert 'schedule="tf32"' in error.value.why and schedule in error.value.what and error.value.fix


def test_what_is_refused_says_why() -> None:
    whole = (4, 1000, 64)
    cases: list[tuple[str, str, dict[str, View], Target]] = [
        ("cache", "tf32", {}, H200),
        ("cache", "frozen_max", {}, H200),
        ("tf32", "tf32", {"K": View(whole, (64000, 1, 1000), 256)}, A100),
        ("cache", "mma", {"K": View((4, 1000, 72), (72000, 72, 1), 256)}, A100),
        ("all", "mma", {"V": View(whole, (65000, 65, 1), 256)}, H200),
        ("tf32", "tf32", {}, replace(A100, name="T4", cc=(7, 5))),
    ]
    words = [
        "float32 is rounded to",
        "on its way to registers",
        "not contiguous",
        "stride of 72",
        "stride of 65",
        "7.5",
    ]
    for (types, schedule, changes, target), word in zip(cases, words, strict=True):
        with pytest.raises(RedalgError) as error:
            planned(target, types, schedule, **changes)
        assert word in error.value.why and schedule in error.value.what and error.value.fix and error.value.where
    for schedule in (None, "tensor"):  # the scores are a product of their own, on tensor cores
        said = planned(H200, "all", schedule, V=View(whole, (65000, 65, 1), 256)).choice.reasons
        assert said[0].startswith("in parts: ") and said[1].startswith("part1: ") and "tensor cores" in said[1]
        assert any("not on tensor cores: V has a stride of 65000 bytes" in line for line in said)
    with pytest.raises(Outside, match="on its way"):
        made = converted("attention", "cache")
        sizes = sizes_of(made)
        wgmma_tiles(made, sizes, views_of(made.program, sizes), H200)


def test_rows_of_8_bits_have_multiples_of_16_elements() -> None:
    assert prepared("attention", "cache", d=48, e=80)[1].bytes_each == (2, 1, 1)
    for sizes in ({"d": 24}, {"e": 40}):
        with pytest.raises(Outside, match="multiples? of 16"):
            prepared("attention", "cache", **sizes)
    assert prepared("attention", "tf32", d=24, e=40)[1].bytes_each == (4, 4, 4)


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("target", [*TARGETS, H200], ids=lambda t: t.name)
def test_tiles_fit_the_device_and_rows_change_no_order(target: Target, types: str) -> None:
    for terms, value_columns in ((16, 16), (64, 64), (80, 48), (128, 128), (192, 128), (256, 256)):
        columns = set()
        for rows in (1, 17, 64, 129, 4096):
            made = converted("attention_causal", types)
            sizes = sizes_of(made, terms, value_columns) | {made.row: rows}
            if types == "tf32" and terms == 256 and target.most_shared < 100 << 10:
                with pytest.raises(Outside, match="no tile fits"):
                    mma_tiles(made, sizes, views_of(made.program, sizes), target, True)
                continue
            found = mma_tiles(made, sizes, views_of(made.program, sizes), target, True)[1]
            columns.add((found.columns, found.stages))
            assert found.shared <= target.most_shared and found.rows < 2 * max(64, rows) and found.needed <= 216
            assert rows > 64 or found.rows == (16 if rows == 1 else 32 if rows == 17 else 64)
        assert len(columns) <= 1


def test_few_rows_are_spread_over_the_device() -> None:
    made = converted("attention_grouped_query", "cache")
    sizes = sizes_of(made, 128) | {made.row: 4, made.stream: 32768}
    tiles = mma_tiles(made, sizes, views_of(made.program, sizes), H200)[1]
    assert tiles.splits > 8 and tiles.warps == 1 and tiles.in_registers


# --- assembly --------------------------------------------------------------------------------------------------------

CAUSAL, FEW, SHORT = (
    ("attention_causal", 128, 4096),
    ("attention_grouped_query", 128, 4),
    ("attention_scaled", 64, 4096),
)
STANDARD = [(types, *CAUSAL, target) for types in ("tf32", "cache") for target in (A100, A10, L40S, H200)]
STANDARD += [("cache", *FEW, H200), ("tf32", *FEW, A100), ("all", *CAUSAL, H200), ("cache", *SHORT, A100)]


@needs_ptxas
@pytest.mark.parametrize("case", STANDARD, ids=lambda c: f"{c[0]} {c[1]} {c[4].name}")
def test_nothing_spills(case: tuple[str, str, int, int, Target]) -> None:
    types, name, terms, rows, target = case
    made = converted(name, types)
    sizes = sizes_of(made, terms) | {made.row: rows}
    made, tiles = mma_tiles(made, sizes, views_of(made.program, sizes), target, deterministic=True)
    found = assemble(emit_tensor(made, tiles), target.cc)
    assert found.registers * tiles.threads <= target.multiprocessor.registers
    assert (found.spill_stores, found.spill_loads) == (0, 0)
