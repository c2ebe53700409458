"""Functions of generated CPU code: their errors, their special values, and that loops over them are vectorised."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from numba import njit, types

from redalg.errors import RedalgError
from redalg.kernels.cpu.math import functions
from redalg.kernels.cpu.math.functions import FUNCTIONS
from redalg.kernels.cpu.math.table import ERROR_ULP, OPERATIONS, SCALAR
from tests.support.assembly import vectorised

FLAGS = {"reassoc", "contract", "arcp"}  # what generated kernels allow
DTYPES = {"f32": np.float32, "f64": np.float64}
KINDS = {"f32": types.float32, "f64": types.float64}
TRUTH: dict[str, Any] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "expm1": mpmath.expm1,
    "tanh": mpmath.tanh,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "log": mpmath.log,
    "log1p": mpmath.log1p,
    "erf": mpmath.erf,
    "erfc": mpmath.erfc,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "asinh": mpmath.asinh,
    "acosh": mpmath.acosh,
    "atanh": mpmath.atanh,
    "log2": lambda x: mpmath.log(x, 2),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
}
NUMPY = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "tanh": np.tanh,
    "log": np.log,
    "log1p": np.log1p,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
}
INF, NAN = math.inf, math.nan


def mapped(name: str) -> Any:
    """A kernel of the kind that is generated: the function over a row, inlined."""
    function = FUNCTIONS[name]

    @njit(error_model="numpy", fastmath=FLAGS)
    def kernel(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = function(x[i])

    kernel.__name__ = name
    return kernel


def applied(name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    mapped(name)(x, out)
    return out


def ulps(found: np.ndarray, x: np.ndarray, name: str) -> float:
    """The largest error in units in the last place of the true value, where that is finite."""
    worst = 0.0
    with mpmath.workdps(40):
        for a, y in zip(x.tolist(), found.tolist(), strict=True):
            true = TRUTH[name](mpmath.mpf(a))
            rounded = abs(x.dtype.type(min(true, mpmath.mpf(1e300)) if x.dtype == np.float32 else true))
            if np.isfinite(rounded) and rounded < np.finfo(x.dtype).max:
                worst = max(worst, float(abs(mpmath.mpf(y) - true) / mpmath.mpf(float(np.spacing(rounded)))))
    return worst


def arguments(name: str, dtype: Any) -> np.ndarray:
    """Half where the function bends, half over the whole range where it is neither 0, infinite nor constant."""
    rng = np.random.default_rng(0)
    near = np.concatenate([rng.normal(size=300), 10.0 ** rng.uniform(-9, 1, 200) * rng.choice([-1, 1], 200)])
    if name in ("atanh", "asin", "acos"):
        return np.concatenate([np.tanh(near), 1 - 10.0 ** rng.uniform(-7, 0, 300)]).astype(dtype)
    if name in ("log", "log2", "log1p", "asinh", "acosh", "atan"):
        low, high = (-45, 38) if dtype == np.float32 else (-323, 308)
        wide = 10.0 ** rng.uniform(low, high, 300)
        near = np.maximum(near, -0.999) if name == "log1p" else np.abs(near)
        if name == "acosh":
            near, wide = 1 + near, 1 + wide
        return np.concatenate([near, wide, 1 + near[:300] / 100]).astype(dtype)
    end = {"erfc": 27, "erf": 7, "tanh": 20}.get(name, 745)
    return np.concatenate([near, rng.uniform(-end, end, 300), rng.uniform(-end, end, 300) / 7.2]).astype(dtype)


@pytest.mark.parametrize("end", DTYPES)
@pytest.mark.parametrize("name", TRUTH)
@pytest.mark.filterwarnings("ignore:overflow")
def test_errors_are_as_stated(name: str, end: str) -> None:
    x = arguments(name, DTYPES[end])
    assert ulps(applied(f"{name}_{end}", x), x, name) <= ERROR_ULP[name][end == "f64"]


SPECIAL = np.array(
    [3.4e38, 89.1, INF, -INF, NAN, -NAN, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 1e38, -1e38, -87.5, -103.5, -104.5]
)


@pytest.mark.parametrize("end", DTYPES)
@pytest.mark.parametrize("name", NUMPY)
def test_special_values_are_numpys(name: str, end: str) -> None:
    x = SPECIAL.astype(DTYPES[end])
    with np.errstate(all="ignore"):
        found, expected = applied(f"{name}_{end}", x), NUMPY[name](x)
    np.testing.assert_allclose(
        found, expected, rtol=3 * np.finfo(x.dtype).eps, atol=2 * np.finfo(x.dtype).smallest_subnormal
    )
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("end", DTYPES)
def test_ends_of_the_functions_numpy_lacks(end: str) -> None:
    x = np.array([INF, -INF, NAN, 0.0, -0.0], DTYPES[end])
    np.testing.assert_array_equal(applied(f"sigmoid_{end}", x), [1, 0, NAN, 0.5, 0.5])
    np.testing.assert_array_equal(applied(f"erf_{end}", x), [1, -1, NAN, 0, 0])
    np.testing.assert_array_equal(applied(f"erfc_{end}", x), [0, 2, NAN, 1, 1])
    np.testing.assert_array_equal(np.signbit(applied(f"erf_{end}", x)[3:]), [False, True])


@pytest.mark.parametrize("end", DTYPES)
def test_exp_underflows_through_the_subnormals(end: str) -> None:
    tiny = np.finfo(DTYPES[end]).smallest_subnormal
    x = np.array([math.log(tiny) + 0.1, math.log(tiny) - 1], DTYPES[end])
    np.testing.assert_array_equal(applied(f"exp_{end}", x), np.array([tiny, 0], DTYPES[end]))
    np.testing.assert_array_equal(applied(f"sigmoid_{end}", x), np.array([tiny, 0], DTYPES[end]))


def test_float32_errors_over_samples_of_every_binade() -> None:
    """Every 65537th bit pattern, against float64."""
    x = np.arange(0, 2**32, 65537, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        for name, function in NUMPY.items():
            found, true = applied(f"{name}_f32", x), function(x.astype(np.float64))
            inside = np.isfinite(true) & (np.abs(true) < 2.0**128)
            unit = np.ldexp(1.0, np.maximum(np.frexp(true[inside])[1], -125) - 24)
            error = np.abs(found[inside].astype(np.float64) - true[inside]) / unit
            assert error.max() <= ERROR_ULP[name][0], name
            np.testing.assert_array_equal(np.isnan(found), np.isnan(true), name)


def test_float32_angles_next_to_multiples_of_a_quarter_turn() -> None:
    """Where sine, cosine or tangent are smallest: what is left of x is what whole turns do not cancel."""
    with mpmath.workdps(60):
        multiples = [n * mpmath.pi / 2 for n in (1, 2, 3, 5, 1021, 2**20 + 1, *(3**k for k in range(20, 80, 3)))]
        x = np.array([float(m) for m in multiples] + [2.0**k for k in range(-149, 128)]).astype(np.float32)
        # of all float32 the nearest to a multiple of π/2, 1.6e-9 from it (Muller, "Elementary Functions", 2016)
        x = np.concatenate([x, -x, np.array([16367173 * 2.0**72], "f4")])
        for name in ("sin", "cos", "tan"):
            assert ulps(applied(f"{name}_f32", x), x, name) <= ERROR_ULP[name][0], name


REMAINING: dict[str, Any] = {
    "rcp": lambda x: 1 / x,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
}


@pytest.mark.parametrize("name", REMAINING)
def test_remaining_functions_agree_with_numpy(name: str) -> None:
    for dtype, end in ((np.float32, "f32"), (np.float64, "f64")):
        x = np.array([0.3, -0.7, 2.5, 3.5, -1.5, 0.0, -0.0, 7.25, INF, -INF, NAN], dtype)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(applied(f"{name}_{end}", x), REMAINING[name](x), rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("end", DTYPES)
def test_functions_of_two_arguments(end: str) -> None:
    real = DTYPES[end]
    most, least = (FUNCTIONS[f"{n}_{end}"] for n in ("max_nan", "min_nan"))
    for a, b in ((1, 2), (2, 1), (INF, -INF), (-INF, -INF), (NAN, 1), (1, NAN), (NAN, INF), (-1, -3)):
        np.testing.assert_array_equal(most(real(a), real(b)), np.maximum(real(a), real(b)))
        np.testing.assert_array_equal(least(real(a), real(b)), np.minimum(real(a), real(b)))
    finite = FUNCTIONS[f"is_finite_{end}"]
    assert [finite(real(v)) for v in (0, -1, INF, -INF, NAN)] == [True, True, False, False, False]


@pytest.mark.parametrize("end", DTYPES)
def test_powers(end: str) -> None:
    """Every pair of special values as in C, and random pairs."""
    power = FUNCTIONS[f"pow_{end}"]

    @njit(error_model="numpy", fastmath=FLAGS)
    def kernel(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = power(x[i], y[i])

    special = [0, 1, 2, 3, 0.5, 2.5, INF, NAN, 1e-40, 1e38, 2**24, 2**24 - 1, 2**24 + 2]
    values = np.array([s * v for v in special for s in (1, -1)], DTYPES[end])
    rng = np.random.default_rng(0)
    x = np.concatenate([np.repeat(values, values.size), 10 ** rng.normal(size=500)]).astype(DTYPES[end])
    y = np.concatenate([np.tile(values, values.size), 5 * rng.normal(size=500)]).astype(DTYPES[end])
    out = np.empty_like(x)
    kernel(x, y, out)
    with np.errstate(all="ignore"):
        expected = np.power(x, y)
    np.testing.assert_allclose(out, expected, rtol=2 * np.finfo(x.dtype).eps)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[known]), np.signbit(expected[known]))
    if end == "f32":
        vectorised(kernel, (types.Array(types.float32, 1, "C"),) * 3)


# --- machine code -----------------------------------------------------------------------------------------------------


PAIRS = ("exact_sum", "sum_error", "exact_product", "product_error")
ONE_ARGUMENT = [
    name
    for name in OPERATIONS
    if name not in SCALAR
    and not name.startswith(("max_", "min_", "round_", "widen_", "narrow_", "pow_", "is_"))
    and name[:-4] not in ("abs", "sign", *PAIRS)  # without arithmetic, or of two numbers
]


@pytest.mark.parametrize("name", ONE_ARGUMENT)
def test_a_loop_over_a_function_is_vectorised(name: str) -> None:
    row = types.Array(KINDS[name[-3:]], 1, "C")
    vectorised(mapped(name), (row, row))


@pytest.mark.parametrize("end", DTYPES)
def test_a_nan_propagating_maximum_is_a_vector_reduction(end: str) -> None:
    most, start = FUNCTIONS[f"max_nan_{end}"], DTYPES[end](-INF)

    @njit(error_model="numpy", fastmath=FLAGS)
    def largest(x: Any) -> Any:
        m = start
        for i in range(x.size):
            m = most(m, x[i])
        return m

    vectorised(largest, (types.Array(KINDS[end], 1, "C"),), r"maxp[sd].*%[xyz]mm|fmax.*\.[24][sd]|\bfcmgt.*\.[24][sd]")
    x = np.random.default_rng(0).normal(size=1003).astype(DTYPES[end])
    assert largest(x) == x.max()
    x[[17, 401]] = NAN, INF
    assert np.isnan(largest(x)) and largest(x[18:]) == INF and largest(x[:0]) == -INF


def test_fast_math_of_the_caller_stays_outside() -> None:
    """Reassociated, x - k·ln 2 loses what the split of ln 2 holds, and (x + c) - c is x."""
    x = np.linspace(-80, 80, 10001).astype(np.float32)
    found, true = applied("exp_f32", x).astype(np.float64), np.exp(x.astype(np.float64))
    assert np.abs(found / true - 1).max() < ERROR_ULP["exp"][0] * 2.0**-23


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(RedalgError, match="the function 'gamma_f32'"):
        _ = functions.gamma_f32
