"""From a refusal to its certificate: the witness's numbers as rationals, beside the spec and the stage as terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from redalg.certify.export import Export
from redalg.errors import CertificateError, NotDecomposable
from redalg.graph.node import Node, walk
from redalg.proofs.document.document import Document
from redalg.proofs.refusals.document import Refusal
from redalg.proofs.refusals.proof import prove_rank
from redalg.proofs.refusals.stages import surviving

if TYPE_CHECKING:
    from redalg.language.spec import Spec
    from redalg.verdicts.witness import Witness

CLASS = {"sum": "(sum, ×)", "prod": "(prod, power)"}
DIGITS = 100  # to which an entry that is not rational is stated
MOST_DIGITS = 4000  # of what is calculated on the way to them: log(1 + e^-x) has as many digits less as x is large


def certificate(verdict: NotDecomposable) -> Refusal:
    """The certificate of a refusal (``verdict.certificate``).

    Raises: CertificateError where the refusal has no witness, or is about a stage that the spec does not contain as it
    is written (reductions that were merged or split before they were separated).
    """
    if verdict.witness is None or verdict.refuted is None:
        raise _without(verdict, "it has no witness")
    spec, node, *_ = verdict.refuted
    if node not in set(walk(*spec.outputs.values())):
        raise _without(verdict, "the refused reduction is a rewriting of those of the spec")
    return exported(spec, node, verdict.witness)


def unneeded(verdict: NotDecomposable) -> str:
    """What could not be shown of the outputs for them to need the refused stage; nothing where one of them does.

    Of a stage that is a rewriting of those of the spec, the outputs are rewritten, too.
    """
    if verdict.witness is None or verdict.refuted is None or verdict.witness.kind == "jacobian":
        return ""
    needing, missing = surviving(_rewritten(verdict, replace(verdict.witness, matrix=())))  # which is not read there
    return "" if needing else missing


def unproved(verdict: NotDecomposable) -> str:
    """Why the witness is not proved by what shares no code with the search for it; nothing where it is."""
    if verdict.witness is None or verdict.refuted is None:
        return ""
    try:
        prove_rank(_rewritten(verdict, verdict.witness))
    except CertificateError as e:
        return f"{e.what}: {e.why}"
    return ""


def _rewritten(verdict: NotDecomposable, w: Witness) -> Refusal:
    spec, node, outputs = verdict.refuted
    if node not in set(walk(*spec.outputs.values())):
        spec = type(spec).from_nodes(dict(zip(spec.outputs, outputs, strict=True)), empty=dict(spec.empty))
    return exported(spec, node, w)


def exported(spec: Spec, node: Node, w: Witness) -> Refusal:
    """The certificate of a witness against a stage (or output) of a spec."""
    export = Export(spec, None)  # type: ignore[arg-type]  # only nodes are copied
    outputs = {name: export(n) for name, n in spec.outputs.items()}
    empty = {name: export._empty(value) for name, value in spec.empty.items()}
    stage = export(node)
    monoids = tuple(export._monoid(m) for m in export.monoids)
    rational = isinstance(w.value, Fraction)
    return Refusal(
        Document(export.terms, w.axis, outputs, empty, (), (), monoids=monoids),
        stage,
        "jacobian" if w.kind == "jacobian" else CLASS[node.attr.kind],
        w.kind,
        w.variable,
        _exact(w.parameters),
        w.sizes,
        w.positions,
        tuple(map(int, w.places)),
        tuple(map(_exact, w.points)),
        tuple(tuple(map(_exact, stream)) for stream in w.streams),
        tuple(tuple(entry(v, rational) for v in row) for row in w.matrix),
        w.slots_excluded,
    )


def _exact(element: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an element as rationals: a float is the one it holds."""

    def number(v: Any) -> Any:
        return tuple(map(number, v)) if isinstance(v, tuple) else v if isinstance(v, bool) else Fraction(v)

    return {name: number(v) for name, v in element.items()}


def entry(value: Any, rational: bool) -> Fraction | tuple[Fraction, Fraction]:
    """A rational, or rationals on both sides of the number a witness shows to at least 120 digits."""
    if rational and isinstance(value, Fraction):
        return value
    middle = value if isinstance(value, Fraction) else _middle(value)
    size = max(abs(middle), Fraction(1, 10**DIGITS))
    unit = Fraction(10) ** (len(str(int(size))) - len(str(int(1 / size))) - DIGITS)
    whole = middle // unit
    return (whole - 1) * unit, (whole + 2) * unit


def _middle(closed: Any) -> Fraction:
    """A closed number. SymPy takes log(1 + e^-391) for 0, and the logarithm of that for -oo: then all of it is
    calculated to more digits. Raises: CertificateError where these are too few."""
    import mpmath
    import sympy

    found = closed.evalf(DIGITS + 60)
    if not found.is_finite:
        with mpmath.workdps(MOST_DIGITS):
            found = sympy.lambdify((), closed, "mpmath")()
        if not mpmath.isfinite(found):
            why = f"it has no value to {MOST_DIGITS} digits: it lies next to a pole"
            fix = "read verdict.reason and verdict.witness"
            raise CertificateError("an entry of a witness", "NotDecomposable.certificate", why, fix)
        found = mpmath.nstr(found, DIGITS + 60)
    return Fraction(str(found))


def _without(verdict: NotDecomposable, why: str) -> CertificateError:
    fix = "read verdict.reason and verdict.witness"
    return CertificateError(f"the refusal of {verdict.stage or 'a spec'}", "NotDecomposable.certificate", why, fix)
