"""Text of graphs: one-line descriptions of nodes, and specs with let-bindings (never as a tree)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from redalg import graph as g
from redalg.graph import Decl, Node
from redalg.words import RESERVED

if TYPE_CHECKING:
    from redalg.spec import Spec

_OR, _AND, _NOT, _COMPARE, _ADD, _MUL, _NEG, _POW, _ATOM = range(9)
_SYMBOL = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_SHORT = 160  # tree nodes a one-line description may have


def short(node: Node) -> str:
    """One line for messages: the whole expression if its tree is small, else its operation and digest.

    >>> short(g.mul(g.const(2), g.tensor("x", "j")))
    '2*x[j]'
    """
    weight: dict[Node, int] = {}
    for n in g.walk(node):
        weight[n] = 1 + sum(weight[a] for a in n.args)
    if weight[node] <= _SHORT:
        return Writer({}).text(node)
    name = node.attr.kind + "[" + ",".join(node.attr.axes) + "]" if node.op == "reduce" else node.op
    return f"{name}(#{node.digest.hex()[:8]})"


def number_text(q: Fraction) -> str:
    """A rational that reads back exactly: an integer, a decimal that the float holds, or a quotient."""
    if q.denominator == 1:
        return str(q.numerator)
    if q.denominator > 1024 and q.denominator & (q.denominator - 1) == 0:
        try:
            if Fraction(float(q)) == q:
                return repr(float(q))
        except OverflowError:
            pass
    return f"{q.numerator}/{q.denominator}"


class Writer:
    """Nodes as text of the grammar; `names` holds nodes that are already bound to a name."""

    def __init__(self, names: Mapping[Node, str]) -> None:
        self.names = names

    def text(self, node: Node, level: int = _OR) -> str:
        """The text of a node, in parentheses if it binds weaker than `level`."""
        bound = self.names.get(node)
        if bound is not None:
            return bound
        own, text = self.written(node)
        return f"({text})" if own < level else text

    def written(self, n: Node) -> tuple[int, str]:
        rule = _RULES.get(n.op)
        if rule is not None:
            return rule(self, n)
        return _ATOM, f"{n.op}({self.listed(n.args)})"

    def listed(self, nodes: tuple[Node, ...]) -> str:
        return ", ".join(self.text(a) for a in nodes)


def _const(w: Writer, n: Node) -> tuple[int, str]:
    text = number_text(n.attr)
    return (_NEG if n.attr < 0 else _MUL if "/" in text else _ATOM), text


def _special(w: Writer, n: Node) -> tuple[int, str]:
    return (_NEG if n.attr == "-oo" else _ATOM), {"e": "exp(1)", "i": "1i"}.get(n.attr, n.attr)


def _leaf(w: Writer, n: Node) -> tuple[int, str]:
    return _ATOM, str(n.attr)


def _add(w: Writer, n: Node) -> tuple[int, str]:
    ordered = sorted(n.args, key=lambda a: _negative(a) is not None)
    text = w.text(ordered[0], _ADD)
    for a in ordered[1:]:
        positive = _negative(a)
        text += f" + {w.text(a, _MUL)}" if positive is None else f" - {w.text(positive, _MUL)}"
    return _ADD, text


def _negative(n: Node) -> Node | None:
    """The node x of -x, where x is written with one sign less."""
    if n.op == "const" and n.attr < 0:
        return g.const(-n.attr)
    return g.neg(n) if n.op == "mul" and n.args[0].op == "const" and n.args[0].attr < 0 else None


def _mul(w: Writer, n: Node) -> tuple[int, str]:
    positive = _negative(n)
    if positive is not None and positive.op != "add":
        return _NEG, "-" + w.text(positive, _MUL)
    above, below = [], []
    for a in n.args:
        if a not in w.names and a.op == "pow" and a.args[1].op == "const" and a.args[1].attr < 0:
            below.append(g.power(a.args[0], -a.args[1].attr))
        else:
            above.append(a)
    above.sort(key=lambda a: a.op != "const")
    text = " * ".join(w.text(a, _MUL if i == 0 else _NEG) for i, a in enumerate(above)) or "1"
    return _MUL, text + "".join(f" / {w.text(b, _POW)}" for b in below)


def _pow(w: Writer, n: Node) -> tuple[int, str]:
    base, e = n.args
    if e is g.HALF:
        return _ATOM, f"sqrt({w.text(base)})"
    if e.op == "const" and e.attr < 0:
        return _MUL, f"1 / {w.text(g.power(base, -e.attr), _POW)}"
    return _POW, f"{w.text(base, _ATOM)}**{w.text(e, _ATOM)}"


def _comparison(w: Writer, n: Node) -> tuple[int, str]:
    return _COMPARE, f"{w.text(n.args[0], _ADD)} {_SYMBOL[n.op]} {w.text(n.args[1], _ADD)}"


def _joined(level: int) -> Callable[[Writer, Node], tuple[int, str]]:
    return lambda w, n: (level, f" {n.op} ".join(w.text(a, level + 1) for a in n.args))


def _reduce(w: Writer, n: Node) -> tuple[int, str]:
    axes, body = ",".join(n.attr.axes), w.listed(n.args)
    if n.attr.kind.startswith("topk"):
        k, axis = n.attr.extra
        return _ATOM, f"topk[{axes}:{k}:{axis}]({body}).{n.attr.kind.removeprefix('topk_')}"
    if n.attr.kind == "monoid":
        monoid, part = n.attr.extra
        return _ATOM, f"reduce[{axes}:{monoid.name}]({body}).{part}"
    return _ATOM, f"{n.attr.kind}[{axes}]({body})"


_RULES: dict[str, Callable[[Writer, Node], tuple[int, str]]] = {
    "const": _const, "special": _special, "true": lambda w, n: (_ATOM, "true"), "false": lambda w, n: (_ATOM, "false"),
    "tensor": _leaf, "state": _leaf, "index": lambda w, n: (_ATOM, f"index[{n.attr}]"),
    "size": lambda w, n: (_ATOM, f"size[{n.attr}]"), "add": _add, "mul": _mul, "pow": _pow,
    "eq": _comparison, "ne": _comparison, "lt": _comparison, "le": _comparison,
    "and": _joined(_AND), "or": _joined(_OR), "not": lambda w, n: (_NOT, f"not {w.text(n.args[0], _COMPARE)}"),
    "cast": lambda w, n: (_ATOM, f"cast({w.text(n.args[0])}, {n.attr})"), "reduce": _reduce,
    "unsupported": lambda w, n: (_ATOM, f"{n.attr[1]}({w.listed(n.args)})" if n.args else n.attr[1]),
}  # fmt: skip


# --- specs ---------------------------------------------------------------------------------------------------------


def bindings(spec: Spec) -> tuple[dict[Node, str], list[Node]]:
    """Names for the nodes worth a line of their own, in an order in which each uses earlier ones only."""
    uses: dict[Node, int] = {}
    nodes = list(g.walk(*spec.outputs.values()))
    for n in nodes:
        for a in n.args:
            uses[a] = uses.get(a, 0) + 1
    taken = {t.name for t in spec.tensors} | set(spec.outputs) | {a for a in spec.axes}
    outputs: dict[Node, str] = {}
    for name, n in spec.outputs.items():
        if n.args and bindable(name, spec):
            outputs.setdefault(n, name)
    names: dict[Node, str] = {}
    for n in nodes:
        if n in outputs:
            names[n] = outputs[n]
        elif n.args and (uses.get(n, 0) > 1 or n.op == "reduce" and n.attr.kind != "monoid"):
            if _worth(n):
                names[n] = _fresh(n, taken)
    return names, [n for n in nodes if n in names]


def bindable(name: str, spec: Spec) -> bool:
    """Whether an output's name may be bound on a line of its own: no tensor and no word of the grammar has it."""
    return name not in RESERVED and all(name != t.name for t in spec.tensors)


def _worth(n: Node) -> bool:
    """A power with a constant exponent or a constant multiple is shorter than a name, and prints as a quotient."""
    return not (n.op in ("pow", "mul") and len(n.args) == 2 and any(a.op == "const" for a in n.args))


def _fresh(n: Node, taken: set[str]) -> str:
    stem = n.attr.kind if n.op == "reduce" else "t"
    number = 1
    while f"{stem}{number}" in taken:
        number += 1
    taken.add(f"{stem}{number}")
    return f"{stem}{number}"


def _declaration(d: Decl) -> str:
    return " ".join([str(d), *sorted(d.domain)])


def spec_text(spec: Spec) -> str:
    """The statements of a spec, separated by semicolons; `parse` reads them back."""
    return ""


def spec_latex(spec: Spec) -> str:
    return ""
