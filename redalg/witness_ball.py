"""Rigorous enclosures: intervals with endpoints of several hundred bits that remember how they were computed.

The origin of an enclosure (the operation and its operands) turns it into a closed number at the end, without any
further decision: maxima, signs and conditions have been decided by then.
"""

from __future__ import annotations

from collections.abc import Callable
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

Interval = Any  # a pair of raw mpf tuples
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

    def unary(self, op: str, argument: Fraction | Ball) -> Any:
        """The enclosure of a function value; NaN outside the function's domain or where the enclosure leaves it."""
        if op in ("abs", "relu") and isinstance(argument, Ball) and argument.sign() is not None:
            return argument if argument.sign() != -1 else (-argument if op == "abs" else Fraction(0))
        x = argument.mpi if isinstance(argument, Ball) else enclose(argument, self.prec)
        value = _enclose_function(op, x, self.prec)
        return float("nan") if value is None else Ball(value, self.prec, (op, argument))

    def root(self, base: Fraction | Ball, exponent: Fraction | Ball) -> Any:
        """base**exponent for a positive base."""
        x = base.mpi if isinstance(base, Ball) else enclose(base, self.prec)
        if mpf_sign(x[0]) <= 0:
            return float("nan")
        if exponent == Fraction(1, 2):
            value = li.mpi_sqrt(x, self.prec)
        else:
            e = exponent.mpi if isinstance(exponent, Ball) else enclose(exponent, self.prec)
            value = li.mpi_exp(li.mpi_mul(e, li.mpi_log(x, self.prec), self.prec), self.prec)
        return Ball(value, self.prec, ("pow", base, exponent))


def _one_plus_exp(x: Interval, prec: int) -> Interval:
    return li.mpi_add(li.mpi_one, li.mpi_exp(x, prec), prec)


def _sigmoid(x: Interval, prec: int) -> Interval:
    return li.mpi_div(li.mpi_one, _one_plus_exp(li.mpi_neg(x), prec), prec)


def _tanh(x: Interval, prec: int) -> Interval:
    twice = _sigmoid(li.mpi_shift(x, 1), prec)
    return li.mpi_sub(li.mpi_shift(twice, 1), li.mpi_one, prec)


def _log(x: Interval, prec: int) -> Interval | None:
    return li.mpi_log(x, prec) if mpf_sign(x[0]) > 0 else None


def _relu(x: Interval, prec: int) -> Interval:
    zero = from_int(0)
    return tuple(end if mpf_sign(end) > 0 else zero for end in x)


_DIRECT: dict[str, Callable[[Interval, int], Interval | None]] = {
    "exp": li.mpi_exp,
    "log": _log,
    "sin": li.mpi_sin,
    "cos": li.mpi_cos,
    "abs": li.mpi_abs,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "expm1": lambda x, prec: li.mpi_sub(li.mpi_exp(x, prec), li.mpi_one, prec),
    "log1p": lambda x, prec: _log(li.mpi_add(x, li.mpi_one, prec), prec),
    "cosh": lambda x, prec: li.mpi_cosh_sinh(x, prec)[0],
    "sinh": lambda x, prec: li.mpi_cosh_sinh(x, prec)[1],
}

# Monotone functions are enclosed by their values at the ends; (increasing, domain).
_MONOTONE: dict[str, tuple[bool, Callable[[Any], bool]]] = {
    "erf": (True, lambda v: True),
    "erfc": (False, lambda v: True),
    "atan": (True, lambda v: True),
    "asinh": (True, lambda v: True),
    "asin": (True, lambda v: -1 <= v <= 1),
    "acos": (False, lambda v: -1 <= v <= 1),
    "acosh": (True, lambda v: v >= 1),
    "atanh": (True, lambda v: -1 < v < 1),
}


def _enclose_function(op: str, x: Interval, prec: int) -> Interval | None:
    if op in _DIRECT:
        return _DIRECT[op](x, prec)
    if op == "tan":
        cosine = li.mpi_cos(x, prec)
        return None if mpf_sign(cosine[0]) != mpf_sign(cosine[1]) else li.mpi_div(li.mpi_sin(x, prec), cosine, prec)
    if op not in _MONOTONE:
        return None
    if op in _LIPSCHITZ:
        return _at_midpoint(op, x, prec)
    increasing, domain = _MONOTONE[op]
    with mpmath.workprec(prec + 60):  # 60 bits more than the widening below allows for
        ends = [mpmath.make_mpf(end) for end in x]
        if not all(domain(end) for end in ends):
            return None
        values = [getattr(mpmath, op)(end)._mpf_ for end in (ends if increasing else ends[::-1])]
    return _widen(values[0], prec, down=True), _widen(values[1], prec, down=False)


_LIPSCHITZ = frozenset({"erf", "erfc", "atan", "asinh"})  # slopes of at most 2: one evaluation is enough


def _at_midpoint(op: str, x: Interval, prec: int) -> Interval:
    with mpmath.workprec(prec + 60):
        lo, hi = (mpmath.make_mpf(end) for end in x)
        middle = (lo + hi) / 2
        radius = 2 * (hi - lo) + mpmath.ldexp(abs(middle), -prec - 40)
        value = getattr(mpmath, op)(middle)
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
        "sigmoid": lambda v: 1 / (1 + sympy.exp(-v)),
        "expm1": lambda v: sympy.exp(v) - 1,
        "log1p": lambda v: sympy.log(1 + v),
    }
    return rules[op](*args) if op in rules else getattr(sympy, op)(*args)


def midpoint(number: Fraction | Ball) -> Fraction:
    """A rational inside the enclosure."""
    if not isinstance(number, Ball):
        return number
    lo, hi = number.mpi
    middle = mpf_mul(mpf_add(lo, hi), mpf_shift(from_int(1), -1))
    if abs(middle[2]) > LONGEST:
        raise OverflowError("a number of more than a hundred thousand binary places")
    return Fraction(*to_rational(middle))
