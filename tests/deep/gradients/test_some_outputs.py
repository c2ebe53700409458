"""Gradients by some of the outputs: what the others hold, infinite or not a number, is not in them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra

OWN = ["z[i]*sum[j](x[i,j]**2)", "tanh(x[i,j])*z[i]", "mean[j](where(b[i,j], x[i,j]*z[i], x[i,j]))", "z[i]**3"]
INFINITE = [
    "logsumexp[j](where(b[i,j], x[i,j], -oo))/(1 + mean[j](x[i,j])**2)",
    "max[j](where(b[i,j], x[i,j], -oo))*z[i]",
    "sum[j](where(b[i,j], x[i,j], 0))/sum[j](where(b[i,j], 1, 0))*z[i]",
    "log(sum[j](where(b[i,j], x[i,j]**2, 0)))*sum[j](x[i,j])",
]
ARRAYS = {
    "x": np.linspace(-1.3, 1.7, 12).reshape(3, 4),
    "z": np.array([0.5, -1.25, 2.0]),
    "b": np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool),
}
PAIRS = [(own, other) for own in OWN for other in INFINITE]


def specs(own: str, other: str) -> tuple[ra.Spec, ra.Spec]:
    """With both outputs, and with the one."""
    alone = f"tensors b[i,j] bool; return o = {own}" if "b[" in own else f"return o = {own}"
    return ra.parse(f"tensors b[i,j] bool; return p = {other}, o = {own}"), ra.parse(alone)


def read(spec: ra.Spec) -> dict[str, Any]:
    return {d.name: ARRAYS[d.name] for d in spec.tensors}


@pytest.mark.parametrize(("own", "other"), PAIRS)
@pytest.mark.parametrize("given", ["all", (), None])
def test_of_specs(own: str, other: str, given: Any) -> None:
    both, alone = specs(own, other)
    weights = np.random.default_rng(1).uniform(-1, 1, np.shape(ra.reference(alone, **read(alone))))
    found = both.vjp(given=given)(**read(both), cotangents={"o": weights}, target="numpy")
    wanted = alone.vjp()(**read(alone), cotangents={"o": weights}, target="numpy")
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted.get(name, np.zeros_like(value)), 1e-13, 1e-13, err_msg=name)


@pytest.mark.parametrize(("own", "other"), PAIRS[::5])
def test_of_operators_of_pytorch(own: str, other: str) -> None:
    torch = pytest.importorskip("torch")
    both, alone = specs(own, other)
    op, single = ra.torch.compile(both), ra.torch.compile(alone)
    fixed = {n: torch.tensor(a) for n, a in ARRAYS.items()}

    def of_both(x: Any, z: Any) -> Any:
        given = {**fixed, "x": x, "z": z}
        return op(**{n: given[n] for n in read(both)})[1].square().sum()

    def of_one(x: Any, z: Any) -> Any:
        given = {**fixed, "x": x, "z": z}
        return single(**{n: given[n] for n in read(alone)}).square().sum()

    def second(f: Any, x: Any, z: Any) -> Any:
        slopes = torch.autograd.grad(f(x, z), (x, z), create_graph=True, allow_unused=True)
        whole = sum(s.square().sum() for s in slopes if s is not None)
        return [*slopes, *torch.autograd.grad(whole, (x, z), allow_unused=True)]

    results = []
    for f in (of_both, of_one):
        x, z = (fixed[n].clone().requires_grad_() for n in "xz")
        plain = torch.autograd.grad(f(x, z), (x, z), allow_unused=True)
        many = [torch.stack([a, 2 * a]).detach() for a in (x, z)]
        each = torch.vmap(torch.func.grad(f, (0, 1)))(*many)
        jacobians = torch.func.jacrev(torch.func.grad(f, (0, 1)), (0, 1))(x.detach(), z.detach())
        results.append([*plain, *second(f, x, z), *each, *(a for row in jacobians for a in row)])
    for got, want in zip(*results, strict=True):
        got, want = (torch.zeros(()) if a is None else a.detach() for a in (got, want))
        np.testing.assert_allclose(got, want.broadcast_to(got.shape), 1e-12, 1e-12)


@pytest.mark.parametrize(("own", "other"), PAIRS[1::5])
def test_of_functions_of_jax(own: str, other: str) -> None:
    jax = pytest.importorskip("jax")
    both, alone = specs(own, other)
    op, single = ra.derive_incremental(both).jax(), ra.derive_incremental(alone).jax()
    with jax.enable_x64(True):

        def of_both(x: Any, z: Any) -> Any:
            given = {**ARRAYS, "x": x, "z": z}
            return (op(**{n: given[n] for n in read(both)})[1] ** 2).sum()

        def of_one(x: Any, z: Any) -> Any:
            given = {**ARRAYS, "x": x, "z": z}
            return (single(**{n: given[n] for n in read(alone)}) ** 2).sum()

        x, z = (jax.numpy.asarray(ARRAYS[n]) for n in "xz")
        many = [jax.numpy.stack([a, 2 * a]) for a in (x, z)]
        results = []
        for f in (of_both, of_one):
            slopes = jax.grad(f, (0, 1))
            second = [jax.hessian(f, (0, 1))(x, z), jax.jacrev(slopes, (0, 1))(x, z)]
            results.append(jax.tree.leaves([slopes(x, z), jax.jit(jax.vmap(slopes))(*many), second]))
        for got, want in zip(*results, strict=True):
            np.testing.assert_allclose(got, want, 1e-12, 1e-12)
