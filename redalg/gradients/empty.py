"""Gradients in rows without a valid element: 0 where the spec's outputs are filled by a number."""

from __future__ import annotations

from redalg.graph import node as g
from redalg.graph.masked import masked_row
from redalg.graph.node import Node


def vanishes(gradient: Node) -> bool:
    """Whether a gradient is 0, by the conditions that it states, in the rows that ``empty=`` would fill.

    What it reads may be saved, so that the elements that are left to it are others than those of the outputs: a row
    without any of them is none without a valid element.

    >>> x, s = g.tensor("x", "j"), g.tensor("s", "j")
    >>> m = g.reduction("max", ("j",), x)
    >>> vanishes(g.where(g.compare("eq", m, g.NEG_INF), g.ZERO, s)), vanishes(g.mul(m, s))
    (True, False)
    """
    row = masked_row(gradient)
    held: dict[Node, Node] = {}
    for c in row.args if row.op == "and" else (row,):
        held |= {g.negate(c): g.FALSE, c: g.TRUE}
    return g.is_const(g.substitute(gradient, held), 0)


__all__ = ["vanishes"]
