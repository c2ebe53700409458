"""Sine, cosine and tangent in float32, inverse ones in both formats, as values of `redalg.kernels.cpu.math.values`.

All of the range and no branches: numbers of float32 are brought into an eighth of a turn by float64 arithmetic that
loses nothing (`_quarters`), up to the largest. The polynomials are minimax, found by Remez's exchange.
"""

from __future__ import annotations

import math

from redalg.kernels.cpu.math.exp import nearest
from redalg.kernels.cpu.math.values import F32, F64, Value, absolute, call, fma, polynomial, select, with_sign

# 1/(2π) to 189 bits, in pieces of 27: times a float32, of 24 bits, each is exact in float64.
TURNS = (
    0.15915493667125702,
    6.420638298809678e-09,
    1.7916237000301966e-17,
    2.77735701037504e-25,
    2.5454160871601804e-33,
    9.714746728528886e-42,
    4.0267819553577653e-50,
)
WHOLE = 5  # pieces whose product with a float32 may be a turn or more
# sin r = r + r³·(c₀ + c₁·r² + …) and cos r = 1 - r²/2 + r⁴·(c₀ + c₁·r² + …) for |r| ≤ π/4
SIN = -0.16666666639568808, 0.008333329145170421, -0.0001983925703337653, 2.717568221141833e-06
COS = 0.04166664565906856, -0.0013887306353358938, 2.44312411439366e-05
SMALL = 2.0**-13  # below it sin x and tan x are x in float32
# atan t = t + t³·(c₀ + c₁·t² + …) for |t| ≤ 1
ATAN = {
    "f32": (
        -0.333333,
        0.19998549,
        -0.14264242,
        0.10952186,
        -0.08403451,
        0.057957605,
        -0.031177856,
        0.010914612,
        -0.001793623,
    ),
    "f64": (
        -0.3333333333333307,
        0.1999999999995146,
        -0.14285714282575102,
        0.11111111007025991,
        -0.09090907002989118,
        0.07692279839269336,
        -0.06666404057403799,
        0.05880527813767191,
        -0.05253518550317559,
        0.04722322213110062,
        -0.042191789599966924,
        0.036641911289602064,
        -0.029903859540734375,
        0.021984855219014367,
        -0.013900562439884157,
        0.007196505296234711,
        -0.0028849197809297086,
        0.0008313224017401843,
        -0.0001521610039359602,
        1.3225091254180132e-05,
    ),
}
# asin t = t + t³·(c₀ + c₁·t² + …) for |t| ≤ 1/2
ASIN = {
    "f32": (0.16666754, 0.074952416, 0.0454771, 0.0241476, 0.04221857),
    "f64": (
        0.16666666666666763,
        0.07499999999970261,
        0.04464285717512157,
        0.030381942683586897,
        0.022372215661007652,
        0.017351600081237435,
        0.013980961560058966,
        0.011397775207614733,
        0.010786532998868047,
        0.0036830281870490005,
        0.021763530818960618,
        -0.02107733507158568,
        0.03267691558075885,
    ),
}
QUARTER = {  # π/2, and what that lacks
    "f32": (1.5707963705062866, -4.371138828673793e-08),
    "f64": (1.5707963267948966, 6.123233995736766e-17),
}


def sin_f32(x: Value) -> Value:
    r, n = _quarters(x)
    return select(absolute(x) < SMALL, x, _turned(r, n).to(F32.real))


def cos_f32(x: Value) -> Value:
    r, n = _quarters(x)
    return _turned(r, n + 1).to(F32.real)


def tan_f32(x: Value) -> Value:
    """s/c, or -c/s in every other quarter."""
    r, n = _quarters(x)
    s, c, odd = _sin(r), _cos(r), (n & 1).same(1)
    y = select(odd, -c, s) / select(odd, s, c)
    return select(absolute(x) < SMALL, x, y.to(F32.real))


def _quarters(x: Value) -> tuple[Value, Value]:
    """r and n of x = n·π/2 + r with |r| ≤ π/4, of a float32 in float64; n modulo 4, NaN where x is infinite.

    Every product of x and a part is exact, and so is what it has beyond whole turns, which are left out. Added from
    the largest part on, less n quarters of a turn, these are exact as well as long as they are large: a sum rounds
    where what is still to come is too small to cancel it. So r has a relative error of some 2^-52 also where x is
    next to a multiple of π/2, from which a float32 differs by more than 2^-31.
    """
    wide = x.to(F64.real)
    parts = [wide * part for part in TURNS[:WHOLE]]
    parts = [p - call("rint", p) for p in parts]
    about = parts[0]
    for p in parts[1:]:
        about = about + p
    for part in TURNS[WHOLE:]:
        about = fma(wide, part, about)
    quarters, n = nearest(about, 4.0)
    rest = fma(quarters, -0.25, parts[0])
    for p in parts[1:]:
        rest = rest + p
    for part in TURNS[WHOLE:]:
        rest = fma(wide, part, rest)
    return rest * (2.0 * math.pi), n


def _sin(r: Value) -> Value:
    z = r * r
    return fma(r * z, polynomial(z, SIN), r)


def _cos(r: Value) -> Value:
    z = r * r
    return fma(z * z, polynomial(z, COS), fma(z, -0.5, 1.0))


def _turned(r: Value, n: Value) -> Value:
    """The sine of r and n quarters of a turn."""
    y = select((n & 1).same(1), _cos(r), _sin(r))
    return (y.bit_pattern() ^ ((n & 2) << F64.bits - 2)).as_real()


def atan(x: Value) -> Value:
    """π/2 - atan 1/|x| for |x| > 1."""
    size = absolute(x)
    large = size > 1.0
    t = select(large, 1.0 / size, size)
    z = t * t
    y = fma(t * z, polynomial(z, ATAN[x.form.name]), t)
    high, low = QUARTER[x.form.name]
    return with_sign(select(large, high - (y - low), y), x)


def asin(x: Value) -> Value:
    """π/2 - 2·asin √((1 - |x|)/2) for |x| > 1/2."""
    high, low = QUARTER[x.form.name]
    half, t, rest = _chord(x)
    y = select(half, (high - 2.0 * t) - (2.0 * rest - low), t + rest)
    return with_sign(y, x)


def acos(x: Value) -> Value:
    """2·asin √((1 - x)/2) for x > 1/2, π less that of -x for x < -1/2, π/2 - asin x between."""
    high, low = QUARTER[x.form.name]
    half, t, rest = _chord(x)
    twice, further = 2.0 * t, 2.0 * rest
    far = select(x < 0.0, (2.0 * high - twice) - (further - 2.0 * low), twice + further)
    near = high - (x - (low - with_sign(rest, x)))
    return select(half, far, near)


def _chord(x: Value) -> tuple[Value, Value, Value]:
    """Whether |x| > 1/2; t = √((1 - |x|)/2) there, |x| elsewhere; and asin t - t, with what rounding the root left."""
    size = absolute(x)
    half = size > 0.5
    z = select(half, fma(size, -0.5, 0.5), size * size)
    t = select(half, call("sqrt", z), size)
    lost = fma(-t, t, z) * 0.5 / select(t > 0.0, t, 1.0)
    rest = t * z * polynomial(z, ASIN[x.form.name])
    return half, t, select(half, rest + lost, rest)
