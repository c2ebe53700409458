"""Specs that stream over the first of two axes, with data and schedules for them, which several tests share."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import redalg as ra
from tests.support.forms import Forms

X, M, W = ra.tensors("x[i,j] m[i,j] w[i]")
MEAN = ra.mean(X, "i")
SHARES = ra.exp(X - ra.max(X, "i")) / ra.sum(ra.exp(X - ra.max(X, "i")), "i")
SPECS = {
    "var_mean": ra.Spec(var=ra.mean((X - MEAN) ** 2, "i"), mean=MEAN),
    "standard_scores": ra.Spec(z=(X - MEAN) / ra.sqrt(ra.mean((X - MEAN) ** 2, "i") + 1e-5), mean=MEAN),
    "softmax": ra.Spec(y=SHARES),
    "entropy": ra.Spec(h=-ra.sum(SHARES * ra.log(SHARES + 1e-9), "i")),
    "masked": ra.Spec(s=ra.sum(ra.where(M > 0, X, 0), "i") / (1 + ra.sum(ra.where(M > 0, 1.0, 0.0), "i"))),
    "weighted": ra.Spec(s=ra.sum(W * X, "i") / ra.sum(W, "i")),
    "argmax": ra.Spec(at=ra.argmax(X, "i"), least=ra.min(X, "i")),
    "largest": ra.Spec(v=ra.topk(X, 3, "i").values, p=ra.topk(X, 3, "i").indices),
    "scaled": ra.Spec(q=ra.cast(X / ra.max(abs(X), "i") * 127, "int8"), s=ra.max(abs(X), "i")),
    "kurtosis": ra.Spec(k=ra.mean((X - MEAN) ** 4, "i") / (ra.mean((X - MEAN) ** 2, "i") + 1e-9) ** 2),
}
FORMS = Forms(SPECS, axis="i", max_passes=2)
SCHEDULES = [
    {"threads": 4, "rows": 8},
    {"threads": 1, "rows": 32, "tile": 8},
    {"threads": 8, "rows": 4, "tile": 2, "split": 3},
    {"threads": 2, "rows": 16, "tile": 1, "persistent": True},
    {"threads": 1, "rows": 32, "tile": 64, "resident": True},
]
UNIT = {"float32": 2.0**-22, "float64": 2.0**-50, "bfloat16": 2.0**-8, "float16": 2.0**-10, "float8_e4m3fn": 2.0**-3}


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    return np.random.default_rng(seed).normal(size=shape).astype(kind)


def arrays_of(name: str, n: int, columns: int, dtype: str, seed: int) -> dict[str, Any]:
    shapes = {"x": (n, columns), "m": (n, columns), "w": (n,)}
    given = {t.name: drawn(shapes[t.name], dtype, seed + i) for i, t in enumerate(SPECS[name].tensors)}
    return given | ({"w": abs(given["w"])} if "w" in given else {})


def agree(name: str, found: dict[str, Any], arrays: dict[str, Any], dtype: str, more: float = 0.0) -> None:
    with np.errstate(all="ignore"):
        true = ra.reference(SPECS[name], **{n: a.astype(np.float64) for n, a in arrays.items()})
    for output, value in (true if isinstance(true, dict) else {next(iter(found)): true}).items():
        got = found[output]
        if (
            name == "scaled" and output == "q"
        ):  # a quotient off by some units may be rounded to the other side of a half
            x = arrays["x"].astype(np.float64)
            far = np.abs(got - x / np.abs(x).max(0, initial=1e-300) * 127)
            assert far.max(initial=0) <= 0.5 + 127 * 4 * UNIT["float32"]
            continue
        if got.dtype.kind in "iu":
            np.testing.assert_array_equal(got, value)
            continue
        size = np.max(np.abs(value), where=np.isfinite(value), initial=1e-3)
        unit = 4 * UNIT[dtype] + more
        np.testing.assert_allclose(got.astype(np.float64), value, rtol=unit, atol=unit * size)
