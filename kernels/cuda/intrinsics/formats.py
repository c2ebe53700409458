"""Casts to the formats of `redalg.graph.formats` in generated CUDA kernels, and conversions from and to their bits.

``round_<format>_f32(x)`` (and ``_f64``) is the nearest number of the format, in the type it came in: ties to even,
once, also from float64; float8_e4m3fn saturates, infinities included, the other floats overflow to infinity;
integers, int4 to uint64, round half to even and saturate; NaN stays NaN. For bfloat16, float16, float8_e4m3fn and
float8_e5m2, ``widen_<format>_f32(bits)`` is the number that unsigned bits stand for and ``narrow_<format>_f32(x)``
(and ``_f64``) the bits of the nearest number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from redalg.graph.formats import INTEGERS
from redalg.kernels.code.functions import F32, F64, compute_capability, inline, numeric
from redalg.kernels.cuda.intrinsics.conversions import NARROW, narrow_float, widen

CELL: dict[str, Any] = {"f32": F32, "f64": F64}
REAL: dict[str, Any] = {"f32": np.float32, "f64": np.float64}


def _rounded(b: Any, x: Any, dtype: str) -> Any:
    cc = compute_capability()
    found = widen(b, dtype, narrow_float(b, dtype, x, cc), cc)
    return found if x.type == F32 else b.fpext(found, F64)


def _to_float32(b: Any, x: Any) -> Any:
    return x if x.type == F32 else b.fpext(b.fptrunc(x, F32), F64)


def _same(b: Any, x: Any) -> Any:
    return x


def _rounded_integer(b: Any, x: Any, dtype: str, end: str) -> Any:
    """The bounds are the nearest floats of the integers', as in `redalg.numeric.casts`."""
    letter = "f" if end == "f32" else "d"
    value = inline(b, f"cvt.rni.{end}.{end} $0, $1;", f"={letter},{letter}", CELL[end], [x])
    low, high = (CELL[end](float(REAL[end](bound))) for bound in INTEGERS[dtype])
    value = b.select(b.fcmp_ordered("<", value, low), low, value)
    return b.select(b.fcmp_ordered(">", value, high), high, value)


def _widened(b: Any, bits: Any, dtype: str) -> Any:
    return widen(b, dtype, bits, compute_capability())


def _narrowed(b: Any, x: Any, dtype: str) -> Any:
    return narrow_float(b, dtype, x, compute_capability())


def _named(name: str, takes: str, gives: str, body: Callable[..., Any]) -> tuple[str, Callable[[], Any]]:
    return name, partial(numeric, name, [takes], gives, body)


def _makers() -> Iterator[tuple[str, Callable[[], Any]]]:
    for dtype, width in NARROW.items():
        yield _named(f"widen_{dtype}_f32", f"u{width}", "f32", partial(_widened, dtype=dtype))
        for end in CELL:
            yield _named(f"narrow_{dtype}_{end}", end, f"u{width}", partial(_narrowed, dtype=dtype))
            yield _named(f"round_{dtype}_{end}", end, end, partial(_rounded, dtype=dtype))
    for end in CELL:
        yield _named(f"round_float32_{end}", end, end, _to_float32)
        yield _named(f"round_float64_{end}", end, end, _same)
        for dtype in INTEGERS:
            yield _named(f"round_{dtype}_{end}", end, end, partial(_rounded_integer, dtype=dtype, end=end))


MAKERS = dict(_makers())
