"""Weights of a product beside an extremum of the same scores, which they do not read: one loop over the registers makes
both, and leaves no element out. And elements beyond the end, whose scores are in no maximum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.kernels.pipeline import mma_tiles, wgmma_tiles
from redalg.kernels.schedule.target import A100, H200
from tests.support.sample import deep
from tests.support.tensor_cases import class_of, form_of, views_of
from tests.support.tensor_emulated import Emulated


def computed(text: str, length: int, way: str, scalars: dict[str, float]) -> tuple[dict[str, np.ndarray], Any]:
    """The first row by a kernel, and all rows by the definition."""
    made, sizes = class_of(text), {"i": 16, "j": length, "d": 16, "e": 16}
    sizes |= {a: sizes[b] for a, b in made.program.inner.items()} | made.program.lengths
    views = views_of(made.program, sizes)
    tiles, target, place = (mma_tiles, A100, (-1, 0, 0)) if way == "mma" else (wgmma_tiles, H200, (0, 0, 0))
    made, plan = tiles(made, sizes, views, target, deterministic=True)
    rng = np.random.default_rng(length)
    axes = {o.name: [sizes[a] for a in o.axes] for o in made.program.operands if o.axes}
    arrays = {name: (rng.integers(-8, 9, shape) / 8).astype(np.float32) for name, shape in axes.items()}
    quads = Emulated(made, replace(plan, staged=False) if way == "wgmma" else plan, arrays | scalars, blocks=2)
    found = quads.run([place])
    return {name: x[0] for name, x in found.items()}, ra.reference(form_of(text).spec, **arrays, **scalars)


TEXT = "u = sum[d](Q[i,d]*K[j,d]); return O = sum[j]({weight}*V[j,e]), t = {extremum}[j]({of})"
CASES = [
    ("relu(u)", "max", "u"),
    ("exp(u)", "max", "u"),
    *deep([("tanh(u)", "max", "u"), ("abs(u)", "min", "u"), ("u**2", "max", "abs(u)"), ("sigmoid(u)", "min", "2*u")]),
]


ENTROPY = (
    "tensors c, al; u = c*sum[d](Q[i,d]*K[j,d]) + al*index[j]; m = max[j](u); p = exp(u - m); l = sum[j](p); "
    "return H = m + log(l) - sum[j](where(u > -oo, p*u, 0))/l"
)


@pytest.mark.parametrize("way", ["mma", *deep(["wgmma"])])
@pytest.mark.parametrize("length", [2, *deep([65, 131])])
def test_exponentials_beyond_the_end_may_be_infinite(length: int, way: str) -> None:
    """With a slope of the position, what lies behind the last element is larger than the maximum: exp overflows there,
    and 0 times that is NaN."""
    found, true = computed(ENTROPY, length, way, {"c": 1.5, "al": 1.1})
    assert abs(found["H"] - true[0]) <= 2.0**-7 * (1 + abs(true[0]))


@pytest.mark.parametrize("way", ["mma", *deep(["wgmma"])])
@pytest.mark.parametrize("weight, extremum, of", CASES)
@pytest.mark.parametrize("length", [7, *deep([64, 131])])
def test_every_element_is_weighed(length: int, weight: str, extremum: str, of: str, way: str) -> None:
    """At the end of the stream and before it; rows of a warp's first quad."""
    text = TEXT.format(weight=weight, extremum=extremum, of=of)
    found, true = computed(text, length, way, {})
    for name in ("O", "t"):
        wanted = true[name][0]
        bound = 2.0**-8 * (np.abs(wanted) + 4 * length)  # weights are rounded to bfloat16, and at most about 4
        assert (np.abs(found[name] - wanted) <= bound).all(), name


STATISTICS = {
    "l": "m + log(sum[j](exp(u - m)))",
    "y": "sum[j](exp(u - m)*w[j])/sum[j](exp(u - m))",
    "H": "m + log(sum[j](exp(u - m))) - sum[j](exp(u - m)*u)/sum[j](exp(u - m))",
    "v": "sum[j](exp(u - m)*u**2)/sum[j](exp(u - m))",
}
BESIDE = [("sigmoid(u)", "l"), *deep([("tanh(u)", "y"), ("relu(u)", "H"), ("tanh(u)", "v"), ("sigmoid(u)", "lyHv")])]


@pytest.mark.parametrize("way", ["mma", *deep(["wgmma"])])
@pytest.mark.parametrize("weight, names", BESIDE)
@pytest.mark.parametrize("length", [7, *deep([64, 131])])
def test_statistics_about_a_maximum_beside_weights_without_one(weight: str, names: str, length: int, way: str) -> None:
    """Weights lie where scores were: all that is folded of these is, before."""
    others = ", ".join(f"{n} = {STATISTICS[n]}" for n in names)
    text = f"u = sum[d](Q[i,d]*K[j,d]); m = max[j](u); return O = sum[j]({weight}*V[j,e]), {others}"
    found, true = computed(text, length, way, {})
    for name in ("O", *names):
        wanted = true[name][0]
        assert (np.abs(found[name] - wanted) <= 2.0**-8 * (np.abs(wanted) + 4 * length)).all(), name


MASKED = [
    "O = sum[j](tanh(u)*V[j,e]), t = max[j](u)",
    *deep(["a = min[j](u), t = max[j](u)", "t = max[j](u), s = sum[j](tanh(u)), l = logsumexp[j](u)"]),
    *deep(["O = sum[j](tanh(u)*V[j,e]), l = logsumexp[j](u)"]),
]


@pytest.mark.parametrize("way", ["mma", *deep(["wgmma"])])
@pytest.mark.parametrize("results", MASKED)
@pytest.mark.parametrize("length", [131, *deep([40, 400])])
def test_masked_elements_that_count_are_in_no_block_that_is_skipped(length: int, results: str, way: str) -> None:
    """tanh(-oo) is -1, and -oo a minimum: blocks that a condition empties are not left out there."""
    text = f"u = where(index[j] <= index[i], sum[d](Q[i,d]*K[j,d]), -oo); return {results}"
    found, true = computed(text, length, way, {})
    for name, x in found.items():
        wanted = true[name][0]
        finite = np.isfinite(wanted)
        assert np.array_equal(x[~finite], wanted[~finite])
        assert (np.abs(x[finite] - wanted[finite]) <= 2.0**-8 * (np.abs(wanted[finite]) + length)).all(), name
