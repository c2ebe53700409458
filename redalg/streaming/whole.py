"""Integers without rounding: the plan of a stream of whole numbers.

Any anchor serves a form, and a shift of whole numbers is exact. So where all elements are integers the anchors stay at
an element instead of following a mean, averages are held as sums, units are 1, and what is read of the state at the end
is a quotient of two integers, rounded once. Nothing is lost on the way, whatever the chunks and the order of merging.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from redalg.graph.node import (
    NEG_INF,
    ONE,
    ZERO,
    Node,
    add,
    compare,
    const,
    div,
    is_const,
    logical,
    mul,
    power,
    rebuild,
    reduction,
    substitute,
    walk,
    where,
)
from redalg.graph.operators import Sum
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, PassPlan, Plan, ScaleAnchor, Slot, key
from redalg.numeric.integers import quotient
from redalg.streaming.masked import Masked
from redalg.streaming.merge import ElementAnchor
from redalg.streaming.tapes.tape import Array

_KEPT = frozenset({"abs", "sign", "relu", "maximum", "minimum"})  # of integers they are integers


def whole_plan(plan: Plan, masked: Masked, kinds: Mapping[str, str]) -> tuple[Plan, Masked] | None:
    """The plan for integers and the conditions of rows without an element over its state.

    None where anchors are more than places, in lean forms and for ratios. `kinds` are those of tensors by their keys;
    whether all parts of the state are integers is seen when the plan is compiled.
    """
    moving = any(isinstance(a, ScaleAnchor) for p in plan.passes for a in p.anchors)
    if moving or any(s.vanishes for p in plan.passes for s in p.slots):
        return None
    read = _Read(plan, kinds)
    outputs = tuple(o.map(read.value) for o in plan.outputs)
    found = replace(plan, passes=tuple(_pass(p, read) for p in plan.passes), outputs=outputs)
    return found, tuple((name, read.value(node)) for name, node in masked)


def averages(p: PassPlan) -> frozenset[str]:
    """The parts that a plan for integers holds as sums."""
    return frozenset(s.parts[0] for s in p.slots if s.average)


def units(p: PassPlan) -> frozenset[str]:
    """The anchors that are 1 in a plan for integers, and not held."""
    return frozenset(a.name for a in p.units)


def as_planned(p: PassPlan, parts: Mapping[str, Array], n: int) -> dict[str, Array]:
    """The parts as the form describes them: averages for the sums that are held, and units of 1."""
    ones = {a.name: np.ones([1] * (1 + len(a.axes))) for a in p.units}
    return {**ones, **parts, **{name: quotient(parts[name], n) for name in averages(p)}}


def _pass(p: PassPlan, read: _Read) -> PassPlan:
    gone = units(p)
    anchors = tuple(_anchor(a, read) for a in p.anchors if a.name not in gone)
    slots = tuple(_slot(s, gone, read) for s in p.slots)
    order = tuple(name for name in p.order if name not in gone)
    return PassPlan(anchors, slots, order, tuple((name, read.value(node)) for name, node in p.exports))


def _anchor(a: Anchor, read: _Read) -> Anchor:
    if isinstance(a, MeanAnchor):
        return ElementAnchor(a.name, a.axes, read.number(a.generator), ZERO, a.why)
    return a.map(read.value)


def _slot(s: Slot, gone: frozenset[str], read: _Read) -> Slot:
    op = Sum() if s.average else s.op
    return replace(s.map(read.plain), op=op, anchors=tuple(a for a in s.anchors if a not in gone))


@dataclass(frozen=True)
class Quotient:
    """above / Π below^power: integers. What is below is not 0."""

    above: Node
    below: Counter[Node]

    @property
    def divisor(self) -> Node:
        return mul(*(power(b, k) for b, k in self.below.items()))

    def over(self, below: Counter[Node]) -> Node:
        """The numerator over a larger divisor."""
        missing = below - self.below
        return mul(self.above, *(power(b, k) for b, k in missing.items()))


class _Read:
    """Expressions over the parts of a state that holds sums for averages, and units of 1."""

    def __init__(self, plan: Plan, kinds: Mapping[str, str]) -> None:
        ones = {name for p in plan.passes for name in units(p)}
        self.ones = ones | {f"shift:{name}" for name in ones}
        self.means = {name for p in plan.passes for name in averages(p)}
        held = {
            name for p in plan.passes for name in (*(a.name for a in p.anchors), *(x for s in p.slots for x in s.parts))
        }
        self.whole = held | {COUNT.attr.name} | {name for name, kind in kinds.items() if kind in "bi"}
        self.conditions = {name for name, kind in kinds.items() if kind == "b"}
        self.lists = {s.parts[0] for p in plan.passes for s in p.slots if s.kind == "topk"}
        self.quotients: dict[Node, Quotient | None] = {}
        self.values: dict[Node, Node] = {}
        self.averaged: dict[Node, Node] = {}  # read as written, averages apart

    def plain(self, node: Node) -> Node:
        """An expression that reads no average: units are 1."""
        return substitute(node, {n: ONE for n in walk(node) if n.op == "state" and n.attr.name in self.ones})

    def number(self, node: Node) -> Node:
        """The same as 0 or 1 where it is a condition: an anchor is moved by differences, which truth values lack."""
        node = self.plain(node)
        held = node.is_boolean or (node.op == "tensor" and key(node) in self.conditions)
        return where(node, ONE, ZERO) if held else node

    def value(self, root: Node) -> Node:
        """The expression with every rational part as one quotient of integers."""
        root = self.plain(root)
        for n in walk(root):
            if n not in self.values:
                self.averaged[n] = self._average(n) or _with(n, self.averaged)
                self.quotients[n] = q = self._quotient(n)
                self.values[n] = _with(n, self.values) if q is None or n.is_boolean else self._written(n, q)
        return self.values[root]

    def _written(self, n: Node, q: Quotient) -> Node:
        """Where a divisor is 0, or an entry of a list is not there, what the expression gives step by step."""
        if not q.below:
            return q.above
        asked = [compare("ne", b, ZERO) for b in q.below if b is not COUNT and b.op != "const"]
        asked += [compare("lt", NEG_INF, m) for m in walk(n) if m.op == "state" and m.attr.name in self.lists]
        return where(logical("and", *asked), div(q.above, q.divisor), self.averaged[n])

    def _average(self, n: Node) -> Node | None:
        return div(n, COUNT) if n.op == "state" and n.attr.name in self.means else None

    def _quotient(self, n: Node) -> Quotient | None:
        """The quotient of integers that a node is, if it is one."""
        if n.op == "const":
            return Quotient(const(n.attr.numerator), _below(const(n.attr.denominator)))
        if n.op in ("state", "tensor"):
            return Quotient(n, _below(COUNT if self._average(n) else ONE)) if key(n) in self.whole else None
        if n.op in ("size", "index"):
            return Quotient(n, Counter())
        if n.op == "where" and not n.is_boolean:
            then, other = (self.quotients[a] for a in n.args[1:])
            if then is None or other is None:
                return None
            below = then.below | other.below
            return Quotient(where(self.values[n.args[0]], then.over(below), other.over(below)), below)
        found = [self.quotients[a] for a in n.args]
        if any(q is None for q in found):
            return None
        return self._combined(n, [q for q in found if q is not None])

    def _combined(self, n: Node, found: list[Quotient]) -> Quotient | None:
        if n.op == "mul":
            return Quotient(mul(*(q.above for q in found)), sum((q.below for q in found), Counter()))
        if n.op == "add":
            return _sum(found)
        if n.op == "pow" and n.args[1].op == "const" and n.args[1].attr.denominator == 1:
            return _raised(found[0], int(n.args[1].attr))
        if n.op == "reduce":
            return _summed(n, found[0])
        if n.op in _KEPT and not n.is_boolean and not any(q.below for q in found):
            return Quotient(rebuild(n, tuple(q.above for q in found)), Counter())
        return None


def _sum(terms: list[Quotient]) -> Quotient:
    below: Counter[Node] = Counter()
    for q in terms:
        below |= q.below
    return Quotient(add(*(q.over(below) for q in terms)), below)


def _summed(n: Node, body: Quotient) -> Quotient | None:
    """A sum along axes of the state that no divisor has."""
    if n.attr.kind != "sum" or any(b.axes & set(n.attr.axes) for b in body.below):
        return None
    return Quotient(reduction("sum", n.attr.axes, body.above), body.below)


def _with(n: Node, args: Mapping[Node, Node]) -> Node:
    return rebuild(n, tuple(args[a] for a in n.args))


def _raised(q: Quotient, e: int) -> Quotient | None:
    if e >= 0:
        return Quotient(power(q.above, e), Counter({b: k * e for b, k in q.below.items()}))
    if is_const(q.above, 0):
        return None
    inverse = Quotient(q.divisor, _below(q.above))
    return _raised(inverse, -e) if e != -1 else inverse


def _below(divisor: Node) -> Counter[Node]:
    return Counter() if is_const(divisor, 1) else Counter({divisor: 1})
