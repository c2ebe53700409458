"""The processor that CPU code is made for, and LLVM as it is set up for it."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple


class Processor(NamedTuple):
    """What LLVM has to know: `features` as ``+avx2,+fma,-sse4a``."""

    triple: str
    name: str
    features: str


@lru_cache(maxsize=1)
def processor() -> Processor:
    """This one; ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` name another, as they do for Numba."""
    llvm = binding()
    name, features = (os.environ.get(f"NUMBA_CPU_{word}") for word in ("NAME", "FEATURES"))
    return Processor(
        llvm.get_process_triple(),
        llvm.get_host_cpu_name() if name is None else name,
        llvm.get_host_cpu_features().flatten() if features is None else features,
    )


def masks() -> bool:
    """Whether the processor loads and stores parts of vectors, and scales by powers of two: one by Intel or AMD with
    vectors of 512 bits."""
    return {"+avx512f", "+avx512bw", "+avx512vl"} <= set(processor().features.split(","))


@lru_cache(maxsize=1)
def binding() -> Any:
    """`llvmlite.binding`, once LLVM can generate code for this machine."""
    import llvmlite.binding as llvm

    with suppress(RuntimeError):  # newer versions do this by themselves and say so
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@lru_cache(maxsize=1)
def machine() -> Any:
    """The target machine: code that stays in the process it is made in, or one like it."""
    llvm, made_for = binding(), processor()
    target = llvm.Target.from_triple(made_for.triple)
    reloc = "static" if target.name.startswith("x86") else "default"
    options = {"cpu": made_for.name, "features": made_for.features, "opt": 3, "reloc": reloc}
    return target.create_target_machine(**options, codemodel="jitdefault", jit=True)
