"""Columns that hold numbers as codes, runs or in 128 bits: what Python makes of their elements, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text

LARGE = (1 << 60) + 1
TOTAL = "return total = sum[j](x[j])"


def _pieces(values: list[Any], cut: int, encode: Any) -> Any:
    pa = pytest.importorskip("pyarrow")
    parts = [encode(pa, part) for part in ([], values[:cut], values[cut:])]
    return pa.chunked_array(parts, parts[0].type)


def _dictionary(values: list[Any], cut: int) -> Any:
    pa = pytest.importorskip("pyarrow")
    padded = pa.array([7, *values, None], pa.int64()).dictionary_encode()
    return padded.slice(1, len(values))


def _runs(pa: Any, values: list[Any]) -> Any:
    return pytest.importorskip("pyarrow.compute").run_end_encode(pa.array(values, pa.int64()))


def _backed(values: list[Any], cut: int) -> Any:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    held = _pieces(values, cut, lambda pa, part: pa.array(part, pa.int64()).dictionary_encode())
    return pd.Series(pd.array(held, dtype=pd.ArrowDtype(held.type))) if pa else None


KINDS = {
    "dictionary": _dictionary,
    "dictionary in chunks": lambda v, cut: _pieces(v, cut, lambda pa, p: pa.array(p, pa.int64()).dictionary_encode()),
    "runs in chunks": lambda v, cut: _pieces(v, cut, _runs),
    "categories": lambda v, cut: pytest.importorskip("pandas").Series(pytest.importorskip("pandas").Categorical(v)),
    "backed by Arrow": _backed,
    "128 bits": lambda v, cut: pytest.importorskip("polars").Series(v, dtype=pytest.importorskip("polars").Int128),
}
NUMBERS = st.lists(st.sampled_from([None, LARGE, -LARGE, 3, 3, 5, 0]), min_size=1, max_size=7)


def _fed(kind: str, values: list[Any], cut: int, nulls: str, grouped: bool) -> Any:
    form, column = form_of_text(TOTAL), KINDS[kind](values, cut)
    if grouped:
        groups = form.grouped(nulls=nulls)
        groups.update(by=[0] * len(values), x=column)
        return groups.result()[1][0]
    acc = form.accumulator(nulls=nulls)
    acc.update(x=column)
    return acc.result()[()]


@pytest.mark.parametrize("kind", KINDS)
@given(NUMBERS, st.integers(0, 7), st.sampled_from(["propagate", "skip", "error"]), st.booleans())
def test_sums_are_those_of_the_elements_or_refused(
    kind: str, values: list[Any], cut: int, nulls: str, grouped: bool
) -> None:
    kept = [v for v in values if v is not None]
    refused = kind == "128 bits" or (nulls == "error" and None in values)
    refused |= nulls == "propagate" and None in values and LARGE in map(abs, kept)
    try:
        found = _fed(kind, values, cut, nulls, grouped)
    except ra.RedalgError as error:
        assert refused, error
        assert error.fix and error.where and error.why
        assert nulls != "propagate" or kind == "128 bits" or str(LARGE) in error.why, "the witness is what is held"
        return
    assert not refused
    if nulls == "propagate" and None in values:
        assert np.isnan(found)
    else:
        assert int(found) == sum(kept)


@pytest.mark.parametrize("kind", ["dictionary in chunks", "runs in chunks", "categories", "128 bits"])
@given(NUMBERS, st.integers(0, 7))
def test_keys_are_the_elements(kind: str, values: list[Any], cut: int) -> None:
    groups = form_of_text(TOTAL).grouped()
    groups.update(by=KINDS[kind](values, cut), x=np.arange(1.0, len(values) + 1))
    keys, found = groups.result()
    expected: dict[Any, float] = {}
    for k, v in enumerate(values):
        expected[v] = expected.get(v, 0.0) + k + 1
    assert dict(zip((None if k != k else k for k in keys.tolist()), found, strict=True)) == expected


def _frame(library: str, columns: list[list[Any]], cut: int) -> Any:
    pa = pytest.importorskip("pyarrow")
    if library == "polars":
        return pytest.importorskip("polars").DataFrame({f"{k}": c for k, c in enumerate(columns)}, schema=["0", "1"])
    arrays = [pa.array(c, pa.int64()) for c in columns]
    whole = pa.table(arrays, names=["0", "1"])
    if library == "encoded":
        pieces = [_pieces(c, cut, lambda pa, p: pa.array(p, pa.int64()).dictionary_encode()) for c in columns]
        return pa.table(pieces, names=["0", "1"])
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


@pytest.mark.parametrize("library", ["polars", "arrow", "encoded"])
@given(
    st.lists(st.tuples(*[st.sampled_from([None, LARGE, 3, 5, 0])] * 2), min_size=1, max_size=5),
    st.integers(0, 5),
    st.sampled_from(["propagate", "skip", "error"]),
)
def test_frames_that_stand_for_matrices(library: str, rows: list[Any], cut: int, nulls: str) -> None:
    columns = [list(c) for c in zip(*rows, strict=True)]
    kept = [row for row in rows if None not in row]
    acc = form_of_text("return total = sum[j](x[j,a])").accumulator(nulls=nulls)
    missing = len(kept) < len(rows)
    mixed = any(LARGE in c for c in columns) and missing
    try:
        acc.update(x=_frame(library, columns, min(cut, len(rows))))
    except ra.RedalgError as error:
        assert nulls == "error" and missing or nulls == "propagate" and mixed or _typeless(rows), error
        return
    if missing and nulls == "propagate":
        assert np.isnan(np.asarray(acc.result(), float)).any()
    else:
        assert [int(v) for v in acc.result()] == [sum(row[k] for row in kept) for k in range(2)]


def _typeless(rows: list[Any]) -> bool:
    """Whether a column has nulls alone, which says nothing of numbers."""
    return any(all(v is None for v in c) for c in zip(*rows, strict=True))
