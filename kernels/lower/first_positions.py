"""Positions that are the first ones whatever the elements are: a kernel reads its stream from 0.

A NaN among the stage values makes every element that a position is asked of one, and the first of them is taken.
Accumulators hold where their stream begins, in a slot whose elements are all alike; kernels need not look for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from redalg.graph.node import MINUS_ONE, NEG_INF, ZERO, Node, compare, is_const, leaves, substitute, where
from redalg.graph.operators import Position, TopK
from redalg.graph.plan import COUNT, PassPlan, Plan, Slot

Known = Mapping[str, tuple[Slot, int]]  # parts of slots that are gone: the slot, and which part of it


def from_zero(plan: Plan) -> Plan:
    """An equal plan, on streams that start at 0, without slots for positions among elements that are all alike.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("u = max[j](y[j]); return at = argmax[j](abs(x[j] - u))"))
    >>> [len(plan.passes[0].slots) for plan in (form.plan, from_zero(form.plan))]
    [4, 3]
    """
    gone = [s for p in plan.passes for s in p.slots if isinstance(s.op, Position | TopK) and is_const(s.lift[0])]
    known = {part: (s, place) for s in gone for place, part in enumerate(s.parts)}
    names = {s.name for s in gone}
    if not gone or any(p.order and names >= set(p.order) for p in plan.passes):
        return plan
    passes = tuple(_without(p, names, known) for p in plan.passes)
    return replace(plan, passes=passes, outputs=tuple(o.map(lambda node: _read(node, known)) for o in plan.outputs))


def _read(node: Node, known: Known) -> Node:
    """The node with the values of slots that are gone."""
    found = {n: _value(n, *known[n.attr.name]) for n in leaves(node, "state") if n.attr.name in known}
    return substitute(node, found) if found else node


def _value(leaf: Node, slot: Slot, place: int) -> Node:
    if isinstance(slot.op, Position):
        return slot.lift[0] if place == 0 else ZERO
    rank = Node("index", (), leaf.attr.axes[-1])
    return where(compare("lt", rank, COUNT), *((slot.lift[0], NEG_INF) if place == 0 else (rank, MINUS_ONE)))


def _without(p: PassPlan, names: set[str], known: Known) -> PassPlan:
    slots = tuple(s for s in p.slots if s.name not in names)
    exports = tuple((name, _read(node, known)) for name, node in p.exports)
    return replace(p, slots=slots, order=tuple(name for name in p.order if name not in names), exports=exports)
