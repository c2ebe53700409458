"""What a form must be before its obligations mean anything: names, axes, and who may read what.

A lift reads the element, parameters and anchors; a move's coefficient reads shifts, parameters and the count, never the
element; a target reads the state. These are conditions on the shape of a document and are checked on its terms.
"""

from __future__ import annotations

from redalg.proofs.document import Document, Pass, Slot
from redalg.proofs.refusals import CertificateError
from redalg.proofs.terms import Term, leaves, walk
from redalg.proofs.work import spend

IDENTITIES = {"sum", "prod", "max", "min", "any", "all"}


def check_structure(doc: Document) -> None:
    """Raise CertificateError unless the document is a form of its spec's shape."""
    if (
        (any(p.slots for p in doc.passes) and not doc.axis)
        or set(doc.spec) != {o.name for o in doc.outputs}
        or len(doc.outputs) != len(doc.spec)
    ):
        raise _wrong("outputs", sorted(o.name for o in doc.outputs), "they are not the outputs of the spec")
    if not set(doc.empty) <= set(doc.spec):
        raise _wrong("spec.empty", sorted(doc.empty), "a value for empty rows of an output the spec lacks")
    handed: set[str] = set()
    for number, p in enumerate(doc.passes):
        _check_pass(doc, p, f"passes[{number}]", handed)
        handed |= {name for name, _ in p.exports}
    for o in doc.outputs:
        names = _own(doc.passes[-1]) if doc.passes else set()
        _reads(o.value, names | handed | {"n"}, f"output {o.name}")
        if o.keeps_axis != bool(doc.spec[o.name].axes & set(doc.axis)):
            raise _wrong(f"output {o.name}", o.keeps_axis, "whether it keeps the axis is otherwise in the definition")
        if not o.keeps_axis and o.value.axes & set(doc.axis):
            raise _wrong(f"output {o.name}", sorted(doc.axis), "it reads elements but does not keep the axis")
        if not doc.spec[o.name].axes <= set(o.axes):
            raise _wrong(f"output {o.name}", list(o.axes), "its axes are not those of the definition")
    if len({s.name for s in doc.stages}) < len(doc.stages):
        raise _wrong("stages", [s.name for s in doc.stages], "two have one name")
    for s in doc.stages:
        if len(s.generators) != len(s.coefficients) or (s.rank or 0) != len(s.generators):
            raise _wrong(f"stage {s.name}", s.rank, "its rank is not the number of its generators and coefficients")
        _check_stage(doc, s.name, s.generators, s.coefficients)


def _check_stage(doc: Document, name: str, generators: tuple[Term, ...], coefficients: tuple[Term, ...]) -> None:
    """A generator reads the element and what passes before the last one hand on, a coefficient anything else."""
    axis = set(doc.axis)
    handed = {name for p in doc.passes[:-1] for name, _ in p.exports}
    for t in generators:
        _reads(t, handed, f"stage {name}")
    for t in coefficients:
        _reads(t, set(), f"stage {name}")
    for h in coefficients:
        if h.axes & axis:
            raise _wrong(f"stage {name}", "a coefficient", "it reads the element")
    for g in generators:
        results = {t for t in walk(g) if t.op == "reduce" and axis & set(t.attr.axes)}
        ties = {a for t in walk(g) if t.op == "eq" for a in t.args if a.op == "reduce"}
        if results - ties:  # the tie of an element with its extremum moves with the extremum (theory, section 3.4)
            raise _wrong(f"stage {name}", "a generator", "it reads a result of the axis")


def _own(p: Pass) -> set[str]:
    return {a.name for a in p.anchors} | {part for s in p.slots for part in s.parts}


def _check_pass(doc: Document, p: Pass, where: str, handed: set[str]) -> None:
    anchors, slots = {a.name for a in p.anchors}, {s.name for s in p.slots}
    if sorted(p.order) != sorted(anchors | slots) or len(p.order) != len(p.anchors) + len(p.slots):
        raise _wrong(f"{where}.order", list(p.order), "it is not every anchor and slot once")
    for a in p.anchors:
        if a.generator is not None:
            _reads(a.generator, handed, f"{where}, anchor {a.name}")
        for t in (a.target, a.shift):
            if t is not None:
                _reads(t, _own(p) | handed | {"n"}, f"{where}, anchor {a.name}")
                _free_of(doc, t, f"{where}, anchor {a.name}")
                if not t.axes <= set(a.axes):
                    raise _wrong(f"{where}, anchor {a.name}", sorted(t.axes), "what it moves to has axes it lacks")
    for s in p.slots:
        _check_slot(doc, p, s, f"{where}, slot {s.name}", anchors, handed)
    for name, value in p.exports:
        _reads(value, _own(p) | handed | {"n"}, f"{where}, export {name}")
        _free_of(doc, value, f"{where}, export {name}")


def _check_slot(doc: Document, p: Pass, s: Slot, where: str, anchors: set[str], handed: set[str]) -> None:
    for body in s.lift:
        _reads(body, anchors | handed, where)
        missing = body.axes - set(s.axes) - set(doc.axis)
        if missing:
            raise _wrong(where, sorted(missing), "the lift has axes the slot lacks")
    shifts = {f"shift:{a}" for a in anchors}
    sums = {x.name for x in p.slots if x.kind == "sum"}
    for m in s.moves:
        _reads(m.coefficient, shifts | handed | {"n"}, where)
        _free_of(doc, m.coefficient, where)
        if m.slot not in sums | {"n"} or s.kind != "sum":
            raise _wrong(where, m.slot, "it is no sum of the same pass")
    if (s.identity is not None) != (s.kind in IDENTITIES | {"monoid"} and not s.average):
        raise _wrong(where, s.kind, "an identity is stated where there is none, or is missing")
    if s.identity is not None and len(s.identity) != len(s.parts):
        raise _wrong(where, len(s.identity), "the identity has another number of parts")
    if s.average and s.kind != "sum":
        raise _wrong(where, s.kind, "only sums are held as averages")
    if s.monoid is not None and not 0 <= s.monoid < len(doc.monoids):
        raise _wrong(where, s.monoid, "there is no such monoid")


def _reads(term: Term, names: set[str], where: str) -> None:
    spend(1 + len(names) // 8)
    for leaf in leaves(term):
        if leaf.attr.name not in names:
            raise _wrong(where, leaf.attr.name, "it reads a name that is not there at that time")


def _free_of(doc: Document, term: Term, where: str) -> None:
    if term.axes & set(doc.axis):
        raise _wrong(where, sorted(doc.axis), "it reads the element")


def _wrong(where: str, value: object, why: str) -> CertificateError:
    return CertificateError(
        f"{value!r:.120}", where, why, "export the certificate again with form.certificate.to_json()"
    )
