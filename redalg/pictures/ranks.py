"""`separation_rank`: a stage's body at elements × contexts as a heat map, and how soon nothing of it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg.api import verdict
from redalg.errors import NotDecomposable, RedalgError, Undecided
from redalg.form import Form
from redalg.language.spec import Spec
from redalg.pictures.style import BLACK, BLUE, BODY, RED, SMALL, TITLE, axes, columns, dress
from redalg.pictures.tables import Table, counted, drawn_table, matrix_table, witness_table
from redalg.pictures.text import formula, wrapped
from redalg.pictures.written import Step, Written, written, written_form
from redalg.text.tables import listed
from redalg.verdicts.search import stage_body

if TYPE_CHECKING:
    from matplotlib.axes import Axes


WHERE = "redalg.pictures.separation_rank"
MORE = 4  # elements and contexts beyond the rank that is expected
WRITTEN_OUT = 8  # columns up to which the numbers stand in the cells


def separation_rank(
    given: Spec | Form | NotDecomposable, stage: str | None = None, *, seed: int = 0, ax: Axes | None = None
) -> Axes:
    """The body F(x_p, D_q) of a stage (of a product: its log|F|), elements down and contexts across, all exact; right,
    what is left of the table after 1, 2, … of its rows are used up (elimination with complete pivoting, relative to the
    largest entry).

    Of a derived stage the table is drawn at small random rationals, every element in every stream; it vanishes after as
    many rows as the stage's rank, and circles mark the pivots. Of a refused stage it is recomputed from the witness's
    streams; the frame marks the rows of the minor, which does not vanish. A refusal without its spec shows the
    witness's matrix.

    `stage`: a name as `explain` and refusals give it; default the refused stage, else one of the largest rank. Panels
    are insets: the heat map (one image), its scale, and the remainders (one line). The gid of the frame is ``minor``.

    Raises: RedalgError for an unknown stage, one that is no sum, a spec that is undecided or has no stage, and without
    matplotlib.

    >>> import redalg as ra
    >>> ax = separation_rank(ra.catalog["variance"])
    >>> left = ax.child_axes[2].lines[0].get_ydata()
    >>> len(left), float(left[-1])
    (4, 0.0)
    """
    table, title, label, tall = _table(given, stage, seed)
    ax = axes(ax, "separation_rank", 7.4, 4.3)
    heat, scale, rest = columns(ax, (0.0, 0.52), (0.535, 0.555), (0.72, 1.0))
    _heat_map(heat, scale, table, tall)
    _remainders(rest, table)
    heat.set_title(label, fontsize=BODY, va="bottom", pad=6)
    ax.set_title(title, fontsize=TITLE, pad=42)
    return ax


def _table(given: Any, stage: str | None, seed: int) -> tuple[Table, str, str, bool]:
    """The table, the title, the stage as a formula, and whether it is a witness's."""
    if isinstance(given, NotDecomposable):
        return _refused(given, None)
    if isinstance(given, Form):
        return _derived(given.spec, given, written_form(given), stage, seed)
    if not isinstance(given, Spec):
        what, why = f"a {type(given).__name__}", "a Spec, a Form or a refusal has stages"
        raise RedalgError(what, WHERE, why, "separation_rank(ra.Spec(…))")
    found = verdict(given)
    if isinstance(found, Undecided):
        raise RedalgError("a spec that is undecided", WHERE, found.missing, "ra.verdict(spec) says what is missing")
    cascade = written(given)
    if isinstance(found, NotDecomposable) and stage in (None, found.stage):
        return _refused(found, cascade)
    return _derived(given, found if isinstance(found, Form) else None, cascade, stage, seed)


# --- which table -----------------------------------------------------------------------------------------------------


def _refused(refusal: NotDecomposable, cascade: Written | None) -> tuple[Table, str, str, bool]:
    witness = refusal.witness
    step = next((s for s in cascade.stages if s.name == refusal.stage), None) if cascade is not None else None
    k = witness.slots_excluded
    what = "minor" if witness.kind == "minor" else "Jacobian"
    title = f"{refusal.stage} is refused: a {what} of {k} rows does not vanish,\n"
    title += f"so no form of its class has fewer than {k} slots"
    body = None if step is None or cascade is None else stage_body(counted(step.node, cascade.axis))
    if witness.kind != "minor" or body is None or step is None or cascade is None:
        return matrix_table(witness), title, wrapped(refusal.what, 3.4, most=2), True
    return witness_table(witness, body), title, _label(step, cascade), True


def _derived(
    spec: Spec, form: Form | None, cascade: Written, stage: str | None, seed: int
) -> tuple[Table, str, str, bool]:
    ranks = form.ranks if form is not None else {}
    step = _chosen(cascade, ranks, stage)
    rank = ranks.get(step.name)
    home = {s.name: s.passes for s in form.plan.stages} if form is not None else {}
    earlier = [s.node for s in cascade.stages if home.get(s.name, 1) < home.get(step.name, 1)]
    nodes = [counted(n, cascade.axis) for n in earlier]
    body = counted(step.node.args[0], cascade.axis)
    table = drawn_table(spec, body, cascade.axis, nodes, (rank or WRITTEN_OUT) + MORE, seed)
    size = len(table.values)
    if table.rank < size:
        verb = "determines" if table.rank == 1 else "determine"
        title = f"{step.name} separates: {table.rank} of {size} rows {verb} all others"
    else:
        title = f"{step.name}: none of {size} rows is determined by the others"
    if rank is not None:
        title += f"\n(rank {rank} in the form)"
    return table, title, _label(step, cascade), False


def _chosen(cascade: Written, ranks: Any, stage: str | None) -> Step:
    steps = {s.name: s for s in cascade.stages if s.node.attr.kind == "sum"}
    if stage is None and steps:
        return steps[max(steps, key=lambda name: ranks.get(name) or 0)]
    if stage in steps:
        return steps[stage]
    if not steps:
        why = "only the body of a sum has a separation rank; maxima and the like pull monotone maps out instead"
        raise RedalgError(
            f"a spec none of whose {len(cascade.stages)} stages is a sum", WHERE, why, "a spec with a sum"
        )
    known = listed(f"{name!r}" for name in steps)
    why = f"the stages that are sums, which alone have a separation rank, are {known}"
    raise RedalgError(f"stage={stage!r}", WHERE, why, "a stage as form.explain() names it")


def _label(step: Step, cascade: Written) -> str:
    body = stage_body(step.node)
    assert body is not None, "only sums and products have a table"
    return "F = " + formula(body, cascade.lines().names, 3.0)


# --- drawing ---------------------------------------------------------------------------------------------------------


def _heat_map(room: Axes, scale: Axes, table: Table, witness: bool) -> None:
    import numpy as np

    values = np.array([[float(v) for v in row] for row in table.values])
    image = room.imshow(values, aspect="auto", gid="table", **_colours(values))
    room.figure.colorbar(image, cax=scale).ax.tick_params(labelsize=SMALL)
    rows, width = values.shape
    if width <= WRITTEN_OUT:
        for p in range(rows):
            for q in range(width):
                room.text(
                    q,
                    p,
                    _brief(values[p, q]),
                    ha="center",
                    va="center",
                    fontsize=SMALL - 1,
                    bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.75},
                )
    if witness:
        _frames(room, table.rows, width)
    else:
        _rings(room, table)
    room.set_xlabel("context (stream)", fontsize=BODY)
    room.set_ylabel("element", fontsize=BODY)
    room.set_xticks(range(width), [str(q + 1) for q in range(width)], fontsize=SMALL - 1)
    room.set_yticks(range(rows), [str(p + 1) for p in range(rows)], fontsize=SMALL - 1)


def _brief(v: float) -> str:
    """
    >>> _brief(0.00019), _brief(-6.72), _brief(0.0)
    ('2e-4', '-6.7', '0')
    """
    return f"{v:.0e}".replace("e-0", "e-").replace("e+0", "e") if v and not 0.01 <= abs(v) < 1000 else f"{v:.2g}"


def _colours(values: Any) -> dict[str, Any]:
    """A map with 0 in its middle where both signs occur; logarithmic steps where values are far apart."""
    import numpy as np
    from matplotlib.colors import Normalize, SymLogNorm

    finite = np.abs(values[np.isfinite(values)])
    most = float(finite.max(initial=0.0)) or 1.0
    typical = float(np.median(finite[finite > 0])) if (finite > 0).any() else most
    both = (values < 0).any() and (values > 0).any()
    low, high = (-most, most) if both else (float(np.nanmin(values)), float(np.nanmax(values)))
    wide = most > 100 * typical
    norm = SymLogNorm(typical, vmin=low, vmax=high) if wide else Normalize(low, high)
    return {"cmap": "PuOr" if both else "cividis", "norm": norm}


def _rings(room: Axes, table: Table) -> None:
    """Pivots, visible on light and on dark."""
    for color, width, gid in ((BLACK, 3.4, None), ("white", 1.4, "pivots")):
        room.plot(table.columns, table.rows, ls="none", marker="o", ms=17, mfc="none", mec=color, mew=width, gid=gid)


def _frames(room: Axes, rows: tuple[int, ...], width: int) -> None:
    """A frame around every run of rows that belong to the minor."""
    from matplotlib.patches import Rectangle

    marked = sorted(rows)
    starts = [p for p in marked if p - 1 not in marked]
    for start in starts:
        end = next(p for p in range(start, max(marked) + 2) if p not in marked)
        frame = Rectangle(
            (-0.46, start - 0.44),
            width - 0.08,
            end - start - 0.12,
            fill=False,
            ec=RED,
            lw=2.2,
            gid="minor",
            clip_on=False,
        )
        room.add_patch(frame)


def _remainders(room: Axes, table: Table) -> None:
    """What is left after each row; an exact 0 stands at the bottom, hollow."""
    left = list(table.remainders)
    least = min([r for r in left if r > 0], default=1.0)
    room.plot(range(len(left)), left, color=BLUE, marker="o", ms=5, lw=1.2, gid="remainders")
    if left[0] > 0:
        room.set_yscale("log", nonpositive="mask")
    bottom = least / 30
    room.set_ylim(bottom, 3)
    for k, r in enumerate(left):
        if r == 0:
            room.plot([k - 1, k], [left[k - 1], bottom], color=BLUE, lw=1.2, ls=":")
            room.plot([k], [bottom], marker="o", ms=8, mfc="white", mec=BLUE, mew=1.8, clip_on=False, gid="zero")
            room.annotate("0", (k, bottom), (8, 4), textcoords="offset points", fontsize=BODY)
    dress(room, "rows used up")
    room.set_title("largest entry left", fontsize=BODY)
    room.set_xlim(-0.4, max(len(left) - 1, 1) + 0.6)
    room.set_xticks(range(len(left)), [str(k) for k in range(len(left))], fontsize=SMALL - (len(left) > 10))
