"""Reductions that are written in terms of others: moments, norms, counts and normalised exponentials.

An expression holds the formula afterwards, and so does a spec; what derives, derives as if it had been written out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import sympy

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.language import maps, reductions
from redalg.language.leaves import axis_names
from redalg.language.maps import number
from redalg.language.operand import operand
from redalg.language.sympy_bridge import to_sympy


def var(expr: Any, axis: Any, ddof: int = 0) -> sympy.Expr:
    """Variance over the axis, Σ(x - mean)² / (n - ddof); divided as written: NaN where n = ddof, as 0/0 is.

    Raises: RedalgError unless ddof is an integer ≥ 0 and the expression has the axis.

    >>> from redalg.language.leaves import tensors
    >>> var(tensors("x[j]"), "j", ddof=1)
    sum[j]((x[j] - sum[j](x[j]) / size[j])**2)/(size[j] - 1)
    """
    return _moment(expr, expr, axis, ddof, "ra.var")


def std(expr: Any, axis: Any, ddof: int = 0) -> sympy.Expr:
    """Standard deviation over the axis, the root of `var`.

    >>> from redalg.language.leaves import tensors
    >>> std(tensors("x[j]"), "j") == sympy.sqrt(var(tensors("x[j]"), "j"))
    True
    """
    return maps.sqrt(_moment(expr, expr, axis, ddof, "ra.std"))


def cov(a: Any, b: Any, axis: Any, ddof: int = 0) -> sympy.Expr:
    """Covariance of two expressions over the axis, Σ(a - mean a)·(b - mean b) / (n - ddof).

    With one tensor read along two axes it is the matrix of covariances: ``cov(X, X["j", "b"], "j")`` for X[j,a].

    >>> from redalg.language.leaves import tensors
    >>> x, y = tensors("x[j] y[j]")
    >>> cov(x, x, "j") == var(x, "j"), cov(x, y, "j") == cov(y, x, "j")
    (True, True)
    """
    return _moment(a, b, axis, ddof, "ra.cov")


def _moment(a: Any, b: Any, axis: Any, ddof: Any, where: str) -> sympy.Expr:
    axes = axis_names(axis, where)
    if isinstance(ddof, bool) or not hasattr(ddof, "__index__") or operator.index(ddof) < 0:
        raise RedalgError(f"ddof={ddof!r}", where, "n - ddof divides, with an integer ddof ≥ 0", "write ddof=0 or 1")
    centred = [_centred(e, axes, where) for e in ((a,) if a is b else (a, b))]
    count = to_sympy(g.size(axes)) - operator.index(ddof)
    total: sympy.Expr = reductions.sum(centred[0] * centred[-1], list(axes))
    return total / count


def _centred(expr: Any, axes: tuple[str, ...], where: str) -> sympy.Expr:
    value = number(expr, where)
    missing = [a for a in axes if a not in reductions._body(value, where).axes]
    if missing:
        why = "deviations from a mean over it are 0 throughout"
        raise RedalgError(f"an expression without the axis {missing[0]!r}", where, why, "name an axis it has")
    deviation: sympy.Expr = value - reductions.mean(value, list(axes))
    return deviation


def norm(expr: Any, axis: Any, p: Any = 2) -> sympy.Expr:
    """The p-norm over the axis, (Σ|x|^p)^(1/p): p = 2 by default, 1, ``ra.inf`` (the largest |x|) or any p ≥ 1.

    Raises: RedalgError for a number p < 1.

    >>> from redalg.language.leaves import tensors
    >>> norm(tensors("x[j]"), "j"), norm(tensors("x[j]"), "j", p=sympy.oo)
    (sqrt(sum[j](x[j]**2)), max[j](abs(x[j])))
    """
    value, power = number(expr, "ra.norm"), number(p, "ra.norm")
    if power is sympy.oo:
        return reductions.max(maps.abs(value), axis)
    if power.is_number and not (power.is_real and power >= 1):
        raise RedalgError(f"p={p!r}", "ra.norm", "below 1 it is no norm", "give a number p >= 1, or ra.inf")
    if power == 2:
        return maps.sqrt(reductions.sum(value**2, axis))
    if power == 1:
        return reductions.sum(maps.abs(value), axis)
    total: sympy.Expr = reductions.sum(maps.abs(value) ** power, axis)
    return total ** (1 / power)


def count(condition: Any, axis: Any) -> sympy.Expr:
    """The number of elements along the axis for which the condition holds.

    Raises: RedalgError for a number.

    >>> from redalg.language.leaves import tensors
    >>> count(tensors("x[j]") > 0, "j")
    sum[j](where(0 < x[j], 1, 0))
    """
    if maps.is_number(operand(condition, "ra.count")):
        fix = "compare it: ra.count(x > 0, axis); ra.size(axis) is the length of an axis"
        raise RedalgError(f"the number {condition}", "ra.count", "a number is not a condition", fix)
    return reductions.sum(maps.where(condition, 1, 0), axis)


def softmax(expr: Any, axis: Any) -> sympy.Expr:
    """exp(x - m) / Σ exp(x - m) with m the maximum over the axis; it keeps the axis.

    >>> from redalg.language.leaves import tensors
    >>> softmax(tensors("x[j]"), "j")
    exp(-max[j](x[j]) + x)/sum[j](exp(x[j] - max[j](x[j])))
    """
    e = maps.exp(_below_maximum(expr, axis, "ra.softmax"))
    value: sympy.Expr = e / reductions.sum(e, axis)
    return value


def log_softmax(expr: Any, axis: Any) -> sympy.Expr:
    """x - m - log Σ exp(x - m) with m the maximum over the axis; it keeps the axis.

    >>> from redalg.language.leaves import tensors
    >>> log_softmax(tensors("x[j]"), "j")
    -max[j](x[j]) + x - log(sum[j](exp(x[j] - max[j](x[j]))))
    """
    below = _below_maximum(expr, axis, "ra.log_softmax")
    value: sympy.Expr = below - maps.log(reductions.sum(maps.exp(below), axis))
    return value


def _below_maximum(expr: Any, axis: Any, where: str) -> sympy.Expr:
    value = number(expr, where)
    below: sympy.Expr = value - reductions.max(value, axis)
    return below


# the words of the grammar: the number of expressions, the function, and the option that may follow a colon
STATISTICS: dict[str, tuple[int, Callable[..., Any], str]] = {
    "var": (1, var, "ddof"),
    "std": (1, std, "ddof"),
    "cov": (2, cov, "ddof"),
    "norm": (1, norm, "p"),
    "count": (1, count, ""),
    "softmax": (1, softmax, ""),
    "log_softmax": (1, log_softmax, ""),
}
