"""Casts in generated CPU code against ml_dtypes and the NumPy evaluator, and that loops over them are vectorised."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numba import njit, types

from redalg.graph.formats import FLOATS, INTEGERS, cast_fraction
from redalg.kernels.cpu.math import formats
from redalg.kernels.cpu.math.formats import CELLS
from redalg.kernels.cpu.math.functions import FUNCTIONS
from redalg.kernels.cpu.math.jitted import jitted
from redalg.kernels.cpu.math.values import F32, function
from redalg.numeric.casts import cast_array
from tests.support.assembly import vectorised

REAL = {"f32": np.float32, "f64": np.float64}
NUMBA = {"f32": types.float32, "f64": types.float64, "u8": types.uint8, "u16": types.uint16}
UNSIGNED = {"u8": np.uint8, "u16": np.uint16}
NARROW: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def mapped(name: str, inner: Any = None) -> Any:
    function = inner or FUNCTIONS[name]

    @njit(error_model="numpy", fastmath={"reassoc", "contract", "arcp"})
    def kernel(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    kernel.__name__ = name
    return kernel


def applied(name: str, x: np.ndarray, dtype: Any) -> np.ndarray:
    out = np.empty(x.shape, dtype)
    mapped(name)(x, out)
    return out


def cells(dtype: str) -> np.ndarray:
    """Every bit pattern of a format."""
    cell = UNSIGNED[CELLS[dtype]]
    return np.arange(2 ** (8 * cell().itemsize), dtype=np.uint32).astype(cell)


def numbers(dtype: str, real: Any = np.float64) -> np.ndarray:
    """Every number of a format."""
    with np.errstate(invalid="ignore"):
        return cells(dtype).view(NARROW[dtype]).astype(np.float64).astype(real)


def same(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal, zeros with their sign."""
    np.testing.assert_array_equal(found, expected)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[kept]), np.signbit(expected[kept]))


@pytest.mark.parametrize("end", REAL)
@pytest.mark.parametrize("dtype", NARROW)
def test_widening_gives_every_number(dtype: str, end: str) -> None:
    same(applied(f"widen_{dtype}_{end}", cells(dtype), REAL[end]), numbers(dtype, REAL[end]))


@pytest.mark.parametrize("end", REAL)
@pytest.mark.parametrize("dtype", NARROW)
def test_narrowing_a_number_of_the_format_gives_its_cell(dtype: str, end: str) -> None:
    bits, values = cells(dtype), numbers(dtype, REAL[end])
    found = applied(f"narrow_{dtype}_{end}", values, bits.dtype)
    kept = np.isfinite(values) if dtype != "float8_e4m3fn" else ~np.isnan(values)
    np.testing.assert_array_equal(found[kept], bits[kept])
    with np.errstate(invalid="ignore"):
        same(found.view(NARROW[dtype]).astype(np.float64), values.astype(np.float64))


def hard(dtype: str, end: str) -> np.ndarray:
    """All numbers of the format, the midpoints between neighbours, what lies next to both, and the far ends."""
    values = np.unique(numbers(dtype)[np.isfinite(numbers(dtype))])
    far = np.array(
        [np.inf, -np.inf, np.nan, 1e-45, 1e38, 3.4e38, 1e5, 449, 464, 480, 61440, 65519.99, 65520, 1e300, 1e-320]
    )
    with np.errstate(over="ignore"):
        x = np.concatenate([values, (values[1:] + values[:-1]) / 2, far, -far, [-0.0]]).astype(REAL[end])
    with np.errstate(invalid="ignore"):
        return np.concatenate([x, np.nextafter(x, REAL[end](np.inf)), np.nextafter(x, REAL[end](-np.inf))])


def expected_rounding(x: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return cast_array(x, dtype)


@pytest.mark.parametrize("end", REAL)
@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_at_every_number_and_midpoint(dtype: str, end: str) -> None:
    x = hard(dtype, end)
    expected = expected_rounding(x, dtype)
    same(applied(f"round_{dtype}_{end}", x, x.dtype), expected)
    narrow = applied(f"narrow_{dtype}_{end}", x, cells(dtype).dtype).view(NARROW[dtype])
    with np.errstate(invalid="ignore"):
        same(narrow.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_is_ml_dtypes_where_that_does_not_overflow(dtype: str) -> None:
    """Float32 patterns from every binade, straight to the format."""
    x = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = x[np.abs(x) <= float(FLOATS[dtype].largest)]
    same(applied(f"round_{dtype}_f32", x, np.float32), x.astype(NARROW[dtype]).astype(np.float32))


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_float64_rounds_once(dtype: str) -> None:
    """Just above a midpoint, by less than float32 can tell: rounding through float32 would give the even neighbour."""
    even = 1.0
    x = np.array([even + 2.0 ** -(FLOATS[dtype].bits + 1) + 2.0**-40])
    expected = float(cast_fraction(Fraction(x[0]), dtype))
    assert expected > even and applied(f"round_{dtype}_f64", x, np.float64)[0] == expected


@pytest.mark.parametrize("end", REAL)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_casts_round_to_even_and_saturate(dtype: str, end: str) -> None:
    low, high = INTEGERS[dtype]
    ends = [v + d for v in (low, high, 0) for d in (-1.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5, 2.5)]
    x = np.array([*ends, np.inf, -np.inf, np.nan, 1e30, -1e30], REAL[end])
    same(applied(f"round_{dtype}_{end}", x, x.dtype), cast_array(x, dtype))


def test_casts_to_the_wide_formats() -> None:
    x = np.array([1 / 3, 1e300, -1e-50, np.nan, 2.0**-149 * 1.5])
    with np.errstate(all="ignore"):
        same(applied("round_float32_f64", x, np.float64), x.astype(np.float32).astype(np.float64))
        y = x.astype(np.float32)
    same(applied("round_float64_f64", x, np.float64), x)
    same(applied("round_float32_f32", y, np.float32), y)
    same(applied("round_float64_f32", y, np.float32), y)


@pytest.mark.parametrize("dtype", NARROW)
def test_casts_without_instructions_for_float16(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "HALVES", False)
    cell = CELLS[dtype]
    bodies = {
        "widen": ([cell], "f32", partial(formats.widened, dtype=dtype, form=F32)),
        "narrow": (["f32"], cell, partial(formats.narrowed, dtype=dtype)),
        "round": (["f32"], "f32", partial(formats.rounded, dtype=dtype)),
    }
    widen, narrow, round_ = (mapped(n, jitted(n, function(*body))) for n, body in bodies.items())
    found = np.empty(cells(dtype).size, np.float32)
    widen(cells(dtype), found)
    same(found, numbers(dtype, np.float32))
    x = hard(dtype, "f32")
    expected, found, stored = expected_rounding(x, dtype), np.empty_like(x), np.empty(x.size, UNSIGNED[cell])
    round_(x, found)
    narrow(x, stored)
    same(found, expected)
    with np.errstate(invalid="ignore"):
        same(stored.view(NARROW[dtype]).astype(np.float32), expected)


CASTS = [
    "round_bfloat16_f32",
    "round_float16_f32",
    "round_float8_e4m3fn_f32",
    "round_float8_e5m2_f64",
    "round_int8_f32",
]


@pytest.mark.parametrize("name", CASTS)
def test_a_loop_over_a_rounding_is_vectorised(name: str) -> None:
    row = types.Array(NUMBA[name[-3:]], 1, "C")
    vectorised(mapped(name), (row, row))


@pytest.mark.parametrize("dtype", NARROW)
def test_loops_over_loads_and_stores_are_vectorised(dtype: str) -> None:
    wide, cell = (types.Array(NUMBA[k], 1, "C") for k in ("f32", CELLS[dtype]))
    vectorised(mapped(f"widen_{dtype}_f32"), (cell, wide))
    vectorised(mapped(f"narrow_{dtype}_f32"), (wide, cell))
