"""O4, O5 and O6: the laws of the monoids a plan uses, as unevaluated pairs over free values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.graph.node import MINUS_ONE, Node, state, substitute
from redalg.graph.operators import (
    Average,
    Binary,
    Custom,
    Extremum,
    Operator,
    Position,
    Quantifier,
    TopK,
    UserMonoid,
)
from redalg.graph.plan import Obligation, PassPlan, Slot

Value = tuple[Node, ...]  # one node per part


def kind_laws(p: PassPlan) -> Iterator[Obligation]:
    """Associativity, commutativity and identity, once for each monoid in the pass."""
    seen: set[Operator] = set()
    for slot in p.slots:
        key = Extremum(slot.op.kind) if isinstance(slot.op, Extremum) else slot.op
        if key in seen or isinstance(key, TopK):  # the merge of sorted lists is no graph operation; O8 covers it
            continue
        seen.add(key)
        yield from _laws(slot)


def _laws(slot: Slot) -> Iterator[Obligation]:
    if slot.average:
        yield from _average_laws(slot)
        return
    operate, identity = operation(slot)
    a, b, c = (_values(slot, side) for side in "abc")
    both = zip(operate(operate(a, b), c), operate(a, operate(b, c)), strict=True)
    yield from (Obligation("O4", slot.kind, left, right, note="associative") for left, right in both)
    if commutative(slot):
        pairs = zip(operate(a, b), operate(b, a), strict=True)
        yield from (Obligation("O4", slot.kind, left, right, note="commutative") for left, right in pairs)
    if identity is not None:
        for merged in (operate(identity, a), operate(a, identity)):
            yield from (Obligation("O6", slot.kind, left, right) for left, right in zip(merged, a, strict=True))
    if isinstance(slot.op, Custom):
        yield from _action_laws(slot, slot.op.monoid, operate)


def _action_laws(slot: Slot, monoid: UserMonoid, operate: Callable[[Value, Value], Value]) -> Iterator[Obligation]:
    """O5 for a user's actions: act(a ⊕ b, h) = act(a, h) ⊕ act(b, h)."""
    a, b = _values(slot, "a"), _values(slot, "b")
    for name, nodes in monoid.acted:

        def act(value: Value, nodes: Value = nodes) -> Value:
            return _substituted(nodes, a=value)

        for left, right in zip(act(operate(a, b)), operate(act(a), act(b)), strict=True):
            yield Obligation("O5", slot.name, left, right, note=f"action {name}")


def commutative(slot: Slot) -> bool:
    return slot.op.monoid.commutative if isinstance(slot.op, Custom) else isinstance(slot.op, Binary)


def operation(slot: Slot) -> tuple[Callable[[Value, Value], Value], Value | None]:
    """The slot's monoid on raw nodes, with its identity where that is a value."""
    op = slot.op
    if isinstance(op, Custom):
        return (lambda a, b: _substituted(op.monoid.combined, a=a, b=b)), op.monoid.identity_nodes
    if isinstance(op, Position):
        return (_first_largest if op.kind == "argmax" else _first_smallest), None
    assert isinstance(op, Binary), f"{op.kind} is no operation of the graph"
    return lambda a, b: (Node(op.operation, (a[0], b[0])),), (op.identity,)


def _substituted(nodes: Value, **sides: Value) -> Value:
    """A monoid's own graphs, over the leaves a0, a1, … and b0, …, with nothing simplified."""
    mapping = {state(f"{side}{i}"): v for side, values in sides.items() for i, v in enumerate(values)}
    return tuple(substitute(n, mapping, raw=True) for n in nodes)


def _first_largest(a: Value, b: Value) -> Value:
    return Node("maximum", (a[0], b[0])), Node("where", (Node("lt", (a[0], b[0])), b[1], a[1]))


def _first_smallest(a: Value, b: Value) -> Value:
    return Node("minimum", (a[0], b[0])), Node("where", (Node("lt", (b[0], a[0])), b[1], a[1]))


def _values(slot: Slot, side: str) -> Value:
    boolean = frozenset({"bool"} if isinstance(slot.op, Quantifier) else ())
    return tuple(state(f"{part}_{side}", (), boolean) for part in slot.parts)


def _average_laws(slot: Slot) -> Iterator[Obligation]:
    """The weighted mean a + (b - a)·n_b/(n_a + n_b), with the counts added beside it."""

    def mean(a: Value, b: Value) -> Value:
        total = Node("add", (a[1], b[1]))
        share = Node("mul", (b[1], Node("pow", (total, MINUS_ONE))))
        difference = Node("add", (b[0], Node("mul", (MINUS_ONE, a[0]))))
        return Node("add", (a[0], Node("mul", (difference, share)))), total

    positive = frozenset({"integer", "positive"})
    a, b, c = ((state(f"{slot.name}_{s}"), state(f"n_{s}", (), positive)) for s in "abc")
    yield Obligation("O4", "mean", mean(mean(a, b), c)[0], mean(a, mean(b, c))[0], note="associative")
    yield Obligation("O4", "mean", mean(a, b)[0], mean(b, a)[0], note="commutative")


def distributive(slot: Slot, coefficients: list[Node], assumptions: tuple[Node, ...]) -> Iterator[Obligation]:
    """O5: T·(u ⊕ v) = T·u ⊕ T·v for each coefficient of the transport."""
    if not isinstance(slot.op, Binary | Average):
        return
    op = "add" if isinstance(slot.op, Average) else slot.op.operation
    u, v = state(f"{slot.name}_a"), state(f"{slot.name}_b")
    for c in dict.fromkeys(coefficients):
        left = Node("mul", (c, Node(op, (u, v))))
        right = Node(op, (Node("mul", (c, u)), Node("mul", (c, v))))
        yield Obligation("O5", slot.name, left, right, assumptions=assumptions)
