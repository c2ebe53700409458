"""Functions of real numbers in generated CUDA kernels: the CUDA math library's, and what it has no name for.

Every function ends in ``_f32`` or ``_f64``, the type of its arguments and its result; a float64 given to an ``_f32`` is
refused. NaN in gives NaN out, infinities follow IEEE 754-2019. `ERROR_ULP` says how exact they are. Casts to narrow
formats are those of `redalg.kernels.cuda.intrinsics.formats` and can be imported from here. Beside the library's:

* ``max_nan, min_nan`` of two numbers; NaN if one is NaN
* ``is_finite`` neither infinite nor NaN; ``sign`` -1, 0, 1, and NaN for NaN
* ``rcp`` 1/x, correctly rounded
* ``exp_nonpositive`` e^x for x ≤ 0 in 5 instructions (``exp`` takes 8); results below 2^-126 are 0; any for x > 0
* ``exp2_ftz`` 2^x in one instruction; results below 2^-126 are 0
* ``fast_log`` log x in 14 instructions (``log`` takes 26), to a relative 2^-19
* ``fast_rcp`` 1/x in one instruction; subnormal x gives infinity, subnormal results are 0
* ``fast_tanh`` tanh x in 13 instructions without a branch, two of them the special function unit's
* ``fast_erfc`` erfc x in 17 instructions without a branch, two of them the special function unit's, to 2^-19 and what
  e^-x² is off by
* ``fast_div`` a/b in about 6 instructions over the whole range, without the branch of a correctly rounded ``/``
* ``div_count`` a/n for a number n ≥ 1 of elements without that branch; as exact as ``/`` but for a millionth of a unit
* ``quotient`` a/c in 3 instructions from a scaled reciprocal of c, its ``reciprocal_rest`` and the scale; as exact, too
* ``rcp_sqrt`` 1/sqrt x without a branch, to one unit in the last place

>>> from redalg.kernels.cuda.intrinsics.math import exp_nonpositive_f32, round_bfloat16_f32
>>> ERROR_ULP["exp"].f32, ERROR_ULP["exp"].source
(2.5, 'guide')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from numba import types
from numba.cuda import libdevice

from redalg.graph.functions import FUNCTIONS
from redalg.kernels.code.functions import (
    F32,
    F64,
    I32,
    I64,
    compute_capability,
    function,
    inline,
    lazy,
    numeric,
    real_argument,
)
from redalg.kernels.cuda.intrinsics import formats
from redalg.kernels.cuda.intrinsics.math_accuracy import ERROR_ULP

__all__ = ["ERROR_ULP", "names"]
CELL: dict[str, Any] = {"f32": F32, "f64": F64}
KIND: dict[str, Any] = {"f32": types.float32, "f64": types.float64}
LETTER = {"f32": "f", "f64": "d"}
LIBRARY = [*"sqrt rsqrt pow".split(), *(f.name for f in FUNCTIONS.values() if f.cuda == "library" and not f.computed)]
RSQRT = {"f32": libdevice.rsqrtf, "f64": libdevice.rsqrt}
EXP_NONPOSITIVE = (
    "mul.rm.f32 h, $1, 0f3FB8AA3C;",  # log2 e, rounded up
    "fma.rn.f32 l, h, 0fBF317218, $1;",  # the upper part of -ln 2
    "fma.rn.sat.f32 l, h, 0f3102E308, l;",  # the lower part
    "ex2.approx.ftz.f32 e, h;",
    "fma.rn.f32 $0, e, l, e;",
)
FAST_TANH = (
    "abs.f32 a, $1;",
    "mul.rn.f32 e, a, 0f4038AA3B;",  # 2 log2 e
    "ex2.approx.ftz.f32 e, e;",
    "add.rn.f32 e, e, 0f3F800000;",
    "rcp.approx.ftz.f32 e, e;",
    "fma.rn.f32 e, e, 0fC0000000, 0f3F800000;",
    "copysign.f32 e, $1, e;",
    "mul.rn.f32 s, $1, $1;",
    "fma.rn.f32 p, s, 0f3C86D478, 0fBD57CB51;",
    "fma.rn.f32 p, p, s, 0f3E08680D;",
    "fma.rn.f32 p, p, s, 0fBEAAAA2D;",
    "mul.rn.f32 p, p, s;",
    "fma.rn.f32 p, p, $1, $1;",
    "setp.lt.f32 near, a, 0f3F0CCCCD;",  # 0.55
    "selp.f32 $0, p, e, near;",
)
FAST_SIGMOID = (  # z/(1 + z) for x < 0, 1/(1 + z) else, z = e^-|x|, subnormals included
    "abs.f32 z, $1;",
    "mul.rn.f32 z, z, 0fBFB8AA3B;",  # -log2 e
    "ex2.approx.f32 z, z;",
    "add.rn.f32 s, z, 0f3F800000;",
    "rcp.approx.ftz.f32 s, s;",
    "setp.lt.f32 low, $1, 0f00000000;",
    "selp.f32 z, z, 0f3F800000, low;",
    "mul.rn.f32 $0, z, s;",
)
# t·q(t)·e^-x² with t = 1/(1 + |x|/2), q fitted to the relative error (2^-19.4 to |x| = 10.4, where e^-x² is 0), and 2
# less that for x < 0: erfc x·e^x² is smooth in t, and nearly t/sqrt π where t is small.
FAST_ERFC = (
    "abs.f32 a, $1;",
    "fma.rn.f32 t, a, 0f3F000000, 0f3F800000;",
    "rcp.approx.ftz.f32 t, t;",
    "mul.rn.f32 e, a, a;",
    "mul.rn.f32 e, e, 0fBFB8AA3B;",  # -log2 e
    "ex2.approx.ftz.f32 e, e;",
    "mul.rn.f32 e, e, t;",
    "fma.rn.f32 q, t, 0f3DB3312E, 0fBEB56085;",
    "fma.rn.f32 q, q, t, 0f3EC581EB;",
    "fma.rn.f32 q, q, t, 0f3D25356D;",
    "fma.rn.f32 q, q, t, 0f3E8FA9DC;",
    "fma.rn.f32 q, q, t, 0f3E8E356D;",
    "fma.rn.f32 q, q, t, 0f3E908C26;",
    "mul.rn.f32 q, q, e;",
    "sub.rn.f32 t, 0f40000000, q;",
    "setp.lt.f32 low, $1, 0f00000000;",
    "selp.f32 $0, t, q, low;",
)
# Markstein's division: a reciprocal of one instruction and a Newton step, a quotient, its exact residual, a correction;
# what is infinite or NaN stays as it is.
DIV_COUNT = (
    "rcp.approx.ftz.f32 r, $2; neg.f32 n, $2; fma.rn.f32 e, n, r, 0f3F800000; fma.rn.f32 r, r, e, r;",
    "mul.rn.f32 q, $1, r; fma.rn.f32 e, n, q, $1; fma.rn.f32 e, e, r, q;",
    "abs.f32 n, q; setp.lt.f32 p, n, 0f7F800000; selp.f32 $0, e, q, p;",
)
# One Newton step from a reciprocal root of one instruction, r + r/2·(1 - x·r·r); that of 0 or ∞ stays as it is.
RCP_SQRT = (
    "rsqrt.approx.f32 r, $1; mul.rn.f32 h, $1, r; neg.f32 h, h; fma.rn.f32 e, h, r, 0f3F800000;",
    "mul.rn.f32 h, r, 0f3F000000; fma.rn.f32 h, h, e, r;",
    "abs.f32 e, e; setp.lt.f32 p, e, 0f3F800000; selp.f32 $0, h, r, p;",
)
# What 1/c leaves beyond an r below it by 2^-52 to 2^-21 of it: (1 - r·c)·r, but for 2^-42 of 1/c and less. It has the
# sign of r and is not 0; r itself where that is 0 or infinite. And so x/c is x·r + x·rest, rounded once, and both terms
# of an infinite x have one sign.
RECIPROCAL_REST = (
    "neg.{end} n, $2; fma.rn.{end} n, n, $1, {one}; mul.rn.{end} n, n, $2;",
    "setp.num.{end} p, n, n; selp.{end} $0, n, $2, p;",
)
QUOTIENT = "mul.rn.{end} q, $1, $3; fma.rn.{end} q, $1, $2, q; mul.rn.{end} $0, q, $4;"
ONE = {"f32": "0f3F800000", "f64": "0d3FF0000000000000"}
MAX_NAN = (8, 0)  # compute capability from which max.NaN is there
EXPONENT = {"f32": 0x7F800000, "f64": 0x7FF0000000000000}  # the bits of infinity
LEAST = {"f32": 2.0**-126, "f64": 2.0**-1022}
MAGNITUDE = {"f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


# --- the library's ---------------------------------------------------------------------------------------------------


def _library(name: str, end: str) -> Any:
    """As Numba lowers it: a function of libdevice, or an instruction."""
    kind = KIND[end]
    call = RSQRT[end] if name == "rsqrt" else getattr(math, name)
    signature = kind(kind, kind) if name == "pow" else kind(kind)

    def typed(*given: Any) -> Any:
        for a in given:
            real_argument(f"{name}_{end}", a, kind)
        return signature, lambda context, b, sig, args: context.get_function(call, signature)(b, args)

    return function(f"{name}_{end}", "x y" if name == "pow" else "x", typed)


def _sigmoid(end: str) -> Any:
    """z/(1 + z) for x < 0, 1/(1 + z) else, z = e^-|x|: never a quotient of infinities, subnormals included."""
    kind, cell = KIND[end], CELL[end]

    def body(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x = args[0]
        z = context.get_function(math.exp, kind(kind))(b, [b.fsub(cell(-0.0), _abs(b, x, end))])
        top = b.select(b.fcmp_ordered("<", x, cell(0.0)), z, cell(1.0))
        return b.fdiv(top, b.fadd(z, cell(1.0)))

    def typed(x: Any) -> Any:
        real_argument(f"sigmoid_{end}", x, kind)
        return kind(kind), body

    return function(f"sigmoid_{end}", "x", typed)


# --- one instruction, or a few ---------------------------------------------------------------------------------------


def _abs(b: Any, x: Any, end: str) -> Any:
    word = I32 if end == "f32" else I64
    return b.bitcast(b.and_(b.bitcast(x, word), word(MAGNITUDE[end])), CELL[end])


def _extremum(b: Any, x: Any, y: Any, word: str, end: str) -> Any:
    if end == "f32" and compute_capability() >= MAX_NAN:
        return inline(b, f"{word}.NaN.f32 $0, $1, $2;", "=f,f,f", F32, [x, y])
    wins = b.fcmp_ordered(">" if word == "max" else "<", x, y)
    return b.select(b.or_(wins, b.fcmp_unordered("uno", x, x)), x, y)


def _sign(b: Any, x: Any, end: str) -> Any:
    cell = CELL[end]
    negative = b.select(b.fcmp_ordered("<", x, cell(0.0)), cell(-1.0), b.fadd(x, cell(0.0)))
    return b.select(b.fcmp_ordered(">", x, cell(0.0)), cell(1.0), negative)


def _is_finite(b: Any, x: Any, end: str) -> Any:
    return b.fcmp_ordered("<", _abs(b, x, end), CELL[end](float("inf")))


def _pow2(b: Any, x: Any, end: str) -> Any:
    """The bits of the exponent alone, between the least normal number and its reciprocal; 1 for inf and NaN."""
    word, cell = (I32 if end == "f32" else I64), CELL[end]
    power = b.bitcast(b.and_(b.bitcast(x, word), word(EXPONENT[end])), cell)
    least = cell(LEAST[end])
    power = b.select(b.fcmp_ordered("<", power, least), least, power)
    most = cell(1.0 / LEAST[end])
    power = b.select(b.fcmp_ordered(">", power, most), most, power)
    return b.select(_is_finite(b, x, end), power, cell(1.0))


def _instruction(b: Any, *args: Any, text: str, end: str) -> Any:
    registers = ", ".join(f"${k}" for k in range(1 + len(args)))
    constraints = "=" + ",".join([LETTER[end]] * (1 + len(args)))
    return inline(b, f"{text} {registers};", constraints, CELL[end], args)


def _sum_error(b: Any, x: Any, y: Any, end: str) -> Any:
    """What rounding x + y leaves out (Knuth's TwoSum), as instructions that nothing contracts or reorders."""
    plus, minus = (partial(_instruction, b, text=f"{word}.rn.{end}", end=end) for word in ("add", "sub"))
    total = plus(x, y)
    added = minus(total, x)
    return plus(minus(x, minus(total, added)), minus(y, added))


def _product_error(b: Any, x: Any, y: Any, end: str) -> Any:
    product = _instruction(b, x, y, text=f"mul.rn.{end}", end=end)
    negated = b.fsub(CELL[end](-0.0), product)  # NVVM's language has no fneg
    return _instruction(b, x, y, negated, text=f"fma.rn.{end}", end=end)


def _rint(b: Any, x: Any, end: str) -> Any:
    return _instruction(b, x, text=f"cvt.rni.{end}.{end}", end=end)


def _exp_nonpositive(b: Any, x: Any) -> Any:
    """e^x = 2^h·e^l with h just below x·log2 e, so that l = x - h·ln 2 lies in [0, 2^-15] and e^l = 1 + l.

    log2 e is rounded up and the product down, which makes h small enough; ln 2 is split in two. For x = -∞ the
    difference is NaN, which the saturation to [0, 1] turns into 0, and 2^h is 0.
    """
    return inline(b, f"{{ .reg .f32 h, l, e; {' '.join(EXP_NONPOSITIVE)} }}", "=f,f", F32, [x])


FAST_LOG = (  # t = x - 1; within 1/8 of 1: t + t^2·(a polynomial fitted to (log(1 + t) - t)/t^2), else log2 x·ln 2
    "lg2.approx.f32 l, $1; mul.rn.f32 l, l, 0f3F317218; add.rn.f32 t, $1, 0fBF800000;",
    "mov.f32 q, 0fBE2E97A7; fma.rn.f32 q, q, t, 0f3E5006DD; fma.rn.f32 q, q, t, 0fBE7FF738;",
    "fma.rn.f32 q, q, t, 0f3EAAA8A9; fma.rn.f32 q, q, t, 0fBF000001; mul.rn.f32 s, t, t; fma.rn.f32 q, s, q, t;",
    "abs.f32 t, t; setp.lt.f32 p, t, 0f3E000000; selp.f32 $0, q, l, p;",
)


def _fast_log(b: Any, x: Any) -> Any:
    return inline(b, f"{{ .reg .f32 l, t, q, s; .reg .pred p; {' '.join(FAST_LOG)} }}", "=f,f", F32, [x])


def _fast_exp(b: Any, x: Any) -> Any:
    text = "{ .reg .f32 h; mul.rn.f32 h, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, h; }"
    return inline(b, text, "=f,f", F32, [x])


def _fast_tanh(b: Any, x: Any) -> Any:
    """x + x³·p(x²) below 0.55, 1 - 2/(1 + e^2|x|) with x's sign from there on; both, and then one is chosen.

    p is fitted to the relative error, which stays below 2^-24.7 (Lawson's algorithm). An infinite e^2|x| gives 1.
    """
    text = " ".join(FAST_TANH)
    return inline(b, f"{{ .reg .f32 a, e, s, p; .reg .pred near; {text} }}", "=f,f", F32, [x])


def _fast_sigmoid(b: Any, x: Any) -> Any:
    """As `_sigmoid`, of the approximate e^-|x| and a reciprocal of one instruction."""
    text = " ".join(FAST_SIGMOID)
    return inline(b, f"{{ .reg .f32 z, s; .reg .pred low; {text} }}", "=f,f", F32, [x])


def _fast_erfc(b: Any, x: Any) -> Any:
    """Within some units of 2^-19 for results of 16 bits, as it takes a third of the instructions of ``erfc``."""
    text = " ".join(FAST_ERFC)
    return inline(b, f"{{ .reg .f32 a, t, e, q; .reg .pred low; {text} }}", "=f,f", F32, [x])


def _div_count(b: Any, x: Any, n: Any) -> Any:
    return inline(b, f"{{ .reg .f32 r, n, e, q; .reg .pred p; {' '.join(DIV_COUNT)} }}", "=f,f,f", F32, [x, n])


def _reciprocal_rest(b: Any, c: Any, r: Any, end: str) -> Any:
    text = " ".join(RECIPROCAL_REST).format(end=end, one=ONE[end])
    letter = LETTER[end]
    return inline(b, f"{{ .reg .{end} n; .reg .pred p; {text} }}", f"={letter},{letter},{letter}", CELL[end], [c, r])


def _quotient(b: Any, x: Any, r: Any, rest: Any, scale: Any, end: str) -> Any:
    letters = ",".join([f"={LETTER[end]}", *[LETTER[end]] * 4])
    return inline(b, f"{{ .reg .{end} q; {QUOTIENT.format(end=end)} }}", letters, CELL[end], [x, r, rest, scale])


def _rcp_sqrt(b: Any, x: Any) -> Any:
    return inline(b, f"{{ .reg .f32 r, h, e; .reg .pred p; {' '.join(RCP_SQRT)} }}", "=f,f", F32, [x])


# --- by name ---------------------------------------------------------------------------------------------------------


def _real(name: str, end: str, count: int, body: Callable[..., Any], gives: str = "") -> tuple[str, Callable[[], Any]]:
    full = f"{name}_{end}"
    return full, partial(numeric, full, [end] * count, gives or end, body)


def _makers() -> Iterator[tuple[str, Callable[[], Any]]]:
    for end in CELL:
        for name in LIBRARY:
            yield f"{name}_{end}", partial(_library, name, end)
        yield f"sigmoid_{end}", partial(_sigmoid, end)
        for word in ("max", "min"):
            yield _real(f"{word}_nan", end, 2, partial(_extremum, word=word, end=end))
        yield _real("abs", end, 1, partial(_abs, end=end))
        yield _real("sign", end, 1, partial(_sign, end=end))
        yield _real("pow2", end, 1, partial(_pow2, end=end))
        yield _real("rint", end, 1, partial(_rint, end=end))
        yield _real("is_finite", end, 1, partial(_is_finite, end=end), "b1")
        yield _real("rcp", end, 1, partial(_instruction, text=f"rcp.rn.{end}", end=end))
        yield _real("div", end, 2, partial(_instruction, text=f"div.rn.{end}", end=end))
        yield _real("exact_sum", end, 2, partial(_instruction, text=f"add.rn.{end}", end=end))
        yield _real("sum_error", end, 2, partial(_sum_error, end=end))
        yield _real("reciprocal_rest", end, 2, partial(_reciprocal_rest, end=end))
        yield _real("quotient", end, 4, partial(_quotient, end=end))
        yield _real("exact_product", end, 2, partial(_instruction, text=f"mul.rn.{end}", end=end))
        yield _real("product_error", end, 2, partial(_product_error, end=end))
    yield _real("exp_nonpositive", "f32", 1, _exp_nonpositive)
    yield _real("fast_exp", "f32", 1, _fast_exp)
    yield _real("fast_log", "f32", 1, _fast_log)
    yield _real("fast_sigmoid", "f32", 1, _fast_sigmoid)
    yield _real("fast_tanh", "f32", 1, _fast_tanh)
    yield _real("fast_erfc", "f32", 1, _fast_erfc)
    yield _real("exp2_ftz", "f32", 1, partial(_instruction, text="ex2.approx.ftz.f32", end="f32"))
    yield _real("fast_rcp", "f32", 1, partial(_instruction, text="rcp.approx.ftz.f32", end="f32"))
    yield _real("fast_div", "f32", 2, partial(_instruction, text="div.full.f32", end="f32"))
    yield _real("div_count", "f32", 2, _div_count)
    yield _real("rcp_sqrt", "f32", 1, _rcp_sqrt)


_MAKERS = dict(_makers()) | formats.MAKERS


def names() -> tuple[str, ...]:
    """Every function of this module."""
    return tuple(_MAKERS)


__getattr__ = lazy(__name__, _MAKERS, globals())
