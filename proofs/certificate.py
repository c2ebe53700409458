"""`Certificate`: what a form claims, as an object that stands on its own and can be checked by something else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from redalg.proofs.checker.check import Report, accepted, check
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.reading import loads
from redalg.proofs.document.shown import Shown
from redalg.proofs.document.writing import as_json


class Certificate(Shown):
    """The obligations of a derived form with everything they speak about (theory, section 6).

    It holds the spec, the form (anchors, slots, transports, outputs), the stages with their bases, and the obligations
    O1 to O8 as unevaluated pairs. `verify` recomputes all of it: which obligations the form must have, and whether each
    holds. Plain data; pickles; equal when the JSON is equal.

    >>> import redalg as ra
    >>> c = ra.derive_incremental(ra.catalog["variance"]).certificate
    >>> print(c.verify())
    25 proved
    >>> Certificate.from_json(c.to_json()) == c
    True
    >>> str(c.obligations[0]), c.assumptions, len(c.spec_hash)
    ('O1 stage1', (), 32)
    """

    def __init__(self, document: Document) -> None:
        self.document = document

    @property
    def obligations(self) -> tuple[Obligation, ...]:
        """What is claimed, law by law."""
        return self.document.obligations

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The named assumptions under which the obligations are claimed."""
        return self.document.assumptions

    @property
    def spec_hash(self) -> str:
        """The hash of the spec this is about; the only hash in a certificate."""
        return self.document.spec_hash

    def to_json(self, indent: int | None = None) -> str:
        """The certificate as JSON (version 1, `redalg.proofs.document.document`), each term written once."""
        separators = (",", ":") if indent is None else None
        return json.dumps(as_json(self.document), indent=indent, separators=separators)

    @classmethod
    def from_json(cls, text: str | bytes) -> Certificate:
        """The certificate of a JSON text. Raises: CertificateError for anything that is not one, naming the place."""
        return cls(loads(text))

    def verify(self, allow: Iterable[str] = (), thorough: bool = False) -> Report:
        """Check every obligation without the engine; statuses are recomputed, never read.

        `allow` may name "tested" and "unknown"; `thorough` also evaluates what is proved at exact points. Raises:
        CertificateError for an obligation that is not proved (nor allowed), that is missing, changed or added, for a
        form that is none, and for assumptions without bearing.

        >>> import redalg as ra
        >>> ra.derive_incremental(ra.catalog["mean"]).certificate.verify(thorough=True).proved
        True
        """
        return accepted(check(self.document, thorough), allow, "read certificate.obligations")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Certificate) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.spec_hash)

    def __reduce__(self) -> tuple[Any, ...]:
        return Certificate.from_json, (self.to_json(),)

    def __repr__(self) -> str:
        laws: dict[str, int] = {}
        for o in self.obligations:
            laws[o.law] = laws.get(o.law, 0) + 1
        counted = ", ".join(f"{law}: {n}" for law, n in sorted(laws.items()))
        return f"<Certificate of {', '.join(self.document.spec)}; {counted}>"
