"""Separation of a stage body into element and context factors (theory, sections 2.1, 2.2 and 3.4).

`Separator.poly` turns a body F(x, D) into the normal form of `redalg.algebra.polynomial`. Every generator is an
*element* (varies
along the axis, free of stage values), a *context* (a function of stage values and parameters) or *mixed*. The body has
finite rank as soon as no mixed generator survives. Functions are opened only where they mix both sides, by addition
theorems, by factoring their argument (a rank-1 argument G·H), or by the order facts of the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import ClassVar

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly, TooLarge
from redalg.algebra.scope import CLOSED, EXPONENT, MAX_CONTEXT, OPEN, WHOLE, Centring, NoCentring, Scope, Trace
from redalg.algebra.signs import Signs
from redalg.algebra.work import spend
from redalg.engine.rules.affine import affine, without_constant
from redalg.engine.rules.conditions import Conditions
from redalg.engine.rules.opening import Openings
from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import Node

INDICATORS = frozenset({"eq", "ne", "lt", "le", "and", "or", "not"})


class _Inside(set[Node]):
    """Nodes that were met inside exponents, and all stages: their values are not looked into."""

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self.scope = scope

    def __contains__(self, node: object) -> bool:
        return super().__contains__(node) or isinstance(node, Node) and self.scope.is_stage(node)


class Separator(Openings, Conditions):
    """Normal forms of bodies under given stage values, order facts and centring."""

    def __init__(
        self,
        scope: Scope,
        signs: Signs,
        stage_value: Callable[[Node], Poly],
        centring: Centring,
        trace: Trace,
        commuting_casts: bool = False,
        stage: Node | None = None,
    ) -> None:
        self.stage = stage  # whose body is separated; None: an output
        self.scope, self.signs, self.stage_value = scope, signs, stage_value
        self.centring, self.trace, self.commuting_casts = centring, trace, commuting_casts
        self._memo: dict[tuple[Node, str], Poly] = {}
        self._fresh = 0
        self._inside = _Inside(scope)

    # --- classification of generators ---

    def is_mixed(self, gen: Node) -> bool:
        return self.scope.mixed(gen) and not self.centring.is_centred(gen)

    def split(self, m: Mono) -> tuple[Mono, Mono]:
        """(varying part, context and parameter part) of a monomial."""
        varying = {gen for gen, _ in m if self.scope.varies(gen)}
        if any(gen.op == "exp" for gen in varying):  # constant exponents stay with the exponential they tame
            varying |= {gen for gen, _ in m if gen.op == "exp" and not self.scope.uses(gen)}
        return tuple(t for t in m if t[0] in varying), tuple(t for t in m if t[0] not in varying)

    def rows(self, p: Poly) -> dict[Mono, Poly]:
        """Coefficients of the varying monomials: F = Σ_e e·rows[e]."""
        spend(len(p))
        out: dict[Mono, dict[Mono, Fraction]] = {}
        for m, c in p.terms.items():
            e, h = self.split(m)
            out.setdefault(e, {})[h] = c  # of one e no two are alike
        return {e: Poly(h) for e, h in out.items()}

    def mixed_generators(self, p: Poly) -> list[Node]:
        return [gen for gen in p.generators() if self.is_mixed(gen)]

    def rank_one(self, p: Poly) -> tuple[Poly, Poly] | None:
        """(G, H) with p = G(x)·H(D), where the rank is one and nothing is mixed."""
        if not p or self.mixed_generators(p):
            return None
        pairs = nf.rank_factor(self.rows(p))
        return pairs[0] if len(pairs) == 1 else None

    def factors(self, t: Node, p: Poly) -> tuple[Poly, Poly] | None:
        """(G, H) with t = G(x)·H(D), p being its normal form; of elements as they are where centred ones, (x - A) + A,
        are no factor any more: a function of them is one of x."""
        return self.rank_one(p) or self.rank_one(self.poly(t, EXPONENT))

    # --- normal forms ---

    def poly(self, node: Node, mode: str = CLOSED) -> Poly:
        """The normal form. ``EXPONENT``: inside exponents, where generators are centred as a whole, not one by one.

        ``OPEN``: contractions with stage values are left open, one fresh axis name each, and whoever asks sums over
        those axes last; only sums and products keep that possible, everything else sees closed contractions.
        ``WHOLE``: sums of elements are one generator each, as what an exponential is multiplied by.
        """
        if mode == OPEN and not self._opens(node):
            mode = CLOSED
        if mode == OPEN:
            return self._poly(node, mode)  # not memoised: every occurrence needs axes of its own
        key = (node, mode)
        if key not in self._memo:
            if node.op == "exp":
                self._inner_first(node)
            self._memo[key] = self._poly(node, mode)
        return self._memo[key]

    def _inner_first(self, node: Node) -> None:
        """Stage values that are exponentials of stage values, and so on: from the inside, without recursion."""
        below = list(g.walk(*node.args, done=self._inside))
        self._inside.update(below)
        for n in below:
            if n.op == "exp" and self.scope.uses(n) and not self.scope.varies(n):
                self.poly(n, EXPONENT)

    def _opens(self, node: Node) -> bool:
        if not self.scope.mixed(node):
            return False
        if node.op == "reduce":
            return bool(node.attr.kind == "sum")
        return node.op in ("add", "mul", "pow", "where") and any(map(self._opens, node.args))

    def _poly(self, node: Node, mode: str) -> Poly:
        if node.op == "const":
            return nf.constant(node.attr)
        varies, uses = self.scope.varies(node), self.scope.uses(node)
        if uses and not varies:
            return self._context(node, mode)
        if varies and uses:
            return self._mixed(node, mode)
        if varies and mode != EXPONENT:
            centred = self.centring.element(node, self.stage)
            if centred is not None:
                return centred
        try:
            return self._pure(node, mode, element=varies)
        except TooLarge:
            return nf.generator(node)

    def _context(self, node: Node, mode: str) -> Poly:
        """A stage value; as one generator where it has several terms and nothing in it can cancel an anchor."""
        try:
            p = self.stage_value(node) if self.scope.is_stage(node) else self._pure(node, mode, element=False)
        except TooLarge:
            return nf.generator(node)
        return p if len(p) < 2 or self.centring.moves(p) else nf.generator(node)

    def _pure(self, node: Node, mode: str, element: bool) -> Poly:
        """Element-only, context-only and parameter nodes: linear structure only, everything else is opaque."""
        rule = self._PURE.get(node.op)
        found = rule(self, node, mode, element) if rule is not None else None
        return nf.generator(node) if found is None else found

    def _pure_sum(self, node: Node, mode: str, element: bool) -> Poly:
        if mode == WHOLE:
            alone = self.poly(node, EXPONENT)
            return nf.generator(node) if len(alone) > 1 else alone
        total = nf.constant(0)
        for a in node.args:
            total = total + self.poly(a, mode)
        if len(total) > MAX_CONTEXT and not element:
            raise TooLarge("stage value")
        return total

    def _pure_product(self, node: Node, mode: str, element: bool) -> Poly:
        part = self.centring.factor(node, self.stage) if element and mode != EXPONENT else None
        if part is not None:
            return self.poly(part, mode) * self.poly(g.div(node, part), mode)
        product = nf.constant(1)
        for a in node.args:
            p = self.poly(a, mode)
            product = product * (nf.generator(a) if element and len(p) > 1 and a.op == "add" else p)
        if len(product) > MAX_CONTEXT and not element:
            raise TooLarge("stage value")
        return product

    def _pure_power(self, node: Node, mode: str, element: bool) -> Poly | None:
        if node.args[1].op != "const":
            return None
        base, e = node.args[0], node.args[1].attr
        p = self.poly(base, mode)
        one = p.single()
        if e.denominator == 1 and one is not None:
            return self._mono_power(p, e)
        if e.denominator == 1 and 1 < e <= MAX_CONTEXT and not element and len(p) ** int(e) <= MAX_CONTEXT:
            return p ** int(e)
        if p == nf.generator(base):
            return nf.generator(base, e)
        if one is not None and any(gen.op == "exp" for gen, _ in one[1]):
            return self._mono_power(p, e)
        return nf.generator(base, e) if p and e.denominator == 1 and not element else None

    def _element_where(self, node: Node, mode: str, element: bool) -> Poly | None:
        c, a, b = node.args
        if not element or any(n.op == "special" for part in (a, b) for n in g.walk(part)):
            return None
        return self._indicator(c) * self.poly(a, mode) + self._indicator(g.negate(c)) * self.poly(b, mode)

    def _context_log(self, node: Node, mode: str, element: bool) -> Poly | None:
        """log of a one-term stage value with exponentials: log(e^m·l) = m + log l (both factors positive)."""
        if element or not self.scope.uses(node) or nf.may_be_complex(node):
            return None
        one = self.poly(node.args[0]).single()
        if one is None or not any(gen.op == "exp" for gen, _ in one[1]):
            return None
        rest = tuple((gen, p) for gen, p in one[1] if gen.op != "exp")
        total = nf.constant(0)
        for gen, p in one[1]:
            if gen.op == "exp":
                total = total + self.poly(gen.args[0], EXPONENT).scale(p)
        left = nf.mono_node(rest, one[0])
        return total if g.is_const(left, 1) else total + nf.generator(g.fn("log", left))

    def _exponential(self, node: Node, mode: str, element: bool = False) -> Poly:
        """exp(Σ c·t) = Π exp(t)^c; exp(c·log t) = t^c."""
        arg = self.poly(node.args[0], EXPONENT)
        out = nf.constant(1)
        for m, c in arg.ordered():
            if m == nf.UNIT:
                out = out * nf.generator(g.fn("exp", g.ONE), c)
            elif len(m) == 1 and m[0][1] == 1 and m[0][0].op == "log":
                out = out * nf.generator(m[0][0].args[0], c)
            else:
                out = out * nf.generator(g.fn("exp", nf.mono_node(m)), c)
        return out

    # operation -> normal form of a node that does not mix both sides; None where it is opaque
    _PURE: ClassVar[dict[str, Callable[[Separator, Node, str, bool], Poly | None]]] = {
        "add": _pure_sum,
        "mul": _pure_product,
        "pow": _pure_power,
        "exp": _exponential,
        "log": _context_log,
        "where": _element_where,
    }

    # --- bodies that mix elements and contexts ---

    def _mixed(self, node: Node, mode: str) -> Poly:
        try:
            return self._opened(node, mode)
        except TooLarge as budget:
            self.trace.oversized.setdefault(node, str(budget))
            return nf.generator(node)

    def _opened(self, node: Node, mode: str) -> Poly:
        op = node.op
        if op in ("add", "mul"):
            total, rest = self._start(node, mode)
            if op == "mul":
                return reduce(mul, self._weighted(rest, mode), total)
            for a in rest if mode == EXPONENT else self._gathered(rest):
                total = total + self.poly(a, mode)
            return self._shifted(total) if mode != EXPONENT else total
        hoisted = self._hoist(node)
        if hoisted is not None:
            return self.poly(hoisted, mode)
        handler = getattr(self, f"_mixed_{op}", None)
        if handler is not None:
            result: Poly = handler(node, mode)
            return result
        row = FUNCTIONS.get(op)
        if row is not None and (row.addition or row.exponential):
            return self._by_theorem(node, mode)
        return self._indicator(node) if op in INDICATORS else self._opaque(node)

    def _weighted(self, factors: list[Node], mode: str) -> list[Poly]:
        """The factors of a product. A sum of elements that weighs an exponential stays one factor: where it is 0, and
        its terms are not, an element counts for nothing, whatever its exponential is. So does one less a constant,
        x - c, which has digits that neither Σx·h nor c·Σh has."""
        found = [self.poly(a, mode) for a in factors]
        generators = {gen for p in found for gen in p.generators()}
        if mode == EXPONENT or any(map(self.is_mixed, generators)):
            return found
        exponentials = [gen for gen in generators if gen.op == "exp" and self.scope.varies(gen)]
        own = self.scope.axes.union(*(gen.axes for gen in exponentials)) if exponentials else None
        mixed = set(g.walk(*filter(self.scope.mixed, factors)))  # what stands in another one may cancel with it
        whole = [a not in mixed and (self._is_of(a, own) or self._is_difference(a)) for a in factors]
        return [self.poly(a, WHOLE) if w else p for a, p, w in zip(factors, found, whole, strict=True)]

    def _is_of(self, factor: Node, own: frozenset[str] | None) -> bool:
        """Whether a factor is a number of the elements that an exponential is of, and of no further axes."""
        return own is not None and self.scope.varies(factor) and not self.scope.uses(factor) and factor.axes <= own

    def _is_difference(self, factor: Node) -> bool:
        """Whether a factor is a sum of elements and of what is known of no axis: x - c."""
        if factor.op != "add" or not self.scope.varies(factor) or self.scope.uses(factor):
            return False
        known = [a for a in factor.args if not self.scope.varies(a)]
        elements = frozenset[str]().union(*(a.axes for a in factor.args if a not in known))
        return any(a.op != "size" for a in known) and all(a.axes <= elements for a in known)

    def _gathered(self, terms: list[Node]) -> list[Node]:
        """The terms of a sum. Those that weigh one exponential by elements are one: (1 - w)·e^(x-u) for e^(x-u) -
        w·e^(x-u)."""
        weights: dict[Node, list[Node]] = {}
        for t in terms:
            factors = t.args if t.op == "mul" else (t,)
            apart = [f for f in factors if not self.scope.uses(f)]
            weighed = [f for f in factors if f not in apart]
            own = self.scope.axes.union(*(f.axes for f in weighed if f.op == "exp"))
            plain = any(f.op == "exp" for f in weighed) and all(f.axes <= own for f in apart)
            key, weight = (g.mul(*weighed), g.mul(*apart)) if plain else (t, g.ONE)
            weights.setdefault(key, []).append(weight)
        return [key if ws == [g.ONE] else g.mul(g.add(*ws), key) for key, ws in weights.items()]

    def _start(self, node: Node, mode: str) -> tuple[Poly, list[Node]]:
        """What a sum or product begins with, and its other arguments: elements that deviate from stage values are one
        centred value, x - v in (x - v) - mean(x - v)."""
        if node.op == "mul":
            return self._start_of_product(node, mode)
        if mode != EXPONENT:
            centred = self.centring.deviation(node, self.stage)
            found = affine(self.scope, node) if centred is not None else None
            if centred is not None and found is not None:
                (value, slope), *_ = found.terms
                return self._coefficient(value) * self.poly(slope) * centred, list(found.fixed)
        pure = [a for a in node.args if self.scope.varies(a) and not self.scope.uses(a)]
        whole = g.add(*pure)
        others = [a for a in node.args if a not in pure]
        if pure and mode != EXPONENT:
            centred = self.centring.element(whole, self.stage) if len(pure) > 1 else None
            if centred is not None:
                return centred, others
        return nf.constant(0), list(node.args)

    def _start_of_product(self, node: Node, mode: str) -> tuple[Poly, list[Node]]:
        """Elements that are centred as one value, x·z in n·x·z - Σx·z."""
        pure = [a for a in node.args if self.scope.varies(a) and not self.scope.uses(a)]
        if len(pure) > 1 and mode != EXPONENT:
            centred = self.centring.element(g.mul(*pure), self.stage)
            if centred is not None:
                return centred, [a for a in node.args if a not in pure]
        return nf.constant(1), list(node.args)

    def _coefficient(self, elements: Node) -> Poly:
        """Constants and parameters that multiply an element value of one term."""
        one = self.poly(elements, EXPONENT).single()
        if one is None:
            return nf.constant(without_constant(elements)[0])
        return nf.from_mono(self.split(one[1])[1], one[0])

    def _shifted(self, total: Poly) -> Poly:
        """Beside centred elements the stage values of a sum stay one difference: (c + δ)², not expanded in A and D."""
        if not self.centring.is_active():
            return total
        fixed = self.rows(total).get(nf.UNIT, Poly())
        if not self.centring.moves(fixed):
            return total
        over = {frozenset(a for gen, _ in m for a in gen.axes if "~" in a) for m in fixed.terms}
        if len(fixed) < 2 or len(over) > 1 or not any(self.centring.is_centred(gen) for gen in total.generators()):
            return total
        return total - fixed + nf.generator(nf.poly_node(fixed))

    def _contraction(self, node: Node, mode: str) -> Poly:
        """A sum over another axis inside a body: its sums are swapped, its slots keep that axis under a fresh name."""
        if node.attr.kind != "sum":
            return nf.generator(node)
        self.trace.rule("a contraction with a stage value swaps its sums")
        self._fresh += 1
        names = {a: f"{a}~{self._fresh}" for a in node.attr.axes}
        inner = OPEN if mode == OPEN else EXPONENT  # what is centred of a closed Σ_d q·(k - D) is Σ_d q·k as a whole
        body = _everywhere(self.poly(g.rename_axes(node.args[0], names), inner), names)
        return body if mode == OPEN else self._closed(body, frozenset(names.values()), node)

    def _closed(self, body: Poly, fresh: frozenset[str], node: Node) -> Poly:
        """Sum over the fresh axes where one side is free of them; else the contraction is a mixed generator."""
        total = Poly()
        for m, c in body.terms.items():
            bound = tuple(t for t in m if t[0].axes & fresh)
            rest = nf.from_mono(tuple(t for t in m if t not in bound), c)
            sides = {self.scope.varies(gen) for gen, _ in bound if self.scope.varies(gen) or self.scope.uses(gen)}
            if len(sides) == 2:
                return nf.generator(node)
            total = total + (rest * nf.total(bound, fresh) if bound else rest)
        return total


def _everywhere(p: Poly, names: dict[str, str]) -> Poly:
    """Terms that are constant along a summed axis count once per position of it."""
    total = Poly()
    for m, c in p.terms.items():
        axes = {a for gen, _ in m for a in gen.axes}
        total = total + nf.from_mono(m, c) * nf.sizes(a for a, fresh in names.items() if fresh not in axes)
    return total


__all__ = ["CLOSED", "EXPONENT", "OPEN", "Centring", "NoCentring", "Scope", "Separator", "Trace"]
