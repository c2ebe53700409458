"""Which parts of a merge are corrections, for texts and displays that set them apart.

A *correction* is what a slot is multiplied by, or shifted by, when its anchor moves: here every largest part of a merge
that consists of old and new anchors alone (of parameters too, but of no slot and no element).
"""

from __future__ import annotations

from collections.abc import Mapping

from redalg.algebra import state as symbolic
from redalg.graph.node import Node, leaves, walk
from redalg.graph.plan import PassPlan


def corrected(p: PassPlan, values: Mapping[str, Node]) -> dict[str, Node]:
    """The merge of a pass with its corrections marked; what an anchor itself becomes corrects nothing."""
    anchors = {symbolic.alias(a, p) or a.name for a in p.anchors}
    marking = _Marking(anchors)
    return {name: node if name in anchors else marking(node) for name, node in values.items()}


class _Marking:
    def __init__(self, anchors: set[str]) -> None:
        self.old = {f"{name}_{side}" for name in anchors for side in "ab"}
        self.known = anchors | self.old
        self.done: dict[Node, Node] = {}

    def __call__(self, n: Node) -> Node:
        if n not in self.done:
            self.done[n] = self._marked(n)
        return self.done[n]

    def _marked(self, n: Node) -> Node:
        if self._of_anchors(n):
            return Node("marked", (n,)) if n.args and self._moves(n) else n
        if n.op == "add":
            own = [a for a in n.args if self._of_anchors(a)]
            shift = Node("add", tuple(own))
            if len(own) > 1 and self._moves(shift):
                return Node("add", (*(self(a) for a in n.args if a not in own), Node("marked", (shift,))))
        return Node(n.op, tuple(map(self, n.args)), n.attr) if n.args else n

    def _moves(self, n: Node) -> bool:
        return any(leaf.attr.name in self.old for leaf in leaves(n, "state"))

    def _of_anchors(self, n: Node) -> bool:
        """Whether it is made of anchors and parameters only, at least one of the former."""
        read = {leaf.attr.name for leaf in leaves(n, "state")}
        return bool(read) and read <= self.known and not any(x.op == "call" for x in walk(n))
