"""Sums that cancel, their exact values, and what a compensated sum may differ from them by."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

TEXTS = {  # -> its terms at one row, exactly
    "sum": "return y = sum[j](x[i,j])",
    "product": "return y = sum[j](x[i,j]*w[j])",
    "squares": "return y = sum[j](x[i,j]**2)",
    "differences": "return y = sum[j](x[i,j] - w[j])",
    "products of differences": "return y = sum[j]((x[i,j] - w[j])*(x[i,j] + w[j]))",
    "chosen": "return y = sum[j](where(x[i,j] > w[j], x[i,j], 0)), n = sum[j](where(x[i,j] > w[j], 1, 0))",
}
MEANS = {"mean": "return y = mean[j](x[i,j])"}  # of rows that are one tile: tiles are averaged as without pairs


def arrays(rng: np.random.Generator, rows: int, n: int, dtype: Any) -> dict[str, np.ndarray]:
    """Numbers of very different sizes whose sum is nearly nothing of them; zeros and subnormals among them."""
    x = rng.standard_normal((rows, n)) * 2.0 ** rng.integers(-18, 18, (rows, n))
    x[:, n // 2 : n // 2 * 2] = -x[:, : n // 2] * (1 + 2.0**-20)
    x[rng.random(x.shape) < 0.05] = 0
    x[rng.random(x.shape) < 0.02] = 1e-40
    w = np.where(rng.random(n) < 0.5, 1.0, rng.standard_normal(n))
    return {"x": rng.permuted(x, axis=1).astype(dtype), "w": w.astype(dtype)}


def terms(name: str, x: np.ndarray, w: np.ndarray) -> list[Fraction]:
    """The terms of one row, without rounding."""
    a, b = ([Fraction(float(v)) for v in each] for each in (x, w))
    if name == "product":
        return [p * q for p, q in zip(a, b, strict=True)]
    if name == "squares":
        return [p * p for p in a]
    if name == "differences":
        return [t for p, q in zip(a, b, strict=True) for t in (p, -q)]
    if name == "products of differences":
        return [(p - q) * (p + q) for p, q in zip(a, b, strict=True)]
    if name == "mean":
        return [p / len(a) for p in a]
    return [p for p, q in zip(a, b, strict=True) if name == "sum" or p > q]


def bound(values: list[Fraction], dtype: Any) -> Fraction:
    """u·|S| for the last rounding, 2·(n + 8)²·u² of all terms for those of the low parts (Ogita, Rump, Oishi 2005,
    with the joins of threads counted as 8 more), and the least subnormal for each product."""
    info, n = np.finfo(dtype), len(values) + 8
    u = Fraction(float(info.eps)) / 2
    least = Fraction(float(info.smallest_subnormal))
    return u * abs(sum(values)) + 2 * n * n * u * u * sum(map(abs, values)) + n * least


def excess(name: str, found: np.ndarray, given: dict[str, np.ndarray]) -> list[float]:
    """Every row's error as a multiple of what it may be."""
    made = []
    for row, y in zip(given["x"], found, strict=True):
        values = terms(name, row, given["w"])
        made.append(float(abs(Fraction(float(y)) - sum(values)) / bound(values, found.dtype)))
    return made
