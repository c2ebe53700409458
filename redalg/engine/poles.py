"""Where a form must be NaN because the definition is: divisors that are zero, inputs that have cancelled."""

from __future__ import annotations

from collections.abc import Container
from fractions import Fraction

from redalg.algebra.scope import Scope
from redalg.algebra.signs import linear
from redalg.engine.emit import Emitter
from redalg.engine.rules.cascade import Cascade
from redalg.graph import node as g
from redalg.graph.domains import factored
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node, is_inverse, is_position
from redalg.graph.plan import COUNT, Slot


def guarded(node: Node, value: Node, cascade: Cascade, emit: Emitter) -> Node:
    """NaN where the definition divides by zero and the form may not tell: a pole that has cancelled is 0·oo there, and
    poles of several orders are oo - oo."""
    for divisor, written in divisors_of(node, cascade).items():
        base = emit(divisor)
        inner = sorted(base.axes - node.axes)  # one group without weight among those that a contraction sums over
        if not cascade.signs.positive(base) and (inner or len(written) > 1 or _orders(value, base) != written):
            zero = g.compare("eq", base, g.ZERO)
            value = g.where(g.reduction("any", inner, zero) if inner else zero, g.special("nan"), value)
    return _zero_over_zero(node, value, cascade, emit)


def _zero_over_zero(node: Node, value: Node, cascade: Cascade, emit: Emitter) -> Node:
    """NaN where a divisor is zero that is gone because what it divides has cancelled: Σ(x - mean x)/(1 - Σw) is 0/0."""
    terms, found = [node], dict[Node, None]()
    while terms:
        n = terms.pop()
        if is_inverse(n):
            found[n.args[0]] = None
        elif n.op in ("add", "mul") and not cascade.scope.is_stage(n):
            terms += n.args
    divides = {leaf for n in g.walk(value) if is_inverse(n) for leaf in g.leaves(n.args[0], "state")}
    for divisor in found:
        if cascade.scope.uses(divisor) and not cascade.scope.varies(divisor) and not cascade.signs.positive(divisor):
            base = emit(divisor)
            if g.leaves(base, "state") and divides.isdisjoint(g.leaves(base, "state")):
                gone = g.logical("or", g.compare("eq", base, g.ZERO), Node("ne", (base, base)))
                value = g.where(gone, g.special("nan"), value)
    return value


def poisoned(node: Node, value: Node, slots: list[Slot], cascade: Cascade) -> Node:
    """NaN in, NaN out, also where an input has cancelled altogether: Σ(x - mean x) is 0 for numbers only."""
    if node.is_boolean:
        return value
    scope = cascade.scope
    summed = {leaf for s in slots for x in s.lift for leaf in g.leaves(x)}  # an output reads its own element alone
    bodies = [b for n in calculated(node) if scope.is_stage(n) and not is_position(n) for b in n.args]
    for leaf, gap in _cancelled(bodies, summed):
        if scope.varies(leaf):
            gap = _narrowed(gap, node.axes | scope.axes)
            broken = cascade.backend.slot("any", Node("ne", (gap, gap)))
            value = g.where(broken, g.special("nan"), value)
    for _, gap in _cancelled([node], set(g.leaves(value)), done=_Held(scope)):
        gap = _narrowed(gap, node.axes)
        value = g.where(Node("ne", (gap, gap)), g.special("nan"), value)
    return value


class _Held:
    """Stages of this read and what earlier ones computed: an output reads their values, not their elements."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Node) and (self.scope.is_stage(node) or self.scope.is_known(node))


def _cancelled(roots: list[Node], read: set[Node], done: Container[object] = ()) -> list[tuple[Node, Node]]:
    """Tensors of numbers that are calculated with and not read any more, and what is NaN where they make a 0 NaN."""
    numbers = (n for n in calculated(*roots, done=done) if n.op == "tensor")
    lost = {n for n in numbers if not n.attr.domain & {"bool", "integer"}} - read
    ordered = sorted(lost, key=lambda n: n.digest)  # oo - oo is NaN, exp(-oo) is 0
    maps = [n for n in g.walk(*roots, done=done) if n.op == "exp"] if ordered else []
    exponents = set(g.walk(*maps, done=done))
    return [(n, n if n in exponents else Node("add", (n, g.neg(n)))) for n in ordered]


def _narrowed(gap: Node, axes: frozenset[str]) -> Node:
    """An output without an axis is broken by any place of it."""
    inner = sorted(gap.axes - axes)
    return g.reduction("sum", inner, gap) if inner else gap


def calculated(*roots: Node, done: Container[object] = ()) -> list[Node]:
    """Nodes whose values enter a calculation; a comparison with NaN is false, and a position is that of a NaN."""
    found: dict[Node, None] = {}
    stack = list(reversed(roots))
    while stack:
        n = stack.pop()
        if n in found or n in done or n.is_boolean and n.op not in ("tensor", "reduce"):
            continue
        found[n] = None
        stack.extend(() if is_position(n) else n.args)
    return list(found)


def _orders(value: Node, base: Node) -> set[Fraction]:
    """The orders of the poles at base = 0 that an expression shows; none where a map stands around one: what it makes
    of an infinity is not what it makes of elements that are 0/0."""
    nodes, target = list(g.walk(value)), _primitive(base)
    poles = {n for n in nodes if is_inverse(n) and _primitive(n.args[0]) == target}
    holders = set(poles)
    for n in nodes:  # arguments come first
        if not holders.isdisjoint(n.args):
            holders.add(n)
    if any(n.op in FUNCTIONS for n in holders):
        return set()
    found: set[Fraction] = set()
    seen: set[tuple[Node, Fraction]] = set()
    stack = [(value, Fraction(0))]
    while stack:
        at = stack.pop()
        if at not in seen:
            seen.add(at)
            here, below = _poles_at(*at, poles, holders)
            found |= here
            stack += below
    return found


def _poles_at(
    n: Node, order: Fraction, poles: set[Node], holders: set[Node]
) -> tuple[set[Fraction], list[tuple[Node, Fraction]]]:
    """Orders that end at a node, which is multiplied by a pole of some order already, and what is to be looked at."""
    if n in poles:
        return {order + n.args[1].attr}, []
    if n not in holders:
        return {order} if order else set(), []
    if n.op != "mul":
        return set(), [(a, order) for a in n.args if a in holders or n.op == "add"]
    order += sum((f.args[1].attr for f in n.args if f in poles), Fraction(0))
    inner = [(f, order) for f in n.args if f in holders and f not in poles]
    return set() if inner else {order}, inner


def divisors_of(node: Node, cascade: Cascade) -> dict[Node, set[Fraction]]:
    """Stage values by which the bodies of the node's stages divide, with the powers; not those known to be positive.
    Of ``w*n - w`` it is n - 1."""
    bodies = [n.args[0] for n in g.walk(node) if cascade.scope.is_stage(n) and not cascade.value(n).selective]
    found: dict[Node, set[Fraction]] = {}
    for n in g.walk(*bodies):
        d = n.args[0] if is_inverse(n) else COUNT
        if d.op == "add" and cascade.scope.uses(d) and cascade.scope.varies(d):
            d = factored(d)[1]
        if d is not COUNT and cascade.scope.uses(d) and not cascade.scope.varies(d) and not cascade.signs.positive(d):
            found.setdefault(d, set()).add(n.args[1].attr)
    return found


def _primitive(node: Node) -> frozenset[tuple[Node, Fraction]]:
    """The node up to a positive rational factor and powers of the count."""
    if node.op == "mul":
        node = g.mul(*(f for f in node.args if f is not COUNT and not (f.op == "pow" and f.args[0] is COUNT)))
    terms = linear(node)
    lead = terms[min(terms, key=lambda n: n.digest)]
    return frozenset((n, c / lead) for n, c in terms.items()) if lead else frozenset()
