"""Finite elements whose stage values vanish: weights adding up to 0, masks that select nothing, elements all alike."""

from __future__ import annotations

import re
from itertools import product
from random import Random

import numpy as np
import pytest

import redalg as ra
from redalg.form import Form
from tests.deep.engine.test_infinities import agree, run

STAGES = {
    "weighted mean": "s = sum[j](w[j]*x[j]) / sum[j](w[j])",
    "masked mean": "s = sum[j](where(t[j], x[j], 0)) / sum[j](where(t[j], 1, 0))",
    "masked weights": "s = sum[j](p[j]*log(p[j])) / sum[j](where(t[j], p[j], 0))",
    "integers": "s = sum[j](p[j]) / sum[j](where(k[j] > 1, k[j], 0))",
    "spread": "m = mean[j](x[j]); s = 1 / mean[j]((x[j] - m)**2)",
    "sum": "s = sum[j](x[j])",
    "least": "s = min[j](x[j])",
}
BODIES = (
    "logsumexp[j](y[j] - s)",
    "sum[j](y[j]*exp(y[j] - s)) / sum[j](exp(y[j] - s))",
    "max[j](abs(k[j]*s))*s",
    "sum[j]((y[j]/s - 1)**2)",
    "sum[j](w[j]*(x[j] - s)**2) / sum[j](w[j])",
    "min[j](y[j]*s) + s",
    "prod[j](y[j]/s)",
    "argmax[j](y[j]*s)",
    "sum[j](where(y[j] > s, y[j], 0))",
    "any[j](y[j]/s > 1)",
    "topk[j:2](y[j] - s).values",
)
DOMAINS = {"p": " positive", "t": " bool", "k": " integer"}


def drawn(names: str, length: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Small multiples of 1/4, so that a sum of 0 is one in every order."""
    arrays: dict[str, np.ndarray] = {}
    for name in names:
        balanced = np.where(np.arange(length) % 2, -1.0, 1.0) * (1 + np.arange(length) // 2) * rng.choice([1.0, -1.0])
        kinds = (
            balanced,
            np.zeros(length),
            np.full(length, -0.5),
            rng.integers(-8, 9, length) / 4,
            np.abs(balanced) - 1,
        )
        found = kinds[rng.integers(len(kinds))]
        if name == "p":
            found = np.abs(found) + 0.25
        arrays[name] = found > rng.choice([-9, 0, 9]) if name == "t" else found
        if name == "k":
            arrays[name] = np.rint(found).astype(np.int64)
    return arrays


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_value_that_vanishes(stage: str) -> None:
    """The definition's value, or NaN (no position) and the assumption that says so; never another number."""
    rng, derived = np.random.default_rng(len(stage)), 0
    for body in BODIES:
        text = f"{STAGES[stage]}; return r = {body}"
        names = [c for c in "xywptk" if re.search(rf"\b{c}\[j\]", text)]
        form = ra.verdict(ra.parse(f"tensors {', '.join(f'{c}[j]{DOMAINS.get(c, str())}' for c in names)}; {text}"))
        if not isinstance(form, Form):
            continue
        derived += 1
        for length, _ in product((1, 2, 4, 6), range(8)):
            arrays = drawn("".join(names), length, rng)
            for results in run(form, arrays, Random(length)):
                agree(form, results, arrays)
    assert derived > 5


@pytest.mark.parametrize("stage", ["min[j](x[j]**2)", "min[j](x[j])", "max[j](-abs(x[j]))", "min[j](abs(x[j]))**2"])
@pytest.mark.parametrize("body", ["var[j](x[j]**2/s)", "mean[j]((x[j]/s)**2)", "std[j](x[j]/s)", "max[j](x[j]**2/s)"])
def test_an_extremum_that_vanishes(stage: str, body: str) -> None:
    """One element is 0, and the others are not."""
    form = ra.derive_incremental(ra.parse(f"s = {stage}; return r = {body}"))
    for x in product((0.0, 1.0, 2.0, -1.0), repeat=3):
        arrays = {"x": np.array(x)}
        for results in run(form, arrays, Random(str(x))):
            agree(form, results, arrays)


@pytest.mark.parametrize("factor", ["1/x[j]", "log(abs(x[j]))", "1/x[j]**2", "1/(x[j] - 1)"])
@pytest.mark.parametrize("chosen", ["x[j]", "x[j]**2", "x[j] - 1", "y[j]"])
@pytest.mark.parametrize("stage", ["sum[j]({})", "var[j]({})", "max[j]({} - max[j](y[j]))"])
def test_a_pole_of_an_element_that_is_masked(stage: str, chosen: str, factor: str) -> None:
    """0 times an infinity is NaN, whatever the mask hides."""
    text = stage.format(f"where(t[j], {chosen}, 0)*({factor})")
    names = [n for n in "txy" if f"{n}[j]" in text]
    spec = ra.parse(f"tensors {', '.join(f'{n}[j]{DOMAINS.get(n, str())}' for n in names)}; return r = {text}")
    form = ra.derive_incremental(spec)
    for x in product((0.0, 1.0, -2.0), repeat=3):
        every = {"x": np.array(x), "t": np.array(x) > -1, "y": np.array([1.0, -1.0, 2.0])}
        for mask in (every["t"], ~every["t"], every["x"] != 0):
            arrays = {n: (every | {"t": mask})[n] for n in names}
            for results in run(form, arrays, Random(str(x))):
                agree(form, results, arrays)
