"""Errors with four parts: what was refused (with its value), where, why (with a witness), and what to try instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg import _hooks
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.proofs.refusals.document import Refusal


class RedalgError(ValueError):
    """Every refusal of the library. The parts are attributes and labelled lines of the message.

    >>> print(RedalgError("an axis named 'j'", "tensors('x[j j]')", "it occurs twice", "give each axis its own name"))
    refused: an axis named 'j'
    where:   tensors('x[j j]')
    why:     it occurs twice
    try:     give each axis its own name
    """

    def __init__(self, what: str, where: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        labelled = (("refused:", what), ("where:", where), ("why:", why), ("try:", fix))
        super().__init__("\n".join(f"{label:<8} {text}" for label, text in labelled if text))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.where, self.why, self.fix, dict(self.__dict__))


def _rebuild(cls: type[RedalgError], what: str, where: str, why: str, fix: str, state: dict[str, Any]) -> RedalgError:
    error = cls.__new__(cls)
    RedalgError.__init__(error, what, where, why, fix)
    error.__dict__.update(state)
    return error


class NotDecomposable(Shown, RedalgError):
    """No incremental form exists inside the stated class; the witness is plain data that can be recomputed.

    Attributes: ``stage`` (name of the refused stage), ``reason``, ``witness``, ``passes`` (allowed, or needed where
    known), ``scope`` (the class of forms and the number of slots excluded) and ``refuted`` (the spec, the node that the
    witness is about, and the outputs that hold it, as they were rewritten).

    >>> import redalg as ra
    >>> try:
    ...     ra.derive_incremental(ra.parse("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))"))
    ... except NotDecomposable as refused:
    ...     print(refused.scope)
    ...     print(refused.stage, len(refused.witness.points), refused.witness.value != 0)
    ...     refused.certificate
    (sum, ×) over j: no form with fewer than 12 slots
    stage2 12 True
    <Refusal: (sum, ×), 12 slots>
    """

    def __init__(
        self,
        what: str,
        where: str = "",
        why: str = "",
        fix: str = "",
        *,
        stage: str = "",
        reason: str = "",
        witness: Any = None,
        passes: int | None = None,
        scope: str = "",
        refuted: Any = None,
    ) -> None:
        super().__init__(what, where, why, fix)
        self.stage, self.reason, self.witness = stage, reason or why, witness
        self.passes, self.scope = passes, scope
        self.refuted = refuted

    @property
    def certificate(self) -> Refusal:
        """The witness with the spec, as data that is checked without the engine: ``verdict.certificate.verify()``.

        Raises: CertificateError where there is no witness, or the refused stage is not written in the spec.
        """
        return _hooks.refusal(self)


class Undecided(Shown, RedalgError):
    """Neither a form nor a refutation was found. ``missing`` names what could not be shown about ``stage``.

    >>> import redalg as ra
    >>> verdict = ra.verdict(ra.parse("u = mean[j](x[j]); return at = argmin[j](abs(x[j] - u))"))
    >>> type(verdict).__name__, verdict.stage
    ('Undecided', 'stage2')
    >>> print(verdict.missing)
    a law that separates abs(sum[j](x[j]) / size[j] - x[j]): abs is not strictly monotone here
    """

    def __init__(
        self, what: str, where: str = "", why: str = "", fix: str = "", *, stage: str = "", missing: str = ""
    ) -> None:
        super().__init__(what, where, why, fix)
        self.stage, self.missing = stage, missing or why


class CertificateError(RedalgError):
    """An obligation of a certificate is not proved, or the document is damaged, or incomplete.

    >>> import json
    >>> import redalg as ra
    >>> from redalg.proofs import Certificate
    >>> data = json.loads(ra.derive_incremental(ra.catalog["logsumexp"]).certificate.to_json())
    >>> gone = data["obligations"].pop()
    >>> try:
    ...     Certificate.from_json(json.dumps(data)).verify()
    ... except ra.CertificateError as refused:
    ...     print(refused.what)
    obligation O8 y is missing or changed
    """
