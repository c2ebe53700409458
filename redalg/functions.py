"""SymPy classes of the maps whose automatic evaluation must be sound for infinities and NaN.

SymPy's own ``exp`` turns exp(a + log b) into b·exp(a), which is 0·inf = NaN where exp(-inf) = 0 is meant; its ``log``
leaves the reals; its ``Max`` and ``Abs`` walk whole trees. These classes evaluate numbers and little else.
"""

from __future__ import annotations

from typing import Any, ClassVar

import sympy
from sympy.core.function import Application
from sympy.core.sorting import default_sort_key
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean, BooleanFunction

from redalg.operand import Operand


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
        return sympy.exp(x) if _is_real(x) else None

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


class relu(Map):  # noqa: N801
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        if x.is_extended_nonnegative:
            return x
        return sympy.S.Zero if x.is_number and x.is_extended_negative else None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return self.args[0].is_extended_real


class sigmoid(Map):  # noqa: N801
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        return 1 / (1 + sympy.exp(-x)) if _is_real(x) else None

    def _eval_is_extended_nonnegative(self) -> bool | None:
        return self.args[0].is_extended_real


class pow2(Map):  # noqa: N801
    """The largest power of 2 that is at most |x|: the unit of a scale anchor."""

    @classmethod
    def eval(cls, x: sympy.Expr) -> None:
        return None

    def _eval_is_extended_positive(self) -> bool:
        return True


class log1p(Map):  # noqa: N801
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        return log(1 + x) if _is_real(x) else None


class expm1(Map):  # noqa: N801
    @classmethod
    def eval(cls, x: sympy.Expr) -> sympy.Expr | None:
        return sympy.exp(x) - 1 if _is_real(x) else None


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
