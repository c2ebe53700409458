"""Which helpers a generated kernel uses, as import lines."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from redalg.kernels import twins, twins_math
from redalg.kernels.ir import STORAGE

Modules = Mapping[str, frozenset[str]]  # the functions of every module
CUDA: Modules = {  # every function has a twin of its name; syncthreads is called as `cuda.syncthreads`
    "gpu_math": frozenset(twins_math.TWINS),
    "intrinsics": frozenset(twins.TWINS) - {"syncthreads"},
}
CPU: Modules = {
    "cpu_math": CUDA["gpu_math"],
    "cpu_memory": frozenset({"drained", "free", "missing", "prefetch"})
    | {
        f"{way}_{d}" for way in ("pointer", "load", "store", "store_stream", "stream", "stack", "heap") for d in STORAGE
    },
}


def imports(names: Collection[str], modules: Modules = CUDA) -> list[str]:
    """The import lines for what is called by these names.

    >>> imports({"exp_f32", "lane_id", "load_float32", "total"})
    ['from redalg.kernels.gpu_math import exp_f32', 'from redalg.kernels.intrinsics import lane_id, load_float32']
    >>> imports({"exp_f32", "pointer_int64"}, CPU)
    ['from redalg.kernels.cpu_math import exp_f32', 'from redalg.kernels.cpu_memory import pointer_int64']
    """
    found = {module: sorted(functions.intersection(names)) for module, functions in modules.items()}
    return [f"from redalg.kernels.{module} import {', '.join(used)}" for module, used in found.items() if used]
