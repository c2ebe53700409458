"""Heads of PyTorch under what differentiates gradients and maps calls: second order, `torch.func`, batched cotangents.

Compared with PyTorch's own of whole products, and with its checks by differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError

torch: Any = pytest.importorskip("torch")

TEXT = """z = sum[d](H[t,d]*W[v,d]){bias}; c = {cap}; m = max[v](c); p = exp(c - m); l = m + log(sum[v](p));
    pick = sum[v](where(index[v] == y[t], c, 0)); """
KINDS = {
    "rows": "return logp = pick - l, lse = l, entropy = l - sum[v](p*c)/sum[v](p)",
    "mean": "return loss = mean[t](l - pick + l**2/1000)",
    "weighted": "return loss = sum[t]((l - pick)*w[t])/sum[t](w[t])",
    "temperature": "return loss = sum[t]((l - pick)*w[t])",
}
SMALL, LARGE = 300, 1 << 29  # bytes of products: some slabs, and one


def spec_of(kind: str) -> Any:
    cap = {"rows": "3*tanh(z/3)", "temperature": "z*s"}.get(kind, "z")
    bias = " + b[v]" if kind in ("rows", "weighted") else ""
    more = [", b[v]" * bool(bias), ", s" * (kind == "temperature"), ", w[t]" * (kind in ("weighted", "temperature"))]
    return ra.parse(
        f"tensors H[t,d], W[v,d], y[t] integer{''.join(more)}; " + TEXT.format(bias=bias, cap=cap) + KINDS[kind]
    )


def whole(kind: str) -> Callable[..., Any]:
    def run(H: Any, W: Any, y: Any, b: Any = 0.0, s: Any = 1.0, w: Any = 1.0) -> tuple[Any, ...]:
        z = (H @ W.mT + b) * s
        c = 3 * torch.tanh(z / 3) if kind == "rows" else z
        lse, pick = torch.logsumexp(c, 1), c.gather(1, y[:, None])[:, 0]
        if kind == "rows":
            return pick - lse, lse, lse - (torch.softmax(c, 1) * c).sum(1)
        loss = {
            "mean": lambda: (lse - pick + lse**2 / 1000).mean(),
            "weighted": lambda: ((lse - pick) * w).sum() / w.sum(),
            "temperature": lambda: ((lse - pick) * w).sum(),
        }
        return (loss[kind](),)

    return run


def drawn(spec: Any, seed: int, sizes: tuple[int, int, int] = (5, 7, 3), dtype: Any = None) -> dict[str, Any]:
    torch.manual_seed(seed)
    lengths = dict(zip("tvd", sizes, strict=True))
    made = {d.name: torch.randn([lengths[a] for a in d.axes], dtype=torch.float64) for d in spec.tensors}
    made = {n: (a.abs() + 0.1 if n in "sw" else a).to(dtype or a.dtype).requires_grad_() for n, a in made.items()}
    return made | {"y": torch.randint(0, sizes[1], (sizes[0],))}


def tupled(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def hvp(run: Callable[..., Any], arrays: dict[str, Any], seed: int) -> tuple[list[Any], list[Any]]:
    """Gradients for drawn cotangents, and those of what they are by weights, by tensors and cotangents."""
    torch.manual_seed(seed)
    found = tupled(run(**arrays))
    leaves = [a for a in arrays.values() if a.requires_grad]
    cotangents = [torch.randn_like(x).requires_grad_() for x in found]
    own = torch.autograd.grad(found, leaves, cotangents, create_graph=True)
    weights = [torch.randn_like(x) for x in own]
    again = torch.autograd.grad(own, [*leaves, *cotangents], weights, allow_unused=True, materialize_grads=True)
    return [x.detach() for x in own], list(again)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workspace", (SMALL, LARGE))
def test_second_order_is_that_of_whole_products(kind: str, workspace: int) -> None:
    spec = spec_of(kind)
    for mode in ("later",) if kind == "rows" else ("later", "now"):
        op = ra.torch.head(spec, gradients=mode, workspace=workspace)
        for seed, sizes in enumerate(((5, 7, 3), (1, 1, 2), (2, 300, 1), (9, 2, 4))):
            arrays = drawn(spec, seed, sizes)
            for own, truth in zip(hvp(op, arrays, seed), hvp(whole(kind), arrays, seed), strict=True):
                for x, e in zip(own, truth, strict=True):
                    assert torch.allclose(x, e, rtol=1e-9, atol=1e-11), (mode, sizes)


@pytest.mark.parametrize("kind", KINDS)
def test_pytorchs_checks_by_differences(kind: str) -> None:
    spec = spec_of(kind)
    for mode in ("later",) if kind == "rows" else ("later", "now"):
        op = ra.torch.head(spec, gradients=mode, workspace=SMALL)
        arrays = drawn(spec, 3, (3, 4, 2))
        names = [n for n, a in arrays.items() if a.requires_grad]

        def run(*given: Any, op: Any = op, names: Any = names, y: Any = arrays["y"]) -> Any:
            return op(**dict(zip(names, given, strict=True)), y=y)

        leaves = [arrays[n] for n in names]
        assert torch.autograd.gradcheck(run, leaves, check_batched_grad=mode == "later")
        assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16", "float16"))
def test_narrow_operands(dtype: str) -> None:
    """Against float64 of the same numbers: what enters a product is rounded to the operands' dtype."""
    spec, kind = spec_of("weighted"), "weighted"
    op = ra.torch.head(spec, workspace=SMALL)
    arrays = drawn(spec, 1, (6, 11, 5), getattr(torch, dtype))
    exact = {n: a.detach().double().requires_grad_() if a.is_floating_point() else a for n, a in arrays.items()}
    unit = torch.finfo(getattr(torch, dtype)).eps
    for run, of in ((op, arrays), (whole(kind), exact)):
        leaves = [a for a in of.values() if a.requires_grad]
        own = torch.autograd.grad(run(**of)[0] if run is not op else run(**of), leaves, create_graph=True)
        again = torch.autograd.grad(own, leaves, [x.detach() for x in own])
        if run is op:
            found = again
    for x, e in zip(found, again, strict=True):
        assert float((x.double() - e).abs().max()) <= 16 * unit * float(e.abs().max() + 1), (x, e)


def test_a_penalty_with_constant_cotangents_is_differentiated() -> None:
    """A loss that is a scalar has a cotangent that requires no gradient: its gradients are no constants for that."""
    spec = spec_of("mean")
    for mode in ("later", "now"):
        op, arrays = ra.torch.head(spec, gradients=mode), drawn(spec, 0)
        H = arrays["H"]
        results = []
        for run in (op, lambda **a: whole("mean")(**a)[0]):
            (g,) = torch.autograd.grad(run(**arrays), H, create_graph=True)
            results.append(torch.autograd.grad((g**2).sum() + (H**2).sum(), H)[0])
        assert torch.allclose(*results)


@pytest.mark.parametrize("mode", ("later", "now"))
def test_transforms(mode: str) -> None:
    """`torch.func`: gradients, Jacobians of them, samples side by side, none of them, samples of samples."""
    spec = spec_of("temperature")
    op, arrays = ra.torch.head(spec, gradients=mode, workspace=SMALL), drawn(spec, 0)
    still = {n: a.detach() for n, a in arrays.items()}
    names = [n for n, a in arrays.items() if a.is_floating_point()]
    leaves = tuple(still[n] for n in names)

    def of(run: Any, names: Any = names, y: Any = still["y"]) -> Callable[..., Any]:
        return lambda *given: tupled(run(**dict(zip(names, given, strict=True)), y=y))[0]

    own, truth = of(op), of(whole("temperature"))
    every = tuple(range(len(names)))
    for transform in (
        lambda f: torch.func.grad(f, argnums=every)(*leaves),
        lambda f: (torch.func.jacrev(torch.func.grad(f))(*leaves),),
        lambda f: torch.func.vjp(torch.func.grad(f), *leaves)[1](leaves[0]),
    ):
        for x, e in zip(transform(own), transform(truth), strict=True):
            assert torch.allclose(x, e, rtol=1e-9, atol=1e-11)
    many = torch.randn(3, 2, *still["H"].shape, dtype=torch.float64)
    for f, e in ((own, truth), (torch.func.grad(own), torch.func.grad(truth))):
        for count in (3, 0):
            twice, wanted = (
                torch.func.vmap(torch.func.vmap(lambda h, run=run: run(h, *leaves[1:])))(many[:count]) for run in (f, e)
            )
            assert twice.shape == wanted.shape
            assert torch.allclose(twice, wanted)


def test_what_is_refused() -> None:
    spec = spec_of("mean")
    op, arrays = ra.torch.head(spec), drawn(spec, 0)
    H = arrays["H"]
    (g,) = torch.autograd.grad(op(**arrays), H, create_graph=True)
    (g2,) = torch.autograd.grad((g**2).sum(), H, create_graph=True)
    with pytest.raises(RedalgError, match="third order"):
        torch.autograd.grad(g2.sum(), H)
    pooled = ra.torch.head(ra.parse("m = max[s](sum[d](H[b,s,d]*E[v,d])); return y = log(1 + relu(m))"))
    H, E = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 3, 4), (5, 4)))
    (g,) = torch.autograd.grad(pooled(H, E).sum(), H, create_graph=True)
    with pytest.raises(RedalgError, match="gradient of a gradient"):
        torch.autograd.grad((g**2).sum() + (H**2).sum(), H)


@pytest.mark.parametrize("batch", ("H[b,t,d]*W[v,d]", "H[t,c,d]*W[c,v,d]"))
def test_batched_heads(batch: str) -> None:
    rows = "b,t" if "b,t" in batch else "t,c"
    spec = ra.parse(f"z = sum[d]({batch}); return loss = sum[{rows}](logsumexp[v](z)**2)")
    lengths = dict(zip("btcvd", (2, 3, 2, 4, 2), strict=True))
    H, W = (torch.randn([lengths[a] for a in d.axes], dtype=torch.float64, requires_grad=True) for d in spec.tensors)
    contracted = "btd,vd->btv" if "b,t" in batch else "tcd,cvd->tcv"
    results = []
    for run in (
        ra.torch.head(spec, workspace=SMALL),
        ra.torch.head(spec, workspace=LARGE),
        lambda h, w: (torch.logsumexp(torch.einsum(contracted, h, w), -1) ** 2).sum(),
    ):
        own = torch.autograd.grad(run(H, W), (H, W), create_graph=True)
        results.append(torch.autograd.grad(sum((x**2).sum() for x in own), (H, W)))
    for found in results[:-1]:
        for x, e in zip(found, results[-1], strict=True):
            assert torch.allclose(x, e, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ("rows", "weighted"))
def test_operators_are_well_formed(kind: str) -> None:
    spec = spec_of(kind)
    op, arrays = ra.torch.head(spec, workspace=SMALL), drawn(spec, 0)
    own = [arrays[d.name].detach() for d in op.tensors]
    kept = op._ops["_values"](*own)
    pulled = [torch.randn_like(x) for n, x in zip(op.slabs.kept, kept, strict=True) if n in op.slabs.cotangents]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(op._ops["_values"], own, test_utils=checks)
    torch.library.opcheck(op._ops["_backward"], (*own, *kept, *pulled), test_utils=checks)
    torch.library.opcheck(op._ops["_second"], (*own, *pulled, *own), test_utils=checks)
