"""Forward mode: the tangents of nodes, from those of some of them (the chain rule, node by node)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from redalg.algebra.work import INVARIANCE, Exhausted, allowance, left, spend
from redalg.gradients.refusals import check_differentiable, check_order
from redalg.gradients.slopes import FLAT, FLAT_REDUCTIONS, is_first, is_listed, of_factor, slopes
from redalg.gradients.sums import total
from redalg.graph import node as g
from redalg.graph.node import Node


def tangents(
    roots: Collection[Node], seeds: Mapping[Node, Node], where: str, assume: Collection[str], expanded: bool = False
) -> dict[Node, Node]:
    """Node -> its tangent, for the roots and what lies below them; `expanded` multiplies sums out.

    A reduction that the roots do not depend on (`is_invariant`) has tangent 0.
    Raises: RedalgError for what has no derivative.
    """
    found = dict(seeds)
    for n in g.walk(*roots):
        if n in found:
            continue
        if all(g.is_const(found[a], 0) for a in n.args) or not expanded and is_invariant(roots, n, where, assume):
            found[n] = g.ZERO
        else:
            found[n] = _tangent(n, found, where, assume, expanded)
    return found


def _tangent(n: Node, found: Mapping[Node, Node], where: str, assume: Collection[str], expanded: bool) -> Node:
    if n.op in FLAT or n.op == "reduce" and n.attr.kind in FLAT_REDUCTIONS:
        return g.ZERO
    check_differentiable(n, where, assume)
    if n.op == "where":
        return g.where(n.args[0], found[n.args[1]], found[n.args[2]])
    if n.op == "relu" and not expanded:  # which selects, as `where` does
        return g.where(g.compare("lt", g.ZERO, n.args[0]), found[n.args[0]], g.ZERO)
    if n.op == "cast":
        return found[n.args[0]]
    if n.op == "reduce":
        return _of_reduction(n, found[n.args[0]], expanded)
    moved = [(a, slope) for a, slope in slopes(n) if not g.is_const(found[a], 0)]
    for a, _ in moved:
        check_order(n, a, where)
    return g.add(*(_times(found[a], slope, expanded) for a, slope in moved))


def _times(tangent: Node, slope: Node, expanded: bool) -> Node:
    if g.is_const(tangent, 0):
        return g.ZERO
    spend(1)
    if expanded and tangent.op == "add":
        return g.add(*(_times(t, slope, expanded) for t in tangent.args))
    if expanded and slope.op == "add":
        return g.add(*(_times(tangent, s, expanded) for s in slope.args))
    return g.mul(tangent, slope)


def _of_reduction(n: Node, tangent: Node, expanded: bool) -> Node:
    kind, axes = n.attr.kind, n.attr.axes
    if kind == "sum":
        return total(tangent, axes, expanded)
    if kind == "prod":
        return total(g.mul(tangent, of_factor(n)), axes, expanded)
    if tangent.axes.isdisjoint(axes):  # all elements move alike
        return tangent
    taken = is_listed(n) if kind == "topk_values" else is_first(n)
    return total(g.where(taken, tangent, g.ZERO), axes)


def is_invariant(roots: Collection[Node], n: Node, where: str, assume: Collection[str]) -> bool:
    """Whether no root depends on the value of a reduction, to first order: an algebraic identity.

    So it is for a maximum that only shifts exponents, and for the mean in a variance: the tangents of the roots along
    a change of the node alone are multiplied out, and cancel. What takes too many products, or more than an allowance
    around it has left, is not shown.
    """
    if n.op != "reduce" or n in roots or not left():
        return False
    change, held = g.state("change", sorted(n.axes)), g.state("held", sorted(n.axes))
    try:
        with allowance(INVARIANCE, "products of tangents"):
            written = _multiplied_out([g.substitute(r, {n: held}, raw=True) for r in roots])
            found = tangents(written, {held: change}, where, assume, expanded=True)
    except Exhausted:
        return False
    # A sum that the tangents are made of may be this reduction again: Σ (x - u) is Σ x less the elements' number of u.
    return all(g.is_const(g.substitute(found[r], {n: held}), 0) for r in written)


def _multiplied_out(roots: Collection[Node]) -> list[Node]:
    """The roots with sums as tangents write them: products multiplied out, factors that lack the axes before the sum.

    So the Σ 30·p·c of a soft-capped entropy is the 30·Σ p·c that its tangent by the maximum is made of.
    """
    done: dict[Node, Node] = {}
    for n in g.walk(*roots):
        args = tuple(done[a] for a in n.args)
        if n.op == "mul":
            product = args[0]
            for factor in args[1:]:
                product = _times(product, factor, expanded=True)
            done[n] = product
        elif n.op == "reduce" and n.attr.kind == "sum":
            done[n] = total(args[0], n.attr.axes, distributed=True)
        else:
            done[n] = n if args == n.args else g.rebuild(n, args)
    return [done[r] for r in roots]


__all__ = ["is_invariant", "tangents"]
