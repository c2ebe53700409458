"""``python -m redalg verify FILE`` and ``derive … --certificate FILE``: certificates as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from redalg.errors import RedalgError
from redalg.proofs.certificate import Certificate
from redalg.proofs.checker.check import check
from redalg.proofs.derivatives.document import FORMAT as DERIVATIVE
from redalg.proofs.derivatives.document import Derivative
from redalg.proofs.derivatives.proof import proved
from redalg.proofs.document.reading import parsed
from redalg.proofs.gallina.instance import rocq
from redalg.proofs.refusals.document import FORMAT, Refusal
from redalg.proofs.smt.smt import smt_lib

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.proofs.certificate import Certificate
    from redalg.proofs.refusals.document import Refusal


def write_certificate(form: Form, path: str) -> None:
    """Write the form's certificate as JSON. Raises: RedalgError where the file cannot be written."""
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(form.certificate.to_json() + "\n")
    except OSError as e:
        raise RedalgError(f"the file {path!r}", "--certificate", str(e), "name a file that can be written") from None
    laws = len(form.certificate.obligations)
    print(f"\ncertificate of {laws} obligations: {path}; check it with `python -m redalg verify {path}`")


def verify_file(
    path: str, allow: Sequence[str], smt: str | None = None, rocq: str | None = None, thorough: bool = False
) -> bool:
    """Print what the checker finds about a certificate; whether all is proved (obligations: or of an allowed status).

    With `smt`, a folder, the obligations are written there as SMT-LIB 2 texts; `rocq` names a file for the certificate
    as lemmas (`redalg.proofs.rocq`); `thorough` evaluates what is proved at exact points besides, of a form and of a
    derivative (a refusal is evaluated at its witness in any case). Raises: RedalgError for a file that cannot be read,
    or a file or folder that cannot be written, and CertificateError for a file that is no certificate.
    """
    try:
        with open(path, "rb") as f:
            text = f.read()
    except OSError as e:
        raise RedalgError(f"the file {path!r}", "python -m redalg verify", str(e), "name a certificate file") from None
    data = parsed(text)
    if isinstance(data, dict) and data.get("format") == FORMAT:
        _verify_refusal(Refusal.from_json(text), smt, rocq)
        return True
    if isinstance(data, dict) and data.get("format") == DERIVATIVE:
        return _verify_derivative(Derivative.from_json(text), allow, smt, rocq, thorough)
    certificate = Certificate.from_json(text)
    report = check(certificate.document, thorough)
    doc = certificate.document
    print(f"outputs {', '.join(doc.spec)} over {', '.join(doc.axis)}; spec {certificate.spec_hash}")
    print(report)
    if smt is not None:
        write_smt(certificate, smt)
    if rocq is not None:
        _write_rocq(certificate, rocq)
    return all(f.status in {"proved", *allow} for f in report.findings)


def _without_texts(why: str, smt: str | None, rocq: str | None) -> None:
    """Raises: RedalgError where obligations are asked for as texts."""
    for option, given in (("--smt", smt), ("--rocq", rocq)):
        if given is not None:
            raise RedalgError(f"{option} {given}", "python -m redalg verify", why, f"leave {option} out")


def _verify_derivative(c: Derivative, allow: Sequence[str], smt: str | None, rocq: str | None, thorough: bool) -> bool:
    """Print what is found about a derivative; whether all is proved, or of an allowed status."""
    _without_texts("a derivative is rebuilt by rules, and these are lemmas of proofs/theories", smt, rocq)
    report = proved(c.claims, thorough)
    print(f"derivative of {', '.join(c.claims.smooth)} by {', '.join(c.claims.wrt)}; spec {c.spec_hash}")
    print(f"{c.explain()}\n{report}")
    return all(f.status in {"proved", *allow} for f in report.findings)


def _verify_refusal(refusal: Refusal, smt: str | None, rocq: str | None) -> None:
    """Print what a refusal proves. Raises: CertificateError where it proves nothing."""
    _without_texts("the certificate of a refusal is a matrix of full rank, and has no obligations to print", smt, rocq)
    found = refusal.verify()
    print(f"outputs {', '.join(refusal.document.spec)}; spec {refusal.spec_hash}")
    print(f"refused: {found.stage}, in {', '.join(found.outputs)}\n{found}")


def write_smt(certificate: Certificate, folder: str) -> None:
    """Write one SMT-LIB 2 text per obligation; ``unsat`` means that it holds. Raises: RedalgError as `verify_file`."""
    texts = smt_lib(certificate)
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (Path(folder) / f"{name}.smt2").write_text(text, encoding="utf-8")
    except OSError as e:
        raise RedalgError(f"the folder {folder!r}", "--smt", str(e), "name a folder that can be written") from None
    print(f"{len(texts)} SMT-LIB texts: {folder}; unsat means that the obligation holds")


def _write_rocq(certificate: Certificate, path: str) -> None:
    instance = rocq(certificate)
    try:
        with open(path, "w", encoding="utf-8") as f:
            f.write(instance.text)
    except OSError as e:
        raise RedalgError(f"the file {path!r}", "--rocq", str(e), "name a file that can be written") from None
    print(f"{len(instance.lemmas)} lemmas for coqc: {path}")
    for obligation, why in instance.skipped:
        print(f"not printed: {obligation}: {why}")
