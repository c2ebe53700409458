"""The lean form: slots that vanish at their anchors are dropped (theory, section 3.2).

With A the mean, Σ(x - A) is zero after every combine, so variance keeps M2 alone: Chan's merge, Welford's update. A
slot ρ vanishes when it is the numerator of its anchor's shift, A := A + ρ/W, and W is never 0. That
holds over the reals only, which is why the accurate form is the default.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.algebra.state import divisors, nonzero, positive_names, resolve
from redalg.graph.node import ZERO, Node, is_inverse, leaves
from redalg.graph.operators import Additive
from redalg.graph.plan import COUNT, MeanAnchor, PassPlan, Plan


def lean_plan(plan: Plan) -> Plan | None:
    """The plan with vanishing slots marked and everything that reads them simplified; None if nothing vanishes."""
    passes = tuple(_lean_pass(p) for p in plan.passes)
    if passes == plan.passes:
        return None
    gone = _gone(passes[-1])
    outputs = tuple(o.map(lambda node: resolve(node, gone, {})) for o in plan.outputs)
    return replace(plan, passes=passes, outputs=outputs, obligations=())


def _gone(p: PassPlan) -> dict[str, Node]:
    return {part: ZERO for s in p.slots if s.vanishes for part in s.parts}


def _lean_pass(p: PassPlan) -> PassPlan:
    vanished = {a.name: vanishing(a, p) for a in p.means}
    names = {name for name in vanished.values() if name is not None}
    p = replace(p, slots=tuple(replace(s, vanishes=s.name in names) for s in p.slots))
    gone = _gone(p)
    slots = tuple(replace(s, moves=tuple(m for m in s.moves if m.slot not in names or s.vanishes)) for s in p.slots)
    anchors = tuple(
        replace(a, follows=vanished[a.name] is not None)
        if isinstance(a, MeanAnchor)
        else replace(a, target=resolve(a.target, gone, {}))
        for a in p.anchors
    )
    return replace(p, slots=slots, anchors=anchors, exports=tuple((k, resolve(v, gone, {})) for k, v in p.exports))


def vanishing(anchor: MeanAnchor, p: PassPlan) -> str | None:
    """The slot that is zero over the reals once the anchor has moved, or None.

    The shift must be that slot times factors that hold no slot in a numerator, and no divisor of it may ever be zero:
    where Σw = 0 the anchor stays put, and dropping the residual would turn the definition's 0/0 into a number.
    """
    factors = anchor.shift.args if anchor.shift.op == "mul" else (anchor.shift,)
    slots = {s.leaf(): s for s in p.slots if isinstance(s.op, Additive)}
    numerators = [f for f in factors if f in slots]
    rest = [f for f in factors if f not in numerators]
    if len(numerators) != 1 or not all(_slot_free(f) for f in rest):
        return None
    safe = all(nonzero(d, positive_names(p)) for d in divisors(anchor.shift))
    return slots[numerators[0]].name if safe else None


def _slot_free(factor: Node) -> bool:
    """No state leaf outside a divisor (the count is no slot)."""
    if is_inverse(factor):
        return True
    return all(leaf is COUNT for leaf in leaves(factor, "state"))
