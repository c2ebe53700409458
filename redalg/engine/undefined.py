"""Where parameters leave a definition without a value, and its form, in which they have cancelled, has one.

``sum[j](q*x[j])/q`` is 0/0 where q is 0 and oo/oo where it is infinite, and the form is a sum of x. So every node is
asked under which conditions on parameters (what has no element and no stage value) it is surely 0, surely infinite and
surely NaN, whatever the elements are: the definition, and then the form, which is NaN where the definition alone is.
Each of "0" and "infinite" also covers NaN, so that a product of the two is NaN. What is not sure is left out here, and
seen where the form is run on streams with infinities (`redalg.laws.infinities`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import reduce
from itertools import permutations
from math import inf
from typing import NamedTuple

from redalg.engine.emit import Emitter
from redalg.engine.rules.cascade import ORDER_KINDS, Cascade
from redalg.graph import node as g
from redalg.graph.domains import conditions
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node, is_position
from redalg.graph.plan import COUNT, Slot
from redalg.laws.check import is_exact

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


class Undefined:
    """The values of one read, mended by what the definition is at parameters at which they have cancelled."""

    def __init__(self, cascade: Cascade, emit: Emitter, slots: Iterable[Slot]) -> None:
        self.cascade, self.emit = cascade, emit
        self.wanted, self.shown = _Facts(cascade), _Facts(cascade, slots)
        self.read = [self.shown(x).nan for s in self.shown.slots.values() for x in s.lift]

    def __call__(self, node: Node, resolved: Node, value: Node) -> tuple[Node, bool]:
        """The value with what a NaN makes of it: NaN; of a position the first, of a comparison that it does not hold.
        And whether it is all: inside of stages, what a NaN makes of these is not told, and the value is NaN there.

        `resolved`: the definition over stages that derive.
        """
        value, hidden, mended = self._compared(resolved, value)
        if is_position(node):
            value = g.where(_written(self._first(node)), g.ZERO, value)
            return g.where(_written(hidden), g.special("nan"), value), not hidden
        if is_exact(node):
            return value, not hidden  # which has no NaN
        wanted = self.wanted(node)
        nan, infinite = (self._emitted(c, mended) for c in (wanted.nan, wanted.infinite))
        form = self.shown(value) if nan or infinite else NOTHING
        lost = _beyond(infinite, form.infinite.union(form.nan, *self.read))
        lost = _either(lost, _beyond(nan, form.nan.union(*self.read)), hidden)
        return g.where(_written(lost), g.special("nan"), value), not hidden

    def _compared(self, node: Node, value: Node) -> tuple[Node, Condition, dict[Node, Node]]:
        """Comparisons that do not hold where a side is NaN, and where those and positions inside of stages, and what is
        calculated from positions, may not be the definition's. And what each comparison is then."""
        below = {n for s in g.walk(node) if self.cascade.scope.is_stage(s) for n in g.walk(*s.args)}
        mended, there = dict[Node, Node](), set(g.walk(value))
        hidden = [self._first(n) for n in g.walk(node) if is_position(n) and n is not node]
        for n in g.walk(node):
            lost = self._lost(n) if n.op in g.COMPARISONS else NEVER
            form = self.emit(n) if lost and n not in below and self.wanted.has_values(n) else n
            if form is not n and form in there:
                mended[form] = _failing(form, n.op, _written(lost))
            else:
                hidden.append(lost)
        free = (frozenset(self._along_result(c, node.axes) for c in lost) for lost in hidden)
        return g.substitute(value, mended, raw=True) if mended else value, _either(*free), mended

    def _along_result(self, conjunction: frozenset[Node], axes: frozenset[str]) -> frozenset[Node]:
        """Somewhere along what a result has not."""
        whole = g.logical("and", *conjunction)
        inner = sorted(whole.axes - axes)
        return frozenset({g.reduction("any", inner, whole)}) if inner else conjunction

    def _first(self, position: Node) -> Condition:
        """Where the position is that of a NaN, and elements do not say so."""
        if position.attr.kind not in ORDER_KINDS or not self.cascade.scope.is_stage(position):
            return NEVER
        return _beyond(self._emitted(_both(SOME, self.wanted(position.args[0]).nan)), frozenset().union(*self.read))

    def _lost(self, comparison: Node) -> Condition:
        """Where a side is NaN in the definition alone."""
        wanted = self._emitted(_either(*(self.wanted(a).nan for a in comparison.args)))
        if not wanted:
            return NEVER
        fixed = list(g.outermost(self._has_value, *comparison.args))
        sides = g.substitute_all(comparison.args, {u: self.emit(u) for u in fixed}, raw=True)
        return _beyond(wanted, frozenset().union(*(self.shown(sides[a]).nan for a in comparison.args), *self.read))

    def _has_value(self, n: Node) -> bool:
        return self.cascade.scope.uses(n) and not n.is_boolean and self.wanted.can_be_asked(n)

    def _emitted(self, condition: Condition, mended: dict[Node, Node] | None = None) -> Condition:
        emitted = (frozenset(map(self.emit, conjunction)) for conjunction in condition)
        if not mended:
            return frozenset(emitted)
        return frozenset(frozenset(g.substitute(c, mended, raw=True) for c in conjunction) for conjunction in emitted)


def _failing(comparison: Node, op: str, nan: Node) -> Node:
    """A comparison one side of which is also NaN where a condition holds."""
    return g.logical("or", comparison, nan) if op == "ne" else g.logical("and", comparison, g.negate(nan))


def _beyond(wanted: Condition, there: Condition) -> Condition:
    """What does not follow from what is there."""
    return frozenset(c for c in wanted if not any(known <= c for known in there))


def _either(*conditions: Condition) -> Condition:
    """One of them holds; what another one follows from stands for both."""
    found = frozenset[frozenset[Node]]().union(*conditions)
    return frozenset(c for c in found if not any(other < c for other in found)) if len(found) <= MOST else found


def _both(a: Condition, b: Condition) -> Condition:
    if len(a) * len(b) > MOST:
        return NEVER
    return _either(frozenset(filter(_is_possible, (x | y for x in a for y in b))))


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
        if self.scope.is_known(n):
            return NOTHING  # the pass before this one has said it of what it hands on
        if n.op in _RULES:
            return _RULES[n.op](self, n)
        if self._is_parameter(n):
            return _computed(n)
        return Sure(nan=_either(*(self.done[a].nan for a in n.args))) if _passes_nan(n) else NOTHING

    def _is_parameter(self, n: Node) -> bool:
        scope = self.scope
        return not scope.varies(n) and not scope.uses(n) and not scope.is_known(n)

    def can_be_asked(self, condition: Node) -> bool:
        """Whether it is the same for all elements, and its stages have values."""
        return not self.scope.varies(condition) and self.has_values(condition)

    def has_values(self, n: Node) -> bool:
        """Whether its stages have values."""
        return all(self.value(s).blocked is None for s in g.walk(n) if self.scope.is_stage(s))

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
            found = found._replace(zero=found.zero if exponent.attr < 0 else _holds(g.compare("eq", n, g.ZERO)))
        ends = (found.infinite, found.zero) if exponent.attr < 0 else (found.zero, found.infinite)
        return Sure(*ends, nan)

    def _where(self, n: Node) -> Sure:
        """A condition that is the same for all elements says which branch it is; of others, what both have is sure."""
        condition = n.args[0]
        then, other = (self.done[b] for b in n.args[1:])
        if self.can_be_asked(condition):
            yes, no = _holds(condition), _holds(g.negate(condition))
            pairs = zip(then, other, strict=True)
            return Sure(*(_either(_both(yes, _within(yes, a)), _both(no, _within(no, b))) for a, b in pairs))
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
    return n.op in FUNCTIONS or n.op in ("maximum", "minimum", "cast")


def _within(branch: Condition, condition: Condition) -> Condition:
    """The same inside of a branch, by comparisons that have a value everywhere: no function is asked where nothing
    reads it."""
    if not branch:
        return NEVER
    (place,) = branch
    chosen = g.logical("and", *place)
    return _either(*(_all(_defined(atom, chosen) for atom in conjunction) for conjunction in condition))


def _defined(atom: Node, chosen: Node) -> Condition:
    """Of a function that is NaN: that its argument is beyond an end of its domain. What else asks a function does so
    where it is chosen, and of 1 elsewhere."""
    u = atom.args[0] if atom.op == "ne" and atom.args[0] is atom.args[1] else atom
    outside = [c.args for c in conditions(u) if c.op in ("lt", "le")]
    if outside:
        return _either(*(_holds(g.compare("lt", b, a)) for a, b in outside))
    if atom.op not in g.COMPARISONS or chosen is g.TRUE or not any(map(_is_partial, g.walk(atom))):
        return _holds(atom)
    sides = (g.where(chosen, a, g.ONE) if any(map(_is_partial, g.walk(a))) else a for a in atom.args)
    return _holds(Node(atom.op, tuple(sides)))


def _is_partial(n: Node) -> bool:
    return next(conditions(n), None) is not None


def _is_possible(conjunction: frozenset[Node]) -> bool:
    """Not where one number is less than another, and equal to it or greater; not where constants leave it no place."""
    pairs = [c.args for c in conjunction if c.op == "lt"]
    if any(g.compare(op, b, a) in conjunction for a, b in pairs for op in ("lt", "eq")):
        return False
    ends = _Ends()
    for c in conjunction:
        ends.take(c)
    denied = [c.args[0] for c in conjunction if c.op == "not"]
    for c in denied:  # of what is compared with a number otherwise, too, and so is no NaN
        if c.op in ("lt", "le") and not ends.low.keys().isdisjoint(c.args):
            ends.take(Node("le" if c.op == "lt" else "lt", c.args[::-1]))
    return all(low <= ends.high[n] for n, low in ends.low.items())


class _Ends:
    """Between which numbers nodes lie that are compared with constants, each with a step inwards where it is none of
    them."""

    def __init__(self) -> None:
        self.low: dict[Node, tuple[Fraction | float, int]] = {}
        self.high: dict[Node, tuple[Fraction | float, int]] = {}

    def take(self, comparison: Node) -> None:
        if comparison.op not in ("eq", "lt", "le"):
            return
        a, b = comparison.args
        step, both = int(comparison.op == "lt"), comparison.op == "eq"
        if b.op == "const":
            self._meet(a, (b.attr, 0) if both else None, (b.attr, -step))
        if a.op == "const":
            self._meet(b, (a.attr, step), (a.attr, 0) if both else None)

    def _meet(self, n: Node, low: tuple[Fraction, int] | None, high: tuple[Fraction, int] | None) -> None:
        self.low[n] = max(self.low.get(n, (-inf, 0)), low or (-inf, 0))
        self.high[n] = min(self.high.get(n, (inf, 0)), high or (inf, 0))


def _along(kind: str, axes: tuple[str, ...], condition: Condition) -> Condition:
    """Everywhere, or somewhere, along axes; of those that the condition has not, that they are not empty."""
    if not condition:
        return NEVER
    whole = _written(condition)
    inner, others = (tuple(a for a in axes if (a in whole.axes) == there) for there in (True, False))
    places = _holds(g.reduction(kind, inner, whole)) if inner else condition
    return (
        places if kind == "all" else _both(places, _all(_holds(g.compare("ne", g.size((a,)), g.ZERO)) for a in others))
    )


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
