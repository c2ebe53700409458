"""Operators of PyTorch on a GPU: gradients beside those of float64 on the host, compiling, graphs, second calls."""

from __future__ import annotations

from typing import Any

import pytest

import redalg as ra
from tests.deep.kernels.gpu.test_gpu_kernels import agree, sent
from tests.support.forms import form_of
from tests.support.sample import SAMPLE

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")

SPECS = {  # of the catalog, lengths of axes
    "softmax": {"i": 7, "j": 1025},
    "logsumexp": {"i": 7, "j": 257},
    "layer_norm": {"i": 33, "j": 300},
    "rms_norm": {"i": 33, "j": 512},
    "variance": {"i": 5, "j": 77},
    "attention": {"h": 3, "i": 70, "j": 150, "d": 64, "e": 64},
}
EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-7, "float16": 2.0**-10}


def drawn(name: str, dtype: str) -> dict[str, Any]:
    torch.manual_seed(len(name))
    found = {}
    for d in ra.catalog[name].tensors:
        made = torch.randn([SPECS[name][a] for a in d.axes], device="cuda", dtype=torch.float64)
        found[d.name] = (made if d.axes else made.abs()).to(getattr(torch, dtype))
    return found


def gradients(op: Any, arrays: dict[str, Any], cotangent: Any) -> tuple[Any, dict[str, Any]]:
    held = {n: x.detach().requires_grad_() for n, x in arrays.items()}
    y = op(**held)
    y = y[0] if isinstance(y, tuple) else y
    y.backward(cotangent.to(y))
    return y.detach(), {n: x.grad for n, x in held.items()}


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_float64_on_the_host(name: str, dtype: str) -> None:
    """Of the same rounded tensors; an output that is saved in 16 bits is off by half a unit of it."""
    op, arrays = ra.torch.compile(ra.catalog[name]), drawn(name, dtype)
    with torch.no_grad():
        plain = op(**arrays)
    cotangent = torch.randn_like(plain[0] if isinstance(plain, tuple) else plain)
    y, found = gradients(op, arrays, cotangent)
    exact, wanted = gradients(op, {n: x.double().cpu() for n, x in arrays.items()}, cotangent.double().cpu())
    bound = EPS[dtype] * (8 if dtype in ("bfloat16", "float16") else 64 * max(SPECS[name].values()))
    for got, want in [(y, exact), *((found[n], wanted[n]) for n in arrays)]:
        assert got.is_cuda and got.dtype == getattr(torch, dtype)
        assert float((got.double().cpu() - want).abs().max()) <= bound * max(1.0, float(want.abs().max()))


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_compiled_and_captured(name: str) -> None:
    op, arrays = ra.torch.compile(ra.catalog[name]), drawn(name, "float32")
    wanted = op(**arrays)
    torch.testing.assert_close(torch.compile(lambda a: op(**a) * 2, fullgraph=True)(arrays), wanted * 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = op(**arrays)
    for x in arrays.values():
        x.mul_(1.5)
    graph.replay()
    torch.testing.assert_close(captured, op(**arrays))


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "attention"])
def test_a_training_step_is_captured(name: str) -> None:
    """Forward and backward in one graph, replayed on other numbers in the same places."""
    op, arrays = ra.torch.compile(ra.catalog[name]), drawn(name, "float32")
    leaves = {n: x.requires_grad_(n != "eps") for n, x in arrays.items()}
    wanted = [x for x in leaves.values() if x.requires_grad]

    def step() -> Any:
        return torch.autograd.grad(op(**leaves).square().sum(), wanted)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    with torch.no_grad():
        for x in leaves.values():
            x.mul_(1.25)
    graph.replay()
    for got, want in zip(captured, step(), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "attention"])
def test_gradcheck(name: str) -> None:
    op = ra.torch.compile(ra.catalog[name])
    arrays = {
        n: x.double()[tuple(slice(0, 3) for _ in x.shape)].requires_grad_() for n, x in drawn(name, "float64").items()
    }
    assert torch.autograd.gradcheck(lambda *given: op(*given), tuple(arrays.values()), eps=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", sorted(SAMPLE))
def test_second_calls_of_a_kind_read_what_they_are_given(name: str, dtype: str) -> None:
    entry = ra.catalog.entry(name)
    axis = entry.axis if isinstance(entry.axis, str) else entry.axis[0]
    run = form_of(name).compile("cuda")
    for seed, length in ((3, 77), (4, 77), (5, 78), (6, 77), (7, 77)):
        arrays = sent(entry.sample(seed, dtype="float32", **{axis: length}), dtype)
        agree(entry.spec, run(**arrays), arrays, dtype)
    x = next(n for n, a in arrays.items() if hasattr(a, "is_cuda"))
    arrays[x].requires_grad_(arrays[x].is_floating_point())
    if arrays[x].requires_grad:
        with pytest.raises(ra.RedalgError, match="requires a gradient"):
            run(**arrays)


@pytest.mark.parametrize("target", [None, "cuda"])
@pytest.mark.parametrize("name", SPECS)
def test_calls_of_derivatives_read_tensors_where_they_lie(name: str, target: str | None) -> None:
    spec, arrays = ra.catalog[name], drawn(name, "float32")
    host = {n: x.double().cpu().numpy() for n, x in arrays.items()}
    pull, push = spec.vjp(), spec.jvp()
    values = ra.reference(spec, **host)
    values = values if isinstance(values, dict) else {next(iter(spec.outputs)): values}
    cotangents = {n: torch.randn(values[n].shape, device="cuda") for n in pull.cotangents}
    tangents = {n: torch.randn_like(arrays[n]) for n in push.tangents}
    of_host = ({n: x.double().cpu().numpy() for n, x in own.items()} for own in (cotangents, tangents))
    pulled = pull(**host, cotangents=next(of_host), target="numpy")
    pushed = push(**host, tangents=next(of_host), target="numpy")
    found = pull(**arrays, cotangents=cotangents, target=target) | push(**arrays, tangents=tangents, target=target)
    for n, expected in (pulled | pushed).items():
        assert found[n].is_cuda and found[n].dtype == torch.float32, n
        scale = max(1.0, float(abs(expected).max()))
        assert float(abs(found[n].double().cpu().numpy() - expected).max()) <= 2e-4 * scale, n
