"""Gradients of the catalog and of generated specs, in both modes and to second order, against JAX's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from redalg.testing.generator import generate
from redalg.testing.running import named
from tests.support import jax_spec
from tests.support.jax_spec import close, drawn

jax = pytest.importorskip("jax")
ROUNDED = {"fp8_quantise", "absmax_int8_gemm", "fp8_per_token_gemm", "zero_point_int8_gemm", "ternary_quantise"}
DISCRETE = {"argmax", "argmax_magnitude", "three_sigma_outlier"}
NAMES = sorted(n for n in ra.catalog if not any("complex" in d.domain for d in ra.catalog[n].tensors))
GENERATED = 30
Arrays = dict[str, Any]


def compare(spec: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        arrays = drawn(spec, rng)
        gradients, tangents = spec.vjp(), spec.jvp()
        smooth = {n: arrays[n] for n in gradients.wrt}

        def results(held: Mapping[str, Any]) -> Any:
            found = jax_spec.outputs(spec, {**arrays, **held})
            return {n: found[n] for n in gradients.cotangents}

        values, pull = jax.vjp(results, smooth)
        cotangents = {n: rng.uniform(-1, 1, np.shape(v)) for n, v in values.items()}
        (want,) = pull({n: jax.numpy.asarray(c) for n, c in cotangents.items()})
        for form in (gradients, spec.vjp(given=())) if seed % 2 else (gradients,):
            got = form(**arrays, cotangents=cotangents, target="numpy")
            assert list(got) == list(smooth)
            for n, value in got.items():
                close(value, want[n], (n, form.specs.get(n)))
        along = {n: rng.uniform(-1, 1, np.shape(v)) for n, v in smooth.items()}
        _, moved = jax.jvp(results, (smooth,), (along,))
        for n, value in tangents(**arrays, tangents=along, target="numpy").items():
            close(value, moved[n], (n, tangents.spec))


@pytest.mark.parametrize("name", NAMES)
def test_the_catalog(name: str) -> None:
    spec = ra.catalog[name]
    if name in ROUNDED:
        with pytest.raises(RedalgError, match="straight_through"):
            spec.vjp()
        spec.vjp(assume={"straight_through"})
    elif name in DISCRETE:
        assert not spec.vjp().cotangents
    else:
        compare(spec, len(name))


@pytest.mark.parametrize("block", range(0, GENERATED, 5))
def test_generated_specs(block: int) -> None:
    for seed in range(block, block + 5):
        compare(generate(3000 + seed).spec, seed)


SECOND = [
    "m = max[j](x[i,j]); return y = m + log(sum[j](exp(x[i,j] - m))) - sum[j](x[i,j]*t[i,j])",
    "return y = x[i,j]/sqrt(mean[j](x[i,j]**2) + 1/1000)",
    "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**3)/(1 + mean[j]((x[j] - u)**2))",
    "return y = prod[j](x[i,j])",
]


@pytest.mark.parametrize("text", SECOND)
def test_second_order(text: str) -> None:
    """The gradient of (cotangent · direction · gradient): a Hessian-vector product."""
    spec, rng = ra.parse(text), np.random.default_rng(4)
    with jax.enable_x64(True):
        arrays = drawn(spec, rng)
        first = spec.vjp(wrt="x", given=()).specs["x"]
        second = first.vjp(wrt="x")
        cotangent = rng.uniform(-1, 1, np.shape(named_output(spec, arrays)))
        direction = rng.uniform(-1, 1, arrays["x"].shape)

        def scalar(x: Any) -> Any:
            return (jax_spec.outputs(spec, {**arrays, "x": x})["y"] * cotangent).sum()

        want = jax.jvp(jax.grad(scalar), (arrays["x"],), (direction,))[1]
        held = {n: a for n, a in {**arrays, "grad_y": cotangent}.items() if n in {d.name for d in first.tensors}}
        got = second(**held, cotangents={"grad_x": direction}, target="numpy")["x"]
        close(got, want, second.specs)


def named_output(spec: Any, arrays: Arrays) -> Any:
    return named(ra.derive_incremental(spec, axis="j"), ra.reference(spec, **arrays))["y"]
