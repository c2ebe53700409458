"""`form.arrow` and `form.duckdb`: datasets, tables, readers and relations give the definition's result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.engine_frames import FORMS, Table, assert_by_group, assert_whole, form, tables
from tests.support.forms import form_of_text
from tests.support.profiles import examples

pa = pytest.importorskip("pyarrow")


def batches(table: Table, text: bool = True) -> list[Any]:
    schema = pa.schema([("x", pa.float64()), ("w", pa.float64()), ("k", pa.string() if text else pa.int32())])
    rows = [{**table.part(a, b), "k": table.keys[a:b]} for a, b in table.pieces()]
    return [pa.record_batch({n: pa.array(r[n], schema.field(n).type) for n in schema.names}) for r in rows]


@pytest.mark.parametrize("keys", ["text", "integers"])
@pytest.mark.parametrize("name", FORMS)
@examples(15)
@given(st.data())
def test_batches_tables_readers_and_groups(name: str, keys: str, data: st.DataObject) -> None:
    table, f = data.draw(tables(keys)), form(name)
    held = batches(table, keys == "text")
    whole = pa.Table.from_batches(held)
    encoded = whole.set_column(2, "k", whole["k"].dictionary_encode().unify_dictionaries())
    once = len(f.plan.passes) == 1
    for source in (held, whole, encoded, *([pa.RecordBatchReader.from_batches(whole.schema, held)] if once else [])):
        found = f.arrow(source, by="k")
        assert found.column_names == ["k", *f.spec.outputs]
        assert found["k"].to_pylist() == list(dict.fromkeys(table.keys))
        values = {n: found[n].to_numpy() for n in f.spec.outputs}
        assert_by_group(f, found["k"].to_pylist(), values, table, null_group=True)
    if table.rows:
        assert_whole(f, f.arrow(whole), table)
        assert_whole(f, f.arrow(held), table)
    two = f.arrow(whole, by=["k", "w"], sort=True)
    assert len(two) == len(set(zip(table.keys, table.columns["w"].tolist(), strict=True)))


def test_a_folder_of_parquet(tmp_path: Path) -> None:
    parquet, dataset = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.dataset")
    rng = np.random.default_rng(1)
    x, k = rng.normal(size=1000), rng.integers(0, 7, 1000)
    for part, (a, b) in enumerate([(0, 300), (300, 300), (300, 1000)]):
        parquet.write_table(pa.table({"x": x[a:b], "k": k[a:b], "rest": ["…"] * (b - a)}), tmp_path / f"{part}.parquet")
    for name in ("moments", "two passes", "positions"):
        f = form(name)
        found = f.arrow(dataset.dataset(tmp_path), by="k", sort=True)
        assert found["k"].to_pylist() == sorted(set(k.tolist()))
        table = Table({"x": x, "w": x}, k.tolist(), [0, 1000])
        values = {n: found[n].to_numpy() for n in f.spec.outputs}
        assert_by_group(f, found["k"].to_pylist(), values, table, null_group=True)
        assert_whole(f, f.arrow(dataset.dataset(tmp_path)), table)
    with pytest.raises(ra.RedalgError, match="columns are"):
        form("moments").arrow(dataset.dataset(tmp_path), x="y")
    softmax = form_of_text("return p = exp(x[j] - max[j](x[j])) / sum[j](exp(x[j] - max[j](x[j])))")
    np.testing.assert_allclose(softmax.arrow(dataset.dataset(tmp_path)), np.exp(x) / np.exp(x).sum())


def test_nulls_matrices_and_what_is_read_once() -> None:
    held = pa.table({"k": ["a", "a", None], "x": [1.0, None, 3.0], "w": [1.0, 1.0, 2.0]})
    f = form("weighted mean")
    assert f.arrow(held, nulls="skip") == pytest.approx(7 / 3)
    assert f.arrow(held, by="k", nulls="skip").to_pylist() == [{"k": "a", "v": 1.0}, {"k": None, "v": 3.0}]
    assert np.isnan(f.arrow(held))
    with pytest.raises(ra.RedalgError, match="null"):
        f.arrow(held, nulls="error")
    with pytest.raises(ra.RedalgError, match="read once"):
        form("two passes").arrow(held.to_reader())
    rows = form_of_text("return c = mean[j](X[j,a])")
    np.testing.assert_allclose(rows.arrow(held.slice(0, 1), X=["x", "w"]), [1.0, 1.0])
    np.testing.assert_allclose(rows.arrow(held, X=["x", "w"], nulls="skip"), [2.0, 1.5])


@pytest.mark.parametrize("name", ["weighted mean", "moments", "two passes"])
@examples(10)
@given(st.data())
def test_duckdb_relations(name: str, data: st.DataObject) -> None:
    duckdb = pytest.importorskip("duckdb")
    table, f = data.draw(tables()), form(name)
    whole = pa.Table.from_batches(batches(table))
    with duckdb.connect() as connection:
        relation = connection.from_arrow(whole)
        if table.rows:
            assert_whole(f, f.duckdb(relation), table)
        found = f.duckdb(relation, by="k")
        values = {n: found[n].to_numpy() for n in f.spec.outputs}
        assert_by_group(f, found["k"].to_pylist(), values, table, null_group=True)
        named = relation.project('x AS "odd ""name", w, k')
        assert f.duckdb(named, x='odd "name', by="k").num_rows == found.num_rows
        with pytest.raises(ra.RedalgError, match="columns are"):
            f.duckdb(relation, x="nothing")


def test_keys_over_batches_with_and_without_nulls() -> None:
    f = form_of_text("return s = sum[j](x[j])")
    keys = [[0, 5], [None, 7], [2**53, 2**53 + 1], [], [5, None]]
    held = [pa.record_batch({"k": pa.array(k, pa.int64()), "x": pa.array(np.arange(1.0, 1 + len(k)))}) for k in keys]
    for source in (held, held[::-1]):
        found = f.arrow(source, x="x", by="k")
        want = {0: 1.0, 5: 3.0, None: 3.0, 7: 2.0, 2**53: 1.0, 2**53 + 1: 2.0}
        assert dict(zip(found["k"].to_pylist(), found["s"].to_pylist(), strict=True)) == want
    assert f.arrow([pa.Table.from_batches(held)], x="x", by="k").num_rows == 6


def test_many_key_columns_keep_their_rows() -> None:
    draw, rows = np.random.default_rng(0), 1 << 14  # rows**5 overflows 64 bits
    keys = pa.table({name: draw.permutation(rows) for name in "abcde"})
    found = form_of_text("return s = sum[j](x[j])").arrow(
        keys.append_column("x", pa.array(np.ones(rows))), x="x", by=keys.column_names
    )
    assert found.select(keys.column_names).equals(keys)
