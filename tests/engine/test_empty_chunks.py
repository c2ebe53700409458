"""Accumulators that saw chunks of length 0 alone: results, and their dtypes, are those of a call."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import redalg as ra

FORM = ra.derive_incremental(
    ra.parse("return y = minimum(max[j](x[i,j]), u[i]), s = u[i]*sum[j](x[i,j]), n = count[j](x[i,j] > 0)")
)
DTYPES = [ml_dtypes.bfloat16, np.float16, np.float32, np.float64, ml_dtypes.float8_e4m3fn, np.int8, np.uint64]


@pytest.mark.parametrize("x", DTYPES)
@pytest.mark.parametrize("u", DTYPES)
def test_they_are_those_of_a_call(x: Any, u: Any) -> None:
    row, chunk = np.arange(1, 4).astype(u), np.zeros((3, 0), x)
    acc = FORM.accumulator(u=row)
    acc.update(x=chunk)
    found, wanted = acc.result(), FORM.compile("numpy")(x=chunk, u=row)
    for name, value in found.items():
        assert value.dtype == wanted[name].dtype, name
        np.testing.assert_array_equal(value.astype(float), wanted[name].astype(float), name)


def test_inner_axes_of_nothing() -> None:
    """Of integers an extremum is an infinity there, which a state of integers does not hold: refused, and nothing is
    lost; along a composite axis there is no element."""
    acc = ra.derive_incremental(ra.parse("return r = max[i](max[j](k[i,j]) + y[i])")).accumulator()
    with pytest.raises(ra.RedalgError) as caught:
        acc.update(k=np.zeros((3, 0), np.int64), y=np.ones(3))
    assert "max[j](k[i,j])" in caught.value.why and acc.count == 0
    with pytest.raises(ra.RedalgError):
        acc.form.grouped().update(by=np.zeros(3), k=np.zeros((3, 0), np.int64), y=np.ones(3))
    fixed = ra.derive_incremental(ra.parse("return r = sum[i](y[i]*max[j](k[j]))"), axis="i")
    with pytest.raises(ra.RedalgError):
        fixed.accumulator(k=np.zeros(0, np.int8)).update(y=np.ones(3))
    acc.update(k=np.zeros((3, 0), np.float32), y=np.ones(3))
    assert acc.result() == -np.inf
    for dtype, least in (("int64", np.iinfo(np.int64).min), ("float64", -np.inf)):
        whole = ra.derive_incremental(ra.parse("return r = max[i,j](k[i,j])")).accumulator()
        for _ in range(3):
            whole.update(k=np.zeros((3, 0), dtype))
        assert whole.result() == least and whole.count == 0


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_chunks_of_length_0_between_others(dtype: Any) -> None:
    """They add nothing, also to groups, of integers that something is calculated with."""
    form = ra.derive_incremental(ra.parse("m = max[j](x[j]); return y = sum[j](exp(x[j] - m)), m = m"))
    acc, groups = form.accumulator(), form.grouped()
    for n in (0, 3, 0, 2):
        acc.update(x=np.arange(n).astype(dtype))
        groups.update(by=np.zeros(n, int), x=np.arange(n).astype(dtype))
    whole = form.compile("numpy")(x=np.array([0, 1, 2, 0, 1]).astype(dtype))
    for name, value in whole.items():
        np.testing.assert_allclose(acc.result()[name], value, 1e-6)
        np.testing.assert_allclose(groups.result()[1][name], [value], 1e-6)
