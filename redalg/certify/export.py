"""From a form to its certificate: the plan's nodes become the terms of a document that stands on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from redalg.engine.reads import live
from redalg.graph import plan as plans
from redalg.graph.node import Node, substitute, walk
from redalg.graph.operators import Binary, Custom, TopK
from redalg.graph.plan import COUNT, NUMERIC, PassPlan, Plan, Slot, nodes_of
from redalg.proofs.checker.check import superfluous
from redalg.proofs.checker.required import required
from redalg.proofs.document.document import Anchor, Document, Monoid, Move, Output, Pass, Stage
from redalg.proofs.document.document import Slot as SlotRecord
from redalg.proofs.document.terms import Leaf, Reduction, Term, Terms

if TYPE_CHECKING:
    from redalg.language.spec import Spec


def document(spec: Spec, plan: Plan) -> Document:
    """The document of a form: its spec, its parts, and every obligation they entail."""
    doc = unstated(spec, plan)
    needed = required(doc)
    spare = superfluous(doc, needed) if doc.assumptions else []  # a certificate claims no more than it needs
    return replace(doc, obligations=needed, assumptions=tuple(a for a in doc.assumptions if a not in spare))


def unstated(spec: Spec, plan: Plan) -> Document:
    """The document of a form without its obligations, under all assumptions of the plan."""
    return Export(spec, of_values(plan)).document()


def of_values(plan: Plan) -> Plan:
    """The plan without what guards alone read: where they do not hold, the definition is not what is computed, and its
    laws say nothing of what they ask."""
    if all(o.guard is None for o in plan.outputs):
        return plan
    roots, passes = [o.value for o in plan.outputs], list[PassPlan]()
    for p in reversed(plan.passes):
        anchors, slots = live(p.anchors, p.slots, [*roots, *(n for _, n in p.exports)])
        names = {x.name for x in (*anchors, *slots)}
        order = tuple(name for name in p.order if name in names)
        passes.insert(0, replace(p, anchors=tuple(anchors), slots=tuple(slots), order=order))
        roots += nodes_of(passes[0])
    return replace(plan, passes=tuple(passes))


class Export:
    """Copies nodes into terms; nothing is simplified on the way."""

    def __init__(self, spec: Spec, plan: Plan) -> None:
        self.spec, self.plan, self.terms = spec, plan, Terms()
        self.done: dict[Node, Term] = {}
        self.monoids: list[Any] = []

    def __call__(self, root: Node) -> Term:
        done = self.done
        for n in walk(root, done=done) if root not in done else ():
            done[n] = self.terms(n.op, *[done[a] for a in n.args], attr=self._attr(n))
        return done[root]

    def _attr(self, n: Node) -> Any:
        if n.op in ("tensor", "state"):
            return Leaf(n.attr.name, n.attr.axes, n.attr.domain)
        if n.op != "reduce":
            return n.attr
        extra = n.attr.extra
        if n.attr.kind == "monoid":
            extra = (self.monoid(extra[0]), extra[1])
        return Reduction(n.attr.kind, n.attr.axes, extra)

    def monoid(self, m: Any) -> int:
        if m not in self.monoids:
            self.monoids.append(m)
        return self.monoids.index(m)

    def all(self, nodes: Any) -> tuple[Term, ...]:
        return tuple(self(n) for n in nodes)

    def document(self) -> Document:
        spec = {name: self(n) for name, n in self.spec.outputs.items()}
        empty = {o.name: self._empty(o.empty) for o in self.plan.outputs if o.empty is not None}
        passes = tuple(self._pass(p) for p in self.plan.passes)
        outputs = tuple(Output(o.name, self(o.value), o.axes, o.keeps_axis) for o in self.plan.outputs)
        whole = {self(COUNT): self.terms.size(self.plan.axis)}
        stages = tuple(self._stage(s, whole) for s in self.plan.stages)
        names = tuple(dict.fromkeys(name for name, _ in self.plan.assumptions if name not in NUMERIC))
        monoids = tuple(self._monoid(m) for m in self.monoids)
        return Document(self.terms, self.plan.axis, spec, empty, passes, outputs, stages, names, monoids)

    def _empty(self, value: Any) -> Term:
        if isinstance(value, Node):
            return self(value)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            return self.terms.special("oo" if value > 0 else "-oo")
        return self.terms.special("nan") if value != value else self.terms.const(value)

    def _monoid(self, m: Any) -> Monoid:
        actions = tuple((name, self.all(nodes)) for name, nodes in m.acted)
        return Monoid(m.name, bool(m.commutative), self.all(m.identity_nodes), self.all(m.combined), actions)

    def _pass(self, p: PassPlan) -> Pass:
        anchors = tuple(map(self._anchor, p.anchors))
        exports = tuple((name, self(n)) for name, n in p.exports)
        return Pass(p.order, anchors, tuple(self._slot(s) for s in p.slots), exports)

    def _anchor(self, a: plans.Anchor) -> Anchor:
        own: tuple[Term | None, Term | None, Term | None]  # generator, target, shift
        match a:
            case plans.MeanAnchor():
                own = self(a.generator), None, self(a.shift)
            case plans.ExtremumAnchor() | plans.ScaleAnchor():
                own = None, self(a.target), None
            case plans.UnitAnchor():
                own = None, None, None
            case _:
                assert_never(a)
        return Anchor(a.name, a.axes, a.kind, a.policy, *own)

    def _slot(self, s: Slot) -> SlotRecord:
        moves = tuple(Move(self(m.coefficient), m.slot) for m in s.moves)
        extra = (s.op.k, s.op.axis) if isinstance(s.op, TopK) else None
        monoid = self.monoid(s.op.monoid) if isinstance(s.op, Custom) else None
        flags = (s.average, s.vanishes)
        return SlotRecord(
            s.name, s.kind, s.axes, self.all(s.lift), s.parts, self._identity(s), s.domain, moves, *flags, extra, monoid
        )

    def _identity(self, s: Slot) -> tuple[Term, ...] | None:
        if isinstance(s.op, Custom):
            return self.all(s.op.monoid.identity_nodes)
        return (self(s.op.identity),) if isinstance(s.op, Binary) else None

    def _stage(self, s: Any, whole: dict[Term, Term]) -> Stage:
        def over(nodes: Any) -> tuple[Term, ...]:
            return tuple(self.terms.substitute(self(n), whole) for n in nodes)

        (node,) = over([s.node])
        known = dict(self.plan.known) if s.passes > 1 else {}
        generators = [substitute(n, known, raw=True) for n in s.generators]
        return Stage(s.name, node, s.pair, s.rank, over(generators), over(s.coefficients), s.rules)
