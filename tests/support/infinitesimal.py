"""Derivatives along a direction as parts of numbers: Im f(x + ih·ẋ)/h, and f(x + ε·ẋ) with ε² = 0.

Two arithmetics for `redalg.testing.evaluator`: neither knows a rule of differentiation for sums, products or reductions
that the library has, and neither takes a difference of near numbers. Functions of dual numbers have the slopes of the
checker's table; functions of complex numbers are those of `cmath`, or mpmath's.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath
import numpy as np

from redalg.graph.masked import new_axes
from redalg.proofs.document.functions import FUNCTIONS, evaluated
from redalg.testing.evaluator import Evaluator

STEP, DIGITS = 1e-100, 130  # a step that no digit of x sees, and digits that see it


class Dual(NamedTuple):
    value: float
    slope: float


def _function(name: str, x: Any) -> Any:
    if name in ("abs", "relu", "sign", "floor", "ceil"):
        return _kinked(name, x)
    if hasattr(cmath, name):
        return getattr(cmath, name)(x)
    written = {
        "exp2": lambda: cmath.exp(x * math.log(2)),
        "expm1": lambda: cmath.exp(x) - 1,
        "log2": lambda: cmath.log(x) / math.log(2),
        "log1p": lambda: cmath.log(1 + x),
        "softplus": lambda: cmath.log(1 + cmath.exp(x)),
        "sigmoid": lambda: 1 / (1 + cmath.exp(-x)),
        "conj": lambda: x,
        "re": lambda: x,
    }
    if name in written:
        return written[name]()
    with mpmath.workdps(DIGITS):
        return complex(getattr(mpmath, name)(x))


def _kinked(name: str, x: complex) -> complex:
    if name == "abs":
        return x if x.real >= 0 else -x
    if name == "relu":
        return x if x.real > 0 else complex(0)
    return complex({"sign": lambda v: (v > 0) - (v < 0), "floor": math.floor, "ceil": math.ceil}[name](x.real))


class ComplexStep:
    """Numbers x + ih·ẋ with a step that no digit of x sees."""

    def seeded(self, value: float, direction: float) -> Any:
        return complex(value, STEP * direction)

    def slope(self, x: complex) -> float:
        return x.imag / STEP

    def number(self, value: Any) -> Any:
        return value if isinstance(value, complex) else complex(float(value))

    def add(self, terms: Sequence[Any]) -> Any:
        return sum(terms, complex(0))

    def mul(self, factors: Sequence[Any]) -> Any:
        return math.prod(factors, start=complex(1))

    def power(self, base: Any, exponent: Any) -> Any:
        if exponent.imag == 0 and exponent.real == int(exponent.real):
            return base ** int(exponent.real)
        return cmath.exp(exponent * cmath.log(base)) if base != 0 else complex(0)

    def unary(self, name: str, a: Any) -> Any:
        return _function(name, a)

    def less(self, a: Any, b: Any, or_equal: bool) -> bool:
        return bool(a.real <= b.real if or_equal else a.real < b.real)

    def equal(self, a: Any, b: Any) -> bool:
        return bool(a.real == b.real)

    def middle(self, a: Any) -> float:
        return float(a.real)

    def hull(self, a: Any, b: Any) -> Any:
        raise AssertionError("every comparison is decided")

    cast = hull


class Duals(ComplexStep):
    """Numbers x + ε·ẋ."""

    def seeded(self, value: float, direction: float) -> Any:
        return Dual(value, direction)

    def slope(self, x: Any) -> float:
        return float(x.slope)

    def number(self, value: Any) -> Any:
        return value if isinstance(value, Dual) else Dual(float(value), 0.0)

    def add(self, terms: Sequence[Any]) -> Any:
        return Dual(math.fsum(t.value for t in terms), math.fsum(t.slope for t in terms))

    def mul(self, factors: Sequence[Any]) -> Any:
        total = Dual(1.0, 0.0)
        for f in factors:
            total = Dual(total.value * f.value, total.value * f.slope + total.slope * f.value)
        return total

    def power(self, base: Any, exponent: Any) -> Any:
        value = base.value**exponent.value
        slope = exponent.value * base.value ** (exponent.value - 1) * base.slope if base.slope else 0.0
        return Dual(value, slope + (value * math.log(base.value) * exponent.slope if exponent.slope else 0.0))

    def unary(self, name: str, a: Any) -> Any:
        value = _function(name, complex(a.value)).real
        row = FUNCTIONS[name]
        slope = evaluated(row.derivative, _Floats(), a.value, value) if a.slope and row.derivative else 0.0
        return Dual(value, slope * a.slope)

    def less(self, a: Any, b: Any, or_equal: bool) -> bool:
        return bool(a.value <= b.value if or_equal else a.value < b.value)

    def equal(self, a: Any, b: Any) -> bool:
        return bool(a.value == b.value)

    def middle(self, a: Any) -> float:
        return float(a.value)


class _Floats:
    """Formulas of the table in floats."""

    def number(self, value: Fraction) -> float:
        return float(value)

    def pi(self) -> float:
        return math.pi

    def plus(self, a: float, b: float) -> float:
        return a + b

    def times(self, a: float, b: float) -> float:
        return a * b

    def power(self, base: float, exponent: Fraction) -> float:
        return float(base ** float(exponent))

    def call(self, name: str, x: float) -> float:
        return float(_function(name, complex(x)).real)


def along(
    arithmetic: ComplexStep, spec: Any, arrays: Mapping[str, Any], directions: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """Output -> Σ ∂output/∂tensor·direction, for the outputs that are numbers."""
    sizes = dict(new_axes(*spec.outputs.values()))
    env: dict[str, Any] = {}
    for d in spec.tensors:
        name = d.array or d.name
        values, moved = np.asarray(arrays[name]), directions.get(name)
        sizes |= dict(zip(d.axes, values.shape, strict=True))
        tangent = np.zeros(values.shape) if moved is None else np.asarray(moved)
        truths = values.dtype == bool
        places = np.ndenumerate(values)
        env[d.name] = {p: v if truths else arithmetic.seeded(float(v), float(tangent[p])) for p, v in places}
    evaluator = Evaluator(arithmetic, env, sizes)  # type: ignore[arg-type]
    found = {}
    for name, node in spec.outputs.items():
        if not node.is_boolean:
            axes = spec.output_axes[name]
            values = evaluator.array(node, axes)
            found[name] = np.array([arithmetic.slope(v) for v in values.values()]).reshape([sizes[a] for a in axes])
    return found


__all__ = ["ComplexStep", "Dual", "Duals", "along"]
