"""What NVVM and ptxas make of sums as pairs: kernels assemble, in registers, and nothing fuses a sum and a product."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.ptx import assemble, ptx_of, ptxas
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from tests.support.forms import form_of_text
from tests.support.sums_of_pairs import TEXTS

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is not installed (the package nvidia-cuda-nvcc)")


@needs_ptxas
@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_assemble(name: str, dtype: str) -> None:
    form = replace(form_of_text(TEXTS[name], "j"), accuracy="compensated")
    views = {t.name: View.contiguous((64, 4096)[-len(t.axes) :]) for t in form.spec.tensors}
    module = plan(form, dict.fromkeys(views, dtype), views, H200).module
    made = assemble(module, (9, 0))
    assert made.spill_stores == made.spill_loads == 0
    fused = ptx_of(module, (9, 0))[0].count("fma.rn.f")
    assert (fused > 0) == (name in ("product", "squares", "products of differences"))
