"""Degrees: how an expression changes when some of its leaves are multiplied by one positive number.

An expression is *homogeneous* of degree d in some leaves when multiplying them by any s > 0 multiplies it by s^d. The
degree of a node is a linear form in the unknown weights of its leaves (a leaf of weight w is multiplied by s^w), and
what is added or compared gives equations between these weights: for Σ(x - v)² those of x and v are equal, for x² + 1
that of x is 0, for Σxy/√(Σx²·Σy²) both are free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from redalg import graph as g
from redalg.graph import COMPARISONS, Node

Form = dict[str, Fraction]  # a linear form in the weights of leaves, by name
EVERY: None = None  # the degree of 0 and of infinities: any
UNKNOWN: Form = {"?": Fraction(1)}  # what a `weight` gives for a leaf that has no degree
UNCHANGED = frozenset({"abs", "relu", "conj", "re", "im"})
INVARIANT = frozenset({"argmax", "argmin", "topk_indices", "any", "all"})


class Degrees:
    """Degrees of nodes as linear forms, and the equations that have to hold for them to be degrees."""

    def __init__(self, weight: Callable[[Node], Form | None]) -> None:
        self.weight = weight  # of a tensor or state leaf
        self.equations: list[Form] = []  # each is 0
        self.bound: set[Node] = set()  # nodes that are homogeneous under equations only
        self._memo: dict[Node, Form | None] = {}

    def of(self, root: Node) -> Form | None:
        for node in g.walk(root):
            if node not in self._memo:
                known = len(self.equations)
                self._memo[node] = self._degree(node)
                if len(self.equations) > known or any(a in self.bound for a in node.args):
                    self.bound.add(node)
        return self._memo[root]

    def number(self, root: Node) -> Fraction | None:
        """The degree under weights that are numbers (forms in the name ""), or None for a node that has none."""
        found = self.of(root)
        return None if root in self.bound else (found or {}).get("", Fraction(0))

    def _degree(self, node: Node) -> Form | None:
        op, args = node.op, [self._memo[a] for a in node.args]
        if op in ("tensor", "state"):
            weight = self.weight(node)
            if weight is UNKNOWN:
                self.equations.append(UNKNOWN)
            return weight
        if not args:
            infinite = op == "special" and node.attr in ("oo", "-oo", "nan")
            return EVERY if infinite or g.is_const(node, 0) else {}
        if op == "mul":
            return EVERY if EVERY in args else _sum([(d, Fraction(1)) for d in args if d is not None])
        if op == "pow" and node.args[1].op == "const":
            return EVERY if args[0] is EVERY else _sum([(args[0], node.args[1].attr)])
        if op in ("add", "maximum", "minimum"):
            return self._same(args)
        if op == "where":
            return self._same(args[1:])
        if op in COMPARISONS:
            self._same(args)
            return {}
        if op == "reduce" and node.attr.kind in ("sum", "max", "min", "topk_values") or op in UNCHANGED:
            return args[0]
        if op == "reduce" and node.attr.kind in INVARIANT or op in ("and", "or", "not", "sign"):
            return {}
        for d in args:  # everything else keeps its value only where its arguments do
            self._same([d, {}])
        return {}

    def _same(self, degrees: Iterable[Form | None]) -> Form | None:
        known = [d for d in degrees if d is not None]
        for d in known[1:]:
            difference = _sum([(known[0], Fraction(1)), (d, Fraction(-1))])
            if difference:
                self.equations.append(difference)
        return known[0] if known else EVERY


def degree(node: Node, weights: Mapping[str, int]) -> Fraction | None:
    """The degree under known weights of the leaves (by name; others have 0); None if it has none.

    >>> from redalg.graph import add, div, power, tensor
    >>> x, y = tensor("x", "j"), tensor("y", "j")
    >>> degree(div(power(x, 3), add(x, y)), {"x": 1, "y": 1})
    Fraction(2, 1)
    >>> degree(add(power(x, 2), y), {"x": 1}) is None
    True
    """
    known = {name: {"": Fraction(w)} for name, w in weights.items() if w}
    return Degrees(lambda leaf: known.get(leaf.attr.name, {})).number(node)


def symmetries(node: Node, names: Iterable[str]) -> list[tuple[frozenset[str], Fraction]]:
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


def _sum(terms: Iterable[tuple[Form, Fraction]]) -> Form:
    total: Form = {}
    for form, factor in terms:
        for k, c in form.items():
            total[k] = total.get(k, Fraction(0)) + factor * c
    return {k: c for k, c in total.items() if c}


def _solved(equations: list[Form]) -> dict[str, Form]:
    """Every bound unknown in terms of free ones, by elimination."""
    bound: dict[str, Form] = {}
    for equation in equations:
        rest = _sum([(bound.get(k, {k: Fraction(1)}), c) for k, c in equation.items()])
        if not rest:
            continue
        pivot = max(rest)
        value = {k: -c / rest[pivot] for k, c in rest.items() if k != pivot}
        inside = {pivot: value}
        bound = {k: _sum([(inside.get(v, {v: Fraction(1)}), c) for v, c in f.items()]) for k, f in bound.items()}
        bound |= inside
    return bound


__all__ = ["UNKNOWN", "Degrees", "Form", "degree", "symmetries"]
