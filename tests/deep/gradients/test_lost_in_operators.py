"""Gradients where what a forward pass saves leaves the range of its dtype, by the operators of PyTorch and JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.unit.test_lost_values import (
    HIDING,
    POWERS,
    ROWS,
    SCALES,
    STAGES,
    WEIGHTS,
    assert_hidden,
    assert_powers,
    assert_weighed,
    gradients,
    of_hidden,
    weights_case,
)

MASKED = "tensors x[i,j], v[i,j], w[i], n[i] integer; u = where(index[j] < n[i], x[i,j], -oo);"
MASKED += "return y = sum[j](exp(u - max[j](u))*v[i,j])*w[i]*size[j]"


def cotangent(y: Any) -> np.ndarray:
    return np.arange(1.0, 1 + np.prod(y.shape), dtype="float32").reshape(y.shape)


def compare(found: Any, x: np.ndarray, name: str) -> None:
    for value, want in zip(found, gradients(STAGES[name], x, "float64", "numpy").values(), strict=True):
        size = np.abs(want).max(axis=-1, keepdims=want.ndim > 1)
        assert (np.abs(np.asarray(value) - want) <= 1e-5 * size + 1e-44).all(), (name, value, want)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("target", ["numpy", "cpu"])
def test_calls(name: str, scale: str, target: str) -> None:
    x = (ROWS * SCALES[scale]).astype(np.float32)
    compare(gradients(STAGES[name], x, "float32", target).values(), x.astype(np.float64), name)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", STAGES)
def test_in_pytorch(name: str, scale: str) -> None:
    torch = pytest.importorskip("torch")
    op = ra.derive_incremental(ra.parse(STAGES[name])).torch_op(f"lost::{name}")
    x = (ROWS * SCALES[scale]).astype(np.float32)
    given = [torch.tensor(x, requires_grad=True), torch.tensor([0.5, 2.0], requires_grad=True)]
    y = op(*given)
    compare(torch.autograd.grad(y, given, torch.tensor(cotangent(y))), x.astype(np.float64), name)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", STAGES)
def test_in_jax(name: str, scale: str) -> None:
    """Also of two samples side by side, of which one is in the range."""
    jax = pytest.importorskip("jax")
    op = ra.derive_incremental(ra.parse(STAGES[name])).jax()
    x, w = (ROWS * SCALES[scale]).astype(np.float32), np.array([0.5, 2.0], np.float32)

    def total(x: Any, w: Any) -> Any:
        y = op(x, w)
        return (y * cotangent(y)).sum()

    compare(jax.jit(jax.grad(total, (0, 1)))(x, w), x.astype(np.float64), name)
    several = jax.vmap(jax.grad(total, (0, 1)), (1, None))(np.stack([x, ROWS.astype(np.float32)], 1), w)
    compare([a[0] for a in several], x.astype(np.float64), name)
    compare([a[1] for a in several], ROWS, name)


def test_masked_rows_have_gradients_of_0() -> None:
    """The others' are as they are without them, by every operator; lengths of axes are known there, too."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    form = ra.derive_incremental(ra.parse(MASKED))
    x, n = np.array([[1.0, 2.0, 0.5], [2.0, 1.0, 3.0]], np.float32), np.array([0, 2], np.int32)
    w = np.array([1.0, 1.0], np.float32)
    p = np.exp(np.array([2.0, 1.0], np.float32) - 2)
    given = [torch.tensor(a, requires_grad=True) for a in (x, x, w)]
    by_torch = torch.autograd.grad(form.torch_op("lost::masked")(*given, torch.tensor(n)).sum(), given)
    by_jax = jax.grad(lambda x, v, w: form.jax()(x, v, w, n).sum(), (0, 1, 2))(x, x, w)
    for found in (by_torch, by_jax):
        of_v, of_w = np.asarray(found[1]), np.asarray(found[2])
        assert not np.asarray(found[0])[0].any()
        np.testing.assert_allclose(of_v, [[0, 0, 0], [3 * p[0], 3 * p[1], 0]], 1e-6)
        np.testing.assert_allclose(of_w, [0, 3 * (2 * p[0] + p[1])], 1e-6)


def test_outputs_without_elements_have_no_share() -> None:
    """In PyTorch and JAX."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    form = ra.derive_incremental(ra.parse("u = mean[i](x[i,j]); return y = w[j]*(x[i,j] - u), z = w[j]**2"))
    x, w = np.ones((0, 2), np.float32), np.ones(2, np.float32)
    given = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    y, z = form.torch_op("lost::nothing")(*given)
    assert torch.autograd.grad(y.sum() + z.sum(), given)[1].tolist() == [2, 2]
    for which in ([0], [0, 1]):
        found = jax.grad(lambda w, which=which: sum(form.jax()(x, w)[k].sum() for k in which))(w)
        assert found.tolist() == [2.0 * len(which) - 2] * 2


@pytest.mark.parametrize("scale", [1e25, 1e15, 1e-15, 1e-25])
@pytest.mark.parametrize("name", POWERS)
def test_powers_of_kernels(name: str, scale: float) -> None:
    assert_powers(name, scale, "cpu")


@pytest.mark.parametrize("name", HIDING)
def test_hidden_infinities_of_kernels(name: str) -> None:
    assert_hidden(name, "cpu")


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_kernels(name: str) -> None:
    spec, arrays, cotangents = weights_case(name)
    assert_weighed(spec, arrays, cotangents, spec.vjp()(**arrays, cotangents=cotangents, target="cpu"))


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_operators(name: str) -> None:
    """They add up to 1 where a row's exponential leaves float32, in PyTorch and JAX, too."""
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    spec, arrays, cotangents = weights_case(name)
    form = ra.derive_incremental(spec, axis="j")
    given = [torch.tensor(a, requires_grad=True) for a in arrays.values()]
    y = form.torch_op(f"lost::weights_{name}")(*given)
    by_torch = torch.autograd.grad(y, given, torch.tensor(cotangents["y"]))
    assert_weighed(spec, arrays, cotangents, dict(zip(arrays, map(np.asarray, by_torch), strict=True)))
    op, names = form.jax(), tuple(range(len(arrays)))
    by_jax = jax.grad(lambda *own: (op(*own) * cotangents["y"]).sum(), names)(*arrays.values())
    assert_weighed(spec, arrays, cotangents, dict(zip(arrays, map(np.asarray, by_jax), strict=True)))


@pytest.mark.parametrize("name", ["tanh", "exp"])
def test_hidden_infinities_of_operators(name: str) -> None:
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    form = ra.derive_incremental(ra.parse(HIDING[name]))
    x, want = np.array([[100, 1, 100], [-1, 0.5, -2]], np.float32), of_hidden(name, np.float64, 100.0, "numpy")["x"]
    given = torch.tensor(x, requires_grad=True)
    (by_torch,) = torch.autograd.grad(form.torch_op(f"lost::hidden_{name}")(given).sum(), [given])
    np.testing.assert_allclose(by_torch, want, 1e-5, 1e-30)
    np.testing.assert_allclose(jax.grad(lambda x: form.jax()(x).sum())(x), want, 1e-5, 1e-30)
