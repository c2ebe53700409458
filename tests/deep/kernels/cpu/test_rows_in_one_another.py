"""Few rows side by side, walked one by one: splits of all of them in turn, and results that are gathered first."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cpu import run as cpu_run
from redalg.kernels.cpu import walk as cpu_walk
from tests.support.numba_kernels import functions_by_numba

TEXTS = {  # exact in integers of moderate size, whatever the order
    "totals": "return s = sum[j](x[i,j]), at = argmax[j](x[i,j]), low = min[j](x[i,j])",
    "centred": "m = max[j](x[i,j]); s = sum[j](x[i,j]*w[j]); return y = m - x[i,j], z = (x[i,j] + s)*w[j]",
    "two axes": "m = max[j](x[h,i,j]); return y = x[h,i,j] - m, s = sum[j](x[h,i,j])",
    "columns": "m = min[j](x[j,i]); return y = x[j,i]*m, n = sum[j](where(x[j,i] == m, 1, 0))",
}
LENGTHS = 1, 2, 63, 1000, 9000, 65536, 66001, 70003


@cache
def run_of(name: str) -> Any:
    return ra.derive_incremental(ra.parse(TEXTS[name])).compile("cpu")


def arrays_of(name: str, rows: int, length: int, dtype: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rows + length)
    shape = (length, 2, rows) if name == "two axes" else (length, rows)
    x = rng.integers(-2, 3, shape).astype(dtype)
    found = {"x": x if name == "columns" else np.moveaxis(x, 0, -1)}
    return found | ({"w": rng.integers(-1, 2, length).astype(dtype)} if "w[j]" in TEXTS[name] else {})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16", "int32"))
def test_beside_the_definition(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, exact = run_of(name), dtype != "float16"
    monkeypatch.setattr(cpu_walk, "SHARE", 100.0)
    for length in LENGTHS if exact else LENGTHS[:4]:
        for rows in (1, 2, 3, 7):
            arrays = arrays_of(name, rows, length, dtype)
            true = ra.reference(run.form.spec, **{n: a.astype("f8") for n, a in arrays.items()})
            for workers in ("1", "3"):
                monkeypatch.setenv("REDALG_THREADS", workers)
                found = run(**arrays)
                for key, value in true.items():
                    np.testing.assert_array_equal(found[key].astype("f8"), value, err_msg=f"{rows} x {length} {key}")


@pytest.mark.parametrize("name", ("centred", "columns"))
def test_into_arrays_with_gaps_and_over_the_input(name: str) -> None:
    run = run_of(name)
    for length in (5, 1500, 70003):
        arrays = arrays_of(name, 3, length, "float32")
        own = run(**arrays)
        gaps = {k: np.full((2 * v.shape[0], *v.shape[1:]), 7, v.dtype)[::2] for k, v in own.items()}
        run(**arrays, out=gaps)
        over = {k: v if k != "y" else arrays["x"] for k, v in gaps.items()}
        for key in own:
            np.testing.assert_array_equal(gaps[key], own[key])
        run(**arrays, out=over)
        np.testing.assert_array_equal(over["y"], own["y"])


def test_rows_have_the_bits_they_have_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of rounded numbers: the order of the splits of all rows changes none of them."""
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cpu")
    x = np.random.default_rng(0).standard_normal((200001, 5), dtype=np.float32).T
    found = []
    for workers in ("1", "2", "3"):
        monkeypatch.setenv("REDALG_THREADS", workers)
        found.append(run(x=x))
        np.testing.assert_array_equal(found[0], found[-1])
    np.testing.assert_allclose(found[0].sum(1), 1, rtol=1e-4)


def test_functions_that_are_not_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_run, "functions", functions_by_numba)
    run = ra.derive_incremental(ra.parse(TEXTS["totals"])).compile("cpu")
    arrays = arrays_of("totals", 3, 70003, "float32")
    own = run_of("totals")(**arrays)
    for key, value in run(**arrays).items():
        np.testing.assert_array_equal(value, own[key])
