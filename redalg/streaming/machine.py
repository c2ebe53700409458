"""A form compiled for the dtypes of its arrays: one `Program` per pass, and the tapes that read a state.

Machines are cached per plan and dtypes and shared by all accumulators of a form; building one twice is harmless, so no
lock is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from redalg.graph.node import Node, walk
from redalg.graph.plan import COUNT, Output, PassPlan, Plan, given
from redalg.numeric.definition import finished, with_empty
from redalg.numeric.dtypes import flows
from redalg.numeric.integer_bounds import decisive
from redalg.streaming.masked import Masked
from redalg.streaming.program import DTYPES, Program
from redalg.streaming.remember import Remember
from redalg.streaming.state import Found, State, in_range, repeated, wider
from redalg.streaming.tapes.build import Builder
from redalg.streaming.tapes.tape import Array, Runs, Tape
from redalg.streaming.whole import whole_plan


class Machine:
    """`kinds`: tensor -> b, i, f or c; `numbers`: tensors given as Python numbers; `real`: dtype of inexact numbers.

    An `exact` one holds integers alone (`redalg.streaming.whole`).
    """

    def __init__(
        self,
        plan: Plan,
        masked: Masked,
        kinds: Mapping[str, str],
        numbers: frozenset[str],
        real: np.dtype,
        first: Iterable[str],
        exact: bool = False,
    ) -> None:
        self.exact = exact
        self.plan, self.masked, self.kinds, self.numbers, self.real = plan, masked, dict(kinds), numbers, np.dtype(real)
        self.layout = tuple(
            dict.fromkeys([*first, *(axis for node in walk(*plan_nodes(plan)) for axis in named_axes(node))])
        )
        self._programs: list[Program] = []
        self._exports: dict[int, Tape] = {}  # of passes that hand something on

    @cached_property
    def whole(self) -> Machine | None:
        """The same for whole numbers, of which nothing is rounded; None where anything but integers is held."""
        found = whole_plan(self.plan, self.masked, self.kinds) if self.real.itemsize == 8 else None
        if found is None:
            return None
        machine = Machine(*found, self.kinds, self.numbers, self.real, self.layout, exact=True)
        return machine if all(machine.program(k).whole for k in range(len(self.plan.passes))) else None

    @cached_property
    def wide(self) -> Machine | None:
        """The same with a larger exponent range, if the machine has one, and where there is rounding."""
        rounds = not self.exact or any(self.program(k).decides for k in range(len(self.plan.passes)))
        real = wider(self.real) if rounds else None
        same = self.plan, self.masked, self.kinds, self.numbers
        return None if real is None else Machine(*same, real, self.layout, self.exact)

    @cached_property
    def longer(self) -> Machine | None:
        """The same with 64 bits of mantissa, which hold every integer of int64; None where floats have fewer."""
        if self.real.itemsize != 8 or np.finfo(np.longdouble).nmant < 63:
            return None
        same = self.plan, self.masked, self.kinds, self.numbers
        return Machine(*same, np.dtype(np.longdouble), self.layout, self.exact)

    @cached_property
    def settles(self) -> tuple[bool, tuple[str, ...]]:
        """Whether results are decided by floats that integers become, and which results are calculated in floats."""
        last = self.program(len(self.plan.passes) - 1)
        dtypes = {name.removeprefix("given:"): DTYPES[kind] for name, kind in last.kinds.items()}
        found = flows([o.guarded for o in self.plan.outputs], dtypes | {COUNT.attr.name: DTYPES["i"]})
        floats = tuple(o.name for o in self.plan.outputs if found[o.guarded].kind == "f")
        return bool(decisive(found)), floats

    def program(self, number: int) -> Program:
        """The program of pass `number`; the kinds of exports are those the passes before it produce."""
        if number < len(self._programs):
            return self._programs[number]
        programs, tapes, kinds = list[Program](), dict[int, Tape](), dict(self.kinds)
        for k, p in enumerate(self.plan.passes, 1):
            suffix = f"_{k}" if len(self.plan.passes) > 1 else ""
            program = _program(p, self.plan.axis, kinds, self.real, self.layout, self.numbers, suffix)
            programs.append(program)
            if not p.exports:
                continue
            orders = [export_axes(self.plan, self.masked, name) for name, _ in p.exports]
            names = [name for name, _ in p.exports]
            tapes[k - 1], found = program.builder().tape(
                f"exports{suffix}", [node for _, node in p.exports], orders, names
            )
            kinds |= dict(zip(names, found, strict=True))
        self._exports, self._programs = tapes, programs
        return self._programs[number]

    def export_tape(self, number: int) -> Tape:
        """What a pass hands to later ones, if anything."""
        self.program(number)
        return self._exports[number]

    @cached_property
    def totals(self) -> Finale:
        """The outputs without the axis, from the last state."""
        return self._outputs("finalize", [o for o in self.plan.outputs if not o.keeps_axis])

    @cached_property
    def rows(self) -> Finale:
        """The outputs that keep the axis, from the last state and a chunk."""
        return self._outputs("apply", [o for o in self.plan.outputs if o.keeps_axis])

    @cached_property
    def maps(self) -> Finale:
        """All outputs of a plan without a pass."""
        return self._outputs("maps", list(self.plan.outputs))

    def _outputs(self, name: str, outputs: list[Output]) -> Finale:
        masked = dict(self.masked)
        conditions = [masked[o.name] for o in outputs if o.name in masked]
        orders = [o.axes for o in outputs]
        orders += [tuple(a for a in o.axes if a in masked[o.name].axes) for o in outputs if o.name in masked]
        results = [f"result_{o.name}" for o in outputs] + [f"masked_{o.name}" for o in outputs if o.name in masked]
        tape = self._builder().tape(name, [*map(self._computed, outputs), *conditions], orders, results)[0]
        shapes = {o.name: tuple(a in masked[o.name].axes for a in o.axes) for o in outputs if o.name in masked}
        noted = () if name == "finalize" or any(map(_is_decided, outputs)) else _noted(outputs)
        return Finale(tape, tuple(Result(o.name, o.axes, o.empty) for o in outputs), shapes, noted)

    def _computed(self, o: Output) -> Node:
        """An output with its guard, but not where that makes a float of an integer, which has no NaN."""
        if o.guard is None or not {"b", "i"} & set(self.kinds.values()):
            return o.guarded
        kinds = self._builder().tape(o.name, [o.value, o.guarded], [o.axes] * 2, ["value", "guarded"])[1]
        return o.value if tuple(kinds) == ("i", "f") else o.guarded

    def _builder(self) -> Builder:
        if self.plan.passes:
            return self.program(len(self.plan.passes) - 1).builder()
        return Builder(self.layout, self.kinds, self.real, numbers=self.numbers | {COUNT.attr.name})


def _noted(outputs: list[Output]) -> tuple[str, ...]:
    """What of over- and underflows says that a number is lost. Elements underflow where nothing is (small weights), and
    so does what divides them, by a power, where it should not."""
    return ("over", "under", "divide") if any(_divisions(o) > 1 for o in outputs) else ("over", "divide")


def _divisions(o: Output) -> float:
    """How often something is divided by what lacks an axis of the output, in one product."""
    found: dict[Node, float] = {}
    for n in walk(o.guarded):
        below = [found[a] for a in n.args]
        found[n] = sum(below) if n.op == "mul" else max(below, default=0)
        if n.op == "pow" and n.axes < {*o.axes} and n.args[1].op == "const" and n.args[1].attr < 0:
            found[n] = float(-n.args[1].attr)
    return found[o.guarded]


def _is_decided(o: Output) -> bool:
    """Whether an output takes elements, as they are rounded, to what differs far by that, beside a state: an exponent
    less its maximum, a comparison. In wider floats elements are not those that the state is of."""
    steep = [n for n in walk(o.guarded) if n.args and (n.op in STEEP or n.is_boolean)]
    return any({"state", "tensor"} <= {m.op for m in walk(n)} for n in steep)


def ranged(machine: Machine, state: State, compute: Callable[[Machine, State], Found]) -> Found:
    """What a machine computes of a state, in wider floats where that or the state leaves the range."""
    return in_range(state, machine, lambda: machine.wide, compute)


class Result(NamedTuple):
    """An output, and what takes its place in rows without a valid element."""

    name: str
    axes: tuple[str, ...]
    empty: Any = None


STEEP = frozenset({"exp", "expm1", "exp2", "sinh", "cosh", "floor", "ceil", "cast", "sign"})


@dataclass(frozen=True)
class Finale:
    """Outputs as a tape: their values, then the conditions of those with an ``empty=`` value (along which axes)."""

    tape: Runs
    outputs: tuple[Result, ...]
    conditions: dict[str, tuple[bool, ...]]
    noted: tuple[str, ...] = ()  # what says that elements left the range, and are to be computed in wider floats

    def run(self, run: Callable[[Runs], list[Array]], wide: Callable[[], Finale | None]) -> list[Array]:
        """What `run` makes of the tape, or of the one in wider floats where a number on the way leaves the range."""
        if not self.noted:
            return run(self.tape)
        left: list[str] = []
        call: Any = dict.fromkeys(self.noted, "call")
        with np.errstate(**call, call=lambda kind, _: left.append(kind)):
            found = run(self.tape)
        more = wide() if left else None
        if more is None:
            return found
        repeated()
        return run(more.tape)

    def finished(self, values: list[Array], dtypes: Mapping[str, Any]) -> dict[str, Array]:
        """The results of a run of the tape: rounded once, with the values for rows without a valid element."""
        masked = dict(zip(self.conditions, values[len(self.outputs) :], strict=True))
        found = {}
        for o, value in zip(self.outputs, values, strict=False):
            result = finished(value[0, ...], np.dtype(dtypes[o.name]))
            if o.name in masked:
                place = tuple(slice(None) if varies else None for varies in self.conditions[o.name])
                result = with_empty(result, masked[o.name][0, ...][place], o.empty, o.name)
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
        nodes += [node for a in p.anchors for node in (a.generator, a.source, a.leaf)]
        nodes += [node for _, node in p.exports]
    return nodes


def named_axes(node: Node) -> tuple[str, ...]:
    """The axes a node mentions."""
    if node.op in ("tensor", "state"):
        return node.attr.axes
    if node.op == "reduce":
        return (*node.attr.axes, node.attr.extra[1]) if node.attr.kind.startswith("topk") else node.attr.axes
    return (node.attr,) if node.op in ("index", "size") else ()


def export_axes(plan: Plan, masked: Masked, name: str) -> tuple[str, ...]:
    """The axes along which a later pass, or the condition of rows that are filled, reads an export; else sorted."""
    for node in walk(*plan_nodes(plan), *(condition for _, condition in masked)):
        if node.op == "state" and node.attr.name == name:
            return node.attr.axes
    node = next(node for p in plan.passes for n, node in p.exports if n == name)
    return tuple(sorted(node.axes))


_MACHINES, _PROGRAMS = Remember(), Remember()


def _program(p: PassPlan, axis: tuple[str, ...], kinds: Mapping[str, str], real: np.dtype, *rest: Any) -> Program:
    """The program of a pass, built once: plans may share it, and differ in their outputs."""
    known: dict[Any, Program] = _PROGRAMS(p, dict)
    key = (axis, tuple(sorted(kinds.items())), real.char, *rest)
    return known[key] if key in known else known.setdefault(key, Program(p, axis, kinds, real, *rest))


def built(plan: Plan, masked: Masked, dtypes: Mapping[str, Any], real: np.dtype, first: Iterable[str]) -> Machine:
    """The machine for tensors of these dtypes; the one for whole numbers where float64 may not hold them."""
    kinds = given({name: array_kind(dtype) for name, dtype in dtypes.items()})
    numbers = frozenset(given({name: dtype for name, dtype in dtypes.items() if isinstance(dtype, type)}))
    machine = machine_for(plan, masked, kinds, numbers, real, first)
    long = any(d.kind in "iu" and d.itemsize == 8 for d in dtypes.values() if not isinstance(d, type))
    return machine.whole or machine if long else machine


def array_kind(dtype: Any) -> str:
    """b, i, f or c for a dtype or the type of a Python number."""
    if isinstance(dtype, type):
        return {bool: "b", int: "i", complex: "c"}.get(dtype, "f")
    return {"b": "b", "i": "i", "u": "i", "c": "c"}.get(np.dtype(dtype).kind, "f")


def machine_for(
    plan: Plan,
    masked: Masked,
    kinds: Mapping[str, str],
    numbers: frozenset[str],
    real: np.dtype,
    first: Iterable[str],
) -> Machine:
    """The machine of a plan for these dtypes, built once."""
    known: dict[Any, Machine] = _MACHINES(plan, dict)
    key = (tuple(sorted(kinds.items())), numbers, np.dtype(real).char)
    machine = known.get(key)
    return machine if machine is not None else known.setdefault(key, Machine(plan, masked, kinds, numbers, real, first))
