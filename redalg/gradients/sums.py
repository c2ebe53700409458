"""Sums over axes, and adjoints: sums of values that count only where conditions hold.

A `where` selects, and so does its derivative: what it leaves out may be infinite or NaN, and 0 times that is NaN. So
an adjoint keeps its conditions apart from its values, multiplies the values, and selects last. A sum over elements that
are all left out is 0 for the same reason, and stays 0 whatever multiplies it afterwards: an adjoint knows of its sums
where some element counts, and asks that where a factor has a pole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from redalg.algebra.signs import ZERO, Signs
from redalg.graph import node as g
from redalg.graph.functions import POLES
from redalg.graph.node import Node

Conditions = frozenset[Node]
EXTREMA = frozenset({"max", "min", "topk_values"})


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


class Counting(NamedTuple):
    """Where a part of an adjoint counts: where all `conditions` hold. Where not all of `some` do, its value is 0 unless
    a pole multiplied it."""

    conditions: Conditions = frozenset()
    some: Conditions = frozenset()


class Adjoint:
    """Σ value where all of its conditions hold: values by sets of conditions."""

    def __init__(self, parts: dict[Counting, Node] | None = None) -> None:
        self.parts = parts or {}

    @staticmethod
    def of(value: Node) -> Adjoint:
        return Adjoint({Counting(): value})

    def __bool__(self) -> bool:
        return bool(self.parts)

    def add(self, other: Adjoint) -> None:
        for counting, value in other.parts.items():
            held = self.parts.get(counting)
            self.parts[counting] = value if held is None else g.add(held, value)

    def scaled(self, factor: Node) -> Adjoint:
        found = Adjoint()
        pole = any(some for _, some in self.parts) and has_pole(factor)
        for (conditions, some), value in self.parts.items():
            product = g.mul(value, factor)
            if not g.is_const(product, 0):
                own = Counting(conditions | some) if pole else Counting(conditions, some)
                found.add(Adjoint({own: product}))
        return found

    def where(self, condition: Node) -> Adjoint:
        if condition is g.FALSE:
            return Adjoint()
        found, more = Adjoint(), frozenset(_conjuncts(condition))
        for (conditions, some), value in self.parts.items():  # parts that had it and parts that had not become one
            found.add(Adjoint({Counting(conditions | more, some): value}))
        return found

    def summed(self, axes: tuple[str, ...]) -> Adjoint:
        """Σ over the axes as one composite axis; conditions that lack them stay outside."""
        found = Adjoint()
        for (conditions, some), value in self.parts.items():
            inside = [c for c in needed(conditions) if not c.axes.isdisjoint(axes)]
            value = total(_selected(inside, value), axes)
            counts = g.logical("and", *inside, *(c for c in some if not c.axes.isdisjoint(axes)))
            own = frozenset() if counts is g.TRUE else frozenset({_any(axes, counts)})
            outside = frozenset(c for c in conditions if c.axes.isdisjoint(axes)) - own
            found.add(Adjoint({Counting(outside, own | {c for c in some if c.axes.isdisjoint(axes)}): value}))
        return found

    @property
    def node(self) -> Node:
        found: dict[Conditions, Node] = {}
        for (conditions, _), value in self.parts.items():
            held = needed(conditions)
            found[held] = g.add(found[held], value) if held in found else value
        return g.add(*(_selected(held, value) for held, value in found.items()))


def needed(conditions: Conditions) -> Conditions:
    """The conditions without those that others imply: that some element counts, where this one does."""

    def is_implied(c: Node) -> bool:
        if c.op != "reduce" or c.attr.kind != "any":
            return False
        return conditions.issuperset(_conjuncts(c.args[0]))

    return frozenset(c for c in conditions if not is_implied(c))


def has_pole(factor: Node) -> bool:
    """Whether a factor may be infinite or NaN where its tensors are numbers.

    By a divisor that may be 0, a logarithm, or an extremum of no element.
    """
    signs = Signs(())

    def is_pole(n: Node) -> bool:
        if n.op == "pow":
            base, e = n.args
            return not (e.op == "const" and e.attr >= 0 or base.op == "size" or not signs.of(base) & ZERO)
        return n.op in POLES or n.op == "special" or n.op == "reduce" and n.attr.kind in EXTREMA

    return any(map(is_pole, g.walk(factor)))


def _conjuncts(condition: Node) -> Sequence[Node]:
    """What all has to hold: a row's condition beside an element's can stand outside a sum."""
    if condition is g.TRUE:
        return ()
    if condition.op == "not" and condition.args[0].op == "or" and len({a.axes for a in condition.args[0].args}) > 1:
        return [g.negate(a) for a in condition.args[0].args]
    return condition.args if condition.op == "and" else (condition,)


def _any(axes: tuple[str, ...], condition: Node) -> Node:
    held = tuple(a for a in axes if a in condition.axes)
    return g.reduction("any", held, condition)


def _selected(conditions: Iterable[Node], value: Node) -> Node:
    return g.where(g.logical("and", *conditions), value, g.ZERO)


__all__ = ["Adjoint", "factored", "total"]
