"""O4, O5 and O6: the laws of the monoids a plan uses, as unevaluated pairs over free values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redalg.graph import FALSE, INF, MINUS_ONE, NEG_INF, ONE, TRUE, ZERO, Node, state, substitute
from redalg.plan import Obligation, PassPlan, Slot

Value = tuple[Node, ...]  # one node per part

# The binary operation of each kind with one part, and its identity.
OPERATION = {
    "sum": ("add", ZERO),
    "prod": ("mul", ONE),
    "max": ("maximum", NEG_INF),
    "min": ("minimum", INF),
    "any": ("or", FALSE),
    "all": ("and", TRUE),
}


def kind_laws(p: PassPlan) -> Iterator[Obligation]:
    """Associativity, commutativity and identity, once for each monoid in the pass."""
    seen: set[object] = set()
    for slot in p.slots:
        key = (slot.kind, slot.average, slot.extra if slot.kind == "monoid" else None)
        if key in seen or slot.kind == "topk":  # the merge of sorted lists is no graph operation; O8 covers it
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
    if slot.kind == "monoid":
        yield from _action_laws(slot, operate)


def _action_laws(slot: Slot, operate: Callable[[Value, Value], Value]) -> Iterator[Obligation]:
    """O5 for a user's actions: act(a ⊕ b, h) = act(a, h) ⊕ act(b, h)."""
    monoid: Any = slot.extra
    a, b = _values(slot, "a"), _values(slot, "b")
    for name, nodes in monoid.acted:

        def act(value: Value, nodes: Value = nodes) -> Value:
            return _substituted(nodes, a=value)

        for left, right in zip(act(operate(a, b)), operate(act(a), act(b)), strict=True):
            yield Obligation("O5", slot.name, left, right, note=f"action {name}")


def commutative(slot: Slot) -> bool:
    if slot.kind == "monoid":
        return bool(slot.extra.commutative)  # type: ignore[attr-defined]
    return slot.kind in OPERATION


def operation(slot: Slot) -> tuple[Callable[[Value, Value], Value], Value | None]:
    """The slot's monoid on raw nodes, with its identity where that is a value."""
    if slot.kind == "monoid":
        monoid: Any = slot.extra
        return (lambda a, b: _substituted(monoid.combined, a=a, b=b)), tuple(monoid.identity_nodes)
    if slot.kind in ("argmax", "argmin"):
        return (_first_largest if slot.kind == "argmax" else _first_smallest), None
    op, identity = OPERATION[slot.kind]
    return lambda a, b: (Node(op, (a[0], b[0])),), (identity,)


def _substituted(nodes: Value, **sides: Value) -> Value:
    """A monoid's own graphs, over the leaves a0, a1, … and b0, …, with nothing simplified."""
    mapping = {state(f"{side}{i}"): v for side, values in sides.items() for i, v in enumerate(values)}
    return tuple(substitute(n, mapping, raw=True) for n in nodes)


def _first_largest(a: Value, b: Value) -> Value:
    return Node("maximum", (a[0], b[0])), Node("where", (Node("lt", (a[0], b[0])), b[1], a[1]))


def _first_smallest(a: Value, b: Value) -> Value:
    return Node("minimum", (a[0], b[0])), Node("where", (Node("lt", (b[0], a[0])), b[1], a[1]))


def _values(slot: Slot, side: str) -> Value:
    boolean = frozenset({"bool"} if slot.kind in ("any", "all") else ())
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
    if slot.kind not in OPERATION:
        return
    op = OPERATION[slot.kind][0]
    u, v = state(f"{slot.name}_a"), state(f"{slot.name}_b")
    for c in dict.fromkeys(coefficients):
        left = Node("mul", (c, Node(op, (u, v))))
        right = Node(op, (Node("mul", (c, u)), Node("mul", (c, v))))
        yield Obligation("O5", slot.name, left, right, assumptions=assumptions)
