"""Certificates of derivatives as data: one spec is the derivative of another, rule by rule (JSON, version 1).

::

    {"format": "redalg derivative", "version": 1, "spec_hash": …, "terms": […], "mode": "reverse" | "forward",
     "spec": {"axis": [axes], "outputs": {name: term}, "empty": {name: term}}, "monoids": […],
     "seeds": {name: term}, "axes": {name: [axes]}, "results": {name: term | null}, "filled": [name, …],
     "saved": [[leaf, term], …], "readings": {leaf: tensor}, "rules": [[term, rule], …],
     "cancelled": [[term | null, term], …], "assumptions": [name, …]}

In reverse mode `seeds` are the cotangents of the outputs and `results` the gradients of tensors, along `axes`; in
forward mode they are the tangents of tensors and of outputs. `null` is a derivative that is 0. What is said here is
proved in `redalg.proofs.derivatives.proof`; the rules are those of `redalg.proofs.derivatives.rules`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from redalg.proofs.checker.check import Report, accepted
from redalg.proofs.derivatives.claims import FORWARD, REVERSE, Claims, refused
from redalg.proofs.derivatives.proof import proved
from redalg.proofs.derivatives.rules import Rule, rule_of
from redalg.proofs.document.document import Document
from redalg.proofs.document.reading import Reader, bounded, parsed
from redalg.proofs.document.shown import Shown
from redalg.proofs.document.terms import MOST_AXES, Term
from redalg.proofs.document.writing import Numbering

FORMAT, VERSION = "redalg derivative", 1


class Derivative(Shown):
    """The certificate of a derivative: that specs are the gradients (or tangents) of another spec.

    It holds the spec, the stated derivative, for each term of the spec the rule by which it passes values on, and what
    cancels. `verify` rebuilds the derivative from the spec by a table of rules of its own and proves that it equals the
    stated one; neither the engine nor what differentiates is read. Plain data; pickles; equal when the JSON is equal.

    >>> import redalg as ra
    >>> c = ra.parse("m = max[j](x[j]); return y = m + log(sum[j](exp(x[j] - m)))").vjp().certificate
    >>> print(c.verify())
    2 proved
    >>> Derivative.from_json(c.to_json()) == c
    True
    >>> print(c.explain().splitlines()[-1])
    max: x̄ = 0: the results do not depend on it
    >>> len(c.spec_hash), c.assumptions, len(c.rules) > 0
    (32, (), True)
    """

    def __init__(self, claims: Claims) -> None:
        self.claims = claims

    @property
    def spec_hash(self) -> str:
        """The hash of the spec that is differentiated, and of which of its tensors are one array."""
        return self.claims.spec_hash

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The named assumptions under which this is claimed."""
        return self.claims.assumptions

    @property
    def rules(self) -> tuple[tuple[Term, Rule], ...]:
        """Term of the spec -> the rule it passes values on by, and the lemma that proves that (arguments first)."""
        found = ((t, rule_of(t)) for t, name in self.claims.rules if name != "cancelled")
        return tuple((t, r) for t, r in found if r is not None)

    def explain(self) -> str:
        """The rules that are used, in words, each once; then what cancels."""
        lines = dict.fromkeys(f"{r.name}: {r.says}" + (f" ({r.lemma})" if r.lemma else "") for _, r in self.rules)
        gone = [f"{value.attr.kind}: x̄ = 0: {_of(of)}" for of, value in self.claims.cancelled]
        return "\n".join([*lines, *gone])

    def to_json(self, indent: int | None = None) -> str:
        """The certificate as JSON, each term written once."""
        separators = (",", ":") if indent is None else None
        return json.dumps(as_json(self.claims), indent=indent, separators=separators)

    @classmethod
    def from_json(cls, text: str | bytes) -> Derivative:
        """The certificate of a JSON text. Raises: CertificateError for anything that is not one, naming the place."""
        with bounded():
            return cls(DerivativeReader(parsed(text)).claims())

    def verify(self, allow: Iterable[str] = (), thorough: bool = False) -> Report:
        """Rebuild the derivative and prove that it is the stated one; statuses are computed, never read.

        `allow` may name "tested" and "unknown"; `thorough` also evaluates what is proved at exact points. Raises:
        CertificateError for a derivative that is not proved (nor allowed), rules that are not those of the table, and
        what is stated of no part of the spec.
        """
        return accepted(proved(self.claims, thorough), allow, "read certificate.explain()")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Derivative) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.spec_hash)

    def __reduce__(self) -> tuple[Any, ...]:
        return Derivative.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        what = "gradients of" if self.claims.mode == REVERSE else "tangents along"
        return f"<Derivative: {what} {', '.join(self.claims.wrt)}; {len(self.claims.rules)} rules>"


def _of(of: Term | None) -> str:
    return "the results do not depend on it" if of is None else f"a {of.attr.kind} that reads it does not depend on it"


# --- writing ---------------------------------------------------------------------------------------------------------


def as_json(c: Claims) -> dict[str, Any]:
    number, doc = Numbering(), c.document
    spec = {
        "axis": list(doc.axis),
        "outputs": {name: number(t) for name, t in doc.spec.items()},
        "empty": {name: number(t) for name, t in doc.empty.items()},
    }
    body = {
        "mode": c.mode,
        "spec": spec,
        "monoids": [number.monoid(m) for m in doc.monoids],
        "seeds": {name: number(t) for name, t in c.seeds.items()},
        "axes": {name: list(axes) for name, axes in c.axes.items()},
        "results": {name: number.optional(t) for name, t in c.results.items()},
        "filled": list(c.filled),
        "saved": [[number(leaf), number(value)] for leaf, value in c.saved],
        "readings": dict(c.readings),
        "rules": [[number(t), rule] for t, rule in c.rules],
        "cancelled": [[number.optional(of), number(value)] for of, value in c.cancelled],
        "assumptions": list(c.assumptions),
    }
    return {"format": FORMAT, "version": VERSION, "spec_hash": c.spec_hash, "terms": number.rows} | body


# --- reading ---------------------------------------------------------------------------------------------------------


class DerivativeReader(Reader):
    """Reads one certificate of a derivative; every method raises a four-part error that says where."""

    def claims(self) -> Claims:
        keys = "format version spec_hash terms mode spec monoids seeds axes results filled saved readings rules"
        head = self.record(self.data, "certificate", *keys.split(), "cancelled", "assumptions")
        if head["format"] != FORMAT or head["version"] != VERSION or head["version"] is True:
            why = f"this version reads format {FORMAT!r}, version {VERSION}"
            raise refused(f"format {head['format']!r:.80}, version {head['version']!r:.40}", "certificate", why)
        self._read_terms(head["terms"])
        claims = Claims(
            self.about(head),
            self.word(head["mode"], "mode", REVERSE, FORWARD),
            self.mapping(head["seeds"], "seeds"),
            {n: self.names(v, f"axes.{n}", MOST_AXES) for n, v in self.named(head["axes"], "axes").items()},
            {n: self.optional(v, f"results.{n}") for n, v in self.named(head["results"], "results").items()},
            self.names(head["filled"], "filled"),
            tuple(self.pair(v, "saved") for v in self.items(head["saved"], "saved")),
            {n: self.text(v, "readings") for n, v in self.named(head["readings"], "readings").items()},
            tuple(self.rule(v) for v in self.items(head["rules"], "rules")),
            tuple(self.cancelled(v) for v in self.items(head["cancelled"], "cancelled")),
            self.texts(head["assumptions"], "assumptions"),
        )
        if head["spec_hash"] != claims.spec_hash:
            why = f"the spec it holds has the hash {claims.spec_hash}"
            raise refused(f"the spec hash {head['spec_hash']!r:.60}", "spec_hash", why)
        return claims

    def about(self, head: Any) -> Document:
        """The spec, as a document without a form."""
        spec = self.record(head["spec"], "spec", "axis", "outputs", "empty")
        axis, outputs = self.names(spec["axis"], "spec.axis", MOST_AXES), self.mapping(spec["outputs"], "spec.outputs")
        empty, monoids = self.mapping(spec["empty"], "spec.empty"), self.each(head["monoids"], "monoids", self.monoid)
        doc = Document(self.terms, axis, outputs, empty, (), (), monoids=monoids)
        if not set(empty) <= set(outputs):
            raise refused(
                f"values for empty rows of {sorted(empty)}"[:200], "spec.empty", "the spec lacks such an output"
            )
        return doc

    def named(self, value: Any, where: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise refused(f"{type(value).__name__} {value!r:.60}", where, "an object is expected")
        return {self.text(k, where): v for k, v in value.items()}

    def pair(self, value: Any, where: str) -> tuple[Term, Term]:
        leaf, held = self.items(value, where, 2, 2)
        return self.term(leaf, where), self.term(held, where)

    def rule(self, value: Any) -> tuple[Term, str]:
        term, name = self.items(value, "rules", 2, 2)
        return self.term(term, "rules"), self.text(name, "rules")

    def cancelled(self, value: Any) -> tuple[Term | None, Term]:
        of, held = self.items(value, "cancelled", 2, 2)
        return self.optional(of, "cancelled"), self.term(held, "cancelled")


__all__ = ["FORMAT", "VERSION", "Derivative"]
