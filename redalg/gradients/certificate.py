"""From derivatives to their certificates: claims that `redalg.proofs.derivatives` proves without this folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from redalg.certify.export import Export
from redalg.gradients.invariance import detached
from redalg.gradients.tangent import is_invariant
from redalg.graph import node as g
from redalg.graph.node import Decl, Node
from redalg.language.spec import Spec
from redalg.proofs.derivatives.claims import FORWARD, FULL_LISTS, REVERSE, Claims, bearing, passing
from redalg.proofs.derivatives.document import Derivative
from redalg.proofs.derivatives.proof import is_proved, without
from redalg.proofs.derivatives.rules import rule_of
from redalg.proofs.document.document import Document
from redalg.proofs.document.work import Exhausted, metered


@dataclass(frozen=True)
class Stated:
    """A derivative as nodes: what `Claims` says of it, before it is copied into terms."""

    mode: str
    spec: Spec
    axis: Sequence[str]
    seeds: Mapping[str, Node]
    axes: Mapping[str, Sequence[str]]
    results: Mapping[str, Node | None]
    filled: Iterable[str]
    saved: Iterable[tuple[Node, Node]]
    assume: Collection[str]


def certified(s: Stated) -> Derivative:
    """The certificate of a derivative; what cancels is stated, and proved where it is checked."""
    export = Export(s.spec, None)  # type: ignore[arg-type]  # only nodes are copied
    bare = _bare(s, export)
    moving, assumed = passing(bare), bearing(bare) & {*s.assume, FULL_LISTS}
    nodes = {term: n for n, term in export.done.items()}
    gone = _cancelled(list(s.spec.outputs.values()), {nodes[t] for t in moving}, s.assume)
    cancelled = tuple((None if of is None else export(of), export(value)) for of, value in gone)
    zero = {value for of, value in cancelled if of is None}
    rules = tuple((t, "cancelled" if t in zero else rule.name) for t in moving for rule in [rule_of(t)] if rule)
    found = replace(bare, rules=rules, cancelled=cancelled, assumptions=tuple(sorted(assumed)))
    spare = FULL_LISTS in assumed and _is_enough(without(found, FULL_LISTS))  # it claims no more than it needs
    return Derivative(without(found, FULL_LISTS) if spare else found)


def _bare(s: Stated, export: Export) -> Claims:
    """The claims without rules."""
    outputs = {name: export(n) for name, n in s.spec.outputs.items()}
    empty = {name: export._empty(value) for name, value in s.spec.empty.items()}
    results = {name: None if n is None else export(n) for name, n in s.results.items()}
    saved = tuple((export(leaf), export(value)) for leaf, value in s.saved)
    seeds = {name: export(n) for name, n in s.seeds.items()}
    monoids = tuple(export._monoid(m) for m in export.monoids)
    document = Document(export.terms, tuple(s.axis), outputs, empty, (), (), monoids=monoids)
    readings = {d.name: d.array for d in _leaves(export.done) if d.array}
    axes = {name: tuple(names) for name, names in s.axes.items()}
    return Claims(document, s.mode, seeds, axes, results, tuple(s.filled), saved, readings, (), (), ())


def _is_enough(claims: Claims) -> bool:
    try:
        with metered():
            return is_proved(claims)
    except Exhausted:
        return False


def _leaves(nodes: Iterable[Node]) -> Iterator[Decl]:
    return (n.attr for n in nodes if n.op == "tensor")


def _cancelled(
    roots: Sequence[Node], moving: Collection[Node], assume: Collection[str]
) -> Iterator[tuple[Node | None, Node]]:
    """(None, reduction) where no root depends on it, and (stage, reduction) where that stage does not."""
    smooth = [r for r in roots if r in moving]
    free = [n for n in g.walk(*smooth) if n in moving and is_invariant(smooth, n, "certificate", assume)]
    yield from ((None, n) for n in free)
    _, held = detached(smooth, "certificate", assume)
    stages = {n: held for n in g.walk(*smooth) if n.op == "reduce" and n in moving}
    for n in stages:
        inside = {a for a in g.walk(*n.args) if a in set(held.values()) and a in moving and a not in free}
        yield from ((n, a) for a in inside if is_invariant([n], a, "certificate", assume))


__all__ = ["FORWARD", "REVERSE", "Stated", "certified"]
