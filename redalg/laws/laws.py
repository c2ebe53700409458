"""The laws a plan rests on, as unevaluated pairs of graph nodes (theory, section 6).

Pairs are built with the raw node constructor: nothing is simplified, so no law is "proved" by the act of writing it
down. A pair is about leaves (tensors at an element, anchors ``A`` and ``A'``, slots) under boolean assumptions;
``eq(size(j), L)`` among them fixes the length of the stream.

==  ====================================================================================================
O1  separation: F = Σ H_k(D)·G_k(x), per (sum, ×) stage
O2  transport of one element: φ(x; A') = T(A' - A)·φ(x; A), per slot that moves
O3  cocycle: T(h')·T(h) = T(h + h') and T(0) = I, per slot that moves
O4  ⊕ is associative, and commutative unless positions or the user say otherwise, per kind
O5  the action distributes over ⊕, per slot that moves
O6  ⊕ has its identity
O7  domain: the arguments of logarithms and the divisors a slot introduces are in their domain
O8  base and homomorphism: finalize(tree of combines of lifts) is the definition, for short streams
==  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redalg.algebra import state as symbolic
from redalg.algebra.components import components
from redalg.algebra.work import LAWS as LAWS_TESTED
from redalg.algebra.work import allowance
from redalg.errors import RedalgError
from redalg.graph.domains import conditions
from redalg.graph.node import (
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Node,
    Reduce,
    extend,
    leaves,
    size,
    state,
    substitute,
    walk,
)
from redalg.graph.operators import Additive, Custom, Extremum, Product
from redalg.graph.plan import (
    COUNT,
    NUMERIC,
    Anchor,
    MeanAnchor,
    Obligation,
    PassPlan,
    Plan,
    Slot,
)
from redalg.laws.check import refutations, together
from redalg.laws.monoids import distributive, kind_laws
from redalg.laws.streams import stream_laws

if TYPE_CHECKING:
    from redalg.language.spec import Spec


LAWS = {
    "O4": "combine is not {}",
    "O5": "{} does not distribute over combine",
    "O6": "identity is not neutral",
}
BUDGET = 5_000  # node evaluations for the obligations of a plan
LEAST = 5  # node evaluations for any one law, however many there are: what laws share is evaluated once
CAST_COMMUTES = "cast_commutes"  # the assumption that rounding commutes with rescaling


class InternalError(RedalgError):
    """An obligation of a derived form failed: an error of the engine, never of the spec."""

    left: object = None  # the two sides that differ
    right: object = None


def obligations(plan: Plan, spec: Spec | None = None) -> tuple[Obligation, ...]:
    """Every law of the plan; with the spec also that its folds equal the definition (O8)."""
    found = list(separations(plan))
    for p in plan.passes:
        found += transports(p)
        found += kind_laws(p)
        found += domains(p, plan)
    if spec is not None:
        found += stream_laws(plan, spec)
    if CAST_COMMUTES in dict(plan.assumptions):
        found = [_without_casts(pair) for pair in found]
    return tuple(found)


def _without_casts(pair: Obligation) -> Obligation:
    """The pair with every rounding left out, where the definition is a number then.

    What is assumed to commute is not tested, and neither are rows whose scale is 0: a cast in between keeps a scale
    from cancelling, without it the form may be defined where the definition divides by zero.
    """

    def exact(node: Node) -> Node:
        casts = [n for n in walk(node) if n.op == "cast"]
        for n in casts:  # innermost first; an outer cast is found again in its rewritten shape
            node = substitute(node, {n: n.args[0]}, raw=True)
        return exact(node) if casts else node

    left, right = exact(pair.left), exact(pair.right)
    return replace(pair, left=left, right=right, assumptions=(*pair.assumptions, Node("eq", (right, right))))


def verify_plan(spec: Spec, plan: Plan) -> None:
    """Test every obligation at random exact points; raise `InternalError` naming the first that fails.

    The draw is a function of the spec alone. `BUDGET` bounds the work in node evaluations: large forms get fewer
    points. A domain condition that the form names as an assumption is not expected to hold everywhere.

    Raises: Exhausted where stating and testing them takes more than a budget of operations.
    """
    with allowance(LAWS_TESTED, "operations in testing the laws of a form", doing="testing the laws of the form"):
        _verify(spec, plan)


def _verify(spec: Spec, plan: Plan) -> None:
    pairs, assumed = obligations(plan, spec), bool(dict(plan.assumptions).keys() - NUMERIC)
    share = max(LEAST, BUDGET // max(1, len(pairs)))
    expected = (pair for pair in pairs if not (pair.name == "O7" and assumed))
    for number, group in enumerate(together(expected)):
        found = refutations(group, seed=f"{spec.digest!r}:{number}", budget=share, partial=assumed)
        for pair, point in ((group[k], point) for k, (status, point) in found.items() if status == "refuted"):
            own = [s for p in plan.passes for s in p.slots if isinstance(s.op, Custom)]
            if own:  # the user's laws are obligations, not claims
                law = LAWS.get(pair.name, "a fold depends on its bracketing, {}").format(pair.note)
                raise RedalgError(
                    f"monoid {', '.join(sorted({s.op.monoid.name for s in own if isinstance(s.op, Custom)}))}",
                    f"form of {', '.join(spec.outputs)}",
                    f"{law}: {_counterexample(pair, point, own)}",
                    "give ra.Monoid an associative combine with its identity, and actions that distribute over it",
                )
            failure = InternalError(
                f"obligation {pair.name} of {pair.subject} does not hold",
                f"form of {', '.join(spec.outputs)}",
                f"{pair.note}; at {point}".removeprefix("; "),
                "this is an error in redalg, not in the spec; please report the spec",
            )
            failure.left, failure.right = point.get("left"), point.get("right")
            raise failure


def _counterexample(pair: Obligation, point: dict[str, Any], slots: Iterable[Slot]) -> str:
    """The values at which the sides differ, in the words of monoids: a0 is the first number of the first value."""
    names = {f"{part}_{side}": f"{side}{i}" for s in slots for i, part in enumerate(s.parts) for side in "abc"}
    read = {leaf.attr.name for side in (pair.left, pair.right) for leaf in leaves(side, "state", "tensor")}
    given = (f"{names.get(name, name)} = {v}" for name, v in sorted(point.items()) if name.split("[")[0] in read)
    return f"{point['left']} instead of {point['right']} where {', '.join(given)}"


# --- raw arithmetic ------------------------------------------------------------------------------------------------


def raw_add(*terms: Node) -> Node:
    return terms[0] if len(terms) == 1 else Node("add", terms)


def raw_mul(*factors: Node) -> Node:
    return factors[0] if len(factors) == 1 else Node("mul", factors)


def primed(leaf: Node, primes: int) -> Node:
    return state(leaf.attr.name + "'" * primes, leaf.attr.axes, leaf.attr.domain)


# --- O1 ------------------------------------------------------------------------------------------------------------


def separations(plan: Plan) -> Iterator[Obligation]:
    """F = Σ H·G for every stage with a rank factorisation, at every element of a stream that gives the D."""
    whole = {COUNT: size(plan.axis)}  # the context is that of a whole stream
    for stage in plan.stages:
        body = stage.node
        if body.op != "reduce" or body.attr.kind != "sum" or not stage.generators:
            continue
        terms = [_contracted(raw_mul(h, g)) for h, g in zip(stage.coefficients, stage.generators, strict=True)]
        left, right = (extend((side,), whole, raw=True)[side] for side in (body.args[0], raw_add(*terms)))
        yield Obligation("O1", stage.name, left, right, note=f"rank {stage.rank}")


def _contracted(term: Node) -> Node:
    """A contraction inside a body whose sums were swapped: its axes have fresh names and are summed last."""
    fresh = tuple(sorted(a for a in term.axes if "~" in a))
    return Node("reduce", (term,), Reduce("sum", fresh)) if fresh else term


# --- O2, O3, O5 ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chain:
    """The anchors of a pass at successive times, and what is known of them there."""

    times: tuple[dict[str, Node], ...]
    assumptions: tuple[Node, ...]


def chain(p: PassPlan, length: int) -> Chain:
    """Anchors at `length` times. A mean anchor is free; an extremum anchor is the target of slots that only grow."""
    times: list[dict[str, Node]] = []
    facts: dict[Node, None] = {}
    axes = symbolic.declared_axes(p)
    for t in range(length):
        slots = {part: primed(s.leaf(i), t) for s in p.slots for i, part in enumerate(s.parts)}
        at = symbolic.Resolver(slots, axes, raw=True)
        now = {a.name: primed(a.leaf, t) if isinstance(a, MeanAnchor) else at(a.target) for a in p.anchors}
        times.append(now)
        facts |= dict.fromkeys(Node("ne", (now[a.name], ZERO)) for a in p.anchors if a.divides)
    first = symbolic.Resolver(times[0], axes, raw=True)
    for s in _order_slots(p):
        sequence = [first(s.lift[0])]
        sequence += [primed(s.leaf(), t) for t in range(length)]
        ordered = zip(sequence, sequence[1:], strict=False)
        facts |= dict.fromkeys(Node("le", (lo, hi) if s.kind == "max" else (hi, lo)) for lo, hi in ordered)
    return Chain(tuple(times), tuple(facts))


def _order_slots(p: PassPlan) -> list[Slot]:
    """The max and min slots that extremum anchors are computed from."""
    read = {leaf for a in p.anchors if not isinstance(a, MeanAnchor) for leaf in leaves(a.target, "state")}
    return [s for s in p.slots if isinstance(s.op, Extremum) and s.leaf() in read]


def step(anchor: Anchor, old: Node, new: Node) -> Node:
    """The raw shift of an anchor between two times."""
    if anchor.divides:
        return raw_mul(old, Node("pow", (new, MINUS_ONE)))
    return raw_add(new, raw_mul(MINUS_ONE, old))


def shifts(p: PassPlan, old: dict[str, Node], new: dict[str, Node]) -> dict[str, Node]:
    """What a move reads: the shift of every anchor, and the units at the time it moves to."""
    units = {a.name: new[a.name] for a in p.units}
    return {f"shift:{a.name}": step(a, old[a.name], new[a.name]) for a in p.anchors} | units


def transported(slot: Slot, by: symbolic.Resolver, values: dict[str, Node]) -> Node:
    """Σ T·u, unevaluated; the count stands for the constant function 1 (its mean, in an averaged slot)."""
    if isinstance(slot.op, Product):  # the number of factors of an element: 1, or 0 under a mask
        by = symbolic.Resolver(values | dict(by.values), by.axes, raw=True)
    return raw_add(*(raw_mul(by(m.coefficient), values[m.slot]) for m in slot.moves))


def transports(whole: PassPlan) -> Iterator[Obligation]:
    """O2, O3 and O5 of every slot that moves, over what is tied to it."""
    for p in components(whole):
        if not any(s.vanishes for s in p.slots):
            yield from _transports(p)  # (a lean form's slots move correctly on the anchors it can reach, says O8)


def _transports(p: PassPlan) -> Iterator[Obligation]:
    axes = symbolic.declared_axes(p)
    moving = [s for s in p.slots if s.moves]
    if not moving:
        return
    two, three = chain(p, 2), chain(p, 3)
    at_now, at_then = (symbolic.Resolver(time, axes, raw=True) for time in two.times)
    elements = {s.name: at_now(s.lift[0]) for s in p.slots} | {COUNT.attr.name: ONE}
    by, cocycle = symbolic.Resolver(shifts(p, *two.times), axes, raw=True), _Cocycle(p, three)
    for slot in moving:
        moved = transported(slot, by, elements)
        yield Obligation("O2", slot.name, at_then(slot.lift[0]), moved, assumptions=two.assumptions)
        yield from cocycle(slot)
        if isinstance(slot.op, Product):
            continue  # (u·v)·t^(m+n) = (u·t^m)·(v·t^n) for whole numbers m and n
        yield from distributive(slot, [by(m.coefficient) for m in slot.moves], two.assumptions)


class _Cocycle:
    """O3 of the slots of a pass: from the first of three times to the second and on to the third."""

    def __init__(self, p: PassPlan, three: Chain) -> None:
        self.slots, self.assumptions, axes = p.slots, three.assumptions, symbolic.declared_axes(p)
        a, b, c = three.times
        there = (shifts(p, a, b), shifts(p, b, c), shifts(p, a, c), {f"shift:{x.name}": x.still for x in p.anchors})
        self.there = tuple(symbolic.Resolver(by, axes, raw=True) for by in there)
        self.values = {s.name: s.leaf() for s in p.slots} | {COUNT.attr.name: COUNT}
        first = self.there[0]
        self.first = {s.name: transported(s, first, self.values) if s.moves else s.leaf() for s in p.slots}

    def __call__(self, slot: Slot) -> Iterator[Obligation]:
        values, first = self.values, self.first
        one, two, whole, still = self.there
        if isinstance(slot.op, Product):  # t(h')·t(h) = t(h + h'), and so for every whole power of them
            values = values | {s.name: ONE for s in self.slots if isinstance(s.op, Additive)} | {COUNT.attr.name: ONE}
            first = values | {slot.name: transported(slot, one, values)}
        twice = transported(slot, two, first | {COUNT.attr.name: values[COUNT.attr.name]})
        once, note = transported(slot, whole, values), "T(h')·T(h) = T(h + h')"
        yield Obligation("O3", slot.name, twice, once, assumptions=self.assumptions, note=note)
        yield Obligation("O3", slot.name, transported(slot, still, values), slot.leaf(), note="T(0) = I")


# --- O7 ------------------------------------------------------------------------------------------------------------


def domains(p: PassPlan, plan: Plan) -> Iterator[Obligation]:
    """Logarithms, roots and divisors that a slot's elements contain and no stage's body does.

    They need hold only where those of the definition do. What later passes read of earlier ones is a constant there, in
    the place where the definition has it.
    """
    handed = {name for q in plan.passes for name, _ in q.exports}
    written = _conditions_below(stage.node for stage in plan.stages)
    written |= dict.fromkeys(Node("ne", (a.leaf, ZERO)) for a in p.anchors if a.divides)
    now, axes = chain(p, 1), symbolic.declared_axes(p)
    held = symbolic.Resolver(now.times[0], axes, raw=True)
    free = symbolic.Resolver({a.name: a.leaf for a in p.anchors}, axes, raw=True)
    note = "; ".join(text for _, text in plan.assumptions)
    for slot in p.slots:
        at = free if isinstance(slot.op, Product) else held
        for body in slot.lift:
            for condition in _conditions_below([at(body)]):
                if condition in written or handed & {leaf.attr.name for leaf in leaves(condition, "state")}:
                    continue
                assumptions = (*now.assumptions, *_about_the_same(condition, written))
                yield Obligation("O7", slot.name, condition, TRUE, "observational", assumptions, note)


def _conditions_below(roots: Iterable[Node]) -> dict[Node, None]:
    return dict.fromkeys(c for n in walk(*roots) for c in conditions(n))


def _about_the_same(condition: Node, conditions: Iterable[Node]) -> tuple[Node, ...]:
    """Those of the conditions that read a tensor or an index which `condition` reads."""
    read = set(leaves(condition, "tensor", "index"))
    return tuple(c for c in conditions if not read.isdisjoint(leaves(c, "tensor", "index")))
