"""Reductions other than sums in normal form: what is monotone changes places with an extremum, a list, a position."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import Case, Value, frozen
from redalg.proofs.maps import STRICT, as_mono
from redalg.proofs.polynomial import Mono, Poly, Unknown
from redalg.proofs.sums import Sums

OTHER = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}


class Orders(Sums):
    """Constructors of products, quantifiers, extrema, positions and lists."""

    def product(self, axes: tuple[str, ...], v: Value) -> Value:
        if not isinstance(v, dict):
            raise Unknown("a product of elements that may be infinite")
        single = as_mono(v)
        if single is None or single[1] != 1 or any(self.gens[g].sign != signs.POS for g, _ in single[0]):
            free = self.axes(v) - set(axes)
            return po.gen(self.new("reduce", ("prod", axes, frozen(v)), ("prod", axes, v, None), free, signs.ANY))
        return self.exp(self.sum(axes, self.log(v)))

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
                return self.positive(self.order("max", axes, gen.data[0], None))
        parts = self._alternatives(v)
        if parts is not None:
            return self.negated(self.by(*(self.negated(self.any(axes, p)) for p in parts)))
        free = self.axes(v) - set(axes)
        return po.gen(self.new("truth", ("any", axes, frozen(v)), ("any", axes, v), free, signs.NONNEG))

    def _alternatives(self, v: Poly) -> list[Poly] | None:
        """a + b - a·b as [a, b] for single indicators."""
        single = [m for m in v if len(m) == 1]
        if len(single) == 2 and len(v) == 3 and all(v[m] == 1 for m in single):
            product = self.times(*single)
            return [{m: 1} for m in single] if v.get(product) == -1 else None
        return None

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
        negative, inner = not self.sign(factor) & (signs.POS | signs.ZERO), kind
        if negative and kind.startswith("topk"):
            context, factor, rest = {}, po.const(1), v
        elif negative:
            inner = OTHER[kind]
        found = self._atom(inner, axes, rest, extra)
        if kind in ("argmax", "argmin", "topk_indices"):
            return found
        found = self.plus(context, self.by(factor, found))
        return self._padded(axes, rest, extra, found, v) if kind == "topk_values" else found

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
        m = tuple((g, e) for g, e in po.common(element) if not self.gens[g].axes & bound)
        m = tuple((g, e) for g, e in m if self.sign_of_mono(((g, e),)) in (signs.POS, signs.NEG))
        c = po.number(po.content(element) * (-1 if self.leading_negative(element) else 1))
        rest = {k: po.number(Fraction(x) / c) for k, x in self.mul(element, {po.inverse(m): 1}).items()}
        return context, {m: c}, rest

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
        if single is not None and single[1] == 1:
            through = self._through(kind, axes, single[0], extra)
            if through is not None:
                return through
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

    def _through(self, kind: str, axes: tuple[str, ...], m: Mono, extra: object) -> Value | None:
        """Increasing maps change places with the reduction; positions need them strictly increasing."""
        position = kind not in ("max", "min")
        outer: Callable[[Value], Value] | None = None
        if all(self.gens[g].kind == "exp" for g, _ in m):
            inner: Value = self.add(*({self.gens[g].data[0]: e} for g, e in m))
            outer = self.exp
        elif len(m) == 1:
            g, e = m[0]
            gen = self.gens[g]
            if gen.kind == "base" and e > 0:
                inner, outer = gen.data[0], lambda v: self.power_of(v, e)
            elif gen.kind == "log" and e == 1:
                inner, outer = gen.data[0], self.log
            elif gen.kind == "fun" and e == 1 and gen.data[0] in (STRICT if position else (*STRICT, "relu", "sign")):
                inner, outer = gen.data[1], lambda v: self.fun(gen.data[0], v)
            elif gen.kind == "fun" and e == 1 and gen.data[0] == "abs" and kind == "max":
                p = gen.data[1]
                sides = [self.order("max", axes, q, extra) for q in (p, po.scaled(p, -1))]
                return self.largest(*sides)
            elif gen.kind == "max" and e == 1 and kind == "max":
                return self.largest(*(self.order("max", axes, p, extra) for p in gen.data))
        if outer is None:
            return None
        found = self.order(kind, axes, inner, extra)
        return found if kind in ("argmax", "argmin", "topk_indices") else outer(found)


def _leaves(v: Value) -> list[Poly]:
    if isinstance(v, Case):
        return [*_leaves(v.yes), *_leaves(v.no)]
    return [v] if isinstance(v, dict) else []
