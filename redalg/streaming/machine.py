"""A form compiled for the dtypes of its arrays: one `Program` per pass, and the tapes that read a state.

Machines are cached per plan and dtypes and shared by all accumulators of a form; building one twice is harmless, so no
lock is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redalg.definition import finished, with_empty
from redalg.graph import Node, walk
from redalg.plan import COUNT, Output, Plan
from redalg.streaming.build import Builder
from redalg.streaming.program import Program
from redalg.streaming.remember import Remember
from redalg.streaming.state import wider
from redalg.streaming.tape import Array, Tape
from redalg.streaming.voids import Voids


class Machine:
    """`kinds`: tensor -> b, i, f or c; `numbers`: tensors given as Python numbers; `real`: dtype of inexact numbers."""

    def __init__(
        self,
        plan: Plan,
        voids: Voids,
        kinds: Mapping[str, str],
        numbers: frozenset[str],
        real: np.dtype,
        first: Iterable[str],
    ) -> None:
        self.plan, self.voids, self.kinds, self.numbers, self.real = plan, voids, dict(kinds), numbers, np.dtype(real)
        self.layout = tuple(
            dict.fromkeys([*first, *(axis for node in walk(*plan_nodes(plan)) for axis in named_axes(node))])
        )
        self._programs: list[Program] = []
        self._exports: list[Tape] = []

    @cached_property
    def wide(self) -> Machine | None:
        """The same with a larger exponent range, if the machine has one."""
        real = wider(self.real)
        return None if real is None else Machine(self.plan, self.voids, self.kinds, self.numbers, real, self.layout)

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
    def totals(self) -> Finale:
        """The outputs without the axis, from the last state."""
        return self._outputs([o for o in self.plan.outputs if not o.keeps_axis])

    @cached_property
    def rows(self) -> Finale:
        """The outputs that keep the axis, from the last state and a chunk."""
        return self._outputs([o for o in self.plan.outputs if o.keeps_axis])

    @cached_property
    def maps(self) -> Finale:
        """All outputs of a plan without a pass."""
        return self._outputs(list(self.plan.outputs))

    def _outputs(self, outputs: list[Output]) -> Finale:
        voids = dict(self.voids)
        conditions = [voids[o.name] for o in outputs if o.name in voids]
        orders = [o.axes for o in outputs]
        orders += [tuple(a for a in o.axes if a in voids[o.name].axes) for o in outputs if o.name in voids]
        tape = self._builder().tape([*(o.guarded for o in outputs), *conditions], orders)[0]
        shapes = [
            tuple(slice(None) if a in voids[o.name].axes else None for a in o.axes) for o in outputs if o.name in voids
        ]
        return Finale(
            tape, tuple(outputs), dict(zip((o.name for o in outputs if o.name in voids), shapes, strict=True))
        )

    def _builder(self) -> Builder:
        if self.plan.passes:
            return self.program(len(self.plan.passes) - 1).builder()
        return Builder(self.layout, self.kinds, self.real, numbers=self.numbers | {COUNT.attr.name})


@dataclass(frozen=True)
class Finale:
    """Outputs as a tape: their values, then the conditions of those with an ``empty=`` value (how each broadcasts)."""

    tape: Tape
    outputs: tuple[Output, ...]
    conditions: dict[str, tuple[Any, ...]]

    def finished(self, values: list[Array], dtypes: Mapping[str, np.dtype]) -> dict[str, Array]:
        """The results of a run of the tape: rounded once, with the values for rows without a valid element."""
        voids = dict(zip(self.conditions, values[len(self.outputs) :], strict=True))
        found = {}
        for o, value in zip(self.outputs, values, strict=False):
            result = finished(value[0, ...], dtypes[o.name])
            if o.name in voids:
                result = with_empty(result, voids[o.name][0, ...][self.conditions[o.name]], o.empty, o.name)  # type: ignore[arg-type]
            found[o.name] = result
        return found


def plan_nodes(plan: Plan) -> list[Node]:
    """Every expression of a plan."""
    return [o.guarded for o in plan.outputs] + pass_nodes(plan)


def pass_nodes(plan: Plan) -> list[Node]:
    """The expressions of a plan's passes."""
    nodes: list[Node] = []
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


_MACHINES = Remember()


def machine_for(
    plan: Plan,
    voids: Voids,
    kinds: Mapping[str, str],
    numbers: frozenset[str],
    real: np.dtype,
    first: Iterable[str],
) -> Machine:
    """The machine of a plan for these dtypes, built once."""
    known: dict[Any, Machine] = _MACHINES(plan, dict)
    key = (tuple(sorted(kinds.items())), numbers, np.dtype(real).char)
    machine = known.get(key)
    return machine if machine is not None else known.setdefault(key, Machine(plan, voids, kinds, numbers, real, first))
