"""What a draft keeps between any two passes; a failure names the pass that broke it."""

from __future__ import annotations

from collections.abc import Iterator

from redalg.engine.draft import Draft, Read
from redalg.errors import RedalgError
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import Plan


class BrokenPass(RedalgError):
    """A pass left a draft that breaks an invariant: an error of the engine, never of the spec."""


def check_draft(draft: Draft, after: str) -> None:
    """The invariants of the whole draft that hold after a pass.

    Raises: BrokenPass.
    """
    unknown = set(draft.axis) - set(draft.spec.axes)
    if unknown:
        raise _broken(after, f"the streamed axis {sorted(unknown)[0]} is not the spec's")
    if draft.outputs and len(draft.outputs) != len(draft.spec.outputs):
        raise _broken(after, f"{len(draft.outputs)} of {len(draft.spec.outputs)} outputs are left")
    for stage in draft.stages:
        if stage.op != "reduce" or stage.attr.axes != draft.axis:
            raise _broken(after, "a stage is no reduction along the streamed axis")
    if draft.plan is not None:
        for fault in _faults(draft.plan):
            raise _broken(after, fault)


def check_read(read: Read, after: str) -> None:
    """The invariants of one read. Once it is ordered, every state leaf that is read is part of the state.

    Raises: BrokenPass.
    """
    if read.values and len(read.values) != len(read.nodes) + len(read.conditions):
        raise _broken(after, f"{len(read.values)} values for {len(read.nodes)} nodes")
    if not read.plan.order:
        return
    parts = {"n", *(a.name for a in read.anchors), *(p for s in read.built for p in s.parts)}
    expressions = [*read.values, *(x for s in read.built for x in (*s.lift, *(m.coefficient for m in s.moves)))]
    expressions += [a.source for a in read.anchors]
    for leaf in _state(expressions):
        if leaf.attr.name not in parts and not leaf.attr.name.startswith(("shift:", "known")):
            raise _broken(after, f"the plan reads {leaf.attr.name}, which nothing computes")


def _faults(plan: Plan) -> Iterator[str]:
    exported: set[str] = set()
    for number, p in enumerate(plan.passes, 1):
        names = {*(a.name for a in p.anchors), *(s.name for s in p.slots)}
        if set(p.order) != names:
            yield f"pass {number} orders {sorted(set(p.order) ^ names)[0]} that it does not have, or leaves it out"
        exported |= {name for name, _ in p.exports}
    last = plan.passes[-1]
    parts = {"n", *(a.name for a in last.anchors), *(x for s in last.slots for x in s.parts), *exported}
    for leaf in _state([o.guarded for o in plan.outputs]):
        if leaf.attr.name not in parts:
            yield f"an output reads {leaf.attr.name}, which no pass computes"


def _state(nodes: list[Node]) -> list[Node]:
    return [n for n in g.walk(*nodes) if n.op == "state"]


def _broken(after: str, why: str) -> BrokenPass:
    return BrokenPass(
        f"the draft after pass {after!r}",
        "redalg.engine.passes",
        why,
        "this is an error in redalg, not in the spec; please report the spec",
    )
