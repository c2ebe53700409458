"""Sums over rows in the reading that computes the rows, on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cuda.joint import JointRun
from tests.support.joint_cases import FORWARD, SPECS, drawn, dtypes_of, joint_of, truth

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")

BOUNDS = {"float32": 2e-5, "bfloat16": 2.0**-7, "float16": 2.0**-9, "float64": 1e-12}


def tensors(name: str, sizes: dict[str, int], kind: str, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays, dtypes = drawn(name, sizes, kind, seed), dtypes_of(joint_of(name), kind)
    return arrays, {n: torch.tensor(a, device="cuda").to(getattr(torch, dtypes[n])) for n, a in arrays.items()}


def agree(found: dict[str, Any], expected: dict[str, Any], kind: str) -> None:
    for output, value in expected.items():
        made, largest = found[output].double().cpu().numpy(), float(torch.finfo(getattr(torch, kind)).max)
        beyond = np.abs(value) > largest  # exponentials of numbers above the saved maximum leave float16
        assert np.array_equal(np.isinf(made), beyond) or not beyond.any(), output
        made, value = np.where(beyond, 0.0, made), np.where(beyond, 0.0, value)
        scale = max(1.0, float(np.abs(value).max(initial=0.0)))
        error = np.abs(made - value).max(initial=0.0)
        assert error <= BOUNDS[kind] * scale, (output, error, scale)


@pytest.mark.parametrize(
    "fields", [{}, {"threads": 64}, {"cluster": 2}, {"vector": 1}, {"peel": True, "vector": 4, "prefetch": 0}]
)
@pytest.mark.parametrize("kind", sorted(BOUNDS))
@pytest.mark.parametrize("name", sorted(SPECS) + sorted(FORWARD))
def test_results_are_those_of_the_definitions(name: str, kind: str, fields: dict[str, Any]) -> None:
    for rows, length in ((1, 3), (2, 515), (300, 512), (1001, 77)):
        sizes = {"i": rows, "j": length, "a": rows, "b": 2, "c": length if name == "two axes" else 3, "d": length}
        arrays, given = tensors(name, sizes, kind)
        run = JointRun(joint_of(name), fields)
        try:
            found = run(**given)
        except RedalgError as refused:
            assert refused.where in ("schedule=", "form.compile"), refused
            continue
        agree(found, truth(name, arrays), kind)
        again = run(**given)
        assert all(bool((found[n] == again[n]).all()) for n in found)


@pytest.mark.parametrize("rows", [0, 1, 2, 5000])
def test_one_call_whichever_way_is_taken(rows: int) -> None:
    """Rows that do not fit, and none at all, run one spec after the other."""
    for length in (64, 4097, 70001):
        sizes = {"i": min(rows, 300_000_000 // length // 8), "j": length}
        arrays, given = tensors("layer_norm", sizes, "bfloat16")
        run = joint_of("layer_norm").compile("cuda")
        found = run(**given)
        assert isinstance(run.explain(), str)
        if rows < 10:
            agree(found, truth("layer_norm", arrays), "bfloat16")
        again = run(**given)
        assert all(bool((found[n] == again[n]).all()) for n in found)


def test_operators_train_through_it() -> None:
    """One launch and the small one beside the gradient of PyTorch, with `out` and captured in a graph."""
    op = ra.torch.compile(ra.parse(SPECS["rms_norm"]))
    x = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    stream = torch.cuda.Stream()  # a backward pass runs on the stream of its forward pass, and must be captured there
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y, gy = op(x, w), torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16)
        first = torch.autograd.grad(y, (x, w), gy, retain_graph=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        held = torch.autograd.grad(y, (x, w), gy, retain_graph=True)
    graph.replay()
    torch.cuda.synchronize()
    assert all(bool((a == b).all()) for a, b in zip(first, held, strict=True))
    wide = [a.detach().double().requires_grad_() for a in (x, w)]
    z = wide[0] / torch.sqrt((wide[0] ** 2).mean(-1, keepdim=True) + 1e-3) * wide[1]
    for a, b in zip(first, torch.autograd.grad(z, wide, gy.double()), strict=True):
        assert float((a.double() - b).abs().max() / b.abs().max()) < 2**-7
