"""CUDA kernels of logarithms of what is near 1, by emulation, in float32 and float64."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import form_of
from tests.support.simulated import run


@pytest.mark.parametrize("name", ["log_mean_exp", "kl_divergence_of_logits"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_schedule_keeps_small_values(name: str, dtype: type) -> None:
    """To a few roundings of the largest difference between two exponents; one in a hundred of it is what is left."""
    form = form_of(name)
    rng = np.random.default_rng(3)
    eps, vector = float(np.finfo(dtype).eps), 16 // np.dtype(dtype).itemsize
    wide, cluster = Schedule(8, 4, vector, 8), Schedule(32, 1, vector, vector, cluster=2)
    for schedule, length in ((None, 1), (None, 37), (wide, 72), (cluster, 72)):
        for apart in (1e-2, 1e-5):
            made = {"x": rng.normal(size=(3, length)) if name != "log_mean_exp" else np.zeros((3, length))}
            made["z"] = made["x"] + apart * rng.normal(size=(3, length))
            made["x"] = made["z"] if name == "log_mean_exp" else made["x"]
            given = {d.name: made[d.name].astype(dtype) for d in form.spec.tensors}
            found, _, _ = run(form, given, schedule, 1)
            exact = ra.reference(form.spec, exact=True, **given)
            gap = [float(e - type(e)(float(v))) for e, v in zip(exact.flat, found[next(iter(found))].flat, strict=True)]
            assert max(map(abs, gap)) <= 64 * eps * apart * length**0.5, (schedule, length, apart)
