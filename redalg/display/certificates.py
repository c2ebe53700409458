"""Displays of certificates, of what their checker found, and of audits of somebody else's operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from redalg.display import markup as m
from redalg.display.formulas import FormWriter
from redalg.graph.node import Decl, Node, Reduce
from redalg.proofs.document.terms import walk
from redalg.text import colour as paint

if TYPE_CHECKING:
    from redalg.proofs.audits.report import AuditReport
    from redalg.proofs.certificate import Certificate
    from redalg.proofs.checker.check import Report
    from redalg.proofs.derivatives.document import Derivative
    from redalg.proofs.document.document import Document, Obligation
    from redalg.proofs.document.terms import Term
    from redalg.proofs.refusals.document import Refusal
    from redalg.proofs.refusals.proof import Refuted

LAWS = {
    "O1": "separation: the body is a sum of products, element part × context part",
    "O2": "transport: an element held at another anchor is the element, transported",
    "O3": "cocycle: two moves of an anchor are one, and no move changes nothing",
    "O4": "⊕ is associative, and commutative where the form merges in any order",
    "O5": "what moves a slot distributes over ⊕",
    "O6": "⊕ has its identity",
    "O7": "domain: divisors, logarithms and roots are defined where the definition is",
    "D2": "what is said to cancel has the adjoint 0",
    "D3": "the stated derivative is the one rebuilt by the table of rules",
    "D4": "where a derivative is filled by 0, the rebuilt one is 0",
    "D5": "what a stated derivative divides by, or takes a logarithm or root of, is in its domain",
    "O8": "homomorphism: merging the states of two streams is the state of both; outputs are the definition",
}
LONGEST = 400  # characters of LaTeX on one side of an obligation that is written out


# --- obligations as formulas -----------------------------------------------------------------------------------------


class Formulas:
    """Terms of a document as LaTeX; a term becomes the graph node of the same structure first."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.nodes: dict[Term, Node] = {}
        self.writer = FormWriter({})

    def node(self, term: Term) -> Node:
        for t in walk(term):
            if t not in self.nodes:
                self.nodes[t] = Node(t.op, tuple(self.nodes[a] for a in t.args), self._attr(t))
        return self.nodes[term]

    def _attr(self, t: Term) -> Any:
        if t.op in ("tensor", "state"):
            return Decl(t.attr.name, t.attr.axes, t.attr.domain)
        if t.op != "reduce":
            return t.attr
        extra = t.attr.extra
        if t.attr.kind == "monoid":
            extra = (self.document.monoids[extra[0]], extra[1])
        return Reduce(t.attr.kind, t.attr.axes, extra)

    def law(self, o: Obligation) -> m.Markup:
        left, right = (self.writer.text(self.node(side)) for side in (o.left, o.right))
        if max(len(left), len(right)) > LONGEST:
            return m.Markup("(long; <code>certificate.obligations</code> holds it)")
        sign = {"exact": "=", "observational": r"\simeq", "domain": r"\equiv"}.get(o.equality, "=")
        return m.formula(rf"\displaystyle {left} {sign} {right}")


def _by_law(obligations: Iterable[Obligation]) -> dict[str, list[Obligation]]:
    found: dict[str, list[Obligation]] = {}
    for o in obligations:
        found.setdefault(o.law, []).append(o)
    return dict(sorted(found.items()))


def _subjects(obligations: Iterable[Obligation]) -> str:
    return ", ".join(dict.fromkeys(o.subject for o in obligations))


def _assumed(names: Iterable[str]) -> str:
    return f"Assumes {', '.join(names)}." if names else "No assumptions."


# --- certificates of forms -------------------------------------------------------------------------------------------


def certificate_html(c: Certificate) -> str:
    formulas = Formulas(c.document)
    counted = [
        [law, LAWS.get(law, ""), _subjects(os), str(len(os)), ", ".join(sorted({o.equality for o in os}))]
        for law, os in _by_law(c.obligations).items()
    ]
    every = [[str(o), formulas.law(o)] for o in c.obligations]
    return m.page(
        m.Markup(
            f"<b>certificate of {m.cell(', '.join(c.document.spec))} along {m.cell(','.join(c.document.axis))}</b>"
        ),
        m.table(counted, ["law", "says", "about", "number", "equality"]),
        m.paragraph(_assumed(c.assumptions), m.Markup("Claims only: <code>verify()</code> proves each of them anew.")),
        m.folded("every obligation", m.table(every)),
    )


def certificate_plain(c: Certificate, colour: bool = False) -> str:
    lines = [f"certificate of {', '.join(c.document.spec)} along {','.join(c.document.axis)}"]
    lines += [f"  {law}  {len(os):>3}  {LAWS.get(law, '')}" for law, os in _by_law(c.obligations).items()]
    lines.append(f"  {_assumed(c.assumptions)} Claims only: verify() proves each of them anew.")
    return paint.titles("\n".join(lines)) if colour else "\n".join(lines)


def report_html(r: Report) -> str:
    rows = []
    for law, os in _by_law(f.obligation for f in r.findings).items():
        found = [f.status for f in r.findings if f.obligation.law == law]
        statuses = ", ".join(f"{found.count(s)} {s}" for s in dict.fromkeys(found))
        rows.append([law, LAWS.get(law, ""), _subjects(os), statuses])
    open_ones = [[str(f.obligation), f.status, reason(f.detail)] for f in r.findings if f.status != "proved"]
    head = ", ".join(f"{n} {status}" for status, n in sorted(r.counts.items()))
    return m.page(
        m.Markup(f"<b>{m.cell(head)}</b>"),
        m.table(rows, ["law", "says", "about", "found"]),
        m.table(open_ones, ["obligation", "status", "why"]) if open_ones else "",
        m.paragraph(_assumed(r.assumptions)),
    )


def reason(detail: Any) -> str:
    """Why an obligation is not proved: the checker's words, or the point that refutes it with both sides there."""
    if not isinstance(detail, Mapping) or not {"point", "left", "right"} <= detail.keys():
        return str(detail)[:200]
    at = ", ".join(f"{name} = {value(v)}" for name, v in detail["point"].items())
    return f"{value(detail['left'])} on the left, {value(detail['right'])} on the right, at {at or 'any point'}"


def value(x: Any) -> str:
    """An exact number as it is, an enclosure by its middle.

    >>> from fractions import Fraction
    >>> from redalg.proofs.numbers.enclosure import Interval
    >>> value(Fraction(-3, 4)), value(Interval((11, -2), (3, 0)))
    ('-3/4', '≈ 2.875')
    """
    if not (hasattr(x, "low") and hasattr(x, "high")):
        return str(x)
    low, high = (Fraction(number) * Fraction(2) ** exponent for number, exponent in (x.low, x.high))
    try:
        return f"≈ {float((low + high) / 2):.6g}"
    except OverflowError:
        return "a number beyond 10^308"


def report_plain(r: Report, colour: bool = False) -> str:
    lines = [", ".join(f"{n} {status}" for status, n in sorted(r.counts.items()))]
    lines += [f"{f.status}: {f.obligation}: {reason(f.detail)}" for f in r.findings if f.status != "proved"]
    text = "\n".join(lines + [f"assumes {a}" for a in r.assumptions])
    return paint.labels(text) if colour else text


# --- refusals --------------------------------------------------------------------------------------------------------


def refusal_html(r: Refusal) -> str:
    rows = [
        ["class", r.excludes],
        ["claim", f"no form with fewer than {r.excluded_slots} slots"],
        ["evidence", r.kind],
        ["stage", m.formula(rf"\displaystyle {FormWriter({}).text(Formulas(r.document).node(r.stage))}")],
        ["matrix", f"{len(r.matrix)} × {len(r.matrix)}, from {len(r.streams)} streams"],
    ]
    note = m.Markup("Claims only: <code>verify()</code> recomputes every entry from the spec.")
    return m.page(m.Markup("<b>certificate of a refusal</b>"), m.table(rows), m.paragraph(note))


def refusal_plain(r: Refusal, colour: bool = False) -> str:
    return repr(r)


def refuted_html(r: Refuted) -> str:
    return m.page(m.paragraph(m.Markup("<b>proved</b>"), r.scope))


def refuted_plain(r: Refuted, colour: bool = False) -> str:
    return str(r)


# --- derivatives -----------------------------------------------------------------------------------------------------


def derivative_html(c: Derivative) -> str:
    used = dict.fromkeys(rule for _, rule in c.rules)
    rows: list[list[object]] = [[r.name, r.says, m.Markup(f"<code>{m.cell(r.lemma)}</code>")] for r in used]
    gone = [f"{value.attr.kind}: nothing that reads it depends on it" for _, value in c.claims.cancelled]
    note = m.Markup("Claims only: <code>verify()</code> rebuilds the derivative from the spec.")
    title = m.Markup(f"<b>certificate of a derivative: {m.cell(', '.join(c.claims.wrt))}</b>")
    return m.page(title, m.table(rows, ["rule", "passes on", "lemma"]), *map(m.paragraph, gone), m.paragraph(note))


def derivative_plain(c: Derivative, colour: bool = False) -> str:
    return f"{c!r}\n{c.explain()}"


# --- audits ----------------------------------------------------------------------------------------------------------


def audit_html(r: AuditReport) -> str:
    rows: list[list[object]] = []
    for name, law in r.laws.items():
        status = law.status + ("" if law.claimed else " (not claimed)")
        broken = law.status == "broken" and law.claimed
        detail = str(law.counterexample) if law.counterexample is not None else law.reason or law.equality
        rows.append([name, law.equation, m.Markup(f"<b>{status}</b>") if broken else status, law.samples or "", detail])
    verdict = f"broken: {', '.join(r.broken)}" if r.broken else "no claimed law was found broken"
    return m.page(
        m.Markup(f"<b>audit of {m.cell(r.name)} in {m.cell(r.dtype)}: {m.cell(verdict)}</b>"),
        m.table(rows, ["law", "equation", "status", "samples", "smallest counterexample, or how it was judged"]),
        *(m.paragraph("Note:", n) for n in r.notes),
    )


def audit_plain(r: AuditReport, colour: bool = False) -> str:
    return paint.titles(str(r)) if colour else str(r)
