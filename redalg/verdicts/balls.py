"""Rigorous enclosures: intervals with endpoints of several hundred bits that remember how they were computed.

The origin of an enclosure (the operation and its operands) turns it into a closed number at the end, without any
further decision: maxima, signs and conditions have been decided by then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import mpmath
from mpmath.libmp import (
    from_int,
    from_rational,
    mpf_abs,
    mpf_add,
    mpf_cmp,
    mpf_mul,
    mpf_neg,
    mpf_shift,
    mpf_sign,
    to_rational,
)
from mpmath.libmp import libmpi as li

from redalg.algebra.work import spend
from redalg.graph.formula import evaluated
from redalg.graph.functions import FUNCTIONS, Function

Interval = Any  # a pair of raw mpf tuples
FARTHEST = 1 << 10  # bits of an argument before the point: an exponential asks for as many digits of log 2
LONGEST = 100_000  # binary places of a number that is still written out as a rational


class Ball:
    """An interval [lo, hi] that contains a real number. Mixes with `Fraction`.

    >>> two = BallNumbers(200).root(Fraction(2), Fraction(1, 2))
    >>> (two * two - Fraction(2)).contains_zero(), (two - Fraction(1)).sign()
    (True, 1)
    """

    __slots__ = ("mpi", "prec", "origin")

    def __init__(self, mpi: Interval, prec: int, origin: tuple[Any, ...]) -> None:
        self.mpi, self.prec, self.origin = mpi, prec, origin

    def __repr__(self) -> str:
        return f"Ball({mpmath.libmp.to_str(self.mpi[0], 15)})"

    def bounds(self) -> tuple[Fraction, Fraction]:
        """Both ends as exact rationals."""
        lo, hi = (Fraction(*to_rational(end)) for end in self.mpi)
        return lo, hi

    def contains_zero(self) -> bool:
        return self.sign() is None or self.sign() == 0

    def sign(self) -> int | None:
        """-1, 0 or 1 where the enclosure decides, else None."""
        lo, hi = mpf_sign(self.mpi[0]), mpf_sign(self.mpi[1])
        return int(lo) if lo == hi else None

    def _other(self, other: Fraction | Ball) -> Interval:
        return other.mpi if isinstance(other, Ball) else enclose(other, self.prec)

    def _with(self, op: str, f: Callable[..., Interval], a: Interval, b: Interval, *operands: Any) -> Ball:
        return Ball(f(a, b, self.prec), self.prec, (op, *operands))

    def __add__(self, other: Fraction | Ball) -> Any:
        if isinstance(other, float):
            return other
        return self._with("add", li.mpi_add, self.mpi, self._other(other), self, other)

    __radd__ = __add__

    def __neg__(self) -> Ball:
        return self * Fraction(-1)

    def __sub__(self, other: Fraction | Ball) -> Any:
        return self + (-other)

    def __rsub__(self, other: Fraction | Ball) -> Any:
        return -self + other

    def __mul__(self, other: Fraction | Ball) -> Any:
        if isinstance(other, float):
            sign = self.sign()
            return other * sign if sign else float("nan")
        if not isinstance(other, Ball) and other == 0:
            return Fraction(0)
        return self._with("mul", li.mpi_mul, self.mpi, self._other(other), self, other)

    __rmul__ = __mul__

    def __pow__(self, exponent: int) -> Ball:
        if exponent < 0:
            if self.contains_zero():
                raise ZeroDivisionError("a divisor that may be zero")
            inverse = li.mpi_div(li.mpi_one, self.mpi, self.prec)
            return Ball(li.mpi_pow_int(inverse, -exponent, self.prec), self.prec, ("pow", self, Fraction(exponent)))
        return Ball(li.mpi_pow_int(self.mpi, exponent, self.prec), self.prec, ("pow", self, Fraction(exponent)))

    def __truediv__(self, other: Fraction | Ball) -> Any:
        return self * (other**-1 if isinstance(other, Ball) else 1 / other)

    def __rtruediv__(self, other: Fraction) -> Any:
        return self**-1 * other


def enclose(number: Fraction, prec: int) -> Interval:
    """The narrowest interval of that precision around a rational."""
    n, d = number.numerator, number.denominator
    if d == 1 and n.bit_length() <= prec:
        exact = from_int(n)
        return exact, exact
    return from_rational(n, d, prec, "f"), from_rational(n, d, prec, "c")


def _is_special(end: Any) -> bool:
    """Whether a raw number is infinite or NaN: a pole at the end of a domain, as atanh has at 1."""
    return not end[1] and bool(end[2])


def _is_far(x: Interval) -> bool:
    """Whether an end is too large for its exponential, or the rest that a period leaves, to be calculated."""
    return any(end[2] + end[3] > FARTHEST for end in x)


def hull(op: str, a: Fraction | Ball, b: Fraction | Ball) -> Ball:
    """max or min of two numbers whose order the enclosures do not decide."""
    prec = a.prec if isinstance(a, Ball) else b.prec  # type: ignore[union-attr]
    x, y = (v.mpi if isinstance(v, Ball) else enclose(v, prec) for v in (a, b))
    wanted = 1 if op == "maximum" else -1
    ends = tuple(s if mpf_cmp(s, t) * wanted >= 0 else t for s, t in zip(x, y, strict=True))
    return Ball(ends, prec, (op, a, b))


class BallNumbers:
    """The mode of evaluation in which irrational values become enclosures of `prec` bits."""

    name = "enclosure"

    def __init__(self, prec: int = 600) -> None:
        self.prec = prec
        self.price = max(1, prec // 50)
        self._known: dict[tuple[str, Interval], Interval | None] = {}

    def unary(self, op: str, argument: Fraction | Ball) -> Any:
        """The enclosure of a function value; NaN outside the function's domain or where the enclosure leaves it."""
        if op in ("abs", "relu") and isinstance(argument, Ball) and argument.sign() is not None:
            return argument if argument.sign() != -1 else (-argument if op == "abs" else Fraction(0))
        x = argument.mpi if isinstance(argument, Ball) else enclose(argument, self.prec)
        value = self._function(op, x)
        if value is None or any(_is_special(end) for end in value):
            return float("nan")
        return Ball(value, self.prec, (op, argument))

    def _function(self, op: str, x: Interval) -> Interval | None:
        """The value of a function, which streams of the same elements ask for again and again."""
        if (op, x) not in self._known:
            self._known[op, x] = _enclose_function(op, x, self.prec)
        else:
            spend(self.prec * self.prec // FUNCTION)  # what a search may take is not what it remembers
        return self._known[op, x]

    def root(self, base: Fraction | Ball, exponent: Fraction | Ball) -> Any:
        """base**exponent for a positive base."""
        x = base.mpi if isinstance(base, Ball) else enclose(base, self.prec)
        if mpf_sign(x[0]) <= 0:
            return float("nan")
        if exponent == Fraction(1, 2):
            value = li.mpi_sqrt(x, self.prec)
        else:
            e = exponent.mpi if isinstance(exponent, Ball) else enclose(exponent, self.prec)
            logarithm = li.mpi_mul(e, li.mpi_log(x, self.prec), self.prec)
            if _is_far(logarithm):
                return float("nan")
            value = li.mpi_exp(logarithm, self.prec)
        return Ball(value, self.prec, ("pow", base, exponent))


def _log(x: Interval, prec: int) -> Interval | None:
    return li.mpi_log(x, prec) if mpf_sign(x[0]) > 0 else None


def _relu(x: Interval, prec: int) -> Interval:
    zero = from_int(0)
    return tuple(end if mpf_sign(end) > 0 else zero for end in x)


def _tan(x: Interval, prec: int) -> Interval | None:
    cosine = li.mpi_cos(x, prec)
    return None if mpf_sign(cosine[0]) != mpf_sign(cosine[1]) else li.mpi_div(li.mpi_sin(x, prec), cosine, prec)


FUNCTION = 4800  # squared bits of a function's value that cost as much as an operation on rationals
_DIRECT: dict[str, Callable[[Interval, int], Interval | None]] = {  # interval functions of mpmath
    "exp": li.mpi_exp,
    "log": _log,
    "sin": li.mpi_sin,
    "cos": li.mpi_cos,
    "tan": _tan,
    "abs": li.mpi_abs,
    "relu": _relu,
    "log1p": lambda x, prec: _log(li.mpi_add(x, li.mpi_one, prec), prec),
    "cosh": lambda x, prec: li.mpi_cosh_sinh(x, prec)[0],
    "sinh": lambda x, prec: li.mpi_cosh_sinh(x, prec)[1],
}
_SHORT = frozenset({"log", "log1p", "abs", "relu"})  # of large numbers, too
_DOMAINS: dict[str, Callable[[Any], bool]] = {
    "": lambda v: True,
    "unit": lambda v: -1 <= v <= 1,
    "open_unit": lambda v: -1 < v < 1,
    "above_one": lambda v: v >= 1,
    "positive": lambda v: v > 0,
    "above_minus_one": lambda v: v > -1,
}


def _enclose_function(op: str, x: Interval, prec: int) -> Interval | None:
    """By mpmath's intervals, by the formula of a function that has one, else by values at the ends or the middle."""
    spend(prec * prec // FUNCTION)
    if op not in _SHORT and _is_far(x):
        return None
    row = FUNCTIONS[op]
    if op in _DIRECT:
        return _DIRECT[op](x, prec)
    if row.equal:
        return _by_formula(row, x, prec)
    if not row.direction or not row.mpmath:
        return None
    if row.slope:
        return _at_midpoint(op, x, prec)
    with mpmath.workprec(prec + 60):  # 60 bits more than the widening below allows for
        ends = [mpmath.make_mpf(end) for end in x]
        if not all(map(_DOMAINS[row.domain], ends)):
            return None
        values = [getattr(mpmath, row.mpmath)(end)._mpf_ for end in (ends if row.direction > 0 else ends[::-1])]
    return _widen(values[0], prec, down=True), _widen(values[1], prec, down=False)


def _by_formula(row: Function, x: Interval, prec: int) -> Interval | None:
    """A rising function at the ends, which spares the width that an argument used twice would add."""
    points = [(end, end) for end in x] if row.direction > 0 else [x]
    found = [evaluated(row.equal, _Intervals(prec), point) for point in points]
    return None if None in found else (found[0][0], found[-1][1])


class _Intervals:
    """Formulas of the table of functions on intervals; None where one leaves a domain."""

    def __init__(self, prec: int) -> None:
        self.prec = prec

    def number(self, value: Fraction) -> Interval:
        return enclose(value, self.prec)

    def special(self, name: str) -> Interval | None:
        return None

    def add(self, terms: Sequence[Interval | None]) -> Interval | None:
        return None if None in terms else functools.reduce(lambda a, b: li.mpi_add(a, b, self.prec), terms)

    def mul(self, factors: Sequence[Interval | None]) -> Interval | None:
        return None if None in factors else functools.reduce(lambda a, b: li.mpi_mul(a, b, self.prec), factors)

    def power(self, base: Interval | None, exponent: Interval) -> Interval | None:
        if base is None or exponent != enclose(Fraction(-1), self.prec) or mpf_sign(base[0]) != mpf_sign(base[1]):
            return None
        return li.mpi_div(li.mpi_one, base, self.prec)

    def extremum(self, op: str, a: Interval, b: Interval) -> Interval | None:
        return None

    def unary(self, name: str, x: Interval | None) -> Interval | None:
        return None if x is None else _enclose_function(name, x, self.prec)


def _at_midpoint(op: str, x: Interval, prec: int) -> Interval:
    with mpmath.workprec(prec + 60):
        lo, hi = (mpmath.make_mpf(end) for end in x)
        middle = (lo + hi) / 2
        radius = int(FUNCTIONS[op].slope) * (hi - lo) + mpmath.ldexp(abs(middle), -prec - 40)
        value = getattr(mpmath, FUNCTIONS[op].mpmath)(middle)
        ends = (value - radius)._mpf_, (value + radius)._mpf_
    return _widen(ends[0], prec, down=True), _widen(ends[1], prec, down=False)


def _widen(value: Any, prec: int, down: bool) -> Any:
    slack = mpf_shift(mpf_abs(value), -prec)
    tiny = mpf_shift(from_int(1), -2 * prec)
    slack = mpf_add(slack, tiny, 60, "c")
    return mpf_add(value, mpf_neg(slack) if down else slack, prec, "f" if down else "c")


def closed_form(number: Fraction | Ball, memo: dict[int, Any], limit: int) -> Any:
    """The number as a closed SymPy number, or None where that would take more than `limit` operations.

    SymPy asks a long closed number for its sign at every operation, which takes seconds. `memo` is shared by calls.
    """
    import sympy

    order, seen, stack = [], set(), [(number, False)]
    while stack:
        item, done = stack.pop()
        if done:
            order.append(item)
        elif id(item) not in seen:
            seen.add(id(item))
            stack.append((item, True))
            stack.extend((o, False) for o in (item.origin[1:] if isinstance(item, Ball) else ()))
        if len(order) > limit:
            return None
    for item in order:
        if isinstance(item, Ball) and item.origin[0] in _UNDECIDED:
            return None
        if id(item) not in memo:
            memo[id(item)] = _to_sympy(sympy, item, memo)
    return memo[id(number)]


_UNDECIDED = frozenset({"maximum", "minimum", "abs", "relu"})  # what remains of these has enclosures that overlap


def _to_sympy(sympy: Any, item: Fraction | Ball, memo: dict[int, Any]) -> Any:
    """One operation on closed numbers; sums and products are flattened so that each is built once."""
    if not isinstance(item, Ball):
        return sympy.Rational(item.numerator, item.denominator)
    op, *operands = item.origin
    args = [memo[id(o)] for o in operands]
    rules: dict[str, Callable[..., Any]] = {
        "add": sympy.Add,
        "mul": sympy.Mul,
        "pow": sympy.Pow,
    }
    if op in rules:
        return rules[op](*args)
    row = FUNCTIONS[op]
    return getattr(sympy, row.sympy)(*args) if row.sympy else evaluated(row.equal, _Closed(sympy), *args)


class _Closed:
    """Formulas of the table of functions on closed SymPy numbers."""

    def __init__(self, sympy: Any) -> None:
        self.sympy = sympy

    def number(self, value: Fraction) -> Any:
        return self.sympy.Rational(value.numerator, value.denominator)

    def special(self, name: str) -> Any:
        return getattr(self.sympy, name)

    def add(self, terms: Sequence[Any]) -> Any:
        return self.sympy.Add(*terms)

    def mul(self, factors: Sequence[Any]) -> Any:
        return self.sympy.Mul(*factors)

    def power(self, base: Any, exponent: Any) -> Any:
        return base**exponent

    def extremum(self, op: str, a: Any, b: Any) -> Any:
        return (self.sympy.Max if op == "maximum" else self.sympy.Min)(a, b)

    def unary(self, name: str, x: Any) -> Any:
        return getattr(self.sympy, FUNCTIONS[name].sympy)(x)


def midpoint(number: Fraction | Ball) -> Fraction:
    """A rational inside the enclosure."""
    if not isinstance(number, Ball):
        return number
    lo, hi = number.mpi
    middle = mpf_mul(mpf_add(lo, hi), mpf_shift(from_int(1), -1))
    if abs(middle[2]) > LONGEST:
        raise OverflowError("a number of more than a hundred thousand binary places")
    return Fraction(*to_rational(middle))
