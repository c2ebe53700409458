"""What a refusal says: the stage, the class of forms excluded, a witness, and a way out; or what could not be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from redalg.algebra.work import SEARCH, Exhausted, allowance
from redalg.engine.draft import Obstacle
from redalg.engine.rules.cascade import Cascade
from redalg.errors import NotDecomposable, Undecided
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import COUNT
from redalg.text.nodes import short
from redalg.verdicts.witness import Witness, refute_output, refute_stage

if TYPE_CHECKING:
    from redalg.language.spec import Spec

PLAUSIBLE_SLOTS = 9  # a witness excludes fewer slots than this at least, and always more than the body's own terms
OUTPUT_BUDGET = 6  # samples for a Jacobian, which costs more than a stage minor
LARGEST_MINOR = 48  # rows: above, a body's own terms are too many to be excluded
ORDER_BUDGET = 12  # an extremum depends on few elements at a time: what two samples do not show, more rarely do


def refuse(spec: Spec, obstacle: Obstacle) -> NoReturn:
    """Raise `NotDecomposable` with a witness against the stage or an output, else `Undecided`."""
    raw, stages, blocked, passes = obstacle.raw, obstacle.stages, obstacle.blocked, obstacle.passes
    count = {COUNT: g.size(raw.axis)}
    stage = g.substitute(blocked.stage, count)
    name = f"stage{stages.index(blocked.stage) + 1}" if blocked.stage in stages else "stage"
    if blocked.budget:
        culprit = _text(g.substitute(blocked.node, count))
        raise Undecided(
            _text(stage),
            f"{name} of the spec, over {_axes(raw)}",
            f"{culprit}: its expansion goes beyond {blocked.budget}",
            "write the body with fewer factors, or with smaller powers",
            stage=name,
            missing=f"the expansion of {culprit}, which goes beyond {blocked.budget}",
        )
    minimum = max(PLAUSIBLE_SLOTS, _terms(raw, blocked.stage) + 1)
    witness, against, spent = None, stage, ""
    try:
        with allowance(SEARCH, "operations on exact numbers", doing="the search for a witness"):
            witness, against = _searched(spec, raw, obstacle.nodes, stage, minimum)
    except Exhausted as budget:
        spent = f" within {budget}"
    mixed = g.substitute(blocked.node, count)
    way_out = f"allow more passes: max_passes={passes}" if passes and passes > 1 else _other_body(mixed)
    text, culprit = _text(stage), _text(mixed)
    where = f"{name} of the spec, over {_axes(raw)}"
    if witness is not None and any(t.array for t in spec.tensors):
        witness, spent = None, " in which the readings of a tensor are one array"
    if witness is None:
        raise Undecided(
            text,
            where,
            f"{culprit}: {blocked.why}; no witness was found{spent or ' either'}",
            way_out,
            stage=name,
            missing=f"a law that separates {culprit}: {blocked.why}",
        )
    raise NotDecomposable(
        text,
        where,
        f"{witness.scope}, on states reached by {len(witness.streams)} streams that all contain the"
        f" {len(witness.points)} elements of the witness; in the way: {culprit} ({blocked.why})",
        way_out,
        stage=name,
        reason=f"{culprit}: {blocked.why}",
        witness=witness,
        passes=passes,
        scope=witness.scope,
        refuted=(spec, against, tuple(g.substitute(n, count) for n in obstacle.nodes)),
    )


def _other_body(mixed: Node) -> str:
    """What helps where one pass is all there is: a length is known beforehand, if the caller says it."""
    ops = {n.op for n in g.walk(mixed)}
    return (
        "declare a number n, and pass the length as n" if "size" in ops and "reduce" not in ops else "change the body"
    )


def _searched(spec: Spec, raw: Cascade, nodes: list[Node], stage: Node, minimum: int) -> tuple[Witness | None, Node]:
    """A witness, and the stage or output that it is about."""
    witness, against = None, stage
    total = stage.attr.kind in ("sum", "prod")
    if total and minimum <= LARGEST_MINOR:
        known = frozenset(g.substitute(s, {COUNT: g.size(raw.axis)}) for s in raw.scope.known)
        witness = refute_stage(stage, raw.axis, known, minimum_k=minimum)
    refuted = dict.fromkeys(
        output for output, node in zip(spec.outputs.values(), nodes, strict=True) if raw.first_bad(node) is not None
    )
    if witness is None and not raw.scope.known and minimum <= LARGEST_MINOR:
        for output in refuted:
            against = output
            budget = OUTPUT_BUDGET if total else ORDER_BUDGET
            witness = refute_output(output, raw.axis, minimum_k=minimum, budget=budget)
            if witness is not None:
                break
    return witness, against


def _terms(raw: Cascade, stage: Node) -> int:
    value = raw.value(stage)
    return len(raw.separator.rows(value.body)) if value.body is not None else 0


def _axes(raw: Cascade) -> str:
    return "axis " + ", ".join(raw.axis)


def _text(node: Node) -> str:
    return short(node)
