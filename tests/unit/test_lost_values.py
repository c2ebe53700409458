"""Gradients where what a forward pass saves leaves the range of its dtype: those of the definition, in float64. And
where there is nothing to save."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra

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
