"""States as flat buffers, and the two ways to merge them over ranks.

*gather*: the bytes of all states, merged in the order of positions; any monoid, the same bits in every run.
*reduce*: extrema as keys of int64 whose order is that of the numbers (NaN above all) by MAX, centres by SUM; every rank
carries its state to the anchors of all; sums by SUM, integers as two halves that cannot wrap.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from redalg.adapters.ranks.channel import Channel, settle
from redalg.graph.operators import Average, Extremum, Quantifier, Sum
from redalg.graph.plan import Anchor, MeanAnchor, Slot, UnitAnchor
from redalg.streaming.lift import Engine
from redalg.streaming.merge import ElementAnchor
from redalg.streaming.program import Program
from redalg.streaming.state import State, narrow
from redalg.streaming.tapes.tape import Array, length_of
from redalg.streaming.transport import carried, transport

FINE, UNUSUAL, FAILED = 0, 1, 2  # a state in the shapes and dtypes of the plan; wider, or integers beyond int64; none
EMPTY = int(np.iinfo(np.int64).min)
NAN_KEY = int(np.iinfo(np.int64).max)
HEAD = struct.Struct("<qqq")  # status, bytes of a state that does not fit, n
HALF = 1 << 32


@dataclass(frozen=True)
class Shape:
    """The arrays of a state of one pass for these lengths: known to ranks that have seen nothing, too."""

    program: Program
    sizes: Mapping[str, int]

    @cached_property
    def axes(self) -> dict[str, tuple[str, ...]]:
        p = self.program.plan
        parts = {part: s.leaf(i).attr.axes for s in p.slots for i, part in enumerate(s.parts)}
        return {a.name: a.axes for a in p.anchors} | parts

    @cached_property
    def parts(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """The dtype and shape of every array that is held, by name."""
        dtypes = self.program.dtypes
        return {
            name: (np.dtype(dtypes[name]), (1, *(length_of(axis, self.sizes) for axis in self.axes[name])))
            for name in self.program.arrays
        }

    def size(self, name: str) -> int:
        return prod(self.parts[name][1])

    @cached_property
    def nbytes(self) -> int:
        """Of a message in the gather way."""
        held = sum(self.size(name) * dtype.itemsize for name, (dtype, _) in self.parts.items())
        return HEAD.size + held + sum(self.size(n) * self.parts[n][0].itemsize for n in self.program.sums)

    def usual(self, state: State) -> bool:
        """Whether the state has the plan's dtypes and shapes."""
        found = all((state.parts[name].dtype, state.parts[name].shape) == like for name, like in self.parts.items())
        return found and not state.wide and not state.kept

    def state(self, n: int, parts: dict[str, Array], low: dict[str, Array], **flags: bool) -> State:
        """The state of these arrays; an anchor that equals a slot is the same array."""
        return State(n, parts | {a: parts[part] for a, part in self.program.aliases.items()}, low, **flags)


# --- gather ----------------------------------------------------------------------------------------------------------


def gather(channel: Channel, shape: Shape, mine: State | None, error: Exception | None) -> list[State | None]:
    """The states of all ranks (None of an empty part)."""
    body, text = _message(shape, mine, error)
    found = [x.tobytes() for x in channel.gathered(_padded(body, shape.nbytes))]
    heads = [HEAD.unpack(x[: HEAD.size]) for x in found]
    settle([r for r, (status, _, _) in enumerate(heads) if status == FAILED], error)
    longest = max(length for _, length, _ in heads)
    texts = channel.gathered(_padded(text, longest)) if longest else []
    return [
        _recalled(shape, texts[r][:length].tobytes()) if length else _read(shape, n, found[r])
        for r, (_, length, n) in enumerate(heads)
    ]


def _message(shape: Shape, mine: State | None, error: Exception | None) -> tuple[bytes, bytes]:
    """What every rank sends, and the text that follows where a state does not fit into it."""
    if error is not None or mine is None:
        return HEAD.pack(FAILED if error is not None else FINE, 0, 0), b""
    if not shape.usual(mine):
        text = _described(mine)
        return HEAD.pack(UNUSUAL, len(text), mine.n), text
    arrays = [*(mine.parts[name] for name in shape.parts), *(mine.low[name] for name in shape.program.sums)]
    return HEAD.pack(FINE, 0, mine.n) + b"".join(x.tobytes() for x in arrays), b""


def merged(engine: Engine, states: list[State | None], order: list[int]) -> State | None:
    """The states merged one after the other, in the order of their positions."""
    total: State | None = None
    for r in order:
        total = engine.combine(total, states[r])
    return total


def _padded(data: bytes, length: int) -> np.ndarray:
    return np.frombuffer(data.ljust(length, b"\0"), np.uint8)


def _read(shape: Shape, n: int, data: bytes) -> State | None:
    if not n:
        return None
    at, arrays = HEAD.size, []
    for name in (*shape.parts, *shape.program.sums):
        dtype, dims = shape.parts[name]
        arrays.append(np.frombuffer(data, dtype, prod(dims), at).reshape(dims).copy())
        at += arrays[-1].nbytes
    count = len(shape.parts)
    parts = dict(zip(shape.parts, arrays[:count], strict=True))
    return shape.state(n, parts, dict(zip(shape.program.sums, arrays[count:], strict=True)))


def _described(state: State) -> bytes:
    """A state of any dtypes: JSON, with large integers in decimal and all else in hexadecimal bytes."""
    arrays = {"parts": state.parts, "low": state.low}
    found: dict[str, Any] = {key: {n: _array_text(x) for n, x in held.items()} for key, held in arrays.items()}
    return json.dumps(found | {"n": state.n, "wide": state.wide, "kept": state.kept}).encode()


def _array_text(x: np.ndarray) -> list[Any]:
    data = [str(int(v)) for v in x.ravel()] if x.dtype.hasobject else np.ascontiguousarray(x).tobytes().hex()
    return [x.dtype.str, x.shape, data]


def _array_of(dtype: str, dims: list[int], data: Any) -> np.ndarray:
    if not isinstance(data, str):
        return np.array([int(v) for v in data], object).reshape(dims)
    return np.frombuffer(bytes.fromhex(data), np.dtype(dtype)).reshape(dims).copy()


def _recalled(shape: Shape, text: bytes) -> State:
    found = json.loads(text)
    parts, low = ({name: _array_of(*x) for name, x in found[key].items()} for key in ("parts", "low"))
    return shape.state(found["n"], parts, low, wide=found["wide"], kept=found["kept"])


# --- reduce ----------------------------------------------------------------------------------------------------------


def hindrance(program: Program) -> str | None:
    """Why the states of a pass cannot be merged by MAX and SUM alone; None where they can."""
    for slot in program.plan.slots:
        why = _slot_hindrance(slot, program)
        if why:
            return why
    for anchor in program.plan.anchors:
        why = _anchor_hindrance(anchor, program)
        if why:
            return why
    return None


def _slot_hindrance(slot: Slot, program: Program) -> str | None:
    if slot.vanishes:
        return f"{slot.name} is not held"
    if not isinstance(slot.op, Sum | Average | Extremum | Quantifier):
        return f"{slot.name} ({slot.kind}) is neither a sum nor an extremum"
    if program.kinds[slot.parts[0]] == "c":
        return f"{slot.name} is complex"
    if slot.moves and not isinstance(slot.op, Sum | Average):
        return f"the extremum {slot.name} moves with an anchor"
    return None


def _anchor_hindrance(anchor: Anchor, program: Program) -> str | None:
    if isinstance(anchor, UnitAnchor) and anchor.name not in program.aliases:
        return None
    if isinstance(anchor, MeanAnchor):
        if isinstance(anchor, ElementAnchor):
            return f"the anchor {anchor.name} of integers stays at an element"
        inexact = not anchor.follows and program.kinds[anchor.name] == "f"
        return None if inexact else f"the anchor {anchor.name} follows every element"
    part = program.aliases.get(anchor.name)
    held = [s for s in program.plan.slots if part in s.parts and isinstance(s.op, Extremum)]
    return None if held else f"the anchor {anchor.name} is not one of the extrema"


class Reduction:
    """The way by all-reduce, for one pass whose `hindrance` is None."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        program = shape.program
        self.extrema = [s for s in program.plan.slots if isinstance(s.op, Extremum | Quantifier)]
        self.sums = [s for s in program.plan.slots if isinstance(s.op, Sum | Average)]
        self.units = [a.name for a in program.plan.units if a.name not in program.aliases]
        self.centres = list(program.means)
        self.floats = [s for s in self.sums if program.kinds[s.parts[0]] == "f"]
        self.whole = [s for s in self.sums if program.kinds[s.parts[0]] != "f"]

    @property
    def nbytes(self) -> tuple[int, int]:
        """Of the two rounds."""
        size = self.shape.size
        ordered = sum(size(s.parts[0]) for s in self.extrema) + sum(map(size, self.units))
        first = 8 * (1 + ordered + sum(map(size, self.centres)))
        second = 8 * (sum(size(s.parts[0]) for s in self.floats) + 2 * sum(size(s.parts[0]) for s in self.whole))
        return first, second

    def run(
        self, channel: Channel, engine: Engine, mine: State | None, error: Exception | None, total: int
    ) -> State | None:
        """The state of all ranks; None, on all of them, where one or the result is out of the ordinary: gather then."""
        usual = mine is None or (self.shape.usual(mine) and self._finite_centres(mine))
        status = FAILED + channel.rank if error else FINE if usual else UNUSUAL
        first = self._first(mine if status == FINE else None, total)
        first[0][0][0] = status
        found = channel.reduced([(x, op) for x, op in first if x.size])
        worst = int(found[0][0])
        settle([worst - FAILED] if worst >= FAILED else [], error)
        if worst == UNUSUAL:
            return None
        held = self._ordered(found[0][1:]) | (self._centred(found[1]) if self.centres else {})
        moved = None if mine is None else self._moved(engine, mine, held)
        second = self._second(moved, total)
        sums = channel.reduced([(x, "SUM") for x in second if x.size]) if self.sums else []
        return self._state(held, sums, total)

    def _finite_centres(self, mine: State) -> bool:
        return all(np.isfinite(mine.parts[name]).all() for name in self.centres)

    # --- the first round: anchors and extrema -------------------------------------------------------------------------

    def _first(self, mine: State | None, total: int) -> list[tuple[np.ndarray, str]]:
        size = self.shape.size
        keys = [np.zeros(1, np.int64)]
        for s in self.extrema:
            name = s.parts[0]
            keys.append(_empty(size(name)) if mine is None else ordered(mine.parts[name].ravel(), _lowest(s)))
        for name in self.units:
            keys.append(_empty(size(name)) if mine is None else ordered(mine.parts[name].ravel(), False))
        share = mine.n / total if mine is not None else 0.0
        centres = [
            np.zeros(size(name)) if mine is None else mine.parts[name].ravel().astype(np.float64) * share
            for name in self.centres
        ]
        return [(np.concatenate(keys), "MAX"), (np.concatenate([np.zeros(0), *centres]), "SUM")]

    def _ordered(self, keys: np.ndarray) -> dict[str, Array]:
        found: dict[str, Array] = {}
        at = 0
        lowest = {s.parts[0]: _lowest(s) for s in self.extrema} | dict.fromkeys(self.units, False)
        for name, low in lowest.items():
            dtype, dims = self.shape.parts[name]
            found[name] = numbers(keys[at : at + prod(dims)], low, dtype).reshape(dims)
            at += prod(dims)
        return found | {a: found[part] for a, part in self.shape.program.aliases.items()}

    def _centred(self, centres: np.ndarray) -> dict[str, Array]:
        found, at = {}, 0
        for name in self.centres:
            dtype, dims = self.shape.parts[name]
            found[name] = centres[at : at + prod(dims)].reshape(dims).astype(dtype)
            at += prod(dims)
        return found

    # --- the second: sums at the anchors of all -----------------------------------------------------------------------

    def _moved(self, engine: Engine, mine: State, held: Mapping[str, Array]) -> State:
        program = self.shape.program
        anchors = {name: held[name] for name in program.anchors}
        with np.errstate(all="ignore"):
            return carried(transport(program), mine, anchors, engine.params)

    def _second(self, moved: State | None, total: int) -> list[np.ndarray]:
        size = self.shape.size
        floats, high, low = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for s in self.floats:
            name = s.parts[0]
            if moved is None:
                floats.append(np.zeros(size(name)))
                continue
            value = moved.parts[name].ravel().astype(np.float64) + moved.low[name].ravel()
            floats.append(value * (moved.n / total) if s.average else value)
        for s in self.whole:
            name = s.parts[0]
            x = np.zeros(size(name), np.int64) if moved is None else moved.parts[name].ravel().astype(np.int64)
            high.append(x // HALF)
            low.append(x % HALF)
        return [np.concatenate(floats), np.concatenate([*high, *low])]

    def _state(self, held: dict[str, Array], sums: list[np.ndarray], total: int) -> State | None:
        parts, low, at = dict(held), {}, 0
        found = iter(sums)
        floats = next(found) if any(self.shape.size(s.parts[0]) for s in self.floats) else np.zeros(0)
        if not np.isfinite(floats).all():
            return None
        for s in self.floats:
            name = s.parts[0]
            dims = self.shape.parts[name][1]
            parts[name] = floats[at : at + prod(dims)].reshape(dims)
            low[name] = np.zeros(dims)
            at += prod(dims)
        if self.whole and not self._whole(parts, next(found, np.zeros(0, np.int64))):
            return None
        names = (*self.shape.parts, *self.shape.program.aliases)
        return self._narrowed(State(total, {name: parts[name] for name in names}, low, wide=True))

    def _whole(self, parts: dict[str, Array], halves: np.ndarray) -> bool:
        """Integers of their halves; whether int64 holds all."""
        count, at = halves.size // 2, 0
        for s in self.whole:
            name = s.parts[0]
            dtype, dims = self.shape.parts[name]
            high, low = (halves[k + at : k + at + prod(dims)] for k in (0, count))
            high, low = high + low // HALF, low % HALF
            if np.any((high >= HALF // 2) | (high < -HALF // 2)):
                return False
            parts[name] = (high * HALF + low).reshape(dims).astype(dtype)
            at += prod(dims)
        return True

    def _narrowed(self, state: State) -> State | None:
        found = narrow(state, self.shape.program.real)
        return None if found.wide else found


def _lowest(slot: Slot) -> bool:
    return slot.kind in ("min", "all")


def _empty(size: int) -> np.ndarray:
    return np.full(size, EMPTY, np.int64)


def ordered(x: np.ndarray, lowest: bool) -> np.ndarray:
    """Keys of int64 whose maximum is that of the numbers (their minimum, if `lowest`), and NaN if there is one.

    >>> numbers(np.maximum(ordered(np.array([1.5, -np.inf]), False), ordered(np.array([2, np.nan]), False)), False,
    ...     np.dtype(float))
    array([ 2., nan])
    """
    if x.dtype.kind != "f":
        whole = x.astype(np.int64)
        return ~whole if lowest else whole
    wide = np.ascontiguousarray(-x if lowest else x, np.float64)
    bits = wide.view(np.int64)
    found = np.where(bits < 0, bits ^ np.int64(NAN_KEY), bits)
    return np.where(np.isnan(wide), NAN_KEY, found)


def numbers(keys: np.ndarray, lowest: bool, dtype: np.dtype) -> np.ndarray:
    """The numbers of `ordered` keys."""
    if dtype.kind != "f":
        return (~keys if lowest else keys).astype(dtype)
    bits = np.where(keys < 0, keys ^ np.int64(NAN_KEY), keys)
    found = np.where(keys == NAN_KEY, np.nan, bits.view(np.float64))
    return (-found if lowest else found).astype(dtype)


__all__ = ["Reduction", "Shape", "gather", "hindrance", "merged"]
