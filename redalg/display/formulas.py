"""A form's algebra as LaTeX in the notation of the theory: sides `a` and `b` as indices, corrections set apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from redalg.algebra import state as symbolic
from redalg.explain.explanation import aliased
from redalg.graph.node import Node
from redalg.graph.operators import Custom, TopK
from redalg.graph.plan import PassPlan
from redalg.text.latex import LatexWriter, name_latex
from redalg.text.tables import Lines

CORRECTION = "#D55E00"  # vermilion of Okabe and Ito (2008), legible on white and on black
Rows = list[tuple[str, str]]


def part_latex(name: str) -> str:
    """A part of the state, with its side and with a prime once it is moved: ``sum_exp_a'``.

    >>> part_latex("A_x"), part_latex("sum_exp_a'")
    ('A_{x}', "\\\\mathrm{sum\\\\_exp}_{a}'")
    """
    stem, side, prime = re.fullmatch(r"(.+?)(?:_([ab]))?('?)", name).groups()  # type: ignore[union-attr]
    head, _, rest = stem.partition("_")
    if len(head) == 1 and rest and "_" not in rest:
        return f"{head}_{{{','.join(filter(None, (rest, side)))}}}{prime}"
    text = stem if len(stem) == 1 else rf"\mathrm{{{stem}}}".replace("_", r"\_")
    return text + (f"_{{{side}}}" if side else "") + prime


def marked(text: str) -> str:
    """LaTeX in the colour of corrections, underlined; the braces suit both conventions of ``color``."""
    return rf"{{\color{{{CORRECTION}}}{{\underline{{{text}}}}}}}"


class FormWriter(LatexWriter):
    """LaTeX of nodes over states; what is ``marked`` is set apart."""

    def written(self, n: Node) -> tuple[int, str]:
        if n.op == "state":
            return 2, part_latex(n.attr.name)
        if n.op == "call":
            return 2, self.called(n.attr, *n.args)
        if n.op == "marked":
            (inner,) = n.args
            level, text = super().written(inner)
            return (2, marked(rf"\left({text}\right)")) if inner.op == "add" else (level, marked(text))
        return super().written(n)


# --- equations -------------------------------------------------------------------------------------------------------


def rows(values: Mapping[str, Node], taken: set[str], name: Callable[[str], str] = part_latex) -> Rows:
    """Equations as (left, right), parts that are shared first, under names of their own."""
    lines = Lines(values.values(), taken)
    writer = FormWriter(lines.names)
    shared = [(name_latex(word), writer.written(node)[1]) for node, word in lines.new.items()]
    return shared + [(name(word), writer.text(node)) for word, node in values.items()]


_BIG = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "any": r"\exists", "all": r"\forall"}


def meaning_latex(part: symbolic.Part, p: PassPlan, axis: tuple[str, ...]) -> str:
    """What a part of the state holds, as a formula; empty for what has none (the count, positions)."""
    writer, over = FormWriter({}), ",".join(axis)
    if part.anchor is not None:
        return writer.text(part.anchor.generator)
    slot = part.slot
    if slot is None or part.name != slot.parts[0] and not isinstance(slot.op, Custom):
        return ""
    names = aliased(p)
    bodies = [writer.text(symbolic.resolve(b, names, {}), 1) for b in slot.lift]
    if isinstance(slot.op, Custom):
        own = slot.parts.index(part.name)
        inside = ", ".join(bodies)
        return rf"\bigoplus^{{\mathrm{{{slot.op.monoid.name}}}}}_{{{over}}} \left({inside}\right)_{{{own}}}"
    if isinstance(slot.op, TopK):
        return rf"\operatorname{{top}}_{{{slot.op.k}}}\,_{{{over}}} \, {bodies[0]}"
    big = _BIG.get(slot.kind, rf"\operatorname{{{slot.kind.removeprefix('arg')}}}")
    return (r"\tfrac{1}{n} " if slot.average else "") + f"{big}_{{{over}}} {bodies[0]}"
