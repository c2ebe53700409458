"""Kernels of tile programs as ptxas sees them: no serialised products, few spills, registers of a launch."""

from __future__ import annotations

import pytest

from redalg.kernels.launch.ptx import _report, assemble, ptxas
from redalg.kernels.schedule.target import A100, L40S, Target
from tests.support.level_cases import drafted

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")
SIZES = {"h": 4, "i": 4096, "j": 4096, "m": 4096, "n": 4096}
SPILT = {("attention_causal K", 128): 200}  # bytes of stores and loads


@needs_ptxas
@pytest.mark.parametrize(("name", "d"), [("attention_causal Q", 128), ("attention_causal K", 128), ("chain", 64)])
def test_products_overlap_and_registers_suffice(name: str, d: int) -> None:
    found = assemble(drafted(name, SIZES | dict.fromkeys("dekl", d)).module, (9, 0))
    assert not found.serialised and found.registers <= 168
    assert found.spill_stores + found.spill_loads <= SPILT.get((name, d), 0)


@needs_ptxas
@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize(
    "name", ["attention_causal Q", "attention_causal K", "attention_softcap K", "attention_alibi Q"]
)
@pytest.mark.parametrize("target", [A100, L40S], ids=lambda t: t.name)
def test_by_mma_sync_nothing_is_spilt(target: Target, name: str, d: int) -> None:
    found = assemble(drafted(name, SIZES | dict.fromkeys("dekl", d), target=target).module, target.cc)
    assert found.registers <= 255 and found.spill_stores + found.spill_loads == 0


def test_a_warning_of_serialised_products_is_read() -> None:
    warning = "(C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ..."
    assert _report("k", warning).serialised and not _report("k", "Used 168 registers").serialised
