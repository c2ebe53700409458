"""Elementary functions at dyadic points, enclosed: integer series whose every step is rounded both ways.

Each function takes a point and a number of bits and returns dyadics (low, high) with low <= f(x) <= high, about `bits`
bits apart. A fixed-point number at scale w is a pair of integers (low, high) that encloses x·2^w; the remainder of a
series is bounded by its last term (all ratios of later terms are at most 1/2, or the series alternates).
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

from redalg.proofs.numbers.dyadic import ONE, Dyadic, fixed, magnitude, negated, over, plus, times, trim

Pair = tuple[int, int]
Enclosed = tuple[Dyadic, Dyadic]
GUARD = 40
GREATEST = 40  # magnitude (in bits) of an exponential's argument that is still computed


def _ceil(n: int, w: int) -> int:
    return -(-n >> w)


def _product(a: Pair, b: Pair, w: int) -> Pair:
    """Of non-negative numbers."""
    return a[0] * b[0] >> w, _ceil(a[1] * b[1], w)


def _enclosed(x: Pair, w: int, bits: int) -> Enclosed:
    return trim(x[0], -w, bits, False), trim(x[1], -w, bits, True)


def _mirrored(x: Enclosed) -> Enclosed:
    return negated(x[1]), negated(x[0])


# --- constants -------------------------------------------------------------------------------------------------------


def _atanh_series(z: Pair, w: int) -> Pair:
    """Σ z^(2n+1)/(2n+1) for 0 <= z <= 1/3."""
    (a, b), n = _product(z, z, w), 1
    low, high = down, up = z
    while up > 1:
        down, up, n = down * a >> w, -(-up * b >> w), n + 2
        low, high = low + down // n, high - (-up // n)
    return low, high + up


def _atan_series(z: Pair, w: int) -> Pair:
    """Σ (-1)^n z^(2n+1)/(2n+1) for 0 <= z <= 1/2."""
    square, power, n, odd = _product(z, z, w), z, 1, False
    low, high = z
    while power[1] > 1:
        power, n, odd = _product(power, square, w), n + 2, not odd
        down, up = power[0] // n, -(-power[1] // n)
        low, high = (low - up, high - down) if odd else (low + down, high + up)
    return low - power[1], high + power[1]


def _inverse(n: int, w: int) -> Pair:
    return (1 << w) // n, -(-(1 << w) // n)


@lru_cache(maxsize=64)
def _ln2(w: int) -> Pair:
    inner = w + GUARD
    low, high = _atanh_series(_inverse(3, inner), inner)
    return 2 * low >> GUARD, _ceil(2 * high, GUARD)


@lru_cache(maxsize=64)
def _pi(w: int) -> Pair:
    """Machin (1706): π = 16 atan(1/5) - 4 atan(1/239)."""
    inner = w + GUARD
    a, b = _atan_series(_inverse(5, inner), inner), _atan_series(_inverse(239, inner), inner)
    return 16 * a[0] - 4 * b[1] >> GUARD, _ceil(16 * a[1] - 4 * b[0], GUARD)


def pi(bits: int) -> Enclosed:
    w = bits + GUARD
    return _enclosed(_pi(w), w, bits)


# --- exponential and logarithm ---------------------------------------------------------------------------------------


def _exp_series(x: Pair, w: int) -> Pair:
    """Σ x^n/n! for 0 <= x <= 2."""
    low = high = down = up = 1 << w
    (a, b), n = x, 0
    while up > 1 or b > n << w - 1:
        n += 1
        down, up = (down * a >> w) // n, -((-up * b >> w) // n)
        low, high = low + down, high + up
    return low, high + up


def exp(x: Dyadic, bits: int) -> Enclosed:
    """e^x for |x| < 2^GREATEST."""
    if not x[0]:
        return ONE, ONE
    size = magnitude(x)
    if size < -bits:  # 1 + x <= e^x <= 1 + x + x²
        above = plus(x, times(x, x, bits, True), bits, True)
        return plus(ONE, x, bits, False), plus(ONE, above, bits, True)
    if size > GREATEST:
        raise OverflowError("an exponential whose exponent is too long")
    halvings = isqrt(bits) // 2 + 2
    w = bits + GUARD + max(size, 0) + halvings
    ln2, (low, high) = _ln2(w), fixed(x, w)
    turns = low // ln2[1]
    while True:
        a, b = (ln2[1], ln2[0]) if turns >= 0 else (ln2[0], ln2[1])
        rest = low - turns * a, high - turns * b
        if rest[0] >= 0:
            break
        turns -= 1
    value = _exp_series((rest[0] >> halvings, _ceil(rest[1], halvings)), w)
    for _ in range(halvings):
        value = _product(value, value, w)
    return _enclosed(value, w - turns, bits)


def log(x: Dyadic, bits: int) -> Enclosed:
    """log x for x > 0."""
    m = x[0]
    length = m.bit_length()
    turns, whole = magnitude(x), 1 << length  # x = m/whole · 2^turns, m/whole in [1/√2, √2]
    if m * m < 1 << 2 * length - 1:
        turns, whole = turns - 1, whole >> 1
    rest = m - whole
    w = bits + GUARD + turns.bit_length()
    if not turns and rest:
        w += length - rest.bit_length()
    n = abs(rest) << w
    low, high = _atanh_series((n // (m + whole), -(-n // (m + whole))), w)
    low, high = (2 * low, 2 * high) if rest >= 0 else (-2 * high, -2 * low)
    a, b = _ln2(w) if turns >= 0 else _ln2(w)[::-1]
    return _enclosed((low + turns * a, high + turns * b), w, bits)


# --- angles ----------------------------------------------------------------------------------------------------------


def atan(x: Dyadic, bits: int) -> Enclosed:
    if x[0] <= 0:
        return _mirrored(atan(negated(x), bits)) if x[0] else (x, x)
    size = magnitude(x)
    if size < -bits:  # x - x³ <= atan x <= x
        return _below(x, bits), trim(*x, bits, True)
    w = bits + GUARD + max(-size, 0)
    if size <= 0:
        return _enclosed(_atan(fixed(x, w), w), w, bits)
    inverse = fixed(over(ONE, x, w, False), w)[0], fixed(over(ONE, x, w, True), w)[1]
    low, high = _atan(inverse, w)
    a, b = _pi(w)
    return _enclosed(((a >> 1) - high, _ceil(b, 1) - low), w, bits)


def _below(x: Dyadic, bits: int) -> Dyadic:
    """x·(1 - x²), rounded down, for small x > 0."""
    square = times(x, x, bits, True)
    return times(trim(*x, bits, False), plus(ONE, negated(square), bits, False), bits, False)


def _atan(z: Pair, w: int) -> Pair:
    """For 0 <= z <= 1: atan z = 2 atan(z / (1 + √(1 + z²))), thrice."""
    one = 1 << w
    for _ in range(3):
        low = (z[0] << w) // (one + isqrt((one << w) + z[0] * z[0]) + 1)
        high = -(-(z[1] << w) // (one + isqrt((one << w) + z[1] * z[1])))
        z = low, high
    low, high = _atan_series(z, w)
    return 8 * low, 8 * high


def sine_cosine(x: Dyadic, bits: int) -> tuple[Enclosed, Enclosed]:
    """(sin x, cos x); [-1, 1] where x is too large for its quadrant to be known."""
    whole = (negated(ONE), ONE)
    if x[0] <= 0:
        if not x[0]:
            return (x, x), (ONE, ONE)
        sine, cosine = sine_cosine(negated(x), bits)
        return _mirrored(sine), cosine
    size = magnitude(x)
    if size < -bits:  # x - x³ <= sin x <= x and 1 - x² <= cos x <= 1
        return (_below(x, bits), trim(*x, bits, True)), (plus(ONE, negated(times(x, x, bits, True)), bits, False), ONE)
    if size > 2 * bits + 64:
        return whole, whole
    w = bits + GUARD + abs(size)
    (a, b), (low, high) = _pi(w), fixed(x, w)
    quarter = a >> 1, _ceil(b, 1)
    turns = low // quarter[1]
    rest = low - turns * quarter[1], high - turns * quarter[0]
    pair = _circular(rest, w, 1), _circular(rest, w, 0)
    sine, cosine = (_enclosed(v, w, bits) for v in pair)
    for _ in range(turns % 4):
        sine, cosine = cosine, _mirrored(sine)
    return sine, cosine


def _circular(x: Pair, w: int, start: int) -> Pair:
    """Σ (-1)^n x^(2n+start)/(2n+start)! for 0 <= x <= 2: the sine from 1, the cosine from 0."""
    term = x if start else (1 << w, 1 << w)
    square, n, odd = _product(x, x, w), start, False
    low, high = term
    while term[1] > 1 or n < 4:
        term = _product(term, square, w)
        divisor = (n + 1) * (n + 2)
        term, n, odd = (term[0] // divisor, -(-term[1] // divisor)), n + 2, not odd
        low, high = (low - term[1], high - term[0]) if odd else (low + term[0], high + term[1])
    return low - term[1], high + term[1]


# --- error function --------------------------------------------------------------------------------------------------


def erf(x: Dyadic, bits: int) -> Enclosed:
    if x[0] <= 0:
        return _mirrored(erf(negated(x), bits)) if x[0] else (x, x)
    size = magnitude(x)
    if size < -bits:  # 2/√π·x·(1 - x²) <= erf x <= 2/√π·x
        scale = _two_over_root_pi(bits + 8)
        return times(scale[0], _below(x, bits), bits, False), times(scale[1], x, bits, True)
    if _is_late(x, bits):  # 1 - erf x < e^(-x²)
        return plus(ONE, (-1, -bits - 10), bits + 12, False), ONE
    w = bits + GUARD + max(-size, 0)
    point = fixed(x, w)
    total = _erf_series(point, w)
    decay = exp(negated((x[0] * x[0], 2 * x[1])), w)
    scale = _two_over_root_pi(w)
    low = times(times(scale[0], decay[0], w, False), (total[0], -w), bits, False)
    return low, times(times(scale[1], decay[1], w, True), (total[1], -w), bits, True)


def _erf_series(x: Pair, w: int) -> Pair:
    """Σ 2^n x^(2n+1)/(2n+1)!! (Abramowitz and Stegun 1964, 7.1.6)."""
    square = _product(x, x, w)
    term, n = x, 1
    low, high = x
    while term[1] > 1 or 4 * square[1] > n << w:
        n += 2
        term = _product(term, square, w)
        term = 2 * term[0] // n, -(-2 * term[1] // n)
        low, high = low + term[0], high + term[1]
    return low, high + term[1]


@lru_cache(maxsize=64)
def _two_over_root_pi(bits: int) -> Enclosed:
    w = 2 * bits + GUARD
    low, high = (isqrt(v << w) for v in _pi(w))
    return over((2, 0), (high + 1, -w), bits, False), over((2, 0), (low, -w), bits, True)


def _is_late(x: Dyadic, bits: int) -> bool:
    """x² > 0.7·bits + 20, so that e^(-x²) < 2^-(bits+20)."""
    return magnitude(x) > 30 or fixed(x, 8)[0] ** 2 > (7 * bits // 10 + 20) << 16


def erfc(x: Dyadic, bits: int) -> Enclosed:
    """1 - erf x, to `bits` bits also where it is small; x < 2^19."""
    if x[0] <= 0 or magnitude(x) < 0:
        low, high = erf(x, bits)
        return plus(ONE, negated(high), bits, False), plus(ONE, negated(low), bits, True)
    w = bits + GUARD
    if not _is_late(x, w):
        low, high = erf(x, bits + 2 * (fixed(x, 8)[1] ** 2 >> 16) + 16)
        return plus(ONE, negated(high), bits, False), plus(ONE, negated(low), bits, True)
    square = x[0] * x[0], 2 * x[1]
    half = fixed(over(ONE, square, w, False), w - 1)[0], fixed(over(ONE, square, w, True), w - 1)[1]  # 1/(2x²)
    total = _erfc_series(half, w)
    decay = exp(negated(square), w)
    scale = _two_over_root_pi(w)
    low = times(times(scale[0], decay[0], w, False), (total[0], -w - 1), w, False)
    high = times(times(scale[1], decay[1], w, True), (total[1], -w - 1), w, True)
    return over(low, x, bits, False), over(high, x, bits, True)


def _erfc_series(half: Pair, w: int) -> Pair:
    """Σ (-1)^n (2n-1)!!·(1/2x²)^n, which envelops its value (Abramowitz and Stegun 1964, 7.1.23)."""
    term, n, odd = (1 << w, 1 << w), -1, False
    low, high = term
    while term[1] > 1 and (n + 2) * half[1] < 1 << w:
        n += 2
        term, odd = _product((term[0] * n, term[1] * n), half, w), not odd
        low, high = (low - term[1], high - term[0]) if odd else (low + term[0], high + term[1])
    return low - term[1], high + term[1]


__all__ = ["Enclosed", "atan", "erf", "erfc", "exp", "log", "pi", "sine_cosine"]
