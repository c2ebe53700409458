"""Specs and nodes as LaTeX, with one line per binding."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node
from redalg.text.nodes import bindings

if TYPE_CHECKING:
    from redalg.language.spec import Spec

_ADD, _MUL, _ATOM = range(3)
_GREEK = frozenset(
    "alpha beta gamma delta epsilon eta theta lambda mu nu xi pi rho sigma tau phi chi psi omega".split()
)
_SYMBOL = {"lt": "<", "le": r"\le", "eq": "=", "ne": r"\ne"}
_JOIN = {"and": r" \land ", "or": r" \lor "}
_BIG = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min", "any": r"\exists", "all": r"\forall"}
_SPECIAL = {"oo": r"\infty", "-oo": r"-\infty", "pi": r"\pi", "nan": r"\mathrm{NaN}"}


def name_latex(name: str) -> str:
    """A name with its trailing number as index: ``max1`` is max₁."""
    stem, number = re.fullmatch(r"(.*?)_?(\d*)", name).groups()  # type: ignore[union-attr]
    stem = stem or "_"
    text = f"\\{stem}" if stem in _GREEK else stem if len(stem) == 1 else rf"\mathrm{{{stem}}}".replace("_", r"\_")
    return f"{text}_{{{number}}}" if number else text


class LatexWriter:
    """Nodes as LaTeX; `names` holds nodes that are already bound to a name."""

    def __init__(self, names: dict[Node, str] | None = None) -> None:
        self.names = names or {}

    def text(self, n: Node, level: int = _ADD) -> str:
        if n in self.names:
            return name_latex(self.names[n])
        own, text = self.written(n)
        return rf"\left({text}\right)" if own < level else text

    def written(self, n: Node) -> tuple[int, str]:
        rule = _RULES.get(n.op)
        row = FUNCTIONS.get(n.op)
        if row is not None and row.latex:
            return (_MUL if "^" in row.latex else _ATOM), row.latex.format(self.text(n.args[0]))
        return rule(self, n) if rule is not None else (_ATOM, self.called(n.op, *n.args))

    def product(self, factors: Sequence[Node]) -> str:
        """Factors side by side. A reduction takes what stands after it, so the last one stands at the end."""
        open_ended = [a for a in factors if a.op == "reduce" and a not in self.names]
        first = [a for a in factors if a not in open_ended]
        level = _MUL if len(factors) > 1 else _ADD
        texts = [self.text(a, level) for a in first] + [self.text(a, _ATOM) for a in open_ended[:-1]]
        return r" \, ".join(texts + [self.text(a, level) for a in open_ended[-1:]])

    def called(self, name: str, *args: Node) -> str:
        inside = ", ".join(self.text(a) for a in args)
        title = name.replace("_", r"\_")
        return rf"\operatorname{{{title}}}\left({inside}\right)"


def _const(w: LatexWriter, n: Node) -> tuple[int, str]:
    q = n.attr
    if q.denominator == 1:
        return (_ATOM if q >= 0 else _ADD), str(q)
    text = rf"\frac{{{abs(q.numerator)}}}{{{q.denominator}}}"
    return (_ATOM, text) if q > 0 else (_ADD, f"-{text}")


def _leaf(w: LatexWriter, n: Node) -> tuple[int, str]:
    name = name_latex(n.attr.name)
    axes = ",".join(map(str, n.attr.dimensions or n.attr.axes)).replace("*", r" \cdot ")
    return _ATOM, (rf"{{{name}}}_{{{axes}}}" if axes else name).replace("__", "_")


def _add(w: LatexWriter, n: Node) -> tuple[int, str]:
    terms = sorted((w.text(a, _MUL if a.op != "const" else _ADD) for a in n.args), key=lambda t: t.startswith("-"))
    return _ADD, " + ".join(terms).replace("+ -", "- ")


def _mul(w: LatexWriter, n: Node) -> tuple[int, str]:
    sign = n.args[0].op == "const" and n.args[0].attr < 0
    n = g.neg(n) if sign else n
    factors = n.args if n.op == "mul" else (n,)
    below = [a for a in factors if a not in w.names and g.is_inverse(a)]
    top = w.product([a for a in factors if a not in below]) or "1"
    if below:
        bottom = w.product([g.power(a.args[0], -a.args[1].attr) for a in below])
        top = rf"\frac{{{top}}}{{{bottom}}}"
    return _MUL, f"-{top}" if sign else top


def _pow(w: LatexWriter, n: Node) -> tuple[int, str]:
    base, e = n.args
    if e is g.HALF:
        return _ATOM, rf"\sqrt{{{w.text(base)}}}"
    if e.op == "const" and e.attr < 0:
        return _MUL, rf"\frac{{1}}{{{w.text(g.power(base, -e.attr))}}}"
    return _MUL, f"{{{w.text(base, _ATOM)}}}^{{{w.text(e)}}}"


def _where(w: LatexWriter, n: Node) -> tuple[int, str]:
    c, a, b = (w.text(x) for x in n.args)
    return _ATOM, rf"\begin{{cases}} {a} & {c} \\ {b} & \text{{otherwise}} \end{{cases}}"


def _compare(w: LatexWriter, n: Node) -> tuple[int, str]:
    return _ADD, f"{w.text(n.args[0])} {_SYMBOL[n.op]} {w.text(n.args[1])}"


def _joined(w: LatexWriter, n: Node) -> tuple[int, str]:
    return _ADD, _JOIN[n.op].join(w.text(a, _MUL) for a in n.args)


def _reduce(w: LatexWriter, n: Node) -> tuple[int, str]:
    kind, axes = n.attr.kind, ",".join(n.attr.axes)
    if kind in _BIG:
        return _MUL, f"{_BIG[kind]}_{{{axes}}} {w.text(n.args[0], _MUL)}"
    if kind == "monoid":
        monoid, part = n.attr.extra
        inside = ", ".join(w.text(a) for a in n.args)
        return _ATOM, rf"\bigoplus^{{\mathrm{{{monoid.name}}}}}_{{{axes}}} \left({inside}\right)_{{{part}}}"
    name, _, part = kind.partition("_")
    below = axes if name != "topk" else rf"{axes} \to {n.attr.extra[1]}, {n.attr.extra[0]}".replace("_", r"\_")
    text = rf"\operatorname{{{name}}}_{{{below}}} {w.text(n.args[0], _MUL)}"
    return _MUL, rf"\left[{text}\right]_{{\mathrm{{{part}}}}}" if part else text


_RULES: dict[str, Callable[[LatexWriter, Node], tuple[int, str]]] = {
    "const": _const,
    "special": lambda w, n: (_ADD if n.attr == "-oo" else _ATOM, _SPECIAL.get(n.attr, n.attr)),
    "tensor": _leaf,
    "state": _leaf,
    "index": lambda w, n: (_ATOM, n.attr),
    "size": lambda w, n: (_ATOM, f"|{n.attr}|"),
    "add": _add,
    "mul": _mul,
    "pow": _pow,
    "where": _where,
    "reduce": _reduce,
    "and": _joined,
    "or": _joined,
    "eq": _compare,
    "ne": _compare,
    "lt": _compare,
    "le": _compare,
    "not": lambda w, n: (_ATOM, rf"\lnot {w.text(n.args[0], _ATOM)}"),
    "maximum": lambda w, n: (_ATOM, rf"\max\left({', '.join(map(w.text, n.args))}\right)"),
    "minimum": lambda w, n: (_ATOM, rf"\min\left({', '.join(map(w.text, n.args))}\right)"),
    "cast": lambda w, n: (_ATOM, w.called(f"cast_{n.attr}", *n.args)),
}


def node_latex(node: Node) -> str:
    """The LaTeX of one node, as a tree (for small expressions)."""
    return LatexWriter().text(node)


def spec_rows(spec: Spec) -> list[tuple[str, str]]:
    """(left, right) of every binding and output, in order."""
    writer, rows = LatexWriter(), []
    for name, node in bindings(spec):
        rows.append((name_latex(name), writer.written(node)[1]))
        writer.names[node] = name
    for name, node in spec.outputs.items():
        if writer.names.get(node) != name:
            rows.append((name_latex(name), writer.text(node)))
    return rows


def spec_latex(spec: Spec) -> str:
    """One aligned display with one line per binding and per output."""
    lines = [f"{left} &= {right}" for left, right in spec_rows(spec)]
    return "$\\displaystyle \\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}$"
