"""States along axes, held as single values or in tiles, on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from benchmarks.gpu.states import BATCHES, COVARIANCE, CROSS, GRAM, GROUPS, INERTIA, WEIGHTED

CASES = [
    (INERTIA, {"j": 100_003, "d": 3}),
    (INERTIA, {"j": 1 << 20, "d": 3}),
    (COVARIANCE, {"j": 1 << 18, "a": 3, "b": 3}),
    (COVARIANCE, {"j": 9973, "a": 13, "b": 13}),
    (COVARIANCE, {"j": 70_001, "a": 64, "b": 64}),
    (CROSS, {"j": 50_001, "a": 24, "b": 10}),
    (WEIGHTED, {"j": 77_777, "a": 4, "b": 4}),
    (WEIGHTED, {"j": 30_003, "a": 16, "b": 16}),
    (BATCHES, {"i": 33, "j": 1000, "a": 3, "b": 3}),
    (BATCHES, {"i": 7, "j": 3001, "a": 12, "b": 12}),
    (GRAM, {"j": 20_000, "a": 30, "b": 30}),
    (GROUPS, {"j": 50_000, "k": 11, "d": 3}),
    (GRAM, {"j": 3001, "a": 300, "b": 300}),  # in areas
    (COVARIANCE, {"j": 2003, "a": 411, "b": 411}),
    (CROSS, {"j": 1501, "a": 260, "b": 40}),
    (WEIGHTED, {"j": 1501, "a": 200, "b": 200}),
]


@pytest.mark.gpu
@pytest.mark.parametrize("text, sizes", CASES)
def test_states_on_a_device(text: str, sizes: dict[str, int]) -> None:
    form = ra.derive_incremental(ra.parse(text), axis="j")
    rng, arrays = np.random.default_rng(0), {}
    for t in form.spec.tensors:
        if not t.array:
            shape = [sizes[a] for a in t.axes]
            whole = "integer" in t.domain
            arrays[t.name] = rng.integers(0, sizes["k"], shape) if whole else rng.uniform(0.5, 2, shape).astype("f4")
    wide = {n: a if a.dtype.kind == "i" else a.astype(np.float64) for n, a in arrays.items()}
    found: Any = form.compile("cuda")(**arrays)
    true: Any = ra.reference(form.spec, **wide)
    for name in form.spec.outputs:
        a, b = (x[name] if isinstance(x, dict) else x for x in (found, true))
        assert np.abs(a - b).max() <= 2e-5 * np.abs(b).max(), name
