"""The checker: every obligation of a document, recomputed from its spec and its form, and proved or not.

It shares no code with the engine that finds forms. What a document states is compared with what its spec and form
require (`redalg.proofs.required`): an obligation that is missing, changed or added is a refusal. Each is then brought
to normal form and decided: *proved*, *refuted* with values, *tested* at exact points (never counted as proved), or
*unknown* with the reason. Statuses are computed here; none is ever read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redalg.proofs import inequalities as signs
from redalg.proofs.cases import Cases
from redalg.proofs.coverage import BEARING, check_coverage
from redalg.proofs.document import Document, Obligation
from redalg.proofs.falsify import falsify
from redalg.proofs.generators import Case, Value
from redalg.proofs.inequalities import Constraint
from redalg.proofs.maps import NONNEGATIVE, POSITIVE_LOGS
from redalg.proofs.normalform import Normal
from redalg.proofs.polynomial import Poly, Unknown
from redalg.proofs.refusals import CertificateError
from redalg.proofs.required import required
from redalg.proofs.structure import check_structure
from redalg.proofs.terms import Term, strict, walk
from redalg.proofs.work import SHARE, Exhausted, metered, share, spend


@dataclass(frozen=True)
class Finding:
    """What became of one obligation; `detail` is the reason or the refuting values."""

    obligation: Obligation
    status: str  # proved | refuted | tested | unknown
    detail: Any = ""


@dataclass(frozen=True, repr=False)
class Report:
    """The findings of one certificate, in the order of its obligations.

    >>> import redalg as ra
    >>> report = ra.derive_incremental(ra.catalog["logsumexp"]).certificate.verify()
    >>> report.proved, report.counts, report.findings[0].status
    (True, {'proved': 15}, 'proved')
    """

    findings: tuple[Finding, ...]
    assumptions: tuple[str, ...]

    @property
    def proved(self) -> bool:
        """Whether every obligation is proved."""
        return all(f.status == "proved" for f in self.findings)

    @property
    def counts(self) -> dict[str, int]:
        """How many obligations there are of each status: proved, refuted, tested, unknown."""
        found: dict[str, int] = {}
        for f in self.findings:
            found[f.status] = found.get(f.status, 0) + 1
        return found

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from redalg.display import bundle

        return bundle(self)

    def __str__(self) -> str:
        lines = [", ".join(f"{n} {status}" for status, n in sorted(self.counts.items()))]
        lines += [f"{f.status}: {f.obligation}: {f.detail}" for f in self.findings if f.status != "proved"]
        return "\n".join(lines + [f"assumes {a}" for a in self.assumptions])

    def __repr__(self) -> str:
        return f"<Report: {', '.join(f'{n} {status}' for status, n in sorted(self.counts.items()))}>"


def check(doc: Document) -> Report:
    """The status of every obligation of a document.

    Raises: CertificateError where the obligations stated are not those its spec and form require, where the form is
    not one (a name is missing, a lift reads what it may not), an assumption is unknown, or the obligations are too many
    to be stated within the budget of work. An obligation that takes more than what is left of it is unknown.
    """
    try:
        with metered():
            return _checked(doc)
    except (Exhausted, Unknown, OverflowError, RecursionError) as e:
        why = "its parts refer to each other too deeply" if isinstance(e, RecursionError) else str(e)
        raise CertificateError("the document", "certificate", why, _SMALLER) from None


def _checked(doc: Document) -> Report:
    check_structure(doc)
    needed = required(doc)
    compare(needed, doc.obligations)
    strange = [a for a in doc.assumptions if a not in BEARING]
    if strange:
        raise CertificateError(
            f"the assumption {strange[0]!r:.80}", "assumptions", "it is not one the checker knows", _AGAIN
        )
    judge = Judge(doc)
    check_coverage(doc, judge.plain())
    obstacles = [judge.obstacle(o) for o in needed]  # what is left of the budget then tests those that stay
    findings = tuple(judge.finding(o, why) for o, why in zip(needed, obstacles, strict=True))
    for a in superfluous(doc, needed):
        raise CertificateError(f"the assumption {a!r}", "assumptions", "every obligation is proved without it", _AGAIN)
    return Report(findings, doc.assumptions)


def superfluous(doc: Document, needed: tuple[Obligation, ...]) -> list[str]:
    """Assumptions without which every obligation is still proved (that stage values are finite is always meant)."""
    found: list[str] = []
    for a in doc.assumptions:
        kept = tuple(x for x in doc.assumptions if x not in {a, *found})
        judge = Judge(replace(doc, assumptions=kept))
        with metered():
            if a != "finite_stage_values" and all(judge.proves(o) for o in needed):
                found.append(a)
    return found


_AGAIN = "export the certificate again with form.certificate.to_json()"
_SMALLER = "certify the outputs one by one, as specs of their own"


def compare(needed: tuple[Obligation, ...], stated: tuple[Obligation, ...]) -> None:
    """Raise CertificateError unless what is stated is what is needed, in order."""
    if needed == stated:
        return
    there, wanted = set(stated), set(needed)
    missing = [o for o in needed if o not in there]
    if missing:
        raise CertificateError(
            f"obligation {missing[0]} is missing or changed", "obligations", "the spec and the form require it", _AGAIN
        )
    extra = [o for o in stated if o not in wanted] or [stated[-1]]
    why = "the form does not entail it, not twice, or not in this place"
    raise CertificateError(f"obligation {extra[0]}", "obligations", why, _AGAIN)


class Judge:
    """Decides obligations of one document; normal forms are shared between those with the same facts."""

    def __init__(self, doc: Document) -> None:
        self.doc = doc
        self.normals: dict[tuple[Term, ...], Normal] = {}
        self.definition: dict[int, list[Poly]] = {}

    def decide(self, o: Obligation) -> Finding:
        return self.finding(o, self.obstacle(o))

    def proves(self, o: Obligation) -> bool:
        return not self.obstacle(o)

    def finding(self, o: Obligation, obstacle: str) -> Finding:
        """Proved without an obstacle, else what tests say."""
        return self._tested(o, obstacle) if obstacle else Finding(o, "proved")

    def obstacle(self, o: Obligation) -> str:
        """Empty for a proved obligation, else why it is not."""
        try:
            with share():
                return "" if self._proved(o) else "the normal forms of its sides differ"
        except (Exhausted, Unknown, OverflowError, RecursionError) as e:
            return str(e)[:200] or type(e).__name__

    def _tested(self, o: Obligation, why: str) -> Finding:
        try:
            with share(2 * SHARE):
                status, found = falsify(o, self.doc)
        except Exhausted:
            return Finding(o, "unknown", why)
        return Finding(o, status, found if status == "refuted" else why)

    def _proved(self, o: Obligation) -> bool:
        n = self._normal(o.given)
        given = self._constraints(n, o.given)
        if o.equality == "exact":
            divisors = self._stated_nonzero(n, o.given) + (self._own_divisors(n, o.left) if o.law == "O1" else [])
            return Cases(n, divisors).equal(n(o.left), n(o.right), given)
        divisors = self._divisors(n) + self._stated_nonzero(n, o.given)
        cases = Cases(n, divisors)
        if o.equality == "domain":
            return self._in_domain(n, cases, o, given)
        return cases.equal(n(o.left), n(o.right), given)

    def plain(self) -> Normal:
        """Normal forms without facts."""
        return self._normal(())

    def _normal(self, given: tuple[Term, ...]) -> Normal:
        spend(1 + len(given) // 4)
        if given not in self.normals:
            n = Normal(frozenset(self.doc.assumptions))
            self.normals[given] = n
            n.facts = self._constraints(n, given)
            n.done.clear()
        return self.normals[given]

    def _constraints(self, n: Normal, given: tuple[Term, ...]) -> list[Constraint]:
        """Facts ``a <= b`` as constraints, where both sides are finite polynomials."""
        found: list[Constraint] = []
        for fact in given:
            if fact.op == "le":
                low, high = (n(a) for a in fact.args)
                if isinstance(low, dict) and isinstance(high, dict):
                    found.append((n.sub(high, low), False))
        return found

    def _stated_nonzero(self, n: Normal, given: tuple[Term, ...]) -> list[Poly]:
        sides = [n(fact.args[0]) for fact in given if fact.op == "ne"]
        return [s for s in sides if isinstance(s, dict)]

    def _own_divisors(self, n: Normal, body: Term) -> list[Poly]:
        """What a body divides by wherever it has a value."""
        found = (n(t.args[0]) for t in strict(body) if t.op == "pow" and t.args[1].op == "const" and t.args[1].attr < 0)
        return [v for v in found if isinstance(v, dict)]

    def _divisors(self, n: Normal) -> list[Poly]:
        """What the definition divides by: not zero wherever it has a value."""
        if id(n) not in self.definition:
            found: list[Poly] = []
            for t in walk(*self.doc.spec.values()):
                if t.op == "pow" and t.args[1].op == "const" and t.args[1].attr < 0:
                    found += _polys(n(t.args[0]))
            self.definition[id(n)] = found
        return self.definition[id(n)]

    def _in_domain(self, n: Normal, cases: Cases, o: Obligation, given: list[Constraint]) -> bool:
        condition = o.left
        side = condition.args[0] if condition.op == "ne" else condition.args[1]
        value = n(side)
        cases.truths = [v for v in map(n, o.given) if isinstance(v, dict)]
        if condition.op == "ne":
            return self._everywhere(n, cases, value, given, cases.nonzero)
        strict = condition.op == "lt"
        bad = signs.NEG | signs.ZERO if strict else signs.NEG
        same = [p for t in self._arguments(strict) for p in _polys(n(t))]

        def good(p: Poly, held: list[Constraint]) -> bool:
            fine = not n.decide(p) & bad or any(_alike(n, p, q) for q in same)
            return fine or n.may(POSITIVE_LOGS if strict else NONNEGATIVE)

        return self._everywhere(n, cases, value, given, good)

    def _arguments(self, strict: bool) -> list[Term]:
        """What the definition takes logarithms of, or (not strictly) also roots."""
        found = [t.args[0] for t in walk(*self.doc.spec.values()) if t.op == "log"]
        if strict:
            return found
        powers = (t for t in walk(*self.doc.spec.values()) if t.op == "pow" and t.args[1].op == "const")
        return found + [t.args[0] for t in powers if t.args[1].attr.denominator % 2 == 0]

    def _everywhere(self, n: Normal, cases: Cases, v: Value, given: list[Constraint], good: Any) -> bool:
        """Whether `good` holds in each case of a value."""
        g = n.first_indicator(v)
        if g is None:
            return good(v, given) if isinstance(v, dict) else v in ("oo", "-oo") and good == cases.nonzero
        for value, claim in cases.meanings(g):
            held, truths, gen = given + claim, cases.truths, n.gens[g]
            with cases.branch(g, value) as void:
                if void or not cases.possible(held):
                    continue
                cases.truths = [n.cofactor(v, g, value) for v in truths]
                if gen.kind == "zero" and not value:
                    cases.divisors.append(gen.data[0])
                # where what the term is guarded by is false there is nothing to show
                fine = {} in cases.truths or self._everywhere(n, cases, n.cofactor(v, g, value), held, good)
                cases.truths = truths
                if not fine:
                    return False
        return True


def _alike(n: Normal, p: Poly, q: Poly) -> bool:
    """Equal up to a positive factor."""
    if not p or not q:
        return False
    return n.same(n.primitive(p, False)[2], n.primitive(q, False)[2])


def _polys(v: Value) -> list[Poly]:
    if isinstance(v, Case):
        return [*_polys(v.yes), *_polys(v.no)]
    return [v] if isinstance(v, dict) else []


__all__ = ["Finding", "Judge", "Report", "check", "compare"]
