"""States that leave the range of their dtype beside counts: whatever is written is read again, with equal bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text

FORMS = {
    "mean of some": "return y = sum[j](where(x[j] > 0, x[j], 0)) / count[j](x[j] > 0)",
    "weighted": "return y = sum[j](where(x[j] > 2, x[j]**2, 0)) / (1 + count[j](x[j] > 2))",
    "moments": "m = mean[j](x[j]); return v = mean[j]((x[j] - m)**2), n = count[j](x[j] > 0), p = prod[j](x[j])",
    "norm": "return y = sqrt(sum[j](x[j]**2)) * count[j](x[j] > 0)",
}
LARGEST = float(np.finfo(np.float32).max)
NUMBERS = st.sampled_from([LARGEST, LARGEST / 4, -LARGEST, 1000.3, 1.0, -1.0, 1e-30])
PIECES = st.lists(
    st.tuples(st.sampled_from(["float32", "float32", "float64", "uint8"]), st.lists(NUMBERS, min_size=1, max_size=5)),
    min_size=2,
    max_size=4,
)


def _taken(values: list[float], dtype: str) -> np.ndarray:
    return np.array([abs(v) % 5 if dtype == "uint8" else v for v in values]).astype(dtype)


@pytest.mark.parametrize("name", FORMS)
@given(PIECES, st.integers(0, 3))
def test_every_merge_is_read_again(name: str, pieces: list[tuple[str, list[float]]], first: int) -> None:
    form = form_of_text(FORMS[name])
    parts = []
    for dtype, values in pieces:
        part = form.accumulator()
        part.update(x=_taken(values, dtype))
        parts.append(part)
    with np.errstate(all="ignore"):
        while len(parts) > 1:
            at = first % (len(parts) - 1)
            try:
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            except ra.RedalgError as refused:
                assert "2**53" in refused.why
                return
            for again in (form.from_bytes(parts[at].to_bytes()), form.from_state_dict(parts[at].state_dict())):
                got, expected = again.result(), parts[at].result()
                np.testing.assert_equal(got, expected)
                assert again.to_bytes() == parts[at].to_bytes()
