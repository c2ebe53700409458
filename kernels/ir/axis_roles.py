"""Which axis plays which part in a kernel, and plans in which every value is read along the axes it is held in."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from redalg.algebra.state import declared_axes
from redalg.graph.masked import new_axes
from redalg.graph.node import Node, leaves, rename_axes, state, substitute, walk
from redalg.graph.operators import TopK
from redalg.graph.plan import Anchor, PassPlan, Plan, Slot, list_axes

Read = Callable[[Node], Node]


@dataclass(frozen=True)
class Roles:
    rows: tuple[str, ...]
    stream: tuple[str, ...]
    columns: tuple[str, ...]
    lengths: dict[str, int]  # of the axes top-k lists make

    def across(self, axes: Container[str]) -> Roles:
        """The same with some rows as columns."""
        kept = tuple(a for a in self.rows if a not in axes)
        return replace(self, rows=kept, columns=tuple(a for a in self.rows if a in axes) + self.columns)


def roles(plan: Plan, axes: tuple[str, ...]) -> Roles:
    """The part of every axis. `axes` gives their order.

    Columns are axes along which what is dear in an element, a contraction, does not vary: there it is computed once for
    all of them (the scores of attention, for every column of V); and axes of the state that a result reduces over. All
    other axes that are not reduced number rows.
    """
    slots = [s for p in plan.passes for s in p.slots]
    lifts, exports = [n for s in slots for n in s.lift], [n for p in plan.passes for _, n in p.exports]
    values = [*(o.guarded for o in plan.outputs), *exports]
    lengths = list_axes(slots, values) | new_axes(*lifts, *values)
    held = (*(s.axes for s in slots), *(o.axes for o in plan.outputs), *(n.axes for n in exports))
    used = set().union(*held) - {*plan.axis, *lengths}
    order = dict.fromkeys([*axes, *sorted(used)])
    if not slots:
        return _map_roles(plan, order, lengths)
    columns = (_not_contracted(lifts, plan.axis, used) | _reduced_states(plan)) & used
    rows, columnar = (tuple(a for a in order if a in used and (a in columns) == side) for side in (False, True))
    return Roles(rows, plan.axis, columnar, lengths)


def _not_contracted(lifts: Iterable[Node], stream: Iterable[str], used: set[str]) -> set[str]:
    """Axes along which no contraction inside an element varies, where there is one."""
    contracted = [n.axes - {*stream} for n in walk(*lifts) if n.op == "reduce"]
    return used.difference(*contracted) if any(contracted) else set()


def _reduced_states(plan: Plan) -> set[str]:
    """Axes of the state that something computed from it reduces over: one row has to hold all of such an axis."""
    nodes = [o.guarded for o in plan.outputs]
    for p in plan.passes:
        nodes += [n for _, n in p.exports] + [a.source for a in p.anchors]
        nodes += [m.coefficient for s in p.slots for m in s.moves]
    found = [n for n in walk(*nodes) if n.op == "reduce" and leaves(n, "state")]
    return _with_states(plan).union(*(n.attr.axes for n in found))


def _with_states(plan: Plan) -> set[str]:
    """Axes that a reduction inside an element is over and that a state it reads has."""
    inside = [n for p in plan.passes for s in p.slots for n in walk(*s.lift) if n.op == "reduce"]
    return {a for n in inside for leaf in leaves(n, "state") for a in leaf.attr.axes if a in n.attr.axes}


def _map_roles(plan: Plan, order: Iterable[str], lengths: dict[str, int]) -> Roles:
    """Without a reduction, the last axis is walked as if it were one."""
    used = [a for a in order if any(a in o.axes for o in plan.outputs)]
    return Roles(tuple(used[:-1]), tuple(used[-1:]), (), lengths)


# --- reads along other axes ------------------------------------------------------------------------------------------


def aligned(plan: Plan) -> Plan:
    """An equal plan in which state parts, anchors and exports are read along the axes they are declared in.

    A product of two means, ``mean_x[a] · mean_x[b]``, reads one slot along two axes; here that becomes two slots, so
    that a row finds everything it reads in its own state.
    """
    outputs, passes = plan.outputs, list(plan.passes)
    for number in reversed(range(len(passes))):
        clones = _Clones(passes[number])
        if number == len(passes) - 1:
            outputs = tuple(o.map(clones.read) for o in outputs)
        passes[number] = clones.plan()
        earlier = _Exports(passes[:number])
        passes[number] = _mapped(passes[number], earlier.read)
        outputs = tuple(o.map(earlier.read) for o in outputs)
        passes[:number] = earlier.passes()
    return replace(plan, passes=tuple(passes), outputs=outputs)


def _along(name: str, axes: tuple[str, ...]) -> str:
    return f"{name}~along~{'~'.join(axes)}"


class _Exports:
    """Exports of earlier passes, cloned for every order of axes they are read along."""

    def __init__(self, passes: list[PassPlan]) -> None:
        self.earlier = passes
        self.home = {name: (i, node) for i, p in enumerate(passes) for name, node in p.exports}
        self.made: dict[str, tuple[int, str, Node]] = {}

    def read(self, node: Node) -> Node:
        mapping = {}
        for leaf in leaves(node, "state"):
            name, axes = leaf.attr.name, leaf.attr.axes
            if name not in self.home:
                continue
            place, value = self.home[name]
            held = tuple(sorted(value.axes))
            if set(held) < set(axes):  # it turned out not to vary along all of them
                mapping[leaf] = state(name, tuple(a for a in axes if a in held), leaf.attr.domain)
            elif set(axes) != set(held):
                missing = [a for a in held if a not in axes]
                renamed = dict(zip(missing, [a for a in axes if a not in held], strict=True))
                clone = _along(name, axes)
                self.made[clone] = (place, clone, rename_axes(value, renamed))
                mapping[leaf] = state(clone, axes, leaf.attr.domain)
        return substitute(node, mapping, raw=True) if mapping else node

    def passes(self) -> list[PassPlan]:
        found = list(self.earlier)
        for place, name, node in self.made.values():
            p = found[place]
            if name not in dict(p.exports):
                found[place] = replace(p, exports=(*p.exports, (name, node)))
        return found


class _Clones:
    """Slots and anchors of one pass, cloned for every order of axes they are read along."""

    def __init__(self, p: PassPlan) -> None:
        self.source, self.axes = p, declared_axes(p)
        self.tops = {part: s.op.axis for s in p.slots if isinstance(s.op, TopK) for part in s.parts}
        self.owner = {part: s.name for s in p.slots for part in s.parts} | {a.name: a.name for a in p.anchors}
        self.anchors, self.slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
        self.order = list(p.order)
        self.done: set[tuple[str, tuple[str, ...]]] = set()

    def plan(self) -> PassPlan:
        p = _mapped(self.source, self.read)
        self.anchors |= {a.name: a for a in p.anchors}
        self.slots |= {s.name: s for s in p.slots}
        order = self.order
        return PassPlan(
            tuple(self.anchors[n] for n in order if n in self.anchors),
            tuple(self.slots[n] for n in order if n in self.slots),
            tuple(order),
            p.exports,
        )

    def read(self, node: Node) -> Node:
        """The node with every state leaf read along its declared axes, under the name of a clone where need be."""
        mapping = {}
        for leaf in leaves(node, "state"):
            prefix, colon, name = leaf.attr.name.rpartition(":")
            if name not in self.owner:
                continue
            declared, axes = self._own(name, self.axes[name]), self._own(name, leaf.attr.axes)
            if axes == declared:
                continue
            self._clone(self.owner[name], dict(zip(declared, axes, strict=True)))
            mapping[leaf] = state(prefix + colon + _along(name, axes), leaf.attr.axes, leaf.attr.domain)
        return substitute(node, mapping, raw=True) if mapping else node

    def _own(self, name: str, axes: tuple[str, ...]) -> tuple[str, ...]:
        return axes[:-1] if name in self.tops else axes

    def _clone(self, name: str, renaming: dict[str, str]) -> None:
        item: Anchor | Slot = self.anchors[name] if name in self.anchors else self.slots[name]
        axes = tuple(renaming.get(a, a) for a in item.axes)
        if (name, axes) in self.done:
            return
        self.done.add((name, axes))
        changed = {old: new for old, new in renaming.items() if old != new}

        def renamed(node: Node) -> Node:
            return self.read(rename_axes(node, changed))

        def along(other: str) -> str:
            """The name under which something this item refers to is read."""
            held = self.anchors[other].axes if other in self.anchors else self.slots[other].axes
            there = tuple(changed.get(a, a) for a in held)
            if there == held:
                return other
            self._clone(other, dict(zip(held, there, strict=True)))
            return _along(other, there)

        if isinstance(item, Anchor):
            found: Anchor | Slot = replace(item, name=_along(name, axes), axes=axes).map(renamed)
            self.anchors[found.name] = found  # type: ignore[assignment]
        else:
            moves = tuple(replace(m, slot=m.slot if m.slot == "n" else along(m.slot)) for m in item.moves)
            parts = tuple(_along(part, axes) for part in item.parts)
            anchors = tuple(along(a) for a in item.anchors)
            fresh = replace(item, name=_along(name, axes), axes=axes, parts=parts, anchors=anchors, moves=moves)
            found = fresh.map(renamed)
            self.slots[found.name] = found
        self.order.insert(self.order.index(name) + 1, found.name)


def _mapped(p: PassPlan, read: Read) -> PassPlan:
    return PassPlan(
        tuple(a.map(read) for a in p.anchors),
        tuple(s.map(read) for s in p.slots),
        p.order,
        tuple((name, read(node)) for name, node in p.exports),
    )
