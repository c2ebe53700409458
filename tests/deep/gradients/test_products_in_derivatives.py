"""Derivatives of products of any order: the products of the factors left, however many of all are 0."""

from __future__ import annotations

from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.joint import derived


def left_out(x: Any, tangents: list[Any]) -> Any:
    """∂/∂x of Σ over distinct places of the tangents there and the other factors: the definition, term by term."""
    n, found = len(x), np.zeros(len(x))
    for places in permutations(range(n), 1 + len(tangents)):
        moved = prod(t[k] for t, k in zip(tangents, places[1:], strict=True))
        found[places[0]] += moved * prod(x[k] for k in range(n) if k not in places)
    return found


def after(spec: Any, mode: str, name: str) -> tuple[Any, str]:
    """The derivative of a gradient, and what is called the tangent, or cotangent, in it."""
    if mode == "reverse":
        found = spec.vjp(wrt="x", given=())
        return found.specs.get("x"), found.cotangents[name]
    found = spec.jvp(wrt="x")
    return found.spec, found.tangents["x"]


@pytest.mark.parametrize("modes", [(), ("reverse",), ("forward",), ("reverse", "forward"), ("forward", "reverse")])
@pytest.mark.parametrize("body", ["x[j]", "x[j]*w[j]", "(x[j] + w[j])"])
def test_derivatives_are_products_of_the_factors_left(modes: tuple[str, ...], body: str) -> None:
    spec = ra.parse(f"return o = prod[j]({body})").vjp(wrt="x", given=()).specs["x"]
    name, seeds = "grad_x", []
    for mode in modes:
        spec, seed = after(spec, mode, name)
        seeds.append(seed)
        (name,) = spec.outputs
    runs = [form.compile("numpy") for form in (ra.derive_incremental(spec, axis="j"), derived(spec))]
    rng = np.random.default_rng(len(modes))
    for zeros in range(5):
        for n in (zeros, zeros + 2):
            x = rng.permuted(np.r_[np.zeros(zeros), rng.integers(-8, 9, n - zeros) / 4])
            w = rng.choice([-2.0, 0.5, 4], n) if "w" in body else np.ones(n)
            tangents = [rng.integers(-8, 9, n) / 8 for _ in modes]
            known = dict(zip(seeds, tangents, strict=True)) | {"x": x, "grad_o": 1.0}
            if "w" in body:
                known["w"] = w
            if "+" in body:
                known["x"], wanted = x - w, left_out(x, tangents)
            else:
                wanted = w * left_out(x * w, [t * w for t in tangents])
            with np.errstate(all="ignore"):
                found = [ra.reference(spec, **known), *(run(**known) for run in runs)]
            for got in found:
                np.testing.assert_allclose(got, wanted, 1e-9, 1e-9, err_msg=f"{x} {tangents}")


@pytest.mark.parametrize("modes", [*product(("reverse", "forward"), repeat=3)])
def test_fourth_derivatives_are_refused(modes: tuple[str, ...]) -> None:
    """In four parts, before there is a number: of four factors that are 0 the product of none is 1."""
    spec = ra.parse("return o = prod[j](x[j]*w[j])*u").vjp(wrt="x", given=()).specs["x"]
    with pytest.raises(RedalgError, match="fourth derivative of a product") as caught:
        for mode in modes:
            spec, _ = after(spec, mode, *spec.outputs)
            spec = ra.parse(str(spec))
    assert caught.value.what and caught.value.where and caught.value.why and caught.value.fix
    assert mode is modes[2]


def test_a_third_derivative_is_differentiated_by_what_it_is_linear_in() -> None:
    spec, x, rng = ra.parse("return o = prod[j](x[j])"), np.array([0, 2, 0, 0.0]), np.random.default_rng(0)
    spec, seeds = spec.vjp(given=()).specs["x"], []
    for mode in ("reverse", "reverse"):
        spec, seed = after(spec, mode, *spec.outputs)
        seeds.append(seed)
    tangents = {seed: rng.uniform(-1, 1, 4) for seed in seeds}
    slopes = spec.vjp(wrt="grad_o")(x=x, grad_o=1.0, **tangents, cotangents={"grad_x": np.ones(4)}, target="numpy")
    np.testing.assert_allclose(slopes["grad_o"], left_out(x, list(tangents.values())).sum())
