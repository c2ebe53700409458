"""Functions of real numbers in generated CPU kernels, by the names generated source uses: ``exp_f32``, ``log_f64`` …

Each is a numba function of one scalar (two where said) that LLVM inlines into the loop around it; those of `VECTORISED`
become vector instructions there, the others (`SCALAR`) call the C library element by element. NaN in gives NaN out.

>>> import numpy as np
>>> [float(exp_f32(np.float32(v))) for v in (0, -np.inf)], float(max_nan_f64(1.0, np.nan))
([1.0, 0.0], nan)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from numba import njit

from redalg.errors import RedalgError
from redalg.formats import FLOATS, INTEGERS
from redalg.kernels import cpu_erf, cpu_exp, cpu_formats, cpu_log, cpu_power
from redalg.kernels.cpu_values import FORMATS, Value, absolute, call, function, select

# Largest error in units in the last place of the true value: (float32, float64), rounded up. Float32: over all 2³²
# arguments, against the float64 function; float64: over random ones, against extended precision
# (`python -m benchmarks.cpu_math --errors`). On processors that fuse multiply-add; a little more on others.
ERROR_ULP = {
    "exp": (1.1, 1.1), "exp2": (1.0, 1.0), "expm1": (1.5, 1.9), "tanh": (2.6, 2.6), "sigmoid": (2.5, 2.5),
    "log": (0.9, 0.9), "log1p": (1.5, 1.5), "erf": (1.2, 1.2), "erfc": (5.0, 4.0),
    "sinh": (2.5, 2.5), "cosh": (1.5, 1.5), "asinh": (1.9, 1.9), "acosh": (2.5, 2.5), "atanh": (2.2, 2.2),
}  # fmt: skip


def _sign(x: Value) -> Value:
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))


def _pow2(x: Value) -> Value:
    """The bits of the exponent alone, between the least normal number and its reciprocal; 1 for inf and NaN."""
    form = x.form
    power = (x.bit_pattern() & form.exponent_bits).as_real()
    least = 2.0 ** (1 - form.bias)
    power = select(power < least, least, select(power > 1.0 / least, 1.0 / least, power))
    return select(absolute(x) < math.inf, power, 1.0)


def _extremum(word: str) -> Callable[[Value, Value], Value]:
    """NaN if either is; of two zeros either one, which spares two instructions."""
    return lambda x, y: call(f"{word}imum", x, y, flags=("nsz",))


BODIES: dict[str, Callable[..., Value]] = {
    "exp": cpu_exp.exp, "exp2": cpu_exp.exp2, "expm1": cpu_exp.expm1, "tanh": cpu_exp.tanh, "sigmoid": cpu_exp.sigmoid,
    "log": cpu_log.log, "log1p": cpu_log.log1p, "erf": cpu_erf.erf, "erfc": cpu_erf.erfc,
    "sinh": cpu_power.sinh, "cosh": cpu_power.cosh, "asinh": cpu_power.asinh, "acosh": cpu_power.acosh,
    "atanh": cpu_power.atanh, "rcp": lambda x: 1.0 / x, "abs": absolute, "sign": _sign,
    "pow2": _pow2,
    **{name: partial(call, name) for name in ("sqrt", "floor", "ceil", "rint")},
}  # fmt: skip
BINARY: dict[str, Callable[[Value, Value], Value]] = {"max_nan": _extremum("max"), "min_nan": _extremum("min")}
SCALAR = [f"{name}_{end}" for name in ("sin", "cos", "tan", "asin", "acos", "atan") for end in FORMATS] + ["pow_f64"]


def _library(name: str) -> Any:
    """The C library's function, in the type of its argument."""
    inner = getattr(math, name[:-4])
    outer: Any = (lambda x, y: inner(x, y)) if inner is math.pow else (lambda x: inner(x))
    outer.__name__ = outer.__qualname__ = name
    return njit(nogil=True, error_model="numpy", fastmath=False)(outer)


def _functions() -> dict[str, Any]:
    table: dict[str, Any] = {name: _library(name) for name in SCALAR}

    def add(name: str, takes: list[str], gives: str, body: Callable[..., Value]) -> None:
        table[name] = function(name, takes, gives, body)

    for end, form in FORMATS.items():
        for name, body in BODIES.items():
            add(f"{name}_{end}", [end], end, body)
        for name, body in BINARY.items():
            add(f"{name}_{end}", [end, end], end, body)
        add(f"is_finite_{end}", [end], "b1", lambda x: absolute(x) < math.inf)
        for dtype in (*FLOATS, *INTEGERS):
            add(f"round_{dtype}_{end}", [end], end, partial(cpu_formats.rounded, dtype=dtype))
        for dtype, cell in cpu_formats.CELLS.items():
            add(f"widen_{dtype}_{end}", [cell], end, partial(cpu_formats.widened, dtype=dtype, form=form))
            add(f"narrow_{dtype}_{end}", [end], cell, partial(cpu_formats.narrowed, dtype=dtype))
    add("pow_f32", ["f32", "f32"], "f32", cpu_power.pow_f32)
    return table


FUNCTIONS = _functions()
VECTORISED = [name for name in FUNCTIONS if name not in SCALAR]
globals().update(FUNCTIONS)


def __getattr__(name: str) -> Any:
    """Only for names that are not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    raise RedalgError(
        f"the function {name!r}", "redalg.kernels.cpu_math", "there is none", f"one of {sorted(FUNCTIONS)}"
    )
