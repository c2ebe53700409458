"""LLVM's passes over translated functions, and the object code they become.

The order is Numba's: every function for itself, then the module, cheaply at first, so that what is called is inlined
and loops have the form that the vectoriser takes, and then as thoroughly as LLVM can.
"""

from __future__ import annotations

from typing import Any

from redalg.kernels.code.processor import binding, machine


def object_code(text: str) -> bytes:
    """The machine code of a module in LLVM's language, as an object file."""
    return bytes(machine().emit_object(optimised(text)))


def optimised(text: str) -> Any:
    """The module after all passes."""
    module = binding().parse_assembly(text)
    module.verify()
    for function in module.functions:
        thorough = _passes(3)
        thorough.getFunctionPassManager().run(function, thorough)
    cheap = _passes(0)
    first = cheap.getModulePassManager()
    first.add_loop_rotate_pass()
    first.add_instruction_combine_pass()
    first.add_jump_threading_pass()
    first.run(module, cheap)
    thorough = _passes(3)
    thorough.getModulePassManager().run(module, thorough)
    return module


def _passes(level: int) -> Any:
    llvm = binding()
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_vectorization, options.slp_vectorization = level > 0, False
    return llvm.create_pass_builder(machine(), options)
