"""What may stand in an expression: exact numbers and SymPy expressions; everything else is refused with a reason."""

from __future__ import annotations

import operator
from fractions import Fraction
from numbers import Number
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError

LARGEST_CONSTANT = 1 << 13  # bits; the largest floats have 1024, and Python prints no integer of 2^14


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


def bits(number: Any) -> int:
    return int(max(number.p.bit_length(), number.q.bit_length()))


def check_constant(number: Any, where: str) -> None:
    """Refuse a rational that no spec takes, before anything is calculated with it."""
    if number.is_Rational and bits(number) > LARGEST_CONSTANT:
        why = f"constants have at most {LARGEST_CONSTANT} bits; no float holds it either"
        raise RedalgError("a constant of very many digits", where, why, "write it with a scalar tensor")


def operand(value: Any, where: str) -> sympy.Basic:
    """An argument of a map or reduction as a SymPy object: `Expr` or `Boolean`.

    Raises RedalgError for Python bools, strings, arrays and anything that is not a number or an expression.
    """
    if isinstance(value, (sympy.Expr, Boolean)):
        if isinstance(value, sympy.Float):
            return exact_number(value)
        if value is sympy.S.ComplexInfinity:
            raise RedalgError("the complex infinity `zoo`", where, "it stands for a division by zero", "use oo or -oo")
        check_constant(value, where)
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
        number = exact_number(value)
        check_constant(number, where)
        return number
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
