"""Updates of a state of single numbers by a few elements: `redalg.streaming.tapes.scalars`, prepared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph.plan import COUNT
from redalg.numeric.integers import LARGEST
from redalg.streaming.lift import Engine
from redalg.streaming.pieces import Single
from redalg.streaming.program import start_name
from redalg.streaming.state import State
from redalg.streaming.tapes.scalars import Numbers, Unsupported, numbers
from redalg.streaming.tapes.tape import Tape

if TYPE_CHECKING:
    from redalg.streaming.program import Program


OFTEN = 4  # updates that are done on arrays first


class Held(Single):
    """A state of numbers; its arrays are made when somebody reads them."""

    found: Numbers
    few: Few

    def __init__(self, found: Numbers, few: Few) -> None:
        self.__dict__.update(found=found, few=few)

    @cached_property
    def state(self) -> State:
        return self.few.arrays(self.found)

    @property
    def empty(self) -> bool:
        return False

    @property
    def reach(self) -> int:
        return max((abs(self.found.parts[name]) for name in self.few.whole), default=0)

    def __reduce__(self) -> Any:
        return Single, (self.state,)


class Few:
    """The functions of a pass for numbers, called with chunks of the tensors `keys`. Raises: Unsupported."""

    def __init__(self, program: Program, keys: Sequence[str], params: Mapping[str, Any]) -> None:
        self.program, self.names, self.lists = program, program.arrays, _lists(program)
        single = [name for name in self.names if name not in self.lists]
        self.floats = tuple(name for name in single if program.kinds[name] == "f")
        self.whole = tuple(name for name in single if program.kinds[name] == "i")
        self._zeros = dict.fromkeys(program.sums, 0.0)
        known = {key: _number(x) for key, x in params.items() if key not in keys}
        given = [COUNT.attr.name, *keys, *(start_name(a) for a in program.means)]
        self._one = _called(program.single, (), given, known)
        self._block = _called(program.block, keys, given, known)
        self._first = _called(program.first, (), given, known) if program.means else None
        self._combine = numbers(program.combine, ())
        self._params = tuple(known[key] for key in program.combine.keys[3:])
        if None in self._params:
            raise Unsupported("parameters that are arrays")

    # --- states --------------------------------------------------------------------------------------------------

    def numbers(self, state: State) -> Numbers | None:
        """The state as numbers; None of one that is wide, or where something is not finite."""
        dtypes = self.program.dtypes
        if state.wide or any(x.dtype != dtypes[name] or x.shape[0] != 1 for name, x in state.parts.items()):
            return None
        parts = {name: x[0].tolist() for name, x in state.parts.items()}
        found = Numbers(state.n, parts, {name: x.item() for name, x in state.low.items()})
        return found if self._finite(found) else None

    def arrays(self, found: Numbers) -> State:
        dtypes = self.program.dtypes
        parts = {name: np.array([found.parts[name]], dtypes[name]) for name in self.names}
        parts = {name: parts[self.program.aliases.get(name, name)] for name in found.parts}
        return State(found.n, parts, {name: np.array([x]) for name, x in found.low.items()})

    def _finite(self, found: Numbers) -> bool:
        parts, total = found.parts, 0.0
        for name in self.floats:
            total += parts[name]
        for x in found.low.values():
            total += x
        for name in self.whole:
            if not -LARGEST < parts[name] < LARGEST:
                return False
        return isfinite(total)

    # --- updates -------------------------------------------------------------------------------------------------

    def extended(self, pieces: Single, arrays: Sequence[Any], start: int) -> Held | None:
        """The state after a chunk that begins at a position; None where arrays have to do it."""
        state: Numbers | None = None
        if isinstance(pieces, Held):
            state = pieces.found
        elif pieces.state is not None:
            state = self.numbers(pieces.state)
            if state is None:
                return None
        try:
            lifted = self._lifted(arrays, start)
            if lifted is None or not self._finite(lifted):
                return None
            found = lifted if state is None else self._combine(state, lifted, False, *self._params)
        except (ArithmeticError, ValueError):
            return None
        return Held(found, self) if found is lifted or found is not None and self._finite(found) else None

    def _lifted(self, arrays: Sequence[Any], start: int) -> Numbers | None:
        n = len(arrays[0])
        if n == 1:
            found = self._one((1, *[x.item() for x in arrays]))
        elif self._first is None:
            found = self._block((n, *arrays))
        else:
            starts = self._first((1, *[x.item(0) for x in arrays]))
            found = starts and self._block((n, *arrays, *starts))
        if found is None:
            return None
        parts = dict(zip(self.names, found, strict=True))
        if start:
            for name in self.program.placed:
                at = parts[name]
                parts[name] = [i if i < 0 else i + start for i in at] if name in self.lists else at + start
        for anchor, part in self.program.aliases.items():
            parts[anchor] = parts[part]
        return Numbers(n, parts, self._zeros)


class Asked:
    """The functions for numbers, made when they were asked for so often that compiling them pays."""

    def __init__(self, engine: Engine, keys: Sequence[str]) -> None:
        self.engine, self.keys, self.times = engine, keys, 0
        self.found: Few | None = None

    def __call__(self) -> Few | None:
        if self.times < OFTEN:
            self.times += 1
            if self.times == OFTEN:
                with suppress(Unsupported):
                    self.found = Few(self.engine.program, self.keys, self.engine.params)
        return self.found


def _lists(program: Program) -> frozenset[str]:
    """The parts that are lists of a top-k. Raises: Unsupported where others are no single numbers."""
    slots = program.plan.slots
    lists = frozenset(part for s in slots if s.kind.startswith("topk") for part in s.parts)
    rows = [part for s in slots for i, part in enumerate(s.parts) if s.leaf(i).attr.axes and part not in lists]
    if rows or any(a.axes for a in program.plan.anchors):
        raise Unsupported("rows")
    if len(program.axis) != 1 or program.real != np.float64 or not slots:
        raise Unsupported("composite axes, other dtypes")
    return lists


def _number(x: Any) -> Any:
    """A parameter as a number."""
    if isinstance(x, np.ndarray):
        return x.item() if not x.ndim and x.dtype == np.float64 else None
    return x


def _called(
    tape: Tape, vectors: Sequence[str], given: Sequence[str], known: Mapping[str, Any]
) -> Callable[[tuple[Any, ...]], Any]:
    """The function on what is `given` in this order, of which it takes what it reads."""
    if tape.starts or tape.lengths:
        raise Unsupported("positions and lengths")
    if any(known.get(key, 0) is None for key in tape.keys):
        raise Unsupported("parameters that are arrays")
    fn = numbers(tape, vectors)
    rest = {key: known[key] for key in tape.keys if key not in given}
    order = [given.index(key) if key in given else len(given) + list(rest).index(key) for key in tape.keys]
    if not rest and len(order) == 1:
        return lambda values, i=order[0]: fn(values[i])  # type: ignore[misc]
    pick, more = itemgetter(*order), tuple(rest.values())
    if not rest:
        return lambda values: fn(*pick(values))
    count = len(given)
    return lambda values: fn(*pick((*values, *[None] * (count - len(values)), *more)))
