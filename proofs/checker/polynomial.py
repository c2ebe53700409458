"""Sparse polynomials over exact rationals in numbered generators, with negative and rational exponents.

A polynomial is a dict from monomial to coefficient, a monomial a tuple of (generator, exponent) in increasing order of
generators. Work is counted in monomial products, weighted by the length of what is multiplied
(`redalg.proofs.document.work`).
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm, prod

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


def content(p: Poly) -> Number:
    """The positive rational c for which p/c has coprime integer coefficients."""
    values, below = list(p.values()), 1
    spend(len(p))
    for v in values:
        if v.denominator != 1:
            below = lcm(below, v.denominator)
            bounded(below)
    if below == 1:
        return gcd(*map(int, values))
    return number(Fraction(gcd(*(int(v * below) for v in values)), below))


def quotients(p: Poly, c: Number) -> Poly:
    """p/c, for c that is not 0."""
    if c in (1, -1):
        return p if c == 1 else {m: -x for m, x in p.items()}
    return {m: number(Fraction(x) / c) for m, x in p.items()}


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


def _long(*polys: Poly) -> None:
    """Count products of numbers that may be longer than a word."""
    for p in polys:
        if all(type(v) is int and -WORD < v < WORD for v in p.values()):
            continue
        most = max(map(bits, p.values()))
        if most > BITS:
            raise Exhausted(f"a number of more than {BITS} bits")
        if most > 64:
            spend(prod(map(len, polys)) * (most * most >> 17 or most >> 6))


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
        if len(a) == 1 and a[0][0] not in self.idempotent:
            return self._by_power(b, *a[0])
        if len(b) == 1:
            return self._by_power(a, *b[0])
        if (a[-1][0] < b[0][0] or b[-1][0] < a[0][0]) and self.idempotent.isdisjoint(dict(b)):
            return a + b if a[0][0] < b[0][0] else b + a
        exponents = dict(a)
        for g, e in b:
            s = self._bounded_exponent(g, exponents[g] + e) if g in exponents else self._bounded_exponent(g, e)
            if s:
                exponents[g] = s
            else:
                del exponents[g]
        return tuple(sorted(exponents.items()))

    def _by_power(self, m: Mono, g: int, e: Number) -> Mono:
        """m·g^e."""
        for at, (h, f) in enumerate(m):
            if h == g:
                s = self._bounded_exponent(g, f + e)
                return (*m[:at], (g, s), *m[at + 1 :]) if s else m[:at] + m[at + 1 :]
            if h > g:
                return (*m[:at], (g, self._bounded_exponent(g, e)), *m[at:])
        return (*m, (g, self._bounded_exponent(g, e)))

    def _bounded_exponent(self, g: int, e: Number) -> Number:
        if g in self.idempotent:
            return 1
        return e if type(e) is int and -SHORT < e < SHORT else exponent(e)

    def mul(self, a: Poly, b: Poly) -> Poly:
        if len(a) > len(b):
            a, b = b, a
        if not a:
            return {}
        if len(b) == 1:
            ((m, c),), ((n, d),) = a.items(), b.items()
            spend(1 + (len(m) + len(n)) // 4)
            if type(c) is int and type(d) is int and -WORD < c < WORD and -WORD < d < WORD:
                return {self.times(m, n): c * d}
        else:
            spend(len(a) * len(b) * (1 + (max(map(len, a)) + max(map(len, b))) // 4))
        _long(a, b)
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
