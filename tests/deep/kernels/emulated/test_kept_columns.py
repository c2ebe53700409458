"""Rows side by side that are walked and kept in shared memory, by emulation, against the definition."""

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
from tests.deep.kernels.emulated.test_resident_columns import DOWN, drawn
from tests.support.forms import Forms
from tests.support.profiles import examples
from tests.support.simulated import agree, run

BOUND = {np.float32: 2e-5, np.float64: 1e-12, np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
ALONG = ("softmax", "layer_norm", "log_softmax", "kurtosis")
WEIGHED = "m = max[j](x[i,j] * v[i,j]); e = exp(x[i,j] * v[i,j] - m); return y = e / sum[j](e), z = x[i,j] - v[i,j]"
MIXED = "return at = x[i,j] > sum[j](x[i,j]) / size[j]"  # a result of other bytes than what is kept
FORMS = Forms(
    {f"down {n}": s for n, s in DOWN.items()} | {n: ra.catalog[n] for n in ALONG} | {"weighed": WEIGHED, "mixed": MIXED}
)


@examples(80)
@given(
    st.sampled_from([*(f"down {n}" for n in DOWN), *ALONG, "weighed", "mixed"]),
    st.sampled_from(list(BOUND)),
    st.sampled_from([1, 2, 4, 8, 32]),
    st.sampled_from([1, 2, 4, 8, 32]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4, 5, 8]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from(["normal", "ties", "special"]),
    st.integers(0, 70),
    st.integers(1, 90),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_walked_rows_are_read_once(
    name: str,
    dtype: Any,
    threads: int,
    rows: int,
    coarsen: int,
    tile: int,
    split: int,
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
    span = threads * tile
    whole = Schedule(threads, rows, 1, tile, column=True, coarsen=coarsen, split=split, persistent=split > 1)
    schedule = replace(whole, kept=-(-length // (split * span)) * span)
    try:
        found, planned, moved = run(form, arrays, schedule, seed)
    except RedalgError as refused:
        assert refused.where == "schedule=", refused
        return
    source = planned.module.source
    assert "_kept = cuda.shared.array(0" in source
    turns = planned.choice.layout.turned
    assert ("_lines" in source) == (bool(turns) and name == "mixed")
    agree(form.spec, found, arrays, BOUND[dtype] * (1 if draw != "special" else 4))
    padded = -(-count // schedule.rows_per_block) * schedule.rows_per_block  # threads beyond the last row too
    width = np.dtype(dtype).itemsize * (2 if narrow and coarsen > 1 else 1)  # a pair may be put together from two words
    assert moved["operand x"].loaded <= padded * max(split * schedule.kept, length) * width


@pytest.mark.parametrize(
    ("given_fields", "words"),
    [
        ({"column": False}, "kept by threads that walk them"),
        ({"resident": True, "tile": 16}, "kept by threads that walk them"),
        ({"split": 2}, "every split needs the state of the whole row|kept by threads that walk them"),
        ({"persistent": True}, "kept by threads that walk them"),
        ({"cluster": 2}, "whose states a cluster exchanges"),
        ({"kept": 8}, "kept=8 is not what"),
    ],
)
def test_what_cannot_be_kept_is_refused(given_fields: dict[str, Any], words: str) -> None:
    x = np.zeros((40, 30), np.float32)
    s = replace(Schedule(4, 8, 1, 4, column=True, kept=32), **given_fields)
    with pytest.raises(RedalgError, match=words):
        run(FORMS["softmax"], {"x": x.T}, s)


def test_rows_that_are_walked_once_keep_nothing() -> None:
    with pytest.raises(RedalgError, match="walked twice"):
        run(FORMS["down variance"], {"x": np.zeros((30, 40), np.float32)}, Schedule(4, 8, 1, 4, column=True, kept=32))
