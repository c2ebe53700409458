"""Conversions between storage formats and the numbers kernels compute with, as LLVM for the GPU.

Exact in both directions: widening loses nothing, narrowing rounds once to nearest even (redalg.formats): e4m3 saturates,
infinities included; e5m2, float16 and bfloat16 overflow to infinity; NaN stays NaN.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

I8, I16, I32, I64 = (ir.IntType(b) for b in (8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()


def widen(b: Any, dtype: str, cell: Any) -> Any:
    """The number a cell of memory holds."""
    if dtype in ("float32", "float64"):
        return cell
    if dtype == "bool":
        return b.icmp_unsigned("!=", cell, ir.Constant(I8, 0))
    if dtype == "bfloat16":
        return b.bitcast(b.shl(b.zext(cell, I32), ir.Constant(I32, 16)), F32)
    if dtype == "float16":
        return b.fpext(b.bitcast(cell, F16), F32)
    if dtype == "float8_e5m2":  # the upper half of a float16
        return b.fpext(b.bitcast(b.shl(b.zext(cell, I16), ir.Constant(I16, 8)), F16), F32)
    if dtype == "float8_e4m3fn":
        return _widen_e4m3(b, cell)
    if cell.type == I64:
        return cell
    return b.zext(cell, I64) if dtype.startswith("u") else b.sext(cell, I64)


def _widen_e4m3(b: Any, cell: Any) -> Any:
    """Its bits are a float16's with an exponent bias of 7 instead of 15: times 2^8, exactly, subnormals included."""
    wide = b.zext(cell, I16)
    sign = b.shl(b.and_(wide, ir.Constant(I16, 0x80)), ir.Constant(I16, 8))
    rest = b.and_(wide, ir.Constant(I16, 0x7F))
    half = b.or_(sign, b.shl(rest, ir.Constant(I16, 7)))
    value = b.fmul(b.fpext(b.bitcast(half, F16), F32), ir.Constant(F32, 256.0))
    is_nan = b.icmp_unsigned("==", rest, ir.Constant(I16, 0x7F))
    return b.select(is_nan, ir.Constant(F32, float("nan")), value)


def narrow(b: Any, dtype: str, value: Any) -> Any:
    """The cell that holds a number, rounded once."""
    if dtype in ("float32", "float64", "int64", "uint64"):
        return value
    if dtype == "bool":
        return b.zext(value, I8)
    if "float" in dtype:
        return narrow_float(b, dtype, value)
    return b.trunc(value, ir.IntType(int(dtype.lstrip("uint"))))


def narrow_float(b: Any, dtype: str, value: Any) -> Any:
    """A float32 as the bits of a narrower format."""
    if dtype == "float16":
        return b.bitcast(b.fptrunc(value, F16), I16)
    if dtype == "bfloat16":
        return _call(b, I16, "cvt.rn.bf16.f32 $0, $1;", "=h,f", value)
    if dtype == "float8_e4m3fn":
        return b.trunc(_call(b, I16, "cvt.rn.satfinite.e4m3x2.f32 $0, $1, $1;", "=h,f", value), I8)
    return _narrow_e5m2(b, value)


def _call(b: Any, result: Any, text: str, constraints: str, value: Any) -> Any:
    return b.call(ir.InlineAsm(ir.FunctionType(result, [value.type]), text, constraints, False), [value])


def _narrow_e5m2(b: Any, value: Any) -> Any:
    """By integer arithmetic, because the conversion instruction saturates where this format overflows to infinity."""
    word = b.bitcast(value, I32)
    sign = b.lshr(b.and_(word, ir.Constant(I32, 1 << 31)), ir.Constant(I32, 24))
    size = b.and_(word, ir.Constant(I32, 0x7FFFFFFF))
    odd = b.and_(b.lshr(size, ir.Constant(I32, 21)), ir.Constant(I32, 1))
    normal = b.add(size, b.add(odd, ir.Constant(I32, 0xFFFFF)))  # round to nearest even at bit 21
    normal = b.lshr(b.sub(normal, ir.Constant(I32, 112 << 23)), ir.Constant(I32, 21))
    shifted = b.fadd(b.bitcast(size, F32), ir.Constant(F32, 128.0))  # subnormals: spacing 2^-16 is 128's own
    small = b.sub(b.bitcast(shifted, I32), ir.Constant(I32, 0x43000000))
    bits = b.select(b.icmp_unsigned("<", size, ir.Constant(I32, 113 << 23)), small, normal)
    bits = b.select(b.icmp_unsigned(">", bits, ir.Constant(I32, 0x7C)), ir.Constant(I32, 0x7C), bits)
    bits = b.select(b.icmp_unsigned(">=", size, ir.Constant(I32, 0x47800000)), ir.Constant(I32, 0x7C), bits)
    bits = b.select(b.icmp_unsigned(">", size, ir.Constant(I32, 0x7F800000)), ir.Constant(I32, 0x7F), bits)
    return b.trunc(b.or_(bits, sign), I8)
