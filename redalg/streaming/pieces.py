"""What an accumulator holds: one state (`Single`), or the nodes of a fixed tree (`redalg.streaming.tree`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from redalg.numeric.integers import magnitude
from redalg.streaming.lift import Engine, Stretch, moved
from redalg.streaming.span import Span
from redalg.streaming.state import State


class Pieces(Protocol):
    """Three operations on immutable values, and what can be read from them."""

    @property
    def empty(self) -> bool: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def reach(self) -> int: ...

    def extended(self, engine: Engine, stretch: Stretch) -> Pieces: ...

    def joined(self, engine: Engine, other: Pieces, mine: Span, theirs: Span) -> Pieces: ...

    def total(self, engine: Engine) -> State: ...

    def cleared(self) -> Pieces: ...


@dataclass(frozen=True)
class Single:
    """One state for all elements, whatever was merged in whatever order."""

    state: State | None = None

    @property
    def empty(self) -> bool:
        return self.state is None

    @property
    def nbytes(self) -> int:
        return nbytes(self.state) if self.state is not None else 0

    @property
    def reach(self) -> int:
        return reach(self.state) if self.state is not None else 0

    def extended(self, engine: Engine, stretch: Stretch) -> Single:
        return Single(engine.fold(self.state, stretch))

    def joined(self, engine: Engine, other: Pieces, mine: Span, theirs: Span) -> Single:
        assert isinstance(other, Single)
        a, b = self.state, other.state
        if not mine.placed:
            return Single(engine.combine(a, shifted(engine, b, mine.count)))
        first = not mine.intervals or not theirs.intervals or mine.intervals[0] < theirs.intervals[0]
        return Single(engine.combine(a, b) if first else engine.combine(b, a))

    def total(self, engine: Engine) -> State:
        assert self.state is not None
        return self.state

    def cleared(self) -> Single:
        return Single()


def shifted(engine: Engine, state: State | None, by: int) -> State | None:
    """The state with its positions later by `by`."""
    if state is None or not by or not engine.program.placed:
        return state
    parts = {name: moved(x, by) if name in engine.program.placed else x for name, x in state.parts.items()}
    return replace(state, parts=parts)


def reach(*states: State) -> int:
    """A bound on the integers of the states together."""
    held: dict[str, int] = {}
    for state in states:
        for name, x in state.parts.items():
            if x.dtype.kind in "iO":
                held[name] = held.get(name, 0) + magnitude(x)
    return max(held.values(), default=0)


def nbytes(state: State) -> int:
    """Bytes of the arrays of a state, each once (an anchor that equals a slot is not stored twice)."""
    arrays = {id(x): x.nbytes for x in (*state.parts.values(), *state.low.values())}
    return sum(arrays.values())
