"""The checker: every obligation of a document, recomputed from its spec and its form, and proved or not.

It shares no code with the engine that finds forms. What a document states is compared with what its spec and form
require (`redalg.proofs.checker.required`): an obligation that is missing, changed or added is a refusal. Each is then
brought to normal form and decided: *proved*, *refuted* with values, *tested* at exact points (never counted as proved),
or *unknown* with the reason. Statuses are computed here; none is ever read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import lemmas
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.alike import Alike
from redalg.proofs.checker.cases import Cases
from redalg.proofs.checker.coverage import BEARING, check_coverage
from redalg.proofs.checker.domains import guarded
from redalg.proofs.checker.extended import Extended
from redalg.proofs.checker.generators import Value, frozen
from redalg.proofs.checker.hidden import Hidden
from redalg.proofs.checker.inequalities import Constraint
from redalg.proofs.checker.maps import NONNEGATIVE, POSITIVE_LOGS
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.partial import conditions, is_partial
from redalg.proofs.checker.polynomial import Poly, Unknown
from redalg.proofs.checker.required import required
from redalg.proofs.checker.structure import check_structure
from redalg.proofs.document.defined import COPY, Defined, exposed, selected
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.shown import Shown
from redalg.proofs.document.terms import Term, Terms, walk
from redalg.proofs.document.work import SHARE, Exhausted, metered, share, spend
from redalg.proofs.falsification.falsify import HIDDEN, falsify

STATUSES = frozenset({"tested", "unknown"})  # what `allow` may name; a refuted obligation is never allowed
LONGEST = 400  # of a reason
THOROUGH = 48  # points at which a proved obligation is evaluated, where that is asked for
DOUBTS = 3_000_000  # steps for that, of all obligations together; the catalog's certificates take up to 750,000
OUTSIDE = {"ne": (signs.ZERO,), "lt": (signs.ZERO, signs.NEG), "le": (signs.NEG,)}  # where a condition fails


@dataclass(frozen=True)
class Finding:
    """What became of one obligation; `detail` is the reason or the refuting values, of a proved one why it was not
    evaluated at points though that was asked for."""

    obligation: Obligation
    status: str  # proved | refuted | tested | unknown
    detail: Any = ""


@dataclass(frozen=True, repr=False)
class Report(Shown):
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

    def __str__(self) -> str:
        lines = [", ".join(f"{n} {status}" for status, n in sorted(self.counts.items()))]
        lines += [f"{f.status}: {f.obligation}: {f.detail}" for f in self.findings if f.status != "proved" or f.detail]
        return "\n".join(lines + [f"assumes {a}" for a in self.assumptions])

    def __repr__(self) -> str:
        return f"<Report: {', '.join(f'{n} {status}' for status, n in sorted(self.counts.items()))}>"


def accepted(report: Report, allow: Iterable[str], read: str) -> Report:
    """The report, if what is not proved is of a status that `allow` names. Raises: CertificateError, saying what to
    `read`."""
    allowed = {allow} if isinstance(allow, str) else set(allow)
    if not allowed <= STATUSES:
        known = f"allow may name {', '.join(sorted(STATUSES))}"
        raise CertificateError(f"allow={sorted(allowed)!r}", "certificate.verify", known, "leave allow out")
    for f in report.findings:
        if f.status not in allowed | {"proved"}:
            raise CertificateError(
                f"obligation {f.obligation} is {f.status}",
                "certificate.verify",
                str(f.detail)[:400],
                f'{read}; verify(allow={{"tested"}}) accepts what only tests support',
            )
    return report


def check(doc: Document, thorough: bool = False) -> Report:
    """The status of every obligation of a document.

    `thorough`: what is proved is evaluated at exact points besides, and counts as refuted where its sides differ there
    (a rule of the checker would then be wrong). One budget of work is for all of that, and the report names what it
    left out, and what no drawn point says anything about.

    Raises: CertificateError where the obligations stated are not those its spec and form require, where the form is
    not one (a name is missing, a lift reads what it may not), an assumption is unknown, or the obligations are too many
    to be stated within the budget of work. An obligation that takes more than what is left of it is unknown.
    """
    try:
        with metered():
            report = _checked(doc)
        with metered(DOUBTS):
            findings = tuple(doubted(f, doc) for f in report.findings) if thorough else report.findings
            return replace(report, findings=findings)
    except (Exhausted, Unknown, OverflowError, RecursionError) as e:
        why = "its parts refer to each other too deeply" if isinstance(e, RecursionError) else str(e)
        raise CertificateError("the document", "certificate", why, _SMALLER) from None


def proves(doc: Document) -> bool:
    """Whether every obligation that a document's spec and form require is proved; what it states is not looked at.

    Raises: CertificateError as `check` does, but for what is stated.
    """
    try:
        with metered():
            check_structure(doc)
            alike = Alike(doc)
            needed = required(doc, alike)
            judge = Judge(doc, alike=alike)
            check_coverage(doc, judge.plain())
            return all(map(judge.proves, needed))
    except (Exhausted, Unknown, OverflowError, RecursionError) as e:
        raise CertificateError("the document", "certificate", str(e), _SMALLER) from None


def doubted(f: Finding, doc: Document) -> Finding:
    """The finding after a search for a point at which a proved obligation fails.

    `doc` is what the obligation is judged by; what could not be evaluated anywhere says so.
    """
    if f.status != "proved":
        return f
    try:
        with share(2 * SHARE):
            status, found = falsify(f.obligation, doc, THOROUGH)
    except Exhausted as e:
        status, found = "unknown", e
    if status == "unknown":
        return replace(f, detail=f"not evaluated, {found}")
    return Finding(f.obligation, status, found) if status == "refuted" else f


def searched(o: Obligation, doc: Document, why: str, points: int = 8) -> Finding:
    """What evaluation at points says of an obligation that is not proved, and why it is not.

    A condition that fails past a pole which the definition hides refutes nothing. Nor does an anchor that is infinite
    refute a form: the laws are of anchors that are numbers, and of what else they are they say nothing.
    """
    status, found = falsify(o, doc, points, poles=lambda t: _poles(doc.terms, t))
    if status == "refuted" and o.law == "O7" and o.equality == "exact":
        return Finding(o, "unknown", f"the laws say nothing of {o.subject} at {found}"[:LONGEST])
    if status == "refuted":
        return Finding(o, status, found)
    return Finding(o, status, f"{why}; {found}" if found == HIDDEN else why)


def _poles(t: Terms, definition: Term) -> Iterator[Term]:
    """Where a definition is outside of the domain of what it selects; if it is a number there, something hides that."""
    for x, guards, _ in guarded(t, definition):
        if is_partial(x):
            yield from (t("and", *guards, t("not", c)) for c in conditions(t, x))


def _checked(doc: Document) -> Report:
    check_structure(doc)
    alike = Alike(doc)
    needed = required(doc, alike)
    compare(needed, doc.obligations)
    strange = [a for a in doc.assumptions if a not in BEARING]
    if strange:
        raise CertificateError(
            f"the assumption {strange[0]!r:.80}", "assumptions", "it is not one the checker knows", _AGAIN
        )
    judge = Judge(doc, alike=alike)
    check_coverage(doc, judge.plain())
    obstacles = [judge.obstacle(o) for o in needed]  # what is left of the budget then tests those that stay
    findings = tuple(judge.finding(o, why) for o, why in zip(needed, obstacles, strict=True))
    for a in superfluous(doc, needed):
        raise CertificateError(f"the assumption {a!r}", "assumptions", "every obligation is proved without it", _AGAIN)
    return Report(findings, doc.assumptions)


def superfluous(doc: Document, needed: tuple[Obligation, ...]) -> list[str]:
    """Assumptions without which every obligation is still proved (that stage values are finite is always meant)."""
    found: list[str] = []
    for a in (a for a in doc.assumptions if a != "finite_stage_values"):
        kept = tuple(x for x in doc.assumptions if x not in {a, *found})
        judge = Judge(replace(doc, assumptions=kept))
        with metered():
            if all(judge.proves(o) for o in needed):
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
    """Decides obligations of one document; normal forms are shared between those with the same facts.

    `finite`: of stage values that are numbers alone, which is what certificates of derivatives are about. `alike`: of
    the document, where it is known.
    """

    def __init__(self, doc: Document, finite: bool = False, alike: Alike | None = None) -> None:
        self.doc, self.finite, self.alike = doc, finite, alike
        self.normals: dict[tuple[bool, tuple[Term, ...]], Normal] = {}
        self.defined = Defined(doc)
        self.choices: dict[tuple[int, str], list[tuple[Poly, Value]]] = {}
        self.definition: dict[tuple[int, str], list[tuple[Poly, frozenset[str]]]] = {}
        self.shared: dict[Any, list[tuple[Poly, Any]]] = {}  # what `definition` and `choices` hold, each list once
        self.constraints: dict[tuple[int, tuple[Term, ...]], list[Constraint]] = {}
        self.holding: dict[str, list[tuple[Term, frozenset[str]]]] = {}  # what `_known` found
        self.extended = Extended(doc.terms, self.plain())
        self.hidden: Hidden | None = None

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
                proved = lemmas.holds(o, frozenset(self.doc.assumptions), self.finite) or self._proved(o)
                return "" if proved else "the normal forms of its sides differ"
        except (Exhausted, Unknown, OverflowError, RecursionError) as e:
            return str(e)[:200] or type(e).__name__

    def _tested(self, o: Obligation, why: str) -> Finding:
        try:
            with share(2 * SHARE):
                return searched(o, self.doc, why)
        except Exhausted:
            return Finding(o, "unknown", why)

    def _opened(self, o: Obligation) -> Obligation:
        """The obligation with variables for what hides a pole of the definition."""
        if self.hidden is None:
            self.hidden = Hidden(self.doc, self.extended, self._has_value, self.alike or Alike(self.doc))
            self.definition.clear()  # what has been read so far is without variables
        h = self.hidden
        if not h:
            return o
        return replace(o, left=h(o.left), right=h(o.right), given=tuple(map(h, o.given)))

    def _has_value(self, output: str, condition: Term, guards: tuple[Term, ...]) -> bool:
        """Whether a condition holds where the definition of an output has a value and guards hold."""
        o = Obligation("O7", output, condition, self.doc.terms("true"), "domain", guards)
        try:
            if any(c is condition for c, _ in self._known(output)):
                return True
            return self._holds_for(o, [output])
        except Unknown:
            return False

    def _proved(self, o: Obligation) -> bool:
        return self._holds_for(self._opened(o), self.defined.outputs(o.subject) or [""])

    def _holds_for(self, o: Obligation, outputs: list[str]) -> bool:
        # a separation is one for stage values that are numbers; what is computed where they are not, outputs show
        n = self._normal(o.given if o.equality != "domain" else _uncaptured(o), o.law == "O1")
        given = self._given(n, o.given)
        if o.equality == "exact" and o.law != "O1":
            return Cases(n, self._stated_nonzero(n, o.given)).equal(n(o.left), n(o.right), given)
        if o.equality == "domain":
            return all(self._where_defined(n, o, given, name) for name in outputs)
        alike = {(id(self._divisors(n, name)), id(self._selected(n, name))): name for name in outputs}
        return all(self._where_defined(n, o, given, name) for name in alike.values())

    def _where_defined(self, n: Normal, o: Obligation, given: list[Constraint], output: str) -> bool:
        """Whether an obligation holds where one output's definition has a value."""
        divisors = self._at_places(n, o, self._divisors(n, output))
        divisors += [(p, frozenset[str]()) for p in (self._own_divisors(n, o.left) if o.law == "O1" else ())]
        cases = Cases(n, [p for p, _ in divisors] + self._stated_nonzero(n, o.given), divisors)
        cases.selected, cases.shown = self._selected(n, output), self._split(n, output)
        if o.equality == "domain":
            return self._in_domain(n, cases, o, given, output)
        return cases.equal(n(o.left), n(o.right), given)

    def _once(self, n: Normal, found: list[tuple[Poly, Any]], kind: str) -> list[tuple[Poly, Any]]:
        """One list for all outputs of which the same is known: what is proved of one is proved of the others."""
        key = id(n), kind, tuple((frozen(p), x if isinstance(x, frozenset) else frozen(x)) for p, x in found)
        return self.shared.setdefault(key, found)

    def plain(self) -> Normal:
        """Normal forms without facts."""
        return self._normal(())

    def _normal(self, given: tuple[Term, ...], finite: bool = False) -> Normal:
        spend(1 + len(given) // 4)
        key = finite or self.finite, given
        if key not in self.normals:
            n = Normal(frozenset(self.doc.assumptions), key[0])
            n.facts = self._constraints(n, given)
            n.done.clear()
            self.normals[key] = n if n.facts or not given else self._normal((), finite)
        return self.normals[key]

    def _given(self, n: Normal, given: tuple[Term, ...]) -> list[Constraint]:
        """The constraints of facts, which many obligations of a pass share: read once under the same facts."""
        key = id(n), given
        if key not in self.constraints:
            self.constraints[key] = self._constraints(n, given)
        spend(1 + len(given) // 4)
        return list(self.constraints[key])

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
        """What a body divides by wherever it is a number."""
        reciprocals = (t for t, bound in exposed(body) if t.op == "pow" and t.args[1].op == "const" and not bound)
        found = (n(t.args[0]) for t in reciprocals if t.args[1].attr < 0)
        return [v for v in found if isinstance(v, dict)]

    def _known(self, output: str) -> list[tuple[Term, frozenset[str]]]:
        """Conditions that hold wherever an output's definition is a number, and the axes at all places along which.

        Of an operation that shows its poles, and of one at whose poles the definition is none for another reason. Of a
        power with another exponent nothing is known: where it is whole, the base may be negative.
        """
        if output not in self.holding:
            found = self.holding[output] = []
            if output:
                root, t = self.doc.spec[output], self.doc.terms
                partial = [x for x in walk(root) if is_partial(x) and (x.op != "pow" or x.args[1].op == "const")]
                shown: dict[Term, list[frozenset[str]]] = {}
                for x, bound in exposed(root) if partial else ():
                    shown.setdefault(x, []).append(bound)
                for x in partial:
                    for c in conditions(t, x):
                        sides = shown.get(x) or self._excluded(root, c)
                        found += [(c, bound & c.axes) for bound in sides]
                found += self._divided_by_powers(root)
        return self.holding[output]

    def _divided_by_powers(self, root: Term) -> list[tuple[Term, frozenset[str]]]:
        """The bases, none of which is 0, of powers whose exponent is negative and no number."""
        t, symbolic = self.doc.terms, [x for x in walk(root) if x.op == "pow" and x.args[1].op != "const"]
        seen = (
            [(x, bound) for x, bound in exposed(root) if x in symbolic and self._falls(x.args[1])] if symbolic else []
        )
        return [(t("ne", x.args[0], t.const(0)), bound & x.args[0].axes) for x, bound in seen]

    def _excluded(self, root: Term, c: Term) -> list[frozenset[str]]:
        """The axes at all places along which a condition holds where the root is a number, if it has to."""
        side = c.args[0] if c.op == "ne" else c.args[1]
        places = [self.extended.excluded(root, side, at) for at in OUTSIDE[c.op]]
        sure = [p for p in places if p is not None]
        return [frozenset.intersection(*sure)] if len(sure) == len(places) else []

    def _divisors(self, n: Normal, output: str) -> list[tuple[Poly, frozenset[str]]]:
        """What is not zero wherever an output's definition has a value; and along which axes everywhere."""
        key = id(n), output
        if key not in self.definition:
            known = [(n(self._seen(c.args[0])), bound) for c, bound in self._known(output) if c.op == "ne"]
            finite = [(v, bound) for v, bound in known if isinstance(v, dict)]  # infinite: anything else
            self.definition[key] = self._once(n, finite, "divided by")
        return self.definition[key]

    def _split(self, n: Normal, output: str) -> list[tuple[Value, str]]:
        """What an output's definition shows the domain of and is no number in some case, and what must hold of it."""
        sides = ((c.args[0] if c.op == "ne" else c.args[1], c.op) for c, _ in self._known(output))
        found = ((n(self._seen(side)), op) for side, op in sides)
        return [(v, op) for v, op in found if n.first_indicator(v) is not None]

    def _falls(self, exponent: Term) -> bool:
        """Whether an exponent that is no number is negative: the base is no 0 where the power has a value."""
        n = self.plain()
        e = n(exponent)
        return isinstance(e, dict) and n.decide(e) == signs.NEG

    def _selected(self, n: Normal, output: str) -> list[tuple[Poly, Value]]:
        """What an output's definition divides by where a condition on elements holds for one of them, and whether."""
        key = id(n), output
        if key not in self.choices:
            self.choices[key] = []
            for t, chosen in selected(self.doc.spec[output]) if output else ():
                if t.op == "pow" and t.args[1].op == "const" and t.args[1].attr < 0:
                    try:
                        p, axes = n(t.args[0]), frozenset().union(*(a for _, _, a in chosen))
                        held = n.by(*(n(c) if holds else n.negated(n(c)) for c, holds, _ in chosen))
                        self.choices[key] += [(p, n.any(tuple(sorted(axes)), held))] if isinstance(p, dict) else []
                    except Unknown:
                        continue
            self.choices[key] = self._once(n, self.choices[key], "selected")
        return self.choices[key]

    def _at_places(
        self, n: Normal, o: Obligation, found: list[tuple[Poly, frozenset[str]]]
    ) -> list[tuple[Poly, frozenset[str]]]:
        """What holds at every place along some axes, also at the other places that an obligation is about."""
        others = {a for t in (o.left, *o.given) for a in t.axes if a.endswith(COPY)}
        moved = []
        for p, bound in found if others else ():
            names = {a: a + COPY for a in bound if a + COPY in others}
            if names:
                moved.append((n.relabelled(p, names), bound - names.keys()))
        return found + moved

    def _in_domain(self, n: Normal, cases: Cases, o: Obligation, given: list[Constraint], output: str) -> bool:
        condition = o.left
        side = condition.args[0] if condition.op == "ne" else condition.args[1]
        value = n(side)
        cases.truths = [v for v in map(n, o.given) if isinstance(v, dict)]
        cases.divisors += [p for p, somewhere in cases.selected if somewhere in cases.truths]
        if condition.op == "ne":

            def apart(p: Poly, held: list[Constraint]) -> bool:
                return cases.nonzero(p, held) or not cases.possible([*held, (p, False), (po.scaled(p, -1), False)])

            return self._everywhere(n, cases, value, given, apart, infinite=True)
        strict = condition.op == "lt"
        same = [p for p, _ in self._at_places(n, o, self._arguments(n, strict, output))]

        def good(p: Poly, held: list[Constraint]) -> bool:
            here = cases.at_nowhere(p)
            other = n.summed_at_zeros(here)
            inside = self._is_inside(n, cases, here, same, held, strict)
            return inside or other != here and self._is_inside(n, cases, other, same, held, strict)

        return self._everywhere(n, cases, value, given, good)

    def _is_inside(
        self, n: Normal, cases: Cases, p: Poly, same: list[Poly], held: list[Constraint], strict: bool
    ) -> bool:
        """Whether an argument is in a domain of positive numbers, or (not strictly) of 0, too: by its sign, as one of
        those that the definition has (`same`), or because one of these is 0: no logarithm of that is a number."""
        bad = signs.NEG | signs.ZERO if strict else signs.NEG
        shown = [v for v, op in cases.shown if isinstance(v, dict) and op in (("lt",) if strict else ("lt", "le"))]
        if not n.decide(p) & bad or any(_alike(n, p, q, strict) for q in (*same, *shown)):
            return True
        void = strict and any(not n.expanded(cases.at_nowhere(q)) for q in same)
        return void or _has_sign(n, cases, p, held, strict)

    def _arguments(self, n: Normal, strict: bool, output: str) -> list[tuple[Poly, frozenset[str]]]:
        """What an output's definition takes logarithms of wherever it is a number, or (not strictly) also roots."""
        known = ("lt",) if strict else ("lt", "le")
        found = [(n(self._seen(c.args[1])), bound) for c, bound in self._known(output) if c.op in known]
        return [(v, bound) for v, bound in found if isinstance(v, dict)]

    def _seen(self, t: Term) -> Term:
        """A term as obligations show it."""
        return t if self.hidden is None else self.hidden(t)

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


def _has_sign(n: Normal, cases: Cases, p: Poly, held: list[Constraint], strict: bool) -> bool:
    """Whether p > 0 (p >= 0): it is not negative and not 0, or cannot be otherwise, or a convention covers it."""
    if strict and not n.decide(p) & signs.NEG and cases.nonzero(p, held):
        return True
    unlike = not cases.possible([*held, (po.scaled(p, -1), not strict)])
    return unlike or n.may(POSITIVE_LOGS if strict else NONNEGATIVE)


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
