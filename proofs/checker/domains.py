"""O7: what the form divides by, and takes logarithms and roots of, is in its domain where the definition has a value.

A rule for a new kind of part says here on which streams it is computed: an output on the whole stream, a target on
every piece, a lift at whatever anchors its piece has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from redalg.proofs.checker.alike import Alike
from redalg.proofs.checker.denotation import Denotation, Pieces
from redalg.proofs.checker.partial import conditions, is_partial
from redalg.proofs.document.defined import Defined, copied
from redalg.proofs.document.document import Anchor, Document, Obligation, Pass, Slot
from redalg.proofs.document.terms import Term, Terms, leaves, walk
from redalg.proofs.document.work import spend

DEEPEST = 200  # conditions that guard one term; those further inside are left out


class Domains:
    """States the conditions of one document; `facts` are those of the anchors of a pass."""

    def __init__(
        self, doc: Document, denote: Denotation, facts: Callable[[Pass], tuple[Term, ...]], alike: Alike
    ) -> None:
        self.doc, self.terms, self.denote, self.facts = doc, doc.terms, denote, facts
        self.pieces, self.alike = Pieces(doc, denote), alike
        spec = {o: self.alike(t) for o, t in doc.spec.items()}
        self.defined, self.truths = Defined(replace(doc, spec=spec)), {t for t in walk(*spec.values()) if t.is_boolean}
        self.wanted = Wanted(doc, denote, self.defined)

    def domains(self) -> Iterator[Obligation]:
        """Divisors, logarithms and roots of the form, except below what the definition writes alike and shows.

        Such a part has a value wherever the definition has one, whatever it divides by itself. What the definition
        writes below a `where` it need not compute, and what it hides (exp(-1/d²) is 0 at d = 0) may have none.
        """
        for name, term, given, part in self._computed():
            for n, guards, bound in guarded(self.terms, term, partial(self._is_known, name, part)):
                others = self._open(name, n, bound, part, guards) if is_partial(n) else None
                for condition in conditions(self.terms, n) if others is not None else ():
                    known = self.wanted(name, bound | (others or frozenset()))
                    yield self._domain(name, condition, (*given, *guards), others or frozenset(), known)
        yield from self._targets()
        for p in self.doc.passes:
            yield from self._finite(p)

    def _is_known(self, name: str, part: bool, t: Term, bound: frozenset[str]) -> bool:
        return self._open(name, t, bound, part) is None

    def _open(
        self, name: str, t: Term, bound: frozenset[str], part: bool, guards: tuple[Term, ...] = ()
    ) -> frozenset[str] | None:
        """`Defined.open`, and None for a truth of the definition: a comparison with oo or NaN has a value, too."""
        alike = self.alike(t)
        return None if alike in self.truths else self.defined.open(name, alike, bound, part, _read(t, guards))

    def _domain(
        self, name: str, condition: Term, given: tuple[Term, ...], others: frozenset[str], wanted: Iterable[Term]
    ) -> Obligation:
        """A condition at other places along some axes than the position of an output has names of its own for them.
        `wanted`: what holds where an output reads it, at the output's position."""
        t, names = self.terms, copied(others)
        given = (*(t.renamed(g, names) for g in given), *(c for c in wanted if c not in given))
        return Obligation("O7", name, t.renamed(condition, names), t("true"), "domain", given)

    def _coefficients(self) -> Iterator[tuple[str, Term, tuple[Term, ...], bool]]:
        """The transport's entries, over shifts of which the scales are not 0; a user's combination of any values."""
        t = self.terms
        for p in self.doc.passes:
            by = {a: t.state(f"shift:{a.name}", a.axes) for a in p.anchors if a.kind == "mul"}
            scales = tuple(t("ne", ratio, t.const(0)) for ratio in by.values())
            scales += tuple(t("lt", t.const(0), ratio) for a, ratio in by.items() if a.policy == "scale")
            for s in p.slots:
                for m in s.moves:  # a product's is a whole power of what is never 0 (O3)
                    whole_power = s.kind == "prod" and m.coefficient.op == "pow"
                    coefficient = m.coefficient.args[0] if whole_power else m.coefficient
                    yield s.name, self.denote.exported(coefficient), scales, True
        for monoid in self.doc.monoids:
            combined = (*monoid.combined, *(x for _, nodes in monoid.actions for x in nodes))
            yield from ((monoid.name, x, (), True) for x in combined)

    def _computed(self) -> Iterator[tuple[str, Term, tuple[Term, ...], bool]]:
        """What a form computes, what is given there, and whether it is a part of the state.

        A lift is computed at the anchors of whatever piece the element is in: they stay variables. What a mean starts
        on is an element's; its shift needs no value, since the anchor then stays where it is. What a pass hands on is
        computed where it is read.
        """
        for p in self.doc.passes:
            facts = self.facts(p)
            for s in p.slots:
                reads = {leaf.attr.name for leaf in leaves(*s.lift)} & {a.name for a in p.anchors}
                given = facts if reads else ()
                yield from ((s.name, self.denote.exported(body), given, True) for body in s.lift)
            for a in p.anchors:
                if a.generator is not None:
                    yield a.name, self.denote.exported(a.generator), (), True
        yield from ((o.name, self.denote(o.value), (), False) for o in self.doc.outputs)
        yield from self._coefficients()

    def _targets(self) -> Iterator[Obligation]:
        """Targets have a value on every piece, where what the definition divides by on the whole stream may be 0.

        What slots are divided by is never 0 (an anchor of policy "mean" stays where it would become 0).
        """
        t = self.terms
        for a in (a for p in self.doc.passes for a in p.anchors if a.target is not None):
            assert a.target is not None
            needed = [
                (condition, guards, others, bound)
                for n, guards, bound in guarded(t, self.denote.exported(a.target))
                if (others := self.defined.open(a.name, n, bound, True, _read(n, guards))) is not None
                for condition in conditions(t, n)
            ]
            if a.kind == "mul":
                others = self.defined.open(a.name, a.target, frozenset(), True) or frozenset()
                needed.append((t("ne", a.target, t.const(0)), (), others, frozenset()))
            for condition, guards, others, bound in needed:
                known = (c for c in self.wanted(a.name, bound | others) if self.wanted.is_of_parameters(c))
                yield self._domain(a.name, self.pieces(condition), tuple(map(self.pieces, guards)), others, known)

    def _finite(self, p: Pass) -> Iterator[Obligation]:
        """Where an infinity is written below an anchor: the anchor is a number on every piece, or the piece is void.

        What is averaged or combined by a monoid of the spec is a number, too.

        A maximum may be -oo (a minimum oo) where no element of the piece is selected: sums read that anchor only where
        their elements are 0, whatever the anchor is.
        """
        t = self.terms
        top, bottom = t.special("oo"), t.special("-oo")
        yield from self._numbers(p)
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

    def _numbers(self, p: Pass) -> Iterator[Obligation]:
        """What is averaged or combined by a monoid is a number: their laws are of numbers."""
        t = self.terms
        top, bottom = t.special("oo"), t.special("-oo")
        for s in (s for s in p.slots if s.average or s.kind == "monoid"):
            for own in filter(_infinite, map(self.denote.exported, s.lift)):
                yield from (self._holds(s.name, t("lt", x, y)) for x, y in ((own, top), (bottom, own)))

    def _void(self, p: Pass, a: Anchor, void: Term) -> Iterator[Obligation]:
        t, zero = self.terms, self.terms.const(0)
        for s in p.slots:
            if any(x.attr.name == a.name for x in leaves(*s.lift)):
                for body in map(self.denote.exported, s.lift):
                    yield Obligation("O7", s.name, t("where", void, body, zero), zero)

    def _holds(self, name: str, condition: Term) -> Obligation:
        return Obligation("O7", name, condition, self.terms("true"))


class Wanted:
    """The conditions that hold wherever an output reads a part of the state, by the names of parts.

    What is read where 0 < q alone need have no value elsewhere: ``where(0 < q, sum[j](exp(sqrt(q)*x[j])), 0)`` is 0
    there whatever the sum is. A condition is one of the place at which the part is, where that is read along its own
    axes all the way; else one of no place.
    """

    def __init__(self, doc: Document, denote: Denotation, defined: Defined) -> None:
        self.along, self.found = {*doc.axis}, dict[str, tuple[Term, ...]]()
        strange = {leaf.attr.name for leaf in self._read(defined) if not _is_at_home(leaf, denote)}
        for o in doc.outputs:
            for leaf, guards, _ in guarded(doc.terms, o.value):
                if leaf.op != "state":
                    continue
                names, held = defined.below(leaf), [denote(c) for g in guards for c in _conjunction(doc.terms, g)]
                home = strange.isdisjoint(names) and _is_at_home(leaf, denote)
                self._meet(names, [c for c in held if c.axes.isdisjoint(self.along) and (home or not c.axes)])

    def __call__(self, name: str, others: frozenset[str]) -> Iterator[Term]:
        """What holds where a part is read; `others`: axes along which it is computed at other places, too."""
        return (c for c in self.found.get(name, ()) if c.axes.isdisjoint(others))

    def is_of_parameters(self, condition: Term) -> bool:
        """Whether a condition reads no element of the stream."""
        below = list(walk(condition))
        reduced = {a for t in below if t.op == "reduce" for a in t.attr.axes}
        return self.along.isdisjoint(reduced) and all(t.op not in ("state", "size") for t in below)

    @staticmethod
    def _read(defined: Defined) -> Iterator[Term]:
        return (leaf for terms in defined.terms.values() for leaf in leaves(*terms))

    def _meet(self, names: Iterable[str], conditions: list[Term]) -> None:
        for name in names:
            others = self.found.get(name, conditions)
            self.found[name] = tuple(dict.fromkeys(c for c in others if c in conditions))


def _is_at_home(leaf: Term, denote: Denotation) -> bool:
    """Whether a part of the state is read along its own axes."""
    name = leaf.attr.name.removeprefix("shift:")
    return denote.declared.get(name, leaf.attr.axes) == leaf.attr.axes


def _conjunction(terms: Terms, condition: Term) -> Iterator[Term]:
    """What a condition says, one by one."""
    denied = condition.op == "not"
    inner = condition.args[0] if denied else condition
    if inner.op != ("or" if denied else "and"):
        yield condition
    for c in inner.args if inner.op == ("or" if denied else "and") else ():
        yield from _conjunction(terms, terms("not", c) if denied else c)


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


def _read(t: Term, guards: Iterable[Term]) -> frozenset[str]:
    """The axes of a term and of the conditions it stands under."""
    return t.axes.union(*(g.axes for g in guards))


def guarded(
    terms: Terms, root: Term, known: Callable[[Term, frozenset[str]], bool] = lambda t, bound: False
) -> list[tuple[Term, tuple[Term, ...], frozenset[str]]]:
    """Every term below the root, the conditions under which it is selected, the axes along which it is everywhere.

    These are axes of the conditions, too: what is selected at another place does not read that place's axis itself.
    Where it has several uses, these are the conditions that all of them share. Nothing below what is `known`.
    """
    found: dict[Term, dict[frozenset[str], tuple[Term, ...]]] = {root: {frozenset(): ()}}
    for term in reversed([*walk(root)]):  # what reads a term before it
        for bound, guards in found.get(term, {}).items():
            spend(1 + len(guards) // 4)
            for a, chosen in _chosen_below(terms, term, guards) if not known(term, bound) else ():
                own = bound | frozenset(term.attr.axes) if term.op == "reduce" else bound
                places, own = found.setdefault(a, {}), own & _read(a, chosen)
                others = places.get(own)
                places[own] = chosen if others is None else tuple(c for c in others if c in chosen)
    return [(term, guards, bound) for term, places in found.items() for bound, guards in places.items()]


def _chosen_below(terms: Terms, term: Term, guards: tuple[Term, ...]) -> Iterator[tuple[Term, tuple[Term, ...]]]:
    """The arguments of a term that is selected under some conditions, and under which they are."""
    if term.op == "reduce":  # a guard says nothing of the places along an axis that is bound here
        guards = tuple(g for g in guards if not g.axes & set(term.attr.axes))
    chosen = [guards] * len(term.args)
    if term.op == "where" and len(guards) < DEEPEST:
        c = term.args[0]
        chosen[1:] = [(*guards, c), (*guards, terms("not", c))]
    yield from zip(term.args, chosen, strict=True)
