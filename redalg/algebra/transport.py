"""How a slot moves from the anchors of a piece to those of the whole, as nodes (theory, section 3.1)."""

from __future__ import annotations

from redalg.algebra import state as symbolic
from redalg.graph.node import ONE, Node, add, mul
from redalg.graph.operators import Product
from redalg.graph.plan import COUNT, Move, PassPlan, Slot


def combine_nodes(p: PassPlan) -> symbolic.State:
    return symbolic.combine(p, symbolic.leaf_state(p, "_a"), symbolic.leaf_state(p, "_b"))


def correction(slot: Slot, p: PassPlan) -> Node:
    """The slot's transport from `A_a` to `A` as one node: a factor if it moves by itself, else the moved slot."""
    terms = transport_of(slot, p)
    if not terms:
        return ONE
    return terms[0][0] if [m.slot for _, m in terms] == [slot.name] else moved(slot, p)


def moved(slot: Slot, p: PassPlan) -> Node:
    """The slot `name_a` carried from the anchors `A_a` to `A`."""
    old, firsts = symbolic.leaf_state(p, "_a"), {s.name: s.parts[0] for s in p.slots}
    one = ONE if slot.average else old[COUNT.attr.name]
    values = {name: old[part] for name, part in firsts.items()} | {COUNT.attr.name: one}
    return add(*(mul(c, values[m.slot]) for c, m in transport_of(slot, p)))


def transport_of(slot: Slot, p: PassPlan) -> list[tuple[Node, Move]]:
    old, new, axes = symbolic.leaf_state(p, "_a"), symbolic.leaf_state(p), symbolic.declared_axes(p)
    shifts = {f"shift:{a.name}": a.between(old[a.name], new[a.name]) for a in p.anchors}
    known = old | shifts if isinstance(slot.op, Product) else shifts
    return [(symbolic.resolve(m.coefficient, known, axes), m) for m in slot.moves]
