"""Gradients against derivatives along directions, in complex and in dual numbers: the catalog and generated specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing.generator import generate
from tests.deep.gradients.test_against_jax import DISCRETE, NAMES, ROUNDED
from tests.support.infinitesimal import ComplexStep, Duals, along
from tests.support.jax_spec import drawn

GENERATED = 24


def compare(spec: Any, seed: int) -> None:
    """Σ cotangent·(slope of the outputs along a direction) is Σ gradient·direction."""
    rng = np.random.default_rng(seed)
    arrays = drawn(spec, rng)
    gradients = spec.vjp()
    directions = {n: rng.uniform(-1, 1, np.shape(arrays[n])) for n in gradients.wrt}
    for arithmetic in (ComplexStep(), Duals()):
        slopes = along(arithmetic, spec, arrays, directions)
        cotangents = {n: rng.uniform(-1, 1, slopes[n].shape) for n in gradients.cotangents}
        found = gradients(**arrays, cotangents=cotangents, target="numpy")
        terms = [c * slopes[n] for n, c in cotangents.items()]
        parts = [np.asarray(found[n]) * directions[n] for n in directions]
        scale = sum(float(np.abs(t).sum()) for t in (*terms, *parts))
        left, right = (sum(float(t.sum()) for t in group) for group in (terms, parts))
        if not np.isfinite(right):  # a slope of a root at 0: sqrt(x - min x)
            assert "sqrt" in str(spec)
            continue
        assert np.isfinite(left), spec
        assert abs(left - right) <= 1e-9 * max(1.0, scale), (spec, type(arithmetic), left, right)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ROUNDED | DISCRETE])
def test_the_catalog(name: str) -> None:
    compare(ra.catalog[name], 7 + len(name))


@pytest.mark.parametrize("block", range(0, GENERATED, 6))
def test_generated_specs(block: int) -> None:
    for seed in range(block, block + 6):
        compare(generate(5000 + seed).spec, seed)


def test_derivatives_of_generated_specs_are_proved() -> None:
    for seed in range(GENERATED):
        spec = generate(6000 + seed).spec
        assert spec.vjp().certificate.verify().proved, spec
        assert spec.jvp().certificate.verify().proved, spec
