"""Hyperbolic functions, their inverses and x^y in float32, as `redalg.kernels.cpu.math.values`: no branches."""

from __future__ import annotations

import math

from redalg.kernels.cpu.math.exp import LOG2_E, exp2, expm1, half_exp
from redalg.kernels.cpu.math.log import log, log1p
from redalg.kernels.cpu.math.values import F32, F64, Value, absolute, call, select, with_sign

HUGE = 2.0**60  # from here on x² ± 1 is x², and x + √(x² ± 1) is 2x
LN_2 = 0.6931471805599453


def sinh(x: Value) -> Value:
    """(t + t/(t + 1))/2 with t = e^|x| - 1 for |x| < 1, else h - 1/(4h) with h = e^|x|/2."""
    size = absolute(x)
    t = expm1(size)
    h = half_exp(size)
    return with_sign(select(size < 1.0, (t + t / (t + 1.0)) * 0.5, h - 0.25 / h), x)


def cosh(x: Value) -> Value:
    h = half_exp(absolute(x))
    return h + 0.25 / h


def asinh(x: Value) -> Value:
    """log(1 + |x| + q), q = √(x² + 1) - 1 = |x|/(1/|x| + √(1 + 1/x²))."""
    size = absolute(x)
    inverse = 1.0 / size
    q = size / (inverse + call("sqrt", inverse * inverse + 1.0))
    return with_sign(_log1p(size, size + q), x)


def acosh(x: Value) -> Value:
    """log(1 + t + √(2t + t²)), t = x - 1."""
    t = x - 1.0
    y = _log1p(x, t + call("sqrt", t * (t + 2.0)))
    return select(x < 1.0, math.nan, y)


def _log1p(size: Value, y: Value) -> Value:
    """log(1 + y), or log(2·size) where the size is huge: y may have overflowed."""
    huge = size > HUGE
    return log1p(select(huge, size, y)) + select(huge, LN_2, Value(size.b, size.like(0.0)))


def atanh(x: Value) -> Value:
    size = absolute(x)
    return with_sign(log1p(size * 2.0 / (1.0 - size)) * 0.5, x)


def pow_f32(x: Value, y: Value) -> Value:
    """2^(y·log₂|x|) in float64, with the sign and the special values of C's ``pow`` (ISO C17, F.10.4.4)."""
    size, wide_y = absolute(x).to(F64.real), y.to(F64.real)
    power = exp2(wide_y * (log(size) * LOG2_E)).to(F32.real)
    whole = call("floor", y).same(y)
    odd = whole & ~call("floor", y * 0.5).same(y * 0.5)
    negative = x.bit_pattern() < 0
    finite = (absolute(x) < math.inf) & ~x.same(0.0)
    power = select(negative & odd, -power, power)
    power = select(negative & finite & ~whole, math.nan, power)
    one = y.same(0.0) | x.same(1.0) | (x.same(-1.0) & absolute(y).same(math.inf))
    return select(one, 1.0, power)
