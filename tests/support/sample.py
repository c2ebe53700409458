"""The dozen specs of the catalog that the fast suite runs; the deep suite runs the others.

Together they have every kind of slot, every kind and policy of an anchor and every way to end that the catalog has
(`tests/deep/catalog/test_sample.py` derives the catalog and holds this).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

import redalg as ra

SAMPLE = frozenset(
    """
    softmax attention variance nearest_neighbour absmax_int8_gemm layer_norm_gemm moe_softmax_topk argmax geometric_mean
    two_norm_safe cross_entropy kurtosis
    """.split()
)


def deep(values: Iterable[Any]) -> list[Any]:
    """Values of a parameter that the deep suite runs alone; a tuple is a value of each of several parameters."""
    return [pytest.param(*(v if type(v) is tuple else (v,)), marks=pytest.mark.deep) for v in values]


def one_in(n: int, *values: Iterable[Any], first: int = 0) -> list[Any]:
    """Values of a parameter, or all combinations of those of several: the fast suite runs one in `n`, whose places add
    up to `first` modulo `n`, so that it has a mix of all. A tuple is a value of each of several parameters."""
    return [
        pytest.param(
            *(x for _, v in chosen for x in (v if type(v) is tuple else (v,))),
            marks=() if sum(k for k, _ in chosen) % n == first else pytest.mark.deep,
        )
        for chosen in product(*map(enumerate, values))
    ]


def by_name(names: Iterable[str] | None = None, fast: Iterable[str] = SAMPLE) -> pytest.MarkDecorator:
    """Parametrises a test by `name`, of the whole catalog if none are given: all but the sample is marked as deep."""
    given, kept = sorted(ra.catalog) if names is None else list(names), {*fast}
    return pytest.mark.parametrize(
        "name", [pytest.param(n, marks=() if n in kept else pytest.mark.deep) for n in given]
    )
