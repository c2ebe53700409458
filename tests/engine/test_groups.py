"""`form.grouped()`: every group gets the definition's result, whatever the keys, chunks, lengths and values."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.form import Form
from redalg.groups.grouped import Grouped
from redalg.groups.keys import factorised
from redalg.streaming.lift import BLOCK_ELEMENTS
from tests.engine.test_streaming import NAMES, sample
from tests.support.forms import form_of_text
from tests.support.profiles import examples
from tests.support.streams import Arrays, assert_close, bound, hand

INF, NAN = np.inf, np.nan
_FORMS: dict[str, Form] = {}


def text(name: str) -> Form:
    if name not in _FORMS:
        x, y = ra.tensors("x[j] y[j]")
        u = ra.mean(x, "j")
        m = ra.max(x, "j")
        specs = {
            "softmax_total": lambda: ra.Spec(s=ra.sum(ra.exp(x - m), "j"), m=m),
            "variance": lambda: ra.Spec(v=ra.var(x, "j")),
            "covariance": lambda: ra.Spec(c=ra.cov(x, y, "j")),
            "extremes": lambda: ra.Spec(
                a=ra.argmax(x, "j"), b=ra.min(x, "j"), c=ra.any(x > 0, "j"), d=ra.prod(x, "j"), n=ra.size("j")
            ),
            "absolute": lambda: ra.Spec(y=ra.mean(ra.abs(x - u), "j")),
            "weighted": lambda: ra.Spec(y=ra.sum(ra.index("j") * x, "j")),
        }
        _FORMS[name] = ra.derive_incremental(specs[name](), max_passes=2)
    return _FORMS[name]


def rows_of(form: Form, arrays: Arrays, rows: Any) -> dict[str, Any]:
    axis = form.plan.axis[0]
    decls = [d for d in form.spec.tensors if axis in d.axes]
    return {d.name: np.take(arrays[d.name], rows, axis=d.axes.index(axis)) for d in decls}


def fed(form: Form, arrays: Arrays, by: Any, cuts: Iterable[int], groups: Grouped | None = None) -> Grouped:
    groups = form.grouped(**bound(form, arrays)) if groups is None else groups
    for low, high in pairwise(cuts):
        groups.update(by=by[low:high], **rows_of(form, arrays, np.arange(low, high)))
    return groups


def definition(form: Form, arrays: Arrays, rows: list[int]) -> dict[str, Any]:
    found = ra.reference(form.spec, **bound(form, arrays), **rows_of(form, arrays, np.array(rows, int)))
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}


def assert_groups(groups: Grouped, arrays: Arrays, by: Any, ulps: float = 64) -> None:
    """Keys in order of first appearance, and for each the definition on its rows."""
    rows: dict[Any, list[int]] = {}
    for k, key in enumerate(by.tolist() if isinstance(by, np.ndarray) else by):
        rows.setdefault(key, []).append(k)
    keys, values = groups.result()
    assert keys.tolist() == list(rows) and groups.count == len(by)
    values = values if isinstance(values, dict) else {next(iter(groups.form.spec.outputs)): values}
    for at, found in enumerate(rows.values()):
        expected = definition(groups.form, arrays, found)
        assert_close({name: x[at] for name, x in values.items()}, expected, ulps)


# --- the definition --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in NAMES if n != "weighted_mean"])
@examples(25)
@given(st.data())
def test_any_partition_gives_the_definition_in_every_group(name: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 14))
    arrays, form = sample(name, n, data.draw(st.integers(0, 5))), hand(name)
    by = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), data.draw(st.sampled_from("bhiq")))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    assert_groups(fed(form, arrays, by, cuts), arrays, by)
    cut = data.draw(st.integers(0, n))
    one, two = fed(form, arrays, by, [0, 0, cut]), form.grouped(**bound(form, arrays))
    fed(form, arrays, by, [cut, n, n], two)
    before = two.count
    assert_groups(one + two, arrays, by)
    assert (one.count, two.count) == (cut, before)
    assert one.merge(two) is one
    assert_groups(one, arrays, by)


VALUES = st.sampled_from([0.0, -0.0, 1.0, 1.0, -2.5, 1e200, -1e200, INF, -INF, NAN])


@pytest.mark.parametrize("name", ("softmax_total", "variance", "extremes"))
@examples(60)
@given(st.data())
def test_ties_infinities_nan_and_large_numbers(name: str, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 11))
    x = np.array(data.draw(st.lists(VALUES, min_size=n, max_size=n)))
    by = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    cut = data.draw(st.integers(0, n))
    form = text(name)
    groups = fed(form, {"x": x}, by, [0, cut, cut, n])
    keys, found = groups.result()
    found = found if isinstance(found, dict) else {"v": found}
    for k, key in enumerate(keys.tolist()):  # as one accumulator for the group alone, and as the definition
        acc = form.accumulator()
        acc.update(x=x[:cut][by[:cut] == key])
        acc.update(x=x[cut:][by[cut:] == key])
        alone = acc.result()
        assert_close({o: v[k] for o, v in found.items()}, alone if isinstance(alone, dict) else {"v": alone}, 8)
    if np.abs(x[np.isfinite(x)]).max(initial=0) < 1e100:
        assert_groups(groups, {"x": x}, by)


def test_groups_of_many_lengths_and_one_that_is_longer_than_a_block() -> None:
    rng = np.random.default_rng(3)
    lengths = [BLOCK_ELEMENTS + 17, 1, 1, 1, 2, 3, 3, 50, 50, 51, 1000]
    by = rng.permutation(np.repeat(np.arange(len(lengths)), lengths))
    x = rng.normal(size=len(by)) + 5
    x[rng.integers(0, len(by), 50)] = 9.0  # ties of the maximum
    cuts = [0, 7, 7, 1000, len(by)]
    for name in ("variance", "softmax_total"):
        assert_groups(fed(text(name), {"x": x}, by, cuts), {"x": x}, by, ulps=4096)
    keys, found = fed(text("extremes"), {"x": x}, by, cuts).result()
    for key, a in zip(keys.tolist(), found["a"].tolist(), strict=True):
        assert a == int(np.argmax(x[by == key]))


def test_more_groups_than_sixteen_bits_and_keys_far_apart() -> None:
    rng = np.random.default_rng(4)
    distinct = rng.integers(-(1 << 62), 1 << 62, 70_000)
    by = distinct[rng.integers(0, len(distinct), 150_000)]
    x, y = rng.normal(size=(2, len(by)))
    groups = fed(text("covariance"), {"x": x, "y": y}, by, [0, 60_000, len(by)])
    keys, found = groups.result(sort=True)
    order = np.argsort(by, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(by[order]) != 0])
    n = np.diff(np.r_[starts, len(by)])
    u, v = (np.add.reduceat(z[order], starts) / n for z in (x, y))
    expected = np.add.reduceat((x[order] - np.repeat(u, n)) * (y[order] - np.repeat(v, n)), starts) / n
    assert np.array_equal(keys, by[order][starts]) and len(groups) == len(keys)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_sums_that_need_a_larger_range_leave_the_others_alone() -> None:
    form = ra.derive_incremental(ra.parse("return y = mean[j](x[j])"))
    x, by = np.array([1.5e308, 1.0, 1.5e308, 2.0, -1.5e308, 3.0]), [0, 1, 0, 1, 0, 2]
    groups = fed(form, {"x": x}, by, [0, 3, 6])
    np.testing.assert_allclose(groups.result()[1], [5e307, 1.5, 3.0])
    again = fed(form, {"x": x}, by, [0, 6])
    np.testing.assert_allclose((again + groups).result()[1], [5e307, 1.5, 3.0])
    total = ra.derive_incremental(ra.parse("return y = sum[j](x[j])"))
    groups = fed(total, {"x": np.array([1.5e308, 1.5e308, 1.0])}, [0, 0, 1], [0, 3])
    assert "1 groups are held one by one" in groups.explain()
    groups.update(by=[0, 0], x=[-1.5e308, -1.5e308])
    assert groups.result()[1].tolist() == [0.0, 1.0]


def test_integers_are_exact_and_refused_outside_int64() -> None:
    form = ra.derive_incremental(ra.parse("return s = sum[j](x[j])"))
    groups = form.grouped()
    groups.update(by=["a", "b", "a"], x=np.array([(1 << 62) - 1, 5, 1 << 62], np.int64))
    assert groups.result()[1].tolist() == [(1 << 63) - 1, 5]
    with pytest.raises(ra.RedalgError):
        groups.update(by=["c", "a"], x=np.array([1, 1], np.int64))
    assert groups.result()[0].tolist() == ["a", "b"] and groups.result()[1].tolist() == [(1 << 63) - 1, 5]
    assert (len(groups), groups.count) == (2, 3)
    var = ra.derive_incremental(ra.Spec(v=ra.var(ra.tensors("x[j]"), "j"))).grouped()
    var.update(by=[1, 1, 2], x=np.array([1 << 61, (1 << 61) + 2, 7], np.int64))
    var.update(by=[2, 1], x=np.array([9, (1 << 61) + 1], np.int64))
    np.testing.assert_allclose(var.result()[1], [2 / 3, 1.0], rtol=1e-15)


# --- where there is no way over groups -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ("absolute", "weighted"))
def test_one_accumulator_per_key_where_states_are_no_arrays(name: str) -> None:
    form, x, by = text(name), np.array([1.0, 5.0, 2.0, 7.0, 0.5]), ["a", "b", "a", "c", "b"]
    groups = fed(form, {"x": x}, by, [0, 2, 2, 5])
    assert "one accumulator per key" in repr(groups) and "one accumulator per key" in groups.explain()
    if name == "absolute":
        groups.next_pass()
        fed(form, {"x": x}, by, [0, 4, 5], groups)
        keys, found = groups.result()
        for key, value in zip(keys, found, strict=True):
            held = x[[k == key for k in by]]
            np.testing.assert_allclose(value, np.abs(held - held.mean()).mean())
    else:
        assert_groups(groups, {"x": x}, by)
    vectorised = text("variance").grouped()
    assert "vectorised" in repr(vectorised) and "leading axis" in vectorised.explain()


# --- keys ------------------------------------------------------------------------------------------------------------

DATES = np.array(["2025-01-01", "2026-01-01"], "M8[ns]")
KEYS: list[tuple[Any, list[Any]]] = [
    (["b", "a", "b", "ü", ""], ["b", "a", "ü", ""]),
    (np.array(["b", "a", "b"]), ["b", "a"]),
    ([(1, 2), (1, 3), (1, 2), ()], [(1, 2), (1, 3), ()]),
    ([None, 0, None, ""], [None, 0, ""]),
    ([0.0, -0.0, 1, True, np.float32(1)], [0.0, 1]),
    (np.array([0.0, -0.0, 2.0]), [0.0, 2.0]),
    (np.array([True, False, True]), [True, False]),
    (np.array([3, 1, 3], np.uint8), [3, 1]),
    (np.array([2**64 - 1, 1, 2**64 - 1], np.uint64), [2**64 - 1, 1]),
    ([2**70, 1, 2**70], [2**70, 1]),
    (np.array([-(2**63), 2**63 - 1, -(2**63)]), [-(2**63), 2**63 - 1]),
    (DATES[[1, 0, 1]], [DATES[1], DATES[0]]),
]


@pytest.mark.parametrize("by,expected", KEYS, ids=range(len(KEYS)))
def test_keys_of_any_kind(by: Any, expected: list[Any]) -> None:
    groups = ra.derive_incremental(ra.parse("return s = sum[j](x[j])")).grouped()
    x = 2.0 ** np.arange(len(by))
    cut = len(by) // 2
    groups.update(by=by[:cut], x=x[:cut])
    groups.update(by=by[cut:], x=x[cut:])
    keys, s = groups.result()
    assert list(keys) == expected and len(keys) == len(groups)
    assert s.tolist() == [sum(x[k] for k in range(len(by)) if by[k] == key) for key in expected]


def test_nan_is_one_key_nat_another_and_both_come_last() -> None:
    groups = ra.derive_incremental(ra.parse("return s = sum[j](x[j])")).grouped()
    groups.update(by=np.array([NAN, 2.0, NAN]), x=[1.0, 2.0, 4.0])
    groups.update(by=[float("nan"), np.float32("nan"), 1], x=[8.0, 16.0, 32.0])
    keys, s = groups.result()
    assert np.array_equal(keys.astype(float), [NAN, 2.0, 1.0], equal_nan=True) and s.tolist() == [29.0, 2.0, 32.0]
    keys, s = groups.result(sort=True)
    assert keys[0] == 1 and keys[2] != keys[2] and s.tolist() == [32.0, 2.0, 29.0]
    pairs = ra.derive_incremental(ra.parse("return s = sum[j](x[j])")).grouped()
    pairs.update(by=[(NAN, 1), (float("nan"), 1)], x=[1.0, 2.0])
    assert pairs.result()[1].tolist() == [3.0]
    dates = ra.derive_incremental(ra.parse("return s = sum[j](x[j])")).grouped()
    dates.update(by=np.array(["NaT", "2020-01-01", "NaT"], "M8[s]"), x=[1.0, 2.0, 4.0])
    keys, s = dates.result(sort=True)
    assert s.tolist() == [2.0, 5.0] and np.isnat(keys[1])


KEYS = st.one_of(
    st.sampled_from(
        [NAN, complex(NAN, 1), Decimal("NaN"), np.float32(NAN), np.datetime64("NaT"), 0.0, -0.0, None, "a"]
    ),
    st.integers(-1, 2),
    st.tuples(st.sampled_from([NAN, 1, 1.0]), st.booleans()),
)


@given(st.lists(KEYS, min_size=1, max_size=8), st.data())
def test_groups_that_travelled_are_merged_by_the_same_keys(keys: list[Any], data: st.DataObject) -> None:
    form = form_of_text("return s = sum[j](x[j])")
    values = np.arange(1.0, len(keys) + 1)
    whole = form.grouped()
    whole.update(by=keys, x=values)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=3))), len(keys)]
    parts = []
    for low, high in pairwise(cuts):
        part = form.grouped()
        if data.draw(st.booleans()):
            part = pickle.loads(pickle.dumps(part))
        part.update(by=keys[low:high], x=values[low:high])
        parts.append(
            data.draw(st.sampled_from([lambda p: pickle.loads(pickle.dumps(p)), copy.deepcopy, copy.copy]))(part)
        )
    total = sum(parts[1:], parts[0])
    assert len(total) == len(whole)
    assert str(total.result()[0].tolist()) == str(whole.result()[0].tolist())
    np.testing.assert_array_equal(total.result()[1], whole.result()[1])


LARGE = 1 << 53


@pytest.mark.parametrize("kind", ["masked", "pandas", "pandas of Arrow", "polars", "arrow", "chunked arrow"])
@given(st.lists(st.sampled_from([None, LARGE, LARGE + 1, 3, -1]), min_size=1, max_size=6), st.booleans())
def test_null_keys_leave_the_others_their_digits(kind: str, keys: list[Any], skip: bool) -> None:
    if kind == "masked":
        by: Any = np.ma.MaskedArray([0 if k is None else k for k in keys], [k is None for k in keys])
    elif kind.startswith("pandas"):
        pd = pytest.importorskip("pandas")
        by = pd.Series(keys, dtype="Int64" if kind == "pandas" else "int64[pyarrow]")
    elif kind == "polars":
        by = pytest.importorskip("polars").Series(keys, dtype=pytest.importorskip("polars").Int64)
    else:
        pa = pytest.importorskip("pyarrow")
        by = pa.array(keys, pa.int64())
        by = pa.chunked_array([by[:1], by[1:]]) if kind == "chunked arrow" else by
    values = np.ma.MaskedArray(np.arange(1.0, len(keys) + 1), [skip and k % 2 == 1 for k in range(len(keys))])
    groups = form_of_text("return s = sum[j](x[j])").grouped(nulls="skip")
    groups.update(by=by, x=values)
    expected: dict[Any, float] = {}
    for key, value, left_out in zip(keys, values.data.tolist(), np.ma.getmaskarray(values), strict=True):
        expected[key] = expected.get(key, 0.0) + (0.0 if left_out else value)
    found, sums = groups.result()
    assert dict(zip(found.tolist(), sums.tolist(), strict=True)) == expected


def test_integers_of_any_width_and_numbers_that_equal_them_are_one_key() -> None:
    groups = ra.derive_incremental(ra.parse("return s = sum[j](x[j])")).grouped()
    for k, kind in enumerate((np.int8, np.uint16, np.int64, np.float64, object, bool)):
        groups.update(by=np.array([1, 0, 1]).astype(kind), x=np.full(3, 10.0**k))
    keys, s = groups.result()
    assert keys.tolist() == [1, 0] and s.tolist() == [222222.0, 111111.0]
    groups.update(by=["1"], x=[5.0])
    assert len(groups) == 3 and groups.result()[0].tolist() == [1, 0, "1"]
    with pytest.raises(ra.RedalgError, match="sort=True"):
        groups.result(sort=True)


@pytest.mark.parametrize(
    "by", ("ab", 3, [[1], [2]], [{}, {}], np.zeros((2, 1)), [1], {1, 2}, None), ids=lambda by: repr(by)[:12]
)
def test_what_is_no_column_of_keys_is_refused_and_changes_nothing(by: Any) -> None:
    groups = ra.derive_incremental(ra.parse("return s = sum[j](x[j])")).grouped()
    groups.update(by=[5], x=[1.0])
    with pytest.raises(ra.RedalgError) as error:
        groups.update(by=by, x=[1.0, 2.0])
    assert all((error.value.what, error.value.where, error.value.why, error.value.fix))
    assert groups.result()[0].tolist() == [5] and groups.result()[1].tolist() == [1.0] and groups.count == 1


@examples(60)
@given(st.lists(st.integers(-3, 3), max_size=40))
def test_rows_are_sorted_by_group_and_stay_in_order(keys: list[int]) -> None:
    by = np.array(keys, np.int64)
    for column in (by, by * (1 << 40), [str(k) for k in keys]):
        groups = factorised(column, len(keys))
        seen = []
        for k, (low, high) in enumerate(pairwise(groups.starts.tolist())):
            rows = groups.order[low:high].tolist()
            assert rows == [r for r in range(len(keys)) if column[r] == groups.keys[k]]
            seen += rows
        assert sorted(seen) == list(range(len(keys)))


# --- one value among others ------------------------------------------------------------------------------------------


def test_nothing_seen_gives_no_group() -> None:
    groups = text("extremes").grouped()
    groups.update(by=[], x=[])
    keys, found = groups.result()
    assert keys.shape == (0,) and {k: v.shape for k, v in found.items()} == dict.fromkeys("abcdn", (0,))
    full = fed(text("extremes"), {"x": np.array([1.0, 2.0])}, [1, 1], [0, 2])
    assert (groups + full).result()[0].tolist() == [1] and (full + groups).count == 2
    assert sum([groups, full, full]).result()[1]["n"].tolist() == [4]


def test_copies_and_pickles_are_independent() -> None:
    x = np.array([1.0, 5.0, 2.0])
    for name in ("variance", "weighted"):
        groups = fed(text(name), {"x": x}, [1, 2, 1], [0, 3])
        before = groups.result()[1].tolist()
        for twin in (groups.copy(), pickle.loads(pickle.dumps(groups))):
            twin.update(by=[1, 9], x=[100.0, 3.0])
            assert len(twin) == 3 and groups.result()[1].tolist() == before


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    groups = fed(text("variance"), {"x": np.array([1.0, 3.0])}, [1, 1], [0, 2])
    with pytest.raises(ra.RedalgError):
        groups.update(by=[1, 2], x=np.array([1.0, 2.0], complex))
    with pytest.raises(ra.RedalgError):
        groups.update(by=[1, 2], y=[1.0, 2.0])
    with pytest.raises(ra.RedalgError):
        groups.merge(text("covariance").grouped())
    with pytest.raises(ra.RedalgError):
        groups.merge(text("variance").accumulator())  # type: ignore[arg-type]
    with pytest.raises(ra.RedalgError):
        groups.next_pass()
    assert groups.result()[1].tolist() == [1.0] and len(groups) == 1
    softmax = ra.derive_incremental(ra.catalog["softmax"]).grouped()
    with pytest.raises(ra.RedalgError, match="every output keeps"):
        softmax.result()


def test_empty_values_for_rows_without_a_valid_element() -> None:
    x, keep = ra.tensors("x[j]"), ra.tensors("keep[j]", bool=True)
    score = ra.where(keep, x, -ra.oo)
    m = ra.max(score, "j")
    total = ra.sum(ra.exp(score - m), "j")
    form = ra.derive_incremental(ra.Spec(y=ra.sum(ra.exp(score - m) * x, "j") / total, empty={"y": 0}))
    arrays = {"x": np.array([1.0, 2.0, 3.0, 4.0]), "keep": np.array([True, False, False, True])}
    assert_groups(fed(form, arrays, [1, 2, 2, 1], [0, 2, 4]), arrays, [1, 2, 2, 1])


@pytest.mark.parametrize("dtype", ["datetime64[D]", "datetime64[us]", "timedelta64[s]", "timedelta64[ns]"])
@pytest.mark.parametrize("missing", [False, True])
def test_keys_that_are_times_stay_times(dtype: str, missing: bool) -> None:
    """Also beside NaT, from pieces that are merged, and after a way through bytes."""
    times = np.array([3, 1, 3, 2, 1, 3], np.int64).astype(dtype)
    if missing:
        times[[1, 4]] = "NaT"
    form, x = ra.derive_incremental(ra.parse("return y = sum[j](x[j])")), np.arange(6.0)
    parts = [form.grouped() for _ in range(3)]
    for part, rows in zip(parts, (slice(0, 2), slice(2, 2), slice(2, 6)), strict=True):
        part.update(by=times[rows], x=x[rows])
    parts[0].merge(pickle.loads(pickle.dumps(parts[1])))
    parts[0].merge(pickle.loads(pickle.dumps(parts[2])))
    keys, sums = parts[0].result(sort=True)
    assert keys.dtype == np.dtype(dtype)
    for key, found in zip(keys, sums, strict=True):
        same = np.isnat(times) if np.isnat(key) else times == key
        assert found == x[same].sum()
