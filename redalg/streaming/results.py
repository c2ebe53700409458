"""From a state to results: outputs, exports, and outputs that keep the axis, in the dtypes the design asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.operators import TopK
from redalg.graph.plan import COUNT, PassPlan, given
from redalg.numeric.array_origin import BFLOAT16_BITS, NARROW_ONLY
from redalg.numeric.binding import Bound, by_output
from redalg.numeric.definition import finished, reference
from redalg.numeric.dtypes import Flow, accumulation_dtype, output_flows
from redalg.numeric.integer_bounds import in_doubles
from redalg.numeric.integers import EXACT, magnitude
from redalg.numeric.reductions import unfilled
from redalg.streaming.machine import Finale, Machine, ranged
from redalg.streaming.passes import applied, exported
from redalg.streaming.state import State, fitting, widen
from redalg.streaming.tapes.tape import Array

if TYPE_CHECKING:
    from redalg.language.spec import Spec
    from redalg.streaming.accumulator import Accumulator
    from redalg.streaming.snapshot import Snapshot


def real_dtype(spec: Spec, dtypes: Mapping[str, Any]) -> np.dtype:
    """The dtype inexact arithmetic is done in: float64 where integers meet floats that results do not show."""
    return _real(spec, tuple(dtypes.items()))


@lru_cache(maxsize=256)
def _real(spec: Spec, kinds: tuple[tuple[str, Any], ...]) -> np.dtype:
    dtypes = dict(kinds)
    found = accumulation_dtype(_flows(spec, kinds).values(), dtypes)
    more = found.itemsize < 8 and in_doubles(spec.outputs.values(), dtypes)
    return np.dtype(np.float64) if more else found


@lru_cache(maxsize=256)
def _flows(spec: Spec, dtypes: tuple[tuple[str, Any], ...]) -> dict[str, Flow]:
    """Kept, since engines make an accumulator for every block."""
    return output_flows(spec, dict(dtypes))


def output_dtypes(a: Accumulator, now: Snapshot | None = None) -> dict[str, np.dtype]:
    chunks = (now or a._now).dtypes or {}
    kind = tuple(chunks.items())
    if kind not in a._results:
        found = _flows(a.form.spec, tuple({**a._bound.dtypes, **chunks}.items()))
        a._results = {kind: {name: flow.dtype for name, flow in found.items()}}
    return a._results[kind]


def exports(machine: Machine, state: State | None, a: Accumulator) -> dict[str, Array]:
    """What later passes read of this one."""
    assert state is not None
    number = a._now.number
    names = [name for name, _ in machine.plan.passes[number].exports]
    if not names:
        return {}
    env = {**given(a._bound.arrays), **a._now.exports}
    found = ranged(machine, state, lambda m, s: exported(m.export_tape(number), names, env, s, a._now.sizes))
    return {name: fitting(x, machine.real) if x.dtype.kind == "f" else np.array(x) for name, x in found.items()}


def read(a: Accumulator) -> State | None:
    """The state as results read it: lists of integers that are not full hold -oo, where they keep the least integer."""
    state = a._state()
    if state is None:
        return None
    return legible(a._layout.plan.passes[a._now.number], state)


def legible(p: PassPlan, state: State) -> State:
    """A state of this pass as results read it."""
    lists, parts = [s.parts for s in p.slots if isinstance(s.op, TopK)], state.parts
    return replace(state, parts=parts | {v: unfilled(parts[v], parts[at]) for v, at in lists}) if lists else state


def _deciding(a: Accumulator, machine: Machine, state: State, arrays: Mapping[str, Any]) -> tuple[Machine, State]:
    """What results are computed by, and of: with 64 bits of mantissa, where integers that float64 does not hold are
    compared or rounded, and where a result is an integer that is calculated in floats."""
    if state.wide or not any(x.dtype.kind in "iuO" for x in state.parts.values()):
        return machine, state
    decided, floats = machine.settles
    whole = any(name in floats and dtype.kind in "iu" for name, dtype in output_dtypes(a).items())
    if not whole and not (decided and any(map(_is_far, (*state.parts.values(), *arrays.values())))):
        return machine, state
    return (machine, state) if machine.longer is None else (machine.longer, widen(state))


def _is_far(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "iuO" and magnitude(x) > EXACT


def totals(a: Accumulator) -> Any:
    """The outputs without the axis."""
    wanted = [o for o in a._layout.plan.outputs if not o.keeps_axis]
    if not wanted:
        why = "every output keeps the streamed axis"
        raise RedalgError("a result without a chunk", "Accumulator.result", why, "apply(...) the chunks again")
    state = read(a)
    if state is None:
        return _of_nothing(a, [o.name for o in wanted])
    env, sizes = {**given(a._bound.arrays), **a._now.exports}, a._now.sizes
    machine, state = _deciding(a, a._machine(a._now.dtypes), state, env)
    found = ranged(machine, state, lambda m, s: m.totals.tape.run({**env, **s.parts, COUNT.attr.name: s.n}, sizes))
    return _returned(a, machine.totals.finished(found, output_dtypes(a)))


def _of_nothing(a: Accumulator, wanted: list[str]) -> Any:
    """The definition on an axis of length 0."""
    found = _nothing(a, "Accumulator.result")
    return _returned(a, {name: found[name] for name in wanted})


def _nothing(a: Accumulator, where: str) -> dict[str, Array]:
    sizes = {**a._now.sizes, a._layout.axis[0]: 0}
    arrays = dict(a._bound.arrays)
    for decl in a._layout.streamed:
        unknown = [axis for axis in decl.axes if axis not in sizes]
        if unknown:
            why = f"nothing was fed yet, so the length of axis {unknown[0]!r} is not known"
            raise RedalgError("a result", where, why, f"update with a chunk (of length 0, if need be) of {decl.name}")
        arrays[decl.name] = np.zeros([sizes[axis] for axis in decl.axes], _dtype_of(decl, a._now.nothing))
    found = reference(a.form.spec, **arrays)
    named = by_output(a.form.spec.outputs, found)
    flows = _flows(a.form.spec, tuple({**a._bound.dtypes, **(a._now.nothing or {})}.items()))
    known = a._now.nothing is not None
    return {n: finished(x, flows[n].dtype) if known or _is_narrow(flows[n].dtype) else x for n, x in named.items()}


def _is_narrow(dtype: np.dtype) -> bool:
    """A format that NumPy lacks, of PyTorch's tensors or of another library's dtype: arrays hold it in float32."""
    return dtype == BFLOAT16_BITS or dtype.name in NARROW_ONLY


def _dtype_of(decl: Any, dtypes: Mapping[str, Any] | None) -> Any:
    if dtypes is not None:
        return np.float32 if _is_narrow(dtypes[decl.name]) else dtypes[decl.name]
    by_domain = {"bool": np.bool_, "integer": np.int64, "complex": np.complex128}
    return next((dtype for word, dtype in by_domain.items() if word in decl.domain), np.float64)


def rows(a: Accumulator, found: Bound, start: int) -> Any:
    """The outputs that keep the axis, for one chunk, block by block."""
    wanted = [o for o in a._layout.plan.outputs if o.keeps_axis]
    if not wanted:
        why = "no output keeps the streamed axis"
        raise RedalgError("a chunk to map", "Accumulator.apply", why, "call result()")
    state, axis = read(a), a._layout.axis
    if state is None:
        if found.sizes[axis[0]]:
            why = "the statistics have not seen an element"
            raise RedalgError("a chunk to map", "Accumulator.apply", why, "update with the whole stream first")
        nothing, kinds = _nothing(a, "Accumulator.apply"), {**a._bound.dtypes, **found.dtypes}
        flows = _flows(a.form.spec, tuple(kinds.items()))
        return _returned(a, {o.name: np.empty(nothing[o.name].shape, flows[o.name].dtype) for o in wanted})
    machine = a._machine(found.dtypes if a._now.dtypes is None else a._now.dtypes)
    machine, state = _deciding(a, machine, state, {**a._bound.arrays, **a._now.exports, **found.arrays})
    sizes, dtypes = {**a._now.sizes, **found.sizes}, output_dtypes(a)
    stretch = a._stretch(found.arrays, sizes, start // max(1, a._layout.inner(sizes)))

    def wide() -> Finale | None:
        return machine.wide.rows if machine.wide is not None else None

    return _returned(a, applied(machine.rows, wide, stretch, state, dtypes))


def _returned(a: Accumulator, values: Mapping[str, Array]) -> Any:
    """One output gives its array, several a dict; the same kind of array comes back that went in."""
    origin = a._now.origin or a._bound.origin
    restored = {name: origin.restore(x) for name, x in values.items()}
    return next(iter(restored.values())) if len(a.form.spec.outputs) == 1 else restored
