"""The pointwise maps of the language. Each takes numbers or SymPy expressions and broadcasts by axis name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError
from redalg.graph.functions import FUNCTIONS, Function
from redalg.language import functions as f
from redalg.language.arithmetic import closed, evaluating
from redalg.language.operand import number_operand, operand
from redalg.language.sympy_bridge import condensed

CAST_DTYPES = (
    "float8_e4m3fn float8_e5m2 bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64"
).split()


def number(value: Any, where_: str) -> sympy.Expr:
    """An argument of a map: a number or an expression, a large one as a leaf that carries its graph."""
    return condensed(number_operand(value, where_))


def _map(cls: Any, x: Any, where_: str) -> sympy.Expr:
    with evaluating(where_):
        return closed(cls(number(x, where_)))


def _tabled(row: Function) -> Callable[[Any], sympy.Expr]:
    """The map of a row of the table of functions, with the row's facts as its documentation."""

    def call(x: Any) -> sympy.Expr:
        return _map(f.MAPS[row.name], x, f"ra.{row.name}")

    call.__name__ = call.__qualname__ = row.name
    facts = [
        f"Domain: {DOMAIN_WORDS[row.domain]}." if row.domain else "",
        {1: "Non-decreasing.", -1: "Non-increasing."}.get(row.direction, "") if not row.strict else "",
        {1: "Increasing.", -1: "Decreasing."}.get(row.direction, "") if row.strict else "",
        f"{row.parity.capitalize()}." if row.parity else "",
        f"Its values are {row.range}." if row.range else "",
    ]
    calls = [f">>> {row.name}({x})\n{f.MAPS[row.name](sympy.Rational(x))}" for x, _ in row.at[:2]]
    if not calls and row.low != "nan":
        calls = [f">>> {row.name}(-sympy.oo)\n{f.MAPS[row.name](-sympy.oo)}"]
    call.__doc__ = "\n\n".join(filter(None, (row.summary, " ".join(filter(None, facts)), "\n".join(calls))))
    return call


DOMAIN_WORDS = {
    "positive": "x > 0",
    "unit": "-1 <= x <= 1",
    "open_unit": "-1 < x < 1",
    "above_one": "x >= 1",
    "above_minus_one": "x > -1",
}
TABLED = {name: _tabled(row) for name, row in FUNCTIONS.items() if row.word}
globals().update(TABLED)


def __getattr__(name: str) -> Any:
    """Only for names that are not there: type checkers look for the functions of the table here."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def sqrt(x: Any) -> sympy.Expr:
    """Square root, NaN below 0: the power 1/2.

    >>> sqrt(4)
    2
    """
    return _map(sympy.sqrt, x, "ra.sqrt")


def maximum(*args: Any) -> sympy.Expr:
    """Largest of its arguments, elementwise; NaN if one is NaN. One that is -oo is never needed beside others.

    >>> maximum(1, 3, 2)
    3
    """
    with evaluating("ra.maximum"):
        return _extremum(f.maximum, _several(args, "ra.maximum"), -sympy.oo)


def minimum(*args: Any) -> sympy.Expr:
    """Smallest of its arguments, elementwise; NaN if one is NaN. One that is oo is never needed beside others.

    >>> minimum(1, 3, 2)
    1
    """
    with evaluating("ra.minimum"):
        return _extremum(f.minimum, _several(args, "ra.minimum"), sympy.oo)


def _extremum(function: Any, args: list[sympy.Expr], identity: sympy.Expr) -> sympy.Expr:
    """The extremum of what is not its identity."""
    kept = [a for a in args if a != identity] or args[:1]
    found: sympy.Expr = kept[0] if len(kept) == 1 else function(*kept)
    return found


def _several(args: tuple[Any, ...], where_: str) -> list[sympy.Expr]:
    if not args:
        raise RedalgError("no arguments", where_, "an extremum of nothing is undefined", "give one or more expressions")
    return [number(a, where_) for a in args]


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`: a selection, so a NaN in the other branch stays out.

    The condition is a comparison, `eq`, `ne`, a Boolean tensor, `any` or `all`, joined by ``& | ~``. With two
    conditions as branches the result is a condition.

    Raises: RedalgError for a Python bool (``x == 0`` compares structure) or a number as condition.

    >>> from redalg.language.leaves import tensors
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
    return f.cast(number(x, "ra.cast"), Str(name))


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
