"""Sparse polynomials over exact rationals in numbered generators, with negative and rational exponents.

A polynomial is a dict from monomial to coefficient, a monomial a tuple of (generator, exponent) in increasing order of
generators. Work is counted in monomial products, weighted by the length of what is multiplied
(`redalg.proofs.document.work`).
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm

from redalg.proofs.document.work import Exhausted, arithmetic, bits, spend

Number = int | Fraction
Mono = tuple[tuple[int, Number], ...]
Poly = dict[Mono, Number]
UNIT: Mono = ()
BITS = 8_000  # of a numerator or denominator
EXPONENT = 1 << 200  # of a numerator or denominator in an exponent
WORD = 1 << 64  # what is shorter is multiplied in a step
SHORT = 1 << 30  # below it no two exponents have one hash; with longer ones tables may take the square of their length
LONG_EXPONENT = 200  # steps


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


def bounded(*values: Number, times: int = 1) -> None:
    """Numbers may grow only so far, and large ones are counted as work."""
    most = max(map(bits, values), default=0) * times
    if most > BITS:
        raise Exhausted(f"a number of more than {BITS} bits")
    arithmetic(most)


def exponent(value: Number) -> Number:
    """An exponent; they may grow only so far."""
    if not -EXPONENT < value.numerator < EXPONENT or value.denominator > EXPONENT:
        raise Exhausted(f"an exponent of more than {EXPONENT.bit_length() - 1} bits")
    if not -SHORT < value.numerator < SHORT or value.denominator > SHORT:
        spend(LONG_EXPONENT)
    return number(value)


def scaled(p: Poly, factor: Number) -> Poly:
    spend(1 + len(p))
    if factor not in (1, -1):
        bounded(factor, *p.values())
    return {m: c * factor for m, c in p.items()} if factor else {}


def as_constant(p: Poly) -> Number | None:
    """The value of a constant polynomial."""
    if not p:
        return 0
    return p[UNIT] if len(p) == 1 and UNIT in p else None


def content(p: Poly) -> Fraction:
    """The positive rational c for which p/c has coprime integer coefficients."""
    values, below = list(p.values()), 1
    spend(len(p))
    for v in values:
        if v.denominator != 1:
            below = lcm(below, v.denominator)
            bounded(below)
    return Fraction(gcd(*(int(v * below) for v in values)), below)


def common(p: Poly) -> Mono:
    """The monomial every term is divisible by: the least exponent of each generator (0 where it is missing)."""
    least: dict[int, Number] = {}
    terms = [dict(m) for m in p]
    every = {g for t in terms for g in t}
    spend(1 + len(every) * len(terms) // 4)
    for g in every:
        e = min(t.get(g, 0) for t in terms)
        if e:
            least[g] = e
    return tuple(sorted(least.items()))


def inverse(m: Mono) -> Mono:
    return tuple((g, -e) for g, e in m)


def _long(p: Poly, pairs: int) -> None:
    """Count products with numbers that may be longer than a word."""
    most = max(map(bits, p.values()))
    if most > BITS:
        raise Exhausted(f"a number of more than {BITS} bits")
    if most > 64:
        spend(pairs * (most * most >> 17 or most >> 6))


class Arithmetic:
    """Sums and products of polynomials; indicators are idempotent."""

    def __init__(self) -> None:
        self.idempotent: set[int] = set()

    def add(self, *polys: Poly) -> Poly:
        total: Poly = dict(polys[0]) if polys else {}
        spend(1 + len(total))
        for p in polys[1:]:
            spend(len(p))
            for m, c in p.items():
                s = total.get(m, 0) + c
                if type(s) is not int:
                    bounded(s)
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
        if (a[-1][0] < b[0][0] or b[-1][0] < a[0][0]) and self.idempotent.isdisjoint(dict(b)):
            return a + b if a[0][0] < b[0][0] else b + a
        exponents = dict(a)
        for g, e in b:
            s = exponents.get(g, 0) + e
            if g in self.idempotent:
                s = 1
            if s:
                exponents[g] = s if type(s) is int and -SHORT < s < SHORT else exponent(s)
            else:
                del exponents[g]
        return tuple(sorted(exponents.items()))

    def mul(self, a: Poly, b: Poly) -> Poly:
        if len(a) > len(b):
            a, b = b, a
        if not a:
            return {}
        pairs = len(a) * len(b)
        spend(pairs * (1 + (max(map(len, a)) + max(map(len, b))) // 4))
        for p in (a, b):
            for v in p.values():
                if type(v) is not int or not -WORD < v < WORD:
                    _long(p, pairs)
                    break
        if len(a) == 1 and UNIT in a:
            c = a[UNIT]
            return {n: c * d for n, d in b.items()}
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
                bounded(c, times=n)
            return {tuple((g, 1 if g in self.idempotent else exponent(e * n)) for g, e in m): c**n}
        if n > 64:
            raise Exhausted("a power of a sum of more than 64")
        half = self.power(p, n // 2)
        square = self.mul(half, half)
        return self.mul(square, p) if n % 2 else square
