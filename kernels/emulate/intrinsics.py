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
from functools import partial
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


def _short_key(dtype: str, value: Any, place: Any) -> Any:
    if not isinstance(value, np.float32) or not 0 <= place < 1 << 16:
        raise TypeError(f"short_key_{dtype} takes float32 and a place below 65536; {value!r}, {place!r} were given")
    value = value + np.float32(0)
    bits = int(value.view(np.uint32)) >> 16 if dtype == "bfloat16" else int(np.float16(value).view(np.uint16))
    upper = 0xFFFF if value != value else bits ^ (0xFFFF if bits & 0x8000 else 0x8000)
    return np.uint32(upper << 16 | int(place) ^ 0xFFFF)


def _long_key(dtype: str, key: Any) -> Any:
    if not key:
        return np.uint64(0)
    upper = int(key) >> 16
    bits = upper ^ (0x8000 if upper & 0x8000 else 0xFFFF)
    value = np.uint32(bits << 16).view(np.float32) if dtype == "bfloat16" else np.uint16(bits).view(np.float16)
    return _key_of(np.float32(value), ~int(key) & 0xFFFF)


EMULATED: dict[str, Callable[..., Any]] = {
    **memory.EMULATED,
    **warp.EMULATED,
    **threads.EMULATED,
    "key_of": _key_of,
    "key_value": _key_value,
    "key_place": _key_place,
    **{f"short_key_{d}": partial(_short_key, d) for d in ("bfloat16", "float16")},
    **{f"long_key_{d}": partial(_long_key, d) for d in ("bfloat16", "float16")},
}


def __getattr__(name: str) -> Any:
    if name not in EMULATED:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    return EMULATED[name]
