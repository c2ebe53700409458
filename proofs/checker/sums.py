"""Sums over axes in normal form: linear, every contraction in one order, bound axes under names of their own."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import permutations, product
from math import prod
from typing import Any

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.conditions import Conditions
from redalg.proofs.checker.generators import Case, Gen, Value, frozen
from redalg.proofs.checker.polynomial import Mono, Number, Poly, Unknown
from redalg.proofs.checker.signed import as_mono
from redalg.proofs.document.terms import Leaf, base, fresh
from redalg.proofs.document.work import spend

ORDERED = ("max", "min", "argmax", "argmin", "topk_values", "topk_indices")
COPIES = 4  # of one sum in a product, that are written out
MOST_ORDERS = 96  # of the copies of axes that one sum runs over
NOT_RENAMED: dict[str, str] = {}


class Sums(Conditions):
    """Constructors of sums."""

    def any(self, axes: tuple[str, ...], v: Value) -> Value:
        raise NotImplementedError

    def sum(self, axes: tuple[str, ...], v: Value) -> Value:
        if isinstance(v, str):
            return v
        if isinstance(v, Case):
            g = min((x for x in _tests(v) if not self.gens[x].axes & set(axes)), default=None)
            if g is None:
                return self._sum_with_infinities(axes, v)
            return self.case(g, *(self.sum(axes, self.at(v, g, k)) for k in (1, 0)))
        opened = self.without_relu(v)
        return self.add(*(po.scaled(self._sum_of_mono(axes, m), c) for m, c in opened.items()))

    def without_relu(self, v: Poly, maxima: bool = False) -> Poly:
        """relu(t) = (t + |t|)/2, so that sums of either are in the same atoms, and |x·d| = |x|·|d|.

        `maxima`: also of max(a, b) = (a + b + |a - b|)/2.
        """
        if not any(self._halves(g, maxima) for m in v for g, _ in m):
            return v
        total: Poly = {}
        for m, c in v.items():
            term: Poly = {(): c}
            for g, e in m:
                halves = self._halves(g, maxima) if e.denominator == 1 and 0 < e <= COPIES else ()
                if halves:
                    a, b = halves
                    size = self._map("abs", self.sub(a, b))
                    half = po.scaled(self.add(a, b, size), Fraction(1, 2))  # type: ignore[arg-type]
                    term = self.mul(term, self.power(half, int(e)))
                else:
                    term = self.mul(term, po.gen(g, e))
            total = self.add(total, term)
        return total

    def _halves(self, g: int, maxima: bool) -> tuple[Poly, ...]:
        """(a, b) of a generator max(a, b), relu(a) = max(a, 0) being one."""
        gen = self.gens[g]
        if gen.kind == "fun" and gen.data[0] == "relu":
            return gen.data[1], {}
        return tuple(gen.data) if maxima and gen.kind == "max" and len(gen.data) == 2 else ()

    def at(self, v: Value, g: int, value: int) -> Value:
        """The value where an indicator is 1 or 0, without the cases that it excludes for every element."""
        found = self.cofactor(v, g, value)
        left = self._excluded(found, self.quantified[g, value][1]) if (g, value) in self.quantified else found
        return found if left is None else left

    def _excluded(self, v: Value, nowhere: Poly) -> Value | None:
        """The value where a condition is 0; None where it is 1."""
        if nowhere == po.const(1):
            return None
        if not isinstance(v, Case) or not nowhere:
            return v
        sides = ((v.yes, self.cofactor(nowhere, v.gen, 1)), (v.no, self.cofactor(nowhere, v.gen, 0)))
        yes, no = (self._excluded(x, p) if isinstance(p, dict) else x for x, p in sides)
        return no if yes is None else yes if no is None else self.case(v.gen, yes, no)

    def _sum_with_infinities(self, axes: tuple[str, ...], v: Case) -> Value:
        """An infinite element makes the sum infinite; without one the sum is that of the others."""
        where = po.gen(v.gen)
        for limit, finite, condition in ((v.yes, v.no, where), (v.no, v.yes, self.negated(where))):
            if limit in ("oo", "-oo") and isinstance(finite, dict):
                return self.choose(self.any(axes, condition), limit, self.sum(axes, finite))
        raise Unknown("a sum of elements that may be infinite")

    def _sum_of_mono(self, axes: tuple[str, ...], m: Mono) -> Poly:
        """Σ of a monomial: what does not depend on the axes in front, sums inside it joined, then split by axis.

        Σ_j (Σ_d a_jd b_d)·c_j = Σ_jd a_jd b_d c_j and Σ_jd a_j b_d = Σ_j a_j · Σ_d b_d: one order for all contractions.
        """
        if self.is_nothing(m):
            return {}
        bound = set(axes)
        inside = tuple(x for x in m if self.gens[x[0]].axes & bound)
        total: Poly = {tuple(x for x in m if x not in inside): 1}
        while True:
            powers = (g for g, e in inside if self.gens[g].kind == "sum" and e in range(1, COPIES + 1))
            inner = next(powers, None)
            if inner is None:
                break
            inside, names = self._joined(inside, inner, bound)
            bound |= names
        inside, bound = self._cancelled(self._implied(inside), bound)
        for a in sorted(bound - self.mono_axes(inside)):  # also where what had the axis has cancelled
            total = self.mul(total, self._size(a))
        for part, read in self._components(inside, bound):
            total = self.mul(total, self._sum_atom(tuple(sorted(read)), part))
        return total

    def is_nothing(self, m: Mono) -> bool:
        """[w = 0]·w^e is 0 for e > 0: of elements without a weight nothing is summed."""
        weights = {g for g, e in m if e > 0}
        zeros = (self.gens[g].data[0] for g, _ in m if self.gens[g].kind == "zero")
        return any(len(p) == 1 and len(k) == 1 and k[0][1] > 0 and k[0][0] in weights for p in zeros for k in p)

    def at_zeros(self, m: Mono) -> Poly:
        """A monomial where the conditions p = 0 among its factors hold: [w - v = 0]·w is [w - v = 0]·v. The largest
        monomial of p, by degree, is written by the others."""
        if self.is_nothing(m):
            return {}
        powers = dict(m)
        for g, _ in m:
            p = self.gens[g].data[0] if self.gens[g].kind == "zero" else {}
            if len(p) < 2 or any(e < 0 for k in p for _, e in k):
                continue
            lead = max(p, key=lambda k: (sum(e for _, e in k), k))
            if all(powers.get(h, 0) >= e and h not in self.idempotent for h, e in lead):
                rest = po.scaled({k: c for k, c in p.items() if k != lead}, Fraction(-1) / p[lead])
                reduced = self.mul({self.times(m, po.inverse(lead)): 1}, rest)
                return self.add(*(po.scaled(self.at_zeros(k), c) for k, c in reduced.items()))
        return {m: 1}

    def summed_at_zeros(self, p: Poly) -> Poly:
        """A polynomial in sums over elements of which conditions say something, and in logarithms of such sums."""
        total: Poly = {}
        for m, c in p.items():
            term: Poly = {(): c}
            for g, e in m:
                term = self.mul(term, self._at_zeros(g, e))
            total = self.add(total, term)
        return total

    def _at_zeros(self, g: int, e: Number) -> Poly:
        gen, found = self.gens[g], None
        if gen.kind == "sum" and e in range(1, COPIES + 1) and (body := self.at_zeros(gen.data[1])) != {gen.data[1]: 1}:
            found = self.sum(gen.data[0], body)
        if gen.kind == "log" and e == 1 and (inner := self.summed_at_zeros(gen.data[0])) != gen.data[0]:
            found = self.log(inner)
        return self.power(found, int(e)) if isinstance(found, dict) else po.gen(g, e)

    def _size(self, axis: str) -> Poly:
        axis = base(axis)
        return po.gen(self.new("leaf", ("size", axis), ("size", axis), (), signs.POS))

    def _joined(self, m: Mono, g: int, bound: set[str]) -> tuple[Mono, set[str]]:
        """The monomial with a sum inside it written out, under names of its own."""
        inner_axes, inner = self.gens[g].data
        rest = self.times(m, ((g, -1),))
        taken = bound | self.mono_axes(rest) | (self.mono_axes(inner) - set(inner_axes))
        names = {a: fresh(a, taken) for a in inner_axes}
        (inner,) = self.relabelled({inner: 1}, names)
        return self.times(rest, inner), set(names.values())

    def _implied(self, m: Mono) -> Mono:
        """Without [any_j c_j] beside a c_j: what says that some element is selected is 1 where one is."""
        for g, _ in m:
            axes, v = self.quantified.get((g, 0), ((), {}))
            if len(axes) != 1 or len(v) != 1 or po.const(1) == v:
                continue
            for b in sorted(self.mono_axes(m)):
                ((held, c),) = (v if b == axes[0] else self.relabelled(v, {axes[0]: b})).items()
                if c == 1 and g not in dict(held) and set(held) <= set(m):
                    return self._implied(tuple(x for x in m if x[0] != g))
        return m

    def _cancelled(self, m: Mono, bound: set[str]) -> tuple[Mono, set[str]]:
        """Σ_gj w_jg·t_g/(Σ_j w_jg)² is Σ_g t_g/Σ_j w_jg: a written-out sum that is also divided by, taken together."""
        for g, e in m:
            gen = self.gens[g]
            if gen.kind != "sum" or e >= 0 or len(gen.data[0]) != 1 or not gen.axes & bound:
                continue
            for b in sorted(bound - gen.axes):
                whole = self.relabelled({gen.data[1]: 1}, {gen.data[0][0]: b}) if b != gen.data[0][0] else None
                factors = tuple(x for x in m if b in self.gens[x[0]].axes)
                if factors and whole in (None, {factors: 1}) and (whole or factors == gen.data[1]):
                    rest = tuple(x for x in m if x not in factors)
                    return self._cancelled(self.times(rest, ((g, 1),)), bound - {b})
        return m, bound

    def _components(self, m: Mono, bound: set[str]) -> list[tuple[Mono, set[str]]]:
        """Factors that share a bound axis stay together."""
        groups: list[tuple[list[tuple[int, Number]], set[str]]] = []
        spend(len(m))
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
        taken = set(self.mono_axes(m) - set(axes))
        names = {a: fresh(a, taken) for a in sorted(axes)}  # whatever they were called
        (m,) = self.relabelled({m: 1}, names)
        axes = tuple(sorted(names.values()))
        m = self._least(axes, m)
        free, sign = self.mono_axes(m) - set(axes), self.sign_of_mono(m)
        return po.gen(self.new("sum", (axes, m), (axes, m), free, sign))

    def _least(self, axes: tuple[str, ...], m: Mono) -> Mono:
        """Copies of an axis (j, j', …) may change places, of each axis apart: the least monomial stands for all."""
        copies: dict[str, list[str]] = {}
        for a in axes:
            copies.setdefault(base(a), []).append(a)
        several = [names for names in copies.values() if 1 < len(names) <= COPIES]
        orders = [[dict(zip(names, order, strict=True)) for order in permutations(names)] for names in several]
        if prod(map(len, orders)) > MOST_ORDERS:
            orders = orders[:1]
        best = m
        for chosen in product(*orders) if orders else ():
            (moved,) = self.relabelled({m: 1}, {a: b for names in chosen for a, b in names.items()})
            best = min(best, moved)
        return best

    # --- renaming ---

    def relabelled(self, p: Poly, axes: dict[str, str]) -> Poly:
        """Free axes renamed throughout, all at once."""
        axes = {a: b for a, b in axes.items() if a != b}
        if not axes:
            return p
        total: Poly = {}
        for m, c in p.items():
            term: Poly = {(): c}
            for g, e in m:
                term = self.mul(term, po.gen(self._relabelled_gen(g, axes), e))
            total = self.add(total, term)
        return total

    def _relabelled_value(self, v: Value, axes: dict[str, str]) -> Value:
        if isinstance(v, Case):
            sides = (self._relabelled_value(x, axes) for x in (v.yes, v.no))
            return self.case(self._relabelled_gen(v.gen, axes), *sides)
        return self.relabelled(v, axes) if isinstance(v, dict) else v

    def _relabelled_gen(self, g: int, axes: dict[str, str]) -> int:
        gen = self.gens[g]
        spend()
        axes = {a: b for a, b in axes.items() if a in gen.axes}  # what is bound inside is another axis of that name
        if not axes:
            return g
        found = self._relabelled(gen, axes, frozenset(axes.get(a, a) for a in gen.axes))
        for value in (0, 1):  # what an indicator says of all elements it says under the new names
            if (g, value) in self.quantified:
                self.quantified.setdefault((found, value), self.rebound(*self.quantified[g, value], axes))
        return found

    def rebound(
        self, bound: tuple[str, ...], v: Value, axes: dict[str, str] = NOT_RENAMED, beside: Iterable[str] = ()
    ) -> tuple[tuple[str, ...], Any]:
        """What a reduction binds and its body, with free axes renamed and every bound one called by its first name.

        That is the first of a, a', … that no free axis of the body (and none of `beside`) has, so that a reduction is
        written in one way whatever its axes were called, and what is renamed to a bound name is not captured.
        """
        taken = {axes.get(a, a) for a in self.axes(v) - set(bound)} | set(beside)
        names = {a: fresh(a, taken) for a in bound}
        return tuple(names.values()), self._relabelled_value(v, {**axes, **names})

    def _relabelled(self, gen: Gen, axes: dict[str, str], free: frozenset[str]) -> int:
        if gen.kind in ("leaf", "truth"):
            return self._relabelled_leaf(gen, axes, free)
        if gen.kind == "exp":
            (m,) = self.relabelled({gen.data[0]: 1}, axes)
            return self.new("exp", m, (m,), free, gen.sign)
        if gen.kind in ("base", "log", "pos", "zero"):
            p = self.relabelled(gen.data[0], axes)
            return self.keyed(gen.kind, p, None, (p,), free, gen.sign)
        if gen.kind == "fun":
            return self._fun(gen.data[0], self.relabelled(gen.data[1], axes))
        if gen.kind == "power":
            lower, upper = (self.relabelled(p, axes) for p in gen.data)
            return self.new("power", (frozen(lower), frozen(upper)), (lower, upper), free, gen.sign)
        if gen.kind == "sum":
            return self._relabelled_sum(gen.data[0], gen.data[1], axes)
        if gen.kind == "reduce" and gen.data[0] in ORDERED:
            return self._relabelled_order(gen, axes, free)
        if gen.kind == "reduce" and gen.data[0] == "prod":
            return self._relabelled_product(gen, axes, free)
        if gen.kind == "max":
            return self._relabelled_maximum(gen, axes)
        raise Unknown(f"an axis renamed inside a {gen.kind}")

    def _relabelled_leaf(self, gen: Gen, axes: dict[str, str], free: frozenset[str]) -> int:
        """An array, an index, or a truth about elements."""
        if isinstance(gen.data[1], Leaf):
            op, leaf = gen.data
            new = Leaf(leaf.name, tuple(axes.get(a, a) for a in leaf.axes), leaf.domain)
            key = (op, new) if gen.kind == "truth" else (op, new.name, new.axes)
            return self.new(gen.kind, key, (op, new), free, gen.sign)
        if gen.kind == "leaf":
            return self.new("leaf", ("index", axes[gen.data[1]]), ("index", axes[gen.data[1]]), free, gen.sign)
        if gen.data[0] != "any":
            raise Unknown(f"an axis renamed inside a {gen.kind}")
        bound, v = self.rebound(gen.data[1], gen.data[2], axes)
        return self.new("truth", ("any", bound, frozen(v)), ("any", bound, v), free, gen.sign)

    def _relabelled_order(self, gen: Gen, axes: dict[str, str], free: frozenset[str]) -> int:
        kind, bound, v, extra = gen.data
        if kind.startswith("topk"):
            extra = extra[0], axes.get(extra[1], extra[1])
        bound, v = self.rebound(bound, v, axes, extra[1:] if extra else ())
        data = (kind, bound, v, extra)
        if isinstance(v, dict):
            return self.keyed("reduce", v, (kind, bound, extra), data, free, gen.sign)
        return self.new("reduce", (kind, bound, frozen(v), extra), data, free, gen.sign)

    def _relabelled_product(self, gen: Gen, axes: dict[str, str], free: frozenset[str]) -> int:
        bound, v = self.rebound(gen.data[1], gen.data[2], axes)
        return self.new("reduce", ("prod", bound, frozen(v)), ("prod", bound, v, None), free, gen.sign)

    def _relabelled_maximum(self, gen: Gen, axes: dict[str, str]) -> int:
        """The largest of the arguments under the new names, written as it would be there."""
        single = as_mono(self.maximum([self.relabelled(p, axes) for p in gen.data]))
        if single is None or single[1] != 1 or len(single[0]) != 1 or single[0][0][1] != 1:
            raise Unknown("an axis renamed to one with which arguments of a maximum are alike")
        return single[0][0][0]

    def _relabelled_sum(self, bound: tuple[str, ...], m: Mono, axes: dict[str, str]) -> int:
        """A sum with free axes renamed: what it binds steps aside where an axis is renamed to it."""
        taken = set(axes.values()) | self.mono_axes(m)
        names = axes | {a: fresh(a, taken) for a in bound if a in axes.values()}
        (m,) = self.relabelled({m: 1}, names)
        (((found, _),),) = self._sum_atom(tuple(names.get(a, a) for a in bound), m)
        return found


def _tests(v: Value) -> set[int]:
    """The indicators by which a value is split where one side of it is infinite."""
    return {v.gen} | _tests(v.yes) | _tests(v.no) if isinstance(v, Case) else set()
