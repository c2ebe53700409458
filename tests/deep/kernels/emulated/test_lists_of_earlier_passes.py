"""What a pass reads of a top-k list of an earlier one: on CPUs, and on GPUs by emulation, against the definition."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.joint import derived
from redalg.kernels.ir.schedule import Schedule
from tests.support.profiles import examples
from tests.support.simulated import agree, run

TEXTS = {
    "softmax above": "t = topk[j:3:k](x[i,j]).values; s = sum[k](t); "
    "return y = sum[j](where(x[i,j] < s, exp(x[i,j] - max[j](x[i,j])), 0)), m = max[j](x[i,j])",
    "an entry each": "t = topk[j:2:k](x[i,j]).values; return y = sum[j](where(t > -oo, abs(x[i,j] - t), 0))",
    "a list of results": "t = topk[b:3:k](w[a,b]*w[a,b]).values; "
    "u = sum[b](where(w[a,b]*w[a,b] < max[k](t), w[a,b], 0)); return y = where(t > -oo, t, 0)*u",
    "the nearest": "t = topk[j:4:k](x[i,j]*w[j]); v = t.values; "
    "return y = sum[j](min[k](where(v > -oo, (x[i,j] - v)**2, 7))), "
    "c = sum[j](sum[k](where(t.indices >= index[j], 1, 0)))",
    "weights of entries": "t = topk[j:3:k](x[i,j]).indices; return y = x[i,j]*sum[k](where(eq(t, index[j]), g[k], 0))/"
    "(1 + sum[j](x[i,j]*sum[k](where(eq(t, index[j]), g[k], 0)))**2)",
    "one list for all": "t = topk[j:2:k](abs(x[j])).values; return y = sum[j](prod[k](where(t > -oo, x[j] - t, 1)))",
    "all and any": "t = topk[j:3:k](x[i,j]).values; "
    "return a = sum[j](where(all[k](x[i,j] < t), 1, 0)), b = sum[j](where(any[k](eq(x[i,j], t)), x[i,j], 0))",
    "three passes": "t = topk[j:2:k](x[i,j]).values; s = sum[j](where(x[i,j] < min[k](t), x[i,j], 0)); "
    "return y = sum[j]((x[i,j] - s*max[k](t))**2)",
}
ROUTING = ("moe_softmax_topk", "moe_renormalised")
SCHEDULES = (
    None,
    Schedule(1, 8, 1, 4),
    Schedule(8, 2, 1, 4, resident=True),
    Schedule(64, 1, 1, 4),
    Schedule(32, 1, 1, 2, split=2),
    Schedule(4, 4, 1, 4, column=True),
)


@cache
def form_of(name: str) -> Any:
    if name in ROUTING:
        (spec,) = dict.fromkeys(ra.catalog[name].vjp(given=()).specs.values())
        return derived(spec)
    spec = ra.parse(TEXTS[name])
    return ra.derive_incremental(spec, axis="b" if "list of" in name else "j", max_passes=8)


def drawn(form: Any, rows: int, length: int, draw: str, dtype: Any, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    k = 2 if any(t.name == "grad_gates" for t in form.spec.tensors) else 3
    sizes = {"i": rows, "a": rows, "j": length, "b": length, "k": k, "j_top": k}
    found = {}
    for t in form.spec.tensors:
        shape = [sizes[a] for a in t.axes]
        found[t.name] = (rng.integers(-2, 3, shape) if draw == "ties" else rng.normal(size=shape)).astype(dtype)
    return found


CALLS = (
    st.sampled_from([*TEXTS, *ROUTING]),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3, 5, 16, 33]),
    st.sampled_from(["normal", "ties"]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 99),
)


@examples(30)
@given(*CALLS, st.sampled_from(SCHEDULES))
def test_kernels_of_gpus(
    name: str, rows: int, length: int, draw: str, dtype: Any, seed: int, schedule: Schedule | None
) -> None:
    form = form_of(name)
    arrays = drawn(form, rows, length, draw, dtype, seed)
    try:
        found = run(form, arrays, schedule, seed)[0]
    except RedalgError as refused:
        assert schedule is not None and refused.where == "schedule=", refused
        return
    agree(form.spec, found, arrays, 1e-5)


@examples(30)
@given(*CALLS, st.sampled_from([None, "rows", "split", "columns"]), st.booleans())
def test_kernels_of_cpus(
    name: str, rows: int, length: int, draw: str, dtype: Any, seed: int, schedule: str | None, turned: bool
) -> None:
    form = form_of(name)
    arrays = drawn(form, rows * 9, length, draw, dtype, seed)
    arrays = {n: np.asfortranarray(a) if turned else a for n, a in arrays.items()}
    found = form.compile("cpu", schedule=schedule)(**arrays)
    found = found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}
    agree(form.spec, found, arrays, 1e-5)


@pytest.mark.parametrize("name", [*TEXTS, *ROUTING])
def test_rows_without_elements(name: str) -> None:
    form = form_of(name)
    arrays = drawn(form, 2, 0, "normal", np.float64, 1)
    found, true = form.compile("cpu")(**arrays), form.compile("numpy")(**arrays)
    for a, b in zip(*(x.values() if isinstance(x, dict) else [x] for x in (found, true)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_long_lists_and_positions_are_refused() -> None:
    for text, what in (
        ("t = topk[j:65:k](x[j]).values; return y = sum[j](sum[k](where(t > -oo, abs(x[j] - t), 0)))", "list of 65"),
        ("t = topk[j:3:k](x[j]).values; return y = sum[j](argmax[k](where(t > -oo, x[j] - t, 0)))", "argmax over k"),
    ):
        run_ = ra.derive_incremental(ra.parse(text), max_passes=4).compile("cpu")
        with pytest.raises(RedalgError, match=what) as refused:
            run_(x=np.ones(80))
        assert "defect" not in str(refused.value)
