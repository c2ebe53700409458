"""Keys and columns of frames of any kind: groups are those of pandas' own groupby, or are refused in four parts."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

pd: Any = pytest.importorskip("pandas")
pa: Any = pytest.importorskip("pyarrow")
TOTAL = "return total = sum[j](x[j])"

KEYS: dict[str, tuple[list[Any], Any]] = {
    "text": (["b", "a", None], object),
    "text of pandas": (["b", "a", None], "string"),
    "floats": ([1.0, float("nan"), float("inf"), -2.0], "float64"),
    "half floats": ([1.0, float("nan"), -2.0], "float16"),
    "nullable": ([1, (1 << 60) + 1, 1 << 60, None], "Int64"),
    "unsigned": ([1, (1 << 63) + 1], "uint64"),
    "swapped": ([3, 1], ">i4"),
    "mixed": ([1, "a", (1, 2), None], object),
    "dates": ([pd.Timestamp("2020"), pd.NaT, pd.Timestamp("2021")], "datetime64[ns]"),
    "zoned": ([pd.Timestamp("2020", tz="UTC"), pd.NaT], "datetime64[ns, UTC]"),
    "periods": ([pd.Period("2020", "Y"), pd.NaT], "period[Y]"),
    "intervals": ([pd.Interval(0, 1), pd.Interval(1, 2)], "interval"),
    "decimals": ([Decimal(1), Decimal("2.5")], object),
    "days": ([date(2020, 1, 1), None], object),
    "categories": (["low", "high", None], pd.CategoricalDtype(["none", "low", "high"])),
    "ordered": ([3, 1, None], pd.CategoricalDtype([3, 2, 1], ordered=True)),
    "Arrow's": ([1, 2, None], pd.ArrowDtype(pa.int64())),
    "bytes": ([5, -5], "int8"),
}
VALUES = {"float64": ([1.0, -2.5, float("nan")]), ">f8": [1.0, -2.5, 4.0], ">i2": [1, -2, 300], "bool": [True, False]}


def _frame(data: st.DataObject, first: str, second: str, values: str) -> Any:
    n = data.draw(st.integers(1, 7), label="rows")
    columns = {"x": pd.Series(np.array(data.draw(_lists(VALUES[values], n)), values))}
    for name, kind in (("k", first), ("l", second)):
        given, dtype = KEYS[kind]
        drawn = data.draw(_lists(given, n))
        columns[name] = pd.Series(np.array(drawn, dtype) if kind == "swapped" else pd.array(drawn, dtype=dtype))
    frame = pd.DataFrame(columns)
    frame.index = data.draw(_lists([0, 1], n))
    return frame


def _lists(values: list[Any], n: int) -> Any:
    return st.lists(st.sampled_from(values), min_size=n, max_size=n)


def _own(frame: Any, by: Any, sort: bool) -> Any:
    """What pandas' groups add up to; None where it makes none."""
    try:
        groups = frame.astype({"x": frame["x"].dtype.newbyteorder("=")}).groupby(by, sort=sort, observed=True)
        return groups["x"].agg(lambda part: part.sum(skipna=False))
    except (TypeError, ValueError, NotImplementedError):
        return None


def _assert_alike(found: Any, own: Any) -> None:
    assert [str(k) for k in found.index] == [str(k) for k in own.index]
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(own, float))


@pytest.mark.parametrize("first", KEYS)
@examples(20)
@given(
    st.data(),
    st.sampled_from([k for k in KEYS if k != "swapped"]),
    st.sampled_from([*VALUES]),
    st.booleans(),
    st.booleans(),
)
def test_groups_of_pandas(first: str, data: st.DataObject, second: str, values: str, sort: bool, both: bool) -> None:
    both &= first != "swapped"  # pandas does not list an index of these
    frame, by = _frame(data, first, second, values), ["k", "l"] if both else "k"
    own = _own(frame, by, sort)
    if own is None:
        with pytest.raises(ra.RedalgError) as refused:
            form_of_text(TOTAL).pandas(frame, x="x", by=by, sort=sort)
        assert refused.value.why and refused.value.fix
        return
    found = form_of_text(TOTAL).pandas(frame, x="x", by=by, sort=sort)
    assert found.index.dtype == own.index.dtype
    _assert_alike(found, own)


@pytest.mark.parametrize("first", [k for k in KEYS if k not in ("mixed", "intervals", "half floats", "swapped")])
@examples(4)
@given(st.data(), st.sampled_from(["bytes", "categories", "ordered"]), st.booleans())
def test_groups_of_dask_have_the_keys_dtype_and_order(first: str, data: st.DataObject, second: str, both: bool) -> None:
    dask, dd = pytest.importorskip("dask"), pytest.importorskip("dask.dataframe")
    frame, by = _frame(data, first, second, data.draw(st.sampled_from([*VALUES]))), ["k", "l"] if both else "k"
    own = _own(frame, by, True)
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "sync"}):
        lazy = form_of_text(TOTAL).dask(dd.from_pandas(frame.reset_index(drop=True), npartitions=2), x="x", by=by)
        found = lazy.compute()
    if len(own) and KEYS[first][1] is not object:
        assert found.index.dtype == own.index.dtype == lazy._meta.index.dtype
    _assert_alike(found, own)


def test_intervals_of_dask_are_refused_in_words() -> None:
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"x": [1.0, 2.0], "k": pd.arrays.IntervalArray.from_breaks([0, 1, 2])})
    with pytest.raises(ra.RedalgError, match="groups of the columns k, x"):
        form_of_text(TOTAL).dask(dd.from_pandas(frame, npartitions=1), x="x", by="k")


@pytest.mark.parametrize("lazy", [False, True])
@given(st.lists(st.sampled_from([float("nan"), None, 1.0, -0.0, 0.0]), min_size=1, max_size=3))
def test_few_rows_of_polars_have_keys_that_are_nan(lazy: bool, keys: list[Any]) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"k": pl.Series(keys, dtype=pl.Float64), "x": np.arange(1.0, len(keys) + 1)})
    found = form_of_text(TOTAL).polars(frame.lazy() if lazy else frame, x="x", by="k")
    expected: dict[str, float] = {}
    for k, key in enumerate(keys):
        label = str(key if key is None else key + 0.0)
        expected[label] = expected.get(label, 0.0) + k + 1
    assert {str(k if k is None else k + 0.0): v for k, v in found.rows()} == expected


@pytest.mark.parametrize("kind", ["objects", "list", "text", "categories", "nullable", "Arrow's"])
@given(st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=5))
def test_keys_of_dasks_arrays_are_columns_of_any_library(kind: str, keys: list[Any]) -> None:
    da = pytest.importorskip("dask.array")
    codes = [None if k is None else 1 + (k == "b") for k in keys]
    by: Any = {
        "objects": lambda: np.array(keys, object),
        "list": lambda: keys,
        "text": lambda: pd.Series(keys),
        "categories": lambda: pd.Series(pd.Categorical(keys, categories=["b", "a"])),
        "nullable": lambda: pd.Series(codes, dtype="Int64"),
        "Arrow's": lambda: pa.array(codes, pa.int64()),
    }[kind]()
    x = da.from_array(np.arange(1.0, len(keys) + 1), chunks=2)
    found, sums = (part.compute(scheduler="sync") for part in form_of_text(TOTAL).dask(x=x, by=by))
    expected: dict[Any, float] = {}
    for key, value in zip(codes if kind in ("nullable", "Arrow's") else keys, range(1, len(keys) + 1), strict=True):
        expected[key] = expected.get(key, 0.0) + value
    plain = [None if key is None or key != key else key for key in found.tolist()]
    assert dict(zip(plain, sums.tolist(), strict=True)) == expected
