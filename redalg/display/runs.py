"""Displays of compiled forms and of the bytes they move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg.display import markup as m
from redalg.display.formulas import part_latex
from redalg.text import colour as paint

if TYPE_CHECKING:
    from redalg.kernels.traffic import Traffic

WAYS = ("op_by_op", "stage_by_stage", "fused")


def run_html(run: Any) -> str:
    form, source = run.form, run.source
    rows: list[list[object]] = [
        ["target", run.target],
        ["schedule", str(run.schedule)],
        ["reads", ", ".join(map(str, form.spec.tensors))],
        ["writes", ", ".join(f"{name}[{','.join(axes)}]" for name, axes in form.spec.output_axes.items())],
        ["state", m.Markup(", ".join(m.formula(part_latex(s.name)) for s in form.slots) or "none")],
    ]
    lines = len(source.splitlines())
    return m.page(
        m.Markup(f"<b>{m.cell(', '.join(form.spec.outputs))} as a {m.cell(run.target)} kernel</b>"),
        m.table(rows),
        m.folded(f"source, {lines} lines", m.python(source)),
    )


def run_plain(run: Any, colour: bool = False) -> str:
    lines = [repr(run), f"  schedule: {run.schedule}", f"  source:   {len(run.source.splitlines())} lines, run.source"]
    return paint.titles("\n".join(lines)) if colour else "\n".join(lines)


def traffic_html(t: Traffic) -> str:
    rows = []
    for name in WAYS:
        moved = getattr(t, name)
        seconds = "" if moved.seconds is None else f"{moved.seconds:.3g}"
        times = f"{moved.bytes / t.fused.bytes:.3g}" if t.fused.bytes else ""
        rows.append([name.replace("_", " "), f"{moved.read:,}", f"{moved.written:,}", moved.passes, times, seconds])
    return m.page(m.table(rows, ["", "bytes read", "bytes written", "passes", "× fused", "seconds"]))


def traffic_plain(t: Traffic, colour: bool = False) -> str:
    return str(t)
