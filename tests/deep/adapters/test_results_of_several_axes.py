"""Matrices, lists and numbers by group, in every table of results: values, and types where there is no group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text
from tests.support.profiles import examples

TEXTS = {
    "matrix": "return y = sum[j](X[j,a]*X[j,b]), m = max[j](X[j,a])",
    "a matrix alone": "return y = sum[j](X[j,a]*X[j,b])",
    "list by column": "return y = topk[j:2:t](X[j,a]).values, p = topk[j:2:t](X[j,a]).indices",
    "three axes": "return y = max[j](c[b,d]*X[j,a]), n = any[j](X[j,a] > 0)",
}
GIVEN = {"three axes": {"c": np.array([[1.0, -2.0], [0.5, 0.0], [3.0, 1.0]])}}


def by_pandas(form: Any, X: np.ndarray, keys: list[int], given: dict[str, Any]) -> Any:
    pd = pytest.importorskip("pandas")
    found = form.pandas(
        pd.DataFrame({"p": X[:, 0], "q": X[:, 1], "k": keys}), X=["p", "q"], by="k", sort=False, **given
    )
    return found.index.tolist(), {n: found if found.ndim == 1 else found[n] for n in form.spec.outputs}


def by_polars(form: Any, X: np.ndarray, keys: list[int], given: dict[str, Any]) -> Any:
    pl = pytest.importorskip("polars")
    schema = {"p": pl.Float64, "q": pl.Float64, "k": pl.Int64}
    frame = pl.DataFrame({"p": X[:, 0], "q": X[:, 1], "k": keys}, schema=schema)
    found = form.polars(frame, X=["p", "q"], by="k", **given)
    for n, axes in form.spec.output_axes.items():
        assert str(found.schema[n]).startswith("Array") and len(found.schema[n].shape) == len(axes)
    return found["k"].to_list(), {n: found[n].to_list() for n in form.spec.outputs}


def by_expression(form: Any, X: np.ndarray, keys: list[int], given: dict[str, Any]) -> Any:
    pl = pytest.importorskip("polars")
    schema = {"p": pl.Float64, "q": pl.Float64, "k": pl.Int64}
    frame = pl.DataFrame({"p": X[:, 0], "q": X[:, 1], "k": keys}, schema=schema)
    found = frame.group_by("k", maintain_order=True).agg(form.polars(X=["p", "q"], **given).alias("all"))
    rows, names = found["all"].to_list(), list(form.spec.outputs)
    return found["k"].to_list(), {n: [r[n] if len(names) > 1 else r for r in rows] for n in names}


def by_arrow(form: Any, X: np.ndarray, keys: list[int], given: dict[str, Any]) -> Any:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"p": X[:, 0], "q": X[:, 1], "k": pa.array(keys, pa.int64())})
    found = form.arrow(table, X=["p", "q"], by="k", **given)
    for n, axes in form.spec.output_axes.items():
        assert str(found.schema.field(n).type).count("list<") == len(axes)
    return found["k"].to_pylist(), {n: found[n].to_pylist() for n in form.spec.outputs}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("way", [by_pandas, by_polars, by_expression, by_arrow])
@examples(12)
@given(st.lists(st.integers(0, 2), max_size=6), st.integers(0, 99))
def test_they_are_the_definitions(way: Any, name: str, keys: list[int], seed: int) -> None:
    X, given_ = np.random.default_rng(seed).normal(size=(len(keys), 2)), GIVEN.get(name, {})
    form = form_of_text(TEXTS[name], "j")
    if way is by_expression and not keys:
        return
    seen, found = way(form, X, keys, given_)
    assert seen == list(dict.fromkeys(keys))
    for k, key in enumerate(seen):
        wanted = ra.reference(form.spec, X=X[np.array(keys) == key], **given_)
        for n, value in (wanted if isinstance(wanted, dict) else {"y": wanted}).items():
            np.testing.assert_allclose(np.asarray(list(found[n])[k]), value, rtol=1e-13, atol=1e-13)
