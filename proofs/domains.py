"""O7: what the form divides by, and takes logarithms and roots of, is in its domain where the definition has a value.

A rule for a new kind of part says here on which streams it is computed: an output on the whole stream, a target on
every piece, a lift at whatever anchors its piece has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.proofs.denotation import Denotation, Pieces
from redalg.proofs.document import Anchor, Document, Obligation, Pass, Slot
from redalg.proofs.terms import Term, Terms, leaves, walk
from redalg.proofs.work import spend

DEEPEST = 200  # conditions that guard one term; those further inside are left out


class Domains:
    """States the conditions of one document; `facts` are those of the anchors of a pass."""

    def __init__(self, doc: Document, denote: Denotation, facts: Callable[[Pass], tuple[Term, ...]]) -> None:
        self.doc, self.terms, self.denote, self.facts = doc, doc.terms, denote, facts
        self.pieces = Pieces(doc, denote)

    def domains(self) -> Iterator[Obligation]:
        """Divisors, logarithms and roots of the form that the definition does not write in the same way.

        What the definition writes below a `where` it need not compute, so that only what it writes elsewhere is known
        to have a value.
        """
        t = self.terms
        written = set(unguarded(*self.doc.spec.values()))
        for name, term, given in self._computed():
            for n, guards in guarded(t, term):
                if n in written:
                    continue
                for condition in conditions(t, n):
                    yield Obligation("O7", name, condition, t("true"), "domain", (*given, *guards))
        yield from self._targets(written)
        for p in self.doc.passes:
            yield from self._finite(p)
        for name, term, given in self._coefficients():
            for n in walk(term):
                for condition in conditions(t, n):
                    yield Obligation("O7", name, condition, t("true"), "domain", given)

    def _coefficients(self) -> Iterator[tuple[str, Term, tuple[Term, ...]]]:
        """The transport's entries, over shifts of which the scales are not 0; a user's combination of any values."""
        t = self.terms
        for p in self.doc.passes:
            by = {a: t.state(f"shift:{a.name}", a.axes) for a in p.anchors if a.kind == "mul"}
            scales = tuple(t("ne", ratio, t.const(0)) for ratio in by.values())
            scales += tuple(t("lt", t.const(0), ratio) for a, ratio in by.items() if a.policy == "scale")
            for s in p.slots:
                for m in s.moves:  # a product's is a whole power of what is never 0 (O3)
                    whole_power = s.kind == "prod" and m.coefficient.op == "pow"
                    yield s.name, m.coefficient.args[0] if whole_power else m.coefficient, scales
        for monoid in self.doc.monoids:
            combined = (*monoid.combined, *(x for _, nodes in monoid.actions for x in nodes))
            yield from ((monoid.name, x, ()) for x in combined)

    def _computed(self) -> Iterator[tuple[str, Term, tuple[Term, ...]]]:
        """What a form computes, and what is given there.

        A lift is computed at the anchors of whatever piece the element is in: they stay variables. What a mean starts
        on is an element's; its shift needs no value, since the anchor then stays where it is.
        """
        for p in self.doc.passes:
            facts = self.facts(p)
            for s in p.slots:
                reads = {leaf.attr.name for leaf in leaves(*s.lift)} & {a.name for a in p.anchors}
                given = facts if reads else ()
                yield from ((s.name, self.denote.exported(body), given) for body in s.lift)
            for a in p.anchors:
                if a.generator is not None:
                    yield a.name, self.denote.exported(a.generator), ()
            yield from ((name, self.denote(value), ()) for name, value in p.exports)
        yield from ((o.name, self.denote(o.value), ()) for o in self.doc.outputs)

    def _targets(self, written: set[Term]) -> Iterator[Obligation]:
        """Targets have a value on every piece, where what the definition divides by on the whole stream may be 0.

        What slots are divided by is never 0 (an anchor of policy "mean" stays where it would become 0).
        """
        t = self.terms
        for a in (a for p in self.doc.passes for a in p.anchors if a.target is not None):
            assert a.target is not None
            needed = [
                (condition, guards)
                for n, guards in guarded(t, a.target)
                if n not in written
                for condition in conditions(t, n)
            ]
            needed += [(t("ne", a.target, t.const(0)), ())] * (a.kind == "mul")
            for condition, guards in needed:
                given = tuple(map(self.pieces, guards))
                yield Obligation("O7", a.name, self.pieces(condition), t("true"), "domain", given)

    def _finite(self, p: Pass) -> Iterator[Obligation]:
        """Where an infinity is written below an anchor: the anchor is a number on every piece, or the piece is void.

        A maximum may be -oo (a minimum oo) where no element of the piece is selected: sums read that anchor only where
        their elements are 0, whatever the anchor is.
        """
        t = self.terms
        top, bottom = t.special("oo"), t.special("-oo")
        for a in p.anchors:
            if a.generator is not None and _infinite(a.generator):
                own = self.denote.exported(a.generator)
                yield from (self._holds(a.name, t("lt", x, y)) for x, y in ((own, top), (bottom, own)))
            if a.target is None:
                continue
            if _infinite(a.target):
                own = self.pieces(a.target)
                yield from (self._holds(a.name, t("lt", x, y)) for x, y in ((own, top), (bottom, own)))
            for s in _below(p, a):
                for body in map(self.denote.exported, s.lift):
                    if not _infinite(body):
                        continue
                    if s.kind != "min":
                        yield self._holds(a.name, t("lt", body, top))
                    if s.kind != "max":
                        yield self._holds(a.name, t("lt", bottom, body))
                    if s.kind in ("max", "min"):
                        yield from self._void(p, a, t("eq", body, bottom if s.kind == "max" else top))

    def _void(self, p: Pass, a: Anchor, void: Term) -> Iterator[Obligation]:
        t, zero = self.terms, self.terms.const(0)
        for s in p.slots:
            if any(x.attr.name == a.name for x in leaves(*s.lift)):
                for body in map(self.denote.exported, s.lift):
                    yield Obligation("O7", s.name, t("where", void, body, zero), zero)

    def _holds(self, name: str, condition: Term) -> Obligation:
        return Obligation("O7", name, condition, self.terms("true"))


def conditions(t: Terms, n: Term) -> Iterator[Term]:
    """Where an operation has a value, given that its arguments have: 0 < a, 0 <= a or a ≠ 0."""
    zero, one = t.const(0), t.const(1)
    if n.op == "pow" and n.args[1].op == "const":
        e = n.args[1].attr
        if e < 0:
            yield t("ne", n.args[0], zero)
        if e.denominator != 1:  # a cube root of a negative number is no number here either
            yield t("le", zero, n.args[0])
    elif n.op == "pow" and whole(n.args[1]):  # a negative base has a value, 0 to a negative power has none
        if not positive(n.args[1]):
            yield t("ne", n.args[0], zero)
    elif n.op == "pow":  # 0 to a positive power is 0; a negative base has a value for whole exponents alone
        yield t("le" if positive(n.args[1]) else "lt", zero, n.args[0])
    elif n.op in PARTIAL:
        (a,) = n.args
        sides = {"a": a, "1+a": t.add(one, a), "1-a": t.sub(one, a), "a-1": t.sub(a, one)}
        order, *which = PARTIAL[n.op].split()
        yield from (t(order, zero, sides[x]) for x in which)
    elif n.op == "tan":
        yield t("ne", t("cos", n.args[0]), zero)


PARTIAL = {  # maps that are not defined everywhere: what is positive (lt) or not negative (le) in their domain
    "log": "lt a",
    "log1p": "lt 1+a",
    "atanh": "lt 1+a 1-a",
    "asin": "le 1+a 1-a",
    "acos": "le 1+a 1-a",
    "acosh": "le a-1",
}


def _below(p: Pass, a: Anchor) -> list[Slot]:
    """The slots that a target is computed from, also by way of other anchors."""
    by_part, targets = {part: s for s in p.slots for part in s.parts}, {x.name: x.target for x in p.anchors}
    seen: dict[str, None] = {}
    stack = [a.name]
    while stack:
        name = stack.pop()
        target = targets.get(name)
        if name not in seen:
            seen[name] = None
            stack += [x.attr.name for x in leaves(target)] if target is not None else []
    return list({by_part[name].name: by_part[name] for name in seen if name in by_part}.values())


def _infinite(t: Term) -> bool:
    return any(x.op == "special" and x.attr in ("oo", "-oo", "nan") for x in walk(t))


def positive(t: Term) -> bool:
    """Whether a term is positive as it is written."""
    if t.op == "const":
        return bool(t.attr > 0)
    if t.op in ("add", "mul"):
        return all(map(positive, t.args))
    if t.op == "pow":
        return positive(t.args[0])
    return t.op in ("exp", "size") or (t.op == "tensor" and "positive" in t.attr.domain)


def whole(t: Term) -> bool:
    """Whether a term is a whole number as it is written."""
    if t.op == "const":
        return bool(t.attr.denominator == 1)
    if t.op == "where":
        return all(map(whole, t.args[1:]))
    if t.op in ("add", "mul") or t.op == "reduce" and t.attr.kind == "sum":
        return all(map(whole, t.args))
    return t.op == "size"


def unguarded(*roots: Term) -> Iterator[Term]:
    """Every term that is computed whatever conditions hold: nothing that a `where` selects."""
    seen: set[Term] = set()
    stack = list(roots)
    while stack:
        t = stack.pop()
        if t not in seen:
            seen.add(t)
            spend()
            yield t
            stack += t.args[:1] if t.op == "where" else t.args


SHOW = frozenset("add mul log log1p abs sinh cosh asinh acosh sin cos tan".split())  # an infinity stays none or NaN


def exposed(*roots: Term) -> Iterator[Term]:
    """Terms whose infinity or NaN no root can hide: where one of them divides by 0, a root is no number.

    exp(-1/d²) is 0 at d = 0, and max_j(0, -1/d²) too: what stands below such a map, below a `where` or in a comparison
    does not count. Below an extremum over j counts what does not depend on j.
    """
    seen: set[tuple[Term, frozenset[str]]] = set()
    stack = [(t, frozenset[str]()) for t in roots]
    while stack:
        t, bound = found = stack.pop()
        if found in seen:
            continue
        seen.add(found)
        spend()
        if not t.axes & bound:
            yield t
        if t.op in SHOW or (t.op == "reduce" and t.attr.kind in ("sum", "prod")):
            stack += [(a, bound) for a in t.args]
        elif t.op == "reduce" and t.attr.kind in ("max", "min", "topk_values"):
            stack.append((t.args[0], bound | frozenset(t.attr.axes)))
        elif t.op == "pow" and t.args[1].op == "const" and t.args[1].attr > 0:
            stack.append((t.args[0], bound))


def guarded(terms: Terms, root: Term, most: int = 5000) -> list[tuple[Term, tuple[Term, ...]]]:
    """Every term below the root with the conditions under which it is selected (those that all its uses share)."""
    found: dict[Term, tuple[Term, ...]] = {}
    stack: list[tuple[Term, tuple[Term, ...]]] = [(root, ())]
    while stack and most:
        most -= 1
        term, guards = stack.pop()
        if term in found and found[term] == ():
            continue
        guards = tuple(c for c in found[term] if c in guards) if term in found else guards
        found[term] = guards
        spend(1 + len(guards) // 4)
        if term.op == "reduce":  # a guard says nothing of the places along an axis that is bound here
            guards = tuple(g for g in guards if not g.axes & set(term.attr.axes))
        if term.op == "where" and len(guards) < DEEPEST:
            c, yes, no = term.args
            stack += [(c, guards), (yes, (*guards, c)), (no, (*guards, terms("not", c)))]
        else:
            stack += [(a, guards) for a in term.args]
    return list(found.items()) if most else [(t, ()) for t in walk(root)]
