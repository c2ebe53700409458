"""O8: on short streams, a tree of combines of lifts, finalized, is the definition.

Both sides are closed nodes over the tensors of one stream. Element p of a tensor is written in the language itself,
``sum[j](where(index(j) == p, x[j], 0))``, so that the pair needs no convention beside the graph's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from redalg.algebra import state as symbolic
from redalg.algebra.components import components
from redalg.algebra.state import State
from redalg.graph.domains import conditions
from redalg.graph.masked import finite
from redalg.graph.node import (
    FALSE,
    TRUE,
    ZERO,
    Node,
    const,
    is_inverse,
    logical,
    negate,
    reduction,
    substitute_all,
    walk,
    where,
)
from redalg.graph.node import leaves as all_leaves
from redalg.graph.operators import Extremum, TopK, reductions
from redalg.graph.plan import COUNT, ExtremumAnchor, Obligation, Output, PassPlan, Plan

if TYPE_CHECKING:
    from redalg.language.spec import Spec

LENGTHS = (1, 2, 3, 4)
leaves = lru_cache(maxsize=4096)(all_leaves)


def stream_laws(plan: Plan, spec: Spec) -> Iterator[Obligation]:
    """One pair per output and length; a plan without statistics is compared element by element."""
    folds = [[Fold(p) for p in components(whole)] for whole in plan.passes]
    defined = tuple(dict.fromkeys(_defined(plan)))
    for length in LENGTHS:
        stream = Stream(plan, length, folds)
        sizes = tuple(Node("eq", (Node("size", (), a), const(s))) for a, s in stream.sizes.items())
        for name, value in stream.outputs(spec).items():
            note = f"stream of length {length}"
            read = set(leaves(value)) | set(leaves(spec.outputs[name]))
            facts = (fact for fact in defined if not read.isdisjoint(leaves(fact)))
            yield Obligation("O8", name, value, spec.outputs[name], "observational", (*sizes, *facts), note)


def _defined(plan: Plan) -> Iterator[Node]:
    """Every element is a number: ``g == g`` fails for NaN alone. (NaN elements are the runtime's business.)"""
    for p in plan.passes:
        for g in (*(a.generator for a in p.anchors), *(body for s in p.slots for body in s.lift)):
            if not symbolic.state_leaves(g) and any(map(_is_partial, walk(g))):
                yield Node("eq", (g, g))
                for n in walk(g):  # an element over 0 is an infinite element, which the runtime treats as masked
                    if is_inverse(n):
                        yield Node("ne", (n.args[0], ZERO))
        yield from _reached(p)


def _is_partial(n: Node) -> bool:
    return n.op == "pow" or next(conditions(n), None) is not None


def _reached(p: PassPlan) -> Iterator[Node]:
    """What exponents are centred on is no pole of an element: an infinite one is masked by the runtime, too."""
    read = {leaf for a in p.anchors if isinstance(a, ExtremumAnchor) for leaf in leaves(a.target, "state")}
    for s in p.slots:
        if isinstance(s.op, Extremum) and s.leaf() in read and any(map(_is_partial, walk(s.lift[0]))):
            yield _selected_is_finite(s.lift[0])


def _selected_is_finite(element: Node) -> Node:
    if element.op == "special":
        return TRUE
    if element.op != "where":
        return finite(element)
    condition, *branches = element.args
    then, other = map(_selected_is_finite, branches)
    return logical("or", logical("and", condition, then), logical("and", negate(condition), other))


def _let_through(out: Output, definition: Node) -> Node:
    return out.value if out.guard is None else where(out.guard.finite, out.value, definition)


class Fold:
    """The algebra of one component of a pass, written out once for all streams."""

    def __init__(self, p: PassPlan) -> None:
        self.p, self.axes, self.lifts = p, symbolic.declared_axes(p), symbolic.lift(p)
        self.stored = [part.name for part in symbolic.parts(p)]
        self.lifts = _only(self.lifts, self.stored)
        self.updates = _only(symbolic.update(p), self.stored)
        self.merges = _only(
            symbolic.combine(p, symbolic.leaf_state(p, "_a"), symbolic.leaf_state(p, "_b")), self.stored
        )
        self.wide = self.axes | {k + side: self.axes[k] for k in self.stored for side in ("_a", "_b")}


class Stream:
    """A stream of a given length along the plan's axis, folded through every pass."""

    def __init__(self, plan: Plan, length: int, folds: list[list[Fold]]) -> None:
        self.plan, self.folds = plan, folds
        self.sizes = shape(plan.axis, length)
        self.places = [dict(zip(self.sizes, at, strict=True)) for at in product(*map(range, self.sizes.values()))]
        self._selected: dict[tuple[Node, int], Node] = {}

    def outputs(self, spec: Spec) -> State:
        """Outputs by name; the definition's where a guard makes one NaN."""
        known: State = {}
        folded: State = {}
        for number, p in enumerate(self.plan.passes):
            folded = {COUNT.attr.name: const(len(self.places))}  # of a pass that keeps nothing else, too
            folded |= {k: v for fold in self.folds[number] for k, v in self._folded(fold, known).items()}
            exported = symbolic.exports(self.plan, number)
            axes, read = symbolic.declared_axes(p), folded | known
            known |= symbolic.resolve_all(exported, read, axes)
        values = {o.name: _let_through(o, spec.outputs[o.name]) for o in self.plan.outputs}
        final = symbolic.finalized(self.plan, values, len(self.plan.passes) - 1)
        axes = symbolic.declared_axes(self.plan.passes[-1]) if self.plan.passes else {}
        read = folded | known
        return symbolic.resolve_all(final, read, axes)

    def _folded(self, fold: Fold, known: State) -> State:
        """lift and update alternate with combine: ((0 1) (2 3)), ((0) (1 2)), (0 1)."""

        def lifted(at: int) -> State:
            return symbolic.resolve_all(self._at(fold.lifts, at), known, fold.axes)

        def updated(s: State, at: int) -> State:
            return symbolic.resolve_all(self._at(fold.updates, at), s | known, fold.axes)

        def merged(a: State, b: State) -> State:
            sides = {f"{k}_a": v for k, v in a.items()} | {f"{k}_b": v for k, v in b.items()} | known
            return symbolic.resolve_all(fold.merges, sides, fold.wide)

        folded = _tree(len(self.places), lifted, updated, merged)
        return folded | self._sorted_lists(fold.p, known, folded)

    def _sorted_lists(self, p: PassPlan, known: State, folded: State) -> State:
        """Top-k parts by their definition: their merge has no graph node and is tested with the runtime."""
        found = {}
        for s in p.slots:
            if isinstance(s.op, TopK):
                body = evaluate(s.lift[0], known | folded, symbolic.declared_axes(p))
                for part, (kind, extra) in zip(s.parts, reductions(s.op), strict=True):
                    found[part] = reduction(kind, self.plan.axis, body, extra=extra)
        return found

    def _at(self, nodes: State, position: int) -> State:
        """The nodes with every tensor and index along the axis read at one position."""
        axis, place = set(self.plan.axis), self.places[position]
        mapping = dict[Node, Node]()
        for node in nodes.values():
            mapping |= {leaf: self._select(leaf, position) for leaf in leaves(node) if axis & leaf.axes}
            mapping |= {leaf: const(place[leaf.attr]) for leaf in leaves(node, "index") if leaf.attr in axis}
        new = substitute_all(nodes.values(), mapping, raw=True)
        return {name: new[node] for name, node in nodes.items()}

    def _select(self, leaf: Node, position: int) -> Node:
        if (leaf, position) not in self._selected:
            along = tuple(a for a in self.plan.axis if a in leaf.axes)
            place = self.places[position]
            here = Node("and", tuple(Node("eq", (Node("index", (), a), const(place[a]))) for a in along))
            if leaf.is_boolean:
                found = reduction("any", along, Node("where", (here, leaf, FALSE)))
            else:
                found = reduction("sum", along, Node("where", (here, leaf, ZERO)))
            self._selected[leaf, position] = found
        return self._selected[leaf, position]


def shape(axis: tuple[str, ...], length: int) -> dict[str, int]:
    """Sizes whose product is the length, the first axis the longest; 4 elements of two axes are 2 × 2."""
    sizes = dict.fromkeys(axis, 1)
    if len(axis) > 1 and length == 4:
        return sizes | {axis[0]: 2, axis[1]: 2}
    return sizes | {axis[0]: length} if axis else sizes


def evaluate(node: Node, values: State, axes: dict[str, tuple[str, ...]]) -> Node:
    return symbolic.resolve(node, values, axes, raw=True)


def _only(values: State, names: list[str]) -> State:
    """The stored parts that are graph nodes (the merge of sorted lists is not)."""
    return {k: values[k] for k in names if values[k].op != "call"}


def _tree(
    length: int,
    lifted: Callable[[int], State],
    updated: Callable[[State, int], State],
    merged: Callable[[State, State], State],
) -> State:
    if length == 1:
        return lifted(0)
    if length == 2:
        return updated(lifted(0), 1)
    if length == 3:
        return merged(lifted(0), updated(lifted(1), 2))
    return merged(updated(lifted(0), 1), updated(lifted(2), 3))
