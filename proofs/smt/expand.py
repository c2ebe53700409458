"""Which identities to state: terms expanded into sums of products, only to choose the instances of axioms.

Nothing here is believed. An expansion says which powers, exponentials and sums a term may be written with; the text
states the axiom's premise beside its conclusion, and the solver has to find the premise true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

from redalg.proofs.document.terms import Term, Terms, walk

Monomial = tuple[tuple[Term, Fraction], ...]
Polynomial = dict[Monomial, Fraction]
LARGEST = 300  # monomials; what grows beyond stays as it is written


class TooLarge(Exception):
    """An expansion with too many monomials."""


def times(a: Monomial, b: Monomial) -> Monomial:
    powers = dict(a)
    for atom, e in b:
        total = powers.get(atom, Fraction(0)) + e
        if atom.op == "where" and total > 1:  # an indicator
            total = Fraction(1)
        if abs(total) > LARGEST:
            raise TooLarge
        powers[atom] = total
    return tuple(sorted(((x, e) for x, e in powers.items() if e), key=lambda item: item[0].number))


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    found = dict(a)
    for m, c in b.items():
        found[m] = found.get(m, Fraction(0)) + c
    return {m: c for m, c in found.items() if c}


def product(a: Polynomial, b: Polynomial) -> Polynomial:
    if len(a) * len(b) > LARGEST:
        raise TooLarge
    found: Polynomial = {}
    for m, c in a.items():
        for k, d in b.items():
            key = times(m, k)
            found[key] = found.get(key, Fraction(0)) + c * d
    return {m: c for m, c in found.items() if c}


def varying_factors(m: Monomial, axes: Iterable[str]) -> tuple[Monomial, Monomial]:
    """The factors that vary along one of the axes, and the others."""
    still = {a for a, _ in m if a.axes.isdisjoint(axes)}
    return tuple(x for x in m if x[0] not in still), tuple(x for x in m if x[0] in still)


class Expansion:
    """Expands terms of a table; memoised."""

    def __init__(self, terms: Terms) -> None:
        self.t = terms
        self.done: dict[Term, Polynomial] = {}

    def __call__(self, root: Term) -> Polynomial:
        for term in walk(root, until=lambda x: x.is_boolean):
            if term not in self.done:
                self.done[term] = self._expand(term)
        return self.done[root]

    def atom(self, term: Term, e: int = 1) -> Polynomial:
        return {((term, Fraction(e)),): Fraction(1)}

    def constant(self, value: Fraction | int) -> Polynomial:
        return {(): Fraction(value)} if value else {}

    def _expand(self, term: Term) -> Polynomial:
        method: Callable[[Term], Polynomial] | None = getattr(self, f"_{term.op}", None)
        try:
            return method(term) if method else self.atom(self.canonical(term))
        except TooLarge:
            return self.atom(term)

    def canonical(self, term: Term) -> Term:
        """The same operation on arguments written canonically."""
        if not term.args or term.is_boolean:
            return term
        args = (a if a.is_boolean else self.written(self.done.get(a) or self(a)) for a in term.args)
        return self.t(term.op, *args, attr=term.attr)

    # --- writing polynomials ---

    def written(self, p: Polynomial) -> Term:
        """A polynomial as a term, always the same one for the same polynomial."""
        t = self.t
        parts = [self.monomial(m, p[m]) for m in self.ordered(p)]
        return t.add(*parts) if parts else t.const(0)

    def ordered(self, p: Polynomial) -> list[Monomial]:
        return sorted(p, key=lambda m: [(a.number, e) for a, e in m])

    def monomial(self, m: Monomial, c: Fraction = Fraction(1)) -> Term:
        t = self.t
        factors = [a if e == 1 else t("pow", a, t.const(e)) for a, e in m]
        if c != 1 or not factors:
            factors.insert(0, t.const(c))
        return t.mul(*factors)

    # --- operations ---

    def _const(self, term: Term) -> Polynomial:
        return self.constant(term.attr)

    def _add(self, term: Term) -> Polynomial:
        found: Polynomial = {}
        for a in term.args:
            found = plus(found, self.done[a])
        if len(found) > LARGEST:
            raise TooLarge
        return found

    def _mul(self, term: Term) -> Polynomial:
        found = self.constant(1)
        for a in term.args:
            found = product(found, self.done[a])
        return found

    def _pow(self, term: Term) -> Polynomial:
        e = int(term.args[1].attr)
        return self.power(self.done[term.args[0]], e)

    def power(self, p: Polynomial, e: int) -> Polynomial:
        if e < 0:
            return self.power(self.inverse(p), -e)
        found = self.constant(1)
        for _ in range(e):
            found = product(found, p)
        return found

    def inverse(self, p: Polynomial) -> Polynomial:
        """1/p: a monomial is inverted, of anything else the common factor; cases are inverted one by one."""
        if not p:
            return self.atom(self.t("pow", self.t.const(0), self.t.const(-1)))
        split = self._cases(p)
        if split is not None:
            indicator, yes, no = split
            return self.chosen(indicator, self.inverse(yes), self.inverse(no))
        factor, c, rest = self.primitive(p)
        found: Polynomial = {tuple((a, -e) for a, e in factor): 1 / c}
        return found if rest is None else product(found, self.atom(rest, -1))

    def primitive(self, p: Polynomial) -> tuple[Monomial, Fraction, Term | None]:
        """p as (common monomial, leading coefficient, what is left as a term); the rest is None for a monomial."""
        common: dict[Term, Fraction] | None = None
        for m in p:
            powers = dict(m)
            if common is None:
                common = powers
            else:
                both = {a: min(common.get(a, Fraction(0)), powers.get(a, Fraction(0))) for a in common | powers}
                common = {a: e for a, e in both.items() if e}
        factor = tuple(sorted((common or {}).items(), key=lambda item: item[0].number))
        lead = p[self.ordered(p)[-1]]
        inverse = tuple((a, -e) for a, e in factor)
        rest = {times(m, inverse): c / lead for m, c in p.items()}
        return factor, lead, None if set(rest) == {()} else self.written(rest)

    def _cases(self, p: Polynomial) -> tuple[Term, Polynomial, Polynomial] | None:
        """p split by its first indicator, where it has one outside a common factor."""
        found = [a for m in p for a, _ in m if a.op == "where" and a.args[0].is_boolean]
        if not found:
            return None
        first = min(found, key=lambda a: a.number)
        yes: Polynomial = {}
        no: Polynomial = {}
        for m, c in p.items():
            rest = tuple((a, e) for a, e in m if a is not first)
            yes = plus(yes, {rest: c})
            if len(rest) == len(m):
                no = plus(no, {rest: c})
        return first, yes, no

    def chosen(self, indicator: Term, yes: Polynomial, no: Polynomial) -> Polynomial:
        return plus(no, product(self.atom(indicator), plus(yes, {m: -c for m, c in no.items()})))

    def _where(self, term: Term) -> Polynomial:
        c, a, b = term.args
        negated = c.op in ("not", "ne")
        if negated:
            c = c.args[0] if c.op == "not" else self.t("eq", *c.args)
            a, b = b, a
        indicator = self.t("where", c, self.t.const(1), self.t.const(0))
        return self.chosen(indicator, self.done[a], self.done[b])

    def by_cases(self, p: Polynomial, f: Callable[[Polynomial], Polynomial]) -> Polynomial:
        split = self._cases(p)
        if split is None:
            return f(p)
        c, yes, no = split
        return self.chosen(c, self.by_cases(yes, f), self.by_cases(no, f))

    def _exp(self, term: Term) -> Polynomial:
        return self.by_cases(self.done[term.args[0]], self.exponential)

    def exponential(self, p: Polynomial) -> Polynomial:
        found = self.constant(1)
        for m, c in p.items():
            if len(m) == 1 and m[0][0].op == "log" and m[0][1] == 1 and c.denominator == 1:
                inside = self(m[0][0].args[0])
                found = product(found, self.power(inside, int(c)))
            elif c.denominator == 1 and m:
                found = product(found, self.atom(self.t("exp", self.monomial(m)), int(c)))
            elif not m:
                whole = c.denominator == 1
                found = product(
                    found, self.atom(self.t("exp", self.t.const(1 if whole else c)), int(c) if whole else 1)
                )
            else:
                found = product(found, self.atom(self.t("exp", self.monomial(m, c))))
        return found

    def _log(self, term: Term) -> Polynomial:
        return self.by_cases(self.done[term.args[0]], self.logarithm)

    def logarithm(self, p: Polynomial) -> Polynomial:
        """log of a product, factor by factor."""
        if not p:
            return self.atom(self.t("log", self.t.const(0)))
        factor, c, rest = self.primitive(p)
        found: Polynomial = {}
        if rest is not None and c < 0:
            c, rest = Fraction(1), self.written(self._over(p, factor))
        if c != 1:
            found = self.atom(self.t("log", self.t.const(c)))
        for a, e in factor:
            if a.op == "power":
                part = product(self(a.args[1]), self(self.t("log", a.args[0])))
            else:
                part = self(a.args[0]) if a.op == "exp" else self.atom(self.t("log", a))
            found = plus(found, {m: k * e for m, k in part.items()})
        return found if rest is None else plus(found, self.atom(self.t("log", rest)))

    def _over(self, p: Polynomial, factor: Monomial) -> Polynomial:
        inverse = tuple((a, -e) for a, e in factor)
        return {times(m, inverse): c for m, c in p.items()}

    def _root(self, term: Term) -> Polynomial:
        return self.by_cases(
            self.done[term.args[0]], lambda p: self.atom(self.t("root", self.written(p), attr=term.attr))
        )

    def _abs(self, term: Term) -> Polynomial:
        p = self.done[term.args[0]]
        if p and p[self.ordered(p)[0]] < 0:  # |-x| = |x|
            p = {m: -c for m, c in p.items()}
        return self.atom(self.t("abs", self.written(p)))

    # --- reductions ---

    def _reduce(self, term: Term) -> Polynomial:
        if term.attr.kind != "sum":
            return self.atom(self.canonical(term))
        found: Polynomial = {}
        for m, c in self.done[term.args[0]].items():
            found = plus(found, {k: d * c for k, d in self.summed(term.attr.axes, m).items()})
        return found

    def summed(self, axes: Iterable[str], m: Monomial) -> Polynomial:
        """Σ of a monomial: what does not vary stands outside, an axis nothing varies along counts."""
        axes, m = self.joined(tuple(axes), m)
        inner, outer = varying_factors(m, axes)
        varying = tuple(x for x in axes if any(x in a.axes for a, _ in inner))
        for x in axes:
            if x not in varying:
                outer = times(outer, ((self.t("size", attr=x), Fraction(1)),))
        if not varying:
            return {outer: Fraction(1)}
        for axis in sorted(varying, reverse=True):  # one order for every contraction
            along, inner = varying_factors(inner, (axis,))
            base = self.t.reduce("sum", (axis,), self.monomial(along))
            if any(a is base and e < 0 for a, e in inner):  # S[d]·(1/S[d]) under a sum over d
                raise TooLarge
            inner = times(inner, ((base, Fraction(1)),))
        outer = times(outer, inner)
        return {outer: Fraction(1)}

    def joined(self, axes: tuple[str, ...], m: Monomial) -> tuple[tuple[str, ...], Monomial]:
        """``Σ_j a·Σ_d b`` as one sum over j and d, where d is bound in the one inner sum alone."""
        for a, e in m:
            if e != 1 or a.op != "reduce" or a.attr.kind != "sum" or not set(axes) & a.axes:
                continue
            rest = tuple(item for item in m if item[0] is not a)
            bound, body = set(a.attr.axes), self(a.args[0])
            taken = {*axes, *(x for b, _ in rest for x in b.axes)}
            if len(body) == 1 and self.written(body) is a.args[0] and not bound & taken:
                ((inner, c),) = body.items()
                if c == 1:
                    return self.joined((*axes, *a.attr.axes), times(rest, inner))
        return axes, m
