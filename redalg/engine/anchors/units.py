"""Units: powers of 2 of the size of the data, by which elements are divided before they are raised (theory, 3.6).

A sum of powers may leave the range of floating point where what is wanted of it does not: Σx²/(Σx)² near 1e-170,
x/√Σx² near 1e200. `units` finds the slots for which that is so: a result is homogeneous in some tensors, of a lower
degree than a slot it is computed from. Tensors that can only be scaled together share one unit S = pow2(max|x|); each
that can be scaled on its own has its own. x = S·c is exact, Σx^p = S^p·Σc^p, and the slot moves by (S/S')^p.

`InUnits` writes what is homogeneous in units of the data: F(D) = S^d·F(D/S), every stage value divided by the S of its
own degree first, so that nothing on the way is larger or smaller than the result's own scale asks for.

What is not homogeneous (a mean square beside an eps) and a spec whose result has the degree of its slots (a variance)
have no unit: their slots leave the range exactly where the definition does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono
from redalg.graph import node as g
from redalg.graph.degrees import UNKNOWN, Degree, Degrees, Form, above, added, as_node, degree, sign, symmetries, times
from redalg.graph.node import Node
from redalg.graph.operators import Custom, Position, Product, Quantifier, TopK
from redalg.graph.plan import COUNT, Slot

if TYPE_CHECKING:
    from redalg.engine.rules.cascade import Cascade

UNSCALED = frozenset({"integer", "bool", "complex"})  # domains of tensors that have no unit
KEPT = 1024  # facts about generators
FACTORS = 64  # from which on units multiply a result as powers
WHY = "a result of lower degree than its sums: they are held in units of a power of 2 near the largest element"


@dataclass(frozen=True)
class Unit:
    """One scale anchor to be: the tensors it scales, what it is, and whether a slot needs it."""

    members: frozenset[str]
    generator: Node  # a member, for explanations
    target: Node  # pow2 of the largest element, over stages
    needed: bool  # False: it serves the other factors of slots that need one


@dataclass
class Units:
    """The units of a pass; none by default."""

    found: tuple[Unit, ...] = ()
    _of: dict[Node, tuple[tuple[Unit, Degree], ...]] = field(default_factory=dict)

    def of(self, gen: Node, beside: frozenset[str] = frozenset()) -> tuple[Unit, Degree] | None:
        """The unit and the degree of a generator that is homogeneous in the members of one, and reads nothing else.

        `beside`: the axes of what it is multiplied by, a unit may have those of its mask.
        """
        every = self.all_of(gen, beside)
        return every[0] if len(every) == 1 else None

    def all_of(self, gen: Node, beside: frozenset[str] = frozenset()) -> tuple[tuple[Unit, Degree], ...]:
        """The same of a generator that reads members of several units, x·z: homogeneous in those of each."""
        if gen not in self._of:
            self._of[gen] = self._units_of(gen)
        return self._of[gen] if all(u.target.axes <= gen.axes | beside for u, _ in self._of[gen]) else ()

    def _units_of(self, gen: Node) -> tuple[tuple[Unit, Degree], ...]:
        names = _measured_names(gen)
        held = [u for u in self.found if names & u.members]
        if not names or not names <= frozenset().union(*(u.members for u in held)):
            return ()
        degrees = [degree(gen, dict.fromkeys(u.members, 1)) for u in held]
        inner = {a for n in g.walk(gen) if n.op == "reduce" for a in n.attr.axes}
        found = [(u, d) for u, d in zip(held, degrees, strict=True) if d and sign(d) == 1 and not u.target.axes & inner]
        return tuple(found) if len(found) == len(held) else ()

    @property
    def axes(self) -> frozenset[str]:
        """The axes of all units."""
        return frozenset().union(*(u.target.axes for u in self.found))


def deviation_in_units(gen: Node, powers: Iterable[tuple[Node, Degree]]) -> Node:
    """u - A as it is seen from units: divided by each to its degree in u."""
    for unit, d in powers:
        gen = g.div(gen, g.power(unit, as_node(d)))
    return gen


def in_unit(gen: Node, unit: Node, d: Degree, members: frozenset[str]) -> Node:
    """A generator of degree d at elements that are divided by the unit: gen / unit^d, without leaving the range."""
    if d == 1:
        return g.div(gen, unit)
    if gen.op == "pow" and gen.args[1] is as_node(d):
        return g.power(g.div(gen.args[0], unit), gen.args[1])
    return g.substitute(gen, {x: g.div(x, unit) for x in g.leaves(gen) if x.attr.name in members})


# --- which slots need one ------------------------------------------------------------------------------------------


@dataclass
class _Group:
    members: set[str]
    needed: bool
    masks: set[Node | None]


def units(raw: Cascade, stages: list[Node], nodes: list[Node]) -> Units:
    """The units of the (derivable) stages of a pass that computes `nodes`."""
    sums = [s for s in stages if s.attr.kind == "sum"]
    rows = {s: list(raw.separator.rows(raw.value(s).body or nf.constant(0))) for s in sums}
    if not any(map(raw.scope.uses, _lowering(nodes))) or not any(_raised(e) for es in rows.values() for e in es):
        return Units()
    tensors = {n.attr.name: n for n in g.walk(*nodes) if n.op == "tensor"}
    groups = _groups(raw, nodes, rows)
    for group in groups:  # sums of the elements themselves are held in the unit, too, and see what they see
        members = frozenset(group.members)
        group.masks |= {_mask(e) for es in rows.values() for e in es if above(_degree(e, members), 0)}
    kept = [unit for group in groups if (unit := _unit(raw, group, tensors)) is not None]
    return Units(tuple(kept)) if any(u.needed for u in kept) else Units()


@lru_cache(maxsize=KEPT)
def _measured_names(gen: Node) -> frozenset[str]:
    """The tensors of a generator but those that only its exponents read."""
    bases = g.substitute(gen, {n.args[1]: g.ONE for n in g.walk(gen) if n.op == "pow"})
    return frozenset(leaf.attr.name for leaf in g.leaves(bases))


def _raised(e: Mono) -> bool:
    names = frozenset(name for gen, _ in e for name in _measured_names(gen))
    return above(_degree(e, names), 1)


def _lowering(nodes: list[Node]) -> Iterator[Node]:
    """Divisions and roots: without one, no result is of lower degree than what it is computed from."""
    for n in g.walk(*nodes):
        if n.op == "pow" and (n.args[1].op != "const" or n.args[1].attr < 0 or n.args[1].attr.denominator > 1):
            if n.args[0] is not COUNT:
                yield n.args[0]


def _groups(raw: Cascade, nodes: list[Node], rows: Mapping[Node, list[Mono]]) -> list[_Group]:
    """The groups of the largest parts of the results that are homogeneous and of lower degree than a slot."""
    groups: list[_Group] = []
    rows = {s: [e for e in es if _raised(e)] for s, es in rows.items()}
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        n = stack.pop()
        if n not in seen and raw.scope.uses(n):
            seen.add(n)
            if n.is_boolean or not _note(n, rows, groups):
                stack.extend(n.args)
    return groups


def _note(node: Node, rows: Mapping[Node, list[Mono]], groups: list[_Group]) -> bool:
    """Whether a node is homogeneous and of lower degree than a slot below it; its groups join those known."""
    found = _found(node, rows)
    for group in _of_factors(node, rows, found) or found:
        _merge(groups, group)
    return bool(found)


def _found(node: Node, rows: Mapping[Node, list[Mono]]) -> list[_Group]:
    below = [e for s in g.walk(node) for e in rows.get(s, ())]
    names = {leaf.attr.name for leaf in g.leaves(node) if not leaf.attr.domain & UNSCALED}
    return _lowered(symmetries(node, names), below) if below and names else []


def _of_factors(node: Node, rows: Mapping[Node, list[Mono]], whole: list[_Group]) -> list[_Group]:
    """The groups of a product's factors, where each that has a slot is of lower degree by itself, and has fewer
    tensors than a group of the product: ``(x - sum(w))*norm(x)`` has no norm in units of w, beside which it may be 0.
    """
    if node.op != "mul" or not whole:
        return []
    held = [f for f in node.args if any(s in rows and rows[s] for s in g.walk(f))]
    found = [_found(f, rows) for f in held]
    fewer = any(a.members < b.members for groups in found for a in groups for b in whole)
    return [group for groups in found for group in groups] if fewer and all(found) else []


def _lowered(found: Sequence[tuple[frozenset[str], Degree]], below: Sequence[Mono]) -> list[_Group]:
    """The groups of tensors in which a result of given degrees is lower than a slot, and those that share its slots."""
    slots = [(e, [_degree(e, members) for members, _ in found]) for e in below]
    totals = [total for _, total in found]
    lower = {k for k, total in enumerate(totals) if any(_is_lower(d, k, totals) for _, d in slots)}
    lower |= _divided_out([d for _, d in slots], totals)
    scaled = [(e, d) for e, d in slots if any(above(d[k], 0) for k in lower)]
    masks = [{_mask(e) for e, d in scaled if above(d[k], 0)} for k in range(len(found))]
    return [_Group(set(members), k in lower, masks[k]) for k, (members, _) in enumerate(found) if masks[k]]


def _is_lower(d: Sequence[Degree], k: int, totals: Sequence[Degree]) -> bool:
    """Whether a result is of a lower degree in group k than a slot of degrees d, or in all of them where it is a
    quotient: numerator and denominator may be small together, var x / var y."""
    quotient = any(sign(total) == -1 for total in totals)
    return above(d[k], 1) and (above(d[k], totals[k]) or quotient and above(added(d), added(totals)))


def _divided_out(slots: Sequence[Sequence[Degree]], totals: Sequence[Degree]) -> set[int]:
    """The groups of which several are divided out of one product, (x/p)*(z/q): it is as small as all of them."""
    every = ({k for k, total in enumerate(totals) if above(d[k], 0) and above(d[k], total)} for d in slots)
    return set().union(*(found for found in every if len(found) > 1))


def _degree(e: Mono, members: frozenset[str]) -> Degree:
    """The degree of a slot's elements, as far as its factors have one."""
    known = ((p, _degree_in(members, gen)) for gen, p in e if not gen.is_boolean and p > 0)
    return added(times(p, d) for p, d in known if d)


@lru_cache(maxsize=KEPT)
def _degree_in(members: frozenset[str], gen: Node) -> Degree | None:
    """Kept, since the elements of most slots are made of the same few generators."""
    return degree(gen, dict.fromkeys(members, 1))


def _mask(e: Mono) -> Node | None:
    """Which elements the slot sees; None for all."""
    conditions = [gen for gen, _ in e if gen.is_boolean]
    return g.logical("and", *conditions) if conditions else None


def _merge(groups: list[_Group], new: _Group) -> None:
    for old in [x for x in groups if x.members & new.members]:
        groups.remove(old)
        new = _Group(old.members | new.members, old.needed or new.needed, old.masks | new.masks)
    groups.append(new)


def _unit(raw: Cascade, group: _Group, tensors: Mapping[str, Node]) -> Unit | None:
    masks = [m for m in group.masks if m is not None]
    mask = g.TRUE
    if len(masks) == len(group.masks) and not any(map(raw.scope.uses, masks)):
        mask = g.logical("or", *masks)
    sizes, varying = [], []
    for name in sorted(group.members):
        leaf = tensors.get(name)
        if leaf is None:
            continue
        size = leaf if raw.signs.nonnegative(leaf) else g.fn("abs", leaf)
        if raw.scope.varies(leaf):
            seen = g.where(mask, size, g.ZERO) if _measures(masks, leaf.axes | raw.scope.axes) else size
            size = raw.value(g.reduction("max", raw.axis, seen)).node
            varying.append(leaf)
        sizes.append(size)
    if not varying:
        return None
    return Unit(frozenset(group.members), varying[0], g.fn("pow2", g.extremum("maximum", *sizes)), group.needed)


def _measures(masks: list[Node], axes: frozenset[str]) -> bool:
    """Whether a unit sees what masks select: they have the elements' axes, or all of them the same further ones."""
    return len({m.axes - axes for m in masks}) < 2 or all(m.axes <= axes for m in masks)


# --- results in units of the data ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Held:
    """What is known of the parts of a state: the leaf and members of a unit, raw generators of anchors, slots."""

    leaf: Node
    members: frozenset[str]
    units: frozenset[str]  # the names of all unit anchors
    anchors: Mapping[str, Node]
    parts: Mapping[str, tuple[Slot, int]]


class InUnits:
    """Nodes over the state with every largest homogeneous part F written as S^d·F(…/S), for one unit S."""

    def __init__(self, held: Held) -> None:
        self.held, self.leaf = held, held.leaf
        self.degrees = Degrees(self._weight)
        self._leaves: dict[Node, Form | None] = {}
        self._holders: dict[Node, bool] = {}
        self._done: dict[Node, Node] = {}

    def _weight(self, leaf: Node) -> Form | None:
        if leaf not in self._leaves:
            self._leaves[leaf] = UNKNOWN
            found = self._leaf_degree(leaf)
            self._leaves[leaf] = UNKNOWN if found is None else {"": found} if found else {}
        return self._leaves[leaf]

    def _leaf_degree(self, leaf: Node) -> Degree | None:
        name, known = leaf.attr.name, self.held
        if leaf.op == "tensor":
            return Fraction(name in known.members)
        if leaf is COUNT or name in known.units:
            return Fraction(leaf is self.leaf) if name != self.leaf.attr.name or leaf is self.leaf else None
        if name in known.anchors:
            return self._of(known.anchors[name])
        if name not in known.parts:
            return None
        slot, part = known.parts[name]
        if isinstance(slot.op, Quantifier) or part and isinstance(slot.op, Position | TopK):
            return Fraction(0)
        return None if isinstance(slot.op, Product | Custom) else self._of(slot.lift[0])

    def _of(self, node: Node) -> Degree | None:
        return Degrees(self._weight).number(node)

    def __call__(self, node: Node) -> Node:
        if not self._holds(node):
            return node
        found = self._done.get(node)
        if found is None:
            whole = self.whole(node)
            found = self._inside(node) if whole is None else scaled(whole[0], [(self.leaf, whole[1])])
            self._done[node] = found
        return found

    def whole(self, node: Node) -> tuple[Node, Degree] | None:
        """(F(D/S), d) for a node F(D) = S^d·F(D/S) that has the unit in it; None where it has no degree."""
        d = self.degrees.number(node) if self._holds(node) else None
        return None if d is None or not self._fits(node) else (_divided(node, self._quotients(node)), d)

    def _inside(self, node: Node) -> Node:
        """A node that has no degree: its parts in units; of a product the factors that have one, multiplied first."""
        factors = _factors(node)
        measured = [f for f in factors if self.degrees.number(f) is not None]
        if node.op != "mul" or len(measured) < 2 or len(measured) == len(factors):
            return Node(node.op, tuple(map(self, node.args)), node.attr)
        rest = [self(f) for f in factors if f not in measured]
        return Node("mul", (self(Node("mul", tuple(measured))), *rest))

    def _holds(self, root: Node) -> bool:
        for n in g.walk(root):
            if n not in self._holders:
                self._holders[n] = n is self.leaf or any(self._holders[a] for a in n.args)
        return self._holders[root]

    def _fits(self, node: Node) -> bool:
        """The node has the unit's axes, and sums over none of them."""
        axes = self.leaf.axes
        return axes <= node.axes and not any(n.op == "reduce" and axes & set(n.attr.axes) for n in g.walk(node))

    def _quotients(self, node: Node) -> dict[Node, Node]:
        """Every leaf divided by the power of the unit that it holds."""
        found: dict[Node, Node] = {self.leaf: g.ONE}
        for leaf in g.leaves(node, "tensor", "state"):
            d = self._weight(leaf)
            if d and leaf is not self.leaf:
                found[leaf] = _times(leaf, g.power(self.leaf, g.neg(as_node(d[""]))))
        return found


def _factors(node: Node) -> list[Node]:
    """The factors of a product of products."""
    return [f for a in node.args for f in _factors(a)] if node.op == "mul" else [node]


def _times(a: Node, b: Node) -> Node:
    """a·b, in this order and no other: what is inside stays together."""
    return b if a is g.ONE else a if b is g.ONE else Node("mul", (a, b))


def _divided(root: Node, quotients: Mapping[Node, Node]) -> Node:
    """The node with leaves replaced, its order of evaluation kept, factors 1 left out."""
    done: dict[Node, Node] = {}
    for node in g.walk(root):
        args = tuple(done[a] for a in node.args)
        if node in quotients:
            new = quotients[node]
        elif args == node.args:
            new = node
        elif node.op == "mul":
            kept = tuple(a for a in args if a is not g.ONE)
            new = g.ONE if not kept else kept[0] if len(kept) == 1 else Node("mul", kept)
        elif node.op == "pow" and args[0] is g.ONE:
            new = g.ONE
        else:
            new = Node(node.op, args, node.attr)
        done[node] = new
    return done[root]


def scaled(value: Node, powers: Iterable[tuple[Node, Degree]]) -> Node:
    """value·Π S^d, one factor after the other, what divides between what multiplies: nothing on the way leaves the
    range that the value and the result are in."""
    above: list[Node] = []
    below: list[Node] = []
    for leaf, d in powers:
        if isinstance(d, Node):
            value = _times(value, g.power(leaf, d))
            continue
        whole = int(abs(d))
        each = max(1, whole // FACTORS)  # of a chain of squares the degree is as large as 2^its length
        side, sign = (above, 1) if d > 0 else (below, -1)
        side += [g.power(leaf, sign * each)] * (whole // each)
        side += [g.power(leaf, sign * (whole % each))] * (whole % each > 0)
        if abs(d) != whole:
            above.append(g.power(leaf, d - whole if d > 0 else d + whole))
    while above or below:
        for side in (above, below):
            if side:
                value = _times(value, side.pop())
    return value


def in_units(nodes: Iterable[Node], held: Iterable[Held]) -> list[Node]:
    """The nodes written in the units of the data, one unit after the other."""
    units = [InUnits(one) for one in held]
    return [_in_all(node, units) for node in nodes]


def _in_all(node: Node, units: list[InUnits]) -> Node:
    powers = []
    for unit in units:
        whole = unit.whole(node)
        if whole is None:
            node = unit(node)
        else:
            node = whole[0]
            powers.append((unit.leaf, whole[1]))
    return scaled(node, powers)


__all__ = ["WHY", "Held", "InUnits", "Unit", "Units", "deviation_in_units", "in_unit", "in_units", "units"]
