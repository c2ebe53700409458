"""The checker: every obligation of a document, recomputed from its spec and its form, and proved or not.

It shares no code with the engine that finds forms. What a document states is compared with what its spec and form
require (`redalg.proofs.required`): an obligation that is missing, changed or added is a refusal. Each is then brought
to normal form and decided: *proved*, *refuted* with values, *tested* at exact points (never counted as proved), or
*unknown* with the reason. Statuses are computed here; none is ever read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.cases import Cases
from redalg.proofs.coverage import BEARING, check_coverage
from redalg.proofs.document import Document, Obligation
from redalg.proofs.domains import conditions, exposed, unguarded
from redalg.proofs.falsify import falsify
from redalg.proofs.generators import Value
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


def check(doc: Document, thorough: bool = False) -> Report:
    """The status of every obligation of a document.

    `thorough`: what is proved is evaluated at exact points besides, and counts as refuted where its sides differ there
    (a rule of the checker would then be wrong). Each obligation has a budget of work of its own for that.

    Raises: CertificateError where the obligations stated are not those its spec and form require, where the form is
    not one (a name is missing, a lift reads what it may not), an assumption is unknown, or the obligations are too many
    to be stated within the budget of work. An obligation that takes more than what is left of it is unknown.
    """
    try:
        with metered():
            report = _checked(doc)
        return Report(tuple(map(Doubt(doc), report.findings)), report.assumptions) if thorough else report
    except (Exhausted, Unknown, OverflowError, RecursionError) as e:
        why = "its parts refer to each other too deeply" if isinstance(e, RecursionError) else str(e)
        raise CertificateError("the document", "certificate", why, _SMALLER) from None


class Doubt:
    """Looks for a point at which a proved obligation fails."""

    def __init__(self, doc: Document) -> None:
        self.doc = doc

    def __call__(self, f: Finding) -> Finding:
        if f.status != "proved":
            return f
        try:
            with metered():
                status, found = falsify(f.obligation, self.doc)
        except Exhausted:
            return f
        return Finding(f.obligation, status, found) if status == "refuted" else f


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
        self.definition: dict[tuple[int, str], list[Poly]] = {}

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
        n = self._normal(o.given if o.equality != "domain" else _uncaptured(o))
        given = self._constraints(n, o.given)
        if o.equality == "exact":
            divisors = self._stated_nonzero(n, o.given) + (self._own_divisors(n, o.left) if o.law == "O1" else [])
            return Cases(n, divisors).equal(n(o.left), n(o.right), given)
        stated = self._stated_nonzero(n, o.given)
        if o.equality == "domain":
            return self._in_domain(n, Cases(n, self._divisors(n, unguarded) + stated), o, given)
        return Cases(n, self._divisors(n, exposed) + stated).equal(n(o.left), n(o.right), given)

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
        """Facts ``a <= b`` and ``a < b`` as constraints, where both sides are finite polynomials."""
        found: list[Constraint] = []
        todo = list(given)
        while todo:
            fact = todo.pop(0)
            spend()
            denied = fact.op == "not"
            inner = fact.args[0] if denied else fact
            if inner.op == ("or" if denied else "and"):
                todo += [self.doc.terms("not", a) for a in inner.args] if denied else inner.args
            if inner.op in ("lt", "le"):
                low, high = (n(a) for a in (inner.args[::-1] if denied else inner.args))
                if isinstance(low, dict) and isinstance(high, dict):
                    found.append((n.sub(high, low), (inner.op == "lt") != denied))
        return found

    def _stated_nonzero(self, n: Normal, given: tuple[Term, ...]) -> list[Poly]:
        """a - b for what is given as a ≠ b."""
        pairs = [tuple(map(n, fact.args)) for fact in given if fact.op == "ne"]
        return [n.sub(a, b) for a, b in pairs if isinstance(a, dict) and isinstance(b, dict)]

    def _own_divisors(self, n: Normal, body: Term) -> list[Poly]:
        """What a body divides by wherever it has a value."""
        found = (n(t.args[0]) for t in strict(body) if t.op == "pow" and t.args[1].op == "const" and t.args[1].attr < 0)
        return [v for v in found if isinstance(v, dict)]

    def _divisors(self, n: Normal, where: Callable[..., Iterator[Term]]) -> list[Poly]:
        """What the definition divides by: not zero wherever it has a value.

        A divisor below a `where` may be 0 where something else is selected. `exposed`: nor is one of which an infinity
        may be hidden (a form says nothing where the definition is no number, but it is one there); `unguarded`: any
        other, since a form that divides by the same is at worst NaN there.
        """
        key = id(n), where.__name__
        if key not in self.definition:
            found: list[Value] = []
            for t in where(*self.doc.spec.values()):
                if t.op == "pow" and t.args[1].op == "const" and t.args[1].attr < 0:
                    found.append(n(t.args[0]))  # one that is infinite in some case is not known to be anything else
            self.definition[key] = [v for v in found if isinstance(v, dict)]
        return self.definition[key]

    def _in_domain(self, n: Normal, cases: Cases, o: Obligation, given: list[Constraint]) -> bool:
        condition = o.left
        side = condition.args[0] if condition.op == "ne" else condition.args[1]
        value = n(side)
        cases.truths = [v for v in map(n, o.given) if isinstance(v, dict)]
        if condition.op == "ne":

            def apart(p: Poly, held: list[Constraint]) -> bool:
                return cases.nonzero(p, held) or not cases.possible([*held, (p, False), (po.scaled(p, -1), False)])

            return self._everywhere(n, cases, value, given, apart, infinite=True)
        strict = condition.op == "lt"
        bad = signs.NEG | signs.ZERO if strict else signs.NEG
        same = [v for v in map(n, self._arguments(strict)) if isinstance(v, dict)]

        def good(p: Poly, held: list[Constraint]) -> bool:
            fine = not n.decide(p) & bad or any(_alike(n, p, q, strict) for q in same)
            fine = fine or not cases.possible([*held, (po.scaled(p, -1), not strict)])
            return fine or n.may(POSITIVE_LOGS if strict else NONNEGATIVE)

        return self._everywhere(n, cases, value, given, good)

    def _arguments(self, strict: bool) -> list[Term]:
        """What the definition takes logarithms of whatever holds, or (not strictly) also roots."""
        written = list(unguarded(*self.doc.spec.values()))
        known = ("lt",) if strict else ("lt", "le")
        return [c.args[1] for t in written for c in conditions(self.doc.terms, t) if c.op in known]

    def _everywhere(
        self, n: Normal, cases: Cases, v: Value, given: list[Constraint], good: Any, infinite: bool = False
    ) -> bool:
        """Whether `good` holds in each case of a value; `infinite`: an infinity is good."""
        g = n.first_indicator(v)
        if g is None:
            return good(v, given) if isinstance(v, dict) else infinite and v in ("oo", "-oo")
        for value, claim in cases.meanings(g):
            held, truths, gen = given + claim, cases.truths, n.gens[g]
            with cases.branch(g, value) as void:
                if void or not cases.possible(held):
                    continue
                cases.truths = [n.cofactor(v, g, value) for v in truths]
                if gen.kind == "zero" and not value:
                    cases.divisors.append(gen.data[0])
                # where what the term is guarded by is false there is nothing to show
                inside = n.cofactor(v, g, value)
                fine = {} in cases.truths or self._everywhere(n, cases, inside, held, good, infinite)
                cases.truths = truths
                if not fine:
                    return False
        return True


def _uncaptured(o: Obligation) -> tuple[Term, ...]:
    """What is given of no axis that is bound in the obligation.

    Facts about anchors hold at every place. A guard holds at the place where it stands, and says nothing of the places
    along an axis of the same name that a sum below it binds.
    """
    bound = {a for t in walk(o.left, *o.given) if t.op == "reduce" for a in t.attr.axes}
    return tuple(g for g in o.given if not g.axes & bound)


def _alike(n: Normal, p: Poly, q: Poly, strict: bool) -> bool:
    """Whether p > 0 (p >= 0) follows from q > 0 (q >= 0), because they differ in factors that are not negative.

    A factor of p alone must be positive where p is to be, since it may be 0 where q is not; one of q alone where q is
    only known to be not negative, since q then says nothing of the rest.
    """
    if not p or not q:
        return False
    (_, mine, rest), (_, theirs, other) = n.primitive(p, False), n.primitive(q, False)
    alone = dict(mine if strict else theirs).keys() - dict(theirs if strict else mine).keys()
    return n.same(rest, other) and all(n.gens[g].sign == signs.POS for g in alone)


__all__ = ["Finding", "Judge", "Report", "check", "compare"]
