"""What the tests of CPU kernels share: forms of the catalog, and comparison with the definition within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import redalg as ra

ROUNDED = {  # a value that is rounded to integers inside a sum may fall on the other side of a tie
    "zero_point_int8_gemm": 2e-2,
    "absmax_int8_gemm": 2e-2,
    "fp8_per_token_gemm": 2e-2,
    "ternary_quantise": 1.0,
}


def by_name(spec: Any, value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {next(iter(spec.outputs)): value}


def agree(spec: Any, found: Any, arrays: Mapping[str, Any], unit: float, extra: float = 0.0) -> None:
    """Within n·c rounding errors of the largest element of each output, where n is the length of the longest axis.

    A sum of n terms in any order loses at most n - 1 roundings of its largest partial sum; stages add up, and each of
    the functions involved loses at most 5 (`math.table.ERROR_ULP`): 64 covers the deepest cascade of the catalog.
    """
    wide = {
        k: v.astype(np.float64) if getattr(v, "dtype", np.int64(0).dtype).kind == "f" else v for k, v in arrays.items()
    }
    true = by_name(spec, ra.reference(spec, **wide))
    longest = max([max(np.shape(v), default=1) for v in arrays.values()] + [1])
    for name, value in by_name(spec, found).items():
        a, b = np.asarray(value), np.asarray(true[name])
        assert a.shape == b.shape
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        finite = np.abs(b[np.isfinite(b)])
        scale = max(float(finite.max(initial=0.0)), 1e-30)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_allclose(a.astype(np.float64), b, rtol=extra, atol=scale * (unit * 64 * longest + extra))


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    wide[::2, ::3] = x
    return {
        "contiguous": x,
        "transposed": np.asfortranarray(x),
        "strided": wide[::2, ::3],
        "reversed": x[::-1, ::-1],
        "broadcast": np.broadcast_to(x[:1], x.shape),
    }
