"""Reverse mode: the adjoints of tensors, from cotangents of outputs (the chain rule, users before arguments)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from redalg.gradients.refusals import check_differentiable, check_order, check_parts
from redalg.gradients.slopes import FLAT, FLAT_REDUCTIONS, Read, is_first, is_listed, of_factor, slopes
from redalg.gradients.sums import Adjoint
from redalg.gradients.tangent import is_invariant
from redalg.graph import node as g
from redalg.graph.node import Node


def adjoints(
    cotangents: Mapping[Node, Adjoint],
    leaves: Collection[Node],
    read: Read,
    streamed: Sequence[str],
    where: str,
    assume: Collection[str],
    nothing: Collection[str] = (),
) -> dict[Node, Adjoint]:
    """Leaf -> Σ over all outputs of cotangent · ∂output/∂leaf, along the leaf's axes.

    `read` says how values are had (`redalg.gradients.slopes`), `streamed` are the axes that the spec streams over. A
    reduction that nothing depends on (`is_invariant`) passes nothing on, nor does one over an axis without an element
    (`nothing`).
    Raises: RedalgError for what has no derivative; Undecided for more conditions than a budget.
    """
    roots = list(cotangents)
    moving = _moving(roots, leaves)
    found: dict[Node, Adjoint] = {n: Adjoint() for n in moving}
    for root, cotangent in cotangents.items():
        if root in found:
            found[root].add(cotangent)
    for n in reversed(list(g.walk(*roots))):
        if n not in moving or n in leaves or not found[n] or not _reduced(n).isdisjoint(nothing):
            continue
        if is_invariant(roots, n, where, assume):
            continue
        check_differentiable(n, where, assume)
        check_parts(len(found[n].parts), where)
        for a, part in _passed_on(n, found[n], read):
            if a in moving:
                check_order(n, a, where)
                found[a].add(_summed(part, (n.axes | _reduced(n)) - a.axes, streamed))
    return {leaf: found.get(leaf, Adjoint()) for leaf in leaves}


def _summed(part: Adjoint, axes: frozenset[str], streamed: Sequence[str]) -> Adjoint:
    """Σ over the axes, inside over those that the spec streams over; the others one by one, each as a stream."""
    inner = tuple(a for a in streamed if a in axes)
    for group in (inner, *((a,) for a in sorted(axes.difference(inner)))):
        part = part.summed(group) if group else part
    return part


def _moving(roots: Collection[Node], leaves: Collection[Node]) -> set[Node]:
    """The nodes that depend on a leaf smoothly."""
    moving = set(leaves)
    for n in g.walk(*roots):
        flat = n.op in FLAT or n.op == "reduce" and n.attr.kind in FLAT_REDUCTIONS
        args = n.args[1:] if n.op == "where" else n.args
        if not flat and any(a in moving for a in args):
            moving.add(n)
    return moving


def _reduced(n: Node) -> frozenset[str]:
    return frozenset(n.attr.axes) if n.op == "reduce" else frozenset()


def _passed_on(n: Node, adjoint: Adjoint, read: Read) -> Iterator[tuple[Node, Adjoint]]:
    """(argument, adjoint · ∂n/∂argument), along the axes of both; what lacks an axis is the same all along it."""
    if n.op == "where":
        condition, then, other = n.args
        yield then, adjoint.where(read(condition))
        yield other, adjoint.where(g.negate(read(condition)))
    elif n.op == "relu":  # which selects, as `where` does
        yield n.args[0], adjoint.where(g.compare("lt", g.ZERO, read(n.args[0])))
    elif n.op == "cast":
        yield n.args[0], adjoint
    elif n.op == "reduce":
        yield n.args[0], _to_elements(n, adjoint, read)
    else:
        yield from ((a, adjoint.scaled(slope)) for a, slope in slopes(n, read))


def _to_elements(n: Node, adjoint: Adjoint, read: Read) -> Adjoint:
    if n.attr.kind == "sum":
        return adjoint
    if n.attr.kind == "prod":
        return adjoint.scaled(of_factor(n, read))
    return adjoint.where(is_listed(n, read) if n.attr.kind == "topk_values" else is_first(n, read))


__all__ = ["adjoints"]
