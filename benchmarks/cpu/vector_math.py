"""Speed and errors of the functions generated CPU code calls: writes `cpu_math.md`.

`python -m benchmarks.cpu.vector_math` times loops over one row that stays in the cache, reductions of 4096×4096 float32
numbers beside NumPy, and compilation. `--errors` measures the errors that `redalg.kernels.cpu.math.table.ERROR_ULP`
states.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding
import mpmath
import numba
import numpy as np
from numba import njit

from benchmarks.harness.processes import RECORDS, conditions
from redalg.kernels.cpu.math.functions import FUNCTIONS, exp_f32, log_f32, max_nan_f32
from redalg.kernels.cpu.math.jitted import jitted
from redalg.kernels.cpu.math.table import ERROR_ULP
from redalg.kernels.cpu.math.values import F32, Value, absolute, clamped, function

FLAGS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "fastmath": {"reassoc", "contract", "arcp"}}
NUMPY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "tanh": np.tanh,
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
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
ROW = 4096
f32, u64, i32 = np.float32, np.uint64, np.int32
TILE, BIG, LEAST = u64(1024), i32(2**31 - 1), f32(-np.inf)


# --- kernels as they are generated ------------------------------------------------------------------------------------


def mapped(name: str) -> Any:
    inner = FUNCTIONS[name]

    @njit(**FLAGS)
    def kernel(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = inner(x[i])

    return kernel


@njit(**FLAGS)
def row_max(x: Any, out: Any, n: Any, low: Any, high: Any) -> None:
    n = u64(n)
    for r in range(u64(low), u64(high)):
        m = LEAST
        for i in range(r * n, r * n + n):
            m = max_nan_f32(m, x[i])
        out[r] = m


@njit(**FLAGS)
def logsumexp(x: Any, out: Any, n: Any, low: Any, high: Any) -> None:
    n = u64(n)
    for r in range(u64(low), u64(high)):
        m, s = LEAST, f32(0)
        for first in range(r * n, r * n + n, TILE):
            stop = min(first + TILE, r * n + n)
            top = m
            for i in range(first, stop):
                top = max_nan_f32(top, x[i])
            anchor = f32(0) if top == LEAST else top
            part = f32(0)
            for i in range(first, stop):
                part += exp_f32(x[i] - anchor)
            s = s * exp_f32(m - anchor) + part
            m = top
        out[r] = m + log_f32(s)


@njit(**FLAGS)
def argmax(x: Any, out: Any, n: Any, low: Any, high: Any) -> None:
    n = u64(n)
    for r in range(u64(low), u64(high)):
        best, at = LEAST, u64(0)
        for first in range(r * n, r * n + n, TILE):
            stop = min(first + TILE, r * n + n)
            top = LEAST
            for i in range(first, stop):
                top = max_nan_f32(top, x[i])
            if not (top <= best) and best == best or first == r * n:
                found = BIG
                for j in range(stop - first):
                    v = x[first + j]
                    found = min(found, i32(j) if (v == top) | (v != v) else BIG)
                best, at = top, first - r * n + u64(found)
        out[r] = at


# --- timing -----------------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], Any], repetitions: int, times: int = 1) -> float:
    """Median of the time of one call."""
    runs = []
    for _ in range(repetitions):
        start = time.perf_counter()
        for _ in range(times):
            work()
        runs.append((time.perf_counter() - start) / times)
    return statistics.median(runs)


def function_rows(repetitions: int) -> list[str]:
    rng = np.random.default_rng(0)
    rows = []
    for name, (error32, error64) in ERROR_ULP.items():
        cells = [f"| `{name}` "]
        for end, error in (("f32", error32), ("f64", error64)):
            low, high = {"acosh": (1, 3)}.get(name, (0, 1 if name in ("atanh", "asin", "acos") else 3))
            x = rng.uniform(low, high, ROW).astype(np.float32 if end == "f32" else np.float64)
            out, kernel = np.empty_like(x), mapped(f"{name}_{end}")
            kernel(x, out)
            ours = seconds(lambda k=kernel, x=x, o=out: k(x, o), repetitions, 50) / ROW * 1e9  # type: ignore[misc]
            peer = NUMPY.get(name)
            theirs = f"{seconds(lambda p=peer, x=x: p(x), repetitions, 20) / ROW * 1e9:.2f}" if peer else "–"  # type: ignore[misc]
            cells.append(f"| {ours:.2f} | {theirs} | {error} ")
        rows.append("".join(cells) + "|")
    return rows


def numpy_logsumexp(x: Any) -> Any:
    m = x.max(1, keepdims=True)
    return np.log(np.exp(x - m).sum(1)) + m[:, 0]


def reduction_rows(repetitions: int) -> list[str]:
    x = np.random.default_rng(0).normal(size=(ROW, ROW)).astype(np.float32)
    flat, out, indices = x.reshape(-1), np.empty(ROW, np.float32), np.empty(ROW, np.int64)
    true = np.log(np.exp(x.astype(np.float64)).sum(1))
    cases: tuple[tuple[str, Any, Any, Callable[[], Any]], ...] = (
        ("max", row_max, out, lambda: x.max(1)),
        ("argmax", argmax, indices, lambda: x.argmax(1)),
        ("logsumexp", logsumexp, out, lambda: numpy_logsumexp(x)),
    )
    rows = []
    with ThreadPoolExecutor(1) as pool:
        for name, kernel, result, peer in cases:

            def halves(kernel: Any = kernel, result: Any = result) -> None:
                other = pool.submit(kernel, flat, result, ROW, ROW // 2, ROW)
                kernel(flat, result, ROW, 0, ROW // 2)
                other.result()

            start = time.perf_counter()
            kernel(flat, result, ROW, 0, ROW)
            compiling = time.perf_counter() - start
            np.testing.assert_allclose(result, true if name == "logsumexp" else peer(), rtol=1e-6)
            one = seconds(lambda k=kernel, r=result: k(flat, r, ROW, 0, ROW), repetitions)  # type: ignore[misc]
            two, theirs = seconds(halves, repetitions), seconds(peer, repetitions)
            rows.append(f"| {name} | {one * 1e3:.2f} | {two * 1e3:.2f} | {theirs * 1e3:.2f} | {compiling:.2f} |")
    copied = np.empty_like(x)
    rows.append(f"| copy | | | {seconds(lambda: np.copyto(copied, x), repetitions) * 1e3:.2f} | |")
    return rows


# --- errors -----------------------------------------------------------------------------------------------------------


def _unit(x: Value) -> Value:
    """The unit in the last place of float32 at a float64."""
    power = (absolute(x).bit_pattern() & x.form.exponent_bits).as_real()
    return clamped(power, 2.0 ** (1 - F32.bias), None) * 2.0**-F32.fraction


def largest_error_f32(name: str) -> float:
    """Over all arguments, against the float64 function; raises where one is NaN or infinite and the other is not."""
    narrow, wide, unit = (
        FUNCTIONS[f"{name}_f32"],
        FUNCTIONS[f"{name}_f64"],
        jitted("unit", function(["f64"], "f64", _unit)),
    )

    @njit(**FLAGS)
    def kernel(x: Any, y: Any, z: Any, errors: Any) -> None:
        for i in range(x.size):
            y[i], z[i] = narrow(x[i]), wide(np.float64(x[i]))
        for i in range(x.size):
            errors[i] = abs(np.float64(y[i]) - z[i]) / unit(z[i])

    n, worst = 1 << 16, 0.0
    y, z, errors = np.empty(n, np.float32), np.empty(n), np.empty(n)
    pattern = np.arange(n, dtype=np.uint32)
    largest = float(np.finfo(np.float32).max)
    for high in range(1 << 16):
        x = (pattern + np.uint32(high << 16)).view(np.float32)
        kernel(x, y, z, errors)
        inside = np.abs(z) <= largest
        worst = max(worst, float(errors.max(where=inside, initial=0.0)))
        if not inside.all():
            over = np.abs(z) >= largest * (1 + 2.0**-22)
            assert (np.isnan(y) == np.isnan(z)).all() and np.isinf(y[over]).all(), name
    return worst


TRUE: dict[str, Any] = {
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
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


def arguments_f64(name: str, n: int) -> np.ndarray:
    """Half around where the function bends, half over the range where it is neither 0, infinite nor constant."""
    rng = np.random.default_rng(1)
    near = np.concatenate([rng.uniform(-3, 3, n // 4), 10 ** rng.uniform(-18, 1, n // 4) * rng.choice([-1, 1], n // 4)])
    if name in ("log", "log2", "log1p"):
        near = np.abs(near) if name != "log1p" else np.maximum(near / 3, -1 + 1e-9)
        return np.concatenate([near, 10 ** rng.uniform(-300, 300, n // 2)])
    if name == "acosh":
        return 1 + np.abs(near) + 10 ** rng.uniform(-16, 300, near.size)
    if name in ("atanh", "asin", "acos"):
        return np.clip(near / 3, -1 + 1e-16, 1 - 1e-16)
    if name in ("asinh", "atan"):
        return np.concatenate([near, 10 ** rng.uniform(-300, 300, n // 2)])
    low, high = {"erf": (-6, 6), "erfc": (-6, 26.5), "tanh": (-20, 20)}.get(name, (-708, 708))
    return np.concatenate([near, rng.uniform(low, high, n // 2)])


def largest_error_f64(name: str, n: int) -> float:
    """Over random arguments: in extended precision where NumPy has it and the function, else with 40 digits."""
    if name in NUMPY and np.finfo(np.longdouble).nmant > 60:
        x = arguments_f64(name, 100 * n)
        true = NUMPY[name](x.astype(np.longdouble))
    else:
        x = arguments_f64(name, n)
        with mpmath.workdps(40):
            true = np.array([TRUE[name](mpmath.mpf(v)) for v in x.tolist()])
    found = np.empty_like(x)
    mapped(f"{name}_f64")(x, found)
    unit = np.spacing(np.abs(found))
    return float(np.max(np.abs(found - true) / unit))


def error_rows(names: Sequence[str], samples: int) -> list[str]:
    rows = []
    for name in names:
        found = largest_error_f32(name), largest_error_f64(name, samples)
        rows.append(f"| `{name}` | {found[0]:.3f} | {found[1]:.3f} | {ERROR_ULP[name]} |")
        print(rows[-1], flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--errors", nargs="*", metavar="NAME", help="measure the errors of these functions, or of all")
    parser.add_argument("--samples", type=int, default=20000, help="random arguments in float64 (times 100 for most)")
    given = parser.parse_args(arguments)
    if given.errors is not None:
        print("| function | float32, all | float64, random | stated |\n|---|---|---|---|")
        error_rows(given.errors or list(ERROR_ULP), given.samples)
        return
    llvm = ".".join(map(str, llvmlite.binding.llvm_version_info))
    text = TEXT.format(
        repetitions=given.repetitions,
        conditions=conditions(),
        numba=f"numba {numba.__version__}, LLVM {llvm}",
        functions="\n".join(function_rows(given.repetitions)),
        reductions="\n".join(reduction_rows(given.repetitions)),
    )
    (RECORDS / "cpu_math.md").write_text(text)
    print(text)


TEXT = """# Functions of generated CPU code

Median of {repetitions}. Written by `python -m benchmarks.cpu.vector_math`.
{conditions} {numba}.

Nanoseconds per element of a row in the cache, one thread, and the largest error in units in the last place.

| function | float32 | NumPy | error | float64 | NumPy | error |
|---|---|---|---|---|---|---|
{functions}

Milliseconds for the rows of 4096×4096 float32 numbers, and the seconds the first call took.

| reduction | one thread | two threads | NumPy | compilation |
|---|---|---|---|---|
{reductions}
"""

if __name__ == "__main__":
    main()
