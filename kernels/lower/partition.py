"""Specs in parts: reductions inside of other reductions, each computed once, by a kernel of its own.

A kernel computes an element of its stream where it needs it. Where that element is a product of matrices itself
(sum[r](sum[k](x[m,k]*a[r,k])*b[n,r]), the logits of a softmax, a projection before attention), it would be computed
again for every other axis that it is read along. A `Partition` has the specs of what is written to memory instead, and
the spec that reads it: ordinary ones, so that what the spec means is what its parts mean together.

Where to cut is a choice: `redalg.kernels.lower.cuts` says which there are. Whoever plans kernels compares what they
take.

What is written is as much of an expression around a reduction as has no other axes and no other reductions, so that
maps (a bias, an activation, a gate) are part of its kernel. Where several different ones are read, it is the reduction
alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from redalg import _hooks
from redalg.graph.contractions import contracts
from redalg.graph.node import (
    BOOLEAN,
    Node,
    const,
    factors,
    fresh,
    outermost_reductions,
    rebuild,
    substitute_all,
    tensor,
    walk,
)
from redalg.kernels.lower.cuts import Cut, cuts
from redalg.language.spec import Spec

if TYPE_CHECKING:
    from redalg.form import Form

Axes = tuple[str, ...]


@dataclass(frozen=True)
class Partition:
    """A spec in parts: `before`, in any order, then `last`, which reads what they write.

    ``between``: the axes of what is written to be read, by name, in the order in which it lies in memory; ``factors``:
    which of it is read as a factor of products of matrices alone, and of which tensors.
    """

    before: tuple[Spec, ...]
    last: Spec
    between: Mapping[str, Axes]
    factors: Mapping[str, frozenset[str]]


def partitions(
    spec: Spec, lengths: Mapping[str, int], taken: Collection[str] = (), further: bool = True
) -> Iterator[Partition]:
    """Every way to part a spec, by products of the least height first. `lengths`: of all axes, for what asks for the
    length of one that a part has no more; `taken`: names that nothing that is written has;
    `further`: as `redalg.kernels.lower.cuts.cuts` says.

    >>> import redalg as ra
    >>> spec = ra.parse("h = sum[k](x[m,k]*a[k,r]); return y = max[n](relu(sum[r](h*b[r,n]) + c[n]))")
    >>> for found in partitions(spec, dict(m=8, k=8, r=8, n=8)):
    ...     print(found.between, str(found.last).split("; ")[-2])
    {'part1': ('m', 'r')} y = max[n](relu(sum1 + c[n]))
    {'part1': ('m', 'n')} y = max[n](part1[m,n])
    {'part1': ('m', 'n')} y = max[n](relu(c[n] + part1[m,n]))
    """
    if spec.empty:
        return
    seen = set()
    for cut in cuts(spec.outputs, further):
        if cut.nodes and (cut.nodes, cut.alone) not in seen:
            seen.add((cut.nodes, cut.alone))
            if (found := _Parts(spec, cut, lengths, taken).found()) is not None:
                yield found


@lru_cache(maxsize=512)
def form_over(spec: Spec, along: Axes) -> Form:
    """The form of a part, over these axes; without any where it reduces nothing. Raises: RedalgError."""
    return _hooks.derive(spec, axis=along[0] if len(along) == 1 else along or None, max_passes=8)


class _Incomplete(Exception):
    """A part reads the number of an element along an axis that none of its tensors has."""


class _Parts:
    """A spec that is cut at some nodes."""

    def __init__(self, spec: Spec, cut: Cut, lengths: Mapping[str, int], taken: Collection[str]) -> None:
        self.spec, self.outputs, self.nodes, self.lengths = spec, cut.outputs, cut.nodes, lengths
        self.together, self.taken = cut.together, taken
        # That of results first: of the others it follows from the order in which nodes were made.
        self.order = dict.fromkeys([*(a for axes in spec.output_axes.values() for a in axes), *spec.axes])
        self.alone = cut.alone  # nodes that are written as they are
        self.carriers = set[Node]()  # what has such nodes in it
        for n in walk(*cut.outputs.values()):
            if n in cut.nodes or not self.carriers.isdisjoint(n.args):
                self.carriers.add(n)

    def found(self) -> Partition | None:
        """The parts, or None where that is the spec itself, or a part cannot be told alone."""
        self._divide()
        while (several := self._several()) - self.alone:
            self.alone |= several
            self._divide()
        own = {n: x for n, x in self.outputs.items() if self._is_whole(x)}
        rest = self._reading({n: x for n, x in self.outputs.items() if n not in own})
        read = {leaf for leaf in walk(*rest.values()) if leaf.op == "tensor"}
        written = {node: leaf for node, leaf in self.written.items() if leaf in read}
        between = {leaf.attr.name: _lying(leaf, node, rest.values()) for node, leaf in written.items()}
        laid = {leaf: tensor(leaf.attr.name, between[leaf.attr.name]) for leaf in written.values()}
        new = substitute_all([*rest.values()], laid)
        rest = {n: new[x] for n, x in rest.items()}
        try:
            before = [self._spec(made, between) for made in self._makers(written, own)]
            if len(before) + bool(rest) < 2:
                return None
            last = self._spec(rest, {}) if rest else before.pop()
        except _Incomplete:
            return None
        return Partition(tuple(before), last, between, _factors(rest.values(), between))

    # --- expressions -------------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        """What is written, as leaves, and sums and products of which a part is."""
        taken = {t.name for t in self.spec.tensors} | {*self.spec.outputs} | {*self.spec.axes} | {*self.taken}
        self.written: dict[Node, Node] = {}
        self.divided: dict[Node, list[Node]] = {}
        stack, seen = [*self.outputs.values()][::-1], set[Node]()
        while stack:
            node = stack.pop()
            if node in seen or node not in self.carriers:
                continue
            seen.add(node)
            if self._is_whole(node):
                order = [a for a in self.order if a in node.axes]
                self.written[node] = tensor(fresh(f"part{len(self.written) + 1}", taken), order)
                continue
            inside = self._grouped(node) if node.op in ("add", "mul") else list(node.args)
            if inside != list(node.args):
                self.divided[node] = inside
            stack += reversed(inside)

    def _grouped(self, node: Node) -> list[Node]:
        """The arguments of a sum or a product, some of them together where that is written to memory."""
        left, found = list(node.args), list[Node]()
        for first in node.args:
            if first in left and first in self.carriers:
                group = self._group(first, left)
                whole = rebuild(node, tuple(group)) if len(group) > 1 else first
                self.carriers.add(whole)
                if len(group) > 1 and self._is_whole(whole):
                    left = [a for a in left if a not in group]
                    found.append(whole)
        return [*left, *found]

    def _group(self, first: Node, among: Iterable[Node]) -> list[Node]:
        """What is taken along with an argument: others with no more axes, of the same reductions or of none."""
        if not self._streams_alike(first):
            return [first]
        along = _along(first)
        mine = [a for a in among if a.axes <= first.axes and a.op not in BOOLEAN]
        return [a for a in mine if _along(a) in (along, set())]

    def _streams_alike(self, node: Node) -> bool:
        """Whether its outermost reductions run along the same axes, and one of them is such a node."""
        return not self.nodes.isdisjoint(outermost_reductions(node)) and len(_along(node)) == 1

    def _is_whole(self, node: Node) -> bool:
        """Whether a node is written to memory: those of the cut, and maps of reductions among them."""
        if node in self.nodes:
            return True
        if node.op in BOOLEAN or not self._streams_alike(node):
            return False
        own = self.nodes.intersection(outermost_reductions(node))
        return self.alone.isdisjoint(own) and any(n.axes == node.axes for n in own)

    def _several(self) -> frozenset[Node]:
        """Reductions that several different expressions are made of."""
        seen, twice = set[Node](), set[Node]()
        for node in self.written:
            own = self.nodes.intersection(outermost_reductions(node))
            twice |= own & seen
            seen |= own
        return frozenset(twice)

    def _reading(self, outputs: Mapping[str, Node]) -> dict[str, Node]:
        """Outputs that read what is written."""
        new = dict(self.written)
        for node in walk(*outputs.values(), done=new):
            args = tuple(new[a] for a in self.divided.get(node, node.args))
            new[node] = rebuild(node, args)
        return {n: new[x] for n, x in outputs.items()}

    # --- specs -------------------------------------------------------------------------------------------------------

    def _makers(self, written: Mapping[Node, Node], own: Mapping[str, Node]) -> list[dict[str, Node]]:
        """Outputs of a spec for each thing that is written, and of one for all that stream alike over the same axes, or
        that the cut has together."""
        groups: dict[object, dict[str, Node]] = {}
        for name, node in own.items():
            groups.setdefault(self.together.get(node, (frozenset(_along(node)), node.axes)), {})[name] = node
        for node, leaf in written.items():
            same = next((g for g in groups.values() if node in g.values()), None)
            same = same if same is not None else groups.setdefault(self.together.get(node, node), {})
            same[leaf.attr.name] = node
        return [*groups.values()]

    def _spec(self, outputs: Mapping[str, Node], between: Mapping[str, Axes]) -> Spec:
        """Raises: _Incomplete."""
        read = [*walk(*outputs.values())]
        known = {a for n in read if n.op == "tensor" for a in n.attr.axes}
        if any(n.op == "index" and n.attr not in known for n in read):
            raise _Incomplete
        asked = {n: {n.attr} if isinstance(n.attr, str) else {*n.attr} for n in read if n.op == "size"}
        lost = {n: const(prod(self.lengths[a] for a in own)) for n, own in asked.items() if not own <= known}
        nodes = substitute_all([*outputs.values()], lost, raw=True) if lost else {}
        found = {n: nodes.get(x, x) for n, x in outputs.items()}
        order = {n: tuple(a for a in self.order if a in x.axes) for n, x in found.items()}
        return self._ordered(found, order | _of(self.spec.output_axes, found) | _of(between, found))

    def _ordered(self, outputs: Mapping[str, Node], order: Mapping[str, Axes]) -> Spec:
        """A spec whose tensors, and with them rows, come in the order of axes."""
        places = {a: place for place, a in enumerate(self.order)}
        made = Spec.from_nodes(outputs, order=order)
        tensors = sorted(made.tensors, key=lambda t: [places.get(a, len(places)) for a in t.axes])
        return Spec.from_nodes(outputs, tensors=tensors, order=order)


def _of(table: Mapping[str, Axes], names: Collection[str]) -> dict[str, Axes]:
    return {n: axes for n, axes in table.items() if n in names}


def _along(node: Node) -> set[Axes]:
    """What its outermost reductions run along."""
    return {n.attr.axes for n in outermost_reductions(node)}


def _moving(fold: Node) -> list[Node]:
    """The factors of a sum that vary along it."""
    return [f for f in factors(fold) if not f.axes.isdisjoint(fold.attr.axes)]


def _lying(leaf: Node, node: Node, nodes: Iterable[Node]) -> Axes:
    """The order of its axes in memory: what a product runs along is innermost, in the order of the tensor that it is
    multiplied by; beside something that is no tensor (weights), what numbers columns is behind it. What comes from one
    factor of the product that makes it stays together."""
    found = _read_along(leaf, nodes)
    for fold in (n for n in outermost_reductions(node) if contracts(n)):
        along = {a for f in _moving(fold) if f.op == "tensor" and found[-1] in f.axes for a in f.axes}
        first, last = [a for a in found if a not in along], [a for a in found if a in along]
        if first and last:
            return (*first, *last)
    return found


def _read_along(leaf: Node, nodes: Iterable[Node]) -> Axes:
    """The order in which a product reads its axes."""
    own: Axes = leaf.attr.axes
    for fold in (n for n in walk(*nodes) if contracts(n) and leaf in _moving(n)):
        partner = next((f for f in _moving(fold) if f is not leaf), leaf)
        order = partner.attr.axes if partner.op == "tensor" else fold.attr.axes
        inner = tuple(a for a in order if a in own and a in fold.attr.axes)
        rest = tuple(a for a in own if a not in inner)
        return (*rest, *inner) if partner.op == "tensor" or not rest else (*rest[:-1], *inner, rest[-1])
    return own


def _factors(nodes: Collection[Node], names: Collection[str]) -> dict[str, frozenset[str]]:
    """Which tensors of these names are read as factors of products alone, and the tensors beside them there."""
    every = [*walk(*nodes)]
    folds = [n for n in every if contracts(n)]
    moving = {f.args[0]: _moving(f) for f in folds}  # by the elements of products
    found: dict[str, set[str]] = {n: set() for n in names}
    for own in moving.values():
        for leaf in (f for f in own if _is_of(f, names)):
            found[leaf.attr.name] |= {n.attr.name for f in own if f is not leaf for n in walk(f) if n.op == "tensor"}
    otherwise = {f.attr.name for f in _read_otherwise(every, moving) | {*nodes} if _is_of(f, names)}
    return {n: frozenset(x) for n, x in found.items() if n not in otherwise}


def _read_otherwise(every: Iterable[Node], moving: Mapping[Node, Collection[Node]]) -> set[Node]:
    """What is read by something else than the elements of products, `moving`: or by those where no product is."""
    found = set[Node]()
    for node in every:
        product = contracts(node)
        for arg in node.args:
            if arg not in moving.get(node, ()):
                found.add(arg)
            if arg in moving and not product:
                found.update(moving[arg])
    return found


def _is_of(node: Node, names: Collection[str]) -> bool:
    return node.op == "tensor" and node.attr.name in names


__all__ = ["Partition", "form_over", "partitions"]
