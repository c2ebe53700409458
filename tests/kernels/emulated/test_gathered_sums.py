"""Sums of rows that an index names: the printed kernel, thread by thread."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from redalg.kernels.cuda.gathered import gathering
from redalg.kernels.emulate.run import run
from tests.support.profiles import examples


@given(data=st.data())
@examples(12)
def test_every_run_in_its_order(data: st.DataObject) -> None:
    """Empty and long runs, weights of 0 before rows that are no numbers, lengths that no vector divides, columns that
    blocks share."""
    kind = data.draw(st.sampled_from(["float32", "float64"]))
    vector = data.draw(st.sampled_from([1, 2] if kind == "float64" else [1, 2, 4]))
    length = vector * data.draw(st.sampled_from([1, 3, 40]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    A = rng.standard_normal((5, length)).astype(kind)
    A[4] = np.nan
    counts = data.draw(st.lists(st.sampled_from([0, 1, 4, 11]), min_size=1, max_size=4))
    stops = np.cumsum(counts).astype(np.int32)
    starts = np.asarray(stops - counts, np.int32)
    rows = rng.integers(0, 5, max(1, sum(counts))).astype(np.int32)
    weights = np.where(rows == 4, 0, rng.standard_normal(rows.shape)).astype(kind)
    y = np.full((len(counts), length), 7, kind)
    module, parts = gathering(kind, kind, length, vector)
    run(module, [A, rows, weights, starts, stops, y], len(counts) * parts, module.threads)
    for b, (begin, end) in enumerate(zip(starts, stops, strict=True)):
        total = np.zeros(length, kind)
        for e in range(begin, end):
            total += weights[e] * A[rows[e]] if weights[e] else 0
        np.testing.assert_allclose(y[b], total, rtol=4 * np.finfo(kind).eps * 12, atol=np.finfo(kind).eps * 8)


def test_long_rows_are_shared_by_blocks() -> None:
    module, parts = gathering("float32", "float32", 1030, 1)
    assert (parts, module.threads) == (2, 256)
    A = np.random.default_rng(0).standard_normal((3, 1030)).astype("float32")
    y = np.empty((1, 1030), "float32")
    one = np.array([0], np.int32)
    run(module, [A, np.array([2, 0], np.int32), np.ones(2, "float32"), one, one + 2, y], parts, module.threads)
    np.testing.assert_allclose(y[0], A[2] + A[0], rtol=1e-6)
