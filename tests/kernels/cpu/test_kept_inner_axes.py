"""An axis that results keep, and that reductions inside of an element run along too: kernels have two indices of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support import forms

KEPT = ("mean[b](Z[{axes}]) - X[e,b]", "max[b](Z[{axes}])*X[e,b]", "exp(sum[b](Z[{axes}]*W[b,a]))+X[e,b]")
SUMS = ("sum[e](sum[a](P[b,a,e])*Q[e])", "sum[e](sum[b](P[b,a,e])*Q[e])", "max[e](P[b,a,e])", "sum[e](Z[{axes}])")


@pytest.mark.deep
@given(st.sampled_from(KEPT), st.sampled_from(SUMS), st.permutations("abe"), st.lists(st.integers(1, 9), min_size=3))
def test_kept_results_beside_sums(kept: str, total: str, order: list[str], lengths: list[int]) -> None:
    """Of numbers from 1/2 to 1: at most 9 terms in a sum of 9, each rounded a few times; an exponential of 9 of them
    has 9 times the relative error of its argument."""
    axes = ",".join(order)
    text = f"return K = {kept.format(axes=axes)}, T = {total.format(axes=axes)}"
    form = forms.form_of_text(text, "e")
    sizes = dict(zip("abe", lengths, strict=False))
    rng = np.random.default_rng(sum(lengths))
    arrays = {t.name: rng.uniform(0.5, 1, [sizes[a] for a in t.axes]) for t in form.spec.tensors}
    found, true = form.compile("cpu")(**arrays), ra.reference(form.spec, **arrays)
    for name, x in true.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-13, atol=1e-14)
