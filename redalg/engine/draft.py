"""What the passes of a derivation read and write: a draft of the whole plan, and of each read of the data in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from redalg.algebra.polynomial import poly_node
from redalg.engine.anchors.choices import Choice, Choices
from redalg.engine.emit import Emitter
from redalg.engine.rules.cascade import Blocked, Cascade, RawBackend
from redalg.engine.slots import SlotBackend
from redalg.graph.node import Node
from redalg.graph.plan import Anchor, MeanAnchor, PassPlan, Plan, Slot
from redalg.language.spec import Spec
from redalg.laws.infinities import Level
from redalg.text.nodes import short


@dataclass(frozen=True)
class Request:
    """What the caller asked for: an axis or None, how many reads of the data, what may be assumed."""

    axis: object = None
    max_passes: int = 1
    commute: bool = False  # casts commute with stage values
    constants: bool = True  # those far from 1 stay with the elements they multiply, where that derives
    guards: Mapping[str, Level] = field(default_factory=dict)  # output -> level (`redalg.laws.infinities.guard`)


@dataclass
class Read:
    """One read of the data: a cascade in which what earlier reads computed is constant."""

    raw: Cascade
    backend: RawBackend
    nodes: list[Node] = field(default_factory=list)  # what it has to compute
    written: list[Node] = field(default_factory=list)  # the same as the spec has it
    conditions: list[Node] = field(default_factory=list)  # of guards
    stages: list[Node] = field(default_factory=list)
    chosen: tuple[list[Node], list[Node], Choices] | None = None  # stages, nodes, and what was chosen for them
    choices: Choices = field(default_factory=Choices)
    left_out: list[Choice] = field(default_factory=list)
    slots: SlotBackend | None = None
    final: Cascade | None = None  # the cascade over centred slots
    emit: Emitter | None = None
    values: list[Node] = field(default_factory=list)  # nodes and conditions over the state
    anchors: list[Anchor] = field(default_factory=list)
    built: list[Slot] = field(default_factory=list)
    plan: PassPlan = field(default_factory=PassPlan)
    assumed: dict[str, str] = field(default_factory=dict)  # of values where the definition is NaN inside of them

    def text(self) -> list[str]:
        lines = [f"reads for {', '.join(map(short, self.nodes))}"] if self.nodes else []
        lines += [f"anchor of {short(c.generator)}: {c.anchor.policy}" for c in self.choices.all()]
        lines += [f"A {a.name}" + ("" if isinstance(a, MeanAnchor) else f" <- {short(a.target)}") for a in self.anchors]
        lines += [f"{s.name}: {s.kind} of {', '.join(map(short, s.lift))}" for s in self.built]
        return lines + [f"value {short(v)}" for v in self.values]


@dataclass
class Exports:
    """What reads hand on to later ones, filled from the last read to the first."""

    wanted: dict[Node, Node] = field(default_factory=dict)  # values of earlier reads -> their names
    done: set[Node] = field(default_factory=set)
    taken: frozenset[str] = frozenset()
    unanchored: dict[str, str] = field(default_factory=dict)  # assumptions for want of anchors


@dataclass
class Draft:
    """A derivation under way. Each field is written by one pass (`redalg.engine.passes`) and read by later ones."""

    spec: Spec
    request: Request
    axis: tuple[str, ...] = ()
    outputs: list[Node] = field(default_factory=list)  # as normalised
    leaves: dict[Node, Node] = field(default_factory=dict)  # in units of constants -> tensors
    stages: list[Node] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    resolved: list[Node] = field(default_factory=list)  # the outputs over stages that derive
    obstacle: Obstacle | None = None
    guards: dict[int, tuple[Node, Node]] = field(default_factory=dict)  # place of an output -> condition, otherwise
    exports: Exports = field(default_factory=Exports)
    plan: Plan | None = None
    dump_after: str | None = None

    def separated(self, request: Request) -> Draft:
        """The draft as it was before its reads were planned: no guard has a part in that."""
        draft = Draft(self.spec, request, self.axis, self.outputs, self.leaves, self.stages, dump_after=self.dump_after)
        draft.reads = [Read(r.raw, r.backend, chosen=r.chosen) for r in self.reads]
        draft.resolved = self.resolved
        return draft

    @property
    def axis_order(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a for d in self.spec.tensors for a in d.axes))

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        lines = [f"axis: {', '.join(self.axis) or 'none'}"]
        lines += [f"output {n}: {short(v)}" for n, v in zip(self.spec.outputs, self.outputs, strict=False)]
        for number, read in enumerate(self.reads, 1):
            lines.append(f"read {number}")
            lines += [f"  {line}" for line in (*self._separated(read), *read.text())]
        if self.obstacle is not None:
            lines.append(f"blocked: {short(self.obstacle.blocked.node)}: {self.obstacle.blocked.why}")
        return "\n".join(lines)

    def _separated(self, read: Read) -> list[str]:
        lines = []
        for number, stage in enumerate(self.stages, 1):
            value = read.raw.value(stage)
            body = short(poly_node(value.body)) if value.body is not None else short(stage)
            lines.append(
                f"stage{number} {stage.attr.kind}: " + (f"blocked, {value.blocked.why}" if value.blocked else body)
            )
        return lines


@dataclass(frozen=True)
class Obstacle:
    """Why there is no plan: what blocked a stage, and with how many reads there would be one."""

    raw: Cascade
    nodes: list[Node]
    stages: list[Node]
    blocked: Blocked
    passes: int | None


def with_exports(slot: Slot, read: Read) -> Slot:
    """Values of earlier reads inside a lift become exports; state leaves stay."""
    assert read.emit is not None
    return replace(slot, lift=tuple(read.emit(x) for x in slot.lift)) if read.raw.scope.known else slot


__all__ = ["Draft", "Obstacle", "Read", "Request", "with_exports"]
