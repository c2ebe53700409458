"""Degrees: how an expression changes when some of its leaves are multiplied by one positive number.

An expression is *homogeneous* of degree d in some leaves when multiplying them by any s > 0 multiplies it by s^d. The
degree of a node is a linear form in the unknown weights of its leaves (a leaf of weight w is multiplied by s^w), and
what is added or compared gives equations between these weights: for Σ(x - v)² those of x and v are equal, for x² + 1
that of x is 0, for Σxy/√(Σx²·Σy²) both are free.

Degrees are rational numbers or, where an exponent is made of scalars, nodes over these: Σ|x|^p has the degree p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from redalg.graph import node as g
from redalg.graph.node import COMPARISONS, Node

Degree = Fraction | Node  # a node only where it is no number
Form = dict[str, Degree]  # a linear form in the weights of leaves, by name
EVERY: None = None  # the degree of 0 and of infinities: any
UNKNOWN: Form = {"?": Fraction(1)}  # what a `weight` gives for a leaf that has no degree
UNCHANGED = frozenset({"abs", "relu", "conj", "re", "im"})
INVARIANT = frozenset({*g.POSITIONS, "any", "all"})


def as_node(d: Degree) -> Node:
    return d if isinstance(d, Node) else g.const(d)


def _degree(node: Node) -> Degree:
    """The node as a degree: a number where it is one."""
    return node.attr if node.op == "const" else node


def plus(a: Degree, b: Degree) -> Degree:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    return _degree(g.add(as_node(a), as_node(b)))


def times(a: Degree, b: Degree) -> Degree:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    return _degree(g.mul(as_node(a), as_node(b)))


def added(degrees: Iterable[Degree]) -> Degree:
    found: Degree = Fraction(0)
    for d in degrees:
        found = plus(found, d)
    return found


def _quotient(a: Degree, b: Degree) -> Degree:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    return times(a, _degree(g.power(as_node(b), -1)))


def above(a: Degree, b: Degree | int) -> bool:
    """Whether a degree is larger than another one, or may be: of two that are no numbers that may be unknown."""
    if isinstance(a, Fraction) and not isinstance(b, Node):
        return a > b
    return sign(plus(a, times(Fraction(-1), Fraction(b) if isinstance(b, int) else b))) in (1, None)


def sign(d: Degree) -> int | None:
    """The sign of a degree; None where it is not known.

    >>> from redalg.graph.node import mul, power, tensor
    >>> p = tensor("p", (), ("positive",))
    >>> sign(Fraction(-1, 2)), sign(mul(p, power(p, -2))), sign(tensor("q"))
    (-1, 1, None)
    """
    if isinstance(d, Fraction):
        return (d > 0) - (d < 0)
    if d.op == "tensor":
        return 1 if "positive" in d.attr.domain else None
    if d.op == "pow" and d.args[1].op == "const":
        return 1 if sign(_degree(d.args[0])) == 1 else None
    if d.op in ("mul", "add"):
        signs = [sign(_degree(a)) for a in d.args]
        if None in signs or d.op == "add" and len(set(signs)) > 1:
            return None
        return signs[0] if d.op == "add" else -1 if signs.count(-1) % 2 else 1
    return None


def _is_exponent(e: Node) -> bool:
    """An exponent made of numbers and scalars by sums, products and powers of these."""
    return not e.axes and all(n.op in ("const", "tensor", "add", "mul", "pow") for n in g.walk(e))


class Degrees:
    """Degrees of nodes as linear forms, and the equations that have to hold for them to be degrees."""

    def __init__(self, weight: Callable[[Node], Form | None]) -> None:
        self.weight = weight  # of a tensor or state leaf
        self.equations: list[Form] = []  # each is 0
        self.bound: set[Node] = set()  # nodes that are homogeneous under equations only
        self._memo: dict[Node, Form | None] = {}

    def of(self, root: Node) -> Form | None:
        for node in g.walk(root, done=self._memo):
            known = len(self.equations)
            self._memo[node] = self._degree(node)
            if len(self.equations) > known or any(a in self.bound for a in node.args):
                self.bound.add(node)
        return self._memo[root]

    def number(self, root: Node) -> Degree | None:
        """The degree under weights that are numbers (forms in the name ""), or None for a node that has none."""
        found = self.of(root)
        return None if root in self.bound else (found or {}).get("", Fraction(0))

    def _degree(self, node: Node) -> Form | None:
        rule = _RULES.get(node.op, Degrees._of_weightless)
        return rule(self, node, [self._memo[a] for a in node.args])

    def _of_leaf(self, node: Node, degrees: list[Form | None]) -> Form | None:
        weight = self.weight(node)
        if weight is UNKNOWN:
            self.equations.append(UNKNOWN)
        return weight

    def _of_product(self, node: Node, degrees: list[Form | None]) -> Form | None:
        return EVERY if EVERY in degrees else _sum([(d, Fraction(1)) for d in degrees if d is not None])

    def _of_power(self, node: Node, degrees: list[Form | None]) -> Form | None:
        base, e = degrees[0], node.args[1]
        if not _is_exponent(e):
            return self._of_weightless(node, degrees)
        self._same([degrees[1], {}])
        return EVERY if base is EVERY else _sum([(base, _degree(e))])

    def _of_comparison(self, node: Node, degrees: list[Form | None]) -> Form | None:
        self._same(degrees)
        return {}

    def _of_reduction(self, node: Node, degrees: list[Form | None]) -> Form | None:
        if node.attr.kind in ("sum", "max", "min", "topk_values"):
            return degrees[0]
        return {} if node.attr.kind in INVARIANT else self._of_weightless(node, degrees)

    def _of_weightless(self, node: Node, degrees: list[Form | None]) -> Form | None:
        """What keeps its value only where its arguments do."""
        for d in degrees:
            self._same([d, {}])
        return {}

    def _same(self, degrees: Iterable[Form | None]) -> Form | None:
        known = [d for d in degrees if d is not None]
        for d in known[1:]:
            difference = _sum([(known[0], Fraction(1)), (d, Fraction(-1))])
            if difference:
                self.equations.append(difference)
        return known[0] if known else EVERY


Rule = Callable[[Degrees, Node, "list[Form | None]"], "Form | None"]

# operation -> degree of a node of given degrees of its arguments; every other operation: `Degrees._of_weightless`
_RULES: dict[str, Rule] = {
    "tensor": Degrees._of_leaf,
    "state": Degrees._of_leaf,
    "const": lambda known, node, degrees: EVERY if node.attr == 0 else {},
    "special": lambda known, node, degrees: EVERY if node.attr in ("oo", "-oo", "nan") else {},
    "mul": Degrees._of_product,
    "pow": Degrees._of_power,
    **dict.fromkeys(("add", "maximum", "minimum"), lambda known, node, degrees: known._same(degrees)),
    "where": lambda known, node, degrees: known._same(degrees[1:]),
    **dict.fromkeys(COMPARISONS, Degrees._of_comparison),
    "reduce": Degrees._of_reduction,
    **dict.fromkeys(UNCHANGED, lambda known, node, degrees: degrees[0]),
    **dict.fromkeys(("and", "or", "not", "sign"), lambda known, node, degrees: {}),
}


def degree(node: Node, weights: Mapping[str, int]) -> Degree | None:
    """The degree under known weights of the leaves (by name; others have 0); None if it has none.

    >>> from redalg.graph.node import add, div, power, tensor
    >>> x, y = tensor("x", "j"), tensor("y", "j")
    >>> degree(div(power(x, 3), add(x, y)), {"x": 1, "y": 1})
    Fraction(2, 1)
    >>> degree(add(power(x, 2), y), {"x": 1}) is None
    True
    """
    known: dict[str, Form] = {name: {"": Fraction(w)} for name, w in weights.items() if w}
    return Degrees(lambda leaf: known.get(leaf.attr.name, {})).number(node)


def symmetries(node: Node, names: Iterable[str]) -> list[tuple[frozenset[str], Degree]]:
    """The groups of leaves, of those named, that can be scaled together, each on its own; with the node's degrees."""
    free = frozenset(names)
    degrees = Degrees(lambda leaf: {leaf.attr.name: Fraction(1)} if leaf.attr.name in free else {})
    found = degrees.of(node) or {}
    solved = _solved(degrees.equations)
    values = {name: solved.get(name, {name: Fraction(1)}) for name in sorted(free)}
    mixed = {v for value in values.values() if len(value) > 1 or set(value.values()) - {Fraction(1)} for v in value}
    groups: dict[str, set[str]] = {}
    for name, value in values.items():
        if len(value) == 1 and not mixed & set(value):
            groups.setdefault(next(iter(value)), set()).add(name)
    total = _sum([(values[k], c) for k, c in found.items()])
    return [(frozenset(members), total.get(free_one, Fraction(0))) for free_one, members in sorted(groups.items())]


def _sum(terms: Iterable[tuple[Form, Degree]]) -> Form:
    total: Form = {}
    for form, factor in terms:
        for k, c in form.items():
            total[k] = plus(total.get(k, Fraction(0)), times(factor, c))
    return {k: c for k, c in total.items() if c}


def _numbers(equation: Form) -> list[Form]:
    """An equation with numbers as coefficients; where they have no common factor, all that it binds is 0."""
    first = next((c for c in equation.values() if isinstance(c, Node)), None)
    if first is None:
        return [equation]
    divided = {k: _quotient(c, first) for k, c in equation.items()}
    if all(isinstance(c, Fraction) for c in divided.values()):
        return [divided]
    return [{k: Fraction(1)} for k in equation]


def _solved(equations: list[Form]) -> dict[str, Form]:
    """Every bound unknown in terms of free ones, by elimination."""
    bound: dict[str, Form] = {}
    for equation in (e for given in equations for e in _numbers(given)):
        rest = _sum([(bound.get(k, {k: Fraction(1)}), c) for k, c in equation.items()])
        if not rest:
            continue
        pivot = max(rest)
        value = {k: _quotient(times(Fraction(-1), c), rest[pivot]) for k, c in rest.items() if k != pivot}
        inside = {pivot: value}
        bound = {k: _sum([(inside.get(v, {v: Fraction(1)}), c) for v, c in f.items()]) for k, f in bound.items()}
        bound |= inside
    return bound


__all__ = [
    "UNKNOWN",
    "Degree",
    "Degrees",
    "Form",
    "above",
    "added",
    "as_node",
    "degree",
    "sign",
    "symmetries",
    "times",
]
