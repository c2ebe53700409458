"""Forward mode of operators, and its nestings, beside PyTorch's own; what would lose a tangent is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import redalg as ra
from redalg.errors import RedalgError

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

SPECS: dict[str, tuple[str, Any, list[Any], Callable[..., Any]]] = {  # text, axis, shapes (or tensors), plain PyTorch
    "softmax": (
        "m = max[j](x[i,j]); p = exp(x[i,j] - m); return y = p/sum[j](p)*w[j]",
        None,
        [(2, 3), (3,)],
        lambda x, w: torch.softmax(x, -1) * w,
    ),
    "several": (
        "return a = sum[j](x[i,j]*w[j])**2, m = max[i](x[i,j]), k = argmax[j](x[i,j])",
        "j",
        [(2, 3), (3,)],
        lambda x, w: ((x @ w) ** 2, x.amax(0), x.argmax(1)),
    ),
    "labels": (
        "tensors x[i,c], t[i] integer; l = logsumexp[c](x[i,c]);"
        "return loss = mean[i](l - sum[c](where(index[c] == t[i], x[i,c], 0)))",
        None,
        [(3, 4), [3, 0, 2]],
        lambda x, t: torch.nn.functional.cross_entropy(x, t),
    ),
    "means": (
        "tensors x[i,j], w[i]; return y = w[i]*mean[j](x[i,j])/size[i], z = w[i]*size[j]",
        None,
        [(2, 3), (2,)],
        lambda x, w: (w * x.mean(1) / len(w), w * x.shape[1]),
    ),
}


def case(name: str) -> tuple[Any, Callable[..., Any], list[Any]]:
    text, axis, shapes, plain = SPECS[name]
    op = ra.derive_incremental(ra.parse(text), axis).torch_op(f"forward::{name}")
    g = torch.Generator().manual_seed(len(name))
    drawn = [
        torch.rand(s, generator=g, dtype=torch.float64) + 0.1 if isinstance(s, tuple) else torch.tensor(s)
        for s in shapes
    ]
    return op, plain, drawn


def wave(a: Any) -> Any:
    return torch.cos(torch.arange(a.numel(), dtype=a.dtype) + 1).reshape(a.shape)


def of_floats(function: Any, arrays: list[Any]) -> Any:
    """The results that hold reals, as a function of the tensors that do."""

    def made(*some: Any) -> Any:
        own = iter(some)
        found = function(*[next(own) if a.is_floating_point() else a for a in arrays])
        return tuple(p for p in (found if isinstance(found, tuple) else (found,)) if p.is_floating_point())

    return made


def total(function: Any) -> Any:
    return lambda *given: sum((p * wave(p)).sum() ** 2 for p in function(*given))


def along(x: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(wave, x))


def doubled(x: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(torch.stack([a, a * 1.1]) for a in x)


def by_levels(f: Any, x: tuple[Any, ...]) -> Any:
    """By `torch.autograd.forward_ad` itself."""
    level = torch.autograd.forward_ad
    with level.dual_level():
        return [tuple(level.unpack_dual(p)) for p in f(*map(level.make_dual, x, along(x)))]


def reverse_of_levels(f: Any, x: tuple[Any, ...]) -> Any:
    level = torch.autograd.forward_ad
    leaves = [a.clone().requires_grad_() for a in x]
    with level.dual_level():
        tangent = level.unpack_dual(total(f)(*map(level.make_dual, leaves, along(x)))).tangent
        return torch.autograd.grad(tangent, leaves)


func = torch.func
NESTINGS: dict[str, Callable[[Any, tuple[Any, ...]], Any]] = {
    "jvp": lambda f, x: func.jvp(f, x, along(x)),
    "jvp along one": lambda f, x: func.jvp(lambda a: f(a, *x[1:]), x[:1], along(x[:1])),
    "jacfwd": lambda f, x: func.jacfwd(f, tuple(range(len(x))))(*x),
    "hessian": lambda f, x: func.hessian(total(f), tuple(range(len(x))))(*x),
    "forward over forward": lambda f, x: func.jacfwd(func.jacfwd(total(f)))(*x),
    "reverse over forward": lambda f, x: func.jacrev(func.jacfwd(total(f)))(*x),
    "grad of jvp": lambda f, x: func.grad(lambda *x: func.jvp(total(f), x, along(x))[1])(*x),
    "vmap of hessian": lambda f, x: func.vmap(func.hessian(total(f)))(*doubled(x)),
    "jvp of vmap": lambda f, x: func.jvp(func.vmap(f), doubled(x), along(doubled(x))),
    "jvp in no_grad": lambda f, x: torch.no_grad()(lambda: func.jvp(f, x, along(x)))(),
    "levels": by_levels,
    "reverse of levels": reverse_of_levels,
    "batched levels": lambda f, x: torch.autograd.functional.jacobian(f, x, vectorize=True, strategy="forward-mode"),
}


@pytest.mark.parametrize("name", SPECS)
def test_nestings_of_both_modes(name: str) -> None:
    op, plain, arrays = case(name)
    given = tuple(a for a in arrays if a.is_floating_point())
    for nesting, taken in NESTINGS.items():
        if nesting == "reverse of levels" and name in ("softmax", "labels"):
            continue  # PyTorch refuses it for its own softmax
        own, want = (torch.utils._pytree.tree_leaves(taken(of_floats(f, arrays), given)) for f in (op, plain))
        assert len(own) == len(want), nesting
        for got, value in zip(own, want, strict=True):
            torch.testing.assert_close(got, value, rtol=1e-9, atol=1e-11, msg=lambda m, at=nesting: f"{at}: {m}")


def test_pytorchs_own_check_of_both_modes() -> None:
    op, _, arrays = case("several")
    leaves = [a.requires_grad_() for a in arrays]
    options = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(of_floats(op, arrays), leaves, **options)


def test_tangents_are_of_the_results_type() -> None:
    op, plain, arrays = case("softmax")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = tuple(a.to(dtype) for a in arrays)
        value, tangent = func.jvp(op, x, along(x))
        want = func.jvp(plain, tuple(a.double() for a in x), tuple(a.double() for a in along(x)))[1]
        assert value.dtype == tangent.dtype == dtype
        assert (tangent.double() - want).abs().max() <= 8 * torch.finfo(dtype).eps * max(1, want.abs().max())


def test_tangents_that_would_be_lost_are_refused() -> None:
    """A zero in their place would be a wrong number: PyTorch drops them in compiled functions."""
    op, _, (x, w) = case("softmax")
    pushed = torch.compile(lambda x: func.jvp(lambda x: op(x, w), (x,), (x,))[1], fullgraph=True, backend="aot_eager")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        pushed(x)
    broken = torch.compile(lambda x: func.jvp(lambda x: op(x, w), (x,), (x,))[1], backend="aot_eager")
    torch.testing.assert_close(broken(x), func.jvp(lambda x: op(x, w), (x,), (x,))[1])
    loss = total(of_floats(op, [x, w]))
    with pytest.raises(RedalgError, match="inside a vmap"):
        torch.autograd.functional.hessian(loss, (x, w), vectorize=True, outer_jacobian_strategy="forward-mode")
    rounded = ra.torch.compile(ra.parse("return y = sum[j](cast(x[j], float16)*w[j])"))
    with pytest.raises(RedalgError, match="derivative"):
        func.jvp(rounded, (w, w), (w, w))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RedalgError, match="derivative"):
        rounded(torch.autograd.forward_ad.make_dual(w, w), w)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("return y = sum[j](sum[d](x[i,d]*x[j,d])*v[j])", lambda x, v: (x @ x.T) @ v),
        (
            "return y = sum[j](exp(-sum[d]((x[i,d] - x[j,d])**2))*v[j])",
            lambda x, v: torch.exp(-(x[:, None] - x).square().sum(-1)) @ v,
        ),
    ],
)
def test_second_derivatives_of_what_reads_a_tensor_twice(text: str, plain: Any) -> None:
    """A derivative reads the tensor along its second axes alone, and is differentiated once more: by JAX, too."""
    form = ra.derive_incremental(ra.parse(text))
    op = ra.torch.compile(form.spec)
    g = torch.Generator().manual_seed(1)
    x, v = (torch.rand(s, generator=g, dtype=torch.float64) for s in ((3, 2), (3,)))
    want = func.hessian(lambda x: plain(x, v).sin().sum())(x)
    for way in (func.hessian, lambda f: func.jacrev(func.grad(f))):
        torch.testing.assert_close(way(lambda x: op(x, v).sin().sum())(x), want, rtol=1e-10, atol=1e-12)
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        own = form.jax()
        for way in (jax.hessian, lambda f: jax.jacrev(jax.grad(f))):
            found = way(lambda x: jax.numpy.sin(own(x, v.numpy())).sum())(jax.numpy.asarray(x.numpy()))
            torch.testing.assert_close(torch.tensor(found.tolist(), dtype=torch.float64), want, rtol=1e-10, atol=1e-12)
