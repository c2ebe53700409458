"""Specs that ended in an internal error while they were derived, and whose kind drawn specs come upon: now verdicts."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from redalg.errors import Undecided

SHARES = "tensors k[j] integer; m = max[j](k[j]); return y = mean[j](softmax[j](k[j]*m))"


@pytest.mark.parametrize("target", ["numpy", "cpu"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_weights_that_sum_to_one_leave_the_count(target: str, length: int) -> None:
    """No pass keeps anything: the length, where it is known."""
    form = ra.derive_incremental(ra.parse(SHARES))
    k = np.arange(length) - 2
    assert form.compile(target)(k=k) == pytest.approx(1 / length)
    parts = form.accumulator()
    for low, high in ((0, 1), (1, 1), (1, length)):
        parts.update(k=k[low:high])
    assert parts.result() == pytest.approx(1 / length)


def test_a_cancellation_without_an_anchor_is_undecided() -> None:
    """Centring hides what the raw analysis saw, and there is no anchor to do without."""
    text = "tensors b[j] bool, x[j], X[j,d], c[d]; v = count[j](b[j] or x[j] <= c[d]); "
    found = ra.verdict(ra.parse(text + "return y = mean[j](sum[d](softmax[j](maximum(X[j,d], v))))"), "j", 4)
    assert isinstance(found, Undecided) and found.missing


def test_outputs_too_large_to_be_shown_to_need_a_stage_are_undecided() -> None:
    """One of several outputs spends what a certificate may take."""
    text = "m = max[j](X[j,d]); v = sum[j](max[d](exp(X[j,d] - m))); return y = v, z = m"
    found = ra.verdict(ra.parse(text), "j")
    assert isinstance(found, Undecided) and "whether an output needs" in found.missing


@pytest.mark.parametrize(
    "text",
    [
        "v = std[j](X[j,d]); return y = sum[j](sum[d]((x[j] - v)/v))",
        "v = std[j](X[j,d]**3); return y = mean[j](sum[d](where(c[d] > 0, (x[j] - v)/v, 0)))",
        "v = std[j](X[j,d]); return y = sum[j](sum[d](c[d]*(x[j] - v)/v))",
        "v = std[j](X[j,d]); return y = mean[j](sum[d]((x[j] - v)/v)**2)",
    ],
)
def test_an_axis_that_roots_cancel_from_counts_its_positions(text: str) -> None:
    """``v/v`` of one inner axis, where v is a root of what slots hold: what is left of the sum is a length."""
    form, rng = ra.derive_incremental(ra.parse(text), axis="j"), np.random.default_rng(0)
    drawn = {"X": rng.normal(size=(7, 3)), "x": rng.normal(size=7), "c": np.array([2.0, -1.0, 0.5])}
    arrays = {t.name: drawn[t.name] for t in form.spec.tensors}
    expected = ra.reference(form.spec, **arrays)
    parts = form.accumulator(**{n: a for n, a in arrays.items() if n == "c"})
    for low, high in ((0, 2), (2, 2), (2, 7)):
        parts.update(**{n: a[low:high] for n, a in arrays.items() if n != "c"})
    assert form.compile("numpy")(**arrays) == pytest.approx(expected)
    assert parts.result() == pytest.approx(expected)
