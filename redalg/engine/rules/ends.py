"""Positions that both ends of the elements decide (theory, sections 2.2 and 2.3).

|t - u|, (t - u)², cosh(t - u) are largest at an end of the elements, wherever u lies, and t·u at the end that the sign
of u says. So the largest and the smallest t are kept with their first positions, and `finalize` compares the body at
the two. Ties are the elements' of both ends: the lower position is the first. A body that is constant (u = 0 in t·u)
ties everywhere, and a NaN is ranked first, as the definition ranks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redalg.algebra import polynomial as nf
from redalg.algebra.signs import NEG, POS
from redalg.engine.rules.quantifiers import CannotPull, Quantifiers
from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS
from redalg.graph.masked import finite
from redalg.graph.node import Node
from redalg.laws.infinities import FINITE

RISES, FALLS, MOVES, VALLEY, HILL = "rises", "falls", "moves", "valley", "hill"
TURNED = {RISES: FALLS, FALLS: RISES, MOVES: MOVES, VALLEY: HILL, HILL: VALLEY}
AT_THE_ENDS = {"argmax": (MOVES, VALLEY), "argmin": (MOVES, HILL)}
WORST = {"argmax": g.NEG_INF, "argmin": g.INF}
BOWLS = frozenset(f.name for f in FUNCTIONS.values() if f.pieces == (-1, 1))  # even, rising for t >= 0


@dataclass(frozen=True)
class Course:
    """How a body runs with an element expression: body = whole(inner), strictly monotone on each side of a point.

    `value` is what elements are compared by: the body without the strictly monotone maps around it, which turn the
    order round where `turned`. As `shape` says it rises, falls, moves one way or the other (which one, a stage value
    says), or is a valley or a hill. Over finite elements the body is constant where one of `factors` is 0; `context`
    are all the stage values in it, and `addends` those that `value` adds.
    """

    inner: Node
    whole: Callable[[Node], Node]
    value: Callable[[Node], Node]
    shape: str = RISES
    turned: bool = False
    factors: tuple[Node, ...] = ()
    addends: tuple[Node, ...] = ()
    context: tuple[Node, ...] = ()

    @property
    def course(self) -> str:
        """The shape of the whole body."""
        return TURNED[self.shape] if self.turned else self.shape

    def around(self, step: Callable[[Node], Node], turned: bool, *context: Node) -> Course:
        """A strictly monotone map around it."""
        whole = self.whole
        turned = self.turned != turned
        return replace(self, whole=lambda v: step(whole(v)), turned=turned, context=(*self.context, *context))

    def reshaped(self, step: Callable[[Node], Node], shape: str, *factors: Node) -> Course:
        """A map around it that is not: elements are compared by its values."""
        whole = self.whole

        def value(v: Node) -> Node:
            return step(whole(v))

        factors, addends = (*self.factors, *factors), tuple(c for c in self.context if c not in self.factors)
        return Course(self.inner, value, value, shape, False, factors, addends, (*addends, *factors))


class Ends(Quantifiers):
    """Part of `redalg.engine.rules.monotone.Puller`."""

    if TYPE_CHECKING:
        _chained: Callable[[str, Node], Node]

    def position(self, kind: str, body: Node) -> Node:
        """The first place where the body is largest ("argmax") or smallest."""
        if not self.scope.varies(body):
            return self.slot("argmax", g.ZERO)  # the first of all, which is at 0 only where the stream starts there
        try:
            return self._chained(kind, body)
        except CannotPull as chained:
            try:
                return self._decided(kind, body)
            except CannotPull:
                raise chained from None

    def _decided(self, kind: str, body: Node) -> Node:
        mask, body = self.unmasked(kind, body)
        found = self.course_at_the_ends(kind, body)
        self.trace.rule("a position is decided by both ends of the elements")
        first = self.slot("argmax", g.ZERO if mask is None else g.where(mask, g.ZERO, g.NEG_INF))
        ends = [self._end(end, found, mask, first, WORST[kind]) for end in ("argmax", "argmin")]
        (top, _), (bottom, _) = ends
        up = (kind == "argmax") != found.turned
        decided = g.where(_constant(found, top, bottom), first, g.extremum("minimum", *(place for _, place in ends)))
        for mine, other in (ends[::-1], ends):
            decided = g.where(before(up, mine[0], other[0]), mine[1], decided)
        if found.factors:  # oo·t is NaN where t is 0, which no end shows; 0·t where it is infinite, which a NaN hides
            self.trace.assume(*FINITE)
            top_t = self.slot("argmax_value", _lifted("argmax", found, mask))
            hidden = g.logical("and", Node("ne", (top_t, top_t)), g.logical("or", *map(_vanishes, found.factors)))
            usable = g.logical("and", *map(finite, found.context), g.negate(hidden))
            decided = g.where(usable, decided, g.MINUS_ONE)
        return g.where(g.logical("or", *(Node("ne", (v, v)) for v in found.context)), first, decided)

    def unmasked(self, kind: str, body: Node) -> tuple[Node | None, Node]:
        """A mask of the elements, if there is one, and the body where it holds."""
        if body.op == "where" and body.args[2] is WORST[kind] and not self.scope.uses(body.args[0]):
            return body.args[0], body.args[1]
        return None, body

    def course_at_the_ends(self, kind: str, body: Node) -> Course:
        """How a body runs that is largest ("argmax") or smallest at an end of the elements."""
        found = self._run_of(body)
        if found.course not in AT_THE_ENDS[kind]:
            raise CannotPull(body, "a position between the ends of the elements")
        return found

    def _end(self, kind: str, found: Course, mask: Node | None, first: Node, worst: Node) -> tuple[Node, Node]:
        """What the elements at one end are compared by, and the place of the first of them."""
        lift = _lifted(kind, found, mask)
        place, t = self.slot(kind, lift), self.slot(f"{kind}_value", lift)
        if mask is not None:  # what the mask leaves is infinite, if there is any; or is no better than what it hides
            place = g.where(g.compare("eq", t, WORST[kind]), first, place)
            place = g.where(g.compare("eq", found.whole(t), worst), self.slot("argmax", g.ZERO), place)
        return found.value(t), place

    def ordered(self, body: Node) -> None:
        """Complex values have no order that anything could be pulled out of: |z - u| is no valley of z."""
        if nf.may_be_complex(body):
            raise CannotPull(body, "complex values have no order")

    def has_values(self, body: Node) -> bool:
        """Whether a map has a value at every element: it is NaN outside its domain, and what is inside of it is not."""
        domain = FUNCTIONS[body.op].domain if body.op in FUNCTIONS else ""
        return not domain or domain in ("positive", "above_minus_one") and self.signs.nonnegative(body.args[0])

    def _run_of(self, body: Node) -> Course:
        self.ordered(body)
        if not self.scope.varies(body):
            raise CannotPull(body, "no element in it")
        op = body.op
        if op == "mul":
            return self._of_product(body)
        if not self.scope.uses(body):
            return Course(body, _same, _same)
        if op == "add":
            return self._of_sum(body)
        if op == "pow" and body.args[1].op == "const":
            return self._of_power(body)
        if op in BOWLS:
            return self._bowl(body, VALLEY)
        fact = FUNCTIONS.get(op)
        if fact is not None and fact.direction and fact.strict and self.has_values(body):
            return self._run_of(body.args[0]).around(lambda v: g.fn(op, v), fact.direction < 0)
        raise CannotPull(body, f"{op} is not strictly monotone here")

    def _of_sum(self, body: Node) -> Course:
        varying = g.add(*(t for t in body.args if self.scope.varies(t)))
        fixed = g.add(*(t for t in body.args if not self.scope.varies(t)))
        if varying is body:
            raise CannotPull(body, "more than one mixed term")
        context = () if fixed.op == "const" else (fixed,)
        return self._run_of(varying).around(lambda v: g.add(v, fixed), False, *context)

    def _of_product(self, body: Node) -> Course:
        varying = g.mul(*(t for t in body.args if self.scope.varies(t)))
        if varying is body:
            if self.scope.uses(body):
                raise CannotPull(body, "more than one mixed factor")
            return Course(body, _same, _same)
        fixed = g.mul(*(t for t in body.args if not self.scope.varies(t)))
        inner, sign = self._run_of(varying), self.signs.of(fixed)
        context = () if fixed.op == "const" else (fixed,)
        if sign in (POS, NEG):
            return inner.around(lambda v: g.mul(v, fixed), sign == NEG, *context)
        if inner.course in (RISES, FALLS):
            shape = MOVES
        elif sign & NEG and sign & POS:
            raise CannotPull(fixed, "the sign of this factor is not known")
        else:
            shape = TURNED[inner.course] if sign & NEG else inner.course
        return inner.reshaped(lambda v: g.mul(v, fixed), shape, fixed)

    def _of_power(self, body: Node) -> Course:
        base, e = body.args
        sign, odd = self.signs.of(base), e.attr.denominator == 1 and e.attr.numerator % 2
        if e.attr > 0 and (odd or not sign & NEG) or e.attr < 0 and sign == POS:
            return self._run_of(base).around(lambda v: g.power(v, e), e.attr < 0)
        if odd or e.attr.denominator != 1:
            raise CannotPull(body, "a power that is not monotone here")
        return self._bowl(body, VALLEY if e.attr > 0 else HILL)

    def _bowl(self, body: Node, shape: str) -> Course:
        """An even function of what moves one way, or of what turns round without a change of sign."""
        inner = self._run_of(body.args[0])
        if inner.course in (VALLEY, HILL):
            sign = self.signs.of(body.args[0])
            if sign & NEG and sign & POS:
                raise CannotPull(body, "an even function of what turns round itself")
            shape = inner.course if (shape == VALLEY) == (not sign & NEG) else TURNED[inner.course]
        return inner.reshaped(lambda v: g.rebuild(body, (v, *body.args[1:])), shape)


def _lifted(kind: str, found: Course, mask: Node | None) -> Node:
    return found.inner if mask is None else g.where(mask, found.inner, WORST[kind])


def _vanishes(v: Node) -> Node:
    return g.compare("eq", v, g.ZERO)


def _same(v: Node) -> Node:
    return v


def before(up: bool, mine: Node, other: Node) -> Node:
    """Whether an element is before another in order; a NaN is before every number."""
    better = g.compare("gt" if up else "lt", mine, other)
    return g.logical("or", better, g.logical("and", Node("ne", (mine, mine)), Node("eq", (other, other))))


def _constant(found: Course, top: Node, bottom: Node) -> Node:
    """Whether all elements are tied: a factor is 0, or what is added is infinite."""
    still = [_vanishes(v) for v in found.factors]
    still += [g.negate(finite(v)) for v in found.addends]
    return g.logical("and", g.compare("eq", top, bottom), g.logical("or", *still))


__all__ = ["Course", "Ends", "before"]
