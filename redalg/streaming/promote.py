"""Streams of mixed dtypes: NumPy's result type of the parts that are not empty, and states of one dtype in another's.

A chunk of another dtype is converted before it is taken in; a state is converted as it stands, so what it was made of
keeps the precision of its own dtype. Integers that float64 does not hold are refused: elements beyond 2^53 are noted
when they are taken in (`beyond`), and parts of a state that would be rounded to another number are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.operators import TopK
from redalg.graph.plan import COUNT, MeanAnchor
from redalg.numeric.array_origin import NARROW_ONLY, format_name
from redalg.numeric.binding import Bound
from redalg.numeric.dtypes import promote
from redalg.numeric.integers import EXACT, ends, quotient
from redalg.streaming.machine import Machine
from redalg.streaming.pieces import Pieces, Single
from redalg.streaming.program import Program
from redalg.streaming.state import State, narrow, wider
from redalg.streaming.tapes.tape import Array, length_of, of_copy
from redalg.streaming.transport import carried, transport

Dtypes = Mapping[str, Any]


# --- dtypes ----------------------------------------------------------------------------------------------------------


def joint(mine: dict[str, Any] | None, theirs: dict[str, Any] | None) -> dict[str, Any] | None:
    """The dtypes of two streams together; None of what has none."""
    if mine is None or theirs is None or mine == theirs:
        return mine or theirs
    return common(mine, theirs)


def common(before: Dtypes, found: Dtypes) -> dict[str, Any]:
    """The result type of every tensor; where nothing differs, what was known before.

    >>> common({"x": np.dtype("int32")}, {"x": np.dtype("float32")})
    {'x': dtype('float64')}
    """
    return {name: d if d == found[name] else promote([d, found[name]]) for name, d in before.items()}


def long(dtype: Any) -> bool:
    """Whether float64 does not hold all of its integers."""
    return isinstance(dtype, np.dtype) and dtype.kind in "iu" and dtype.itemsize == 8


def far(x: Array) -> int:
    """The integer that is farthest beyond ±2^53; 0 if none is."""
    low, high = ends(x)
    found = low if -low > high else high
    return found if abs(found) > EXACT else 0


def beyond(known: Mapping[str, int], arrays: Mapping[str, Any]) -> Mapping[str, int]:
    """With the elements of these arrays: tensor -> an integer element beyond 2^53, the farthest that was seen."""
    new: dict[str, int] = {}
    for name, x in arrays.items():
        if isinstance(x, np.ndarray) and x.size and long(x.dtype):
            value = far(x)
            if abs(value) > abs(known.get(name, 0)):
                new[name] = value
    return {**known, **new} if new else known


def farthest(a: Mapping[str, int], b: Mapping[str, int]) -> Mapping[str, int]:
    """Of two streams."""
    return {**a, **{name: v for name, v in b.items() if abs(v) > abs(a.get(name, 0))}} if b else a


def check_held(before: Dtypes, after: Dtypes, noted: Mapping[str, int], where: str) -> None:
    """Raises: RedalgError where int64 elements beyond 2^53 would become float64."""
    for name, value in noted.items():
        if long(before[name]) and not long(after[name]):
            raise _too_large(name, value, before[name], after[name], where)


def converted_chunk(found: Bound, dtypes: Dtypes, where: str) -> Bound:
    """The arrays of a chunk in these dtypes. Raises: RedalgError for int64 elements beyond 2^53 among floats."""
    arrays = dict(found.arrays)
    for name, dtype in dtypes.items():
        if found.dtypes[name] == dtype:
            continue
        if long(found.dtypes[name]) and not long(dtype):
            value = far(arrays[name])
            if value:
                raise _too_large(name, value, found.dtypes[name], dtype, where)
        arrays[name] = _as(arrays[name], dtype)
    return Bound(arrays, found.sizes, {**found.dtypes, **dtypes}, found.origin)


def _as(x: Array, dtype: np.dtype) -> Array:
    """Formats that NumPy lacks are held as float32."""
    if dtype.names:
        return x.astype(np.float32)
    return x.astype(dtype).astype(np.float32) if dtype.name in NARROW_ONLY else x.astype(dtype)


def _too_large(name: str, value: int, before: Any, after: Any, where: str) -> RedalgError:
    kinds = f"{format_name(before)} is promoted to {format_name(after)}"
    why = f"{kinds} beside the rest of the stream, and {value} is beyond 2**53, so it would be rounded"
    fix = f"give {name} one dtype throughout the stream, or convert it to float64 yourself"
    return RedalgError(f"{name} with the integer {value}", where, why, fix)


# --- states ----------------------------------------------------------------------------------------------------------


class Conversion:
    """From the states of one machine to those of another one of the same plan, whose dtypes are promoted."""

    def __init__(self, source: Machine, target: Machine, number: int, params: Mapping[str, Any], where: str) -> None:
        self.source, self.target, self.number = source, target, number
        self.params, self.where = params, where

    def pieces(self, pieces: Pieces) -> Pieces:
        """Of an accumulator that is not deterministic."""
        if pieces.empty or self.source is self.target:
            return pieces
        assert isinstance(pieces, Single) and pieces.state is not None
        return Single(self.state(pieces.state))

    def state(self, state: State) -> State:
        """Raises: RedalgError where an integer of the state is no float64."""
        if self.source is self.target:
            return state
        with np.errstate(all="ignore"):
            if self.target.exact:
                return self._in_kinds(state if self.source.exact else self._to_integers(state))
            if self.source.exact:
                return self._of_integers(state)
            return self._floats(state)

    # --- from integers -----------------------------------------------------------------------------------------------

    def _of_integers(self, state: State) -> State:
        """Anchors go to whole numbers beside the means, while that is exact; averages are rounded once."""
        program = self.source.program(self.number)
        if program.means:
            parts = self._averages(state)
            to = {name: state.parts[name] for name in program.anchors}
            for a in self.target.program(self.number).plan.means:
                to[a.name] = self._nearest(a, state, parts)
            state = carried(transport(program), state, to, self.params)
        return self._floats(replace(state, parts=self._averages(state)))

    def _averages(self, state: State) -> dict[str, Array]:
        """The parts as the plan for floats has them; units are 1."""
        program, parts = self.target.program(self.number), dict(state.parts)
        for s in program.plan.slots:
            if s.average:
                parts[s.parts[0]] = quotient(parts[s.parts[0]], state.n)
        axes = {a.name: a.axes for a in program.plan.units}
        sizes = self._sizes(state)
        batch = len(next(iter(state.parts.values())))
        for name, along in axes.items():
            if name not in program.aliases:
                parts[name] = np.ones((batch, *(length_of(axis, sizes) for axis in along)))
        return parts

    def _sizes(self, state: State) -> dict[str, int]:
        found: dict[str, int] = {}
        p = self.source.program(self.number).plan
        axes = {a.name: a.axes for a in p.anchors}
        axes |= {part: s.leaf(i).attr.axes for s in p.slots for i, part in enumerate(s.parts)}
        for name, x in state.parts.items():
            found |= dict(zip(map(of_copy, axes[name]), x.shape[1:], strict=True))
        return found

    def _nearest(self, anchor: MeanAnchor, state: State, parts: Mapping[str, Array]) -> Array:
        """The whole number next to the mean that float64 holds."""
        program = self.target.program(self.number)
        tape = program.builder().tape("shift", [anchor.shift], [anchor.axes], ["shift"], spread=False, inexact=True)[0]
        floats = {name: x.astype(np.float64) if x.dtype.kind in "iO" else x for name, x in parts.items()}
        sizes = self._sizes(state)
        (by,) = tape.run({**self.params, **floats, COUNT.attr.name: state.n}, sizes)
        held = state.parts[anchor.name]
        by = np.broadcast_to(by, held.shape)
        steps = np.where(np.isfinite(by), np.rint(by), 0.0)
        whole = np.array([int(a) + int(s) for a, s in zip(held.ravel().tolist(), steps.ravel().tolist(), strict=True)])
        near = [int(float(v)) for v in whole.tolist()]
        fits = all(-(1 << 63) <= v < 1 << 63 for v in near)
        return np.array(near, np.int64 if fits else object).reshape(held.shape)

    # --- to integers -------------------------------------------------------------------------------------------------

    def _to_integers(self, state: State) -> State:
        """Of short integers, whose averages were floats: sums about whole numbers, rounded to the nearest."""
        program, target = self.source.program(self.number), self.target.program(self.number)
        to = {name: state.parts[name] for name in program.anchors}
        to |= {a: np.rint(to[a].astype(np.float64)) for a in program.means}
        to |= {a.name: np.ones_like(to[a.name]) for a in program.plan.units if a.name not in program.aliases}
        if to:
            state = carried(transport(program), state, to, self.params)
        parts = {}
        for name in target.arrays:
            x = state.parts[name]
            if x.dtype.kind == "f":
                wide = x.astype(np.longdouble) + state.low.get(name, 0)
                average = any(s.average and name in s.parts for s in program.plan.slots)
                x = _integers(wide * state.n if average else wide)
            parts[name] = x
        return State(state.n, parts)

    def _in_kinds(self, state: State) -> State:
        """Places of conditions are 0 and 1 as bool, those of integers as int64."""
        target = self.target.program(self.number)
        parts = {name: _of_kind(state.parts[name], target.kinds[name]) for name in target.arrays}
        return State(state.n, parts | {a: parts[part] for a, part in target.aliases.items()})

    # --- among floats ------------------------------------------------------------------------------------------------

    def _floats(self, state: State) -> State:
        program = self.target.program(self.number)
        more = wider(program.real)
        held = more or program.real
        parts, low, unfilled = {}, {}, self._unfilled(program, state)
        for name in program.arrays:
            lacking = unfilled.get(name)
            x = state.parts[name] if lacking is None else np.where(lacking, 0, state.parts[name])
            x, rest = self._part(program, name, x, held)
            parts[name] = x if lacking is None else np.where(lacking, held.type(-np.inf), x)
            if name in program.sums:
                like = state.low.get(name)
                low[name] = rest if like is None else like.astype(x.dtype) + rest
        parts |= {a: parts[part] for a, part in program.aliases.items()}
        found = State(state.n, parts, low, more is not None, state.kept and more is not None)
        return narrow(found, program.real)

    def _unfilled(self, program: Program, state: State) -> dict[str, Array]:
        """Lists of integers that become floats -> the entries that they lack: the least integer there, -oo here."""
        lists = [s.parts for s in program.plan.slots if isinstance(s.op, TopK)]
        return {
            values: state.parts[places] < 0
            for values, places in lists
            if program.kinds[values] == "f" and state.parts[values].dtype.kind in "iO"
        }

    def _part(self, program: Program, name: str, x: Array, real: np.dtype) -> tuple[Array, Any]:
        """A part in the kind that the target has for it, and for a sum what rounding took away."""
        kind = program.kinds[name]
        if kind in "bi":
            return _of_kind(x, kind), 0
        dtype = real if kind == "f" else np.result_type(real, np.complex64)
        if x.dtype.kind not in "iO":
            return x.astype(dtype), np.zeros(x.shape, dtype)
        found = x.astype(np.float64)
        rest = x.astype(object) - _whole(found)
        if name not in program.sums and np.any(rest != 0):
            value = next(v for v, r in zip(x.ravel().tolist(), rest.ravel().tolist(), strict=True) if r)
            why = f"{name} of what was seen is {int(value)}, an integer that float64 does not hold"
            fix = "give the tensors one dtype throughout the stream, or convert them to float64 yourself"
            raise RedalgError(f"a state with the integer {int(value)}", self.where, why, fix)
        return found.astype(dtype), rest.astype(np.float64).astype(dtype)


def _of_kind(x: Array, kind: str) -> Array:
    if kind == "b":
        return x.astype(bool)
    return x.astype(np.int64) if x.dtype.kind == "b" else x


def _whole(x: Array) -> Array:
    """Floats that are whole as Python's integers."""
    return np.array([int(v) for v in x.ravel().tolist()], object).reshape(x.shape)


def _integers(x: Array) -> Array:
    """The nearest integers: int64 where it holds them."""
    found = np.rint(x)
    if found.size and np.abs(found).max() >= 2.0**63:
        return _whole(found)
    return found.astype(np.int64)


__all__ = ["Conversion", "beyond", "check_held", "common", "converted_chunk", "far", "farthest"]
