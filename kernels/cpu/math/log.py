"""log x, log(1 + x) and log₂ x, as values of `redalg.kernels.cpu.math.values`: full range, no branches.

x = 2^k·(1 + f) with 1 + f between √½ and √2, s = f/(2 + f), and log(1 + f) = f - f²/2 + s·(f²/2 + s²·P(s²)), the
arrangement of fdlibm (Sun Microsystems 1993, e_log.c). The polynomials P are minimax, found by Remez's exchange.
"""

from __future__ import annotations

import math

from redalg.kernels.cpu.math.exp import LN2, power_of_two, shifter_bits
from redalg.kernels.cpu.math.values import Value, call, fma, polynomial, select

LOG = {
    "f32": (0.6666666, 0.40000334, 0.285373, 0.23582293),
    "f64": (
        0.6666666666666734,
        0.3999999999941432,
        0.28571428742474875,
        0.2222219856348613,
        0.1818356486661836,
        0.15314035837018622,
        0.14796105420863453,
    ),
}
LOG2_E = {"f32": (1.4426950216293335, 1.925963033500011e-08), "f64": (1.4426950408889634, 2.0355273740931033e-17)}
SQRT_HALF_BITS = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}


def log(x: Value) -> Value:
    return _with_ends(x, _combined(*_parts(x)))


def log2(x: Value) -> Value:
    """k + f/ln 2 - (f - log(1 + f))/ln 2: at powers of 2 it is k."""
    k, f = _parts(x)
    high, low = LOG2_E[x.form.name]
    s, z, half_square = _powers(f)
    rest = s * fma(z, polynomial(z, LOG[f.form.name]), half_square)
    head = f * high
    tail = fma(f, high, -head) + fma(f, low, (rest - half_square) * high)
    return _with_ends(x, k + (head + tail))


def _parts(x: Value) -> tuple[Value, Value]:
    """k and f of x = 2^k·(1 + f), subnormal numbers included."""
    form = x.form
    small = x < 2.0 ** (1 - form.bias)
    k, f = _split(select(small, x * 2.0**form.fraction, x))
    return k + select(small, -float(form.fraction), Value(x.b, x.like(0.0))), f


def log1p(x: Value) -> Value:
    """log u, u = 1 + x, where what u lost by rounding joins f: for |x| small f is x itself."""
    u = x + 1.0
    lost = select(x > 1.0, 1.0 - (u - x), x - (u - 1.0))
    n = _exponent(u)
    f = (u.bit_pattern() - (n << x.form.fraction)).as_real() - 1.0
    f = fma(lost, power_of_two(select(n > x.form.bias - 1, x.form.bias - 1, n) * -1), f)
    y = _combined(_as_real(n), f)
    return select(call("fabs", x) < 2.0 ** -(x.form.fraction + 2), x, _with_ends(u, y))


def _exponent(x: Value) -> Value:
    return (x.bit_pattern() - SQRT_HALF_BITS[x.form.name]) >> x.form.fraction


def _as_real(n: Value) -> Value:
    """A small integer as a float (x86 before AVX-512 has no conversion from int64)."""
    form = n.form
    return (n + shifter_bits(form)).as_real() - form.shifter


def _split(x: Value) -> tuple[Value, Value]:
    """k and f of x = 2^k·(1 + f), for x positive and normal."""
    n = _exponent(x)
    return _as_real(n), (x.bit_pattern() - (n << x.form.fraction)).as_real() - 1.0


def _combined(k: Value, f: Value) -> Value:
    """k·ln 2 + log(1 + f)."""
    high, low = LN2[f.form.name]
    s, z, half_square = _powers(f)
    tail = fma(s, fma(z, polynomial(z, LOG[f.form.name]), half_square), k * low)
    return fma(k, high, f - (half_square - tail))


def _powers(f: Value) -> tuple[Value, Value, Value]:
    """s, s² and f²/2."""
    s = f / (f + 2.0)
    return s, s * s, f * f * 0.5


def _with_ends(x: Value, y: Value) -> Value:
    """y where x is positive and finite; log 0 = -∞, log ∞ = ∞, NaN below 0 and for NaN."""
    y = select(x < math.inf, y, math.inf)
    return select(x > 0.0, y, select(x.same(0.0), Value(x.b, x.like(-math.inf)), math.nan))
