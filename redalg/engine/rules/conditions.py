"""Conditions as polynomials of indicators: conjunctions, ties with an extremum, signs of products, order facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Poly
from redalg.algebra.scope import Centring, Scope, Trace
from redalg.algebra.signs import NEG, POS, ZERO, Signs, linear
from redalg.graph import node as g
from redalg.graph.masked import finite
from redalg.graph.node import Node

ENTIRE = frozenset({"add", "mul", "abs", "relu", "exp", "maximum", "minimum"})  # numbers wherever their arguments are


class Conditions:
    """Part of `redalg.engine.rules.separate.Separator`: indicators."""

    scope: Scope
    signs: Signs
    centring: Centring
    trace: Trace
    if TYPE_CHECKING:
        poly: Callable[..., Poly]
        rank_one: Callable[[Poly], tuple[Poly, Poly] | None]

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
            return self._indicator(first) + (nf.constant(1) - self._indicator(first)) * self._indicator(rest)
        if c.op in ("not", "ne"):
            return nf.constant(1) - self._indicator(g.negate(c))
        if c.op in ("eq", "lt", "le"):
            return self._comparison(c)
        return nf.generator(c)

    def _all(self, conditions: Iterable[Node]) -> Poly:
        product = nf.constant(1)
        for c in conditions:
            product = product * self._indicator(c)
        return product

    def _comparison(self, c: Node) -> Poly:
        a, b = c.args
        if a is b:
            return self._number(c)
        gap = g.sub(b, a)  # lt: gap > 0, le: gap >= 0, eq: gap == 0
        s = self.signs.of(gap)
        verdict = _decide(c.op, s)
        if verdict is not None:
            self.trace.rule("a comparison is decided by an order fact")
            return self._ordered(gap) if verdict else nf.constant(0)
        tie = self._tie(gap)
        if tie is not None and (c.op == "eq" or not s & NEG or not s & POS):
            equal = nf.generator(tie)
            self.trace.rule("a comparison with an extremum is a tie test")
            strict = self._ordered(gap) - equal
            return equal if c.op == "eq" or (c.op == "le" and not s & POS) else strict
        pair = self.rank_one(self.poly(gap))
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

    def _ordered(self, gap: Node) -> Poly:
        """[no NaN]: the comparison with an extremum holds for numbers, and the extremum is NaN if an element is."""
        extrema = [n for n in linear(gap) if n.op == "reduce" and n.attr.kind in ("max", "min")]
        product = nf.constant(1)
        for stage in extrema:
            if self.scope.is_stage(stage):
                product = product * nf.generator(Node("eq", (stage, stage)))
        return product

    def _tie(self, gap: Node) -> Node | None:
        """gap = q·(extremum - its element): the generator of the event "the element is the extremum"."""
        terms = linear(gap)
        for b in self.signs.bounds:
            q = terms.get(b.extremum)
            if q and b.mask is None and self.scope.is_stage(b.extremum) and b.extremum.args[0] in (b.lesser, b.greater):
                element = b.extremum.args[0]
                if g.sub(gap, g.mul(g.const(q), g.sub(b.extremum, element))) is g.ZERO and not self.scope.uses(element):
                    return self.centring.tie(element, b.extremum)
        return None

    def _signs_of_product(self, op: str, x: Node, h: Node) -> Poly:
        def both(a: str, b: str) -> Poly:
            return nf.generator(_against_zero(a, x)) * nf.generator(_against_zero(b, h))

        x_is_0, h_is_0 = (nf.generator(_against_zero("eq", t)) for t in (x, h))  # 0 times what is no number is NaN
        zero = x_is_0 * nf.generator(finite(h)) + h_is_0 * (nf.generator(finite(x)) - x_is_0)
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
