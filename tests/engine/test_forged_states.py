"""Documents with a right checksum that no stream leads to: refused where their parts say so, and never a crash.

Those of streams, with whatever numbers in them, are read.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.encoding import container
from redalg.streaming import Accumulator
from tests.support.profiles import examples

Document = tuple[dict[str, Any], dict[str, np.ndarray]]
TEXTS = {
    "list": "return v = topk[j:3:t](x[j]).values, i = topk[j:3:t](x[j]).indices",
    "place": "return y = argmin[j](x[j])",
    "count": "return n = sum[j](where(x[j] > 0, 1, 0)), a = any[j](x[j] > 3)",
    "ends": "return y = max[j](x[j]), s = sum[j](x[j])",
    "variance": "u = mean[j](x[i,j]); return v = mean[j]((x[i,j] - u)**2)",
    "norm": "return s = sqrt(sum[j](x[j]**2))",
    "logsumexp": "m = max[j](x[j]); return s = m + log(sum[j](exp(x[j] - m)))",
    "placed": "return y = sum[j](index[j] * x[j])",
    "composite": "return y = argmax[j,k](x[j,k])",
    "two": "u = mean[j](x[i,j]); return y = mean[j](abs(x[i,j] - u))",
}
X = np.array([3.0, -1.5, 0.25, 8.0, 8.0, 2.0])


@functools.cache
def form(name: str) -> ra.Form:
    axis = ["j", "k"] if name == "composite" else "j"
    return ra.derive_incremental(ra.parse(TEXTS[name]), axis=axis, max_passes=2 if name == "two" else 1)


def fed(name: str, x: Any = X, dtype: Any = np.float64, **options: Any) -> Accumulator:
    axes = form(name).spec.tensors[0].axes
    x = np.asarray(x)
    if len(axes) > 1:
        x = np.stack([x, x[::-1]], axis=1 - axes.index("j"))
    found = form(name).accumulator(**({"start": 0} if name == "placed" else {}), **options)
    found.update(x=x.astype(dtype))
    if name == "two":
        found.next_pass()
        found.update(x=x.astype(dtype))
    return found


def document(a: Accumulator) -> Document:
    return container.unpacked(a.to_bytes(), "test")


# --- what is impossible ----------------------------------------------------------------------------------------------


def put(part: str, value: Any, at: Any = ...) -> Callable[[Document], None]:
    def change(found: Document) -> None:
        name = next(name for name in found[1] if part in name + "/")
        found[1][name][at] = value

    return change


def said(**fields: Any) -> Callable[[Document], None]:
    return lambda found: found[0].update(fields)


def shaped(part: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Document], None]:
    def changed(found: Document) -> None:
        name = next(name for name in found[1] if part in name + "/")
        found[1][name] = np.ascontiguousarray(change(found[1][name]))

    return changed


IMPOSSIBLE: list[tuple[str, Callable[[Document], None], str, dict[str, Any]]] = [
    ("list", put("values", np.arange(3.0), (0, slice(None))), "descends", {}),
    ("list", shaped("values", lambda x: x[:, ::-1]), "descends", {}),
    ("list", put("indices", 3), "one entry", {}),
    ("list", put("indices", 6, (0, 2)), "positions lie in", {}),
    ("list", put("indices", -1, (0, 2)), "positions lie in", {}),
    ("list", put("indices", [4, 3, 0]), "descends", {}),
    ("list", put("indices", 1, (0, 2)), "2 entries", {"x": X[:2]}),
    ("list", put("values", -5.0, (0, 2)), "2 entries", {"x": X[:2]}),
    ("list", put("values", 300, (0, 0)), "between", {"dtype": np.int8}),
    ("place", put("argmin_x/", 6), "positions lie in [0, 6)", {}),
    ("place", put("argmin_x/", -1), "positions lie in", {}),
    ("place", put("argmin_x/", 9), "positions lie in [10, 16)", {"start": 10}),
    ("place", put("argmin_x/", 12), "positions lie in", {"start": 8, "deterministic": True}),
    ("composite", put("argmax_x/", 12), "positions lie in", {}),
    ("composite", said(intervals=[[0, 11]], stop=11), "intervals", {}),
    ("count", put("sum", -1), "between 0 and 6", {}),
    ("count", put("sum", 7), "between 0 and 6", {}),
    ("ends", put("max", -1), "between 0 and 255", {"x": abs(X), "dtype": np.uint8}),
    ("ends", put("sum", 2000), "between 0 and 1530", {"x": abs(X), "dtype": np.uint8}),
    ("variance", put("part/A_", np.nan), "finite", {}),
    ("variance", put("low/", np.inf), "finite", {}),
    ("norm", put("max_abs", -8.0), "not negative", {}),
    ("norm", put("part/S_", 3.0), "power of 2", {}),
    ("two", shaped("export/", lambda x: x[:1]), "shape", {}),
    ("two", shaped("export/", lambda x: x.astype(np.complex128)), "dtype", {}),
    ("two", said(expected=None), "expected", {}),
    ("two", said(expected=0), "expected", {}),
    ("variance", said(expected=6), "expected", {}),
    ("variance", said(ids=["7..4"]), "ids", {}),
    ("variance", said(ids=["04..9"]), "ids", {}),
    ("variance", said(ids=["3", "4"]), "ids", {}),
    ("variance", said(ids=[""]), "ids", {}),
    ("variance", said(beyond={"x": str(2**60)}), "beyond", {}),
    ("variance", said(beyond={"x": "12"}), "beyond", {"dtype": np.int64}),
    ("variance", said(sizes={"i": 1 << 62}), "sizes", {"x": X[:0]}),
]


@pytest.mark.parametrize(("name", "change", "why", "options"), IMPOSSIBLE)
def test_what_no_stream_leads_to_is_refused(
    name: str, change: Callable[[Document], None], why: str, options: dict[str, Any]
) -> None:
    found = document(fed(name, **options))
    assert form(name).from_bytes(container.packed(*found)).to_bytes() == container.packed(*found)
    change(found)
    with pytest.raises(ra.RedalgError) as caught:
        form(name).from_bytes(container.packed(*found))
    assert why in caught.value.why, caught.value
    assert caught.value.what and caught.value.where == "form.from_bytes" and caught.value.fix


# --- what is possible ------------------------------------------------------------------------------------------------

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e-200, 1e200, 1e308, -1e308, 1.0, 1.0, -2.0]


@examples(200)
@given(st.data())
def test_states_of_streams_are_read(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n for n in TEXTS if n != "two"]))
    whole = data.draw(st.booleans())
    number = st.sampled_from([0, 1, -1, 7, -128, 2**53 + 1, -(2**62)] if whole else SPECIAL)
    dtype = data.draw(st.sampled_from([np.int64] if whole else [np.float64, np.float32, np.float16]))
    options = {"deterministic": data.draw(st.booleans())}
    x = np.array(data.draw(st.lists(number, min_size=1, max_size=7)), np.int64 if whole else np.float64)
    found = document_of(name, x, dtype, options)
    assert form(name).from_bytes(container.packed(*found)).to_bytes() == container.packed(*found)


def document_of(name: str, x: np.ndarray, dtype: Any, options: Mapping[str, Any]) -> Document:
    a = fed(name, x[:0], dtype, **options)
    with np.errstate(all="ignore"), contextlib.suppress(ra.RedalgError):  # integers beyond int64
        a = fed(name, x, dtype, **options)
        if name != "placed" and not options["deterministic"]:
            a = a + a
    return document(a)


# --- anything else ---------------------------------------------------------------------------------------------------

NUMBERS = [-1, 0, 1, 5, 127, 2**40, 2**62, 2**63 - 1]
WORDS = ["", "skip", "float32", "int64", "uint64", "float16", "integer", "x", "4..2"]


def changed_array(data: st.DataObject, x: np.ndarray) -> np.ndarray:
    how = data.draw(st.integers(0, 3))
    with np.errstate(all="ignore"):
        if how == 0 and x.size:
            value = data.draw(st.sampled_from(SPECIAL if x.dtype.kind in "fc" else NUMBERS))
            x = x.copy()
            x.flat[data.draw(st.integers(0, x.size - 1))] = np.asarray(value).astype(x.dtype)
            return x
        if how == 1:
            return x.astype(data.draw(st.sampled_from(["f8", "f4", "f2", "i8", "u1", "bool", "c16"])))
    return np.concatenate([x, x], axis=-1) if how == 2 else x[..., :-1]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def change_header(data: st.DataObject, header: dict[str, Any]) -> None:
    *path, last = data.draw(st.sampled_from([*places(header)]))
    inside: Any = header
    for key in path:
        inside = inside[key]
    old = inside[last]
    if isinstance(old, list):
        inside[last] = data.draw(st.sampled_from([old + old, old[:-1]]))
    elif isinstance(old, bool) or old is None:
        inside[last] = data.draw(st.sampled_from([True, False, None, 6, {}, []]))
    else:
        near = [old + 1, old - 1, 2 * old] if isinstance(old, int) else []
        inside[last] = data.draw(st.sampled_from([*near, *(NUMBERS if isinstance(old, int) else WORDS)]))


@examples(600)
@given(st.data())
def test_a_forged_document_is_refused_or_a_state_of_the_form(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([*TEXTS]))
    options = data.draw(st.sampled_from([{}, {"start": 8, "deterministic": True}] if name != "placed" else [{}]))
    whole = fed(name, dtype=data.draw(st.sampled_from([np.float64, np.float32, np.int64])), **options)
    header, arrays = document(whole)
    header = json.loads(json.dumps(header))
    for _ in range(data.draw(st.integers(1, 2))):
        part = data.draw(st.sampled_from([*arrays])) if data.draw(st.booleans()) else ""
        if part:
            arrays[part] = changed_array(data, arrays[part])
        else:
            change_header(data, header)
    with np.errstate(all="ignore"):
        try:
            found = form(name).from_bytes(container.packed(header, arrays))
        except ra.RedalgError:
            return
        assert form(name).from_bytes(found.to_bytes()).to_bytes() == found.to_bytes()
        for use in (lambda: found.state, found.result, lambda: found + whole, lambda: found + found):
            try:
                use()
            except ra.RedalgError:
                pass
