"""The functions of `redalg.kernels.cuda.intrinsics.math` in NumPy: the same names, for scalars and arrays.

Functions of the library are computed in float64 (long double for ``_f64`` is not worth it) and rounded; casts and
conversions are exact, with the same bits as on the GPU but for those of a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from redalg.graph import functions
from redalg.graph.formats import FLOATS, INTEGERS, FloatFormat
from redalg.numeric.casts import cast_array
from redalg.numeric.maps import pow2

REAL = {"f32": np.float32, "f64": np.float64}
LEAST_NORMAL = 2.0**-126
NARROW = {"bfloat16": np.uint16, "float16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}
LARGEST = {dtype: float(FLOATS[dtype].largest) for dtype in NARROW}
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Any) -> Any:
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1.0) / (1.0 + z) if np.ndim(x) else (z if x < 0 else 1.0) / (1.0 + z)


def _flushed(function: Callable[[Any], Any], x: Any) -> Any:
    y = function(x)
    return y * (np.abs(y) >= LEAST_NORMAL) if np.ndim(y) else (y if not abs(y) < LEAST_NORMAL else 0.0)


def _exp_nonpositive(x: Any) -> Any:
    if np.any(x > 0):
        raise ValueError(f"exp_nonpositive was given {x}")
    return _flushed(np.exp, x)


FUNCTIONS: dict[str, Callable[..., Any]] = {  # float64 to float64
    **{name: getattr(np, row.numpy) for name, row in functions.FUNCTIONS.items() if row.numpy and row.cuda},
    "erf": lambda x: np.float64(_erf(x)),
    "erfc": lambda x: np.float64(_erfc(x)),
    "pow": np.power,
    "sigmoid": _sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: np.float64(1) / x,
    "div": np.divide,
    **{n: getattr(np, n) for n in ("sqrt", "rint")},
}
CHEAP: dict[str, Callable[..., Any]] = {  # float32 only
    "exp_nonpositive": _exp_nonpositive,
    "fast_exp": partial(_flushed, np.exp),
    "fast_log": np.log,
    "exp2_ftz": partial(_flushed, np.exp2),
    "fast_rcp": partial(_flushed, lambda x: np.float64(1) / (x if np.ndim(x) or abs(x) >= LEAST_NORMAL else x * 0)),
    "fast_div": np.divide,
    "div_count": np.divide,
    "rcp_sqrt": lambda x: 1 / np.sqrt(x),
    "fast_sigmoid": _sigmoid,
    "fast_tanh": np.tanh,
    "fast_erfc": partial(_flushed, lambda x: np.float64(_erfc(x))),
}


def _reciprocal_rest(c: Any, r: Any, real: Any) -> Any:
    with np.errstate(all="ignore"):
        wide = np.longdouble(r)
        rest = _as((1 - wide * np.longdouble(c)) * wide, real)
    return np.where(rest == rest, rest, r) if np.ndim(rest) else rest if rest == rest else r


def _quotient(x: Any, r: Any, rest: Any, scale: Any, real: Any) -> Any:
    with np.errstate(all="ignore"):
        wide = np.longdouble(x)
        return _as(wide * np.longdouble(r) + wide * np.longdouble(rest), real) * scale


def _computed(*args: Any, function: Callable[..., Any], real: Any) -> Any:
    return _as(function(*(np.float64(a) for a in args)), real)


def _as(x: Any, real: Any) -> Any:
    return x.astype(real) if isinstance(x, np.ndarray) and x.ndim else real(x)


def _typed(*args: Any, function: Callable[..., Any], real: Any) -> Any:
    return function(*(_as(a, real) for a in args))


def _sum_error(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        total = a + b
        added = total - a
        return (a - (total - added)) + (b - added)


def _product_error(a: Any, b: Any) -> Any:
    """In whole numbers, since NumPy has no fused multiplication."""
    if np.ndim(a) or np.ndim(b):
        return np.vectorize(_product_error, otypes=[np.result_type(a, b)])(a, b)
    with np.errstate(all="ignore"):
        product = a * b
    if not np.isfinite(product):
        return product - product
    return type(product)(float(Fraction(float(a)) * Fraction(float(b)) - Fraction(float(product))))


def _finite(x: Any) -> Any:
    return np.isfinite(x)


# --- casts -----------------------------------------------------------------------------------------------------------


def _round(x: Any, dtype: str, real: Any) -> Any:
    if dtype in NARROW and isinstance(x, np.generic):
        return real(_round_one(float(real(x)), FLOATS[dtype], LARGEST[dtype]))
    return _as(cast_array(_as(x, real), dtype), real)


def _round_one(x: float, form: FloatFormat, largest: float) -> float:
    """A number as `cast_array` rounds it, in a fraction of the time."""
    if not math.isfinite(x):
        return math.copysign(largest, x) if form.saturates and math.isinf(x) else x
    unit = max(math.frexp(x)[1] - 1, form.least_exponent) - form.bits
    y = math.copysign(math.ldexp(round(math.ldexp(x, -unit)), unit), x)
    if abs(y) > largest:
        return math.copysign(largest if form.saturates else math.inf, x)
    return y


def nearest(x: Any, dtype: str) -> Any:
    """Numbers rounded to a narrow format, as float32."""
    x = np.asarray(x, np.float32)
    if dtype == "float16":
        return x.astype(np.float16).astype(np.float32)
    if dtype != "bfloat16":
        return widened(narrowed(x, dtype, np.float32), dtype)
    bits = x.view(np.uint32)
    even = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(x == x, even.view(np.float32), x)


def widened(bits: Any, dtype: str) -> Any:
    """The float32 numbers that unsigned bits stand for."""
    bits = _as(bits, NARROW[dtype])
    if dtype == "bfloat16":
        return (_as(bits, np.uint32) << np.uint32(16)).view(np.float32)
    if dtype == "float16":
        return _as(bits.view(np.float16), np.float32)
    wide = _as(bits, np.uint16)
    if dtype == "float8_e5m2":
        return _as((wide << np.uint16(8)).view(np.float16), np.float32)
    sign, rest = (wide & np.uint16(0x80)) << np.uint16(8), wide & np.uint16(0x7F)
    value = _as((sign | rest << np.uint16(7)).view(np.float16), np.float32) * np.float32(256)
    return _as(np.where(rest == 0x7F, np.float32(np.nan), value), np.float32)


def narrowed(x: Any, dtype: str, real: Any) -> Any:
    """The bits of the nearest numbers of a format."""
    x = _as(x, real)
    if dtype == "float16":
        return _as(x, np.float16).view(np.uint16)
    if dtype == "bfloat16" and real is np.float32 and np.ndim(x):
        return np.where(np.isnan(x), np.uint16(0x7FFF), _as(nearest(x, dtype).view(np.uint32) >> 16, np.uint16))
    near, nan = _as(_round(x, dtype, real), np.float32), np.isnan(x)
    if dtype == "bfloat16":
        return _as(np.where(nan, np.uint32(0x7FFF), near.view(np.uint32) >> np.uint32(16)), np.uint16)
    if dtype == "float8_e5m2":
        return _as(np.where(nan, np.uint16(0x7F), _as(near, np.float16).view(np.uint16) >> np.uint16(8)), np.uint8)
    half = _as(near * np.float32(2**-8), np.float16).view(np.uint16)
    bits = half >> np.uint16(7) & np.uint16(0x7F) | half >> np.uint16(8) & np.uint16(0x80)
    return _as(np.where(nan, np.uint16(0x7F), bits), np.uint8)


def _makers() -> Iterator[tuple[str, Callable[..., Any]]]:
    for end, real in REAL.items():
        for name, function in FUNCTIONS.items():
            yield f"{name}_{end}", partial(_computed, function=function, real=real)
        for name, ufunc in (
            ("max_nan", np.maximum),
            ("min_nan", np.minimum),
            ("is_finite", _finite),
            ("pow2", pow2),
            ("exact_sum", np.add),
            ("sum_error", _sum_error),
            ("exact_product", np.multiply),
            ("product_error", _product_error),
        ):
            yield f"{name}_{end}", partial(_typed, function=ufunc, real=real)
        for name, function in (("reciprocal_rest", _reciprocal_rest), ("quotient", _quotient)):
            yield f"{name}_{end}", partial(function, real=real)
        for dtype in (*NARROW, "float32", "float64", *INTEGERS):
            yield f"round_{dtype}_{end}", partial(_round, dtype=dtype, real=real)
        for dtype in NARROW:
            yield f"narrow_{dtype}_{end}", partial(narrowed, dtype=dtype, real=real)
    for name, function in CHEAP.items():
        yield f"{name}_f32", partial(_computed, function=function, real=np.float32)
    for dtype in NARROW:
        yield f"widen_{dtype}_f32", partial(widened, dtype=dtype)


EMULATED = dict(_makers())


def __getattr__(name: str) -> Any:
    if name not in EMULATED:
        raise AttributeError(f"module {__name__!r} has no function {name!r}")
    return EMULATED[name]
