"""Before the engine looks at a spec: the axis it streams over, sizes as counts, composite reductions split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.masked import new_axes
from redalg.graph.node import Node
from redalg.graph.plan import COUNT
from redalg.language.leaves import axis_names

SPLITTABLE = ("sum", "prod", "max", "min", "any", "all")


def axes_of(outputs: Iterable[Node], known: set[str]) -> list[tuple[str, ...]]:
    """Axes of the outermost reductions, in order of first appearance; axes that no tensor has (top-k) are no stream."""
    outputs = list(outputs)
    known = known - new_axes(*outputs).keys()
    found: dict[tuple[str, ...], None] = {}
    seen: set[Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop(0)
        if node in seen:
            continue
        seen.add(node)
        if node.op == "reduce" and set(node.attr.axes) & known:
            found.setdefault(node.attr.axes)
        else:
            stack.extend(node.args)
    return list(found)


def choose_axis(outputs: list[Node], axis: Any, sizes: set[str]) -> tuple[str, ...]:
    """The axis to stream over: the one given, or the only one that the outermost reductions share; () for a map."""
    known = {a for n in g.walk(*outputs) if n.op == "tensor" for a in n.attr.axes}
    candidates = axes_of(outputs, known)
    if axis is None:
        if len(candidates) > 1:
            names = ", ".join(_spelled(c) for c in candidates)
            raise RedalgError(
                f"a spec whose outermost reductions run over {names}",
                "ra.derive_incremental(spec)",
                "one derivation streams over one axis",
                f"pass {' or '.join(f'axis={_spelled(c)}' for c in candidates)}",
            )
        return candidates[0] if candidates else ()
    wanted = axis_names(axis, "ra.derive_incremental(spec, axis=...)")
    reduced = {n.attr.axes for n in g.walk(*outputs) if n.op == "reduce"}
    if wanted in reduced or any(set(wanted) < set(r) for r in reduced):
        return wanted
    over = ", ".join(_spelled(r) for r in sorted(reduced)) or "none"
    raise RedalgError(
        f"axis {_spelled(wanted)}",
        "ra.derive_incremental(spec, axis=...)",
        f"the spec does not reduce over it (reduced: {over}; axes: {', '.join(sorted(sizes))})",
        "name an axis that the spec reduces over",
    )


def _spelled(axes: tuple[str, ...]) -> str:
    return repr(axes[0]) if len(axes) == 1 else "(" + ", ".join(map(repr, axes)) + ")"


def normalise(node: Node, axis: tuple[str, ...]) -> Node:
    """Sizes of the axis become the count; reductions over the axis and more become two nested ones."""
    sizes: dict[Node, Node] = {}
    if axis:
        rest = g.size(axis[1:]) if len(axis) > 1 else g.ONE
        sizes[Node("size", (), axis[0])] = g.div(COUNT, rest)
    done: dict[Node, Node] = {}
    for n in g.walk(node):
        new = sizes.get(n) or g.rebuild(n, tuple(done[a] for a in n.args))
        if new.op == "reduce" and axis and new.attr.axes != axis and set(axis) & set(new.attr.axes):
            new = _nested(new, axis)
        done[n] = new
    return done[node]


def _nested(node: Node, axis: tuple[str, ...]) -> Node:
    others = tuple(a for a in node.attr.axes if a not in axis)
    if node.attr.kind in SPLITTABLE and set(axis) < set(node.attr.axes):
        inner = g.reduction(node.attr.kind, axis, *node.args)
        return g.reduction(node.attr.kind, others, inner)
    raise RedalgError(
        f"a {node.attr.kind} over {_spelled(node.attr.axes)} while streaming over {_spelled(axis)}",
        "ra.derive_incremental",
        "the reduction needs more, or less, than one piece of that axis holds",
        f"derive with axis={node.attr.axes!r}",
    )


def nesting(nodes: Iterable[Node], axis: tuple[str, ...]) -> int:
    """How many operations stand in one another, counted anew from every reduction over the axis."""
    depth: dict[Node, int] = {}
    for n in g.walk(*nodes):
        stage = n.op == "reduce" and n.attr.axes == axis
        below = (0 if a.op == "reduce" and a.attr.axes == axis else depth[a] for a in n.args)
        depth[n] = max(below, default=0) + (0 if stage else 1)
    return max(depth.values(), default=0)
