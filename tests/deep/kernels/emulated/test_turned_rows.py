"""Transposed operands with results in rows, and top-k by sorting networks: by emulation, against the definition."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.rows.network import cleaned, comparisons
from tests.support.forms import form_of
from tests.support.profiles import examples
from tests.support.simulated import run
from tests.support.unaligned_cases import arrays, error

BOUND = {np.float32: 2e-5, ml_dtypes.bfloat16: 2.0**-7}


@examples(30)
@given(
    st.sampled_from(["softmax", "layer_norm", "log_softmax", "softmin"]),
    st.sampled_from(list(BOUND)),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([4, 8, 32]),
    st.sampled_from([1, 2, 5, 8]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.integers(1, 21),
    st.integers(1, 70),
    st.integers(0, 3),
)
def test_results_turn_in_shared_memory(
    name: str,
    dtype: Any,
    threads: int,
    rows: int,
    tile: int,
    coarsen: int,
    persistent: bool,
    groups: int,
    length: int,
    seed: int,
) -> None:
    form = form_of(name)
    found = arrays(form.spec, groups * coarsen, length, dtype, np.random.default_rng(seed), 0, 0)
    found = {n: np.asfortranarray(a) if getattr(a, "ndim", 0) == 2 else a for n, a in found.items()}
    schedule = Schedule(threads, rows, 1, tile, column=True, coarsen=coarsen, persistent=persistent)
    try:
        made, planned, moved = run(form, found, schedule, seed)
    except RedalgError as refused:
        assert refused.where == "schedule=", refused
        return
    assert "_lines" in planned.module.source
    assert error(form.spec, made, found) <= BOUND[dtype]
    result = next(iter(form.spec.outputs))
    assert moved[f"result {result}"].stored == groups * coarsen * length * np.dtype(dtype).itemsize


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_networks_sort_every_sequence_of_zeros_and_ones(n: int) -> None:
    """The zero-one principle (Knuth 5.3.4): a network that sorts those sorts everything."""

    def through(pairs: Any, values: list[int]) -> list[int]:
        for a, b in pairs:
            values[a], values[b] = max(values[a], values[b]), min(values[a], values[b])
        return values

    for bits in itertools.product((0, 1), repeat=n):
        assert through(comparisons(n), list(bits)) == sorted(bits, reverse=True)
    for ones, turn in itertools.product(range(n + 1), range(n)):  # bitonic: a block of ones, turned around
        bitonic = [1 if (i - turn) % n < ones else 0 for i in range(n)]
        assert through(cleaned(n), bitonic) == [1] * ones + [0] * (n - ones)


def top(k: int) -> Any:
    x = ra.tensors("x[i,j]")
    best = ra.topk(x, k, "j")
    return ra.derive_incremental(ra.Spec(values=best.values, places=best.indices))


TOP = {k: top(k) for k in (1, 3, 8, 11)}


@examples(30)
@given(
    st.sampled_from(sorted(TOP)),
    st.sampled_from([np.float32, ml_dtypes.bfloat16, np.float16]),
    st.sampled_from([8, 16, 32]),
    st.integers(1, 2),
    st.integers(11, 150),
    st.sampled_from(["normal", "ties", "special"]),
    st.integers(0, 5),
)
def test_the_largest_by_networks(k: int, dtype: Any, threads: int, rows: int, n: int, draw: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3, n))
    x = np.round(x) if draw != "normal" else x
    if draw == "special":
        x[rng.random(x.shape) < 0.3] = -np.inf
        x[0, rng.integers(n)] = np.nan
        x[1] = -np.inf
    x = x.astype(dtype)
    schedule = Schedule(max(threads, 16 if k > 8 else 8), rows, 1, -(-n // threads), resident=True)
    found, planned, _ = run(TOP[k], {"x": x}, schedule, seed)
    assert "sort_keys" in planned.module.source
    true = ra.reference(TOP[k].spec, x=x.astype(np.float64))
    np.testing.assert_array_equal(found["places"], true["places"])
    np.testing.assert_array_equal(found["values"].astype(np.float64), true["values"])
