"""Reductions down columns of drawn shapes, types and numbers, stacked or not, by emulation: against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import examples
from tests.support.stacked_cases import SPECS, agrees, drawn, emulated, form_of, planned_of

UNIT = {"float32": 2.0**-18, "float64": 2.0**-44, "float16": 2.0**-9, "bfloat16": 2.0**-6}
SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-41, 2.0, -2.0)


@st.composite
def calls(draw: Any) -> tuple[str, dict[str, Any], int, str]:
    name, dtype = draw(st.sampled_from(sorted(SPECS))), draw(st.sampled_from(sorted(UNIT)))
    count = draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    each = {"float64": 2, "float32": 4}.get(dtype, 8)  # elements of 16 bytes, at which lines of columns begin
    step = max(1, each // count)
    columns = step * draw(st.sampled_from([1, 2, 3, 5, 9]) | st.integers(1, 12))
    lines = count * draw(st.integers(1, 6)) + draw(st.integers(0, count - 1))
    arrays = drawn(name, lines, columns, dtype, draw(st.integers(0, 99)))
    for a in arrays.values():
        if isinstance(a, np.ndarray) and a.dtype.kind in "fV" and draw(st.booleans()):
            for _ in range(draw(st.integers(1, 3))):
                at = draw(st.integers(0, a.size - 1))
                a.flat[at] = draw(st.sampled_from(SPECIAL))
    return name, arrays, draw(st.sampled_from([0, count])), dtype


@examples(60)
@given(calls(), st.integers(0, 3))
def test_two_steps_are_the_definition_and_so_is_one_that_leaves_results_alike(call: Any, seed: int) -> None:
    name, arrays, count, dtype = call
    made = planned_of(form_of(name), arrays, count)
    found = emulated(made, arrays, seed)
    agrees(name, found, arrays, UNIT[dtype])
    like = next(a for a in arrays.values() if getattr(a, "ndim", 0) == 2)
    for r in made.program.results:
        if r.keeps:
            assert np.argsort(found[r.name].strides).tolist() == np.argsort(like.strides).tolist() or 1 in like.shape
