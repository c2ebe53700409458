"""The one deviation from IEEE arithmetic in kernels: exp(u - max u) is 0 where u is -inf (see `redalg.void`)."""

from __future__ import annotations

from collections.abc import Mapping

from redalg.graph import NEG_INF, ZERO, Node, compare, is_const, substitute, walk
from redalg.streaming.lowering import void_exponent
from redalg.void import split_exponent, void_row  # noqa: F401


def guard(node: Node, bounds: Mapping[Node, tuple[Node, ...]] | None = None) -> Node:
    """The node with every exp that can be void guarded.

    `bounds` maps a leaf (a maximum) to the element nodes it is the maximum of: exp(u - m) then needs no test per
    element, because it is enough that m is finite where it is -inf: exp(-inf - 0) is 0 as it should be.
    """
    mapping: dict[Node, Node] = {}
    for n in walk(node):
        if n.op != "exp":
            continue
        arg = substitute(n.args[0], mapping, raw=True) if mapping else n.args[0]
        void = void_exponent(n.args[0])
        if void is None:
            continue
        anchor = bounding(n.args[0], bounds or {})
        if anchor is not None:
            safe = Node("where", (compare("eq", anchor, NEG_INF), ZERO, anchor))
            mapping[n] = Node("exp", (substitute(arg, {anchor: safe}, raw=True),))
        else:
            mapping[n] = Node("where", (void, ZERO, Node("exp", (arg,))))
    return _replaced(node, mapping) if mapping else node


def _replaced(node: Node, mapping: dict[Node, Node]) -> Node:
    return substitute(node, mapping, raw=True)


def bounding(arg: Node, bounds: Mapping[Node, tuple[Node, ...]]) -> Node | None:
    """The maximum m, if the argument is u - m, or a positive multiple of it, and m is the maximum of this u."""
    split = split_exponent(arg)
    if split is None or not is_const(split.scale):
        return None
    for leaf, bodies in bounds.items():
        if split.c is _negative(leaf) and split.u in bodies:
            return leaf
    return None


def _negative(node: Node) -> Node:
    from redalg.graph import neg

    return neg(node)
