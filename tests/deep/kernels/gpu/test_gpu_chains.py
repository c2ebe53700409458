"""Chains of matrix products on a GPU against the definition: sizes that fit nothing, layouts, second calls, graphs."""

from __future__ import annotations

import pytest

import redalg as ra
from redalg.kernels.gemm import passes
from redalg.kernels.gemm.chain_plan import Chain, Pair
from tests.support.chain_cases import CHAINS, form_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

SIZES = (
    {"m": 128, "k": 512, "n": 1024, "l": 256, "o": 128, "p": 2},
    {"m": 77, "k": 264, "n": 203, "l": 129, "o": 65, "p": 3},
    {"m": 1, "k": 64, "n": 96, "l": 40, "o": 8, "p": 1},
    {"m": 1000, "k": 1000, "n": 520, "l": 333, "o": 17, "p": 2},
)


@pytest.mark.parametrize("sizes", SIZES, ids=("whole", "odd", "one row", "large"))
@pytest.mark.parametrize("name", CHAINS)
def test_chains(name: str, sizes: dict[str, int]) -> None:
    form = form_of(name)
    torch.manual_seed(sizes["m"])
    arrays = {}
    for t in form.spec.tensors:
        inner = sizes["k" if "k" in t.axes else "n" if "n" in t.axes else "l"]
        x = torch.randn([sizes[a] for a in t.axes], device="cuda") / (inner**0.5 if t.name not in ("A", "R") else 1.0)
        arrays[t.name] = x.bfloat16()
    if sizes["m"] % 2:
        arrays["A"] = arrays["A"].mT.contiguous().mT
    truth = ra.reference(form.spec, **{n: x.double().cpu().numpy() for n, x in arrays.items()})
    truth = truth if isinstance(truth, dict) else {next(iter(form.spec.outputs)): truth}
    run = form.compile("cuda")
    first, second = run(**arrays), run(**arrays)
    for n, expected in truth.items():
        found, again = (x[n] if isinstance(x, dict) else x for x in (first, second))
        assert torch.equal(found, again)
        e = torch.as_tensor(expected)
        bound = 2**-8 * e.abs() + 2**-7 * e.square().mean().sqrt() * 4
        assert found.shape == e.shape and bool(((found.double().cpu() - e).abs() <= bound).all())


def test_a_chain_in_a_graph_and_into_out() -> None:
    form = form_of("gated")
    sizes = SIZES[0]
    arrays = {t.name: torch.randn([sizes[a] for a in t.axes], device="cuda").bfloat16() for t in form.spec.tensors}
    run = form.compile("cuda")
    expected = run(**arrays)
    out = torch.full_like(expected, float("nan"))
    run(**arrays, out=out)
    assert torch.equal(out, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run(**arrays)
    graph.replay()
    assert torch.equal(captured, expected)


@pytest.mark.parametrize("rows", [1, 16, 77, 128, 200])
@pytest.mark.parametrize("split", [(1, 1), (2, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("name", ["relu", "gated", "biased"])
def test_a_chain_in_one_kernel(name: str, split: tuple[int, int], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks meet between the products: launches one behind the other, and in a graph, give the same."""
    form, sizes = form_of(name), {"m": rows, "k": 1032, "n": 1208, "l": 520}

    def pick(chain: Chain) -> Pair | None:
        return min((x for x in chain.legal() if (x[0].split, x[1].split) == split), key=chain.seconds)

    monkeypatch.setattr(passes, "best", pick)
    torch.manual_seed(rows)
    arrays = {}
    for t in form.spec.tensors:
        x = torch.randn([sizes[a] for a in t.axes], device="cuda")
        arrays[t.name] = (x if t.name in ("A", "R") else x / sizes["n" if "n" in t.axes else "k"] ** 0.5).bfloat16()
    truth = ra.reference(form.spec, **{n: x.double().cpu().numpy() for n, x in arrays.items()})
    e = torch.as_tensor(truth["E"] if isinstance(truth, dict) else truth)
    run = form.compile("cuda", schedule="fused_prologue")
    first = run(**arrays)
    assert not run.planned.before and run.planned.geometry.waiting == 2
    bound = 2**-8 * e.abs() + 2**-7 * e.square().mean().sqrt() * 4
    assert bool(((first.double().cpu() - e).abs() <= bound).all())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            captured = run(**arrays)
    for _ in range(30):
        graph.replay()
        assert torch.equal(run(**arrays), first)
    assert torch.equal(captured, first)
