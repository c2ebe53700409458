"""Displays of specs and forms: the definition on the left, the incremental form on the right, the state below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.algebra import state as symbolic
from redalg.algebra.corrections import corrected
from redalg.display import markup as m
from redalg.display.formulas import Rows, marked, meaning_latex, part_latex, rows
from redalg.explain.explanation import lifted, merged, state_shape, statistics, summary, taken_names
from redalg.graph.intervals import domain_text
from redalg.text import colour as paint
from redalg.text.latex import name_latex, spec_rows
from redalg.text.tables import plural

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec


# --- specs -----------------------------------------------------------------------------------------------------------


def spec_html(spec: Spec) -> str:
    tensors = [[m.Markup(f"<code>{m.cell(t)}</code>"), domain_text(t.domain) or "real"] for t in spec.tensors]
    made = [
        [m.Markup(f"<code>{name}[{','.join(axes)}]</code>"), "output" + _empty(spec, name)]
        for name, axes in spec.output_axes.items()
    ]
    return m.page(m.aligned(spec_rows(spec)), m.table([*tensors, *made]))


def _empty(spec: Spec, name: str) -> str:
    return f"; {spec.empty[name]} where no element is valid" if name in spec.empty else ""


def spec_plain(spec: Spec, colour: bool = False) -> str:
    lines = [line.strip() for line in str(spec).split(";") if line.strip()]
    return "\n".join(lines)


# --- forms -----------------------------------------------------------------------------------------------------------


def sections(form: Form) -> list[tuple[str, Rows]]:
    """Title -> equations of the incremental form, corrections marked."""
    taken, several = taken_names(form), len(form.plan.passes) > 1
    found: list[tuple[str, Rows]] = []
    for number, p in statistics(form.plan):
        title = f" of pass {number + 1}" if several else ""
        found.append((f"lift{title} (one element)", rows(lifted(p), taken)))
        found.append((f"combine{title} (a, then b)", rows(corrected(p, merged(p)), taken)))
        found.append((f"exports{title}", rows(symbolic.exports(form.plan, number), taken, name_latex)))
    found.append(("finalize", rows(symbolic.outputs(form.plan), taken, name_latex)))
    return [(title, equations) for title, equations in found if equations]


def form_html(form: Form) -> str:
    right = [m.titled(title, m.aligned(equations)) for title, equations in sections(form)]
    axis = ",".join(form.plan.axis)
    head = ["definition", f"incremental form along {axis}" if axis else "map of every element"]
    body = [m.aligned(spec_rows(form.spec)), m.Markup("<br>\n".join(right))]
    return m.page(
        m.table([body], head),
        _state(form),
        m.paragraph(*_words(form)),
        m.folded("why: explain()", m.preformatted(form.explain())),
    )


def _state(form: Form) -> m.Markup:
    if not form.passes.statistics:
        return m.paragraph("no state: every output is computed from one element")
    infos = {info.name: info for info in form.slots}
    found = []
    for _, p in statistics(form.plan):
        for part in symbolic.parts(p):
            info = infos.pop(part.name, None)
            if info is not None:
                formula, words = m.formula(meaning_latex(part, p, form.plan.axis)), info.meaning
                if part.anchor is not None:
                    words, formula = "scale of" if part.anchor.divides else "centre of", formula
                    meaning: object = m.Markup(f"{words} {formula}")
                else:
                    meaning = formula or words
                name = m.formula(part_latex(info.name))
                anchor = ", ".join(m.formula(part_latex(a)) for a in (info.anchor or "").split(", ") if a)
                found.append([name, info.monoid, state_shape(form, info.name), info.dtype, m.Markup(anchor), meaning])
    return m.table(found, ["slot", "⊕", "shape", "dtype", "anchor", "holds"])


def _words(form: Form) -> list[object]:
    statistics_passes, reads = form.passes
    found: list[object] = [f"{plural(statistics_passes, 'pass')} for the state, {plural(reads, 'read')} in all."]
    if any(a.generator for p in form.plan.passes for a in p.anchors):
        found += [m.formula(marked(r"\text{Underlined}")), "is what moves a slot with its anchor: the correction."]
    found += [f"Assumes {name}: {text}." for name, text in form.assumptions.items()]
    return found


def form_plain(form: Form, colour: bool = False) -> str:
    return paint.titles(summary(form, paint.correction)) if colour else summary(form)


def form_latex(form: Form) -> str:
    """Definition and incremental form side by side, as one display."""
    right: Rows = []
    for title, equations in sections(form):
        (left, first), *rest = equations
        right += [(rf"\text{{{title.split(' (')[0]}:}}\quad {left}", first), *rest]
    left = m.aligned_latex(spec_rows(form.spec)).removeprefix("\\displaystyle ")
    both = m.aligned_latex(right).removeprefix("\\displaystyle ")
    return f"$\\displaystyle \\begin{{array}}{{l|l}}\n{left} &\n{both}\n\\end{{array}}$"
