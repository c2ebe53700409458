"""Which helpers a generated kernel uses, as import lines."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from redalg.kernels.emulate import intrinsics, math, mma, wgmma
from redalg.kernels.ir.program import STORAGE
from redalg.source.statements import Block, Import

# Formats of which CPU kernels find extrema, and read every so manieth element, by vectors.
SEARCHED = ("float64", "float32", "float16", "bfloat16", "int64")
Modules = Mapping[str, frozenset[str]]  # the functions of every module
CUDA: Modules = {  # every function has an emulation of its name
    "cuda.intrinsics.math": frozenset(math.EMULATED),
    "cuda.intrinsics": frozenset(intrinsics.EMULATED),
}
WGMMA: Modules = {"cuda.intrinsics.wgmma": frozenset(wgmma.EMULATED)}  # of tiles, by the copy engine
MMA: Modules = {  # of tiles, by copies of threads; of functions of one name the first is meant
    "cuda.intrinsics.mma": frozenset(mma.PLAIN),
    "cuda.intrinsics.mma_types": frozenset(mma.CONVERTED),
    **WGMMA,
}
CPU: Modules = {
    "cpu.math.functions": CUDA["cuda.intrinsics.math"],
    "cpu.memory": frozenset({"drained", "free", "missing", "prefetch", "unlikely"})
    | {f"{way}_{d}" for way in ("pointer", "load", "store", "store_stream", "stream", "stack", "heap") for d in STORAGE}
    | {f"{word}_{d}" for word in ("largest", "smallest", "place", "every") for d in SEARCHED},
}


def imports(names: Collection[str], modules: Modules = CUDA) -> Block:
    """Imports of what is called by these names, the target first, and NumPy, which only CPU kernels may do without.

    >>> from redalg.source.render import render
    >>> print(render(imports({"exp_f32", "lane_id", "load_float32", "total"})), end="")
    import numpy as np
    from numba import cuda
    <BLANKLINE>
    from redalg.kernels.cuda.intrinsics.math import exp_f32
    from redalg.kernels.cuda.intrinsics import lane_id, load_float32
    """
    found = {module: sorted(functions.intersection(names)) for module, functions in modules.items()}
    target = "njit" if modules is CPU else "cuda"
    return (
        *([Import(module="numpy", names=("np",), whole=True)] if modules is not CPU or "np" in names else []),
        Import(module="numba", names=(target,)),
        *(brought(f"redalg.kernels.{module}", used) for module, used in found.items() if used),
    )


def brought(module: str, names: Collection[str]) -> Import:
    return Import(module=module, names=tuple(sorted(names)))
