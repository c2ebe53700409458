"""Text of graphs: one-line descriptions of nodes, and specs with let-bindings (never as a tree)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from redalg.graph import node as g
from redalg.graph.intervals import domain_text
from redalg.graph.node import Decl, Node
from redalg.text.words import RESERVED

if TYPE_CHECKING:
    from redalg.language.spec import Spec

_OR, _AND, _NOT, _COMPARE, _ADD, _MUL, _NEG, _POW, _ATOM = range(9)
ATOM = _ATOM  # binds tightest
_SYMBOL = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_SHORT = 100  # tree nodes a one-line description may have
_NEST = 15  # levels of parentheses before a part gets a name


def short(node: Node) -> str:
    """One line for messages: the whole expression if its tree is small, else its operation and digest.

    >>> short(g.mul(g.const(2), g.tensor("x", "j")))
    '2 * x[j]'
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

    def __init__(self, names: dict[Node, str]) -> None:
        self.names = names
        self.read: dict[Decl, None] = {}  # tensors in order of their first appearance in the text

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
    if n.op == "tensor":
        w.read.setdefault(n.attr)
    return _ATOM, str(n.attr)


def _add(w: Writer, n: Node) -> tuple[int, str]:
    signed = [(a, None if a in w.names else _negative(a)) for a in n.args]
    signed.sort(key=lambda pair: pair[1] is not None)
    text = w.text(signed[0][0], _ADD)
    for a, positive in signed[1:]:
        text += f" + {w.text(a, _MUL)}" if positive is None else f" - {w.text(positive, _MUL)}"
    return _ADD, text


def _negative(n: Node) -> Node | None:
    """The node x of -x, where x is written with one sign less."""
    if n.op == "const" and n.attr < 0:
        return g.const(-n.attr)
    return g.neg(n) if n.op == "mul" and n.args[0].op == "const" and n.args[0].attr < 0 else None


def _mul(w: Writer, n: Node) -> tuple[int, str]:
    positive = _negative(n)
    sums = any(a.op == "add" for a in n.args)  # a constant before a sum would be multiplied out, so it goes last
    if positive is not None:
        return _NEG, "-" + w.text(positive, _POW if sums else _MUL)
    above, below = _fraction(w, n)
    last = [a for a in above if a.op == "const"] if sums and len(n.args) > 2 else []
    above = sorted((a for a in above if a not in last), key=lambda a: a.op != "const")
    text = " * ".join(w.text(a, _MUL if i == 0 else _NEG) for i, a in enumerate(above)) or "1"
    text += "".join(f" / {w.text(b, _POW)}" for b in below)
    return _MUL, text + "".join(f" * {w.text(c, _MUL)}" for c in last)


def _fraction(w: Writer, n: Node) -> tuple[list[Node], list[Node]]:
    """The factors above and below the line of a product."""
    above, below = [], []
    for a in n.args:
        if a not in w.names and g.is_inverse(a):
            below.append(g.power(a.args[0], -a.args[1].attr))
        else:
            above.append(a)
    return above, below


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
    "const": _const,
    "special": _special,
    "true": lambda w, n: (_ATOM, "true"),
    "false": lambda w, n: (_ATOM, "false"),
    "tensor": _leaf,
    "state": _leaf,
    "index": lambda w, n: (_ATOM, f"index[{n.attr}]"),
    "size": lambda w, n: (_ATOM, f"size[{n.attr}]"),
    "add": _add,
    "mul": _mul,
    "pow": _pow,
    "eq": _comparison,
    "ne": _comparison,
    "lt": _comparison,
    "le": _comparison,
    "and": _joined(_AND),
    "or": _joined(_OR),
    "not": lambda w, n: (_NOT, f"not {w.text(n.args[0], _COMPARE)}"),
    "cast": lambda w, n: (_ATOM, f"cast({w.text(n.args[0])}, {n.attr})"),
    "reduce": _reduce,
    "unsupported": lambda w, n: (_ATOM, f"{n.attr[1]}({w.listed(n.args)})" if n.args else n.attr[1]),
}


# --- specs ---------------------------------------------------------------------------------------------------------


def bindings(spec: Spec) -> list[tuple[str, Node]]:
    """The nodes worth a line of their own, with names, in an order in which each uses earlier ones only."""
    roots = tuple(spec.outputs.values())
    uses, depth = _uses(roots), dict[Node, int]()
    tensors = {t.name for t in spec.tensors}
    taken = tensors | set(spec.outputs)
    outputs: dict[Node, str] = {}
    for name, n in spec.outputs.items():
        if n.args and name not in RESERVED and name not in tensors:
            outputs.setdefault(n, name)
    found = []
    for n in g.walk(*roots):
        depth[n] = 1 + max((depth[a] for a in n.args), default=0)
        shared = uses.get(n, 0) > 1 and not _brief(n)
        if n in outputs or n.args and (shared or n.op == "reduce" or depth[n] > _NEST):
            found.append((outputs.get(n) or _fresh(n, taken), n))
            depth[n] = 0
    return found


def _uses(roots: tuple[Node, ...]) -> dict[Node, int]:
    uses: dict[Node, int] = {}
    for n in g.walk(*roots):
        for a in n.args:
            uses[a] = uses.get(a, 0) + 1
    return uses


def _brief(n: Node) -> bool:
    """A constant power or multiple of something short is shorter than a name, and may print as a quotient."""
    short_args = all(not a.args or a.op == "reduce" for a in n.args)
    return n.op in ("pow", "mul") and short_args and len(n.args) == 2 and any(a.op == "const" for a in n.args)


def _fresh(n: Node, taken: set[str]) -> str:
    stem = n.attr.kind if n.op == "reduce" else "t"
    number = 1
    while f"{stem}{number}" in taken:
        number += 1
    taken.add(f"{stem}{number}")
    return f"{stem}{number}"


def spec_text(spec: Spec) -> str:
    """The statements of a spec, separated by semicolons; `parse` reads them back as an equal spec."""
    writer = Writer({})
    lines = [_monoid_text(m) for m in _monoids(spec)]
    for name, node in bindings(spec):
        lines.append(f"{name} = {writer.written(node)[1]}")
        writer.names[node] = name
    items = []
    for name, node in spec.outputs.items():
        text = writer.text(node)
        items.append(name if text == name and node.args else f"{name} = {text}")
    default = {n: tuple(a for a in spec.axes if a in node.axes) for n, node in spec.outputs.items()}
    lines += [f"order {n} = {' '.join(axes)}" for n, axes in spec.output_axes.items() if axes != default[n]]
    lines += [f"empty {n} = {_empty_text(v)}" for n, v in spec.empty.items()]
    lines += [f"dtype {n} = {word}" for n, word in spec.dtypes.items()]
    lines.append("return " + ", ".join(items))
    if any(t.domain for t in spec.tensors) or spec.tensors != tuple(writer.read):
        lines.insert(0, "tensors " + ", ".join(f"{t} {domain_text(t.domain)}".rstrip() for t in spec.tensors))
    return "; ".join(lines)


def _empty_text(value: Fraction | float) -> str:
    if isinstance(value, Fraction):
        return number_text(value)
    return "nan" if value != value else "oo" if value > 0 else "-oo"


def _monoids(spec: Spec) -> dict[Any, None]:
    reduces = (n.attr for n in g.walk(*spec.outputs.values()) if n.op == "reduce")
    return dict.fromkeys(attr.extra[0] for attr in reduces if attr.kind == "monoid")


def _monoid_text(m: Any) -> str:
    def group(nodes: tuple[Node, ...]) -> str:
        inside = Writer({}).listed(nodes)
        return inside if m.single else f"({inside})" if len(nodes) > 1 else f"({inside},)"

    text = f"monoid {m.name} = {group(m.combined)} identity {group(m.identity_nodes)}"
    text += " commutative" if m.commutative else ""
    return text + "".join(f" action {name} = {group(nodes)}" for name, nodes in m.acted)
