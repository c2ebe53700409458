"""`data_flow`: what a cascade reads and needs, stage by stage as it is written, and fused as its form computes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.algebra import state as symbolic
from redalg.algebra.transport import correction
from redalg.api import verdict
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.explain.explanation import meaning
from redalg.form import Form
from redalg.graph.node import Node, leaves
from redalg.graph.plan import PassPlan, Slot
from redalg.language.spec import Spec
from redalg.pictures.diagram import Band, Layout, Pen, Row, Side, draw
from redalg.pictures.text import extent, formula, wrapped
from redalg.pictures.written import Step, Written, written, written_form
from redalg.text.tables import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WIDE, APART = 2.9, 0.35  # inches: the longest formula on a line, and between the columns


def data_flow(spec_or_form: Spec | Form, axis: object = None, *, ax: Axes | None = None) -> Axes:
    """Data flow of a cascade: left as written, stage by stage, right as its form computes it.

    Every grey band is one read of the stream. Arrows from its left say what reads the tensors, lanes on the right what
    needs which result: stages need earlier stages, slots the anchors they are corrected by, outputs what `finalize`
    takes. Of a refused spec the right side says what was refused, and why.

    `axis`: the streamed axis, where a spec has several candidates. The gid of every box is ``side:kind:name``, of every
    arrow ``side:source->target`` (side ``before`` or ``after``; a read is ``read1`` …).

    Raises: RedalgError for what is neither a Spec nor a Form, and without matplotlib.

    >>> import redalg as ra
    >>> ax = data_flow(ra.parse("m = max[j](x[j]); return y = sum[j](exp(x[j] - m))"))
    >>> sorted(a.get_gid() for a in ax.patches if "->" in a.get_gid() and "before" in a.get_gid())
    ['before:read1->stage1', 'before:read2->stage2', 'before:stage1->stage2', 'before:stage2->y']
    """
    form, cascade, refusal = _derived(spec_or_form, axis)
    before = _before(cascade)
    after = _after(form) if form is not None else _refused(refusal)
    columns = [Layout(before), Layout(after)]
    width = sum(c.width for c in columns) + APART + 0.1
    height = max(c.height for c in columns) + 0.1
    pen, left = Pen(ax, "data_flow", width, height), 0.05
    for column in columns:
        draw(pen, column, left, 0.05)
        left += column.width + APART
    return pen.ax


def _derived(given: Spec | Form, axis: object) -> tuple[Form | None, Written, NotDecomposable | Undecided | None]:
    if isinstance(given, Form):
        return given, written_form(given), None
    if not isinstance(given, Spec):
        what = f"a {type(given).__name__}"
        raise RedalgError(
            what, "redalg.pictures.data_flow", "a Spec or a Form has a data flow", "data_flow(ra.Spec(…))"
        )
    found = verdict(given, axis)
    cascade = written(given, axis)
    return (found, cascade, None) if isinstance(found, Form) else (None, cascade, found)


# --- as written ------------------------------------------------------------------------------------------------------


def _before(cascade: Written) -> Side:
    lines = cascade.lines()
    bands = []
    taken = {s.name for s in cascade.stages}
    steps = [*cascade.stages, *(o for o in cascade.outputs if o.level)]
    for level in range(1, cascade.passes + 1):
        here = [s for s in steps if s.level == level]
        rows = tuple(_stage(s, lines.names, taken) for s in here)
        tensors = dict.fromkeys(t for s in here for t in s.reads)
        bands.append(Band(_reading(level, cascade), ", ".join(tensors), rows))
    last = tuple(_stage(o, lines.names, taken) for o in cascade.outputs if not o.level)
    if last:
        bands.append(Band("from the results alone", "", last))
    title = f"as written: {plural(cascade.passes, 'read')} of the stream"
    notes = [wrapped(f"{name} = {text}", WIDE + 1.5) for name, text in lines.bindings()]
    return Side("before", title, tuple(bands), tuple(notes))


def _reading(number: int, cascade: Written) -> str:
    return f"read {number} along {cascade.stream}" if cascade.axis else "one read"


def _stage(step: Step, names: dict[Node, str], stages: set[str]) -> Row:
    is_stage = step.node in names and names[step.node] == step.name
    row = Row(step.name, (formula(step.node, names, WIDE, defined=is_stage),), "output", step.needs, bool(step.level))
    return replace(row, kind="stage") if is_stage else _apart(row, stages)


# --- as the form computes it -----------------------------------------------------------------------------------------


def _after(form: Form) -> Side:
    bands = [_pass(form, number, p) for number, p in enumerate(form.plan.passes) if p.order]
    values = symbolic.outputs(form.plan)
    taken = {row.name for band in bands for row in band.rows}
    kept = [o.name for o in form.plan.outputs if o.keeps_axis or not form.plan.axis]
    rows = {name: _apart(_output(name, node, name in kept), taken) for name, node in values.items()}
    if kept:
        tensors = dict.fromkeys(n.attr.name for k in kept for n in leaves(values[k]) if _along(n, form))
        title = f"read {form.passes.reads}: outputs that keep the axis" if form.plan.axis else "one read"
        bands.append(Band(title, ", ".join(tensors), tuple(rows[k] for k in kept)))
    if len(kept) < len(rows):
        bands.append(Band("finalize, from the state alone", "", tuple(r for k, r in rows.items() if k not in kept)))
    return Side("after", f"fused: {plural(form.passes.reads, 'read')} of the stream", tuple(bands))


def _along(leaf: Node, form: Form) -> bool:
    return bool(leaf.axes & set(form.plan.axis)) or not form.plan.axis


def _pass(form: Form, number: int, p: PassPlan) -> Band:
    later = {part.name for q in form.plan.passes[number + 1 :] for part in symbolic.parts(q)}
    rows = [_part(form, part, p) for part in symbolic.parts(p)]
    for name, value in symbolic.exports(form.plan, number).items():
        rows.append(Row(name, (formula(value, {}, WIDE),), "output", _states(value)))
    rows = [_numbered(row, later, number + 1) for row in rows]
    read = dict.fromkeys(n.attr.name for s in p.slots for b in s.lift for n in leaves(b) if _along(n, form))
    title = f"read {number + 1} along {','.join(form.plan.axis)}: the state"
    return Band(title, ", ".join(read), tuple(rows))


def _numbered(row: Row, later: set[str], number: int) -> Row:
    """Names that a later pass uses again get the number of their pass."""
    new = {name: f"{name}@{number}" if name in later else name for name in (row.name, *row.needs)}
    return replace(row, name=new[row.name], needs=tuple(new[n] for n in row.needs), label=row.name)


def _part(form: Form, part: symbolic.Part, p: PassPlan) -> Row:
    """A part of the state: what it holds, by which factor it moves with its anchors, and what it is read from."""
    text = wrapped(meaning(part, p, form.plan.axis), WIDE)
    if part.anchor is not None:
        return Row(part.name, (text,), "anchor", _states(part.anchor.source), True)
    slot = part.slot
    if slot is None:
        return Row(part.name, (text,), "slot", (), True)
    lines = [text]
    if slot.moves and part.name == slot.parts[0]:
        lines.append(moving(slot, p, WIDE))
    return Row(part.name, tuple(lines), "slot", tuple(dict.fromkeys(_needs(slot, p))), True)


def _needs(slot: Slot, p: PassPlan) -> Iterator[str]:
    """The parts of the state that a slot is read from: its anchors, the slots it moves by, what its elements read."""
    names = {a.name: symbolic.alias(a, p) or a.name for a in p.anchors}
    firsts = {s.name: s.parts[0] for s in p.slots if not s.vanishes}
    yield from (names[a] for a in slot.anchors)
    yield from (firsts[m.slot] for m in slot.moves if m.slot != slot.name and m.slot in firsts)
    yield from (n for b in slot.lift for n in _states(b) if n not in names and n != "n")


def moving(slot: Slot, p: PassPlan, width: float) -> str:
    """How a slot follows its anchors: the factor, or what it becomes."""
    verb = "moves by the factor " if [m.slot for m in slot.moves] == [slot.name] else "moves to "
    return verb + formula(correction(slot, p), {}, width - extent(verb)[0])


def _states(node: Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n.attr.name for n in leaves(node, "state")))


def _apart(output: Row, taken: set[str]) -> Row:
    """An output may bear the name of a stage or a slot; nothing needs an output, so its name is free to change."""
    return replace(output, name=f"output {output.name}", label=output.name) if output.name in taken else output


def _output(name: str, node: Node, keeps: bool) -> Row:
    return Row(name, (formula(node, {}, WIDE),), "output", _states(node), keeps)


def _refused(refusal: NotDecomposable | Undecided | None) -> Side:
    assert refusal is not None
    word = "refused" if isinstance(refusal, NotDecomposable) else "undecided"
    text = "\n".join(wrapped(t, WIDE + 0.6, most=12) for t in (refusal.what, refusal.why) if t)
    row = Row(refusal.stage or word, tuple(text.split("\n")), "anchor")
    return Side("after", f"fused: {word}", (Band(f"try: {wrapped(refusal.fix, WIDE)}", "", (row,)),))
