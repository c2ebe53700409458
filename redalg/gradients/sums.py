"""Sums over axes, and adjoints: sums of values that count only where conditions hold.

A `where` selects, and so does its derivative: what it leaves out may be infinite or NaN, and 0 times that is NaN. So
an adjoint keeps its conditions apart from its values, multiplies the values, and selects last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from redalg.graph import node as g
from redalg.graph.node import Node

Conditions = frozenset[Node]


def total(value: Node, axes: Iterable[str], distributed: bool = False) -> Node:
    """Σ over the axes. Factors that lack them stand before the sum; an axis that the value lacks is its size.

    >>> x, c = g.tensor("x", "j"), g.tensor("c")
    >>> total(g.mul(c, x), ("j",)) is g.mul(c, g.reduction("sum", ("j",), x))
    True
    >>> total(c, ("j",)) is g.mul(c, g.size(("j",)))
    True
    """
    along = tuple(axes)
    held = tuple(a for a in along if a in value.axes)
    lacking = g.size([a for a in along if a not in held])
    if not held or g.is_const(value, 0):
        return g.mul(value, lacking)
    if distributed and value.op == "add":
        return g.mul(lacking, g.add(*(total(t, held, True) for t in value.args)))
    factors = value.args if value.op == "mul" else (value,)
    before = [f for f in factors if f.axes.isdisjoint(held)]
    rest = g.mul(*(f for f in factors if f not in before))
    if before and distributed and rest.op == "add":
        return g.mul(lacking, *before, total(rest, held, True))
    return g.mul(lacking, *before, g.reduction("sum", held, rest))


def factored(root: Node, given: Set[Node]) -> Node:
    """The node; in sums that read one of the `given` leaves, what is a factor of all terms is one of the sum.

    >>> a, b, c = (g.tensor(name) for name in "abc")
    >>> factored(g.add(g.mul(a, c), g.mul(b, c)), {a}) is g.mul(g.add(a, b), c)
    True
    """
    done: dict[Node, Node] = {}
    reads: set[Node] = set()
    for n in g.walk(root):
        if n not in given and reads.isdisjoint(n.args):
            done[n] = n
            continue
        reads.add(n)
        args = tuple(done[a] for a in n.args)
        if n.op == "add":
            done[n] = _common_out(args)
        else:
            done[n] = g.mul(*args) if n.op == "mul" else n if args == n.args else Node(n.op, args, n.attr)
    return done[root]


def _common_out(terms: tuple[Node, ...]) -> Node:
    factors = [t.args if t.op == "mul" else (t,) for t in terms]
    common = [f for f in factors[0] if f.op != "const" and all(f in other for other in factors)]
    if not common:
        return g.add(*terms)
    return g.mul(*common, g.add(*(g.mul(*(f for f in own if f not in common)) for own in factors)))


class Adjoint:
    """Σ value where all of its conditions hold: values by sets of conditions."""

    def __init__(self, parts: dict[Conditions, Node] | None = None) -> None:
        self.parts = parts or {}

    def __bool__(self) -> bool:
        return bool(self.parts)

    def add(self, other: Adjoint) -> None:
        for conditions, value in other.parts.items():
            held = self.parts.get(conditions)
            self.parts[conditions] = value if held is None else g.add(held, value)

    def scaled(self, factor: Node) -> Adjoint:
        return self._each(lambda value: g.mul(value, factor))

    def _each(self, change: Callable[[Node], Node]) -> Adjoint:
        found = {conditions: change(value) for conditions, value in self.parts.items()}
        return Adjoint({c: v for c, v in found.items() if not g.is_const(v, 0)})

    def where(self, condition: Node) -> Adjoint:
        if condition is g.FALSE:
            return Adjoint()
        more = frozenset() if condition is g.TRUE else frozenset({condition})
        found = Adjoint()
        for conditions, value in self.parts.items():  # parts that had the condition and parts that had not become one
            found.add(Adjoint({conditions | more: value}))
        return found

    def summed(self, axes: tuple[str, ...]) -> Adjoint:
        """Σ over the axes as one composite axis; conditions that lack them stay outside."""
        found = Adjoint()
        for conditions, value in self.parts.items():
            inside = [c for c in conditions if not c.axes.isdisjoint(axes)]
            value = total(_selected(inside, value), axes)
            found.add(Adjoint({conditions - frozenset(inside): value}))
        return found

    @property
    def node(self) -> Node:
        return g.add(*(_selected(conditions, value) for conditions, value in self.parts.items()))


def _selected(conditions: Iterable[Node], value: Node) -> Node:
    return g.where(g.logical("and", *conditions), value, g.ZERO)


__all__ = ["Adjoint", "factored", "total"]
