"""`error_growth`: errors of competing one-pass forms against the definition at 50 digits, over length and offset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redalg.engine.normalise import normalise
from redalg.errors import RedalgError
from redalg.graph.intervals import is_interval, moved_array
from redalg.graph.node import Node, add, is_const, mul, power, reduction, size, substitute, walk
from redalg.graph.plan import COUNT
from redalg.numeric.binding import by_output
from redalg.numeric.definition import reference
from redalg.numeric.evaluate import evaluate
from redalg.numeric.exact_numbers import arithmetic
from redalg.pictures.style import BODY, DASHES, MARKERS, PALETTE, SMALL, TITLE, axes, columns, dress
from redalg.text.tables import listed

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes

    from redalg.form import Form

WHERE = "redalg.pictures.error_growth"
FLOOR = 2.0**-54  # a quarter of the distance from 1 to the next float64: what is smaller is drawn here
TOP = 10.0  # where errors that are no number, or larger, are drawn
OURS, LEAN, UNCENTRED = "this form", "lean form", "uncentred sums"
Arrays = dict[str, Any]
Draw = Callable[[int, float, "np.random.Generator"], Arrays]
Competitor = Callable[..., Any]


def error_growth(
    form: Form,
    lengths: Sequence[int] = (4, 16, 64, 256),
    offsets: Sequence[float] = (1.0, 1e2, 1e4, 1e6, 1e8),
    *,
    draw: Draw | None = None,
    others: Mapping[str, Competitor] | None = None,
    streams: int = 3,
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Relative errors against `redalg.reference` with ``exact=True``: left over the length of the stream at the largest
    offset, right over the offset at the largest length.

    Competitors: *this form*, fed one element at a time; its *lean form* if it has one (for a variance this is the
    update of Welford and Chan), fed likewise; *uncentred sums*, the one-pass formula over plain sums that separation
    gives before anything is centred (Σx² - (Σx)²/n and its kind), where there is one; and `others`: name -> function of
    the tensors, giving an array or a dict by output.

    The error of an output is its largest entry's, relative to the largest entry of the truth; shown is the largest over
    outputs and over so many random `streams`. Below 2^-54 it is drawn there; a mark x at the top stands for no number,
    or an error above 10. `draw(n, offset, rng)` gives all tensors; by default streamed real tensors are normal numbers
    (from 0.5 to 1.5, where they are positive) plus the offset, and axes have length 1, contracted ones 2.

    Raises: RedalgError for a form without a state or of several passes, lengths below 1, and without matplotlib.
    Source of the competitors: Welford (1962); Chan, Golub and LeVeque (1983).

    >>> import redalg as ra
    >>> ax = error_growth(ra.derive_incremental(ra.catalog["variance"]), (4, 8), (1.0, 1e8), streams=1)
    >>> [line.get_label() for line in ax.child_axes[1].lines if line.get_marker() != "x"]
    ['this form', 'lean form', 'uncentred sums']
    """
    lengths, offsets = _checked(form, lengths, offsets, streams)
    draw = draw or _drawing(form)
    measured: dict[tuple[int, float], dict[str, float]] = {}
    for k in range(streams):
        for offset in offsets:
            wanted = lengths if offset == offsets[-1] else lengths[-1:]
            for n, found in _stream(form, draw, others or {}, wanted, offset, seed + k).items():
                known = measured.setdefault((n, offset), {})
                known |= {name: max(e, known.get(name, 0.0)) for name, e in found.items()}
    ax = axes(ax, "error_growth", 7.4, 3.9)
    left, right = columns(ax, (0.0, 0.46), (0.54, 1.0))
    names = list(measured[lengths[-1], offsets[-1]])
    _panel(left, names, lengths, [measured[n, offsets[-1]] for n in lengths])
    _panel(right, names, offsets, [measured[lengths[-1], o] for o in offsets])
    dress(left, "elements", "relative error")
    dress(right, "offset")
    left.set_title(f"offset {offsets[-1]:g}", fontsize=BODY)
    right.set_title(f"{lengths[-1]} elements", fontsize=BODY)
    right.tick_params(labelleft=False)
    if any("lost:" in (line.get_gid() or "") for room in (left, right) for line in room.lines):
        right.set_xlabel(f"offset (x: over {TOP:g}, or no number)", fontsize=BODY)
    left.legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(0.0, -0.17), ncols=4)
    ax.set_title(_title(form, measured[lengths[-1], offsets[-1]], lengths[-1], offsets[-1]), fontsize=TITLE, pad=22)
    return ax


def _checked(
    form: Form, lengths: Sequence[int], offsets: Sequence[float], streams: int
) -> tuple[list[int], list[float]]:
    if form.passes.statistics != 1:
        what = f"a form with {form.passes.statistics} passes for its state"
        raise RedalgError(what, WHERE, "errors of one-pass forms are compared", "a form that reads once for its state")
    if not lengths or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in lengths):
        raise RedalgError(f"lengths={lengths!r}", WHERE, "a stream has at least one element", "lengths=(4, 16, 64)")
    if not offsets or not all(0 < o < float("inf") for o in offsets):
        raise RedalgError(f"offsets={offsets!r}", WHERE, "the axis is logarithmic", "offsets=(1.0, 1e4, 1e8)")
    if isinstance(streams, bool) or not isinstance(streams, int) or streams < 1:
        raise RedalgError(f"streams={streams!r}", WHERE, "errors are measured on at least one stream", "streams=3")
    return sorted(set(lengths)), sorted({float(o) for o in offsets})


# --- competitors -----------------------------------------------------------------------------------------------------


def uncentred(form: Form) -> dict[str, Node] | None:
    """Output -> the one-pass formula over plain sums, or None where some stage has none.

    A stage's value is Σ_k H_k(D)·Σ_j G_k(x_j), by the separation the form itself is built on; nothing is centred.

    >>> import redalg as ra
    >>> from redalg.text.nodes import short
    >>> print(short(uncentred(ra.derive_incremental(ra.parse("return s = sum[j]((x[j] - mean[j](x[j]))**2)")))["s"]))
    sum[j](x[j]**2) - sum[j](x[j])**2 / size[j]
    """
    axis, values = form.plan.axis, dict[Node, Node]()
    for stage in form.plan.stages:
        if stage.generators:
            pairs = zip(stage.coefficients, stage.generators, strict=True)
            values[stage.node] = add(*(_summed(stage.node, _spread(substitute(h, values)), g, axis) for h, g in pairs))
    count = {COUNT: size(axis)}
    found = {name: substitute(substitute(normalise(n, axis), values), count) for name, n in form.spec.outputs.items()}
    for n in walk(*found.values()):
        if (
            n.op == "reduce"
            and n.attr.axes == axis
            and any(m.op == "reduce" and m.attr.axes == axis for m in walk(*n.args))
        ):
            return None
    return found


def _spread(product: Node) -> Node:
    """A product of powers for every whole power of a product, so that factors outside cancel."""
    factors = product.args if product.op == "mul" else (product,)
    whole = [
        f.op == "pow" and f.args[0].op == "mul" and is_const(f.args[1]) and f.args[1].attr.denominator == 1
        for f in factors
    ]
    parts = ([power(b, f.args[1]) for b in f.args[0].args] if w else [f] for f, w in zip(factors, whole, strict=True))
    return mul(*(p for part in parts for p in part))


def _summed(stage: Node, coefficient: Node, generator: Node, axis: tuple[str, ...]) -> Node:
    """H·Σ_j G, summed over the axes that only the two of them share."""
    total = reduction("sum", axis, generator) if generator.axes & set(axis) else mul(generator, size(axis))
    term = mul(coefficient, total)
    shared = sorted(term.axes - stage.axes)
    return reduction("sum", shared, term) if shared else term


def _competitors(form: Form, others: Mapping[str, Competitor]) -> dict[str, Competitor]:
    """Those that are run on whole prefixes of the stream; forms are fed and read as they go."""
    plain = uncentred(form)
    return ({} if plain is None else {UNCENTRED: lambda **a: _evaluated(form, plain, a)}) | dict(others)


def _evaluated(form: Form, nodes: Mapping[str, Node], arrays: Arrays) -> Arrays:
    import numpy as np

    orders = [form.spec.output_axes[name] for name in nodes]
    return dict(zip(nodes, evaluate(list(nodes.values()), arrays, dtype=np.float64, orders=orders), strict=True))


def _drawing(form: Form) -> Draw:
    """Normal numbers, moved by the offset along the stream."""
    inner = {a for n in walk(*form.spec.outputs.values()) if n.op == "reduce" for a in n.attr.axes}
    axis = form.plan.axis[0]

    def draw(n: int, offset: float, rng: np.random.Generator) -> Arrays:
        found: Arrays = {}
        for d in form.spec.tensors:
            shape = [n if a == axis else 2 if a in inner else 1 for a in d.axes]
            if "bool" in d.domain:
                found[d.name] = rng.random(shape) < 0.8
            elif "integer" in d.domain:
                found[d.name] = rng.integers(1, 2, shape) if d.axes else 1
            else:
                positive = bool({"positive", "nonnegative"} & d.domain)
                values = rng.uniform(0.5, 1.5, shape) if positive else rng.standard_normal(shape)
                if is_interval(d.domain):
                    values, offset = moved_array(d.domain, np.asarray(values)), 0.0
                found[d.name] = values + offset if axis in d.axes else values if d.axes else float(values)
        return found

    return draw


# --- measuring -------------------------------------------------------------------------------------------------------


def _stream(
    form: Form, draw: Draw, others: Mapping[str, Competitor], lengths: Sequence[int], offset: float, seed: int
) -> dict[int, dict[str, float]]:
    """Length -> competitor -> error, all on the beginnings of one stream."""
    import numpy as np

    arrays = draw(lengths[-1], offset, np.random.default_rng(seed))
    position = {d.name: d.axes.index(form.plan.axis[0]) for d in form.spec.tensors if form.plan.axis[0] in d.axes}

    def part(start: int, stop: int) -> Arrays:
        return {k: arrays[k][(slice(None),) * p + (slice(start, stop),)] for k, p in position.items()}

    rest = {k: v for k, v in arrays.items() if k not in position}
    forms = {OURS: form} | ({LEAN: form.lean} if form.lean is not None else {})
    fed = {name: f.accumulator(start=0, **rest) for name, f in forms.items()}
    whole, done, found = _competitors(form, others), 0, dict[int, dict[str, float]]()
    for n in lengths:
        for t in range(done, n):
            for accumulator in fed.values():
                accumulator.update(**part(t, t + 1))
        done, seen = n, part(0, n)
        truth = by_output(form.spec.outputs, reference(form.spec, exact=True, **seen, **rest))
        results = {name: _read(form, accumulator, seen) for name, accumulator in fed.items()}
        with np.errstate(all="ignore"):
            results |= {name: by_output(form.spec.outputs, f(**seen, **rest)) for name, f in whole.items()}
        found[n] = {name: error(result, truth) for name, result in results.items()}
    return found


def _read(form: Form, accumulator: Any, seen: Arrays) -> Arrays:
    """All outputs: results, and those that keep the axis, applied to what was seen."""
    kept = [o.name for o in form.plan.outputs if o.keeps_axis]
    plain = [o.name for o in form.plan.outputs if not o.keeps_axis]
    found: Arrays = {}
    for names, values in ((plain, accumulator.result), (kept, lambda: accumulator.apply(start=0, **seen))):
        if names:
            result = values()
            found |= result if isinstance(result, dict) else {names[0]: result}
    return found


def error(result: Arrays, truth: Arrays) -> float:
    """The largest |computed - true|, relative to the largest |true| of the output; inf for what is no number.

    >>> error({"y": 1.0 + 2**-52}, {"y": 1}) == 2**-52, error({"y": float("nan")}, {"y": 1})
    (True, inf)
    """
    return max(_error(result[name], truth[name]) for name in truth if name in result)


def _error(computed: Any, true: Any) -> float:
    import numpy as np

    numbers = arithmetic(50)
    worst, most = numbers.mp.mpf(0), numbers.mp.mpf(0)
    for c, t in zip(np.ravel(np.asarray(computed)).tolist(), np.ravel(np.asarray(true, dtype=object)), strict=True):
        wide, exact = numbers.inexact(numbers.admit(c)), numbers.inexact(numbers.admit(t))
        if wide == exact:
            most = max(most, abs(exact)) if numbers.mp.isfinite(exact) else most
            continue
        if not numbers.mp.isfinite(wide - exact):
            return float("inf")
        worst, most = max(worst, abs(wide - exact)), max(most, abs(exact))
    return float(worst / most) if most else float("inf") if worst else 0.0


# --- drawing ---------------------------------------------------------------------------------------------------------


def _panel(room: Axes, names: Sequence[str], x: Sequence[float], measured: Sequence[Mapping[str, float]]) -> None:
    for k, name in enumerate(names):
        values = [m[name] for m in measured]
        color, dash, marker = PALETTE[k % len(PALETTE)], DASHES[k % len(DASHES)], MARKERS[k % len(MARKERS)]
        shown = [max(v, FLOOR) if v <= TOP else float("nan") for v in values]
        face = "white" if k % 2 else color
        room.plot(
            x, shown, color=color, ls=dash, marker=marker, ms=5, mfc=face, lw=1.4, label=name, gid=f"error:{name}"
        )
        lost = [a for a, v in zip(x, values, strict=True) if not v <= TOP]
        if lost:
            room.plot(lost, [TOP] * len(lost), ls="none", marker="x", ms=7, mew=1.8, color=color, gid=f"lost:{name}")
    room.set_xscale("log", base=2 if all(isinstance(v, int) for v in x) else 10)
    room.set_yscale("log")
    room.minorticks_off()
    room.set_ylim(FLOOR / 3, 3 * TOP)


def _title(form: Form, measured: Mapping[str, float], n: int, offset: float) -> str:
    ours = measured[OURS]
    rest = {name: e for name, e in measured.items() if name != OURS}
    texts = [f"{name} by {_text(e)}" for name, e in rest.items()]
    outputs = ", ".join(form.spec.outputs)
    head = f"{outputs}: after {n} elements at offset {offset:g} {OURS} errs by {_text(ours)}"
    return head + (f",\n{listed(texts)}" if texts else "")


def _text(e: float) -> str:
    return f"{e:.1e}" if e < float("inf") else "no number at all"
