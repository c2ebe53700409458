"""Products of ratios Π x/u: what they are centred on (theory, section 3.6).

Π x of 400 elements near 1000 leaves the range of floating point, Π x/mean x does not. Such a product is held at the
stage value that divides, P = Π x/A with A = u: it leaves the range where the definition's own running values do. It
moves by (A/A')^n, n the number of its factors.
"""

from __future__ import annotations

from redalg import graph as g
from redalg.choices import Choice
from redalg.graph import Node
from redalg.plan import COUNT
from redalg.void import finite

WHY = "a product of quotients: it is held at what divides, so that it is as large as its value"


def centre(varying: Node, fixed: Node) -> Choice | None:
    """The anchor of Π x·h, x varying and h fixed; None for complex numbers and where it would need axes of its own."""
    divisor = _inverse(fixed)
    leaves = g.leaves(varying) + g.leaves(fixed)
    named = any("~" in a or "'" in a for a in varying.axes | fixed.axes)
    if named or not fixed.axes <= varying.axes or any("complex" in leaf.attr.domain for leaf in leaves):
        return None
    return Choice(varying, "mul", "extremum", _where_usable(divisor, divisor, g.ONE), None, WHY)


def outside(fixed: Node, count: Node) -> Node:
    """What is left of h outside the product, per factor: 1 where the anchor is 1/h, h itself where it is 1.

    A mask may leave no factor; then nothing is divided by.
    """
    left = _where_usable(_inverse(fixed), g.ONE, fixed)
    return left if count is COUNT else g.where(g.compare("eq", count, g.ZERO), g.ONE, left)


def _inverse(node: Node) -> Node:
    if node.op == "mul":
        return g.mul(*map(_inverse, node.args))
    return g.fn("abs", _inverse(node.args[0])) if node.op == "abs" else g.power(node, -1)


def _where_usable(divisor: Node, then: Node, other: Node) -> Node:
    """`then` where the divisor is a number other than 0, and none of its own divisors is 0."""
    inner = [n.args[0] for n in g.walk(divisor) if n.op == "pow" and n.args[1].op == "const" and n.args[1].attr < 0]
    defined = [g.compare("ne", d, g.ZERO) for d in dict.fromkeys(inner) if d is not COUNT]
    usable = g.logical("and", finite(divisor), g.compare("ne", divisor, g.ZERO))
    return g.where(g.logical("and", *defined), g.where(usable, then, other), other)
