"""What printed sources call: passes over the data as functions and what they are called with, run block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np

from redalg.graph.plan import COUNT
from redalg.streaming.lift import Engine, Stretch
from redalg.streaming.machine import Finale
from redalg.streaming.state import State, fitting, in_range, wider
from redalg.streaming.tapes.tape import Array, Called, Runs, dtype_names

ROWS_AT_ONCE = 1 << 18  # elements of the largest temporary of a block of outputs that keep the axis


@dataclass(frozen=True)
class Pass:
    """One pass: the functions of a printed source, and what a state holds.

    `arrays`: the parts of a state; `aliases`: anchors that are one of them; `sums`: those that are compensated;
    `means`: anchors that blocks begin with; `placed`: positions; `reads`: the axes of every sum and what it reads;
    `integers`: whether integers are read that can be too large for floats; `noted`: what of
    over- and underflows says that something is lost.
    """

    real: Any
    arrays: tuple[str, ...]
    block: Called
    single: Called
    combine: Called
    first: Called | None = None
    exports: Called | None = None
    exported: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    sums: tuple[str, ...] = ()
    means: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()
    reads: Mapping[str, Any] = field(default_factory=dict)
    integers: bool = False
    noted: tuple[str, ...] = ()

    @cached_property
    def wide(self) -> Pass | None:
        """The same functions with a larger exponent range, for what leaves the range of this one."""
        real = wider(np.dtype(self.real))
        return None if real is None else in_dtype(self, real)


def in_dtype(found: Any, real: np.dtype) -> Any:
    """A pass, or outputs, whose functions calculate in another dtype."""
    changes: dict[str, Any] = {"real": real.type} if isinstance(found, Pass) else {}
    for f in fields(found):
        value = getattr(found, f.name)
        if isinstance(value, Called):
            changes[f.name] = replace(value, call=_retyped(value.call, real))
    return replace(found, **changes)


def _retyped(call: Any, real: np.dtype) -> FunctionType:
    """A function of a module, and those of the module that it calls, over other types."""
    own = call.__globals__
    space = {**own, **dtype_names(real)}
    for name, value in own.items():
        if isinstance(value, FunctionType) and value.__globals__ is own:
            space[name] = FunctionType(value.__code__, space, name, value.__defaults__)
    found: FunctionType = space[call.__name__]
    return found


def streamed(
    passes: Sequence[Pass],
    finales: Sequence[tuple[Finale, Mapping[str, Any]]],
    axis: tuple[str, ...],
    axes: Mapping[str, tuple[str, ...]],
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int],
    block: int | None = None,
) -> Any:
    """The outputs (with their dtypes) of all passes over whole arrays, which are read in blocks along the first axis.

    One output gives its array, several a dict. Raises: ValueError for an axis of length 0.
    """
    arrays = {name: np.asarray(x) if axes[name] else x for name, x in arrays.items()}
    sizes = {**sizes} | {a: n for name, x in arrays.items() for a, n in zip(axes[name], np.shape(x), strict=True)}
    if not all(sizes[a] for a in axis):
        raise ValueError(f"axis {','.join(axis)} has no element")
    with np.errstate(all="ignore"):
        known = dict(arrays)
        found: dict[str, Array] = {}
        state: State | None = None
        for p in passes:
            state = _folded(p, Stretch(known, axes, sizes, axis, 0), block)
            known |= _handed_on(p, known, state, sizes)
        for finale, dtypes in finales:
            found |= _finished(finale, dtypes, passes, Stretch(known, axes, sizes, axis, 0), state)
    return found if len(found) > 1 else next(iter(found.values()))


def _finished(
    finale: Finale, dtypes: Mapping[str, Any], passes: Sequence[Pass], stretch: Stretch, state: State | None
) -> dict[str, Array]:
    """Outputs of the last state, or of none."""

    def wide() -> Finale | None:
        more = wider(np.dtype(passes[-1].real if passes else np.float64))
        return None if more is None else in_dtype(finale, more)

    if state is None:
        arrays = {**stretch.arrays, COUNT.attr.name: 0}
        return finale.finished(finale.run(lambda tape: tape.run(arrays, stretch.sizes), wide), dtypes)

    if any(set(stretch.axis) <= {*o.axes} for o in finale.outputs):
        return applied(finale, wide, stretch, state, dtypes)

    def run(own: Finale, held: State) -> list[Array]:
        return own.tape.run({**stretch.arrays, **held.parts, COUNT.attr.name: held.n}, stretch.sizes)

    found = in_range(state, finale, wide, run)
    return finale.finished(found, dtypes)


def _folded(p: Pass, stretch: Stretch, block: int | None) -> State:
    wide = p.wide
    engine = Engine(p, None if wide is None else (lambda: wide), stretch.arrays)
    state = None
    for piece in stretch.blocks(block or stretch.length):
        state = engine.fold(state, piece)
    assert state is not None
    return state


def _handed_on(p: Pass, known: Mapping[str, Any], state: State, sizes: Mapping[str, int]) -> dict[str, Array]:
    if p.exports is None:
        return {}

    def run(own: Pass, held: State) -> dict[str, Array]:
        assert own.exports is not None
        return exported(own.exports, p.exported, known, held, sizes)

    found = in_range(state, p, lambda: p.wide, run)
    return {name: fitting(x, np.dtype(p.real)) if x.dtype.kind == "f" else np.array(x) for name, x in found.items()}


def exported(
    tape: Runs, names: Sequence[str], params: Mapping[str, Any], state: State, sizes: Mapping[str, int]
) -> dict[str, Array]:
    """What later passes read of a pass."""
    values = tape.run({**params, **state.parts, COUNT.attr.name: state.n}, sizes)
    return {name: x[0, ...] for name, x in zip(names, values, strict=True)}


def applied(
    own: Finale, wide: Callable[[], Finale | None], stretch: Stretch, state: State, dtypes: Mapping[str, Any]
) -> dict[str, Array]:
    """The outputs that keep the axis, block by block; in wider floats where the state is, or where numbers of a block
    leave the range."""
    finale = wide() or own if state.wide else own
    axis, sizes, tape = stretch.axis[0], stretch.sizes, finale.tape
    outs = {o.name: np.empty([sizes[x] for x in o.axes], dtypes[o.name]) for o in finale.outputs}
    length, at = max(1, ROWS_AT_ONCE // max(1, tape.extent(sizes, axis))), 0
    for block in stretch.blocks(length):

        def run(tape: Runs, block: Stretch = block) -> list[Array]:
            return block.run(tape, state.n, state.parts)

        values = finale.finished(run(tape) if state.wide else finale.run(run, wide), dtypes)
        for o in finale.outputs:
            place = [slice(None)] * len(o.axes)
            if axis in o.axes:
                place[o.axes.index(axis)] = slice(at, at + block.length)
            outs[o.name][tuple(place)] = values[o.name]
        at += block.length
    return outs
