"""A form compiled for the dtypes of its arrays: one `Program` per pass, and the tapes that read a state.

Machines are cached per plan and dtypes and shared by all accumulators of a form; building one twice is harmless, so no
lock is held.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from redalg.graph import Node, walk
from redalg.plan import COUNT, Plan
from redalg.streaming.build import Builder
from redalg.streaming.program import Program
from redalg.streaming.state import wider
from redalg.streaming.tape import Tape


class Machine:
    """`kinds`: tensor -> b, i, f or c; `numbers`: tensors given as Python numbers; `real`: dtype of inexact arithmetic."""

    def __init__(self, plan: Plan, kinds: Mapping[str, str], numbers: frozenset[str], real: np.dtype, first: Iterable[str]) -> None:
        self.plan, self.kinds, self.numbers, self.real = plan, dict(kinds), numbers, np.dtype(real)
        self.layout = tuple(dict.fromkeys([*first, *(axis for node in walk(*plan_nodes(plan)) for axis in named_axes(node))]))
        self._programs: list[Program] = []
        self._exports: list[Tape] = []

    @cached_property
    def wide(self) -> Machine | None:
        """The same with a larger exponent range, if the machine has one."""
        real = wider(self.real)
        return None if real is None else Machine(self.plan, self.kinds, self.numbers, real, self.layout)

    def program(self, number: int) -> Program:
        """The program of pass `number`; the kinds of exports are those the passes before it produce."""
        if number < len(self._programs):
            return self._programs[number]
        programs, tapes, kinds = [], [], dict(self.kinds)
        for p in self.plan.passes:
            program = Program(p, self.plan.axis, kinds, self.real, self.layout, self.numbers)
            orders = [export_axes(self.plan, name) for name, _ in p.exports]
            tape, found = program.builder().tape([node for _, node in p.exports], orders)
            programs.append(program)
            tapes.append(tape)
            kinds |= dict(zip((name for name, _ in p.exports), found, strict=True))
        self._exports, self._programs = tapes, programs
        return self._programs[number]

    def export_tape(self, number: int) -> Tape:
        self.program(number)
        return self._exports[number]

    @cached_property
    def totals(self) -> Tape:
        """The outputs without the axis, from the last state."""
        return self._outputs(keeps_axis=False)

    @cached_property
    def rows(self) -> Tape:
        """The outputs that keep the axis, from the last state and a chunk."""
        return self._outputs(keeps_axis=True)

    def _outputs(self, keeps_axis: bool) -> Tape:
        outputs = [o for o in self.plan.outputs if o.keeps_axis == keeps_axis]
        builder = self._builder()
        return builder.tape([o.value for o in outputs], [o.axes for o in outputs])[0]

    def _builder(self) -> Builder:
        if self.plan.passes:
            return self.program(len(self.plan.passes) - 1).builder()
        return Builder(self.layout, self.kinds, self.real, numbers=self.numbers | {COUNT.attr.name})


def plan_nodes(plan: Plan) -> list[Node]:
    """Every expression of a plan."""
    nodes = [o.value for o in plan.outputs]
    for p in plan.passes:
        nodes += [node for s in p.slots for node in (*s.lift, *(m.coefficient for m in s.moves), s.leaf())]
        nodes += [node for a in p.anchors for node in (a.generator, a.target, a.shift, a.leaf) if node is not None]
        nodes += [node for _, node in p.exports]
    return nodes


def named_axes(node: Node) -> tuple[str, ...]:
    """The axes a node mentions."""
    if node.op in ("tensor", "state"):
        return node.attr.axes
    if node.op == "reduce":
        return (*node.attr.axes, node.attr.extra[1]) if node.attr.kind.startswith("topk") else node.attr.axes
    return (node.attr,) if node.op in ("index", "size") else ()


def export_axes(plan: Plan, name: str) -> tuple[str, ...]:
    """The axes a later pass reads an export along; in the order of the spec's outputs if none does."""
    for node in walk(*plan_nodes(plan)):
        if node.op == "state" and node.attr.name == name:
            return node.attr.axes
    node = next(node for p in plan.passes for n, node in p.exports if n == name)
    return tuple(sorted(node.axes))


_CACHE: dict[int, tuple[weakref.ref[Plan], dict[Any, Machine]]] = {}


def machine_for(plan: Plan, kinds: Mapping[str, str], numbers: frozenset[str], real: np.dtype, first: Iterable[str]) -> Machine:
    """The machine of a plan for these dtypes, built once."""
    found = _CACHE.get(id(plan))
    if found is None or found[0]() is not plan:
        key = id(plan)
        found = weakref.ref(plan, lambda _: _CACHE.pop(key, None)), {}
        _CACHE[key] = found
    key_of = (tuple(sorted(kinds.items())), numbers, np.dtype(real).char)
    machine = found[1].get(key_of)
    return machine if machine is not None else found[1].setdefault(key_of, Machine(plan, kinds, numbers, real, first))
