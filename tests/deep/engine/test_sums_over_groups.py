"""Sums over groups inside streamed sums: analysis of variance, k-means, discriminants, drawn at random.

Several inner sums meet in one spec, over one axis and over several, with stage values per group and without, nested,
in one output and in several. Whatever is derived is what the definition gives, for every split of the stream.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.form import Form
from tests.support import simulated

STAGES = {
    "a": [  # per group
        "sum[j](G[j,g]*x[j])/sum[j](G[j,g])",
        "mean[j](where(G[j,g] > 1/2, x[j], 0))",
        "max[j](G[j,g]*x[j])",
        "min[j](x[j] + G[j,g])",
        "sum[j](G[j,g]*x[j])",
        "mean[j](G[j,g])",
    ],
    "m": ["mean[j](x[j])", "max[j](x[j])", "sum[j](w[j]*x[j])/sum[j](w[j])"],
    "c": ["sum[j](G[j,g]*y[j,d])/sum[j](G[j,g])", "mean[j](G[j,g]*y[j,d])"],  # centroids
    "u": ["mean[j](y[j,d])", "max[j](y[j,d])"],
}
SQUARES = [  # positive: what others are divided by
    "G[j,g]*(x[j] - a)**2",
    "G[j,g]*(x[j] - m)**2",
    "G[j,g]*sum[d]((y[j,d] - c)**2)",
    "G[j,g]*sum[d]((y[j,d] - u)**2)",
    "(G[j,g] - x[j]*a)**2",
    "where(G[j,g] > 1/2, (x[j] - a)**2, 0) + w[j]",
    "exp(G[j,g]*x[j] - a)",
]
BODIES = [
    *SQUARES,
    "(x[j] - a)*(x[j] - m)",
    "(x[j] - a)*x[j]",
    "x[j]*a + G[j,g]",
    "(G[j,g] - mean[j](G[j,g]))*(a - m)",
    "sum[d]((y[j,d] - c)*(y[j,d] - u))",
    "sum[d](y[j,d]*c)*(x[j] - m)",
    "G[j,g]*sum[g](x[j] - a)",
    "(x[j] - a)*sum[g](G[j,g]*(x[j] - a))",
    "w[j]*(x[j] - a)**3",
]
OUTPUTS = ["P/Q", "(P - Q)/Q", "P*Q", "P - Q", "P, R = Q", "P/Q, R = Q", "P**2, R = P/Q"]


def drawn(seed: int) -> str:
    rng = Random(seed)
    lines = [f"{name} = {rng.choice(forms)}" for name, forms in STAGES.items()]
    p = q = _streamed(rng, SQUARES)
    while p == q:
        p = _streamed(rng, BODIES)
    return _read([*lines, f"P = {p}", f"Q = {q}"], f"return S = {rng.choice(OUTPUTS)}")


def _streamed(rng: Random, bodies: list[str]) -> str:
    body = f"{rng.choice(['sum', 'mean'])}[g]({rng.choice(bodies)})"
    if rng.random() < 0.25:
        body += f" + w[j]*sum[g]({rng.choice(bodies)})"
    if rng.random() < 0.15:
        body = f"G[j,g]*({body})"
    return f"{rng.choice(['sum', 'mean'])}[j]({body})"


def _read(lines: list[str], last: str) -> str:
    """The lines that the last one reads, directly or not: a spec has no tensors that no output reads."""
    kept, needed = [last], set(re.findall(r"\w+", last))
    for line in reversed(lines):
        if line.split()[0] in needed:
            kept.append(line)
            needed |= set(re.findall(r"\w+", line))
    return "; ".join(reversed(kept))


def values(spec: ra.Spec, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(1, 4))
    drawn = {
        "x": rng.normal(size=7) + rng.choice([0, 10]),
        "G": rng.uniform(0.1, 1, (7, groups)),
        "y": rng.normal(size=(7, 2)),
        "w": rng.uniform(0.1, 1, 7),
    }
    return {t.name: drawn[t.name] for t in spec.tensors}


def in_parts(form: Form, arrays: dict[str, Any], seed: int) -> Any:
    """Accumulated in four parts of which one is empty, merged as a tree or in a row."""
    rng = np.random.default_rng(seed)
    first, second = sorted(rng.integers(0, 8, 2))
    parts = []
    for low, high in ((0, first), (first, second), (second, second), (second, 7)):
        tree = seed % 4 == 0
        parts.append(form.accumulator(start=low if tree else None, deterministic=tree))
        parts[-1].update(**{name: array[low:high] for name, array in arrays.items()})
    parts[0].merge(parts[1])
    if seed % 2:
        parts[2].merge(parts[3])
        parts[0].merge(parts[2])
    else:
        parts[0].merge(parts[2])
        parts[0].merge(parts[3])
    return parts[0].result()


def same(found: Any, expected: Any, rtol: float = 1e-7) -> None:
    several = isinstance(expected, dict)
    for a, b in [(found[n], expected[n]) for n in expected] if several else [(found, expected)]:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("block", range(3))
def test_sums_over_groups_are_what_the_definition_gives(block: int) -> None:
    derived = 0
    for seed in range(4 * block, 4 * block + 4):
        spec = ra.parse(drawn(seed))
        form = ra.verdict(spec, axis="j")
        if isinstance(form, ra.Undecided):  # as Σ(x - mean x)·D, which is 0 unless D is infinite
            continue
        assert isinstance(form, Form)
        derived += 1
        arrays = values(spec, seed)
        expected = ra.reference(spec, **arrays)
        same(in_parts(form, arrays, seed), expected)
        same(form.compile("numpy")(**arrays), expected)
    assert derived >= 3


NESTED = {
    "a copy that only an anchor reads": "a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); "
    "return S = mean[j](sum[g](G[j,g]*sum[g](x[j] - a)))",
    "a second index along the groups": "a = max[j](G[j,g]); return S = sum[j]((G[j,g] - a)*sum[g]((G[j,g] - a)**2))",
    "two axes, one without the other": "c = mean[j](G[j,g]*y[j,d]); u = max[j](y[j,d]); "
    "return S = mean[j](sum[g](sum[d]((y[j,d] - c)*(y[j,d] - u))))",
    "a product of two sums over groups": "a = min[j](x[j] + G[j,g]); "
    "return S = sum[j](sum[g](x[j] - a)*sum[g](G[j,g]*(x[j] - a)))",
    "a guard along two axes": "a = sum[j](G[j,g]*x[j]); "
    "return S = mean[j](w[j]*sum[g](where(G[j,g] > 1/2, (x[j] - a)**2, 0)))",
    "one anchor would have too many axes": "a = sum[j](G[j,g]*x[j])/sum[j](G[j,g]); m = mean[j](x[j]); "
    "return W = sum[j](sum[g](G[j,g]*(x[j] - a)**2)), T = sum[j](sum[g](G[j,g]*(x[j] - m)**2))",
}
PAIRS = ["a copy that only an anchor reads", "a second index along the groups"]
KERNELS = ["a guard along two axes", "one anchor would have too many axes"]


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("seed", [0, 1])
def test_axes_of_open_sums_do_not_mix(kind: str, seed: int) -> None:
    spec = ra.parse(NESTED[kind])
    form = ra.derive_incremental(spec, axis="j")
    arrays = values(spec, seed)
    expected = ra.reference(spec, **arrays)
    same(in_parts(form, arrays, seed), expected)
    same(form.compile("numpy")(**arrays), expected)
    if kind in PAIRS:
        with pytest.raises(ra.RedalgError, match="two indices along g"):
            form.compile("cpu")(**arrays)
    elif kind == "a product of two sums over groups":  # of which one does not depend on the group
        same(form.compile("cpu")(**arrays), expected)
    elif kind in KERNELS and seed:
        same(simulated.run(form, arrays)[0], expected if isinstance(expected, dict) else {"S": expected})


def test_analysis_of_variance_far_from_zero_keeps_its_digits() -> None:
    stages, outputs = NESTED["one anchor would have too many axes"].split("return ")
    spec = ra.parse(stages + outputs.replace(", T", "; T") + "; return S = (T - W)/W")
    form = ra.derive_incremental(spec)
    arrays = values(spec, 1)
    arrays["x"] = np.round(arrays["x"] * 256) / 256  # so that the offset loses no digit of them
    expected = ra.reference(spec, **arrays)
    same(form.compile("cpu")(**arrays), expected)
    arrays["x"] += 2.0**30
    same(in_parts(form, arrays, 1), expected, rtol=1e-6)
