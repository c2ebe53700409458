"""Functions of mixed arguments, opened where a law allows it: products, signs, order facts, addition theorems.

Each ``_mixed_<op>`` answers with a normal form in which the function no longer mixes elements and stage values, or
with the function itself as a mixed generator.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Poly
from redalg.algebra.scope import CLOSED, EXPONENT, MAX_POWER, OPEN, Centring, Scope, Trace
from redalg.algebra.signs import NEG, POS, Signs
from redalg.graph import node as g
from redalg.graph.formats import FLOATS
from redalg.graph.formula import formula
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node


class Openings:
    """Part of `redalg.engine.rules.separate.Separator`: one method per function that can be opened."""

    scope: Scope
    signs: Signs
    centring: Centring
    trace: Trace
    commuting_casts: bool
    if TYPE_CHECKING:
        poly: Callable[..., Poly]
        factors: Callable[[Node, Poly], tuple[Poly, Poly] | None]
        is_mixed: Callable[[Node], bool]
        _exponential: Callable[[Node, str], Poly]
        _indicator: Callable[[Node], Poly]
        _contraction: Callable[[Node, str], Poly]

    def _opaque(self, node: Node) -> Poly:
        """A mixed generator; odd and even functions are normalised so that equal ones cancel."""
        fact = FUNCTIONS.get(node.op)
        if fact is None or not fact.parity:
            return nf.generator(node)
        p = self.poly(node.args[0])
        if not p:
            return nf.generator(g.fn(node.op, g.ZERO))
        arg, sign = self._oriented(p)
        gen = nf.generator(g.fn(node.op, arg))
        return gen.scale(Fraction(-1)) if sign < 0 and fact.parity == "odd" else gen

    @staticmethod
    def _oriented(p: Poly) -> tuple[Node, int]:
        """The node of ±p whose first term in canonical order has a positive coefficient, and the sign."""
        sign = 1 if p.ordered()[0][1] > 0 else -1
        return nf.poly_node(p if sign > 0 else -p), sign

    def _hoist(self, node: Node) -> Node | None:
        """f(where(c, a, b)) -> where(c, f(a), f(b)), also through a sum, so that masks meet infinities first."""
        if node.op in ("where", "reduce", "cast", "and", "or", "not"):
            return None
        for position, arg in enumerate(node.args):
            selected = self._select(arg)
            if selected is not None:
                c, a, b = selected
                branches = [g.rebuild(node, (*node.args[:position], x, *node.args[position + 1 :])) for x in (a, b)]
                return g.where(c, _at_infinity(branches[0]), _at_infinity(branches[1]))
        return None

    def _select(self, arg: Node) -> tuple[Node, Node, Node] | None:
        if arg.op == "where" and self.scope.mixed(arg):
            return arg.args  # type: ignore[return-value]
        if arg.op == "add":
            for t in arg.args:
                chosen = self._chosen(t)
                if chosen is not None:
                    rest = g.sub(arg, t)
                    return chosen[0], _absorb(rest, chosen[1]), _absorb(rest, chosen[2])
        return self._chosen(arg) if arg.op == "mul" else None

    def _chosen(self, t: Node) -> tuple[Node, Node, Node] | None:
        """A choice that mixes both sides, alone or as a factor: f·where(c, a, b) = where(c, f·a, f·b), for numbers."""
        if t.op == "where" and self.scope.mixed(t):
            return t.args  # type: ignore[return-value]
        choice = next((a for a in t.args if a.op == "where" and self.scope.mixed(a)), None) if t.op == "mul" else None
        if choice is None or any(n.op == "special" for n in g.walk(*choice.args[1:])):
            return None  # (a factor times an infinity has no value where the factor is 0)
        c, *branches = choice.args
        scaled = [g.mul(*(b if a is choice else a for a in t.args)) for b in branches]
        return c, scaled[0], scaled[1]

    def _mixed_reduce(self, node: Node, mode: str) -> Poly:
        """An extremum over another axis: a stage value that lacks the axis leaves it."""
        kind = node.attr.kind
        if kind == "sum":
            return self._contraction(node, mode)
        p = self.poly(node.args[0], _inside(mode))
        over = frozenset(node.attr.axes)
        fixed = Poly({m: c for m, c in p.terms.items() if not any(gen.axes & over for gen, _ in m)})
        inner = nf.poly_node(p - fixed)
        if kind not in ("max", "min") or not fixed or self.scope.uses(inner) or not self.scope.varies(inner):
            return nf.generator(node)
        self.trace.rule("an additive stage value leaves an inner extremum")
        return nf.generator(g.reduction(kind, node.attr.axes, inner)) + fixed

    def _mixed_pow(self, node: Node, mode: str) -> Poly:
        base, e = node.args
        if e.op == "const":
            even = e.attr > 0 and e.attr % 2 == 0
            return (self._power_of_size if even and base.op == "abs" else self._constant_power)(base, e.attr, mode)
        parts = self._power_apart(node)
        if parts is not None:
            return self.poly(parts[0], mode) * self.poly(parts[1], mode)
        if self.signs.positive(base):  # b^e = exp(e·log b)
            return self.poly(g.fn("exp", g.mul(e, g.fn("log", base))), mode)
        return self._opaque(node)

    def _power_of_size(self, size: Node, e: Fraction, mode: str) -> Poly:
        """|t|^e for an even exponent: t^e for real t, else a power of |t|² = (re t)² + (im t)²."""
        inner = size.args[0]
        if not nf.may_be_complex(inner):
            return self._constant_power(inner, e, mode)
        return self.poly(g.power(g.add(*(g.power(g.fn(f, inner), 2) for f in ("re", "im"))), e / 2), mode)

    def _constant_power(self, base: Node, e: Fraction, mode: str) -> Poly:
        whole = e.denominator == 1
        if mode == OPEN and whole and 0 < e <= MAX_POWER:
            return self._open_power(base, int(e))
        p = self.poly(base, _inside(mode))
        if whole and e > 0 and (e <= MAX_POWER or not any(map(self.is_mixed, p.generators()))):
            return p ** int(e)
        if whole and p.single() is not None:
            return self._mono_power(p, e)
        pair = None if not whole and nf.may_be_complex(base) else self.factors(base, p)
        return nf.generator(g.power(nf.poly_node(p), e)) if pair is None else self._power_of_pair(pair, e)

    def _open_power(self, base: Node, e: int) -> Poly:
        product = nf.constant(1)
        for _ in range(e):
            product = product * self.poly(base, OPEN)  # fresh axes for every copy
        return product

    def _power_of_pair(self, pair: tuple[Poly, Poly], e: Fraction) -> Poly:
        self.trace.rule("a power of a product is the product of the powers")
        if e.denominator != 1:
            self._both_nonnegative(pair, f"power {e}")
        big, small = (nf.generator(nf.poly_node(q), e) if q.single() is None else self._mono_power(q, e) for q in pair)
        return big * small

    def _power_apart(self, node: Node) -> tuple[Node, Node] | None:
        """(x·d)^p = x^p·d^p for an exponent that is no number, where at most one factor may be negative."""
        base, e = node.args
        if base.op != "mul":
            return None
        context = [f for f in base.args if not self.scope.varies(f)]
        sides = [g.mul(*(f for f in base.args if f not in context)), g.mul(*context)]
        if g.is_const(sides[0], 1) or not context or not any(map(self.signs.nonnegative, sides)):
            return None
        self.trace.rule("a power of a product is the product of the powers")
        return g.power(sides[0], e), g.power(sides[1], e)

    def _mono_power(self, q: Poly, e: Fraction) -> Poly:
        """A power of one term: exponentials and positive generators take it one by one, the rest in one piece."""
        c, m = q.single()  # type: ignore[misc]
        if nf.divides_by_condition(m, e):
            return nf.generator(nf.mono_node(m, c), e)
        if e.denominator == 1:
            return nf.from_mono(nf.mono_pow(m, e), nf.constant_power(c, int(e)))
        apart = tuple(t for t in m if t[0].op == "exp" or self.signs.positive(t[0]))
        rest = nf.mono_node(tuple(t for t in m if t not in apart), c)
        powers = nf.from_mono(nf.mono_pow(apart, e))
        if g.is_const(rest, 1):
            return powers
        return powers * (
            nf.generator(rest, e) if rest.op not in ("mul", "pow", "const") else nf.generator(g.power(rest, e))
        )

    def _both_nonnegative(self, pair: tuple[Poly, Poly], what: str) -> None:
        for q in pair:
            node = nf.poly_node(q)
            if not self.signs.nonnegative(node):
                self.trace.assume("nonnegative_factors", f"{what} of a product is split: every factor must be >= 0")

    def _mixed_exp(self, node: Node, mode: str) -> Poly:
        self.trace.rule("an exponential of a sum is a product of exponentials")
        return self._exponential(node, mode)

    def _mixed_log(self, node: Node, mode: str) -> Poly:
        p = self.poly(node.args[0])
        pair = None if nf.may_be_complex(node) else self.factors(node.args[0], p)
        if pair is None:
            return nf.generator(g.fn("log", nf.poly_node(p)))
        self.trace.rule("a logarithm of a product is the sum of the logarithms")
        return self._log_factor(pair[0]) + self._log_factor(pair[1])

    def _log_factor(self, q: Poly) -> Poly:
        one = q.single()
        total = nf.constant(0)
        if one is not None:
            for gen, p in one[1]:
                if gen.op == "exp":
                    total = total + self.poly(gen.args[0]).scale(p)
            rest = tuple((gen, p) for gen, p in one[1] if gen.op != "exp")
            unknown = [gen for gen, _ in rest if not self.signs.positive(gen)]
            for gen, p in rest:  # the inverse of a small number may be infinite
                if p < 0 and (gen not in unknown or p == -1 and unknown == [gen] and one[0] > 0):
                    total = total + self._log_factor(nf.generator(gen)).scale(p)
                    rest = tuple(t for t in rest if t[0] is not gen)
            q = nf.from_mono(rest, one[0])
        node = nf.poly_node(q)
        if g.is_const(node, 1):
            return total
        if not self.signs.positive(node):
            self.trace.assume("positive_log_arguments", "log(G·H) = log G + log H holds for positive factors")
        return total + self.poly(g.fn("log", node))

    def _mixed_log1p(self, node: Node, mode: str) -> Poly:
        return self._mixed_log(g.fn("log", g.add(g.ONE, node.args[0])), mode)

    def _mixed_re(self, node: Node, mode: str) -> Poly:
        return self._parts(self.poly(node.args[0], _inside(mode)))[0]

    def _mixed_im(self, node: Node, mode: str) -> Poly:
        return self._parts(self.poly(node.args[0], _inside(mode)))[1]

    def _parts(self, p: Poly) -> tuple[Poly, Poly]:
        """(re p, im p), over the parts of its generators; a generator that is no whole power stays as it is."""
        self.trace.rule("real and imaginary parts of sums and products are those of their parts")
        total = nf.constant(0), nf.constant(0)
        for m, c in p.terms.items():
            real, imaginary = nf.constant(c), nf.constant(0)
            for gen, k in m:
                base, times = (gen, k) if k.denominator == 1 and k > 0 else (nf.mono_node(((gen, k),)), Fraction(1))
                a, b = self._part("re", base), self._part("im", base)
                for _ in range(int(times)):
                    real, imaginary = real * a - imaginary * b, real * b + imaginary * a
            total = total[0] + real, total[1] + imaginary
        return total

    def _part(self, which: str, t: Node) -> Poly:
        if not nf.may_be_complex(t):
            return self.poly(t) if which == "re" else nf.constant(0)
        if t is g.special("i"):
            return nf.constant(1 if which == "im" else 0)
        if t.op == "reduce" and t.attr.kind == "sum":
            return self.poly(Node("reduce", (g.fn(which, t.args[0]),), t.attr))
        part = g.fn(which, t)
        return nf.generator(part) if self.scope.mixed(part) else self.poly(part)

    def _mixed_abs(self, node: Node, mode: str) -> Poly:
        t, mode = node.args[0], _inside(mode)
        s = self.signs.of(t)
        p = self.poly(t, mode)
        if not s & NEG or not s & POS:
            self.trace.rule("an absolute value is opened where an order fact gives the sign")
            return p if not s & NEG else -p
        if not p:
            return p
        pair = self.factors(t, p)
        if pair is not None:
            self.trace.rule("the absolute value of a product is the product of the absolute values")
            return self._abs_factor(pair[0]) * self._abs_factor(pair[1])
        return nf.generator(g.fn("abs", self._oriented(p)[0]))

    def _abs_factor(self, q: Poly) -> Poly:
        node = nf.poly_node(q)
        s = self.signs.of(node)
        if not s & NEG or not s & POS:
            return q if not s & NEG else -q
        c = q.as_constant()
        return nf.constant(abs(c)) if c is not None else nf.generator(g.fn("abs", node))

    def _mixed_relu(self, node: Node, mode: str) -> Poly:
        t, mode = node.args[0], _inside(mode)
        s = self.signs.of(t)
        if not s & NEG or not s & POS:
            self.trace.rule("relu is opened where an order fact gives the sign")
            return self.poly(t, mode) if not s & NEG else nf.constant(0)
        pair = self.factors(t, self.poly(t, mode))
        if pair is not None:
            h = self.signs.of(nf.poly_node(pair[1]))
            if not h & NEG or not h & POS:
                self.trace.rule("relu of a product with a factor of known sign")
                x = pair[0] if not h & NEG else -pair[0]
                return nf.generator(g.fn("relu", nf.poly_node(x))) * (pair[1] if not h & NEG else -pair[1])
            self.trace.rule("relu of a product is the product of factors of one sign")
            x, d = pair  # nothing cancels, as it does in (t + |t|)/2
            return self._relu_factor(x) * self._relu_factor(d) + self._relu_factor(-x) * self._relu_factor(-d)
        return (self.poly(t, mode) + self._mixed_abs(g.fn("abs", t), mode)).scale(Fraction(1, 2))

    def _relu_factor(self, q: Poly) -> Poly:
        node = nf.poly_node(q)
        s = self.signs.of(node)
        if not s & NEG or not s & POS:
            return q if not s & NEG else nf.constant(0)
        return nf.generator(g.fn("relu", node))

    def _mixed_sign(self, node: Node, mode: str) -> Poly:
        pair = self.factors(node.args[0], self.poly(node.args[0]))
        if pair is None:
            return self._opaque(node)
        self.trace.rule("the sign of a product is the product of the signs")
        return nf.generator(g.fn("sign", nf.poly_node(pair[0]))) * nf.generator(g.fn("sign", nf.poly_node(pair[1])))

    def _mixed_maximum(self, node: Node, mode: str) -> Poly:
        first, rest = node.args[0], g.extremum(node.op, *node.args[1:])
        if self.scope.mixed(rest) and not self.scope.mixed(first):
            first, rest = rest, first
        gap = g.sub(first, rest)
        s = self.signs.of(gap)
        sign = 1 if node.op == "maximum" else -1
        if not s & NEG or not s & POS:
            self.trace.rule("a maximum is decided by an order fact")
            return self.poly(first if (not s & NEG) == (sign > 0) else rest, mode)
        if self.scope.mixed(gap) and self.factors(gap, self.poly(gap, _inside(mode))) is not None:
            above = self.poly(g.fn("relu", gap if sign > 0 else g.neg(gap)), mode)
            return self.poly(rest, mode) + above.scale(Fraction(sign))
        spread = self._abs_of(gap, mode)
        return (self.poly(first, mode) + self.poly(rest, mode) + spread.scale(Fraction(sign))).scale(Fraction(1, 2))

    _mixed_minimum = _mixed_maximum

    def _abs_of(self, t: Node, mode: str) -> Poly:
        return self._mixed_abs(g.fn("abs", t), mode) if self.scope.mixed(t) else self.poly(g.fn("abs", t), mode)

    def _mixed_where(self, node: Node, mode: str) -> Poly:
        c, a, b = node.args
        return self._indicator(c) * self.poly(a, mode) + self._indicator(g.negate(c)) * self.poly(b, mode)

    def _mixed_cast(self, node: Node, mode: str) -> Poly:
        if not self.commuting_casts:
            return nf.generator(node)
        p = self.poly(node.args[0], _inside(mode))
        self.trace.assume("cast_commutes", _rounding_bound(node.attr))
        pair = self.factors(node.args[0], p)
        if pair is not None:
            scaled = self.centring.cast(node.attr, *pair)
            if scaled is not None:
                return scaled
        self.trace.assume("cast_left_out", f"the argument of the cast to {node.attr} is no scaling: it is not rounded")
        return p

    def _by_theorem(self, node: Node, mode: str) -> Poly:
        op, arg, mode, row = node.op, node.args[0], _inside(mode), FUNCTIONS[node.op]
        if row.exponential:
            total = nf.constant(0)
            for coefficient, rate in row.exponential:
                e = self.poly(g.fn("exp", g.mul(formula(rate), arg)), mode)
                total = total + e.scale(Fraction(coefficient))
            return total
        terms = self._terms(arg)
        elements = [t for t in terms if self.scope.varies(t) and not self.scope.uses(t)]
        if not elements or len(elements) == len(terms):
            return self._opaque(node)
        s, t = g.add(*elements), g.add(*(t for t in terms if t not in elements))
        self.trace.rule(f"addition theorem of {op}")
        total = nf.constant(0)
        for c, outer_s, outer_t in row.addition:
            total = total + (self.poly(g.fn(outer_s, s), mode) * self.poly(g.fn(outer_t, t), mode)).scale(Fraction(c))
        return total

    def _terms(self, arg: Node) -> list[Node]:
        """The terms of an angle; a contraction or a product that mixes both sides is distributed first."""
        terms = list(arg.args if arg.op == "add" else (arg,))
        if not any(map(self.scope.mixed, terms)):
            return terms
        p = self.poly(arg, EXPONENT)
        return [nf.mono_node(m, c) for m, c in p.ordered()] if not any(map(self.is_mixed, p.generators())) else terms


def _rounding_bound(dtype: str) -> str:
    """What rounding at another scale than the final one can change, per element."""
    held = f"rounding to {dtype} is taken to commute with the stage values"
    if dtype in FLOATS:
        return f"{held}: each rounded element is off by at most a relative 2^-{FLOATS[dtype].bits} (normal range)"
    return f"{held}: each rounded element is off by at most 1, in steps of its scale"


def _inside(mode: str) -> str:
    """The mode for the argument of a function: contractions are closed there."""
    return CLOSED if mode == OPEN else mode


def _absorb(rest: Node, value: Node) -> Node:
    return value if value.op == "special" else g.add(rest, value)


def _at_infinity(node: Node) -> Node:
    """exp(-oo) = 0 and the like for a branch that has become a constant."""
    row = FUNCTIONS.get(node.op)
    return g.ZERO if row is not None and row.low == "0" and node.args[0] is g.NEG_INF else node
