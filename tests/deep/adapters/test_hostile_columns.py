"""Columns as strangers have them: integers beyond 2**53 beside nulls and floats, keys of any type and name, no rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

pa = pytest.importorskip("pyarrow")

LARGE = 1 << 53
SUM, ROWS = "return total = sum[j](x[j])", "return top = max[j](x[j,k]), n = sum[j](where(x[j,k] > 0, 1, 0))"


def _polars(table: Any) -> Any:
    return pytest.importorskip("polars").from_arrow(table)


def _lazy(table: Any) -> Any:
    return _polars(table).lazy()


def _pandas(table: Any) -> Any:
    pd = pytest.importorskip("pandas")
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def _duckdb(table: Any) -> Any:
    return pytest.importorskip("duckdb").connect().from_arrow(table)


ENGINES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "arrow": ("arrow", lambda table: table),
    "batches": ("arrow", lambda table: table.to_batches() or [table.slice(0, 0).combine_chunks()]),
    "polars": ("polars", _polars),
    "lazy": ("polars", _lazy),
    "pandas": ("pandas", _pandas),
    "duckdb": ("duckdb", _duckdb),
}


def run(engine: str, form: ra.Form, table: Any, **options: Any) -> Any:
    method, made = ENGINES[engine]
    return getattr(form, method)(made(table), **options)


# --- matrices of columns ---------------------------------------------------------------------------------------------

NUMBERS = {
    "int64": st.sampled_from([LARGE + 1, -LARGE - 1, (1 << 62) + 1, 3, 0, -7]),
    "uint64": st.sampled_from([(1 << 63) - 1, LARGE + 1, 5, 0]),
    "int8": st.integers(-128, 127),
    "float64": st.sampled_from([0.5, -2.0, float("nan"), float("inf")]),
    "float32": st.sampled_from([0.5, -2.0]),
    "bool": st.booleans(),
}


@pytest.mark.parametrize("engine", ENGINES)
@examples(40)
@given(st.data())
def test_columns_side_by_side_are_exact_or_refused(engine: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    nulls = data.draw(st.sampled_from(["propagate", "skip"]))
    kinds = data.draw(st.lists(st.sampled_from(list(NUMBERS)), min_size=1, max_size=3))
    columns, missing = [], np.zeros(n, bool)
    for kind in kinds:
        values = data.draw(st.lists(st.one_of(NUMBERS[kind], st.none()), min_size=n, max_size=n))
        columns.append(pa.array(values, pa.bool_() if kind == "bool" else getattr(pa, kind)()))
        missing |= np.array([v is None for v in values])
    table = pa.table(columns, names=[f"c{k}" for k in range(len(kinds))])
    kept = table.filter(~missing) if nulls == "skip" else table
    own = [c.to_pylist() for c in kept.columns]
    floats = np.result_type(*kinds).kind == "f" or (nulls == "propagate" and missing.any())
    lost = floats and any(isinstance(v, int) and abs(v) > LARGE for c in own for v in c)
    form = form_of_text(ROWS)
    try:
        found = run(engine, form, table, x=list(table.column_names), nulls=nulls)
    except ra.RedalgError as error:
        held = [v for c in table.columns for v in c.to_pylist()]  # skipped rows may be refused, too
        large = any(isinstance(v, int) and abs(v) >= LARGE for v in held)
        assert large or (nulls == "propagate" and "bool" in kinds and missing.any()), error
        return
    assert not lost
    matrix = np.array([[np.nan if v is None else v for v in c] for c in own], np.float64 if floats else object).T
    matrix = matrix if floats else matrix.astype(np.result_type(*kinds))
    for name, value in ra.reference(form.spec, x=matrix.reshape(len(kept), len(kinds))).items():
        np.testing.assert_array_equal(found[name], value)


# --- keys ------------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["k", "code", "by:0", "x:0", "by", 'a "b"', "é", "index", "order by 1", "x[j]", "Total"])
KEYS: dict[str, tuple[Any, list[Any]]] = {
    "nanoseconds": (pa.timestamp("ns"), [1, 2, 3, None]),
    "durations": (pa.duration("ns"), [1, 2, -1, None]),
    "times": (pa.time64("ns"), [1, 2, 3, None]),
    "dates": (pa.date32(), [0, 1, -1, None]),
    "text": (pa.string(), ["a", "", "A", None]),
    "floats": (pa.float64(), [0.5, float("nan"), -1.0, None]),
    "integers": (pa.int64(), [LARGE + 1, LARGE, -1, None]),
    "unsigned": (pa.uint64(), [(1 << 64) - 1, (1 << 63) - 1, 0]),
    "bool": (pa.bool_(), [True, False, None]),
    "encoded": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "views": (pa.string_view(), ["a", "", "A", None]),
}


def _numbers(column: Any) -> list[Any]:
    """Keys as Python tells them apart, those of time as integers of their own unit."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return ["nan" if isinstance(v, float) and v != v else v for v in column.to_pylist()]


@pytest.mark.parametrize("engine", ["arrow", "batches", "polars", "lazy", "duckdb"])
@pytest.mark.parametrize("kind", KEYS)
@examples(12)
@given(st.data())
def test_groups_by_keys_of_any_type_and_name(engine: str, kind: str, data: st.DataObject) -> None:
    dtype, values = KEYS[kind]
    if engine == "duckdb" and kind in ("durations", "times"):
        return  # it has no such nanoseconds
    names = data.draw(st.lists(NAMES, min_size=1, max_size=2, unique_by=str.lower))
    n = data.draw(st.integers(0, 6))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=2))), n]
    first = pa.array(data.draw(st.lists(st.sampled_from(values), min_size=n, max_size=n)), dtype)
    keys = [first, pa.array(data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), pa.int16())][: len(names)]
    x = np.arange(1.0, n + 1)
    whole = pa.table([*keys, pa.array(x)], names=[*names, "value"])
    pieces = [whole.slice(a, b - a) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    table = pa.concat_tables(pieces)
    found = run(engine, form_of_text(SUM), table, x="value", by=names)
    found = found.to_arrow() if hasattr(found, "to_arrow") else found
    assert found.column_names == [*names, "total"]
    expected: dict[Any, float] = {}
    for row, value in zip(zip(*map(_numbers, keys), strict=True), x, strict=True):
        expected[row] = expected.get(row, 0.0) + value
    if kind == "nanoseconds" or engine != "duckdb":
        assert all(pa.types.is_temporal(found[names[0]].type) == pa.types.is_temporal(dtype) for _ in names)
    rows = list(zip(*(_numbers(found[name]) for name in names), strict=True))
    assert dict(zip(rows, found["total"].to_pylist(), strict=True)) == expected
    assert len(rows) == len(expected)


@examples(20)
@given(st.data())
def test_expressions_of_polars_are_the_frames_results_or_refused(data: st.DataObject) -> None:
    pl = pytest.importorskip("polars")
    kind = data.draw(st.sampled_from(["Int64", "UInt8", "Float32", "Float64", "Boolean"]))
    numbers = {"Boolean": st.booleans(), "UInt8": st.integers(0, 255), "Int64": NUMBERS["int64"]}
    values = data.draw(st.lists(numbers.get(kind, NUMBERS["float32"]), min_size=1, max_size=5))
    frame = pl.DataFrame({"x": values}, schema={"x": getattr(pl, kind)})
    for text in (
        "return m = max[j](x[j])",
        "return m = max[j](x[j]), n = sum[j](where(x[j] > 0, 1, 0))",
        "return y = x[j] - max[j](x[j])",
        "return y = x[j] > max[j](x[j])",
    ):
        form = form_of_text(text)
        true = form.polars(frame, x="x")
        true = true if isinstance(true, dict) else {next(iter(form.spec.outputs)): true}
        try:
            found = frame.select(form.polars(x="x")).to_series()
        except Exception as error:
            assert "which is asked for before" in str(error) and kind == "Int64"
            assert any(abs(int(v)) > LARGE for x in true.values() for v in np.asarray(x).ravel())
            continue
        rows = found.to_list()
        held = rows[0] if isinstance(rows[0], dict) else {next(iter(true)): rows if "y" in true else rows[0]}
        for name, value in true.items():
            assert held[name] == np.asarray(value).tolist()


# --- no rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_sources_without_rows_give_the_definition_and_its_dtypes(engine: str, dtype: str) -> None:
    kind = pa.bool_() if dtype == "bool" else getattr(pa, dtype)()
    none = pa.table({"x": pa.array([], kind), "w": pa.array([], kind), "k": pa.array([], pa.string())})
    for text in (
        SUM,
        "return m = max[j](x[j]), y = x[j] - max[j](x[j])",
        "return y = where(x[j] > 0, 1, 0)*sum[j](x[j])",
    ):
        form = form_of_text(text)
        found = run(engine, form, none, x="x")
        true = ra.reference(form.spec, x=np.zeros(0, dtype))
        for name in form.spec.outputs:
            mine, its = (v[name] if isinstance(v, dict) else v for v in (found, true))
            assert np.shape(mine) == np.shape(its) and np.asarray(mine).dtype == its.dtype, (text, name)
    matrix = run(engine, form_of_text(ROWS), none, x=["x", "w"])
    assert np.shape(matrix["top"]) == (2,) and matrix["n"].tolist() == [0, 0]
    if engine != "pandas":
        groups = run(engine, form_of_text(SUM), none, x="x", by=["k", "w"])
        groups = groups.to_arrow() if hasattr(groups, "to_arrow") else groups
        assert groups.num_rows == 0 and groups.column_names == ["k", "w", "total"]
        assert groups["w"].type == kind


# --- refusals --------------------------------------------------------------------------------------------------------

HELD = pa.table({"x": [1.0, 2.0], "k": ["a", "b"], "total": ["c", "d"], "s": [{"a": 1}, {"a": 2}]})
BAD: list[dict[str, Any]] = [
    {"by": []},
    {"by": "absent"},
    {"by": ["k", "k"]},
    {"by": "total"},
    {"by": "s"},
    {"x": []},
    {"x": None},
    {"x": 3},
    {"x": "absent"},
    {"x": "k"},
    {"x": ["x"]},
    {"nulls": "drop"},
    {"y": "x"},
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("options", BAD, ids=str)
def test_what_names_no_columns_is_refused_in_four_parts(engine: str, options: dict[str, Any]) -> None:
    if engine == "pandas" and options.get("by") in (["k", "k"], "total", "s"):
        return  # results are on pandas' index of groups, which takes these
    with pytest.raises(ra.RedalgError) as caught:
        run(engine, form_of_text(SUM), HELD, **options)
    assert caught.value.what and caught.value.where and caught.value.why and caught.value.fix


@pytest.mark.parametrize("engine", ["arrow", "batches", "pandas", "duckdb"])
def test_a_name_of_two_columns_is_refused(engine: str) -> None:
    table = pa.table([pa.array([1.0, 2.0]), pa.array([3.0, 4.0])], names=["x", "x"])
    if engine == "duckdb":
        connection = pytest.importorskip("duckdb").connect()
        with pytest.raises(ra.RedalgError, match="2 columns are called so"):
            form_of_text(SUM).duckdb(connection.sql("SELECT 1.0 AS x, 2.0 AS x"))
        return
    for form, options in ((SUM, {}), (ROWS, {"x": ["x"]}), (ROWS, {"x": "x"})):
        with pytest.raises(ra.RedalgError, match="2 columns are called so"):
            run(engine, form_of_text(form), table, **options)


@pytest.mark.parametrize("engine", ["pandas", "polars", "lazy"])
def test_columns_by_place_are_those_of_the_spec_in_its_order_and_no_more(engine: str) -> None:
    form = form_of_text("return y = sum[j](w[j]*x[j]) - max[j](x[j])")
    method, made = ENGINES[engine]
    frame = made(pa.table({"a": [1.0, 2.0], "b": [3.0, 5.0]}))
    call = getattr(form, method)
    assert call(frame, "a", "b") == call(frame, "b", w="a") == call(frame, w="a", x="b") == 8.0
    for names, named in ((("a", "b", "a"), {}), (("a", "b"), {"x": "a"}), (("a",), {"w": "a", "x": "b"})):
        with pytest.raises(ra.RedalgError, match="without a name"):
            call(frame, *names, **named)
        with pytest.raises(ra.RedalgError, match="without a name"):
            call(*names, **named)


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize("source", [{"x": [1.0]}, None, 3, np.ones((2, 2)), "resampler", "polars"])
def test_what_is_no_frame_of_pandas_is_refused(source: Any, by: str | None) -> None:
    pd = pytest.importorskip("pandas")
    if isinstance(source, str) and source == "polars":
        source = _polars(pa.table({"x": [1.0, 2.0], "k": [1, 2]}))
    elif isinstance(source, str):
        source = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.date_range("2026", periods=2)).resample("D")
    with pytest.raises(ra.RedalgError) as caught:
        form_of_text(SUM).pandas(source, x="x", by=by)
    assert caught.value.why and caught.value.fix


def test_columns_of_dask_are_refused_as_those_of_pandas() -> None:
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    form = form_of_text(SUM)
    frame = pd.DataFrame({"x": [1.0, 2.0], "k": ["a", "b"], "c": pd.Categorical(["u", "v"])})
    for column in ("k", "c", "absent"):
        with pytest.raises(ra.RedalgError, match=column):
            form.dask(dd.from_pandas(frame, npartitions=2), x=column)
    twice = dd.from_pandas(frame.rename(columns={"k": "x"}), npartitions=1)
    for options in ({}, {"by": "c"}):
        with pytest.raises(ra.RedalgError, match="2 columns are called so"):
            form.dask(twice, x="x", **options)
    assert float(form.dask(dd.from_pandas(frame, npartitions=2)).compute()) == 3.0
    with pytest.raises(ra.RedalgError, match="column 'x'"):
        form.dask(dd.from_pandas(frame[["k"]], npartitions=2))
