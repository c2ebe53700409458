"""Sums with a single term are read at their place: against the definition, on the CPU and in printed CUDA kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.one_hot import gathered, one_hot_of
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.programs import lower
from tests.support.simulated import run

LOSS = "tensors x[i,j], t[i] integer; m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m)); "
LOSS += "p = sum[j](where(t[i] == index[j], x[i,j], 0)); return y = log(s) + m - p"
TEXTS = {
    "loss": LOSS,
    "reversed": LOSS.replace("t[i] == index[j]", "index[j] == t[i]"),
    "computed": LOSS.replace("t[i] == index[j]", "2 * t[i] + 1 == index[j]"),
    "masked": "tensors x[i,j], t[i] integer, k[i,j] bool; s = sum[j](x[i,j]); "
    "p = sum[j](where(k[i,j] and t[i] == index[j], x[i,j], 0)); return y = s * p",
    "other": "tensors x[i,j], z[i,j], t[i] integer; m = min[j](x[i,j]); "
    "p = sum[j](where(t[i] == index[j], z[i,j] * index[j], 0)); return y = m + p",
}
SCHEDULES = [
    Schedule(threads=1, rows=32, tile=4),
    Schedule(threads=8, rows=4, tile=4),
    Schedule(threads=32, rows=1, tile=4, resident=True),
    Schedule(threads=64, rows=1, tile=2, split=3),
    Schedule(threads=32, rows=1, tile=4, cluster=2),
]


def drawn(text: str, rows: int, length: int, seed: int) -> dict[str, Any]:
    """Places inside, at both ends and outside of the axis; ties, zeros, infinities and NaN beside and at them."""
    rng = np.random.default_rng(seed)
    made: dict[str, Any] = {
        "x": rng.integers(-3, 4, (rows, length)).astype(np.float32),
        "t": rng.choice([-1, 0, length - 1, length, length // 2, 2**40], rows),
    }
    if rows > 1 and length:
        made["x"][0, rng.integers(length)] = rng.choice([np.nan, np.inf, -np.inf])
        made["x"][1, length // 2], made["t"][1] = np.inf, length // 2
    if "z[" in text:
        made["z"] = rng.standard_normal((rows, length)).astype(np.float32)
    if "k[" in text:
        made["k"] = rng.random((rows, length)) < 0.5
    return made


def close(got: Any, spec: ra.Spec, arrays: dict[str, Any]) -> None:
    """Small whole numbers are added exactly; beside them, exp, log and two sums of float32: 16 units of the largest."""
    with np.errstate(all="ignore"):
        want = ra.reference(spec, **arrays)
    most = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=16 * 2.0**-23 * max(most, 8.0))


@pytest.mark.parametrize("length", [0, 1, 2, 37])
@pytest.mark.parametrize("name", TEXTS)
def test_the_term_is_read_on_a_cpu(name: str, length: int) -> None:
    form = ra.derive_incremental(ra.parse(TEXTS[name]), axis="j")
    for seed in range(3):
        arrays = drawn(TEXTS[name], 5, length, seed)
        compiled = form.compile("cpu")
        close(compiled(**arrays), form.spec, arrays)
        assert "_at" in compiled.source or not length


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_the_term_is_read_in_printed_kernels(name: str, schedule: Schedule) -> None:
    form = ra.derive_incremental(ra.parse(TEXTS[name]), axis="j")
    for length in (1, 2, 37):
        arrays = drawn(TEXTS[name], 5, length, length)
        if schedule.resident and schedule.threads * schedule.tile < length:
            continue
        close(run(form, arrays, schedule)[0]["y"], form.spec, arrays)


def test_a_row_of_a_table_is_read_without_a_loop() -> None:
    """The one-hot product of an embedding, inside the elements of another sum."""
    text = "tensors t[j] integer, E[v,e], w[j]; row = sum[v](where(t[j] == index[v], E[v,e], 0)); "
    form = ra.derive_incremental(ra.parse(text + "return y = sum[j](w[j] * row)"), axis="j")
    rng = np.random.default_rng(0)
    arrays = {"t": np.array([3, 0, -2, 6, 7, 3]), "E": rng.standard_normal((7, 5)), "w": rng.standard_normal(6)}
    compiled = form.compile("cpu")
    np.testing.assert_allclose(compiled(**arrays), ra.reference(form.spec, **arrays), rtol=0, atol=6 * 3 * 9 * 2.0**-52)
    assert "for i_v in" not in compiled.source


KEPT = {
    "a single fold": "tensors x[i,j], t[i] integer; return y = sum[j](where(t[i] == index[j], x[i,j], 0))",
    "a running anchor": LOSS.replace("index[j], x[i,j], 0", "index[j], exp(x[i,j] - m), 0"),
    "a real place": LOSS.replace("t[i] integer", "t[i]"),
    "half a place": LOSS.replace("t[i] == index[j]", "t[i] / 2 == index[j]"),
    "a maximum": LOSS.replace("p = sum", "p = max"),
    "another relation": LOSS.replace("==", "<="),
    "either": LOSS.replace("t[i] == index[j]", "t[i] == index[j] or x[i,j] < 0"),
    "a contraction": "tensors q[i,d], k[j,d], t[i] integer; x = sum[d](q[i,d] * k[j,d]); m = max[j](x); "
    "p = sum[j](where(t[i] == index[j], x, 0)); return y = m - p",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_has_more_than_one_term_or_one_that_moves_is_folded(name: str) -> None:
    form = ra.derive_incremental(ra.parse(KEPT[name]), axis="j")
    kinds = {t.name: "int64" if "integer" in t.domain else "float32" for t in form.spec.tensors}
    program = lower(form, kinds)
    assert gathered(program) is program
    assert all(one_hot_of(r.node) is None for r in program.results)
