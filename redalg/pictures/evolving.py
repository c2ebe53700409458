"""`evolution`: the state of one row while elements arrive: its anchors, its corrections, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redalg.algebra import state as symbolic
from redalg.algebra.transport import correction
from redalg.errors import RedalgError
from redalg.graph.node import Node
from redalg.graph.plan import PassPlan
from redalg.pictures.course import Course, run_row, truth
from redalg.pictures.style import BLACK, BODY, DASHES, GREY, MARKERS, PALETTE, SMALL, TITLE, axes, dress, panels
from redalg.pictures.text import formula
from redalg.streaming.checks import without_axis
from redalg.text.tables import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from redalg.form import Form

WHERE = "redalg.pictures.evolution"
MOST = 3  # anchors, and results (or slots), that get a panel each


def evolution(form: Form, /, *, row: Mapping[str, int] | None = None, ax: Axes | None = None, **tensors: Any) -> Axes:
    """The state of one row of a form while elements arrive, one at a time, through `Form.accumulator`.

    Panels (insets of the axes), from above: the elements as each anchor meets them, and the anchor; the correction by
    which the state before is multiplied (or, where it is no factor, the step of the anchor); each result, with its
    definition over all elements (`redalg.reference`) as a line. A form whose outputs all keep the axis shows its slots
    instead, and so does the last pass of a plan of several.

    `row`: axis -> position, for the axes of the outputs (0 where none is given); `tensors`: all of the spec's, whole.
    Artists carry as gid what they show: ``element:A``, ``anchor:A``, ``correction:slot``, ``result:name``.

    Raises: RedalgError for a form without a state, a row that is not there, arrays that do not fit the spec, and
    without matplotlib.

    >>> import numpy as np, redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
    >>> ax = evolution(form, x=np.array([[0.0, 2.0, 1.0]]))
    >>> next(p for p in ax.child_axes[0].lines if p.get_gid() == "anchor:max_x").get_ydata()
    array([0., 2., 2.])
    """
    if not form.passes.statistics:
        why = f"{without_axis(form.plan)}, so nothing evolves"
        raise RedalgError(f"form of {', '.join(form.spec.outputs)}", WHERE, why, "a form with a reduction")
    course = run_row(form, tensors, row or {}, WHERE)
    p = [q for q in form.plan.passes if q.order][-1]
    names = {a.name: symbolic.alias(a, p) or a.name for a in p.anchors}
    factors = _corrections(p, course)
    shown, kind = _shown(form, p, course)
    anchors = p.anchors[:MOST]
    heights = [1.3] * len(anchors) + ([0.9] if factors else []) + [1.0] * len(shown)
    ax = axes(ax, "evolution", 6.4, 0.8 + 1.45 * sum(heights))
    rooms = panels(ax, heights, 0.3)
    for k, a in enumerate(anchors):
        _anchor_panel(rooms.pop(0), names[a.name], course.elements(a.generator), course, k)
    if factors:
        _correction_panel(rooms.pop(0), factors, course)
    ends = truth(course) if kind == "result" else {}
    for room, (name, values) in zip(rooms, shown.items(), strict=True):
        _value_panel(room, kind, name, values, course, ends.get(name))
    _finish(ax, form, course, kind)
    return ax


# --- what is shown ---------------------------------------------------------------------------------------------------


def _corrections(p: PassPlan, course: Course) -> dict[str, tuple[Node, list[float]]]:
    """What happened to the state before each element: factors by slot, steps of anchors that have no factor."""
    names = {a.name: symbolic.alias(a, p) or a.name for a in p.anchors}
    found: dict[Node, list[str]] = {}
    for s in p.slots:
        if [m.slot for m in s.moves] == [s.name] and s.anchors and not s.vanishes:
            found.setdefault(correction(s, p), []).append(s.name)
    factored = {a for s in p.slots if [m.slot for m in s.moves] == [s.name] for a in s.anchors}
    old, new = symbolic.leaf_state(p, "_a"), symbolic.leaf_state(p)
    for a in p.anchors:
        if a.name not in factored:
            found.setdefault(a.between(old[a.name], new[a.name]), []).append(f"step of {names[a.name]}")
    return {listed(who): (node, course.corrections(node)) for node, who in found.items()}


def _shown(form: Form, p: PassPlan, course: Course) -> tuple[dict[str, list[float]], str]:
    """The results of the row after every element, or the slots where there are none."""
    outputs = [o.name for o in form.plan.outputs if not o.keeps_axis][:MOST]
    if course.results:
        return {name: course.result(name) for name in outputs}, "result"
    anchored = {symbolic.alias(a, p) for a in p.anchors}
    slots = [s.parts[0] for s in p.slots if s.parts[0] not in anchored and not s.vanishes][:MOST]
    return {name: course.part(name) for name in slots}, "slot"


# --- panels ----------------------------------------------------------------------------------------------------------


def _anchor_panel(room: Axes, name: str, elements: Any, course: Course, k: int) -> None:
    color, dash = PALETTE[k % len(PALETTE)], DASHES[k % len(DASHES)]
    if elements is not None:
        room.plot(
            range(1, len(elements) + 1),
            elements,
            ls="none",
            marker=MARKERS[k % len(MARKERS)],
            ms=3.2,
            mec=GREY,
            mfc="none",
            mew=0.8,
            gid=f"element:{name}",
            label="element",
        )
    room.step(
        course.counts,
        course.part(name),
        where="post",
        color=color,
        ls=dash,
        lw=1.6,
        gid=f"anchor:{name}",
        label=f"anchor {name}",
    )
    dress(room, "", name)
    _legend(room)


def _correction_panel(room: Axes, factors: Mapping[str, tuple[Node, list[float]]], course: Course) -> None:
    """A mark where a correction does something, on a line where it does nothing."""
    for k, (who, (node, values)) in enumerate(factors.items()):
        color, x = PALETTE[k % len(PALETTE)], course.counts[1:]
        verb = "" if who.startswith("step") else "factor of "
        label = f"{verb}{who}: {formula(node, {}, 2.6, size=SMALL)}"
        still = 0.0 if who.startswith("step") else 1.0
        moved = [i for i, v in enumerate(values) if v != still]
        room.plot(
            x,
            values,
            ls="none",
            marker=MARKERS[k % len(MARKERS)],
            ms=3.2,
            color=color,
            gid=f"correction:{who}",
            label=label,
            markevery=moved,
        )
        room.vlines([x[i] for i in moved], [still] * len(moved), [values[i] for i in moved], color=color, lw=0.9)
        room.axhline(still, color=GREY, lw=0.8)
    dress(room, "", "correction")
    _legend(room)


def _value_panel(room: Axes, kind: str, name: str, values: list[float], course: Course, truth: Any) -> None:
    room.plot(
        course.counts, values, color=PALETTE[0], lw=1.5, marker=".", ms=3, gid=f"{kind}:{name}", label=f"{kind} so far"
    )
    if truth is not None:
        room.axhline(
            float(truth), color=BLACK, ls=DASHES[1], lw=1.0, gid=f"definition:{name}", label="definition, all elements"
        )
    dress(room, "", name)
    _legend(room)


def _legend(room: Axes) -> None:
    room.legend(
        fontsize=SMALL - 0.5,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 0.98),
        ncols=3,
        borderaxespad=0.1,
        handletextpad=0.5,
        columnspacing=1.2,
    )


def _finish(ax: Axes, form: Form, course: Course, kind: str) -> None:
    rooms = ax.child_axes
    n = course.counts[-1]
    for room in rooms:
        room.set_xlim(0.5, max(n, 1) + 0.5)
        room.yaxis.set_label_coords(-0.09, 0.5)
        if room is not rooms[-1]:
            room.tick_params(labelbottom=False)
    rooms[-1].set_xlabel(f"elements seen along {','.join(form.plan.axis)}", fontsize=BODY)
    outputs = ", ".join(form.spec.outputs) + (f" at {course.place}" if course.place else "")
    end = "the result ends at the definition" if kind == "result" else "the state is complete"
    ax.set_title(f"{outputs}: {n} elements arrive one by one,\nand {end}", fontsize=TITLE, pad=24)
