"""Kinds of chunks: an accumulator that is prepared for some has the bits of one that never is, and refuses the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redalg.errors import RedalgError
from redalg.streaming import Accumulator
from tests.support.forms import form_of_text
from tests.support.sample import one_in

TEXTS = {
    "sum": "return y = sum[j](x[i,j])",
    "variance": "u = mean[j](x[i,j]); return v = mean[j]((x[i,j] - u)**2)",
    "logsumexp": "m = max[j](x[i,j]); return y = log(sum[j](w[j] * exp(x[i,j] - m))) + m",
    "places": "a = argmax[j](x[i,j]); s = sum[j](x[i,j] * w[j]); return a, s",
    "deviation": "u = mean[j](x[i,j]); return y = mean[j](abs(x[i,j] - u))",
}
NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 1.0, -2.5, 3.0, np.inf, -np.inf, np.nan, 1e308, -1e308, 7e-320])


def laid_out(values: np.ndarray, layout: str) -> Any:
    if layout == "F":
        return np.asfortranarray(values)
    if layout == "strided":
        return np.repeat(values, 2, axis=-1)[..., ::2]
    if layout == "read-only":
        values.flags.writeable = False
    return values.tolist() if layout == "list" and values.size else values


@st.composite
def chunks(draw: st.DrawFn, names: tuple[str, ...]) -> dict[str, Any]:
    rows = draw(st.sampled_from([2, 2, 2, 2, 2, 1]))  # another number of rows is refused
    length = draw(st.sampled_from([0, 1, 1, 2, 3, 16]))
    found = {}
    for name in names:
        shape = (rows, length) if name == "x" else (length,)
        size = int(np.prod(shape))
        dtype = draw(st.sampled_from(["f8", "f8", "f8", "f8", ">f8", "f4", "i8"]))
        numbers = st.integers(-5, 5) if dtype == "i8" else NUMBERS
        with np.errstate(all="ignore"):
            values = np.array(draw(st.lists(numbers, min_size=size, max_size=size)), float).astype(dtype)
        layout = draw(st.sampled_from(["C", "C", "F", "strided", "read-only", "list"]))
        found[name] = laid_out(values.reshape(shape), layout)
    return found


def refusal(call: Any, *given: Any, **named: Any) -> str:
    """Why it was refused, if it was."""
    try:
        call(*given, **named)
    except RedalgError as refused:
        return str(refused)
    return ""


def bits(acc: Accumulator) -> Any:
    """Everything of the state, a NaN as a NaN."""
    held = [(name, x.dtype, x.shape, np.where(x == x, x, 0).tobytes(), x == x) for name, x in acc.state.items()]
    return [(*rest, real.tolist()) for *rest, real in held], acc.count, acc.nbytes, acc.covered


@pytest.mark.parametrize(("deterministic", "name"), one_in(4, [False, True], TEXTS))
@given(data=st.data())
def test_what_was_prepared_changes_no_bit(name: str, deterministic: bool, data: st.DataObject) -> None:
    form = form_of_text(TEXTS[name], max_passes=2)
    names = tuple(d.name for d in form.spec.tensors)
    prepared, plain = (form.accumulator(deterministic=deterministic) for _ in range(2))
    for _ in range(data.draw(st.integers(2, 8))):
        what = data.draw(st.sampled_from(["update"] * 6 + ["merge", "next pass"]))
        if what == "update":
            arrays = data.draw(chunks(names))
            plain = plain.copy()  # a copy is prepared for nothing
            assert refusal(prepared.update, **arrays) == refusal(plain.update, **arrays)
        elif what == "merge":
            assert refusal(prepared.merge, prepared.copy()) == refusal(plain.merge, plain.copy())
        elif len(form.plan.passes) > 1 and prepared.count and prepared._now.number == 0:
            prepared.next_pass()
            plain.next_pass()
        with np.errstate(all="ignore"):
            assert bits(prepared) == bits(plain)


def test_chunks_of_a_known_kind_are_not_validated_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    acc, other = (form_of_text(TEXTS["sum"]).accumulator() for _ in range(2))
    x = np.ones((2, 3))
    acc.update(x=x)
    other.update(x=x)
    monkeypatch.setattr("redalg.streaming.checks.chunk", None)
    acc.update(x=2 * x)
    acc.merge(other)
    acc.update(x=x)
    assert acc.count == 12 and acc.result().tolist() == [15, 15]
    with pytest.raises(TypeError):
        acc.update(x=np.ones((2, 4)))
