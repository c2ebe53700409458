"""Rows without a valid element, for outputs with an ``empty=`` value, read from the state.

`redalg.graph.masked.masked_row` writes the condition over extrema and any/all of the definition. Most of them are slots
of the
form already (the maximum of the scores of attention); what is not becomes a slot of the runtime. A condition whose
masks depend on reductions over the axis gets a plan of its own (`redalg.streaming.masked_plan`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.engine.normalise import normalise
from redalg.graph.masked import masked_row
from redalg.graph.node import FALSE, ONE, Node, substitute, walk
from redalg.graph.operators import Quantifier, operator
from redalg.graph.plan import PassPlan, Plan, Slot
from redalg.streaming.masked_plan import beside

if TYPE_CHECKING:
    from redalg.language.spec import Spec

Masked = tuple[tuple[str, Node], ...]  # output -> Boolean node over state parts


def with_masked(spec: Spec, plan: Plan) -> tuple[Plan, Masked]:
    """The plan with the slots the conditions need beside its own, and the condition of each output that has one."""
    conditions = {name: masked_row(spec.outputs[name]) for name in spec.empty}
    if not conditions or not plan.passes:
        return plan, tuple((name, c) for name, c in conditions.items() if c is not FALSE)
    nested = {name: c for name, c in conditions.items() if _is_nested(c, plan.axis)}
    over_state: dict[str, Node] = {}
    if nested:
        plan, over_state = beside(spec, plan, nested)
    slots: list[Slot] = list(plan.passes[-1].slots)
    for name, condition in conditions.items():
        if name not in nested:
            mapping = {stage: _slot_leaf(stage, slots, plan.axis, spec.axes) for stage in _stages(condition, plan.axis)}
            mapping |= {n: ONE for n in walk(condition) if n.op == "size" and n.attr in plan.axis}  # one was seen
            over_state[name] = substitute(condition, mapping)
    plan = replace(plan, passes=(*plan.passes[:-1], _with_slots(plan.passes[-1], slots)))
    return plan, tuple((name, over_state[name]) for name in spec.empty if over_state[name] is not FALSE)


def _stages(condition: Node, axis: tuple[str, ...]) -> list[Node]:
    return [n for n in walk(condition) if n.op == "reduce" and n.attr.axes == axis]


def _is_nested(condition: Node, axis: tuple[str, ...]) -> bool:
    """Whether a mask depends on another reduction over the axis."""
    stages = _stages(condition, axis)
    return any(inner in walk(*stage.args) for stage in stages for inner in stages)


def _slot_leaf(stage: Node, slots: list[Slot], axis: tuple[str, ...], order: tuple[str, ...]) -> Node:
    op = operator(stage.attr.kind, stage.attr.extra)
    wanted = {stage.args, normalise(stage, axis).args}
    for slot in slots:
        if slot.op == op and slot.lift in wanted and not slot.vanishes:
            return slot.leaf()
    axes = tuple(a for a in order if a in stage.axes)
    name = f"void{len(slots)}"
    domain = frozenset({"bool"}) if isinstance(op, Quantifier) else frozenset()
    slots.append(Slot(name, op, axes, stage.args, (name,), domain, meaning="whether a row has a valid element"))
    return slots[-1].leaf()


def _with_slots(p: PassPlan, slots: list[Slot]) -> PassPlan:
    new = tuple(s.name for s in slots[len(p.slots) :])
    return replace(p, slots=tuple(slots), order=(*p.order, *new))
