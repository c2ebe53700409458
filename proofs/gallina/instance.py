"""Rocq instances of certificates: one file for one certificate, in which coqc proves what the certificate states.

From the document alone. Every obligation becomes a lemma over the reals under its own name (`O1_stage2`,
`O2_sum_exp`, …), closed by the tactics of `proofs/theories`; what cannot be printed is listed with its reason, in the
file and in `Instance.skipped`. Nothing is assumed: a lemma's hypotheses are the facts and the domains its obligation
names, and where it is about the definition, that the definition has a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.gallina.form import PrintedForm
from redalg.proofs.gallina.lemmas import Lemma, lemmas
from redalg.proofs.gallina.words import Unprintable

if TYPE_CHECKING:
    from redalg.proofs.certificate import Certificate

THEORIES = (
    "Fold",
    "Sums",
    "Transport",
    "Average",
    "Order",
    "TopK",
    "Invariant",
    "Tactics",
    "Printed",
    "Positions",
    "Form",
)


@dataclass(frozen=True)
class Instance:
    """A printed certificate: the text of a `.v` file, the names it proves, and what it leaves out.

    `skipped` pairs an obligation with the reason; coqc compiles the text beside the compiled `proofs/theories`
    (``coqc -Q THEORIES Redalg FILE.v``) exactly when every lemma in it holds.

    >>> import redalg as ra
    >>> instance = rocq(ra.derive_incremental(ra.parse("return y = sum[j](x[j])")).certificate)
    >>> instance.theorems, instance.skipped, "Lemma" in instance.text
    (('form_is_y', 'stream_is_y'), (), True)
    """

    text: str
    lemmas: tuple[Lemma, ...]
    skipped: tuple[tuple[Obligation, str], ...]
    theorems: tuple[str, ...] = ()
    without: str = ""  # why there is no theorem about the form, or about which outputs there is none

    def __str__(self) -> str:
        return self.text


def rocq(certificate: Certificate | Document) -> Instance:
    """The Rocq instance of a certificate.

    >>> import redalg as ra
    >>> instance = rocq(ra.derive_incremental(ra.catalog["logsumexp"]).certificate)
    >>> print(instance.lemmas[1].name, len(instance.skipped))
    O2_sum_exp 0
    """
    doc = certificate if isinstance(certificate, Document) else certificate.document
    found, skipped = lemmas(doc)
    parts = [_head(doc), *(f"{_said(x.obligation)}\n{x}" for x in found)]
    theorems, why = _form(doc, found, parts)
    if skipped or why:
        parts.append("(** ** Not printed *)\n")
        parts += [f"(* {_plain(str(o))}: {_plain(reason)} *)" for o, reason in skipped]
        parts += [f"(* the form as a whole: {_plain(why)} *)"] * bool(why)
    return Instance("\n".join(parts) + "\n", tuple(found), tuple(skipped), theorems, why)


def _form(doc: Document, found: list[Lemma], parts: list[str]) -> tuple[tuple[str, ...], str]:
    """Appends the form's text; the names of its theorems, and why there is none."""
    proved = {x.obligation.subject: x.name for x in found if x.obligation.law == "O8"}
    try:
        form = PrintedForm(doc, {o.name: proved[o.name] for o in doc.outputs if o.name in proved})
        text = form.text()
    except Unprintable as e:
        return (), str(e)
    parts.append("(** ** The form, for streams of every length, and the definition *)\n")
    parts.append(text)
    left = [o.name for o in doc.outputs if o.name not in proved]
    return tuple(form.theorems), f"no theorem about {', '.join(left)}, whose O8 is not printed" if left else ""


def _head(doc: Document) -> str:
    names, axis = ", ".join(doc.spec), ", ".join(doc.axis)
    title = f"(** * Certificate {doc.spec_hash}: {_plain(names)} over {_plain(axis)} *)"
    assumed = f"(* assumes {_plain(', '.join(doc.assumptions))} *)\n" if doc.assumptions else ""
    return f"{title}\n{assumed}\n{header()}"


def header() -> str:
    """What every printed file begins with."""
    imports = f"From Coq Require Import List Permutation Reals Bool.\nFrom Redalg Require Import {' '.join(THEORIES)}."
    return f"{imports}\nImport ListNotations.\nOpen Scope R_scope.\n"


SAYS = {
    "O1": "separation",
    "O2": "transport of one element",
    "O3": "two moves are one",
    "O4": "a law of the combination",
    "O5": "the action distributes",
    "O6": "the identity",
    "O7": "in its domain",
    "O8": "homomorphism, or the definition",
}


def _said(o: Obligation) -> str:
    return f"(* {o.law}, {_plain(o.subject)}: {SAYS.get(o.law, o.law)} *)"


def _plain(text: str) -> str:
    """Text that ends no comment and opens none."""
    return text.replace("(*", "( *").replace("*)", "* )").replace('"', "'")
