"""A plan's algebra as graph nodes: what one element becomes, how two states combine, what the outputs are.

Pure functions from a plan to nodes; `redalg.form` shows them as SymPy expressions and `redalg.laws.laws` proves
things about them. The laws are those of `redalg.graph.plan`; here every state is one that has seen an element (the
identity is adjoined by the runtime, never computed)::

    lift:     A = the element's own generator value ("mean") or its target ("extremum"),  u = φ(x; A)
    combine:  u = T(A - A_a)·u_a ⊕ T(A - A_b)·u_b
    update:   combine(state, lift(x))

An anchor that *is* a slot (its target is that slot's leaf) is not a second part of the state, and neither is a slot
that vanishes at its anchor (the lean form).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from redalg.algebra.join import call, join
from redalg.algebra.signs import ZERO as SIGN_ZERO
from redalg.algebra.signs import Signs, always_finite
from redalg.algebra.work import NODE, TERM, spend
from redalg.graph.masked import finite, masked, split_exponent
from redalg.graph.node import (
    NEG_INF,
    ONE,
    ZERO,
    Node,
    add,
    compare,
    div,
    extend,
    is_const,
    is_inverse,
    leaves,
    logical,
    mul,
    rename_axes,
    special,
    state,
    substitute,
    substitute_all,
    walk,
    where,
)
from redalg.graph.operators import Additive, Extremum, Position, Product, TopK
from redalg.graph.plan import COUNT, Anchor, ExtremumAnchor, MeanAnchor, PassPlan, Plan, ScaleAnchor, Slot, UnitAnchor

State = dict[str, Node]  # part, anchor or "n" -> its value


@dataclass(frozen=True)
class Part:
    """One stored array of a state: a part of a slot, an anchor, or the count."""

    name: str
    leaf: Node
    slot: Slot | None = None
    anchor: Anchor | None = None


def alias(anchor: Anchor, p: PassPlan) -> str | None:
    """The slot part an anchor always equals, if its target is exactly that part."""
    if isinstance(anchor, MeanAnchor) or anchor.target.op != "state":
        return None
    part = anchor.target.attr.name
    held = (s for s in p.slots if part in s.parts and not s.vanishes)
    return next((part for s in held if s.leaf(s.parts.index(part)) is anchor.target), None)


def parts(p: PassPlan) -> tuple[Part, ...]:
    """The arrays a state of this pass consists of, in the plan's order, the count first; none for pure maps."""
    if not p.order:
        return ()
    anchors = {a.name: a for a in p.anchors}
    slots = {s.name: s for s in p.slots}
    found = [Part(COUNT.attr.name, COUNT)]
    for name in p.order:
        if name in anchors and alias(anchors[name], p) is None:
            found.append(Part(name, anchors[name].leaf, anchor=anchors[name]))
        elif name in slots and not slots[name].vanishes:
            s = slots[name]
            found.extend(Part(part, s.leaf(i), slot=s) for i, part in enumerate(s.parts))
    return tuple(found)


def suffixed(leaf: Node, suffix: str) -> Node:
    return state(leaf.attr.name + suffix, leaf.attr.axes, leaf.attr.domain) if suffix else leaf


def leaf_state(p: PassPlan, suffix: str = "") -> State:
    """The state whose parts are leaves `name` + suffix; aliased anchors and vanishing slots included by value."""
    values = {part.name: suffixed(part.leaf, suffix) for part in parts(p)}
    values |= {part: ZERO for s in p.slots if s.vanishes for part in s.parts}
    for anchor in p.anchors:
        target = alias(anchor, p)
        if target is not None:
            values[anchor.name] = values[target]
    return values


def declared_axes(p: PassPlan) -> dict[str, tuple[str, ...]]:
    """The axes in which each name of a pass is declared (shifts have those of their anchor)."""
    axes = {COUNT.attr.name: ()} | {part: s.declared for s in p.slots for part in s.parts}
    for a in p.anchors:
        axes[a.name] = axes[f"shift:{a.name}"] = a.axes
    return axes


@lru_cache(maxsize=4096)
def state_leaves(node: Node) -> tuple[Node, ...]:
    return tuple(leaves(node, "state"))


class Resolver:
    """Replaces state leaves by values, by name. A leaf read along other axes reads the value along those axes.

    What nodes share is rebuilt once.
    """

    def __init__(self, values: Mapping[str, Node], axes: Mapping[str, tuple[str, ...]], raw: bool = False) -> None:
        self.values, self.axes, self.raw = values, axes, raw
        self._leaves: set[Node] = set()
        self._done: dict[Node, Node] = {}

    def __call__(self, node: Node) -> Node:
        found = state_leaves(node)
        self._done |= _read([leaf for leaf in found if leaf not in self._leaves], self.values, self.axes)
        self._leaves.update(found)
        if not any(leaf.attr.name in self.values for leaf in found):
            return node
        before = len(self._done)
        rebuilt = extend((node,), self._done, self.raw)[node]
        spend(NODE * (1 + len(self._done) - before))
        return rebuilt


def resolve(node: Node, values: Mapping[str, Node], axes: Mapping[str, tuple[str, ...]], raw: bool = False) -> Node:
    """Replace state leaves by values, by name. A leaf read along other axes reads the value along those axes."""
    return Resolver(values, axes, raw)(node)


def resolve_all(nodes: State, values: State, axes: Mapping[str, tuple[str, ...]]) -> State:
    """`resolve`, raw, of many nodes at once, which share most of what they are made of in a chain of stages."""
    mapping = _read(dict.fromkeys(leaf for n in nodes.values() for leaf in state_leaves(n)), values, axes)
    new = substitute_all(nodes.values(), mapping, raw=True)
    spend(NODE * len(new))
    return {name: new[node] for name, node in nodes.items()}


def _read(found: Iterable[Node], values: Mapping[str, Node], axes: Mapping[str, tuple[str, ...]]) -> dict[Node, Node]:
    mapping = {}
    for leaf in found:
        name = leaf.attr.name
        if name in values:
            pairs = zip(axes.get(name, leaf.attr.axes), leaf.attr.axes, strict=True)
            renaming = {old: new for old, new in pairs if old != new}
            mapping[leaf] = rename_axes(values[name], renaming) if renaming else values[name]
    return mapping


# --- one element ---------------------------------------------------------------------------------------------------


def lift(p: PassPlan) -> State:
    """The state of a stream of one element, over the tensors along the axis. A mean anchor starts on its element."""
    axes, values = declared_axes(p), {COUNT.attr.name: ONE}
    anchors, slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
    for name in p.order:
        if name not in anchors:
            values |= _lift_slot(slots[name], values, axes)
        elif isinstance(anchor := anchors[name], MeanAnchor):
            values[name] = _own_value(anchor, values, axes)
        else:
            values[name] = resolve(anchor.target, values, axes)
    return values


def _own_value(anchor: MeanAnchor, values: State, axes: Mapping[str, tuple[str, ...]]) -> Node:
    own = resolve(anchor.generator, values, axes)
    return own if always_finite(own) else where(finite(own), own, ZERO)


def _lift_slot(slot: Slot, values: State, axes: Mapping[str, tuple[str, ...]]) -> State:
    bodies = [resolve(_unless_masked(body), values, axes) for body in slot.lift]
    if isinstance(slot.op, Position):
        bodies = [bodies[0], ZERO]
    if isinstance(slot.op, TopK):
        bodies = [call("topk_single", bodies[0]), call("topk_single_index")]
    return dict(zip(slot.parts, bodies, strict=True))


def _unless_masked(body: Node) -> Node:
    """exp(u - A) is 0 where a mask makes u infinite: written out, because on one element u - A is 0 by algebra."""
    mapping = {}
    for node in walk(body):
        split = split_exponent(node.args[0]) if node.op == "exp" and state_leaves(node) else None
        if split is not None and maskable(split.u):
            number = node if _bounded_above(split.u) else where(finite(split.u), node, special("nan"))
            mapping[node] = where(masked(split), ZERO, number)
    return substitute(body, mapping) if mapping else body


def _bounded_above(node: Node) -> bool:
    """Whether -inf is the only infinity the node takes for finite data, as far as its form shows."""
    if node is NEG_INF or not maskable(node):
        return True
    if node.op == "where":
        return all(map(_bounded_above, node.args[1:]))
    if node.op == "mul":
        constants = [a for a in node.args if is_const(a)]
        return len(constants) == len(node.args) - 1 and all(map(_bounded_above, node.args)) and constants[0].attr > 0
    return node.op == "add" and all(map(_bounded_above, node.args))


def maskable(node: Node) -> bool:
    """Whether the node can be infinite for finite data: an infinity is written in it."""
    return any(n.op == "special" and n.attr in ("oo", "-oo") for n in walk(node))


# --- two states ----------------------------------------------------------------------------------------------------


class _Merge:
    """Walks a pass's order once, keeping the merged values and how far each side moves along each anchor."""

    def __init__(self, p: PassPlan, a: State, b: State, named: bool = False) -> None:
        self.plan, self.axes, self.sides = p, declared_axes(p), (a, b)
        self.names = leaf_state(p) if named else {}
        self.slots = {s.name: s for s in p.slots}
        self.positive = positive_names(p)
        self.found: State = {}
        self.new: State = {}
        self.record({COUNT.attr.name: add(a[COUNT.attr.name], b[COUNT.attr.name])})
        self.moves: tuple[State, State] = ({}, {})
        self._coefficients: dict[tuple[bool, int], Resolver] = {}
        for anchor in p.anchors:  # until an anchor has its new value, both sides are held at a's
            self._set_shifts(anchor, anchor.still, self._between(anchor, a[anchor.name], b[anchor.name]))

    def record(self, values: State) -> None:
        """Keep merged values; what follows reads them by value, or by name."""
        self.found |= values
        self.new |= {name: self.names.get(name, value) for name, value in values.items()}

    def _set_shifts(self, anchor: Anchor, of_a: Node, of_b: Node) -> None:
        self._coefficients = {}
        for moves, value in zip(self.moves, (of_a, of_b), strict=True):
            moves[f"shift:{anchor.name}"] = value

    def _between(self, anchor: Anchor, new: Node, old: Node) -> Node:
        apart = anchor.between(old, new)
        match anchor:
            case MeanAnchor():
                return apart
            case ExtremumAnchor():
                masked = maskable(anchor.generator)
                return where(compare("eq", new, old), ZERO, apart) if masked else apart
            case UnitAnchor():  # taken before it is raised: S_a²/S² would leave the range that (S_a/S)² is in
                return where(compare("eq", new, old), ONE, apart)
            case ScaleAnchor():
                return apart if nonzero(new, self.positive) else where(compare("eq", new, ZERO), ONE, apart)
            case _:
                assert_never(anchor)

    def anchor(self, anchor: Anchor) -> None:
        a, b = self.sides
        if not isinstance(anchor, MeanAnchor):
            new, by_a = resolve(anchor.target, self.new, self.axes), None
        else:
            step = self._step(anchor)
            # Of an infinite mean an anchor takes no notice; formulas for readers leave that out.
            sound = self.names or always_finite(anchor.generator)
            if not anchor.follows and not sound:
                step = where(finite(step), step, ZERO)
            new = add(a[anchor.name], step)
            by_a = None if self.names else step
        self.record({anchor.name: new})
        new = self.new[anchor.name]
        if by_a is None:
            by_a = self._between(anchor, new, a[anchor.name])
        self._set_shifts(anchor, by_a, self._between(anchor, new, b[anchor.name]))

    def _step(self, anchor: MeanAnchor) -> Node:
        """How far the target lies from a's anchor, 0 where it is undefined."""
        held = dict(self.new)
        names = {leaf.attr.name for leaf in leaves(anchor.shift, "state")}
        for s in self.plan.slots:
            if names & set(s.parts):
                held |= self.joined(s, [self.moved(s, side) for side in (0, 1)])
        held[anchor.name] = self.sides[0][anchor.name]
        step = resolve(anchor.shift, held, self.axes)
        zero = [compare("eq", d, ZERO) for d in divisors(anchor.shift) if not nonzero(d, self.positive)]
        undefined = logical("or", *(resolve(z, held, self.axes) for z in zero))
        return where(undefined, ZERO, step) if zero else step

    def moved(self, slot: Slot, side: int) -> Node:
        """The slot of one side, carried to the current anchors: Σ T·u."""
        values = self.sides[side]
        if not slot.moves:
            return values[slot.parts[0]]
        return add(*(self._term(slot, m.coefficient, m.slot, side) for m in slot.moves))

    def _term(self, slot: Slot, coefficient: Node, source: str, side: int) -> Node:
        values = self.sides[side]
        spend(TERM)
        if source == COUNT.attr.name:
            value = ONE if slot.average else values[source]
        else:
            value = values[self.slots[source].parts[0]]
            if self.slots[source].average != slot.average:  # in the normalisation of the moved slot
                n = values[COUNT.attr.name]
                value = div(value, n) if slot.average else mul(value, n)
        return mul(self._resolver(isinstance(slot.op, Product), side)(coefficient), value)

    def _resolver(self, multiplies: bool, side: int) -> Resolver:
        """What coefficients of moves read: one for all slots between two anchors."""
        if (multiplies, side) not in self._coefficients:
            values = self.sides[side]
            units = {a.name: self.new.get(a.name, self.sides[0][a.name]) for a in self.plan.units}
            counts = values if multiplies else {COUNT.attr.name: values[COUNT.attr.name]}
            self._coefficients[multiplies, side] = Resolver(counts | self.moves[side] | units, self.axes)
        return self._coefficients[multiplies, side]

    def at_new_anchors(self, slot: Slot, side: int) -> Node:
        """`moved`; with names, a transport of several terms gets a line of its own."""
        value = self.moved(slot, side)
        if not self.names or len(slot.moves) < 2:
            return value
        leaf = state(f"{slot.name}_{'ab'[side]}'", slot.axes)
        self.found[leaf.attr.name] = value
        return leaf

    def merge(self, slot: Slot) -> None:
        moved = [self.at_new_anchors(slot, side) for side in (0, 1)]
        self.record(self.joined(slot, moved))

    def joined(self, slot: Slot, moved: list[Node]) -> State:
        a, b = ([moved[i], *(self.sides[i][p] for p in slot.parts[1:])] for i in (0, 1))
        counts = self.sides[0][COUNT.attr.name], self.sides[1][COUNT.attr.name]
        return dict(zip(slot.parts, join(slot, a, b, counts), strict=True))


def combine(p: PassPlan, a: State, b: State, named: bool = False) -> State:
    """The merged state of two non-empty ones, `a` coming first in the stream.

    `named`: parts merged earlier are read as leaves `name`, and what a transport of several terms gives as `name_a'`,
    so that each line is as short as a program's.
    """
    merge, anchors = _Merge(p, a, b, named), {x.name: x for x in p.anchors}
    for name in p.order:
        if name in anchors:
            merge.anchor(anchors[name])
        elif not merge.slots[name].vanishes:
            merge.merge(merge.slots[name])
    return merge.found


def update(p: PassPlan) -> State:
    """The state `name` after one more element: combine(state, lift(x)), simplified."""
    return combine(p, leaf_state(p), lift(p))


def outputs(plan: Plan) -> State:
    """Output name -> value over the stored parts of the last pass, parameters and (axis-keeping) the tensors."""
    return finalized(plan, {out.name: out.value for out in plan.outputs}, len(plan.passes) - 1)


def exports(plan: Plan, number: int) -> State:
    """What pass `number` hands to later ones, over its stored parts."""
    return finalized(plan, dict(plan.passes[number].exports), number)


def finalized(plan: Plan, values: Mapping[str, Node], number: int) -> State:
    if number < 0:
        return dict(values)
    p = plan.passes[number]
    known, axes = leaf_state(p), declared_axes(p)
    return {name: resolve(value, known, axes) for name, value in values.items()}


# --- signs: just enough to leave out guards that can never fire ----------------------------------------------------


def divisors(node: Node) -> list[Node]:
    """Everything the node divides by, each once."""
    negative = (n for n in walk(node) if is_inverse(n))
    return list(dict.fromkeys(n.args[0] for n in negative))


def positive_names(p: PassPlan) -> frozenset[str]:
    """State parts that are positive on every non-empty state: the count, sums and extrema of positive elements."""
    kept = (s for s in p.slots if isinstance(s.op, Additive | Product | Extremum) and not s.vanishes)
    found = (s.parts[0] for s in kept if _always_positive(s.lift[0]))
    return frozenset({COUNT.attr.name, *found})


def _always_positive(lift: Node) -> bool:
    """Positive for every element; an exponential of -oo, as a mask writes it, is 0."""
    return Signs(()).positive(lift) and all(n is not NEG_INF for n in walk(lift))


def nonzero(node: Node, positive: Iterable[str] = ()) -> bool:
    """Whether the node cannot be 0, given the state parts (of either side) that are positive."""
    known = {name + suffix for name in positive for suffix in ("", "_a", "_b")}
    marked = {
        leaf: state(leaf.attr.name, leaf.attr.axes, leaf.attr.domain | {"positive"})
        for leaf in leaves(node, "state")
        if leaf.attr.name in known
    }
    return not Signs(()).of(substitute(node, marked)) & SIGN_ZERO
