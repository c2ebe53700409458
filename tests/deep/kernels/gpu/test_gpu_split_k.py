"""Split-K, operands that lie across, and computed ones on a GPU, against float64, twice, and in a graph."""

from __future__ import annotations

from typing import Any

import pytest

from redalg.kernels.gemm import parts
from tests.support import forms

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

TEXTS = {
    "gram": "return C = sum[t](X[t,a]*X[t,b])",
    "weights": "return C = sum[t](X[t,a]*Y[t,b])",
    "rows": "return C = sum[t](X[a,t]*Y[b,t])",
    "columns": "return C = sum[t](X[t,a]*Y[b,t])",
    "covariance": "m = mean[t](X[t,a]); n = mean[t](X[t,b]); return C = mean[t]((X[t,a] - m)*(X[t,b] - n))",
    "gate": "return C = silu(sum[t](X[a,t]*Y[t,b])/64)*sum[t](X[a,t]*Z[t,b])",
    "batched": "return C = sum[t](X[p,t,a]*Y[p,t,b])",
}


def drawn(text: str, sizes: dict[str, int], dtype: Any) -> dict[str, Any]:
    torch.manual_seed(sum(sizes.values()))
    own = [t for t in forms.form_of_text(text, "t", 2).spec.tensors if not t.array]
    return {t.name: torch.randn([sizes[a] for a in t.axes], device="cuda").to(dtype) for t in own}


def truth(name: str, x: dict[str, Any]) -> tuple[Any, Any]:
    """The result, and the sizes of the products that were added."""
    x = {n: a.double() for n, a in x.items()}
    if name == "covariance":
        y = x["X"] - x["X"].mean(0)
        return y.mT @ y / len(y), y.abs().mT @ y.abs() / len(y)
    if name == "gate":
        g, u = x["X"] @ x["Y"], x["X"] @ x["Z"]
        size = x["X"].abs() @ x["Z"].abs() * (g.abs() + 1) + x["X"].abs() @ x["Y"].abs() * (u.abs() + 1)
        return torch.nn.functional.silu(g / 64) * u, size
    left = x["X"] if name == "rows" else x["X"].mT
    right = x["Y"].mT if name in ("rows", "columns") else x["X" if name == "gram" else "Y"]
    return left @ right, left.abs() @ right.abs()


@pytest.mark.parametrize("shape", [(4096, 128, 128), (20011, 72, 264), (9000, 33, 45), (70000, 512, 512), (513, 8, 8)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_products_of_many_terms(
    name: str, forced: bool, dtype: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if forced:
        monkeypatch.setattr(parts, "GAIN", 1e9)
    text, (t, a, b) = TEXTS[name], shape
    sizes = {"t": t, "a": a, "b": a if name in ("gram", "covariance") else b, "p": 3}
    given = drawn(text, sizes, getattr(torch, dtype))
    run = forms.form_of_text(text, "t", 2).compile("cuda", schedule="tensor" if forced else None)
    first, second = run(**given), run(**given)
    assert torch.equal(first, second)
    exact, size = truth(name, given)
    unit = {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]
    rounded = unit * (name == "covariance")
    bound = unit * exact.abs() + (t**0.5 * 2.0**-22 + rounded) * size + unit**2
    top = torch.finfo(getattr(torch, dtype)).max
    assert bool((((first.double() - exact).abs() <= bound) | (exact.abs() > top)).all())


def test_in_a_graph() -> None:
    text, sizes = TEXTS["weights"], {"t": 65536, "a": 256, "b": 512}
    given, run = drawn(text, sizes, torch.bfloat16), forms.form_of_text(text, "t", 2).compile("cuda")
    expected = run(**given)
    assert any("split-K" in line for line in run.planned.choice.reasons)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(**given)
    for _ in range(20):
        graph.replay()
    assert torch.equal(captured, expected)
