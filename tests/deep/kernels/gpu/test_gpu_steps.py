"""Gradients in steps that share sums along innermost axes, on a device: against the definitions, and captured."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.cuda.joint import JointRun
from tests.support.step_cases import SPECS, drawn, dtypes_of, steps_of, truth

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")

BOUNDS = {"float32": 2e-5, "bfloat16": 2.0**-7, "float16": 2.0**-9, "float64": 1e-12}


@pytest.mark.parametrize("kind", sorted(BOUNDS))
@pytest.mark.parametrize("name", [n for n in SPECS if n != "kept apart"])
def test_results_are_those_of_the_definitions(name: str, kind: str) -> None:
    steps = steps_of(name)
    run, dtypes = JointRun(steps, {}), dtypes_of(steps, kind)
    for n, c, k in ((1, 1, 1), (3, 4, 513), (2, 3, 40000), (64, 8, 49)):
        arrays = drawn(name, {"n": n, "g": 2, "c": c, "k": k}, kind)
        given = {t: torch.tensor(a, device="cuda").to(getattr(torch, dtypes[t])) for t, a in arrays.items()}
        found, again, expected = run(**given), run(**given), truth(name, arrays)
        for output, value in expected.items():
            scale = max(1.0, float(np.abs(value).max()))
            assert np.abs(found[output].double().cpu().numpy() - value).max() <= BOUNDS[kind] * scale, output
            assert bool((found[output] == again[output]).all())
        out = {o: torch.empty_like(x) for o, x in found.items()}
        run(**given, out=out)
        assert all(bool((out[o] == x).all()) for o, x in found.items())


def test_operators_train_through_it() -> None:
    """Captured in a graph, beside PyTorch's group norm."""
    op, shape = ra.torch.compile(ra.parse(SPECS["group norm"])), (8, 16, 8, 3136)
    x = torch.randn(shape, device="cuda", dtype=torch.float16, requires_grad=True)
    w, b = (torch.randn(16, 8, device="cuda", dtype=torch.float16, requires_grad=True) for _ in "wb")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y, gy = op(x, w, b), torch.randn(shape, device="cuda", dtype=torch.float16)
        first = torch.autograd.grad(y, (x, w, b), gy, retain_graph=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        held = torch.autograd.grad(y, (x, w, b), gy, retain_graph=True)
    graph.replay()
    torch.cuda.synchronize()
    assert all(bool((a == c).all()) for a, c in zip(first, held, strict=True))
    wide = [a.detach().double().requires_grad_() for a in (x, w, b)]
    flat = wide[0].view(8, 128, 3136)
    z = torch.nn.functional.group_norm(flat, 16, wide[1].view(-1), wide[2].view(-1), 1e-3).view(shape)
    for a, c in zip(first, torch.autograd.grad(z, wide, gy.double()), strict=True):
        assert float((a.double() - c).abs().max() / c.abs().max()) < 2**-9
