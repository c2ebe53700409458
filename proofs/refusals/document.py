"""Certificates of refusals as data: why a stage, or a whole output, has no form with few slots (JSON, version 1).

::

    {"format": "redalg refusal", "version": 1, "spec_hash": …, "terms": […],
     "spec": {"axis": [axes], "outputs": {name: term}, "empty": {name: term}}, "monoids": […],
     "stage": term, "class": "(sum, ×)" | "(prod, power)" | "jacobian", "kind": "minor" | "jacobian",
     "variable": null | tensor, "parameters": {tensor: array}, "sizes": {axis: n}, "positions": {axis: index},
     "places": [n, …], "points": [{tensor: array}, …], "streams": [[{tensor: array}, …], …],
     "matrix": [[number | [low, high], …], …], "claim": {"excluded_slots": K}}

`streams` are sequences of elements, an element the values of every tensor along the streamed axis (an array over the
tensor's other axes); element `places[p]` of every stream is `points[p]`. `parameters` are the tensors without the axis,
`sizes` the lengths of the other axes, and `positions` the index at which an axis that only selects a copy is read.
Numbers are rationals as text. Entry [p][q] of the matrix is the stage's body F at point p in the context of stream q
(log|F| for a product), or the derivative of the output along stream q with respect to the first entry of `variable` at
point p. What follows from it is proved in `redalg.proofs.refusals.proof`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redalg.proofs.document.document import Document
from redalg.proofs.document.reading import NUMBER, Reader, bounded, parsed
from redalg.proofs.document.shown import Shown
from redalg.proofs.document.terms import MOST_AXES
from redalg.proofs.document.writing import Numbering
from redalg.proofs.refusals.evidence import Array, Element, Entry, Evidence, broken
from redalg.proofs.refusals.proof import Refuted, refuted

FORMAT, VERSION = "redalg refusal", 1
CLASSES = ("(sum, ×)", "(prod, power)", "jacobian")
DEEPEST, STREAM, SHOWN = 8, 1000, 40  # nesting of an array, elements of a stream, rows of a matrix


@dataclass(frozen=True)
class Refusal(Evidence, Shown):
    """A refuted stage or output with its evidence.

    >>> import redalg as ra
    >>> spec = ra.parse("m = mean[j](x[j]); return y = sum[j](abs(x[j] - m))")
    >>> c = ra.verdict(spec).certificate
    >>> print(c.verify())
    (sum, ×) over j: no form with fewer than 12 slots
    >>> Refusal.from_json(c.to_json()) == c
    True
    >>> c.excluded_slots, len(c.matrix), len(c.spec_hash)
    (12, 12, 32)
    """

    def to_json(self, indent: int | None = None) -> str:
        """The certificate as JSON, each term written once."""
        separators = (",", ":") if indent is None else None
        return json.dumps(as_json(self), indent=indent, separators=separators, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Refusal:
        """The certificate of a JSON text. Raises: CertificateError for anything that is not one, naming the place."""
        with bounded():
            return RefusalReader(parsed(text)).refusal()

    def verify(self) -> Refuted:
        """Recompute every entry from the spec alone and prove that the matrix has full rank, without the engine.

        Raises: CertificateError where the stage is not the spec's, a point does not occur in a stream, a value is
        outside its tensor's domain, an entry is not what is stated, or the determinant is 0 or not decided.
        """
        return refuted(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.spec_hash)

    def __reduce__(self) -> tuple[Any, ...]:
        return Refusal.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        return f"<Refusal: {self.excludes}, {self.excluded_slots} slots>"


# --- writing ---------------------------------------------------------------------------------------------------------


def as_json(r: Refusal) -> dict[str, Any]:
    number, doc = Numbering(), r.document
    spec = {
        "axis": list(doc.axis),
        "outputs": {name: number(t) for name, t in doc.spec.items()},
        "empty": {name: number(t) for name, t in doc.empty.items()},
    }
    body = {
        "spec": spec,
        "monoids": [number.monoid(m) for m in doc.monoids],
        "stage": number(r.stage),
        "class": r.excludes,
        "kind": r.kind,
        "variable": r.variable,
        "parameters": _element(r.parameters),
        "sizes": dict(r.sizes),
        "positions": dict(r.positions),
        "places": list(r.places),
        "points": [_element(e) for e in r.points],
        "streams": [[_element(e) for e in s] for s in r.streams],
        "matrix": [[_entry(v) for v in row] for row in r.matrix],
        "claim": {"excluded_slots": r.excluded_slots},
    }
    return {"format": FORMAT, "version": VERSION, "spec_hash": r.spec_hash, "terms": number.rows} | body


def _element(e: Element) -> dict[str, Any]:
    return {name: _array(v) for name, v in e.items()}


def _array(v: Array) -> Any:
    if isinstance(v, tuple):
        return [_array(x) for x in v]
    return v if isinstance(v, bool) else str(v)


def _entry(v: Entry) -> Any:
    return [str(x) for x in v] if isinstance(v, tuple) else str(v)


# --- reading ---------------------------------------------------------------------------------------------------------


class RefusalReader(Reader):
    """Reads one certificate of a refusal; every method raises a four-part error that says where."""

    def refusal(self) -> Refusal:
        keys = "format version spec_hash terms spec monoids stage class kind variable parameters sizes positions places"
        head = self.record(self.data, "certificate", *keys.split(), "points", "streams", "matrix", "claim")
        if head["format"] != FORMAT or head["version"] != VERSION or head["version"] is True:
            why = f"this version reads format {FORMAT!r}, version {VERSION}"
            raise broken(f"format {head['format']!r:.80}, version {head['version']!r:.40}", "certificate", why)
        self._read_terms(head["terms"])
        doc = self.about(head)
        claim = self.record(head["claim"], "claim", "excluded_slots")
        return Refusal(
            doc,
            self.term(head["stage"], "stage"),
            self.word(head["class"], "class", *CLASSES),
            self.word(head["kind"], "kind", "minor", "jacobian"),
            None if head["variable"] is None else self.text(head["variable"], "variable"),
            self.element(head["parameters"], "parameters"),
            self.integers(head["sizes"], "sizes"),
            self.integers(head["positions"], "positions"),
            tuple(self.integer(v, "places") for v in self.items(head["places"], "places", SHOWN)),
            tuple(self.element(v, "points") for v in self.items(head["points"], "points", SHOWN)),
            tuple(self.stream(v, f"streams[{q}]") for q, v in enumerate(self.items(head["streams"], "streams", SHOWN))),
            tuple(self.row(v, f"matrix[{p}]") for p, v in enumerate(self.items(head["matrix"], "matrix", SHOWN))),
            self.integer(claim["excluded_slots"], "claim"),
        )

    def about(self, head: Mapping[str, Any]) -> Document:
        """The spec, as a document without a form."""
        spec = self.record(head["spec"], "spec", "axis", "outputs", "empty")
        axis, outputs = self.names(spec["axis"], "spec.axis", MOST_AXES), self.mapping(spec["outputs"], "spec.outputs")
        empty, monoids = self.mapping(spec["empty"], "spec.empty"), self.each(head["monoids"], "monoids", self.monoid)
        doc = Document(self.terms, axis, outputs, empty, (), (), monoids=monoids)
        if head["spec_hash"] != doc.spec_hash:
            why = f"the spec it holds has the hash {doc.spec_hash}"
            raise broken(f"the spec hash {head['spec_hash']!r:.60}", "spec_hash", why)
        return doc

    def integers(self, value: Any, where: str) -> dict[str, int]:
        if type(value) is not dict:
            raise broken(f"{type(value).__name__} {value!r:.60}", where, "an object of integers is expected")
        return {self.text(k, where): self.integer(v, where) for k, v in value.items()}

    def element(self, value: Any, where: str) -> dict[str, Array]:
        if type(value) is not dict:
            raise broken(f"{type(value).__name__} {value!r:.60}", where, "an object of arrays is expected")
        return {self.text(k, where): self.array(v, where) for k, v in value.items()}

    def array(self, value: Any, where: str, depth: int = 0) -> Array:
        if type(value) is bool:
            return value
        if type(value) is list and depth < DEEPEST:
            return tuple(self.array(v, where, depth + 1) for v in value)
        return self.number(value, where)

    def number(self, value: Any, where: str) -> Fraction:
        if type(value) is not str or not NUMBER.fullmatch(value):
            raise broken(f"{type(value).__name__} {value!r:.60}", where, "a rational number as text is expected")
        return self.fraction(["const", value], where)

    def stream(self, value: Any, where: str) -> tuple[Element, ...]:
        return tuple(self.element(v, f"{where}[{j}]") for j, v in enumerate(self.items(value, where, STREAM)))

    def row(self, value: Any, where: str) -> tuple[Entry, ...]:
        return tuple(self.entry(v, where) for v in self.items(value, where, SHOWN))

    def entry(self, value: Any, where: str) -> Entry:
        if type(value) is str:
            return self.number(value, where)
        low, high = self.items(value, where, 2, 2)
        return self.number(low, where), self.number(high, where)
