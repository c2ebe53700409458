"""Rows that start anywhere: arrays with odd lengths, strides and offsets, and schedules of every family for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.ir.schedule import Schedule

NAMES = ("softmax", "layer_norm", "variance", "argmax", "absmax", "logsumexp", "cosine_similarity", "kurtosis")


def schedules(vector: int, length: int) -> Iterator[Schedule]:
    """One of every family that reads whole vectors of rows that start anywhere."""
    group = 32 if vector == 8 else 8
    whole = length // vector * vector

    def held(threads: int, blocks: int = 1) -> int:
        return -(-whole // (threads * blocks * vector)) * vector

    yield Schedule(group, 32 // group, vector, held(group), resident=True, peel=True)
    yield Schedule(group, 2, vector, 2 * vector, peel=True)
    yield Schedule(64, 1, vector, held(64), resident=True, peel=True)
    yield Schedule(64, 1, vector, vector, peel=True)
    yield Schedule(32, 1, vector, held(32, 2), resident=True, cluster=2, peel=True)
    yield Schedule(32, 1, vector, vector, cluster=2, peel=True)
    yield Schedule(32, 1, vector, vector, split=3, peel=True)
    yield Schedule(32, 1, vector, vector, split=2, persistent=True, peel=True)
    yield Schedule(32, 1, vector, held(32, 2), resident=True, split=2, persistent=True, peel=True)
    span = 32 * vector
    for split, distance in ((1, 1), (1, 3), (2, 2)):
        ring = -(-length // (split * span)) * span
        yield Schedule(
            32, 1, vector, vector, split=split, persistent=True, prefetch=ring, prefetch_distance=distance, peel=True
        )


def arrays(spec: Any, rows: int, length: int, dtype: Any, rng: Any, offset: int, gap: int) -> dict[str, Any]:
    """Arguments: first tensors begin `offset` elements into their memory, and rows are `gap` elements longer there."""
    found: dict[str, Any] = {}
    for number, t in enumerate(spec.tensors):
        if not t.axes:
            found[t.name] = 1e-5
            continue
        shape = (rows, length) if len(t.axes) == 2 else (length,)
        skip = offset if number == 0 else 0
        if len(shape) == 2:
            memory = rng.normal(size=skip + rows * (length + gap)).astype(dtype)
            found[t.name] = memory[skip:].reshape(rows, length + gap)[:, :length]
        else:
            found[t.name] = rng.normal(size=skip + length).astype(dtype)[skip:]
    return found


def error(spec: Any, found: dict[str, Any], given: dict[str, Any], beside: float = 0.0) -> float:
    """The largest difference to the definition, relative to the largest result, or to the number that they are what is
    left beside (an excess)."""
    wide = {n: a if isinstance(a, float) else np.asarray(a, np.float64) for n, a in given.items()}
    true = ra.reference(spec, **wide)
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    worst = 0.0
    for name, value in found.items():
        a, b = np.asarray(value, np.float64), np.asarray(true[name], np.float64)
        assert a.shape == b.shape and np.isfinite(a).all(), name
        if np.asarray(true[name]).dtype.kind in "iu":
            np.testing.assert_array_equal(a, b)
        worst = max(worst, float(np.abs(a - b).max(initial=0.0) / max(1e-30, beside, np.abs(b).max(initial=0.0))))
    return worst
