"""SymPy classes of the maps whose automatic evaluation must be sound for infinities and NaN.

SymPy's own ``exp`` turns exp(a + log b) into b·exp(a), which is 0·inf = NaN where exp(-inf) = 0 is meant; its ``log``
leaves the reals; its ``Max`` and ``Abs`` walk whole trees. These classes evaluate numbers and little else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import sympy
from sympy.core.function import Application
from sympy.core.sorting import default_sort_key
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean, BooleanFunction

from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS, NOT_NEGATIVE, Function
from redalg.language.arithmetic import Operand, check_exponent


def _is_real(x: Any) -> bool:
    """Whether x is a number that is evaluated; roots of negative numbers stay as they are (they mean NaN)."""
    return bool(x.is_number and x.is_extended_real)


class Map(Operand, sympy.Function):
    """A pointwise function; real for real arguments (NaN and the infinities count as real)."""

    is_commutative = True

    def _eval_is_extended_real(self) -> bool | None:
        return True if all(a.is_extended_real for a in self.args if isinstance(a, sympy.Expr)) else None


class exp(Map):  # noqa: N801 - printers find their method by the class name
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        if not _is_real(x):
            return None
        check_exponent(x)
        return sympy.exp(x)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return self

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return self.args[0].is_extended_real


class log(Map):  # noqa: N801
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        if not _is_real(x):
            return None
        if x.is_zero:
            return sympy.S.NegativeInfinity
        return sympy.S.NaN if x.is_extended_negative else sympy.log(x)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        return 1 / self.args[0]


class Abs(Map):
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        if _is_real(x):
            return sympy.Abs(x)
        if x.is_extended_nonnegative:
            return x
        c, rest = x.as_coeff_Mul(rational=True)
        if c not in (1, -1):
            return abs(c) * cls(rest)
        if x.could_extract_minus_sign():
            return cls(-x)
        return None

    def _eval_is_extended_real(self) -> bool:
        return True

    def _eval_is_extended_nonnegative(self) -> bool:
        return True


class Tabled(Map):
    """A map of which the table of functions says all there is; numbers are evaluated through other functions."""

    row: ClassVar[Function]

    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        if x in (sympy.S.Infinity, sympy.S.NegativeInfinity):
            return sympy.sympify(cls.row.limits[x is sympy.S.Infinity])
        if cls.row.parity == "" and cls.row.exact and x.is_extended_nonnegative:
            return x  # relu
        return evaluated(cls.row.equal, _Symbolic, x) if cls.row.equal and _is_real(x) else None

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        if not self.row.derivative:
            raise sympy.core.function.ArgumentIndexError(self, argindex)
        return evaluated(self.row.derivative, _Symbolic, self.args[0], self)

    def _eval_is_extended_positive(self) -> bool | None:
        return True if self.row.range == "positive" and not self.row.equal else None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return self.args[0].is_extended_real if self.row.name in NOT_NEGATIVE else None


class _Extremum(Map):
    pick: ClassVar[Any]

    def __new__(cls, *args: Any) -> sympy.Expr:
        flat: dict[sympy.Expr, None] = {}
        for a in map(sympy.sympify, args):
            flat.update(dict.fromkeys(a.args if isinstance(a, cls) else (a,)))
        if sympy.S.NaN in flat:
            return sympy.S.NaN
        numbers = [a for a in flat if _is_real(a)]
        rest = [a for a in flat if not _is_real(a)]
        if numbers:
            rest.append(cls.pick(*numbers))
        if len(rest) == 1:
            return rest[0]
        return super().__new__(cls, *sorted(rest, key=default_sort_key))


class maximum(_Extremum):  # noqa: N801
    pick = sympy.Max


class minimum(_Extremum):  # noqa: N801
    pick = sympy.Min


class where(Map):  # noqa: N801
    """where(condition, then, otherwise) with numeric branches."""

    @classmethod
    def eval(cls, condition: Boolean, then: sympy.Expr, other: sympy.Expr) -> sympy.Expr | None:
        if condition == sympy.true or then == other:
            return then
        return other if condition == sympy.false else None

    def _eval_is_extended_real(self) -> bool | None:
        return True if all(a.is_extended_real for a in self.args[1:]) else None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return True if all(a.is_extended_nonnegative for a in self.args[1:]) else None


class cast(Map):  # noqa: N801
    """cast(x, dtype name): round to the nearest value of a narrow type."""

    @classmethod
    def eval(cls, x: sympy.Expr, dtype: Str) -> None:
        return None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return self.args[0].is_extended_nonnegative


class _Symbolic:
    """Formulas of the table on SymPy expressions."""

    number = staticmethod(lambda value: sympy.Rational(value.numerator, value.denominator))
    special = staticmethod(lambda name: {"pi": sympy.pi}[name])
    add = staticmethod(lambda terms: sympy.Add(*terms))
    mul = staticmethod(lambda factors: sympy.Mul(*factors))
    power = staticmethod(lambda base, exponent: base**exponent)
    extremum = staticmethod(lambda op, a, b: {"maximum": maximum, "minimum": minimum}[op](a, b))
    unary = staticmethod(lambda name, x: MAPS[name](x))


class _PlainSymbolic(_Symbolic):
    """The same in SymPy's own functions."""

    extremum = staticmethod(lambda op, a, b: {"maximum": sympy.Max, "minimum": sympy.Min}[op](a, b))
    unary = staticmethod(lambda name, x: PLAIN[name](x))


def _tabled(row: Function) -> type[Map]:
    return type(row.name, (Tabled,), {"row": row, "__module__": __name__, "__doc__": row.summary})


def _plain(row: Function) -> Callable[..., Any]:
    """The map in SymPy's own functions; the unit of a scale anchor has none."""
    if row.sympy:
        found: Callable[..., Any] = getattr(sympy, row.sympy)
        return found
    return (lambda x: evaluated(row.equal, _PlainSymbolic, x)) if row.equal else MAPS[row.name]


# SymPy turns erfc(-x) into 2 - erfc(x), which cancels where x is large.
_WRITTEN: dict[str, type[sympy.Function]] = {"exp": exp, "log": log, "abs": Abs, "erfc": _tabled(FUNCTIONS["erfc"])}
MAPS: dict[str, type[sympy.Function]] = {  # this package's class of every function, SymPy's where that is sound
    name: _WRITTEN.get(name) or (getattr(sympy, row.sympy) if row.sympy else _tabled(row))
    for name, row in FUNCTIONS.items()
}
PLAIN: dict[str, Callable[..., Any]] = {name: _plain(row) for name, row in FUNCTIONS.items()}
globals().update({name: cls for name, cls in MAPS.items() if issubclass(cls, Tabled)})


class choose(BooleanFunction):  # noqa: N801
    """where(condition, then, otherwise) with Boolean branches."""

    @classmethod
    def eval(cls, condition: Boolean, then: Boolean, other: Boolean) -> Boolean | None:
        if condition == sympy.true or then == other:
            return then
        return other if condition == sympy.false else None


class _Equality(Application, Boolean):
    """An atom for SymPy's logic, as relations are: its arguments are numbers, not propositions to tabulate."""

    equal: ClassVar[bool]

    def __new__(cls, a: Any, b: Any) -> Boolean:
        a, b = sorted((sympy.sympify(a), sympy.sympify(b)), key=default_sort_key)
        if sympy.S.NaN in (a, b):
            return sympy.false if cls.equal else sympy.true
        if getattr(a, "is_number", False) and getattr(b, "is_number", False):
            same = sympy.Eq(a, b)
            if same in (sympy.true, sympy.false):
                return sympy.true if bool(same) is cls.equal else sympy.false
        return super().__new__(cls, a, b)


class eq(_Equality):  # noqa: N801
    equal = True


class ne(_Equality):  # noqa: N801
    equal = False
