"""Obligations and Z3, in this process: bounded by units of Z3's own count of work (``rlimit``), never by time.

An instance of an axiom with a premise is settled first: the premise alone, with what it calls for, then the conclusion
stands as a fact. So one hard question becomes several easy ones. What Python does between the questions is to leave out
facts, to put equals for equals where a fact says that they are, and to join: ``a and b`` holds where a holds and b
holds, ``l = r`` where ``l - r = Σ c·(l_k - r_k)`` as polynomials and every ``l_k = r_k`` is a fact, and where neither
is negative and their squares are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from redalg.proofs.document.terms import Term, walk
from redalg.proofs.smt.instances import Fact, Instances
from redalg.proofs.smt.problem import Problem
from redalg.proofs.smt.products import cancelling
from redalg.proofs.smt.text import Script

EASY, HARD, CELLS = 40_000, 400_000, 10_000  # units of work for one question
DEEP = 6  # premises of premises
# Gröbner bases of Z3's newer arithmetic and its cells are hardly counted, so they are asked little or nothing.
WAYS: dict[str, dict[str, Any]] = {
    "cases": {"arith.nl.nra": False, "arith.nl.grobner": False},
    "bases": {"arith.solver": 2},
    "cells": {"arith.nl.grobner": False},
    "products": {"arith.nl.nra": False, "arith.nl.grobner": False},
}


class Solver:
    """Proves formulas of one problem within `rlimit` units of work altogether."""

    def __init__(self, z3: Any, p: Problem, rlimit: int) -> None:
        self.z3, self.p, self.limit = z3, p, rlimit
        self.known: dict[Term, bool] = {}
        self.equal: dict[Term, bool] = {}
        self.models: list[dict[Term, Fraction | bool]] = []
        self.spent = 0

    def ask(self, script: Script, most: int, way: str) -> str:
        """sat, unsat or unknown."""
        most = min(most, self.limit - self.spent)
        if most <= 0:
            return "unknown"
        z3, text = self.z3, script.text()
        context = z3.Context()
        solver = z3.Solver(ctx=context)
        solver.set("rlimit", most)
        solver.set("random_seed", 0)
        for name, value in WAYS[way].items():
            solver.set(name, value)
        assertions = z3.parse_smt2_string(text, ctx=context)
        if way == "products":
            assertions = [z3.simplify(z3.simplify(a, som=True), som=True) for a in assertions]
        solver.add(*assertions)
        answer = str(solver.check())
        counted = solver.statistics()
        self.spent += next((counted.get_key_value(k) for k in counted.keys() if k == "rlimit count"), most)
        if answer == "sat":
            self.models.append(_values(solver.model(), script))
        return answer

    def proved(self, formula: Term, depth: int = 0) -> bool:
        if formula.op == "true":
            return True
        if formula not in self.known:
            self.known[formula] = False  # a premise that needs itself is not proved
            self.known[formula] = self._proved(formula, depth)
        return self.known[formula]

    def _proved(self, formula: Term, depth: int) -> bool:
        if any(formula is part for _, h in self.p.hypotheses for part in (h, *(h.args if h.op == "and" else ()))):
            return True
        if formula.op == "and":
            return all(self.proved(part, depth) for part in formula.args)
        if depth > DEEP:
            return False
        if formula.op == "eq":
            return self._equal(formula, depth) or self._by_squares(formula, depth) or self._entailed(formula, depth)
        rest = self._without_equations(formula, depth)
        return self.proved(rest, depth) if rest is not formula else self._entailed(formula, depth)

    def _without_equations(self, formula: Term, depth: int) -> Term:
        """The condition with every equation that holds replaced by true."""
        g = self.p.logic
        if formula.op == "eq" and not formula.args[0].is_boolean:
            return g.true if self._equal(formula, depth) else formula
        if formula.op == "and" or formula.op == "or":
            parts = [self._without_equations(a, depth) for a in formula.args]
            return (g.all if formula.op == "and" else g.any)(*parts)
        return formula

    def _equal(self, formula: Term, depth: int) -> bool:
        """An equation, by equations and signs alone."""
        if formula not in self.equal:
            called = self.settled(Instances(self.p.terms, (), apart=True).close([formula]), depth)
            known = [f for f in called if f.premise is self.p.logic.true]
            facts = [f for f in known if f.conclusion.op == "eq"]
            self.equal[formula] = self._by_products(self.replaced(formula, facts), depth) or any(
                self.ask(self.script(f, known if way == "bases" else facts, ()), EASY, way) == "unsat"
                for way in ("cases", "bases")
                for f in self.forms(formula, facts)
            )
        return self.equal[formula]

    def _by_products(self, formula: Term, depth: int) -> bool:
        """An equation of sums of products, by the products that cancel."""
        if formula.op != "eq" or formula.args[0].is_boolean:
            return False
        t, (left, right) = self.p.terms, formula.args
        found = cancelling(t, left, right)
        if found is None or any(f.premise.op != "true" for f in self.settled([f for _, f in found], depth)):
            return False
        zeros = [t.mul(t.const(c), t.sub(*f.conclusion.args)) for c, f in found]  # each is 0 by its fact
        identity = t("eq", left, t.add(right, *zeros))
        return self.ask(self.script(identity, (), ()), EASY, "products") == "unsat"

    def _by_squares(self, formula: Term, depth: int) -> bool:
        """An equation of roots: its sides are not negative and have the same square."""
        if not any(a.op == "root" and a.attr == 2 for a in walk(formula, until=lambda x: x.op == "reduce")):
            return False
        t, zero = self.p.terms, self.p.logic.zero
        squares = t("eq", *(t("pow", a, t.const(2)) for a in formula.args))
        signs = [t("le", zero, a) for a in formula.args]
        return self._equal(squares, depth + 1) and all(self.proved(s, depth + 1) for s in signs)

    def _entailed(self, formula: Term, depth: int) -> bool:
        """A condition, by everything that is known and given."""
        whole = [formula, *(h for _, h in self.p.hypotheses)]
        facts = self.settled(Instances(self.p.terms, self.p.universal, apart=True).close(whole), depth)
        return any(self.ask(*question) == "unsat" for question in self._questions(formula, facts, depth))

    def _questions(self, formula: Term, facts: list[Fact], depth: int) -> Iterator[tuple[Script, int, str]]:
        """From few facts to all of them."""
        signs = [f for f in facts if f.conclusion.op in ("lt", "le", "ne", "or")]
        given = self.p.hypotheses
        yield self.script(formula, signs, ()), EASY, "cases"
        yield self.script(formula, signs, given), EASY, "cases"
        forms = list(self.forms(formula, facts))
        for way in ("cases", "bases"):
            yield from ((self.script(f, facts, given), EASY if depth else HARD, way) for f in forms)
        self.models.clear()  # only a model of everything can refute
        yield from ((self.script(f, facts, given), CELLS, "cells") for f in forms if not depth)

    def forms(self, formula: Term, facts: Iterable[Fact]) -> Iterable[Term]:
        return dict.fromkeys((self.replaced(formula, facts), formula))

    def replaced(self, formula: Term, facts: Iterable[Fact]) -> Term:
        """The formula with equals put for equals: what is left is arithmetic of products."""
        held = (f.conclusion.args for f in facts if f.premise is self.p.logic.true and f.conclusion.op == "eq")
        equal = {left: right for left, right in held}  # noqa: C416 (pairs, for the type checker)
        for _ in range(DEEP):
            before, formula = formula, self.p.terms.substitute(formula, equal)
            if formula is before:
                break
        return formula

    def settled(self, facts: Iterable[Fact], depth: int) -> list[Fact]:
        """The facts, without the premises that are proved."""
        true = self.p.logic.true
        return [Fact(f.why, f.conclusion, true) if self.proved(f.premise, depth + 1) else f for f in facts]

    def script(self, formula: Term, facts: Iterable[Fact], hypotheses: Iterable[tuple[str, Term]]) -> Script:
        s = Script([])
        for why, h in hypotheses:
            s.add(why, h)
        for f in facts:
            s.add(f.why, f.conclusion, f.premise)
        s.add("", self.p.terms("not", formula))
        return s


def _values(model: Any, script: Script) -> dict[Term, Fraction | bool]:
    """The rational values and truths that a model gives to leaves."""
    by_name = {d.name(): model[d] for d in model.decls() if d.arity() == 0}
    found: dict[Term, Fraction | bool] = {}
    for term, name in script.names.items():
        value = by_name.get(name.strip("|"))
        if value is None or term.op not in ("tensor", "state"):
            continue
        if term.is_boolean:
            found[term] = str(value) == "True"
        elif hasattr(value, "as_fraction"):
            found[term] = value.as_fraction()
    return found
