"""Forward mode of heads, and its nestings with reverse mode, beside PyTorch's own of whole products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.deep.gradients.test_torch_forward import NESTINGS, along, func, of_floats, total, wave

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

cross_entropy = torch.nn.functional.cross_entropy


def capped(H: Any, W: Any, b: Any, y: Any) -> Any:
    z = 3 * torch.tanh((H @ W.T + b) / 3)
    lse, pick = z.logsumexp(1), z.gather(1, y[:, None])[:, 0]
    return pick - lse, lse - (torch.softmax(z, 1) * z).sum(1), z.argmax(1)


def splade(H: Any, E: Any, bias: Any, n: Any) -> Any:
    beyond = (torch.arange(H.shape[1])[None] >= n[:, None])[..., None]
    return torch.log1p(torch.relu((H @ E.T).masked_fill(beyond, -torch.inf).amax(1) + bias))


def contrast(H: Any, W: Any, G: Any, U: Any) -> Any:
    p, q = torch.log_softmax(H @ W.T, 1), torch.log_softmax(G @ U.T, 1)
    return (q.exp() * (q - p)).sum(1)


HEADS: dict[str, tuple[str, list[Any], Callable[..., Any]]] = {  # text, shapes (or tensors), plain PyTorch
    "rows": (
        """tensors H[t,d], W[v,d], b[v], y[t] integer; z = 3*tanh((sum[d](H[t,d]*W[v,d]) + b[v])/3);
        m = max[v](z); p = exp(z - m); s = sum[v](p); l = m + log(s); pick = sum[v](where(index[v] == y[t], z, 0));
        return logp = pick - l, entropy = l - sum[v](p*z)/s, best = argmax[v](z)""",
        [(3, 2), (4, 2), (4,), [1, 3, 0]],
        capped,
    ),
    "mean": (
        """tensors H[t,d], W[v,d], s, y[t] integer; z = s*sum[d](H[t,d]*W[v,d]); l = logsumexp[v](z);
        return loss = mean[t](l - sum[v](where(index[v] == y[t], z, 0)))""",
        [(3, 2), (4, 2), (), [1, 3, 0]],
        lambda H, W, s, y: cross_entropy(s * H @ W.T, y),
    ),
    "two products": (
        """tensors H[t,d], W[v,d], G[t,e], U[v,e]; z = sum[d](H[t,d]*W[v,d]); s = sum[e](G[t,e]*U[v,e]);
        q = exp(s - max[v](s)); u = sum[v](q);
        return kl = sum[v](q*(s - z))/u - logsumexp[v](s) + logsumexp[v](z)""",
        [(2, 2), (3, 2), (2, 1), (3, 1)],
        contrast,
    ),
    "codebooks": (
        """tensors H[b,t,c,d], W[c,v,d], y[b,t,c] integer, w[b]; z = sum[d](H[b,t,c,d]*W[c,v,d]);
        l = logsumexp[v](z) - sum[v](where(index[v] == y[b,t,c], z, 0));
        return loss = sum[b](w[b]*mean[t](mean[c](l)))""",
        [(2, 1, 2, 2), (2, 3, 2), [[[0, 2]], [[1, 1]]], (2,)],
        lambda H, W, y, w: (
            w
            * cross_entropy(torch.einsum("btcd,cvd->btcv", H, W).flatten(0, 2), y.flatten(), reduction="none")
            .view(2, -1)
            .mean(1)
        ).sum(),
    ),
    "splade": (
        """tensors H[b,s,d], E[v,d], bias[v], n[b] integer;
        m = max[s](where(index[s] < n[b], sum[d](H[b,s,d]*E[v,d]), -oo)); return Y = log(1 + relu(m + bias[v]))""",
        [(2, 4, 2), (3, 2), (3,), [4, 2]],
        splade,
    ),
    "late interaction": (
        "return score = sum[q](max[s](sum[d](Q[b,q,d]*D[c,s,d])*w[c,s]))",
        [(2, 2, 2), (3, 4, 2), (3, 4)],
        lambda Q, D, w: (torch.einsum("bqd,csd->bcqs", Q, D) * w[:, None]).amax(-1).sum(-1),
    ),
}
FIRST = ("jvp", "jvp along one", "jacfwd", "jvp of vmap", "jvp in no_grad", "levels")
REFUSED = ("forward over forward", "batched levels")


def case(name: str, gradients: str = "later") -> tuple[Any, Callable[..., Any], list[Any]]:
    text, shapes, plain = HEADS[name]
    op = ra.torch.head(ra.parse(text), gradients=gradients, workspace=100)
    g = torch.Generator().manual_seed(len(name))
    drawn = [
        torch.randn(s, generator=g, dtype=torch.float64) if isinstance(s, tuple) else torch.tensor(s) for s in shapes
    ]
    return op, plain, drawn


@pytest.mark.parametrize("gradients", ["later", "now"])
@pytest.mark.parametrize("name", HEADS)
def test_nestings_of_both_modes(name: str, gradients: str) -> None:
    """Extrema over rows have derivatives of first order; a tangent of a tangent is refused."""
    if gradients == "now" and name not in ("mean", "codebooks"):
        return
    op, plain, arrays = case(name, gradients)
    given = tuple(a for a in arrays if a.is_floating_point())
    pooled = name in ("splade", "late interaction")
    for nesting, taken in NESTINGS.items():
        if nesting in REFUSED or (pooled and nesting not in FIRST):
            with pytest.raises(RedalgError) as caught:
                taken(of_floats(op, arrays), given)
            assert all((caught.value.what, caught.value.where, caught.value.why, caught.value.fix))
            continue
        if nesting == "reverse of levels" and name != "splade":
            continue  # PyTorch refuses it for its own softmax
        own, want = (torch.utils._pytree.tree_leaves(taken(of_floats(f, arrays), given)) for f in (op, plain))
        assert len(own) == len(want), nesting
        for got, value in zip(own, want, strict=True):
            torch.testing.assert_close(got, value, rtol=1e-9, atol=1e-11, msg=lambda m, at=nesting: f"{at}: {m}")


@pytest.mark.parametrize("name", HEADS)
def test_tangents_that_reach_a_gradient_from_elsewhere(name: str) -> None:
    """Gradients whose cotangents or tensors have tangents of a level that is open: none is dropped."""
    op, plain, arrays = case(name)
    given = tuple(a for a in arrays if a.is_floating_point())
    level = torch.autograd.forward_ad

    def of_cotangents(f: Any) -> list[Any]:
        leaves = [a.clone().requires_grad_() for a in given]
        results = of_floats(f, arrays)(*leaves)
        with level.dual_level():
            pulled = [level.make_dual(wave(r), wave(r).sin()) for r in results]
            return [level.unpack_dual(s).tangent for s in torch.autograd.grad(results, leaves, pulled)]

    def of_tensors(f: Any) -> list[Any]:
        leaves = [a.clone().requires_grad_() for a in given]
        with level.dual_level():
            loss = total(of_floats(f, arrays))(*map(level.make_dual, leaves, along(given)))
            return [level.unpack_dual(s).tangent for s in torch.autograd.grad(loss, leaves)]

    for way in (of_cotangents, of_tensors):
        if way is of_tensors and name in ("splade", "late interaction"):
            with pytest.raises(RedalgError, match="a gradient of a gradient"):
                way(op)
            continue
        for got, value in zip(way(op), way(plain), strict=True):
            torch.testing.assert_close(got, value, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", HEADS)
def test_pytorchs_check_by_differences(name: str) -> None:
    op, _, arrays = case(name)
    leaves = [a.requires_grad_() for a in arrays if a.is_floating_point()]
    assert torch.autograd.gradcheck(of_floats(op, arrays), leaves, check_forward_ad=True)
    if name != "codebooks":
        own = [a.detach() for a in arrays]
        moving = [torch.ones_like(a) if k and a.is_floating_point() else None for k, a in enumerate(own)]
        torch.library.opcheck(op._ops["_tangents"], (*own, *op._ops["_values"](*own), *moving))


@pytest.mark.parametrize("name", ["rows", "mean", "splade"])
def test_narrow_operands(name: str) -> None:
    op, plain, arrays = case(name)
    for dtype in (torch.float32, torch.bfloat16):
        x = tuple(a.to(dtype) for a in arrays if a.is_floating_point())
        exact = func.jvp(of_floats(plain, arrays), tuple(a.double() for a in x), along(tuple(a.double() for a in x)))
        value, tangent = func.jvp(of_floats(op, arrays), x, along(x))
        for got, t, want in zip(value, tangent, exact[1], strict=True):
            assert t.dtype == got.dtype
            assert (t.double() - want).abs().max() <= 40 * torch.finfo(dtype).eps * max(1, want.abs().max())


def test_tensors_without_elements_and_rows_without_any() -> None:
    """Rows of which nothing is chosen (their maximum is -oo) have tangents of 0."""
    op, plain, arrays = case("splade")
    H, E, bias, _ = arrays
    n = torch.tensor([0, 2])
    own, want = (func.jvp(lambda H, E, b, f=f: f(H, E, b, n), (H, E, bias), along((H, E, bias))) for f in (op, plain))
    for got, value in zip(own, want, strict=True):
        torch.testing.assert_close(got, value)
    op, _, (H, W, b, y) = case("rows")
    values, tangents = func.jvp(lambda H: op(H, W, b, y[:0])[:2], (H[:0],), (H[:0],))
    assert [x.shape for x in (*values, *tangents)] == [(0,)] * 4


def pushed(f: Any) -> Any:
    return lambda *x: func.jvp(f, x, along(x))[1]


def test_what_a_compiler_would_drop_is_refused() -> None:
    for name in ("rows", "codebooks", "splade"):
        op, _, arrays = case(name)
        given = tuple(a for a in arrays if a.is_floating_point())
        push = pushed(of_floats(op, arrays))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(push, fullgraph=True, backend="aot_eager")(*given)
        for got, want in zip(torch.compile(push, backend="aot_eager")(*given), push(*given), strict=True):
            torch.testing.assert_close(got, want)
