"""Positions of functions of the position beside stage values that are not finite: the definition's, or none (-1).

Where the elements are extreme lies beyond the short streams that forms are tried on.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.profiles import examples

PLACES = [
    "sin(index[j])",
    "cos(index[j] + 1)",
    "where(index[j] == 6, -1, 0)",
    "(index[j] - 5)**2",
    "x[j]*where(index[j] == 7, 3, 1)",
]
STAGES = ["{} - mean[j](t[j])", "{} + max[j](t[j])", "{}*sum[j](t[j]**2)", "{}/max[j](t[j])", "exp({} - mean[j](t[j]))"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0]
ENDS = ["argmin[j]({})", "argmax[j]({})", "topk[j:2]({}).indices"]


@cache
def form_of(text: str) -> ra.Form:
    return ra.derive_incremental(ra.parse(f"return y = {text}"))


@pytest.mark.parametrize("place", PLACES)
@given(st.sampled_from(STAGES), st.sampled_from(ENDS), st.sampled_from(SPECIAL), st.integers(0, 8))
@examples(24)
def test_positions(place: str, stage: str, end: str, special: float, at: int) -> None:
    form = form_of(end.format(stage.format(place)))
    x, t = np.array([1.0, 2, 1, 3, 2, 1, 0, 2, 1]), np.linspace(1, 2, 9)
    t[at] = special
    held: dict[str, Any] = {d.name: {"x": x, "t": t}[d.name] for d in form.spec.tensors}
    with np.errstate(all="ignore"):
        wanted = np.asarray(ra.reference(form.spec, **held))
        found = [np.asarray(form.compile("numpy")(**held))]
        acc = form.accumulator(start=0)
        for low, high in ((0, 1), (1, 1), (1, 6), (6, 9)):
            acc.update(**{name: a[low:high] for name, a in held.items()})
        found.append(np.asarray(acc.result()))
    for got in found:
        assert ((got == wanted) | (got == -1)).all(), (form.spec, got, wanted)
        assert (got == wanted).all() or special != 0 and "finite_stage_values" in form.assumptions
