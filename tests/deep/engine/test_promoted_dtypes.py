"""Chunks and states of several dtypes in one stream: NumPy's result type of the parts that are not empty."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import redalg as ra
from redalg.form import Form
from tests.support.forms import form_of_text
from tests.support.profiles import examples

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
SINGLE = {
    "sum": "return y = sum[j](x[j])",
    "mean": "return y = mean[j](x[j])",
    "variance": "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**2)",
    "third moment": "u = mean[j](x[j]); return y = mean[j]((x[j] - u)**3)",
    "logsumexp": "return y = logsumexp[j](x[j])",
    "extrema": "return a = argmax[j](x[j]), m = max[j](x[j]), l = min[j](x[j])",
    "product": "return y = prod[j](x[j])",
    "norm": "return y = sqrt(sum[j](x[j]**2))",
    "rows": "return y = max[j](x[i,j]), v = mean[j](x[i,j]**2)",
}
DOUBLE = {
    "covariance": "u = mean[j](x[j]); v = mean[j](z[j]); return y = mean[j]((x[j] - u)*(z[j] - v))",
    "weighted mean": "return y = sum[j](z[j]*x[j]) / sum[j](1 + z[j]**2)",
    "weighted variance": "w = sum[j](1 + z[j]**2); u = sum[j]((1 + z[j]**2)*x[j])/w; "
    "return y = sum[j]((1 + z[j]**2)*(x[j] - u)**2)/w",
}


def numbers(rng: Any, dtype: str, n: int, rows: bool) -> np.ndarray:
    low, high = (0, 2) if dtype == "bool" else (0, 5) if dtype.startswith("u") else (-4, 5)
    x = rng.integers(low, high, (2, n) if rows else n).astype(dtype)
    return x / x.dtype.type(4) if x.dtype.kind == "f" else x


def compared(got: Any, expected: Any, precision: float, scale: float) -> None:
    got, expected = (v if isinstance(v, dict) else {"y": v} for v in (got, expected))
    for name, e in expected.items():
        g = np.asarray(got[name])
        assert g.dtype == e.dtype and g.shape == e.shape, name
        eps = max(precision, float(np.finfo(e.dtype).eps) if e.dtype.kind == "f" else 0.0)
        exact = e.dtype.kind != "f"
        np.testing.assert_allclose(
            np.asarray(g, float), np.asarray(e, float), rtol=0 if exact else 64 * eps, atol=0 if exact else scale * eps
        )


def precision_of(*parts: np.ndarray) -> float:
    """Of what short floats were taken in with: float16 and float32 are accumulated in float32."""
    kinds = [p.dtype for p in parts if p.size and p.dtype.kind == "f" and p.dtype.itemsize < 8]
    return float(np.finfo(np.float32).eps) if kinds else 0.0


def streams(form: Form, chunks: list[dict[str, np.ndarray]]) -> list[Any]:
    """The results of chunks in one accumulator, of partial states, of both after bytes, and of one group."""
    whole, groups, parts = form.accumulator(), form.grouped(), []
    for chunk in chunks:
        whole.update(**chunk)
        length = next(iter(chunk.values())).shape[-1]
        groups.update(by=np.full(length, 7), **chunk)
        parts.append(form.accumulator())
        parts[-1].update(**chunk)
    again = [form.from_bytes(p.to_bytes()) for p in parts]
    merged = form.grouped()
    for chunk in chunks:
        part = form.grouped()
        part.update(by=np.full(next(iter(chunk.values())).shape[-1], 7), **chunk)
        merged.merge(part)
    found = [whole.result(), sum(parts).result(), sum(again).result()]
    for g in (groups, merged):
        keys, values = g.result()
        assert keys.tolist() == [7]
        found.append({n: v[0] for n, v in values.items()} if isinstance(values, dict) else values[0])
    return found


@pytest.mark.parametrize("name", SINGLE)
def test_all_pairs_of_dtypes_in_both_orders(name: str) -> None:
    form, rng = form_of_text(SINGLE[name]), np.random.default_rng(5)
    rows = name == "rows"
    for a, b in product(DTYPES, DTYPES):
        first, second, last = (numbers(rng, d, n, rows) for d, n in ((a, 3), (b, 2), (a, 1)))
        cut, empty = (slice(None),) * rows, slice(0, 0)
        chunks = [{"x": x} for x in (second[(*cut, empty)], first, last[(*cut, empty)], second, last)]
        whole = np.concatenate([c["x"] for c in chunks if c["x"].size], axis=-1)
        expected = ra.reference(form.spec, x=whole)
        for got in streams(form, chunks):
            compared(got, expected, precision_of(*(c["x"] for c in chunks)), 512)


@pytest.mark.parametrize("name", DOUBLE)
@examples(60)
@given(st.data())
def test_tensors_change_independently(name: str, data: st.DataObject) -> None:
    form, rng = form_of_text(DOUBLE[name]), np.random.default_rng(data.draw(st.integers(0, 99)))
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any))
    chunks = [{t: numbers(rng, data.draw(st.sampled_from(DTYPES)), n, False) for t in ("x", "z")} for n in lengths]
    whole = {t: np.concatenate([c[t] for c in chunks if c[t].size]) for t in ("x", "z")}
    expected = ra.reference(form.spec, **whole)
    for got in streams(form, chunks):
        compared(got, expected, precision_of(*(c[t] for c in chunks for t in c)), 4096)


FAR = [2**53 + 1, -(2**53) - 1, 2**62]


@pytest.mark.parametrize("value", FAR)
@pytest.mark.parametrize("name", ["sum", "variance", "extrema", "logsumexp"])
def test_integers_that_no_float_holds_do_not_meet_floats(name: str, value: int) -> None:
    form = form_of_text(SINGLE[name])
    whole, floats = np.array([1, value, 2]), np.array([0.5])
    for first, then in ((whole, floats), (floats, whole)):
        acc, other, groups = form.accumulator(), form.accumulator(), form.grouped()
        acc.update(x=first)
        other.update(x=then)
        acc, other = (form.from_bytes(a.to_bytes()) for a in (acc, other))
        groups.update(by=[1] * len(first), x=first)
        before = np.asarray(acc.state[next(iter(acc.state))]).copy()
        for call in (
            lambda a=acc, x=then: a.update(x=x),
            lambda a=acc, b=other: a.merge(b),
            lambda g=groups, x=then: g.update(by=[2] * len(x), x=x),
        ):
            with pytest.raises(ra.RedalgError, match=str(value)):
                call()
        np.testing.assert_array_equal(before, acc.state[next(iter(acc.state))])
        acc.update(x=first[:1])  # in its own dtype it goes on
        assert acc.count == len(first) + 1 and groups.count == len(first)


def test_long_sums_of_small_integers_meet_floats_without_loss() -> None:
    form = form_of_text(SINGLE["sum"])
    acc = form.accumulator()
    acc.update(x=np.full(3, 2**53))
    acc.update(x=np.ones(5, np.int64))
    acc.update(x=np.array([0.0, -(2.0**54), -(2.0**53)]))
    assert acc.result() == 5.0


def test_what_has_to_keep_its_dtypes_says_why() -> None:
    form = form_of_text(SINGLE["mean"])
    acc = form.accumulator(deterministic=True)
    acc.update(x=np.ones(2, np.float32))
    with pytest.raises(ra.RedalgError, match="deterministic"):
        acc.update(x=np.ones(2))
    two = ra.derive_incremental(ra.parse("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))"), max_passes=2)
    acc = two.accumulator()
    acc.update(x=np.arange(4))
    acc.next_pass()
    with pytest.raises(ra.RedalgError, match="passes before"):
        acc.update(x=np.ones(4))
