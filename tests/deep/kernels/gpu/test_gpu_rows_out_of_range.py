"""Rows out of range on a device: those of NumPy's arrays are repaired, those of a GPU's arrays are told of."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda.marks import marks_rows
from tests.support.range_cases import TEXTS, agree, definition, drawn, form

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
torch = pytest.importorskip("torch")


def on_gpu(arrays: dict[str, Any]) -> dict[str, Any]:
    return {n: torch.from_numpy(x.copy()).cuda() if isinstance(x, np.ndarray) else x for n, x in arrays.items()}


@pytest.mark.parametrize("schedule", [None, "thread", "warp", "block", "cluster", "split", "column"])
@pytest.mark.parametrize("name", TEXTS)
def test_rows_of_the_host_are_repaired(name: str, schedule: str | None) -> None:
    for shape, dtype, powers in (
        ((7, 37), "float32", [0, 25, -25, -21, 38.4, 1]),
        ((5, 4096), "float32", [19.5, 0, -19, 30]),
        ((4, 24), "float64", [0, 200, -200, 1]),
    ):
        arrays = drawn(name, shape, dtype, powers, 3)
        try:
            found = form(name).compile("cuda", schedule)(**arrays)
        except RedalgError as refused:
            assert schedule is not None, refused
            continue
        found = found if isinstance(found, dict) else {next(iter(form(name).spec.outputs)): found}
        rough = np.float32(3e-3) if shape[1] > 1000 else None
        for output, true in definition(name, arrays).items():
            if rough is not None and true.dtype.kind == "f":
                np.testing.assert_allclose(found[output], true, rtol=rough, atol=1e-5)
            else:
                agree(found[output], true)


def test_results_in_the_place_of_operands() -> None:
    arrays = drawn("layer norm", (6, 130), "float32", [0, 25, 38.4], 3)
    run = form("layer norm").compile("cuda")
    plain, x = run(**arrays), arrays["x"].copy()
    assert run(**{**arrays, "x": x}, out=x) is x
    np.testing.assert_array_equal(x, plain)


def test_many_rows_that_share_marks() -> None:
    arrays = drawn("layer norm", (10_001, 64), "float32", [0], 3)
    run = form("layer norm").compile("cuda")
    plain = run(**arrays)
    arrays["x"][5000] *= np.float32(1e30)
    found = run(**arrays)
    (true,) = definition("layer norm", {**arrays, "x": arrays["x"][5000:5001]}).values()
    agree(found[5000:5001], true)
    others = np.arange(10_001) % 4096 != 5000 % 4096
    np.testing.assert_array_equal(found[others], plain[others])


def test_arrays_of_a_gpu_are_told_of() -> None:
    run = form("layer norm").compile("cuda")
    arrays = on_gpu(drawn("layer norm", (6, 130), "float32", [0], 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            run(**arrays)
        arrays["x"][1] = 0
        arrays["x"][2] = 3
        run(**arrays)
        run.check()
    arrays["x"][4] *= 1e30
    run(**arrays)
    with pytest.raises(RedalgError, match="i = 4"):
        run.check()
    run.check()
    run(**arrays)
    torch.cuda.synchronize()
    with pytest.warns(UserWarning, match="out of range: y at i = 4"):
        run(**arrays)
    assert "range:" in run.explain()


def test_a_captured_call_tells_too() -> None:
    run = form("rms norm").compile("cuda")
    arrays = on_gpu(drawn("rms norm", (6, 130), "float32", [0], 3))
    run(**arrays)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(**arrays)
    graph.replay()
    run.check()
    arrays["x"][3] *= 1e30
    graph.replay()
    with pytest.raises(RedalgError, match="i = 3"):
        run.check()


def test_bounded_sums_have_no_marks() -> None:
    run = ra.derive_incremental(ra.catalog["softmax"]).compile("cuda")
    run(x=torch.zeros(3, 24, device="cuda"))
    assert not marks_rows(run.planned)
    run.check()
