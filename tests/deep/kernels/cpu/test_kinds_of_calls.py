"""One callable, called in drawn ways and order: what was prepared for one kind of call is not used for another."""

from __future__ import annotations

from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.errors import RedalgError
from redalg.numeric.call_kinds import Unkeyed, kind_of_call
from redalg.numeric.out import self_overlapping
from tests.support.forms import form_of_text
from tests.support.profiles import examples

SPEC = "y = x[i,j] - max[j](x[i,j]); s = sum[j](w[j] * x[i,j]); return s, y"  # exact on integers
DTYPES = {"x": ("f8", "i8", ">f8"), "w": ("f8", "i8", "u8")}
LAYOUTS = ("C", "F", "reversed", "strided", "read-only", "odd", "stretched", "list", "subclass")
RUNS: dict[str, Any] = {}


class Named(np.ndarray):
    """An array of a subclass."""


def run_of(target: str) -> Any:
    if target not in RUNS:
        RUNS[target] = form_of_text(SPEC).compile(target)
    return RUNS[target]


def laid_out(values: np.ndarray, layout: str) -> Any:
    """The values as an array of that layout ("odd": at an address that is no multiple of the size)."""
    if layout == "F":
        return np.asfortranarray(values)
    if layout == "reversed":
        return values[..., ::-1].copy()[..., ::-1]
    if layout == "strided":
        room = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        room[..., ::2] = values
        return room[..., ::2]
    if layout == "odd":
        room = np.zeros(values.nbytes + 1, np.uint8)[1:].view(values.dtype).reshape(values.shape)
        room[...] = values
        return room
    if layout == "stretched" and values.ndim == 2 and values.size:
        return np.broadcast_to(values[:1], values.shape)
    if layout == "read-only":
        values.flags.writeable = False
    if layout == "list" and values.size and values.dtype.str in ("<f8", "<i8"):
        return values.tolist()
    return values.view(Named) if layout == "subclass" else values


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, Any]:
    rows, length = draw(st.sampled_from([(2, 3), (1, 1), (3, 4), (0, 3), (2, 0), (4, 12)]))
    found = {}
    dtypes = {name: draw(st.sampled_from(words)) for name, words in DTYPES.items()}
    whole = {*dtypes.values()} <= {"i8", "u8"}
    for name, shape in (("x", (rows, length)), ("w", (length,))):
        dtype = dtypes[name]
        top = draw(st.sampled_from([5, 5, 5, 2**40, 2**63])) if whole else 5
        edge = st.integers(-5 if dtype != "u8" else 0, 5)
        wide = st.sampled_from([top - 1, 1]) if top > 5 else edge
        size = int(np.prod(shape))
        values = draw(st.lists(edge | wide, min_size=size, max_size=size))
        held = np.array(values, dtype=dtype if top < 2**63 or dtype == "u8" else "i8").reshape(shape)
        if dtype == "u8" and top == 2**63 and held.size and draw(st.booleans()):
            held[0] = 2**63  # which nothing takes
        found[name] = laid_out(held, draw(st.sampled_from(LAYOUTS)))
    return found


def outcome(call: Any, arguments: dict[str, Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return call(**arguments)
    except RedalgError as refused:
        return type(refused), refused.what


def receiving(wanted: dict[str, np.ndarray], way: str, x: Any) -> dict[str, np.ndarray] | None:
    """Arrays for the results, one of them over an input where it fits."""
    if way == "fresh":
        return None
    out = {name: np.empty_like(value, order="F") for name, value in wanted.items()}
    fits = isinstance(x, np.ndarray) and x.dtype == out["y"].dtype and x.flags.writeable and type(x) is np.ndarray
    if way == "over x" and fits and not self_overlapping(x.shape, x.strides, x.itemsize):
        out["y"] = x
    return out


@pytest.mark.parametrize("target", ["cpu", "numpy"])
@examples(60)
@given(data=st.data())
def test_every_call_is_the_definition_whatever_came_before(target: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(2, 6))):
        given_arrays = data.draw(arrays())
        wanted = outcome(partial(ra.reference, form_of_text(SPEC).spec), given_arrays)
        if not isinstance(wanted, dict):
            assert not isinstance(outcome(run_of(target), given_arrays), dict)
            continue
        out = receiving(wanted, data.draw(st.sampled_from(["fresh", "own", "over x"])), given_arrays["x"])
        found = outcome(run_of(target), {"out": out, **given_arrays})
        assert isinstance(found, dict), found
        for name, value in wanted.items():
            assert found[name].dtype == value.dtype and found[name].shape == value.shape
            np.testing.assert_array_equal(found[name], value)
            assert out is None or found[name] is out[name]


@given(one=arrays(), other=arrays())
def test_calls_of_one_kind_agree_in_all_that_is_prepared(one: dict[str, Any], other: dict[str, Any]) -> None:
    try:
        kinds = [kind_of_call(("x", "w"), each)[1] for each in (one, other)]
    except Unkeyed:
        return
    like = [[(x.shape, x.strides, x.dtype) for x in each.values()] for each in (one, other)]
    assert (kinds[0] == kinds[1]) == (like[0] == like[1])


@pytest.mark.parametrize("bad", [{}, {"x": 1.0, "q": 2.0}, {"x": 2**63}, {"x": [1.0]}, {"x": np.ma.array([1.0])}])
def test_what_has_to_be_looked_at_first_is_of_no_kind(bad: dict[str, Any]) -> None:
    with pytest.raises(Unkeyed):
        kind_of_call(("x",), bad)


def test_numbers_are_of_their_type_and_tensors_of_their_library() -> None:
    kinds = {kind_of_call(("x",), {"x": x})[1] for x in (1, True, 1.0)}
    assert len(kinds) == 3
    torch = pytest.importorskip("torch")
    x = np.ones((2, 3))
    assert kind_of_call(("x",), {"x": x})[1] != kind_of_call(("x",), {"x": torch.from_numpy(x)})[1]
    with pytest.raises(Unkeyed):
        kind_of_call(("x",), {"x": torch.ones(2, requires_grad=True)})


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_results_lie_as_the_operand_does(order: tuple[int, ...]) -> None:
    """A permuted operand gives a result permuted alike, as NumPy's element-wise operations do; values are the same."""
    form = ra.derive_incremental(ra.parse("m = max[k](x[i,j,k]); return y = x[i,j,k] - m, m"))
    run = form.compile("cpu")
    x = np.random.default_rng(0).normal(size=(3, 4, 5)).transpose(order).copy().transpose(np.argsort(order))
    for view in (x, x[:, :, ::2], x[::-1, 1:], np.broadcast_to(x[:, :1], x.shape), x[:1], x[:0]):
        found = run(x=view)
        wanted = view - view.max(2, keepdims=True)
        np.testing.assert_array_equal(found["y"], wanted)
        np.testing.assert_array_equal(found["m"], view.max(2))
        if view is x:
            assert found["y"].strides == x.strides
