"""Axes of length 1 in specs: sums over them are what they add, and tensors are what they are without them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.language.spec import Spec

KEPT = frozenset({"sum", "prod", "max", "min"})  # of one element: that element


def removable(specs: Sequence[Spec], units: Iterable[str]) -> frozenset[str]:
    """Those of the axes that can all be left out: the last ones, as long as every tensor keeps an axis that it has."""
    found: frozenset[str] = frozenset()
    own = [t.axes for s in specs for t in s.tensors if t.axes]
    for axis in reversed(list(dict.fromkeys(units))):
        if all(set(axes) - found - {axis} for axes in own):
            found |= {axis}
    return found


def without(spec: Spec, units: frozenset[str]) -> Spec | None:
    """The spec where these axes have length 1, without them; None where it has something that is not rewritten.

    >>> import redalg as ra
    >>> spec = ra.parse("tensors x[n,c,k], w[c]; return y = w[c]*x[n,c,k]/mean[c,k](x[n,c,k])")
    >>> without(spec, frozenset("n")).tensors[0].axes
    ('c', 'k')
    """
    if any(t.array or t.dimensions for t in spec.tensors):
        return None
    done: dict[Node, Node] = {}
    for n in g.walk(*spec.outputs.values()):
        new = _rebuilt(n, tuple(done[a] for a in n.args), units)
        if new is None:
            return None
        done[n] = new
    order = {n: tuple(a for a in axes if a not in units) for n, axes in spec.output_axes.items()}
    outputs = {n: done[node] for n, node in spec.outputs.items()}
    if any(outputs[n].axes != {*axes} for n, axes in order.items()):
        return None
    return Spec.from_nodes(outputs, order=order, empty=spec.empty, dtypes=spec.dtypes)


def _rebuilt(n: Node, args: tuple[Node, ...], units: frozenset[str]) -> Node | None:
    if n.op == "tensor":
        return Node("tensor", (), replace(n.attr, axes=tuple(a for a in n.attr.axes if a not in units)))
    if n.op in ("size", "index"):
        return (g.ONE if n.op == "size" else g.ZERO) if n.attr in units else n
    if n.op == "reduce" and units & {*n.attr.axes}:
        left = tuple(a for a in n.attr.axes if a not in units)
        if n.attr.kind not in KEPT or len(args) != 1:
            return None
        return g.reduction(n.attr.kind, left, *args) if left else args[0]
    return g.rebuild(n, args)


__all__ = ["removable", "without"]
