"""Results that keep the axis and read tensors that all rows share: printed kernels against the definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import Forms
from tests.support.simulated import run

SCHEDULES = [
    Schedule(threads=32, rows=1, vector=4, tile=16),
    Schedule(threads=8, rows=4, vector=4, tile=8),
    Schedule(threads=32, rows=1, vector=4, tile=32, cluster=2),
    Schedule(threads=32, rows=1, vector=4, tile=16, resident=True, cluster=2),
    Schedule(threads=64, rows=1, vector=4, tile=16, resident=True),
    Schedule(threads=32, rows=1, vector=4, tile=16, split=2, persistent=True),
    Schedule(threads=32, rows=1, vector=4, tile=16, resident=True, split=2, persistent=True),
    Schedule(threads=64, rows=1, vector=1, tile=6, resident=True, split=3, persistent=True),
    Schedule(threads=32, rows=1, vector=2, tile=6),
]
SCALED = "m = max[j](abs(x[i,j])); return y = x[i,j] * w[j] / (1 + m)"
FORMS = Forms({name: ra.catalog[name] for name in ("layer_norm", "softmax", "standard_scores")} | {"scaled": SCALED})
READ = {"layer_norm": "x weight bias", "scaled": "x w", "softmax": "x", "standard_scores": "x"}


def drawn(length: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((5, length)).astype(np.float32)
    x[1] = 0
    x[2, rng.integers(length)] = rng.choice([np.nan, np.inf])
    weight, bias = (rng.standard_normal(length).astype(np.float32) for _ in "wb")
    weight[0], bias[-1] = np.inf, np.nan
    return {"x": x, "weight": weight, "bias": bias, "w": weight}


@pytest.mark.parametrize("length", [4, 12, 500, 1024])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_what_rows_share_is_read_where_it_is_written(schedule: Schedule, length: int) -> None:
    if schedule.resident and schedule.blocks_per_row * schedule.threads * schedule.tile < length:
        pytest.skip("such a row does not fit the registers of its threads")
    given = drawn(length, length)
    for name, names in READ.items():
        form = FORMS[name]
        arrays = {n: given[n] for n in names.split()} | ({"eps": 1e-5} if name == "layer_norm" else {})
        found, planned, _ = run(form, arrays, schedule, seed=1)
        with np.errstate(all="ignore"):
            want = ra.reference(form.spec, **arrays)
        # a mean and a mean square of n terms that are summed in pairs at worst one by one: 2·n units; the rest: 8
        bound = (2 * length + 8) * 2.0**-24 * 4 * (1 + np.abs(np.where(np.isfinite(want), want, 0)))
        got = next(iter(found.values())).astype(np.float64)
        assert np.array_equal(np.isnan(got), np.isnan(want))
        same = (got == want) | np.isnan(want)
        assert np.all(same | (np.abs(got - want) <= bound))
        common = len(names.split()) - 1
        late = common and not schedule.early(common)
        ahead = late and (schedule.blocks_per_row > 1 or not schedule.resident) and schedule.asked(common) > 1
        assert ("for u in range" in planned.module.source) == bool(ahead and schedule.vector > 1)


def test_what_waiting_blocks_may_hold() -> None:
    """A split in registers pays where its blocks go on to write it; lists are selected by one block."""
    x, held = np.ones((2, 1024), np.float32), Schedule(threads=32, rows=1, vector=4, tile=16, resident=True, split=2)
    with pytest.raises(ra.RedalgError, match="resident=False"):
        run(ra.derive_incremental(ra.catalog["logsumexp"]), {"x": x}, held)
    with pytest.raises(ra.RedalgError, match=r"split·threads·tile = 2·32·8 = 512 is less than the length 1024"):
        run(FORMS["softmax"], {"x": x}, replace(held, tile=8, persistent=True))
    both = ra.parse("m = max[j](x[i,j]); return y = x[i,j] - m, v = topk[j:2:c](x[i,j]).values")
    with pytest.raises(ra.RedalgError, match="their own part"):
        run(ra.derive_incremental(both), {"x": x}, replace(held, persistent=True))
