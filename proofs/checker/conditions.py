"""Extrema and comparisons in normal form: conditions are polynomials of indicators, maxima sets of polynomials."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import Value, frozen
from redalg.proofs.checker.maps import Maps
from redalg.proofs.checker.polynomial import Poly, Unknown

MOST_FACTORS = 3  # of unknown sign, in a product whose sign is asked for


class Conditions(Maps):
    """Constructors of extrema, conditions and choices between values."""

    def _by(self, a: Value, b: Value) -> Value:
        """An infinity times a value of unknown sign: by cases, and NaN where the value is 0."""
        found = super()._by(a, b)
        if found != "?" or "?" in (a, b) or not (isinstance(a, str) ^ isinstance(b, str)):
            return found
        limit, v = (a, b) if isinstance(a, str) else (b, a)
        other = "-oo" if limit == "oo" else "oo"
        return self.choose(self.positive(v), limit, self.choose(self.equal(v, {}), "nan", other))

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
        """p = c·max(args) + rest with a positive factor: the arguments, scaled and with the rest added."""
        return next(self._opened(p), [p])

    def _opened(self, p: Poly) -> Iterator[list[Poly]]:
        """The arguments, for every maximum that the polynomial has so."""
        for m, c in p.items():
            tops = [g for g, e in m if e == 1 and self.gens[g].kind == "max"]
            others = tuple(x for x in m if x[0] not in tops)
            if len(tops) == 1 and c > 0 and self.sign_of_mono(others) == signs.POS:
                rest = {k: x for k, x in p.items() if k != m}
                yield [self.add(self.mul({others: c}, q), rest) for q in self.gens[tops[0]].data]

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
        return kept[0] if len(kept) == 1 else self._maximum_of(kept)

    def _maximum_of(self, kept: list[Poly]) -> Poly:
        """The maximum of several polynomials, what they share and a positive factor taken out."""
        shared = {m: c for m, c in kept[0].items() if all(p.get(m) == c for p in kept)}
        kept = [self.sub(p, shared) for p in kept]
        whole = {((-1, i), *m): c for i, p in enumerate(kept, 1) for m, c in p.items()}
        m = tuple((g, e) for g, e in po.common(whole) if g >= 0 and self.gens[g].sign == signs.POS)
        c = po.content(whole)
        outer: Poly = {m: c}
        kept = [po.quotients(self.mul(p, {po.inverse(m): 1}), c) for p in kept]
        kept.sort(key=lambda p: sorted(p.items()))
        sign = _sign_of_maximum([self.decide(p) for p in kept])
        key = frozenset(frozen(p) for p in kept)
        g = self.new("max", key, tuple(kept), frozenset().union(*map(self.axes, kept)), sign)
        return self.add(shared, self.mul(outer, po.gen(g)))

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
        sign, always, factors = self._factors(v)
        if len(factors) > MOST_FACTORS:
            sign, always, factors = 1, [], [v]
        total: Value = {}
        for below in product((0, 1), repeat=len(factors)):  # an even number of negative factors
            if (sum(below) + (sign < 0)) % 2 == 0:
                each = (self._above(po.scaled(f, -1) if n else f) for n, f in zip(below, factors, strict=True))
                total = self.plus(total, self.by(*each)) if factors else po.const(1)
        return self.by(total, *always)

    def _above(self, p: Poly) -> Value:
        """[p > 0] for a polynomial that does not factor."""
        s = self.decide(p)
        if s == signs.POS or not s & signs.POS:
            return po.const(int(s == signs.POS))
        if not s & signs.NEG:  # strictly inside an extremum is not at it
            return self.negated(self._null(p))
        p = po.quotients(p, po.content(p))
        return po.gen(self.keyed("pos", p, None, (p,), self.axes(p), signs.NONNEG))

    def _factors(self, v: Poly) -> tuple[int, list[Value], list[Poly]]:
        """The sign of v: a number's, conditions that it is not 0, and factors of either sign."""
        c, m, rest = self.primitive(v, True)
        sign, always, factors = (-1 if c < 0 else 1), [], []
        for g, e in m:
            s, factor = self.gens[g].sign, po.gen(g)
            if s in (signs.POS, signs.NEG):
                sign *= -1 if s == signs.NEG and e % 2 else 1
            elif e.denominator != 1 or e % 2 == 0 or not s & signs.NEG:
                always.append(self.negated(self._null(factor)))
            else:
                factors.append(factor)
        if len(rest) > 1:
            factors.append(rest)
        return sign, always, factors

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
        split = self._of_a_largest(v)
        if split is None:
            split = self._of_two_facts(v)
        if split is None:
            split = self._of_a_number(v)
        if split is not None:
            return split
        _, m, p = self.primitive(v, True)
        factors = [po.gen(g) for g, e in m if e > 0 and self.gens[g].sign & signs.ZERO]
        factors += [p] if len(p) > 1 and self.decide(p) & signs.ZERO else []
        zeros = [po.gen(self.keyed("zero", f, None, (f,), self.axes(f), signs.NONNEG)) for f in factors]
        return self.negated(self.by(*(self.negated(z) for z in zeros)))

    def _of_a_largest(self, v: Poly) -> Value | None:
        """[max(0, s, t) = 0] is that neither s > 0 nor t > 0: where one of several numbers is the largest of them."""
        for each in (*self._opened(v), *self._opened(po.scaled(v, -1))):
            if any(self.is_zero(q) for q in each):
                return self.by(*(self._not_above(q) for q in each))
        return None

    def _not_above(self, p: Poly) -> Value:
        """[p <= 0], of max(s, t) - c for s - c and t - c, of c - max(s, t) for one of c - s and c - t."""
        above = next(self._opened(p), None)
        if above is not None:
            return self.by(*map(self._not_above, above))
        below = self._arguments(po.scaled(p, -1))
        return self.negated(self.by(*(self.positive(po.scaled(q, -1)) for q in below)))

    def _of_two_facts(self, v: Poly) -> Value | None:
        """[s + t = 0] = [s = 0]·[t = 0] where s >= 0 and t >= 0 are known: a tie along a chain of extrema."""
        held = [p for p, _ in self.facts]
        for i, s in enumerate(held):
            for t in held[:i]:
                both = self.add(s, t)
                if both in (v, po.scaled(v, -1)) and s and t:
                    return self.by(self._null(s), self._null(t))
        return None

    def _of_a_number(self, v: Poly) -> Value | None:
        """[Σ_j c_j = 0] is that c holds for no element, and [Σ_j 1 - Σ_j c_j = 0] that it does for every one."""
        sums = [(m, c) for m, c in v.items() if any(self.gens[g].kind == "sum" for g, _ in m)]
        if len(sums) != 1 or len(v) > 2 or len(sums[0][0]) != 1 or sums[0][0][0][1] != 1:
            return None
        (((g, _),), c), (axes, held) = sums[0], self.gens[sums[0][0][0][0]].data
        if not all(h in self.idempotent for h, _ in held):
            return None
        if len(v) == 1:
            return self.negated(self.any(axes, {held: 1}))
        if self.add(v, {((g, 1),): -c}) != po.scaled(self.sum(axes, po.const(1)), -c):  # type: ignore[arg-type]
            return None
        return self.negated(self.any(axes, self.sub(po.const(1), {held: 1})))

    def any(self, axes: tuple[str, ...], v: Value) -> Value:
        raise NotImplementedError

    def sum(self, axes: tuple[str, ...], v: Value) -> Value:
        raise NotImplementedError

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


def _sign_of_maximum(each: list[int]) -> int:
    if signs.POS in each:
        return signs.POS
    return signs.NONNEG if any(not s & signs.NEG for s in each) else signs.ANY
