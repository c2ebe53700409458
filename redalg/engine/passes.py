"""The passes between a spec and its plan, in order. Nothing else calls one.

`PASSES` go over the whole draft, `READ_PASSES` over each read of the data, the last read first, since what it takes
from earlier ones is what those must compute. Where an anchor turns out to be in the way, a read goes back to "centre"
without it. After every pass the draft is checked; a failure names the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from redalg.algebra.polynomial import TooLarge
from redalg.algebra.work import DERIVATION, PRODUCT, Exhausted, allowance
from redalg.engine import assembly, reads, separation
from redalg.engine.check import check_draft, check_read
from redalg.engine.constants import written
from redalg.engine.draft import Draft, Obstacle, Read, Request
from redalg.engine.reads import Around, Unresolved
from redalg.errors import RedalgError
from redalg.graph.plan import Plan
from redalg.language.spec import Spec
from redalg.laws.infinities import Level

WHERE = "ra.derive_incremental"


class Pass(NamedTuple):
    """A step of the derivation: its name, what it does in a line, the function."""

    name: str
    does: str
    run: Callable[[Draft], None]


class ReadPass(NamedTuple):
    """A step of the plan of one read of the data."""

    name: str
    does: str
    run: Callable[[Read, Around], None]


def _plan_reads(draft: Draft) -> None:
    """READ_PASSES over every read, the last first; a read goes back to BACK without the anchor that was in the way."""
    if not draft.axis:
        return
    assembly.begin(draft)
    for number in reversed(range(len(draft.reads))):
        read, around = draft.reads[number], assembly.around(draft)
        at = 0
        while at < len(READ_PASSES):
            step = READ_PASSES[at]
            try:
                step.run(read, around)
                at += 1
            except Unresolved as obstacle:
                culprit = obstacle.culprit(read.choices)
                if culprit is None:  # there is no anchor to do without
                    assert obstacle.blocked is not None
                    draft.obstacle = Obstacle(read.raw, draft.outputs, draft.stages, obstacle.blocked, None)
                    return
                read.left_out.append(culprit)
                read.choices = read.choices.without(culprit)
                at = next(place for place, p in enumerate(READ_PASSES) if p.name == BACK)
                continue
            check_read(read, step.name)
            _dump(draft, step.name)
        assembly.handed_on(draft, number)


def _restore(draft: Draft) -> None:
    """Tensors in the place of leaves in units of constants; the stages as the spec has them."""
    if not draft.leaves:
        return
    assert draft.plan is not None
    plan = written(draft.plan, draft.leaves)
    plain = Draft(draft.spec, replace(draft.request, constants=False))
    for step in PASSES[: NAMES.index(SEPARATED) + 1]:
        step.run(plain)
    if plain.obstacle is not None:
        draft.obstacle = plain.obstacle
        return
    stages = list(assembly.reports(plain))
    if len(plan.passes) > 1:  # what later reads take from earlier ones is in the units of the plan
        later = [s for s in plan.stages if s.passes > 1 and s.rank is not None]
        stages = [s for s in stages if s.passes == 1 or s.rank is None] + later
        stages = [replace(s, name=f"stage{k}") for k, s in enumerate(stages, 1)]
    draft.plan = replace(plan, stages=tuple(stages))


PASSES = (
    Pass("stream", "choose the axis that is streamed over", separation.streamed),
    Pass("normalise", "sizes as counts, sums merged, composite reductions split", separation.normalised),
    Pass(
        "constants", "those far from 1 stay with the elements they multiply, in units of them", separation.kept_inside
    ),
    Pass("separate", "split stages into element and context factors, read after read", separation.separated),
    Pass("plan reads", "anchors, slots and values of every read: READ_PASSES", _plan_reads),
    Pass("finish", "outputs with their guards, stages as they separated, assumptions", assembly.finished),
    Pass("restore", "tensors back in the place of elements in units of constants", _restore),
)
READ_PASSES = (
    ReadPass("need", "which stages the values of this read need", reads.needed),
    ReadPass("anchor", "on what slots are centred, in which units, from the raw normal forms", reads.anchored),
    ReadPass("centre", "the cascade once more, over slots of centred generators", reads.centred),
    ReadPass("emit", "values, lifts and targets as nodes over slots, in differences", reads.emitted),
    ReadPass("poison", "NaN where an input has cancelled that may be NaN", reads.poisonous),
    ReadPass("prune", "only the anchors and slots that results need", reads.pruned),
    ReadPass("order", "every name after what it is computed from", reads.ordered),
    ReadPass("measure", "results back from units of the data, sums in an order that keeps digits", reads.measured),
)
BACK, SEPARATED = "centre", "separate"
NAMES = (*(p.name for p in PASSES), *(p.name for p in READ_PASSES))
ASSUMPTIONS = ("cast_commutes",)


def derive_plan(
    spec: Spec,
    axis: object = None,
    max_passes: int = 1,
    assume: Iterable[str] = (),
    guards: Mapping[str, Level] | None = None,
    dump_after: str | None = None,
) -> Plan | Obstacle:
    """The plan of a spec, not yet verified, or what blocked it. `dump_after`: a pass after which the draft is printed.

    `guards`: the levels of outputs by name (see `redalg.laws.infinities.guard`).

    Raises: RedalgError for bad arguments; Exhausted, TooLarge where a budget of work is spent; BrokenPass, naming the
    pass, where a draft does not keep its invariants.

    >>> import redalg as ra
    >>> found = derive_plan(ra.parse("return y = sum[j](x[j])"), dump_after="separate")
    axis: j
    output y: sum[j](x[j])
    read 1
      stage1 sum: x[j]
    >>> [slot.name for slot in found.passes[0].slots]
    ['sum_x']
    """
    return Planner(spec, axis, max_passes, assume, dump_after)(guards or {})


class Planner:
    """The plans of one spec: what comes before guards is derived once."""

    def __init__(
        self, spec: Spec, axis: object, max_passes: int, assume: Iterable[str], dump_after: str | None
    ) -> None:
        self.request = _request(spec, axis, max_passes, assume)
        self.draft = Draft(spec, self.request, dump_after=_named(dump_after))

    def __call__(self, guards: Mapping[str, Level]) -> Plan | Obstacle:
        """The plan with these guards. Raises: as `derive_plan`."""
        request = replace(self.request, guards=guards)
        draft = self.draft.separated(request)
        found: Plan | Obstacle | None = None
        try:
            found = _run(draft)
        except (Exhausted, TooLarge):
            if not draft.leaves:
                raise
        if draft.leaves and not isinstance(found, Plan):  # once more, as the constants stand
            draft = Draft(draft.spec, replace(request, constants=False), dump_after=draft.dump_after)
            found = _run(draft)
        assert found is not None
        if isinstance(found, Plan):
            self.draft = draft
        return found


def _run(draft: Draft) -> Plan | Obstacle:
    with allowance(DERIVATION, "products of terms", PRODUCT, "the derivation"):
        for step in PASSES[NAMES.index(SEPARATED) + 1 :] if draft.resolved else PASSES:
            step.run(draft)
            check_draft(draft, step.name)
            _dump(draft, step.name)
            if draft.obstacle is not None:
                return draft.obstacle
    assert draft.plan is not None
    return draft.plan


def _dump(draft: Draft, name: str) -> None:
    if name == draft.dump_after:
        print(draft.text())


def _named(dump_after: str | None) -> str | None:
    if dump_after is not None and dump_after not in NAMES:
        raise RedalgError(f"dump_after={dump_after!r}", WHERE, f"the passes are {', '.join(NAMES)}", "name one of them")
    return dump_after


def _request(spec: object, axis: object, max_passes: int, assume: Iterable[str]) -> Request:
    if not isinstance(spec, Spec):
        raise RedalgError(
            f"a spec of type {type(spec).__name__}",
            WHERE,
            "only a Spec says which outputs are wanted",
            "ra.derive_incremental(ra.Spec(y=expression))",
        )
    assumed = frozenset({assume} if isinstance(assume, str) else assume)
    unknown = assumed - set(ASSUMPTIONS)
    if unknown:
        raise RedalgError(
            f"assumption {sorted(unknown)[0]!r}",
            f"{WHERE}(assume=...)",
            f"known assumptions are {', '.join(ASSUMPTIONS)}",
            "leave it out, or check the spelling",
        )
    if isinstance(max_passes, bool) or not isinstance(max_passes, int) or max_passes < 1:
        raise RedalgError(f"max_passes={max_passes!r}", WHERE, "a form reads its data at least once", "max_passes=1")
    return Request(axis, max_passes, "cast_commutes" in assumed)
