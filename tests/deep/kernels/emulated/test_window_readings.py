"""A tensor that is read in windows and as it lies, or in other windows: kernels give the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.numeric.binding import with_readings
from tests.support import simulated
from tests.support.profiles import examples


@st.composite
def cases(draw: Any) -> tuple[str, np.ndarray]:
    """A spec whose elements multiply windows by a second reading, and an array that has some of both."""
    step, slope, pad, reach = (draw(st.integers(a, b)) for a, b in ((1, 2), (1, 2), (0, 2), (1, 3)))
    around = f"-{pad}" if pad else ""
    second = draw(st.sampled_from(["g", f"g+q:2{around}"]))
    wide = draw(st.booleans())  # a dimension that is read as it lies
    left, right = (f"x[{index}]" for index in (f"{step}*h+{slope}*r:{reach}{around}", second))
    left, right = (left.replace("]", ",c]"), right.replace("]", ",d]")) if wide else (left, right)
    left = draw(st.sampled_from(["{}", "tanh({})", "where({} > 0, 1, 0)"])).format(left)
    n = draw(st.integers(max(1, slope * (reach - 1) + 1 - 2 * pad, 2 - 2 * pad * ("q" in second)), 6))
    x = np.random.default_rng(draw(st.integers(0, 99))).normal(size=(n, 2) if wide else n)
    return f"return y = {draw(st.sampled_from(['sum', 'max', 'mean']))}[r]({left}*{right})", x


@examples(10)
@given(cases())
def test_two_readings_of_an_array_are_two_operands(case: tuple[str, np.ndarray]) -> None:
    text, x = case
    form = ra.derive_incremental(ra.parse(text))
    found, _, _ = simulated.run(form, dict(with_readings(form.spec.tensors, {"x": x})))
    simulated.agree(form.spec, found, {"x": x}, 1e-13)
