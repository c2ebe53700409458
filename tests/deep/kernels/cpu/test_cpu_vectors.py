"""CPU kernels use the widest registers of a processor, whatever the compiler prefers there, and no masked stores where
these are slow."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys

import pytest

COMPILED = """
import redalg as ra
from redalg.kernels.cpu.build import kinds_of, llvm_text
from redalg.kernels.cpu.kernel import RANGE
from redalg.kernels.code.processor import machine
from redalg.kernels.code.optimise import optimised
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


SIDE_BY_SIDE = """
import redalg as ra
from redalg.kernels.cpu.build import kinds_of, llvm_text
from redalg.kernels.cpu.kernel import RANGE, emit_cpu
from redalg.kernels.code.processor import machine
from redalg.kernels.code.optimise import optimised
from redalg.kernels.cpu.schedule import ROWS, CpuSchedule
from redalg.kernels.cpu.plan import Kind
from redalg.kernels.ir.schedule import Layout
from redalg.kernels.cpu_programs import cpu_program
form = ra.derive_incremental(ra.parse(
    "return at = argmax[j](x[i,j]), low = min[j](x[i,j]), high = max[j](abs(x[i,j]))"
))
for dtype in ("float32", "float64"):
    program = cpu_program(form, Kind((("x", dtype),), (("x", dtype),)), ("i",))
    layout = Layout(across=frozenset({"x", *(r.key for r in program.results)}))
    made = emit_cpu(program, layout, CpuSchedule(True, across=("i",), whole=ROWS))
    text = llvm_text(made.source, [made.entry], kinds_of(made.params[:-len(RANGE)]))
    print(machine().emit_assembly(optimised(text)))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names of the processors are those of x86-64")
def test_extrema_of_rows_side_by_side_are_not_stored_under_a_mask() -> None:
    """A choice between an element of a buffer and another number, written back, is a blend and a store."""
    features = "+avx,+avx2,+fma,+bmi,+bmi2,+f16c"
    made = subprocess.run(
        [sys.executable, "-c", SIDE_BY_SIDE],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"NUMBA_CPU_NAME": "znver3", "NUMBA_CPU_FEATURES": features},
    )
    assert made.stdout.count("vmaxps") > 4 and made.stdout.count("vmaxpd") > 4, made.stderr
    assert not re.findall(r"maskmov\w+\s+%ymm\d+, %ymm\d+, .*", made.stdout)
