"""Which obligations a form must have: computed from the spec and the form, so that none can be left out.

==  ===================================================================================================================
O1  separation: F = Σ H_k(D)·G_k(x), per (sum, ×) stage
O2  transport of one element: φ(x; A') = T(A' - A)·φ(x; A), per slot that an anchor moves
O3  cocycle: T(h')·T(h) = T(h + h') and T(0) = I, per slot that moves
O4  ⊕ is associative, and commutative where the form merges in any order, per slot
O5  the action distributes over ⊕, per entry of the transport (a product's: with the number of factors of either side)
O6  ⊕ has its identity, per slot
O7  domain: what the form divides by or takes a logarithm or root of is in its domain where the definition has a value
O8  homomorphism: h(xs ++ ys) = combine(h xs, h ys), per slot that moves; outputs: finalize(h xs) is the definition
==  ===================================================================================================================

O8 is about streams of every length: sums and other reductions are atoms, not unrolled. h([x]) = lift x is what a
reduction of one element means. For slots that no anchor moves, h(xs ++ ys) = h xs ⊕ h ys is O4 alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from redalg.proofs.checker.alike import Alike
from redalg.proofs.checker.denotation import COUNT, Denotation, resolve
from redalg.proofs.checker.domains import Domains
from redalg.proofs.document.document import Anchor, Document, Obligation, Pass, Slot
from redalg.proofs.document.terms import Leaf, Term, leaves

OPERATION = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}
Value = tuple[Term, ...]


def required(doc: Document, alike: Alike | None = None) -> tuple[Obligation, ...]:
    """Every obligation of the document's form, in the order of the laws of each pass; `alike`: of the document."""
    stated = Statements(doc)
    found = list(stated.separations())
    for p in doc.passes:
        found += [*stated.transports(p), *stated.monoids(p), *stated.homomorphisms(p)]
    domains = Domains(doc, stated.denote, stated.at_once, alike or Alike(doc))
    found += [*stated.outputs(), *domains.domains()]
    return tuple(dict.fromkeys(found))


def _reads(s: Slot, anchors: Mapping[str, Anchor]) -> bool:
    return any(leaf.attr.name in anchors for body in s.lift for leaf in leaves(body))


def _sources(s: Slot, p: Pass) -> list[Slot]:
    """The slots that the moves of one may read: sums by name, and itself; of a product also any number it counts."""
    named = {m.slot for m in s.moves} if s.kind == "sum" else {x.name for x in p.slots}
    return [x for x in p.slots if x is s or x.kind == "sum" and x.name in named]


class Statements:
    """States the laws of one document."""

    def __init__(self, doc: Document) -> None:
        self.doc, self.terms = doc, doc.terms
        self.denote = Denotation(doc)
        self.named: dict[int, tuple[dict[str, tuple[str, ...]], dict[str, Slot]]] = {}

    # --- O1 ---

    def separations(self) -> Iterator[Obligation]:
        t = self.terms
        for stage in self.doc.stages:
            if stage.node.op == "reduce" and (stage.generators or stage.rank == 0):
                pairs = zip(stage.coefficients, stage.generators, strict=False)
                parts = [self._contracted(t.mul(h, self.denote(g))) for h, g in pairs]
                separated = t.add(*parts) if parts else t.const(0)
                yield Obligation("O1", stage.name, stage.node.args[0], separated)

    def _contracted(self, term: Term) -> Term:
        """A contraction whose sums were swapped has axes of its own; they are summed last."""
        fresh = tuple(sorted(a for a in term.axes if "~" in a))
        return self.terms.reduce("sum", fresh, term) if fresh else term

    # --- O2, O3, O5 ---

    def at(self, time: dict[str, Term], term: Term) -> Term:
        """The term with the anchors of a time (primes)."""
        return resolve(self.terms, term, time, self.denote.declared)

    def primed(self, leaf: Leaf, primes: int) -> Term:
        return self.terms.state(leaf.name + "'" * primes, leaf.axes, leaf.domain)

    def side(self, a: Anchor, side: str) -> Term:
        return self.terms.state(f"{a.name}_{side}", a.axes, a.leaf.domain)

    def shifts(self, p: Pass, old: dict[str, Term], new: dict[str, Term]) -> dict[str, Term]:
        t = self.terms
        change = {"add": lambda a: t.sub(new[a], old[a]), "mul": lambda a: t.div(old[a], new[a])}
        scales = {a.name: new[a.name] for a in p.anchors if a.policy == "scale"}
        return {f"shift:{a.name}": change[a.kind](a.name) for a in p.anchors} | scales

    def moved(self, s: Slot, p: Pass, by: dict[str, Term], values: dict[str, Term], lifted: bool = False) -> Term:
        """Σ T·u over `values`; n counts as the constant function 1 (as its mean in an averaged slot)."""
        t, (declared, by_name) = self.terms, self._names(p)
        counts = values if s.kind == "prod" else {COUNT: values[COUNT]}
        terms = []
        for m in s.moves:
            read = {leaf.attr.name for leaf in leaves(m.coefficient)}
            known = {name: known[name] for known in (counts, by) for name in read if name in known}
            coefficient, value = resolve(t, m.coefficient, known, declared), values.get(m.slot)
            if value is None:
                value = t.special("nan")  # a move that reads what is not there proves nothing
            source = by_name.get(m.slot)
            if not lifted and s.average and source is None:
                value = t.const(1)
            elif not lifted and source is not None and source.average != s.average:
                n = values[COUNT]
                value = t.div(value, n) if s.average else t.mul(value, n)
            terms.append(t.mul(coefficient, value))
        return t.add(*terms)

    def _names(self, p: Pass) -> tuple[dict[str, tuple[str, ...]], dict[str, Slot]]:
        """The axes of every name that moves may read, and the slots, made once for a pass."""
        if id(p) not in self.named:
            declared = self.denote.declared | {f"shift:{a.name}": a.axes for a in p.anchors}
            declared |= {a.name: a.axes for a in p.anchors}
            self.named[id(p)] = declared, {x.name: x for x in p.slots}
        return self.named[id(p)]

    def transports(self, p: Pass) -> Iterator[Obligation]:
        t = self.terms
        anchors = {a.name: a for a in p.anchors}
        moving = [s for s in p.slots if s.kind in ("sum", "prod") and (s.moves or _reads(s, anchors))]
        if not moving:
            return
        times = [{a.name: self.primed(a.leaf, k) for a in p.anchors} for k in range(3)]
        given, first = self.facts(p, times), self.shifts(p, times[0], times[1])
        steps = first, self.shifts(p, times[1], times[2]), self.shifts(p, times[0], times[2])
        count = t.state(COUNT, (), ("integer", "positive"))
        values = {x.name: t("state", attr=x.leaf()) for x in p.slots if x.kind == "sum"} | {COUNT: count}
        for s in moving:
            elements = {x.name: self.at(times[0], x.lift[0]) for x in _sources(s, p)} | {COUNT: t.const(1)}
            moved = self.moved(s, p, first, elements, lifted=True) if s.moves else t.special("nan")
            yield Obligation("O2", s.name, self.at(times[1], s.lift[0]), moved, given=given)
            if s.kind == "prod":
                yield from self._powers(s, p, times, given)
                continue
            yield from self._cocycle(s, p, steps, values, given)
            yield from self._distributive(s, p, first)

    def facts(self, p: Pass, times: list[dict[str, Term]]) -> tuple[Term, ...]:
        """What is known of anchors at successive times: scales are not 0, extrema bound their elements and grow."""
        t = self.terms
        found = [t("ne", at[a.name], t.const(0)) for at in times for a in p.anchors if a.kind == "mul"]
        for a, s in self._extrema(p):
            chain = [s.lift[0], *(at[a.name] for at in times)]
            found += [self._ordered(s, x, y) for x, y in zip(chain, chain[1:], strict=False)]
        return tuple(found)

    def at_once(self, p: Pass) -> tuple[Term, ...]:
        """What is known of the anchors of one piece."""
        return self.facts(p, [{a.name: self.primed(a.leaf, 0) for a in p.anchors}])

    def _ordered(self, s: Slot, earlier: Term, later: Term) -> Term:
        return self.terms("le", *((earlier, later) if s.kind == "max" else (later, earlier)))

    def _extrema(self, p: Pass) -> Iterator[tuple[Anchor, Slot]]:
        """Anchors that are a maximum or minimum over the stream, with its slot.

        The target must be the slot's own leaf, along the slot's own axes: the extremum of another row (a leaf read
        along exchanged axes, an anchor without one of them) bounds nothing in this one.
        """
        slots = {s.leaf(): s for s in p.slots if s.kind in ("max", "min")}
        for a in p.anchors:
            if a.target is not None and a.target.op == "state" and a.target.attr in slots:
                s = slots[a.target.attr]
                reads = any(leaf.attr.name in self.denote.sources for leaf in leaves(*s.lift))
                if set(s.axes) <= set(a.axes) and not reads:
                    yield a, s

    def _cocycle(
        self, s: Slot, p: Pass, steps: tuple[dict[str, Term], ...], values: dict[str, Term], given: tuple[Term, ...]
    ) -> Iterator[Obligation]:
        """To move by the first step, then by the second, is to move by both; `values` are the sums before."""
        t, (_, by_name) = self.terms, self._names(p)
        first, second, both = steps
        once = {COUNT: values[COUNT]}
        for x in (by_name[m.slot] for m in s.moves if m.slot in values and m.slot in by_name):
            once[x.name] = self.moved(x, p, first, values) if x.moves else values[x.name]
        twice = self.moved(s, p, second, once) if s.moves else t.special("nan")
        whole = self.moved(s, p, both, values) if s.moves else t.special("nan")
        yield Obligation("O3", s.name, twice, whole, given=given)
        still = {f"shift:{a.name}": t.const(0 if a.kind == "add" else 1) for a in p.anchors}
        yield Obligation("O3", s.name, self.moved(s, p, still, values) if s.moves else t.special("nan"), values[s.name])

    def _powers(self, s: Slot, p: Pass, times: list[dict[str, Term]], given: tuple[Term, ...]) -> Iterator[Obligation]:
        """A product moves by t^n, t over shifts: t is a cocycle, and so are its whole powers.

        With g(x; A') = g(x; A)·t^e for every element (O2), e the whole numbers >= 0 that n adds up, the product over
        the elements is Π g(x; A)·t^Σe: such powers of one number t, whatever it is, are multiplied so.
        """
        t = self.terms
        if not s.moves or s.moves[0].coefficient.op != "pow":
            yield Obligation("O3", s.name, t.special("nan"), t.const(1), given=given)
            return
        declared = self.denote.declared | {f"shift:{a.name}": a.axes for a in p.anchors}
        declared |= {a.name: a.axes for a in p.anchors}

        def factor(old: int, new: int) -> Term:
            return resolve(t, s.moves[0].coefficient.args[0], self.shifts(p, times[old], times[new]), declared)

        yield Obligation("O3", s.name, t.mul(factor(0, 1), factor(1, 2)), factor(0, 2), given=given)
        yield Obligation("O3", s.name, factor(0, 0), t.const(1), given=given)
        number = s.moves[0].coefficient.args[1]
        if number.op != "state":
            return
        u, v = t.state(f"{s.name}_a"), t.state(f"{s.name}_b")
        one, other = (t("state", attr=number.attr._replace(name=f"{number.attr.name}_{side}")) for side in "ab")
        sides = (t.mul(x, t("pow", factor(0, 1), k)) for x, k in ((u, one), (v, other)))
        both = t.mul(u, v, t("pow", factor(0, 1), t.add(one, other)))
        yield Obligation("O5", s.name, both, t.mul(*sides), given=given)

    def _distributive(self, s: Slot, p: Pass, by: dict[str, Term]) -> Iterator[Obligation]:
        t, declared = self.terms, {n: a.axes for a in p.anchors for n in (a.name, f"shift:{a.name}")}
        u, v = t.state(f"{s.name}_a"), t.state(f"{s.name}_b")
        for m in s.moves:
            c = resolve(t, m.coefficient, by, declared)
            yield Obligation("O5", s.name, t.mul(c, t.add(u, v)), t.add(t.mul(c, u), t.mul(c, v)))

    # --- O4, O6 ---

    def monoids(self, p: Pass) -> Iterator[Obligation]:
        for s in p.slots:
            if s.kind == "topk":
                yield from self._total_order(s)
                continue
            a, b, c = (self.values(s, side) for side in "abc")
            both = zip(self.join(s, self.join(s, a, b), c), self.join(s, a, self.join(s, b, c)), strict=True)
            yield from (Obligation("O4", s.name, left, right) for left, right in both)
            if self.commutative(s):
                pairs = zip(self.join(s, a, b), self.join(s, b, a), strict=True)
                yield from (Obligation("O4", s.name, left, right) for left, right in pairs)
            yield from self._identity(s, a)
            yield from self._actions(s, a, b)

    def values(self, s: Slot, side: str) -> Value:
        domain = frozenset({"bool"} if s.kind in ("any", "all") else ())
        found = tuple(self.terms.state(f"{part}_{side}", (), domain) for part in s.parts)
        count = self.terms.state(f"n_{side}", (), ("integer", "positive"))
        return (*found, count) if s.average or s.kind in ("argmax", "argmin") else found

    def commutative(self, s: Slot) -> bool:
        return s.kind in OPERATION or (s.kind == "monoid" and self.doc.monoids[s.monoid or 0].commutative)

    def join(self, s: Slot, a: Value, b: Value) -> Value:
        """a ⊕ b, `a` first in the stream; averages and positions carry the counts beside them."""
        t = self.terms
        if s.kind == "monoid":
            sides = {f"a{i}": v for i, v in enumerate(a)} | {f"b{i}": v for i, v in enumerate(b)}
            return tuple(resolve(t, x, sides, {}) for x in self.doc.monoids[s.monoid or 0].combined)
        if s.kind in ("argmax", "argmin"):
            later = t("lt", a[0], b[0]) if s.kind == "argmax" else t("lt", b[0], a[0])
            best = t("maximum" if s.kind == "argmax" else "minimum", a[0], b[0])
            return best, t("where", later, t.add(b[1], a[2]), a[1]), t.add(a[2], b[2])
        if s.average:
            total = t.add(a[1], b[1])
            return t.add(a[0], t.mul(t.sub(b[0], a[0]), t.div(b[1], total))), total
        return (t(OPERATION[s.kind], a[0], b[0]),)

    def _total_order(self, s: Slot) -> Iterator[Obligation]:
        """A list of the first k is determined by a strict total order: the larger value, then the lower position.

        The first k of the first k of two streams are the first k of both for every total order, so the merge is
        associative when the order is one (theories/Order.v).
        """
        t = self.terms
        a, b, c = (self.values(s, side) for side in "abc")

        def before(x: Value, y: Value) -> Term:
            return t("or", t("lt", y[0], x[0]), t("and", t("eq", x[0], y[0]), t("lt", x[1], y[1])))

        same = t("and", t("eq", a[0], b[0]), t("eq", a[1], b[1]))
        true, false = t("true"), t("false")
        yield Obligation("O4", s.name, t("and", before(a, b), before(b, a)), false)
        yield Obligation("O4", s.name, t("and", before(a, b), before(b, c), t("not", before(a, c))), false)
        yield Obligation("O4", s.name, t("or", before(a, b), before(b, a), same), true)

    def _identity(self, s: Slot, a: Value) -> Iterator[Obligation]:
        if s.kind in ("argmax", "argmin") or s.average:
            return  # adjoined: emptiness is a flag
        identity = s.identity if s.identity is not None else (self.terms.special("nan"),) * len(s.parts)
        for merged in (self.join(s, identity, a), self.join(s, a, identity)):
            yield from (Obligation("O6", s.name, left, right) for left, right in zip(merged, a, strict=True))

    def _actions(self, s: Slot, a: Value, b: Value) -> Iterator[Obligation]:
        if s.kind != "monoid":
            return
        for _, nodes in self.doc.monoids[s.monoid or 0].actions:

            def act(value: Value, nodes: Value = nodes) -> Value:
                sides = {f"a{i}": v for i, v in enumerate(value)}
                return tuple(resolve(self.terms, x, sides, {}) for x in nodes)

            for left, right in zip(act(self.join(s, a, b)), self.join(s, act(a), act(b)), strict=True):
                yield Obligation("O5", s.name, left, right)

    # --- O8 ---

    def homomorphisms(self, p: Pass) -> Iterator[Obligation]:
        """Sums over a ++ b at the new anchors are the moved sums of a plus those of b, whatever the anchors are.

        So are products, with times for plus: what moves them is a power by the number of their factors.
        """
        t = self.terms
        moving = [s for s in p.slots if s.moves and s.kind in ("sum", "prod")]
        if not moving:
            return
        new = {a.name: self.primed(a.leaf, 1) for a in p.anchors}
        olds = [{a.name: self.side(a, side) for a in p.anchors} for side in "ab"]
        steps, given = [self.shifts(p, old, new) for old in olds], self._side_facts(p, new)
        for s in moving:
            sides, counts, wholes = [], [], []
            for old, step, axis in zip(olds, steps, self.doc.sides, strict=True):
                along = dict(zip(self.doc.axis, axis, strict=True))
                values = {x.name: self._summed(x, old, axis, along) for x in _sources(s, p)}
                counts.append(t.size(axis))
                values[COUNT] = counts[-1]
                sides.append(self.moved(s, p, step, values))
                body = t.renamed(resolve(t, s.lift[0], new, self.denote.declared), along)
                wholes.append(t.reduce(s.kind, axis, body))
            joined = t.mul if s.kind == "prod" else t.add
            total = joined(*wholes)
            if s.average:
                total = t.div(total, t.add(*counts))
                merged = self.join(s, (sides[0], counts[0]), (sides[1], counts[1]))[0]
            else:
                merged = joined(*sides)
            yield Obligation("O8", s.name, merged, total, given=given)

    def _side_facts(self, p: Pass, new: dict[str, Term]) -> tuple[Term, ...]:
        t = self.terms
        found = [t("ne", new[a.name], t.const(0)) for a in p.anchors if a.kind == "mul"]
        for side, axis in zip("ab", self.doc.sides, strict=True):
            along = dict(zip(self.doc.axis, axis, strict=True))
            for a in p.anchors:
                if a.kind == "mul":
                    found.append(t("ne", self.side(a, side), t.const(0)))
            for a, s in self._extrema(p):
                old = t.state(f"{a.name}_{side}", a.axes)
                found += [self._ordered(s, t.renamed(s.lift[0], along), old), self._ordered(s, old, new[a.name])]
        return tuple(found)

    def _summed(self, s: Slot, anchors: dict[str, Term], axis: tuple[str, ...], along: dict[str, str]) -> Term:
        body = self.terms.renamed(resolve(self.terms, s.lift[0], anchors, self.denote.declared), along)
        return self.denote.reduced(s, 0, [body], axis)

    def outputs(self) -> Iterator[Obligation]:
        stated = {o.name: o for o in self.doc.outputs}
        for name, definition in self.doc.spec.items():
            o = stated.get(name)
            value = self.denote(o.value) if o is not None else self.terms.special("nan")
            yield Obligation("O8", name, value, definition, "observational")
        for p in self.doc.passes:
            yield from (i for a in p.anchors for i in self._landing(a))

    def _landing(self, a: Anchor) -> Iterator[Obligation]:
        """A mean anchor moves to the same place from wherever it stands: A + shift does not depend on A."""
        if a.shift is None:
            return
        t = self.terms
        other = t.state(a.name + "'", a.axes)
        here = t.state(a.name, a.axes)
        moved = self.denote(a.shift)
        lands = t.add(here, moved) if a.kind == "add" else t.mul(here, moved)
        elsewhere = resolve(t, lands, {a.name: other}, {a.name: a.axes})
        yield Obligation("O8", a.name, lands, elsewhere, "observational")
