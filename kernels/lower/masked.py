"""The one deviation from IEEE arithmetic in kernels: exp(u - max u) is 0 where u is -inf (`redalg.graph.masked`)."""

from __future__ import annotations

from collections.abc import Mapping

from redalg.graph.masked import finite, masked_exponent, split_exponent
from redalg.graph.node import NEG_INF, ZERO, Node, add, compare, is_const, logical, neg, substitute, walk


def guard(node: Node, bounds: Mapping[Node, tuple[Node, ...]] | None = None) -> Node:
    """The node with every exp that can be masked guarded.

    `bounds` maps a leaf (a maximum) to the element nodes it is the maximum of: exp(u - m) then needs no test per
    element, because it is enough that m is finite where it is -inf: exp(-inf - 0) is 0 as it should be.
    """
    mapping: dict[Node, Node] = {}
    for n in walk(node):
        if n.op != "exp":
            continue
        arg = substitute(n.args[0], mapping, raw=True) if mapping else n.args[0]
        masked = masked_exponent(n.args[0])
        if masked is None:
            continue
        found = bounding(n.args[0], bounds or {})
        if found is not None:
            anchor, safe = found
            mapping[n] = Node("exp", (substitute(arg, {anchor: safe}, raw=True),))
        else:
            mapping[n] = Node("where", (masked, ZERO, Node("exp", (arg,))))
    return _replaced(node, mapping) if mapping else node


def _replaced(node: Node, mapping: dict[Node, Node]) -> Node:
    return substitute(node, mapping, raw=True)


def bounding(arg: Node, bounds: Mapping[Node, tuple[Node, ...]]) -> tuple[Node, Node] | None:
    """The maximum m, if the argument is u - m, or a positive multiple of it, and m is the maximum of this u; and what
    takes its place: 0 where it is -inf, but not because of an infinite scale of u."""
    split = split_exponent(arg)
    if split is None:
        return None
    for leaf, bodies in bounds.items():
        own = is_const(split.scale) and split.c is neg(leaf) and split.u in bodies
        if own or arg.op == "add" and neg(leaf) in arg.args and _without(arg, neg(leaf)) in bodies:
            masked = logical("and", compare("eq", leaf, NEG_INF), finite(split.scale))
            return leaf, Node("where", (masked, ZERO, leaf))
    return None


def _without(total: Node, term: Node) -> Node:
    return add(*(a for a in total.args if a is not term))
