"""An array without a name, where a spec has one tensor: every way to call a form, and the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import redalg as ra
from redalg.errors import RedalgError
from tests.support.forms import form_of_text

VARIANCE = "u = mean[j](x[i,j]); return v = mean[j]((x[i,j] - u)**2)"
CENTRED = "return d = x[j] - max[j](x[j])"
X = np.random.default_rng(0).standard_normal((3, 7))


def _streamed(*given: Any, **named: Any) -> Any:
    acc = form_of_text(VARIANCE).accumulator()
    acc.update(*given, **named)
    return acc.result()


def _grouped(*given: Any, **named: Any) -> Any:
    groups = form_of_text(VARIANCE).grouped()
    groups.update(*given, by=np.zeros(7, int), **named)
    return groups.result()[1][0]


CALLS: dict[str, Callable[..., Any]] = {
    "numpy": form_of_text(VARIANCE).compile("numpy"),
    "cpu": form_of_text(VARIANCE).compile("cpu"),
    "definition": lambda *given, **named: ra.reference(form_of_text(VARIANCE).spec, *given, **named),
    "exact": lambda *given, **named: ra.reference(form_of_text(VARIANCE).spec, *given, exact=True, **named),
    "accumulator": _streamed,
    "groups": _grouped,
}


@pytest.mark.parametrize("call", CALLS)
def test_one_array_is_the_one_tensor(call: str) -> None:
    for x in (X, X.tolist(), X[::-1], X.astype("f4")):
        np.testing.assert_array_equal(np.asarray(CALLS[call](x)), np.asarray(CALLS[call](x=x)))


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_one_array(call: str) -> None:
    for given, named, why in (((X, X), {}, "takes x, and one"), ((X,), {"x": X}, "by name as well")):
        with pytest.raises(RedalgError, match="without a name") as refused:
            CALLS[call](*given, **named)
        assert why in str(refused.value)


def test_numbers_and_readings_are_no_tensors() -> None:
    """Scalars go by name, and one array that is read along two axes is one tensor."""
    x, c = ra.tensors("x[j]"), ra.scalar("c")
    scaled = ra.derive_incremental(ra.Spec(s=ra.sum(x * c, "j"))).compile("numpy")
    assert scaled([1.0, 2.0], c=3.0) == 9
    y = ra.tensors("y[j,a]")
    gram = ra.derive_incremental(ra.Spec(g=ra.sum(y * y["j", "b"], "j")))
    np.testing.assert_allclose(gram.compile("numpy")(X.T), X @ X.T)
    acc = gram.accumulator()
    acc.update(X.T[:3])
    acc.update(X.T[3:3])
    acc.update(X.T[3:])
    np.testing.assert_allclose(acc.result(), X @ X.T)


def test_several_tensors_have_names() -> None:
    form = form_of_text("return s = sum[j](x[j]*y[j])")
    for call in (form.compile("numpy"), form.compile("cpu"), lambda *given: ra.reference(form.spec, *given)):
        with pytest.raises(RedalgError, match="it takes x, y"):
            call([1.0])


def test_chunks_without_a_name_beside_arrays_for_all() -> None:
    """Of an accumulator that was given the tensors without the axis, one is left."""
    form = ra.derive_incremental(ra.parse("return s = sum[j](q[d]*k[j,d])"), axis="j")
    acc = form.accumulator(q=[1.0, 2.0])
    acc.update([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(acc.result(), [4.0, 12.0])


def test_rows_of_a_chunk_without_a_name() -> None:
    acc = form_of_text(CENTRED).accumulator()
    acc.update([1.0, 5.0])
    acc.update([])
    np.testing.assert_array_equal(acc.apply([1.0, 2.0]), [-4.0, -3.0])
    np.testing.assert_array_equal(acc.apply(x=[1.0, 2.0]), acc.apply([1.0, 2.0], start=0))
    with pytest.warns(DeprecationWarning, match="start="):
        np.testing.assert_array_equal(acc.apply(0, x=[1.0, 2.0]), [-4.0, -3.0])
