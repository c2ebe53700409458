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
