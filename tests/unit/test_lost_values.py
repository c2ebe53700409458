"""Gradients where what a forward pass saves leaves the range of its dtype: those of the definition, in float64. And
where there is nothing to save."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import redalg as ra
from tests.support.sample import deep, one_in

STAGES = {  # a stage value that leaves float32 at both scales, and a number of it that does not
    "norm": "s = sum[j](x[i,j]**2); return y = sqrt(s)*w[i]",
    "rms": "return y = x[i,j]/sqrt(mean[j](x[i,j]**2))*w[i]",
    "log": "s = sum[j](x[i,j]**4); return y = log(s)*w[i]",
    "product": "p = prod[j](x[i,j]**2); return y = log(p)*w[i]",
    "quotient": "s = sum[j](x[i,j]**2*w[i]); t = sum[j](x[i,j]**2); return y = s/t",
    "deviation": "u = mean[j](x[i,j]); return y = w[i]*sqrt(mean[j]((x[i,j] - u)**2))",
}
ROWS = np.array([[1.0, -2.0, 3.0], [2.0, 1.0, -1.0]])
SCALES = {"large": np.array([[1e25], [1.0]]), "small": np.array([[1e-25], [1.0]])}


def gradients(text: str, x: np.ndarray, dtype: str, target: str) -> dict[str, np.ndarray]:
    spec = ra.parse(text)
    arrays = {"x": x.astype(dtype), "w": np.array([0.5, 2.0], dtype)}
    shape = [x.shape["ij".index(a)] for a in spec.output_axes["y"]]
    return spec.vjp(given="all")(
        **arrays, cotangents={"y": np.arange(1.0, 1 + np.prod(shape), dtype=dtype).reshape(shape)}, target=target
    )


@pytest.mark.parametrize(("name", "scale"), [(n, s) for k, n in enumerate(STAGES) for s in (*SCALES,)[k % 2 :]])
def test_they_are_the_definitions(name: str, scale: str) -> None:
    x = (ROWS * SCALES[scale]).astype(np.float32).astype(np.float64)
    want = gradients(STAGES[name], x, "float64", "numpy")
    for n, value in gradients(STAGES[name], x, "float32", "numpy").items():
        size = np.abs(want[n]).max(axis=-1, keepdims=want[n].ndim > 1)
        assert (np.abs(value - want[n]) <= 1e-5 * size + 1e-44).all(), (n, value, want[n])


POWERS = {  # gradients with powers of saved values that are in the range of float32 where their powers are not
    "share": "return y = x[i,j]/sum[j](abs(x[i,j]))*w[i]",
    "skewness": "u = mean[j](x[i,j]); return y = w[i]*mean[j]((x[i,j] - u)**3)/std[j](x[i,j])**3",
    "logarithm": "return y = log(1 + sum[j](x[i,j]**2)**2)*w[i]",
    "arctangent": "return y = atan(sum[j](x[i,j]**2)/sum[j](abs(x[i,j])))*w[i]",
    "quotient": "return y = w[i]*sum[j](x[i,j])**3/sum[j](abs(x[i,j]))**3",
}


def assert_powers(name: str, scale: float, target: str) -> None:
    x = (ROWS * np.array([[scale], [1.0]])).astype(np.float32).astype(np.float64)
    want = gradients(POWERS[name], x, "float64", "numpy")
    for n, value in gradients(POWERS[name], x, "float32", target).items():
        size = np.abs(want[n]).max(axis=-1, keepdims=want[n].ndim > 1)
        assert (np.abs(value - want[n]) <= 1e-5 * size + 1e-37).all(), (n, value, want[n])


CHEAP, POWERS_OF_10 = sorted({*POWERS} - {"skewness"}), (1e15, 1e-25)


@pytest.mark.parametrize(
    ("name", "scale"), [*one_in(2, CHEAP, POWERS_OF_10), *deep(product(["skewness"], POWERS_OF_10))]
)
def test_powers_of_what_is_saved_are_those_of_the_definition(name: str, scale: float) -> None:
    assert_powers(name, scale, "numpy")


@pytest.mark.parametrize("given", ["all", ()])
def test_by_outputs_without_elements_they_are_0(given: str | tuple[()]) -> None:
    """Statistics over no row are NaN, and nothing that is computed of them has an element."""
    text = "tensors x[i,j], w[j]; u = mean[i](x[i,j]); return y = w[j]*(x[i,j] - u), z = w[j]**2"
    gradients, ones = ra.parse(text).vjp(given=given), np.ones(2)
    arrays = {"x": np.ones((0, 2)), "w": ones, "target": "numpy"}
    assert gradients(**arrays, cotangents={"y": np.ones((0, 2))})["w"].tolist() == [0, 0]
    assert gradients(**arrays, cotangents={"y": np.ones((0, 2)), "z": ones})["w"].tolist() == [2, 2]


def test_of_a_row_that_a_mask_empties_they_are_0() -> None:
    text = "tensors x[i,j], v[i,j], ok[i,j] bool; u = where(ok[i,j], x[i,j], -oo);"
    text += "return y = sum[j](exp(u - max[j](u))*v[i,j])"
    ok, x = np.array([[False, False], [True, True]]), np.array([[1.0, 2.0], [1.0, 2.0]])
    found = ra.parse(text).vjp(given="all")(x=x, v=x, ok=ok, cotangents={"y": np.ones(2)}, target="numpy")
    assert found["x"][0].tolist() == found["v"][0].tolist() == [0, 0]
    assert found["v"][1].tolist() == [np.exp(-1.0), 1]


def test_rows_that_are_filled_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass nothing on as they are: other rows have the bits that they have alone."""
    monkeypatch.setattr("redalg.gradients.calls.Vjp.without_saved", property(lambda self: pytest.fail("derived")))
    text = "tensors x[i,j], ok[i,j] bool; u = where(ok[i,j], x[i,j], -oo); m = max[j](u); p = exp(u - m);"
    spec = ra.parse(text + "empty y = 0; return y = sum[j](p*x[i,j])/sum[j](p)")
    ok, x = np.array([[False, False], [True, True]]), np.array([[1.0, 2.0], [1.0, 2.0]])
    found = spec.vjp(given="all")(x=x, ok=ok, cotangents={"y": np.ones(2)}, target="numpy")["x"]
    assert np.isfinite(found).all() and not found[0].any()


HIDING = {  # an output whose slope is 0 where what it hides is infinite: 1 - y², y - y², y
    "tanh": "return y = tanh(sum[j](exp(x[i,j])))",
    "sigmoid": "return y = sigmoid(sum[j](exp(x[i,j])*w[i]))",
    "exp": "return y = exp(-sum[j](x[i,j]**2*exp(x[i,j])))",
    "cosh": "return y = tanh(mean[j](cosh(x[i,j])))",
    "power": "return y = exp(-sum[j](abs(x[i,j])**25))",
    "both": "u = tanh(sum[j](exp(x[i,j]))); return y = u, z = w[i]*sum[j](x[i,j])",
}


def of_hidden(name: str, dtype: type, top: float, target: str) -> dict[str, np.ndarray]:
    spec = ra.parse(HIDING[name])
    given = {"x": np.array([[top, 1.0, top], [-1.0, 0.5, -2.0]], dtype), "w": np.array([1.0, 1.0], dtype)}
    given = {d.name: given[d.name] for d in spec.tensors}
    return spec.vjp()(**given, cotangents=dict.fromkeys(spec.outputs, np.ones(2, dtype)), target=target)


@pytest.mark.parametrize("name", HIDING)
def test_a_slope_of_0_beside_what_overflows_is_0(name: str) -> None:
    assert_hidden(name, "numpy")


def assert_hidden(name: str, target: str) -> None:
    """In float32 the exponentials are infinite and not in float64; the first row's gradient underflows in both."""
    want = of_hidden(name, np.float64, 100.0, "numpy")
    for n, value in of_hidden(name, np.float32, 100.0, target).items():
        np.testing.assert_allclose(value, want[n], 1e-5, 1e-30)


def test_so_it_is_beyond_float64() -> None:
    assert not of_hidden("tanh", np.float64, 1000.0, "numpy")["x"][0].any()


WEIGHTS = {  # softmax of what is rounded, with gradients of what its elements are made of
    "quotients": "return y = softmax[j](x[i,j]/c[i])",
    "products": "return y = softmax[j](x[i,j]*c[i])",
    "squares": "return y = softmax[j](x[i,j]*x[i,j]/100000*c[i])",
    "contractions": "u = sum[d](x[i,j]*v[j,d])/c[i]; m = max[j](u); return y = exp(u - m)/sum[j](exp(u - m))",
}


def weights_case(name: str) -> tuple[ra.Spec, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Rows near 10^5 and their cotangents, in float32."""
    spec, rng = ra.parse(WEIGHTS[name]), np.random.default_rng(len(name))
    v = np.ones((6, 1))
    given = {"x": 1e5 + rng.uniform(0, 2, (3, 6)), "c": np.array([0.387, 1.3, 0.71]), "v": v}
    arrays = {d.name: given[d.name].astype(np.float32) for d in spec.tensors}
    shapes = {n: [3, 6][: len(axes)] for n, axes in spec.output_axes.items()}
    return spec, arrays, {n: rng.standard_normal(shape).astype(np.float32) for n, shape in shapes.items()}


@pytest.mark.parametrize("name", ["products", *deep(sorted({*WEIGHTS} - {"products"}))])
def test_weights_add_up_to_1_where_a_call_is_repeated_in_wider_floats(name: str) -> None:
    """The exponential of a row leaves float32, and what is saved of it was rounded there."""
    spec, arrays, cotangents = weights_case(name)
    assert_weighed(spec, arrays, cotangents, spec.vjp()(**arrays, cotangents=cotangents, target="numpy"))


def assert_weighed(
    spec: ra.Spec, arrays: dict[str, np.ndarray], cotangents: dict[str, np.ndarray], found: dict[str, np.ndarray]
) -> None:
    """Beside gradients in float64: off by the rounding of elements and exponents near 10^5."""
    wide = {n: a.astype(float) for n, a in arrays.items()}
    want = spec.vjp()(**wide, cotangents={n: a.astype(float) for n, a in cotangents.items()}, target="numpy")
    for n in want:
        size = 20 * np.abs(want["x"]).max() if n == "c" else np.abs(want[n]).max()
        assert (np.abs(np.asarray(found[n]) - want[n]) <= 0.05 * size).all(), (n, found[n], want[n])
