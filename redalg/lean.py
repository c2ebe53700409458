"""The lean form: slots that vanish at their anchors are dropped (theory, section 3.2).

With A the mean, Σ(x - A) is zero after every combine, so variance keeps M2 alone: Chan's merge, Welford's update. A
slot ρ vanishes when it is the numerator of its anchor's shift, A := A + ρ/W, and ρ/W is defined whenever ρ ≠ 0. That
holds over the reals only, which is why the accurate form is the default.
"""

from __future__ import annotations

from dataclasses import replace

from redalg.graph import ZERO, Node, leaves, walk
from redalg.plan import COUNT, Anchor, PassPlan, Plan, Slot
from redalg.signs import Signs
from redalg.symbolic import divisors, nonzero, positive_names, resolve


def lean_plan(plan: Plan) -> Plan | None:
    """The plan with vanishing slots marked and everything that reads them simplified; None if nothing vanishes."""
    passes = tuple(_lean_pass(p) for p in plan.passes)
    if passes == plan.passes:
        return None
    gone = _gone(passes[-1])
    outputs = tuple(replace(o, value=resolve(o.value, gone, {})) for o in plan.outputs)
    return replace(plan, passes=passes, outputs=outputs, obligations=())


def _gone(p: PassPlan) -> dict[str, Node]:
    return {part: ZERO for s in p.slots if s.vanishes for part in s.parts}


def _lean_pass(p: PassPlan) -> PassPlan:
    names = {found for a in p.anchors if (found := vanishing(a, p)) is not None}
    p = replace(p, slots=tuple(replace(s, vanishes=s.name in names) for s in p.slots))
    gone = _gone(p)
    slots = tuple(replace(s, moves=tuple(m for m in s.moves if m.slot not in names or s.vanishes)) for s in p.slots)
    anchors = tuple(replace(a, target=resolve(a.target, gone, {}) if a.target is not None else None) for a in p.anchors)
    return replace(p, slots=slots, anchors=anchors, exports=tuple((k, resolve(v, gone, {})) for k, v in p.exports))


def vanishing(anchor: Anchor, p: PassPlan) -> str | None:
    """The slot that is zero over the reals once the anchor has moved, or None.

    The shift must be that slot times factors that hold no slot in a numerator, and wherever a divisor W can be zero,
    every weight in W must be zero (weights of one sign) and be a factor of the slot's elements.
    """
    if anchor.policy != "mean" or anchor.shift is None or anchor.kind != "add":
        return None
    factors = anchor.shift.args if anchor.shift.op == "mul" else (anchor.shift,)
    slots = {s.leaf(): s for s in p.slots if s.kind == "sum"}
    numerators = [f for f in factors if f in slots]
    rest = [f for f in factors if f not in numerators]
    if len(numerators) != 1 or not all(_slot_free(f) for f in rest):
        return None
    residual = slots[numerators[0]]
    safe = all(_defined(d, residual, slots, positive_names(p)) for d in divisors(anchor.shift))
    return residual.name if safe else None


def _slot_free(factor: Node) -> bool:
    """No state leaf outside a divisor (the count is no slot)."""
    if factor.op == "pow" and factor.args[1].op == "const" and factor.args[1].attr < 0:
        return True
    return all(leaf is COUNT for leaf in leaves(factor, "state"))


def _defined(divisor: Node, residual: Slot, slots: dict[Node, Slot], positive: frozenset[str]) -> bool:
    if nonzero(divisor, positive):
        return True
    weights = slots.get(divisor)
    if weights is None or not Signs(()).nonnegative(weights.lift[0]):
        return False
    return _multiplies(weights.lift[0], residual.lift[0])


def _multiplies(weight: Node, body: Node) -> bool:
    """Whether the body is zero where the weight is: the weight is one of its factors, in every branch."""
    if body is weight or body is ZERO:
        return True
    if body.op == "where" and weight.op == "where" and body.args[0] is weight.args[0]:
        return all(_multiplies(w, b) for w, b in zip(weight.args[1:], body.args[1:], strict=True))
    if body.op == "add":
        return all(_multiplies(weight, term) for term in body.args)
    if body.op != "mul":
        return False
    have = list(body.args)
    needed = weight.args if weight.op == "mul" else (weight,)
    return all(f in have or f.op == "const" for f in needed) and not any(n.op == "special" for n in walk(body))
