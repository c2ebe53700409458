"""Kernels whose threads have several neighbouring rows, and anchors looked for in a part of a tile, on a GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.ir.schedule import Schedule
from tests.support.column_cases import FORMS, SCHEDULES, SPECS, agree, arrays_of

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")


def sent(arrays: dict[str, Any]) -> dict[str, Any]:
    def one(a: Any) -> Any:
        wide = torch.from_numpy(np.ascontiguousarray(a.astype(np.float32))).cuda()
        return wide.to(getattr(torch, a.dtype.name))

    return {name: one(a) for name, a in arrays.items()}


def computed(name: str, arrays: dict[str, Any], schedule: Any) -> dict[str, Any]:
    """Results as NumPy arrays, 16-bit ones as float32."""
    found = FORMS[name].compile("cuda", schedule=schedule)(**sent(arrays))
    found = found if isinstance(found, dict) else {next(iter(SPECS[name].outputs)): found}
    return {k: (v.float() if v.dtype in (torch.bfloat16, torch.float16) else v).cpu().numpy() for k, v in found.items()}


CASES = [(2, 8, "bfloat16", 8), (3, 70, "float32", 2), (35, 40, "bfloat16", 4), (1000, 264, "bfloat16", 8)]
CASES += [(20011, 36, "float32", 4), (517, 1024, "float16", 2), (2011, 37, "bfloat16", 2)]
# The last two merge the states of all threads at once.
TOGETHER = [*SCHEDULES[:4], {"threads": 32, "rows": 8}, {"threads": 16, "rows": 8, "tile": 8, "split": 5}]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("schedule", TOGETHER, ids=str)
@pytest.mark.parametrize("name", SPECS)
def test_several_rows_of_a_thread_are_what_one_is(
    name: str, schedule: dict[str, Any], case: tuple[int, int, str, int]
) -> None:
    n, columns, dtype, count = case
    if name in ("scaled", "argmax", "largest", "kurtosis") and dtype != "float32" or name == "largest" and n < 3:
        return
    arrays = arrays_of(name, n, columns, dtype, n)
    fields = {"tile": 4, **schedule}
    try:
        one = computed(name, arrays, Schedule(**fields, column=True))
    except RedalgError as refusal:
        assert refusal.where == "schedule=" and schedule.get("split")
        return
    several = computed(name, arrays, Schedule(**fields, column=True, coarsen=count))
    for output in one:  # neighbours change nothing about the order of additions
        np.testing.assert_allclose(one[output], several[output], rtol=1e-2 if dtype != "float32" else 1e-5, atol=1e-6)
    agree(name, several, arrays, dtype, 0.0 if n < 100 else 2e-4)


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e-40])
@pytest.mark.parametrize("name", ["var_mean", "softmax", "argmax", "entropy"])
def test_special_values_stay_in_their_column(name: str, special: float) -> None:
    arrays = arrays_of(name, 1111, 64, "float32", 9)
    plain = computed(name, arrays, Schedule(threads=8, rows=16, tile=8, column=True, coarsen=4))
    arrays["x"][400, 3] = special
    found = computed(name, arrays, Schedule(threads=8, rows=16, tile=8, column=True, coarsen=4))
    others = [c for c in range(64) if c != 3]
    for output in found:
        kept = (slice(None), others) if SPECS[name].output_axes[output][0] == "i" else others
        np.testing.assert_array_equal(found[output][kept], plain[output][kept])
    if name != "entropy":
        agree(name, found, arrays, "float32", 2e-4)


@pytest.mark.parametrize("columns", [4096, 4100, 4098, 4097])
@pytest.mark.parametrize("n", [0, 1, 2, 300])
def test_the_choice_of_the_model(n: int, columns: int) -> None:
    for dtype in ("float32", "bfloat16"):
        for name in ("var_mean", "softmax"):
            arrays = arrays_of(name, n, columns, dtype, n)
            if n:
                agree(name, computed(name, arrays, None), arrays, dtype, 1e-4)
            elif name == "softmax":
                assert computed(name, arrays, None)["y"].shape == (0, columns)


ROWS = [
    {},
    {"threads": 32, "rows": 4, "tile": 8},
    {"threads": 128, "rows": 1, "tile": 64, "resident": True},
    {"threads": 128, "rows": 1, "tile": 16, "cluster": 4, "resident": True},
    {"threads": 128, "rows": 1, "tile": 16, "split": 3},
]


@pytest.mark.parametrize("schedule", ROWS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 100, 5001])
def test_anchors_of_a_part(n: int, schedule: dict[str, Any]) -> None:
    """Noise, a large mean, one far element at either end, a constant: the result is off by a rounding of its own."""
    x = ra.tensors("x[i,j]")
    form = ra.derive_incremental(ra.Spec(var=ra.mean((x - ra.mean(x, "j")) ** 2, "j"), mean=ra.mean(x, "j")))
    draw = np.random.default_rng(n).normal(size=(5, n))
    draw[1] += 300
    draw[2, 0] += 1000
    draw[3, -1] -= 1000
    draw[4] = 3.140625
    given = draw.astype(ml_dtypes.bfloat16)
    try:
        run = form.compile("cuda", schedule=Schedule(**schedule) if schedule else None)
        found = run(**sent({"x": given}))
    except RedalgError as refusal:
        assert schedule.get("resident") and n > 5000 and refusal.where == "schedule="
        return
    assert "n_some = " in run.source
    wide = given.astype(np.float64)
    for output, true in (("var", wide.var(1)), ("mean", wide.mean(1))):
        slack = 1e-6 + 2.0**-8 * abs(true) + 64 * 9 * 2.0**-24 * wide.var(1)
        assert (abs(found[output].double().cpu().numpy() - true) <= slack).all()
