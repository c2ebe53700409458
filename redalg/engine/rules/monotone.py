"""Pulling monotone maps out of order reductions (theory, section 2.3).

If F = φ_D(g(x)) with φ_D monotone, max_j F = φ_D(max_j g). `Puller` applies this recursively, splits sums of
conditions, keeps both extrema where the direction depends on the context, and asks `slot` for what it accumulates. It
returns the value of the stage as a node over those slots, or raises `CannotPull` with the node that is in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly
from redalg.algebra.signs import ANY, NEG, POS, ZERO
from redalg.engine.rules.quantifiers import CannotPull, RatioMaker, SlotMaker
from redalg.engine.rules.ranked import Ranked
from redalg.engine.rules.separate import Separator
from redalg.graph import node as g
from redalg.graph.functions import FUNCTIONS
from redalg.graph.masked import finite, split_exponent
from redalg.graph.node import Node

OPPOSITE = {"max": "min", "min": "max"}
IDENTITY = {"max": g.NEG_INF, "min": g.INF}
ELEMENTWISE = {"max": "maximum", "min": "minimum"}
BELOW = ("positive", "above_minus_one", "above_one")  # domains that all numbers above one of theirs are in
Chain = tuple[Node, int, Callable[[Node], Node]]  # what is inside, the direction, the map that was pulled out


class Puller(Ranked):
    """Decomposes the bodies of max, min, argmax, argmin, topk, prod, any and all."""

    def __init__(
        self,
        separator: Separator,
        slot: SlotMaker,
        centre: Callable[[Mono], tuple[Mono, Poly]],
        ratio: RatioMaker,
    ) -> None:
        self.separator, self.slot, self.centre, self.ratio = separator, slot, centre, ratio
        self.scope, self.signs, self.trace = separator.scope, separator.signs, separator.trace
        self._held: set[Node] = set()  # extrema of elements, which are infinite where there are none
        self._extrema: dict[tuple[str, Node, Node | None, bool], Node] = {}

    # --- max and min ---

    def extremum(self, kind: str, body: Node, mask: Node | None = None, ignore_nan: bool = False) -> Node:
        """Found once: each factor of unknown sign in a chain asks for both extrema of what is below."""
        key = kind, body, mask, ignore_nan
        if key not in self._extrema:
            self._extrema[key] = self._extremum(*key)
        return self._extrema[key]

    def _extremum(self, kind: str, body: Node, mask: Node | None, ignore_nan: bool) -> Node:
        if not self.scope.varies(body):
            if mask is None:
                return body
            return g.where(self.slot("any", mask), body, IDENTITY[kind])
        self.ordered(body)
        if not self.scope.uses(body) and not self._worth_pulling(body):
            lift = body if mask is None else g.where(mask, body, IDENTITY[kind])
            found = self.slot(kind, lift, ignore_nan=ignore_nan)
            self._held.add(found)
            return found
        handler = getattr(self, f"_ext_{body.op}", None)
        fact = FUNCTIONS.get(body.op)
        if handler is not None:
            result: Node = handler(kind, body, mask, ignore_nan)
            return result
        if fact is not None and fact.direction:
            inner = kind if fact.direction > 0 else OPPOSITE[kind]
            low = fact.domain in BELOW and inner == "min" and not ignore_nan  # what has no value is the least then
            if not low and not self.has_values(body):
                raise CannotPull(body, f"{body.op} may have no value at an element")
            self.trace.rule(f"the monotone map {body.op} is pulled out")
            value = g.fn(body.op, self.extremum(inner, body.args[0], mask, ignore_nan))
            return self._unless_absent(inner, body, value, mask, ignore_nan) if body.op == "exp" else value
        raise CannotPull(body, f"{body.op} is not monotone in its mixed argument")

    def _unless_absent(self, kind: str, body: Node, value: Node, mask: Node | None, nan: bool) -> Node:
        """exp(u - max u) is 0 where u is -oo, also at the extremum of u."""
        split = split_exponent(body.args[0])
        if split is None or mask is not None or self.scope.uses(split.u):
            return value
        absent = g.compare("eq", self.extremum(kind, split.u, None, nan), g.NEG_INF)
        known = Node("eq", (split.c, split.c))  # no NaN
        return g.where(g.logical("and", absent, finite(split.scale), known), g.ZERO, value)

    def _worth_pulling(self, body: Node) -> bool:
        """A map of the element alone is still cheaper on one extremum than on every element."""
        if body.op == "where":
            return (
                body.args[2].op == "special" and self.scope.varies(body.args[1]) and self._worth_pulling(body.args[1])
            )
        fact = FUNCTIONS.get(body.op)
        if fact is None or not fact.direction or not self.scope.varies(body.args[0]):
            return False
        return self.has_values(body)

    def _ext_add(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        varying = g.add(*(t for t in body.args if self.scope.varies(t)))
        fixed = g.add(*(t for t in body.args if not self.scope.varies(t)))
        if g.is_const(fixed, 0) or varying.op == "add" and self.scope.uses(varying):
            return self._by_rank(kind, body, mask, nan)
        self.trace.rule("an additive stage value is pulled out of an extremum")
        return g.add(self.extremum(kind, varying, mask, nan), fixed)

    def _ext_mul(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        varying = g.mul(*(t for t in body.args if self.scope.varies(t)))
        fixed = g.mul(*(t for t in body.args if not self.scope.varies(t)))
        if g.is_const(fixed, 1) or varying.op == "mul" and self.scope.uses(varying):
            return self._by_rank(kind, body, mask, nan)
        return self._scaled(kind, varying, fixed, mask, nan)

    def _scaled(self, kind: str, varying: Node, factor: Node, mask: Node | None, nan: bool) -> Node:
        s = self.signs.of(factor)
        if not s & NEG:
            self.trace.rule("a non-negative factor is pulled out of an extremum")
            return g.mul(factor, self.extremum(kind, varying, mask, nan))
        if not s & POS:
            self.trace.rule("a non-positive factor turns an extremum round")
            return g.mul(factor, self.extremum(OPPOSITE[kind], varying, mask, nan))
        self.trace.rule("a factor of unknown sign keeps both extrema")
        pair = [g.mul(factor, self.extremum(k, varying, mask, nan)) for k in (kind, OPPOSITE[kind])]
        return g.where(g.compare("ge", factor, g.ZERO), pair[0], pair[1])

    def _by_rank(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        """F = H·G(x) + C from the normal form."""
        p = self.separator.poly(body)
        mixed = self.separator.mixed_generators(p)
        if mixed:
            raise CannotPull(mixed[0], "an extremum of a mixed expression")
        rows = self.separator.rows(p)
        fixed = nf.poly_node(rows.pop(nf.UNIT, nf.Poly()))
        pairs = nf.rank_factor(rows)
        if not pairs:
            return self.extremum(kind, fixed, mask, nan)
        if len(pairs) > 1:
            raise CannotPull(body, f"an extremum of a body of rank {len(pairs)}")
        big, factor = pairs[0]
        one = big.single()
        if one is not None and mask is None:
            varying, scale = self.centre(one[1])
            if varying != one[1]:
                return g.add(self._centred(kind, varying, factor * scale.scale(one[0]), nan), fixed)
        return g.add(self._scaled(kind, nf.poly_node(big), nf.poly_node(factor), mask, nan), fixed)

    def _centred(self, kind: str, varying: Mono, factor: Poly, nan: bool) -> Node:
        """(max, × ≥ 0): the extremum of a centred monomial moves with its anchor by a positive factor."""
        lift, h = nf.mono_node(varying), nf.poly_node(factor)
        s = self.signs.of(h)
        held = {k: self.slot(k, lift, ignore_nan=nan, varying=varying) for k in (kind, OPPOSITE[kind])}
        self.trace.rule("a non-negative factor is pulled out of an extremum")
        if not s & NEG:
            return g.mul(h, held[kind])
        if not s & POS:
            return g.mul(h, held[OPPOSITE[kind]])
        return g.where(g.compare("ge", h, g.ZERO), g.mul(h, held[kind]), g.mul(h, held[OPPOSITE[kind]]))

    def _ext_pow(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        base, e = body.args
        if e.op != "const":
            raise CannotPull(body, "an exponent that is not constant")
        s = self.signs.of(base)
        if not s & NEG or (e.attr > 0 and e.attr.denominator == 1 and e.attr.numerator % 2):
            self.trace.rule("a monotone power is pulled out")
            return g.power(self.extremum(kind if e.attr > 0 else OPPOSITE[kind], base, mask, nan), e)
        if e.attr.denominator != 1:
            return self._ext_root(kind, body, mask, nan)
        if e.attr > 0 and not s & POS:
            return g.power(self.extremum(OPPOSITE[kind], base, mask, nan), e)
        if e.attr > 0 and kind == "max":
            self.trace.rule("an even power is decided by both extrema")
            ends = [g.power(self.extremum(k, base, mask, nan), e) for k in ("max", "min")]
            return g.extremum("maximum", *ends)
        raise CannotPull(body, "the minimum of an even power, or a reciprocal whose sign is not known")

    def _ext_root(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        """NaN below 0, as that of the minimum is."""
        base, e = body.args
        if nan or e.attr < 0:
            raise CannotPull(body, "a root may have no value at an element")
        self.trace.rule("a root of the minimum tells of what has none")
        least = g.power(self.extremum("min", base, mask, nan), e)
        if kind == "min":
            return least
        return g.extremum("maximum", g.power(self.extremum("max", base, mask, nan), e), least)

    def _ext_abs(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        t = body.args[0]
        s = self.signs.of(t)
        if not s & NEG:
            return self.extremum(kind, t, mask, nan)
        if not s & POS:
            return g.neg(self.extremum(OPPOSITE[kind], t, mask, nan))
        if kind == "max":
            self.trace.rule("max|t| = max(max t, -min t)")
            return g.extremum("maximum", self.extremum("max", t, mask, nan), g.neg(self.extremum("min", t, mask, nan)))
        raise CannotPull(body, "the minimum of an absolute value")

    def _ext_maximum(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        if ELEMENTWISE[kind] == body.op:
            self.trace.rule(f"a {kind} of a {body.op} splits")
            return g.extremum(body.op, *(self.extremum(kind, a, mask, nan) for a in body.args))
        varying = [a for a in body.args if self.scope.varies(a)]
        if len(varying) == 1:
            self.trace.rule("a bound by a stage value is monotone")
            others = [a for a in body.args if a is not varying[0]]
            return g.extremum(body.op, self.extremum(kind, varying[0], mask, nan), *others)
        raise CannotPull(body, f"the {kind} of a {body.op} of two varying arguments")

    _ext_minimum = _ext_maximum

    def _ext_where(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        c, a, b = body.args
        if self.scope.mixed(c):
            raise CannotPull(c, "a condition that mixes elements and stage values")
        if not self.scope.varies(c):
            return g.where(c, self.extremum(kind, a, mask, nan), self.extremum(kind, b, mask, nan))
        self.trace.rule("a mask becomes part of the element")
        parts = []
        for condition, branch in ((c, a), (g.negate(c), b)):
            if branch is not IDENTITY[kind]:
                held = condition if mask is None else g.logical("and", mask, condition)
                parts.append(self._unless_masked(kind, self.extremum(kind, branch, held, nan), held))
        return g.extremum(ELEMENTWISE[kind], *parts)

    def _unless_masked(self, kind: str, value: Node, mask: Node) -> Node:
        """A map of the extremum of nothing is not the extremum of nothing: exp(-oo) is 0, not -oo."""
        if value.op != "mul" and self._is_empty(kind, value):
            return value
        return g.where(self.slot("any", mask), value, IDENTITY[kind])

    def _is_empty(self, kind: str, value: Node) -> bool:
        """Whether what was pulled out leaves the extremum of nothing as it is: stage values that are added or, unless
        they are 0, multiplied do; other maps do not."""
        if value in self._held:
            return True
        if value.op == "where":
            return value.args[2] is IDENTITY[kind] or all(self._is_empty(kind, a) for a in value.args[1:])
        if value.op in ("add", "mul"):
            return any(self._is_empty(kind, a) for a in value.args)
        return value.op == ELEMENTWISE[kind] and all(self._is_empty(kind, a) for a in value.args)

    def _ext_cast(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        self.trace.rule("rounding is monotone")
        return Node("cast", (self.extremum(kind, body.args[0], mask, nan),), body.attr)

    def _ext_reduce(self, kind: str, body: Node, mask: Node | None, nan: bool) -> Node:
        if body.attr.kind != kind:
            return self._by_rank(kind, body, mask, nan)
        return Node("reduce", (self.extremum(kind, body.args[0], mask, nan),), body.attr)

    # --- positions and top-k: one strictly monotone chain ---

    def chain(self, body: Node, strict: bool, top: bool = False) -> Chain:
        """(g, direction, φ) with body = φ(g), φ (strictly) increasing (+1) or decreasing (-1) and g element-only."""
        self.ordered(body)
        fact = FUNCTIONS.get(body.op)
        if not self.scope.uses(body) and self.scope.varies(body) and (top or not self._turns(body)):
            return body, 1, lambda v: v
        if not self.has_values(body):
            raise CannotPull(body, f"{body.op} may have no value at an element")
        if fact is not None and fact.direction and (fact.strict or not strict):
            inner, d, phi = self.chain(body.args[0], strict)
            return inner, d * fact.direction, lambda v: g.fn(body.op, phi(v))
        rule = self._CHAINS.get(body.op)
        found = rule(self, body, strict) if rule is not None else None
        if found is None:
            raise CannotPull(body, f"{body.op} is not {'strictly ' if strict else ''}monotone here")
        return found

    def _turns(self, body: Node) -> bool:
        """Whether elements are in the order, or the opposite one, of what a map is of."""
        fact = FUNCTIONS.get(body.op)
        return fact is not None and bool(fact.direction) and fact.strict and self.has_values(body)

    def _chain_add(self, body: Node, strict: bool) -> Chain:
        varying, fixed = self._one_varying(body, g.add, g.sub)
        inner, d, phi = self.chain(varying, strict)
        return inner, d, lambda v: g.add(phi(v), fixed)

    def _chain_mul(self, body: Node, strict: bool) -> Chain:
        varying, fixed = self._one_varying(body, g.mul, g.div)
        inner, d, phi = self.chain(varying, strict)
        s = self.signs.of(fixed)
        if s not in ((POS, NEG) if strict else (POS, NEG, POS | ZERO, NEG | ZERO)):
            raise CannotPull(fixed, "the sign of this factor is not known")
        return inner, d if s & POS else -d, lambda v: g.mul(phi(v), fixed)

    def _one_varying(
        self, body: Node, combine: Callable[..., Node], undo: Callable[[Node, Node], Node]
    ) -> tuple[Node, Node]:
        """The terms (or factors) that vary, which are fewer than all, and the rest."""
        varying = combine(*(t for t in body.args if self.scope.varies(t)))
        if varying is body:
            raise CannotPull(body, "more than one mixed term")
        return varying, undo(body, varying)

    def _chain_power(self, body: Node, strict: bool) -> Chain | None:
        base, e = body.args
        if e.op != "const":
            return None
        s = self.signs.of(base)
        odd = e.attr.denominator == 1 and e.attr.numerator % 2
        if e.attr > 0 and (odd or not s & NEG) or e.attr < 0 and s == POS:
            inner, d, phi = self.chain(base, strict)
            return inner, d if e.attr > 0 else -d, lambda v: g.power(phi(v), e)
        raise CannotPull(body, "a power that is not monotone here")

    def _chain_abs(self, body: Node, strict: bool) -> Chain | None:
        s = self.signs.of(body.args[0])
        if s in (ANY, POS | NEG):
            return None
        inner, d, phi = self.chain(body.args[0], strict)
        return (inner, -d, lambda v: g.neg(phi(v))) if s & NEG else (inner, d, phi)

    def _chain_where(self, body: Node, strict: bool) -> Chain | None:
        """A mask of the element: what it leaves out stays first, or last, in the order."""
        condition, branch, edge = body.args
        if self.scope.uses(condition) or edge.op != "special":
            return None
        inner, d, phi = self.chain(branch, strict)
        low = edge if d > 0 else {"-oo": g.INF, "oo": g.NEG_INF}.get(edge.attr, edge)
        return g.where(condition, inner, low), d, lambda v: g.where(g.compare("eq", v, low), edge, phi(v))

    def _chain_cast(self, body: Node, strict: bool) -> Chain | None:
        if strict:
            return None
        inner, d, phi = self.chain(body.args[0], strict)
        return inner, d, lambda v: Node("cast", (phi(v),), body.attr)

    _CHAINS: ClassVar[dict[str, Callable[[Puller, Node, bool], Chain | None]]] = {
        "add": _chain_add,
        "mul": _chain_mul,
        "pow": _chain_power,
        "abs": _chain_abs,
        "where": _chain_where,
        "cast": _chain_cast,
    }

    def _chained(self, kind: str, body: Node) -> Node:
        inner, d, _ = self.chain(body, strict=True, top=True)
        if inner is not body:
            self.trace.rule("a strictly monotone map keeps positions")
        return self.slot(kind if d > 0 else {"argmax": "argmin", "argmin": "argmax"}[kind], inner)

    def topk(self, kind: str, body: Node, extra: tuple[int, str]) -> Node:
        if not self.scope.varies(body):  # the first k of all, as many as there are
            indices = self.slot("topk_indices", g.ZERO, extra=extra)
            return indices if kind == "topk_indices" else g.where(g.compare("lt", indices, g.ZERO), g.NEG_INF, body)
        try:
            inner, d, phi = self.chain(body, strict=kind == "topk_indices", top=True)
        except CannotPull as chained:
            try:
                return self.ranked(kind, body, extra)
            except CannotPull:
                raise chained from None
        lift = inner if d > 0 else g.neg(inner)
        if inner is not body:
            self.trace.rule("a monotone map is pulled out of top-k")
        indices = self.slot("topk_indices", lift, extra=extra)
        if kind == "topk_indices":
            return indices
        values = self.slot("topk_values", lift, extra=extra)
        mapped = phi(values if d > 0 else g.neg(values))
        return mapped if mapped is values else g.where(g.compare("lt", indices, g.ZERO), g.NEG_INF, mapped)


__all__ = ["CannotPull", "Puller", "SlotMaker"]
