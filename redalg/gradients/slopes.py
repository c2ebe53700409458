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
from redalg.graph.nonzero import is_nonzero, nonzero

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

    It is differentiated as it is written, so what is 0 where several factors are has the right derivatives, too, as far
    as `redalg.gradients.refusals.ORDERS` says. Where m others are 0, their product is the m-th coefficient of
    Π (1 + c·b) over them, a polynomial in c: for m = 1 half the difference of its values at 1 and -1, for m = 2 half
    their sum, less that at 0. Such factors are not 0, and a product of all but one is that of all over this one
    (`redalg.graph.nonzero`).
    """
    body, axes = read(n.args[0]), n.attr.axes
    if is_nonzero(body):
        return g.div(read(n), body)
    zero = g.compare("eq", body, g.ZERO)
    zeros = g.reduction("sum", axes, _indicator(zero))
    none, plus, minus = (g.reduction("prod", axes, nonzero(body, c)) for c in (0, 1, -1))
    plus, minus = (g.div(whole, nonzero(body, c)) for whole, c in ((plus, 1), (minus, -1)))
    among = (none, g.mul(g.HALF, g.sub(plus, minus)), g.sub(g.mul(g.HALF, g.add(plus, minus)), none))
    alone: Node = g.ZERO
    for count, value in zip((3, 2, 1), reversed(among), strict=True):
        alone = g.where(g.compare("eq", zeros, g.const(count)), value, alone)
    return g.where(zero, alone, g.div(read(n), body))


__all__ = ["FLAT", "FLAT_REDUCTIONS", "Read", "as_written", "is_first", "is_listed", "of_factor", "place", "slopes"]
