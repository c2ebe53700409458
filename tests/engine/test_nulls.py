"""Nulls of pandas, Polars, Arrow and masked arrays: propagated, skipped or refused, against NumPy on what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from tests.support.forms import form_of_text

MEAN = "return y = sum[j](w[j] * x[j]) / sum[j](w[j])"
ROWS = "return y = mean[j](x[i,j])"
VALUES = [1.0, -2.5, 4.0, 0.0, 7.0]


def column(kind: str, values: list[Any], missing: list[int], dtype: str = "float64") -> Any:
    """A column with nulls at some places; a plain array of a kind that has none."""
    given = [None if k in missing else v for k, v in enumerate(values)]
    if kind == "masked":
        return np.ma.MaskedArray(np.array(values, dtype), [k in missing for k in range(len(values))])
    if kind in ("pandas", "pandas nullable"):
        pd = pytest.importorskip("pandas")
        return pd.Series(given, dtype=dtype if kind == "pandas" else dtype.capitalize())
    if kind == "polars":
        pl = pytest.importorskip("polars")
        return pl.Series(given, dtype=getattr(pl, dtype.capitalize()))
    pa = pytest.importorskip("pyarrow")
    array = pa.array(given, getattr(pa, dtype)())
    return array if kind == "arrow" else pa.chunked_array([array[:2], array[2:]])


KINDS = ("masked", "pandas", "pandas nullable", "polars", "arrow", "chunked arrow")


@pytest.mark.parametrize("kind", KINDS)
@given(st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), st.integers(0, 5))
def test_what_is_null_in_any_tensor_is_skipped(kind: str, first: set[int], second: set[int], at: int) -> None:
    form = form_of_text(MEAN)
    a, b = form.accumulator(nulls="skip"), form.accumulator(nulls="skip")
    weights = [1.0, 2.0, 0.5, 3.0, 1.0]
    x, w = column(kind, VALUES, sorted(first)), column(kind, weights, sorted(second))
    for acc, low, high in ((a, 0, at), (b, at, 5), (b, 5, 5)):
        acc.update(x=x[low:high], w=w[low:high])
    a = form.from_bytes((a + b).to_bytes())
    kept = [k for k in range(5) if k not in first | second]
    assert a.count == len(kept)
    if kept:
        assert np.isclose(a.result(), np.average(np.array(VALUES)[kept], weights=np.array(weights)[kept]))
    else:
        assert np.isnan(a.result())


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "pandas"])
def test_integers_stay_exact_without_their_nulls(kind: str) -> None:
    acc = form_of_text("return y = max[j](x[j])").accumulator(nulls="skip")
    acc.update(x=column(kind, [2**53 + 1, 5, 2**53], [1], "int64"))
    assert acc.count == 2 and acc.result() == 2**53 + 1 and acc.result().dtype == np.int64


def test_a_row_is_skipped_where_one_of_its_numbers_is_null() -> None:
    acc = form_of_text(ROWS).accumulator(nulls="skip")
    x = np.ma.MaskedArray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[0, 1, 0], [0, 0, 0]])
    acc.update(x=x)
    assert acc.count == 2 and acc.result().tolist() == [2.0, 5.0]
    pd = pytest.importorskip("pandas")
    acc.update(x=pd.DataFrame([[7.0, None], [10.0, 1.0]]))
    assert acc.count == 3 and np.allclose(acc.result(), [11 / 3, 20 / 3])


def test_nan_is_null_in_pandas_alone() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    form = form_of_text("return y = sum[j](x[j])")
    for x, expected in (
        (pd.Series([1.0, np.nan]), 1.0),
        (pl.Series([1.0, np.nan]), np.nan),
        (np.array([1.0, np.nan]), np.nan),
        ([1.0, np.nan], np.nan),
    ):
        acc = form.accumulator(nulls="skip")
        acc.update(x=x)
        assert np.array_equal(acc.result(), expected, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_by_error_a_null_is_refused_and_nothing_changes(kind: str) -> None:
    acc = form_of_text("return y = sum[j](x[j])").accumulator(nulls="error")
    acc.update(x=column(kind, VALUES, []))
    with pytest.raises(ra.RedalgError, match="2 of its elements are null, the first at 1") as caught:
        acc.update(x=column(kind, VALUES, [1, 3]))
    assert caught.value.where == "Accumulator.update" and caught.value.fix
    assert acc.count == 5 and acc.result() == sum(VALUES)


def test_by_default_chunks_are_what_numpy_reads() -> None:
    form = form_of_text("return y = sum[j](x[j])")
    for kind in ("pandas", "polars", "arrow"):
        acc = form.accumulator()
        acc.update(x=column(kind, VALUES, [1]))
        assert acc.count == 5 and np.isnan(acc.result())
    with pytest.raises(ra.RedalgError, match="dense"):
        form.accumulator().update(x=column("masked", VALUES, [1]))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("return y = sum[j](x[j])", {"start": 0}),
        ("return y = argmax[j](x[j])", {}),
        ("return y = sum[j,k](x[j,k])", {}),
        ("return y = sum[j](x[j] * index[j])", {}),
    ],
)
def test_positions_and_skipping_do_not_go_together(text: str, options: dict[str, Any]) -> None:
    form = form_of_text(text)
    with pytest.raises(ra.RedalgError, match='nulls="skip"'):
        form.accumulator(nulls="skip", **options)
    assert "nulls='error'" in repr(form.accumulator(nulls="error", **options))


def test_policies_are_known_and_not_mixed() -> None:
    form = form_of_text("return y = sum[j](x[j])")
    for wrong in ("drop", None, 1, ["skip"]):
        with pytest.raises(ra.RedalgError, match="policies are"):
            form.accumulator(nulls=wrong)
    with pytest.raises(ra.RedalgError, match="nulls="):
        form.accumulator(nulls="skip") + form.accumulator()
    with pytest.raises(ra.RedalgError):
        acc = form_of_text(MEAN).accumulator(nulls="skip")
        acc.update(x=np.ma.MaskedArray([1.0, 2.0], [0, 1]), w=np.ones(3))


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
@pytest.mark.parametrize("value", [3, (1 << 53) - 1, (1 << 53) + 1, -(1 << 60) - 1])
def test_integers_with_nulls_lose_no_digit(library: str, value: int) -> None:
    """They become float64: what that does not hold is refused, with nulls and only then."""
    pytest.importorskip(library)
    import importlib

    made = importlib.import_module(library)
    array = made.Series if library == "polars" else made.array
    form = ra.derive_incremental(ra.parse("return s = sum[j](x[j])"))
    assert int(form.compile("numpy")(x=array([value, 4]))) == value + 4
    if abs(value) >= 1 << 53:
        with pytest.raises(ra.RedalgError, match="2\\*\\*53"):
            form.compile("numpy")(x=array([value, None]))
    else:
        assert np.isnan(form.compile("numpy")(x=array([value, None])))
