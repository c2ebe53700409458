"""A form's plan with one more axis, that of groups of equal length, which stays while the streamed axis goes.

The groups are the first of two streamed axes: what the runtime does with the rows of a composite axis, it does with
groups. Parts of the state get no axis: groups are their batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from redalg.graph.node import Node, leaves, substitute, tensor
from redalg.graph.plan import PassPlan, Plan, given
from redalg.streaming.lift import Stretch
from redalg.streaming.machine import Machine, built
from redalg.streaming.masked import Masked
from redalg.streaming.remember import Remember
from redalg.streaming.snapshot import Layout
from redalg.streaming.tapes.tape import Array


@dataclass(frozen=True, eq=False)
class GroupedPlan:
    """The plan along (`group`, streamed axes), and where these axes lie in each tensor."""

    group: str
    plan: Plan
    masked: Masked
    axes: Mapping[str, tuple[str, ...]]

    @staticmethod
    def of(layout: Layout, names: Iterable[str]) -> GroupedPlan:
        """That of a form, made once."""
        return _PLANS(layout, lambda: GroupedPlan._made(layout, names))

    @staticmethod
    def _made(layout: Layout, names: Iterable[str]) -> GroupedPlan:
        taken = {*names, *(a for d in (*layout.streamed, *layout.fixed) for a in d.axes), *dict(layout.new_axes)}
        group = next(name for k in count() if (name := f"group{k or ''}") not in taken)
        first = layout.axis[0]

        def axes_of(axes: tuple[str, ...]) -> tuple[str, ...]:
            at = axes.index(first) if first in axes else len(axes)
            return (*axes[:at], group, *axes[at:]) if first in axes else axes

        def read(node: Node) -> Node:
            held = [leaf for leaf in leaves(node, "tensor") if first in leaf.attr.axes]
            mapping = {leaf: tensor(leaf.attr.name, axes_of(leaf.attr.axes), leaf.attr.domain) for leaf in held}
            return substitute(node, mapping) if mapping else node

        plan = layout.plan
        plan = replace(
            plan,
            axis=(group, *plan.axis),
            passes=tuple(_pass(p, read) for p in plan.passes),
            outputs=tuple(o for o in plan.outputs if not o.keeps_axis),
        )
        masked = tuple((name, node) for name, node in layout.masked if name in {o.name for o in plan.outputs})
        axes = given({d.name: axes_of(d.axes) for d in (*layout.streamed, *layout.fixed)})
        return GroupedPlan(group, plan, masked, axes)

    def machine(self, dtypes: Mapping[str, Any], real: np.dtype, first: Iterable[str]) -> Machine:
        return built(self.plan, self.masked, dtypes, real, (self.group, *first))

    def stretch(self, arrays: Mapping[str, Any], sizes: Mapping[str, int], rows: Array, groups: int) -> Stretch:
        """Groups of equal length, one behind the other in `rows`."""
        first, found = self.plan.axis[1], dict(arrays)
        length = len(rows) // groups
        for name, axes in self.axes.items():
            if self.group in axes:
                at = axes.index(self.group)
                x = np.take(arrays[name], rows, axis=at)
                found[name] = x.reshape(*x.shape[:at], groups, length, *x.shape[at + 1 :])
        return Stretch(found, self.axes, {**sizes, self.group: groups, first: length}, self.plan.axis, 0)


_PLANS = Remember()


def _pass(p: PassPlan, read: Callable[[Node], Node]) -> PassPlan:
    anchors, slots = tuple(a.map(read) for a in p.anchors), tuple(s.map(read) for s in p.slots)
    return PassPlan(anchors, slots, p.order, tuple((name, read(node)) for name, node in p.exports))
