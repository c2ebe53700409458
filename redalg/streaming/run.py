"""A form on whole arrays: passes, totals, outputs that keep the axis; at once, or in several divisions into pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph.plan import COUNT, given
from redalg.numeric.binding import bind, result_dtypes, result_flows, with_readings
from redalg.numeric.definition import reference
from redalg.numeric.integer_bounds import infinite_extremum
from redalg.numeric.out import by_output, received
from redalg.streaming import checks, results
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.machine import Machine, array_kind, machine_for
from redalg.streaming.masked import with_masked
from redalg.streaming.results import real_dtype
from redalg.streaming.snapshot import Snapshot, new_axes
from redalg.streaming.state import repeated

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
    repeated()
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
    nothing = infinite_extremum(form.spec.outputs.values(), bound.sizes, bound.dtypes)
    if nothing is not None or not all(bound.sizes[a] for a in form.plan.axis):
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
    """Outputs for which nothing is streamed: one walk over the expression; the definition says what nothing makes."""
    bound = bind(form.spec, arrays, where=WHERE)
    if not all(bound.sizes.values()):
        return _named(reference(form.spec, **arrays), list(form.spec.outputs))
    kinds = given({name: array_kind(dtype) for name, dtype in bound.dtypes.items()})
    numbers = frozenset(given({name: dtype for name, dtype in bound.dtypes.items() if isinstance(dtype, type)}))
    plan, masked = with_masked(form.spec, form.plan)
    machine = machine_for(plan, masked, kinds, numbers, real_dtype(form.spec, bound.dtypes), form.spec.axes)
    sizes = {**bound.sizes, **dict(new_axes(form.plan))}
    dtypes = result_dtypes(form.spec, bound)
    values = {**given(bound.arrays), COUNT.attr.name: 0}
    with np.errstate(all="ignore"):
        found = machine.maps.run(
            lambda tape: tape.run(values, sizes), lambda: machine.wide.maps if machine.wide is not None else None
        )
        values = machine.maps.finished(found, dtypes)
    return {name: bound.origin.restore(x) for name, x in values.items()}


class Divided:
    """One stream in several divisions into pieces: what accumulators give that take it in so, without one for each.

    `divisions`: where pieces begin and end. Arrays are looked at once, and a form whose passes another one has goes on
    where that one ended.

    >>> import numpy as np, redalg as ra
    >>> form = ra.derive_incremental(ra.parse("return y = mean[j](x[j])"))
    >>> list(Divided(form, {"x": np.array([1.0, 2.0, 6.0])}, ((0, 3), (0, 1, 3))).values(form))
    [{'y': array(3.)}, {'y': array(3.)}]
    """

    def __init__(self, form: Form, arrays: Mapping[str, Any], divisions: Sequence[Sequence[int]]) -> None:
        streamed = {d.name for d in form.spec.tensors if form.plan.axis[0] in d.axes}
        bound = {name: x for name, x in arrays.items() if name not in streamed}
        self.acc = form.accumulator(start=0, **bound)
        chunk = {name: x for name, x in arrays.items() if name in streamed}
        self.found = checks.chunk(self.acc._layout, self.acc._now, chunk)
        self.start, self.divisions = self.acc._now, tuple(divisions)
        self.ends: list[Snapshot] = []

    def values(self, form: Form) -> Iterator[dict[str, Any]]:
        """The outputs of a form that has these passes, for one division after the other.

        Raises: RedalgError for integers that int64 does not hold.
        """
        acc = self.acc if form is self.acc.form else Accumulator._of(form, self.acc._bound, self.start)
        kept, names = [o.name for o in form.plan.outputs if o.keeps_axis], list(form.spec.outputs)
        for number in range(len(self.divisions)):
            if number == len(self.ends):
                self.ends.append(self._end(self.divisions[number]))
            acc._now = self.ends[number]
            found = _named(results.rows(acc, self.found, 0), names) if kept else {}
            if len(kept) < len(form.plan.outputs):
                found = {**_named(results.totals(acc), names), **found}
            yield found

    def _end(self, cuts: Sequence[int]) -> Snapshot:
        acc = self.acc
        acc._now = self.start
        for number in range(acc._layout.passes):
            if number:
                acc.next_pass(start=0)
            acc._take(self.found, cuts)
        return acc._now
