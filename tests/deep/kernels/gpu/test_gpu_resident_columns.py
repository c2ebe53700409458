"""Rows side by side held in registers, by blocks, clusters and splits that meet, on a device against the definition."""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.forms import Forms, form_of
from tests.support.unaligned_cases import error

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
BOUND = {"float32": 2e-5, "bfloat16": 2.0**-7, "float16": 2.0**-9}
FORMS = Forms(
    {
        "down softmax": "m = max[i](x[i,j]); e = exp(x[i,j] - m); return y = e / sum[i](e)",
        "down argmax": "return at = argmax[i](x[i,j])",
    }
)
SCHEDULES = (
    {"threads": 32, "rows": 8, "tile": 16, "resident": True},
    {"threads": 16, "rows": 16, "tile": 32, "resident": True, "coarsen": 2},
    {"threads": 32, "rows": 4, "tile": 16, "resident": True, "coarsen": 4},
    {"threads": 8, "rows": 64, "tile": 14, "resident": True, "cluster": 4},
    {"threads": 32, "rows": 8, "tile": 4, "resident": True, "cluster": 4, "coarsen": 2},
    {"threads": 16, "rows": 16, "tile": 8, "split": 8, "persistent": True},
    {"threads": 32, "rows": 8, "tile": 8, "split": 3, "persistent": True, "resident": True},
    {"threads": 32, "rows": 8, "tile": 8, "kept": 512},
    {"threads": 8, "rows": 32, "tile": 4, "coarsen": 2, "kept": 416},
    {"threads": 16, "rows": 32, "tile": 4, "split": 3, "persistent": True, "kept": 192},
    {"threads": 32, "rows": 16, "tile": 8, "coarsen": 2, "split": 2, "persistent": True, "kept": 256},
)


@pytest.mark.parametrize("rows", [1, 2, 37, 1000, 4096])
@pytest.mark.parametrize("dtype", sorted(BOUND))
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "down softmax", "down argmax"])
def test_columns_in_registers(name: str, dtype: str, rows: int) -> None:
    down, length = name.startswith("down"), 413
    form = FORMS[name] if down else form_of(name)
    memory = torch.randn((length, rows), device="cuda").to(getattr(torch, dtype))
    given: dict[str, Any] = {"x": memory if down else memory.T}
    for t in form.spec.tensors:
        if t.name != "x":
            given[t.name] = torch.randn(length, device="cuda").to(getattr(torch, dtype)) if t.axes else 1e-5
    made = 0
    for fields in SCHEDULES:
        schedule = Schedule(vector=1, column=True, **fields)
        try:
            found = form.compile("cuda", schedule=schedule)(**given)
        except RedalgError as refused:  # of neighbouring rows, or of splits without results along them
            assert refused.where == "schedule=", refused
            continue
        host = {n: a if isinstance(a, float) else a.double().cpu().numpy() for n, a in given.items()}
        assert error(form.spec, {next(iter(form.spec.outputs)): found.double().cpu().numpy()}, host) <= BOUND[dtype]
        made += 1
    assert made >= 2


def test_nothing_along_columns() -> None:
    x = torch.full((300, 64), -float("inf"), device="cuda")
    x[5, 3], x[7, 4] = float("nan"), 1.0
    found = FORMS["down softmax"].compile("cuda", schedule={"column": True, "resident": True, "cluster": 4})(x=x)
    true = torch.from_numpy(ra.reference(FORMS["down softmax"].spec, x=x.double().cpu().numpy()))
    assert torch.equal(found.double().cpu().isnan(), true.isnan())
