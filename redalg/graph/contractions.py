"""Matrix products, as a graph writes them."""

from __future__ import annotations

from collections.abc import Iterator

from redalg.graph.node import Node


def contracts(node: Node) -> bool:
    """A sum of products in which each of two factors is used again along an axis that the other lacks.

    That is what matrix units compute. A dot product and a weighted mean are not: every number of one factor is read
    once, and sums of them are as wide as the sum in a norm.

    >>> import redalg as ra
    >>> q, k, w = ra.tensors("q[i,d] k[j,d] w[d]")
    >>> [contracts(ra.Spec(y=ra.sum(q * other, "d")).outputs["y"]) for other in (k, w, q)]
    [True, False, False]
    """
    if node.op != "reduce" or node.attr.kind not in ("sum", "mean"):
        return False
    along = set(node.attr.axes)
    for product in above_reductions(node.args[0]):
        if product.op == "mul":
            factors = [set(f.axes) for f in product.args if along & set(f.axes)]
            if any(a - b - along and b - a - along for k, a in enumerate(factors) for b in factors[:k]):
                return True
    return False


def above_reductions(root: Node) -> Iterator[Node]:
    """The nodes of an expression down to the reductions in it, which are not entered."""
    waiting, seen = [root], {root}
    while waiting:
        node = waiting.pop()
        yield node
        if node.op != "reduce":
            fresh = [a for a in node.args if a not in seen]
            seen.update(fresh)
            waiting += fresh


__all__ = ["above_reductions", "contracts"]
