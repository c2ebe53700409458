"""From the values of a cascade to a pass plan: choose anchors, rerun the cascade over centred slots, emit nodes.

Expressions are emitted in differences: a centred element is ``x - A`` before anything else is added to it, a mean is
``A + residual``, exponentials are merged before they are taken (theory, section 3.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from redalg import graph as g
from redalg import normal as nf
from redalg.anchoring import choose
from redalg.building import SlotBackend
from redalg.cascade import Cascade, RawBackend
from redalg.choices import Choice, Choices
from redalg.emitting import Emitter, in_order
from redalg.graph import Node
from redalg.plan import COUNT, IN_RANGE, MODERATE, Anchor, PassPlan, Slot
from redalg.printing import short
from redalg.scaling import in_units
from redalg.signs import linear


def build_pass(
    raw: Cascade,
    backend: RawBackend,
    nodes: list[Node],
    export: Callable[[Node], Node],
    axis_order: tuple[str, ...],
    taken: frozenset[str],
    written: list[Node] | None = None,
    conditions: list[Node] | None = None,
) -> tuple[PassPlan, list[Node], dict[str, str]]:
    """The plan of one pass that computes `nodes` and `conditions`, all of these over its state, and what is assumed
    for want of anchors.

    `written`: the nodes as the spec has them, where `nodes` are already rewritten.
    """
    conditions = conditions or []
    stages = _needed(raw, [*nodes, *conditions])
    choices = choose(raw, backend, stages, nodes)
    left_out: list[Choice] = []
    while True:  # an anchor less each time
        try:
            built = _build(raw, nodes, stages, choices, export, axis_order, taken, written or nodes, conditions)
            return *built, _assumed(left_out)
        except Unresolved as obstacle:
            left_out.append(obstacle.culprit(choices))
            choices = choices.without(left_out[-1])


class Unresolved(Exception):
    """Centring has hidden a cancellation in a stage that the raw analysis saw, or anchors wait for each other."""

    def __init__(self, stage: Node | None = None, waiting: Iterable[Choice] = ()) -> None:
        super().__init__()
        self.stage, self.waiting = stage, tuple(waiting)

    def culprit(self, choices: Choices) -> Choice:
        """The anchor to do without: one that the obstacle involves, of an element rather than of an exponential."""
        inside = set(g.walk(self.stage)) if self.stage is not None else set()
        found = list(self.waiting) or [c for c in choices.all() if c.generator in inside] or choices.all()
        exponents = choices.exponents.values()
        return min(found, key=lambda c: c in exponents)


def _assumed(left_out: list[Choice]) -> dict[str, str]:
    """The named assumptions under which a form does without some anchors."""
    texts = {
        IN_RANGE: "exponentials of {} are summed as they are, for no anchor could be had: they must not overflow",
        MODERATE: "powers of {} are summed as they are, for no anchor could be had: far from 0 they lose digits",
    }
    found: dict[str, list[str]] = {}
    for c in left_out:
        name = IN_RANGE if c.policy == "extremum" and c.kind == "add" else MODERATE
        found.setdefault(name, []).append(short(c.generator))
    return {name: texts[name].format(", ".join(what)) for name, what in found.items()}


def _needed(raw: Cascade, nodes: list[Node]) -> list[Node]:
    """Stages whose values the nodes need, dependencies first."""
    return [n for n in g.walk(*nodes) if raw.scope.is_stage(n) and raw.value(n).blocked is None]


def _build(
    raw: Cascade,
    nodes: list[Node],
    stages: list[Node],
    choices: Choices,
    export: Callable[[Node], Node],
    axis_order: tuple[str, ...],
    taken: frozenset[str],
    written: list[Node],
    conditions: list[Node],
) -> tuple[PassPlan, list[Node]]:
    slots = SlotBackend(choices, raw.axis, axis_order, averaged_stages=_averaged(stages, nodes, raw.axis))
    slots.names |= taken
    hidden = [c.target for c in choices.exponents.values() if c.target is not None]
    hidden += [u.target for u in choices.units.found]
    final = Cascade([*stages, *_extrema(hidden)], raw.axis, raw.scope.known, slots, raw.commute)
    slots.separator_poly = final.separator.poly
    for s in stages:
        if final.value(s).blocked:
            raise Unresolved(stage=s)
    emit = Emitter(final, export)
    emitted = [_guarded(n, emit.result(n), final, emit) for n in nodes]
    guards = [emit(n) for n in conditions]
    anchors = slots.anchors(final.separator, emit)
    built = [_emitted_slot(s, emit) for s in slots.closed()]
    emitted = [_poisoned(n, v, _live(anchors, built, [v])[1], final) for n, v in zip(written, emitted, strict=True)]
    emitted += guards
    built += [s for s in slots.others.values() if s.name not in {b.name for b in built}]
    anchors, built = _live(anchors, built, emitted)
    _check_closed(anchors, built, emitted, raw.scope.known)
    order = _order(anchors, built)
    if order is None:
        raise Unresolved(
            waiting=[site.choice for site in slots.sites.values() if site.name in {a.name for a in anchors}]
        )
    plan = PassPlan(tuple(anchors), tuple(built), order)
    known = slots.held((*slots.sums.values(), *slots.others.values()))
    return plan, in_units([in_order(n, anchors) for n in emitted], known)


def _guarded(node: Node, value: Node, cascade: Cascade, emit: Emitter) -> Node:
    """NaN where the definition divides by zero and the form may not tell: a pole that has cancelled is 0·oo there, and
    poles of several orders are oo - oo."""
    for divisor, written in _divisors(node, cascade).items():
        base = emit(divisor)
        inner = sorted(base.axes - node.axes)  # one group without weight among those that a contraction sums over
        if not cascade.signs.positive(base) and (inner or len(written) > 1 or _orders(value, base) != written):
            zero = g.compare("eq", base, g.ZERO)
            value = g.where(g.reduction("any", inner, zero) if inner else zero, g.special("nan"), value)
    return value


def _poisoned(node: Node, value: Node, slots: list[Slot], cascade: Cascade) -> Node:
    """NaN in, NaN out, also where an input has cancelled altogether: Σ(x - mean x) is 0 for numbers only."""
    read = {leaf for s in slots for x in s.lift for leaf in g.leaves(x)} | set(g.leaves(value))
    bodies = [b for n in calculated(node) if cascade.scope.is_stage(n) for b in n.args]
    if node.is_boolean or node.op == "reduce" and node.attr.kind in ("argmax", "argmin", "topk_indices"):
        return value
    for leaf in sorted((n for n in calculated(*bodies) if n.op == "tensor"), key=lambda n: n.digest):
        if leaf in read or not cascade.scope.varies(leaf) or leaf.attr.domain & {"bool", "integer"}:
            continue
        exponents = {x for b in bodies for n in g.walk(b) if n.op == "exp" for x in g.leaves(n)}
        gap = leaf if leaf in exponents else Node("add", (leaf, g.neg(leaf)))  # oo - oo is NaN, exp(-oo) is 0
        inner = sorted(gap.axes - cascade.scope.axes - node.axes)
        gap = g.reduction("sum", inner, gap) if inner else gap  # an output without an axis is broken by any place of it
        broken = cascade.backend.slot("any", Node("ne", (gap, gap)))
        value = g.where(broken, g.special("nan"), value)
    return value


def calculated(*roots: Node) -> list[Node]:
    """Nodes whose values enter a calculation; a comparison with NaN is false, and that is no NaN."""
    found: dict[Node, None] = {}
    stack = list(reversed(roots))
    while stack:
        n = stack.pop()
        if n in found or n.is_boolean and n.op not in ("tensor", "reduce"):
            continue
        found[n] = None
        stack.extend(n.args)
    return list(found)


def _orders(value: Node, base: Node) -> set[Fraction]:
    """The orders of the poles at base = 0 that an expression shows."""
    target = _primitive(base)
    nodes = list(g.walk(value))
    poles = {n for n in nodes if _is_division(n) and _primitive(n.args[0]) == target}
    holders = set(poles)
    for n in nodes:
        if any(a in holders for a in n.args):
            holders.add(n)
    found: set[Fraction] = set()
    seen: set[tuple[Node, Fraction]] = set()
    stack = [(value, Fraction(0))]
    while stack:
        n, order = stack.pop()
        if (n, order) in seen:
            continue
        seen.add((n, order))
        if n in poles:
            found.add(order + n.args[1].attr)
        elif n not in holders:
            if order:
                found.add(order)
        elif n.op == "mul":
            order += sum((f.args[1].attr for f in n.args if f in poles), Fraction(0))
            inner = [f for f in n.args if f in holders and f not in poles]
            stack += [(f, order) for f in inner]
            if not inner:
                found.add(order)
        else:
            stack += [(a, order) for a in n.args if a in holders or n.op == "add"]
    return found


def _divisors(node: Node, cascade: Cascade) -> dict[Node, set[Fraction]]:
    """Stage values by which the bodies of the node's stages divide, with the powers; not those known to be positive."""
    bodies = [n.args[0] for n in g.walk(node) if cascade.scope.is_stage(n) and not cascade.value(n).selective]
    found: dict[Node, set[Fraction]] = {}
    for n in g.walk(*bodies):
        d = n.args[0] if _is_division(n) else COUNT
        if d is not COUNT and cascade.scope.uses(d) and not cascade.scope.varies(d) and not cascade.signs.positive(d):
            found.setdefault(d, set()).add(n.args[1].attr)
    return found


def _is_division(node: Node) -> bool:
    return node.op == "pow" and node.args[1].op == "const" and bool(node.args[1].attr < 0)


def _primitive(node: Node) -> frozenset[tuple[Node, Fraction]]:
    """The node up to a positive rational factor and powers of the count."""
    if node.op == "mul":
        node = g.mul(*(f for f in node.args if f is not COUNT and not (f.op == "pow" and f.args[0] is COUNT)))
    terms = linear(node)
    lead = terms[min(terms, key=lambda n: n.digest)]
    return frozenset((n, c / lead) for n, c in terms.items()) if lead else frozenset()


def _extrema(nodes: Iterable[Node]) -> list[Node]:
    return [n for n in g.walk(*nodes) if n.op == "reduce" and n.attr.kind in ("max", "min")]


def _emitted_slot(slot: Slot, emit: Emitter) -> Slot:
    """Values of earlier passes inside a lift become exports; state leaves stay."""
    from dataclasses import replace

    return replace(slot, lift=tuple(emit(x) for x in slot.lift)) if emit.cascade.scope.known else slot


def _averaged(stages: list[Node], nodes: list[Node], axis: tuple[str, ...]) -> frozenset[Node]:
    """Sums that are only ever used divided by the count, also under a root: S/n, sqrt(S)/sqrt(n)."""
    products = [n for n in g.walk(*nodes) if n.op == "mul" and _count_power(n) < 0]
    divided = {a: True for n in products for a in n.args if _power_of(a) == -_count_power(n)}
    used_bare: set[Node] = set(nodes)
    for n in g.walk(*nodes):
        for a in n.args:
            if not (n in divided and n.op == "pow") and not (n in products and a in divided):
                used_bare.add(a)
    sums = {s for s in stages if s.attr.kind == "sum"}
    held = {a.args[0] if a.op == "pow" else a for a in divided if a not in used_bare}
    return frozenset(s for s in sums if s in held and s not in used_bare)


def _power_of(factor: Node) -> Fraction:
    if factor.op != "pow":
        return Fraction(1)
    return factor.args[1].attr if factor.args[1].op == "const" else Fraction(0)


def _count_power(product: Node) -> Fraction:
    return next((_power_of(f) for f in product.args if f is COUNT or f.op == "pow" and f.args[0] is COUNT), Fraction(0))


def _live(anchors: list[Anchor], slots: list[Slot], nodes: list[Node]) -> tuple[list[Anchor], list[Slot]]:
    """Only what the results need, directly or through moves, targets and shifts."""
    by_part = {p: s for s in slots for p in s.parts}
    by_slot = {s.name: s for s in slots}
    by_anchor = {a.name: a for a in anchors}
    needed: set[str] = set()
    stack = [leaf.attr.name for n in nodes for leaf in g.leaves(n, "state")]
    while stack:
        name = stack.pop()
        if name in by_anchor and name not in needed:
            needed.add(name)
            a = by_anchor[name]
            expr = [e for e in (a.target, a.shift) if e is not None]
            stack.extend(leaf.attr.name for e in expr for leaf in g.leaves(e, "state"))
        slot = by_part.get(name) or by_slot.get(name)
        if slot is not None and slot.name not in needed:
            needed.add(slot.name)
            stack.extend([*slot.anchors, *(m.slot for m in slot.moves)])
            stack += [x.attr.name for m in slot.moves for x in g.leaves(m.coefficient, "state") if x is not COUNT]
    return [a for a in anchors if a.name in needed], [s for s in slots if s.name in needed]


def _check_closed(anchors: list[Anchor], slots: list[Slot], nodes: list[Node], known: frozenset[Node]) -> None:
    """Every state leaf that is read is a part of the state, a shift or an export."""
    parts = {"n", *(a.name for a in anchors), *(p for s in slots for p in s.parts)}
    read = [*nodes, *(x for s in slots for x in (*s.lift, *(m.coefficient for m in s.moves)))]
    read += [e for a in anchors for e in (a.target, a.shift) if e is not None]
    for leaf in g.walk(*read):
        if leaf.op == "state" and leaf.attr.name not in parts and not leaf.attr.name.startswith(("shift:", "known")):
            raise AssertionError(f"the plan reads {leaf.attr.name}, which nothing computes")


def _order(anchors: list[Anchor], slots: list[Slot]) -> tuple[str, ...] | None:
    """Every name after what it is computed from; an anchor on its own residual precedes the slots it centres.

    None where anchors wait for each other.
    """
    owner = {p: s.name for s in slots for p in s.parts}
    by_slot = {s.name: s for s in slots}
    waits: dict[str, set[str]] = {s.name: set(s.anchors) for s in slots}
    for a in anchors:
        waits[a.name] = set()
        if a.target is not None:
            waits[a.name] |= {owner.get(x.attr.name, x.attr.name) for x in g.leaves(a.target, "state")}
        if a.shift is not None:
            for leaf in g.leaves(a.shift, "state"):
                slot = by_slot.get(owner.get(leaf.attr.name, ""))
                waits[a.name] |= set(slot.anchors if slot else ()) - {a.name}
    known = set(waits)
    order: list[str] = []
    while len(order) < len(waits):
        ready = sorted(n for n in waits if n not in order and not (waits[n] & known) - set(order))
        if not ready:
            return None
        order.append(ready[0])
    return tuple(order)


__all__ = ["Emitter", "Unresolved", "build_pass", "in_order", "nf"]
