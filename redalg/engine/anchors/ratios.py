"""Products of ratios Π x/u: what they are centred on (theory, section 3.6).

Π x of 400 elements near 1000 leaves the range of floating point, Π x/mean x does not. Such a product is held at the
stage value that divides, P = Π x/A with A = u: it leaves the range where the definition's own running values do. It
moves by (A/A')^n, n the number of its factors. Where nothing can be divided by that value (the mean of a piece is 0)
A is the largest element of the piece, so that P stays in range until the value is one again.
"""

from __future__ import annotations

from redalg.engine.anchors.choices import TargetChoice
from redalg.graph import node as g
from redalg.graph.masked import finite
from redalg.graph.node import Node
from redalg.graph.plan import COUNT, ScaleAnchor

WHY = "a product of quotients: it is held at what divides, so that it is as large as its value"


def has_anchor(varying: Node, fixed: Node) -> bool:
    """Whether Π x·h has one, x varying and h fixed: not complex numbers, nor where it would need axes of its own."""
    leaves = g.leaves(varying) + g.leaves(fixed)
    named = any("~" in a or "'" in a for a in varying.axes | fixed.axes)
    return not named and fixed.axes <= varying.axes and not any("complex" in leaf.attr.domain for leaf in leaves)


def centre(varying: Node, fixed: Node, largest: Node) -> TargetChoice:
    """The anchor of Π x·h, x varying and h fixed; `largest`: the largest |x|."""
    divisor = _inverse(fixed)
    size = g.where(_usable(largest), largest, g.ONE)
    return TargetChoice(varying, _where_usable(divisor, divisor, size, g.ONE), WHY, ScaleAnchor)


def outside(fixed: Node, count: Node, anchor: Node) -> Node:
    """What is left of h outside the product, per factor: 1 where the anchor is 1/h, else h times the anchor, which is
    1 where 1/h is undefined (there the checker has h as it is written).

    A mask may leave no factor; then nothing is divided by.
    """
    left = _where_usable(_inverse(fixed), g.ONE, g.mul(anchor, fixed), fixed)
    return left if count is COUNT else g.where(g.compare("eq", count, g.ZERO), g.ONE, left)


def _inverse(node: Node) -> Node:
    if node.op == "mul":
        return g.mul(*map(_inverse, node.args))
    return g.fn("abs", _inverse(node.args[0])) if node.op == "abs" else g.power(node, -1)


def _where_usable(divisor: Node, then: Node, other: Node, undefined: Node) -> Node:
    """`then` where the divisor is a number other than 0, `undefined` where one of its own divisors is 0."""
    inner = [n.args[0] for n in g.walk(divisor) if g.is_inverse(n)]
    defined = [g.compare("ne", d, g.ZERO) for d in dict.fromkeys(inner) if d is not COUNT]
    return g.where(g.logical("and", *defined), g.where(_usable(divisor), then, other), undefined)


def _usable(divisor: Node) -> Node:
    return g.logical("and", finite(divisor), g.compare("ne", divisor, g.ZERO))
