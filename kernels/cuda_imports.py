"""Which helpers a generated kernel uses, as import lines."""

from __future__ import annotations

import re
from collections.abc import Collection

INTRINSICS = re.compile(
    r"(load|store)_\w+|atomic_inc_acq_rel|fence_gpu|(shfl|dsm|cluster)_\w+|key_(of|value|place)|redux_max_u64"
)
MATH = re.compile(r"[a-z]\w*_f(?:32|64)")


def imports(names: Collection[str]) -> list[str]:
    """The import lines for what is called by these names."""
    intrinsics = sorted(n for n in names if INTRINSICS.fullmatch(n))
    maths = sorted(n for n in names if MATH.fullmatch(n) and n not in intrinsics)
    found = {"intrinsics": intrinsics, "gpu_math": maths}
    return [f"from redalg.kernels.{module} import {', '.join(used)}" for module, used in found.items() if used]
