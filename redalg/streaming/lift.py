"""From a chunk to the state of its elements, block by block, so that temporaries are bounded whatever its length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from redalg.graph.plan import COUNT
from redalg.numeric.integers import magnitude
from redalg.numeric.reductions import reduced
from redalg.streaming.machine import Machine
from redalg.streaming.program import start_name
from redalg.streaming.state import State, narrow, repeated, widen
from redalg.streaming.tapes.join import Overflow, all_finite
from redalg.streaming.tapes.tape import Array, Runs

BLOCK_ELEMENTS = 1 << 18  # elements of the largest temporary of a block; more only where the state itself is larger
Lifting = Any  # a `Program`, or what a printed source says of one (`redalg.streaming.passes.Pass`)
COARSE = 1 << 26  # products of larger integers have more bits than a float64


@dataclass(frozen=True)
class Stretch:
    """Consecutive positions of the streamed axis: arrays by key, where the axis lies in each, lengths, first index."""

    arrays: Mapping[str, Any]  # of all tensors and parameters
    axes: Mapping[str, tuple[str, ...]]  # of the tensors
    sizes: Mapping[str, int]
    axis: tuple[str, ...]
    start: int  # index along the first streamed axis

    @property
    def length(self) -> int:
        return self.sizes[self.axis[0]]

    @property
    def inner(self) -> int:
        """Positions per index of the first axis (more than one for a composite axis)."""
        return prod(self.sizes[a] for a in self.axis[1:])

    def cut(self, axis: str, low: int, high: int) -> Stretch:
        if low == 0 and high == self.sizes[axis]:
            return self
        arrays = dict(self.arrays)
        for name, axes in self.axes.items():
            if axis in axes:
                arrays[name] = arrays[name][(slice(None),) * axes.index(axis) + (slice(low, high),)]
        start = self.start + low if axis == self.axis[0] else self.start
        return Stretch(arrays, self.axes, {**self.sizes, axis: high - low}, self.axis, start)

    def first(self, axes: Iterable[str]) -> Stretch:
        found = self
        for axis in axes:
            found = found.cut(axis, 0, 1)
        return found

    def blocks(self, length: int) -> Iterator[Stretch]:
        for low in range(0, self.length, length):
            yield self.cut(self.axis[0], low, min(low + length, self.length))

    def run(self, tape: Runs, n: int, extra: Mapping[str, Any] | None = None) -> list[Array]:
        env = {**self.arrays, COUNT.attr.name: n, **(extra or {})}
        return tape.run(env, self.sizes, {self.axis[0]: self.start})


class Engine:
    """lift and combine of one pass, with the retreat to a larger exponent range where sums overflow."""

    def __init__(self, program: Lifting, wide: Callable[[], Lifting] | None, params: Mapping[str, Any]) -> None:
        self.program, self.params = program, params
        self._wide = wide
        self.widens = wide is not None  # whether there is a larger exponent range, and rounding
        self._far = any(map(partial(_is_wider, np.dtype(program.real)), params.values()))

    @cached_property
    def wide(self) -> Lifting:
        """The program with a larger exponent range, which few streams need."""
        assert self._wide is not None
        return self._wide()

    # --- combine -------------------------------------------------------------------------------------------------

    def combine(self, a: State | None, b: State | None) -> State | None:
        """The identity is adjoined: combining with it returns the other state, bit for bit."""
        if a is None or b is None:
            return b if a is None else a
        return self.joined(a, b)

    def paired(self, a: State, b: State) -> State:
        """Two batches, combined item by item. Raises Overflow if an item needs more range."""
        return self._combined(self.program, a, b, self.widens)

    def _combined(self, program: Lifting, a: State, b: State, careful: bool) -> State:
        tape = program.combine
        params = [self.params[key] for key in tape.keys[3:]]
        found, left = self.noted(lambda: tape.call(a, b, careful, *params), careful)
        if left:
            raise Overflow
        state: State = found
        return state

    def noted(self, run: Callable[[], Any], careful: bool = True) -> tuple[Any, bool]:
        """What a function computes, and whether a number on the way left the range, where there is a larger one.

        A processor notes that, and NumPy asks it after every operation.
        """
        kinds = self.program.noted
        if not (careful and self.widens and kinds):
            return run(), False
        found: list[str] = []
        call: Any = dict.fromkeys(kinds, "call")
        with np.errstate(**call, call=lambda kind, _: found.append(kind)):
            return run(), bool(found)

    def joined(self, a: State, b: State) -> State:
        if not a.wide and not b.wide:
            try:
                return self._combined(self.program, a, b, self.widens)
            except Overflow:
                pass
        repeated()
        real = self.wide.real
        merged = self._combined(self.wide, widen(a, real), widen(b, real), careful=False)
        return narrow(replace(merged, kept=a.kept or b.kept), self.program.real)

    # --- lift ----------------------------------------------------------------------------------------------------

    def block_length(self, stretch: Stretch, state_elements: int = 0) -> int:
        tape = self.program.block
        extent = max(1, tape.extent(stretch.sizes, stretch.axis[0]))
        return max(1, max(BLOCK_ELEMENTS, 4 * state_elements) // extent)

    def fold(self, state: State | None, stretch: Stretch) -> State | None:
        """The state after the elements of a stretch."""
        elements = sum(x.size for x in state.parts.values()) if state is not None else 0
        length = self.block_length(stretch, elements)
        for block in stretch.blocks(length):
            state = self.combine(state, self.lift(block))
        return state

    def lift(self, block: Stretch) -> State:
        """The state of a block: every slot reduced over it, at anchors of its own."""
        if self.widens and self._coarse(block):
            found = self._lift(self.wide, block, wide=True)
            floats = any(x.dtype.kind in "fc" for x in found.parts.values())
            return replace(found, wide=floats, kept=floats)
        found, left = self.noted(lambda: self._lift(self.program, block, wide=False))
        if self.widens and (left or self._overflows(found, block)):
            repeated()
            return narrow(self._lift(self.wide, block, wide=True), self.program.real)
        return found

    def _coarse(self, block: Stretch) -> bool:
        """Whether floats would round integers of the block, or their squares, or do not hold what a pass handed on."""
        if self._far:
            return True
        if not self.program.integers:
            return False
        read = [np.asarray(block.arrays[name]) for name in block.axes if name in block.arrays]
        return any(x.dtype.kind in "iu" and x.dtype.itemsize == 8 and magnitude(x) > COARSE for x in read)

    @staticmethod
    def _lift(program: Lifting, block: Stretch, wide: bool) -> State:
        n = block.length * block.inner
        if n == 1 or not program.means:
            arrays = block.run(program.single, n)
        else:
            starts = block.first(block.axis).run(program.first, 1)
            extra = {start_name(a): x[0, ...] for a, x in zip(program.means, starts, strict=True)}
            arrays = block.run(program.block, n, extra)
        parts = dict(zip(program.arrays, map(_ordered, arrays), strict=True))
        for name in program.placed:
            parts[name] = moved(parts[name], block.start * block.inner)
        parts |= {anchor: parts[part] for anchor, part in program.aliases.items()}
        return State(n, parts, {name: np.zeros(parts[name].shape, parts[name].dtype) for name in program.sums}, wide)

    def lift_rows(self, block: Stretch) -> State:
        """One state for every index of the first streamed axis, as a batch. Raises Overflow if one needs more range."""
        if self.coarse(block):
            raise Overflow
        found, left = self.noted(lambda: self.lift_each(block))
        if left or self.overflowing(found, block).any():
            raise Overflow
        for name in self.program.placed:
            x = found.parts[name]
            at = (block.start + np.arange(block.length)).reshape(-1, *[1] * (x.ndim - 1)) * block.inner
            found.parts[name] = np.where(x < 0, x, x + at)
        return replace(found, parts=self._with_aliases(found.parts))

    def lift_each(self, block: Stretch) -> State:
        """The same with positions that begin at 0 in every row, and whatever overflows."""
        program, n = self.program, block.inner
        extra: dict[str, Any] = {}
        if program.means and len(block.axis) > 1:
            starts = block.first(block.axis[1:]).run(program.first_rows, 1)
            extra = {start_name(a): x[0, ...] for a, x in zip(program.means, starts, strict=True)}
        arrays = [x[0, ...] for x in block.run(program.rows, n, extra)]
        parts = self._with_aliases(dict(zip(program.arrays, arrays, strict=True)))
        return State(n, parts, {name: np.zeros(parts[name].shape, parts[name].dtype) for name in program.sums})

    def state(self, n: Any, parts: dict[str, Array]) -> State:
        """A batch with these parts, of which nothing was rounded away."""
        low = {name: np.zeros(parts[name].shape, parts[name].dtype) for name in self.program.sums}
        return State(n, self._with_aliases(parts), low)

    def _with_aliases(self, parts: dict[str, Array]) -> dict[str, Array]:
        return parts | {anchor: parts[part] for anchor, part in self.program.aliases.items()}

    def coarse(self, block: Stretch) -> bool:
        """Whether a block has to be lifted with a larger range, because floats would round its integers."""
        return self.widens and self._coarse(block)

    def overflowing(self, state: State, block: Stretch) -> Array:
        """The rows of a batch in which some sum is not finite although everything it was made of is."""
        found = np.zeros(block.length, dtype=bool)
        if not self.widens:
            return found
        known: dict[Any, Array] = {}
        for name, (axes, read) in self.program.reads.items():
            x = state.parts[name]
            if not all_finite(x):
                bad = ~np.isfinite(x) & _sound((block.axis[0], *axes), read, block, known)
                found |= bad.reshape(len(x), -1).any(axis=1)
        return found

    def _overflows(self, state: State, block: Stretch) -> bool:
        """Whether some sum is not finite although everything it was made of is."""
        known: dict[Any, Array] = {}
        for name, (axes, read) in self.program.reads.items():
            x = state.parts[name]
            if not all_finite(x) and (~np.isfinite(x[0]) & _sound(axes, read, block, known)).any():
                return True
        return False


def _is_wider(real: np.dtype, x: Any) -> bool:
    """Whether an array is of floats that do not fit the dtype of a pass."""
    return isinstance(x, np.ndarray) and x.dtype.kind == "f" and x.dtype.itemsize > real.itemsize


def _sound(
    target: tuple[str, ...],
    read: Mapping[str, tuple[str, ...]],
    block: Stretch,
    known: dict[Any, Array],
) -> Array:
    """Rows of a sum in which every array it reads is finite, as they broadcast; `known`: for sums that follow."""
    whole = (target, *read)
    if whole in known:
        return known[whole]
    sound: Any = True
    for name, axes in read.items():
        rest, order, index = _turned(axes, target)
        if (name, rest) not in known:
            known[name, rest] = _finite(np.asarray(block.arrays[name]), rest)
        finite = known[name, rest]
        sound = sound & (finite.transpose(order)[index] if finite.ndim else finite)
    known[whole] = sound
    return sound


@lru_cache(maxsize=4096)
def _turned(axes: tuple[str, ...], target: tuple[str, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[Any, ...]]:
    """The dimensions of an array along `axes` that a target lacks, and how the others are turned and placed in it."""
    kept = [axis for axis in axes if axis in target]
    order = sorted(range(len(kept)), key=lambda d: target.index(kept[d]))
    rest = (d for d, axis in enumerate(axes) if axis not in target)
    return tuple(rest), tuple(order), tuple(slice(None) if a in kept else None for a in target)


def _finite(x: Array, along: tuple[int, ...]) -> Array:
    """Whether all numbers along these dimensions are finite."""
    if x.dtype.kind not in "fc":
        return np.ones((), dtype=bool)
    return np.squeeze(reduced(np.logical_and, np.isfinite(x), along), axis=along) if along else np.isfinite(x)


def _ordered(x: Array) -> Array:
    """An array in the order of its axes, as what rounding takes away is held: all that joins states walks them both."""
    return x if x.flags.c_contiguous or x.dtype == object else np.ascontiguousarray(x)


def moved(indices: Array, by: int) -> Array:
    """Positions later by `by`; padding (-1) stays."""
    return np.where(indices < 0, indices, indices + by) if by else indices


def engine_of(machine: Machine, number: int, params: Mapping[str, Any]) -> Engine:
    """The engine of one pass of a machine."""

    wide = machine.wide
    return Engine(machine.program(number), None if wide is None else (lambda: wide.program(number)), params)
