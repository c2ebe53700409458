"""Instances of axioms: what a solver is told about exponentials, logarithms, roots, sums and extrema.

A function of the reals is a symbol to a solver, and a reduction is a constant. What is known of them is instantiated at
the terms that occur: ``exp(a + b) = exp a · exp b``, ``exp a > 0``, ``log`` of a product of positive factors, powers of
roots, ``Σ (c·f + d·g) = c·Σf + d·Σg`` for what does not vary, ``max f >= f(e)`` at every named element e and
``max f = f(e)`` at one. An instance with a premise (that two bodies agree at every element) names an arbitrary element
and keeps the premise, so that nothing rests on the expansion that proposed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.smt.expand import Expansion, Polynomial
from redalg.proofs.smt.logic import Logic

ORDERED = ("max", "min", "any", "all")
MOST = 4000  # facts about one obligation


@dataclass(frozen=True)
class Fact:
    """`conclusion`, true of the real numbers wherever `premise` holds; `why` names the axiom."""

    why: str
    conclusion: Term
    premise: Term


def is_opaque(term: Term) -> bool:
    return term.op == "reduce"


class Instances:
    """The facts that the terms of some formulas call for.

    `universal`: (axes, condition) that hold at every element.
    """

    def __init__(self, terms: Terms, universal: Iterable[tuple[tuple[str, ...], Term]] = ()) -> None:
        self.t, self.logic, self.expand = terms, Logic(terms), Expansion(terms)
        self.universal = list(universal)
        self.facts: dict[Fact, None] = {}
        self.seen: set[Term] = set()
        self.reductions: list[Term] = []
        self.places: dict[str, dict[str, None]] = {}
        self.stated: set[tuple[Term, tuple[str, ...]]] = set()
        self.moved: dict[tuple[Term, tuple[tuple[str, str], ...]], Term] = {}
        self.fresh = 0

    def close(self, formulas: Iterable[Term]) -> list[Fact]:
        waiting = list(formulas)
        self.fresh = max((_mark(a) for term in walk(*waiting) for a in term.axes), default=0)  # their places are theirs
        while waiting and len(self.facts) < MOST:
            new = list(self._visit(waiting))
            if not new:
                new = list(self._instantiate())
            waiting = []
            for fact in new:
                if fact.conclusion is not self.logic.true and fact not in self.facts:
                    self.facts[fact] = None
                    waiting += (fact.conclusion, fact.premise)
        return list(self.facts)

    def _visit(self, formulas: Iterable[Term]) -> Iterator[Fact]:
        for term in walk(*formulas, until=lambda x: is_opaque(x) or x in self.seen):
            if term in self.seen:
                continue
            self.seen.add(term)
            if term.op in ("tensor", "state", "index"):
                for axis in [term.attr] if term.op == "index" else term.attr.axes:
                    self.places.setdefault(unmarked(axis), {})[axis] = None
            method = getattr(self, f"_{term.op}", None)
            if method is not None:
                yield from method(term)
            elif term.op not in _PLAIN and not term.is_boolean:
                yield from self._canonical(term, "a function has one value")

    def fact(self, why: str, conclusion: Term, *premises: Term) -> Fact:
        return Fact(why, conclusion, self.logic.all(*premises))

    def same(self, a: Term, b: Term) -> Term:
        return self.logic.true if a is b else self.t("eq", a, b)

    def positive(self, a: Term) -> Term:
        return self.t("lt", self.logic.zero, a)

    def nonzero(self, atoms: Iterable[Term]) -> list[Term]:
        return [self.t("ne", a, self.logic.zero) for a in dict.fromkeys(atoms)]

    def settled(self, a: Term) -> list[Term]:
        """What an expansion of `a` rests on where it stands for `a` without being compared with it."""
        p = self.expand(a)
        inverted = [atom for m in p for atom, e in m if e < 0]
        return [x for x in (self.same(a, self.expand.written(p)), *self.nonzero(inverted)) if x is not self.logic.true]

    def _index(self, term: Term) -> Iterator[Fact]:
        t = self.t
        last = t.add(t("size", attr=unmarked(term.attr)), t.const(-1))
        yield self.fact("a position lies on its axis", t("le", self.logic.zero, term))
        yield self.fact("a position lies on its axis", t("le", term, last))

    # --- maps ---

    def _exp(self, term: Term) -> Iterator[Fact]:
        (a,), t, g, one, zero = term.args, self.t, self.logic, self.logic.one, self.logic.zero
        yield self.fact("exp x > 0", self.positive(term))
        yield self.fact("exp x <= 1 for x <= 0", g.implies(t("le", a, zero), t("le", term, one)))
        yield self.fact("exp x >= 1 for x >= 0", g.implies(t("le", zero, a), t("le", one, term)))
        p = self.expand(a)
        guards = self.guards(p, self._inside_exponent)
        written = self.expand.written(self.expand(term))
        yield self.fact(
            "exp(a + b) = exp(a)·exp(b)",
            self.same(term, written),
            self.same(a, self.expand.written(p)),
            *guards,
        )

    def _inside_exponent(self, p: Polynomial) -> list[Term]:
        found: list[Term] = []
        for m, c in p.items():
            if len(m) == 1 and m[0][0].op == "log" and m[0][1] == 1 and c.denominator == 1:
                inside = m[0][0].args[0]
                found += [self.positive(inside), *self.settled(inside)]
        return found

    def _log(self, term: Term) -> Iterator[Fact]:
        (a,) = term.args
        p = self.expand(a)
        written = self.expand.written(self.expand(term))
        guards = self.guards(p, self._factors)
        yield self.fact(
            "log(a·b) = log(a) + log(b)", self.same(term, written), self.same(a, self.expand.written(p)), *guards
        )
        e = self.t("exp", term)
        yield self.fact("exp(log a) = a", self.t("eq", e, a), self.positive(a))
        yield self.fact(
            "log 1 = 0", self.logic.any(self.t("ne", a, self.logic.one), self.t("eq", term, self.logic.zero))
        )

    def _factors(self, p: Polynomial) -> list[Term]:
        if not p:
            return [self.logic.false]
        factor, c, rest = self.expand.primitive(p)
        if rest is not None and c < 0:
            c = -c
            over = self.expand._over(p, factor)
            rest = self.expand.written(over)
        found = [self.positive(a) for a, _ in factor if a.op != "exp"]
        found += [x for a, _ in factor if a.op == "exp" for x in self.settled(a.args[0])]
        for a in (a for a, _ in factor if a.op == "power"):
            found += [self.positive(a.args[0]), *self.settled(a.args[0]), *self.settled(a.args[1])]
        found += [self.positive(rest)] if rest is not None else []
        return found if c > 0 else [*found, self.logic.false]

    def guards(self, p: Polynomial, f: Callable[[Polynomial], list[Term]]) -> list[Term]:
        """What `f` asks of every case of p, under the case."""
        split = self.expand._cases(p)
        if split is None:
            return f(p)
        indicator, yes, no = split
        c = indicator.args[0]
        inside = [self.logic.implies(c, g) for g in self.guards(yes, f)]
        return inside + [self.logic.any(c, g) for g in self.guards(no, f)]

    def _power(self, term: Term) -> Iterator[Fact]:
        t, (base, e) = self.t, term.args
        as_exp = t("exp", t.mul(e, t("log", base)))
        yield self.fact("x^y = exp(y·log x) for x > 0", t("eq", term, as_exp), self.positive(base))
        yield self.fact("x^y > 0 for x > 0", self.positive(term), self.positive(base))

    def _root(self, term: Term) -> Iterator[Fact]:
        t, (a,) = self.t, term.args
        inside = t("le", self.logic.zero, a)
        power = t("eq", t("pow", term, t.const(term.attr)), a)
        name = "√x" if term.attr == 2 else f"x^(1/{term.attr})"
        yield self.fact(f"{name} >= 0 and its power {term.attr} is x", t("le", self.logic.zero, term), inside)
        yield self.fact(f"{name} >= 0 and its power {term.attr} is x", power, inside)
        yield from self._canonical(term, "a function has one value")

    def _pow(self, term: Term) -> Iterator[Fact]:
        base, e = term.args
        if e.attr == -1:
            written = self.expand.written(self.expand(term))
            nonzero = self.nonzero([base])
            yield self.fact("1/(a·b) = 1/a · 1/b", self.same(term, written), *self.settled(base), *nonzero)
        elif e.attr < 0:
            yield from self._pow(self.t("pow", base, self.t.const(-1)))

    def _canonical(self, term: Term, why: str) -> Iterator[Fact]:
        """f(a) = f(b) where a = b, for the canonical b."""
        written = self.expand.written(self.expand(term))
        if written is not term and written.op == term.op and written.attr == term.attr:
            pairs = zip(term.args, written.args, strict=True)
            yield self.fact(why, self.same(term, written), *(self.same(a, b) for a, b in pairs))

    # --- reductions ---

    def _reduce(self, term: Term) -> Iterator[Fact]:
        kind = term.attr.kind
        if kind == "sum":
            yield from self._sum(term)
            return
        if kind == "prod":
            (body,), t = term.args, self.t
            logs = t.reduce("sum", term.attr.axes, t("log", body))
            there = self.positive(self.at(body, self.element(term.attr.axes)))
            yield self.fact("a product of positive numbers is exp of a sum", t("eq", term, t("exp", logs)), there)
        if kind in ORDERED:
            self.reductions.append(term)
        elif any("#" not in a for a in term.attr.axes):
            yield from self._alike(term)
        if kind in ("max", "min"):
            yield from self._alike(term)

    def element(self, axes: tuple[str, ...]) -> dict[str, str]:
        """Names of one more place along the axes."""
        self.fresh += 1
        return {a: f"{a}#{self.fresh}" for a in axes}

    def at(self, term: Term, place: dict[str, str]) -> Term:
        """The term at a named place; what is bound within it stays (no reduction binds the name of a place)."""
        moved = {a: b for a, b in place.items() if a in term.axes and a != b}
        if not moved:
            return term
        key = term, tuple(sorted(moved.items()))
        if key not in self.moved:
            attr = term.attr
            inside = moved if term.op != "reduce" else {a: b for a, b in moved.items() if a not in attr.axes}
            if term.op in ("tensor", "state"):
                attr = attr._replace(axes=tuple(moved.get(a, a) for a in attr.axes))
            elif term.op == "index":
                attr = moved[attr]
            elif term.op == "reduce" and attr.extra and attr.extra[1] in moved:
                attr = attr._replace(extra=(attr.extra[0], moved[attr.extra[1]]))
            self.moved[key] = self.t(term.op, *(self.at(a, inside) for a in term.args), attr=attr)
        return self.moved[key]

    def _sum(self, term: Term) -> Iterator[Fact]:
        axes, (body,) = term.attr.axes, term.args
        written = self.expand.written(self.expand(term))
        p = self.expand.written(self.expand(body))
        place = self.element(axes)
        if written is not term:
            agree = self.same(self.at(body, place), self.at(p, place)) if p is not body else self.logic.true
            why = "a sum is linear in what does not vary"
            yield self.fact(why, self.same(term, written), agree, *self.nonzero(self._cancelled(term)))
        sign = likely_sign(body)
        if sign is not None:  # an element of its own: it stands for one where this body is not positive
            there, zero = self.at(body, self.element(axes)), self.logic.zero
            if sign == "positive":
                yield self.fact("a sum of positive numbers is positive", self.positive(term), self.positive(there))
            else:
                why = "a sum of numbers that are not negative is not negative"
                yield self.fact(why, self.t("le", zero, term), self.t("le", zero, there))

    def _cancelled(self, term: Term) -> Iterator[Term]:
        """Sums that a factor outside divides: S·(1/S) is written 1."""
        axes = set(term.attr.axes)
        for m in self.expand(term.args[0]):
            inner = tuple((a, e) for a, e in m if axes & a.axes)
            (own,) = self.expand.summed(axes, inner)
            divided = {a for a, e in m if e < 0 and not axes & a.axes}
            yield from (a for a, _ in own if a in divided)

    def _alike(self, term: Term) -> Iterator[Fact]:
        """Two reductions whose bodies agree at every element are equal."""
        written = self.expand.written(self.expand(term))
        if written is term or written.op != "reduce":
            return
        place = self.element(term.attr.axes)
        pairs = zip(term.args, written.args, strict=True)
        agree = [self.same(self.at(a, place), self.at(b, place)) for a, b in pairs]
        yield self.fact("reductions of equal bodies are equal", self.same(term, written), *agree)

    def _instantiate(self) -> Iterator[Fact]:
        """Extrema, any and all at every named element, and at the one where they are attained."""
        for r in self.reductions:
            if (r, ()) not in self.stated:
                self.stated.add((r, ()))
                yield from self._attained(r)
        for r in self.reductions:
            for place in self._elements(r.attr.axes):
                key = (r, tuple(place.values()))
                if key not in self.stated:
                    self.stated.add(key)
                    yield self._bound(r, place)
        for axes, c in self.universal:
            for place in self._elements(axes):
                key = (c, tuple(place.values()))
                if key not in self.stated:
                    self.stated.add(key)
                    yield self.fact("given, at a named element", self.at(c, place))

    def _elements(self, axes: tuple[str, ...]) -> Iterator[dict[str, str]]:
        """Every named place along the axes; places along several axes were named together."""
        named = [list(self.places.get(a, {a: None})) for a in axes]
        first = named[0]
        for name in first:
            mark = name.partition("#")[1:]
            place = {a: a + "".join(mark) for a in axes}
            yield place

    def _attained(self, r: Term) -> Iterator[Fact]:
        t, g, kind = self.t, self.logic, r.attr.kind
        place = self.element(r.attr.axes)
        body = self.at(r.args[0], place)
        for axis in place:
            self.places.setdefault(axis, {})[place[axis]] = None
        if kind == "any":
            yield self.fact("any(c) has an element where c holds", g.implies(r, body))
        elif kind == "all":
            yield self.fact("all(c) fails at an element", g.any(r, g.no(body)))
        elif len(r.args) == 1:
            yield self.fact(f"{kind} is attained", t("eq", r, body))
        else:
            finite, here = self.at(r.args[1], place), g.some(r.attr.axes, r.args[1])
            yield self.fact(f"{kind} of the finite is attained", g.implies(here, g.all(finite, t("eq", r, body))))

    def _bound(self, r: Term, place: dict[str, str]) -> Fact:
        t, g, kind = self.t, self.logic, r.attr.kind
        body = self.at(r.args[0], place)
        if kind == "any":
            return self.fact("c(e) implies any(c)", g.implies(body, r))
        if kind == "all":
            return self.fact("all(c) implies c(e)", g.implies(r, body))
        bound = t("le", body, r) if kind == "max" else t("le", r, body)
        finite = [self.at(r.args[1], place)] if len(r.args) > 1 else []
        return self.fact(f"{kind} bounds every element", g.implies(g.all(*finite), bound))


_PLAIN = frozenset("const special tensor state index size add mul where maximum minimum abs sign".split())


def _mark(axis: str) -> int:
    """The number of a named place, 0 for an axis."""
    number = axis.rpartition("#")[2]
    return int(number) if "#" in axis and number.isdecimal() else 0


def unmarked(axis: str) -> str:
    """The axis that a named place lies on."""
    return axis.partition("#")[0]


def likely_sign(term: Term) -> str | None:
    """Whether a term looks positive or not negative: which instances to state, nothing more."""
    rule = _SIGNS.get(term.op)
    return None if rule is None else rule(term)


def _number_sign(term: Term) -> str | None:
    return "positive" if term.attr > 0 else "nonnegative" if term.attr == 0 else None


def _leaf_sign(term: Term) -> str | None:
    return next((sign for sign in ("positive", "nonnegative") if sign in term.attr.domain), None)


def _common_sign(terms: Iterable[Term]) -> str | None:
    """What sums and products of the terms are, and a choice of one of them."""
    found = [likely_sign(a) for a in terms if not a.is_boolean]
    return None if None in found else "nonnegative" if "nonnegative" in found else "positive"


def _power_sign(term: Term) -> str | None:
    if term.args[1].attr % 2 == 0:
        return "nonnegative"
    return _common_sign([a for a in term.args if not a.is_boolean][:1])


def _maximum_sign(term: Term) -> str | None:
    return "nonnegative" if any(likely_sign(a) for a in term.args if not a.is_boolean) else None


def _reduction_sign(term: Term) -> str | None:
    return "nonnegative" if term.attr.kind == "sum" and likely_sign(term.args[0]) else None


_SIGNS: dict[str, Callable[[Term], str | None]] = {
    "exp": lambda term: "positive",
    "const": _number_sign,
    "pow": _power_sign,
    "maximum": _maximum_sign,
    "reduce": _reduction_sign,
    **dict.fromkeys(("tensor", "state"), _leaf_sign),
    **dict.fromkeys(("abs", "root"), lambda term: "nonnegative"),
    **dict.fromkeys(("mul", "add", "where"), lambda term: _common_sign(term.args)),
}
