"""Rows without a valid element, for outputs with an ``empty=`` value, read from the state.

`redalg.void.void_row` writes the condition over extrema and any/all of the definition. Most of them are slots of the
form already (the maximum of the scores of attention); what is not becomes a slot of the runtime.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.graph import FALSE, ONE, Node, substitute, walk
from redalg.normalising import normalise
from redalg.plan import PassPlan, Plan, Slot
from redalg.void import void_row

if TYPE_CHECKING:
    from redalg.spec import Spec

Voids = tuple[tuple[str, Node], ...]  # output -> Boolean node over state parts


def with_voids(spec: Spec, plan: Plan) -> tuple[Plan, Voids]:
    """The plan with the slots the conditions need beside its own, and the condition of each output that has one."""
    if not spec.empty or not plan.passes:
        return plan, ()
    slots: list[Slot] = list(plan.passes[-1].slots)
    found = []
    for name in spec.empty:
        condition = void_row(spec.outputs[name])
        stages = [n for n in walk(condition) if n.op == "reduce" and n.attr.axes == plan.axis]
        if any(inner in walk(*stage.args) for stage in stages for inner in stages):
            continue  # a mask that depends on another reduction: no row is known to be void
        mapping = {stage: _slot_leaf(stage, slots, plan.axis, spec.axes) for stage in stages}
        mapping |= {n: ONE for n in walk(condition) if n.op == "size" and n.attr in plan.axis}  # an element was seen
        over_state = substitute(condition, mapping)
        if over_state is not FALSE:
            found.append((name, over_state))
    return replace(plan, passes=(*plan.passes[:-1], _with_slots(plan.passes[-1], slots))), tuple(found)


def _slot_leaf(stage: Node, slots: list[Slot], axis: tuple[str, ...], order: tuple[str, ...]) -> Node:
    kind = stage.attr.kind
    wanted = {stage.args, normalise(stage, axis).args}
    for slot in slots:
        if slot.kind == kind and slot.lift in wanted and not slot.vanishes and not slot.ignore_nan:
            return slot.leaf()
    axes = tuple(a for a in order if a in stage.axes)
    name = f"void{len(slots)}"
    domain = frozenset({"bool"}) if kind in ("any", "all") else frozenset()
    slots.append(Slot(name, kind, axes, stage.args, (name,), domain, meaning="whether a row has a valid element"))
    return slots[-1].leaf()


def _with_slots(p: PassPlan, slots: list[Slot]) -> PassPlan:
    new = tuple(s.name for s in slots[len(p.slots) :])
    return replace(p, slots=tuple(slots), order=(*p.order, *new))
