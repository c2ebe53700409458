"""One read of the data, pass by pass: choose anchors, rerun the cascade over centred slots, emit nodes, prune, order.

Expressions are emitted in differences: a centred element is ``x - A`` before anything else is added to it, a mean is
``A + residual``, exponentials are merged before they are taken (theory, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from redalg.engine.anchors.choices import Choice, Choices
from redalg.engine.anchors.policy import choose
from redalg.engine.anchors.units import Held, in_units
from redalg.engine.draft import Read, with_exports
from redalg.engine.emit import Emitter, differences, in_order
from redalg.engine.growths import Growths
from redalg.engine.near_one import NearOne
from redalg.engine.poles import guarded, poisoned
from redalg.engine.rules.cascade import Blocked, Cascade
from redalg.engine.slots import SlotBackend
from redalg.engine.undefined import Undefined
from redalg.graph import node as g
from redalg.graph.node import Node, is_position
from redalg.graph.plan import (
    APART,
    COUNT,
    IN_RANGE,
    MODERATE,
    Anchor,
    ExtremumAnchor,
    MeanAnchor,
    PassPlan,
    ScaleAnchor,
    Slot,
)
from redalg.laws.check import is_exact
from redalg.laws.infinities import EXACT, FINITE
from redalg.text.nodes import short


class Around(NamedTuple):
    """What a read is given by the derivation it belongs to."""

    axis_order: tuple[str, ...]
    taken: frozenset[str]  # names of later reads: one name means one thing in all of them
    export: Callable[[Node], Node]  # a value of earlier reads -> the name under which they hand it on


class Unresolved(Exception):
    """Centring has hidden a cancellation in a stage that the raw analysis saw, or anchors wait for each other."""

    def __init__(self, blocked: Blocked | None = None, waiting: Iterable[Choice] = ()) -> None:
        super().__init__()
        self.blocked, self.waiting = blocked, tuple(waiting)

    def culprit(self, choices: Choices) -> Choice | None:
        """The anchor to do without: one that the obstacle involves, of an element rather than of an exponential."""
        inside = set(g.walk(self.blocked.stage)) if self.blocked is not None else set()
        found = list(self.waiting) or [c for c in choices.all() if c.generator in inside] or choices.all()
        exponents = choices.exponents.values()
        return min(found, key=lambda c: c in exponents, default=None)


# --- the passes ------------------------------------------------------------------------------------------------------


def needed(read: Read, around: Around) -> None:
    """Stages whose values the nodes need, dependencies first."""
    raw = read.raw
    nodes = [*read.nodes, *read.conditions]
    read.stages = [n for n in g.walk(*nodes) if raw.scope.is_stage(n) and raw.value(n).blocked is None]


def anchored(read: Read, around: Around) -> None:
    """Where slots are centred, and in which units: decided from the raw normal forms."""
    if read.chosen is None or read.chosen[:2] != (read.stages, read.nodes):
        read.chosen = read.stages, read.nodes, choose(read.raw, read.backend, read.stages, read.nodes)
    read.choices = read.chosen[-1]


def centred(read: Read, around: Around) -> None:
    """The cascade once more, over slots of centred generators.

    Raises: Unresolved where centring hides a cancellation that the raw analysis saw.
    """
    raw, choices = read.raw, read.choices
    slots = SlotBackend(choices, raw.axis, around.axis_order, averaged_stages=_averaged(read.stages, read.nodes))
    slots.names |= around.taken
    hidden = [c.target for c in choices.exponents.values()]
    hidden += [u.target for u in choices.units.found]
    facts = _extrema([*read.stages, *hidden])  # what holds of them, also of those that have no value here
    final = Cascade([*dict.fromkeys([*read.stages, *facts])], raw.axis, raw.scope.known, slots, raw.commute)
    slots.separator_poly = final.separator.poly
    growths = None
    if choices.growths:
        whole = slots.without_growths()
        apart = Cascade([*dict.fromkeys([*read.stages, *facts])], raw.axis, raw.scope.known, whole, raw.commute)
        whole.separator_poly = apart.separator.poly
        growths = Growths(final, apart, slots)
    for s in read.stages:
        if (blocked := final.value(s).blocked) is not None:
            node = blocked.node if blocked.node in set(g.walk(s)) else s  # in words of the spec, not of slots
            raise Unresolved(replace(blocked, stage=s, node=node))
    read.slots, read.final, read.emit = slots, final, Emitter(final, around.export, growths)


def emitted(read: Read, around: Around) -> None:
    """Nodes, conditions, anchors and lifts over slots; NaN where the definition divides by zero."""
    final, emit, slots = read.final, read.emit, read.slots
    assert final is not None and emit is not None and slots is not None
    near_one = NearOne(read.raw, slots, emit)
    values = [guarded(n, near_one(emit.result(n)), final, emit) for n in read.nodes]
    conditions = [emit(n) for n in read.conditions]
    read.anchors = slots.anchors(final.separator, emit)
    read.built = [with_exports(s, read) for s in slots.closed()]
    read.values = values + conditions


def poisonous(read: Read, around: Around) -> None:
    """NaN in, NaN out, also where an input has cancelled altogether."""
    assert read.final is not None and read.emit is not None
    needs = _Needs(read.anchors, read.built)
    for place, node in enumerate(read.written):
        value = read.values[place]
        needed = needs.of([value])
        held = [s for s in read.built if s.name in needed]
        value = poisoned(node, value, held, read.final)
        read.values[place], exact = Undefined(read.final, read.emit, held)(node, read.nodes[place], value)
        if not exact:
            read.assumed |= dict([EXACT if is_exact(node) and not is_position(node) else FINITE])


def pruned(read: Read, around: Around) -> None:
    """Only the anchors and slots that the results need."""
    assert read.slots is not None
    built = {s.name for s in read.built}
    everything = [*read.built, *(s for s in read.slots.others.values() if s.name not in built)]
    read.anchors, read.built = live(read.anchors, everything, read.values)
    known = read.slots.held(everything)
    pairs = differences(read.anchors)
    read.anchors = [_written_as_results(a, pairs, known) for a in read.anchors]


def ordered(read: Read, around: Around) -> None:
    """Every name after what it is computed from.

    Raises: Unresolved where anchors wait for each other.
    """
    assert read.slots is not None
    order = _order(read.anchors, read.built)
    if order is None:
        names = {a.name for a in read.anchors}
        raise Unresolved(waiting=[site.choice for site in read.slots.sites.values() if site.name in names])
    read.plan = PassPlan(tuple(read.anchors), tuple(read.built), order)


def _written_as_results(anchor: Anchor, pairs: Mapping[Node, Node], known: Iterable[Held]) -> Anchor:
    """A scale evaluated as results are that ask whether it is in range: where these divide by it, it divided."""
    if not isinstance(anchor, ScaleAnchor):
        return anchor
    return replace(anchor, target=in_units([in_order(anchor.target, pairs)], known)[0])


def measured(read: Read, around: Around) -> None:
    """Results back from units of the data, sums in an order that keeps digits."""
    assert read.slots is not None
    known = read.slots.held((*read.slots.sums.values(), *read.slots.others.values()))
    pairs = differences(read.anchors)
    residuals = {s.leaf() for s in read.built if s.average and s.anchors}
    values = in_units([in_order(n, pairs, residuals) for n in read.values], known)
    read.values = [read.slots.at_finite_exponents(n) for n in values]


# --- what they consist of --------------------------------------------------------------------------------------------


def assumed(left_out: list[Choice], apart: Iterable[Node]) -> dict[str, str]:
    """The named assumptions under which a form does without some anchors; `apart`: products that should have one."""
    texts = {
        IN_RANGE: "exponentials of {} are summed as they are, for no anchor could be had: they must not overflow",
        MODERATE: "powers of {} are summed as they are, for no anchor could be had: far from 0 they lose digits",
        APART: "the product of {} and the powers of what divides it are held apart: neither may over- or underflow",
    }
    found: dict[str, list[str]] = {}
    for c in left_out:
        name = IN_RANGE if c.anchor is ExtremumAnchor else MODERATE
        found.setdefault(name, []).append(short(c.generator))
    for product in apart:
        found.setdefault(APART, []).append(short(product))
    return {name: texts[name].format(", ".join(what)) for name, what in found.items()}


def _extrema(nodes: Iterable[Node]) -> list[Node]:
    return [n for n in g.walk(*nodes) if n.op == "reduce" and n.attr.kind in ("max", "min")]


def _averaged(stages: list[Node], nodes: list[Node]) -> frozenset[Node]:
    """Sums that are only ever used divided by the count, also under a root: S/n, sqrt(S)/sqrt(n)."""
    products = {n for n in g.walk(*nodes) if n.op == "mul" and _count_power(n) < 0}
    divided = {a for n in products for a in n.args if _power_of(a) == -_count_power(n)}

    def divides(reader: Node, argument: Node) -> bool:
        return reader.op == "pow" and reader in divided or reader in products and argument in divided

    used_bare = {*nodes, *(a for n in g.walk(*nodes) for a in n.args if not divides(n, a))}
    held = {a.args[0] if a.op == "pow" else a for a in divided - used_bare}
    return frozenset(s for s in stages if s.attr.kind == "sum" and s in held and s not in used_bare)


def _power_of(factor: Node) -> Fraction:
    if factor.op != "pow":
        return Fraction(1)
    return factor.args[1].attr if factor.args[1].op == "const" else Fraction(0)


def _count_power(product: Node) -> Fraction:
    return next((_power_of(f) for f in product.args if f is COUNT or f.op == "pow" and f.args[0] is COUNT), Fraction(0))


def live(anchors: Sequence[Anchor], slots: Sequence[Slot], nodes: Iterable[Node]) -> tuple[list[Anchor], list[Slot]]:
    """Only what the results need, directly or through moves, targets and shifts."""
    needed = _Needs(anchors, slots).of(nodes)
    return [a for a in anchors if a.name in needed], [s for s in slots if s.name in needed]


class _Needs:
    """Which names a result needs, directly or through moves, targets and shifts."""

    def __init__(self, anchors: Sequence[Anchor], slots: Sequence[Slot]) -> None:
        self.owner = {part: s.name for s in slots for part in (*s.parts, s.name)}
        self.below = {a.name: _state_names(a.source) for a in anchors}
        for s in slots:  # a slot and an anchor may share a name: both are needed then
            self.below.setdefault(s.name, []).extend(_slot_reads(s))

    def of(self, nodes: Iterable[Node]) -> set[str]:
        needed: set[str] = set()
        stack = [name for n in nodes for name in _state_names(n)]
        while stack:
            read = stack.pop()
            for name in {read, self.owner.get(read, read)} & self.below.keys() - needed:
                needed.add(name)
                stack += self.below[name]
        return needed


def _slot_reads(slot: Slot) -> list[str]:
    coefficients = [x.attr.name for m in slot.moves for x in g.leaves(m.coefficient, "state") if x is not COUNT]
    return [*slot.anchors, *(m.slot for m in slot.moves), *coefficients]


def _state_names(node: Node) -> list[str]:
    return [leaf.attr.name for leaf in g.leaves(node, "state")]


def _order(anchors: list[Anchor], slots: list[Slot]) -> tuple[str, ...] | None:
    """Every name after what it is computed from; an anchor on its own residual precedes the slots it centres.

    None where anchors wait for each other.
    """
    owner = {p: s.name for s in slots for p in s.parts}
    by_slot = {s.name: s for s in slots}
    waits: dict[str, set[str]] = {s.name: set(s.anchors) for s in slots}
    for a in anchors:
        waits[a.name] = set()
        for read in _state_names(a.source):
            slot = by_slot.get(owner.get(read, ""))
            mean = isinstance(a, MeanAnchor)
            waits[a.name] |= set(slot.anchors if slot else ()) - {a.name} if mean else {owner.get(read, read)}
    return _sorted_by_waiting({name: others & waits.keys() for name, others in waits.items()})


def _sorted_by_waiting(waits: dict[str, set[str]]) -> tuple[str, ...] | None:
    """Names after those that they wait for, otherwise by name; None where some wait for each other."""
    waiting: dict[str, list[str]] = {}
    for name, others in waits.items():
        for other in others:
            waiting.setdefault(other, []).append(name)
    ready = [name for name, others in waits.items() if not others]
    heapify(ready)
    order: list[str] = []
    while ready:
        order.append(name := heappop(ready))
        for later in waiting.get(name, ()):
            waits[later].discard(name)
            if not waits[later]:
                heappush(ready, later)
    return tuple(order) if len(order) == len(waits) else None
