"""Equality of normal forms: as polynomials, and by cases where maxima and conditions are met.

A difference that is not zero as it stands is split: each indicator is 1 or 0, each maximum is one of its arguments.
Cases that no real values satisfy (Fourier-Motzkin) are left out; in the others the difference must vanish.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.generators import INDICATORS, SPLIT, Case, Value
from redalg.proofs.checker.inequalities import Constraint
from redalg.proofs.checker.normalform import Normal
from redalg.proofs.checker.polynomial import Poly, as_constant
from redalg.proofs.checker.signed import as_mono
from redalg.proofs.document.work import Exhausted, spend

BRANCHES = 4000


class Cases:
    """Proves that values are equal under constraints on their generators."""

    def __init__(
        self,
        normal: Normal,
        undefined: list[Poly] | None = None,
        everywhere: list[tuple[Poly, frozenset[str]]] | None = None,
    ) -> None:
        self.normal, self.branches = normal, 0
        self.truths: list[Value] = []  # conditions under which a term is selected
        self.divisors = undefined or []  # not zero wherever the definition has a value
        self.everywhere = everywhere or []  # the same, at no place along these axes
        self.selected: list[tuple[Poly, Value]] = []  # the same where a condition holds for some element, and whether
        self.shown: list[tuple[Value, str]] = []  # what the definition is no number without: ≠ 0, > 0 or >= 0
        self.zeros: list[Poly] = []  # what is 0 in a case
        self.nowhere: list[tuple[tuple[str, ...], Poly]] = []  # conditions that hold for no element along the axes
        self.chosen: dict[int, int] = {}  # indicator -> its value in a case

    def equal(self, left: Value, right: Value, given: list[Constraint]) -> bool:
        """Whether the values agree in every case the constraints leave."""
        self._count()
        n = self.normal
        tops = [v.gen for v in (left, right) if isinstance(v, Case)]
        if tops:
            g = min(tops)
            for value, claim in self.meanings(g):
                held = given + claim
                with self.branch(g, value) as void:
                    if void or not self.possible(held):
                        continue
                    if not self.equal(n.at(left, g, value), n.at(right, g, value), held):
                        return False
            return True
        if isinstance(left, dict) and isinstance(right, dict):
            return self.zero(n.sub(left, right), given)
        left, right = (self._at_nothing(v) if isinstance(v, dict) else v for v in (left, right))
        return left == right and left != "?"  # "nan" is certainly no value; what is not known is "?"

    def _at_nothing(self, p: Poly) -> Value:
        """c·log t + u is infinite where t is a sum that adds up nothing in the case at hand."""
        n = self.normal
        logs = {g: n.gens[g].data[0] for m in p for g, _ in m if n.gens[g].kind == "log"}
        gone = [g for g, t in logs.items() if not n.expanded(self.at_nowhere(t))]
        terms = [(m, c) for m, c in p.items() if any(g in gone for g, _ in m)]
        if len(terms) != 1 or terms[0][0] != ((gone[0], 1),):
            return p
        return "-oo" if terms[0][1] > 0 else "oo"

    def at_nowhere(self, p: Poly) -> Poly:
        """A polynomial in the case at hand: in sums over elements that none of its conditions selects."""
        for axes, v in self.nowhere:
            p = self._nowhere(p, axes, v)
        return p

    @contextmanager
    def branch(self, g: int, value: int) -> Iterator[bool]:
        """The case in which an indicator has a value; yields whether the definition divides by zero there.

        Inside it, a condition that no element fulfils empties the sums over it, and divisors are those of the case.
        """
        n, gen = self.normal, self.normal.gens[g]
        kept = self.divisors, self.nowhere, self.selected, self.zeros, self.chosen, self.shown
        self.chosen = {**self.chosen, g: value}
        self.shown = [(n.cofactor(v, g, value), op) for v, op in self.shown]
        if (g, value) in n.quantified:
            self.nowhere = [*self.nowhere, n.quantified[g, value]]
        if gen.kind == "zero" and value == 1:
            self.zeros = [*self.zeros, gen.data[0]]
        self.selected = [(p, n.cofactor(somewhere, g, value)) for p, somewhere in self.selected]
        divisors = self._in_branch()
        void = self._is_void(divisors) or (value == 1 and self._zero_somewhere(gen.data))
        self.divisors = [self._in_case(d, g, value) for d in divisors]
        try:
            yield void or any(not n.expanded(d) for d in self.divisors)
        finally:
            self.divisors, self.nowhere, self.selected, self.zeros, self.chosen, self.shown = kept

    def _in_branch(self) -> list[Poly]:
        """What the definition divides by in the case at hand."""
        divisors = self.divisors + [p for p, somewhere in self.selected if somewhere == po.const(1)]
        return divisors + [v for v, op in self.shown if isinstance(v, dict) and op != "le"]

    def _is_void(self, divisors: list[Poly]) -> bool:
        """Whether the definition is no number in the case at hand, or the case none."""
        if self._excluded() or any(_is_missed(v, op) for v, op in self.shown):
            return True
        return any(self._factor(p, d) for p in self.zeros for d in divisors)

    def _excluded(self) -> bool:
        """Whether a condition that holds for no element holds for the one at hand."""
        for _, condition in self.nowhere:
            held: Value = condition
            for g, value in self.chosen.items():
                held = self.normal.cofactor(held, g, value)
            if held == po.const(1):
                return True
        return False

    def _zero_somewhere(self, data: tuple[object, ...]) -> bool:
        """Whether a truth any_g[p = 0, …] says that the definition, which divides by p at every g, does so by 0."""
        if data[0] != "any":
            return False
        _, axes, v = data
        assert isinstance(v, dict) and isinstance(axes, tuple)
        single = as_mono(v)
        if single is None or single[1] != 1:
            return False
        held = [self.normal.gens[g] for g, _ in single[0]]
        zeros = [gen.data[0] for gen in held if gen.kind == "zero"]
        return any(self._factor(p, d) for d, bound in self.everywhere if bound >= set(axes) for p in zeros)

    def _in_case(self, p: Poly, g: int, value: int) -> Poly:
        """A polynomial where the indicator has the value."""
        side = self.normal.cofactor(p, g, value)
        assert isinstance(side, dict)
        return self.at_nowhere(side)

    def _factor(self, p: Poly, divisor: Poly) -> bool:
        """Whether the divisor is p up to a factor that is no sum, or vanishes with a factor of p."""
        n = self.normal
        if not p or not divisor:
            return False  # that 0 is 0 says nothing
        _, own, mine = n.primitive(p, True)
        _, m, theirs = n.primitive(divisor, True)
        there = {g for g, e in m if e > 0}
        if any(e > 0 and n.gens[g].sign & signs.ZERO and g not in there for g, e in own):
            return False  # p may be 0 because this factor is
        if len(mine) > 1:
            return len(theirs) > 1 and (n.same(mine, theirs) or n.same(mine, po.scaled(theirs, -1)))
        return bool(own) and all(e > 0 for _, e in own)

    def zero(self, p: Poly, given: list[Constraint]) -> bool:
        """Whether a polynomial is 0 wherever what it computes has a value.

        Cases are taken of it as it is written: where(c, a, 1/d) does not divide by d where c holds, and multiplied by d
        it would be 0 there, whatever a is.
        """
        self._count()
        n = self.normal
        whole = n.expanded(p)
        if not whole or not n.expanded(n.without_relu(whole, maxima=True)) or not n.summed_at_zeros(whole):
            return True
        if not self.possible(given):
            return True
        for q in (p, whole) if p != whole else (p,):
            found = self._by_cases(q, given)
            if found is not None:
                return found
        return self._by_equalities(whole, given)

    def _by_cases(self, p: Poly, given: list[Constraint]) -> bool | None:
        """Whether a polynomial is 0 in each case of the first maximum or indicator in it; None where it has none."""
        n = self.normal
        gens = sorted({g for m in p for g, _ in m})
        for g in gens:
            inner = self._nested(g)
            if inner is not None:
                return self._split(p, inner, given)
        for g in gens:
            if n.gens[g].kind in INDICATORS:
                return self._indicator(p, g, given)
        return None

    def _nested(self, g: int) -> int | None:
        """A maximum (or |t| …) at the top of a term or inside an indicator."""
        gen = self.normal.gens[g]
        if self._splits(g):
            return next((h for h in self._below(g)), g)
        if gen.kind in ("pos", "zero"):
            for h in sorted({h for m in gen.data[0] for h, _ in m}):
                if self._splits(h):
                    return self._nested(h)
        return None

    def _below(self, g: int) -> list[int]:
        gen = self.normal.gens[g]
        polys = gen.data if gen.kind == "max" else [gen.data[1]]
        return [h for p in polys for m in p for h, _ in m if self._splits(h)]

    def _splits(self, g: int) -> bool:
        gen = self.normal.gens[g]
        return gen.kind == "max" or (gen.kind == "fun" and gen.data[0] in SPLIT)

    def _split(self, p: Poly, g: int, given: list[Constraint]) -> bool:
        n = self.normal
        gen = n.gens[g]
        for value, held in self._choices(gen.data if gen.kind == "max" else None, gen.data):
            constraints = [(self._replaced(q, g, value), strict) for q, strict in given] + held
            if self.possible(constraints) and not self.zero(self._replaced(p, g, value), constraints):
                return False
        return True

    def _choices(self, args: tuple[Poly, ...] | None, data: tuple[object, ...]) -> list[tuple[Poly, list[Constraint]]]:
        n = self.normal
        if args is not None:
            found = []
            for a in args:
                found.append((a, [(n.sub(a, b), False) for b in args if b is not a]))
            return found
        name, p = data
        assert isinstance(p, dict)
        minus = po.scaled(p, -1)
        if name == "sign":
            return [(po.const(1), [(p, True)]), (po.const(-1), [(minus, True)]), ({}, [(p, False), (minus, False)])]
        return [(p, [(p, False)]), (minus if name == "abs" else {}, [(minus, False)])]

    def _replaced(self, p: Poly, g: int, value: Poly) -> Poly:
        """The polynomial with a generator replaced, also inside indicators and exponentials."""
        n, reading = self.normal, self._reading({h for m in p for h, _ in m}, g)
        total: Poly = {}
        for m, c in p.items():
            term: Poly = {(): c}
            for h, e in m:
                gen = n.gens[h]
                if h == g:
                    factor = n.power_of(value, e)
                elif h in reading and gen.kind == "exp":
                    factor = n.exp(self._replaced({gen.data[0]: e}, g, value))
                elif h in reading:
                    inner = self._replaced(gen.data[0], g, value)
                    factor = n.positive(inner) if gen.kind == "pos" else n.equal(inner, {})
                else:
                    factor = po.gen(h, e)
                if not isinstance(factor, dict):
                    raise po.Unknown("a maximum under a negative power")
                term = n.mul(term, factor)
            total = n.add(total, term)
        return total

    def _reading(self, gens: set[int], g: int) -> set[int]:
        """Those of the indicators and exponentials that g stands in, at any depth."""
        found: set[int] = set()
        for h in gens:
            gen = self.normal.gens[h]
            inner = {k for k, _ in gen.data[0]} if gen.kind == "exp" else set()
            inner |= {k for q in gen.data[0] for k, _ in q} if gen.kind in ("pos", "zero") else set()
            if g in inner or (inner and self._reading(inner, g)):
                found.add(h)
        return found

    def _indicator(self, p: Poly, g: int, given: list[Constraint]) -> bool:
        for value, claim in self.meanings(g):
            held = given + claim
            with self.branch(g, value) as void:
                if not void and self.possible(held) and not self.zero(self._in_case(p, g, value), held):
                    return False
        return True

    def _nowhere(self, p: Poly, axes: tuple[str, ...], v: Poly) -> Poly:
        """The polynomial where a condition holds for no element: in sums over them it is 0."""
        n = self.normal
        rest = n.sub(po.const(1), v)
        (held,) = v if len(v) == 1 else rest if len(rest) == 1 else (None,)
        total, alike = dict[po.Mono, po.Number](), self._by_zeros({g for m in p for g, e in m if e > 0}, axes, rest)
        for m, c in p.items():
            term: Poly = {(): c}
            for g, e in m:
                if e > 0 and g in alike:
                    factor = n.power_of(alike[g], e)
                else:
                    factor = po.gen(g, e) if held is None else self._empty(g, e, axes, held, len(v) == 1)
                term = n.mul(term, factor if isinstance(factor, dict) else po.gen(g, e))
            total = n.add(total, term)
        return total

    def _by_zeros(self, gens: set[int], axes: tuple[str, ...], fulfilled: Poly) -> dict[int, Value]:
        """Sums over elements that all fulfil a condition, which says something of them: Σ_j w_j·t_j is 0 where every
        w_j is 0, and Σ_j t_j where every one is 1. Of several conditions one holds: they stay in all sums, if in any.
        """
        n, single = self.normal, {h for m in fulfilled for h, _ in m} if len(fulfilled) == 1 else set[int]()
        bodies = {g: pair for g in gens if (pair := self._fulfilling(g, axes, fulfilled)) is not None}
        says = bool(single) or any(body and body != before for before, body in bodies.values())
        found: dict[int, Value] = {}
        for g, (before, body) in bodies.items():
            if not body:
                found[g] = {}
            elif says and (body != before or not single):
                kept = [{tuple(x for x in m if x[0] not in single): c} for m, c in body.items()]
                found[g] = n.sum(n.gens[g].data[0], n.add(*kept))
        return found

    def _fulfilling(self, g: int, axes: tuple[str, ...], fulfilled: Poly) -> tuple[Poly, Poly] | None:
        """What a sum adds up with a condition as a factor, and what that says of it; None where the condition is of
        other axes."""
        n, gen = self.normal, self.normal.gens[g]
        if gen.kind != "sum" or n.axes(fulfilled) & set(gen.data[0]) != set(axes):
            return None
        before = n.mul({gen.data[1]: 1}, fulfilled)
        return before, n.add(*(po.scaled(n.at_zeros(m), c) for m, c in before.items()))

    def _empty(self, g: int, e: po.Number, axes: tuple[str, ...], held: po.Mono, none: bool) -> Value:
        """A power of a generator where no element fulfils `held` (`none`), or every one does."""
        n, gen, gens = self.normal, self.normal.gens[g], {h for h, _ in held}
        if gen.kind == "sum" and set(axes) <= set(gen.data[0]) and e > 0:
            return self._empty_sum(g, e, gens, none)
        if gen.kind == "reduce" and gen.data[:2] == ("prod", axes) and isinstance(gen.data[2], dict) and gens:
            return n.power_of(n.product(axes, self._without(gen.data[2], gens, none)), e)
        return self._empty_map(g, e, axes, {held: 1} if none else n.sub(po.const(1), {held: 1}))

    def _empty_map(self, g: int, e: po.Number, axes: tuple[str, ...], v: Poly) -> Value:
        """The same of exponentials, powers and roots of what sums over elements."""
        n, gen = self.normal, self.normal.gens[g]
        if gen.kind == "exp":
            return n.exp(self._nowhere({gen.data[0]: e}, axes, v))
        if gen.kind == "power":
            return n.power_of(n.to_the_power(*(self._nowhere(q, axes, v) for q in gen.data)), e)
        if gen.kind == "base" and e > 0:
            return n.power_of(self._nowhere(gen.data[0], axes, v), e)
        return po.gen(g, e)

    def _empty_sum(self, g: int, e: po.Number, gens: set[int], none: bool) -> Value:
        """A power of a sum over elements of which none fulfils all of the conditions, or each does."""
        n, (axes, m) = self.normal, self.normal.gens[g].data
        inside = {h for h, _ in m}
        if none and gens and gens <= inside:
            return {}
        if not none and inside & gens and e.denominator == 1:  # every one of them is 1
            kept = tuple(x for x in m if x[0] not in gens)
            return n.power_of(n.sum(axes, {kept: 1}), e)
        return po.gen(g, e)

    def _without(self, body: Poly, gens: set[int], none: bool) -> Poly:
        """The body of a product for elements of which none fulfils all of the conditions, or each does."""
        if none:
            return {m: c for m, c in body.items() if not gens <= {h for h, _ in m}}
        found: Value = body
        for g in gens:
            found = self.normal.cofactor(found, g, 1)
        assert isinstance(found, dict)
        return found

    def meanings(self, g: int) -> list[tuple[int, list[Constraint]]]:
        """The values an indicator can have, and what each says: 1 and 0, t = 0 also as t > 0 and t < 0."""
        gen = self.normal.gens[g]
        if gen.kind not in ("pos", "zero"):
            return [(1, []), (0, [])]
        p = gen.data[0]
        minus = po.scaled(p, -1)
        if gen.kind == "pos":
            return [(1, [(p, True)]), (0, [(minus, False)])]
        return [(1, [(p, False), (minus, False)]), (0, [(p, True)]), (0, [(minus, True)])]

    def possible(self, given: list[Constraint]) -> bool:
        n = self.normal
        spend(len(given) + len(n.facts))
        bounds = [b for p, _ in given for b in n.bounds(p)]
        facts = [*given, *n.facts, *bounds]
        return signs.solvable([*facts, *n.known([p for p, _ in facts])])

    def _by_equalities(self, p: Poly, given: list[Constraint]) -> bool:
        """Use p = 0 where both p >= 0 and p <= 0 are known, solved for a generator that occurs once."""
        held = [q for q, strict in given if not strict]
        spend(len(held) ** 2)
        for q in held:
            if not any(r == po.scaled(q, -1) for r in held):
                continue
            if any(self._factor(q, d) for d in self.divisors):
                return True  # there is no value here
            g = self._solvable(q, p)
            if g is not None:
                value = _solved(q, g)
                left = [(r, s) for r, s in given if r is not q and r != po.scaled(q, -1)]
                replaced = [(self._replaced(r, g, value), s) for r, s in left]
                return self.zero(self._replaced(p, g, value), replaced)
        return False

    def _solvable(self, q: Poly, p: Poly) -> int | None:
        """A generator that is a term of q and occurs in no other term, and that p reads."""
        met = {h for k in p for h, _ in k}
        for m in q:
            if len(m) != 1 or m[0][1] != 1 or any(g == m[0][0] for k in q if k != m for g, _ in k):
                continue
            if m[0][0] in met or self._reading(met, m[0][0]):
                return m[0][0]
        return None

    def _count(self) -> None:
        self.branches += 1
        if self.branches > BRANCHES:
            raise Exhausted(f"more than {BRANCHES} cases")

    # --- domains ---

    def holds(self, condition: Value, given: list[Constraint]) -> bool:
        """Whether a condition is 1 in every case in which the definition has a value."""
        return self.equal(condition, po.const(1), given)

    def nonzero(self, p: Poly, given: list[Constraint]) -> bool:
        value, n = as_constant(p), self.normal
        if value is not None:
            return value != 0
        if not n.decide(p) & signs.ZERO:
            return True
        _, m, rest = n.primitive(p, True)
        factors = [po.gen(g) for g, e in m if n.gens[g].sign & signs.ZERO and e > 0]
        factors += [rest] if len(rest) > 1 and n.decide(rest) & signs.ZERO else []
        return all(any(self._factor(f, d) for d in self.divisors) or self._attained(f) for f in factors)

    def _attained(self, f: Poly) -> bool:
        """Whether f is Σ_j c_j·w_j with w > 0 where it is given that c holds for some element."""
        n = self.normal
        for (g, nowhere), (axes, v) in n.quantified.items():
            somewhere = po.gen(g) if nowhere == 0 else n.negated(po.gen(g))
            if somewhere not in self.truths:
                continue
            total = n.sum(axes, v)
            if isinstance(total, dict) and any(n.same(f, po.scaled(total, k)) for k in (1, -1)):
                return True
            if self._weighs(f, axes, v):
                return True
        return False

    def _weighs(self, f: Poly, axes: tuple[str, ...], v: Poly) -> bool:
        """Whether f is a sum over the axes of a product of conditions v with positive weights."""
        n = self.normal
        ((m, _),) = f.items() if len(f) == 1 else (((), 0),)
        ((held, c),) = v.items() if len(v) == 1 else (((), 0),)
        if len(m) != 1 or c != 1 or not held:
            return False
        gen = n.gens[m[0][0]]
        if gen.kind != "sum" or set(gen.data[0]) != set(axes) or not set(held) <= set(gen.data[1]):
            return False
        return n.sign_of_mono(tuple(x for x in gen.data[1] if x not in held)) == signs.POS


def _is_missed(v: Value, op: str) -> bool:
    """Whether a value that has to be ≠ 0, > 0 or >= 0 certainly is not."""
    return v == "nan" or (v == "-oo" and op != "ne") or (v == {} and op != "le")


def _solved(q: Poly, g: int) -> Poly:
    """The value of a generator at which q, which it is a term of, is 0."""
    own = ((g, 1),)
    return {m: po.number(-x / po.Fraction(q[own])) for m, x in q.items() if m != own}
