"""A user's monoid where a fold begins, or a thread or a split has nothing: no element is combined with the identity."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cpu import schedule as cpu_schedule
from redalg.kernels.ir.schedule import Schedule
from redalg.kernels.lower.adjoined import neutral
from tests.support import simulated
from tests.support.profiles import examples


def _log_add(a: Any, b: Any) -> Any:
    return ra.maximum(a, b) + ra.log1p(ra.exp(-ra.abs(a - b)))


LOGSUM = ra.Monoid("logsum", _log_add, -ra.oo, commutative=True)  # its identity and -oo make NaN
AFFINE = ra.Monoid("affine", lambda f, h: (f[0] * h[0], f[1] * h[0] + h[1]), (1, 0))
SPREAD = ra.Monoid("spread", lambda a, b: (ra.minimum(a[0], b[0]), a[1] + b[1]), (ra.oo, 0), commutative=True)
SCHEDULES = (None, Schedule(32, 1, 1, 32), Schedule(128, 1, 1, 32, resident=True), Schedule(64, 1, 1, 1, split=3))


@functools.cache
def logsum() -> ra.Form:
    return ra.derive_incremental(ra.Spec(y=ra.reduce(ra.tensors("x[i,j]"), "j", monoid=LOGSUM)))


def rows(length: int, place: int) -> np.ndarray:
    """Rows of small integers, in all but one of which an element is -oo."""
    x = np.arange(3 * length, dtype=float).reshape(3, length) % 4
    x[:2, place] = -np.inf
    return x


def test_an_identity_of_all_numbers_needs_no_part_more() -> None:
    assert neutral(SPREAD) and not neutral(LOGSUM) and not neutral(AFFINE)


@examples(20)
@given(st.integers(1, 60), st.integers(0, 59), st.booleans())
def test_an_infinite_element_is_not_combined_with_the_identity(length: int, place: int, split: bool) -> None:
    form, x = logsum(), rows(length, place % length)
    assert "finite_stage_values" not in form.assumptions
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cpu_schedule, "SPAN", 16)
        found = form.compile("cpu", schedule="split" if split else None)(x=x)
    assert np.allclose(found, ra.reference(form.spec, x=x), rtol=1e-12)


@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_threads_and_splits_without_elements_change_nothing(schedule: Schedule | None, length: int) -> None:
    for place in (0, length - 1):
        x = rows(length, place).astype(np.float32)
        found, _, _ = simulated.run(logsum(), {"x": x}, schedule=schedule)
        simulated.agree(logsum().spec, found, {"x": x}, 1e-6)


def test_monoids_along_columns_of_a_state_are_refused() -> None:
    """Beside a column's own sum over the other columns: an array of the monoid's values, for NumPy alone."""
    pair = "monoid P = (a0 + b0, a1 + b1 + a0*b0) identity (0, 0); "
    form = ra.derive_incremental(ra.parse(pair + "return y = reduce[j:P](x[j,d], sum[d](x[j,d])).1"), axis="j")
    x = np.arange(12.0).reshape(4, 3)
    with pytest.raises(RedalgError, match="the monoid P along d"):
        form.compile("cpu")(x=x)
    with pytest.raises(RedalgError, match="the monoid P along d"):
        ra.explore.kernel(form, {"j": 4, "d": 3})
    np.testing.assert_allclose(form.compile("numpy")(x=x), ra.reference(form.spec, x=x))
