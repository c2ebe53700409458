"""Documents as plain JSON data: terms are numbered in the order of their first use, each written once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redalg.proofs.document.document import (
    FORMAT,
    VERSION,
    Anchor,
    Document,
    Monoid,
    Obligation,
    Pass,
    Slot,
    Stage,
    variables,
)
from redalg.proofs.document.terms import Term, encoded, walk


class Numbering:
    """Numbers for terms as they are met, and the table of what they are."""

    def __init__(self) -> None:
        self.numbers: dict[Term, int] = {}
        self.rows: list[list[Any]] = []

    def __call__(self, root: Term) -> int:
        for t in walk(root, until=self.numbers.__contains__):
            if t not in self.numbers:
                row = encoded(t, self.numbers.__getitem__)
                self.numbers[t] = len(self.rows)
                self.rows.append(row)
        return self.numbers[root]

    def all(self, terms: Iterable[Term]) -> list[int]:
        return [self(t) for t in terms]

    def optional(self, term: Term | None) -> int | None:
        return None if term is None else self(term)

    def document(self, doc: Document) -> dict[str, Any]:
        spec = {
            "axis": list(doc.axis),
            "outputs": {name: self(t) for name, t in doc.spec.items()},
            "empty": {name: self(t) for name, t in doc.empty.items()},
        }
        body = {
            "spec": spec,
            "monoids": [self.monoid(m) for m in doc.monoids],
            "passes": [self.one_pass(p) for p in doc.passes],
            "outputs": [
                {"name": o.name, "value": self(o.value), "axes": list(o.axes), "keeps_axis": o.keeps_axis}
                for o in doc.outputs
            ],
            "stages": [self.stage(s) for s in doc.stages],
            "assumptions": list(doc.assumptions),
            "obligations": [self.obligation(o) for o in doc.obligations],
        }
        head = {"format": FORMAT, "version": VERSION, "spec_hash": doc.spec_hash, "terms": self.rows}
        return head | body

    def monoid(self, m: Monoid) -> dict[str, Any]:
        actions = [[name, self.all(terms)] for name, terms in m.actions]
        identity, combined = self.all(m.identity), self.all(m.combined)
        return {
            "name": m.name,
            "commutative": m.commutative,
            "identity": identity,
            "combined": combined,
            "actions": actions,
        }

    def one_pass(self, p: Pass) -> dict[str, Any]:
        return {
            "order": list(p.order),
            "anchors": [self.anchor(a) for a in p.anchors],
            "slots": [self.slot(s) for s in p.slots],
            "exports": [[name, self(t)] for name, t in p.exports],
        }

    def anchor(self, a: Anchor) -> dict[str, Any]:
        return {
            "name": a.name,
            "axes": list(a.axes),
            "kind": a.kind,
            "policy": a.policy,
            "generator": self.optional(a.generator),
            "target": self.optional(a.target),
            "shift": self.optional(a.shift),
        }

    def slot(self, s: Slot) -> dict[str, Any]:
        return {
            "name": s.name,
            "kind": s.kind,
            "axes": list(s.axes),
            "lift": self.all(s.lift),
            "parts": list(s.parts),
            "identity": None if s.identity is None else self.all(s.identity),
            "domain": sorted(s.domain),
            "moves": [[self(m.coefficient), m.slot] for m in s.moves],
            "average": s.average,
            "vanishes": s.vanishes,
            "extra": list(s.extra) if s.extra else None,
            "monoid": s.monoid,
        }

    def stage(self, s: Stage) -> dict[str, Any]:
        return {
            "name": s.name,
            "node": self(s.node),
            "pair": s.pair,
            "rank": s.rank,
            "generators": self.all(s.generators),
            "coefficients": self.all(s.coefficients),
            "rules": list(s.rules),
        }

    def obligation(self, o: Obligation) -> dict[str, Any]:
        return {
            "law": o.law,
            "subject": o.subject,
            "left": self(o.left),
            "right": self(o.right),
            "equality": o.equality,
            "given": self.all(o.given),
            "variables": variables(o),
        }


def as_json(doc: Document) -> dict[str, Any]:
    """The document as plain data; every term is written once."""
    return Numbering().document(doc)
