"""Determinants that are certainly not 0: of enclosures by elimination, of rationals modulo a prime."""

from __future__ import annotations

from redalg.proofs.document.work import spend
from redalg.proofs.numbers.dyadic import magnitude
from redalg.proofs.numbers.enclosure import Interval, Reals, Unbounded
from redalg.proofs.numbers.value_maps import NEG_INF, Value
from redalg.proofs.numbers.values import Numbers

LONGEST = 60_000  # bits of a rational that is still written out
PRIMES = (2**521 - 1, 2**607 - 1)
Matrix = list[list[Value]]


def regular(matrix: Matrix, bits: int) -> bool:
    """Whether the columns are certainly independent, whichever numbers the enclosures stand for."""
    numbers = Numbers(bits, LONGEST)
    if len(matrix) < len(matrix[0]):
        return False
    spend(len(matrix) ** 3 * (2 + (bits * bits >> 20)))
    rows = [[v if isinstance(v, Interval) else numbers.reals.of(v) for v in row] for row in matrix]
    try:
        while rows and rows[0]:
            best = max(range(len(rows)), key=lambda i: _rank(rows[i][0]))
            pivot, *head = rows.pop(best)
            scale = numbers.reals.inverse(pivot)
            rows = [_eliminated(numbers.reals, row, scale, head) for row in rows]
    except Unbounded:
        return False
    return True


def _rank(x: Interval) -> float:
    """About the magnitude of a number that is certainly not 0."""
    return NEG_INF if not x.sign() else max(magnitude(v) for v in (x.low, x.high) if v[0])


def _eliminated(reals: Reals, row: list[Interval], scale: Interval, head: list[Interval]) -> list[Interval]:
    factor = reals.negated(reals.times(row[0], scale))
    return [reals.plus(v, reals.times(factor, h)) for v, h in zip(row[1:], head, strict=True)]


def regular_rational(matrix: Matrix) -> bool:
    """Whether the determinant is not 0 modulo one of the primes, and so not 0; False proves nothing."""
    return any(_regular_modulo(matrix, prime) for prime in PRIMES)


def _regular_modulo(matrix: Matrix, prime: int) -> bool:
    if any(v.denominator % prime == 0 for row in matrix for v in row):
        return False
    spend(len(matrix) ** 2 * 20)
    rows = [[v.numerator * pow(v.denominator, -1, prime) % prime for v in row] for row in matrix]
    while rows:
        pivot = next((row for row in rows if row[0]), None)
        if pivot is None:
            return False
        rows.remove(pivot)
        inverse = pow(pivot[0], -1, prime)
        rows = [[(v - row[0] * inverse * h) % prime for v, h in zip(row, pivot, strict=True)][1:] for row in rows]
    return True
