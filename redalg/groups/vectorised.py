"""States as arrays over groups: lifted by groups of equal length, combined by groups of equal counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from redalg import _hooks
from redalg.graph.operators import Custom
from redalg.graph.plan import COUNT, given
from redalg.groups.keys import Codes, Groups, in_order
from redalg.groups.plan import GroupedPlan
from redalg.groups.store import Part, Store
from redalg.numeric.binding import Bound
from redalg.numeric.definition import finished, with_empty
from redalg.numeric.integers import LARGEST
from redalg.streaming import results
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.lift import BLOCK_ELEMENTS, Engine, Stretch, engine_of
from redalg.streaming.machine import Finale, Machine, ranged
from redalg.streaming.pieces import reach, shifted
from redalg.streaming.program import start_name
from redalg.streaming.promote import Conversion
from redalg.streaming.state import State
from redalg.streaming.tapes.tape import Array, Tape, length_of

Commit = Callable[[], None]
COMPILED = 1 << 16  # rows of a chunk from which on compiled loops pay
LONGEST = 1 << 18  # elements of a group that they add up one by one


class Vectorised:
    """The states of all groups in one `Store`."""

    def __init__(self) -> None:
        self.store = Store()

    def copy(self) -> Vectorised:
        twin = Vectorised()
        twin.store = self.store.copy()
        return twin

    @property
    def nbytes(self) -> int:
        return self.store.nbytes

    def held(self, groups: int) -> Array:
        """Which of so many groups have elements."""
        found = np.zeros(groups, bool)
        found[: len(self.store)] = self.store.counts > 0
        return found

    def promoted(self, before: Accumulator, after: Accumulator, where: str) -> Vectorised:
        """With the states of `before` in the dtypes of `after`; this one where these are the same."""
        if before._now.dtypes in (None, after._now.dtypes) or not len(self.store):
            return self
        source, target = _Reading(before), _Reading(after)
        conversion = Conversion(source.machine, target.machine, 0, target.params, where)
        twin = Vectorised()
        for numbers, state in self.store.batches(source.engine, self.store.filled):
            found = conversion.state(state)
            if found.wide and len(numbers) > 1:  # what needs a larger range is held one by one
                alone = [
                    Part(numbers[k : k + 1], conversion.state(state.at(slice(k, k + 1)))) for k in range(len(numbers))
                ]
                twin.store.put(target.engine, len(self.store), alone)
            else:
                twin.store.put(target.engine, len(self.store), [Part(numbers, found)])
        return twin

    def updated(self, like: Accumulator, found: Bound, groups: Groups, numbers: Array, count: int) -> Commit:
        """What takes in the rows of a chunk; everything that may be refused is computed before."""
        if not len(groups.order):
            return lambda: None
        reading = _Reading(like)
        fresh = list(_lifted(reading, {**reading.params, **given(found.arrays)}, groups, numbers))
        return self._joined(reading, fresh, count)

    def at_once(self, like: Accumulator, found: Bound, codes: Codes) -> Quick | None:
        """The states of a long chunk by compiled loops over its rows, where the lift has them."""
        rows = len(codes.rows)
        if rows < COMPILED:
            return None
        reading = _Reading(like)
        arrays = {**reading.params, **given(found.arrays)}
        tensors = reading.columns(arrays, rows)
        lift = _hooks.group_lift(reading.engine.program, tensors) if tensors is not None else None
        if lift is None:
            return None
        counts, first = lift.counted(codes.rows, codes.base, codes.span)
        if lift.longest(counts, rows) > LONGEST:
            return None
        parts, bad = lift(codes.rows, codes.base, counts, arrays, reading.starts(arrays, np.minimum(first, rows - 1)))
        present = np.flatnonzero(counts)
        sound = ~bad[present]
        at = present[sound]
        held = dict(zip(reading.engine.program.arrays, (x[at] for x in parts), strict=True))
        return Quick(present, first[present], reading.engine.state(counts[at], held), sound)

    def updated_by(
        self, quick: Quick, like: Accumulator, found: Bound, codes: Codes, numbers: Array, count: int
    ) -> Commit:
        """As `updated`, for states that are there; groups with anything that is not finite go the other way."""
        reading = _Reading(like)
        fresh = [Part(numbers[quick.sound], quick.state)]
        if not quick.sound.all():
            left = np.zeros(codes.span, bool)
            left[quick.present[~quick.sound]] = True
            rows = np.flatnonzero(left[codes.rows - codes.base])
            groups = in_order(codes.picked(rows))
            groups = groups._replace(order=rows[groups.order])
            place = np.full(codes.span, -1, np.int64)
            place[quick.present] = numbers
            theirs = place[codes.rows[groups.order[groups.starts[:-1]]] - codes.base]
            fresh += _lifted(reading, {**reading.params, **given(found.arrays)}, groups, theirs)
        return self._joined(reading, fresh, count)

    def merged(self, like: Accumulator, other: Vectorised | Any, numbers: Array, count: int) -> Commit:
        """The same for the states of other groups, which have these numbers here."""
        if not len(other.store):
            return lambda: None
        reading = _Reading(like)
        theirs = other.store.batches(reading.engine, other.store.filled, reading.flat)
        return self._joined(reading, [Part(numbers[held], state) for held, state in theirs], count)

    def _joined(self, reading: _Reading, fresh: Sequence[Part], count: int) -> Commit:
        after = self.store.joined(reading.engine, fresh, reading.flat)
        reading.check(after)
        return lambda: self.store.put(reading.engine, count, after)

    def values(self, like: Accumulator, order: Array, names: Sequence[str]) -> dict[str, Array]:
        """The outputs of these groups, in this order."""
        reading, place = _Reading(like), np.empty(int(order.max(initial=-1)) + 1, np.int64)
        place[order] = np.arange(len(order))
        outs: dict[str, Array] = {}
        for numbers, state in self.store.batches(reading.engine, order, reading.flat):
            found = reading.values(state, len(numbers))
            for name in names:
                if name not in outs:
                    outs[name] = np.empty((len(order), *found[name].shape[1:]), found[name].dtype)
                outs[name][place[numbers]] = found[name]
        return outs

    def next_pass(self) -> None:
        raise AssertionError("a plan of one pass has no other")


class Quick(NamedTuple):
    """The groups of a chunk by code, with the states of those that are `sound`, of as many elements as each has."""

    present: Array
    first: Array  # rows
    state: State
    sound: Array


class _Reading:
    """The engine of a form along groups, for what an accumulator like it has bound and seen."""

    def __init__(self, like: Accumulator) -> None:
        spec, layout = like.form.spec, like._layout
        dtypes = {**like._bound.dtypes, **(like._now.dtypes or {})}
        self.plan = GroupedPlan.of(layout, [*spec.axes, *(d.name for d in spec.tensors)])
        self.machine: Machine = self.plan.machine(dtypes, results.real_dtype(spec, dtypes), spec.axes)
        self.params: Mapping[str, Any] = given(like._bound.arrays)
        self.engine: Engine = engine_of(self.machine, 0, self.params)
        self.sizes, self.dtypes = like._now.sizes, results.output_dtypes(like)

    @cached_property
    def flat(self) -> bool:
        """Whether states of different counts can be one batch: numbers by group, joined without reading the count."""
        program = self.engine.program
        if self.machine.exact or any(axes for axes in program.part_axes):
            return False
        if any(slot.kind.startswith("topk") or isinstance(slot.op, Custom) for slot in program.plan.slots):
            return False
        read = {key for call in program.combine.calls if isinstance(call, Tape) for key in call.keys}
        counted = {m.slot for s in program.plan.slots for m in s.moves} & {COUNT.attr.name}
        return COUNT.attr.name not in read and (not counted or not program.sums == ())

    def columns(self, arrays: Mapping[str, Any], rows: int) -> tuple[tuple[str, str], ...] | None:
        """The dtypes of columns, by their keys; None where a tensor that is read is none."""
        first = self.plan.plan.axis[1]
        streamed = {name for name, axes in self.plan.axes.items() if self.plan.group in axes}
        keys = {k for tape in (self.engine.program.rows,) for k in tape.keys}
        if any(self.plan.axes[name] != (self.plan.group, first) for name in streamed):
            return None
        return tuple((k, arrays[k].dtype.name) for k in sorted(streamed & keys))

    def starts(self, arrays: Mapping[str, Any], rows: Array) -> dict[str, Array]:
        """Where the anchors of groups start, by the first row of each."""
        program = self.engine.program
        if not program.means:
            return {}
        one = {k: arrays[k][rows].reshape(-1, 1) if k in self.plan.axes else arrays[k] for k in program.first_rows.keys}
        found = program.first_rows.run(one, {})
        return {start_name(a): x.reshape(-1) for a, x in zip(program.means, found, strict=True)}

    def check(self, after: Sequence[Part]) -> None:
        """Raises: RedalgError where an integer result leaves int64."""
        finals = [o.value for o in self.machine.plan.outputs]
        held = LARGEST if all(value.op == "state" for value in finals) else 1 << 8
        if any(self.dtypes[o.name].kind == "i" for o in self.machine.plan.outputs):
            for numbers, state in after:
                if reach(state) > held:
                    self.values(state, len(numbers))

    def values(self, state: State, groups: int) -> dict[str, Array]:
        state = results.legible(self.machine.plan.passes[0], state)
        found = ranged(self.machine, state, self._finals)
        return _finished(self.machine.totals, found, self.dtypes, groups)

    def _finals(self, machine: Machine, state: State) -> list[Array]:
        n = state.n if not isinstance(state.n, np.ndarray) else state.n.reshape(-1, *[1] * len(machine.layout))
        tape = machine.totals.tape
        if isinstance(state.n, np.ndarray) and isinstance(tape, Tape):
            tape = tape.by_item
        return tape.run({**self.params, **state.parts, COUNT.attr.name: n}, self.sizes)

    def at_once(self, stretch: Stretch) -> int:
        """Groups of this length that are lifted together, so that temporaries are bounded; 0: one is too long."""
        sizes, program = stretch.sizes, self.engine.program
        held = [int(np.prod([length_of(a, sizes) for a in axes], dtype=np.int64)) for axes in program.part_axes]
        largest = max(1, program.rows.extent(sizes, self.plan.group), program.block.extent(sizes, self.plan.group))
        if largest > BLOCK_ELEMENTS and stretch.sizes[stretch.axis[1]] > 1:
            return 0
        return max(1, BLOCK_ELEMENTS // max(largest, *held, 1))


def _lifted(reading: _Reading, arrays: Mapping[str, Any], groups: Groups, numbers: Array) -> Iterator[Part]:
    lengths, starts = groups.lengths, groups.starts
    cuts = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(lengths)]
    group, first = reading.plan.plan.axis[:2]
    for low, high in zip(cuts[:-1], cuts[1:], strict=True):
        like = Stretch({}, {}, {**reading.sizes, group: 1, first: int(lengths[low])}, reading.plan.plan.axis, 0)
        step = reading.at_once(like)
        for a in range(low, high, step or 1):
            b = min(a + (step or 1), high)
            rows = groups.order[starts[a] : starts[b]]
            if step:
                block = reading.plan.stretch(arrays, reading.sizes, rows, b - a)
                yield from _batch(reading.engine, block, numbers[a:b])
            else:
                yield Part(numbers[a:b], _long(reading, arrays, rows))


def _batch(engine: Engine, block: Stretch, numbers: Array) -> Iterator[Part]:
    """The states of groups of one length; those that need more range one by one, found by halves."""
    alone = np.ones(len(numbers), bool)
    if not engine.coarse(block):
        state, left = engine.noted(lambda: engine.lift_each(block))
        if left and len(numbers) > 1:
            half = len(numbers) // 2
            for low, high in ((0, half), (half, len(numbers))):
                yield from _batch(engine, block.cut(block.axis[0], low, high), numbers[low:high])
            return
        alone = engine.overflowing(state, block) | left
        if not alone.any():
            yield Part(numbers, state)
            return
        some = np.flatnonzero(~alone)
        if len(some):
            yield Part(numbers[some], state.map(lambda x: x[some]))
    for k in np.flatnonzero(alone).tolist():
        yield Part(numbers[k : k + 1], engine.lift(replace(block.cut(block.axis[0], k, k + 1), start=0)))


def _long(reading: _Reading, arrays: Mapping[str, Any], rows: Array) -> State:
    """The state of one long group, piece by piece."""
    engine, state = reading.engine, None
    group, first = reading.plan.plan.axis[:2]
    sizes = {**reading.sizes, group: 1, first: 1}
    per_row = max(1, engine.program.block.extent(sizes, group))
    length = max(1, BLOCK_ELEMENTS // per_row)
    for low in range(0, len(rows), length):
        piece = engine.lift(reading.plan.stretch(arrays, reading.sizes, rows[low : low + length], 1))
        state = engine.combine(state, shifted(engine, piece, state.n if state else 0))
    assert state is not None
    return state


def _finished(finale: Finale, values: list[Array], dtypes: Mapping[str, Any], groups: int) -> dict[str, Array]:
    """`Finale.finished` for a batch: the results have a leading axis of groups."""
    masked = dict(zip(finale.conditions, values[len(finale.outputs) :], strict=True))
    found = {}
    for o, value in zip(finale.outputs, values, strict=False):
        shape = (groups, *value.shape[1:])
        result = finished(np.broadcast_to(value, shape), np.dtype(dtypes[o.name]))
        if o.name in masked:
            place = tuple(slice(None) if varies else None for varies in finale.conditions[o.name])
            result = with_empty(result, masked[o.name][(slice(None), *place)], o.empty, o.name)
        found[o.name] = result
    return found
