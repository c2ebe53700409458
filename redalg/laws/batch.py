"""A spec and a plan of it over many independent data at once: every tensor gets one more axis.

What runs a plan does so for all data in the calls that it takes for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from redalg.graph.node import Decl, Dimension, Node, rebuild, walk
from redalg.graph.operators import TopK
from redalg.graph.plan import Anchor, Output, PassPlan, Plan, Slot
from redalg.language.spec import Spec

Read = Callable[[Node], Node]


def free_axis(spec: Spec, plan: Plan) -> str:
    """A name that no axis has."""
    leaves = (n for n in walk(*_nodes(plan)) if n.op in ("state", "tensor"))
    taken = {*spec.axes, *(a for leaf in leaves for a in leaf.attr.axes)}
    return next(name for name in (f"case{k}" for k in range(len(taken) + 1)) if name not in taken)


def spec_over(spec: Spec, axis: str) -> Spec:
    """The spec with `axis` as the last one of every tensor, evaluated as it stands.

    What is read in windows is read as the windows themselves, of any length: the same laws hold for them.
    """
    read = _reader(axis, ())
    outputs = {name: read(node) for name, node in spec.outputs.items()}
    order = {n: (*spec.output_axes[n], axis) for n, node in outputs.items() if axis in node.axes}
    tensors = [_longer(_plain(d), axis) for d in spec.tensors]
    return Spec.from_nodes(outputs, tensors=tensors, order=order, empty=spec.empty, dtypes=spec.dtypes)


def plan_over(plan: Plan, axis: str, passes: tuple[PassPlan, ...] = ()) -> Plan:
    """A plan with `axis` as the last one; `passes`: those of it, where they are there already."""
    lists = {part for p in plan.passes for s in p.slots if isinstance(s.op, TopK) for part in s.parts}
    read = _reader(axis, _dependent(plan), lists)
    return replace(
        plan,
        passes=passes or tuple(_pass(p, axis, read) for p in plan.passes),
        outputs=tuple(_along(o.map(read), axis) for o in plan.outputs),
        obligations=(),
        known=tuple((read(a), read(b)) for a, b in plan.known),
    )


def over(spec: Spec, axis: str, names: Collection[str]) -> Spec:
    """The spec in which the named tensors, and what depends on them, have `axis` as their first one."""
    mapped = {d.name for d in spec.tensors if (d.array or d.name) in names}
    done: dict[Node, Node] = {}
    for n in walk(*spec.outputs.values()):
        longer = n.op == "tensor" and n.attr.name in mapped
        done[n] = Node("tensor", (), _longer(n.attr, axis, 0)) if longer else rebuild(n, tuple(done[a] for a in n.args))
    read = done.__getitem__
    outputs = {name: read(node) for name, node in spec.outputs.items()}
    order = {n: ([axis] if axis in node.axes else []) + [*spec.output_axes[n]] for n, node in outputs.items()}
    tensors = [_longer(d, axis, 0) if d.name in mapped else d for d in spec.tensors]
    return Spec.from_nodes(outputs, tensors=tensors, order=order, empty=spec.empty, dtypes=spec.dtypes)


def _longer(decl: Decl, axis: str, place: int | None = None) -> Decl:
    """The leaf with one axis more, before that at `place` (None: as the last one)."""
    at = slice(len(decl.axes) if place is None else place, None)
    axes, dimensions = list(decl.axes), list(decl.dimensions)
    axes[at] = axis, *axes[at]
    if dimensions:
        dimensions[at] = Dimension(((axis, 1, 0),)), *dimensions[at]
    return Decl(decl.name, tuple(axes), decl.domain, decl.array, tuple(dimensions))


def _plain(decl: Decl) -> Decl:
    """The tensor that a reading of an array is, windows with a dimension for each axis: it has data of its own."""
    return replace(decl, array="", dimensions=())


def _reader(axis: str, dependent: Collection[str], lists: Collection[str] = ()) -> Read:
    """`dependent`: names of what depends on a tensor; `lists`: parts of which the last axis stays that of a list."""
    done: dict[Node, Node] = {}

    def read(root: Node) -> Node:
        for node in walk(root, done=done):
            if node.op == "tensor" or node.op == "state" and _owner(node) in dependent:
                done[node] = Node(
                    node.op, (), _longer(_plain(node.attr), axis, -1 if node.attr.name in lists else None)
                )
            else:
                args = tuple(done[a] for a in node.args)
                done[node] = node if args == node.args else Node(node.op, args, node.attr)  # evaluated as it stands
        return done[root]

    return read


def _pass(p: PassPlan, axis: str, read: Read) -> PassPlan:
    def anchor(a: Anchor) -> Anchor:
        return replace(a.map(read), axes=read(a.leaf).attr.axes)

    def slot(s: Slot) -> Slot:
        return replace(s.map(read), axes=(*s.axes, axis) if axis in read(s.leaf()).axes else s.axes)

    exports = tuple((name, read(node)) for name, node in p.exports)
    return replace(p, anchors=tuple(map(anchor, p.anchors)), slots=tuple(map(slot, p.slots)), exports=exports)


def _along(o: Output, axis: str) -> Output:
    return replace(o, axes=(*o.axes, axis)) if axis in o.guarded.axes else o


# --- what depends on a tensor ---------------------------------------------------------------------------------------


def _owner(leaf: Node) -> str:
    """The anchor that a shift belongs to; else the leaf's own name."""
    return str(leaf.attr.name).removeprefix("shift:")


def _dependent(plan: Plan) -> set[str]:
    """Names of anchors, of parts of slots and of exports: a position of constants is the only one that is not."""
    read = {name: [n for n in walk(*nodes) if n.op in ("tensor", "state")] for name, nodes in _sources(plan)}
    found: set[str] = set()
    while True:
        left = ((name, leaves) for name, leaves in read.items() if name not in found)
        more = {name for name, leaves in left if any(n.op == "tensor" or _owner(n) in found for n in leaves)}
        if not more:
            return found
        found |= more


def _sources(plan: Plan) -> Iterator[tuple[str, tuple[Node, ...]]]:
    for p in plan.passes:
        for a in p.anchors:
            yield a.name, (a.generator, a.source)
        for s in p.slots:
            for part in s.parts:
                yield part, (*s.lift, *(m.coefficient for m in s.moves))
        for name, node in p.exports:
            yield name, (node,)


def _nodes(plan: Plan) -> Iterable[Node]:
    yield from (n for _, nodes in _sources(plan) for n in nodes)
    yield from (o.guarded for o in plan.outputs)


__all__ = ["free_axis", "over", "plan_over", "spec_over"]
