"""Casts to the formats of `redalg.graph.formats`, as values of `redalg.kernels.cpu.math.values`.

*Rounded* values stay in the type they came in; *cells* are what memory holds: float16 and bfloat16 in 16 bits, the
float8 formats in 8. All are exact: one rounding, to nearest even, straight from the wide value. Past the largest number
e4m3 saturates, infinities included, the others give infinity, integers saturate; NaN stays NaN.

Signs are put on after a conversion to float16: LLVM rounds both arguments of a ``copysign`` that a conversion follows,
and from float64 to float16 x86 has no instruction (LLVM 22 calls ``__truncdfhf2``, which is not there).
"""

from __future__ import annotations

import math
import platform

from redalg.graph.formats import FLOATS, INTEGERS, FloatFormat
from redalg.kernels.code.processor import processor
from redalg.kernels.cpu.math.values import (
    F32,
    F64,
    HALF,
    I8,
    I16,
    Format,
    Value,
    absolute,
    call,
    clamped,
    element_of,
    select,
    with_sign,
)


def converts_halves() -> bool:
    """Whether the processor that code is generated for converts float16: on x86 with F16C, elsewhere always."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686", "x86"):
        return True
    return {"+avx", "+f16c"} <= set(processor().features.split(","))


HALVES = converts_halves()
CELLS = {"bfloat16": "u16", "float16": "u16", "float8_e4m3fn": "u8", "float8_e5m2": "u8"}


def rounded(x: Value, dtype: str) -> Value:
    """The nearest number of the format, in x's own type."""
    if dtype in INTEGERS:
        low, high = (float(v) for v in INTEGERS[dtype])
        return clamped(call("rint", x), low, high)
    target, form = FLOATS[dtype], x.form
    if target.bits >= form.fraction and target.least_exponent <= 1 - form.bias:
        return x
    if dtype == "float32":
        return x.to(F32.real).to(F64.real)
    if form == F32 and dtype == "float16" and HALVES:
        return with_sign(absolute(x).to(HALF).to(F32.real), x)
    if form == F32 and dtype == "bfloat16":
        return select(x.is_nan(), x, (_rounded_up(x) & -0x10000).as_real())
    return with_sign(_rounded_size(x, target), x)


def widened(cell: Value, dtype: str, form: Format) -> Value:
    """The number in a cell."""
    if dtype == "bfloat16":
        x = (cell.to(F32.integer) << 16).as_real()
    elif dtype == "float16":
        x = _from_half(cell)
    elif dtype == "float8_e5m2":  # the upper half of a float16
        x = _from_half(cell.to(I16) << 8)
    else:
        x = _widened_e4m3(cell.to(I16))
    return x.to(form.real)


def narrowed(x: Value, dtype: str) -> Value:
    """The cell that holds a number, rounded once."""
    if x.form == F32 and dtype == "bfloat16":
        quiet = x.bit_pattern() | 0x400000
        return (select(x.is_nan(), quiet, _rounded_up(x)) >> 16).to(I16)
    if x.form == F32 and dtype == "float16" and HALVES:
        cell = absolute(x).to(HALF).as_cell()
    else:  # float32 holds all of the narrow formats
        cell = _cell(_rounded_size(x, FLOATS[dtype]).to(F32.real), dtype)
    width = element_of(cell.v.type).width
    sign = x.bit_pattern() >> (x.form.bits - width) & (1 << width - 1)
    return cell | sign.to(cell.v.type)


def _cell(x: Value, dtype: str) -> Value:
    """The cell of a number x ≥ 0 of the format, or NaN, in a float32."""
    if dtype == "bfloat16":
        return (x.bit_pattern() >> 16).to(I16)
    if dtype == "float16":
        return _to_half(x)
    if dtype == "float8_e5m2":
        return (_to_half(x) >> 8).to(I8)
    cell = (_to_half(x * 2.0**-8) >> 7) & 0x7F
    return select(x.is_nan(), 0x7F, cell).to(I8)


def _from_half(cell: Value) -> Value:
    if HALVES:
        return cell.as_half().to(F32.real)
    n = cell.to(F32.integer)
    bits = (n & 0x7FFF) << 13
    x = select((n & 0x7C00).same(0x7C00), (bits | F32.exponent_bits).as_real(), bits.as_real() * 2.0**112)
    return (x.bit_pattern() | ((n & 0x8000) << 16)).as_real()


def _to_half(x: Value) -> Value:
    """The cell of a number x ≥ 0 that float16 holds, or NaN."""
    if HALVES:
        return x.to(HALF).as_cell()
    cell = (x * 2.0**-112).bit_pattern() >> 13
    return select(x < math.inf, cell, select(x.is_nan(), Value(x.b, cell.like(0x7E00)), 0x7C00)).to(I16)


def _rounded_up(x: Value) -> Value:
    """Bits of a float32 whose upper half is x as bfloat16."""
    n = x.bit_pattern()
    return n + 0x7FFF + ((n >> 16) & 1)


def _rounded_size(x: Value, target: FloatFormat) -> Value:
    """|x| + c - c with a power of two c so large that the sum has the target's unit in its last place."""
    form, size = x.form, absolute(x)
    power = clamped((size.bit_pattern() & form.exponent_bits).as_real(), 2.0**target.least_exponent, None)
    c = power * 2.0 ** (form.fraction - target.bits)
    y = (size + c) - c
    largest = float(target.largest)
    if target.saturates:
        return select(size > largest, largest, y)
    # from half a unit above the largest number on
    return select(size >= largest + 2.0 ** (math.frexp(largest)[1] - 2 - target.bits), math.inf, y)


def _widened_e4m3(n: Value) -> Value:
    """Its bits are a float16's with an exponent bias of 7 instead of 15: times 2^8, exactly, subnormals included."""
    rest = n & 0x7F
    x = _from_half(((n & 0x80) << 8) | (rest << 7)) * 256.0
    return select(rest.same(0x7F), math.nan, x)
