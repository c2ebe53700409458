"""Rows side by side that are held in registers, by one block or a cluster: by emulation, against the definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.rows.results import LOOPED
from tests.support.forms import Forms
from tests.support.profiles import examples
from tests.support.simulated import agree, run

BOUND = {np.float32: 2e-5, np.float64: 1e-12, ml_dtypes.bfloat16: 2.0**-7}
DOWN = {  # over the first axis: results lie as operands do, or once for a row
    "softmax": "m = max[i](x[i,j]); e = exp(x[i,j] - m); return y = e / sum[i](e)",
    "variance": "return v = sum[i]((x[i,j] - sum[i](x[i,j]) / size[i])**2) / size[i]",
    "argmax": "return at = argmax[i](x[i,j]), most = max[i](x[i,j])",
    "scaled": "return y = x[i,j] * w[i] / (1 + max[i](abs(x[i,j]))), n = sum[i](x[i,j])",
}
ALONG = ("softmax", "layer_norm", "log_softmax", "argmax", "kurtosis")
FORMS = Forms({f"down {n}": s for n, s in DOWN.items()} | {n: ra.catalog[n] for n in ALONG})


def drawn(spec: Any, rows: int, length: int, gap: int, dtype: Any, draw: str, rng: Any, down: bool) -> dict[str, Any]:
    """Arrays whose rows lie side by side, `gap` elements longer in memory than there are rows."""
    found: dict[str, Any] = {}
    for t in spec.tensors:
        if not t.axes:
            found[t.name] = 1e-5
        elif len(t.axes) == 1:
            found[t.name] = rng.normal(size=length).astype(dtype)
        else:
            wide = rng.normal(size=(length, rows + gap))
            wide = np.round(wide) if draw == "ties" else wide
            if draw == "special":
                wide[rng.random(wide.shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
                wide[:, :1] = -np.inf
            memory = wide.astype(dtype)[:, :rows]
            found[t.name] = memory if down else memory.T
    return found


@examples(60)
@given(
    st.sampled_from([*(f"down {n}" for n in DOWN), *ALONG]),
    st.sampled_from(list(BOUND)),
    st.sampled_from([2, 4, 8, 32]),
    st.sampled_from([2, 4, 8, 16, 32, 64]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["normal", "ties", "special"]),
    st.integers(0, 70),
    st.integers(1, 40),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_columns_in_registers(
    name: str,
    dtype: Any,
    threads: int,
    rows: int,
    coarsen: int,
    cluster: int,
    draw: str,
    count: int,
    length: int,
    gap: int,
    seed: int,
) -> None:
    form, down = FORMS[name], name.startswith("down")
    rng = np.random.default_rng(seed)
    narrow = np.dtype(dtype).itemsize == 2  # whose neighbours are loaded together wherever they start
    count, gap = (count // coarsen * coarsen, gap * coarsen) if coarsen > 1 and not narrow else (count, gap)
    arrays = drawn(form.spec, count, length, gap, dtype, draw, rng, down)
    tile = -(-length // (threads * cluster))
    tile += tile % 2 if tile > 1 else 0
    schedule = Schedule(threads, rows, 1, tile, resident=True, column=True, coarsen=coarsen, cluster=cluster)
    try:
        found, planned, moved = run(form, arrays, schedule, seed)
    except RedalgError as refused:
        assert refused.where == "schedule=", refused
        return
    source = planned.module.source
    assert ("tx_wait" in source) == (cluster > 1)
    agree(form.spec, found, arrays, BOUND[dtype] * (1 if draw != "special" else 4))
    if "softmax" in name and not (narrow and coarsen > 1):  # read once, and without any first element
        padded = -(-count // schedule.rows_per_block) * schedule.rows_per_block  # threads beyond the last row too
        held = threads * cluster * tile  # beyond the last element: that one again
        loaded, width = moved["operand x"].loaded, np.dtype(dtype).itemsize
        assert padded * length * width <= loaded <= padded * held * width


@examples(40)
@given(
    st.sampled_from(["down softmax", "down scaled", "softmax", "layer_norm", "log_softmax"]),
    st.sampled_from(list(BOUND)),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4, 6]),
    st.booleans(),
    st.sampled_from([2, 3, 5]),
    st.sampled_from(["normal", "ties", "special"]),
    st.integers(1, 33),
    st.integers(1, 150),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_columns_whose_splits_meet(
    name: str,
    dtype: Any,
    threads: int,
    rows: int,
    coarsen: int,
    tile: int,
    resident: bool,
    split: int,
    draw: str,
    count: int,
    length: int,
    gap: int,
    seed: int,
) -> None:
    form = FORMS[name]
    rng = np.random.default_rng(seed)
    arrays = drawn(form.spec, count, length, gap, dtype, draw, rng, name.startswith("down"))
    tile = -(-length // (threads * split)) if resident else tile
    schedule = Schedule(threads, rows, 1, tile, resident, column=True, split=split, persistent=True, coarsen=coarsen)
    try:
        found, planned, _ = run(form, arrays, schedule, seed)
    except RedalgError as refused:
        assert coarsen > 1 and refused.where == "schedule=", refused
        return
    assert "splits_sync" in planned.module.source
    agree(form.spec, found, arrays, BOUND[dtype] * (1 if draw != "special" else 4))


@examples(24)
@given(
    st.sampled_from(["softmax", "layer_norm", "log_softmax"]),
    st.sampled_from(list(BOUND)),
    st.sampled_from([16, 20, 24, 28]),
    st.sampled_from([2, 4]),
    st.sampled_from([(1, 1), (2, 1), (1, 3)]),
    st.sampled_from(["normal", "ties", "special"]),
    st.integers(1, 20),
    st.integers(0, 12),
    st.integers(0, 5),
)
def test_results_that_turn_in_several_portions(
    name: str, dtype: Any, tile: int, coarsen: int, shared: tuple[int, int], draw: str, count: int, less: int, seed: int
) -> None:
    """Long tiles are written one portion after another, by a loop or, where it would not be unrolled, without one."""
    form, (cluster, split) = FORMS[name], shared
    rng = np.random.default_rng(seed)
    count = -(-count // coarsen) * coarsen
    length = max(1, cluster * split * 16 * tile - less)
    arrays = drawn(form.spec, count, length, 0, dtype, draw, rng, False)
    schedule = Schedule(16, 4, 1, tile, resident=True, column=True, coarsen=coarsen, cluster=cluster, split=split)
    schedule = replace(schedule, persistent=split > 1)
    try:
        found, planned, _ = run(form, arrays, schedule, seed)
    except RedalgError as refused:
        assert refused.where == "schedule=", refused
        return
    assert ("for portion in" in planned.module.source) == (tile * coarsen <= LOOPED)
    agree(form.spec, found, arrays, BOUND[dtype] * (1 if draw != "special" else 4))


def test_what_columns_may_hold() -> None:
    x = np.asfortranarray(np.ones((64, 64), np.float32))
    held = Schedule(8, 32, 1, 8, resident=True, column=True)
    best = ra.derive_incremental(ra.parse("return v = topk[j:2:c](x[i,j]).values"))
    with pytest.raises(RedalgError, match="fold their own elements into lists"):
        run(best, {"x": x}, held)
    with pytest.raises(RedalgError, match="whose states a cluster exchanges"):
        run(FORMS["softmax"], {"x": x}, Schedule(8, 32, 1, 8, column=True, cluster=2))
    with pytest.raises(RedalgError, match="one each"):
        run(FORMS["softmax"], {"x": x}, Schedule(2, 32, 1, 8, resident=True, column=True, cluster=4))
