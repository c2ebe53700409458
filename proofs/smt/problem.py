"""An obligation over the real numbers: what is given, what is to be shown, and the text that says the opposite.

Wherever its definition has a value, the form has that value: for an observational law the right side is the definition,
for an exact one each side is measured by the other, for a law about domains the spec is the definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.smt.expand import TooLarge
from redalg.proofs.smt.instances import Instances
from redalg.proofs.smt.logic import Logic, Lowered, Unexpressed
from redalg.proofs.smt.lower import Lowering
from redalg.proofs.smt.text import Script, notation

HIGHEST = 200  # factors of one product
CASTS = ("cast_commutes", "cast_left_out")


@dataclass
class Problem:
    """An obligation over the reals: under the hypotheses, `goal` holds."""

    obligation: Obligation
    terms: Terms
    goal: Term
    hypotheses: list[tuple[str, Term]] = field(default_factory=list)
    universal: list[tuple[tuple[str, ...], Term]] = field(default_factory=list)

    @property
    def logic(self) -> Logic:
        return Logic(self.terms)

    def formulas(self) -> list[Term]:
        return [self.goal, *(h for _, h in self.hypotheses)]


def problem(o: Obligation, doc: Document) -> Problem:
    """The obligation lowered to the reals. Raises Unexpressed."""
    terms = Terms()
    casts = any(a in CASTS for a in doc.assumptions)
    low, weak = Lowering(terms, exact_casts=casts), Lowering(terms, excuse_nan=True, exact_casts=casts)
    g = low.logic
    left, right = low(o.left), low(o.right)
    if o.equality == "domain":
        goal = g.all(left.defined, left.value)
        found = Problem(o, terms, goal)
        defined = [low(doc.spec[o.subject])] if o.subject in doc.spec else [low(x) for x in doc.spec.values()]
        found.hypotheses.append(("the definition has a value", g.all(*(x.defined for x in defined))))
    else:
        goal = g.all(left.defined, right.defined, low.same(left, right))
        found = Problem(o, terms, goal)
        if o.equality == "observational":
            found.hypotheses.append(("the definition has a value", right.defined))
        else:
            one = g.any(weak(o.left).defined, weak(o.right).defined)
            found.hypotheses.append(("one of the two sides has a value", one))
    for fact in o.given:
        _give(found, g, low(fact), o)
    found.hypotheses = [(why, h) for why, h in found.hypotheses if h is not g.true]
    _check_degrees(found)
    return found


def _check_degrees(found: Problem) -> None:
    """Powers of powers grow beyond what can be written; certificates may come from anybody."""
    degrees: dict[Term, int] = {}
    for t in walk(*found.formulas(), *(c for _, c in found.universal)):
        inside = [degrees[a] for a in t.args]
        if t.op == "pow":
            degrees[t] = inside[0] * abs(int(t.args[1].attr))
        else:
            degrees[t] = sum(inside) if t.op == "mul" else max(inside) if t.op in ("add", "where") else 1
        if degrees[t] > HIGHEST:
            raise Unexpressed(f"a product of more than {HIGHEST} factors")


def _give(found: Problem, g: Logic, fact: Lowered, o: Obligation) -> None:
    held = g.implies(fact.defined, fact.value)
    own = o.left.axes | o.right.axes
    free = tuple(sorted(a for a in held.axes if a not in own))
    if free:
        found.universal.append((free, held))
    else:
        found.hypotheses.append(("given", held))


def _title(o: Obligation, doc: Document) -> list[str]:
    lines = [f"{o.law} of {o.subject} ({o.equality}); unsat means that it holds for all real numbers"]
    lines += [f"left:  {notation(o.left)}", f"right: {notation(o.right)}"]
    lines += [f"given: {notation(x)}" for x in o.given]
    return lines + [f"assumed by name: {', '.join(doc.assumptions)}"] * bool(doc.assumptions)


def script_of_nothing(title: list[str], why: str) -> str:
    """A text that a solver answers with ``sat``."""
    return Script([title[0].partition(";")[0], f"not expressed, so nothing is asserted: {why}", *title[1:]]).text()


def premises(p: Problem, title: list[str]) -> Script:
    """What a problem rests on: its hypotheses, and the instances of axioms that it calls for."""
    s = Script(title)
    for why, h in p.hypotheses:
        s.add(why, h)
    for f in Instances(p.terms, p.universal).close(p.formulas()):
        s.add(f.why, f.conclusion, f.premise)
    return s


def script(obligation: Obligation, doc: Document) -> Script:
    """The negated obligation with what it rests on. Raises: Unexpressed, TooLarge."""
    p = problem(obligation, doc)
    s = premises(p, _title(obligation, doc))
    s.add("the obligation, negated", p.terms("not", p.goal))
    return s


def text(obligation: Obligation, doc: Document) -> str:
    """The negated obligation as one SMT-LIB 2 text with one ``(check-sat)``; ``unsat`` means that it holds."""
    try:
        return script(obligation, doc).text()
    except (Unexpressed, TooLarge, OverflowError, RecursionError) as e:
        return script_of_nothing(_title(obligation, doc), str(e) or type(e).__name__)
