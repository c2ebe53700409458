"""Streams along several axes of which some have one element: a stride along it may be any number, and is no step."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

import redalg as ra

SPECS = {
    "batch_norm": "m = mean[n,s](x[n,c,s]); t = x[n,c,s] - m; return y = t/sqrt(mean[n,s](t**2) + 1), m = m",
    "softmax": "e = exp(x[n,c,s] - max[n,s](x[n,c,s])); return y = e/sum[n,s](e)",
    "map": "return y = x[n,c,s]*2 - w[c]",
    "sums": "return y = sum[n,s](x[n,c,s]*w[c])",
}
FILL = 7.0


def placed(shape: tuple[int, ...], order: tuple[int, ...], odd: int) -> tuple[np.ndarray, np.ndarray]:
    """An array inside of a larger one, its axes in an order; axes of length 1 have strides of `odd` elements more."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step + (odd if shape[axis] == 1 else 0)
        step *= shape[axis]
    whole = np.full(step + 256, FILL)
    return np.lib.stride_tricks.as_strided(whole[128:], shape, [8 * s for s in strides]), whole


@pytest.mark.parametrize("name", SPECS)
def test_nothing_is_written_beside_results(name: str) -> None:
    spec = ra.parse(SPECS[name])
    run = ra.derive_incremental(spec, axis=None if name == "map" else ("n", "s")).compile("cpu")
    rng = np.random.default_rng(3)
    for shape, order, odd in product(product((1, 2, 3), (1, 3, 9), (1, 2)), permutations(range(3)), (0, 5)):
        x, _ = placed(shape, order, odd)
        x[...] = rng.standard_normal(shape)
        given = {"x": x} | ({"w": rng.standard_normal(shape[1])} if "w[" in SPECS[name] else {})
        wanted = ra.reference(spec, **given)
        wanted = wanted if isinstance(wanted, dict) else {"y": wanted}
        found = run(**given)
        found = found if isinstance(found, dict) else {"y": found}
        assert all(np.allclose(found[k], wanted[k]) for k in wanted), (shape, order, odd)
        if wanted["y"].ndim < 3:
            continue
        y, whole = placed(shape, order, odd)
        others = {k: np.empty_like(v) for k, v in wanted.items() if k != "y"}
        run(**given, out={"y": y, **others} if others else y)
        assert np.allclose(y, wanted["y"]), (shape, order, odd)
        y[...] = FILL
        assert (whole == FILL).all(), (shape, order, odd)
