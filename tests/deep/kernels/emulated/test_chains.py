"""Chains of matrix products: kernel after kernel by emulation, against the definition; what is planned and why."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.gemm import passes, tiles
from redalg.kernels.gemm.chain_plan import Chain, Pair
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from tests.support.chain_cases import CHAINS, drawn, emulated, form_of, planned, truth

SMALL = {"m": 24, "k": 72, "n": 40, "l": 56, "o": 16, "p": 2}
LARGE = {"m": 128, "k": 2048, "n": 5632, "l": 2048, "o": 1024, "p": 4}


@pytest.mark.parametrize("name", CHAINS)
def test_kernel_after_kernel_gives_the_definition(name: str) -> None:
    """An operand between two products is rounded once to bfloat16 (2⁻⁹), the result once more; slopes are below 2."""
    given = drawn(name, SMALL)
    found = emulated(planned(name, SMALL), given)
    for n, expected in truth(name, given).items():
        bound = 2**-9 * np.abs(expected) + 2**-9 * 4 * np.sqrt(np.mean(expected**2)) * np.sqrt(SMALL["n"])
        assert found[n].shape == expected.shape
        assert (np.abs(found[n] - expected) <= bound).all(), float(np.max(np.abs(found[n] - expected) / bound))


@pytest.mark.parametrize(("name", "kernels"), [("relu", 2), ("gated", 2), ("biased", 2), ("three", 3), ("batched", 2)])
def test_a_chain_is_planned_as_products_unasked(name: str, kernels: int) -> None:
    """Not as rows of ordinary arithmetic, which the model predicts to be a thousand times slower."""
    made = planned(name, LARGE, schedule=None)

    def count(p: object) -> int:
        return 1 + sum(count(b) for b in p.before)

    assert count(made) == kernels
    assert made.choice.seconds < 1e-3
    assert any("prepared before the product" in line for line in made.choice.reasons)


def test_what_lies_between_products_and_is_far_larger_than_they_are_is_refused() -> None:
    """Scores of long sequences: several times the queries, keys and values are no chain, but may lie between parts."""
    form = form_of("batched")
    for length, parts in ((8192, True), (32768, False)):
        sizes = {"p": 4, "m": length, "k": 64, "n": length, "l": 600}
        views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors}
        call = form, dict.fromkeys(views, "bfloat16"), views, H200
        if parts:
            assert plan(*call, schedule="tensor").choice.reasons[0].startswith("in parts")
            continue
        with pytest.raises(RedalgError, match="chained"):
            plan(*call, schedule="tensor")


def test_float16_between_products_is_asked_for() -> None:
    """It may be too large for float16: without being asked, no chain is taken, and parts leave each other float32."""
    made = planned("gated", LARGE, "float16", None)
    assert made.before
    assert {o.dtype for o, _ in made.scratch.values()} == {"float32"}
    assert planned("gated", SMALL, "float16").before


def test_three_products_in_one_launch_are_refused() -> None:
    with pytest.raises(RedalgError, match="before either product"):
        planned("three", LARGE, schedule="fused_prologue")


@pytest.mark.skipif(ptxas() is None, reason="ptxas was not found")
@pytest.mark.parametrize("name", ("gated", "three"))
def test_kernels_assemble_without_spills(name: str) -> None:
    def every(p: object) -> list:
        return [p, *(x for b in p.before for x in every(b))]

    for made in every(planned(name, LARGE)):
        assembled = assemble(made.module, H200.cc, made.choice.registers)
        assert assembled.spill_stores == assembled.spill_loads == 0


def test_catalog_scores_with_a_stage_stay_attention() -> None:
    """Softmax is no chain: its weights read a stage over the keys."""
    form = ra.derive_incremental(ra.catalog["attention"])
    sizes = {"h": 2, "i": 256, "j": 256, "d": 64, "e": 64}
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in form.spec.tensors if t.axes}
    dtypes = {t.name: "bfloat16" if t.axes else float for t in form.spec.tensors}
    assert not plan(form, dtypes, views, H200).before


@pytest.mark.parametrize(
    ("name", "rows", "split"), [("gated", 5, (1, 2)), ("relu", 16, (2, 1)), ("biased", 72, (1, 1))]
)
def test_a_chain_in_one_kernel_gives_the_definition(
    name: str, rows: int, split: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks meet between the products, and leave the counters at zero."""

    def pick(chain: Chain) -> Pair | None:
        return min((x for x in chain.legal() if (x[0].split, x[1].split) == split), key=chain.seconds)

    monkeypatch.setattr(passes, "best", pick)
    sizes = {"m": rows, "k": 200, "n": 136, "l": 72, "o": 16, "p": 2}
    given, made = drawn(name, sizes), planned(name, sizes, schedule="fused_prologue")
    assert not made.before and made.geometry.waiting == 2 and "counter_wait_acquire" in made.module.source
    found = emulated(made, given, seed=2)
    for n, expected in truth(name, given).items():
        bound = 2**-9 * np.abs(expected) + 2**-9 * 4 * np.sqrt(np.mean(expected**2)) * np.sqrt(sizes["n"])
        assert (np.abs(found[n] - expected) <= bound).all()


# --- products of one left operand, multiplied by one instruction ------------------------------------------------------


def assert_defined(name: str, made: Planned, sizes: dict[str, int], seed: int = 0) -> None:
    given = drawn(name, sizes)
    found = emulated(made, given, seed=seed)
    for n, expected in truth(name, given).items():
        bound = 2**-9 * np.abs(expected) + 2**-9 * 4 * np.sqrt(np.mean(expected**2)) * np.sqrt(sizes["n"])
        assert (np.abs(found[n] - expected) <= bound).all(), n


GATES = {"glu": (2, False), "gate": (2, True), "glus": (3, True)}  # products, whether columns lie contiguous


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("paired", [False, True])
def test_gates_by_every_tile_give_the_definition(name: str, paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right operands that lie one behind the other in a stage, of every width, alone and in pairs of blocks."""
    products, flat = GATES[name]
    sizes, seen = {"m": 210, "k": 72, "n": 152}, []
    monkeypatch.setattr(passes, "narrow", lambda made: None)
    monkeypatch.setattr(tiles.Rounds, "_pairs", lambda case, plan, shared: paired)
    for shape in tiles.shapes(False, True, products, flat):
        if paired and flat and shape[2] // 64 % 2:
            continue  # a box of 64 columns is not halved
        monkeypatch.setattr(tiles, "shapes", lambda *how, shape=shape: iter([shape]))
        made = planned(name, sizes)
        text = made.module.source
        assert f"tile_product({shape[2] * products}, 64" in text and f"tiles={products}" in text
        assert (made.geometry.cluster == 2) is paired
        assert_defined(name, made, sizes, seed=shape[2])
        seen.append(shape)
    assert len(seen) >= (0 if paired and name == "glus" else 2)


@pytest.mark.parametrize(("deep", "split"), [(2, 1), (4, 1), (2, 2), (1, 4)])
def test_gates_of_few_rows_give_the_definition(deep: int, split: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of several pieces of 128 bytes of every row, of all right operands; sums of pieces of the terms."""

    def pick(made: Narrow) -> GemmPlan:
        found = (p for p in made.plans() if (p.deep, p.split, p.sharing.blocks) == (deep, split, 1))
        return min(found, key=made.seconds)

    monkeypatch.setattr(passes, "narrow", pick)
    sizes = {"m": 5, "k": 584, "n": 88}
    made = planned("glu", sizes)
    assert f"CHUNKS = {-(-584 // (64 * deep))}\n" in made.module.source
    assert_defined("glu", made, sizes)
