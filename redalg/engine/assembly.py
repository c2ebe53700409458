"""The plan of all reads, from the last to the first: what a read takes from earlier ones is what those must compute."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from redalg.algebra import polynomial as nf
from redalg.engine.draft import Draft, Read
from redalg.engine.reads import Around, assumed
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import Guard, Output, PassPlan, Plan, StageReport
from redalg.laws.infinities import guard, is_position

PAIRS = {
    "sum": "(sum, ×)",
    "prod": "(prod, power)",
    "any": "(any, and)",
    "all": "(all, or)",
    "monoid": "(monoid, action)",
}


def begin(draft: Draft) -> None:
    """What the last read computes: the outputs, and the conditions of their guards."""
    names = list(draft.spec.outputs)
    levels = {names.index(name): k for name, k in draft.request.guards.items()}
    last = draft.reads[-1]

    def held(stage: Node) -> bool:
        return last.raw.first_bad(stage) is None

    draft.guards = {at: guard(draft.outputs[at], draft.axis, k, held) for at, k in levels.items()}
    last.nodes, last.written = draft.resolved, draft.outputs
    last.conditions = [node for pair in draft.guards.values() for node in pair]
    draft.exports.taken = frozenset({"n", *(d.name for d in draft.spec.tensors)})


def around(draft: Draft) -> Around:
    return Around(draft.axis_order, draft.exports.taken, partial(_export, draft))


def handed_on(draft: Draft, number: int) -> None:
    """After the plan of a read: what it hands on, and what the read before it has to compute."""
    read, exports = draft.reads[number], draft.exports
    exports.unanchored |= assumed(read.left_out, read.slots.apart if read.slots is not None else ()) | read.assumed
    if number < len(draft.reads) - 1:
        exports.done.update(read.nodes)
        names = [exports.wanted[n].attr.name for n in read.nodes]
        read.plan = replace(read.plan, exports=tuple(zip(names, read.values, strict=True)))
    exports.taken |= _names(read.plan)  # one name means one thing in all reads
    if number:
        earlier = draft.reads[number - 1]
        scope = earlier.raw.scope
        earlier.nodes = [n for n in exports.wanted if n not in exports.done and not scope.is_known(n)]
        earlier.written = earlier.nodes


def _export(draft: Draft, node: Node) -> Node:
    wanted = draft.exports.wanted
    if node not in wanted:
        axes = tuple(a for a in draft.axis_order if a in node.axes)
        axes += tuple(sorted(node.axes - set(axes)))
        name = f"known{len(wanted) + 1}"
        name += "_" if any(d.name == name for d in draft.spec.tensors) else ""
        wanted[node] = g.state(name, axes)
    return wanted[node]


def finished(draft: Draft) -> None:
    """Outputs over the state of the last read, with their guards; stages as they separated; assumptions."""
    if not draft.axis:
        draft.plan = _plan(draft, (PassPlan(),), draft.resolved, (), {})
        return
    values, count = draft.reads[-1].values, len(draft.resolved)
    relied = _relied_on(draft) | draft.exports.unanchored
    found = _plan(draft, tuple(r.plan for r in draft.reads), values[:count], reports(draft), relied)
    outputs = list(found.outputs)
    for place, at in enumerate(draft.guards):
        outputs[at] = replace(outputs[at], guard=Guard(*values[count + 2 * place :][:2]))
    draft.plan = replace(found, outputs=tuple(outputs), known=tuple(draft.exports.wanted.items()))


def reports(draft: Draft) -> tuple[StageReport, ...]:
    live = set(g.walk(*draft.resolved))
    homes = {s: next((p for p, r in enumerate(draft.reads) if _good(r, s)), None) for s in draft.stages}
    found = enumerate(draft.stages, 1)
    return tuple(_report(draft, k, s, home) for k, s in found if (home := homes[s]) is not None and s in live)


def _report(draft: Draft, number: int, stage: Node, home: int) -> StageReport:
    raw = draft.reads[home].raw
    value = raw.value(stage)
    separates = value.body is not None
    pairs = nf.rank_factor(raw.separator.rows(value.body)) if value.body is not None else []
    factors = list(raw.contracted(pairs, stage))
    return StageReport(
        f"stage{number}",
        stage,
        PAIRS.get(stage.attr.kind, f"({stage.attr.kind}, monotone)"),
        len(pairs) if separates else None,
        home + 1,
        tuple(value.trace.rules),
        tuple(nf.poly_node(a) for a, _ in factors),
        tuple(nf.poly_node(b) for _, b in factors),
    )


def _relied_on(draft: Draft) -> dict[str, str]:
    """The named assumptions of the stages."""
    out: dict[str, str] = {}
    for read in draft.reads:
        for stage in draft.stages:
            if _good(read, stage):
                out |= read.raw.value(stage).trace.assumptions
    return out


def _good(read: Read, stage: Node) -> bool:
    return read.raw.scope.is_stage(stage) and read.raw.value(stage).blocked is None


def _names(p: PassPlan) -> frozenset[str]:
    return frozenset((*p.order, *(part for s in p.slots for part in s.parts)))


def _plan(
    draft: Draft,
    passes: tuple[PassPlan, ...],
    nodes: list[Node],
    reports: tuple[StageReport, ...],
    assumptions: dict[str, str],
) -> Plan:
    spec = draft.spec
    outputs = tuple(
        Output(
            name,
            node,
            tuple(axes),
            not set(axes).isdisjoint(draft.axis),
            spec.empty.get(name),
            position=is_position(spec.outputs[name]),
        )
        for (name, axes), node in zip(spec.output_axes.items(), nodes, strict=True)
    )
    return Plan(draft.axis, passes, outputs, reports, tuple(sorted(assumptions.items())))
