"""The state of one pass: a count, arrays, and for sums what rounding took away.

Arrays have one leading batch dimension (of length 1 except inside the deterministic tree, where many equally long
pieces are combined at once) and then the axes the plan declares. States are never modified: every operation makes a
new one, which is what makes `update` and `merge` atomic. The identity is `None`, adjoined and never computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from redalg.graph.plan import MeanAnchor, PassPlan
from redalg.numeric.integers import EXACT
from redalg.streaming.tapes.tape import Array, complex_of

Own = TypeVar("Own")
Found = TypeVar("Found")


@dataclass(frozen=True)
class State:
    """`parts`: anchors and slot parts by name; `low`: the compensation of each inexact sum; `wide`: extended range."""

    n: Any  # an int; by item, where a batch has several counts
    parts: dict[str, Array]
    low: dict[str, Array] = field(default_factory=dict)
    wide: bool = False
    kept: bool = False  # in the wide type for good: it holds integers that the narrow one does not

    def map(self, fn: Callable[[Array], Array], **changes: Any) -> State:
        done: dict[int, Array] = {}  # an anchor that equals a slot stays the same array
        parts = {
            name: done[id(x)] if id(x) in done else done.setdefault(id(x), fn(x)) for name, x in self.parts.items()
        }
        return replace(self, parts=parts, low={name: fn(x) for name, x in self.low.items()}, **changes)

    def at(self, index: slice) -> State:
        return self.map(lambda x: x[index])


def stored(p: PassPlan) -> tuple[str, ...]:
    """The names of the arrays of a state, in the plan's order; an anchor that equals a slot part is not one."""
    anchors, slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
    names: list[str] = []
    for name in p.order:
        if name in slots and not slots[name].vanishes:
            names.extend(slots[name].parts)
        elif name in anchors and alias(p, name) is None:
            names.append(name)
    return tuple(names)


def alias(p: PassPlan, anchor: str) -> str | None:
    """The slot part an anchor always equals, if its target is exactly that part."""
    found = next(a for a in p.anchors if a.name == anchor)
    if isinstance(found, MeanAnchor):
        return None
    parts = {s.leaf(i): part for s in p.slots if not s.vanishes for i, part in enumerate(s.parts)}
    return parts.get(found.target)


# --- more range for sums that overflow although the result is finite --------------------------------------------------

WIDER: dict[str, np.dtype] = {
    "f": np.dtype(np.float64),
    "d": np.dtype(np.longdouble),
    "F": np.dtype(np.complex128),
    "D": np.dtype(np.clongdouble),
}


def wider(dtype: np.dtype) -> np.dtype | None:
    """A float dtype with a larger exponent range than this one, or None where the machine has none."""
    found = WIDER.get(np.dtype(dtype).char)
    if found is None or np.finfo(found).maxexp <= np.finfo(dtype).maxexp:
        return None
    return found


_repeats: ContextVar[list[bool] | None] = ContextVar("repeats", default=None)


@contextmanager
def repeats() -> Iterator[list[bool]]:
    """What is repeated in wider floats inside, one True each time: there elements are others by their rounding."""
    found: list[bool] = []
    token = _repeats.set(found)
    try:
        yield found
    finally:
        _repeats.reset(token)


def repeated() -> None:
    """Say that something is computed in wider floats than its arrays have."""
    found = _repeats.get()
    if found is not None:
        found.append(True)


def widen(s: State, real: Any = None) -> State:
    """The state in the next longer floats; those as long as `real` already (of float32 beside a count) stay."""
    if s.wide:
        return s
    longest = np.inf if real is None else np.dtype(real).itemsize

    def longer(x: Array) -> Array:
        if x.dtype.itemsize >= (2 if x.dtype.kind == "c" else 1) * longest:
            return x
        return x.astype(WIDER.get(x.dtype.char, x.dtype))

    return s.map(longer, wide=True)


def in_range(state: State, own: Own, wide: Callable[[], Own | None], compute: Callable[[Own, State], Found]) -> Found:
    """What is computed of a state: by what has the wider floats if the state has, or if a number on the way leaves
    the range, which a processor notes and NumPy asks it for after every operation."""
    noted: list[str] = []
    if not state.wide:
        with np.errstate(over="call", under="call", call=lambda kind, _: noted.append(kind)):
            found = compute(own, state)
        if not noted:
            return found
    more = wide()
    if more is None:
        return compute(own, state)
    repeated()
    return compute(more, widen(state))


def fitting(x: Array, real: np.dtype) -> Array:
    """Floats in a dtype if that holds them: none becomes infinite or 0 there, and none that may be an integer beyond
    2^53 is rounded; else as they are."""
    near = x.astype(real)
    lost = np.isfinite(x) & ~np.isfinite(near) | (x != 0) & (near == 0)
    lost |= (abs(x) > EXACT) & (near != x) & (np.trunc(x) == x)
    return x if np.any(lost) else near


def narrow(s: State, real: np.dtype) -> State:
    """The state in its own float dtype if that holds it, else the wide one.

    Nothing may overflow or vanish there, and only sums may be rounded, which keep what is taken away: sums are held
    about their anchors, and are others where an anchor is another number. The unit of elements that are all 0 so far
    is the least of its dtype, and must not become 0.
    """
    if not s.wide or s.kept:
        return s
    own = {"f": real, "c": complex_of(np.dtype(real))}  # sources name a type
    found = s.map(lambda x: x.astype(own.get(x.dtype.kind, x.dtype)), wide=False)
    low = dict(found.low)
    for name, x in s.parts.items():
        near = found.parts[name]
        if x.dtype.kind not in "fc":
            continue
        if np.any(np.isfinite(x) & ~np.isfinite(near) | (x != 0) & (near == 0)):
            return s
        if name in low:
            low[name] = (s.low[name] + np.where(np.isfinite(x), x - near, 0)).astype(near.dtype)
        elif np.any(np.isfinite(x) & (x != near)):
            return s
    return replace(found, low={name: np.where(np.isfinite(x), x, 0) for name, x in low.items()})
