"""Specs of the catalog are distinct after renaming: by a fingerprint that ignores names and nothing else."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import redalg as ra
from redalg.graph.node import Node, walk


def fingerprint(spec: ra.Spec) -> str:
    """A number that no renaming of tensors, axes, outputs and scalars changes; different ones prove specs distinct.

    Colour refinement: leaves and axes get colours from what they look like, operations from their parts, then leaves
    and axes from the operations they occur in, a few times over.
    """
    roots = list(spec.outputs.values())
    nodes = list(walk(*roots))
    names: dict[object, str] = defaultdict(str)  # colours of tensor names and axes, by name
    colours: dict[Node, str] = {}
    for _ in range(4):
        colours = {}
        for node in nodes:
            parts = [colours[a] for a in node.args]
            ordered = parts if node.op in ("pow", "where", "lt", "le", "cast", "reduce") else sorted(parts)
            colours[node] = _colour(node.op, *ordered, *_own(node, names))
        uses = defaultdict(list)
        for node in nodes:
            for argument in node.args:
                uses[argument].append(colours[node])
        seen = defaultdict(list)
        for node in nodes:
            mark = _colour(colours[node], *sorted(uses[node]), str(roots.count(node)))
            if node.op == "tensor":
                seen[("tensor", node.attr.name)].append(mark)
            for place, axis in enumerate(_axes(node)):
                seen[("axis", axis)].append(_colour(mark, str(place)))
        names = defaultdict(str, {key: _colour(*sorted(marks)) for key, marks in seen.items()})
    return _colour(*sorted(colours[root] for root in roots))


def _axes(node: Node) -> tuple[str, ...]:
    if node.op in ("tensor", "reduce"):
        return tuple(node.attr.axes)
    return (node.attr,) if node.op in ("index", "size") else ()


def _own(node: Node, names: dict[object, str]) -> list[str]:
    axes = [names["axis", a] for a in _axes(node)]
    if node.op == "tensor":
        return [str(sorted(node.attr.domain)), names["tensor", node.attr.name], *axes]
    if node.op == "reduce":
        extra = node.attr.extra[0] if node.attr.kind.startswith("topk") else node.attr.extra
        return [node.attr.kind, str(extra), *axes]
    return axes if node.op in ("index", "size") else [str(node.attr)]


def _colour(*parts: str) -> str:
    return hashlib.blake2b("|".join(parts).encode(), digest_size=12).hexdigest()


def test_specs_are_distinct_after_renaming() -> None:
    groups = defaultdict(list)
    for name in ra.catalog:
        groups[fingerprint(ra.catalog[name])].append(name)
    assert not [group for group in groups.values() if len(group) > 1]


def test_the_fingerprint_ignores_names_and_nothing_else() -> None:
    text = "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m) * w[j]); return s"
    renamed = "m = max[b](y[a,b]); s = sum[b](exp(y[a,b] - m) * v[b]); return s"
    other = "m = max[j](x[i,j]); s = sum[j](exp(x[i,j] - m) * w[i]); return s"
    assert fingerprint(ra.parse(text)) == fingerprint(ra.parse(renamed)) != fingerprint(ra.parse(other))
