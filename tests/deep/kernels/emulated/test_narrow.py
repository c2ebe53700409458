"""Products of few rows by emulation: clusters that share an operand, that split the terms, that multiply gates; and
that a broken exchange is seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from redalg.errors import RedalgError
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.narrow import Narrow
from redalg.kernels.gemm.tiles import GemmPlan, Sharing
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Tile
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from tests.support.chain_cases import drawn, emulated, form_of, planned, truth

SIZES = {"m": 72, "k": 200, "n": 136, "l": 72, "o": 16, "p": 2}
Plan = tuple[int, int, int, int]  # warpgroups, columns, blocks that share (the right operand: negative) and that split


def forced(monkeypatch: pytest.MonkeyPatch, want: Plan) -> list[GemmPlan]:
    """Plans like this one, wherever it is legal."""
    taken: list[GemmPlan] = []
    real = passes.narrow

    def pick(made: Narrow) -> GemmPlan | None:
        shared = Sharing(-want[2]) if want[2] < 0 else Sharing(want[2], Tile.LEFT) if want[2] > 1 else Sharing()
        found = [
            p for p in made.plans() if (p.consumers, p.columns, p.sharing, p.split) == (*want[:2], shared, want[3])
        ]
        taken.extend(found)
        return found[0] if found else real(made)

    monkeypatch.setattr(passes, "narrow", pick)
    return taken


@pytest.mark.parametrize(
    ("name", "rows", "want"),
    [
        ("gated", 72, (2, 32, 2, 2)),
        ("gated", 72, (1, 64, 4, 1)),
        ("relu", 72, (2, 64, 1, 4)),
        ("glu", 72, (1, 48, 2, 1)),
        ("glu", 72, (2, 48, 1, 2)),
        ("glus", 72, (1, 64, 1, 2)),
        ("batched", 72, (2, 64, 2, 2)),
        ("three", 72, (1, 64, 1, 2)),
        ("glu", 140, (3, 48, 1, 1)),
        ("relu", 140, (3, 64, 2, 2)),
        ("gated", 140, (3, 32, 2, 1)),
        ("glu", 200, (4, 48, 2, 2)),
        ("relu", 200, (4, 64, 1, 1)),
        ("relu", 180, (2, 128, -2, 1)),
        ("glu", 140, (2, 48, -2, 2)),
        ("glu", 100, (1, 48, -2, 1)),
    ],
)
def test_clusters_give_the_definition(name: str, rows: int, want: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Roundings as in `test_chains`; the order of threads changes nothing."""
    taken = forced(monkeypatch, want)
    sizes = SIZES | {"m": rows}
    given = drawn(name, sizes)
    made = planned(name, sizes)
    assert taken
    found = emulated(made, given, seed=3)
    for n, expected in truth(name, given).items():
        bound = 2**-9 * np.abs(expected) + 2**-9 * 4 * np.sqrt(np.mean(expected**2)) * np.sqrt(SIZES["n"])
        assert found[n].shape == expected.shape
        assert (np.abs(found[n] - expected) <= bound).all()


def test_sums_of_a_split_do_not_depend_on_the_order_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, (1, 32, 1, 4))
    sizes = SIZES | {"m": 16, "n": 264, "l": 24}
    given, made = drawn("relu", sizes), planned("relu", sizes)
    first, second = (emulated(made, given, seed)["E"] for seed in (1, 2))
    assert np.array_equal(first, second)


def test_a_gate_is_one_kernel_and_its_products_another_where_layouts_differ() -> None:
    made = planned("glu", SIZES)
    assert not made.before and "2 products of the left operand" in " ".join(made.choice.reasons)
    assert "keep the laws" in " ".join(made.choice.reasons) and "refused: " in " ".join(made.choice.reasons)
    assert len(planned("glus", SIZES).maps) == 4
    form = form_of("glu")
    views = {t.name: View.contiguous(tuple(SIZES[a] for a in t.axes)) for t in form.spec.tensors}
    views["C"] = View(views["C"].shape, (1, SIZES["n"]))
    assert len(plan(form, dict.fromkeys(views, "bfloat16"), views, H200, schedule="tensor").before) == 1


BROKEN = {
    "no partial sums": ("mbarrier_arrive_peer(exchanged, 2 + among, leader)", "mbarrier_arrive_peer(exchanged, 0, 0)"),
    "another block's": ("target = 2 + among", "target = 0 + among"),
    "not awaited": ("mbarrier_wait_cluster(exchanged, 0)", "mbarrier_wait_cluster(exchanged, 1)"),
    "not given back": ("mbarrier_arrive_peer(empty + 8 * before, 2 * piece + 1, leader)", "before = before"),
    "one piece's terms": ("term = opaque(piece * ", "term = opaque(0 * "),
    "one block's part": ("3 << (2 * piece)", "1 << (2 * piece)"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_exchange_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, (1, 32, 2, 2))
    sizes = SIZES | {"m": 16, "k": 712, "n": 100}
    given, made = drawn("glu", sizes), planned("glu", sizes)
    old, new = BROKEN[name]
    assert made.geometry.cluster == 4 and old in made.module.source
    module = replace(made.module, source=made.module.source.replace(old, new))
    made = replace(made, kernel=made.kernel._replace(module=module))
    expected = truth("glu", given)["H"]

    def seen(run: Callable[[], np.ndarray]) -> bool:
        try:
            return not (np.abs(run() - expected) <= 0.1 * np.abs(expected).max()).all()
        except (RedalgError, AssertionError):
            return True

    assert any(seen(lambda seed=seed: emulated(made, given, seed)["H"]) for seed in range(4))


@pytest.mark.skipif(ptxas() is None, reason="ptxas was not found")
@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (128, (2, 128, 1, 1)),
        (128, (2, 96, 4, 1)),
        (128, (1, 128, 1, 8)),
        (128, (2, 64, 2, 4)),
        (180, (3, 80, 2, 1)),
        (256, (4, 48, 1, 2)),
        (256, (2, 96, -2, 1)),
    ],
)
def test_kernels_assemble_without_spills(rows: int, want: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    forced(monkeypatch, want)
    made = planned("gated", {"m": rows, "k": 2048, "n": 1024, "l": 512, "o": 64, "p": 1})
    for kernel in (made, *made.before):
        assembled = assemble(kernel.module, H200.cc, kernel.choice.registers)
        assert assembled.spill_stores == assembled.spill_loads == 0


@pytest.mark.parametrize(("rows", "deep", "split"), [(1, 4, 1), (5, 2, 2), (16, 4, 2), (40, 2, 1)])
def test_few_rows_are_brought_alone_and_chunks_are_deep(
    rows: int, deep: int, split: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies behind the rows is multiplied, too: it is NaN in the emulator, and nothing of it is written."""
    real = passes.narrow

    def pick(made: Narrow) -> GemmPlan | None:
        found = [p for p in made.plans() if (p.deep, p.split, p.sharing.blocks) == (deep, split, 1)]
        return found[0] if found else real(made)

    monkeypatch.setattr(passes, "narrow", pick)
    sizes = SIZES | {"m": rows, "k": 520, "n": 40}
    made, given = planned("glu", sizes), drawn("glu", sizes)
    assert f"a_rows={-(-rows // 8) * 8}" in made.module.source
    expected, found = truth("glu", given)["H"], emulated(made, given, seed=1)["H"]
    assert (np.abs(found - expected) <= 2**-8 * np.abs(expected) + 2**-8 * np.sqrt(np.mean(expected**2))).all()
