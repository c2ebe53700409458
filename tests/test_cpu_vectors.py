"""CPU kernels use the widest registers of a processor, whatever the compiler prefers there."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

COMPILED = """
import redalg as ra
from redalg.kernels.cpu_build import module_of
from redalg.kernels.cpu_schedule import CpuSchedule
from redalg.kernels.emit_numba import emit_cpu
from redalg.kernels.lower import lower
from redalg.kernels.schedule import Layout
form = ra.derive_incremental(ra.catalog["logsumexp"])
made = emit_cpu(lower(form, {"x": "float32"}), Layout(unit=frozenset({"x"})), CpuSchedule(resident=True))
kernel = getattr(module_of(made.source), made.entry)
kernel.compile(f"void({', '.join('int64' for _ in made.params)})")
print("zmm" in kernel.inspect_asm(kernel.signatures[-1]))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of the processors are those of x86-64")
@pytest.mark.parametrize("name, widest", [("sapphirerapids", True), ("haswell", False)])
def test_vectors_are_as_wide_as_the_processor_has_them(name: str, widest: bool) -> None:
    """The code is compiled for it, not run."""
    features = {"NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+f16c"} if not widest else {}
    made = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"NUMBA_CPU_NAME": name} | features)  # fmt: skip
    assert made.stdout.split() == [str(widest)], made.stderr
