"""The float64 definition against 50 digits, within the error analysis of the definition as written."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import sampling
from redalg.testing.generator import generate
from redalg.testing.limits import definition_limits

pytestmark = pytest.mark.filterwarnings("ignore")
SCALES = (1.0, 1e-160, 1e-30, 1e40, 1e160)
BLOCK, SEEDS = 8, 48


def scaled(spec: Any, arrays: dict[str, Any], scale: float) -> dict[str, Any]:
    domains = {d.name: d.domain for d in spec.tensors}
    return {
        n: a if domains[n] & {"bool", "integer"} or np.asarray(a).dtype.kind != "f" else np.asarray(a) * scale
        for n, a in arrays.items()
    }


def held(spec: Any, arrays: dict[str, Any]) -> int:
    """How many results were held to a finite bound."""
    limits = definition_limits(spec, arrays, "float64")
    found = ra.reference(spec, **arrays)
    named = found if isinstance(found, dict) else {next(iter(spec.outputs)): found}
    count = 0
    for name, value in named.items():
        got, exact, bound = np.asarray(value, dtype=float), limits.exact[name], limits.bounds[name]
        judged = np.isfinite(bound) & np.isfinite(exact)
        with np.errstate(all="ignore"):
            limit = bound + 2.0**-53 * np.abs(exact) + (bound > 0) * 2.0**-1074
            assert (np.abs(got - exact) <= limit)[judged].all(), (name, got, exact, bound, arrays)
        count += int(judged.sum())
    return count


@pytest.mark.parametrize("name", sorted(ra.catalog))
def test_the_catalog(name: str) -> None:
    """At ordinary scale, and at one that is huge or tiny."""
    entry = ra.catalog.entry(name)
    if any("complex" in d.domain for d in entry.spec.tensors):
        return
    rng = Random(name)
    arrays = {k: np.asarray(v) for k, v in entry.sample(1, **dict.fromkeys(entry.spec.axes, 3)).items()}
    if entry.spec.axes:
        held(entry.spec, arrays)
        held(entry.spec, scaled(entry.spec, arrays, rng.choice(SCALES[1:])))


@pytest.mark.parametrize("block", range(0, SEEDS, BLOCK))
def test_generated_specs(block: int) -> None:
    count = 0
    for seed in range(block, block + BLOCK):
        rng = Random(seed)
        spec = generate(2000 + seed).spec
        arrays = sampling.arguments(spec, rng, j=4)
        for scale in (1.0, rng.choice(SCALES[1:])):
            count += held(spec, scaled(spec, arrays, scale))
    assert count


@pytest.mark.parametrize("scale", SCALES)
def test_a_norm_made_safe_is_held_at_every_scale(scale: float) -> None:
    spec = ra.catalog["two_norm_safe"]
    axes = spec.tensors[0].axes
    x = scale * np.random.default_rng(0).uniform(0.5, 2, [3] * len(axes))
    assert held(spec, {spec.tensors[0].name: x})
