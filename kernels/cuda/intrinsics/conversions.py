"""Conversions between storage formats and the numbers kernels compute with, as LLVM for the GPU.

Exact in both directions: widening loses nothing, narrowing rounds once to nearest even (redalg.graph.formats): e4m3
saturates, infinities included; e5m2, float16 and bfloat16 overflow to infinity; NaN stays NaN. Conversion
instructions are used where the target has them (bfloat16 from compute capability 8.0, 8-bit floats from 8.9: PTX ISA
9.0, "cvt"), integer arithmetic elsewhere, with the same results but for the bits of a NaN.
"""

from __future__ import annotations

from typing import Any

from redalg.kernels.code.functions import CC, F16, F32, F64, I8, I16, I32, I64, inline
from redalg.kernels.ir.tensor_cores import BF16, FORMAT, FP8

NARROW = {"bfloat16": 16, "float16": 16, "float8_e4m3fn": 8, "float8_e5m2": 8}
NONE: CC = (0, 0)  # a target without conversion instructions


# --- wider -----------------------------------------------------------------------------------------------------------


def widen(b: Any, dtype: str, cell: Any, cc: CC) -> Any:
    """The number a cell of memory holds: float32 for narrow floats, int64 for integers."""
    if dtype in ("float32", "float64"):
        return cell
    if dtype == "bool":
        return b.icmp_unsigned("!=", cell, I8(0))
    if dtype in NARROW:
        return _widen_float(b, dtype, cell, cc)
    if cell.type == I64:
        return cell
    return b.zext(cell, I64) if dtype.startswith("u") else b.sext(cell, I64)


def _widen_float(b: Any, dtype: str, cell: Any, cc: CC) -> Any:
    if dtype == "bfloat16":
        return b.bitcast(b.shl(b.zext(cell, I32), I32(16)), F32)
    if dtype == "float16":
        return b.fpext(b.bitcast(cell, F16), F32)
    if dtype == "float8_e5m2":  # the upper half of a float16
        return b.fpext(b.bitcast(b.shl(b.zext(cell, I16), I16(8)), F16), F32)
    if cc >= FP8:
        return widen_pair(b, dtype, b.zext(cell, I16))[0]
    return _widen_e4m3(b, cell)


def widen_pair(b: Any, dtype: str, pair: Any) -> list[Any]:
    """Two 8-bit floats in 16 bits, the first one in the lower half, by one instruction."""
    halves = inline(b, f"cvt.rn.f16x2.{FORMAT[dtype]}x2 $0, $1;", "=r,h", I32, [pair])
    low, high = b.trunc(halves, I16), b.trunc(b.lshr(halves, I32(16)), I16)
    return [b.fpext(b.bitcast(half, F16), F32) for half in (low, high)]


def _widen_e4m3(b: Any, cell: Any) -> Any:
    """Its bits are a float16's with an exponent bias of 7 instead of 15: times 2^8, exactly, subnormals included."""
    wide = b.zext(cell, I16)
    sign = b.shl(b.and_(wide, I16(0x80)), I16(8))
    rest = b.and_(wide, I16(0x7F))
    half = b.or_(sign, b.shl(rest, I16(7)))
    value = b.fmul(b.fpext(b.bitcast(half, F16), F32), F32(256.0))
    return b.select(b.icmp_unsigned("==", rest, I16(0x7F)), F32(float("nan")), value)


# --- narrower --------------------------------------------------------------------------------------------------------


def narrow(b: Any, dtype: str, value: Any, cc: CC) -> Any:
    """The cell that holds a number, rounded once; integers keep their lowest bits."""
    if dtype == "bool":
        return b.zext(value, I8)
    if dtype in NARROW:
        return narrow_float(b, dtype, value, cc)
    if "int" in dtype and dtype[-2:] != "64":
        return b.trunc(value, {"8": I8, "16": I16, "32": I32}[dtype.lstrip("uint")])
    return value


def narrow_float(b: Any, dtype: str, value: Any, cc: CC) -> Any:
    """A float32 or float64 as the bits of a narrower format."""
    if value.type == F64:
        value = to_odd(b, value)
    if dtype == "float16":
        return b.bitcast(b.fptrunc(value, F16), I16)
    if dtype == "bfloat16":
        return inline(b, "cvt.rn.bf16.f32 $0, $1;", "=h,f", I16, [value]) if cc >= BF16 else _narrow_bf16(b, value)
    if cc < FP8:
        return _narrow_e4m3(b, value) if dtype == "float8_e4m3fn" else _narrow_e5m2(b, value)
    return b.trunc(narrow_pair(b, dtype, value, value, cc), I8)


def has_pairs(dtype: str, cc: CC) -> bool:
    """Whether one instruction narrows two numbers."""
    return cc >= {"bfloat16": BF16, "float16": BF16, "float8_e4m3fn": FP8, "float8_e5m2": FP8}.get(dtype, (99, 0))


def narrow_pair(b: Any, dtype: str, first: Any, second: Any, cc: CC) -> Any:
    """Two numbers in one word of twice the format's width, the first one in the lower half."""
    first, second = (to_odd(b, v) if v.type == F64 else v for v in (first, second))
    if NARROW[dtype] == 16:
        name = {"bfloat16": "bf16x2", "float16": "f16x2"}[dtype]
        return inline(b, f"cvt.rn.{name}.f32 $0, $1, $2;", "=r,f,f", I32, [second, first])
    text = f"cvt.rn.satfinite.{FORMAT[dtype]}x2.f32 $0, $1, $2;"
    pair = inline(b, text, "=h,f,f", I16, [second, first])
    if dtype == "float8_e4m3fn":
        return pair
    low, high = _overflowed(b, b.trunc(pair, I8), first), _overflowed(b, b.trunc(b.lshr(pair, I16(8)), I8), second)
    return b.or_(b.zext(low, I16), b.shl(b.zext(high, I16), I16(8)))


def _overflowed(b: Any, bits: Any, value: Any) -> Any:
    """The instruction saturates; e5m2 overflows to infinity from 61440 on, which lies half way to 2^16."""
    magnitude = b.bitcast(b.and_(b.bitcast(value, I32), I32(0x7FFFFFFF)), F32)
    infinite = b.or_(b.and_(bits, I8(0x80)), I8(0x7C))
    return b.select(b.fcmp_ordered(">=", magnitude, F32(61440.0)), infinite, bits)


def to_odd(b: Any, value: Any) -> Any:
    """A float64 rounded to float32 with an odd last bit where inexact: rounding that to a narrower format is exact."""
    near = b.fptrunc(value, F32)
    bits, back = b.bitcast(near, I32), b.fpext(near, F64)
    outward = b.fcmp_ordered(">", _magnitude(b, back), _magnitude(b, value))
    bits = b.sub(bits, b.zext(outward, I32))  # towards zero; the last finite number for an overflow
    inexact = b.fcmp_ordered("!=", back, value)
    return b.bitcast(b.or_(bits, b.zext(inexact, I32)), F32)


def _magnitude(b: Any, value: Any) -> Any:
    return b.bitcast(b.and_(b.bitcast(value, I64), I64(0x7FFFFFFFFFFFFFFF)), F64)


def _narrow_bf16(b: Any, value: Any) -> Any:
    """Round to nearest even at bit 16; a NaN keeps its upper bits and becomes quiet."""
    bits = b.bitcast(value, I32)
    odd = b.and_(b.lshr(bits, I32(16)), I32(1))
    rounded = b.lshr(b.add(bits, b.add(odd, I32(0x7FFF))), I32(16))
    quiet = b.or_(b.lshr(bits, I32(16)), I32(0x40))
    return b.trunc(b.select(b.fcmp_unordered("uno", value, value), quiet, rounded), I16)


def _narrow_e5m2(b: Any, value: Any) -> Any:
    bits, sign, size = _rounded_bits(b, value, kept=2, bias=15)
    bits = b.select(b.icmp_unsigned(">", bits, I32(0x7C)), I32(0x7C), bits)
    bits = b.select(b.icmp_unsigned(">=", size, I32(0x47800000)), I32(0x7C), bits)  # 2^16 and above
    bits = b.select(b.icmp_unsigned(">", size, I32(0x7F800000)), I32(0x7F), bits)
    return b.trunc(b.or_(bits, sign), I8)


def _narrow_e4m3(b: Any, value: Any) -> Any:
    bits, sign, size = _rounded_bits(b, value, kept=3, bias=7)
    bits = b.select(b.icmp_unsigned(">", bits, I32(0x7E)), I32(0x7E), bits)
    bits = b.select(b.icmp_unsigned(">=", size, I32(0x43E00000)), I32(0x7E), bits)  # 448 and above
    bits = b.select(b.icmp_unsigned(">", size, I32(0x7F800000)), I32(0x7F), bits)
    return b.trunc(b.or_(bits, sign), I8)


def _rounded_bits(b: Any, value: Any, kept: int, bias: int) -> tuple[Any, Any, Any]:
    """Exponent and fraction rounded to `kept` bits (right unless too large), the sign in bit 7, the magnitude's bits.

    Normal numbers round in the integers, where a carry out of the fraction moves into the exponent. Subnormals: adding
    the float whose last bit is worth one unit of the format rounds, and leaves the result in the lowest bits.
    """
    word, drop = b.bitcast(value, I32), 23 - kept
    sign = b.lshr(b.and_(word, I32(1 << 31)), I32(24))
    size = b.and_(word, I32(0x7FFFFFFF))
    odd = b.and_(b.lshr(size, I32(drop)), I32(1))
    normal = b.add(size, b.add(odd, I32((1 << drop - 1) - 1)))
    normal = b.lshr(b.sub(normal, I32(127 - bias << 23)), I32(drop))
    unit = (127 + 24 - bias - kept) << 23  # 2^(24 - bias - kept), whose last bit is 2^(1 - bias - kept)
    small = b.sub(b.bitcast(b.fadd(b.bitcast(size, F32), b.bitcast(I32(unit), F32)), I32), I32(unit))
    return b.select(b.icmp_unsigned("<", size, I32(128 - bias << 23)), small, normal), sign, size
