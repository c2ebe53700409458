"""What it costs to save a value of the forward pass, or not to: bytes of both passes, and matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod

from redalg.errors import RedalgError
from redalg.form import Form
from redalg.gradients.saved import Saved
from redalg.graph import node as g
from redalg.graph.contractions import contracts
from redalg.graph.masked import new_axes
from redalg.graph.node import Node
from redalg.kernels.traffic import traffic
from redalg.language.spec import Spec

TYPICAL = 4096  # of an axis that no length is given for
DTYPE, ITEM, WHOLE = "float32", 4, 8  # what is saved is at least that wide; bytes of a float, of an integer
FEW = 4  # values that ways to leave some out are made of: sixteen ways


class Weighed:
    """Bytes of the specs of a derivative, with axes as long as `sizes` says, or else `TYPICAL`."""

    def __init__(self, spec: Spec, sizes: Mapping[str, int], where: str) -> None:
        axes = {a for d in spec.tensors for a in d.axes}
        for axis, length in sizes.items():
            if axis not in axes or length < 1:
                why = f"the axes are {', '.join(sorted(axes)) or 'none'}, and have elements"
                raise RedalgError(f"sizes={{{axis!r}: {length}}}", where, why, "lengths of these, at least 1")
        self.spec, self.sizes = spec, {**dict(new_axes(*spec.outputs.values())), **sizes}  # lists have their lengths

    def bytes(self, saved: Saved) -> int:
        """Of a value in memory."""
        return self._bytes(saved.leaf)

    def moved(self, spec: Spec, form: Form) -> int:
        """By a spec as its form runs it."""
        axes = {*spec.axes, *(a for own in spec.output_axes.values() for a in own)}
        return traffic(spec, {a: self._length(a) for a in axes}, DTYPE, form).fused.bytes

    def least(self, groups: Iterable[Sequence[Node]], saved: Iterable[Saved]) -> int:
        """What gradients that stream alike, a group each, cannot do with less than: everything is read once."""
        moved = 0
        for nodes in groups:
            moved += sum(self._bytes(n) for n in {*nodes, *(leaf for n in nodes for leaf in g.leaves(n))})
        return moved + sum(self.bytes(s) for s in saved if s.name not in self.spec.outputs)

    def products(self, nodes: Mapping[str, Node]) -> int:
        """How many matrix products the gradients take: those are bound by arithmetic, and not repeated for bytes."""
        return sum(contracts(n) for n in g.walk(*nodes.values()))

    def _bytes(self, node: Node) -> int:
        domain = node.attr.domain if node.op == "tensor" else frozenset()
        item = 1 if "bool" in domain else WHOLE if "integer" in domain else ITEM
        return item * prod(map(self._length, node.axes))

    def _length(self, axis: str) -> int:
        return self.sizes.get(axis, TYPICAL)


def left_out(saved: Sequence[Saved]) -> Iterator[frozenset[str]]:
    """Sets of names of a few values, the smallest first: what a pass may do without."""
    names = [s.name for s in saved[:FEW]]
    for count in range(1, len(names) + 1):
        yield from map(frozenset, combinations(names, count))


__all__ = ["Weighed", "left_out"]
