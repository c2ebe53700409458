"""Reductions over named axes: ``f(expr, axis)``. A list of axes is one composite axis, row-major in its order.

Reducing an expression that lacks the axis broadcasts it: ``sum`` gives size·e, ``prod`` e**size, ``max`` and ``mean``
give e. A Boolean body counts as 0 and 1.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, NamedTuple

import sympy
from sympy.logic.boolalg import Boolean

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.language.broadcast import as_number, reduced
from redalg.language.leaves import axis_names, check_name
from redalg.language.monoid import Monoid
from redalg.language.operand import operand
from redalg.language.sympy_bridge import settle, to_node, to_sympy


def _body(expr: Any, where: str) -> Node:
    return settle(to_node(operand(expr, where), strict=False))


def _reduce(kind: str, expr: Any, axis: Any) -> Any:
    where = f"ra.{kind}"
    return to_sympy(reduced(kind, axis_names(axis, where), _body(expr, where)))


def sum(expr: Any, axis: Any) -> sympy.Expr:  # noqa: A001
    """Σ over the axis; 0 over no elements.

    >>> from redalg.language.leaves import tensors
    >>> x = tensors("x[i,j]")
    >>> sum(x, "j"), sum(x, ["i", "j"])
    (sum[j](x[i,j]), sum[i,j](x[i,j]))
    """
    return _reduce("sum", expr, axis)


def prod(expr: Any, axis: Any) -> sympy.Expr:
    """Π over the axis; 1 over no elements.

    >>> from redalg.language.leaves import tensors
    >>> prod(tensors("x[j]"), "j")
    prod[j](x[j])
    """
    return _reduce("prod", expr, axis)


def max(expr: Any, axis: Any) -> sympy.Expr:  # noqa: A001
    """Maximum over the axis; -oo over no elements, NaN if one element is NaN.

    >>> from redalg.language.leaves import tensors
    >>> max(tensors("x[j]"), "j")
    max[j](x[j])
    """
    return _reduce("max", expr, axis)


def min(expr: Any, axis: Any) -> sympy.Expr:  # noqa: A001
    """Minimum over the axis; oo over no elements, NaN if one element is NaN.

    >>> from redalg.language.leaves import tensors
    >>> min(tensors("x[j]"), "j")
    min[j](x[j])
    """
    return _reduce("min", expr, axis)


def mean(expr: Any, axis: Any) -> sympy.Expr:
    """Σ over the axis, divided by its length.

    >>> from redalg.language.leaves import tensors
    >>> mean(tensors("x[j]"), "j")
    sum[j](x[j])/size[j]
    """
    axes, body = axis_names(axis, "ra.mean"), as_number(_body(expr, "ra.mean"))
    present = [a for a in axes if a in body.axes]
    return to_sympy(g.div(reduced("sum", present, body), g.size(present)) if present else body)


def any(expr: Any, axis: Any) -> Boolean:  # noqa: A001
    """Whether the condition holds somewhere along the axis; itself a condition.

    >>> from redalg.language.leaves import tensors
    >>> any(tensors("x[j]") > 0, "j")
    any[j](0 < x[j])
    """
    return _quantified("any", expr, axis)


def all(expr: Any, axis: Any) -> Boolean:  # noqa: A001
    """Whether the condition holds everywhere along the axis; itself a condition.

    >>> from redalg.language.leaves import tensors
    >>> all(tensors("x[j]") > 0, "j")
    all[j](0 < x[j])
    """
    return _quantified("all", expr, axis)


def _quantified(kind: str, expr: Any, axis: Any) -> Boolean:
    body = _body(expr, f"ra.{kind}")
    if not body.is_boolean:
        raise RedalgError(
            f"the number {operand(expr, kind)} as a condition",
            f"ra.{kind}",
            "a number is not a condition",
            "compare it: x > 0, or ra.ne(x, 0); declare 0/1 tensors with bool=True",
        )
    return to_sympy(reduced(kind, axis_names(axis, f"ra.{kind}"), body))


def argmax(expr: Any, axis: Any) -> sympy.Expr:
    """Position of the maximum, the lowest on ties; of the first NaN if there is one.

    >>> from redalg.language.leaves import tensors
    >>> argmax(tensors("x[j]"), "j")
    argmax[j](x[j])
    """
    return _reduce("argmax", expr, axis)


def argmin(expr: Any, axis: Any) -> sympy.Expr:
    """Position of the minimum, the lowest on ties; of the first NaN if there is one.

    >>> from redalg.language.leaves import tensors
    >>> argmin(tensors("x[j]"), "j")
    argmin[j](x[j])
    """
    return _reduce("argmin", expr, axis)


def logsumexp(expr: Any, axis: Any) -> sympy.Expr:
    """log Σ exp over the axis, as m + log Σ exp(e - m) with m the maximum; -oo where every element is -oo.

    >>> from redalg.language.leaves import tensors
    >>> logsumexp(tensors("x[j]"), "j")
    max[j](x[j]) + log(sum[j](exp(x[j] - max[j](x[j]))))
    """
    axes, body = axis_names(axis, "ra.logsumexp"), as_number(_body(expr, "ra.logsumexp"))
    present = [a for a in axes if a in body.axes]
    missing = [a for a in axes if a not in body.axes]
    result = to_sympy(body)
    if present:
        m = reduced("max", present, body)
        total = reduced("sum", present, settle(g.fn("exp", g.sub(body, m))))
        result = to_sympy(g.add(m, g.fn("log", total)))
    return result + to_sympy(g.fn("log", g.size(missing))) if missing else result


class TopK(NamedTuple):
    """The k largest elements, descending, and their positions, along a new last axis."""

    values: sympy.Expr
    indices: sympy.Expr


def topk(expr: Any, k: int, axis: Any, name: str | None = None) -> TopK:
    """The k largest elements and their positions along the new last axis `name` (default ``axis + "_top"``).

    Descending, ties by lowest index; fewer than k elements are padded with -oo and -1.

    Raises: RedalgError unless k is an integer ≥ 1, the expression has the axis and the name is free.

    >>> from redalg.language.leaves import tensors
    >>> topk(tensors("x[j]"), 2, "j").indices
    topk[j:2:j_top](x[j]).indices
    """
    axes, body = axis_names(axis, "ra.topk"), as_number(_body(expr, "ra.topk"))
    if isinstance(k, bool) or not hasattr(k, "__index__") or int(k) < 1:
        raise RedalgError(
            f"k = {k!r}", "ra.topk", "k is the number of elements kept, an integer ≥ 1", "use k=1 or more"
        )
    new = "_".join(axes) + "_top" if name is None else name
    if not isinstance(new, str):
        raise RedalgError(f"the axis {new!r}", "ra.topk", "an axis is named by a string", 'write name="top"')
    check_name(new, "axis", "ra.topk")
    if new in body.axes or new in axes:
        raise RedalgError(
            f"the new axis {new!r}", "ra.topk", "the expression already has it", 'choose another name="..."'
        )
    values, indices = (reduced(f"topk_{part}", axes, body, (int(k), new)) for part in ("values", "indices"))
    return TopK(to_sympy(values), to_sympy(indices))


def reduce(expr: Any, axis: Any, monoid: Monoid) -> Any:
    """Combine with a user's monoid along the axis, in its order; a tuple of expressions gives a tuple of parts.

    Raises: RedalgError if the number of expressions is not the monoid's width.

    >>> from redalg.language.leaves import tensors
    >>> a, b = tensors("a[j] b[j]")
    >>> affine = Monoid("affine", lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), (1, 0))
    >>> reduce((a, b), "j", monoid=affine)[1]
    reduce[j:affine](a[j], b[j]).1
    """
    axes = axis_names(axis, "ra.reduce")
    if not isinstance(monoid, Monoid):
        raise RedalgError(f"monoid={monoid!r}", "ra.reduce", "it is not an ra.Monoid", "build one with ra.Monoid(...)")
    several = isinstance(expr, (tuple, list))
    bodies = [as_number(_body(e, "ra.reduce")) for e in (expr if several else [expr])]
    if len(bodies) != monoid.width:
        raise RedalgError(
            f"{len(bodies)} expression(s) for the monoid {monoid.name!r}",
            "ra.reduce",
            f"its elements have {monoid.width} part(s)",
            f"pass {monoid.width} expression(s)",
        )
    parts = builtins.tuple(_parts(axes, bodies, monoid))
    return parts if several else parts[0]


def _parts(axes: tuple[str, ...], bodies: list[Node], monoid: Monoid) -> Iterator[Any]:
    for part in range(monoid.width):
        yield to_sympy(g.reduction("monoid", axes, *bodies, extra=(monoid, part)))
