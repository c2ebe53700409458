"""The definitions of the measured statistics in exact rationals, and 60 digits where a root or exponential enters."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

CONTEXT = mpmath.MPContext()
CONTEXT.dps = 60
Stream = Sequence[Fraction]


def wide(value: Fraction) -> Any:
    return CONTEXT.mpf(value.numerator) / value.denominator


def central(x: Stream, k: int) -> Fraction:
    mean = sum(x) / Fraction(len(x))
    return sum(((v - mean) ** k for v in x), Fraction(0)) / len(x)


def moments(x: Stream) -> dict[str, Any]:
    v = central(x, 2)
    return {"variance": v, "skewness": wide(central(x, 3)) / wide(v) ** 1.5, "kurtosis": central(x, 4) / v**2}


def shares(x: Stream) -> dict[str, Any]:
    total, squares = sum(x), sum(v * v for v in x)
    deviation = CONTEXT.sqrt(wide(central(x, 2)))
    mean = wide(total / Fraction(len(x)))
    return {
        "2-norm": CONTEXT.sqrt(wide(squares)),
        "Herfindahl index": squares / total**2,
        "coefficient of variation": deviation / mean,
    }


def pairs(x: Stream, y: Stream) -> dict[str, Any]:
    n = len(x)
    mx, my = sum(x) / n, sum(y) / n
    xx = sum((a - mx) ** 2 for a in x)
    xy = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    slope = xy / xx
    intercept = my - slope * mx
    rss = sum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True))
    return {"covariance": xy / n, "slope": slope, "intercept": intercept, "rss": rss}


def softmax(x: Stream, v: Stream | None = None) -> dict[str, Any]:
    top = max(x)
    weights = [CONTEXT.exp(wide(a - top)) for a in x]
    total = CONTEXT.fsum(weights)
    result = {"logsumexp": wide(top) + CONTEXT.log(total)}
    if v is not None:
        result["attention"] = CONTEXT.fsum(w * wide(b) for w, b in zip(weights, v, strict=True)) / total
    return result


def every_draw(f: Any, *arrays: np.ndarray) -> dict[str, list[Any]]:
    """f on each row of the arrays, the floats taken as the rationals they are."""
    rows = [f(*([Fraction(float(t)) for t in a[i]] for a in arrays)) for i in range(len(arrays[0]))]
    return {name: [row[name] for row in rows] for name in rows[0]}


def relative_errors(computed: np.ndarray, true: Sequence[Any]) -> np.ndarray:
    """|computed - true| / |true| per draw, exactly; inf where the computed value is not a number."""
    errors = []
    for c, t in zip(np.asarray(computed, dtype=float).ravel(), true, strict=True):
        exact = wide(t) if isinstance(t, Fraction) else t
        error = abs(CONTEXT.mpf(float(c)) - exact) / abs(exact)
        errors.append(float(error) if CONTEXT.isfinite(error) else np.inf)
    return np.array(errors)
