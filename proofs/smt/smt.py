"""Certificates for SMT solvers: every obligation as an SMT-LIB 2 text that any solver can read, and Z3's verdict.

A text holds what an obligation rests on and its *negation*, over the real numbers: ``unsat`` means that it holds. In it

* the elements of tensors, the parts of a state and the lengths of axes are real constants, for one arbitrary element;
* ``exp``, ``log``, roots and the other functions are uninterpreted; sums, extrema, lists and the other reductions are
  constants. Both come with the instances of their axioms that the terms call for (`redalg.proofs.smt.instances`).

So an identity between the sides at an element is proved for all reals, and one that reads reductions for every length
of at least one place along every axis (in both parts of a split): no reduction is written out for some length. Streams
and parts without an element are outside. What has a value, and where a value is an infinity, are conditions of their
own (`redalg.proofs.smt.lower`); an obligation is claimed where its definition has a value, an exact one where either
side has (`redalg.proofs.smt.problem`). Real numbers are meant throughout: nothing is said about roundings of floats.

What must be trusted for a verdict *proved*: this translation (no code in common with `redalg.proofs.checker.check`,
and none of the engine), the axioms, and Z3. A text alone leaves Z3 out, and says the same to any other solver.
"""

from __future__ import annotations

import re
from typing import Any

from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import Finding, Report, compare
from redalg.proofs.checker.required import required
from redalg.proofs.checker.structure import check_structure
from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.smt.expand import TooLarge
from redalg.proofs.smt.logic import Unexpressed
from redalg.proofs.smt.problem import script, text
from redalg.proofs.smt.refute import confirmed
from redalg.proofs.smt.solver import asked

RLIMIT = 2_000_000


def smt_lib(certificate: Certificate) -> dict[str, str]:
    """One SMT-LIB 2 text (logic QF_UFNRA, one ``check-sat``) per obligation, by ``number-law-subject``, in order.

    ``unsat`` means that the obligation holds, ``sat`` and ``unknown`` mean nothing: a model may choose values of
    functions and sums that they cannot have. An obligation that has no statement here (complex values, `conj`, …) is a
    text that says so in its first lines and asserts nothing. Needs no solver. Raises: CertificateError where the form
    is none, or the obligations stated are not those that the spec and the form require.

    >>> import redalg as ra
    >>> texts = smt_lib(ra.derive_incremental(ra.catalog["logsumexp"]).certificate)
    >>> print(texts["001-O2-sum_exp"].splitlines()[0])
    ; O2 of sum_exp (exact); unsat means that it holds for all real numbers
    """
    doc = certificate.document
    check_structure(doc)
    compare(required(doc), doc.obligations)
    names = (f"{n:03d}-{o.law}-{re.sub('[^A-Za-z0-9_]', '_', o.subject)[:60]}" for n, o in enumerate(doc.obligations))
    return {name: text(o, doc) for name, o in zip(names, doc.obligations, strict=True)}


def solve(certificate: Certificate, rlimit: int = RLIMIT) -> Report:
    """Z3's verdict on every obligation, within `rlimit` units of Z3's count of work each.

    *proved*; *refuted*, with the point that Z3 found, at which both sides were evaluated exactly and differ; or
    *unknown* with the reason. Z3 is asked once, what the text of `smt_lib` says. Deterministic for one version of Z3.
    Raises: CertificateError where Z3 is not installed, and where the obligations stated are not those that the spec and
    the form require.

    >>> import redalg as ra
    >>> print(solve(ra.derive_incremental(ra.catalog["logsumexp"]).certificate))  # doctest: +SKIP
    15 proved
    """
    z3 = _z3()
    doc = certificate.document
    check_structure(doc)
    needed = required(doc)
    compare(needed, doc.obligations)
    return Report(tuple(judged(z3, o, doc, rlimit) for o in needed), doc.assumptions)


def judged(z3: Any, o: Obligation, doc: Document, rlimit: int = RLIMIT) -> Finding:
    """Z3's verdict on one obligation of a document."""
    try:
        answer = asked(z3, script(o, doc), rlimit)
    except Unexpressed as e:
        return Finding(o, "unknown", f"not expressed: {e}")
    except (OverflowError, RecursionError, TooLarge, z3.Z3Exception) as e:
        return Finding(o, "unknown", f"given up: {str(e)[:200] or type(e).__name__}")
    if answer.status == "unsat":
        return Finding(o, "proved", f"{answer.spent} units of work")
    if answer.status == "sat":
        point = confirmed(o, doc, answer.model)
        if point is not None:
            return Finding(o, "refuted", point)
        return Finding(o, "unknown", f"a model that is no refutation, {answer.spent} units of work")
    if answer.spent >= rlimit:
        return Finding(o, "unknown", f"no answer within {rlimit} units of work")
    return Finding(o, "unknown", f"no answer, {answer.spent} units of work")


def _z3() -> Any:
    try:
        import z3
    except ImportError as e:
        raise CertificateError(
            "Z3's verdict on a certificate", "redalg.proofs.solve", f"import z3: {e}", "pip install 'redalg[proofs]'"
        ) from None
    return z3


__all__ = ["RLIMIT", "judged", "smt_lib", "solve"]
