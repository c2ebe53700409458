"""`form.polars`: frames, lazy frames, groups and expressions give the definition's result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.engine_frames import FORMS, Table, assert_by_group, assert_whole, form, tables
from tests.support.forms import form_of_text
from tests.support.profiles import examples

pl = pytest.importorskip("polars")


def frame(table: Table, text: bool) -> Any:
    parts = [
        pl.DataFrame(
            {**table.part(a, b), "k": table.keys[a:b]},
            schema={"x": pl.Float64, "w": pl.Float64, "k": pl.String if text else pl.Int64},
        )
        for a, b in table.pieces()
    ]
    return pl.concat(parts, rechunk=False)


@pytest.mark.parametrize("keys", ["text", "integers"])
@pytest.mark.parametrize("name", FORMS)
@examples(15)
@given(st.data())
def test_frames_lazy_frames_and_groups(name: str, keys: str, data: st.DataObject) -> None:
    table, f = data.draw(tables(keys)), form(name)
    held = frame(table, keys == "text")
    for source in (held, held.lazy()):
        if table.rows:
            assert_whole(f, f.polars(source), table)
        found = f.polars(source, by="k")
        assert found.columns == ["k", *f.spec.outputs] and found["k"].to_list() == list(dict.fromkeys(table.keys))
        values = {n: found[n].to_numpy() for n in f.spec.outputs}
        assert_by_group(f, found["k"].to_list(), values, table, null_group=True)
    two = f.polars(held, by=["k", pl.col("w") > 1], sort=True)
    assert len(two) == len({(k, w > 1) for k, w in zip(table.keys, table.columns["w"], strict=True)})


@pytest.mark.parametrize("name", ["weighted mean", "moments", "two passes"])
@examples(15)
@given(st.data())
def test_expressions(name: str, data: st.DataObject) -> None:
    table, f = data.draw(tables(least=1)), form(name)
    held = frame(table, True)
    alias = "_".join(f.spec.outputs)
    one = held.select(f.polars())
    assert_whole(f, one.item(), table)
    found = held.group_by("k", maintain_order=True).agg(f.polars())
    rows = found[alias].to_list()
    values = {n: np.array([r[n] if len(f.spec.outputs) > 1 else r for r in rows]) for n in f.spec.outputs}
    assert_by_group(f, found["k"].to_list(), values, table, null_group=True)


def test_maps_over_groups_matrices_and_policies() -> None:
    rng = np.random.default_rng(2)
    held = pl.DataFrame({"k": rng.integers(0, 3, 30), "x": rng.normal(size=30), "w": rng.random(30)})
    share = form_of_text("return p = x[j] / sum[j](x[j])")
    found = held.with_columns(share.polars(x="w").over("k"))
    np.testing.assert_allclose(found["p"], held.select(pl.col("w") / pl.col("w").sum().over("k"))["w"])
    assert share.polars(held, x="w").name == "p"
    moments = form_of_text("u = mean[j](X[j,a]); return c = mean[j]((X[j,a] - u)**2)")
    expected = held.select(pl.col("x", "w").var(ddof=0)).row(0)
    np.testing.assert_allclose(moments.polars(held, X=["x", "w"]), expected)
    np.testing.assert_allclose(held.select(moments.polars(X=["x", "w"])).item().to_list(), expected)
    gaps = pl.DataFrame({"k": ["a", "a", "b"], "x": [1.0, None, 3.0], "w": [1.0, 1.0, None]})
    f = form("weighted mean")
    assert f.polars(gaps, nulls="skip") == 1.0
    assert f.polars(gaps.slice(0, 2), by="k", nulls="skip")["v"].to_list() == [1.0]
    with pytest.raises(ra.RedalgError, match="null"):
        f.polars(gaps, nulls="error")


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ([0, 5, None, 7, 2**53, 2**53 + 1, 5], "Int64"),
        ([None, 7, 0, 5], "Int64"),
        ([np.nan, 0.0, np.nan, -0.0, np.inf, None], "Float64"),
        ([2**63 + 1, 3, 2**63 + 1], "UInt64"),
        ([], "String"),
    ],
)
def test_keys_over_batches(keys: list[Any], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redalg.adapters.polars.BATCH", 2)
    held = pl.DataFrame({"k": pl.Series(keys, dtype=getattr(pl, dtype)), "x": np.arange(1.0, 1 + len(keys))})
    want = held.group_by("k", maintain_order=True).agg(s=pl.col("x").sum())
    f = form_of_text("return s = sum[j](x[j])")
    for source in (held, held.lazy()):
        assert f.polars(source, x="x", by="k").equals(want)
