"""Rows that `empty=` fills by a condition that reads what an earlier pass found, over axes of any names and lengths."""

from __future__ import annotations

import numpy as np
import pytest

import redalg as ra
from tests.support.sample import deep

OUTPUTS = (
    "where(max[k](masked) != -oo, 2 * sum[k](where(first, s[{axes}, k], 0)), 3)",
    "where(max[k](masked) != -oo and A[{axes}, k], s[{axes}, k] * sum[k](where(first, s[{axes}, k], 0)), 0)",
)


@pytest.mark.parametrize("output", [OUTPUTS[1], *deep([OUTPUTS[0]])])
@pytest.mark.parametrize("axes", [("b", "z"), pytest.param(("z", "b"), marks=pytest.mark.deep)])
def test_conditions_read_what_earlier_passes_found(output: str, axes: tuple[str, str]) -> None:
    names = ", ".join(axes)
    spec = ra.parse(
        f"tensors s[{names}, k], A[{names}, k] bool; masked = where(A[{names}, k], s[{names}, k], -oo); "
        f"first = A[{names}, k] and argmax[k](masked) == index[k]; y = {output.format(axes=names)}; "
        "empty y = 7; return y"
    )
    form = ra.derive_incremental(spec, "k", max_passes=2)
    rng = np.random.default_rng(len(output))
    for shape in ((2, 3, 5), (3, 3, 4), (1, 2, 1)):
        s, a = rng.integers(-9, 9, shape).astype(float), rng.random(shape) < 0.3
        a[0, 0] = False
        want = ra.reference(spec, s=s, A=a)
        assert (want == 7).any()
        for target in ("numpy", "cpu"):
            np.testing.assert_array_equal(form.compile(target)(s=s, A=a), want)
