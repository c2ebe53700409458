"""Extrema and comparisons in normal form: conditions are polynomials of indicators, maxima sets of polynomials."""

from __future__ import annotations

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import Value, frozen
from redalg.proofs.maps import Maps
from redalg.proofs.polynomial import Poly, Unknown


class Conditions(Maps):
    """Constructors of extrema, conditions and choices between values."""

    def extremum(self, op: str, args: list[Value]) -> Value:
        if op == "maximum":
            return self.largest(*args)
        minus = po.const(-1)
        return self.by(minus, self.largest(*(self.by(minus, a) for a in args)))

    def largest(self, *values: Value) -> Value:
        """The maximum; NaN is propagated by the runtime and is no value here."""
        total = values[0]
        for v in values[1:]:
            total = self.on_both(self._larger, total, v)
        return total

    def _larger(self, a: Value, b: Value) -> Value:
        if isinstance(a, str) or isinstance(b, str):
            if "nan" in (a, b) or "?" in (a, b):
                return "?" if "?" in (a, b) else "nan"
            if "oo" in (a, b):
                return "oo"
            return b if a == "-oo" else a
        if self.first_indicator(a) is not None or self.first_indicator(b) is not None:
            g = min(x for x in (self.first_indicator(a), self.first_indicator(b)) if x is not None)
            sides = [self._larger(self.cofactor(a, g, k), self.cofactor(b, g, k)) for k in (1, 0)]
            return self.case(g, *sides)
        assert isinstance(a, dict) and isinstance(b, dict)
        return self.maximum([*self._arguments(a), *self._arguments(b)])

    def _arguments(self, p: Poly) -> list[Poly]:
        """p = max(args) + rest with a positive coefficient: the arguments with the rest added."""
        for m, c in p.items():
            if len(m) == 1 and m[0][1] == 1 and c > 0 and self.gens[m[0][0]].kind == "max":
                rest = {k: x for k, x in p.items() if k != m}
                return [self.add(po.scaled(q, c), rest) for q in self.gens[m[0][0]].data]
        return [p]

    def maximum(self, polys: list[Poly]) -> Poly:
        kept: list[Poly] = []
        for p in polys:
            if any(self.same(p, q) for q in kept):
                continue
            gaps = [self.decide(self.sub(p, q)) for q in kept]
            if any(not s & signs.POS for s in gaps):
                continue  # never the largest alone
            kept = [q for q, s in zip(kept, gaps, strict=True) if s & signs.NEG]
            kept.append(p)
        if len(kept) == 1:
            return kept[0]
        kept.sort(key=lambda p: sorted(p.items()))
        sign = signs.ANY
        each = [self.decide(p) for p in kept]
        if signs.POS in each:
            sign = signs.POS
        elif any(not s & signs.NEG for s in each):
            sign = signs.NONNEG
        key = frozenset(frozen(p) for p in kept)
        return po.gen(self.new("max", key, tuple(kept), frozenset().union(*map(self.axes, kept)), sign))

    # --- comparisons, as polynomials of indicators ---

    def positive(self, v: Value) -> Value:
        """[v > 0]."""
        return self.on_each(self._positive, v)

    def _positive(self, v: Value) -> Value:
        if isinstance(v, str):
            return po.const(int(v == "oo"))
        assert isinstance(v, dict)
        s = self.decide(v)
        if s == signs.POS or not s & signs.POS:
            return po.const(int(s == signs.POS))
        p = {m: po.number(c / po.content(v)) for m, c in v.items()}
        return po.gen(self.keyed("pos", p, None, (p,), self.axes(p), signs.NONNEG))

    def equal(self, a: Value, b: Value) -> Value:
        """[a = b]."""

        def compare(x: Value, y: Value) -> Value:
            if isinstance(x, dict) and isinstance(y, dict):
                return self.on_each(self._null, self.sub(x, y))
            if "?" in (x, y):
                raise Unknown("a comparison with a value that is not known")
            return po.const(int(x == y and x != "nan"))

        return self.on_both(compare, a, b)

    def _null(self, v: Value) -> Value:
        assert isinstance(v, dict)
        if not v or self.is_zero(v):
            return po.const(1)
        if not self.decide(v) & signs.ZERO:
            return po.const(0)
        _, m, p = self.primitive(v, True)
        m = tuple((g, e) for g, e in m if e > 0 and self.gens[g].sign & signs.ZERO)
        p = self.mul(p, {tuple((g, 1) for g, _ in m): 1})
        return po.gen(self.keyed("zero", p, None, (p,), self.axes(p), signs.NONNEG))

    def less(self, a: Value, b: Value) -> Value:
        if isinstance(a, dict) and isinstance(b, dict):
            return self.positive(self.sub(b, a))
        rank = {"-oo": -1, "oo": 1}
        if "nan" in (a, b) or "?" in (a, b):
            raise Unknown("a comparison with NaN")
        low, high = (rank[v] if isinstance(v, str) else 0 for v in (a, b))
        return po.const(int(low < high))

    def alike(self, a: Value, b: Value) -> Value:
        both = self.by(a, b)
        return self.plus(both, self.by(self.negated(a), self.negated(b)))

    def negated(self, v: Value) -> Value:
        return self.plus(po.const(1), self.by(po.const(-1), v))

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        """yes where the condition is 1, no where it is 0."""
        if all(isinstance(v, dict) for v in (condition, yes, no)):
            return self.plus(self.by(condition, yes), self.by(self.negated(condition), no))
        g = self.first_indicator(condition)
        if g is None:
            return yes if condition == po.const(1) else no
        sides = [self.choose(*(self.cofactor(v, g, k) for v in (condition, yes, no))) for k in (1, 0)]
        return self.case(g, *sides)
