"""What an accumulator of one row held after every element: the numbers behind `evolution`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redalg.algebra import state as symbolic
from redalg.errors import RedalgError
from redalg.graph.node import Decl, Node, leaves, walk
from redalg.numeric.binding import bind, by_output
from redalg.numeric.definition import reference
from redalg.numeric.evaluate import evaluate
from redalg.numeric.windows import refuse_windows
from redalg.text.tables import listed

if TYPE_CHECKING:
    from redalg.form import Form

Arrays = dict[str, Any]


@dataclass
class Course:
    """States and results after every element, of arrays that hold little more than one row; `at` is where it lies."""

    form: Form
    arrays: Arrays
    at: Mapping[str, int]
    place: str  # the row in words
    counts: list[int] = field(default_factory=list)
    states: list[Arrays] = field(default_factory=list)
    results: list[Arrays] = field(default_factory=list)

    def pick(self, array: Any, axes: Sequence[str]) -> float:
        """The entry of the row; the first along axes that are none of it, as those of a top-k list."""
        import numpy as np

        return float(np.real(np.asarray(array)[tuple(self.at.get(a, 0) for a in axes)]))

    def part(self, name: str) -> list[float]:
        """A part of the state after every element."""
        p = [q for q in self.form.plan.passes if q.order][-1]
        axes = {part.name: part.leaf.attr.axes for part in symbolic.parts(p)}[name]
        return [self.pick(s[name], axes) for s in self.states]

    def result(self, name: str) -> list[float]:
        return [self.pick(r[name], self.form.spec.output_axes[name]) for r in self.results]

    def elements(self, generator: Node) -> Any:
        """The values of an element expression along the stream, or None where an earlier pass has a part in it."""
        if {leaf.attr.name for leaf in leaves(generator, "state")} - self.arrays.keys():
            return None
        rest = sorted(generator.axes - set(self.form.plan.axis))
        order = (*self.form.plan.axis, *rest)
        values = evaluate([generator], self.arrays, lengths_of(self.form, self.arrays), orders=[order])[0]
        row = values[(..., *(self.at.get(a, 0) for a in rest))]
        return row.reshape(-1)

    def corrections(self, node: Node) -> list[float]:
        """A correction at every element from the second on, over the states before (`name_a`) and after it."""
        order, values = sorted(node.axes), []
        for old, new in zip(self.states, self.states[1:], strict=False):
            known = {f"{k}_a": v for k, v in old.items()} | new
            values.append(self.pick(evaluate([node], known, orders=[order])[0], order))
        return values


def lengths_of(form: Form, arrays: Mapping[str, Any]) -> dict[str, int]:
    import numpy as np

    return {a: n for d in form.spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}


def run_row(form: Form, tensors: Mapping[str, Any], row: Mapping[str, int], where: str) -> Course:
    """The last pass of a form over one row, one element at a time.

    Raises: RedalgError for arrays that do not fit the spec, a row that is not there, and a stream of length 0.
    """
    import numpy as np

    refuse_windows(form.spec.tensors, where)
    bind(form.spec, tensors, where=where)
    arrays = {name: np.asarray(v) if hasattr(v, "__len__") else v for name, v in tensors.items()}
    course = _one_row(form, arrays, row, where)
    axis = form.plan.axis[0]
    position = {d.name: d.axes.index(axis) for d in form.spec.tensors if axis in d.axes}
    steps = {k: course.arrays[k] for k in position}
    n = lengths_of(form, course.arrays)[axis]
    if not n:
        why = f"axis {axis} has length 0, so no element arrives"
        raise RedalgError(f"arrays {listed(steps)}", where, why, "a stream of one element or more")
    acc = form.accumulator(start=0, **{k: v for k, v in course.arrays.items() if k not in position})
    for _ in range(form.passes.statistics - 1):
        acc.update(**steps)
        acc.next_pass()
    reads = form.passes.statistics == 1 and any(not o.keeps_axis for o in form.plan.outputs)
    for t in range(n):
        acc.update(**{k: v[(slice(None),) * position[k] + (slice(t, t + 1),)] for k, v in steps.items()})
        course.counts.append(acc.count)
        course.states.append({"n": acc.count, **acc.state})
        if reads:  # a later pass has no result before it has seen all elements
            course.results.append(_named(form, acc.result()))
    return course


def _one_row(form: Form, arrays: Arrays, row: Mapping[str, int], where: str) -> Course:
    """The arrays, cut to the row along every axis whose other positions have no say in it."""
    free = dict.fromkeys(a for axes in form.spec.output_axes.values() for a in axes)
    known = {a for d in form.spec.tensors for a in d.axes} - set(form.plan.axis)
    choices = [a for a in free if a in known]
    _check_row(row, choices, lengths_of(form, arrays), where)
    at = {a: row.get(a, 0) for a in choices}
    whole = _whole(form)
    cut = {a: k for a, k in at.items() if a not in whole}
    found = {d.name: _cut(arrays[d.name], d, cut) for d in form.spec.tensors}
    place = ", ".join(f"{a} = {k}" for a, k in at.items())
    return Course(form, found, {a: (0 if a in cut else k) for a, k in at.items()}, place)


def _check_row(row: Mapping[str, int], choices: Sequence[str], lengths: Mapping[str, int], where: str) -> None:
    """Every chosen position is one of an output's axis beside the stream."""
    for axis, k in row.items():
        if axis not in choices:
            why = f"the outputs' axes beside the stream are {listed(sorted(choices), 'none')}"
            raise RedalgError(f"row={{{axis!r}: {k!r}}}", where, why, "leave it out")
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < lengths[axis]:
            why = f"axis {axis} has length {lengths[axis]}"
            raise RedalgError(f"row={{{axis!r}: {k!r}}}", where, why, f"a position from 0 to {lengths[axis] - 1}")


def _whole(form: Form) -> set[str]:
    """Axes that are reduced somewhere, or whose positions or length are read."""
    nodes = list(walk(*form.spec.outputs.values()))
    reduced = {a for n in nodes if n.op == "reduce" for a in n.attr.axes}
    return reduced | {n.attr for n in nodes if n.op in ("index", "size")}


def _cut(array: Any, decl: Decl, cut: Mapping[str, int]) -> Any:
    if not decl.axes:
        return array
    return array[tuple(slice(cut[a], cut[a] + 1) if a in cut else slice(None) for a in decl.axes)]


def _named(form: Form, result: Any) -> Arrays:
    names = [o.name for o in form.plan.outputs if not o.keeps_axis]
    return result if isinstance(result, dict) else {names[0]: result}


def truth(course: Course) -> dict[str, float]:
    """Output -> its definition over all elements, for the outputs that do not keep the axis."""
    form = course.form
    found = reference(form.spec, **course.arrays)
    values = by_output(form.spec.outputs, found)
    names = [o.name for o in form.plan.outputs if not o.keeps_axis]
    return {name: course.pick(values[name], form.spec.output_axes[name]) for name in names}
