"""Obligations and Z3, in this process: bounded by work, never by time.

An instance of an axiom with a premise is settled first: the premise alone, with what it calls for, then the conclusion
stands as a fact. So one hard question becomes several easy ones, and the first attempt at each uses equations only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redalg.proofs.smt_instances import Fact, Instances
from redalg.proofs.smt_problem import Problem
from redalg.proofs.smt_products import cancelling
from redalg.proofs.smt_text import Script
from redalg.proofs.terms import Term

EASY = 40_000  # units of Z3's rlimit for an attempt with equations only
HARD = 2_000_000
CELLS = 4_000
LOG = []
DEEP = 6  # premises of premises


def z3_or_none() -> Any:
    try:
        import z3
    except ImportError:
        return None
    return z3


class Solver:
    """Proves formulas of one problem within `rlimit` units of work altogether."""

    def __init__(self, z3: Any, p: Problem, rlimit: int) -> None:
        self.z3, self.p, self.left = z3, p, rlimit
        self.known: dict[Term, bool] = {}
        self.equal: dict[Term, bool] = {}
        self.spent = 0

    def ask(self, text: str, most: int, cells: bool, products: bool = False) -> tuple[str, Any]:
        """sat, unsat or unknown, and the model."""
        most = min(most, self.left - self.spent)
        if most <= 0:
            return "unknown", None
        z3 = self.z3
        import time

        T0 = time.time()
        context = z3.Context()
        solver = z3.Solver(ctx=context)
        solver.set("rlimit", most)
        solver.set("random_seed", 0)
        solver.set("arith.nl.nra", cells)
        if products:
            for a in z3.parse_smt2_string(text, ctx=context):
                solver.add(z3.simplify(z3.simplify(a, som=True), som=True))
        else:
            solver.from_string(text)
        answer = str(solver.check())
        statistics = solver.statistics()
        import time

        if time.time() - T0 > 3:
            open(f"/tmp/smt_slow_{len(LOG)}.smt2", "w").write(text)
            print("SLOW", len(LOG), answer, cells, most, time.time() - T0, flush=True)
        LOG.append(
            (
                answer,
                cells,
                most,
                {k: statistics.get_key_value(k) for k in statistics.keys()}["rlimit count"],
                time.time() - T0,
                text,
            )
        )
        self.spent += next((statistics.get_key_value(k) for k in statistics.keys() if k == "rlimit count"), most)
        return answer, solver.model() if answer == "sat" else None

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
            return self._equal(formula, depth) or self._entailed(formula, depth)
        rest = self._without_equations(formula, depth)
        return self.proved(rest, depth) if rest is not formula else self._entailed(formula, depth)

    def _without_equations(self, formula: Term, depth: int) -> Term:
        """The condition with every equation that holds whatever is given replaced by true."""
        g = self.p.logic
        if formula.op == "eq" and not formula.args[0].is_boolean:
            return g.true if self._equal(formula, depth) else formula
        if formula.op == "and" or formula.op == "or":
            parts = [self._without_equations(a, depth) for a in formula.args]
            return (g.all if formula.op == "and" else g.any)(*parts)
        return formula

    def _equal(self, formula: Term, depth: int) -> bool:
        """An equation, by equations alone."""
        if formula not in self.equal:
            bare = Instances(self.p.terms, (), apart=True).close([formula])
            known = [f for f in self.settled(bare, depth) if f.premise.op == "true"]
            facts = [f for f in known if f.conclusion.op == "eq"]
            signs = [f for f in known if f.conclusion.op == "lt"]
            if self._by_products(self.replaced(formula, facts), depth):
                self.equal[formula] = True
                return True
            tries = ((facts, False, EASY), (facts + signs, False, EASY), (facts + signs, True, CELLS))
            self.equal[formula] = any(
                self.ask(self.text(f, used, ()), most, cells)[0] == "unsat"
                for used, cells, most in tries
                for f in dict.fromkeys((self.replaced(formula, facts), formula))
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
        return self.ask(self.text(identity, (), ()), EASY, False, products=True)[0] == "unsat"

    def _entailed(self, formula: Term, depth: int) -> bool:
        """A condition, by everything that is known and given."""
        whole = [formula, *(h for _, h in self.p.hypotheses)]
        facts = self.settled(Instances(self.p.terms, self.p.universal, apart=True).close(whole), depth)
        most = self.left if depth == 0 else EASY
        for f in dict.fromkeys((self.replaced(formula, facts), formula)):
            text = self.text(f, facts, self.p.hypotheses)
            first = self.ask(text, min(most, HARD), False)[0]
            if first == "unsat" or (first != "sat" and self.ask(text, CELLS, True)[0] == "unsat"):
                return True
        return False

    def replaced(self, formula: Term, facts: Iterable[Fact]) -> Term:
        """The formula with equals put for equals: what is left is arithmetic of products."""
        true = self.p.terms("true")
        equal = {
            f.conclusion.args[0]: f.conclusion.args[1] for f in facts if f.premise is true and f.conclusion.op == "eq"
        }
        for _ in range(DEEP):
            before, formula = formula, self.p.terms.substitute(formula, equal)
            if formula is before:
                break
        return formula

    def settled(self, facts: Iterable[Fact], depth: int) -> list[Fact]:
        """The facts, without the premises that are proved."""
        true = self.p.terms("true")
        return [Fact(f.why, f.conclusion, true) if self.proved(f.premise, depth + 1) else f for f in facts]

    def text(self, formula: Term, facts: Iterable[Fact], hypotheses: Iterable[tuple[str, Term]]) -> str:
        s = Script([])
        for why, h in hypotheses:
            s.add(why, h)
        for f in facts:
            s.add(f.why, f.conclusion, f.premise)
        s.add("", self.p.terms("not", formula))
        return s.text()
