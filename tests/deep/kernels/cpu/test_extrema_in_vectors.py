"""Extrema and their positions by vectors: lengths around those of vectors and strips, ties, zeros, infinities, NaN."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import redalg as ra

SPECS = {
    "argmax": "return y = argmax[j](x[i,j])",
    "argmin": "return y = argmin[j](x[i,j])",
    "ends": "return high = max[j](x[i,j]), low = min[j](x[i,j])",
    "all": "return at = argmax[j](x[i,j]), top = max[j](x[i,j]), low = argmin[j](x[i,j]), bottom = min[j](x[i,j])",
    "mapped": "return y = argmax[j](abs(x[i,j])), z = argmin[j](-2*x[i,j])",
    "weighed": "return y = argmax[j](x[i,j]*w[j]), top = max[j](x[i,j]*w[j])",
    "with a sum": "return y = argmax[j](x[i,j]), s = max[j](x[i,j]) + sum[j](where(x[i,j] > 0, 1, 0))",
    "capped": "return y = argmax[j](where(x[i,j] > 1, 1, x[i,j])), z = min[j](x[i,j]) + max[j](abs(x[i,j]))",
}
LENGTHS = (*range(1, 71), 127, 128, 129, 255, 300, 1023, 1024, 1025, 2047, 2048, 2049, 2063, 4100, 8192, 8193, 9000)
LONG = 65535, 65536, 66000, 140001  # in splits
DTYPES = "float32", "float64", "float16", "bfloat16", "int8", "int32", "int64"
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-42])


@cache
def compiled(name: str) -> tuple[Any, Any]:
    spec = ra.parse(SPECS[name])
    return spec, ra.derive_incremental(spec).compile("cpu")


def dtype_of(word: str) -> Any:
    if word == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(word)


def drawn(rng: np.random.Generator, rows: int, length: int, word: str) -> np.ndarray:
    """Rows of few different numbers (ties), of many, of one, with a single NaN, and of what is no number."""
    dtype = dtype_of(word)
    if dtype.kind == "i":
        info = np.iinfo(dtype)
        x = rng.integers(-3, 4, (rows, length))
        x[0] = 0
        x[-1, rng.integers(0, length)] = info.max // 2
        return x.astype(dtype)
    x = rng.integers(-3, 4, (rows, length)).astype(np.float64)
    x[0] = rng.standard_normal(length)
    x[1] = -0.0
    x[1, ::3] = 0.0
    x[2] = -np.inf
    x[3, rng.integers(0, length)] = np.nan
    x[4, rng.integers(0, length, 1 + length // 7)] = np.nan
    x[5] = rng.choice(ODD, length)
    x[6] = rng.choice(ODD[1:], length)
    x[7, -1] = 9.0
    return x.astype(dtype)


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same numbers: at an odd element, with gaps between rows or elements, from the last to the first, rows side by
    side."""
    rows, length = x.shape
    shifted = np.zeros(rows * length + 1, x.dtype)[1:].reshape(rows, length)
    gaps, back, apart = (np.zeros(shape, x.dtype) for shape in ((rows, length + 3), x.shape, (rows, 2 * length)))
    shifted[...] = gaps[:, 1:-2] = back[:, ::-1] = apart[:, ::2] = x
    return {
        "whole": x,
        "shifted": shifted,
        "gaps": gaps[:, 1:-2],
        "backwards": back[:, ::-1],
        "apart": apart[:, ::2],
        "columns": np.asfortranarray(x),
        "some columns": np.asfortranarray(np.concatenate([x, x, x]))[3 : rows + 3],
    }


def compared(name: str, x: np.ndarray, seed: int) -> None:
    spec, run = compiled(name)
    arrays = {"x": x}
    if "w[j]" in SPECS[name]:
        arrays["w"] = np.random.default_rng(seed).choice(np.array([1, 2, -1]), x.shape[1]).astype(x.dtype)
    found, true = run(**arrays), ra.reference(spec, **arrays)
    for key in spec.outputs:
        a, b = (np.asarray(r[key] if isinstance(r, dict) else r) for r in (found, true))
        b = b.astype(a.dtype)
        if a.dtype.kind != "i":
            a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_array_equal(a, b, err_msg=f"{name} {x.dtype} {x.shape} {x.strides} {key}")


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("word", DTYPES)
def test_as_the_definition_has_it(name: str, word: str) -> None:
    rng = np.random.default_rng(len(name) + len(word))
    for length in LENGTHS:
        compared(name, drawn(rng, 8, length, word), length)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("word", ("float32", "float64", "float16"))
def test_of_rows_in_splits(name: str, word: str) -> None:
    rng = np.random.default_rng(len(name) + len(word))
    for length in LONG:
        compared(name, drawn(rng, 8, length, word), length)


@pytest.mark.parametrize("name", ("argmax", "ends", "all", "mapped"))
@pytest.mark.parametrize("word", ("float32", "float64", "float16", "int32"))
def test_wherever_rows_lie(name: str, word: str) -> None:
    rng = np.random.default_rng(5)
    for length in (1, 2, 5, 15, 16, 17, 31, 50, 63, 65, 130, 2050, 20000, 40000):
        for x in views(drawn(rng, 8, length, word)).values():
            compared(name, x, length)


@pytest.mark.parametrize("word", ("float32", "float64", "float16"))
def test_one_odd_element_anywhere(word: str) -> None:
    """Every place of a maximum, of a NaN and of a later equal one."""
    for length in (3, 16, 17, 40, 64, 100, 150):
        places = np.arange(length)
        x = np.zeros((length, length), word)
        x[places, places] = 1
        compared("argmax", x, 0)
        compared("argmin", -x, 0)
        x[places, places] = np.nan
        x[:, length // 2] = np.where(places == length // 2, x[:, length // 2], np.inf)
        compared("argmax", x, 0)
        compared("all", x, 0)
        x[places, (places + length // 3) % length] = np.nan
        compared("argmin", x, 0)


def test_of_no_elements() -> None:
    for name in ("argmax", "ends", "all"):
        compared(name, np.zeros((3, 0), np.float32), 0)
        compared(name, np.zeros((0, 7), np.float32), 0)
