"""The partial derivatives of elementwise operations, as nodes: what forward and reverse mode share.

Conventions at kinks: abs'(0) = sign'(0) = relu'(0) = 0, rounding to integers has slope 0, and the arguments of a
`maximum` that are equal share its slope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from redalg.graph import node as g
from redalg.graph.formula import applied
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node

FLAT = frozenset({"eq", "ne", "lt", "le", "and", "or", "not", "index", "size", "const", "special", "true", "false"})
FLAT_REDUCTIONS = frozenset({*g.POSITIONS, "any", "all"})
Read = Callable[[Node], Node]


def as_written(n: Node) -> Node:
    return n


def slopes(n: Node, read: Read = as_written) -> Iterator[tuple[Node, Node]]:
    """(argument, ∂n/∂argument) of an elementwise operation; an argument that occurs twice comes twice.

    `read` says how the value of a node is had: as it is written, or from where it was saved.
    """
    if n.op == "add":
        yield from ((a, g.ONE) for a in n.args)
    elif n.op == "mul":
        yield from _of_product(n, read)
    elif n.op == "pow":
        yield from _of_power(n, read)
    elif n.op in ("maximum", "minimum"):
        taken = {a: _indicator(Node("eq", (read(a), read(n)))) for a in n.args}
        yield from ((a, g.div(t, g.add(*taken.values()))) for a, t in taken.items())
    elif n.op == "relu":
        yield n.args[0], _indicator(g.compare("lt", g.ZERO, read(n.args[0])))
    elif n.op in FUNCTIONS:
        yield n.args[0], applied(FUNCTIONS[n.op].derivative, read(n.args[0]), read(n))


def _of_product(n: Node, read: Read) -> Iterator[tuple[Node, Node]]:
    """Of a quotient by its divisor -n/divisor, so that a result that was saved is read and not computed anew."""
    for k, a in enumerate(n.args):
        if g.is_inverse(a):
            yield a.args[0], g.mul(a.args[1], read(n), g.power(read(a.args[0]), -1))
        else:
            yield a, g.mul(*(read(b) for i, b in enumerate(n.args) if i != k))


def _of_power(n: Node, read: Read) -> Iterator[tuple[Node, Node]]:
    base, e = map(read, n.args)
    yield n.args[0], g.mul(e, g.power(base, g.sub(e, g.ONE)))
    if e.op != "const":
        yield n.args[1], g.where(g.compare("eq", base, g.ZERO), g.ZERO, g.mul(read(n), g.fn("log", base)))


def _indicator(condition: Node) -> Node:
    return g.where(condition, g.ONE, g.ZERO)


def place(axes: tuple[str, ...]) -> Node:
    """The position of an element along a composite axis, row by row."""
    at: Node = g.ZERO
    for a in axes:
        at = g.add(g.mul(at, g.size((a,))), Node("index", (), a))
    return at


def is_first(n: Node, read: Read = as_written) -> Node:
    """Where an extremum is taken: at the lowest position of its ties."""
    at = Node("reduce", tuple(map(read, n.args)), g.Reduce(f"arg{n.attr.kind}", n.attr.axes))
    return g.compare("eq", place(n.attr.axes), at)


def is_listed(n: Node, read: Read = as_written) -> Node:
    """Where an entry of a list of the k largest comes from."""
    at = Node("reduce", tuple(map(read, n.args)), g.Reduce("topk_indices", n.attr.axes, n.attr.extra))
    return g.compare("eq", place(n.attr.axes), at)


def of_factor(n: Node, read: Read = as_written) -> Node:
    """∂(Π b)/∂b along the axis: the product of the others, also where factors are 0.

    It is differentiated as it is written, so the other factor of two that are 0 is written as the sum of all that are,
    less the own one: it is 0, and its derivative is not.
    """
    body, axes = read(n.args[0]), n.attr.axes
    zero = g.compare("eq", body, g.ZERO)
    zeros, nothing = (g.reduction("sum", axes, g.where(zero, value, g.ZERO)) for value in (g.ONE, body))
    others = g.reduction("prod", axes, g.where(zero, g.ONE, body))
    one, two = (g.compare("eq", zeros, g.const(number)) for number in (1, 2))
    alone = g.where(one, others, g.where(two, g.mul(others, g.sub(nothing, body)), g.ZERO))
    return g.where(zero, alone, g.div(read(n), body))


__all__ = ["FLAT", "FLAT_REDUCTIONS", "Read", "as_written", "is_first", "is_listed", "of_factor", "place", "slopes"]
