"""Gradients along axes without an element: nothing flows through a reduction over one, whatever its value is.

Differentiated element by element the definition adds up nothing there; what flows beside it stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redalg as ra

Arrays = dict[str, np.ndarray]


def nothing(given: Arrays) -> np.ndarray:
    """What nothing passes on."""
    return np.zeros(given["s"].shape)


# spec -> the gradient of Σ c·y by s, of axes i and j of which j is empty
SPECS: dict[str, tuple[str, Callable[[Arrays], Any]]] = {
    "logsumexp": ("return y = logsumexp[j](z[i,j]*s)", nothing),
    "mean": ("return y = mean[j](z[i,j]*s)", nothing),
    "variance": ("return y = var[j](z[i,j]*s)", nothing),
    "norm": ("return y = sqrt(sum[j]((z[i,j]*s)**2))", nothing),
    "maximum": ("return y = max[j](z[i,j]*s)", nothing),
    "product": ("return y = prod[j](z[i,j]*s)", nothing),
    "inverse": ("return y = 1/sum[j](z[i,j]*s)", nothing),
    "softmax mean": ("p = exp(z[i,j]*s - max[j](z[i,j]*s)); return y = sum[j](p*z[i,j])/sum[j](p)", nothing),
    "both axes": ("return y = log(sum[i,j](z[i,j]*s))", nothing),
    "beside": ("return y = 1/sum[j](z[i,j]*s) + s**2", lambda given: 2 * given["s"] * given["c"].sum()),
    "rows": (
        "tensors z[i,j], s[i]; return y = logsumexp[j](z[i,j]*s[i]) + s[i]**3",
        lambda g: 3 * g["s"] ** 2 * g["c"],
    ),
    "outside": ("tensors z[i,j], s; return y = s*sum[j](z[i,j])", lambda given: 0 * given["s"]),
    "of a value": ("m = sum[j](z[i,j]*s); return y = (m + s)**2", lambda g: (2 * g["s"] * g["c"]).sum()),
    "columns": ("tensors z[i,j], s; return y = sum[i](z[i,j]*s)", nothing),
    "two outputs": ("return y = log(sum[j](z[i,j]*s)), t = max[j](z[i,j])", nothing),
}


def given_to(text: str, rows: int) -> tuple[ra.Spec, Arrays]:
    spec = ra.parse(text)
    rng = np.random.default_rng(rows)
    s = rng.uniform(1, 2, rows if "s[i]" in text else ())
    return spec, {"z": np.ones((rows, 0)), "s": np.asarray(s)}


def shape_of(spec: ra.Spec, rows: int) -> tuple[int, ...]:
    return tuple({"i": rows, "j": 0}[a] for a in spec.output_axes["y"])


@pytest.mark.parametrize("name", SPECS)
def test_nothing_flows_through_what_has_no_element(name: str) -> None:
    text, wanted = SPECS[name]
    for kept in (None, "all", ()):
        gradients = ra.parse(text).vjp(given=kept)
        for rows in (0, 1, 3):
            spec, given = given_to(text, rows)
            c = np.random.default_rng(1).uniform(1, 2, shape_of(spec, rows))
            with np.errstate(all="ignore"):
                found = gradients(**given, cotangents={"y": c})
            assert found["z"].shape == (rows, 0)
            np.testing.assert_allclose(found["s"], wanted({**given, "c": c}), 1e-12, err_msg=str(kept), strict=True)


@pytest.mark.parametrize("name", SPECS)
def test_nothing_flows_in_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    import redalg.torch

    text, wanted = SPECS[name]
    operator = redalg.torch.compile(ra.parse(text))
    for rows in (0, 1, 3):
        spec, given = given_to(text, rows)
        tensors = {k: torch.tensor(a, requires_grad=True) for k, a in given.items()}
        c = np.random.default_rng(1).uniform(1, 2, shape_of(spec, rows))
        found = operator(**tensors)
        y = found["y"] if isinstance(found, dict) else found[0] if isinstance(found, tuple | list) else found
        (y * torch.tensor(c)).sum().backward()
        assert tensors["z"].grad.shape == (rows, 0)
        np.testing.assert_allclose(tensors["s"].grad.numpy(), wanted({**given, "c": c}), 1e-12, strict=True)
