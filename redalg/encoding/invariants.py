"""What the numbers of a state satisfy whatever the stream was: documents that no stream leads to are refused.

A checksum finds damage. These laws find documents that were written by hand, or by a program with a mistake, as far as
parts, counts and positions say it; a state may satisfy all of them and be another one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Any, NamedTuple

import numpy as np

from redalg.encoding.container import Array
from redalg.graph.node import Node, is_const
from redalg.graph.operators import Extremum, NumberExtremum, Position, Sum, TopK
from redalg.graph.plan import Slot
from redalg.numeric.reductions import identity
from redalg.streaming.program import Program
from redalg.streaming.state import State

Intervals = Sequence[tuple[int, int]]
Ends = tuple[Fraction | float, Fraction | float]


class Broken(NamedTuple):
    """A part of a state, and what it would have to be."""

    part: str
    why: str


def broken(program: Program, state: State, covered: Intervals, dtypes: Mapping[str, Any]) -> Broken | None:
    """A law that a state of elements at these positions breaks, if any. `dtypes`: of all tensors."""
    for found in _all(program, state, covered, dtypes):
        return found
    return None


def _all(program: Program, state: State, covered: Intervals, dtypes: Mapping[str, Any]) -> Iterator[Broken]:
    yield from _centres(program, state)
    for slot in program.plan.slots:
        if not slot.vanishes:
            yield from _slot(slot, state, covered)
            yield from _between(slot, state.parts, state.n, dtypes)


def _centres(program: Program, state: State) -> Iterator[Broken]:
    parts = state.parts
    for name, low in state.low.items():
        if not np.isfinite(low).all():
            yield Broken(f"low/{name}", "what rounding took from a sum is finite")
    for mean in program.plan.means:
        x = parts[mean.name]
        if not mean.follows and x.dtype != object and not np.isfinite(x).all():
            yield Broken(mean.name, "an anchor among the elements is finite")
    for unit in program.plan.units:
        if not _powers_of_two(parts[unit.name]):
            yield Broken(unit.name, "a unit is a power of 2")


def _slot(slot: Slot, state: State, covered: Intervals) -> Iterator[Broken]:
    parts = state.parts
    if isinstance(slot.op, Position) and not _inside(parts[slot.parts[1]], covered).all():
        yield Broken(slot.parts[1], f"positions lie in {_shown(covered)}")
    if isinstance(slot.op, TopK):
        yield from _list(slot, slot.op.k, parts, state.n, covered)
    if isinstance(slot.op, NumberExtremum) and _nan(parts[slot.parts[0]]).any():
        yield Broken(slot.parts[0], "NaN is no candidate for it")


def _shown(covered: Intervals) -> str:
    return " ".join(f"[{low}, {high})" for low, high in covered[:4]) + (" …" if len(covered) > 4 else "")


def _nan(x: Array) -> Array:
    return np.asarray(x != x, bool)


def _powers_of_two(x: Array) -> bool:
    return bool((np.isfinite(x) & (x > 0)).all() and (np.frexp(x)[0] == 0.5).all())


def _inside(places: Array, covered: Intervals) -> Array:
    starts, stops = (np.array([interval[k] for interval in covered], np.int64) for k in (0, 1))
    at = np.searchsorted(starts, places, side="right") - 1
    return (at >= 0) & (places < stops[at])


def _list(slot: Slot, k: int, parts: Mapping[str, Array], n: int, covered: Intervals) -> Iterator[Broken]:
    """Entries in order, of different elements, and padding where there are fewer elements than entries."""
    values, places = (parts[name] for name in slot.parts)
    held = min(k, n)
    filled, rest = places[..., :held], places[..., held:]
    if not _inside(filled, covered).all():
        yield Broken(slot.parts[1], f"positions lie in {_shown(covered)}")
    whole = values.dtype.kind in "iO"
    nothing = identity("max", np.dtype(np.int64) if whole else values.dtype)
    if (rest != -1).any() or (values[..., held:] != nothing).any():
        yield Broken(slot.parts[0], f"a list of {n} elements has {held} entries")
    ordered = np.sort(filled, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        yield Broken(slot.parts[1], "an element is one entry of a list")
    a, b = values[..., : held - 1], values[..., 1:held]
    tied = (a == b) | _nan(a) & _nan(b)
    after = np.asarray((a > b) | _nan(a) & ~_nan(b) | tied & (filled[..., :-1] < filled[..., 1:]), bool)
    if not after.all():
        yield Broken(slot.parts[0], "a list descends, equal elements in the order of the stream")


# --- bounds of elements ----------------------------------------------------------------------------------------------


def _between(slot: Slot, parts: Mapping[str, Array], n: int, dtypes: Mapping[str, Any]) -> Iterator[Broken]:
    """Counts are at most those of the elements, integers some of their dtype, and what cannot be negative is not."""
    if not isinstance(slot.op, Sum | Extremum | Position | TopK) or slot.anchors:
        return
    name, ends = slot.parts[0], _ends(slot.lift[0], dtypes)
    x = parts[name][..., : min(slot.op.k, n)] if isinstance(slot.op, TopK) else parts[name]
    if ends is None or not x.size or x.dtype.kind not in "iOf":
        return
    low, high = (end * n for end in ends) if isinstance(slot.op, Sum) else ends
    if x.dtype.kind == "f":  # rounding may lead beyond any end but 0
        if low >= 0 and (x < 0).any():
            yield Broken(name, "it is made of numbers that are not negative")
    elif int(x.min()) < low or int(x.max()) > high:
        yield Broken(name, f"of {n} elements it lies between {low} and {high}")


def _ends(node: Node, dtypes: Mapping[str, Any]) -> Ends | None:
    """What an element is at least and at most, whatever the arrays hold; NaN apart."""
    if node.op == "const":
        return node.attr, node.attr
    if node.is_boolean:
        return 0, 1
    if node.op == "where":
        either = [_ends(x, dtypes) for x in node.args[1:]]
        known = [ends for ends in either if ends is not None]
        return (min(low for low, _ in known), max(high for _, high in known)) if len(known) == 2 else None
    if node.op == "tensor":
        return _range(dtypes.get(node.attr.name))
    even = node.op == "pow" and is_const(node.args[1]) and node.args[1].attr % 2 == 0
    return (0, inf) if even or node.op in ("abs", "exp") else None


def _range(dtype: Any) -> Ends | None:
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iu":
        return None
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
