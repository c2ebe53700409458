"""Positions of extrema and short lists where elements are alike, or equal what a row begins with, in every dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import redalg as ra
from tests.support.sample import one_in
from tests.support.simulated import run

TEXTS = {
    "largest": "return i = argmax[j](y[a,j])",
    "smallest": "return i = argmin[j,k](y[a,j,k])",
    "columns": "return i = argmax[j](y[j,c]), m = max[j](y[j,c])",
    "by a sum": "tensors p[j] positive; s = sum[j](p[j]); return i = argmax[j](y[a,j]*s)",
    "list": "return v = topk[j:2:t](y[a,j]).values, i = topk[j:2:t](y[a,j]).indices",
    "list of opposites": "return v = topk[j:3:t](-y[a,j]).values",
}
DTYPES = ("float64", "int16")
LENGTHS = {"a": 3, "c": 3, "k": 1}


def _filled(fill: str, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    if dtype.kind == "f":
        least, largest = -np.inf, np.inf
    else:
        least, largest = np.iinfo(dtype).min, np.iinfo(dtype).max
    if fill == "either":
        return np.random.default_rng(shape).choice([least, largest], shape).astype(dtype)
    return np.full(shape, {"least": least, "largest": largest, "nan": np.nan, "equal": 1}[fill], dtype)


@pytest.mark.parametrize(("name", "dtype"), one_in(2, TEXTS, DTYPES))
def test_the_first_of_elements_that_are_all_alike(name: str, dtype: str) -> None:
    form = ra.derive_incremental(ra.parse(TEXTS[name]))
    ways: dict[str, Any] = {"cuda": lambda **arrays: run(form, arrays)[0], "numpy": form.compile("numpy")}
    if name.startswith("list"):
        ways["cpu"] = form.compile("cpu")
    kind = np.dtype(dtype)
    for length in (1, 33):  # rows of 33 elements begin anywhere in memory: their heads come last
        for fill in ("least", "largest", "equal", "either") + ("nan",) * (kind.kind == "f"):
            arrays = {
                t.name: np.ones(length) if t.name == "p" else _filled(fill, _shape(t.axes, length), kind)
                for t in form.spec.tensors
            }
            right = _named(form, ra.reference(form.spec, **arrays))
            for way, call in ways.items():
                for output, found in _named(form, call(**arrays)).items():
                    np.testing.assert_array_equal(found, right[output], f"{way} {output} {length} {fill}")


def _shape(axes: tuple[str, ...], length: int) -> tuple[int, ...]:
    return tuple(length if axis == "j" else LENGTHS[axis] for axis in axes)


def _named(form: ra.Form, found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}
