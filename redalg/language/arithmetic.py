"""Operators of expressions: SymPy's arithmetic, kept within bounds.

SymPy evaluates while a spec is written, so `(x/3)**(10**9)` is a constant of half a billion digits before a spec sees
it. Leaves, maps and reductions therefore have operators of our own, which refuse such constants before SymPy makes
them, and whose sums, products and powers have these operators, too. In everything else those are SymPy's own: they
are equal to them, print like them, and their `func` is SymPy's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import sympy

from redalg import _hooks
from redalg.errors import RedalgError
from redalg.language.operand import LARGEST_CONSTANT, bits, check_constant, number_operand

LARGEST_EXPONENT = 5678  # e to it has LARGEST_CONSTANT bits
TREE, LEVELS = 1 << 8, 64  # SymPy objects, and levels of them, that stay open in a tree: SymPy walks all of them
OPEN = 16  # levels of an operand: what SymPy asks of it grows faster than with its size


def is_larger(expr: Any, objects: int, levels: int = LEVELS) -> bool:
    """Whether the tree of an expression has more objects or levels; looks at no more of it than that."""
    count, stack = 0, [(expr, 1)]
    while stack:
        found, level = stack.pop()
        count += 1
        if count > objects or level > levels:
            return True
        stack.extend((a, level + 1) for a in found.args)
    return False


class Operand:
    """Mixin: Python numbers enter as the exact rationals they hold, and anything else is refused in four parts."""

    __slots__ = ()
    __array_ufunc__ = None  # makes `array * x` come to us, to be refused, instead of an object array
    _op_priority = 10.1  # above SymPy's 10: `sin(x) * y` comes to y

    def __neg__(self) -> Any:
        return closed(super().__neg__())  # type: ignore[misc]

    def __abs__(self) -> Any:
        return closed(super().__abs__())  # type: ignore[misc]

    def __mod__(self, other: Any) -> Any:
        """What is left of a division: it has the sign of the divisor, as in Python."""
        return self - other * sympy.floor(self / other)

    def __rmod__(self, other: Any) -> Any:
        return other - self * sympy.floor(other / self)


@contextmanager
def evaluating(where: str) -> Iterator[None]:
    """What SymPy's evaluation runs into is an error of the expression, in four parts."""
    try:
        yield
    except RedalgError:
        raise
    except RecursionError:
        why, fix = (
            "SymPy's functions on SymPy's functions are nested deeper than Python's stack goes",
            "use redalg's maps",
        )
        raise RedalgError("a deep expression", where, why, fix) from None
    except Exception as error:  # whatever it is
        why = f"SymPy evaluates its constants: {str(error)[:100] or type(error).__name__}"
        raise RedalgError("an expression of numbers", where, why, "write numbers that a float holds") from None


def _guarded(name: str, symbol: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        where = f"an operand of `{symbol}`"
        a, b = (_hooks.opaque(e) if is_larger(e, TREE, OPEN) else e for e in (self, number_operand(other, where)))
        if symbol == "**":
            check_power(*((a, b) if name == "__pow__" else (b, a)))
        with evaluating(where):
            found = closed(getattr(super(Operand, self) if a is self else a, name)(b))
        check_constant(found.args[0] if found.is_Mul or found.is_Add else found, f"the result of `{symbol}`")
        return found

    method.__name__ = name
    return method


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


# --- what the operators give -----------------------------------------------------------------------------------------


class _Closed(Operand):
    """An object of SymPy's whose operators are ours. The name of its class is SymPy's, which makes the hashes equal."""

    __slots__ = ()
    plain: ClassVar[type]

    @property
    def func(self) -> type:
        return self.plain

    def __eq__(self, other: object) -> bool:
        return self is other or bool(_opened(self) == _opened(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = sympy.Basic.__hash__


class Add(_Closed, sympy.Add):
    __slots__ = ()
    plain = sympy.Add


class Mul(_Closed, sympy.Mul):
    __slots__ = ()
    plain = sympy.Mul


class Pow(_Closed, sympy.Pow):
    __slots__ = ()
    plain = sympy.Pow


class tanh(_Closed, sympy.tanh):  # noqa: N801 - printers find their method by the class name
    plain = sympy.tanh


class erf(_Closed, sympy.erf):  # noqa: N801
    plain = sympy.erf


class Abs(_Closed, sympy.Abs):
    plain = sympy.Abs


_CLOSED: dict[type, Any] = {cls.plain: cls for cls in (Add, Mul, Pow, Abs, tanh, erf)}


def closed(expr: Any) -> Any:
    """An object of SymPy's as the one that is equal to it and has our operators."""
    return _made(_CLOSED[type(expr)], expr) if type(expr) in _CLOSED else expr


def _opened(expr: Any) -> Any:
    return _made(expr.plain, expr) if isinstance(expr, _Closed) else expr


def _made(cls: Any, expr: Any) -> Any:
    made = sympy.Expr.__new__(cls, *expr.args)
    if not expr.is_Function:
        made.is_commutative = expr.is_commutative
    return made


# --- constants -------------------------------------------------------------------------------------------------------


def check_power(base: Any, exponent: Any, where: str = "an operand of `**`") -> None:
    """Refuse a power whose constant SymPy would write out: that of (x/3)**(10**9) has a billion and a half bits."""
    if not exponent.is_Rational:
        return
    bits = max((_written(f) for f in sympy.Mul.make_args(base) if f.is_number), default=0)
    if bits * abs(exponent) > LARGEST_CONSTANT:
        why = f"its constant has more than {LARGEST_CONSTANT} bits"
        raise RedalgError(f"the power {_short(base)}**{_short(exponent)}", where, why, "write it with a scalar tensor")


def check_exponent(x: Any) -> None:
    """Refuse e^x for a number x, where its digits are as many as those of the largest constant."""
    if x.is_finite and bool(abs(x) > LARGEST_EXPONENT):
        why = f"constants have at most {LARGEST_CONSTANT} bits; no float holds it either"
        raise RedalgError(f"e**{_short(x)}", "ra.exp", why, "write it with a scalar tensor, or oo")


def _written(number: Any) -> int:
    """The bits of a number, without the first: 1 and -1 have none. Of an irrational one, those of its parts."""
    if number.is_Rational:
        return bits(number) - 1
    return sum(bits(n) - 1 for n in number.atoms(sympy.Rational))


def _short(expr: Any) -> str:
    """The text of an expression, if Python prints its numbers."""
    if is_larger(expr, 20) or any(bits(n) > LARGEST_CONSTANT for n in expr.atoms(sympy.Rational)):
        return "(…)"
    text = str(expr)
    return f"({text})" if expr.args else text
