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


def compares(node: Node) -> bool:
    """A sum whose elements are a function of two tensors, each of which is read again along an axis that the other
    lacks: a product of matrices, or distances of all rows of one from all of the other.

    >>> import redalg as ra
    >>> x, c, w = ra.tensors("x[i,d] c[j,d] w[d]")
    >>> [compares(ra.Spec(y=ra.sum(abs(x - other), "d")).outputs["y"]) for other in (c, w)]
    [True, False]
    """
    if node.op != "reduce" or node.attr.kind != "sum":
        return False
    read = [n for n in above_reductions(node.args[0]) if n.op in ("tensor", "reduce")]
    along = {*node.attr.axes}
    return len(read) == 2 and all(
        n.op == "tensor" and a.axes - b.axes - along for n, a, b in zip(read, read, read[::-1], strict=True)
    )


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


__all__ = ["above_reductions", "compares", "contracts"]
