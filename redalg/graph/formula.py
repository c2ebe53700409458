"""Formulas of the table of functions, text over x and y, as graph nodes; values of nodes in any arithmetic."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, reduce
from typing import Any, Protocol

from redalg.graph import node as g
from redalg.graph.functions import COMPUTED, FUNCTIONS, UNARY
from redalg.graph.node import Node
from redalg.graph.operators import Binary, Extremum, Product, Quantifier, Sum
from redalg.parsing import parse

X, Y = g.state("x"), g.state("y")
_NAMES = {"x": X, "y": Y, "pi": g.special("pi")}
_BINARY: dict[type, Callable[[Node, Node], Node]] = {
    ast.Add: g.add,
    ast.Sub: g.sub,
    ast.Mult: g.mul,
    ast.Div: g.div,
    ast.Pow: g.power,
}


@cache
def formula(text: str) -> Node:
    """The node of a formula over the leaves `X` and `Y`.

    >>> formula("1/(exp(-x) + 1)").op
    'pow'
    """
    return _node(parse(text, mode="eval").body)


def _node(e: Any) -> Node:
    if isinstance(e, ast.Constant):
        return g.const(Fraction(str(e.value)))
    if isinstance(e, ast.Name):
        return _NAMES[e.id]
    if isinstance(e, ast.UnaryOp):
        return g.neg(_node(e.operand))
    if isinstance(e, ast.BinOp):
        return _BINARY[type(e.op)](_node(e.left), _node(e.right))
    args = [_node(a) for a in e.args]
    return g.extremum(e.func.id, *args) if e.func.id in ("maximum", "minimum") else g.fn(e.func.id, *args)


def applied(text: str, x: Node, y: Node | None = None) -> Node:
    """The formula at a node (and at the value there).

    >>> from redalg.graph.node import tensor
    >>> applied("exp(x) - 1", tensor("t")) is g.sub(g.fn("exp", tensor("t")), g.ONE)
    True
    """
    return g.substitute(formula(text), {X: x} if y is None else {X: x, Y: y})


def spelled_out(root: Node) -> Node:
    """The node with every function that is computed by a formula replaced by it."""
    new: dict[Node, Node] = {}
    for node in g.walk(root, done=new):
        args = tuple(new[a] for a in node.args)
        same = node if args == node.args else Node(node.op, args, node.attr)
        new[node] = applied(COMPUTED[node.op], *args) if node.op in COMPUTED else same
    return new[root]


class Operations(Protocol):
    """What a formula needs of an arithmetic."""

    def number(self, value: Fraction) -> Any: ...
    def special(self, name: str) -> Any: ...
    def add(self, terms: Sequence[Any]) -> Any: ...
    def mul(self, factors: Sequence[Any]) -> Any: ...
    def power(self, base: Any, exponent: Any) -> Any: ...
    def extremum(self, op: str, a: Any, b: Any) -> Any: ...
    def unary(self, name: str, x: Any) -> Any: ...


def operation(operations: Any, node: Node, args: Iterable[Any]) -> Any:
    """The value of a node whose arguments have these values: of any but a place, a length or a reduction.

    `compare` and `cast` as `unary`, `conjunction` and `disjunction` as `add`, `negation` and `select` as `power`.
    """
    return operations.unary(node.op, *args) if node.op in UNARY else _RULES[node.op](operations, node, args)


def reduced(operations: Any, kind: str, elements: Sequence[Any]) -> Any:
    """The value of a reduction of `FOLDED` over elements in sequence: its identity where there are none."""
    several, none = FOLDED[kind]
    return operation(operations, several if elements else none, elements)


def evaluated(text: str, operations: Operations, x: Any, y: Any = None) -> Any:
    """The value of a formula in an arithmetic; every part is computed once."""
    values: dict[Node, Any] = {X: x, Y: y}
    root = formula(text)
    for node in g.walk(root, done=values):
        values[node] = operation(operations, node, [values[a] for a in node.args])
    return values[root]


def _extremum(o: Any, node: Node, args: Iterable[Any]) -> Any:
    return reduce(lambda a, b: o.extremum(node.op, a, b), args)


_RULES: Mapping[str, Callable[[Any, Node, Iterable[Any]], Any]] = {
    "const": lambda o, node, args: o.number(node.attr),
    "special": lambda o, node, args: o.special(node.attr),
    "add": lambda o, node, args: o.add(args),
    "mul": lambda o, node, args: o.mul(args),
    "pow": lambda o, node, args: o.power(*args),
    "maximum": _extremum,
    "minimum": _extremum,
    "cast": lambda o, node, args: o.cast(*args, node.attr),
    "true": lambda o, node, args: True,
    "false": lambda o, node, args: False,
    "and": lambda o, node, args: o.conjunction(args),
    "or": lambda o, node, args: o.disjunction(args),
    "not": lambda o, node, args: o.negation(*args),
    "where": lambda o, node, args: o.select(*args),
    **{name: lambda o, node, args: o.compare(node.op, *args) for name in g.COMPARISONS},
}
_MONOIDS: tuple[Binary, ...] = Sum(), Product(), Extremum("max"), Extremum("min"), Quantifier("any"), Quantifier("all")
FOLDED = {op.kind: (Node(op.operation), op.identity) for op in _MONOIDS}

__all__ = [
    "COMPUTED",
    "FOLDED",
    "FUNCTIONS",
    "Operations",
    "X",
    "Y",
    "applied",
    "evaluated",
    "formula",
    "operation",
    "reduced",
    "spelled_out",
]
