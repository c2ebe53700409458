"""Errors of the checker: four parts, also where the rest of the library cannot be imported."""

from __future__ import annotations

try:
    from redalg.errors import CertificateError, RedalgError
except ImportError:  # the checker also runs with every other module blocked

    class RedalgError(ValueError):  # type: ignore[no-redef]
        """What was refused, where, why, and what to try."""

        def __init__(self, what: str, where: str = "", why: str = "", fix: str = "") -> None:
            self.what, self.where, self.why, self.fix = what, where, why, fix
            labelled = (("refused:", what), ("where:", where), ("why:", why), ("try:", fix))
            super().__init__("\n".join(f"{label:<8} {text}" for label, text in labelled if text))

    class CertificateError(RedalgError):  # type: ignore[no-redef]
        """A document that is damaged or incomplete, or states what is not proved."""


def damaged(what: str, where: str, why: str) -> CertificateError:
    """A document that is not a certificate; nothing of it is used."""
    return CertificateError(what, where, why, "export the certificate again with form.certificate.to_json()")


__all__ = ["CertificateError", "RedalgError", "damaged"]
