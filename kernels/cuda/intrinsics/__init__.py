"""What generated CUDA kernels do that Python has no word for: memory, copies, shuffles, clusters, arrivals, keys.

A function is made when its name is first asked for (there are several hundred); `names` lists them, and the modules
they come from describe them. Each has a plain Python emulation of the same name in `redalg.kernels.emulate.intrinsics`.

>>> from redalg.kernels.cuda.intrinsics import load_bfloat16x8, shfl_xor_f32
>>> len([n for n in names() if n.startswith("load_stream_bfloat16")])
5
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redalg.kernels.code.functions import lazy
from redalg.kernels.cuda.intrinsics import async_copies, cluster, memory, packed_keys, warp

__all__ = ["names"]
_MAKERS: dict[str, Callable[[], Any]] = {
    **memory.MAKERS,
    **async_copies.MAKERS,
    **warp.MAKERS,
    **cluster.MAKERS,
    **packed_keys.MAKERS,
}


def names() -> tuple[str, ...]:
    """Every function of this module."""
    return tuple(_MAKERS)


__getattr__ = lazy(__name__, _MAKERS, globals())
