"""A form over ranks as specs: what a rank folds, what merges the states of all ranks, what maps a rank's own part.

Lift, combine and finalize are those of the plan, written out as definitions: the state of a part is a reduction of it,
and states of many parts are merged by reductions along an axis of ranks, in which every slot is moved to the anchors of
all (`redalg.graph.plan.Move`). Being specs, they are derived and compiled as any other, for a GPU as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.node import (
    ONE,
    ZERO,
    Decl,
    Node,
    compare,
    div,
    extremum,
    leaves,
    logical,
    mul,
    reduction,
    size,
    substitute,
    tensor,
    walk,
    where,
)
from redalg.graph.node import add as plus
from redalg.graph.operators import Average, Extremum, Quantifier, Sum
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, PassPlan, ScaleAnchor, Slot, shift
from redalg.language.spec import Spec
from redalg.streaming.program import is_finite
from redalg.streaming.state import alias, stored

Values = Mapping[str, Node]
DOMAINS = {"bool", "positive", "nonnegative"}  # of the tensors of states


def why_not(form: Form) -> str | None:
    """Why a form has no such specs; None where it has them."""
    plan = form.plan
    if len(plan.passes) != 1 or len(plan.axis) != 1:
        return f"its plan has {len(plan.passes)} passes along {len(plan.axis)} axes"
    taken = [d.name for d in form.spec.tensors if d.name.startswith(("part_", "ranks_"))]
    if taken:
        return f"the tensor {taken[0]} has the name of a part of its states"
    if form.spec.empty:
        return "it names values for rows without a valid element"
    p = plan.passes[0]
    why = next(filter(None, map(_slot_why_not, p.slots)), None)
    if why is not None:
        return why
    nodes = [n for s in p.slots for n in s.lift] + [o.value for o in plan.outputs]
    if any(leaf.attr in plan.axis for n in nodes for leaf in leaves(n, "size")):
        return "it reads the length of the axis, of which a rank has a part"
    return None


def _slot_why_not(s: Slot) -> str | None:
    if s.vanishes or not isinstance(s.op, Sum | Average | Extremum | Quantifier):
        return f"{s.name} ({s.kind}) is neither a sum nor an extremum"
    if s.moves and not isinstance(s.op, Sum | Average):
        return f"the extremum {s.name} moves with an anchor"
    return None


@dataclass(frozen=True)
class RankSpecs:
    """The specs of a form. Raises: RedalgError where it has none (`why_not`)."""

    form: Form

    def __post_init__(self) -> None:
        why = why_not(self.form)
        if why:
            fix = "tensors on the CPU, whose states are gathered"
            raise RedalgError("a collective of this form on a GPU", "form.collective", why, fix)

    @property
    def p(self) -> PassPlan:
        return self.form.plan.passes[0]

    @cached_property
    def rank(self) -> str:
        """The name of the axis of ranks."""
        taken = set(self.form.spec.axes) | {d.name for d in self.form.spec.tensors}
        return next(name for k in count() if (name := f"rank{k or ''}") not in taken)

    @property
    def lead(self) -> tuple[str, ...]:
        """The axes before those of a part, in what is merged."""
        return (self.rank,)

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """The parts of a state, and their axes."""
        axes = {a.name: a.axes for a in self.p.anchors}
        axes |= {part: s.axes for s in self.p.slots for part in s.parts}
        return {name: axes[name] for name in stored(self.p)}

    @property
    def merged(self) -> tuple[str, ...]:
        """Outputs without the streamed axis."""
        return tuple(o.name for o in self.form.plan.outputs if not o.keeps_axis)

    @property
    def kept(self) -> tuple[str, ...]:
        """Outputs that keep it."""
        return tuple(o.name for o in self.form.plan.outputs if o.keeps_axis)

    @cached_property
    def positional(self) -> bool:
        """Whether it reads positions along the axis: those of a part begin at the number ``part_start``."""
        nodes = [n for s in self.p.slots for n in s.lift] + [o.value for o in self.form.plan.outputs]
        return any(leaf.attr in self.form.plan.axis for n in nodes for leaf in leaves(n, "index"))

    def _placed(self, node: Node) -> Node:
        start = tensor("part_start", (), ("integer",))
        found = {leaf: plus(leaf, start) for leaf in leaves(node, "index") if leaf.attr in self.form.plan.axis}
        return substitute(node, found) if found else node

    def name(self, part: str) -> str:
        """What a part goes by as a tensor and as an output."""
        return f"part_{part}"

    # --- the state of a part -----------------------------------------------------------------------------------------

    @cached_property
    def fold(self) -> Spec:
        """Output ``part_NAME`` for every part of the state of a rank's elements, floats of at least float32."""
        bound: dict[str, Node] = {}
        slots, anchors = {s.name: s for s in self.p.slots}, {a.name: a for a in self.p.anchors}
        for name in self.p.order:
            if name in slots:
                bound[slots[name].parts[0]] = self._reduced(slots[name], bound)
            elif isinstance(anchor := anchors[name], MeanAnchor):
                bound[name] = self._mean(anchor, bound)
            else:
                bound[name] = resolved(target_of(anchor), bound)
        outputs = {self.name(part): self._placed(bound[part]) for part in self.parts}
        order = {self.name(part): axes for part, axes in self.parts.items()}
        real = {self.name(part): "float32" for part in self.parts if not bound[part].is_boolean}
        used = {d for n in outputs.values() for d in _decls(n)}
        own = [d for d in self.form.spec.tensors if d in used]
        tensors = [*own, *(d for d in used if d not in own)]
        return Spec.from_nodes(outputs, tensors=tensors, order=order, dtypes=real)

    def _reduced(self, slot: Slot, bound: Values) -> Node:
        (found,) = slot.reduced(self.form.plan.axis)
        return resolved(found, {**bound, COUNT.attr.name: size(self.form.plan.axis)})

    def _mean(self, anchor: MeanAnchor, bound: Values) -> Node:
        """The target itself: what the shift is from 0. 0 where that is not finite."""
        read = {leaf.attr.name for leaf in leaves(anchor.shift, "state")}
        at_zero = {**bound, anchor.name: ZERO}
        held = {s.parts[0]: self._reduced(s, at_zero) for s in self.p.slots if s.parts[0] in read}
        target = resolved(anchor.shift, {**bound, **held, COUNT.attr.name: size(self.form.plan.axis)})
        return where(is_finite(target), target, ZERO)

    # --- states of all ranks -----------------------------------------------------------------------------------------

    @cached_property
    def joined(self) -> dict[str, Node]:
        """The parts of the state of all, over tensors ``part_NAME[rank, …]`` and the counts ``part_n[rank]``."""
        slots, anchors = {s.name: s for s in self.p.slots}, {a.name: a for a in self.p.anchors}
        n = self.counts
        total = reduction("sum", (self.rank,), n)
        bound: dict[str, Node] = {COUNT.attr.name: total}
        for name in self.p.order:
            if name in slots:
                bound[slots[name].parts[0]] = self._slot(slots[name], bound)
            elif isinstance(anchor := anchors[name], MeanAnchor):
                places = reduction("sum", (self.rank,), mul(n, self._held(name, anchor.axes)))
                bound[name] = div(places, total)
            else:
                bound[name] = resolved(target_of(anchor), bound)
        return bound

    @property
    def counts(self) -> Node:
        return tensor("part_n", self.lead, ("positive",))

    def _held(self, part: str, axes: tuple[str, ...], domain: frozenset[str] = frozenset()) -> Node:
        own = alias(self.p, part) if part in {a.name for a in self.p.anchors} else None
        if own is not None:
            slot = next(s for s in self.p.slots if own in s.parts)
            part, domain = own, slot.domain
        return tensor(self.name(part), (*self.lead, *axes), domain & DOMAINS)

    def _slot(self, slot: Slot, bound: Values) -> Node:
        if isinstance(slot.op, Extremum | Quantifier):
            return reduction(slot.kind, (self.rank,), self._held(slot.parts[0], slot.axes, self._domain(slot)))
        moved = self._moved(slot, bound)
        if not slot.average:
            return reduction("sum", (self.rank,), moved)
        return div(reduction("sum", (self.rank,), mul(self.counts, moved)), bound[COUNT.attr.name])

    def _domain(self, slot: Slot) -> frozenset[str]:
        return frozenset({"bool"}) if isinstance(slot.op, Quantifier) else slot.domain

    def _moved(self, slot: Slot, bound: Values) -> Node:
        """A rank's slot at the anchors of all."""
        own = self._held(slot.parts[0], slot.axes, slot.domain)
        if not slot.moves:
            return own
        slots = {s.name: s for s in self.p.slots}
        read = {leaf.attr.name for m in slot.moves for leaf in leaves(m.coefficient, "state")}
        moving = {shift(a.name, a.axes).attr.name: a for a in self.p.anchors}
        shifts = {name: self._shift(a, bound) for name, a in moving.items() if name in read}
        terms = []
        for m in slot.moves:
            if m.slot == COUNT.attr.name and m.slot not in slots:
                source: Node = ONE if slot.average else self.counts
            else:
                source = self._held(slots[m.slot].parts[0], slots[m.slot].axes, slots[m.slot].domain)
            coefficient = resolved(m.coefficient, {**bound, **shifts}, raw=True)  # quotients before products
            terms.append(coefficient if source is ONE else Node("mul", (coefficient, source)))
        return plus(*terms)

    def _shift(self, anchor: Anchor, bound: Values) -> Node:
        """How far a rank's anchor is moved. Means are finite, and exp(u - max u) is 0 at -oo by the language's rule."""
        old, new = self._held(anchor.name, anchor.axes), bound[anchor.name]
        moved = anchor.between(old, new)
        return where(compare("eq", old, new), anchor.still, moved) if isinstance(anchor, ScaleAnchor) else moved

    @cached_property
    def merge(self) -> Spec:
        """The outputs without the axis and, for those that keep it, the parts of the state that they read."""
        axes = self.form.spec.output_axes
        outputs = {o.name: resolved(o.guarded, self.joined) for o in self.form.plan.outputs if not o.keeps_axis}
        outputs |= {self.name(part): self.joined[part] for part in self.read}
        order = {o: axes[o] for o in self.merged} | {self.name(part): self.read[part] for part in self.read}
        used = {leaf.attr for n in outputs.values() for leaf in leaves(n, "tensor")}
        fixed = [d for d in self.form.spec.tensors if d in used]
        own = sorted((d for d in used if d not in fixed), key=lambda d: d.name)
        return Spec.from_nodes(outputs, tensors=[*own, *fixed], order=order)

    @cached_property
    def state(self) -> Spec:
        """The parts of the state of all, over those of each: what the pieces of one rank come to."""
        outputs = {self.name(part): self.joined[part] for part in self.parts}
        order = {self.name(part): axes for part, axes in self.parts.items()}
        real = {name: "float32" for name, n in outputs.items() if not n.is_boolean}
        used = {leaf.attr for n in outputs.values() for leaf in leaves(n, "tensor")}
        return Spec.from_nodes(outputs, tensors=sorted(used, key=lambda d: d.name), order=order, dtypes=real)

    @cached_property
    def read(self) -> dict[str, tuple[str, ...]]:
        """The parts of the state of all that outputs along the axis read, and their axes."""
        nodes = [o.guarded for o in self.form.plan.outputs if o.keeps_axis]
        found = {leaf.attr.name: leaf.attr.axes for n in nodes for leaf in leaves(n, "state")}
        return {name: found[name] for name in sorted(found)}

    # --- a rank's own part -------------------------------------------------------------------------------------------

    @cached_property
    def apply(self) -> Spec:
        """The outputs that keep the axis, over a rank's elements and the parts that `merge` gives."""
        held = {name: tensor(self.name(name), axes) for name, axes in self.read.items()}
        kept = [o for o in self.form.plan.outputs if o.keeps_axis]
        outputs = {o.name: self._placed(resolved(o.guarded, held)) for o in kept}
        order = {name: self.form.spec.output_axes[name] for name in outputs}
        used = {leaf.attr for n in outputs.values() for leaf in leaves(n, "tensor")}
        own = [d for d in self.form.spec.tensors if d in used]
        more = sorted((d for d in used if d not in own), key=lambda d: d.name)
        return Spec.from_nodes(outputs, tensors=[*own, *more], order=order)


def target_of(anchor: Anchor) -> Node:
    """Of a unit the number itself for its power of 2, which the language has no word for: any positive one serves."""
    assert not isinstance(anchor, MeanAnchor)
    target = anchor.target
    if target.op != "pow2":
        return target
    (x,) = target.args
    if x.op == "maximum":  # at least a power of the smallest unit, which is one, too
        x = extremum("maximum", *(a for a in x.args if all(n.op != "pow2" for n in walk(a))))
    return where(logical("and", compare("lt", ZERO, x), is_finite(x)), x, ONE)


def _decls(node: Node) -> set[Decl]:
    return {leaf.attr for leaf in leaves(node, "tensor")}


def resolved(node: Node, values: Values, raw: bool = False) -> Node:
    """Leaves of the state replaced by what they are here; `raw` keeps the order of evaluation."""
    found = {leaf: values[leaf.attr.name] for leaf in leaves(node, "state") if leaf.attr.name in values}
    return substitute(node, found, raw) if found else node


__all__ = ["RankSpecs", "why_not"]
