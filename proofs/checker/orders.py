"""Reductions other than sums in normal form: what is monotone changes places with an extremum, a list, a position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from math import gcd
from operator import eq

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import Case, Value, frozen
from redalg.proofs.checker.lists import Lists
from redalg.proofs.checker.maps import STRICT, WEAK
from redalg.proofs.checker.polynomial import Mono, Number, Poly, Unknown
from redalg.proofs.checker.signed import as_mono

MOST_CONDITIONS = 4  # on the factors of one product, that it is taken apart by
INCREASING = STRICT | WEAK
FIRST = ("argmax", "argmin")
OTHER = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}


def _root(p: Poly) -> tuple[Poly, int]:
    """(q, k) with p = q^k for a monomial of whole exponents, k the largest."""
    single = as_mono(p)
    if single is None or single[1] != 1 or not single[0] or any(e.denominator != 1 for _, e in single[0]):
        return p, 1
    k = gcd(*(int(e) for _, e in single[0]))
    return {tuple((g, po.exponent(Fraction(e) / k)) for g, e in single[0]): 1}, k


class Orders(Lists):
    """Constructors of products, quantifiers, extrema, positions and lists."""

    def product(self, axes: tuple[str, ...], v: Value) -> Value:
        g = self._outer_indicator(axes, v)
        if g is not None:  # it is the same for every factor
            return self.choose(po.gen(g), *(self.product(axes, self.cofactor(v, g, k)) for k in (1, 0)))
        if not isinstance(v, dict):
            raise Unknown("a product of elements that may be infinite")
        axes, v = self.rebound(axes, v)
        assert isinstance(v, dict)
        single = as_mono(v)
        if single is not None and single[1] == 1 and all(self.gens[g].sign == signs.POS for g, _ in single[0]):
            return self.exp(self.sum(axes, self.log(v)))
        found = self._product_of_masked(axes, v)
        if found is not None:
            return found
        apart = self._apart(v)
        if apart is not None:  # Π where(c, t, u) = Π where(c, t, 1)·Π where(c, 1, u)
            return self.by(*(self.product(axes, p) for p in apart))
        if v == po.const(1):
            return v
        free = self.axes(v) - set(axes)
        return po.gen(self.new("reduce", ("prod", axes, frozen(v)), ("prod", axes, v, None), free, signs.ANY))

    def _product_of_masked(self, axes: tuple[str, ...], v: Poly) -> Value | None:
        """Π where(c, h·x, 1) and Π where(c, x^k, 1) with h and k outside; None where there is neither."""
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
        return None

    def _outer_indicator(self, axes: tuple[str, ...], v: Value) -> int | None:
        """The first indicator that does not depend on the axes."""
        found = {v.gen} if isinstance(v, Case) else {g for m in v for g, _ in m} if isinstance(v, dict) else set()
        return min((g for g in found & self.idempotent if not self.gens[g].axes & set(axes)), default=None)

    def _apart(self, v: Poly) -> list[Value] | None:
        """where(c, t, u) as where(c, t, 1) and where(c, 1, u), for an indicator c with t and u other than 1."""
        held = sorted({g for m in v for g, _ in m if g in self.idempotent})
        for g in held if len(held) <= MOST_CONDITIONS else ():
            sides = self.cofactor(v, g, 1), self.cofactor(v, g, 0)
            if po.const(1) not in sides:
                one = po.const(1)
                return [self.choose(po.gen(g), sides[0], one), self.choose(po.gen(g), one, sides[1])]
        return None

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
        return m, po.content(body)

    def any(self, axes: tuple[str, ...], v: Value) -> Value:
        """any[t > 0] = [max t > 0]; other conditions stay whole."""
        if not isinstance(v, dict):
            raise Unknown("a condition without a value")
        value = po.as_constant(v)
        if value is not None or not self.axes(v) & set(axes):
            return v
        axes, v = self.rebound(axes, v)
        assert isinstance(v, dict)
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
        axes = tuple(sorted(axes)) if kind in ("max", "min") else axes
        if not self.axes(v) & set(axes) and kind in ("max", "min", *FIRST):
            return {} if kind in FIRST else v  # all are tied
        axes, v = self.rebound(axes, v, beside=extra[1:] if extra else ())  # type: ignore[index]
        if isinstance(v, Case):
            return self._order_of_cases(kind, axes, v, extra)
        assert isinstance(v, dict)
        context, factor, rest = self._pulled(v, axes)
        if kind in ("max", "min"):
            return self.plus(context, self._extremum_of_product(kind, axes, factor, rest, extra))
        if kind in FIRST:
            return self._first_of_product(kind, axes, factor, rest, extra)
        return self._list_of_product(kind, axes, context, factor, rest, extra)

    def _list_of_product(
        self, kind: str, axes: tuple[str, ...], context: Poly, factor: Poly, rest: Poly, extra: object
    ) -> Value:
        """The first k of context + h·t."""
        found = self._list_at_the_ends(kind, axes, context, factor, rest, extra)
        if found is not None:
            return found
        sign = self.decide(factor)
        if sign & signs.NEG and sign & signs.POS:
            sign, factor, rest = signs.POS, po.const(1), self.mul(factor, rest)
        if not sign & signs.POS:
            factor, rest = po.scaled(factor, -1), po.scaled(rest, -1)
        if kind == "topk_indices":
            rest = self.mul(factor, rest) if sign & signs.ZERO else rest  # where the factor is 0 all are tied
            return self._atom(kind, axes, rest, extra)
        found = self.plus(context, self.by(factor, self._atom(kind, axes, rest, extra)))
        return self._padded(axes, rest, extra, found)

    def _list_at_the_ends(
        self, kind: str, axes: tuple[str, ...], context: Poly, factor: Poly, rest: Poly, extra: object
    ) -> Value | None:
        """The first k of |t|, of a convex function of t, or of h·t for a factor h of either sign."""
        sign, still = self.decide(factor), factor
        if sign & signs.NEG and sign & signs.POS:
            t, f = rest, lambda v: self.by(factor, v)
        elif sign & signs.POS and (bowl := self._bowl(axes, rest)) is not None:
            t, shape, inside = bowl
            scaled = kind == "topk_values" or sign & signs.ZERO
            f = (lambda v: self.by(factor, shape(v))) if scaled else shape
            still = self.mul(factor, inside)
        else:
            return None
        found = self.list_of_ends(kind, axes, t, f, context, extra)  # type: ignore[arg-type]
        if kind == "topk_indices" and self.decide(still) & signs.ZERO:  # then all are tied
            return self.choose(self.equal(still, {}), self._atom(kind, axes, {}, extra), found)
        return found

    def _bowl(self, axes: tuple[str, ...], v: Poly) -> tuple[Poly, Callable[[Value], Value], Poly] | None:
        """(t, f, h) with v = f(t), f strictly increasing away from a point on both sides; constant where h = 0."""
        single = as_mono(v)
        if single is not None and single[1] == 1 and len(single[0]) == 1 and single[0][0][1] == 1:
            gen = self.gens[single[0][0][0]]
            if gen.kind != "fun" or gen.data[0] != "abs":
                return None
            context, factor, t = self._pulled(gen.data[1], axes)
            return t, lambda x: self.fun("abs", self.plus(context, self.by(factor, x))), factor
        g = self._only_square(axes, v)
        lead = {tuple(x for x in m if x[0] != g): c for m, c in v.items() if (g, 2) in m}
        if g is None or self.decide(lead) != signs.POS:
            return None
        return po.gen(g), lambda x: self._value_at(v, g, x), po.const(1)

    def _extremum_of_product(self, kind: str, axes: tuple[str, ...], factor: Poly, rest: Poly, extra: object) -> Value:
        """The largest (smallest) h·t, for a factor h that does not depend on the axes."""
        sign = self.decide(factor)
        if sign & signs.NEG and sign & signs.POS:
            return self._both_ways(kind, axes, factor, rest)
        inner = kind if sign & signs.POS else OTHER[kind]
        return self.by(factor, self._atom(inner, axes, rest, extra))

    def _first_of_product(self, kind: str, axes: tuple[str, ...], factor: Poly, rest: Poly, extra: object) -> Value:
        """The first place of the largest (smallest) h·t: where h is 0 all elements are tied."""
        sign = self.decide(factor)
        if sign & signs.NEG and sign & signs.POS or sign & signs.ZERO and rest:
            return self._first_both_ways(kind, axes, factor, rest)
        inner = kind if sign & (signs.POS | signs.ZERO) else OTHER[kind]
        return self._atom(inner, axes, rest, extra)

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

    def _padded(self, axes: tuple[str, ...], rest: Poly, extra: object, found: Value) -> Value:
        """Places past the end of the stream keep -oo, whatever map was pulled out of the list."""
        places = self.order("topk_indices", axes, rest, extra)
        return self.choose(self.less(places, {}), "-oo", found)

    def _pulled(self, v: Poly, axes: tuple[str, ...]) -> tuple[Poly, Poly, Poly]:
        """v = context + factor·rest with context and factor free of the axes, the factor of known sign."""
        bound, one = set(axes), po.const(1)
        context = {m: c for m, c in v.items() if not self.mono_axes(m) & bound}
        element = {m: c for m, c in v.items() if m not in context}
        if not element:
            return context, one, {}
        if any(g in self.idempotent for m in element for g, _ in m):
            return {}, one, v  # a condition selects between values: what is pulled out would change both
        groups = self._grouped(element, bound)
        factor = groups[min(groups)]
        ratios = {k: _ratio(p, factor) for k, p in groups.items()}
        if None in ratios.values():
            m = tuple((g, e) for g, e in po.common(element) if not self.gens[g].axes & bound)
            factor = {tuple((g, e) for g, e in m if self.sign_of_mono(((g, e),)) in (signs.POS, signs.NEG)): 1}
            rest = self.mul(element, self.power_of(factor, -1))  # type: ignore[arg-type]
        else:
            rest = {k: r for k, r in ratios.items() if r is not None}
        c = po.content(rest) * (-1 if self.leading_negative(rest) else 1)
        return context, po.scaled(factor, c), po.quotients(rest, c)

    def _grouped(self, p: Poly, bound: set[str]) -> dict[Mono, Poly]:
        """Σ m·p_m with m of what varies along the axes: every m with its p_m."""
        groups: dict[Mono, Poly] = {}
        for k, c in p.items():
            inside = tuple(x for x in k if self.gens[x[0]].axes & bound)
            groups.setdefault(inside, {})[tuple(x for x in k if x not in inside)] = c
        return groups

    def _order_of_cases(self, kind: str, axes: tuple[str, ...], v: Case, extra: object) -> Value:
        if not self.gens[v.gen].axes & set(axes):
            sides = (self.order(kind, axes, x, extra) for x in (v.yes, v.no))
            return self.case(v.gen, *sides)
        contexts = [self._pulled(p, axes)[0] for p in _leaves(v)]
        context = contexts[0] if contexts and all(c == contexts[0] for c in contexts) else {}
        rest = self.on_both(self._plus, v, po.scaled(context, -1))
        found = self._atom(kind, axes, rest, extra)
        if kind in ("argmax", "argmin", "topk_indices"):
            return found
        found = self.plus(context, found)
        if self.finite:
            return found
        return (
            self._with_limits(kind, axes, v, found) if kind in ("max", "min") else self._entries(axes, v, extra, found)
        )

    def _with_limits(self, kind: str, axes: tuple[str, ...], v: Case, found: Value) -> Value:
        """An extremum of elements of which some are infinite: a number only where nothing outdoes the finite ones."""
        void, top = ("-oo", "oo") if kind == "max" else ("oo", "-oo")
        found = self.choose(self.any(axes, self._where_leaf(v, lambda x: isinstance(x, dict))), found, void)
        for limit in (top, "nan", "?"):
            if limit in _limits(v):
                found = self.choose(self.any(axes, self._where_leaf(v, partial(eq, limit))), limit, found)
        return found

    def _entries(self, axes: tuple[str, ...], v: Case, extra: object, found: Value) -> Value:
        """A list of elements of which some are -oo: which of its entries are is a condition of its own."""
        if _limits(v) != {"-oo"}:
            raise Unknown("a list of elements that may be infinite")
        key = "entries", axes, frozen(v), extra
        void = self.new("truth", key, key, (self.axes(v) - set(axes)) | {extra[1]}, signs.NONNEG)  # type: ignore[index]
        return self.choose(po.gen(void), "-oo", found)

    def _where_leaf(self, v: Value, good: Callable[[Value], bool]) -> Value:
        """[the case of v is a good one]."""
        if isinstance(v, Case):
            return self.choose(po.gen(v.gen), *(self._where_leaf(x, good) for x in (v.yes, v.no)))
        return po.const(int(good(v)))

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
        sign = self._sign_of_order(kind, axes, v)
        if isinstance(v, dict):
            beside = (kind, axes, extra)
            g = self.keyed("reduce", v, beside, (kind, axes, v, extra), free, sign)
        else:
            g = self.new("reduce", (kind, axes, frozen(v), extra), (kind, axes, v, extra), free, sign)
        return po.gen(g)

    def _sign_of_order(self, kind: str, axes: tuple[str, ...], v: Value) -> int:
        """An extremum has the signs of its elements, and the last position of a list is none past the end."""
        if kind not in ("max", "min"):
            return signs.NONNEG if kind.startswith("arg") else signs.ANY
        single = as_mono(v) if isinstance(v, dict) else None
        if kind == "max" and single is not None and single[1] == 1 and len(single[0]) == 1 and single[0][0][1] == 1:
            gen = self.gens[single[0][0][0]]
            if gen.kind == "reduce" and gen.data[0] == "topk_indices" and gen.data[3][0] and gen.data[3][1] in axes:
                return signs.NONNEG
        return self.value_sign(v)

    def _at_the_ends(self, kind: str, axes: tuple[str, ...], v: Poly) -> Value | None:
        """A convex function a·t² + b·t of one element generator is largest where t is (and where it is least).

        Its first place needs it strictly convex: then nothing between the ends is as large.
        """
        g = self._only_square(axes, v)
        if g is None:
            return None
        lead = {tuple(x for x in m if x[0] != g): c for m, c in v.items() if (g, 2) in m}
        sign, convex = self.decide(lead), kind in ("max", "argmax")
        if sign & (signs.NEG if convex else signs.POS) or (kind in FIRST and sign & signs.ZERO):
            return None
        ends = [self._value_at(v, g, self.order(end, axes, po.gen(g), None)) for end in ("max", "min")]
        if kind in FIRST:
            return self._first_at_the_ends(kind, axes, po.gen(g), ends, po.const(0))
        return self.extremum("maximum" if kind == "max" else "minimum", ends)

    def _only_square(self, axes: tuple[str, ...], v: Poly) -> int | None:
        """The one generator that depends on the axes, where v is a·t² + b·t in it."""
        inside = {g for m in v for g, _ in m if self.gens[g].axes & set(axes)}
        degrees = {e for m in v for g, e in m if g in inside}
        return next(iter(inside)) if len(inside) == 1 and 2 in degrees and degrees <= {1, 2} else None

    def _value_at(self, v: Poly, g: int, t: Value) -> Value:
        """The polynomial where g has the value t."""
        rest = ((tuple(x for x in m if x[0] != g), c, dict(m).get(g, 0)) for m, c in v.items())
        return self.plus(*(self.by({m: c}, self.power_of(t, e) if e else po.const(1)) for m, c, e in rest))

    def _through(self, kind: str, axes: tuple[str, ...], m: Mono, sign: Number, extra: object) -> Value | None:
        """Increasing maps change places with the reduction; positions need them strictly increasing.

        A list of -f(t) is -f(-t') for the list t' of -t.
        """
        sides = self._of_sides(kind, axes, m, extra)
        if sides is not None:
            return sides
        increasing = self._increasing(m, strictly=kind not in ("max", "min"))
        if increasing is None:
            return None
        inner, outer = increasing
        found = self.order(kind, axes, po.scaled(inner, sign), extra)
        if kind in ("argmax", "argmin", "topk_indices"):
            return found
        if kind == "topk_values":  # places past the end are filled in once, by the outermost list
            places, inside = self.unpadded(found)
            found = inside if places else found
        return outer(found) if sign == 1 else self.by(po.const(-1), outer(self.by(po.const(-1), found)))

    def _increasing(self, m: Mono, strictly: bool) -> tuple[Poly, Callable[[Value], Value]] | None:
        """(t, f) with m = f(t) for an increasing map f."""
        if all(self.gens[g].kind == "exp" for g, _ in m):
            return self.add(*({self.gens[g].data[0]: e} for g, e in m)), self.exp
        if len(m) != 1:
            return None
        ((g, e),) = m
        gen = self.gens[g]
        if gen.kind == "base" and e > 0 and self._grows(gen.data[0], e):
            return gen.data[0], lambda v: self.power_of(v, e)
        if gen.kind == "log" and e == 1:
            return gen.data[0], self.log
        if gen.kind == "fun" and e == 1 and gen.data[0] in (STRICT if strictly else INCREASING):
            return gen.data[1], lambda v: self.fun(gen.data[0], v)
        return None

    def _of_sides(self, kind: str, axes: tuple[str, ...], m: Mono, extra: object) -> Value | None:
        """The extremum of |t| or of a maximum, from extrema of t and -t or of its arguments."""
        if len(m) != 1 or m[0][1] != 1:
            return None
        gen = self.gens[m[0][0]]
        if gen.kind == "fun" and gen.data[0] == "abs":
            return self._of_size(kind, axes, gen.data[1], extra)
        if gen.kind == "reduce" and gen.data[0] == kind in ("max", "min"):
            return self._of_extremum(kind, axes, gen.data[1], gen.data[2])
        return self._of_maximum(kind, axes, gen.data, extra) if gen.kind == "max" else None

    def _of_size(self, kind: str, axes: tuple[str, ...], p: Poly, extra: object) -> Value | None:
        """|t| is largest where t is, or where it is smallest."""
        if kind == "max":
            return self.largest(*(self.order("max", axes, q, extra) for q in (p, po.scaled(p, -1))))
        if kind == "argmax":
            sizes = [self.fun("abs", self.order(end, axes, p, None)) for end in ("max", "min")]
            return self._first_at_the_ends(kind, axes, p, sizes, po.const(0))
        return None

    def _of_extremum(self, kind: str, axes: tuple[str, ...], inner: tuple[str, ...], v: Value) -> Value | None:
        """max_i max_j t is the maximum over i and j, in whatever order."""
        if not isinstance(v, dict) or set(axes) & set(inner):
            return None
        return self.order(kind, (*axes, *inner), v, None)

    def _of_maximum(self, kind: str, axes: tuple[str, ...], args: tuple[Poly, ...], extra: object) -> Value | None:
        """max max(t, u) = max(max t, max u), min max(t, c) = max(min t, c)."""
        if kind == "max":
            return self.largest(*(self.order("max", axes, p, extra) for p in args))
        varying = [p for p in args if self.axes(p) & set(axes)]
        if kind == "min" and len(varying) == 1:
            fixed = [p for p in args if p is not varying[0]]
            return self.largest(self.order("min", axes, varying[0], extra), *fixed)
        return None

    def _grows(self, base: Poly, e: Number) -> bool:
        """Whether t^e increases (e > 0): an even power does so for t >= 0 alone; a root has no value elsewhere."""
        return e.denominator != 1 or e % 2 == 1 or not self.decide(base) & signs.NEG


def _ratio(p: Poly, q: Poly) -> Number | None:
    """r with p = r·q, if there is one."""
    m = min(q)
    r = Fraction(p.get(m, 0)) / q[m]
    return po.number(r) if r and po.scaled(q, r) == p else None


def _limits(v: Value) -> set[str]:
    """What a value may be that is no number."""
    if isinstance(v, Case):
        return _limits(v.yes) | _limits(v.no)
    return {v} if isinstance(v, str) else set()


def _leaves(v: Value) -> list[Poly]:
    if isinstance(v, Case):
        return [*_leaves(v.yes), *_leaves(v.no)]
    return [v] if isinstance(v, dict) else []
