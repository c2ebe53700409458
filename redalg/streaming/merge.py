"""combine: two states of one pass become one (theory, sections 3.1-3.3 and 4).

The plan's order is walked once. An anchor gets its new value, how far each side has to move is noted, and every slot is
moved and joined. A side whose anchor stays where it is does not move at all: that is a test of equality, never
arithmetic, so that -inf - (-inf) does not occur.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from redalg.graph import leaves
from redalg.numeric_integers import multiply
from redalg.plan import COUNT, Anchor, Slot
from redalg.streaming import join
from redalg.streaming.join import Array, Pair
from redalg.streaming.program import AnchorStep, MoveStep, Program, SlotStep
from redalg.streaming.state import State


class Overflow(Exception):
    """A sum left the range of its dtype although both sides are finite: combine again with more range."""


def combine(program: Program, a: State, b: State, params: Mapping[str, Any], careful: bool) -> State:
    """The state of `a`'s stream followed by `b`'s. Raises Overflow, if `careful`, where more range could help."""
    merge = _Merge(program, a, b, params, careful)
    for step in program.steps:
        if isinstance(step, AnchorStep):
            merge.anchor(step)
        else:
            merge.slot(step)
    return State(a.n + b.n, merge.new, merge.low, a.wide)


class _Merge:
    def __init__(self, program: Program, a: State, b: State, params: Mapping[str, Any], careful: bool) -> None:
        self.program, self.sides, self.careful, self.params = program, (a, b), careful, params
        self.new: dict[str, Array] = {}
        self.low: dict[str, Array] = {}
        self.shifts: tuple[dict[str, Array | None], dict[str, Array | None]] = ({}, {})
        self.count = a.n + b.n

    # --- anchors -------------------------------------------------------------------------------------------------

    def anchor(self, step: AnchorStep) -> None:
        anchor, name = step.anchor, step.anchor.name
        if step.alias is not None:
            value = self.new[step.alias]
        elif anchor.policy == "mean":
            value = self._centre(step)
        else:
            value = self._evaluated(step, self.new)
        self.new[name] = value
        for shifts, side in zip(self.shifts, self.sides, strict=True):
            shifts[name] = difference(anchor, value, side.parts[name])

    def _evaluated(self, step: AnchorStep, parts: Mapping[str, Array]) -> Array:
        assert step.tape is not None
        value = step.tape.run({**self.params, **parts, COUNT.attr.name: self.count})[0]
        return np.broadcast_to(value, self.sides[0].parts[step.anchor.name].shape)

    def _centre(self, step: AnchorStep) -> Array:
        """The longer side's anchor plus the shift seen from there; kept where that is not finite."""
        name = step.anchor.name
        here = 0 if self.sides[0].n >= self.sides[1].n else 1
        home, other = self.sides[here].parts[name], self.sides[1 - here].parts[name]
        self.shifts[here][name] = None
        self.shifts[1 - here][name] = difference(step.anchor, home, other)
        held = dict(self.new)
        for needed in step.needs:
            held |= self._joined(needed)[0]
        held[name] = home
        value = home + self._evaluated(step, held)
        if step.clamp:
            value = np.minimum(np.maximum(value, np.minimum(home, other)), np.maximum(home, other))
        if step.anchor.follows:
            return value
        usable = np.isfinite(value)
        if step.anchor.kind == "mul":
            usable &= value != 0
        return value if usable.all() else np.where(usable, value, home)

    # --- slots ---------------------------------------------------------------------------------------------------

    def slot(self, step: SlotStep) -> None:
        parts, low = self._joined(step)
        self.new |= parts
        self.low |= low

    def _joined(self, step: SlotStep) -> tuple[dict[str, Array], dict[str, Array]]:
        slot = step.slot
        a, b = self.sides
        name = slot.parts[0]
        if step.inexact:
            high, low = self._summed(slot, self._moved(step, 0), self._moved(step, 1))
            if self.careful and not np.isfinite(high).all():
                self._suspect(slot, high)
            return {name: high}, {name: low}
        if slot.kind in ("argmax", "argmin"):
            pairs = [(s.parts[slot.parts[0]], s.parts[slot.parts[1]]) for s in self.sides]
            return dict(zip(slot.parts, join.positions(slot.kind, *pairs), strict=True)), {}
        if slot.kind == "topk":
            pairs = [(s.parts[slot.parts[0]], s.parts[slot.parts[1]]) for s in self.sides]
            return dict(zip(slot.parts, join.top(*pairs), strict=True)), {}
        if slot.kind == "monoid":
            merged = step.combine(*([s.parts[part] for part in slot.parts] for s in self.sides))
            return dict(zip(slot.parts, merged, strict=True)), {}
        if not step.moves:
            return {name: join.PLAIN[slot.kind](a.parts[name], b.parts[name])}, {}
        left, right = self._moved(step, 0)[0], self._moved(step, 1)[0]
        return {name: join.PLAIN[slot.kind](left, right)}, {}

    def _summed(self, slot: Slot, a: Pair, b: Pair) -> Pair:
        if slot.average:
            return join.averaged(a, b, self.sides[0].n, self.sides[1].n)
        return join.added(a, b)

    def _suspect(self, slot: Slot, high: Array) -> None:
        """Raise Overflow if some sum is not finite although everything it is made of is."""
        read = _readings(slot)  # a contraction squared reads one anchor along two axes
        made_of = [] if slot.vanishes else [(slot.parts[0], slot.axes)]
        for name in slot.anchors:
            known = [axes for anchor, axes in read if anchor == name]
            made_of += [(name, axes) for axes in known or [self.program.anchors[name].axes]]
        sound = ~np.isfinite(high)
        for side in self.sides:
            for name, axes in made_of:
                sound = sound & _spread(np.isfinite(side.parts[name]), axes, slot.axes)
        if sound.any():
            raise Overflow

    # --- moves ---------------------------------------------------------------------------------------------------

    def _moved(self, step: SlotStep, side: int) -> Pair:
        """The slot of one side at the current anchors: Σ coefficient · slot, as a compensated pair for sums."""
        slot, state, shifts = step.slot, self.sides[side], self.shifts[side]
        name = slot.parts[0]
        high: Any
        low: Any
        if slot.vanishes:
            anchor = self.program.anchors[slot.anchors[0]]
            like = _spread(state.parts[anchor.name], anchor.axes, slot.axes)
            high = low = np.zeros(like.shape, self.program.real)
        else:
            high, low = state.parts[name], state.low.get(name)
        moving = [shifts[anchor] for anchor in slot.anchors if shifts.get(anchor) is not None]
        if not step.moves or not moving:
            return high, low
        if slot.kind == "prod":
            return self._product(step, side, high), None
        coefficients = self._coefficients(step, side)
        total: Any = None
        rest: Any = None
        for move in step.moves:  # the slot itself comes first
            term, left = self._one_move(step, move, side, coefficients, high, low)
            if term is None:
                continue
            if total is None:
                total, rest = term, left
            elif step.inexact:
                total, e = join.two_sum(total, term)
                rest = rest + e
            else:
                total = join.PLAIN["sum"](total, term)
        if rest is not None and not np.isfinite(rest).all():
            rest = np.where(np.isfinite(rest), rest, 0)
        if total is None:
            return high * 0, low
        stays = self._stays(step.slot, side)
        if stays.any():  # T(0) = I, by a test of equality and not by arithmetic
            total = np.where(stays, high, total)
            rest = None if low is None else np.where(stays, low, rest)
        return total, rest

    def _product(self, step: SlotStep, side: int, value: Array) -> Array:
        """A product of ratios at the new anchor: P·(A/A')^n, n the number of its factors on this side."""
        (move,) = step.slot.moves
        ratio, count = move.coefficient.args
        name, axes = ratio.attr.name.removeprefix("shift:"), ratio.attr.axes
        state, target = self.sides[side], step.slot.axes
        old, new = (_spread(x, axes, target) for x in (state.parts[name], self.new[name]))
        n = state.n if count is COUNT else _spread(state.parts[count.attr.name], count.attr.axes, target)
        return join.carried(value, old, new, n)

    def _stays(self, slot: Slot, side: int) -> Array:
        """The rows in which no anchor of the slot moves."""
        result: Any = True
        for name, axes in _readings(slot):
            shift = self.shifts[side].get(name)
            if shift is not None:
                still_there = shift == (0 if self.program.anchors[name].kind == "add" else 1)
                result = result & _spread(still_there, axes, slot.axes)
        return np.asarray(result)

    def _one_move(
        self, step: SlotStep, move: MoveStep, side: int, coefficients: list[Array], high: Any, low: Any
    ) -> tuple[Array | None, Array | None]:
        """One term of a moved slot and, for sums, its compensation."""
        coefficient = None if move.coefficient is None else coefficients[move.coefficient]
        if move.own:
            if coefficient is None:
                return high, low
            if move.selects:
                kept = coefficient != 0
                high, low = np.where(kept, high, 0), None if low is None else np.where(kept, low, 0)
            term = self._term(coefficient, high, step, side, own=True)
            if low is None:
                return term, None
            if move.less_one is None:
                return term, coefficient * low
            return _scaled(high, low, term, coefficient, coefficients[move.less_one])
        source = self._source(step.slot, move, side)
        if source is None:
            return None, None
        term = source if coefficient is None else self._term(coefficient, source, step, side, own=False)
        return term, np.zeros_like(term) if step.inexact else None

    def _coefficients(self, step: SlotStep, side: int) -> list[Array]:
        if step.tape is None:
            return []
        env: dict[str, Any] = {**self.params, COUNT.attr.name: self.sides[side].n}
        for anchor in step.slot.anchors:
            if self.program.anchors[anchor].is_unit:
                env[anchor] = self.new.get(anchor, self.sides[0].parts[anchor])
            shift = self.shifts[side].get(anchor)
            if shift is None:
                shift = still(self.program.anchors[anchor], self.sides[side].parts[anchor])
            env[f"shift:{anchor}"] = shift
        return step.tape.run(env)

    def _source(self, slot: Slot, move: MoveStep, side: int) -> Array | None:
        """The array a move reads, in the normalisation of the slot: averages hold sums divided by the count."""
        state = self.sides[side]
        if move.source is None:
            return np.ones((), self.program.real) if slot.average else np.asarray(state.n, self.program.real)
        if move.source.vanishes:
            return None
        value = state.parts[move.source.parts[0]].transpose(move.perm)[move.index]
        if move.source.average != slot.average:
            value = value / state.n if slot.average else value * state.n
        return value

    def _term(self, coefficient: Array, source: Array, step: SlotStep, side: int, own: bool) -> Array:
        """coefficient · source, where 0 elements contribute 0, and so does what T(0) = I does not mention."""
        whole = coefficient.dtype.kind in "iO" and source.dtype.kind in "iO"
        term = multiply(coefficient, source) if whole else coefficient * source
        if whole or np.isfinite(term).all():
            return term
        term = np.where(source == 0, source, term)
        if own:
            return term
        for anchor, axes in _readings(step.slot):
            shift = self.shifts[side].get(anchor)
            if shift is None:
                stays: Any = True
            else:
                stays = shift == (0 if self.program.anchors[anchor].kind == "add" else 1)
                stays = _spread(stays, axes, step.slot.axes)
            term = np.where(stays & (coefficient == 0), 0, term).astype(term.dtype)
        return term


def difference(anchor: Anchor, new: Array, old: Array) -> Array | None:
    """How an anchor moves, exactly 0 (or 1) where it does not; None if it moves nowhere."""
    same = new == old
    if same.all():
        return None
    if anchor.kind == "add":
        return np.where(same, 0, new - old)
    return np.where(same, 1, old / new)


def still(anchor: Anchor, like: Array) -> Array:
    dtype = like.dtype if like.dtype.kind in "fc" or anchor.kind == "add" else np.float64
    return np.zeros(like.shape, dtype) if anchor.kind == "add" else np.ones(like.shape, dtype)


def _scaled(high: Array, low: Array, product: Array, coefficient: Array, less_one: Array) -> Pair:
    """(high + low)·coefficient, as high plus a small change where the coefficient is near 1: a thousand small moves
    in one direction then round like one large move."""
    near = less_one > -0.5
    s, e = join.two_sum(high, high * less_one)
    near = near & np.isfinite(e)
    return np.where(near, s, product), np.where(near, e, 0) + coefficient * low


@lru_cache(maxsize=4096)
def _readings(slot: Slot) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The anchors a slot moves with and the axes it reads them along (a contraction squared reads one along two)."""
    found = [leaf.attr for move in slot.moves for leaf in leaves(move.coefficient, "state")]
    return tuple(dict.fromkeys((d.name.removeprefix("shift:"), d.axes) for d in found if d.name.startswith("shift:")))


def _spread(x: Array, axes: tuple[str, ...], target: tuple[str, ...]) -> Array:
    if axes == target:
        return x
    order = sorted(range(len(axes)), key=lambda d: target.index(axes[d]))
    index = (slice(None), *(slice(None) if axis in axes else None for axis in target))
    return x.transpose((0, *(d + 1 for d in order)))[index]
