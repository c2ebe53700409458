"""A form as forms of outputs that share no part of its state, and which of them differ in names alone.

What is proved, tested or seen at infinities of a form is said of each of these by itself, and of all that are alike at
once: it is about all values of their tensors, whatever these are called. A form of a hundred variances is a hundred
forms of one, and one of them is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace

from redalg.algebra.components import components
from redalg.engine.normalise import normalise
from redalg.errors import RedalgError
from redalg.graph.node import Node, leaves, walk
from redalg.graph.plan import COUNT, Anchor, Guard, Output, PassPlan, Plan, Slot
from redalg.language.spec import Spec

NODES = frozenset({"generator", "shift", "target"})  # the fields of an anchor that are nodes


@dataclass(frozen=True)
class Part:
    """The form of some outputs; `shape` is equal for two that differ in the names of tensors, outputs and slots."""

    spec: Spec
    plan: Plan
    shape: object


class Parts:
    """The parts of the forms of one spec. What they look like is kept, so that plans can be compared."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.shapes = _Shapes()

    def alike(self, plan: Plan) -> list[list[Part]]:
        """The parts of a plan, those that are alike together."""
        separate = _separate(self.spec, plan)
        if len(separate) == 1:
            return [[Part(self.spec, plan, object())]]
        found: dict[object, list[Part]] = {}
        for spec, part in separate:
            shape = self.shapes(spec, part)
            found.setdefault(shape, []).append(Part(spec, part, shape))
        return list(found.values())


# --- parts -----------------------------------------------------------------------------------------------------------


def _separate(spec: Spec, plan: Plan) -> list[tuple[Spec, Plan]]:
    """The specs and plans of outputs that share nothing; one where that is not plain to see."""
    whole = [(spec, plan)]
    if not _is_plain(spec, plan):
        return whole
    stages = _stages(spec, plan)
    groups = list(_groups(plan, stages))
    named = {s.node for s in plan.stages}
    if len(groups) < 2 or not all(names for names, _ in groups) or not named <= set().union(*stages.values()):
        return whole
    try:
        parts = [_part(spec, plan, names, p, stages) for names, p in groups]
    except RedalgError:  # an axis whose length another part's tensor says
        return whole
    return parts if all(_is_whole(*part) for part in parts) else whole


def _is_whole(spec: Spec, plan: Plan) -> bool:
    """Whether a part reads no more than its outputs do: an anchor may be of what those of another one read, too (x in
    the unit of x² - q²)."""
    (p,) = plan.passes
    held = [getattr(a, name) for a in p.anchors for name in NODES if hasattr(a, name)]
    held += [n for s in p.slots for n in (*s.lift, *(m.coefficient for m in s.moves))]
    return {n.attr for n in walk(*held) if n.op == "tensor"} <= {*spec.tensors}


def _is_plain(spec: Spec, plan: Plan) -> bool:
    """Whether there are several outputs of one pass, which read every tensor, and each as it is."""
    if len(plan.outputs) < 2 or len(plan.passes) != 1 or plan.passes[0].exports or spec.dtypes:
        return False
    read = {n.attr for node in spec.outputs.values() for n in leaves(node)}
    return not any(d.array for d in spec.tensors) and set(spec.tensors) == read


def _stages(spec: Spec, plan: Plan) -> dict[str, set[Node]]:
    """Output -> the reductions over the axis that are below it."""
    below = {name: walk(normalise(node, plan.axis)) for name, node in spec.outputs.items()}
    return {name: {n for n in nodes if n.op == "reduce" and n.attr.axes == plan.axis} for name, nodes in below.items()}


def _groups(plan: Plan, stages: Mapping[str, set[Node]]) -> Iterator[tuple[set[str], PassPlan]]:
    """Names of outputs, and what of the pass they are computed from: what is tied by slots or stages together."""
    (p,) = plan.passes
    tied = components(p)
    owner = {part: k for k, c in enumerate(tied) for s in c.slots for part in s.parts}
    owner |= {a.name: k for k, c in enumerate(tied) for a in c.anchors}
    joined = _Joined()
    for o in plan.outputs:
        held = {owner[x.attr.name] for x in leaves(o.guarded, "state") if x.attr.name in owner}
        for x in (*(held or {0}), *stages[o.name]):
            joined.join(x, f"output {o.name}")
    outputs: dict[object, set[str]] = {}
    names: dict[object, list[str]] = {}
    for o in plan.outputs:
        outputs.setdefault(joined.leader(f"output {o.name}"), set()).add(o.name)
    for k, c in enumerate(tied):
        names.setdefault(joined.leader(k), []).extend(c.order)
    for root, some in names.items():
        yield outputs.get(root, set()), _part_of_pass(p, some)


def _part_of_pass(p: PassPlan, names: Iterable[str]) -> PassPlan:
    place = {name: k for k, name in enumerate(p.order)}
    anchors, slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
    order = tuple(sorted(names, key=place.__getitem__))
    own = tuple(anchors[n] for n in order if n in anchors), tuple(slots[n] for n in order if n in slots)
    return PassPlan(*own, order)


class _Joined:
    """What belongs together (union-find)."""

    def __init__(self) -> None:
        self.leaders: dict[object, object] = {}

    def leader(self, x: object) -> object:
        leaders = self.leaders
        while leaders.setdefault(x, x) != x:
            leaders[x] = x = leaders[leaders[x]]
        return x

    def join(self, x: object, y: object) -> None:
        self.leaders[self.leader(x)] = self.leader(y)


def _part(spec: Spec, plan: Plan, names: set[str], p: PassPlan, stages: Mapping[str, set[Node]]) -> tuple[Spec, Plan]:
    outputs = {name: node for name, node in spec.outputs.items() if name in names}
    read = {n.attr for node in outputs.values() for n in leaves(node)}
    smaller = Spec.from_nodes(
        outputs,
        tensors=[d for d in spec.tensors if d in read],
        order={name: spec.output_axes[name] for name in outputs},
        empty={name: value for name, value in spec.empty.items() if name in names},
    )
    own = set().union(*(stages[name] for name in names))
    return smaller, replace(
        plan,
        passes=(p,),
        outputs=tuple(o for o in plan.outputs if o.name in names),
        stages=tuple(s for s in plan.stages if s.node in own),
        obligations=(),
    )


# --- what is alike ---------------------------------------------------------------------------------------------------


class _Shapes:
    """Numbers for nodes without the names of tensors and parts of a state: equal where the nodes are."""

    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}

    def __call__(self, spec: Spec, plan: Plan) -> object:
        return _Shape(self.numbers, spec, plan).whole()


class _Shape:
    """What one form looks like: names are their places, terms and factors have no order."""

    def __init__(self, numbers: dict[object, int], spec: Spec, plan: Plan) -> None:
        self.numbers, self.spec, self.plan = numbers, spec, plan
        self.done: dict[Node, int] = {}
        self.tensors = {d.name: k for k, d in enumerate(spec.tensors)}
        self.places: dict[str, tuple[object, ...]] = {COUNT.attr.name: ("count",)}
        for number, p in enumerate(plan.passes):
            parts = {s.name: s.parts for s in p.slots}
            for k, name in enumerate(p.order):
                self.places[name] = (number, k)
                self.places |= {part: (number, k, i) for i, part in enumerate(parts.get(name, ()))}

    def whole(self) -> object:
        spec, plan = self.spec, self.plan
        given = tuple((d.axes, d.domain, d.dimensions, d.array) for d in spec.tensors)
        outputs = tuple((self(n), spec.output_axes[o], spec.empty.get(o)) for o, n in spec.outputs.items())
        passes = tuple(self._pass(p) for p in plan.passes)
        values = tuple(map(self._output, plan.outputs))
        stages = frozenset(
            (self(s.node), s.pair, s.rank, s.passes, self.all(s.generators), self.all(s.coefficients))
            for s in plan.stages
        )
        known = tuple((self(a), self(b)) for a, b in plan.known)
        return plan.axis, given, outputs, passes, values, stages, plan.assumptions, known

    def __call__(self, root: Node) -> int:
        done, numbers = self.done, self.numbers
        for n in walk(root, done=done):
            args = [done[a] for a in n.args]
            if n.op in UNORDERED:
                args.sort()
            done[n] = numbers.setdefault((n.op, tuple(args), self._attr(n)), len(numbers))
        return done[root]

    def all(self, nodes: Iterable[Node]) -> tuple[int, ...]:
        return tuple(map(self, nodes))

    def _attr(self, n: Node) -> object:
        if n.op == "tensor":
            return self.tensors[n.attr.name]
        if n.op != "state":
            return n.attr
        name = n.attr.name
        return name.startswith(SHIFT), self.places.get(name.removeprefix(SHIFT), name), n.attr.axes, n.attr.domain

    def _pass(self, p: PassPlan) -> object:
        exports = tuple((name, self(node)) for name, node in p.exports)
        slots, anchors = {s.name: s for s in p.slots}, {a.name: a for a in p.anchors}
        return exports, tuple(self._slot(slots[n]) if n in slots else self._anchor(anchors[n]) for n in p.order)

    def _anchor(self, a: Anchor) -> object:
        own = {f.name: getattr(a, f.name) for f in fields(a)}
        nodes = tuple((name, self(own[name])) for name in sorted(NODES & own.keys()))
        return type(a).__name__, a.axes, nodes, own.get("follows")

    def _slot(self, s: Slot) -> object:
        moves = frozenset((self(m.coefficient), self.places.get(m.slot, m.slot)) for m in s.moves)
        anchors = frozenset(self.places[a] for a in s.anchors)
        return type(s.op).__name__, s.op, s.axes, self.all(s.lift), s.domain, anchors, moves, len(s.moves), s.vanishes

    def _output(self, o: Output) -> object:
        guard = None if o.guard is None else self._guard(o.guard)
        empty = self(o.empty) if isinstance(o.empty, Node) else repr(o.empty)
        return self(o.value), o.axes, o.keeps_axis, empty, guard, o.position

    def _guard(self, g: Guard) -> tuple[int, int]:
        return self(g.finite), self(g.otherwise)


SHIFT = "shift:"
UNORDERED = frozenset({"add", "mul", "and", "or", "maximum", "minimum", "eq", "ne"})


__all__ = ["Part", "Parts"]
