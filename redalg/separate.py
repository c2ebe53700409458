"""Separation of a stage body into element and context factors (theory, sections 2.1, 2.2 and 3.4).

`Separator.poly` turns a body F(x, D) into the normal form of `redalg.normal`. Every generator is an *element* (varies
along the axis, free of stage values), a *context* (a function of stage values and parameters) or *mixed*. The body has
finite rank as soon as no mixed generator survives. Functions are opened only where they mix both sides, by addition
theorems, by factoring their argument (a rank-1 argument G·H), or by the order facts of the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from redalg import graph as g
from redalg import normal as nf
from redalg.facts import ADDITION, EXPONENTIAL, FUNCTIONS
from redalg.graph import Node
from redalg.normal import Mono, Poly, TooLarge
from redalg.plan import COUNT
from redalg.signs import NEG, POS, ZERO, Signs, flip

MAX_POWER = 12  # integer powers of mixed sums are expanded up to here
MAX_CONTEXT = 24  # terms of a stage value that are still substituted into a body


class Centring(Protocol):
    """How generators are centred (see `redalg.anchoring`); the raw analysis uses `NoCentring`."""

    def element(self, node: Node) -> Poly | None: ...
    def tie(self, element: Node, stage: Node) -> Node | None: ...
    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None: ...
    def is_centred(self, node: Node) -> bool: ...
    def is_active(self) -> bool: ...


class NoCentring:
    """Raw analysis: nothing is centred; ties and commuting casts are kept as formal element generators."""

    def __init__(self) -> None:
        self.ties: dict[Node, tuple[Node, Node]] = {}  # generator -> (element, extremum stage)
        self.casts: dict[Node, tuple[Poly, Poly]] = {}  # generator -> (G, H)

    def element(self, node: Node) -> Poly | None:
        return None

    def tie(self, element: Node, stage: Node) -> Node | None:
        gen = Node("eq", (element, stage))
        self.ties[gen] = (element, stage)
        return gen

    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None:
        gen = Node("cast", (nf.poly_node(element),), dtype)
        self.casts[gen] = (element, context)
        return nf.generator(gen) * context

    def is_centred(self, node: Node) -> bool:
        return node in self.ties

    def is_active(self) -> bool:
        return False


@dataclass
class Trace:
    """What was used on the way: rules in order of first use, and named assumptions with their reason."""

    rules: dict[str, None] = field(default_factory=dict)
    assumptions: dict[str, str] = field(default_factory=dict)

    def rule(self, name: str) -> None:
        self.rules.setdefault(name)

    def assume(self, name: str, why: str) -> None:
        self.assumptions.setdefault(name, why)


class Scope:
    """Which nodes vary along the axis and which depend on stage values of the current pass."""

    def __init__(self, axis: tuple[str, ...], known: Iterable[Node] = ()) -> None:
        self.axis = axis
        self.axes = frozenset(axis)
        self.known = frozenset(known)  # stages of earlier passes: constants, and with them the count of elements
        self._uses: dict[Node, bool] = {}
        self._earlier: dict[Node, bool] = {}

    def is_known(self, node: Node) -> bool:
        """A function of earlier passes' stage values (and of parameters), of nothing in this pass."""
        found = self._earlier.get(node)
        if found is None:
            if node in self.known or node is COUNT and bool(self.known):
                found = True
            else:
                found = any(map(self.is_known, node.args)) and not self.uses(node) and not self.varies(node)
            self._earlier[node] = found
        return found

    def varies(self, node: Node) -> bool:
        return bool(node.axes & self.axes)

    def is_stage(self, node: Node) -> bool:
        return node.op == "reduce" and node.attr.axes == self.axis and node not in self.known

    def uses(self, node: Node) -> bool:
        found = self._uses.get(node)
        if found is None:
            if node in self.known:
                found = False
            elif self.is_stage(node) or node is COUNT and not self.known or node.op == "state" and node is not COUNT:
                found = True
            else:
                found = any(self.uses(a) for a in node.args)
            self._uses[node] = found
        return found

    def mixed(self, node: Node) -> bool:
        return self.varies(node) and self.uses(node)


class Separator:
    """Normal forms of bodies under given stage values, order facts and centring."""

    def __init__(
        self,
        scope: Scope,
        signs: Signs,
        stage_value: Callable[[Node], Poly],
        centring: Centring,
        trace: Trace,
        commuting_casts: bool = False,
    ) -> None:
        self.scope, self.signs, self.stage_value = scope, signs, stage_value
        self.centring, self.trace, self.commuting_casts = centring, trace, commuting_casts
        self._memo: dict[tuple[Node, bool], Poly] = {}
        self._fresh = 0

    # --- classification of generators ---

    def is_element(self, gen: Node) -> bool:
        return self.scope.varies(gen) and (not self.scope.uses(gen) or self.centring.is_centred(gen))

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
        out: dict[Mono, Poly] = {}
        for m, c in p.terms.items():
            e, h = self.split(m)
            out[e] = out.get(e, Poly()) + nf.from_mono(h, c)
        return {e: h for e, h in out.items() if h}

    def mixed_generators(self, p: Poly) -> list[Node]:
        return [gen for gen in p.generators() if self.is_mixed(gen)]

    def rank_one(self, p: Poly) -> tuple[Poly, Poly] | None:
        """(G, H) with p = G(x)·H(D), where the rank is one and nothing is mixed."""
        if not p or self.mixed_generators(p):
            return None
        pairs = nf.rank_factor(self.rows(p))
        return pairs[0] if len(pairs) == 1 else None

    # --- normal forms ---

    def poly(self, node: Node, raw: bool = False) -> Poly:
        """The normal form. `raw`: inside exponents, where generators are centred as a whole, not one by one."""
        key = (node, raw)
        if key not in self._memo:
            self._memo[key] = self._poly(node, raw)
        return self._memo[key]

    def _poly(self, node: Node, raw: bool) -> Poly:
        if node.op == "const":
            return nf.constant(node.attr)
        if self.scope.is_stage(node):
            return self.stage_value(node)
        varies, uses = self.scope.varies(node), self.scope.uses(node)
        if varies and uses:
            return self._mixed(node, raw)
        if varies and not raw:
            centred = self.centring.element(node)
            if centred is not None:
                return centred
        try:
            return self._pure(node, raw, element=varies)
        except TooLarge:
            return nf.generator(node)

    def _pure(self, node: Node, raw: bool, element: bool) -> Poly:
        """Element-only, context-only and parameter nodes: linear structure only, everything else is opaque."""
        op = node.op
        if op == "add":
            total = nf.constant(0)
            for a in node.args:
                total = total + self.poly(a, raw)
            if len(total) > MAX_CONTEXT and not element:
                raise TooLarge("stage value")
            return total
        if op == "mul":
            product = nf.constant(1)
            for a in node.args:
                p = self.poly(a, raw)
                product = product * (nf.generator(a) if element and len(p) > 1 and a.op == "add" else p)
            if len(product) > MAX_CONTEXT and not element:
                raise TooLarge("stage value")
            return product
        if op == "pow" and node.args[1].op == "const":
            return self._pure_power(node, raw, element)
        if op == "exp":
            return self._exponential(node, raw)
        if op == "log" and not element and self.scope.uses(node):
            return self._context_log(node)
        if op == "where" and element:
            return self._element_where(node, raw)
        return nf.generator(node)

    def _pure_power(self, node: Node, raw: bool, element: bool) -> Poly:
        base, e = node.args[0], node.args[1].attr
        p = self.poly(base, raw)
        one = p.single()
        if e.denominator == 1 and one is not None:
            return nf.from_mono(nf.mono_pow(one[1], e), one[0] ** int(e))
        if e.denominator == 1 and e > 1 and not element and len(p) ** int(e) <= MAX_CONTEXT:
            return p ** int(e)
        if p == nf.generator(base):
            return nf.generator(base, e)
        if e.denominator == 1 and not element:
            return nf.generator(base, e) if p else nf.generator(node)
        return nf.generator(node)

    def _element_where(self, node: Node, raw: bool) -> Poly:
        c, a, b = node.args
        if any(n.op == "special" for part in (a, b) for n in g.walk(part)):
            return nf.generator(node)
        return self._indicator(c) * self.poly(a, raw) + self._indicator(g.negate(c)) * self.poly(b, raw)

    def _context_log(self, node: Node) -> Poly:
        """log of a one-term stage value with exponentials: log(e^m·l) = m + log l (both factors positive)."""
        one = self.poly(node.args[0]).single()
        if one is None or not any(gen.op == "exp" for gen, _ in one[1]):
            return nf.generator(node)
        rest = tuple((gen, p) for gen, p in one[1] if gen.op != "exp")
        total = nf.constant(0)
        for gen, p in one[1]:
            if gen.op == "exp":
                total = total + self.poly(gen.args[0], True).scale(p)
        left = nf.mono_node(rest, one[0])
        return total if g.is_const(left, 1) else total + nf.generator(g.fn("log", left))

    def _exponential(self, node: Node, raw: bool) -> Poly:
        """exp(Σ c·t) = Π exp(t)^c; exp(c·log t) = t^c."""
        arg = self.poly(node.args[0], True)
        out = nf.constant(1)
        for m, c in arg.ordered():
            if m == nf.UNIT:
                out = out * nf.generator(g.fn("exp", g.ONE), c)
            elif len(m) == 1 and m[0][1] == 1 and m[0][0].op == "log":
                out = out * nf.generator(m[0][0].args[0], c)
            else:
                out = out * nf.generator(g.fn("exp", nf.mono_node(m)), c)
        return out

    # --- bodies that mix elements and contexts ---

    def _mixed(self, node: Node, raw: bool) -> Poly:
        op = node.op
        try:
            if op in ("add", "mul"):
                total = nf.constant(0 if op == "add" else 1)
                for a in node.args:
                    p = self.poly(a, raw)
                    total = total + p if op == "add" else total * p
                return self._shifted(total) if op == "add" and not raw else total
            hoisted = self._hoist(node)
            if hoisted is not None:
                return self.poly(hoisted, raw)
            if op == "pow" and node.args[1].op == "const":
                return self._mixed_power(node, raw)
            handler = getattr(self, f"_mixed_{op}", None)
            if handler is not None:
                result: Poly = handler(node, raw)
                return result
            if op in ADDITION or op in EXPONENTIAL:
                return self._by_theorem(node, raw)
            if op in ("eq", "ne", "lt", "le", "and", "or", "not"):
                return self._indicator(node)
            if op == "reduce":
                return self._contraction(node, raw)
            return self._opaque(node)
        except TooLarge:
            return nf.generator(node)

    def _shifted(self, total: Poly) -> Poly:
        """Beside centred elements, the stage values of a sum stay one difference: (c + δ)², never expanded in A and D."""
        if not self.centring.is_active():
            return total
        fixed = self.rows(total).get(nf.UNIT, Poly())
        if len(fixed) < 2 or not any(self.centring.is_centred(gen) for gen in total.generators()):
            return total
        return total - fixed + nf.generator(nf.poly_node(fixed))

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
                branches = [
                    g.rebuild(node, (*node.args[:position], x, *node.args[position + 1 :])) for x in (a, b)
                ]
                return g.where(c, _at_infinity(branches[0]), _at_infinity(branches[1]))
        return None

    def _select(self, arg: Node) -> tuple[Node, Node, Node] | None:
        if arg.op == "where" and self.scope.mixed(arg):
            return arg.args  # type: ignore[return-value]
        if arg.op == "add":
            for t in arg.args:
                if t.op == "where" and self.scope.mixed(t):
                    rest = g.sub(arg, t)
                    return t.args[0], _absorb(rest, t.args[1]), _absorb(rest, t.args[2])
        return None

    def _mixed_power(self, node: Node, raw: bool) -> Poly:
        base, e = node.args[0], node.args[1].attr
        if base.op == "abs" and e.denominator == 1 and e > 0 and e % 2 == 0:
            base = base.args[0]
        if base.op == "reduce" and e.denominator == 1 and 0 < e <= MAX_POWER:
            product = nf.constant(1)
            for _ in range(int(e)):
                product = product * self._contraction(base, raw)  # fresh axes for every copy
            return product
        p = self.poly(base, raw)
        if e.denominator == 1 and 0 < e <= MAX_POWER:
            return p ** int(e)
        if e.denominator == 1 and p.single() is not None:
            c, m = p.single()  # type: ignore[misc]
            return nf.from_mono(nf.mono_pow(m, e), c ** int(e))
        pair = self.rank_one(p)
        if pair is None:
            return nf.generator(g.power(nf.poly_node(p), node.args[1]))
        self.trace.rule("a power of a product is the product of the powers")
        if e.denominator != 1:
            self._both_nonnegative(pair, f"power {e}")
        big, small = (nf.generator(nf.poly_node(q), e) if q.single() is None else self._mono_power(q, e) for q in pair)
        return big * small

    def _mono_power(self, q: Poly, e: Fraction) -> Poly:
        c, m = q.single()  # type: ignore[misc]
        if e.denominator == 1:
            return nf.from_mono(nf.mono_pow(m, e), c ** int(e))
        node = nf.poly_node(q)
        if c == 1 and len(m) == 1 and m[0][1] == 1:
            return nf.generator(m[0][0], e)
        return nf.generator(Node("pow", (node, g.const(e))))

    def _both_nonnegative(self, pair: tuple[Poly, Poly], what: str) -> None:
        for q in pair:
            node = nf.poly_node(q)
            if not self.signs.nonnegative(node):
                self.trace.assume("nonnegative_factors", f"{what} of a product is split: every factor must be >= 0")

    def _mixed_exp(self, node: Node, raw: bool) -> Poly:
        self.trace.rule("an exponential of a sum is a product of exponentials")
        return self._exponential(node, raw)

    def _mixed_log(self, node: Node, raw: bool) -> Poly:
        pair = self.rank_one(self.poly(node.args[0]))
        if pair is None:
            return nf.generator(g.fn("log", nf.poly_node(self.poly(node.args[0]))))
        self.trace.rule("a logarithm of a product is the sum of the logarithms")
        return self._log_factor(pair[0]) + self._log_factor(pair[1])

    def _log_factor(self, q: Poly) -> Poly:
        one = q.single()
        total = nf.constant(0)
        if one is not None:
            for gen, p in one[1]:
                if gen.op == "exp":
                    total = total + self.poly(gen.args[0], True).scale(p)
            q = nf.from_mono(tuple((gen, p) for gen, p in one[1] if gen.op != "exp"), one[0])
        node = nf.poly_node(q)
        if g.is_const(node, 1):
            return total
        if not self.signs.positive(node):
            self.trace.assume("positive_log_arguments", "log(G·H) = log G + log H holds for positive factors")
        return total + nf.generator(g.fn("log", node))

    def _mixed_log1p(self, node: Node, raw: bool) -> Poly:
        return self._mixed_log(g.fn("log", g.add(g.ONE, node.args[0])), raw)

    def _mixed_abs(self, node: Node, raw: bool) -> Poly:
        t = node.args[0]
        s = self.signs.of(t)
        p = self.poly(t, raw)
        if not s & NEG or not s & POS:
            self.trace.rule("an absolute value is opened where an order fact gives the sign")
            return p if not s & NEG else -p
        if not p:
            return p
        pair = self.rank_one(p)
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

    def _mixed_relu(self, node: Node, raw: bool) -> Poly:
        t = node.args[0]
        s = self.signs.of(t)
        if not s & NEG or not s & POS:
            self.trace.rule("relu is opened where an order fact gives the sign")
            return self.poly(t, raw) if not s & NEG else nf.constant(0)
        pair = self.rank_one(self.poly(t, raw))
        if pair is not None:
            h = self.signs.of(nf.poly_node(pair[1]))
            if not h & NEG or not h & POS:
                self.trace.rule("relu of a product with a factor of known sign")
                x = pair[0] if not h & NEG else -pair[0]
                return nf.generator(g.fn("relu", nf.poly_node(x))) * (pair[1] if not h & NEG else -pair[1])
        return (self.poly(t, raw) + self._mixed_abs(g.fn("abs", t), raw)).scale(Fraction(1, 2))

    def _mixed_sign(self, node: Node, raw: bool) -> Poly:
        pair = self.rank_one(self.poly(node.args[0]))
        if pair is None:
            return self._opaque(node)
        self.trace.rule("the sign of a product is the product of the signs")
        return nf.generator(g.fn("sign", nf.poly_node(pair[0]))) * nf.generator(g.fn("sign", nf.poly_node(pair[1])))

    def _mixed_maximum(self, node: Node, raw: bool) -> Poly:
        first, rest = node.args[0], g.extremum(node.op, *node.args[1:])
        gap = g.sub(first, rest)
        s = self.signs.of(gap)
        sign = 1 if node.op == "maximum" else -1
        if not s & NEG or not s & POS:
            self.trace.rule("a maximum is decided by an order fact")
            return self.poly(first if (not s & NEG) == (sign > 0) else rest, raw)
        spread = self._abs_of(gap, raw)
        return (self.poly(first, raw) + self.poly(rest, raw) + spread.scale(Fraction(sign))).scale(Fraction(1, 2))

    _mixed_minimum = _mixed_maximum

    def _abs_of(self, t: Node, raw: bool) -> Poly:
        return self._mixed_abs(g.fn("abs", t), raw) if self.scope.mixed(t) else self.poly(g.fn("abs", t), raw)

    def _mixed_where(self, node: Node, raw: bool) -> Poly:
        c, a, b = node.args
        return self._indicator(c) * self.poly(a, raw) + self._indicator(g.negate(c)) * self.poly(b, raw)

    def _mixed_cast(self, node: Node, raw: bool) -> Poly:
        if not self.commuting_casts:
            return nf.generator(node)
        p = self.poly(node.args[0], raw)
        self.trace.assume("cast_commutes", f"rounding to {node.attr} is taken to commute with the stage values")
        pair = self.rank_one(p)
        if pair is not None:
            scaled = self.centring.cast(node.attr, *pair)
            if scaled is not None:
                return scaled
        return p  # not a scaling: the form leaves the rounding out

    def _by_theorem(self, node: Node, raw: bool) -> Poly:
        op, arg = node.op, node.args[0]
        if op in EXPONENTIAL:
            total = nf.constant(0)
            for num, den, rate in EXPONENTIAL[op]:
                e = self.poly(g.fn("exp", g.mul(g.const(rate), arg)), raw)
                total = total + e.scale(Fraction(num, den))
            return total
        terms = arg.args if arg.op == "add" else (arg,)
        elements = [t for t in terms if self.scope.varies(t) and not self.scope.uses(t)]
        if not elements or len(elements) == len(terms):
            return self._opaque(node)
        s, t = g.add(*elements), g.sub(arg, g.add(*elements))
        self.trace.rule(f"addition theorem of {op}")
        total = nf.constant(0)
        for c, outer_s, outer_t in ADDITION[op]:
            total = total + (self.poly(g.fn(outer_s, s), raw) * self.poly(g.fn(outer_t, t), raw)).scale(Fraction(c))
        return total

    def _contraction(self, node: Node, raw: bool) -> Poly:
        """A sum over another axis inside a body: its sums are swapped, its slots keep that axis under a fresh name."""
        if node.attr.kind != "sum":
            return nf.generator(node)
        self.trace.rule("a contraction with a stage value swaps its sums")
        self._fresh += 1
        names = {a: f"{a}~{self._fresh}" for a in node.attr.axes}
        return self.poly(g.rename_axes(node.args[0], names), raw)

    # --- conditions ---

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
        gap = g.sub(b, a)  # lt: gap > 0, le: gap >= 0, eq: gap == 0
        s = self.signs.of(gap)
        verdict = _decide(c.op, s)
        if verdict is not None:
            self.trace.rule("a comparison is decided by an order fact")
            return nf.constant(1 if verdict else 0)
        tie = self._tie(gap)
        if tie is not None and (c.op == "eq" or not s & NEG or not s & POS):
            equal = nf.generator(tie)
            self.trace.rule("a comparison with an extremum is a tie test")
            strict = nf.constant(1) - equal
            return equal if c.op == "eq" or (c.op == "le" and not s & POS) else strict
        pair = self.rank_one(self.poly(gap))
        if pair is None:
            return nf.generator(c)
        self.trace.rule("the sign of a product is the product of the signs")
        return self._signs_of_product(c.op, *(nf.poly_node(q) for q in pair))

    def _tie(self, gap: Node) -> Node | None:
        """gap = q·(extremum - its element): the generator of the event "the element is the extremum"."""
        from redalg.signs import linear

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

        zero = nf.generator(_against_zero("eq", x)) + nf.generator(_against_zero("ne", x)) * nf.generator(
            _against_zero("eq", h)
        )
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


def _absorb(rest: Node, value: Node) -> Node:
    return value if value.op == "special" else g.add(rest, value)


def _at_infinity(node: Node) -> Node:
    """exp(-oo) = 0 and the like for a branch that has become a constant."""
    if node.op == "exp" and node.args[0] is g.NEG_INF:
        return g.ZERO
    if node.op in ("relu", "sigmoid") and node.args[0] is g.NEG_INF:
        return g.ZERO
    return node


__all__ = ["NoCentring", "Scope", "Separator", "Trace", "flip"]
