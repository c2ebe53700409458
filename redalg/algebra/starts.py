"""Which elements the anchor of a mean may start at: those that have a weight in it.

An element of weight 0 may be anything, a missing value written as 1e20, too. What follows would be seen from there: the
step to the mean of the others is rounded by 1e20, and so is every sum held at the anchor.
"""

from __future__ import annotations

from redalg.algebra.signs import ZERO as SIGN_ZERO
from redalg.algebra.signs import Signs
from redalg.graph.node import FALSE, NEG_INF, ZERO, Node, is_const, logical, walk
from redalg.graph.plan import MeanAnchor, PassPlan, Slot


def counts(p: PassPlan, anchor: MeanAnchor) -> Node:
    """Whether an element has a weight in the mean, as far as its own tensors say so."""
    own = (c for c in _conditions(p, anchor) if not any(n.op in ("reduce", "state") for n in walk(c)))
    return logical("and", *own)


def first_counts(p: PassPlan, anchor: MeanAnchor) -> Node:
    """The same of the first of several elements; False where that depends on the others, as on their extremum."""
    found = weight(p, anchor)
    lift = ZERO if found is None else found.lift[0]
    exponentials = (n for n in walk(lift) if n.op == "exp")  # 0 where they lie far below the largest
    depends = any(n.op == "state" for n in walk(*_conditions(p, anchor), *exponentials))
    return FALSE if depends else counts(p, anchor)


def weight(p: PassPlan, anchor: MeanAnchor) -> Slot | None:
    """The slot that adds up the weights of a mean; None of a plain one."""
    below = [n.args[0] for n in walk(anchor.shift) if n.op == "pow" and is_const(n.args[1], -1)]
    return next((s for s in p.slots if s.leaf() in below), None)


def _conditions(p: PassPlan, anchor: MeanAnchor) -> list[Node]:
    found = weight(p, anchor)
    return [] if found is None else asked(found.lift[0])


def asked(weight: Node) -> list[Node]:
    """What has to hold where a weight is not 0."""
    if weight.is_boolean:
        return [weight]
    if weight.op == "mul":
        return [c for factor in weight.args for c in asked(factor)]
    if weight.op == "where" and is_const(weight.args[2], 0):
        return [weight.args[0], *asked(weight.args[1])]
    if weight.op == "exp":
        return [n.args[0] for n in walk(weight) if n.op == "where" and n.args[2] is NEG_INF]
    return [Node("ne", (weight, ZERO))] if Signs(()).of(weight) & SIGN_ZERO else []


__all__ = ["asked", "counts", "first_counts", "weight"]
