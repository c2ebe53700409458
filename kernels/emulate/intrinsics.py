"""Emulations of `redalg.kernels.cuda.intrinsics` in plain Python: printed kernels run without a GPU.

They show whether indices are right, and no more: neither types nor PTX nor what memory really does. Emulations that
wait for other threads give a request, which `redalg.kernels.emulate.run` answers. The modules ``math``, ``wgmma`` and
``mma`` of intrinsics have emulations in the modules of their names here.

>>> from redalg.kernels.emulate.intrinsics import load_bfloat16x2, key_of, key_place
>>> load_bfloat16x2(np.array([0x3F80, 0xC000], np.uint16), 0)
(np.float32(1.0), np.float32(-2.0))
>>> int(key_place(max(key_of(np.float32(2), 5), key_of(np.float32(2), 3))))
3
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redalg.kernels.emulate import memory, threads, warp

SIGN, ALL = 1 << 31, 0xFFFFFFFF


def _key_of(value: Any, place: Any) -> Any:
    if not isinstance(value, np.float32):
        raise TypeError(f"key_of takes float32, and {value!r} was given")
    bits = int((value + np.float32(0)).view(np.uint32))
    upper = ALL - 1 if value != value else bits ^ (ALL if bits & SIGN else SIGN)
    return np.uint64(upper << 32 | (~int(place) & ALL))


def _key_value(key: Any) -> Any:
    upper = int(key) >> 32
    bits = upper ^ (SIGN if upper & SIGN else ALL)
    return np.uint32(bits).view(np.float32) if key else np.float32(-np.inf)


def _key_place(key: Any) -> Any:
    return np.int64(~int(key) & ALL) if key else np.int64(-1)


EMULATED: dict[str, Callable[..., Any]] = {
    **memory.EMULATED,
    **warp.EMULATED,
    **threads.EMULATED,
    "key_of": _key_of,
    "key_value": _key_value,
    "key_place": _key_place,
}


def __getattr__(name: str) -> Any:
    if name not in EMULATED:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    return EMULATED[name]
