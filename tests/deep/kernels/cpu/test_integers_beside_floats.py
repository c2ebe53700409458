"""What kernels decide by integers beside float32, whatever the condition."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

import redalg as ra
from tests.engine.test_integers_beside_float32 import RESULTS, drawn
from tests.support.profiles import examples


@given(st.sampled_from(RESULTS), st.data())
@examples(300)
def test_kernels_decide_as_the_definition(text: str, data: st.DataObject) -> None:
    form, arrays = drawn(data, text)
    expected = ra.reference(form.spec, **arrays)
    found = form.compile("cpu")(**arrays)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected, f"{text} {arrays}")
