"""The unary maps of the language on NumPy arrays.

Real arrays only unless NumPy's function takes complex ones; the caller has turned integers into floats where the map
needs it, and has switched warnings off.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS
from redalg.numeric import integers

Array = Any


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow on either side."""
    if np.iscomplexobj(x):
        return 1 / (1 + np.exp(-x))
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def relu(x: Array) -> Array:
    """max(x, 0), in the type of x."""
    return np.maximum(x, 0)


def pow2(x: Array) -> Array:
    """The largest power of 2 that is at most |x|, kept where it and its reciprocal are normal; 1 for inf and NaN."""
    x = np.asarray(x)
    least = np.finfo(x.dtype).minexp
    exponent = np.frexp(x)[1] - 1
    exponent = np.clip(np.where(x == 0, least, exponent), least, -least)
    return np.ldexp(np.ones((), x.dtype), np.where(np.isfinite(x), exponent, 0))


def erf(x: Array) -> Array:
    """2/sqrt(pi) times the integral of exp(-t^2) from 0 to x, to about 1 unit in the last place of float64."""
    wide = np.asarray(x, np.float64)
    a = np.abs(wide)
    near, far = _erf_polynomials()
    small = np.minimum(a, 1.0)
    inside = small * _horner(near, small * small)
    outside = 1.0 - _scaled_tail(far, a)
    return _narrow(np.copysign(np.where(a < 1.0, inside, outside), wide), x)


def erfc(x: Array) -> Array:
    """1 - erf(x), accurate in the upper tail too (relative error of a few units down to the subnormal numbers)."""
    wide = np.asarray(x, np.float64)
    a = np.abs(wide)
    near, far = _erf_polynomials()
    small = np.clip(wide, -1.0, 0.5)
    inside = 1.0 - small * _horner(near, small * small)
    tail = _scaled_tail(far, a)
    return _narrow(np.where((wide > -1.0) & (wide < 0.5), inside, np.where(wide > 0, tail, 2.0 - tail)), x)


def _scaled_tail(far: np.ndarray, a: Array) -> Array:
    """erfc(a) = t·q(t)·exp(-a²) for a >= 0, t = 2/(2+a); a² is split so that its rounding does not enter the exp."""
    a = np.minimum(a, 30.0)  # erfc(30) underflows to 0, and infinity must not reach the splitting
    t = 2.0 / (2.0 + a)
    head = a.astype(np.float32).astype(np.float64)
    tail = np.exp(-head * head) * np.exp((head - a) * (head + a))
    return np.where(np.isnan(a), a, t * _clenshaw(far, 2.0 * t - 1.0) * tail)


def _narrow(value: Array, like: Array) -> Array:
    return value.astype(like.dtype) if isinstance(like, np.ndarray | np.generic) else value


def _horner(coefficients: np.ndarray, x: Array) -> Array:
    value = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * x + c
    return value


def _clenshaw(coefficients: np.ndarray, x: Array) -> Array:
    above, here = np.zeros_like(x), np.zeros_like(x)
    for c in coefficients[:0:-1]:
        above, here = here, 2.0 * x * here - above + c
    return x * here - above + coefficients[0]


@functools.cache
def _erf_polynomials() -> tuple[np.ndarray, np.ndarray]:
    """Taylor series of erf(x)/x in x², Chebyshev series of erfc(a)·exp(a²)/t in 2t-1; computed once, to 40 digits."""
    import mpmath

    with mpmath.workdps(40):
        near = [2 / mpmath.sqrt(mpmath.pi) * (-1) ** k / (mpmath.factorial(k) * (2 * k + 1)) for k in range(22)]
        count = 40
        angles = [mpmath.pi * (k + mpmath.mpf(1) / 2) / count for k in range(count)]
        samples = [_scaled_erfc(mpmath, (mpmath.cos(angle) + 1) / 2) for angle in angles]
        far = [
            mpmath.fsum(s * mpmath.cos(k * angle) for s, angle in zip(samples, angles, strict=True))
            * (2 if k else 1)
            / count
            for k in range(32)
        ]
        return np.array([float(c) for c in near]), np.array([float(c) for c in far])


def _scaled_erfc(mpmath: Any, t: Any) -> Any:
    a = 2 / t - 2
    if a < 50:
        return mpmath.erfc(a) * mpmath.exp(a * a) / t
    series = sum((-1) ** k * mpmath.fac2(2 * k - 1) / (2 * a * a) ** k for k in range(12))
    return series / (a * mpmath.sqrt(mpmath.pi) * t)


class _Arrays:
    """Formulas on arrays; constants take the arrays' type."""

    @staticmethod
    def number(value: Fraction) -> float:
        return float(value)

    @staticmethod
    def special(name: str) -> float:
        return {"pi": np.pi, "oo": np.inf, "-oo": -np.inf, "nan": np.nan}[name]

    @staticmethod
    def add(terms: Sequence[Array]) -> Array:
        return functools.reduce(np.add, terms)

    @staticmethod
    def mul(factors: Sequence[Array]) -> Array:
        return functools.reduce(np.multiply, factors)

    @staticmethod
    def power(base: Array, exponent: Array) -> Array:
        return np.power(base, exponent)

    @staticmethod
    def extremum(op: str, a: Array, b: Array) -> Array:
        return (np.maximum if op == "maximum" else np.minimum)(a, b)

    @staticmethod
    def unary(name: str, x: Array) -> Array:
        return implementation(name)(x)


def computed(x: Array, name: str) -> Array:
    """A function of the table that is computed by a formula."""
    return evaluated(FUNCTIONS[name].computed, _Arrays, x)


@functools.cache
def implementation(name: str) -> Callable[[Array], Array]:
    """The function of a row of the table: NumPy's, the formula it is computed by, or the one of this module."""
    row = FUNCTIONS[name]
    if row.computed:
        return functools.partial(computed, name=name)
    found: Callable[[Array], Array] = getattr(np, row.numpy) if row.numpy else globals()[name]
    return found


FLOAT_MAPS = {name: implementation(name) for name, row in FUNCTIONS.items() if not row.exact}
EXACT_MAPS = {name: implementation(name) for name, row in FUNCTIONS.items() if row.exact}  # integers in, integers out


def of_integers(x: Array, op: str) -> Array:
    """Maps that keep integers: most have nothing to do, and -2^63 has no magnitude in int64."""
    if op in ("floor", "ceil", "conj", "re"):
        return x
    if not isinstance(x, np.ndarray):
        return EXACT_MAPS[op](np.asarray(x, dtype=object)) if abs(x) > integers.LARGEST else EXACT_MAPS[op](x)
    wide = x.astype(object) if op == "abs" and integers.magnitude(x) > integers.LARGEST else x
    return integers.fitted(EXACT_MAPS[op](wide))
