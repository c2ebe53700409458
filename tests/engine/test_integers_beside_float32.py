"""What is decided by integers beside float32 and float16, which hold fewer of them, beside the definition."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import redalg as ra
from redalg.numeric.dtypes import output_flows
from tests.support.forms import form_of_text
from tests.support.profiles import examples

CONDITIONS = [
    "k[j] > x[j]",
    "k[j] == x[j]",
    "k[j] <= w",
    "k[j] + x[j] > {c}",
    "k[j] - 1/2 < x[j]",
    "k[j]*x[j] > {c}*x[j]",
    "x[j] < {c}",
    "x[j] >= n",
    "k[j] > n - x[j]",
]
RESULTS = [
    *(f"sum[j](where({c}, 1, 0))" for c in CONDITIONS),
    "any[j](k[j] > x[j])",
    "max[j](where(k[j] > w, x[j], -oo))",
    "where(sum[j](k[j]) > sum[j](x[j]), 1, 0)",
    "where(max[j](k[j]) > max[j](x[j]), w, 0)",
    "where(mean[j](k[j]) > max[j](x[j]), 1, 0)",
    "argmax[j](k[j]*x[j])",
    "argmin[j](k[j] - x[j])",
    "argmax[j](where(x[j] > 0, k[j], x[j]))",
    "argmax[j](k[j]/4) + argmax[j](x[j])",
    "topk[j:2:t](k[j] + x[j]).indices",
]
RUN_BY_KERNELS = ["any[j](k[j] > x[j])", "argmax[j](k[j]*x[j])", "where(mean[j](k[j]) > max[j](x[j]), 1, 0)"]
DECLARED = {"k": "k[j] integer", "n": "n integer", "x": "x[j]", "w": "w"}
NEAR = st.builds(lambda e, d: 2**e + d, st.sampled_from([0, 3, 11, 23, 24, 25, 30]), st.integers(-3, 3))


def drawn(data: st.DataObject, text: str) -> tuple[ra.Form, dict[str, Any]]:
    """A form whose numbers float64 holds, and integers next to its floats."""
    c, n = (data.draw(st.sampled_from([2**24 + 1, 2**11 + 1, 3])) for _ in range(2))
    declared = f"tensors {', '.join(DECLARED[name] for name in _letters(text))}; " if data.draw(st.booleans()) else ""
    form = form_of_text(f"{declared}return y = {text.format(c=c)}")
    whole = data.draw(st.sampled_from([np.int32, np.int64, np.uint32]))
    real = data.draw(st.sampled_from([np.float32, np.float32, np.float16]))
    k = np.array(data.draw(st.lists(NEAR, min_size=1, max_size=5)), np.int64)
    beside = (k + data.draw(st.lists(st.integers(-2, 2), min_size=len(k), max_size=len(k)))).astype(np.float32)
    x = np.where(np.abs(beside) < 60000, beside, 1).astype(real) if real is np.float16 else beside
    x = data.draw(st.sampled_from([x, np.ones(len(k), real)]))
    every = {"k": np.maximum(k, 0).astype(whole), "x": x, "w": real(x[0]), "n": n}
    return form, {d.name: every[d.name] for d in form.spec.tensors}


@cache
def _letters(text: str) -> list[str]:
    return [d.name for d in ra.parse(f"return y = {text.format(c=3)}").tensors]


@given(st.sampled_from(RESULTS), st.data())
@examples(400)
def test_they_are_those_of_the_definition(text: str, data: st.DataObject) -> None:
    """By NumPy, by accumulators of unequal pieces, one of them empty, merged, and by group."""
    form, arrays = drawn(data, text)
    expected = ra.reference(form.spec, **arrays)
    found = [form.compile("numpy")(**arrays)]
    streamed = [d.name for d in form.spec.tensors if d.axes]
    fixed = {name: x for name, x in arrays.items() if name not in streamed}
    length = len(arrays[streamed[0]])
    cut = data.draw(st.integers(0, length))
    parts = [form.accumulator(**fixed) for _ in range(3)]
    groups = form.grouped(**fixed)
    for part, (low, high) in zip(parts, pairwise([0, 0, cut, length]), strict=True):
        chunk = {name: arrays[name][low:high] for name in streamed}
        part.update(**chunk)
        groups.update(by=np.zeros(high - low, int), **chunk)
    found += [(parts[0] + parts[1] + parts[2]).result(), groups.result()[1][0]]
    dtypes = {name: x.dtype if hasattr(x, "dtype") else type(x) for name, x in arrays.items()}
    for result in found:
        assert result.dtype == output_flows(form.spec, dtypes)["y"].dtype
        np.testing.assert_array_equal(result, expected, f"{text} {arrays}")


@pytest.mark.parametrize("text", RUN_BY_KERNELS)
def test_kernels_decide_as_the_definition(text: str) -> None:
    """Near 2^24, and where integers are small: there kernels calculate in float32."""
    form = form_of_text(f"tensors k[j] integer, x[j]; return y = {text}")
    run = form.compile("cpu")
    for top in (8, 2**24, 2**30):
        for k in ([top, top + 1], [top + 1, top], [top + 1], [top - 1, top, top + 3]):
            for x in (np.ones(len(k), np.float32), np.full(len(k), top, np.float32)):
                given = {"k": np.array(k, np.int32), "x": x}
                np.testing.assert_array_equal(run(**given), ra.reference(form.spec, **given), str(given))
