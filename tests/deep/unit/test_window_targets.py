"""Windows on every target, in arrays of every library, and their gradients, against loops over the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.graph import node as g
from redalg.graph.node import Decl
from redalg.numeric.binding import bind, with_readings
from tests.support import simulated
from tests.unit.test_windows import looped

CONVOLUTION = "return y = sum[r,s,c](x[b,h+r-1,2*w+s,c]*k[r,s,c,o])"
SPECS = {
    CONVOLUTION: {"x": (2, 5, 6, 3), "k": (3, 2, 3, 4)},
    "return y = mean[r](x[i+r:3])": {"x": (9,)},
    "tensors x[i,j+r:4-3]; m = max[r](x[i,j+r-3]); return y = m + log(sum[r](exp(x[i,j+r-3] - m))), m": {"x": (2, 5)},
    "u = mean[r](x[i+r:5]); return v = mean[r]((x[i+r:5] - u)**2)": {"x": (12,)},
    "return y = sum[r](w[r]*x[i + 2*r])": {"x": (9,), "w": (3,)},
    "return y = sum[d](q[d]*(x[i+r:2,d] - max[r](x[i+r:2,d])))": {"x": (5, 3), "q": (3,)},
    "return y = sum[j](x[j]*x[i+r:2])": {"x": (4,)},
    "return y = sum[i,r](x[i+r:3]*x[i+r:3])": {"x": (7,)},
}


def drawn(shapes: dict[str, tuple[int, ...]], dtype: str = "float64") -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {n: random.normal(size=shape).astype(dtype) for n, shape in shapes.items()}


def of_windows(text: str, arrays: dict[str, np.ndarray]) -> Any:
    """The definition over arrays of windows, which loops made."""
    spec = ra.parse(text)
    sizes = bind(spec, arrays).sizes
    given = {}
    for d in spec.tensors:
        x = arrays[d.array or d.name]
        given[d.name] = looped(x, d.dimensions, sizes) if d.dimensions else x
    plain = {d: Decl(d.name, d.axes) for d in spec.tensors}
    nodes = {
        name: g.substitute(node, {g.Node("tensor", (), d): g.Node("tensor", (), p) for d, p in plain.items()})
        for name, node in spec.outputs.items()
    }
    found = ra.reference(ra.Spec.from_nodes(nodes, tensors=list(plain.values())), **given)
    return found if isinstance(found, dict) else {next(iter(spec.outputs)): found}


def same(found: Any, expected: dict[str, Any], rtol: float) -> None:
    named = found if isinstance(found, dict) else {next(iter(expected)): found}
    assert named.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(np.asarray(named[name], np.float64), value, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("text", SPECS)
def test_every_target_reads_windows(text: str) -> None:
    arrays = drawn(SPECS[text])
    expected = of_windows(text, arrays)
    form = ra.derive_incremental(ra.parse(text))
    assert ra.parse(str(form.spec)) == form.spec
    same(ra.reference(form.spec, **arrays), expected, 1e-13)
    for target in ("numpy", "cpu"):
        run = form.compile(target)
        same(run(**arrays), expected, 1e-12)
        same(run(**{n: x.tolist() for n, x in arrays.items()}), expected, 1e-12)
        same(run(**{n: x.astype(np.float32) for n, x in arrays.items()}), expected, 1e-4)
    views = dict(with_readings(form.spec.tensors, {n: x.astype(np.float32) for n, x in arrays.items()}))
    same(simulated.run(form, views)[0], expected, 1e-4)


def test_results_may_lie_where_the_tensor_does() -> None:
    form = ra.derive_incremental(ra.parse("return y = mean[r](x[i+r:3-1])"))
    for target in ("numpy", "cpu"):
        x = np.arange(8.0)
        expected = form.compile("numpy")(x=x.copy())
        form.compile(target)(x=x, out=x)
        np.testing.assert_array_equal(x, expected)


def test_one_tensor_in_windows_and_along_an_axis() -> None:
    """A local mean taken from each element, with zeros around the signal."""
    spec = ra.parse("return y = x[i] - mean[r](x[i+r:3-1])")
    x = np.array([1.0, 2.0, 4.0, 8.0])
    expected = x - np.convolve(x, np.ones(3) / 3, "same")
    for target in ("numpy", "cpu"):
        np.testing.assert_allclose(ra.derive_incremental(spec).compile(target)(x=x), expected, rtol=1e-14)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_other_libraries(library: str) -> None:
    module = pytest.importorskip(library)
    form = ra.derive_incremental(ra.parse(CONVOLUTION))
    arrays = drawn(SPECS[CONVOLUTION], "float32")
    make = module.tensor if library == "torch" else module.numpy.asarray
    given = {n: make(x) for n, x in arrays.items()}
    for target in ("numpy", "cpu"):
        found = form.compile(target)(**given)
        assert type(found).__module__.startswith(("torch", "jax"))
        same(np.asarray(found), of_windows(CONVOLUTION, arrays), 1e-5)


def test_gradients_of_what_is_read_in_windows() -> None:
    spec = ra.parse("return y = sum[r](w[r]*x[i+r])")
    x, w, grad = np.arange(5.0), np.array([1.0, -2.0, 0.5]), np.array([1.0, 0.0, 2.0])
    found = spec.vjp("w")(x=x, w=w, cotangents={"y": grad})["w"]
    np.testing.assert_allclose(found, [sum(grad[i] * x[i + r] for i in range(3)) for r in range(3)], rtol=1e-15)
    found = spec.vjp()(x=x, w=w, cotangents={"y": grad})["x"]
    np.testing.assert_allclose(found, [1.0, -2.0, 2.5, -4.0, 1.0], rtol=1e-15)
    with pytest.raises(ra.RedalgError, match="read as x"):
        ra.parse("return y = x[i] - mean[r](x[i+r:3-1])").vjp()


def test_gradients_are_the_adjoint_of_tangents() -> None:
    """Of a convolution with a map of each element, strides and zeros around it; finite differences beside both."""
    spec = ra.parse("return y = sum[r,s,c](exp(x[b,2*h+r-1,w+s:2,c])*k[r,s,c,o])")
    arrays = drawn({"x": (2, 6, 3, 2), "k": (3, 2, 2, 2)})
    random, eps = np.random.default_rng(3), np.finfo(float).eps
    tangent = random.normal(size=arrays["x"].shape)
    moved = spec.jvp("x")(**arrays, tangents={"x": tangent})["y"]
    grad = random.normal(size=moved.shape)
    found = spec.vjp()(**arrays, cotangents={"y": grad})
    assert found["x"].shape == arrays["x"].shape
    scale = float(np.sum(np.abs(moved) * np.abs(grad)))
    assert abs(np.sum(moved * grad) - np.sum(tangent * found["x"])) <= 1e3 * eps * scale
    ahead, behind = (ra.reference(spec, **(arrays | {"x": arrays["x"] + s * 1e-5 * tangent})) for s in (1, -1))
    np.testing.assert_allclose((ahead - behind) / 2e-5, moved, rtol=1e-6, atol=1e-6)


def test_operators_of_pytorch_differentiate_through_windows() -> None:
    torch = pytest.importorskip("torch")
    form = ra.derive_incremental(ra.parse("return y = sum[r](w[r]*exp(x[b,2*i+r-1]))"))
    op = form.torch_op("redalg_tests::windows")
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, dtype=torch.float64, requires_grad=True)
    expected = torch.nn.functional.conv1d(torch.nn.functional.pad(x, (1, 1)).exp()[:, None], w[None, None], stride=2)
    np.testing.assert_allclose(op(x=x, w=w).detach(), expected[:, 0].detach(), rtol=1e-14)
    assert torch.autograd.gradcheck(lambda x, w: op(x=x, w=w), (x, w))


def test_functions_of_jax_differentiate_through_windows() -> None:
    jax = pytest.importorskip("jax")
    op = ra.derive_incremental(ra.parse("return y = sum[r](w[r]*x[2*i+r-1])")).jax()
    x, w = jax.numpy.arange(6.0), jax.numpy.array([1.0, -2.0, 0.5])
    gradient = jax.jit(jax.grad(lambda x: op(x=x, w=w).sum()))(x)
    np.testing.assert_allclose(gradient, [-2.0, 1.5, -2.0, 1.5, -2.0, 0.5], rtol=1e-6)
