"""Where parameters leave a definition without a value, and its form, in which they have cancelled, has one.

``sum[j](q*x[j])/q`` is 0/0 where q is 0 and oo/oo where it is infinite, and the form is a sum of x. So every node is
asked under which conditions on parameters (what has no element and no stage value) it is surely 0, surely infinite and
surely NaN, whatever the elements are: the definition, and then the form, which is NaN where the definition alone is.
Each of "0" and "infinite" also covers NaN, so that a product of the two is NaN. What is not sure is left out here, and
seen where the form is run on streams with infinities (`redalg.laws.infinities`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import permutations
from typing import NamedTuple

from redalg.engine.emit import Emitter
from redalg.engine.rules.cascade import ORDER_KINDS, Cascade
from redalg.graph import node as g
from redalg.graph.formats import INTEGERS
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node, is_position
from redalg.graph.plan import COUNT, Slot

Condition = frozenset[frozenset[Node]]  # one of these holds, each of them the conjunction of some nodes
NEVER: Condition = frozenset()
ALWAYS: Condition = frozenset({frozenset()})
SOME: Condition = frozenset({frozenset({g.compare("ne", COUNT, g.ZERO)})})  # there are elements
REDUCED = frozenset({"sum", "prod", "max", "min"})
MOST = 64  # of a condition; beyond, nothing is sure


class Sure(NamedTuple):
    """Where a node is 0 or NaN, infinite or NaN, and NaN."""

    zero: Condition = NEVER
    infinite: Condition = NEVER
    nan: Condition = NEVER


NOTHING = Sure()


def undefined(node: Node, value: Node, slots: Iterable[Slot], cascade: Cascade, emit: Emitter) -> Node:
    """NaN where parameters alone make the definition NaN, or infinite, and do not make the form so; a position is then
    the first, as that of a NaN is."""
    if is_position(node):
        wanted = _both(SOME, _Facts(cascade)(node.args[0]).nan) if node.attr.kind in ORDER_KINDS else NEVER
        return g.where(_written(lost), g.ZERO, value) if (lost := _emitted(wanted, emit)) else value
    definition, shown = _Facts(cascade)(node), _Facts(cascade, slots)
    nan, infinite = _emitted(definition.nan, emit), _emitted(definition.infinite, emit)
    if not nan and not infinite:
        return value
    form = shown(value)
    read = [shown(x).nan for s in shown.slots.values() for x in s.lift]
    lost = _either(_beyond(nan, form.nan.union(*read)), _beyond(infinite, form.infinite.union(form.nan, *read)))
    return g.where(_written(lost), g.special("nan"), value) if lost else value


def _emitted(condition: Condition, emit: Emitter) -> Condition:
    return frozenset(frozenset(map(emit, conjunction)) for conjunction in condition)


def _beyond(wanted: Condition, there: Condition) -> Condition:
    """What does not follow from what is there."""
    return frozenset(c for c in wanted if not any(known <= c for known in there))


def _either(*conditions: Condition) -> Condition:
    """One of them holds; what another one follows from stands for both."""
    found = frozenset[frozenset[Node]]().union(*conditions)
    return frozenset(c for c in found if not any(other < c for other in found))


def _both(a: Condition, b: Condition) -> Condition:
    return _either(frozenset(x | y for x in a for y in b)) if len(a) * len(b) <= MOST else NEVER


def _all(conditions: Iterable[Condition]) -> Condition:
    return reduce(_both, conditions, ALWAYS)


def _holds(condition: Node) -> Condition:
    return ALWAYS if condition is g.TRUE else NEVER if condition is g.FALSE else frozenset({frozenset({condition})})


def _written(condition: Condition) -> Node:
    return g.logical("or", *(g.logical("and", *sorted(c, key=lambda n: n.digest)) for c in condition))


def _differs(n: Node) -> Condition:
    """Where it is NaN."""
    return _holds(Node("ne", (n, n)))


class _Facts:
    """What is sure of nodes, memoised: of the definition, and of a form over its slots."""

    def __init__(self, cascade: Cascade, slots: Iterable[Slot] = ()) -> None:
        self.scope, self.value = cascade.scope, cascade.value
        self.slots = {s.leaf(): s for s in slots if len(s.parts) == 1}
        self.done: dict[Node, Sure] = {}

    def __call__(self, root: Node) -> Sure:
        for n in g.walk(root, done=self.done):
            self.done[n] = NOTHING if n.is_boolean else self._of(n)
        return self.done[root]

    def _of(self, n: Node) -> Sure:
        if n.op in _RULES:
            return _RULES[n.op](self, n)
        if self._is_parameter(n):
            return _computed(n)
        return Sure(nan=_either(*(self.done[a].nan for a in n.args))) if _passes_nan(n) else NOTHING

    def _is_parameter(self, n: Node) -> bool:
        scope = self.scope
        return not scope.varies(n) and not scope.uses(n) and not scope.is_known(n)

    def _can_be_asked(self, condition: Node) -> bool:
        """Whether it is the same for all elements, and its stages have values."""
        stages = (s for s in g.walk(condition) if self.scope.is_stage(s))
        return not self.scope.varies(condition) and all(self.value(s).blocked is None for s in stages)

    def _const(self, n: Node) -> Sure:
        return NOTHING if n.attr else Sure(zero=ALWAYS)

    def _special(self, n: Node) -> Sure:
        nan = ALWAYS if n.attr == "nan" else NEVER
        return Sure(zero=nan, infinite=ALWAYS if n in (g.INF, g.NEG_INF) else nan, nan=nan)

    def _state(self, n: Node) -> Sure:
        """What a slot is of what it reduces; anchors and what earlier reads hand on are like elements."""
        slot = self.slots.get(n)
        return NOTHING if slot is None else self._reduced(slot.kind, self(slot.lift[0]))

    def _leaf(self, n: Node) -> Sure:
        """That a NaN that comes in goes out is seen elsewhere (`redalg.engine.poles.poisoned`)."""
        numbers = not n.attr.domain & {"bool", "integer", "complex"}
        found = _computed(n) if self._is_parameter(n) else NOTHING
        zero = NEVER if "positive" in n.attr.domain else found.zero
        return Sure(zero, found.infinite if numbers else NEVER)

    def _mul(self, n: Node) -> Sure:
        found = [self.done[a] for a in n.args]
        pairs = (_both(a.zero, b.infinite) for a, b in permutations(found, 2))
        nan = _either(*(f.nan for f in found), *pairs)
        return Sure(_either(*(f.zero for f in found)), _either(*(f.infinite for f in found)), nan)

    def _add(self, n: Node) -> Sure:
        found = [self.done[a] for a in n.args]
        zero = _holds(g.compare("eq", n, g.ZERO)) if self._is_parameter(n) else _all(f.zero for f in found)
        return Sure(zero, _either(*(f.infinite for f in found)), _either(*(f.nan for f in found)))

    def _power(self, n: Node) -> Sure:
        base, exponent = n.args
        if exponent.op != "const":
            return _computed(n) if self._is_parameter(n) else NOTHING
        found = self.done[base]
        nan = found.nan
        if exponent.attr.denominator != 1 and self._is_parameter(base):
            nan = _either(nan, _differs(g.power(base, g.HALF)))
        ends = (found.infinite, found.zero) if exponent.attr < 0 else (found.zero, found.infinite)
        return Sure(*ends, nan)

    def _where(self, n: Node) -> Sure:
        """A condition that is the same for all elements says which branch it is; of others, what both have is sure."""
        condition, *branches = n.args
        chosen = [condition, g.negate(condition)]
        if self._can_be_asked(condition):
            asked = list(zip(map(_holds, chosen), (self.done[b] for b in branches), strict=True))
            return Sure(*(_either(*(_both(c, f[k]) for c, f in asked)) for k in range(len(Sure._fields))))
        then, other = (self.done[b] for b in branches)
        return Sure(*(_both(a, b) for a, b in zip(then, other, strict=True)))

    def _reduce(self, n: Node) -> Sure:
        kind, axes = n.attr.kind, n.attr.axes
        if self._is_parameter(n):
            return _computed(n) if kind in REDUCED else NOTHING
        body = self.done[n.args[0]]
        if self.scope.is_stage(n):
            return self._reduced(kind, body)
        if kind not in REDUCED:
            return NOTHING
        somewhere = [_along("any", axes, c) for c in (body.infinite, body.nan)]  # along an axis of its own
        return Sure(_along("all", axes, body.zero) if kind == "sum" else NEVER, *somewhere)

    @staticmethod
    def _reduced(kind: str, body: Sure) -> Sure:
        """Along the stream, which may have no elements."""
        if kind not in REDUCED:
            return NOTHING
        zero = body.zero if kind == "sum" else _both(SOME, body.zero)
        return Sure(zero, _both(SOME, body.infinite), _both(SOME, body.nan))


def _computed(n: Node) -> Sure:
    """Of a function of parameters, by its value."""
    gap = Node("add", (n, g.neg(n)))
    return Sure(_holds(g.compare("eq", n, g.ZERO)), _holds(Node("ne", (gap, gap))), _differs(n))


def _passes_nan(n: Node) -> bool:
    return n.op in FUNCTIONS or n.op in ("maximum", "minimum") or n.op == "cast" and n.attr not in INTEGERS


def _along(kind: str, axes: tuple[str, ...], condition: Condition) -> Condition:
    whole = _written(condition)
    inner = tuple(a for a in axes if a in whole.axes)
    return _holds(g.reduction(kind, inner, whole)) if inner and condition else NEVER


_RULES: dict[str, Callable[[_Facts, Node], Sure]] = {
    "const": _Facts._const,
    "special": _Facts._special,
    "tensor": _Facts._leaf,
    "state": _Facts._state,
    "mul": _Facts._mul,
    "add": _Facts._add,
    "pow": _Facts._power,
    "where": _Facts._where,
    "reduce": _Facts._reduce,
}
