"""Every catalog spec keeps every law: pieces, bracketings, order, identity, exactness, size of the state."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.testing import running, sampling
from redalg.testing.form_laws import LAWS, Law, Subject, the_algebra_is_exact
from tests.support.forms import form_of

NAMES = sorted(ra.catalog)


def first_axis(name: str) -> str:
    axis = ra.catalog.entry(name).axis
    return axis if isinstance(axis, str) else axis[0]


def sample(name: str, seed: int, length: int) -> dict[str, Any]:
    """Input of the catalog's own distribution, small along the axes that are not streamed."""
    entry = ra.catalog.entry(name)
    sizes = dict.fromkeys(entry.sizes, 2) | {first_axis(name): length}
    return {k: np.asarray(v) for k, v in entry.sample(seed, **sizes).items()}


@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("name", NAMES)
def test_catalog_forms_keep_the_laws(name: str, length: int) -> None:
    arrays = sample(name, length, length)
    for law in LAWS:
        law(Subject(form_of(name), arrays, Random(f"{name}{length}")))


@pytest.mark.parametrize("name", NAMES)
def test_catalog_forms_keep_the_laws_in_single_precision(name: str) -> None:
    """float32 input: the same laws, within the bound derived for float32 arithmetic."""
    arrays = {k: v.astype("float32") if v.dtype.kind == "f" else v for k, v in sample(name, 3, 6).items()}
    for law in LAWS:
        law(Subject(form_of(name), arrays, Random(name), "float32"))


@pytest.mark.parametrize("name", NAMES)
def test_rational_input_gives_rational_results_exactly(name: str) -> None:
    """On small rationals (ties, zeros and all): exact where the spec is rational, else to 50 digits."""
    form, rng = form_of(name), Random(name)
    sizes = dict.fromkeys(form.spec.axes, 2) | {first_axis(name): 5}
    arrays = {d.name: sampling.draw(d, [sizes[a] for a in d.axes], rng) for d in form.spec.tensors}
    the_algebra_is_exact(Subject(form, arrays, rng))


@pytest.mark.parametrize("name", NAMES)
def test_the_state_does_not_grow(name: str) -> None:
    """The same bytes after 10 and after 10^5 elements (a composite axis is long along its first part)."""
    form = form_of(name)
    sizes = []
    for length in (10, 100_000):
        arrays = sample(name, 0, length)
        moving, bound = sampling.split(form.spec, first_axis(name), arrays)
        if any(first_axis(name) in d.axes for d in form.spec.tensors if d.name in bound):
            pytest.skip("an argument that is bound varies along the axis")
        acc = form.accumulator(start=0 if running.needs_positions(form) else None, **bound)
        for start in range(0, length, 25_000):
            acc.update(**sampling.piece(form.spec, first_axis(name), moving, start, min(start + 25_000, length)))
        sizes.append((acc.nbytes, {k: np.shape(v) for k, v in acc.state.items()}))
        assert acc.count % length == 0
    assert sizes[0] == sizes[1]


def test_a_law_is_a_value() -> None:
    assert len(LAWS) >= 6 and all(isinstance(law, Law) and law.equation and law.equality for law in LAWS)


def test_a_wrong_form_breaks_a_law() -> None:
    """The judge can say no: the form of the variance held against the spec of the second moment."""
    from dataclasses import replace

    x = ra.tensors("x[i,j]")
    wrong = replace(form_of("variance"), spec=ra.Spec(var=ra.mean(x**2, "j")))
    arrays = sample("variance", 1, 6)
    refused = 0
    for law in LAWS:
        try:
            law(Subject(wrong, arrays, Random(0)))
        except AssertionError:
            refused += 1
    assert refused >= 4
