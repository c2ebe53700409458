"""What is decided by numbers that integers beyond 2^53 are made into, beside the definition, which is exact."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

CONDITIONS = [
    "floor(k[j]/{c})*{c} == k[j]",
    "ceil(k[j]/{c})*{c} <= k[j]",
    "k[j]/{c} == (k[j] + 1)/{c}",
    "k[j] < x[j]",
    "x[j] == k[j]",
    "k[j] - 1/2 < x[j]",
    "{c}*floor(k[j]/{c}) < x[j]",
]
TAKEN = [
    "sum[j](where({c}, 1, 0))",
    "sum[j](where({c}, x[j], 0))",
    "max[j](where({c}, 1, 0))",
    "argmax[j](where({c}, 1, 0))",
    "any[j]({c})",
]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="NumPy has no floats that hold int64")
@given(st.sampled_from(CONDITIONS), st.sampled_from(TAKEN), st.sampled_from([2, 3, 7, 10]), st.data())
@examples(150)
def test_they_are_decided_exactly(condition: str, taken: str, c: int, data: st.DataObject) -> None:
    text = f"return y = {taken.format(c=condition.format(c=c))}"
    form = form_of_text(text)
    near = st.builds(lambda e, d: 2**e + d, st.sampled_from([0, 3, 52, 53, 54, 60]), st.integers(-3, 5))
    k = np.array(data.draw(st.lists(near, min_size=1, max_size=5)), np.int64)
    x = np.array([float(data.draw(st.sampled_from([v - 1, v, v + 1]))) for v in k.tolist()])
    tensors = {d.name for d in form.spec.tensors}
    arrays = {name: a for name, a in {"k": k, "x": x}.items() if name in tensors}
    cut = data.draw(st.integers(0, len(k)))
    found = [form.compile(target)(**arrays) for target in ("numpy", "cpu")]
    for edges in ([0, cut, len(k)], range(len(k) + 1)):
        parts = form.accumulator()
        for low, high in pairwise(edges):
            parts.update(**{name: a[low:high] for name, a in arrays.items()})
        found.append(parts.result())
    expected = ra.reference(form.spec, **arrays)
    assert found == [expected] * 4, (text, arrays)


RESULTS = [
    "where(sum[j](k[j])/{c} > w + 1/4, 1, 0)",
    "sum[j](k[j])/{c} == floor(sum[j](k[j])/{c})",
    "where(w/{c} < max[j](k[j]) - 1/2, max[j](k[j]), 0)",
    "where(sum[j](k[j]) < {c}*x + 1/2, 1, 0)",
    "where(max[j](k[j]) < x, min[j](k[j]), 1)",
    "topk[j:2:t](abs(k[j] - {c}*w)).values",
    "topk[j:3:t](abs(k[j] - min[j](k[j]))).values",
    "floor(sum[j](k[j])/{c}) - floor(w/{c})",
]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="NumPy has no floats that hold int64")
@given(st.sampled_from(RESULTS), st.sampled_from([2, 3, 7]), st.data())
@examples(150)
def test_results_are_decided_exactly(result: str, c: int, data: st.DataObject) -> None:
    """Conditions on sums and extrema, what is rounded of them, and integers that pass through floats."""
    form = form_of_text(f"return y = {result.format(c=c)}")
    near = st.builds(lambda e, d: 2**e + d, st.sampled_from([0, 3, 52, 53, 54, 58]), st.integers(-3, 5))
    k = np.array(data.draw(st.lists(near, min_size=1, max_size=4)), np.int64)
    w = data.draw(st.sampled_from([int(k.sum()), int(k.max()), 0])) + data.draw(st.integers(-2, 2))
    every = {"k": k, "w": np.array(w), "x": np.array(float(w))}
    given = {d.name: every[d.name] for d in form.spec.tensors}
    bound = {name: x for name, x in given.items() if name != "k"}
    parts = [form.accumulator(**bound) for _ in range(2)]
    cut = data.draw(st.integers(0, len(k)))
    parts[0].update(k=k[:cut])
    parts[1].update(k=k[cut:])
    expected = ra.reference(form.spec, **given)
    for found in (form.compile("numpy")(**given), form.compile("cpu")(**given), (parts[0] + parts[1]).result()):
        np.testing.assert_array_equal(found, expected)


MASKS = [
    "l = topk[j:{n}:t](where(x[j] >= m, k[j], 7)).values; "
    "c = {r}[t](l); return y = max[j](where(x[j] > 0, k[j], c)) + c",
    "l = topk[j:{n}:t](-k[j]).values; c = {r}[t](l); return y = min[j](where(x[j] > m, k[j], c)), w = l",
    "l = topk[j:{n}:t](where(x[j] >= m, k[j], 7)).values; return y = max[j](where(k[j] == {r}[t](l), k[j], 1)), w = l",
]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="NumPy has no floats that hold int64")
@given(
    st.sampled_from(MASKS),
    st.sampled_from(["mean[j](x[j])", "max[j](x[j])", "min[j](x[j])"]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["max", "min"]),
    st.data(),
)
@examples(60)
def test_extrema_of_masked_integers_are_exact(text: str, s: str, n: int, r: str, data: st.DataObject) -> None:
    """Beside the -oo of what is not selected, and of lists that are not full, which are floats."""
    form = form_of_text(f"tensors x[j], k[j] integer; m = {s}; " + text.format(n=n, r=r), max_passes=3)
    far = st.builds(lambda sign, d: sign * (2**58 + d), st.sampled_from([-1, 1]), st.integers(-9, 9))
    k = np.array(data.draw(st.lists(far, min_size=1, max_size=5)), np.int64)
    x = np.array(data.draw(st.lists(st.floats(-2, 2, width=16), min_size=len(k), max_size=len(k))))
    expected = ra.reference(form.spec, k=k, x=x)
    found = form.compile("numpy")(k=k, x=x)
    cut, parts = data.draw(st.integers(0, len(k))), form.accumulator()
    for number in range(form.passes.statistics):
        if number:
            parts.next_pass()
        for low, high in ((0, cut), (cut, len(k))):
            parts.update(k=k[low:high], x=x[low:high])
    for result in (found, parts.result()):
        np.testing.assert_equal(result, expected)
