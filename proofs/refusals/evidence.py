"""The evidence of a refusal: a matrix of full rank, with the points and streams of the spec that it is taken from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from redalg.proofs.document.document import Document
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Term

Array = Any  # Fraction | bool | tuple of arrays
Element = Mapping[str, Array]
Entry = Fraction | tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Evidence:
    """What a certificate of a refusal states, field by field as in its text (`redalg.proofs.refusals.document`)."""

    document: Document
    stage: Term
    excludes: str  # "(sum, ×)" | "(prod, power)" | "jacobian"
    kind: str  # "minor" | "jacobian"
    variable: str | None
    parameters: Element
    sizes: Mapping[str, int]
    positions: Mapping[str, int]
    places: tuple[int, ...]
    points: tuple[Element, ...]
    streams: tuple[tuple[Element, ...], ...]
    matrix: tuple[tuple[Entry, ...], ...]
    excluded_slots: int

    @property
    def spec_hash(self) -> str:
        """The hash of the spec this is about."""
        return self.document.spec_hash


def broken(what: str, where: str, why: str) -> CertificateError:
    """A certificate of a refusal that is none, or that proves nothing."""
    return CertificateError(what, where, why, "export it again with verdict.certificate.to_json()")
