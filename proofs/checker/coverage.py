"""Whether a document accounts for every sum of its spec, and claims no assumption that has no bearing on it.

A sum over the axis whose body separates must be among the stages, with its O1. A sum that does not separate by itself
(Σ relu(x - μ) within Σ relu(x - μ) - Σ relu(μ - x)) is no stage; what it is part of is proved by the outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redalg.proofs.checker.generators import Case, Value
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.polynomial import Unknown
from redalg.proofs.document.document import Document, Stage
from redalg.proofs.document.errors import CertificateError
from redalg.proofs.document.terms import Term, walk
from redalg.proofs.document.work import Exhausted, share, spend

PAIRS = {
    "sum": "(sum, ×)",
    "prod": "(prod, power)",
    "any": "(any, and)",
    "all": "(all, or)",
    "monoid": "(monoid, action)",
}
FORM = 50_000  # steps for the normal form of one reduction; past it the reduction stays as it is written
LISTS = 125_000  # the same of a list, whose entries are written out
# assumption -> operations of which one must occur for it to have a bearing
BEARING = {
    "cast_commutes": {"cast"},
    "cast_left_out": {"cast"},
    "positive_log_arguments": {"log", "pow"},
    "nonnegative_factors": {"pow", "prod"},
    "finite_exponents": {"pow", "exp"},
    "finite_stage_values": {"reduce"},
}


def check_coverage(doc: Document, normal: Normal) -> None:
    """Raise CertificateError for a sum without its stage, a wrong pair, or an assumption without bearing."""
    for s in doc.stages:
        _check_stage(s, doc, normal)
    stated = [form_of(s.node, normal) for s in doc.stages]
    terms = list(walk(*doc.spec.values()))
    forms = [(t, form_of(t, normal)) for t in terms if t.op == "reduce" and set(t.attr.axes) == set(doc.axis)]
    needed = reached_from([form_of(root, normal) for root in doc.spec.values()], normal)
    for t, form in forms:
        spend(len(stated))
        if form in stated or not _is_live(form, needed):
            continue
        if not _is_sum(t, doc) or separates(t, doc, normal):
            raise _refused(f"a {t.attr.kind} of the spec", "stages", "it is no stage; of a sum the O1 is missing")
    known = [f for _, f in forms] + [form_of(t, normal) for t in _parts_of_extrema(doc, terms)]
    _check_known(doc, stated, known)
    _check_assumptions(doc, terms)


def _check_known(doc: Document, stated: list[object], known: list[object]) -> None:
    """Every stage that is no sum is a reduction of the spec."""
    for s, form in zip(doc.stages, stated, strict=True):
        spend(len(known))
        if not _is_sum(s.node, doc) and form not in known:
            raise _refused(f"stage {s.name}", "stages", "the spec has no such reduction")


def _parts_of_extrema(doc: Document, terms: list[Term]) -> Iterator[Term]:
    """The extrema along the stream that extrema over further axes are made of."""
    own = set(doc.axis)
    for t in terms:
        if t.op == "reduce" and t.attr.kind in ("max", "min") and own < set(t.attr.axes):
            yield doc.terms.reduce(t.attr.kind, doc.axis, *t.args)


def _check_stage(s: Stage, doc: Document, normal: Normal) -> None:
    kind = s.node.attr.kind if s.node.op == "reduce" else ""
    if s.pair != PAIRS.get(kind, f"({kind}, monotone)"):
        raise _refused(f"the pair {s.pair!r:.60}", f"stage {s.name}", f"its reduction is {kind or 'none'}")
    if _is_sum(s.node, doc) and s.rank is None and separates(s.node, doc, normal):
        raise _refused(f"stage {s.name}", "stages", "its generators are missing, and with them its O1")


def _is_live(form: object, needed: set[int] | None) -> bool:
    """Whether an output is written in the reduction, as far as that is known."""
    return needed is None or not isinstance(form, dict) or bool(generators_in(form) & needed)


def _check_assumptions(doc: Document, terms: list[Term]) -> None:
    used = {t.op for t in terms} | {t.attr.kind for t in terms if t.op == "reduce"}
    of_spec, of_form = _formats(terms), _formats(walk(*_read(doc)))
    if not of_form <= of_spec or (
        "cast_commutes" in doc.assumptions and "cast_left_out" not in doc.assumptions and of_form != of_spec
    ):
        raise _refused(f"the formats {sorted(of_form)}", "passes", f"the spec rounds to {sorted(of_spec)}")
    for a in doc.assumptions:
        if not BEARING[a] & used or doc.assumptions.count(a) > 1:
            raise _refused(f"the assumption {a!r}", "assumptions", "nothing in the spec needs it")


def _formats(terms: Iterable[Term]) -> set[str]:
    """What is rounded to: an assumption on rounding is about the formats of the spec."""
    return {t.attr for t in terms if t.op == "cast" and t.attr != "bool"}


def _read(doc: Document) -> Iterator[Term]:
    """The terms of a form."""
    for p in doc.passes:
        yield from (t for s in p.slots for t in s.lift)
        yield from (t for a in p.anchors for t in (a.target, a.generator) if t is not None)
        yield from (t for _, t in p.exports)
    yield from (o.value for o in doc.outputs)


def _refused(what: str, where: str, why: str) -> CertificateError:
    return CertificateError(what, where, why, "export the certificate again with form.certificate.to_json()")


def _is_sum(t: Term, doc: Document) -> bool:
    return t.op == "reduce" and t.attr.kind == "sum" and set(t.attr.axes) == set(doc.axis)


# --- of generators (also for `redalg.proofs.refusals.stages`) ---


def form_of(t: Term, normal: Normal) -> object:
    try:
        with share(LISTS if t.op == "reduce" and t.attr.kind.startswith("topk") else FORM):
            return normal(t)
    except (Unknown, Exhausted, RecursionError):
        return t


def separates(t: Term, doc: Document, normal: Normal) -> bool:
    """Whether no generator of the body mixes the element with a result over the axis."""
    axis = set(doc.axis)
    if not any(x.op == "reduce" and axis & set(x.attr.axes) for x in walk(t.args[0])):
        return bool(t.axes & axis or t.args[0].axes & axis)
    if t.attr.kind != "sum":
        return False
    value = form_of(t, normal)
    return isinstance(value, dict | Case) and not any(is_mixed(g, axis, normal) for g in _generators(value, normal))


def _generators(v: Value, normal: Normal) -> set[int]:
    """The generators of the monomials inside the sums over the axis."""
    if isinstance(v, Case):
        return _generators(v.yes, normal) | _generators(v.no, normal)
    tops = {g for m in v for g, _ in m} if isinstance(v, dict) else set()
    return {h for g in tops if normal.gens[g].kind == "sum" for h, _ in normal.gens[g].data[1]}


def is_mixed(g: int, axis: set[str], normal: Normal) -> bool:
    gen = normal.gens[g]
    try:
        return bool(gen.axes & axis) and _reads_result(g, axis, normal)
    except RecursionError:
        return True


def _reads_result(g: int, axis: set[str], normal: Normal) -> bool:
    spend()
    gen = normal.gens[g]
    if gen.kind == "sum":
        return bool(set(gen.data[0]) & axis) or any(_reads_result(h, axis, normal) for h, _ in gen.data[1])
    if gen.kind == "reduce":
        return bool(set(gen.data[1]) & axis) or any(_reads_result(h, axis, normal) for h in generators_in(gen.data[2]))
    if gen.kind == "exp":
        return any(_reads_result(h, axis, normal) for h, _ in gen.data[0])
    return any(_reads_result(h, axis, normal) for d in gen.data if isinstance(d, dict) for h in generators_in(d))


def reached_from(roots: list[object], normal: Normal) -> set[int] | None:
    """Every generator the outputs are written in (a sum that cancels is none); None where they have no normal form."""
    if not all(isinstance(r, dict | Case) for r in roots):
        return None
    found: set[int] = set()
    stack = [g for r in roots for g in generators_in(r)]
    while stack:
        g = stack.pop()
        if g in found:
            continue
        found.add(g)
        gen = normal.gens[g]
        monos = [m for m in gen.data if gen.kind in ("sum", "exp") and isinstance(m, tuple) and m != gen.data[0]]
        monos += [gen.data[0]] if gen.kind == "exp" else []
        stack += [h for m in monos for h, _ in m]
        stack += [h for d in gen.data for h in generators_in(d)]
    return found


def generators_in(v: object) -> set[int]:
    if isinstance(v, Case):
        return {v.gen} | generators_in(v.yes) | generators_in(v.no)
    return {g for m in v for g, _ in m} if isinstance(v, dict) else set()
