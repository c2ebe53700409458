"""Rows that leave the range of float32 or float64 on the way to results that do not: specs, arrays, and comparison."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import redalg as ra

VARIANCE = "m = sum[j](x[i,j])/size[j]; v = sum[j]((x[i,j] - m)**2)/size[j]"
MEAN_SQUARE = "q = sum[j](x[i,j]**2)/size[j]"
TEXTS = {
    "layer norm": f"tensors x[i,j], g[j], e nonnegative; {VARIANCE}; y = g[j]*(x[i,j] - m)/sqrt(v + e); return y",
    "rms norm": f"tensors x[i,j], g[j], e nonnegative; {MEAN_SQUARE}; y = g[j]*x[i,j]/sqrt(q + e); return y",
    "variance": f"{VARIANCE}; return v",
    "mean": "y = sum[j](x[i,j])/size[j]; return y",
    "share": "y = x[i,j]/sum[j](x[i,j]); return y",
    "mean square": f"{MEAN_SQUARE}; return q",
    "logarithm": f"{MEAN_SQUARE}; y = log(q); return y",
    "tanh": f"{MEAN_SQUARE}; y = tanh(q); return y",
    "several": f"{VARIANCE}; y = (x[i,j] - m)/sqrt(v); largest = max[j](x[i,j]); return m, v, y, largest",
    "weighted mean": "y = sum[j](w[i,j]*x[i,j])/sum[j](w[i,j]); return y",
    "above the mean": f"{VARIANCE}; y = any[j](x[i,j] > 2*m); return y",
    "inverse": f"{MEAN_SQUARE}; y = 1/(q*sqrt(q)); return y",
    "product": "y = prod[j](x[i,j]); return y",
    "of both axes": "m = sum[i,j](x[i,j])/size[i]/size[j]; y = sum[i,j]((x[i,j] - m)**2); return y",
    "hidden product": "u = sum[j](abs(x[i,j]))*sum[j](abs(x[i,j]))/size[j]; y = u/(1 + u); return y",
    "two passes": f"{VARIANCE}; y = sum[j](relu((x[i,j] - m)/sqrt(v))); return y",
}
EXTREMA = {  # which kernels of a CPU watch
    "scaled to 0 and 1": "low = min[j](x[i,j]); y = (x[i,j] - low)/(max[j](x[i,j]) - low); return y",
    "middle": "y = (max[j](x[i,j]) + min[j](x[i,j]))/4; return y",
    "largest": "y = x[i,j]/max[j](abs(x[i,j])); return y",
    "position of a product": "at = argmax[j](x[i,j]*w[i,j]); return at",
    "product of extrema": "y = max[j](abs(x[i,j]))*sum[j](w[i,j])*min[j](x[i,j])/max[j](abs(x[i,j])); return y",
    "two nearest": "near = topk[j:2](-(x[i,j] - w[i,j])**2).indices; return near",
    "two farthest": "at = topk[j:2]((x[i,j] - w[i,j])**2).indices; return at",
    "nearest": "at = argmin[j](abs(x[i,j] - w[i,j])**3); d = sqrt(min[j]((x[i,j] - w[i,j])**2)); return at, d",
}
FOLLOWING = {"nearest": "w", "two nearest": "w", "two farthest": "w"}  # a tensor that is as large as x
KEEPS = ("layer norm", "rms norm", "share")  # whose result may take the place of x
LEAST, MOST = {"float32": -44, "float64": -322}, {"float32": 38, "float64": 308}


@cache
def form(name: str) -> ra.Form:
    spec = ra.parse((TEXTS | EXTREMA)[name])
    found = ra.verdict(spec)
    return found if isinstance(found, ra.Form) else ra.derive_incremental(spec, max_passes=2)


def drawn(name: str, shape: tuple[int, int], dtype: str, powers: list[float], seed: int) -> dict[str, Any]:
    """Row r is of the size 10^powers[r mod len]: ordinary ones beside those out of range."""
    rng, kind = np.random.default_rng(seed), np.dtype(dtype)
    size = np.array([powers[r % len(powers)] for r in range(shape[0])])[:, None]
    found: dict[str, Any] = {}
    for t in form(name).spec.tensors:
        if not t.axes:
            found[t.name] = 0.0
            continue
        x = rng.uniform(0.1, 0.999, shape) * rng.choice([-1, 1, 1], shape)
        if t.name in ("x", FOLLOWING.get(name)):
            mantissa, whole = np.modf(size)
            x = (x * 10**mantissa).astype(np.longdouble) * np.longdouble(10) ** whole
        found[t.name] = np.asarray(x if len(t.axes) == 2 else np.abs(x[0]) if shape[0] else np.ones(shape[1]), kind)
    return found


def definition(name: str, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The definition, exact but for one rounding."""
    spec, kind = form(name).spec, arrays["x"].dtype
    wide = {n: x.astype(np.float64) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
    true = ra.reference(spec, exact=kind == np.float64, **wide)
    return {n: _rounded(np.asarray(x), kind) for n, x in named(name, true).items()}


def named(name: str, value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {next(iter(form(name).spec.outputs)): value}


def _rounded(x: np.ndarray, kind: Any) -> np.ndarray:
    if x.dtype.kind == "O":
        x = np.array([_float(v) for v in x.ravel().tolist()]).reshape(x.shape)
    return x.astype(kind) if x.dtype.kind == "f" else x


def _float(x: Any) -> float:
    try:
        return float(x)
    except OverflowError:
        return np.inf if x > 0 else -np.inf


def agree(found: np.ndarray, true: np.ndarray, rough: np.ndarray | bool = False) -> None:
    """Equal within roundings of the row's largest number; no number where there is none. `rough`: rows of subnormal
    elements, which are no more exact than that."""
    assert found.shape == true.shape
    if found.dtype.kind != "f":  # exact positions are Python's integers
        np.testing.assert_array_equal(found, true)
        return
    assert found.dtype == true.dtype
    info = np.finfo(true.dtype)
    a, b = found.astype(np.longdouble), true.astype(np.longdouble)
    size = np.where(np.isfinite(b), np.abs(b), 0).max(axis=-1, keepdims=True, initial=0) if b.ndim == 2 else np.abs(b)
    near = np.abs(a - b) <= size * info.eps * 512 + info.smallest_subnormal * 4
    wrong = np.isfinite(b) & ~(near | rough) | ~np.isfinite(b) & ~((a == b) | np.isnan(a))
    assert not wrong.any(), (found[wrong][:4], true[wrong][:4])
