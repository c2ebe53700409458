"""CPU kernels use the widest registers of a processor, whatever the compiler prefers there."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

COMPILED = """
import redalg as ra
from redalg.kernels.cpu.build import kinds_of, llvm_text
from redalg.kernels.cpu.kernel import RANGE
from redalg.kernels.cpu.math.processor import machine
from redalg.kernels.cpu.optimise import optimised
from redalg.kernels.cpu.schedule import CpuSchedule
from redalg.kernels.cpu.kernel import emit_cpu
from redalg.kernels.programs import lower
from redalg.kernels.ir.schedule import Layout
form = ra.derive_incremental(ra.catalog["logsumexp"])
made = emit_cpu(lower(form, {"x": "float32"}), Layout(unit=frozenset({"x"})), CpuSchedule(resident=True))
text = llvm_text(made.source, [made.entry], kinds_of(made.params[:-len(RANGE)]))
print("zmm" in machine().emit_assembly(optimised(text)))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of the processors are those of x86-64")
@pytest.mark.parametrize("name, widest", [("sapphirerapids", True), ("haswell", False)])
def test_vectors_are_as_wide_as_the_processor_has_them(name: str, widest: bool) -> None:
    """The code is compiled for it, not run; what this processor has does not count."""
    features = "+avx,+avx2,+fma,+bmi,+bmi2,+f16c" + ",+avx512f,+avx512bw,+avx512dq,+avx512vl" * widest
    made = subprocess.run(
        [sys.executable, "-c", COMPILED],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features},
    )
    assert made.stdout.split() == [str(widest)], made.stderr
