"""A matrix product with its operand prepared in the same launch, on a GPU, beside the same rows in a launch before it.

Both add in the same order, so that all bits are the same. What is prepared is different in every call that follows
another: a row that is multiplied before it is there shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from redalg.kernels.cuda.run import Ready
from redalg.kernels.launch import driver
from redalg.kernels.pipeline import plan
from tests.deep.kernels.gpu.test_gpu_tensor_gemm import E4M3, drawn, run_of
from tests.support.gemm_cases import BATCHED, PLAIN, SCALED

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not driver.available(), reason="no GPU")]
torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _nine() -> None:
    if driver.target_of(0).cc != (9, 0):
        pytest.skip("tensor cores of compute capability 9.0")


def both(text: str, arrays: dict[str, Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The call in one launch and in two, whatever the default is; with the same schedule of the rows."""
    run = run_of(text)
    run(**arrays)
    kind = run._last
    dtypes = {n: str(a.dtype).split(".")[-1] if torch.is_tensor(a) else type(a) for n, a in arrays.items()}
    target = driver.target_of(0)
    one, two = (plan(run.form, dtypes, kind.views, target, schedule="tensor", launches=n) for n in (1, 2))
    assert len(one.inside) == 1 and len(two.before) == 1 and not one.before
    two = replace(two, before=one.inside)

    def call(planned: Any) -> Callable[..., Any]:
        ready = Ready(run, kind.framework, dtypes, arrays, "tensor", planned)
        return lambda out=None, **given: ready([given[n] for n in run._names], out, None)

    return call(one), call(two)


ONE: dict[str, tuple[str, dict[str, Any]]] = {
    "fp8 per token": ("fp8_per_token_gemm", {"w": E4M3, "major": "w"}),
    "layer norm": ("layer_norm_gemm", {}),
    "rms norm": ("rms_norm_gemm", {}),
    "right": (PLAIN, {"w": E4M3}),
    "batched": (BATCHED, {"x": E4M3}),
    "several rows": (SCALED, {"x": E4M3}),
}


@pytest.mark.parametrize("name", ONE)
def test_one_launch_and_two_give_the_same_bits(name: str) -> None:
    text, options = ONE[name]
    for i, j, k in ((301, 208, 328), (1, 128, 64), (2050, 528, 1032), (5000, 64, 64)):
        arrays = drawn(text, {"i": i, "j": j, "k": k, "b": 3}, **options)
        run, apart = both(text, arrays)
        other = apart(**arrays)
        for _ in range(5):
            assert torch.equal(run(**arrays), other)


def test_many_rounds_on_other_inputs() -> None:
    """Rows of the call before are never multiplied: every round has inputs of its own in the same memory."""
    text, options = ONE["fp8 per token"]
    arrays = drawn(text, {"i": 2048, "j": 512, "k": 1024}, **options)
    run, apart = both(text, arrays)
    inputs = [torch.randn_like(arrays["x"]) for _ in range(8)]
    true = [apart(**arrays | {"x": x}) for x in inputs]
    outs = [torch.empty_like(true[0]) for _ in range(200)]
    for n, out in enumerate(outs):
        run(out=out, **arrays | {"x": inputs[n % 8]})
    assert all(torch.equal(out, true[n % 8]) for n, out in enumerate(outs))


def test_streams_that_run_side_by_side() -> None:
    """Every stream counts in words of its own, and no grid starts before all of its blocks can run."""
    text, options = ONE["layer norm"]
    arrays = drawn(text, {"i": 700, "j": 512, "k": 520}, **options)
    run, apart = both(text, arrays)
    inputs = [torch.randn_like(arrays["x"]) for _ in range(4)]
    true = [apart(**arrays | {"x": x}) for x in inputs]
    streams = [torch.cuda.Stream() for _ in inputs]
    torch.cuda.synchronize()
    found: list[Any] = [[] for _ in inputs]
    for _ in range(40):
        for n, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[n].append(run(**arrays | {"x": inputs[n]}))
    torch.cuda.synchronize()
    assert all(torch.equal(y, true[n]) for n in range(4) for y in found[n])


def test_graphs_are_replayed_beside_calls_and_each_other() -> None:
    for name in ("fp8 per token", "rms norm", "several rows"):
        text, options = ONE[name]
        arrays = drawn(text, {"i": 300, "j": 256, "k": 264, "b": 2}, **options)
        run, apart = both(text, arrays)
        run(**arrays)
        inputs = [arrays["x"].clone() for _ in range(2)]
        graphs, results = [torch.cuda.CUDAGraph() for _ in inputs], []
        for graph, x in zip(graphs, inputs, strict=True):
            with torch.cuda.graph(graph):
                results.append(run(**arrays | {"x": x}))
        for scale in (2.0, -0.5, 4.0):
            fresh = [(arrays["x"].float() * scale * (n + 1)).to(arrays["x"].dtype) for n in range(2)]
            true = [apart(**arrays | {"x": x}) for x in fresh]
            for x, new in zip(inputs, fresh, strict=True):
                x.copy_(new)
            torch.cuda.synchronize()
            sides = [torch.cuda.Stream() for _ in graphs]
            for _ in range(10):
                for graph, side in zip(graphs, sides, strict=True):
                    with torch.cuda.stream(side):
                        graph.replay()
                beside = run(**arrays | {"x": fresh[0]})
            torch.cuda.synchronize()
            assert all(torch.equal(y, z) for y, z in zip(results, true, strict=True)) and torch.equal(beside, true[0])
