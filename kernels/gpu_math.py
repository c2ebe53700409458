"""Functions of real numbers in generated CUDA kernels: the CUDA math library's, and what it has no name for.

Errors in units in the last place are those of the CUDA C++ Programming Guide 13, appendix "Mathematical Functions"
(single and double precision tables, round to nearest, no fast-math flags); NaN in gives NaN out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from redalg.formats import INTEGERS
from redalg.kernels.gpu_convert import F32, F64, I32, narrow_float, widen

ERROR_ULP = {  # largest error over the whole range: (float32, float64)
    "exp": (2, 1), "exp2": (2, 1), "log": (1, 1), "log1p": (1, 1), "expm1": (1, 1), "tanh": (2, 2), "erf": (2, 2),
    "erfc": (4, 5), "sin": (2, 2), "cos": (2, 2), "tan": (4, 2), "sinh": (3, 2), "cosh": (2, 1), "asin": (2, 2),
    "acos": (2, 2), "atan": (2, 2), "asinh": (3, 3), "acosh": (4, 3), "atanh": (3, 2), "sqrt": (0.5, 0.5),
    "pow": (4, 2), "sigmoid": (4, 3),
}  # fmt: skip
LIBRARY = [name for name in ERROR_ULP if name not in ("exp2", "pow", "sigmoid")] + ["floor", "ceil"]
REAL = {"f32": np.float32, "f64": np.float64}


def _device(function: Any, name: str) -> Any:
    function.__name__ = function.__qualname__ = name
    return cuda.jit(device=True)(function)


def _library(name: str, end: str) -> Any:
    call = getattr(math, name)
    return _device(lambda x: call(x), f"{name}_{end}")


def _sigmoid(end: str) -> Any:
    """1 / (1 + e^-x): e^-x may overflow, and then the quotient is 0, as it should be."""
    one = REAL[end](1)
    return _device(lambda x: one / (one + math.exp(-x)), f"sigmoid_{end}")


def _extremum(word: str, end: str) -> Any:
    """max or min that propagates NaN."""

    @intrinsic
    def extremum(typing: Any, a: Any, b_: Any) -> Any:
        kind, cell = (types.float32, F32) if end == "f32" else (types.float64, F64)

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            if end == "f32":
                asm = ir.InlineAsm(ir.FunctionType(cell, [cell, cell]), f"{word}.NaN.f32 $0, $1, $2;", "=f,f,f", False)
                return b.call(asm, args)
            wins = b.fcmp_ordered(">" if word == "max" else "<", args[0], args[1])
            wins = b.or_(wins, b.fcmp_unordered("uno", args[0], args[0]))
            return b.select(wins, args[0], args[1])

        return kind(kind, kind), generate

    return extremum


def _is_finite(end: str) -> Any:
    limit = REAL[end](np.inf)
    return _device(lambda x: (x < limit) & (-limit < x), f"is_finite_{end}")


def _sign(end: str) -> Any:
    zero, one = REAL[end](0), REAL[end](1)
    return _device(lambda x: one if x > zero else (-one if x < zero else x), f"sign_{end}")


def _rint(end: str) -> Any:
    """To the nearest integer, ties to even."""

    @intrinsic
    def rint(typing: Any, x: Any) -> Any:
        kind, cell, letter = (types.float32, F32, "f") if end == "f32" else (types.float64, F64, "d")

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            asm = ir.InlineAsm(
                ir.FunctionType(cell, [cell]), f"cvt.rni.{end}.{end} $0, $1;", f"={letter},{letter}", False
            )
            return b.call(asm, args)

        return kind(kind), generate

    return rint


@intrinsic
def _exp2_approx(typing: Any, x: Any) -> Any:
    def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.call(ir.InlineAsm(ir.FunctionType(F32, [F32]), "ex2.approx.ftz.f32 $0, $1;", "=f,f", False), args)

    return types.float32(types.float32), generate


# 2^(x·log2 e). Relative error: 2^-22 of the instruction (PTX ISA 8.8, ex2) and |x|·2^-24·1.5 of the rounded argument.
_LOG2_E = np.float32(1.4426950408889634)
fast_exp_f32 = _device(lambda x: _exp2_approx(x * _LOG2_E), "fast_exp_f32")


# --- casts: the nearest number of a format, in the type it came in ---------------------------------------------------


def _rounded(dtype: str, end: str) -> Any:
    """A value rounded once to a narrow float format; from float64 through float32 rounded to odd, which loses nothing."""

    @intrinsic
    def rounded(typing: Any, x: Any) -> Any:
        kind = types.float32 if end == "f32" else types.float64

        def generate(context: Any, b: Any, sig: Any, args: Any) -> Any:
            value = args[0] if end == "f32" else _to_odd(b, args[0])
            found = widen(b, dtype, narrow_float(b, dtype, value))
            return found if end == "f32" else b.fpext(found, F64)

        return kind(kind), generate

    return rounded


def _to_odd(b: Any, value: Any) -> Any:
    asm = ir.InlineAsm(ir.FunctionType(F32, [F64]), "cvt.rz.f32.f64 $0, $1;", "=f,d", False)
    near = b.call(asm, [value])
    inexact = b.fcmp_ordered("!=", b.fpext(near, F64), value)
    return b.bitcast(b.or_(b.bitcast(near, I32), b.zext(inexact, I32)), F32)


def _rounded_integer(dtype: str, end: str) -> Any:
    low, high = (REAL[end](v) for v in INTEGERS[dtype])
    rint, most, least = globals()[f"rint_{end}"], globals()[f"min_nan_{end}"], globals()[f"max_nan_{end}"]
    return _device(lambda x: least(most(rint(x), high), low), f"round_{dtype}_{end}")


for _end in REAL:
    for _name in LIBRARY:
        globals()[f"{_name}_{_end}"] = _library(_name, _end)
    globals()[f"sigmoid_{_end}"] = _sigmoid(_end)
    globals()[f"is_finite_{_end}"] = _is_finite(_end)
    globals()[f"sign_{_end}"] = _sign(_end)
    globals()[f"rint_{_end}"] = _rint(_end)
    for _word in ("max", "min"):
        globals()[f"{_word}_nan_{_end}"] = _extremum(_word, _end)
    for _dtype in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"):
        globals()[f"round_{_dtype}_{_end}"] = _rounded(_dtype, _end)
    for _dtype in INTEGERS:
        globals()[f"round_{_dtype}_{_end}"] = _rounded_integer(_dtype, _end)
abs_f32 = abs_f64 = _device(lambda x: abs(x), "abs_")
pow_f32 = pow_f64 = _device(lambda x, y: math.pow(x, y), "pow_")
exp2_f32 = _device(lambda x: math.exp2(x), "exp2_f32")
exp2_f64 = _device(lambda x: math.exp2(x), "exp2_f64")
round_float32_f64 = _device(lambda x: np.float64(np.float32(x)), "round_float32_f64")
