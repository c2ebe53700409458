"""Which products cancel: the multiples of ``a·(1/a) = 1`` that turn one side of an equation into the other.

A solver finds a polynomial identity at once where its monomials cancel as they stand, and hardly ever where a multiple
of ``a·(1/a) - 1`` must be found first. The multiples are found here, by division. Nothing is believed: each is stated
as a fact with its premise, and the solver has to find the equation true from them.
"""

from __future__ import annotations

from fractions import Fraction

from redalg.proofs.document.terms import Term, Terms
from redalg.proofs.smt.expand import Expansion, Monomial, Polynomial, TooLarge, plus, product, times
from redalg.proofs.smt.instances import Fact
from redalg.proofs.smt.logic import Logic

STEPS = 400


class Products(Expansion):
    """Terms as sums of products in which 1/a is a factor of its own and nothing else is rewritten."""

    def _expand(self, term: Term) -> Polynomial:
        if term.op == "const":
            return self.constant(term.attr)
        if term.op in ("add", "mul"):
            return self._add(term) if term.op == "add" else self._mul(term)
        if term.op == "pow" and term.args[1].attr > 0:
            return self._pow(term)
        if term.op == "pow":
            base, e = term.args[0], int(term.args[1].attr)
            if base.op == "const" and base.attr:
                return self.constant(base.attr**e)
            return self.power(self.atom(self.t("pow", base, self.t.const(-1))), -e)
        return self.atom(term)


def cancelling(terms: Terms, left: Term, right: Term) -> list[tuple[Fraction, Fact]] | None:
    """Equations l_k = r_k with ``left - right == Σ c_k·(l_k - r_k)`` as polynomials; None where none were found."""
    products = Products(terms)
    try:
        p = plus(products(left), product(products.constant(-1), products(right)))
        rules = list(_rules(terms, products, p))
        return _divided(terms, products, p, rules)
    except TooLarge:
        return None


# the leading monomial, what it is, why, both sides as terms, the premise, the leading coefficient
Rule = tuple[Monomial, Polynomial, str, Term, Term, Term, Fraction]


def _rules(t: Terms, products: Products, p: Polynomial) -> list[Rule]:
    """lead = rest for every reciprocal, root and indicator below p."""
    found: dict[Term, Rule] = {}
    waiting = [a for m in p for a, _ in m]
    while waiting:
        a = waiting.pop()
        if a in found:
            continue
        rule = _rule(t, products, a)
        if rule is None:
            continue
        found[a] = rule
        waiting += [x for m in (rule[0], *rule[1]) for x, _ in m]
    return sorted(found.values(), key=lambda rule: len(rule[1]))  # n·(1/n) before n·(1/(n-1))


def _rule(t: Terms, products: Products, a: Term) -> Rule | None:
    g = Logic(t)
    if a.op == "pow":  # the leading monomial of b·(1/b) is the rest of it and 1
        b = a.args[0]
        whole = product(products(b), products.atom(a))
        return _oriented(products, whole, products.constant(1), "a·(1/a) = 1", t.mul(b, a), g.one, t("ne", b, g.zero))
    if a.op == "root":
        left = products.power(products.atom(a), a.attr)
        premise = t("le", g.zero, a.args[0])
        return _oriented(
            products, left, products(a.args[0]), "a power of a root", t("pow", a, t.const(a.attr)), a.args[0], premise
        )
    if a.op == "where" and a.args[1] is g.one and a.args[2] is g.zero:
        square = products.power(products.atom(a), 2)
        return _oriented(products, square, products.atom(a), "0 and 1 are their squares", t.mul(a, a), a, g.true)
    return None


def _oriented(
    products: Products, whole: Polynomial, rest: Polynomial, why: str, left: Term, right: Term, premise: Term
) -> Rule | None:
    if not whole:
        return None
    lead = max(whole, key=lambda m: (sum(e for _, e in m), [(a.number, e) for a, e in m]))
    others = plus(rest, {m: -c for m, c in whole.items() if m != lead})
    return lead, {m: c / whole[lead] for m, c in others.items()}, why, left, right, premise, whole[lead]


def _divided(t: Terms, products: Products, p: Polynomial, rules: list[Rule]) -> list[tuple[Fraction, Fact]] | None:
    facts: list[tuple[Fraction, Fact]] = []
    for _ in range(STEPS):
        if not p:
            return facts
        step = next(((m, r, q) for r in rules for m in p if (q := _quotient(m, r[0])) is not None), None)
        if step is None:
            return None
        m, (_, rest, why, left, right, premise, scale), quotient = step
        factor, c = products.monomial(quotient), p[m]
        facts.append((c / scale, Fact(why, t("eq", t.mul(factor, left), t.mul(factor, right)), premise)))
        p = plus({k: d for k, d in p.items() if k != m}, product({quotient: c}, rest))
    return None


def _quotient(m: Monomial, lead: Monomial) -> Monomial | None:
    powers = dict(m)
    if any(powers.get(a, Fraction(0)) < e for a, e in lead):
        return None
    return times(m, tuple((a, -e) for a, e in lead))
