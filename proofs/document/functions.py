"""The table of functions that the judges read: what proofs, enclosures and exports know of each.

It is written apart from the engine's table (`redalg.graph.functions`), row by row, so that a wrong fact there does not
prove itself here; `tests/proofs/test_function_table.py` compares the two, and this one with 50 digits. Formulas are
text over ``x`` (and ``y``, the value at x), evaluated by `evaluated` in whatever arithmetic is at hand.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Protocol

from redalg.proofs.document.parsing import parse

RISES, STRICTLY = 1, 2


@dataclass(frozen=True)
class Function:
    """A function of one real number.

    low, high: its limits at -oo and oo: "oo", "-oo", "nan", a rational, or "?" where that takes more than the table.
    at: values at rationals. sign: "positive", "nonnegative" or "". rises: RISES, STRICTLY or 0, on the whole domain.
    mirror: f(-t) from f(t): "-y", "1 - y" or "". domain: what is positive (lt) or not negative (le) in it.
    written: the function through others, for normal forms and exports; enclosed: the same for enclosures alone.
    derivative: in x and y; kinks: "0" or "integers" where it has none.
    weight: the price of an enclosure (`redalg.proofs.document.work`). rocq: the word of the library or of `Signs.v`;
    moves: whether `Extremum.v` takes it out of an extremum. shows: a result tells of an infinite or undefined argument.
    whole: rationals have rational values.
    """

    name: str
    low: str = "?"
    high: str = "?"
    at: tuple[tuple[str, str], ...] = ()
    sign: str = ""
    rises: int = 0
    mirror: str = ""
    domain: str = ""
    written: str = ""
    enclosed: str = ""
    derivative: str = ""
    kinks: str = ""
    weight: int = 60
    rocq: str = ""
    moves: bool = False
    shows: bool = False
    whole: bool = False


_ZERO, _ONE = (("0", "0"),), (("0", "1"),)
_ROWS = (
    Function("exp", "0", "oo", _ONE, "positive", STRICTLY, derivative="y", rocq="exp", moves=True),
    Function(
        "exp2",
        "0",
        "oo",
        (*_ONE, ("1", "2"), ("-1", "1/2"), ("10", "1024")),
        "positive",
        STRICTLY,
        written="exp(x*log(2))",
        derivative="log(2)*y",
    ),
    Function("expm1", "-1", "oo", _ZERO, rises=STRICTLY, written="exp(x) + -1", derivative="y + 1"),
    Function(
        "log",
        "nan",
        "oo",
        (("1", "0"), ("0", "-oo")),
        rises=STRICTLY,
        domain="lt a",
        derivative="x**-1",
        rocq="ln",
        shows=True,
    ),
    Function(
        "log2",
        "nan",
        "oo",
        (("1", "0"), ("2", "1"), ("1/2", "-1"), ("1024", "10"), ("0", "-oo")),
        rises=STRICTLY,
        domain="lt a",
        written="log(x)*log(2)**-1",
        derivative="(x*log(2))**-1",
        shows=True,
    ),
    Function(
        "log1p",
        "nan",
        "oo",
        (*_ZERO, ("-1", "-oo")),
        rises=STRICTLY,
        domain="lt 1+a",
        written="log(x + 1)",
        derivative="(x + 1)**-1",
        weight=400,
        rocq="log1p",
        moves=True,
        shows=True,
    ),
    Function(
        "softplus",
        "0",
        "oo",
        sign="positive",
        rises=STRICTLY,
        enclosed="log1p(exp(x))",
        derivative="sigmoid(x)",
        weight=500,
    ),
    Function(
        "abs",
        "oo",
        "oo",
        sign="nonnegative",
        derivative="sign(x)",
        kinks="0",
        weight=2,
        rocq="Rabs",
        shows=True,
        whole=True,
    ),
    Function("sign", "-1", "1", rises=RISES, mirror="-y", derivative="0", kinks="0", whole=True),
    Function(
        "relu",
        "0",
        "oo",
        sign="nonnegative",
        rises=RISES,
        derivative="(sign(x) + 1)*2**-1",
        kinks="0",
        rocq="relu",
        moves=True,
        whole=True,
    ),
    Function(
        "sigmoid",
        "0",
        "1",
        (("0", "1/2"),),
        "positive",
        STRICTLY,
        mirror="1 - y",
        derivative="y + -y*y",
        rocq="sigmoid",
        moves=True,
    ),
    Function("tanh", "-1", "1", _ZERO, rises=STRICTLY, mirror="-y", derivative="1 + -y*y", rocq="tanh"),
    Function("erf", "-1", "1", _ZERO, rises=STRICTLY, mirror="-y", derivative="2*pi**(-1/2)*exp(-x*x)", weight=400),
    Function("erfc", "2", "0", _ONE, "positive", derivative="-2*pi**(-1/2)*exp(-x*x)", weight=600),
    Function("sin", "nan", "nan", _ZERO, derivative="cos(x)", rocq="sin", shows=True),
    Function("cos", "nan", "nan", _ONE, derivative="-sin(x)", rocq="cos", shows=True),
    Function("tan", "nan", "nan", _ZERO, derivative="1 + y*y", weight=100, rocq="tan", shows=True),
    Function(
        "sinh",
        "-oo",
        "oo",
        _ZERO,
        rises=STRICTLY,
        written="2**-1*(exp(x) + -exp(-x))",
        derivative="cosh(x)",
        rocq="sinh",
        shows=True,
    ),
    Function(
        "cosh",
        "oo",
        "oo",
        _ONE,
        "positive",
        written="2**-1*(exp(x) + exp(-x))",
        derivative="sinh(x)",
        rocq="cosh",
        shows=True,
    ),
    Function("asin", "nan", "nan", _ZERO, mirror="-y", domain="le 1+a 1-a", derivative="(1 + -x*x)**(-1/2)"),
    Function("acos", "nan", "nan", (("1", "0"),), domain="le 1+a 1-a", derivative="-(1 + -x*x)**(-1/2)"),
    Function("atan", at=_ZERO, rises=STRICTLY, mirror="-y", derivative="(1 + x*x)**-1"),
    Function(
        "asinh",
        "-oo",
        "oo",
        _ZERO,
        rises=STRICTLY,
        mirror="-y",
        derivative="(1 + x*x)**(-1/2)",
        weight=1500,
        shows=True,
    ),
    Function(
        "acosh",
        "nan",
        "oo",
        (("1", "0"),),
        domain="le a-1",
        derivative="(x*x + -1)**(-1/2)",
        weight=1200,
        shows=True,
    ),
    Function(
        "atanh",
        "nan",
        "nan",
        (*_ZERO, ("1", "oo"), ("-1", "-oo")),
        mirror="-y",
        domain="lt 1+a 1-a",
        derivative="(1 + -x*x)**-1",
        weight=150,
    ),
    Function("floor", "-oo", "oo", derivative="0", kinks="integers", whole=True),
    Function("ceil", "-oo", "oo", derivative="0", kinks="integers", whole=True),
    Function("conj", "-oo", "oo", derivative="1", whole=True),
    Function("re", "-oo", "oo", derivative="1", whole=True),
    Function("im", "0", "0", whole=True),
)
FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}


class Operations(Protocol):
    """What a formula needs of an arithmetic."""

    def number(self, value: Fraction) -> Any: ...
    def pi(self) -> Any: ...
    def plus(self, a: Any, b: Any) -> Any: ...
    def times(self, a: Any, b: Any) -> Any: ...
    def power(self, base: Any, exponent: Fraction) -> Any: ...
    def call(self, name: str, x: Any) -> Any: ...


@cache
def _parsed(text: str) -> ast.expr:
    return parse(text, mode="eval").body


def evaluated(text: str, operations: Operations, x: Any, y: Any = None) -> Any:
    """The value of a formula of the table at x, where the function's value is y."""
    return _value(_parsed(text), operations, {"x": x, "y": y})


def _value(e: Any, o: Operations, values: Mapping[str, Any]) -> Any:
    if isinstance(e, ast.Constant):
        return o.number(_exponent(e))
    if isinstance(e, ast.Name):
        return o.pi() if e.id == "pi" else values[e.id]
    if isinstance(e, ast.UnaryOp):
        inner = e.operand
        return o.number(_exponent(e)) if isinstance(inner, ast.Constant) else _negative(inner, o, values)
    if isinstance(e, ast.Call):
        assert isinstance(e.func, ast.Name)
        return o.call(e.func.id, _value(e.args[0], o, values))
    if isinstance(e.op, ast.Pow):
        return o.power(_value(e.left, o, values), _exponent(e.right))
    left, right = _value(e.left, o, values), _value(e.right, o, values)
    return (o.plus if isinstance(e.op, ast.Add) else o.times)(left, right)


def _negative(e: ast.expr, o: Operations, values: Mapping[str, Any]) -> Any:
    return o.times(o.number(Fraction(-1)), _value(e, o, values))


def _exponent(e: Any) -> Fraction:
    """A rational: ``-1``, ``(-1/2)``."""
    if isinstance(e, ast.BinOp):
        return _exponent(e.left) / _exponent(e.right)
    return -_exponent(e.operand) if isinstance(e, ast.UnaryOp) else Fraction(e.value)
