"""Displays of verdicts other than a form: a refusal with its witness as a table, and what could not be decided."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redalg.display import markup as m
from redalg.text import colour as paint
from redalg.text.latex import node_latex
from redalg.text.terminal import element_text, shared_prefix, witness_meaning
from redalg.text.terminal import refusal as text_of

if TYPE_CHECKING:
    from redalg.errors import NotDecomposable, Undecided

ENTRY = 24  # characters of a number in a table; longer ones are given as floats
MORE = 12  # elements that all streams share which are shown


def refusal_html(verdict: NotDecomposable) -> str:
    about: list[list[object]] = [["refused", _formula(verdict)], ["reason", verdict.reason], ["scope", verdict.scope]]
    if verdict.passes is not None:
        about.append(["passes needed", str(verdict.passes)])
    about.append(["try", verdict.fix])
    shown = [m.table(about)]
    if verdict.witness is not None:
        shown += witness_blocks(verdict.witness)
    return m.page(m.Markup(f"<b>not decomposable: {m.cell(verdict.stage)}</b>"), *shown)


def _formula(verdict: NotDecomposable) -> object:
    """The refused stage as a formula where it is known as a node, else in words."""
    node = verdict.refuted[1] if verdict.refuted is not None else None
    return (m.formula(node_latex(node)) if node is not None else "") or verdict.what


def witness_blocks(witness: Any) -> list[m.Markup]:
    shared = shared_prefix(witness)
    names = [f"s{q}" for q in range(1, len(witness.streams) + 1)]
    ends = [", ".join(map(element_text, s[len(shared) :])) or "(nothing more)" for s in witness.streams]
    streams = m.table([["ends with", *ends]], ["stream", *names])
    rows = [
        [m.Markup(f"<b>{m.cell(element_text(point))}</b>"), *map(entry, row)]
        for point, row in zip(witness.points, witness.matrix, strict=True)
    ]
    head = f"Every stream begins with {_listed(shared)}." if shared else "The streams:"
    return [
        m.Markup("<b>witness</b>"),
        m.paragraph(head),
        streams,
        m.paragraph(f"Each entry is {witness_meaning(witness)}:"),
        m.table(rows, ["", *names]),
        m.paragraph(
            m.Markup(f"<b>determinant: {m.cell(_value(witness.value))}</b>"),
            "- not 0, so no fewer than",
            str(len(witness.points)),
            "slots can do.",
        ),
    ]


def _listed(elements: list[str]) -> str:
    if len(elements) <= MORE:
        return ", ".join(elements)
    half = MORE // 2
    return f"{', '.join(elements[:half])}, … {len(elements) - MORE} more …, {', '.join(elements[-half:])}"


def entry(value: Any) -> object:
    """A number that is exact where it is short; a long one as a float, with the exact one beneath the pointer."""
    text = str(value)
    if len(text) <= ENTRY:
        return text
    try:
        rounded = f"{float(value):.6g}"
    except (TypeError, ValueError, OverflowError):
        rounded = text[: ENTRY - 1] + "…"
    return m.Markup(f'<span title="{m.cell(text[:400]).replace(chr(34), "")}">≈ {m.cell(rounded)}</span>')


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"between {entry_text(value[0])} and {entry_text(value[1])}"
    return entry_text(value)


def entry_text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 3 * ENTRY else f"≈ {float(value):.6g}"


def refusal_plain(verdict: NotDecomposable | Undecided, colour: bool = False) -> str:
    return paint.labels(text_of(verdict)) if colour else text_of(verdict)


def undecided_html(verdict: Undecided) -> str:
    rows = [["stage", verdict.stage], ["about", verdict.what], ["missing", verdict.missing], ["try", verdict.fix]]
    return m.page(m.Markup("<b>undecided: neither a form nor a refutation was found</b>"), m.table(rows))


undecided_plain = refusal_plain
