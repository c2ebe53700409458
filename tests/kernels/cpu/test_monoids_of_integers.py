"""A user's monoid of integers on "cpu": the fold by definition, or a refusal where no number stands for its start."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra

x, y = ra.tensors("x[j] y[j]")
SMALL = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=9)
SPREAD = ra.Monoid(
    "spread", lambda a, b: (ra.minimum(a[0], b[0]), ra.maximum(a[1], b[1])), (ra.oo, -ra.oo), commutative=True
)
TWICE = ra.Monoid("twice", lambda a, b: 2 * a * b, 0.5, commutative=True)
AFFINE = ra.Monoid("affine", lambda f, h: (f[0] * h[0], f[1] * h[0] + h[1]), (1, 0))


@functools.cache
def form_of(monoid: ra.Monoid) -> ra.Form:
    parts = ra.reduce(x if monoid.single else (x, y), "j", monoid)
    outputs = {"p": parts} if monoid.single else dict(zip("pq", parts, strict=True))
    return ra.derive_incremental(ra.Spec(**outputs), axis="j")


@pytest.mark.parametrize("monoid", [SPREAD, TWICE], ids=lambda m: m.name)
def test_a_start_that_is_no_integer_is_refused_of_integers_and_taken_of_floats(monoid: ra.Monoid) -> None:
    form, names = form_of(monoid), "x" if monoid.single else "xy"
    arrays = {n: np.array([1, 3, -2], np.int64) for n in names}
    with pytest.raises(ra.RedalgError, match="no number stands for that"):
        form.compile("cpu")(**arrays)
    floats = {n: a.astype(np.float64) for n, a in arrays.items()}
    found, expected = form.compile("cpu")(**floats), ra.reference(form.spec, **arrays)
    assert np.array_equal([*found.values()], [*expected.values()]) if isinstance(found, dict) else found == expected


@given(SMALL)
def test_integers_fold_in_their_order(pairs: list[tuple[int, int]]) -> None:
    slope, offset = functools.reduce(lambda f, h: (f[0] * h[0], f[1] * h[0] + h[1]), pairs)
    first, second = np.array(pairs, np.int64).T
    for target in ("numpy", "cpu"):
        found = form_of(AFFINE).compile(target)(x=first, y=second)
        assert (int(found["p"]), int(found["q"])) == (slope, offset)
