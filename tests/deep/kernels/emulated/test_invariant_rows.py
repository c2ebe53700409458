"""`deterministic=True` on a GPU: the bits of a row are the same alone and in every batch, on devices of any size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.kernels.ir.layouts import View
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from tests.support.forms import form_of
from tests.support.profiles import examples
from tests.support.simulated import run
from tests.support.unaligned_cases import arrays

NAMES = ("softmax", "layer_norm", "rms_norm", "logsumexp", "variance", "kurtosis", "argmax", "cosine_similarity")


def schedule(name: str, dtype: str, rows: int, length: int, turned: bool, processors: int) -> Any:
    """What decides the order of additions: everything but how many rows lie in a block."""
    form = form_of(name)
    kinds: dict[str, Any] = {t.name: dtype if t.axes else float for t in form.spec.tensors}
    shapes = {t.name: (rows, length)[-len(t.axes) :] for t in form.spec.tensors if t.axes}
    views = {
        n: View(s, (1, rows)) if turned and len(s) == 2 else View.contiguous(s, 16 if rows % 2 else 4)
        for n, s in shapes.items()
    }
    target = replace(H200, multiprocessors=processors)
    return replace(plan(form, kinds, views, target, deterministic=True).choice.schedule, rows=1, persistent=False)


@examples(20)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(["float32", "bfloat16", "float64"]),
    st.integers(1, 100) | st.integers(1, 1 << 21),
    st.booleans(),
    st.lists(st.integers(1, 1024), min_size=2, max_size=3),
    st.lists(st.integers(1, 200), min_size=2, max_size=2),
)
def test_the_plan_depends_on_rows_and_processors_in_nothing_that_orders_additions(
    name: str, dtype: str, length: int, turned: bool, batches: list[int], processors: list[int]
) -> None:
    batches = [b + turned for b in batches]  # one row that lies transposed lies as any other
    found = {schedule(name, dtype, b, length, turned, p) for b in batches for p in processors}
    assert len(found) == 1, found


@pytest.mark.parametrize("length", [3, 101, 517])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["softmax", "layer_norm", "variance", "logsumexp"])
def test_rows_have_the_same_bits_alone_and_in_batches(name: str, dtype: Any, length: int) -> None:
    form = form_of(name)
    whole = arrays(form.spec, 9, length, dtype, np.random.default_rng(3), 0, 0)
    alone = None
    for batch in (1, 2, 5, 9):
        given_arrays = {n: a[:batch] if getattr(a, "ndim", 0) == 2 else a for n, a in whole.items()}
        found, _, _ = run(form, given_arrays, None, 1, deterministic=True)
        bits = [np.ascontiguousarray(v[:1]).tobytes() for v in found.values()]
        alone = alone or bits
        assert bits == alone, batch
