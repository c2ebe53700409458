"""`form.datafusion`: an aggregate over partitions, by group, with nulls; and what cannot be one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support import engines
from tests.support.forms import form_of_text
from tests.support.profiles import examples

datafusion: Any = pytest.importorskip("datafusion")
pa: Any = pytest.importorskip("pyarrow")
ONE = {"covariance": ("x", "w"), "softmax mean": ("x", "w")}


def table(columns: dict[str, Any], sizes: Any) -> Any:
    """A context with a table `t` in partitions of these lengths."""
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(3))
    cuts = np.cumsum([0, *sizes])
    parts = [
        [pa.record_batch({n: pa.array(c[a:b], from_pandas=False) for n, c in columns.items()})]
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    context.register_record_batches("t", parts)
    return context


@pytest.mark.parametrize("name", ONE)
@examples(20)
@given(st.data())
def test_results_are_the_definitions(name: str, data: st.DataObject) -> None:
    columns, sizes = data.draw(engines.streams(["float64", "float32", "int64"]))
    form = engines.form(name)
    context = table(columns, sizes)
    context.register_udaf(form.datafusion("f", dtypes={n: c.dtype for n, c in columns.items()}))
    order = [d.name for d in form.spec.tensors]
    found = context.sql(f"SELECT f({', '.join(order)}) AS y FROM t").to_pandas().y.to_numpy()[0]
    dtype = np.asarray(form.compile("numpy")(**engines.columns_of(form, columns))).dtype
    engines.check(form, np.asarray(found, dtype), columns)


def test_groups_and_nulls() -> None:
    x = np.random.default_rng(0).normal(size=1000) + 1e4
    keys = np.arange(1000) % 7
    context = table({"x": x, "k": keys}, [300, 0, 700])
    form = form_of_text("return v = var[j](x[j])")
    context.register_udaf(form.datafusion("v"))
    found = context.sql("SELECT k, v(x) AS v FROM t GROUP BY k ORDER BY k").to_pandas()
    np.testing.assert_allclose(found.v, [x[keys == k].var() for k in range(7)], rtol=1e-9)
    batch = pa.record_batch({"x": pa.array([1.0, None, 3.0, None])})
    context.register_record_batches("n", [[batch]])
    context.register_udaf(form.datafusion("skipping", nulls="skip"))
    assert context.sql("SELECT skipping(x) AS v FROM n").to_pandas().v[0] == 1.0
    assert np.isnan(context.sql("SELECT v(x) AS v FROM n").to_pandas().v[0])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("return p = argmax[j](x[j])", "order of the rows"),
        ("return a = sum[j](x[j]), b = max[j](x[j])", "one number"),
        ("return y = x[j] / max[j](x[j])", "keeps the streamed axis"),
        ("return y = sum[j](x[j,i])", "one number"),
    ],
)
def test_what_is_no_aggregate_is_refused(text: str, match: str) -> None:
    with pytest.raises(ra.RedalgError, match=match):
        form_of_text(text).datafusion("f")


@pytest.mark.parametrize("dtypes", [{"w": "int64"}, {"x": "zz"}, {"x": str}, {"x": "int64", "y": float}])
def test_dtypes_that_are_none_of_the_columns_are_refused(dtypes: dict[str, Any]) -> None:
    with pytest.raises(ra.RedalgError) as caught:
        form_of_text("return s = sum[j](x[j])").datafusion("f", dtypes=dtypes)
    assert caught.value.what and caught.value.why and caught.value.fix
