"""The specs of a form over ranks that are joined by all-reduces: what goes into each of the two, and what comes of it.

The first brings the anchors: extrema by MAX (minima with their signs turned), centres by SUM, weighted with how much
each rank has. Then a rank carries its sums to the anchors of all, and the second adds them. A backend's MAX may drop a
NaN: it goes with the second, as a number that is 0 elsewhere, and sums of a rank whose own anchor is NaN are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from redalg.adapters.ranks.specs import DOMAINS, RankSpecs, resolved, target_of, why_not
from redalg.form import Form
from redalg.graph.node import MINUS_ONE, ONE, ZERO, Node, compare, div, leaves, logical, mul, tensor, where
from redalg.graph.node import add as plus
from redalg.graph.operators import Extremum, Quantifier
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, Slot
from redalg.language.spec import Spec

COUNTED = "ranks_sum_n"  # how many elements all ranks have


def why_not_reduced(form: Form) -> str | None:
    """Why the states of a form are not joined by two all-reduces; None where they are."""
    why = why_not(form)
    if why is not None:
        return why
    p = form.plan.passes[0]
    first = {part for s in p.slots if isinstance(s.op, Extremum | Quantifier) for part in s.parts}
    first |= {a.name for a in p.anchors} | {COUNT.attr.name}
    for a in p.anchors:
        if not isinstance(a, MeanAnchor):
            late = [x.attr.name for x in leaves(a.target, "state") if x.attr.name not in first]
            if late:
                return f"the anchor {a.name} is computed from the sum {late[0]}"
    return None


@dataclass(frozen=True)
class ReduceSpecs(RankSpecs):
    """What `RankSpecs` are for a gather. Raises: RedalgError where the form has none (`why_not_reduced`).

    ``first``, ``second``: what a rank sends, over its own parts (and what came of the first); each output is called
    after what joins it, ``ranks_max_NAME``, ``ranks_sum_NAME`` or ``ranks_nan_NAME`` (by SUM, too). ``merge``: the
    results, over what came of both.
    """

    @property
    def lead(self) -> tuple[str, ...]:
        return ()

    @cached_property
    def extrema(self) -> list[Slot]:
        return [s for s in self.p.slots if isinstance(s.op, Extremum | Quantifier)]

    @cached_property
    def sums(self) -> list[Slot]:
        return [s for s in self.p.slots if s not in self.extrema]

    @cached_property
    def centres(self) -> list[MeanAnchor]:
        return [a for a in self.p.anchors if isinstance(a, MeanAnchor)]

    @cached_property
    def counted(self) -> str | None:
        """With which all-reduce the number of all elements comes, "first" or "second"; None where nobody reads it."""
        late = [d.name for d in self.merge.tensors]
        early = [d.name for d in self.second.tensors] if self.second is not None else []
        if COUNTED in early or (COUNTED in late and self.second is None):
            return "first"
        return "second" if COUNTED in late else None

    # --- what is sent ------------------------------------------------------------------------------------------------

    @cached_property
    def first(self) -> Spec | None:
        """None where there are neither anchors nor extrema."""
        outputs, order = {}, {}
        for s in self.extrema:
            (part,) = s.parts
            own = self._held(part, s.axes, self._domain(s))
            value = where(own, ONE, ZERO) if isinstance(s.op, Quantifier) else own
            outputs[f"ranks_max_{part}"] = mul(MINUS_ONE, value) if _lowest(s) else value
            order[f"ranks_max_{part}"] = s.axes
        for a in self.centres:
            outputs[f"ranks_sum_{a.name}"] = where(
                compare("lt", ZERO, self.counts), mul(self.counts, self._held(a.name, a.axes)), ZERO
            )
            order[f"ranks_sum_{a.name}"] = a.axes
        return self._spec(outputs, order) if outputs else None

    @cached_property
    def second(self) -> Spec | None:
        """The sums of a rank at the anchors of all, and the NaN among its extrema; None where there are none."""
        bound = self.anchored
        outputs, order = {}, {}
        for s in self.sums:
            moved = self._moved(s, bound)
            if s.average:
                moved = mul(self.counts, moved)
            if s.moves:
                moved = where(compare("lt", ZERO, self.counts), moved, ZERO)
            outputs[f"ranks_sum_{s.parts[0]}"] = moved
            order[f"ranks_sum_{s.parts[0]}"] = s.axes
        for s in self.extrema:
            if _may_be_nan(s):
                own = self._held(s.parts[0], s.axes, s.domain)
                known = logical("or", compare("le", own, ZERO), compare("lt", ZERO, own))
                outputs[f"ranks_nan_{s.parts[0]}"] = where(known, ZERO, own)
                order[f"ranks_nan_{s.parts[0]}"] = s.axes
        return self._spec(outputs, order) if outputs else None

    def _spec(self, outputs: Mapping[str, Node], order: Mapping[str, tuple[str, ...]]) -> Spec:
        used = {leaf.attr for n in outputs.values() for leaf in leaves(n, "tensor")}
        return Spec.from_nodes(dict(outputs), tensors=sorted(used, key=lambda d: d.name), order=dict(order))

    def _shift(self, anchor: Anchor, bound: Mapping[str, Node]) -> Node:
        """None where the anchor equals that of all, also at -oo: no reduction stands here that would say so."""
        old, new = self._held(anchor.name, anchor.axes), bound[anchor.name]
        moved = anchor.between(old, new)
        return moved if isinstance(anchor, MeanAnchor) else where(compare("eq", old, new), anchor.still, moved)

    # --- what comes of it --------------------------------------------------------------------------------------------

    @property
    def total(self) -> Node:
        return tensor(COUNTED, (), ("positive",))

    @cached_property
    def anchored(self) -> dict[str, Node]:
        """The anchors and extrema of all, over what came of the first all-reduce, which may have lost a NaN."""
        return self._anchors({s.parts[0]: self._extremum(s) for s in self.extrema})

    def _anchors(self, extrema: Mapping[str, Node]) -> dict[str, Node]:
        bound: dict[str, Node] = {COUNT.attr.name: self.total, **extrema}
        slots = {s.name for s in self.p.slots}
        for name in self.p.order:
            if name in slots:
                continue
            anchor = next(a for a in self.p.anchors if a.name == name)
            if isinstance(anchor, MeanAnchor):
                bound[name] = div(tensor(f"ranks_sum_{name}", anchor.axes), self.total)
            else:
                bound[name] = resolved(target_of(anchor), bound)
        return bound

    def _extremum(self, slot: Slot) -> Node:
        (part,) = slot.parts
        found = tensor(f"ranks_max_{part}", slot.axes)
        if isinstance(slot.op, Quantifier):
            return compare("lt", found, ZERO) if _lowest(slot) else compare("lt", ZERO, found)
        return mul(MINUS_ONE, found) if _lowest(slot) else found

    @cached_property
    def joined(self) -> dict[str, Node]:
        extrema = {s.parts[0]: self._extremum(s) for s in self.extrema}
        for s in self.extrema:
            if _may_be_nan(s):
                extrema[s.parts[0]] = plus(extrema[s.parts[0]], tensor(f"ranks_nan_{s.parts[0]}", s.axes))
        bound = self._anchors(extrema)
        for s in self.sums:
            found = tensor(f"ranks_sum_{s.parts[0]}", s.axes, s.domain & DOMAINS)
            bound[s.parts[0]] = div(found, self.total) if s.average else found
        return bound


def _may_be_nan(slot: Slot) -> bool:
    return isinstance(slot.op, Extremum) and "integer" not in slot.domain


def _lowest(slot: Slot) -> bool:
    return slot.kind in ("min", "all")


__all__ = ["COUNTED", "ReduceSpecs", "why_not_reduced"]
