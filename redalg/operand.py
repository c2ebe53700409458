"""What may stand in an expression: exact numbers and SymPy expressions; everything else is refused with a reason."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from numbers import Number
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError


def exact_fraction(value: Any) -> Fraction:
    """The rational a finite real number holds, without rounding (``0.1`` is 3602879701896397/36028797018963968)."""
    if isinstance(value, sympy.Float):
        sign, mantissa, exponent, _ = value._mpf_
        return Fraction(-mantissa if sign else mantissa) * Fraction(2) ** exponent
    return (
        Fraction(*value.as_integer_ratio()) if hasattr(value, "as_integer_ratio") else Fraction(operator.index(value))
    )


def exact_number(value: Any) -> sympy.Expr:
    """A Python, NumPy or decimal number as the exact SymPy number it holds; infinities and NaN stay what they are."""
    if isinstance(value, complex) or (hasattr(value, "imag") and hasattr(value, "dtype") and value.dtype.kind == "c"):
        return exact_number(value.real) + sympy.I * exact_number(value.imag)
    if value != value:
        return sympy.S.NaN
    if value in (float("inf"), float("-inf")):
        return sympy.S.Infinity if value > 0 else sympy.S.NegativeInfinity
    q = exact_fraction(value)
    return sympy.Rational(q.numerator, q.denominator)


def is_python_bool(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool") and type(value).__module__ == "numpy"


def operand(value: Any, where: str) -> sympy.Basic:
    """An argument of a map or reduction as a SymPy object: `Expr` or `Boolean`.

    Raises RedalgError for Python bools, strings, arrays and anything that is not a number or an expression.
    """
    if isinstance(value, (sympy.Expr, Boolean)):
        if isinstance(value, sympy.Float):
            return exact_number(value)
        if value is sympy.S.ComplexInfinity:
            raise RedalgError("the complex infinity `zoo`", where, "it stands for a division by zero", "use oo or -oo")
        return value
    if is_python_bool(value):
        raise RedalgError(
            f"the Python bool {value}",
            where,
            "`==` and `!=` compare the structure of two expressions and give a Python bool, not a condition",
            "write ra.eq(a, b) or ra.ne(a, b); sympy.true and sympy.false are the constants",
        )
    if isinstance(value, str):
        raise RedalgError(
            f"the string {value!r}", where, "text is never evaluated", "use ra.tensors, or ra.parse for text"
        )
    if isinstance(value, Number) or (
        hasattr(value, "dtype") and hasattr(value, "item") and not hasattr(value, "__len__")
    ):
        return exact_number(value)
    if isinstance(value, tuple):
        why, fix = "it has several parts", "take one of them: .values, .indices or [0]"
        raise RedalgError(f"a {type(value).__name__} of {len(value)} parts", where, why, fix)
    raise RedalgError(
        f"a value of type {type(value).__name__}",
        where,
        "only numbers and expressions can enter a spec; arrays are given when it runs",
        "declare a tensor with ra.tensors and pass the array by its name",
    )


def number_operand(value: Any, where: str) -> sympy.Expr:
    """Like `operand`, refusing conditions (a Boolean tensor may pass: it counts as 0 or 1)."""
    result = operand(value, where)
    if isinstance(result, sympy.Expr):
        return result
    raise RedalgError(
        f"the condition {_short(result)}",
        where,
        "a condition is not a number",
        "select with ra.where(condition, then, otherwise); ra.where(condition, 1, 0) counts",
    )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _guarded(name: str, symbol: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        return getattr(super(Operand, self), name)(number_operand(other, f"an operand of `{symbol}`"))

    method.__name__ = name
    return method


class Operand:
    """Mixin: Python numbers enter as the exact rationals they hold, and anything else is refused in four parts."""

    __slots__ = ()
    __array_ufunc__ = None  # makes `array * x` come to us, to be refused, instead of an object array


for _symbol, _names in {
    "+": ("__add__", "__radd__"),
    "-": ("__sub__", "__rsub__"),
    "*": ("__mul__", "__rmul__"),
    "/": ("__truediv__", "__rtruediv__"),
    "**": ("__pow__", "__rpow__"),
    "<": ("__lt__",),
    "<=": ("__le__",),
    ">": ("__gt__",),
    ">=": ("__ge__",),
}.items():
    for _name in _names:
        setattr(Operand, _name, _guarded(_name, _symbol))
