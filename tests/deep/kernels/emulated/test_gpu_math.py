"""Functions of generated CUDA code: instructions, exact casts (also where there are none), errors, emulation."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest
from numba import njit, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from redalg.graph.formats import INTEGERS
from redalg.kernels.cuda.intrinsics import conversions
from redalg.kernels.cuda.intrinsics import math as gpu_math
from redalg.kernels.cuda.intrinsics.math_accuracy import ERROR_ULP
from redalg.kernels.emulate import math as emulated_math
from redalg.kernels.launch.ptx import assemble, ptx_of, ptxas
from redalg.numeric.casts import cast_array
from tests.support.kernel_sources import Kernel, kernel

NARROW = conversions.NARROW
BITS = {8: (types.uint8, np.uint8), 16: (types.uint16, np.uint16)}
PAIRS = ("exact_sum", "sum_error", "exact_product", "product_error", "reciprocal_rest")
BINARY = ("pow", "div", "fast_div", "div_count", "max_nan", "min_nan", *PAIRS)
f32 = np.float32


def format_of(dtype: str) -> Any:
    return getattr(ml_dtypes, dtype, None) or np.float16


def patterns(dtype: str) -> Any:
    return np.arange(2 ** NARROW[dtype]).astype(BITS[NARROW[dtype]][1])


@cache
def samples() -> Any:
    """float32 of all sizes; for every narrow format its numbers, the midpoints between them, and their neighbours."""
    found = [np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32).view(f32)]
    for dtype in NARROW:
        with np.errstate(all="ignore"):
            values = np.unique(patterns(dtype).view(format_of(dtype)).astype(f32))
        values = values[np.isfinite(values)].astype(np.float64)
        middle = (values[1:] + values[:-1]) / 2
        top = 2 * values[-1] - values[-2]
        points = np.concatenate([values, middle, [(values[-1] + top) / 2, top, 2 * top]]).astype(f32)
        points = np.concatenate([points, -points])
        found += [points, np.nextafter(points, f32(np.inf)), np.nextafter(points, f32(-np.inf))]
    return np.concatenate([*found, f32([0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45])])


def rounded(x: Any, dtype: str) -> Any:
    """The nearest numbers of a format by ml_dtypes, where it saturates as we do by the definition."""
    with np.errstate(all="ignore"):
        found = x.astype(format_of(dtype)).astype(x.dtype)
        if dtype == "float8_e4m3fn":
            found = np.where(np.abs(x) > 448, np.copysign(x.dtype.type(448), x), found)
    return found


def same(a: Any, b: Any) -> bool:
    """The same numbers with the same signs, NaN where NaN."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.all((a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)))


# --- instructions ----------------------------------------------------------------------------------------------------


def everything() -> Kernel:
    """One kernel that calls every function."""
    lines = ["t = cuda.threadIdx.x"]
    for k, name in enumerate(gpu_math.names()):
        end, base = name[-3:], name[:-4]
        dtype = {"f32": "float32", "f64": "float64"}[end]
        x = f"load_{dtype}({'x' if end == 'f32' else 'd'}, t + {2 * k})"
        if name.startswith("widen"):
            store = f"store_float32(y, t + {k}, {name}(np.uint{NARROW[base[6:]]}(t)))"
        elif name.startswith("narrow"):
            store = f"store_uint16(h, t + {k}, np.int64({name}({x})))"
        else:
            call = f"{name}({x}, {x.replace('t +', '1 + t +')})" if base in BINARY else f"{name}({x})"
            call = f"{name}({x}, {x}, {x}, {x})" if base == "quotient" else call
            call = f"{'f32' if end == 'f32' else 'f64'}({call})" if base == "is_finite" else call
            store = f"store_{dtype}({'y' if end == 'f32' else 'e'}, t + {k}, {call})"
        lines.append(store)
    names = gpu_math.names()
    room = 2 * len(names) + 8
    inputs = [("x", "float32", np.ones(room, f32)), ("d", "float64", np.ones(room))]
    outputs = [("y", "float32", room), ("e", "float64", room), ("h", "uint16", room)]
    return kernel("everything", "\n".join(lines), inputs, outputs, extra="f32, f64 = np.float32, np.float64")


@pytest.mark.skipif(ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (9, 0)], ids=str)
def test_every_function_is_assembled_for_every_target(cc: tuple[int, int]) -> None:
    text = ptx_of(everything().module(), cc)[0]
    assert assemble(everything().module(), cc).entry in text
    assert ("max.NaN.f32" in text) == (cc >= (8, 0)) and ("e4m3x2.f32" in text) == (cc >= (8, 9))


def arithmetic(name: str) -> list[str]:
    """The PTX of one float32 function, without loads, stores and moves of constants."""
    body = f"store_float32(y, 0, {name}(load_float32(x, 0){', load_float32(x, 1)' if name[:-4] in BINARY else ''}))"
    k = kernel("one", body, [("x", "float32", np.ones(2, f32))], [("y", "float32", 1)])
    text = ptx_of(k.module(), (9, 0))[0]
    return re.findall(
        r"^\s+(?:\{ [^;]*; )?((?:mul|fma|ex2|add|sub|max|min|cvt\.sat|shl|rcp|div|setp)\.[\w.]+)", text, re.M
    )


def test_the_cheap_exponential_takes_five_instructions() -> None:
    text = " ".join(gpu_math.EXP_NONPOSITIVE)
    assert len(gpu_math.EXP_NONPOSITIVE) == 5 and text.count("ex2.approx.ftz.f32") == 1
    assert (
        8 <= len(arithmetic("exp_f32")) <= 9
    )  # the multiplication that saturates is two in PTX and one in machine code
    assert arithmetic("exp2_ftz_f32") == ["ex2.approx.ftz.f32"] and arithmetic("fast_rcp_f32") == ["rcp.approx.ftz.f32"]
    assert arithmetic("max_nan_f32") == ["max.NaN.f32"] and arithmetic("fast_div_f32") == ["div.full.f32"]


def test_a_float64_is_refused_by_a_function_of_float32() -> None:
    body = "store_float32(y, 0, exp_f32(load_float64(x, 0)))"
    k = kernel("wrong", body, [("x", "float64", np.ones(1))], [("y", "float32", 1)])
    with pytest.raises(TypingError, match="exp_f32 takes float32, and float64 was given"):
        ptx_of(k.module(), (9, 0))


# --- casts -----------------------------------------------------------------------------------------------------------


def on_the_cpu(body: Callable[[Any, Any], Any], takes: Any, gives: Any) -> Callable[[Any, Any], None]:
    """LLVM for the GPU that has no PTX in it, run by Numba on the CPU."""

    @intrinsic
    def call(typing: Any, x: Any) -> Any:
        return gives(takes), lambda context, b, sig, args: body(b, args[0])

    @njit
    def run(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = call(x[i])

    return run


@pytest.mark.parametrize("dtype", NARROW)
def test_widening_by_arithmetic_is_exact_for_every_pattern(dtype: str) -> None:
    kind, _ = BITS[NARROW[dtype]]
    run = on_the_cpu(lambda b, x: conversions.widen(b, dtype, x, conversions.NONE), kind, types.float32)
    x, out = patterns(dtype), np.empty(2 ** NARROW[dtype], f32)
    run(x, out)
    with np.errstate(all="ignore"):
        assert same(out, x.view(format_of(dtype)).astype(f32))


@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("dtype", NARROW)
def test_narrowing_by_arithmetic_rounds_once(dtype: str, real: str) -> None:
    kind, bits = BITS[NARROW[dtype]]
    takes = getattr(types, real)
    run = on_the_cpu(lambda b, x: conversions.narrow_float(b, dtype, x, conversions.NONE), takes, kind)
    x = points(real)
    out = np.empty(x.size, bits)
    run(x, out)
    with np.errstate(all="ignore"):
        assert same(out.view(format_of(dtype)).astype(np.float64), rounded_once(x, dtype))


def points(real: str) -> Any:
    with np.errstate(all="ignore"):
        x = samples().astype(real)
    if real == "float32":
        return x
    near = x[np.isfinite(x)]
    return np.concatenate([x, near * (1 + 2**-50), near * (1 - 2**-50), [1e300, -1e300, 1e-300, 5e-324]])


def rounded_once(x: Any, dtype: str) -> Any:
    with np.errstate(all="ignore"):
        return cast_array(x, dtype)  # ml_dtypes rounds float64 twice, by way of float32


@pytest.mark.parametrize("dtype", NARROW)
def test_emulations_of_casts_are_those_of_ml_dtypes(dtype: str) -> None:
    x, bits = samples(), patterns(dtype)
    with np.errstate(all="ignore"):
        numbers = bits.view(format_of(dtype)).astype(f32)
        assert same(getattr(emulated_math, f"widen_{dtype}_f32")(bits), numbers)
        assert same(getattr(emulated_math, f"round_{dtype}_f32")(x), rounded(x, dtype))
        back = getattr(emulated_math, f"narrow_{dtype}_f32")
        assert np.all((back(numbers) == bits) | np.isnan(numbers))
        assert same(back(x).view(format_of(dtype)).astype(f32), rounded(x, dtype))
        wide = points("float64")
        found = getattr(emulated_math, f"narrow_{dtype}_f64")(wide).view(format_of(dtype)).astype(np.float64)
        assert same(found, rounded_once(wide, dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_emulations_of_integer_casts_round_half_to_even_and_saturate(dtype: str) -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 7.5, 127.5, 255.5, -129.0, 1e10, -1e10, 1e30, -1e30, np.inf, np.nan], f32)
    low, high = INTEGERS[dtype]
    want = [v if v != v else min(max(f32(np.rint(v)), f32(low)), f32(high)) for v in x]
    assert np.array_equal([getattr(emulated_math, f"round_{dtype}_f32")(v) for v in x], want, equal_nan=True)


# --- errors ----------------------------------------------------------------------------------------------------------


def test_every_function_of_reals_states_its_error() -> None:
    exact = {"abs", "sign", "pow2", "is_finite", "max_nan", "min_nan", *PAIRS, "quotient"}
    bases = {n[:-4] for n in gpu_math.names() if not n.startswith(("round_", "widen_", "narrow_"))}
    assert bases - exact == set(ERROR_ULP)
    assert all(a.source in ("guide", "ptx", "derived", "measured") for a in ERROR_ULP.values())


def test_the_emulations_have_the_same_names() -> None:
    assert set(emulated_math.EMULATED) == set(gpu_math.names())


DOMAIN = {
    "log": (0.01, 9),
    "log2": (0.01, 9),
    "fast_log": (0.01, 9),
    "sqrt": (0, 9),
    "rsqrt": (0.01, 9),
    "rcp_sqrt": (0.01, 9),
    "div_count": (1, 9),
    "acosh": (1, 9),
    "log1p": (-0.9, 9),
    "pow": (0.1, 9),
}
DOMAIN |= dict.fromkeys(("asin", "acos", "atanh"), (-0.99, 0.99)) | {"exp_nonpositive": (-80, 0)}
EXACT: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "fast_sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "rcp": lambda x: 1 / x,
    "div": lambda x, y: x / y,
    "fast_div": lambda x, y: x / y,
    "div_count": lambda x, y: x / y,
    "rcp_sqrt": lambda x: 1 / mpmath.sqrt(x),
    "fast_rcp": lambda x: 1 / x,
    "pow": mpmath.power,
    "log2": lambda x: mpmath.log(x, 2),
    "exp2": lambda x: mpmath.power(2, x),
    "exp2_ftz": lambda x: mpmath.power(2, x),
    "exp_nonpositive": mpmath.exp,
    "fast_exp": mpmath.exp,
    "fast_log": mpmath.log,
    "fast_tanh": mpmath.tanh,
    "fast_erfc": mpmath.erfc,
    "rint": mpmath.nint,
}


def exact(name: str) -> Callable[..., Any]:
    return EXACT.get(name) or getattr(mpmath, name)


@pytest.mark.parametrize("name", ERROR_ULP)
def test_emulations_keep_the_stated_errors(name: str) -> None:
    rng = np.random.default_rng(0)
    for end, real in (("f32", f32), ("f64", np.float64)):
        if f"{name}_{end}" not in emulated_math.EMULATED:
            continue
        bound = max(getattr(ERROR_ULP[name], end), 0.51)
        for x in rng.uniform(*DOMAIN.get(name, (-9, 9)), (40, 2)).astype(real):
            given = x if name in BINARY else x[:1]
            found = getattr(emulated_math, f"{name}_{end}")(*given)
            with mpmath.workprec(120):
                true = exact(name)(*map(mpmath.mpf, map(float, given)))
                assert type(found) is real
                assert abs(mpmath.mpf(float(found)) - true) <= bound * float(np.spacing(abs(real(float(true))))), (
                    x,
                    end,
                )


def fma(a: Any, b: Any, c: Any) -> Any:
    """Of float32, as 64 bits of a product and a sum, rounded once more."""
    wide = [np.asarray(v, f32).astype(np.longdouble) for v in (a, b, c)]
    return (wide[0] * wide[1] + wide[2]).astype(f32)


@pytest.mark.parametrize("off", [0, 1, -1])
def test_the_instructions_of_div_count_keep_its_bound(off: int) -> None:
    """With a reciprocal that is `off` units beside the nearest one: counts of every size, sums of every size."""
    rng = np.random.default_rng(7)
    n = np.floor(np.concatenate([np.arange(1, 70000), 2.0 ** rng.uniform(0, 63, 50000)])).astype(f32)
    x = (rng.uniform(1, 2, len(n)) * 2.0 ** rng.uniform(-149, 126.9, len(n))).astype(f32)
    r = (f32(1) / n).astype(f32)
    r = (r.view(np.int32) + off).view(f32)
    r = fma(r, fma(-n, r, f32(1)), r)
    q = (x * r).astype(f32)
    found = fma(fma(-n, q, x), r, q).astype(np.float64)
    units = np.abs(found - x.astype(np.float64) / n) / np.spacing(np.abs(x / n))
    assert units.max() <= ERROR_ULP["div_count"].f32
    text = " ".join(gpu_math.DIV_COUNT)
    assert re.findall(r"(\w+)\.[\w.]+ ", text) == "rcp neg fma fma mul fma fma abs setp selp".split()


@pytest.mark.parametrize("off", [0.0, 2.0**-22.9, -(2.0**-22.9)])
def test_the_instructions_of_rcp_sqrt_keep_its_bound(off: float) -> None:
    """With a reciprocal root of one instruction that is `off` of itself beside the true one (PTX ISA: 2^-22.9)."""
    rng = np.random.default_rng(8)
    x = (rng.uniform(1, 4, 200000) * 4.0 ** rng.integers(-74, 63, 200000)).astype(f32)
    x = x[x > 0]
    true = 1 / np.sqrt(x.astype(np.float64))
    r = (true * (1 + off)).astype(f32)
    e = fma(-(x * r).astype(f32), r, f32(1))
    found = fma((r * f32(0.5)).astype(f32), e, r).astype(np.float64)
    units = np.abs(found - true) / np.spacing(true.astype(f32))
    assert units.max() <= ERROR_ULP["rcp_sqrt"].f32
    text = " ".join(gpu_math.RCP_SQRT)
    assert re.findall(r"(\w+)\.[\w.]+ ", text) == "rsqrt mul neg fma mul fma abs setp selp".split()


def model_of_fast_log(x: Any, off: float) -> Any:
    """The instructions of fast_log in NumPy: constants read from their text, the approximate log2 wrong by `off`."""
    text = " ".join(gpu_math.FAST_LOG)
    ln2, minus, *q, eighth = (np.uint32(int(h, 16)).view(f32) for h in re.findall("0f([0-9A-F]{8})", text))
    t = (x + minus).astype(f32)
    value = np.full_like(t, q[0])
    for c in q[1:]:
        value = (value.astype(np.float64) * t + c).astype(f32)
    near = ((t * t).astype(f32).astype(np.float64) * value + t).astype(f32)
    far = ((np.log2(x.astype(np.float64)) + off).astype(f32) * ln2).astype(f32)
    return np.where(np.abs(t) < eighth, near, far)


@pytest.mark.parametrize("off", [0.0, 2.0**-22, -(2.0**-22)])
def test_the_instructions_of_fast_log_keep_its_bound(off: float) -> None:
    x = np.concatenate([np.linspace(0.5, 2, 300001), 1 + np.linspace(-0.126, 0.126, 300001)]).astype(f32)
    x = np.unique(np.concatenate([x, f32(1) + np.float32(2.0) ** np.arange(-23, -3, dtype=f32), [f32(1 - 2.0**-24)]]))
    true, found = np.log(x.astype(np.float64)), model_of_fast_log(x, off).astype(np.float64)
    assert found[x == 1] == 0
    units = np.abs(found - true) / np.spacing(np.abs(true).astype(f32))
    assert units.max() <= ERROR_ULP["fast_log"].f32 and units[np.abs(x - 1) < 0.125].max() < 1


def model_of_fast_erfc(x: Any, off: float) -> Any:
    """The instructions of fast_erfc in NumPy: constants from their text, the reciprocal wrong by `off` of itself."""
    text = " ".join(gpu_math.FAST_ERFC)
    half, one, minus, *q, two, _ = (np.uint32(int(h, 16)).view(f32) for h in re.findall("0f([0-9A-F]{8})", text))
    a = np.abs(x)
    t = (1 / fma(a, half, one).astype(np.float64) * (1 + off)).astype(f32)
    e = np.exp2(((a * a).astype(f32) * minus).astype(f32).astype(np.float64)).astype(f32)
    e = (np.where(e < 2.0**-126, f32(0), e) * t).astype(f32)
    value = np.full_like(t, q[0])
    for c in q[1:]:
        value = fma(value, t, c)
    value = (value * e).astype(f32)
    return np.where(x < 0, two - value, value)


@pytest.mark.parametrize("off", [0.0, 2.0**-23, -(2.0**-23)])
def test_the_instructions_of_fast_erfc_keep_its_bound(off: float) -> None:
    x = np.concatenate([np.linspace(-9.3, 9.3, 200001), 2.0 ** np.linspace(-40, 3, 2001)]).astype(f32)
    true, found = np.vectorize(math.erfc)(x.astype(np.float64)), model_of_fast_erfc(x, off).astype(np.float64)
    normal = true >= 2.0**-126
    units = np.abs(found - true)[normal] / np.spacing(true[normal].astype(f32))
    assert units.max() <= ERROR_ULP["fast_erfc"].f32 and units[np.abs(x[normal]) < 1].max() < 64
    assert (found[~normal] <= 2.0**-126).all()
    with np.errstate(all="ignore"):
        special = model_of_fast_erfc(f32([np.inf, -np.inf, np.nan, 1e30, -1e30, -20]), off)
    np.testing.assert_array_equal(special, f32([0, 2, np.nan, 0, 2, 2]))


def model_of_exp_nonpositive(x: Any) -> Any:
    """The five instructions in NumPy, each rounded once from float64, which holds products of float32 exactly."""
    up, upper, lower = (np.uint32(int(h, 16)).view(f32).astype(np.float64) for h in CONSTANTS)
    product = x.astype(np.float64) * up
    h = product.astype(f32)
    h = np.where(h > product, np.nextafter(h, f32(-np.inf)), h).astype(np.float64)
    part = (h * upper + x).astype(f32)
    part = (h * lower + part).astype(f32)
    part = np.where(np.isnan(part), f32(0), np.clip(part, f32(0), f32(1)))
    e = np.exp2(h).astype(f32)
    e = np.where(e < 2.0**-126, f32(0), e)
    return (e.astype(np.float64) * part + e).astype(f32)


CONSTANTS = re.findall(r"0f([0-9A-F]{8})", " ".join(gpu_math.EXP_NONPOSITIVE))


def test_the_cheap_exponential_loses_half_a_unit_beyond_its_instruction() -> None:
    assert CONSTANTS == ["3FB8AA3C", "BF317218", "3102E308"]
    x = -np.exp(np.random.default_rng(0).uniform(-20, np.log(87.3), 1_000_000)).astype(f32)
    with np.errstate(all="ignore"):
        found, true = model_of_exp_nonpositive(x), np.exp(x.astype(np.float64))
        assert np.max(np.abs(found - true) / np.spacing(true.astype(f32))) <= 1.01  # 0.5 of ex2, 0.5 of the product
        special = model_of_exp_nonpositive(f32([0.0, -0.0, -np.inf, np.nan, -88, -104, -1e30]))
    np.testing.assert_array_equal(special, f32([1, 1, 0, np.nan, 0, 0, 0]))


def test_extremes_and_signs_of_special_values() -> None:
    t, nan, inf = emulated_math, np.nan, np.inf
    assert np.isnan(t.max_nan_f32(f32(nan), f32(1))) and np.isnan(t.min_nan_f64(1.0, nan))
    assert t.max_nan_f32(f32(-inf), f32(1)) == 1 and t.sign_f32(f32(-3)) == -1 and np.isnan(t.sign_f64(nan))
    assert not t.is_finite_f32(f32(inf)) and not t.is_finite_f64(nan) and t.is_finite_f32(f32(3e38))
    with np.errstate(all="ignore"):
        assert t.sigmoid_f32(f32(-inf)) == 0 and t.sigmoid_f32(f32(inf)) == 1 and 0 < t.sigmoid_f32(f32(-100)) < 1e-40
        assert t.exp_f32(f32(-100)) > 0 == t.exp_nonpositive_f32(f32(-100)) == t.fast_exp_f32(f32(-100))
        assert t.exp_nonpositive_f32(f32(-inf)) == 0 and np.isnan(t.exp_nonpositive_f32(f32(nan)))
    with pytest.raises(ValueError, match="exp_nonpositive"):
        t.exp_nonpositive_f32(f32(0.1))
