"""Values that may be split by cases and may be infinite: sums, products, and the signs they can have.

Every function here takes values that may be split by cases; `on_each` carries it to polynomials without indicators.
"""

from __future__ import annotations

from collections.abc import Callable

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import Case, Generators, Value, frozen
from redalg.proofs.checker.polynomial import UNIT, Mono, Number, Poly
from redalg.proofs.document.intervals import facts as ends
from redalg.proofs.document.terms import base
from redalg.proofs.document.work import spend

MOST_PRODUCTS = 64  # of an interval's end with another fact, for one sign


class Signed(Generators):
    """Arithmetic of values; `assumed` are the document's named assumptions, `used` those that were needed.

    `finite`: extrema and lists are numbers, though some of their elements may be infinite.
    """

    def __init__(self, assumed: frozenset[str] = frozenset(), finite: bool = False) -> None:
        super().__init__()
        self.finite = finite
        self.assumed, self.used = assumed, set[str]()
        self.facts: list[signs.Constraint] = []
        self.quantified: dict[tuple[int, int], tuple[tuple[str, ...], Poly]] = {}  # (indicator, value): holds nowhere

    def may(self, assumption: str) -> bool:
        if assumption in self.assumed:
            self.used.add(assumption)
        return assumption in self.assumed

    def on_each(self, f: Callable[[Value], Value], v: Value) -> Value:
        """f at every case of a value; of what is not known nothing is."""
        g = self.first_indicator(v)
        if g is None:
            return v if v == "?" else f(v)
        return self.case(g, self.on_each(f, self._held(v, g)), self.on_each(f, self.cofactor(v, g, 0)))

    def _held(self, v: Value, g: int) -> Value:
        """The value where an indicator is 1, and those that it excludes 0: of t > 0, t = 0 and -t > 0 one holds."""
        found, gen = self.cofactor(v, g, 1), self.gens[g]
        if gen.kind not in ("pos", "zero") or not isinstance(found, dict):
            return found
        p, minus = gen.data[0], po.scaled(gen.data[0], -1)
        others = [("pos", minus), ("zero", p), ("zero", minus)] if gen.kind == "pos" else [("pos", p), ("pos", minus)]
        for kind, q in others:
            other = self.numbers.get((kind, frozen(q)))
            found = found if other is None else self.cofactor(found, other, 0)
        return found

    def on_both(self, f: Callable[[Value, Value], Value], a: Value, b: Value) -> Value:
        """f of two values, split only where one of them is not a polynomial."""
        spend()
        tops = [v.gen for v in (a, b) if isinstance(v, Case)]
        if not tops:
            return f(a, b)
        g = min(tops)
        yes = self.on_both(f, self.cofactor(a, g, 1), self.cofactor(b, g, 1))
        return self.case(g, yes, self.on_both(f, self.cofactor(a, g, 0), self.cofactor(b, g, 0)))

    # --- arithmetic with infinities ---

    def plus(self, *values: Value) -> Value:
        if all(isinstance(v, dict) for v in values):
            return self.add(*values)  # type: ignore[arg-type]
        total = values[0]
        for v in values[1:]:
            total = self.on_both(self._plus, total, v)
        return total

    def _plus(self, a: Value, b: Value) -> Value:
        if isinstance(a, dict) and isinstance(b, dict):
            return self.add(a, b)
        if "?" in (a, b):
            return "?"
        if isinstance(a, dict):
            return b
        return a if isinstance(b, dict) or a == b else "nan"

    def by(self, *values: Value) -> Value:
        total = values[0] if values else po.const(1)
        for v in values[1:]:
            if isinstance(total, dict) and isinstance(v, dict):
                total = self.mul(total, v)
            else:
                total = self.on_both(self._by, total, v)
        return total

    def _by(self, a: Value, b: Value) -> Value:
        if isinstance(a, dict) and isinstance(b, dict):
            return self.mul(a, b)
        if "?" in (a, b):
            return "?"
        if "nan" in (a, b) or a == {} or b == {}:
            return "nan"
        finite = b if isinstance(a, str) else a
        g = self.first_indicator(finite)
        if g is not None:
            limit = a if isinstance(a, str) else b
            return self.case(g, *(self._by(limit, self.cofactor(finite, g, k)) for k in (1, 0)))
        sign = signs.product(self.decide(a), self.decide(b))
        if sign not in (signs.POS, signs.NEG):
            return "?"  # an infinity times a value of unknown sign
        return "oo" if sign == signs.POS else "-oo"

    def decide(self, v: Value) -> int:
        """The signs a value can have, with what is known of extrema and by assumption."""
        if not isinstance(v, dict):
            return self.value_sign(v)
        s = self.sign(v)
        if s != signs.ANY or as_mono(v) is not None:
            return s
        spread = self._spread(v)
        if spread != signs.ANY:
            return spread
        facts = [*self.facts, *self.bounds(v)]
        if not facts:
            return s
        facts += self._products(v, facts)
        known = facts + self.known([v, *(p for p, _ in facts)])
        minus = po.scaled(v, -1)
        possible = {signs.POS: [(v, True)], signs.NEG: [(minus, True)], signs.ZERO: [(v, False), (minus, False)]}
        return sum(bit for bit, claim in possible.items() if signs.solvable([*known, *claim]))

    def _spread(self, v: Poly) -> int:
        """Σa·Σb - (Σc)² is not negative where a >= 0, b >= 0 and c² = a·b for every element (Cauchy-Schwarz)."""
        if len(v) != 2 or sum(v.values()) != 0:
            return signs.ANY
        shared = tuple(sorted(po.common(v)))
        (plus, minus), outer = sorted(v, key=v.__getitem__, reverse=True), self.sign_of_mono(shared)
        product, square = (self.times(m, po.inverse(shared)) for m in (plus, minus))
        if len(square) != 1 or square[0][1] != 2 or self.gens[square[0][0]].kind != "sum":
            return signs.ANY
        axes, c = self.gens[square[0][0]].data
        factors = self._product_of_sums(product, axes)
        if factors is None:
            return signs.ANY
        a, b = factors
        fits = self.times(a, b) == self.times(c, c) and not (self.sign_of_mono(a) | self.sign_of_mono(b)) & signs.NEG
        return signs.product(signs.NONNEG, outer) if fits else signs.ANY

    def _product_of_sums(self, product: Mono, axes: tuple[str, ...]) -> tuple[Mono, Mono] | None:
        """(a, b) where the product is Σa·Σb over these axes; their length is the sum of 1."""
        if {e for _, e in product} != {1}:
            return None
        alike = [g for g, _ in product if self.gens[g].kind == "sum" and self.gens[g].data[0] == axes]
        sums, others = [self.gens[g].data[1] for g in alike], [self.gens[g].data for g, _ in product if g not in alike]
        if len(sums) == 1 and sorted(others, key=str) == sorted((("size", base(a)) for a in axes), key=str):
            return sums[0], UNIT
        return (sums[0], sums[1]) if len(sums) == 2 and not others else None

    def known(self, polys: list[Poly]) -> list[signs.Constraint]:
        """What the signs of monomials say."""
        monos = {m for p in polys for m in p if m != UNIT}
        spend(sum(map(len, polys)))
        found: list[signs.Constraint] = []
        for m in sorted(monos):
            s = self.sign_of_mono(m)
            if not s & signs.NEG or not s & signs.POS:
                found.append(({m: 1 if s & signs.POS else -1}, s in (signs.POS, signs.NEG)))
        return found

    def bounds(self, p: Poly) -> list[signs.Constraint]:
        """Elements lie between the extrema over them, and in the intervals that their tensors are declared in."""
        found: list[signs.Constraint] = []
        for g in {g for m in p for g, _ in m}:
            gen = self.gens[g]
            if gen.kind == "reduce" and gen.data[0] in ("max", "min") and isinstance(gen.data[2], dict):
                gap = self.sub(po.gen(g), gen.data[2])
                found.append((gap if gen.data[0] == "max" else po.scaled(gap, -1), False))
        return found + self._declared(p)

    def _declared(self, p: Poly) -> list[signs.Constraint]:
        """The ends of intervals that leaves are declared in."""
        found: list[signs.Constraint] = []
        for g in sorted({g for m in p for g, _ in m}):
            gen = self.gens[g]
            if gen.kind == "leaf" and gen.data[0] in ("tensor", "state"):
                for end, above in ends(gen.data[1].domain):
                    gap = self.sub(po.gen(g), po.const(end))
                    found.append((gap if above else po.scaled(gap, -1), True))
        return found

    def _products(self, v: Poly, facts: list[signs.Constraint]) -> list[signs.Constraint]:
        """What is not negative times an end of an interval is not negative: (1 - a)·(m - x) for a < 1, x <= m."""
        declared = self._declared(v)
        if len(declared) * len(facts) > MOST_PRODUCTS:
            return []
        pairs = ((p, s, q, t) for k, (p, s) in enumerate(declared) for q, t in [*facts, *declared[:k]] if q != p)
        return [(self.mul(p, q), s and t) for p, s, q, t in pairs if self.first_indicator(q) is None]


def as_mono(p: Poly) -> tuple[Mono, Number] | None:
    return next(iter(p.items())) if len(p) == 1 else None
