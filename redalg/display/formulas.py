"""A form's algebra as LaTeX in the notation of the theory: sides `a` and `b` as indices, corrections set apart.

A *correction* is what a slot is multiplied by, or shifted by, when its anchor moves: here every largest part of a merge
that consists of old and new anchors alone (of parameters too, but of no slot and no element).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from redalg import symbolic
from redalg.explain_text import Lines
from redalg.graph import Node, leaves, walk
from redalg.latex import LatexWriter, name_latex
from redalg.plan import PassPlan

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


# --- corrections -----------------------------------------------------------------------------------------------------


def corrected(p: PassPlan, values: Mapping[str, Node]) -> dict[str, Node]:
    """The merge of a pass with its corrections marked; what an anchor itself becomes corrects nothing."""
    anchors = {symbolic.alias(a, p) or a.name for a in p.anchors}
    marking = _Marking(anchors)
    return {name: node if name in anchors else marking(node) for name, node in values.items()}


class _Marking:
    def __init__(self, anchors: set[str]) -> None:
        self.old = {f"{name}_{side}" for name in anchors for side in "ab"}
        self.known = anchors | self.old
        self.done: dict[Node, Node] = {}

    def __call__(self, n: Node) -> Node:
        if n not in self.done:
            self.done[n] = self._marked(n)
        return self.done[n]

    def _marked(self, n: Node) -> Node:
        if self._of_anchors(n):
            return Node("marked", (n,)) if n.args and self._moves(n) else n
        if n.op == "add":
            own = [a for a in n.args if self._of_anchors(a)]
            shift = Node("add", tuple(own))
            if len(own) > 1 and self._moves(shift):
                return Node("add", (*(self(a) for a in n.args if a not in own), Node("marked", (shift,))))
        return Node(n.op, tuple(map(self, n.args)), n.attr) if n.args else n

    def _moves(self, n: Node) -> bool:
        return any(leaf.attr.name in self.old for leaf in leaves(n, "state"))

    def _of_anchors(self, n: Node) -> bool:
        """Whether it is made of anchors and parameters only, at least one of the former."""
        read = {leaf.attr.name for leaf in leaves(n, "state")}
        return bool(read) and read <= self.known and not any(x.op == "call" for x in walk(n))


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
    from redalg.explaining import aliased

    writer, over = FormWriter({}), ",".join(axis)
    if part.anchor is not None:
        return writer.text(part.anchor.generator)
    slot = part.slot
    if slot is None or part.name != slot.parts[0] and slot.kind != "monoid":
        return ""
    names = aliased(p)
    bodies = [writer.text(symbolic.resolve(b, names, {}), 1) for b in slot.lift]
    if slot.kind == "monoid":
        own = slot.parts.index(part.name)
        inside = ", ".join(bodies)
        return rf"\bigoplus^{{\mathrm{{{slot.extra.name}}}}}_{{{over}}} \left({inside}\right)_{{{own}}}"  # type: ignore[attr-defined]
    if slot.kind == "topk":
        return rf"\operatorname{{top}}_{{{slot.extra[0]}}}\,_{{{over}}} \, {bodies[0]}"  # type: ignore[index]
    big = _BIG.get(slot.kind, rf"\operatorname{{{slot.kind.removeprefix('arg')}}}")
    return (r"\tfrac{1}{n} " if slot.average else "") + f"{big}_{{{over}}} {bodies[0]}"
