"""A form on whole arrays: every pass, the totals, and the outputs that keep the axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph.plan import COUNT, given
from redalg.numeric.binding import bind, result_dtypes, result_flows, with_readings
from redalg.numeric.definition import reference
from redalg.numeric.out import by_output, received
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.machine import Machine, array_kind, machine_for
from redalg.streaming.results import real_dtype
from redalg.streaming.snapshot import new_axes

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"


class Wide(Accumulator):
    """Everything in the next wider floats (float64 for float32, `numpy.longdouble` for float64, where the machine has
    one that is wider); results have the dtypes that they always have."""

    __slots__ = ()

    def _built(self, dtypes: Mapping[str, Any]) -> Machine:
        own = super()._built(dtypes)
        return own.wide or own


def run_wide(form: Form, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a form on whole arrays by name, computed in wider floats and rounded once: neither a sum nor a
    square leaves the range, and none that counts is lost below it.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("y = sum[j](x[j]**2) / sum[j](x[j]); return y"))
    >>> run_wide(form, {"x": np.float32([3e-30, 4e-30])})
    {'y': array(3.5714287e-30, dtype=float32)}
    """
    return _streamed(form, with_readings(form.spec.tensors, arrays), False, Wide)


def run_numpy(form: Form, arrays: Mapping[str, Any], out: Any = None, deterministic: bool = False) -> Any:
    """The outputs of a form on whole arrays: one array, or a dict of arrays by name, in the spec's order.

    `out` is an array (for one output) or a dict of arrays that the results are written into.
    Raises: RedalgError for arrays that do not fit the spec or `out`.
    """
    arrays = with_readings(form.spec.tensors, arrays)
    if out is not None:
        _check_out(form, arrays, out)
    found = (
        _maps(form, arrays) if not form.plan.axis or not form.plan.passes else _streamed(form, arrays, deterministic)
    )
    values = {name: found[name] for name in form.spec.outputs}
    if out is not None:  # results are arrays of their own by now: whatever is overwritten has been read
        targets = by_output(out, list(values), WHERE)
        for name, value in values.items():
            targets[name][...] = value
        values = {name: targets[name] for name in values}
    return next(iter(values.values())) if len(values) == 1 else values


def _check_out(form: Form, arrays: Mapping[str, Any], out: Any) -> None:
    bound = bind(form.spec, arrays, where=WHERE)
    sizes = {**bound.sizes, **dict(new_axes(form.plan))}
    flows, axes = result_flows(form.spec, bound), form.spec.output_axes
    wanted = {name: (tuple(sizes[a] for a in axes[name]), flows[name].dtype) for name in form.spec.outputs}
    received(out, wanted, bound.origin, WHERE)


def _streamed(
    form: Form, arrays: Mapping[str, Any], deterministic: bool, kind: type[Accumulator] = Accumulator
) -> dict[str, Any]:
    bound, names = bind(form.spec, arrays, where=WHERE), list(form.spec.outputs)
    if not all(bound.sizes[a] for a in form.plan.axis):
        return _named(reference(form.spec, **arrays), names)
    first = form.plan.axis[0]
    chunks = {d.name: arrays[d.name] for d in form.spec.tensors if first in d.axes}
    fixed = {d.name: arrays[d.name] for d in form.spec.tensors if first not in d.axes}
    acc = kind(form, fixed, start=0, deterministic=deterministic)
    acc.update(**chunks)
    for _ in form.plan.passes[1:]:
        if acc.count:
            acc.next_pass()
            acc.update(**chunks)
    kept = [o.name for o in form.plan.outputs if o.keeps_axis]
    found: dict[str, Any] = {}
    if len(kept) < len(names):
        found |= _named(acc.result(), names)
    if kept:
        found |= _named(acc.apply(start=0, **chunks), names)
    return found


def _named(value: Any, names: list[str]) -> dict[str, Any]:
    return value if isinstance(value, dict) else {names[0]: value}


def _maps(form: Form, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs without a reduction: one walk over the expression."""
    bound = bind(form.spec, arrays, where=WHERE)
    kinds = given({name: array_kind(dtype) for name, dtype in bound.dtypes.items()})
    numbers = frozenset(given({name: dtype for name, dtype in bound.dtypes.items() if isinstance(dtype, type)}))
    machine = machine_for(form.plan, (), kinds, numbers, real_dtype(form.spec, bound.dtypes), form.spec.axes)
    sizes = {**bound.sizes, **dict(new_axes(form.plan))}
    dtypes = result_dtypes(form.spec, bound)
    with np.errstate(all="ignore"):
        found = machine.maps.tape.run({**given(bound.arrays), COUNT.attr.name: 0}, sizes)
        values = machine.maps.finished(found, dtypes)
    return {name: bound.origin.restore(x) for name, x in values.items()}
