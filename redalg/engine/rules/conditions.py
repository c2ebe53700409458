"""Conditions as polynomials of indicators: conjunctions, ties with an extremum, signs of products, order facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Poly
from redalg.algebra.scope import Centring, Scope, Trace
from redalg.algebra.signs import NEG, POS, ZERO, Signs, linear
from redalg.graph import node as g
from redalg.graph.masked import finite
from redalg.graph.node import Node

ENTIRE = frozenset({"add", "mul", "abs", "relu", "exp", "maximum", "minimum"})  # numbers wherever their arguments are


class Beside(NamedTuple):
    """A comparison of an element with the extremum over it; `tied`: it holds of what is at the extremum, else of what
    lies strictly inside."""

    gap: Node
    element: Node
    extremum: Node
    tied: bool


class Conditions:
    """Part of `redalg.engine.rules.separate.Separator`: indicators."""

    scope: Scope
    signs: Signs
    centring: Centring
    trace: Trace
    if TYPE_CHECKING:
        poly: Callable[..., Poly]
        factors: Callable[[Node, Poly], tuple[Poly, Poly] | None]

    def _indicator(self, c: Node) -> Poly:
        """[c] as a polynomial of indicator generators."""
        if c is g.TRUE or c is g.FALSE:
            return nf.constant(1 if c is g.TRUE else 0)
        if not self.scope.mixed(c):
            if c.op == "and":
                return self._all(c.args)
            return nf.generator(c)
        if c.op == "and":
            return self._all(c.args)
        if c.op == "or":
            first, rest = c.args[0], g.logical("or", *c.args[1:])
            return self._indicator(first) + self._indicator(g.negate(first)) * self._indicator(rest)
        if c.op in ("not", "ne"):
            return self._otherwise(g.negate(c))
        if c.op in ("eq", "lt", "le"):
            return self._comparison(c)
        return nf.generator(c)

    def _all(self, conditions: Iterable[Node]) -> Poly:
        product = nf.constant(1)
        for c in conditions:
            product = product * self._indicator(c)
        return product

    def _otherwise(self, c: Node) -> Poly:
        """[not c]: 1 - [c]; at an extremum what its ties leave, which no sum over all elements gives to the digit."""
        found = self._beside(c) if c.op in ("eq", "lt", "le") and self.scope.mixed(c) else None
        if found is None:
            return nf.constant(1) - self._indicator(c)
        if found.tied:
            return self._event(found, "ne")
        number, broken = self._ordered(found.gap), self._ordered(found.gap, broken=True)  # no order holds of a NaN
        return number * self._event(found, "eq") + broken

    def _beside(self, c: Node) -> Beside | None:
        """A comparison that an extremum over the elements leaves open."""
        gap = g.sub(c.args[1], c.args[0])
        s = self.signs.at_infinities.of(gap)
        pair = None if c.args[0] is c.args[1] or _decide(c.op, s) is not None else self._tie(gap)
        if pair is None:
            return None
        tied = c.op == "eq" or c.op == "le" and not s & POS
        return Beside(gap, *pair, tied) if tied or c.op == "lt" and not s & NEG else None

    def _event(self, found: Beside, op: str) -> Poly:
        return nf.generator(self.centring.tie(found.element, found.extremum, op))

    def _comparison(self, c: Node) -> Poly:
        a, b = c.args
        if a is b:
            return self._number(c)
        gap = g.sub(b, a)  # lt: gap > 0, le: gap >= 0, eq: gap == 0
        s = self.signs.at_infinities.of(gap)
        verdict = _decide(c.op, s)
        if verdict is not None:
            self.trace.rule("a comparison is decided by an order fact")
            return self._ordered(gap) if verdict else nf.constant(0)
        found = self._beside(c)
        if found is not None:
            self.trace.rule("a comparison with an extremum is a tie test")
            return self._event(found, "eq" if found.tied else "lt")
        pair = self.factors(gap, self.poly(gap))
        if pair is None:
            return nf.generator(c)
        self.trace.rule("the sign of a product is the product of the signs")
        return self._signs_of_product(c.op, *(nf.poly_node(q) for q in pair))

    def _number(self, c: Node) -> Poly:
        """[t = t], which says that t is a number: whether its parts are."""
        inside = [n for n in g.walk(c.args[0]) if self.scope.mixed(n)]
        if any(n.op not in ENTIRE for n in inside):
            return nf.generator(c)
        self.trace.rule("a value of numbers is a number")
        parts = dict.fromkeys(a for n in inside for a in n.args if a.op != "const" and not self.scope.mixed(a))
        product = nf.constant(1)
        for part in parts:
            product = product * nf.generator(g.compare("eq", part, part))
        return product

    def _ordered(self, gap: Node, broken: bool = False) -> Poly:
        """[no NaN]: the comparison with an extremum holds for numbers, and the extremum is NaN if an element is.

        `broken`: the opposite.
        """
        extrema = [n for n in linear(gap) if n.op == "reduce" and n.attr.kind in ("max", "min")]
        stages = [n for n in extrema if self.scope.is_stage(n)]
        if broken:
            return nf.generator(g.logical("or", *(Node("ne", (n, n)) for n in stages)))
        product = nf.constant(1)
        for stage in stages:
            product = product * nf.generator(Node("eq", (stage, stage)))
        return product

    def _tie(self, gap: Node) -> tuple[Node, Node] | None:
        """gap = q·(extremum - its element): the element and its extremum."""
        terms = linear(gap)
        for b in self.signs.bounds:
            q = terms.get(b.extremum)
            if q and b.mask is None and self.scope.is_stage(b.extremum) and b.extremum.args[0] in (b.lesser, b.greater):
                element = b.extremum.args[0]
                if g.sub(gap, g.mul(g.const(q), g.sub(b.extremum, element))) is g.ZERO and not self.scope.uses(element):
                    return element, b.extremum
        return None

    def _signs_of_product(self, op: str, x: Node, h: Node) -> Poly:
        def both(a: str, b: str) -> Poly:
            return nf.generator(_against_zero(a, x)) * nf.generator(_against_zero(b, h))

        x_is_0, h_is_0 = (nf.generator(_against_zero("eq", t)) for t in (x, h))  # 0 times what is no number is NaN
        h_is_not = g.logical("and", finite(h), _against_zero("ne", h))
        zero = x_is_0 * nf.generator(h_is_not) + h_is_0 * nf.generator(finite(x))
        if op == "eq":
            return zero
        positive = both("gt", "gt") + both("lt", "lt")
        return positive if op == "lt" else positive + zero


def _against_zero(op: str, t: Node) -> Node:
    return g.compare(op, t, g.ZERO)


def _decide(op: str, s: int) -> bool | None:
    """Truth of gap > 0 / >= 0 / == 0 where the sign set of the gap settles it."""
    if op == "lt":
        return True if s == POS else False if not s & POS else None
    if op == "le":
        return True if not s & NEG else False if s == NEG else None
    return True if s == ZERO else False if not s & ZERO else None
