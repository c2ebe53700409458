"""What a forward pass hands to a backward pass: outputs and stage values by name, finalised, never parts of a state.

A stage value is a reduction that lacks the axes which the outermost reductions of the spec run over. Sums about moving
anchors depend on the path that was taken; what they are finalised to does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass

from redalg.algebra.signs import NEG, POS, Signs
from redalg.engine.normalise import axes_of
from redalg.gradients.sums import EXTREMA
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.language.spec import Spec
from redalg.text.nodes import bindings


@dataclass(frozen=True)
class Saved:
    """A value of the forward pass: its name there, the node, and the tensor that a backward pass reads it as."""

    name: str
    node: Node
    leaf: Node

    @property
    def unsigned(self) -> Node:
        """The leaf by its kind alone: a certificate proves no sign, and needs none."""
        words = self.leaf.attr.domain
        return self.leaf if "integer" in words else g.tensor(self.leaf.attr.name, self.leaf.attr.axes, words & {"bool"})


class Stages:
    """The values of a spec that can be saved, each under one name."""

    def __init__(self, spec: Spec, taken: Iterable[str] = ()) -> None:
        self.spec, beside = spec, set(taken)
        known, self.known = {a for d in spec.tensors for a in d.axes}, frozenset(spec.tensors)
        self.reduced = list(dict.fromkeys(a for axes in axes_of(spec.outputs.values(), known) for a in axes))
        self.means = {_bare(n) for n in g.walk(*spec.outputs.values()) if self._is_mean(n)}
        self.tensors = {d.name for d in spec.tensors} | beside
        self.taken = self.tensors | set(spec.outputs)
        self.names = {node: name for name, node in bindings(spec)}
        self.saved: dict[Node, Saved] = {}

    def outputs(self) -> dict[Node, Saved]:
        """The outputs that take a reduction to compute."""
        found = {}
        for name, node in self.spec.outputs.items():
            if not node.is_boolean and any(n.op == "reduce" for n in g.walk(node)):
                leaf = self.fresh(name) if name in self.tensors else name
                made = Saved(name, node, g.tensor(leaf, self.spec.output_axes[name], _domain(node)))  # as it is ordered
                found[node] = self.saved.setdefault(node, made)
        return found

    def averaged(self, root: Node, given: Set[Node]) -> Node:
        """The node with products that hold every factor of a mean of the spec as products of it."""
        stages = {n for n in g.walk(root) if self._is_stage(n) and given.isdisjoint(g.leaves(n))}
        return regrouped(root, {n: n for n in self.means}, stages)

    def within(self, root: Node, given: Set[Node]) -> dict[Node, Saved]:
        """The stage values in a node that reads none of the `given` leaves: outermost first, nothing inside one."""
        found: dict[Node, Saved] = {}
        beside = {n for n in g.walk(root) if not given.isdisjoint(g.leaves(n))}
        stack, seen = [root], {root}
        while stack:
            n = stack.pop()
            if n not in beside and (self._is_mean(n) and _bare(n) in self.means or self._is_stage(n)):
                found[n] = self._named(n)
                continue
            fresh = [a for a in n.args if a not in seen]
            seen.update(fresh)
            stack.extend(fresh)
        return found

    def size(self, axis: str) -> Saved:
        """The length of an axis that no tensor of a backward pass has."""
        return self._named(Node("size", (), axis), f"size_{axis}", ("integer", "nonnegative"))

    def _is_stage(self, n: Node) -> bool:
        """Of tensors as the spec reads them: there is no A[k,i] in a forward pass that reads A[i,j] and A[j,k]."""
        if n.op != "reduce" or not n.axes.isdisjoint(self.reduced):
            return False
        read = [leaf.attr for leaf in g.leaves(n)]
        return bool(read) and all(d in self.known for d in read)

    def _is_mean(self, n: Node) -> bool:
        """A stage that is a sum, divided by how many elements it has."""
        sums = [a for a in n.args if self._is_stage(a) and a.attr.kind == "sum"] if n.op == "mul" else []
        rest = [a for a in n.args if a not in sums and a.op != "const"]
        return len(sums) == 1 and bool(rest) and all(a.op == "pow" and a.args[0].op == "size" for a in rest)

    def _named(self, n: Node, stem: str = "", domain: Iterable[str] = ()) -> Saved:
        if n not in self.saved:
            name = None if stem or n.op == "mul" else self.names.get(n)
            if name is None or name in self.taken:
                name = self.fresh(stem or ("mean1" if n.op == "mul" else f"{n.attr.kind}1"))
            self.taken.add(name)
            leaf = g.tensor(name, self._axes(n), domain or _domain(n))
            self.saved[n] = Saved(name, n, leaf)
        return self.saved[n]

    def fresh(self, stem: str) -> str:
        """The first of stem, stem_2, stem_3 … that nothing is called."""
        names: Iterator[str] = (stem if k == 1 else f"{stem}_{k}" for k in range(1, len(self.taken) + 2))
        found = next(name for name in names if name not in self.taken)
        self.taken.add(found)
        return found

    def _axes(self, node: Node) -> tuple[str, ...]:
        order = dict.fromkeys((*self.spec.axes, *sorted(node.axes)))
        return tuple(a for a in order if a in node.axes)


def _domain(n: Node) -> tuple[str, ...]:
    """What is known of a value: its kind, or its sign, also where reductions have no element and numbers underflow."""
    if n.is_boolean:
        return ("bool",)
    if n.op == "reduce" and n.attr.kind in g.POSITIONS:
        return ("integer",)
    known = [(m, _vague(m)) for m in g.walk(n)]
    vague = {m: g.state(f"any{k}", sorted(m.axes), d) for k, (m, d) in enumerate(known) if d is not None}
    sign = Signs((), limits=True).of(g.substitute(n, vague, raw=True))
    return ("positive",) if sign == POS else () if sign & NEG else ("nonnegative",)


def _vague(n: Node) -> tuple[str, ...] | None:
    """The domain of a value that need not have the sign of what it is made of; None for every other."""
    if n.op == "reduce" and n.attr.kind in EXTREMA:
        return ()
    return ("nonnegative",) if n.op == "size" or n.op == "tensor" and "positive" in n.attr.domain else None


def _bare(product: Node) -> Node:
    """A product without its number."""
    return g.mul(*(a for a in product.args if a.op != "const"))


def regrouped(root: Node, products: Mapping[Node, Node], closed: Collection[Node] = ()) -> Node:
    """The node, in which products that hold every factor of one of these read what stands for it; but in `closed`."""
    mapping: dict[Node, Node] = {}
    for n in g.walk(root, done=closed):
        for product, leaf in products.items() if n.op == "mul" and n not in products else ():
            if set(product.args) <= set(n.args):
                rest = tuple(a for a in n.args if a not in product.args)
                mapping[n] = Node("mul", (*rest, leaf)) if rest else leaf
    return g.substitute(root, {n: n for n in closed} | mapping, raw=True) if mapping else root


def reused(root: Node, outputs: Mapping[Node, Saved]) -> Node:
    """Products that hold every factor of an output read that output."""
    return regrouped(root, {n: s.leaf for n, s in outputs.items() if n.op == "mul"})


__all__ = ["Saved", "Stages", "reused"]
