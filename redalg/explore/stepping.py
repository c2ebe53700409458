"""`steps`: one row of a form, element by element: what moved the state, what each element gave, and the result."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redalg.algebra import state as symbolic
from redalg.algebra.transport import correction
from redalg.display import markup as m
from redalg.display.formulas import part_latex
from redalg.errors import RedalgError
from redalg.explain.explanation import aliased
from redalg.explore.widgets import view
from redalg.graph.node import Node, leaves
from redalg.graph.plan import PassPlan, Slot
from redalg.numeric.evaluate import evaluate
from redalg.pictures.course import Course, lengths_of, run_row, truth
from redalg.streaming.checks import without_axis
from redalg.text import colour as paint
from redalg.text.nodes import short
from redalg.text.tables import table

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "redalg.explore.steps"
SHOWN = 8  # steps of a long stream that its summary shows, half of them from its end
HEADER = ("slot", "before", "correction", "element gives", "after")


@dataclass(frozen=True)
class Row:
    """One part of the state at one step. `correction` is the factor on `before`, or None where there is none."""

    name: str
    before: float | None
    correction: float | None
    gives: float | None
    after: float


@dataclass(frozen=True)
class Step:
    """The state of one row before and after element `position`; `label` names the element, `results` are so far.

    >>> import redalg as ra
    >>> walk = steps(ra.derive_incremental(ra.parse("return y = sum[j](x[j])")), x=[1.0, 2.0])
    >>> step = walk[1]
    >>> step.title(), step.cells()[-1], step.results["y"], "<table>" in step.html()
    ('element 1: x[j] = 2', ['sum_x', '1', '', '2', '3'], 3.0, True)
    """

    position: int
    label: str
    elements: Mapping[str, float]
    rows: tuple[Row, ...]
    results: Mapping[str, float]

    def cells(self) -> list[list[str]]:
        """The rows of the step's table, as text."""
        return [[r.name, *map(number, (r.before, r.correction, r.gives, r.after))] for r in self.rows]

    def title(self) -> str:
        """Which element it is, and its values."""
        values = ", ".join(f"{name} = {number(v)}" for name, v in self.elements.items())
        return f"element {self.position}{f' ({self.label})' if self.label else ''}{': ' + values if values else ''}"

    def __str__(self) -> str:
        lines = [self.title(), *table([HEADER, *self.cells()])]
        return "\n".join(lines + [f"  result so far: {name} = {number(v)}" for name, v in self.results.items()])

    def html(self) -> str:
        """What a notebook without widgets shows."""
        rows = [
            [m.formula(part_latex(r[0])), *r[1:2], m.Markup(f"<b>{m.cell(r[2])}</b>"), *r[3:]] for r in self.cells()
        ]
        results = [m.paragraph(f"result so far: {name} = {number(v)}") for name, v in self.results.items()]
        return m.page(m.Markup(f"<b>{m.cell(self.title())}</b>"), m.table(rows, HEADER), *results)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html(), "text/plain": str(self)}


class Steps(Sequence[Step]):
    """A stream walked through: ``steps[k]`` is what element k does, `definition` what the whole row comes to.

    >>> import redalg as ra
    >>> walk = steps(ra.derive_incremental(ra.parse("return y = sum[j](x[j])")), x=[1.0, 2.0])
    >>> len(walk), walk[-1].results["y"], walk.definition["y"], "<table>" in walk.html()
    (2, 3.0, 3.0, True)
    """

    def __init__(self, course: Course, labels: Sequence[str]) -> None:
        self.course, self.labels = course, labels
        self.plan: PassPlan = [q for q in course.form.plan.passes if q.order][-1]
        self.definition: Mapping[str, float] = truth(course) if course.results else {}
        self._factors = {s.name: self._corrections(s) for s in self.plan.slots if s.moves and not s.vanishes}

    def __len__(self) -> int:
        return len(self.course.counts)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        if not -len(self) <= k < len(self):
            raise IndexError(f"step {k} of a stream of {len(self)} elements")
        k %= len(self)
        rows = tuple(self._row(part, k) for part in symbolic.parts(self.plan))
        results = {name: self.course.result(name)[k] for name in self.definition}
        return Step(k, self.labels[k] if self.labels else "", self._elements(k), rows, results)

    def __iter__(self) -> Iterator[Step]:
        return (self[k] for k in range(len(self)))

    # --- numbers ---

    def _row(self, part: symbolic.Part, k: int) -> Row:
        values = self.course.part(part.name)
        before = values[k - 1] if k else None
        slot = part.slot
        if part.anchor is not None:
            return Row(part.name, before, None, None, values[k])
        if slot is None:
            return Row(part.name, before, None, 1.0, values[k])
        factors = self._factors.get(slot.name)
        factor = factors[k - 1] if factors and k else None
        return Row(part.name, before, factor, self._gives(slot, part, k), values[k])

    def _corrections(self, slot: Slot) -> list[float]:
        """The factors by which a slot moves; none where it does not move by a factor."""
        if [move.slot for move in slot.moves] != [slot.name]:
            return []
        return self.course.corrections(correction(slot, self.plan))

    def _gives(self, slot: Slot, part: symbolic.Part, k: int) -> float | None:
        """What the element alone gives, held at the anchors after it."""
        if part.name != slot.parts[0] or len(slot.lift) != 1:
            return None
        body = symbolic.resolve(slot.lift[0], aliased(self.plan), symbolic.declared_axes(self.plan))
        return self._evaluated(body, k, self.course.states[k])

    def _evaluated(self, node: Node, k: int, state: Mapping[str, Any]) -> float | None:
        form, axis = self.course.form, self.course.form.plan.axis[0]
        if {leaf.attr.name for leaf in leaves(node, "state")} - {*state, *self.course.arrays}:
            return None  # it reads what an earlier pass has found
        if len(form.plan.axis) > 1:
            return None  # a step along the first of several axes is more than one element
        given = dict(self.course.arrays)
        for d in form.spec.tensors:
            if axis in d.axes:
                given[d.name] = given[d.name][(slice(None),) * d.axes.index(axis) + (slice(k, k + 1),)]
        free = sorted(node.axes - {axis})
        order = ([axis] if axis in node.axes else []) + free
        lengths, place = lengths_of(form, given), {axis: k}
        found = evaluate([node], {**given, **state}, lengths, orders=[order], offsets=place)[0]
        return self.course.pick(found[0] if axis in node.axes else found, free)

    def _elements(self, k: int) -> dict[str, float]:
        """The element as the form reads it: the values its anchors centre, else the tensors that hold one number."""
        nodes = {short(a.generator): a.generator for a in self.plan.anchors}
        if not nodes:
            axis = set(self.course.form.plan.axis)
            nodes = {short(x): x for s in self.plan.slots for b in s.lift for x in leaves(b) if x.axes & axis}
        found = {name: self._evaluated(node, k, self.course.states[k]) for name, node in nodes.items()}
        return {name: value for name, value in found.items() if value is not None}

    # --- displays ---

    def _some(self) -> list[int]:
        n = len(self)
        return list(range(n)) if n <= SHOWN else [*range(SHOWN // 2), *range(n - SHOWN // 2, n)]

    def _summary(self) -> tuple[list[str], list[list[str]]]:
        names = [part.name for part in symbolic.parts(self.plan) if part.name != "n"]
        header = ["element", *names, *(f"{name} so far" for name in self.definition)]
        rows = []
        for k in self._some():
            label = f"{k} {self.labels[k]}" if self.labels else str(k)
            values = [self.course.part(n)[k] for n in names] + [self.course.result(n)[k] for n in self.definition]
            rows.append([label, *map(number, values)])
            if len(self) > SHOWN and k == SHOWN // 2 - 1:
                rows.append(["…"] * len(header))
        return header, rows

    def __str__(self) -> str:
        header, rows = self._summary()
        place = f" of the row {self.course.place}" if self.course.place else ""
        lines = [f"{len(self)} elements{place}", *table([header, *rows])]
        return "\n".join(lines + [f"  the definition of {n} gives {number(v)}" for n, v in self.definition.items()])

    __repr__ = __str__

    def html(self) -> str:
        """What a notebook without widgets shows."""
        header, rows = self._summary()
        place = f" of the row {self.course.place}" if self.course.place else ""
        ends = [m.paragraph(f"the definition of {n} gives {number(v)}") for n, v in self.definition.items()]
        return m.page(m.Markup(f"<b>{len(self)} elements{m.cell(place)}</b>"), m.table(rows, header), *ends)

    def _widget(self, widgets: Any) -> Any:
        last = len(self) - 1
        slider = widgets.IntSlider(value=0, min=0, max=last, description="element")
        play = widgets.Play(value=0, min=0, max=last, interval=800)
        widgets.jslink((play, "value"), (slider, "value"))
        page = widgets.HTMLMath(self[0].html())

        def turn(change: Any) -> None:
            page.value = self[change["new"]].html()

        slider.observe(turn, names="value")
        return widgets.VBox([widgets.HBox([play, slider]), page])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        text = paint.titles(str(self)) if paint.wanted(sys.stdout) else str(self)
        return {"text/html": self.html(), "text/plain": text} | view(self._widget)


def steps(
    form: Form, /, *, row: Mapping[str, int] | None = None, labels: Sequence[str] | None = None, **tensors: Any
) -> Steps:
    """Walk one row of a form through its stream, one element at a time, by `Form.accumulator`.

    A step shows for every slot its value before, the correction (the factor by which the moved anchor changes it), what
    the element alone gives, held at the new anchor, and the value after. Slots that move by more than a factor show no
    correction. Vectors are shown by their first entry; of a plan of several passes the last one is shown.

    `row`: axis -> position, for the axes of the outputs (0 where none is given); `labels`: a word per element;
    `tensors`: all of the spec's, whole.

    Raises: RedalgError for a form without a state, a row that is not there, labels that are too few or too many, and
    arrays that do not fit the spec.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.parse("m = max[j](x[j]); return l = sum[j](exp(x[j] - m))"))
    >>> walk = steps(form, x=[0.0, 1.0, 1.0], labels=["zero", "one", "again"])
    >>> print(walk[1])
    element 1 (one): x[j] = 1
      slot     before  correction  element gives  after
      n        1                   1              2
      max_x    0                   1              1
      sum_exp  1       0.367879    1              1.36788
      result so far: l = 1.36788
    """
    if not form.passes.statistics:
        why = f"{without_axis(form.plan)}, so there is no state to walk through"
        raise RedalgError(f"form of {', '.join(form.spec.outputs)}", WHERE, why, "a form with a reduction")
    course = run_row(form, {k: _array(v) for k, v in tensors.items()}, row or {}, WHERE)
    words = [] if labels is None else list(map(str, labels))
    if labels is not None and len(words) != len(course.counts):
        why, fix = f"the stream has {len(course.counts)} elements", "give one label per element"
        raise RedalgError(f"{len(words)} labels", WHERE, why, fix)
    return Steps(course, words)


def _array(value: Any) -> Any:
    import numpy as np

    return np.asarray(value) if isinstance(value, list | tuple) else value


def number(value: float | None) -> str:
    """Six digits; nothing for what there is not.

    >>> number(None), number(2.0), number(1 / 3)
    ('', '2', '0.333333')
    """
    return "" if value is None else f"{value:.6g}"
