"""Whether a refused stage survives in an output, and what it is called.

A refused *stage* is not a refused *spec*: in Σ relu(x - μ) - Σ relu(μ - x) = Σ (x - μ) both stages have no form and the
output has one. A stage that stands in a spec, but in no normal form of an output, or that is not shown to matter at
numbers (`redalg.proofs.refusals.influence`), is nothing that a form would have to compute, and its refusal says nothing
about the spec.
"""

from __future__ import annotations

from redalg.proofs.checker.coverage import form_of, generators_in, is_mixed, reached_from
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.document.document import Document
from redalg.proofs.document.terms import Term, walk
from redalg.proofs.document.work import Exhausted, metered, share, spend
from redalg.proofs.refusals.evidence import Evidence
from redalg.proofs.refusals.influence import needs

BUDGET = 1_500_000  # steps for all outputs
SHARE = 400_000  # of them for the normal forms of one
LONGEST = 160  # characters of a stage's text
SIGNS = {"lt": "<", "le": "<=", "eq": "=", "ne": "!=", "and": "and", "or": "or"}


def surviving(r: Evidence) -> tuple[tuple[str, ...], str]:
    """The outputs shown to need the stage of a certificate, and what could not be shown of another one."""
    found, missing = [], "it cancels, or nothing reads it"
    try:
        with metered(BUDGET):
            for name, root in r.document.spec.items():
                if r.stage in set(walk(root)):
                    unshown = _unshown(r, root)
                    missing = unshown or missing
                    found += [] if unshown else [name]
    except Exhausted as e:  # one output took what was left for others
        missing = str(e)
    return tuple(found), missing


def _unshown(r: Evidence, root: Term) -> str:
    try:
        with share(SHARE):
            needed = _needs(r.document, root, r.stage)
    except Exhausted:
        needed = True
    try:
        return needs(r, root) if needed else "it cancels"
    except Exhausted as e:
        return str(e)


def _needs(doc: Document, root: Term, stage: Term) -> bool:
    normal = Normal()
    form, reached = form_of(stage, normal), reached_from([form_of(root, normal)], normal)
    if reached is None or not generators_in(form):
        return reached is None or stage is root
    axis = frozenset(doc.axis)
    hard = {g for g in generators_in(form) if _in_the_way(g, axis, normal)}
    return bool((hard or generators_in(form)) & reached)


def _in_the_way(g: int, axis: frozenset[str], normal: Normal) -> bool:
    """Whether a generator is a reduction of something that mixes the element with results, or is made of one."""
    spend()
    gen = normal.gens[g]
    inner: set[int] = {h for m in gen.data if isinstance(m, tuple) for h in _of_mono(m)}
    inner |= {h for d in gen.data for h in generators_in(d)}
    if gen.kind in ("sum", "reduce") and any(is_mixed(h, set(axis), normal) for h in inner):
        return True
    return any(_in_the_way(h, axis, normal) for h in inner)


def _of_mono(m: tuple[object, ...]) -> list[int]:
    return [x[0] for x in m if isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], int)]


def shown(t: Term, depth: int = 12) -> str:
    """The text of a term, cut off where it is long."""
    text = _text(t, depth)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _text(t: Term, depth: int) -> str:
    if not depth:
        return "…"
    if t.op in ("tensor", "state"):
        return f"{t.attr.name}[{','.join(t.attr.axes)}]" if t.attr.axes else str(t.attr.name)
    if t.op in ("const", "special"):
        return str(t.attr)
    if t.op in ("size", "index"):
        return f"{t.op}({t.attr})"
    args = [_text(a, depth - 1) for a in t.args]
    if t.op == "reduce":
        return f"{t.attr.kind}[{','.join(t.attr.axes)}]({', '.join(args)})"
    if t.op == "add":
        return f"({' + '.join(args)})"
    if t.op == "mul":
        return "*".join(args)
    if t.op == "pow":
        return f"{args[0]}**({args[1]})"
    return f"({f' {SIGNS[t.op]} '.join(args)})" if t.op in SIGNS else f"{t.op}({', '.join(args)})"
