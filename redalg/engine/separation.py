"""Which stages separate in which read of the data, and the outputs over those that do.

With several reads allowed, a stage that does not join the read of its dependencies gets the next one, in which they are
constants; this greedy assignment is minimal.
"""

from __future__ import annotations

from redalg.algebra.signs import is_defined
from redalg.algebra.work import NESTING, within
from redalg.engine.cleaning import Cleaner
from redalg.engine.constants import Inside
from redalg.engine.draft import Draft, Obstacle, Read
from redalg.engine.normalise import choose_axis, nesting, normalise
from redalg.engine.poles import divisors_of
from redalg.engine.rules.cascade import Blocked, Cascade, RawBackend
from redalg.graph import node as g
from redalg.graph.domains import conditions
from redalg.graph.node import Node


def streamed(draft: Draft) -> None:
    """The axis that is streamed over: the one given, or the one that the outermost reductions share."""
    spec = draft.spec
    draft.axis = choose_axis(list(spec.outputs.values()), draft.request.axis, set(spec.axes))


def normalised(draft: Draft) -> None:
    """Sizes as counts, linear combinations of sums merged, composite reductions split; the stages along the axis."""
    draft.outputs = [normalise(n, draft.axis) for n in draft.spec.outputs.values()]
    within(nesting(draft.outputs, draft.axis), NESTING, "operations nested without a reduction over the axis between")
    if draft.axis:
        draft.stages = stages_of(draft)


def kept_inside(draft: Draft) -> None:
    """Constants far from 1 stay with the elements they multiply (`redalg.engine.constants`)."""
    if not draft.axis or not draft.request.constants:
        return
    inside = Inside(draft.outputs, draft.axis, {d.name for d in draft.spec.tensors})
    if inside.leaves:
        draft.leaves, draft.outputs = inside.leaves, inside.nodes
        draft.stages = stages_of(draft)


def stages_of(draft: Draft) -> list[Node]:
    return [n for n in g.walk(*draft.outputs) if n.op == "reduce" and n.attr.axes == draft.axis]


def separated(draft: Draft) -> None:
    """Every stage split into what depends on the element and what depends on stage values, read after read."""
    if not draft.axis:
        draft.resolved = draft.outputs
        return
    known: frozenset[Node] = frozenset()
    first: tuple[Cascade, Blocked] | None = None
    while True:
        backend = RawBackend(draft.axis)
        raw = Cascade(draft.stages, draft.axis, known, backend, draft.request.commute)
        draft.reads.append(Read(raw, backend))
        draft.resolved, blocked = _resolved(draft, raw)
        if blocked is None:
            break
        first = first or (raw, blocked)
        ready = known | {s for s in draft.stages if s not in known and _is_ready(s, raw)}
        if ready == known:
            break
        known = ready
    if blocked is not None or len(draft.reads) > draft.request.max_passes:
        assert first is not None
        passes = len(draft.reads) if blocked is None else None
        draft.obstacle = Obstacle(first[0], draft.outputs, draft.stages, first[1], passes)


def _is_ready(stage: Node, raw: Cascade) -> bool:
    return raw.value(stage).blocked is None and _bad_divisor(stage, raw) is None


def _bad_divisor(node: Node, raw: Cascade) -> Node | None:
    """What is in the way of a divisor: where that is 0 the node is NaN, also if it has cancelled."""
    if raw.is_sound:
        return None
    return next((bad for d in divisors_of(node, raw) if (bad := raw.first_bad(d)) is not None), None)


def _bad_domain(written: Node, clean: Node, raw: Cascade) -> Node | None:
    """What is in the way of a pole or a domain that has cancelled: 0/s is NaN where s is 0, and 0·log(s)."""
    there, stack, seen = set(g.walk(clean)), [written], set[Node]()
    while stack:
        n = stack.pop()
        if n in seen or n in there or raw.scope.is_stage(n):
            continue
        seen.add(n)
        stack += n.args
        if any(conditions(n)) and not is_defined(n, raw.signs) and (bad := raw.first_bad(n.args[0])) is not None:
            return bad
    return None


def _resolved(draft: Draft, raw: Cascade) -> tuple[list[Node], Blocked | None]:
    """The outputs over derivable stages: as written, or in normal form where that cancels what is in the way."""
    out, cleaned = [], Cleaner(raw)
    for node in draft.outputs:
        bad = raw.first_bad(node)
        if bad is not None:
            written, node = node, cleaned(node)
            bad = raw.first_bad(node) or _bad_domain(written, node, raw)
        bad = bad or _bad_divisor(node, raw)
        if bad is not None:
            value = raw.value(bad) if raw.scope.is_stage(bad) and bad in draft.stages else None
            return [], (value.blocked if value and value.blocked else _blocked_below(draft, raw, node))
        out.append(node)
    return out, None


def _blocked_below(draft: Draft, raw: Cascade, node: Node) -> Blocked:
    for s in g.walk(node):
        if raw.scope.is_stage(s) and s in draft.stages:
            blocked = raw.value(s).blocked
            if blocked is not None:
                return blocked
    raise AssertionError("an output is blocked, but none of its stages is")
