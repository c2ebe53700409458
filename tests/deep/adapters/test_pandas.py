"""`form.pandas`: what pandas groups and hands out gives the definition's result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.engine_frames import FORMS, Table, assert_by_group, assert_whole, form, named, tables
from tests.support.forms import form_of_text
from tests.support.profiles import examples

pd = pytest.importorskip("pandas")


def frame(table: Table) -> Any:
    return pd.DataFrame({**table.columns, "k": pd.Series(table.keys, dtype=object)})


@pytest.mark.parametrize("name", FORMS)
@examples(25)
@given(st.data())
def test_whole_frames_and_groups(name: str, data: st.DataObject) -> None:
    table, f = data.draw(tables()), form(name)
    held = frame(table)
    if table.rows:
        assert_whole(f, f.pandas(held), table)
    for found in (f.pandas(held, by="k"), f.pandas(held.groupby("k"))):
        values = {c: found[c].to_numpy() for c in found} if found.ndim == 2 else named(f, found.to_numpy())
        assert_by_group(f, found.index.tolist(), values, table, null_group=False)
        assert found.index.name == "k" and found.index.is_monotonic_increasing
    kept = f.pandas(held.groupby("k", dropna=False))
    assert len(kept) == len(set(table.keys))


@pytest.mark.parametrize("name", ["weighted mean", "moments", "two passes"])
@examples(15)
@given(st.data())
def test_functions_that_pandas_calls(name: str, data: st.DataObject) -> None:
    table, f = data.draw(tables(least=1, nulls=False)), form(name)
    found = frame(table).groupby("k")[["x", "w"]].apply(f.pandas(x="x"))
    values = {c: found[c].to_numpy() for c in found} if found.ndim == 2 else named(f, found.to_numpy())
    values = {n: v.astype(np.int64) if n == "n" else v for n, v in values.items()}  # a frame of rows is float64
    assert_by_group(f, found.index.tolist(), values, table, null_group=False)


def test_agg_transform_matrices_and_several_keys() -> None:
    rng = np.random.default_rng(2)
    held = pd.DataFrame({"k": rng.integers(0, 3, 30), "c": rng.integers(0, 2, 30), "x": rng.normal(size=30)})
    held["w"] = rng.random(30)
    variance = form_of_text("return v = var[j:1](x[j])")
    expected = held.groupby("k")["x"].var()
    np.testing.assert_allclose(held.groupby("k")["x"].agg(variance.pandas()), expected)
    np.testing.assert_allclose(variance.pandas(held, by=["k", "c"]), held.groupby(["k", "c"])["x"].var())
    assert variance.pandas(held, by=["k", "c"]).index.equals(held.groupby(["k", "c"])["x"].var().index)
    share = form_of_text("return p = x[j] / sum[j](x[j])")
    np.testing.assert_allclose(
        held.groupby("k")["w"].transform(share.pandas()), held["w"] / held.groupby("k")["w"].transform("sum")
    )
    assert share.pandas(held, x="w").index.equals(held.index)
    covariance = form_of_text("u = mean[j](X[j,a]); return c = mean[j]((X[j,a] - u)**2)")
    np.testing.assert_allclose(covariance.pandas(held, X=["x", "w"]), held[["x", "w"]].var(ddof=0))
    rows = covariance.pandas(held, X=["x", "w"], by="k")
    np.testing.assert_allclose(np.stack(rows.tolist()), held.groupby("k")[["x", "w"]].var(ddof=0))
    turned = form_of_text("return c = mean[j](X[a,j])", axis="j")
    np.testing.assert_allclose(turned.pandas(held, X=["x", "w"]), held[["x", "w"]].mean())


def test_nulls_by_policy() -> None:
    held = pd.DataFrame({"k": ["a", "a", "b", "b"], "x": [1.0, np.nan, 3.0, 5.0], "w": [1, 1, None, 1]})
    f = form("weighted mean")
    assert f.pandas(held, by="k", nulls="skip").tolist() == [1.0, 5.0] and f.pandas(held, nulls="skip") == 3.0
    assert np.isnan(f.pandas(held)) and np.isnan(f.pandas(held, by="k")).all()
    with pytest.raises(ra.RedalgError, match="null"):
        f.pandas(held, by="k", nulls="error")


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("by", ["k", ["k", "l"], ["l", "k"]])
def test_categories_without_a_row_have_no_result(by: str | list[str], sort: bool) -> None:
    keys = pd.Categorical(["b", "a", "b"], categories=["z", "a", "b"])
    groups = pd.DataFrame({"k": keys, "l": [3, 1, 3], "x": [1.0, 2.0, 4.0]}).groupby(by, observed=False, sort=sort)
    want = groups["x"].sum()[groups.size() > 0]
    pd.testing.assert_series_equal(form_of_text("return x = sum[j](x[j])").pandas(groups, x="x"), want)


def test_what_is_refused_says_where() -> None:
    held = pd.DataFrame({"x": [1.0]})
    for call, text in (
        (lambda: form("weighted mean").pandas(held), "w"),
        (lambda: form("weighted mean").pandas(held, z="x"), "z"),
        (lambda: form("weighted mean").pandas(held["x"]), "one column was given"),
        (lambda: form_of_text("return p = x[j] / sum[j](x[j])").pandas(held, by="x"), "transform"),
        (lambda: form_of_text("return y = sum[j](s*x[j])").pandas(held), "number"),
        (lambda: form_of_text("return y = sum[j](x[j])").pandas(held.groupby("x", as_index=False)), "as_index"),
    ):
        with pytest.raises(ra.RedalgError, match=text):
            call()
    assert form_of_text("return y = sum[j](s*x[j])").pandas(held, s=2.0) == 2.0
