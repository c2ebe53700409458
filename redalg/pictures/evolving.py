"""`evolution`: the state of one row while elements arrive: its anchors, its corrections, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redalg import symbolic
from redalg.errors import RedalgError
from redalg.explain_text import listed
from redalg.graph import Node, leaves, walk
from redalg.pictures.style import BLACK, BODY, DASHES, GREY, MARKERS, PALETTE, SMALL, TITLE, axes, dress, panels
from redalg.pictures.text import formula
from redalg.plan import Anchor, PassPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from redalg.form import Form
    from redalg.graph import Decl

WHERE = "redalg.pictures.evolution"
MOST = 3  # results (or slots) that get a panel each
Arrays = dict[str, Any]


@dataclass
class Course:
    """What an accumulator of one row held after every element."""

    counts: list[int]
    states: list[Arrays]
    results: list[Arrays]


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
        why = "its outputs are maps without a reduction, so nothing evolves"
        raise RedalgError(f"form of {', '.join(form.spec.outputs)}", WHERE, why, "a form with a reduction")
    arrays, at, place = _one_row(form, tensors, row or {})
    course = _run(form, arrays)
    p = [q for q in form.plan.passes if q.order][-1]
    names = {a.name: symbolic.alias(a, p) or a.name for a in p.anchors}
    elements = {a.name: _elements(form, a, arrays, course) for a in p.anchors}
    factors = _corrections(p, course)
    shown, kind = _shown(form, p, course, at)
    anchors = dict(list(names.items())[:MOST])
    heights = [1.3] * len(anchors) + ([0.9] if factors else []) + [1.0] * len(shown)
    ax = axes(ax, "evolution", 6.4, 0.8 + 1.45 * sum(heights))
    rooms = panels(ax, heights, 0.3)
    for k, (anchor, name) in enumerate(anchors.items()):
        _anchor_panel(rooms.pop(0), name, elements[anchor], course, k)
    if factors:
        _correction_panel(rooms.pop(0), factors, course)
    truth = _truth(form, arrays) if kind == "result" else {}
    for room, (name, values) in zip(rooms, shown.items(), strict=True):
        _value_panel(room, kind, name, values, course, _pick(truth[name], _axes_of(form, name), at) if truth else None)
    _finish(ax, form, course, kind, place)
    return ax


# --- one row ---------------------------------------------------------------------------------------------------------


def _one_row(form: Form, tensors: Mapping[str, Any], row: Mapping[str, int]) -> tuple[Arrays, dict[str, int], str]:
    """The tensors of one row, every axis kept; where the row lies in what is computed from them; and in words."""
    import numpy as np

    from redalg.binding import bind

    bind(form.spec, tensors, where=WHERE)
    free = dict.fromkeys(a for axes_ in form.spec.output_axes.values() for a in axes_)
    known = {a for d in form.spec.tensors for a in d.axes} - set(form.plan.axis)
    inner = {a for n in walk(*form.spec.outputs.values()) if n.op == "reduce" for a in n.attr.axes}
    arrays = {name: np.asarray(v) if hasattr(v, "__len__") else v for name, v in tensors.items()}
    lengths = {a: n for d in form.spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}
    for axis, k in row.items():
        if axis not in free or axis not in known:
            rows = listed(sorted(set(free) & known), "none")
            raise RedalgError(
                f"row={{{axis!r}: {k!r}}}", WHERE, f"the outputs' axes beside the stream are {rows}", "row={}"
            )
        if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < lengths[axis]:
            raise RedalgError(
                f"row={{{axis!r}: {k!r}}}", WHERE, f"axis {axis} has length {lengths[axis]}", "a position of it"
            )
    at = {a: row.get(a, 0) for a in free if a in known}
    cut = {a: k for a, k in at.items() if a not in inner}
    found = {d.name: _cut(arrays[d.name], d, cut) for d in form.spec.tensors}
    return found, {a: (0 if a in cut else k) for a, k in at.items()}, ", ".join(f"{a} = {k}" for a, k in at.items())


def _cut(array: Any, decl: Decl, cut: Mapping[str, int]) -> Any:
    if not decl.axes:
        return array
    return array[tuple(slice(cut[a], cut[a] + 1) if a in cut else slice(None) for a in decl.axes)]


def _axes_of(form: Form, output: str) -> tuple[str, ...]:
    return form.spec.output_axes[output]


def _pick(array: Any, names: tuple[str, ...], at: Mapping[str, int]) -> Any:
    """The entry of the row; the first along axes that are none of it, as those of a top-k list."""
    import numpy as np

    array = np.asarray(array)
    return array[tuple(at.get(a, 0) for a in names)] if names else array[()]


def _run(form: Form, arrays: Arrays) -> Course:
    axis = form.plan.axis[0]
    position = {d.name: d.axes.index(axis) for d in form.spec.tensors if axis in d.axes}
    steps = {k: arrays[k] for k in position}
    n = next(iter(steps.values())).shape[next(iter(position.values()))]
    acc = form.accumulator(**{k: v for k, v in arrays.items() if k not in position})
    for _ in range(form.passes.statistics - 1):
        acc.update(**steps)
        acc.next_pass()
    if not n:
        why = f"axis {axis} has length 0, so no element arrives"
        raise RedalgError(f"arrays {listed(steps)}", WHERE, why, "a stream of one element or more")
    course = Course([], [], [])
    reads = _has_results(form)
    for t in range(n):
        acc.update(**{k: v[(slice(None),) * position[k] + (slice(t, t + 1),)] for k, v in steps.items()})
        course.counts.append(acc.count)
        course.states.append({"n": acc.count, **acc.state})
        course.results.append(_by_name(form, acc.result()) if reads else {})
    return course


def _has_results(form: Form) -> bool:
    """Whether there is a result after every element: not where all outputs keep the axis, nor in a second pass."""
    return form.passes.statistics == 1 and any(not o.keeps_axis for o in form.plan.outputs)


def _by_name(form: Form, result: Any) -> Arrays:
    names = [o.name for o in form.plan.outputs if not o.keeps_axis]
    return result if isinstance(result, dict) else {names[0]: result}


def _truth(form: Form, arrays: Arrays) -> Arrays:
    from redalg.definition import reference

    found = reference(form.spec, **arrays)
    return found if isinstance(found, dict) else {next(iter(form.spec.outputs)): found}


# --- what is shown of it ---------------------------------------------------------------------------------------------


def _elements(form: Form, anchor: Anchor, arrays: Arrays, course: Course) -> Any:
    """The values an anchor meets, one per element (several, where it has axes that are none of the row's)."""
    import numpy as np

    from redalg.numeric import evaluate

    held = {leaf.attr.name for leaf in leaves(anchor.generator, "state")}
    if held - arrays.keys():
        return None
    stream = [a for a in form.plan.axis if a in anchor.generator.axes]
    rest = sorted(anchor.generator.axes - set(stream))
    values = evaluate([anchor.generator], arrays, orders=[(*stream, *rest)])[0]
    return np.reshape(values, (-1, int(np.prod(np.shape(values)[len(stream) :], dtype=int))))


def _corrections(p: PassPlan, course: Course) -> dict[str, tuple[Node, list[float]]]:
    """What happened to the state before each element: factors by slot, steps of anchors that have no factor."""
    from redalg.form import anchor_shift, correction

    names = {a.name: symbolic.alias(a, p) or a.name for a in p.anchors}
    found: dict[Node, list[str]] = {}
    for s in p.slots:
        if [m.slot for m in s.moves] == [s.name] and s.anchors and not s.vanishes:
            found.setdefault(correction(s, p), []).append(s.name)
    factored = {a for s in p.slots if [m.slot for m in s.moves] == [s.name] for a in s.anchors}
    old, new = symbolic.leaf_state(p, "_a"), symbolic.leaf_state(p)
    for a in p.anchors:
        if a.name not in factored:
            found.setdefault(anchor_shift(a, new[a.name], old[a.name]), []).append(f"step of {names[a.name]}")
    return {listed(who): (node, _along(node, course)) for node, who in found.items()}


def _along(node: Node, course: Course) -> list[float]:
    """A correction at every element from the second on."""
    import numpy as np

    from redalg.numeric import evaluate

    values = []
    for old, new in zip(course.states, course.states[1:], strict=False):
        known = {f"{k}_a": v for k, v in old.items()} | new
        values.append(float(np.ravel(evaluate([node], known)[0])[0]))
    return values


def _shown(form: Form, p: PassPlan, course: Course, at: Mapping[str, int]) -> tuple[dict[str, list[float]], str]:
    """The results of the row after every element, or the slots where all outputs keep the axis."""
    import numpy as np

    outputs = [o.name for o in form.plan.outputs if not o.keeps_axis][:MOST]
    if _has_results(form):
        return {
            k: [float(np.real(_pick(r[k], _axes_of(form, k), at))) for r in course.results] for k in outputs
        }, "result"
    anchored = {symbolic.alias(a, p) for a in p.anchors}
    slots = [s.parts[0] for s in p.slots if s.parts[0] not in anchored and not s.vanishes][:MOST]
    return {k: [float(np.real(np.ravel(s[k])[0])) for s in course.states] for k in slots}, "slot"


# --- panels ----------------------------------------------------------------------------------------------------------


def _anchor_panel(room: Axes, name: str, elements: Any, course: Course, k: int) -> None:
    import numpy as np

    color, dash = PALETTE[k % len(PALETTE)], DASHES[k % len(DASHES)]
    if elements is not None:
        room.plot(
            course.counts, elements[:, 0], ls="none", marker=MARKERS[k % len(MARKERS)], ms=3.2, mec=GREY, mfc="none",
            mew=0.8, gid=f"element:{name}", label="element",
        )  # fmt: skip
    held = [float(np.ravel(s[name])[0]) for s in course.states]
    room.step(
        course.counts, held, where="post", color=color, ls=dash, lw=1.6, gid=f"anchor:{name}", label=f"anchor {name}"
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
        room.plot(x, values, ls="none", marker=MARKERS[k % len(MARKERS)], ms=3.2, color=color, gid=f"correction:{who}",
                  label=label, markevery=moved)  # fmt: skip
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
    room.legend(fontsize=SMALL - 0.5, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 0.98), ncols=3,
                borderaxespad=0.1, handletextpad=0.5, columnspacing=1.2)  # fmt: skip


def _finish(ax: Axes, form: Form, course: Course, kind: str, place: str) -> None:
    rooms = ax.child_axes
    n = course.counts[-1]
    for room in rooms:
        room.set_xlim(0.5, max(n, 1) + 0.5)
        room.yaxis.set_label_coords(-0.09, 0.5)
        if room is not rooms[-1]:
            room.tick_params(labelbottom=False)
    rooms[-1].set_xlabel(f"elements seen along {','.join(form.plan.axis)}", fontsize=BODY)
    outputs = ", ".join(form.spec.outputs) + (f" at {place}" if place else "")
    end = "the result ends at the definition" if kind == "result" else "the state is complete"
    ax.set_title(f"{outputs}: {n} elements arrive one by one,\nand {end}", fontsize=TITLE, pad=24)
