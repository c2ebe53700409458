"""Matrix products by mma.sync in tiles of every shape: results are the definition, whatever is planned."""

from __future__ import annotations

from typing import Any

import pytest

from redalg.kernels.gemm import mma_tiles
from redalg.kernels.gemm.mma_tiles import DEPTHS, SHAPES, MmaGemm, MmaRounds, Warps
from redalg.kernels.launch.ptx import assemble, ptxas
from redalg.kernels.schedule.target import A100, H200, Target
from tests.kernels.emulated.test_mma_gemm import MAJOR
from tests.support.gemm_cases import BATCHED, BIASED, PLAIN, form_of, planned
from tests.support.mma_gemm_cases import TARGETS, check, drawn

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")
ALL = TARGETS | {"9.0": H200}
EDGES = ((1, 8, 16), (33, 77, 65), (130, 31, 8), (65, 128, 63))  # rows, terms, columns


@pytest.mark.parametrize("major", MAJOR)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_shape(shape: Warps, depth: int, major: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mma_tiles, "SHAPES", (shape,))
    monkeypatch.setattr(mma_tiles, "DEPTHS", (depth,))
    monkeypatch.setattr(mma_tiles, "NARROW", 128)
    monkeypatch.setattr(mma_tiles, "READING", mma_tiles.REGISTERS)
    sizes = {"i": 16 * shape.tall * shape.down + 3, "j": 2 * depth + 5, "k": shape.across * shape.wide + 7, "b": 2}
    for text in (PLAIN, BATCHED, BIASED) if major == "rows" else (PLAIN,):
        made = check(text, sizes, major=MAJOR[major], apart=5 if text == PLAIN else 0)
        assert f"{shape.down * shape.across} warps of {16 * shape.tall} rows" in made.choice.reasons[0]


@pytest.mark.parametrize("sizes", EDGES, ids=str)
@pytest.mark.parametrize("major", MAJOR)
def test_tiles_end_anywhere(major: str, sizes: tuple[int, int, int]) -> None:
    i, j, k = sizes
    for apart in (0, -j % 8, -i % 8, -k % 8):
        check(PLAIN, {"i": i, "j": j, "k": k}, major=MAJOR[major], apart=apart)


@pytest.mark.parametrize("name", ["layer_norm_gemm", "rms_norm_gemm", "absmax_int8_gemm"])
@pytest.mark.parametrize("device", ALL)
def test_what_comes_before_a_product(name: str, device: str) -> None:
    sizes = {"i": 40, "j": 72, "k": 56}
    given: dict[str, Any] = drawn(name, sizes) | {t.name: 1e-5 for t in form_of(name).spec.tensors if not t.axes}
    assert check(name, sizes, ALL[device], given=given, loose=1.0).before


# --- tiles -----------------------------------------------------------------------------------------------------------

SIZES = [(4096, 4096, 4096), (1024, 4096, 4096), (333, 1000, 777), (16, 4096, 4096), (64, 64, 64), (1, 1, 1)]


@pytest.mark.parametrize("device", ALL)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_plan_fits(sizes: tuple[int, int, int], device: str) -> None:
    target, (rows, columns, terms) = ALL[device], sizes
    for flat in (False, True):
        made = MmaRounds(("bfloat16", "bfloat16"), flat, not flat, rows, columns, terms, 1, target)
        plans = list(made.plans())
        for plan in plans:
            fits(plan, target)
        assert made.seconds(made.best()) == min(map(made.seconds, plans)) > 0


def fits(plan: MmaGemm, target: Target) -> None:
    own = target.multiprocessor
    assert plan.size <= target.most_shared and plan.resident * (plan.size + 1024) <= own.shared
    assert plan.resident * plan.threads * (plan.sums + mma_tiles.REGISTERS) <= own.registers and plan.stages >= 3
    for side in (0, 1):
        assert plan.apart(side) % 32 == 16 and plan.apart(side) >= 2 * plan.lines(side)[1]


def test_larger_tiles_where_shared_memory_is_larger() -> None:
    def best(target: Target) -> MmaGemm:
        return MmaRounds(("bfloat16", "bfloat16"), False, False, 4096, 4096, 4096, 1, target).best()

    assert best(A100).depth > best(TARGETS["8.9"]).depth


@needs_ptxas
@pytest.mark.parametrize("device", ALL)
@pytest.mark.parametrize("text", [PLAIN, BIASED])
def test_common_kernels_spill_nothing(text: str, device: str, monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setenv("REDALG_CACHE_DIR", str(tmp_path))
    target = ALL[device]
    for i, j, k in ((4096, 4096, 4096), (333, 777, 1000)):
        made = planned(text, {"i": i, "j": j, "k": k}, target=target, schedule="mma")
        found = assemble(made.module, target.cc)
        assert found.registers <= 255 and found.spill_stores == found.spill_loads == found.stack == 0
