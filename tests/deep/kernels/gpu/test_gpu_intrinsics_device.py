"""On a GPU: intrinsics do what their emulations do, casts what ml_dtypes does, functions keep their errors.

Run it with ``pytest -m gpu tests/deep/kernels/gpu/test_gpu_intrinsics_device.py -rA`` to see the largest errors
measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from redalg.graph.formats import INTEGERS
from redalg.kernels.cuda.intrinsics import math as gpu_math
from redalg.kernels.cuda.intrinsics.math_accuracy import ERROR_ULP
from redalg.kernels.emulate.run import run
from redalg.kernels.ir.program import Module
from tests.deep.kernels.emulated.test_gpu_math import (
    BINARY,
    DOMAIN,
    NARROW,
    exact,
    format_of,
    patterns,
    points,
    rounded_once,
    same,
    samples,
)
from tests.support.kernel_sources import CELLS, Kernel, all_kernels, kernel

pytestmark = pytest.mark.gpu
f32 = np.float32
LEAST = 2.0**-126
FLUSHED = {"exp_nonpositive", "fast_exp", "exp2_ftz", "fast_rcp", "fast_erfc"}
# float64 references are good for float32; where NumPy has no such function mpmath is slow, so that samples are fewer
REFERENCE: dict[str, Callable[..., Any]] = {
    "exp_nonpositive": np.exp,
    "fast_exp": np.exp,
    "fast_log": np.log,
    "exp2_ftz": np.exp2,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x,
    "fast_rcp": lambda x: 1 / x,
    "div": np.divide,
    "fast_div": np.divide,
    "div_count": np.divide,
    "rcp_sqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "fast_sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "fast_tanh": np.tanh,
    "fast_erfc": lambda x: np.vectorize(math.erfc, otypes=[np.float64])(x),
    **{
        n: getattr(np, n)
        for n in (
            "exp",
            "exp2",
            "log2",
            "log",
            "log1p",
            "expm1",
            "tanh",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "sqrt",
            "floor",
            "ceil",
            "rint",
        )
    },
}


# --- launching -------------------------------------------------------------------------------------------------------


def launched(
    module: Module, inputs: list[Any], outputs: list[Any], blocks: int, threads: int, cluster: int = 1
) -> None:
    """Run a kernel on the first device; `outputs` are filled."""
    from cuda.bindings import driver as cu

    from redalg.kernels.launch import driver

    driver.activate(0)
    held = []
    for array in (*inputs, *outputs):
        pointer = driver.checked(cu.cuMemAlloc(max(16, array.nbytes)))
        driver.checked(cu.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes))
        held.append(pointer)
    geometry = driver.Geometry(blocks, threads, cluster)
    launch = driver.Launch(module, driver.target_of(0).cc, None, geometry, {})
    launch([int(p) for p in held], 0)
    driver.checked(cu.cuCtxSynchronize())
    for array, pointer in zip(outputs, held[len(inputs) :], strict=True):
        driver.checked(cu.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes))
    for pointer in held:
        driver.checked(cu.cuMemFree(pointer))


def mapped(lines: list[str], x: Any, dtype: str, outputs: list[tuple[str, str]], extra: str = "") -> list[Any]:
    """Arrays of results, element by element: `lines` read ``v`` (and ``w``, the next sample) and write at ``i``."""
    n = len(x)
    load = f"load_{dtype}(x, i)" if dtype in ("float32", "float64") else f"np.{CELLS[dtype]}(load_{CELLS[dtype]}(x, i))"
    body = ["i = np.int64(cuda.blockIdx.x) * 256 + cuda.threadIdx.x", f"if i < {n}:", f"    v = {load}"]
    body.append(f"    w = {load.replace(', i)', f', (i + 1) % {n})')}")
    made = kernel(
        "mapped",
        "\n".join([*body, *(f"    {line}" for line in lines)]),
        [("x", dtype, x)],
        [(name, kind, n) for name, kind in outputs],
        extra=extra,
    )
    found = [np.zeros(n, CELLS[kind]) for _, kind in outputs]
    launched(made.module(), [x], found, -(-n // 256), 256)
    return found


# --- kernels of the emulation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", all_kernels(), ids=lambda k: k.name)
def test_a_gpu_does_what_emulation_does(k: Kernel) -> None:
    from redalg.kernels.launch import driver

    driver.require()
    if k.cluster > 1 and driver.target_of(0).cc < (9, 0):
        pytest.skip("no clusters before compute capability 9.0")
    inputs, wanted = k.arrays()
    run(k.module(), [*inputs, *wanted], k.blocks, k.threads, k.cluster, seed=0)
    for _ in range(3):
        inputs, found = k.arrays()
        launched(k.module(), inputs, found, k.blocks, k.threads, k.cluster)
        for (name, dtype, _), a, b in zip(k.outputs, found, wanted, strict=True):
            if dtype in NARROW:  # the bits of a NaN are the target's
                a, b = (z.view(format_of(dtype)).astype(f32) for z in (a, b))
            np.testing.assert_array_equal(a, b, err_msg=name)


# --- casts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NARROW)
def test_every_pattern_is_widened_exactly(dtype: str) -> None:
    cells = patterns(dtype)
    (found,) = mapped([f"store_float32(y, i, widen_{dtype}_f32(v))"], cells, dtype, [("y", "float32")])
    with np.errstate(all="ignore"):
        assert same(found, cells.view(format_of(dtype)).astype(f32))


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_narrow_formats_are_rounded_to_bit_for_bit(real: str) -> None:
    x, end = points(real), {"float32": "f32", "float64": "f64"}[real]
    if real == "float32":
        rng = np.random.default_rng(1)
        x = np.concatenate([x, rng.integers(0, 2**32, 1 << 22, np.uint32).view(f32)])
    lines, outputs = [], []
    for dtype in NARROW:
        word = f"uint{NARROW[dtype]}"
        lines += [f"store_{real}(r_{dtype}, i, round_{dtype}_{end}(v))"]
        lines += [f"store_{word}(b_{dtype}, i, np.int64(narrow_{dtype}_{end}(v)))", f"store_{dtype}(s_{dtype}, i, v)"]
        lines += [f"store_{dtype}x2(p_{dtype}, 2 * i, (v, w)) if 2 * i + 2 <= {len(x)} else None"]
        outputs += [(f"r_{dtype}", real), (f"b_{dtype}", word), (f"s_{dtype}", dtype), (f"p_{dtype}", dtype)]
    lines = [line if " if " not in line else _guarded(line) for line in lines]
    found = mapped(lines, x, real, outputs)
    for k, dtype in enumerate(NARROW):
        rounded, bits, stored, pairs = found[4 * k : 4 * k + 4]
        with np.errstate(all="ignore"):
            wanted = rounded_once(x, dtype)
            assert same(rounded, wanted), dtype
            for cells, count in ((bits, len(x)), (stored, len(x))):
                assert same(cells[:count].view(format_of(dtype)).astype(np.float64), wanted), dtype
            half = len(x) // 2
            first, second = pairs.view(format_of(dtype)).astype(np.float64)[: 2 * half].reshape(-1, 2).T
            assert same(first, wanted[:half]) and same(second, np.roll(wanted, -1)[:half]), dtype


def _guarded(line: str) -> str:
    call, condition = line.removesuffix(" else None").split(" if ")
    return f"if {condition}:\n        {call}"


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_integer_casts_round_half_to_even_and_saturate(real: str) -> None:
    end = {"float32": "f32", "float64": "f64"}[real]
    x = np.concatenate([samples()[::7].astype(real), np.arange(-300, 300, 0.25).astype(real)])
    names = list(INTEGERS)
    found = mapped(
        [f"store_{real}(y_{n}, i, round_{n}_{end}(v))" for n in names], x, real, [(f"y_{n}", real) for n in names]
    )
    for name, y in zip(names, found, strict=True):
        low, high = (x.dtype.type(b) for b in INTEGERS[name])
        with np.errstate(all="ignore"):
            wanted = np.where(np.isnan(x), x, np.minimum(np.maximum(np.rint(x), low), high))
        np.testing.assert_array_equal(y, wanted, err_msg=name)


# --- functions of float32 --------------------------------------------------------------------------------------------


def floats() -> Any:
    """All exponents, and many numbers of moderate size."""
    rng = np.random.default_rng(2)
    some = np.arange(0, 2**32, 16381, dtype=np.uint64).astype(np.uint32).view(f32)
    with np.errstate(all="ignore"):
        moderate = rng.normal(size=1 << 20).astype(f32) * f32(3) ** rng.integers(-3, 5, 1 << 20)
    return np.concatenate([some, moderate.astype(f32), f32([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])])


def units(found: Any, true: Any, kind: Any) -> Any:
    """Distances in units in the last place; 0 where both are the same infinity or NaN, infinite where only one is."""
    with np.errstate(all="ignore"):
        near = true.astype(kind)
        unit = np.spacing(np.minimum(np.abs(near), np.finfo(kind).max)).astype(np.float64)
        distance = np.abs(found.astype(np.float64) - true) / unit
        same = (found == near) | np.isnan(found) & np.isnan(near)
        top = np.isinf(found) & (np.abs(true) >= float(np.finfo(kind).max))  # rounded up at the end of the range
    return np.where(
        same | top, np.minimum(np.nan_to_num(distance, nan=0, posinf=0), 0.5), np.nan_to_num(distance, nan=np.inf)
    )


def test_functions_of_float32_keep_their_errors(record_property: Any) -> None:
    x = floats()
    names = [n for n in ERROR_ULP if f"{n}_f32" in gpu_math.names() and n in REFERENCE]
    calls = [
        f"{n}_f32(v, w)" if n in BINARY else f"{n}_f32({'-abs(v)' if n == 'exp_nonpositive' else 'v'})" for n in names
    ]
    lines = [f"store_float32(y_{n}, i, {c})" for n, c in zip(names, calls, strict=True)]
    found = mapped(lines, x, "float32", [(f"y_{n}", "float32") for n in names])
    wrong = []
    for name, y in zip(names, found, strict=True):
        a, b = x.astype(np.float64), np.roll(x, -1).astype(np.float64)
        with np.errstate(all="ignore"):
            true = (
                REFERENCE[name](a, b)
                if name in BINARY
                else REFERENCE[name](-np.abs(a) if name == "exp_nonpositive" else a)
            )
        off = units(y, true, f32)
        if name in FLUSHED:
            off = np.where((np.abs(true) < LEAST * (1 + 1e-5)) & (np.abs(y) <= LEAST * (1 + 1e-5)), 0, off)
        if name == "fast_rcp":
            off = np.where(np.abs(x) < LEAST, 0, off)
        if name == "fast_div":  # PTX ISA: divisors between 2^-126 and 2^126
            off = np.where((np.abs(b) >= LEAST) & (np.abs(b) <= 2.0**126) & (np.abs(true) >= LEAST), off, 0)
        if name == "div_count":
            off = np.where((b >= 1) & (b <= 2.0**63) & (b == np.rint(b)), off, 0)
        worst = int(np.argmax(off))
        record_property(name, f"{off[worst]:.3f} at {x[worst]!r}")
        print(f"{name}_f32: {off[worst]:.3f} units of {ERROR_ULP[name].f32} at {x[worst]!r}, {np.roll(x, -1)[worst]!r}")
        if off[worst] > max(ERROR_ULP[name].f32, 0.5) + 1e-6:
            wrong.append((name, off[worst], x[worst], y[worst], true[worst]))
    assert not wrong


@pytest.mark.parametrize("name", ["exp2_ftz", "exp_nonpositive", "fast_rcp"])
def test_cheap_functions_over_a_dense_range(name: str) -> None:
    """Every float32 of one octave for the instructions, 2^24 numbers for the exponential made of them."""
    octave = np.arange(2**23, dtype=np.uint32) + np.uint32(127 << 23)
    x = octave.view(f32)
    if name == "exp2_ftz":
        x = np.concatenate([x - f32(1), x - f32(2)])
    if name == "exp_nonpositive":
        x = -np.exp(np.random.default_rng(5).uniform(-24, np.log(87.3), 1 << 24)).astype(f32)
    (y,) = mapped([f"store_float32(y, i, {name}_f32(v))"], x, "float32", [("y", "float32")])
    off = units(y, REFERENCE[name](x.astype(np.float64)), f32)
    print(f"{name}_f32: {off.max():.4f} units at {x[np.argmax(off)]!r}")
    assert off.max() <= ERROR_ULP[name].f32


@pytest.mark.parametrize("end", ["f32", "f64"])
def test_functions_keep_their_errors_by_many_digits(end: str) -> None:
    """All functions against mpmath: a thousand samples of each, where they are of moderate size."""
    real = {"f32": f32, "f64": np.float64}[end]
    dtype, rng = np.dtype(real).name, np.random.default_rng(3)
    names = [n for n in ERROR_ULP if f"{n}_{end}" in gpu_math.names()]
    wrong = []
    for name in names:
        low, high = DOMAIN.get(name, (-9, 9))
        x = np.concatenate([rng.uniform(low, high, 700), rng.uniform(low, high, 300) * 1e-3 + (low > 0) * low]).astype(
            real
        )
        x = np.clip(x, real(low), real(high))
        call = f"{name}_{end}(v, w)" if name in BINARY else f"{name}_{end}(v)"
        (y,) = mapped([f"store_{dtype}(y, i, {call})"], x, dtype, [("y", dtype)])
        bound, worst = max(getattr(ERROR_ULP[name], end), 0.5) + 1e-6, 0.0
        with mpmath.workprec(160):
            for k, v in enumerate(y):
                given = [mpmath.mpf(float(x[(k + j) % len(x)])) for j in range(2 if name in BINARY else 1)]
                true = exact(name)(*given)
                unit = float(np.spacing(abs(real(float(true)))))
                worst = max(worst, float(abs(mpmath.mpf(float(v)) - true) / unit))
        print(f"{name}_{end}: {worst:.3f} units of {bound}")
        if worst > bound:
            wrong.append((name, worst))
    assert not wrong


def test_special_values() -> None:
    x = f32([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 89.0, -89.0, -104.0, 1e-45, 3e38])
    plan = {
        "exp": np.exp,
        "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
        "tanh": np.tanh,
        "log": np.log,
        "sign": np.sign,
        "abs": np.abs,
        "rcp": lambda v: 1 / v,
        "sqrt": np.sqrt,
    }
    lines = [f"store_float32(y_{n}, i, {n}_f32(v))" for n in plan]
    lines += ["store_float32(y_max, i, max_nan_f32(v, w))", "store_float32(y_min, i, min_nan_f32(v, w))"]
    lines += ["store_bool(y_finite, i, is_finite_f32(v))", "store_float32(y_e, i, exp_nonpositive_f32(-abs(v)))"]
    outputs = [(f"y_{n}", "float32") for n in (*plan, "max", "min")] + [("y_finite", "bool"), ("y_e", "float32")]
    found = dict(zip((name for name, _ in outputs), mapped(lines, x, "float32", outputs), strict=True))
    wide, after = x.astype(np.float64), np.roll(x, -1)
    with np.errstate(all="ignore"):
        for name, reference in plan.items():
            assert np.all(units(found[f"y_{name}"], reference(wide), f32) <= 5), name
        np.testing.assert_array_equal(found["y_max"], np.maximum(x, after))
        np.testing.assert_array_equal(found["y_min"], np.minimum(x, after))
        np.testing.assert_array_equal(found["y_finite"] != 0, np.isfinite(x))
        assert found["y_e"][0] == 1 and found["y_e"][2] == 0 and np.isnan(found["y_e"][4]) and found["y_e"][8] == 0
