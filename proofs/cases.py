"""Equality of normal forms: as polynomials, and by cases where maxima and conditions are met.

A difference that is not zero as it stands is split: each indicator is 1 or 0, each maximum is one of its arguments.
Cases that no real values satisfy (Fourier-Motzkin) are left out; in the others the difference must vanish.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redalg.proofs import inequalities as signs
from redalg.proofs import polynomial as po
from redalg.proofs.generators import INDICATORS, SPLIT, Case, Value
from redalg.proofs.inequalities import Constraint
from redalg.proofs.normalform import Normal
from redalg.proofs.polynomial import Poly, as_constant
from redalg.proofs.work import Exhausted, spend

BRANCHES = 4000


class Cases:
    """Proves that values are equal under constraints on their generators."""

    def __init__(self, normal: Normal, undefined: list[Poly] | None = None) -> None:
        self.normal, self.branches = normal, 0
        self.truths: list[Value] = []  # conditions under which a term is selected
        self.divisors = undefined or []  # not zero wherever the definition has a value
        self.nowhere: list[tuple[tuple[str, ...], Poly]] = []  # conditions that hold for no element along the axes

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
                    if not self.equal(n.cofactor(left, g, value), n.cofactor(right, g, value), held):
                        return False
            return True
        if isinstance(left, dict) and isinstance(right, dict):
            return self.zero(n.sub(left, right), given)
        return left == right and left != "?"  # "nan" is certainly no value; what is not known is "?"

    @contextmanager
    def branch(self, g: int, value: int) -> Iterator[bool]:
        """The case in which an indicator has a value; yields whether the definition divides by zero there.

        Inside it, a condition that no element fulfils empties the sums over it, and divisors are those of the case.
        """
        n, gen = self.normal, self.normal.gens[g]
        divisors, nowhere = self.divisors, self.nowhere
        if (g, value) in n.quantified:
            self.nowhere = [*nowhere, n.quantified[g, value]]
        void = gen.kind == "zero" and value == 1 and any(self._factor(gen.data[0], d) for d in divisors)
        self.divisors = [self._in_case(d, g, value) for d in divisors]
        try:
            yield void or any(not n.expanded(d) for d in self.divisors)
        finally:
            self.divisors, self.nowhere = divisors, nowhere

    def _in_case(self, p: Poly, g: int, value: int) -> Poly:
        """A polynomial where the indicator has the value."""
        side = self.normal.cofactor(p, g, value)
        assert isinstance(side, dict)
        for axes, v in self.nowhere:
            side = self._nowhere(side, axes, v)
        return side

    def _factor(self, p: Poly, divisor: Poly) -> bool:
        """Whether the divisor is p up to a factor that is no sum, or vanishes with a factor of p."""
        n = self.normal
        _, _, mine = n.primitive(p, True)
        _, m, theirs = n.primitive(divisor, True)
        if len(mine) > 1:
            return len(theirs) > 1 and (n.same(mine, theirs) or n.same(mine, po.scaled(theirs, -1)))
        gens = {g for k in p for g, _ in k}
        return len(gens) == 1 and gens <= {g for g, e in m if e > 0}

    def zero(self, p: Poly, given: list[Constraint]) -> bool:
        self._count()
        n = self.normal
        p = n.expanded(p)
        if not p:
            return True
        if not self.possible(given):
            return True
        gens = sorted({g for m in p for g, _ in m})
        for g in gens:
            inner = self._nested(g)
            if inner is not None:
                return self._split(p, inner, given)
        for g in gens:
            if n.gens[g].kind in INDICATORS:
                return self._indicator(p, g, given)
        return self._by_equalities(p, given)

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
        if held is None:
            return p
        gens = {g for g, _ in held}
        total: Poly = {}
        for m, c in p.items():
            term: Poly = {(): c}
            for g, e in m:
                gen, factor = n.gens[g], po.gen(g, e)
                inside = {h for h, _ in gen.data[1]} if gen.kind == "sum" and set(gen.data[0]) == set(axes) else set()
                if inside & gens and e.denominator == 1 and e > 0 and len(v) != 1:  # every one of them is 1
                    kept = tuple(x for x in gen.data[1] if x[0] not in gens)
                    found = n.power_of(n.sum(gen.data[0], {kept: 1}), e)
                    factor = found if isinstance(found, dict) else factor
                elif gens and gens <= inside and len(v) == 1 and e > 0:
                    factor = {}
                term = n.mul(term, factor)
            total = n.add(total, term)
        return total

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
            for m, c in q.items():
                if len(m) != 1 or m[0][1] != 1 or any(g == m[0][0] for k in q if k != m for g, _ in k):
                    continue
                g = m[0][0]
                met = {h for k in p for h, _ in k}
                if g not in met and not self._reading(met, g):
                    continue
                rest = {k: po.number(-x / po.Fraction(c)) for k, x in q.items() if k != m}
                left = [(r, s) for r, s in given if r is not q and r != po.scaled(q, -1)]
                replaced = [(self._replaced(r, g, rest), s) for r, s in left]
                return self.zero(self._replaced(p, g, rest), replaced)
        return False

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
            ((m, _),) = f.items() if len(f) == 1 else (((), 0),)
            gen = n.gens[m[0][0]] if len(m) == 1 else None
            ((held, c),) = v.items() if len(v) == 1 else (((), 0),)
            if gen is not None and gen.kind == "sum" and set(gen.data[0]) == set(axes) and c == 1:
                rest = tuple(x for x in gen.data[1] if x not in held)
                if held and set(held) <= set(gen.data[1]) and n.sign_of_mono(rest) == signs.POS:
                    return True
        return False
