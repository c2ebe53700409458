"""The generators of the normal form: what a polynomial's indeterminates stand for, each kept once.

==========  ===========================================  ==========================================================
kind        data                                         stands for
==========  ===========================================  ==========================================================
leaf        (operation, attributes)                      a tensor, a state, an index or a size
exp         monomial m                                   e^m; the exponent is the coefficient
base        polynomial p                                 p, under exponents that are no natural numbers
log         polynomial p                                 log p
power       polynomials p and q                          p^q, where p may be negative
fun         name, polynomial                             another map of reals: abs relu tanh …
max         polynomials                                  the largest of them
sum         axes, monomial                               Σ over the axes
reduce      kind, axes, value, extra                     any other reduction
pos zero    polynomial p                                 1 where p > 0 (p = 0), else 0
truth       what                                         a Boolean as 0 or 1
==========  ===========================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from redalg.proofs.checker import inequalities as signs
from redalg.proofs.checker import polynomial as po
from redalg.proofs.checker.polynomial import UNIT, Mono, Number, Poly, Unknown
from redalg.proofs.document.work import spend

INDICATORS = ("pos", "zero", "truth")
SPLIT = ("max", "abs", "relu", "sign")  # resolved by cases


@dataclass(frozen=True)
class Case:
    """A value that depends on an indicator where one side is infinite or undefined."""

    gen: int
    yes: Value
    no: Value


Value: TypeAlias = "Poly | Case | str"  # str: "oo", "-oo", "nan", and "?" where the value is not known


@dataclass
class Gen:
    kind: str
    data: tuple[Any, ...]
    axes: frozenset[str]
    sign: int


def frozen(v: Value) -> Any:
    """A value as a key: equal exactly when the values are written in the same way."""
    if isinstance(v, Case):
        return v.gen, frozen(v.yes), frozen(v.no)
    return v if isinstance(v, str) else frozenset(v.items())


class Generators(po.Arithmetic):
    """The table of generators, and what is known of each: its free axes and its sign."""

    def __init__(self) -> None:
        super().__init__()
        self.gens: list[Gen] = []
        self.numbers: dict[Any, int] = {}

    def new(self, kind: str, key: Any, data: tuple[Any, ...], axes: Iterable[str], sign: int) -> int:
        found = self.numbers.get((kind, key))
        if found is None:
            found = self.numbers[kind, key] = len(self.gens)
            self.gens.append(Gen(kind, data, frozenset(axes), sign))
            if kind in INDICATORS:
                self.idempotent.add(found)
            spend(2)
        return found

    # --- what a value depends on, and its sign ---

    def axes(self, v: Value) -> frozenset[str]:
        if isinstance(v, str):
            return frozenset()
        if isinstance(v, Case):
            spend()
            return self.gens[v.gen].axes | self.axes(v.yes) | self.axes(v.no)
        spend(1 + len(v))
        return frozenset().union(*(self.gens[g].axes for m in v for g, _ in m))

    def mono_axes(self, m: Mono) -> frozenset[str]:
        return frozenset().union(*(self.gens[g].axes for g, _ in m))

    def sign_of_mono(self, m: Mono) -> int:
        sign = signs.POS
        spend(1 + len(m) // 2)
        for g, e in m:
            s = self.gens[g].sign
            if e.denominator != 1:
                s = signs.POS if s == signs.POS else signs.NONNEG
            elif e % 2 == 0:
                s = (s & signs.ZERO) | (signs.POS if s & (signs.POS | signs.NEG) else 0)
            if e < 0:
                s &= ~signs.ZERO
            sign = signs.product(sign, s)
        return sign

    def sign(self, p: Poly) -> int:
        """The signs a polynomial can have, term by term."""
        if not p:
            return signs.ZERO
        return signs.total([s if c > 0 else signs.flipped(s) for m, c in p.items() for s in [self.sign_of_mono(m)]])

    def value_sign(self, v: Value) -> int:
        if isinstance(v, str):
            return {"oo": signs.POS, "-oo": signs.NEG}.get(v, 0)
        if isinstance(v, Case):
            return self.value_sign(v.yes) | self.value_sign(v.no)
        return self.sign(v)

    def leading_negative(self, p: Poly) -> bool:
        return bool(p[max(m for m in p if m != UNIT or len(p) == 1)] < 0)

    # --- zero ---

    def expanded(self, p: Poly) -> Poly:
        """A polynomial that is zero exactly when p is, without bases under exponents outside [0, 1)."""
        while True:
            open_ = [g for m in p for g, e in m if self.gens[g].kind == "base" and not 0 <= e < 1]
            if not open_:
                return self._trigonometric(p)
            p = self._without(p, max(open_))

    def _without(self, p: Poly, base: int) -> Poly:
        body: Poly = self.gens[base].data[0]
        spend(len(p))
        exponents = {m: dict(m).get(base, 0) for m in p}
        lowest = min(0, *(e.__floor__() for e in exponents.values()))
        parts: list[Poly] = []
        for m, c in p.items():
            e = exponents[m] - lowest
            rest = tuple((g, x) for g, x in m if g != base)
            if e.denominator != 1:
                rest = tuple(sorted((*rest, (base, e - e.__floor__()))))
            parts.append(self.mul({rest: c}, self.power(body, e.__floor__())))
        return self.add(*parts)

    def _trigonometric(self, p: Poly) -> Poly:
        """cos² = 1 - sin²."""
        spend(1 + len(p))
        for m, c in p.items():
            for g, e in m:
                if self.gens[g].kind == "fun" and self.gens[g].data[0] == "cos" and e.denominator == 1 and e >= 2:
                    sine = self.numbers.get(("fun", ("sin", frozen(self.gens[g].data[1]))))
                    if sine is None:
                        continue
                    rest = self.times(m, ((g, -2),))
                    q = self.add(p, {m: -c}, {rest: c}, {self.times(rest, ((sine, 2),)): -c})
                    return self._trigonometric(q)
        return p

    def is_zero(self, p: Poly) -> bool:
        return not p or not self.expanded(p)

    def same(self, p: Poly, q: Poly) -> bool:
        if p == q:
            return True
        return (self._has_base(p) or self._has_base(q)) and self.is_zero(self.sub(p, q))

    def _has_base(self, p: Poly) -> bool:
        return any(self.gens[g].kind == "base" for m in p for g, _ in m)

    def keyed(self, kind: str, p: Poly, beside: Any, data: tuple[Any, ...], axes: Iterable[str], sign: int) -> int:
        """The generator over a polynomial; one over an equal polynomial is the same."""
        spend(1 + len(p))
        key = frozen(p) if beside is None else (beside, frozen(p))
        if (kind, key) not in self.numbers and self._has_base(p):
            rest = [x for x in data if not isinstance(x, dict)]
            spend(len(self.gens))
            for i, g in enumerate(self.gens):
                if g.kind != kind or [x for x in g.data if not isinstance(x, dict)] != rest:
                    continue
                body = next((x for x in g.data if isinstance(x, dict)), None)
                if body is not None and self.same(body, p):
                    self.numbers[kind, key] = i
                    return i
        return self.new(kind, key, data, axes, sign)

    # --- indicators ---

    def case(self, gen: int, yes: Value, no: Value) -> Value:
        spend()
        if yes == no:
            return yes
        if isinstance(yes, dict) and isinstance(no, dict):
            return self.add(no, self.mul(po.gen(gen), self.sub(yes, no)))
        return Case(gen, yes, no)

    def cofactor(self, v: Value, gen: int, value: int) -> Value:
        """The value where the indicator is 1 or 0."""
        if isinstance(v, str):
            return v
        spend(1 if isinstance(v, Case) else 1 + len(v))
        if isinstance(v, Case):
            if v.gen == gen:
                return self.cofactor(v.yes if value else v.no, gen, value)
            return self.case(v.gen, self.cofactor(v.yes, gen, value), self.cofactor(v.no, gen, value))
        found: Poly = {}
        for m, c in v.items():
            if any(g == gen for g, _ in m):
                if not value:
                    continue
                m = tuple(x for x in m if x[0] != gen)
            s = found.get(m, 0) + c
            if s:
                found[m] = s
            else:
                found.pop(m, None)
        return found

    def first_indicator(self, v: Value) -> int | None:
        """The indicator to split on first, so that trees are alike."""
        if isinstance(v, Case):
            return v.gen
        spend(1 + len(v) // 2)
        return min((g for m in v for g, _ in m if g in self.idempotent), default=None) if isinstance(v, dict) else None

    def rational_root(self, c: Number, e: Number) -> Number | None:
        """c**e where it is rational."""
        root = Fraction(c)
        if root < 0:
            return None
        found = Fraction(1)
        for value, sign in ((root.numerator, 1), (root.denominator, -1)):
            exact = round(value ** (1 / e.denominator)) if value < 10**15 else -1
            if exact > 1 and e.denominator > 50 or exact**e.denominator != value:
                return None
            if exact > 1:
                po.bounded(exact, times=abs(e.numerator))
            found *= Fraction(exact) ** (sign * e.numerator) if exact else 0
        return po.number(found)


__all__ = ["Case", "Gen", "Generators", "Unknown", "Value", "frozen"]
