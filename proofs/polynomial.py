"""Sparse polynomials over exact rationals in numbered generators, with negative and rational exponents.

A polynomial is a dict from monomial to coefficient, a monomial a tuple of (generator, exponent) in increasing order of
generators. Work is counted in monomial products; past the budget everything raises `Exhausted`.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

Number = int | Fraction
Mono = tuple[tuple[int, Number], ...]
Poly = dict[Mono, Number]
UNIT: Mono = ()
BITS = 20_000  # of a numerator or denominator


class Exhausted(Exception):
    """The budget of work is used up; the message says of what."""


class Unknown(Exception):
    """The normal form has no rule for what was met; the message says for what."""


def number(value: Number) -> Number:
    return int(value) if value.denominator == 1 else value


def const(value: Number) -> Poly:
    return {UNIT: number(value)} if value else {}


def magnitude(value: Number) -> Number:
    return -value if value < 0 else value


def gen(index: int, exponent: Number = 1) -> Poly:
    return {((index, exponent),): 1}


def scaled(p: Poly, factor: Number) -> Poly:
    return {m: c * factor for m, c in p.items()} if factor else {}


def as_constant(p: Poly) -> Number | None:
    """The value of a constant polynomial."""
    if not p:
        return 0
    return p[UNIT] if len(p) == 1 and UNIT in p else None


def content(p: Poly) -> Fraction:
    """The positive rational c for which p/c has coprime integer coefficients."""
    values = list(p.values())
    below = lcm(*(v.denominator for v in values))
    return Fraction(gcd(*(int(v * below) for v in values)), below)


def common(p: Poly) -> Mono:
    """The monomial every term is divisible by: the least exponent of each generator (0 where it is missing)."""
    least: dict[int, Number] = {}
    terms = [dict(m) for m in p]
    for g in {g for t in terms for g in t}:
        e = min(t.get(g, 0) for t in terms)
        if e:
            least[g] = e
    return tuple(sorted(least.items()))


def inverse(m: Mono) -> Mono:
    return tuple((g, -e) for g, e in m)


class Arithmetic:
    """Sums and products within a budget; indicators are idempotent."""

    def __init__(self, budget: int) -> None:
        self.work, self.budget = 0, budget
        self.idempotent: set[int] = set()

    def spend(self, amount: int) -> None:
        self.work += amount
        if self.work > self.budget:
            raise Exhausted(f"more than {self.budget} steps")

    def bounded(self, *values: Number, times: int = 1) -> None:
        """Numbers may grow only so far."""
        if any(max(v.numerator.bit_length(), v.denominator.bit_length()) * times > BITS for v in values):
            raise Exhausted(f"a number of more than {BITS} bits")

    def add(self, *polys: Poly) -> Poly:
        total: Poly = dict(polys[0]) if polys else {}
        for p in polys[1:]:
            self.spend(len(p))
            for m, c in p.items():
                s = total.get(m, 0) + c
                if s:
                    total[m] = s
                else:
                    del total[m]
        return total

    def sub(self, a: Poly, b: Poly) -> Poly:
        return self.add(a, scaled(b, -1))

    def times(self, a: Mono, b: Mono) -> Mono:
        if not a or not b:
            return a or b
        exponents = dict(a)
        for g, e in b:
            s = exponents.get(g, 0) + e
            if g in self.idempotent:
                s = 1
            if s:
                exponents[g] = number(s)
            else:
                del exponents[g]
        return tuple(sorted(exponents.items()))

    def mul(self, a: Poly, b: Poly) -> Poly:
        if len(a) > len(b):
            a, b = b, a
        self.spend(len(a) * len(b))
        for p in (a, b):
            self.bounded(*p.values())
        total: Poly = {}
        for m, c in a.items():
            for n, d in b.items():
                k = self.times(m, n)
                s = total.get(k, 0) + c * d
                if s:
                    total[k] = s
                else:
                    del total[k]
        return total

    def power(self, p: Poly, n: int) -> Poly:
        """p to the power n >= 0."""
        if n == 0:
            return const(1)
        if len(p) == 1:
            ((m, c),) = p.items()
            if c not in (1, -1):
                self.bounded(c, times=n)
            return {tuple((g, 1 if g in self.idempotent else number(e * n)) for g, e in m): c**n}
        if n > 64:
            raise Exhausted(f"the power {n} of a sum")
        half = self.power(p, n // 2)
        square = self.mul(half, half)
        return self.mul(square, p) if n % 2 else square
