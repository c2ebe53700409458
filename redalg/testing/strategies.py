"""Hypothesis strategies: generated specs, input for a spec, pieces and bracketings. Imports hypothesis."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from redalg.testing import sampling
from redalg.testing.generator import Generated, generate


def randoms() -> st.SearchStrategy[Random]:
    """A seeded `random.Random`: everything else in this package is a function of one."""
    return st.integers(0, 2**32 - 1).map(Random)


def specs(*kinds: str) -> st.SearchStrategy[Generated]:
    """Generated specs of the given kinds (default: all), with what is known about them."""
    return st.integers(0, 2**32 - 1).map(lambda seed: generate(seed, *kinds))


@st.composite
def partitions(pick: st.DrawFn, n: int) -> tuple[list[int], list[int]]:
    """(borders of unequal pieces of [0, n), at least one empty; a bracketing of them)."""
    rng = pick(randoms())
    borders = sampling.cuts(rng, n, pick(st.integers(2, 5)))
    return borders, sampling.bracketing(rng, len(borders) - 1)


@st.composite
def inputs(pick: st.DrawFn, spec: Any, axis: str = "j", most: int = 9) -> dict[str, Any]:
    """Arrays for every tensor of the spec, of length 1 to `most` along the axis."""
    return sampling.arguments(spec, pick(randoms()), **{axis: pick(st.integers(1, most))})
