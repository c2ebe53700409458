"""Short rows that pass through shared memory, all rows of a block at once: by emulation, against the definition."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import Forms
from tests.support.profiles import examples
from tests.support.simulated import agree, run

BOUND = {np.float32: 2e-5, np.float64: 1e-12, ml_dtypes.bfloat16: 2.0**-7, np.float16: 2.0**-9}
NAMES = ("softmax", "layer_norm", "rms_norm", "variance", "argmax", "log_softmax", "kurtosis", "standard_scores")
MORE = {
    "two": "m = max[j](abs(x[i,j])); return y = x[i,j] / (1 + m), most = m, z = x[i,j] * w[i,j] + index[j]",
    "middle": "return y = x[a,b,j] - sum[j](x[a,b,j]) / size[j]",
    "composite": "m = max[j,k](x[i,j,k]); return y = x[i,j,k] - m + s[k]",
    "counted": "return n = sum[j](where(x[i,j] > 0, 1, 0))",
}
FORMS = Forms({n: ra.catalog[n] for n in NAMES} | MORE)


def drawn(spec: Any, sizes: dict[str, int], dtype: Any, draw: str, rng: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for t in spec.tensors:
        if not t.axes:
            found[t.name] = 1e-5
            continue
        a = rng.normal(size=tuple(sizes[x] for x in t.axes))
        a = np.round(a) if draw == "ties" else a
        if draw == "special" and len(t.axes) > 1:
            a[rng.random(a.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
            a[:1] = -np.inf
        found[t.name] = a.astype(dtype)
    return found


@examples(60)
@given(
    st.sampled_from([*NAMES, *MORE]),
    st.sampled_from(list(BOUND)),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from(["normal", "ties", "special"]),
    st.integers(0, 70),
    st.integers(1, 23),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_short_rows(
    name: str, dtype: Any, threads: int, rows: int, draw: str, count: int, length: int, more: int, seed: int
) -> None:
    form, rng = FORMS[name], np.random.default_rng(seed)
    sizes = {"i": count, "j": length, "a": 3, "b": -(-count // 3), "k": 3}
    arrays = drawn(form.spec, sizes, dtype, draw, rng)
    whole = length * (3 if name == "composite" else 1)
    schedule = Schedule(threads, rows, 1, -(-whole // threads) + more, resident=True, staged=True)
    try:
        found, planned, moved = run(form, arrays, schedule, seed)
    except RedalgError as refused:  # nothing of two axes, or more than shared memory has
        assert refused.where == "schedule=", refused
        return
    assert "cp_async_wait_all" in planned.module.source
    agree(form.spec, found, arrays, BOUND[dtype] * (1 if draw != "special" else 4))
    x = arrays["x"]
    asked = count if planned.program.watched else 0  # the first element once more, where all squares of a row vanish
    assert 0 <= moved["operand x"].loaded - x.nbytes <= asked * x.dtype.itemsize
    for r in planned.program.results:
        assert moved[f"result {r.name}"].stored == np.asarray(found[r.name]).size * np.asarray(found[r.name]).itemsize


def test_what_is_staged() -> None:
    x = np.ones((70, 19), np.float32)
    staged = Schedule(1, 32, 1, 19, resident=True, staged=True)
    for schedule, why in (
        (Schedule(1, 32, 1, 19, staged=True), "pass through shared memory at once"),
        (Schedule(64, 2, 1, 1, resident=True, staged=True), "begin at no multiple"),
        (Schedule(1, 1024, 1, 19, resident=True, staged=True), "shared memory"),
    ):
        with pytest.raises(RedalgError, match=why):
            run(FORMS["softmax"], {"x": x}, schedule)
    with pytest.raises(RedalgError, match="follow each other without gaps"):  # a statistic alone, of rows with gaps
        run(FORMS["variance"], {"x": np.ones((70, 20), np.float32)[:, :19]}, staged)
    found, planned, _ = run(FORMS["softmax"], {"x": np.ones((70, 20), np.float32)[:, :19]}, staged)
    assert "y_block" in planned.module.source and "x_block" not in planned.module.source
    np.testing.assert_allclose(found["y"], 1 / 19, rtol=1e-6)
