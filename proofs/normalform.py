"""The normal form of terms: rational functions, exponentials, logarithms, cases and reductions over exact rationals.

Sums over an axis are linear: Σ_j of a polynomial is a polynomial in atoms Σ_j (monomial in j), with everything that
does not depend on j in front. Extrema let go of what does not depend on j and of increasing maps. Two terms with the
same normal form are equal wherever both have values; the converse is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import Case, Value, frozen
from redalg.proofs.maps import STRICT, Maps, as_mono
from redalg.proofs.polynomial import Mono, Number, Poly, Unknown
from redalg.proofs.terms import Leaf, Term, walk

CASTS = ("cast_commutes", "cast_left_out")
COPIES = 4  # of one sum in a product, that are written out
OTHER = {"max": "min", "min": "max", "argmax": "argmin", "argmin": "argmax"}


class Normal(Maps):
    """Normal forms of the terms of one document, with each term's computed once."""

    def __init__(self, budget: int = 2_000_000, assumed: frozenset[str] = frozenset()) -> None:
        super().__init__(budget, assumed)
        self.done: dict[Term, Value] = {}

    def __call__(self, root: Term) -> Value:
        for t in walk(root, until=self.done.__contains__):
            if t not in self.done:
                self.done[t] = self._value(t)
        return self.done[root]

    def _value(self, t: Term) -> Value:
        args = [self.done[a] for a in t.args]
        if t.op in ("const", "special", "true", "false"):
            return self._constant(t)
        if t.op in ("tensor", "state", "index", "size"):
            return self._leaf(t)
        if t.op == "add":
            return self.plus(*args)
        if t.op == "mul":
            return self.by(*args)
        if t.op == "pow":
            exponent = po.as_constant(args[1]) if isinstance(args[1], dict) else None
            if exponent is not None:
                return self.power_of(args[0], exponent)
            return self.exp(self.by(args[1], self.log(args[0])))
        if t.op in ("exp", "log"):
            return self.exp(args[0]) if t.op == "exp" else self.log(args[0])
        if t.op in ("maximum", "minimum"):
            return self._extremum(t.op, args)
        if t.op == "cast":
            return self._cast(t.attr, args[0])
        if t.op == "reduce":
            return self._reduce(t.attr.kind, tuple(t.attr.axes), args, t.attr.extra)
        logical = self._logical(t, args)
        return self.fun(t.op, args[0]) if logical is None else logical

    def _constant(self, t: Term) -> Value:
        if t.op == "const":
            return po.const(t.attr)
        if t.op in ("true", "false"):
            return po.const(int(t.op == "true"))
        if t.attr in ("oo", "-oo", "nan"):
            return str(t.attr)
        if t.attr == "e":
            return self.exp(po.const(1))
        return po.gen(self.new("leaf", t.attr, ("special", t.attr), (), signs.POS if t.attr == "pi" else signs.ANY))

    def _leaf(self, t: Term) -> Value:
        if t.op in ("index", "size"):
            sign = signs.POS if t.op == "size" else signs.NONNEG
            axes = (t.attr,) if t.op == "index" else ()
            return po.gen(self.new("leaf", (t.op, t.attr), (t.op, t.attr), axes, sign))
        domain = t.attr.domain
        if "complex" in domain:
            raise Unknown("complex numbers")
        if "bool" in domain:
            return po.gen(self.new("truth", (t.op, t.attr), (t.op, t.attr), t.attr.axes, signs.NONNEG))
        sign = signs.POS if "positive" in domain else signs.NONNEG if "nonnegative" in domain else signs.ANY
        # the same name with another domain is the same leaf: a domain is a claim about it
        key = (t.op, t.attr.name, t.attr.axes)
        found = self.new("leaf", key, (t.op, t.attr), t.attr.axes, sign)
        if self.gens[found].sign != sign:
            raise Unknown(f"{t.attr.name} is declared with two domains")
        return po.gen(found)

    # --- conditions ---

    def _extremum(self, op: str, args: list[Value]) -> Value:
        if op == "maximum":
            return self.largest(*args)
        minus = po.const(-1)
        return self.by(minus, self.largest(*(self.by(minus, a) for a in args)))

    def _logical(self, t: Term, args: list[Value]) -> Value | None:
        if t.op == "where":
            return self.choose(args[0], args[1], args[2])
        if t.op in ("and", "or"):
            if t.op == "and":
                return self.by(*args)
            return self.negated(self.by(*map(self.negated, args)))
        if t.op == "not":
            return self.negated(args[0])
        if t.op in ("eq", "ne"):
            boolean = t.args[0].is_boolean and t.args[1].is_boolean
            same = self._alike(*args) if boolean else self.equal(*args)
            return same if t.op == "eq" else self.negated(same)
        if t.op in ("lt", "le"):
            low, high = args if t.op == "lt" else args[::-1]
            found = self.on_both(self._less, low, high)
            return found if t.op == "lt" else self.negated(found)
        return None

    def _less(self, a: Value, b: Value) -> Value:
        if isinstance(a, dict) and isinstance(b, dict):
            return self.positive(self.sub(b, a))
        rank = {"-oo": -1, "oo": 1}
        if "nan" in (a, b) or "?" in (a, b):
            raise Unknown("a comparison with NaN")
        low, high = (rank[v] if isinstance(v, str) else 0 for v in (a, b))
        return po.const(int(low < high))

    def _alike(self, a: Value, b: Value) -> Value:
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

    def _cast(self, dtype: str, v: Value) -> Value:
        if any(a in self.assumed for a in CASTS):
            self.used |= self.assumed & set(CASTS)
            return v
        return self.on_each(lambda x: x if isinstance(x, str) else po.gen(self._fun(f"cast:{dtype}", x)), v)

    # --- reductions ---

    def _reduce(self, kind: str, axes: tuple[str, ...], args: list[Value], extra: object) -> Value:
        if kind == "sum":
            return self.sum(axes, args[0])
        if kind == "prod":
            return self._product(axes, args[0])
        if kind in ("any", "all"):
            return self._any(axes, args[0]) if kind == "any" else self.negated(self._any(axes, self.negated(args[0])))
        if kind == "monoid":
            keys = tuple(frozen(a) for a in args)
            free = frozenset().union(*map(self.axes, args)) - set(axes)
            data = (kind, axes, tuple(args), extra)
            return po.gen(self.new("reduce", (kind, axes, keys, extra), data, free, signs.ANY))
        return self.order(kind, axes, args[0], extra)

    def sum(self, axes: tuple[str, ...], v: Value) -> Value:
        if isinstance(v, str):
            return v
        if isinstance(v, Case):
            if self.gens[v.gen].axes & set(axes):
                return self._sum_with_infinities(axes, v)
            return self.case(v.gen, self.sum(axes, v.yes), self.sum(axes, v.no))
        return self.add(*(po.scaled(self._sum_of_mono(axes, m), c) for m, c in v.items()))

    def _sum_with_infinities(self, axes: tuple[str, ...], v: Case) -> Value:
        """An infinite element makes the sum infinite; without one the sum is that of the others."""
        where = po.gen(v.gen)
        for limit, finite, condition in ((v.yes, v.no, where), (v.no, v.yes, self.negated(where))):
            if limit in ("oo", "-oo") and isinstance(finite, dict):
                return self.choose(self._any(axes, condition), limit, self.sum(axes, finite))
        raise Unknown("a sum of elements that may be infinite")

    def _sum_of_mono(self, axes: tuple[str, ...], m: Mono) -> Poly:
        """Σ of a monomial: what does not depend on the axes in front, sums inside it joined, then split by axis.

        Σ_j (Σ_d a_jd b_d)·c_j = Σ_jd a_jd b_d c_j, and Σ_jd a_j b_d = Σ_j a_j · Σ_d b_d: one order for every contraction.
        """
        bound = set(axes)
        inside = tuple(x for x in m if self.gens[x[0]].axes & bound)
        total: Poly = {tuple(x for x in m if x not in inside): 1}
        for a in axes:
            if a not in self.mono_axes(inside):
                total = self.mul(total, self._size(a))
        while True:
            powers = (g for g, e in inside if self.gens[g].kind == "sum" and e in range(1, COPIES + 1))
            inner = next(powers, None)
            if inner is None:
                break
            inside, names = self._joined(inside, inner, bound)
            bound |= names
        for part, read in self._components(inside, bound):
            total = self.mul(total, self._sum_atom(tuple(sorted(read)), part))
        return total

    def _size(self, axis: str) -> Poly:
        return po.gen(self.new("leaf", ("size", axis), ("size", axis), (), signs.POS))

    def _joined(self, m: Mono, g: int, bound: set[str]) -> tuple[Mono, set[str]]:
        """The monomial with a sum inside it written out, under names of its own."""
        inner_axes, inner = self.gens[g].data
        rest = self.times(m, ((g, -1),))
        taken = bound | self.mono_axes(rest) | (self.mono_axes(inner) - set(inner_axes))
        names = {}
        for a in inner_axes:
            new = a
            while new in taken:
                new += "'"
            names[a] = new
            taken.add(new)
        changed = {a: b for a, b in names.items() if a != b}
        if changed:
            (inner,) = self.relabelled({inner: 1}, changed)
        return self.times(rest, inner), set(names.values())

    def _components(self, m: Mono, bound: set[str]) -> list[tuple[Mono, set[str]]]:
        """Factors that share a bound axis stay together."""
        groups: list[tuple[list[tuple[int, Number]], set[str]]] = []
        for x in m:
            factors, read = [x], set(self.gens[x[0]].axes & bound)
            for other in [g for g in groups if g[1] & read]:
                groups.remove(other)
                factors, read = other[0] + factors, other[1] | read
            groups.append((factors, read))
        return [(tuple(sorted(factors)), read) for factors, read in groups]

    def _sum_atom(self, axes: tuple[str, ...], m: Mono) -> Poly:
        if not axes:
            return {m: 1}
        taken = {*self.mono_axes(m), *axes}
        names: dict[str, str] = {}
        for a in axes:
            plain = a.split("~")[0]
            if "~" in a and plain not in taken:
                names[a] = plain
                taken.add(plain)
        if names:
            (m,) = self.relabelled({m: 1}, names)
            axes = tuple(sorted(names.get(a, a) for a in axes))
        m = self._least(axes, m)
        free, sign = self.mono_axes(m) - set(axes), self.sign_of_mono(m)
        return po.gen(self.new("sum", (axes, m), (axes, m), free, sign))

    def _least(self, axes: tuple[str, ...], m: Mono) -> Mono:
        """Copies of one axis (j, j', …) may change places: the least monomial stands for all."""
        copies: dict[str, list[str]] = {}
        for a in axes:
            copies.setdefault(a.rstrip("'"), []).append(a)
        best = m
        for names in copies.values():
            for order in permutations(names) if 1 < len(names) <= COPIES else ():
                aside = {a: f"%{a}" for a in names}
                (moved,) = self.relabelled({m: 1}, aside)
                (moved,) = self.relabelled({moved: 1}, {f"%{a}": b for a, b in zip(names, order, strict=True)})
                best = min(best, moved)
        return best

    def _product(self, axes: tuple[str, ...], v: Value) -> Value:
        if not isinstance(v, dict):
            raise Unknown("a product of elements that may be infinite")
        single = as_mono(v)
        if single is None or single[1] != 1 or any(self.gens[g].sign != signs.POS for g, _ in single[0]):
            free = self.axes(v) - set(axes)
            return po.gen(self.new("reduce", ("prod", axes, frozen(v)), ("prod", axes, v, None), free, signs.ANY))
        return self.exp(self.sum(axes, self.log(v)))

    def _any(self, axes: tuple[str, ...], v: Value) -> Value:
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
            return self.negated(self.by(*(self.negated(self._any(axes, p)) for p in parts)))
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
        return self.choose(self._less(places, {}), "-oo", found)

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

    # --- renaming ---

    def relabelled(self, p: Poly, axes: dict[str, str]) -> Poly:
        """Free axes renamed throughout."""
        total: Poly = {}
        for m, c in p.items():
            term: Poly = {(): c}
            for g, e in m:
                term = self.mul(term, po.gen(self._relabelled_gen(g, axes), e))
            total = self.add(total, term)
        return total

    def _relabelled_gen(self, g: int, axes: dict[str, str]) -> int:
        gen = self.gens[g]
        if not any(a in gen.axes for a in axes):
            return g
        free = frozenset(axes.get(a, a) for a in gen.axes)
        if gen.kind in ("leaf", "truth") and isinstance(gen.data[1], Leaf):
            op, leaf = gen.data
            new = Leaf(leaf.name, tuple(axes.get(a, a) for a in leaf.axes), leaf.domain)
            key = (op, new) if gen.kind == "truth" else (op, new.name, new.axes)
            return self.new(gen.kind, key, (op, new), free, gen.sign)
        if gen.kind == "leaf":
            return self.new("leaf", ("index", axes[gen.data[1]]), ("index", axes[gen.data[1]]), free, gen.sign)
        if gen.kind == "exp":
            (m,) = self.relabelled({gen.data[0]: 1}, axes)
            return self.new("exp", m, (m,), free, gen.sign)
        if gen.kind in ("base", "log", "pos", "zero"):
            p = self.relabelled(gen.data[0], axes)
            return self.keyed(gen.kind, p, None, (p,), free, gen.sign)
        if gen.kind == "fun":
            return self._fun(gen.data[0], self.relabelled(gen.data[1], axes))
        if gen.kind == "sum":
            (m,) = self.relabelled({gen.data[1]: 1}, axes)
            return self.new("sum", (gen.data[0], m), (gen.data[0], m), free, gen.sign)
        raise Unknown(f"an axis renamed inside a {gen.kind}")


def _leaves(v: Value) -> list[Poly]:
    if isinstance(v, Case):
        return [*_leaves(v.yes), *_leaves(v.no)]
    return [v] if isinstance(v, dict) else []
