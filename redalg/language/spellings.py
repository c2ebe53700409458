"""Functions of elements that are written in terms of others: what an expression holds afterwards is the formula.

Nothing else of the library knows of them. Each says what is exact and where the formula gives NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy.logic.boolalg import Boolean

from redalg.language import maps
from redalg.language.arithmetic import closed
from redalg.language.maps import number


def silu(x: Any) -> sympy.Expr:
    """x · sigmoid(x), also called swish: a product of two roundings; NaN at -oo, where the limit is 0.

    >>> silu(sympy.Symbol("x", real=True))
    x*sigmoid(x)
    """
    value = number(x, "ra.silu")
    return closed(value * maps.sigmoid(value))


def gelu(x: Any) -> sympy.Expr:
    """x · Φ(x) with the normal distribution's Φ, as x/2 · erfc(-x/√2): accurate in the lower tail, too.

    NaN at -oo, where the limit is 0. The approximation by a hyperbolic tangent is another function.

    >>> gelu(0)
    0
    """
    value = number(x, "ra.gelu")
    return closed(value * maps.erfc(-value / sympy.sqrt(2)) / 2)


def clip(x: Any, low: Any, high: Any) -> sympy.Expr:
    """min(max(x, low), high): exact; NaN if one of them is NaN, `high` where low > high.

    >>> clip(7, 0, 5), clip(-7, 0, 5)
    (5, 0)
    """
    return maps.minimum(maps.maximum(x, low), high)


def logaddexp(a: Any, b: Any) -> sympy.Expr:
    """log(exp(a) + exp(b)) without overflow: m + log1p(exp(-d)) with m the larger one and d how much larger it is.

    Both are chosen by one comparison, on either side of which the formula is the same smooth function: its derivatives
    are right where a = b, too. Of equal infinities, whose difference is NaN, it is either one.

    >>> logaddexp(-sympy.oo, 3)
    3
    """
    a, b = number(a, "ra.logaddexp"), number(b, "ra.logaddexp")
    if a == b and a.is_infinite:
        return a
    first = sympy.Ge(a, b)
    apart = maps.where(first, a, b) + maps.log1p(maps.exp(maps.where(first, b - a, a - b)))
    both = maps.eq(a, b) & maps.eq(maps.abs(a), sympy.oo)
    value: sympy.Expr = maps.where(both, a, apart)
    return value


def isnan(x: Any) -> Boolean:
    """The condition that x is NaN: x ≠ x.

    >>> isnan(sympy.nan), isnan(1)
    (True, False)
    """
    value = number(x, "ra.isnan")
    return maps.ne(value, value)


SPELLINGS: dict[str, tuple[int, Callable[..., Any]]] = {  # the words of the grammar, with the number of arguments
    "silu": (1, silu),
    "gelu": (1, gelu),
    "clip": (3, clip),
    "logaddexp": (2, logaddexp),
    "isnan": (1, isnan),
}
