"""The pointwise maps of the language. Each takes numbers or SymPy expressions and broadcasts by axis name."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from redalg import functions as f
from redalg.errors import RedalgError
from redalg.operand import number_operand, operand
from redalg.translate import condensed

CAST_DTYPES = (
    "float8_e4m3fn float8_e5m2 bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
).split()


def _number(value: Any, where_: str) -> sympy.Expr:
    return condensed(number_operand(value, where_))


def exp(x: Any) -> sympy.Expr:
    """e**x, with exp(-oo) = 0.

    >>> exp(0), exp(-sympy.oo)
    (1, 0)
    """
    return f.exp(_number(x, "ra.exp"))


def log(x: Any) -> sympy.Expr:
    """Natural logarithm; -oo at 0, NaN below.

    >>> log(1), log(0), log(-1)
    (0, -oo, nan)
    """
    return f.log(_number(x, "ra.log"))


def sqrt(x: Any) -> sympy.Expr:
    """Square root, NaN below 0: the power 1/2.

    >>> sqrt(4)
    2
    """
    return sympy.sqrt(_number(x, "ra.sqrt"))


def abs(x: Any) -> sympy.Expr:  # noqa: A001
    """Absolute value (modulus of complex numbers).

    >>> abs(-3)
    3
    """
    return f.Abs(_number(x, "ra.abs"))


def relu(x: Any) -> sympy.Expr:
    """max(x, 0); NaN stays NaN.

    >>> relu(-2), relu(3)
    (0, 3)
    """
    return f.relu(_number(x, "ra.relu"))


def sigmoid(x: Any) -> sympy.Expr:
    """1 / (1 + exp(-x)).

    >>> sigmoid(0)
    1/2
    """
    return f.sigmoid(_number(x, "ra.sigmoid"))


def tanh(x: Any) -> sympy.Expr:
    """Hyperbolic tangent.

    >>> tanh(0)
    0
    """
    return sympy.tanh(_number(x, "ra.tanh"))


def log1p(x: Any) -> sympy.Expr:
    """log(1 + x), accurate near 0.

    >>> log1p(0)
    0
    """
    return f.log1p(_number(x, "ra.log1p"))


def erf(x: Any) -> sympy.Expr:
    """Error function 2/√π · ∫₀ˣ exp(-t²) dt.

    >>> erf(0)
    0
    """
    return sympy.erf(_number(x, "ra.erf"))


def maximum(*args: Any) -> sympy.Expr:
    """Largest of its arguments, elementwise; NaN if one is NaN.

    >>> maximum(1, 3, 2)
    3
    """
    return f.maximum(*_several(args, "ra.maximum"))


def minimum(*args: Any) -> sympy.Expr:
    """Smallest of its arguments, elementwise; NaN if one is NaN.

    >>> minimum(1, 3, 2)
    1
    """
    return f.minimum(*_several(args, "ra.minimum"))


def _several(args: tuple[Any, ...], where_: str) -> list[sympy.Expr]:
    if not args:
        raise RedalgError("no arguments", where_, "an extremum of nothing is undefined", "give one or more expressions")
    return [_number(a, where_) for a in args]


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`: a selection, so a NaN in the other branch stays out.

    The condition is a comparison, `eq`, `ne`, a Boolean tensor, `any` or `all`, joined by ``& | ~``. With two
    conditions as branches the result is a condition.

    Raises: RedalgError for a Python bool (``x == 0`` compares structure) or a number as condition.

    >>> from redalg.expr import tensors
    >>> x = tensors("x[j]")
    >>> where(x > 0, x, 0)
    where(x > 0, x, 0)
    """
    c = operand(condition, "the condition of ra.where")
    if is_number(c):
        raise RedalgError(
            f"the number {c} as a condition",
            "ra.where",
            "a number is not a condition",
            "compare it: x > 0, or ra.ne(x, 0); declare 0/1 tensors with bool=True",
        )
    a, b = (condensed(operand(e, "a branch of ra.where")) for e in (then, otherwise))
    c = condensed(c)
    if not is_number(a) and not is_number(b):
        return f.choose(c, a, b)
    a, b = (e if isinstance(e, sympy.Expr) else f.where(e, 1, 0) for e in (a, b))
    return f.where(c, a, b)


def is_number(branch: sympy.Basic) -> bool:
    """Whether an operand is a number; Boolean tensors and any/all are both and count as conditions here."""
    if isinstance(branch, sympy.Symbol):
        return "bool" not in getattr(branch, "domain", ())
    return not isinstance(branch, Boolean)


def cast(x: Any, dtype: Any) -> sympy.Expr:
    """Round to the nearest value of a type (ties to even); float8_e4m3fn and integers saturate.

    dtypes: float8_e4m3fn float8_e5m2 bfloat16 float16 float32 float64 and (u)int8 to (u)int64.

    >>> cast(sympy.Symbol("x"), "float16")
    cast(x, float16)
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", repr(dtype))
    if name not in CAST_DTYPES:
        raise RedalgError(f"the dtype {name!r}", "ra.cast", "it is not a type to round to", ", ".join(CAST_DTYPES))
    return f.cast(_number(x, "ra.cast"), Str(name))


def eq(a: Any, b: Any) -> Boolean:
    """The condition a = b, elementwise (``==`` compares the structure of expressions); NaN equals nothing.

    >>> eq(sympy.Symbol("x"), 1)
    eq(1, x)
    """
    return f.eq(condensed(operand(a, "ra.eq")), condensed(operand(b, "ra.eq")))


def ne(a: Any, b: Any) -> Boolean:
    """The condition a ≠ b, elementwise; true where one is NaN.

    >>> ne(sympy.Symbol("x"), 1)
    ne(1, x)
    """
    return f.ne(condensed(operand(a, "ra.ne")), condensed(operand(b, "ra.ne")))
