"""LLVM's passes over translated functions, and the object code they become.

The module cheaply at first, so that loops have the form that the vectoriser takes, and then as thoroughly as LLVM can.
Numba goes over every function for itself before: a fifth more of the time, for code that is as fast (21 kernels of
rows and columns, 2026-11-30). Of a module of more than `LARGE` lines loops are neither unrolled nor vectorised: that
makes five times as many instructions of it, and takes minutes (86,000 lines of soft-capped attention's second
derivatives; the largest of the catalog's kernels have 5,400).
"""

from __future__ import annotations

from typing import Any

from redalg.kernels.code.processor import binding, machine

LARGE = 10_000  # lines of a module in LLVM's language


def object_code(text: str) -> bytes:
    """The machine code of a module in LLVM's language, as an object file."""
    return bytes(machine().emit_object(optimised(text)))


def optimised(text: str) -> Any:
    """The module after all passes."""
    module = binding().parse_assembly(text)
    module.verify()
    wide = text.count("\n") <= LARGE
    cheap = _passes(0, wide)
    first = cheap.getModulePassManager()
    first.add_loop_rotate_pass()
    first.add_instruction_combine_pass()
    first.add_jump_threading_pass()
    first.run(module, cheap)
    thorough = _passes(3, wide)
    thorough.getModulePassManager().run(module, thorough)
    return module


def _passes(level: int, wide: bool) -> Any:
    """`wide`: whether loops may become wider."""
    llvm = binding()
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_vectorization, options.slp_vectorization = wide and level > 0, False
    options.loop_unrolling = options.loop_unrolling and wide
    return llvm.create_pass_builder(machine(), options)
