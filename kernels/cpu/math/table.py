"""Functions of real numbers in generated CPU kernels, by the names generated source uses: ``exp_f32``, ``log_f64`` …

Each takes one scalar (two where said) and is inlined by LLVM into the loop around it; those of `VECTORISED` become
vector instructions there, the others (`SCALAR`) call the C library element by element. NaN in gives NaN out.

>>> OPERATIONS["exp_f32"].takes, OPERATIONS["narrow_bfloat16_f64"].gives
(('f32',), 'u16')
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir

from redalg.graph.formats import FLOATS, INTEGERS
from redalg.graph.functions import FUNCTIONS as TABLE
from redalg.kernels.cpu.math import erf, exp, formats, log, power, trigonometric
from redalg.kernels.cpu.math.values import FORMATS, KINDS, Operation, Value, absolute, call, function, select

# Largest error in units in the last place of the true value: (float32, float64), rounded up. Float32: over all 2³²
# arguments (every 4099th of cos to atan), against the float64 function; float64: over random ones, against extended
# precision (`python -m benchmarks.cpu.vector_math --errors`). On processors that fuse multiply-add; a little more on
# others.
ERROR_ULP = {
    "exp": (1.1, 1.1),
    "exp2": (1.0, 1.0),
    "expm1": (1.5, 1.9),
    "tanh": (2.6, 2.6),
    "sigmoid": (2.5, 2.5),
    "log": (0.9, 0.9),
    "log1p": (1.5, 1.5),
    "erf": (1.2, 1.2),
    "erfc": (5.0, 4.0),
    "sinh": (2.5, 2.5),
    "cosh": (1.5, 1.5),
    "asinh": (1.9, 1.9),
    "acosh": (2.5, 2.5),
    "atanh": (2.2, 2.2),
    "log2": (1.2, 1.1),
    "sin": (0.6, 1.0),
    "cos": (0.6, 1.0),
    "tan": (0.6, 1.0),
    "asin": (1.6, 1.6),
    "acos": (1.2, 1.2),
    "atan": (1.3, 1.8),
}


def _sign(x: Value) -> Value:
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))


def _pow2(x: Value) -> Value:
    """The bits of the exponent alone, between the least normal number and its reciprocal; 1 for inf and NaN."""
    form = x.form
    power = (x.bit_pattern() & form.exponent_bits).as_real()
    least = 2.0 ** (1 - form.bias)
    power = select(power < least, least, select(power > 1.0 / least, 1.0 / least, power))
    return select(absolute(x) < math.inf, power, 1.0)


def _extremum(word: str) -> Callable[[Value, Value], Value]:
    """NaN if either is; of two zeros either one, which spares two instructions.

    The second number comes first: LLVM 22 asks whether its first operand is NaN. An extremum so far would have to be
    waited for; and where it lies in memory, x86 would write it under a mask, which takes AMD's processors dozens of
    cycles.
    """
    return lambda x, y: call(f"{word}imum", y, x, flags=("nsz",))


BODIES: dict[str, Callable[..., Value]] = {
    "exp": exp.exp,
    "exp2": exp.exp2,
    "expm1": exp.expm1,
    "tanh": exp.tanh,
    "sigmoid": exp.sigmoid,
    "log": log.log,
    "log2": log.log2,
    "log1p": log.log1p,
    "erf": erf.erf,
    "erfc": erf.erfc,
    "sinh": power.sinh,
    "cosh": power.cosh,
    "asinh": power.asinh,
    "acosh": power.acosh,
    "atanh": power.atanh,
    "asin": trigonometric.asin,
    "acos": trigonometric.acos,
    "atan": trigonometric.atan,
    "rcp": lambda x: 1.0 / x,
    "abs": absolute,
    "sign": _sign,
    "pow2": _pow2,
    **{name: partial(call, name) for name in ("sqrt", "floor", "ceil", "rint")},
}


def _sum_error(a: Value, b: Value) -> Value:
    """What rounding a + b leaves out (Knuth's TwoSum): exact, without a comparison."""
    total = a + b
    added = total - a
    return (a - (total - added)) + (b - added)


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "max_nan": _extremum("max"),
    "min_nan": _extremum("min"),
    "exact_sum": lambda a, b: a + b,
    "sum_error": _sum_error,
    "exact_product": lambda a, b: a * b,
    "product_error": lambda a, b: call("fma", a, b, -(a * b)),
}
# Those of float32 alone, whose range reduction takes float64.
NARROW: dict[str, Callable[[Value], Value]] = {
    "sin": trigonometric.sin_f32,
    "cos": trigonometric.cos_f32,
    "tan": trigonometric.tan_f32,
}
SCALAR = [
    f"{name}_{end}"
    for name, row in TABLE.items()
    for end in FORMATS
    if row.cpu == "library" or row.cpu == "float32" and end == "f64"
] + ["pow_f64"]
INTRINSICS = frozenset({"sin", "cos", "pow"})  # which LLVM has names for


def _library(name: str) -> Operation:
    """The C library's function, in the type of its argument."""
    word, end = name.rsplit("_", 1)
    takes = (end,) * (2 if word == "pow" else 1)

    def external(b: Any, *values: Any) -> Any:
        shape = ir.FunctionType(KINDS[end], [KINDS[end]] * len(takes))
        called = word if end == "f64" else f"{word}f"
        callee = b.module.globals.get(called) or ir.Function(b.module, shape, called)
        return b.call(callee, values)

    if word in INTRINSICS:
        return function(takes, end, partial(call, word))
    return Operation(takes, end, external, apart=True)


def _operations() -> dict[str, Operation]:
    table = {name: _library(name) for name in SCALAR}
    for end, form in FORMATS.items():
        for name, body in BODIES.items():
            table[f"{name}_{end}"] = function([end], end, body)
        for name, pair in BINARY.items():
            table[f"{name}_{end}"] = function([end, end], end, pair)
        table[f"is_finite_{end}"] = function([end], "b1", lambda x: absolute(x) < math.inf)
        for dtype in (*FLOATS, *INTEGERS):
            table[f"round_{dtype}_{end}"] = function([end], end, partial(formats.rounded, dtype=dtype))
        for dtype, cell in formats.CELLS.items():
            table[f"widen_{dtype}_{end}"] = function([cell], end, partial(formats.widened, dtype=dtype, form=form))
            table[f"narrow_{dtype}_{end}"] = function([end], cell, partial(formats.narrowed, dtype=dtype))
    for name, body in NARROW.items():
        table[f"{name}_f32"] = function(["f32"], "f32", body)
    table["pow_f32"] = function(["f32", "f32"], "f32", power.pow_f32)
    return table


OPERATIONS = _operations()
VECTORISED = frozenset(name for name in OPERATIONS if name not in SCALAR)
