"""Graph nodes as NumPy expressions over named axes.

Every value has its axes in one fixed order (the layout), and only those it varies along. Where operands differ, new
dimensions are indexed in, as in ``m[:, None]``; products summed over an axis become ``np.einsum``. What is used more
than once is assigned to a name first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from redalg.graph import COMPARISONS, Node, is_const, walk
from redalg.naming import axis_name, local, operand_name
from redalg.plan import key
from redalg.void import split_exponent

COMPARE, ADD, MUL, SIGN, POW, ATOM = range(6)  # how strongly a text binds
LONG = 14  # operations from which on an expression gets a line of its own
NUMPY = {
    "asin": "np.arcsin", "acos": "np.arccos", "atan": "np.arctan", "asinh": "np.arcsinh", "acosh": "np.arccosh",
    "atanh": "np.arctanh", "conj": "np.conj", "re": "np.real", "im": "np.imag", "erf": "erf", "erfc": "erfc",
    "sigmoid": "sigmoid", "relu": "relu", "pow2": "pow2", "not": "np.logical_not",
}  # fmt: skip
SPECIAL = {"oo": "np.inf", "-oo": "-np.inf", "nan": "np.nan", "pi": "np.pi", "e": "np.e", "i": "1j"}
RELATION = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}


class Body:
    """The statements of one function, in order, and the names they have defined."""

    def __init__(self, layout: Sequence[str], stored: Mapping[str, tuple[str, ...]]) -> None:
        self.layout, self.stored = tuple(layout), stored  # the axes in which each leaf's array is held
        self.lines: list[str] = []
        self.names: dict[Node, str] = {}
        self._uses: dict[Node, int] = {}
        self._weight: dict[Node, int] = {}

    # --- statements ---

    def announce(self, roots: Iterable[Node]) -> None:
        """Count the uses of everything below the roots that will be written, so that shared nodes get names."""
        for node in walk(*roots):
            for a in node.args:
                self._uses[a] = self._uses.get(a, 0) + 1

    def assign(self, name: str, node: Node) -> None:
        self.lines.append(f"{local(name)} = {self.text(node)}")

    def write(self, line: str) -> None:
        self.lines.append(line)

    # --- expressions ---

    def axes(self, node: Node) -> tuple[str, ...]:
        return tuple(a for a in self.layout if a in node.axes)

    def text(self, node: Node, level: int = COMPARE) -> str:
        """The node at its own axes, in parentheses if it binds weaker than `level`."""
        name = self.names.get(node)
        if name is not None:
            return name
        own, text = self._written(node)
        if self._deserves_name(node):
            name = self.names[node] = f"t{sum(n.startswith('t') and n[1:].isdigit() for n in self.names.values()) + 1}"
            self.lines.append(f"{name} = {text}")
            return name
        return f"({text})" if own < level else text

    def _deserves_name(self, node: Node) -> bool:
        if not node.args or node.op == "special":
            return False
        weight = 1 + sum(1 if a in self.names else self._weight.get(a, 1) for a in node.args)
        self._weight[node] = weight
        shared = self._uses.get(node, 0) > 1 and (weight > 3 or node.op in ("reduce", "exp", "where", "pow"))
        if shared or weight > LONG:
            self._weight[node] = 1
            return True
        return False

    def at(self, node: Node, axes: Sequence[str], level: int = COMPARE) -> str:
        """The node's text with dimensions indexed in so that it broadcasts over `axes`."""
        own = self.axes(node)
        missing = [a in own for a in axes]
        if not own or tuple(axes[len(axes) - len(own) :]) == own:
            return self.text(node, level)
        index = ", ".join(":" if has else "None" for has in missing)
        return f"{self.text(node, ATOM)}[{index}]"

    def _written(self, node: Node) -> tuple[int, str]:
        axes = self.axes(node)
        rule = _RULES.get(node.op)
        if rule is not None:
            return rule(self, node, axes)
        if node.op in COMPARISONS:
            left, right = (self.at(a, axes, ADD) for a in node.args)
            return COMPARE, f"{left} {RELATION[node.op]} {right}"
        return ATOM, f"{NUMPY.get(node.op, 'np.' + node.op)}({self.text(node.args[0])})"

    def reduced(self, function: str, node: Node, over: Sequence[str], **options: object) -> str:
        """A NumPy reduction of the node over axes; one it lacks is put in with its length."""
        lacking = [a for a in over if a not in node.axes]
        axes = tuple(a for a in self.layout if a in node.axes or a in over)
        text = self.at(node, axes) if lacking or not node.axes else self.text(node)
        if lacking:
            text = f"np.broadcast_to({text}, ({', '.join(map(self._length, axes))},))"
        places = tuple(axes.index(a) for a in over)
        more = "".join(f", {k}={v}" for k, v in options.items())
        return f"{function}({text}, axis={places[0] if len(places) == 1 else places}{more})"

    def _length(self, axis: str) -> str:
        return f"size_{axis_name(axis)}"


# --- one rule per operation ----------------------------------------------------------------------------------------

Rule = Callable[[Body, Node, tuple[str, ...]], tuple[int, str]]


def number(q: Fraction) -> tuple[int, str]:
    if q.denominator == 1:
        return (SIGN if q < 0 else ATOM), str(q.numerator)
    return MUL, f"{q.numerator} / {q.denominator}"


def _leaf(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    """An array as it is held, its dimensions brought into the layout's order (it may be read along renamed axes)."""
    declared = b.stored.get(key(node), axes)
    held = declared if node.op == "tensor" else tuple(a for a in b.layout if a in declared)
    renamed = dict(zip(declared, node.attr.axes, strict=True)) if len(declared) == len(node.attr.axes) else {}
    labels = [renamed.get(a, a) for a in held]
    order = tuple(labels.index(a) for a in axes)
    name = (operand_name if node.op == "tensor" else local)(node.attr.name)
    return ATOM, name if order == tuple(range(len(order))) else f"{name}.transpose{order}"


def _add(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    """Differences are written as differences; what varies most comes first."""
    terms = sorted(node.args, key=lambda t: (_is_minus(t), -len(t.axes)))
    text = b.at(terms[0], axes, ADD)
    for t in terms[1:]:
        text += f" - {b.at(_negated(t), axes, MUL)}" if _is_minus(t) else f" + {b.at(t, axes, MUL)}"
    return ADD, text


def _is_minus(t: Node) -> bool:
    return t.op in ("mul", "const") and (t if t.op == "const" else t.args[0]).op == "const" and _first(t) < 0


def _first(t: Node) -> Fraction:
    found: Fraction = t.attr if t.op == "const" else t.args[0].attr
    return found


def _negated(t: Node) -> Node:
    if t.op == "const":
        return Node("const", (), -t.attr)
    rest = t.args[1:] if t.args[0].attr == -1 else (Node("const", (), -t.args[0].attr), *t.args[1:])
    return rest[0] if len(rest) == 1 else Node("mul", rest)


def _mul(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    if node.args[0].op == "const" and node.args[0].attr == -1:
        return SIGN, f"-{b.at(_negated(node), axes, SIGN)}"
    below = [f for f in node.args if f.op == "pow" and f.args[1].op == "const" and f.args[1].attr < 0]
    above = [f for f in node.args if f not in below]
    text = " * ".join(b.at(f, axes, MUL) for f in above) or "1"
    for f in below:
        inverse = f.args[0] if f.args[1].attr == -1 else Node("pow", (f.args[0], Node("const", (), -f.args[1].attr)))
        text += f" / {b.at(inverse, axes, SIGN)}"
    return MUL, text


def _pow(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    base, e = node.args
    if e.op == "const" and e.attr == Fraction(1, 2):
        return ATOM, f"np.sqrt({b.at(base, axes)})"
    if e.op == "const" and e.attr < 0:
        inverse = base if e.attr == -1 else Node("pow", (base, Node("const", (), -e.attr)))
        return MUL, f"1 / {b.at(inverse, axes, SIGN)}"
    return POW, f"{b.at(base, axes, ATOM)} ** {b.at(e, axes, ATOM)}"


def _exp(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    split = split_exponent(node.args[0])
    if split is None:
        return ATOM, f"np.exp({b.at(node.args[0], axes)})"
    u, c = b.at(split.u, axes), b.at(split.c, axes)
    if is_const(split.scale):
        return ATOM, f"exp_centred({u}, {c})"
    return ATOM, f"exp_scaled({b.at(node.args[0], axes)}, {u}, {c}, {b.at(split.scale, axes)})"


def _nested(function: str) -> Rule:
    def rule(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
        text = b.at(node.args[0], axes)
        for a in node.args[1:]:
            text = f"{function}({text}, {b.at(a, axes)})"
        return ATOM, text

    return rule


def _call(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    """The merge of two sorted lists; their dimension is the last one of the first list's declaration."""
    place = axes.index(node.args[0].attr.axes[-1])
    return ATOM, f"{node.attr}({', '.join(b.at(a, axes) for a in node.args)}, axis={place})"


def _reduce(b: Body, node: Node, axes: tuple[str, ...]) -> tuple[int, str]:
    kind, over, body = node.attr.kind, node.attr.axes, node.args[0]
    if kind == "sum":
        return ATOM, summed(b, body, over, axes)
    if kind in ("argmax", "argmin"):
        return ATOM, b.reduced("position", body, over, best=repr(kind[3:]))
    if kind.startswith("topk"):
        k, new = node.attr.extra
        return ATOM, f"{b.reduced('top', body, over, k=k, place=axes.index(new))}[{int(kind == 'topk_indices')}]"
    if kind == "monoid":
        monoid, part = node.attr.extra
        wide = tuple(a for a in b.layout if a in axes or a in over)
        bodies = ", ".join(b.at(a, wide) for a in node.args)
        places = tuple(wide.index(a) - len(wide) for a in over)
        return ATOM, f"fold(combine_{monoid.name}, ({bodies},), {places})[{part}]"
    return ATOM, b.reduced(f"np.{kind}", body, over)


def summed(b: Body, body: Node, over: Sequence[str], axes: Sequence[str]) -> str:
    """Σ over axes: a contraction where the body is a product of arrays, else a plain sum."""
    factors = [f for f in body.args if f.axes] if body.op == "mul" else []
    scalars = [f for f in body.args if not f.axes] if body.op == "mul" else []
    plain = all(f.op != "pow" or f.args[1].op != "const" or f.args[1].attr > 0 for f in factors)
    if len(factors) < 2 or not plain or not set(over) <= set().union(*(f.axes for f in factors)):
        return b.reduced("np.sum", body, over)
    letter = {a: chr(97 + i) for i, a in enumerate(b.layout)}
    inputs = ",".join("".join(letter[a] for a in b.axes(f)) for f in factors)
    kept = "".join(letter[a] for a in axes)
    text = f'np.einsum("{inputs}->{kept}", {", ".join(b.text(f) for f in factors)})'
    return " * ".join([*(b.text(s, MUL) for s in scalars), text])


_RULES: dict[str, Rule] = {
    "const": lambda b, n, axes: number(n.attr),
    "special": lambda b, n, axes: (SIGN if n.attr == "-oo" else ATOM, SPECIAL[n.attr]),
    "true": lambda b, n, axes: (ATOM, "True"),
    "false": lambda b, n, axes: (ATOM, "False"),
    "tensor": _leaf,
    "state": _leaf,
    "index": lambda b, n, axes: (ATOM, f"index_{axis_name(n.attr)}"),
    "size": lambda b, n, axes: (ATOM, f"size_{axis_name(n.attr)}"),
    "add": _add,
    "mul": _mul,
    "pow": _pow,
    "exp": _exp,
    "maximum": _nested("np.maximum"),
    "minimum": _nested("np.minimum"),
    "and": _nested("np.logical_and"),
    "or": _nested("np.logical_or"),
    "where": lambda b, n, axes: (ATOM, f"np.where({', '.join(b.at(a, axes) for a in n.args)})"),
    "cast": lambda b, n, axes: (ATOM, f"cast_array({b.at(n.args[0], axes)}, {n.attr!r})"),
    "call": _call,
    "reduce": _reduce,
}
