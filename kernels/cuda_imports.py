"""Which helpers a generated kernel uses, as import lines."""

from __future__ import annotations

import re

MEMORY = re.compile(r"\b((?:load|store)_\w+|atomic_inc_acq_rel|fence_gpu)\(")
WARP = re.compile(r"\b(shfl_\w+|dsm_\w+|cluster_\w+)\(")
MATH = re.compile(r"\b([a-z]\w*_f(?:32|64))\(")


def imports(text: str) -> list[str]:
    """The import lines for what the text calls."""
    defined = set(re.findall(r"^def (\w+)\(", text, re.M))
    keys = set(re.findall(r"\b(key_of|key_value|key_place|redux_max_u64)\(", text))
    intrinsics = {*keys, *MEMORY.findall(text), *WARP.findall(text)}
    maths = set(MATH.findall(text)) - intrinsics - defined
    lines = []
    for module, names in (("intrinsics", intrinsics - defined), ("gpu_math", maths)):
        if names:
            lines.append(f"from redalg.kernels.{module} import {', '.join(sorted(names))}")
    return lines
