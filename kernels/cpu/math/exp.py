"""e^x and what is made of it, as values of `redalg.kernels.cpu.math.values`: full range, no branches.

x = k·ln 2 + r with |r| ≤ ln 2 / 2, and e^x = 2^k·e^r (Tang 1989, "Table-driven implementation of the exponential
function", without the table). ln 2 is split so that k times its upper part is exact. The polynomials are minimax,
found by Remez's exchange and rounded to the format.
"""

from __future__ import annotations

from redalg.kernels.code.processor import masks
from redalg.kernels.cpu.math.values import Format, Value, absolute, clamped, fma, polynomial, scaled, select, with_sign

SCALES = masks()  # whether the processor multiplies by a power of two, rounding once
LOG2_E = 1.4426950408889634
LN2 = {  # upper part with enough zeros at its end, lower part
    "f32": (0.693145751953125, 1.428606765330187045e-06),
    "f64": (0.6931471803691238, 1.9082149292705877e-10),
}
# e^r = 1 + r + r²·(c₀ + c₁·r + …)
EXP = {
    "f32": (0.49999994, 0.16666521, 0.04166839, 0.008368745, 0.001381454),
    "f64": (
        0.5000000000000011,
        0.1666666666666641,
        0.041666666666529725,
        0.008333333333494982,
        0.0013888888943760056,
        0.00019841269505765,
        2.4801492949535407e-05,
        2.7557586812140112e-06,
        2.7630306285963674e-07,
        2.5000016117382965e-08,
    ),
}
# e^r = 1 + r + r²·(c₀ + c₁·r + …), with the error relative to e^r - 1
EXPM1 = {
    "f32": (0.5, 0.16666666, 0.04166636, 0.00833339, 0.0013940668, 0.00019845882),
    "f64": (
        0.5,
        0.16666666666666677,
        0.041666666666666505,
        0.008333333333321653,
        0.0013888888888962606,
        0.00019841269886073523,
        2.4801587172229978e-05,
        2.755724425411212e-06,
        2.7557402774930247e-07,
        2.5109024491217234e-08,
        2.0875329289063905e-09,
    ),
}
# 2^r = 1 + r·(c₀ + c₁·r + …)
EXP2 = {
    "f32": (0.6931472, 0.24022648, 0.055503324, 0.009618438, 0.0013398926, 0.0001535332),
    "f64": (
        0.6931471805599453,
        0.2402265069591013,
        0.05550410866482008,
        0.009618129107594011,
        0.001333355814677573,
        0.00015403530457264563,
        1.525273349237977e-05,
        1.3215435200132286e-06,
        1.0178199754151566e-07,
        7.073798308624365e-09,
        4.434762585865218e-10,
    ),
}
RANGE = {"f32": (-104.0, 90.0), "f64": (-746.0, 711.0)}  # below: 0; above: infinity, also of e^x/2
RANGE2 = {"f32": (-151.0, 128.0), "f64": (-1076.0, 1024.0)}


def exp(x: Value) -> Value:
    return _scaled(*_split(x))


def half_exp(x: Value) -> Value:
    """e^x/2, which overflows later."""
    p, n = _split(x)
    return _scaled(p, n - 1)


def _split(x: Value) -> tuple[Value, Value]:
    """e^r and k of x = k·ln 2 + r."""
    x = clamped(x, *RANGE[x.form.name])
    k, n = nearest(x, LOG2_E)
    r = _remainder(x, k)
    return fma(r * r, polynomial(r, EXP[x.form.name]), r) + 1.0, n


def exp2(x: Value) -> Value:
    p, n = _split2(clamped(x, *RANGE2[x.form.name]))
    return _scaled(p, n)


def exp2_inside(x: Value) -> Value:
    """2^x where that is known to be a normal number."""
    p, n = _split2(x)
    return p * power_of_two(n)


def _split2(x: Value) -> tuple[Value, Value]:
    """2^r and n of x = n + r."""
    k, n = nearest(x, 1.0)
    r = x - k
    return fma(r, polynomial(r, EXP2[x.form.name]), 1.0), n


def expm1(x: Value) -> Value:
    """2^k·(e^r - 1) + (2^k - 1), at half the size so that 2^k does not overflow."""
    y = clamped(x, -45.0, RANGE[x.form.name][1] - 1.0)
    k, n = nearest(y, LOG2_E)
    r = _remainder(y, k)
    p = fma(r * r, polynomial(r, EXPM1[x.form.name]), r)
    half = power_of_two(n - 1)
    return with_sign(fma(p, half, half - 0.5) * 2.0, x)


def tanh(x: Value) -> Value:
    """-t/(t + 2), t = e^(-2|x|) - 1."""
    t = expm1(absolute(x) * -2.0)
    return with_sign(t / (t + 2.0), x)


def sigmoid(x: Value) -> Value:
    """z/(1 + z) for x < 0, 1/(1 + z) else, z = e^-|x|: never a quotient of infinities, subnormals included."""
    z = exp(-absolute(x))
    return select(x < 0.0, z, 1.0) / (z + 1.0)


def nearest(x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to x·factor, which is small, as a float and as an integer."""
    shifted = fma(x, factor, x.form.shifter)
    return shifted - x.form.shifter, shifted.bit_pattern() - shifter_bits(x.form)


def shifter_bits(form: Format) -> int:
    return (form.bias + form.fraction << form.fraction) + (1 << form.fraction - 1)


def _remainder(x: Value, k: Value) -> Value:
    """x - k·ln 2, as if exact."""
    high, low = LN2[x.form.name]
    return fma(k, -low, fma(k, -high, x))


def power_of_two(n: Value) -> Value:
    """2^n for n within the normal exponents."""
    form = n.form
    return ((n << form.fraction) + (form.bias << form.fraction)).as_real()


def _scaled(p: Value, n: Value) -> Value:
    """p·2^n: overflows to infinity, rounds once on its way through the subnormals to 0; elsewhere by two factors."""
    if SCALES:
        return scaled(p, n)
    half = n >> 1
    return p * power_of_two(half) * power_of_two(n - half)
