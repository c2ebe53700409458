"""A pass as its connected components: what no move, target or shift ties together has no law in common.

Testing a law against a whole pass costs the pass; against its component, what the law is about. A pass of a hundred
variances is a hundred components.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from redalg.graph.node import Node, leaves
from redalg.graph.plan import COUNT, PassPlan


def components(p: PassPlan) -> list[PassPlan]:
    """The components in the order of the pass, without its exports. Every slot and anchor is in exactly one.

    >>> import redalg as ra
    >>> x, y = ra.tensors("x[j] y[j]")
    >>> form = ra.derive_incremental(ra.Spec(a=ra.max(x, "j"), b=ra.max(y, "j")))
    >>> [[s.name for s in c.slots] for c in components(form.plan.passes[0])]
    [['max_x'], ['max_y']]
    """
    leader = {name: name for name in p.order}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for a, b in _ties(p):
        leader[find(a)] = find(b)
    members: dict[str, list[str]] = {}
    for name in p.order:
        members.setdefault(find(name), []).append(name)
    slots, anchors = {s.name: s for s in p.slots}, {a.name: a for a in p.anchors}
    return [
        replace(
            p,
            anchors=tuple(anchors[n] for n in names if n in anchors),
            slots=tuple(slots[n] for n in names if n in slots),
            order=tuple(names),
            exports=(),
        )
        for names in members.values()
    ]


def _ties(p: PassPlan) -> Iterator[tuple[str, str]]:
    owner = {part: s.name for s in p.slots for part in s.parts} | {a.name: a.name for a in p.anchors}
    for s in p.slots:
        yield from ((s.name, a) for a in s.anchors)
        yield from ((s.name, m.slot) for m in s.moves if m.slot != COUNT.attr.name)
        yield from _read(s.name, [*s.lift, *(m.coefficient for m in s.moves)], owner)
    for a in p.anchors:
        yield from _read(a.name, [a.source, a.generator], owner)


def _read(name: str, values: Iterable[Node], owner: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The slots and anchors whose parts the values read."""
    for value in values:
        for leaf in leaves(value, "state"):
            if leaf.attr.name in owner:
                yield name, owner[leaf.attr.name]


__all__ = ["components"]
