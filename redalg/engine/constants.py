"""Constants far from 1 stay with the elements they multiply: Σ(x/c)², not Σx²/c².

A normal form takes constants out of its sums, and Σx² leaves the range of floating point where Σ(x/c)² does not. So
before a spec is separated, the tensors under such a constant are replaced by leaves in units of a power of 2 near it,
x = 2^-m·x̂, with every stage value that is read beside them: mean(x)/c becomes mean(x̂) times a number near 1. The
finished plan has 2^m·x in the place of x̂, which is exact, or leaves the range where x/c does. What has no scale of its
own, an exponential of the elements, is one leaf: Σ(e^x/c)² is not Σe^2x/c².
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

from redalg.graph import node as g
from redalg.graph.degrees import symmetries
from redalg.graph.node import Node

FAR = 64  # bits of a constant, as its sum would show it, that are left outside: half of the range of float32
LARGEST = 1000  # bits of a unit: 2^m and 2^-m are numbers of float64
UNSCALED = frozenset({"integer", "bool"})
SAME = frozenset({"sum", "max", "min", "topk_values"})  # reductions that a positive factor leaves
SIZED = frozenset({"add", "where", "maximum", "minimum", "abs", "relu"})  # as large as one of its arguments


class Inside:
    """The nodes of a spec with constants far from 1 inside their sums; `leaves`: what stands for the new leaves."""

    def __init__(self, nodes: Iterable[Node], axis: tuple[str, ...], taken: Iterable[str]) -> None:
        self.axis, self.taken = axis, set(taken)
        self.leaves: dict[Node, Node] = {}
        self._units: dict[tuple[Node, int], Node] = {}
        nodes = list(nodes)
        done: dict[Node, Node] = {}
        for n in g.walk(*nodes):
            new = g.rebuild(n, tuple(done[a] for a in n.args))
            if new.op == "reduce" and new.attr.kind == "sum" and new.attr.axes == axis:
                new = g.rebuild(new, (self._body(new.args[0]),))
            done[n] = new
        self.nodes = [done[n] for n in nodes]

    def _body(self, body: Node) -> Node:
        done: dict[Node, Node] = {}
        for n in g.walk(body, done=_Stages(self.axis)):
            new = g.rebuild(n, tuple(done.get(a, a) for a in n.args))
            if new.op == "pow" and new.args[1].op == "const" and abs(new.args[1].attr) > 1:
                new = g.power(self._tamed(new.args[0], new.args[1].attr), new.args[1])
            done[n] = new
        found = done.get(body, body)
        tamed = ((p, self._tamed(p, Fraction(1))) for p in _choices(found))
        other = {p: t for p, t in tamed if t is not p}
        return g.substitute(found, other) if other else found

    def _tamed(self, base: Node, e: Fraction) -> Node:
        """A base of a power e, its elements in units of the constants that the power would take out."""
        units: dict[Node, int] = {}
        for term in base.args if base.op == "add" else (base,):
            if set(self.axis) & term.axes:
                for leaf, m in self._units_of(term, e):
                    units.setdefault(leaf, m)
        return base if not units else self._in(base, {x: (self._leaf(x, m), m) for x, m in units.items()})

    def _units_of(self, term: Node, e: Fraction) -> list[tuple[Node, int]]:
        bits = self._bits(term)
        if abs(bits * e) <= FAR:
            return []
        tensors = {x.attr.name: x for x in g.leaves(term) if not x.attr.domain & UNSCALED}
        found = [(members, d) for members, d in symmetries(term, tensors) if d and isinstance(d, Fraction)]
        if e == 1 and sum(abs(d) for _, d in found) + len(self._opaque(term, 0)) <= 1:
            return []  # a sum of the elements themselves is as large as they are
        return self._scales(term, bits, found, tensors) or [
            (f, bits) for f in self._opaque(term, bits)[:1] if abs(bits) <= LARGEST
        ]

    def _scales(
        self, term: Node, bits: int, found: list[tuple[frozenset[str], Fraction]], tensors: Mapping[str, Node]
    ) -> list[tuple[Node, int]]:
        """The tensors that can be scaled together, of those found, that take the constant."""
        for x in (x for f in term.args for x in g.leaves(f) if set(self.axis) & x.axes):  # as it is multiplied out
            for members, d in found:
                m = int(bits / d) // d.denominator * d.denominator
                if x.attr.name in members and m and abs(m) <= LARGEST:
                    return [(tensors[name], m) for name in members]
        return []

    def _opaque(self, term: Node, bits: int) -> list[Node]:
        """Factors without a scale of their own: exponentials of the elements; integers that become fractions."""
        found = [f for f in (term.args if term.op == "mul" else (term,)) if set(self.axis) & f.axes]
        whole = [f for f in found if f.op == "tensor" and "integer" in f.attr.domain and bits < 0]
        return [f for f in found if f.op == "exp" and self._of_elements(f)] + whole

    def _of_elements(self, node: Node) -> bool:
        """No stage value is in it, and nothing complex."""
        stages = _Stages(self.axis)
        return not any(n in stages or n.op == "tensor" and "complex" in n.attr.domain for n in g.walk(node))

    def _bits(self, term: Node) -> int:
        """Of what size the constants are that a term is multiplied by, those of its sums included."""
        found: dict[Node, int] = {}
        for n in g.walk(term, done=_Stages(self.axis)):
            below = [found.get(a, 0) for a in n.args]
            if n.op == "const" and n.attr:
                found[n] = n.attr.numerator.bit_length() - n.attr.denominator.bit_length()
            elif n.op == "pow" and n.args[1].op == "const" and n.args[1].attr.denominator == 1:
                found[n] = below[0] * int(n.args[1].attr)
            elif n.op == "mul":
                found[n] = sum(below)
            elif n.op in SIZED or _keeps(n):
                found[n] = max(below, key=abs)
        return found.get(term, 0)

    def _leaf(self, x: Node, m: int) -> Node:
        if (x, m) not in self._units:
            name = base = f"scaled_{x.attr.name if x.op == 'tensor' else x.op}"
            while name in self.taken:
                name = f"{base}{len(self.taken)}"
            self.taken.add(name)
            known = x.attr.domain if x.op == "tensor" else frozenset({"positive"})
            axes = x.attr.axes if x.op == "tensor" else tuple(sorted(x.axes))
            leaf = self._units[x, m] = g.tensor(name, axes, known & {"positive", "nonnegative", "complex"})
            self.leaves[leaf] = Node("mul", (g.const(Fraction(2) ** m), x))
        return self._units[x, m]

    def _in(self, root: Node, units: Mapping[Node, tuple[Node, int]]) -> Node:
        """The node over new leaves. Conditions and positions stay: they see elements as they are."""
        found: dict[Node, tuple[Node, int]] = {}  # node = 2^-k·(other node)
        for n in g.walk(root):
            if n in units:
                found[n] = units[n]
            elif n.is_boolean or not n.args or all(found[a] == (a, 0) for a in n.args):
                found[n] = n, 0
            else:
                found[n] = _scaled(n, [found[a] for a in n.args])
        return _whole(*found[root])


class _Stages:
    """As a container of nodes: the sums and other reductions over the axis."""

    def __init__(self, axis: tuple[str, ...]) -> None:
        self.axis = axis

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and node.op == "reduce" and node.attr.axes == self.axis


def _choices(body: Node) -> Iterator[Node]:
    """The products among the branches of a body."""
    stack = [body]
    while stack:
        n = stack.pop()
        if n.op == "where":
            stack += n.args[1:]
        elif n.op in ("mul", "add"):
            yield n


def _whole(node: Node, k: int) -> Node:
    return g.mul(g.const(Fraction(2) ** -k), node) if k else node


def _scaled(node: Node, args: list[tuple[Node, int]]) -> tuple[Node, int]:
    """(other, k) with node = 2^-k·other, for arguments given so."""
    op, plain = node.op, tuple(a for a, _ in args)
    if op == "mul":
        return g.mul(*plain), sum(k for _, k in args)
    if op == "pow" and node.args[1].op == "const":
        power = args[0][1] * node.args[1].attr
        if power.denominator == 1:
            return g.power(*plain), int(power)
    same = {k for (_, k), a in zip(args, node.args, strict=True) if not (a.is_boolean or g.is_const(a, 0))}
    if len(same) == 1 and (op in SIZED or _keeps(node)):
        return g.rebuild(node, plain), same.pop()
    if op == "reduce" and not _keeps(node):
        return node, 0
    return g.rebuild(node, tuple(_whole(*a) for a in args)), 0


def _keeps(node: Node) -> bool:
    return node.op == "reduce" and node.attr.kind in SAME


def written(value: Any, leaves: dict[Node, Node]) -> Any:
    """A plan with tensors in the place of leaves in units, in the order of evaluation that it has."""
    if isinstance(value, Node):
        return g.substitute(value, leaves, raw=True)
    if isinstance(value, tuple):
        return tuple(written(v, leaves) for v in value)
    if is_dataclass(value) and not isinstance(value, type) and type(value).__module__ == "redalg.graph.plan":
        return replace(value, **{f.name: written(getattr(value, f.name), leaves) for f in fields(value)})
    return value


__all__ = ["Inside", "written"]
