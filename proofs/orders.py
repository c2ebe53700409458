"""Reductions other than sums in normal form: what is monotone changes places with an extremum, a list, a position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import gcd

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import Case, Value, frozen
from redalg.proofs.maps import STRICT
from redalg.proofs.polynomial import Mono, Number, Poly, Unknown
from redalg.proofs.signed import as_mono
from redalg.proofs.sums import Sums

FIRST = ("argmax", "argmin")
OTHER = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}


def _root(p: Poly) -> tuple[Poly, int]:
    """(q, k) with p = q^k for a monomial of whole exponents, k the largest."""
    single = as_mono(p)
    if single is None or single[1] != 1 or not single[0] or any(e.denominator != 1 for _, e in single[0]):
        return p, 1
    k = gcd(*(int(e) for _, e in single[0]))
    return {tuple((g, po.exponent(Fraction(e) / k)) for g, e in single[0]): 1}, k


class Orders(Sums):
    """Constructors of products, quantifiers, extrema, positions and lists."""

    def product(self, axes: tuple[str, ...], v: Value) -> Value:
        g = self.first_indicator(v)
        if g is not None and not self.gens[g].axes & set(axes):  # it is the same for every factor
            return self.choose(po.gen(g), *(self.product(axes, self.cofactor(v, g, k)) for k in (1, 0)))
        if not isinstance(v, dict):
            raise Unknown("a product of elements that may be infinite")
        single = as_mono(v)
        if single is not None and single[1] == 1 and all(self.gens[g].sign == signs.POS for g, _ in single[0]):
            return self.exp(self.sum(axes, self.log(v)))
        for mask, body in self._masked(v):
            m, c = self._constant_factor(axes, body)
            if m or c != 1:  # Π where(c, h·x, 1) = h^(number of c)·Π where(c, x, 1)
                rest = self.mul(body, po.scaled({po.inverse(m): 1}, 1 / Fraction(c)))
                left = self.add(self.mul(mask, rest), self.sub(po.const(1), mask))
                root, k = _root({m: 1})
                number = self.sum(axes, mask)
                power = self.power_of(self.to_the_power(root, number), Fraction(k))
                return self.by(power, self.to_the_power(po.const(c), number), self.product(axes, left))
            root, k = _root(body)
            if k > 1:
                left = self.add(self.mul(mask, root), self.sub(po.const(1), mask))
                return self.power_of(self.product(axes, left), Fraction(k))
        if v == po.const(1):
            return v
        free = self.axes(v) - set(axes)
        return po.gen(self.new("reduce", ("prod", axes, frozen(v)), ("prod", axes, v, None), free, signs.ANY))

    def _masked(self, v: Poly) -> Iterator[tuple[Poly, Poly]]:
        """(c, t) with v = where(c, t, 1), c a product of indicators or the negation of one; else c = 1."""
        less = self.sub(v, po.const(1))
        held = {g for m in v for g, _ in m if g in self.idempotent}
        if not held:
            yield po.const(1), v
            return
        common = tuple((g, e) for g, e in (po.common(less) if less else ()) if g in held)
        body: Value = v
        for g, _ in common:
            body = self.cofactor(body, g, 1)
        if common and isinstance(body, dict):
            yield {common: 1}, body
        if len(held) == 1:
            (g,) = held
            no = self.cofactor(v, g, 0)
            if self.cofactor(v, g, 1) == po.const(1) and isinstance(no, dict):
                yield self.sub(po.const(1), po.gen(g)), no

    def _constant_factor(self, axes: tuple[str, ...], body: Poly) -> tuple[Mono, Number]:
        """What every term has of factors that do not depend on the axes, and of numbers."""
        if not body:
            return (), 1
        m = tuple((g, e) for g, e in po.common(body) if not self.gens[g].axes & set(axes))
        return m, po.number(po.content(body))

    def any(self, axes: tuple[str, ...], v: Value) -> Value:
        """any[t > 0] = [max t > 0]; other conditions stay whole."""
        if not isinstance(v, dict):
            raise Unknown("a condition without a value")
        value = po.as_constant(v)
        if value is not None or not self.axes(v) & set(axes):
            return v
        single = as_mono(v)
        if single is not None and single[1] == 1 and len(single[0]) == 1:
            gen = self.gens[single[0][0][0]]
            if gen.kind == "pos":
                return self._recorded(self.positive(self.order("max", axes, gen.data[0], None)), axes, v)
        low = self._complement(v)
        if low is not None and len(low) == 1 and self.gens[low[0]].kind == "pos":
            least = self.positive(self.order("min", axes, self.gens[low[0]].data[0], None))
            return self._recorded(self.negated(least), axes, v)
        parts = self._alternatives(v)
        if parts is not None:
            return self.negated(self.by(*(self.negated(self.any(axes, p)) for p in parts)))
        free = self.axes(v) - set(axes)
        found = po.gen(self.new("truth", ("any", axes, frozen(v)), ("any", axes, v), free, signs.NONNEG))
        return self._recorded(found, axes, v)

    def _recorded(self, found: Value, axes: tuple[str, ...], v: Poly) -> Value:
        """Remember which indicator, at which value, says that v holds for no element."""
        for value, w in ((0, found), (1, self.negated(found))):
            if (
                isinstance(w, dict)
                and len(w) == 1
                and (single := next(iter(w)))
                and len(single) == 1
                and w[single] == 1
            ):
                self.quantified[single[0][0], value] = (axes, v)
        return found

    def _alternatives(self, v: Poly) -> list[Poly] | None:
        """a + b - a·b as [a, b], 1 - a·b as [1 - a, 1 - b], for single indicators."""
        single = [m for m in v if len(m) == 1]
        if len(single) == 2 and len(v) == 3 and all(v[m] == 1 for m in single):
            product = self.times(*single)
            return [{m: 1} for m in single] if v.get(product) == -1 else None
        low = self._complement(v)
        return [self.sub(po.const(1), po.gen(g)) for g in low] if low is not None and len(low) > 1 else None

    def _complement(self, v: Poly) -> list[int] | None:
        """The indicators whose product is 1 - v."""
        rest = as_mono(self.sub(po.const(1), v))
        if rest is None or rest[1] != 1 or not rest[0] or any(g not in self.idempotent for g, _ in rest[0]):
            return None
        return [g for g, _ in rest[0]]

    # --- order ---

    def order(self, kind: str, axes: tuple[str, ...], v: Value, extra: object) -> Value:
        """max min argmax argmin topk_values topk_indices, with all that is monotone pulled out."""
        if isinstance(v, str):
            return v
        if not self.axes(v) & set(axes) and kind in ("max", "min"):
            return v
        if isinstance(v, Case):
            return self._order_of_cases(kind, axes, v, extra)
        context, factor, rest = self._pulled(v, axes)
        sign, position = self.decide(factor), kind in ("argmax", "argmin", "topk_indices")
        if sign & signs.NEG and sign & signs.POS:
            if kind in ("max", "min"):
                return self.plus(context, self._both_ways(kind, axes, factor, rest))
            if kind in FIRST:
                return self._first_both_ways(kind, axes, factor, rest)
            sign, factor, rest = signs.POS, po.const(1), self.mul(factor, rest)
        negative, inner = not sign & signs.POS, kind
        if negative and kind.startswith("topk"):
            factor, rest = po.scaled(factor, -1), po.scaled(rest, -1)
        elif negative:
            inner = OTHER[kind]
        if kind in FIRST and sign & signs.ZERO and rest:
            return self._first_both_ways(kind, axes, factor, rest)
        if position and sign & signs.ZERO:  # where the factor is 0 all are tied: it stays inside, and with it its sign
            inner, rest = kind, self.mul(factor, rest)
        found = self._atom(inner, axes, rest, extra)
        if position:
            return found
        found = self.plus(context, self.by(factor, found))
        return self._padded(axes, rest, extra, found, v) if kind == "topk_values" else found

    def _both_ways(self, kind: str, axes: tuple[str, ...], factor: Poly, rest: Poly) -> Value:
        """max h·t = h·max t where h > 0 and h·min t where h < 0."""
        above, below = self.positive(factor), self.positive(po.scaled(factor, -1))
        ways = self._atom(kind, axes, rest, None), self._atom(OTHER[kind], axes, rest, None)
        return self.by(factor, self.plus(self.by(above, ways[0]), self.by(below, ways[1])))

    def _first_both_ways(self, kind: str, axes: tuple[str, ...], factor: Poly, rest: Poly) -> Value:
        """The first place of the largest h·t is at an end of t; where h = 0 all are tied, and the first element is."""
        values = [self.by(factor, self._atom(end, axes, rest, None)) for end in ("max", "min")]
        return self._first_at_the_ends(kind, axes, rest, values, self.equal(factor, {}))

    def _first_at_the_ends(
        self, kind: str, axes: tuple[str, ...], t: Poly, values: list[Value], constant: Value
    ) -> Value:
        """The first place of the largest ("argmax") f(t), where that is at the largest t, at the smallest, or at both.

        `values` are f at the largest and the smallest t. Where they are equal, the elements at the ends are tied and no
        others are, but all of them where `constant` holds.
        """
        places = [self.order(end, axes, t, None) for end in FIRST]
        always = self.by(self.equal(*values), constant)
        found = self.choose(always, {}, self.extremum("minimum", places))
        for i in (1, 0):
            pair = values[1 - i], values[i]
            better = self.less(*pair) if kind == "argmax" else self.less(*reversed(pair))
            found = self.choose(better, places[i], found)
        return found

    def _padded(self, axes: tuple[str, ...], rest: Poly, extra: object, found: Value, v: Poly) -> Value:
        """Places past the end of the stream keep -oo, whatever map was pulled out of the list."""
        if found == po.gen(self._list(axes, v, extra)):
            return found
        places = self.order("topk_indices", axes, rest, extra)
        return self.choose(self.less(places, {}), "-oo", found)

    def _list(self, axes: tuple[str, ...], v: Poly, extra: object) -> int:
        free = (self.axes(v) - set(axes)) | {extra[1]}  # type: ignore[index]
        kind = "topk_values"
        return self.keyed("reduce", v, (kind, axes, extra), (kind, axes, v, extra), free, signs.ANY)

    def _pulled(self, v: Poly, axes: tuple[str, ...]) -> tuple[Poly, Poly, Poly]:
        """v = context + factor·rest with context and factor free of the axes, the factor of known sign."""
        bound, one = set(axes), po.const(1)
        context = {m: c for m, c in v.items() if not self.mono_axes(m) & bound}
        element = {m: c for m, c in v.items() if m not in context}
        if not element:
            return context, one, {}
        if any(g in self.idempotent for m in element for g, _ in m):
            return {}, one, v  # a condition selects between values: what is pulled out would change both
        groups: dict[Mono, Poly] = {}
        for k, c in element.items():
            inside = tuple(x for x in k if self.gens[x[0]].axes & bound)
            groups.setdefault(inside, {})[tuple(x for x in k if x not in inside)] = c
        factor = groups[min(groups)]
        ratios = {k: _ratio(p, factor) for k, p in groups.items()}
        if None in ratios.values():
            m = tuple((g, e) for g, e in po.common(element) if not self.gens[g].axes & bound)
            factor = {tuple((g, e) for g, e in m if self.sign_of_mono(((g, e),)) in (signs.POS, signs.NEG)): 1}
            rest = self.mul(element, self.power_of(factor, -1))  # type: ignore[arg-type]
        else:
            rest = {k: r for k, r in ratios.items() if r is not None}
        c = po.number(po.content(rest) * (-1 if self.leading_negative(rest) else 1))
        return context, po.scaled(factor, c), {k: po.number(Fraction(x) / c) for k, x in rest.items()}

    def _order_of_cases(self, kind: str, axes: tuple[str, ...], v: Case, extra: object) -> Value:
        if not self.gens[v.gen].axes & set(axes):
            sides = (self.order(kind, axes, x, extra) for x in (v.yes, v.no))
            return self.case(v.gen, *sides)
        contexts = [self._pulled(p, axes)[0] for p in _leaves(v)]
        context = contexts[0] if contexts and all(c == contexts[0] for c in contexts) else {}
        rest = self.on_both(self._plus, v, po.scaled(context, -1))
        found = self._atom(kind, axes, rest, extra)
        return found if kind in ("argmax", "argmin", "topk_indices") else self.plus(context, found)

    def _atom(self, kind: str, axes: tuple[str, ...], v: Value, extra: object) -> Value:
        single = as_mono(v) if isinstance(v, dict) else None
        if single is not None and (single[1] == 1 or (single[1] == -1 and kind.startswith("topk"))):
            through = self._through(kind, axes, *single, extra)
            if through is not None:
                return through
        if isinstance(v, dict) and kind in ("max", "min", *FIRST):
            ends = self._at_the_ends(kind, axes, v)
            if ends is not None:
                return ends
        free = self.axes(v) - set(axes)
        if kind.startswith("topk"):
            free |= {extra[1]}  # type: ignore[index]
        sign = self.value_sign(v) if kind in ("max", "min") else signs.NONNEG if kind.startswith("arg") else signs.ANY
        if isinstance(v, dict):
            beside = (kind, axes, extra)
            g = self.keyed("reduce", v, beside, (kind, axes, v, extra), free, sign)
        else:
            g = self.new("reduce", (kind, axes, frozen(v), extra), (kind, axes, v, extra), free, sign)
        return po.gen(g)

    def _at_the_ends(self, kind: str, axes: tuple[str, ...], v: Poly) -> Value | None:
        """A convex function a·t² + b·t of one element generator is largest where t is (and where it is least).

        Its first place needs it strictly convex: then nothing between the ends is as large.
        """
        inside = {g for m in v for g, _ in m if self.gens[g].axes & set(axes)}
        degrees = {e for m in v for g, e in m if g in inside}
        if len(inside) != 1 or 2 not in degrees or not degrees <= {1, 2}:
            return None
        (g,) = inside
        lead = {tuple(x for x in m if x[0] != g): c for m, c in v.items() if (g, 2) in m}
        sign, convex = self.decide(lead), kind in ("max", "argmax")
        if sign & (signs.NEG if convex else signs.POS) or (kind in FIRST and sign & signs.ZERO):
            return None
        ends: list[Value] = []
        for end in ("max", "min"):
            t = self.order(end, axes, po.gen(g), None)
            terms = [self.by({tuple(x for x in m if x[0] != g): c}, self.power_of(t, dict(m)[g])) for m, c in v.items()]
            ends.append(self.plus(*terms))
        if kind in FIRST:
            return self._first_at_the_ends(kind, axes, po.gen(g), ends, po.const(0))
        minus = po.const(-1)
        return (
            self.largest(*ends) if kind == "max" else self.by(minus, self.largest(*(self.by(minus, e) for e in ends)))
        )

    def _through(self, kind: str, axes: tuple[str, ...], m: Mono, sign: Number, extra: object) -> Value | None:
        """Increasing maps change places with the reduction; positions need them strictly increasing.

        A list of -f(t) is -f(-t') for the list t' of -t.
        """
        position = kind not in ("max", "min")
        outer: Callable[[Value], Value] | None = None
        if all(self.gens[g].kind == "exp" for g, _ in m):
            inner: Value = self.add(*({self.gens[g].data[0]: e} for g, e in m))
            outer = self.exp
        elif len(m) == 1:
            g, e = m[0]
            gen = self.gens[g]
            if gen.kind == "base" and e > 0 and self._grows(gen.data[0], e):
                inner, outer = gen.data[0], lambda v: self.power_of(v, e)
            elif gen.kind == "log" and e == 1:
                inner, outer = gen.data[0], self.log
            elif gen.kind == "fun" and e == 1 and gen.data[0] in (STRICT if position else (*STRICT, "relu", "sign")):
                inner, outer = gen.data[1], lambda v: self.fun(gen.data[0], v)
            elif gen.kind == "fun" and e == 1 and gen.data[0] == "abs" and kind == "max":
                p = gen.data[1]
                sides = [self.order("max", axes, q, extra) for q in (p, po.scaled(p, -1))]
                return self.largest(*sides)
            elif gen.kind == "fun" and e == 1 and gen.data[0] == "abs" and kind == "argmax":
                p = gen.data[1]
                sides = [self.fun("abs", self.order(end, axes, p, None)) for end in ("max", "min")]
                return self._first_at_the_ends(kind, axes, p, sides, po.const(0))
            elif gen.kind == "max" and e == 1 and kind == "max":
                return self.largest(*(self.order("max", axes, p, extra) for p in gen.data))
            elif gen.kind == "max" and e == 1 and kind == "min":  # min max(t, c) = max(min t, c)
                varying = [p for p in gen.data if self.axes(p) & set(axes)]
                if len(varying) == 1:
                    fixed = [p for p in gen.data if p is not varying[0]]
                    return self.largest(self.order("min", axes, varying[0], extra), *fixed)
        if outer is None:
            return None
        assert isinstance(inner, dict)
        found = self.order(kind, axes, po.scaled(inner, sign), extra)
        if kind in ("argmax", "argmin", "topk_indices"):
            return found
        if kind == "topk_values":  # places past the end are filled in once, by the outermost list
            places, inside = self._unpadded(found)
            found = inside if places else found
        return outer(found) if sign == 1 else self.by(po.const(-1), outer(self.by(po.const(-1), found)))

    def _grows(self, base: Poly, e: Number) -> bool:
        """Whether t^e increases (e > 0): an even power does so for t >= 0 alone; a root has no value elsewhere."""
        return e.denominator != 1 or e % 2 == 1 or not self.decide(base) & signs.NEG

    def _unpadded(self, v: Value) -> tuple[bool, Value]:
        """A list without its condition on places past the end."""
        if isinstance(v, Case) and v.yes == "-oo":
            return True, v.no
        return (True, v.yes) if isinstance(v, Case) and v.no == "-oo" else (False, v)


def _ratio(p: Poly, q: Poly) -> Number | None:
    """r with p = r·q, if there is one."""
    m = min(q)
    r = Fraction(p.get(m, 0)) / q[m]
    return po.number(r) if r and po.scaled(q, r) == p else None


def _leaves(v: Value) -> list[Poly]:
    if isinstance(v, Case):
        return [*_leaves(v.yes), *_leaves(v.no)]
    return [v] if isinstance(v, dict) else []
