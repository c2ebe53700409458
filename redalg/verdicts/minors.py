"""Minors that are certainly not zero: rank-revealing pivots, exact determinants, rational enclosures of the others.

Every number is a `Fraction`, a `Residue` or a `Ball`. Pivots are only a choice; what proves a minor non-zero is its
image modulo a prime, its exact value, or an enclosure that excludes zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.algebra.work import spend
from redalg.verdicts.balls import Ball, enclose, midpoint
from redalg.verdicts.numbers import is_finite, weight
from redalg.verdicts.residues import P, inverse, to_residue

Matrix = Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Pivots:
    """Rows and columns of a submatrix of full rank in the order chosen; `distinct` bounds the rank one could see."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    distinct: int

    @property
    def rank(self) -> int:
        return len(self.rows)

    @property
    def saturated(self) -> bool:
        """The rank is (nearly) as large as the sample allows: no finite rank is in sight."""
        return self.rank >= self.distinct - 2 - self.distinct // 10


def finite_part(matrix: np.ndarray) -> tuple[list[int], list[int]]:
    """Rows and columns of a submatrix without undecided or infinite entries, the worst offenders dropped first."""
    bad = np.array([[not is_finite(v) for v in row] for row in matrix], dtype=bool).reshape(matrix.shape)
    rows, columns = list(range(matrix.shape[0])), list(range(matrix.shape[1]))
    while rows and columns and bad[np.ix_(rows, columns)].any():
        part = bad[np.ix_(rows, columns)]
        by_row, by_column = part.mean(axis=1), part.mean(axis=0)
        if by_row.max() >= by_column.max():
            del rows[int(by_row.argmax())]
        else:
            del columns[int(by_column.argmax())]
    return rows, columns


def pivots(matrix: np.ndarray, limit: int, prec: int) -> Pivots:
    """Gaussian elimination with pivoting over what is finite in the matrix."""
    rows, columns = finite_part(matrix)
    if not rows or not columns:
        return Pivots((), (), 0)
    part = matrix[np.ix_(rows, columns)]
    enclosed = any(isinstance(v, Ball) for v in part.flat)
    images, zero = _fixed_point(part, prec) if enclosed else (_images(part), 0)
    distinct = min(_distinct(images, zero), _distinct(images.T, zero))
    p, q = _eliminate(images, limit, zero, modular=not enclosed)
    return Pivots(tuple(rows[i] for i in p), tuple(columns[i] for i in q), distinct)


def _images(part: np.ndarray) -> np.ndarray:
    images = np.empty(part.shape, dtype=object)
    for at, value in np.ndenumerate(part):
        images[at] = to_residue(value)
    return images


def _fixed_point(part: np.ndarray, prec: int) -> tuple[np.ndarray, int]:
    """Midpoints as integers, every row scaled to entries below 2^prec; and the size below which they are noise."""
    images = np.empty(part.shape, dtype=object)
    for i, row in enumerate(part):
        middles = [midpoint(v) for v in row]
        largest = max(map(abs, middles)) or Fraction(1)
        images[i] = [
            (m.numerator << prec) * largest.denominator // (m.denominator * largest.numerator) for m in middles
        ]
    return images, 1 << 120


def _distinct(images: np.ndarray, zero: int) -> int:
    """How many rows differ and are not zero."""
    digits = zero.bit_length() if zero else 0
    return len({tuple(v >> digits for v in row) for row in images if any(abs(v) > zero for v in row)})


def _eliminate(images: np.ndarray, limit: int, zero: int, modular: bool) -> tuple[list[int], list[int]]:
    work = images.copy()
    rows, columns = np.arange(work.shape[0]), np.arange(work.shape[1])
    count = 0
    while count < min(limit, *work.shape):
        block = np.abs(work[count:, count:])
        flat = int((block != 0).argmax() if modular else block.argmax())
        i, j = (int(v) + count for v in np.unravel_index(flat, block.shape))
        if abs(work[i, j]) <= zero:
            break
        work[[count, i]], rows[[count, i]] = work[[i, count]], rows[[i, count]]
        work[:, [count, j]], columns[[count, j]] = work[:, [j, count]], columns[[j, count]]
        column, row = work[count + 1 :, count : count + 1], work[count : count + 1, count + 1 :]
        if modular:
            step = column * inverse(work[count, count]) % P
            work[count + 1 :, count + 1 :] = (work[count + 1 :, count + 1 :] - step * row) % P
        else:
            work[count + 1 :, count + 1 :] -= column * row // work[count, count]
        count += 1
    return [int(v) for v in rows[:count]], [int(v) for v in columns[:count]]


def determinant(matrix: Matrix) -> Fraction:
    """The exact determinant of a rational matrix (Bareiss).

    >>> determinant([[Fraction(1, 2), Fraction(1)], [Fraction(3), Fraction(4)]])
    Fraction(-1, 1)
    """
    scale, rows = 1, []
    for row in matrix:
        common = math.lcm(*(v.denominator for v in row))
        scale *= common
        rows.append([v.numerator * (common // v.denominator) for v in row])
    return Fraction(_integer_determinant(rows), scale)


def _integer_determinant(matrix: list[list[int]]) -> int:
    rows, sign, previous = [list(r) for r in matrix], 1, 1
    for k in range(len(rows) - 1):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            rows[k], rows[pivot], sign = rows[pivot], rows[k], -sign
        for i in range(k + 1, len(rows)):
            rows[i] = [0] * (k + 1) + [
                (rows[i][j] * rows[k][k] - rows[i][k] * rows[k][j]) // previous for j in range(k + 1, len(rows))
            ]
        previous = rows[k][k]
        spend((len(rows) - k) ** 2 * weight(previous.bit_length()))
    return sign * rows[-1][-1]


@dataclass(frozen=True)
class Minor:
    """Rows and columns of a minor and an interval around its determinant that excludes zero."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    low: Fraction
    high: Fraction


def enclose_minor(matrix: Matrix, prec: int) -> Minor | None:
    """The largest leading minor (after row exchanges) that Gaussian elimination on enclosures proves non-zero."""
    rows = [[v if isinstance(v, Ball) else Ball(enclose(v, prec), prec, ()) for v in row] for row in matrix]
    names, product, done = list(range(len(rows))), Ball(enclose(Fraction(1), prec), prec, ()), []
    while rows:
        best = max(range(len(rows)), key=lambda i: abs(midpoint(rows[i][0])))
        if rows[best][0].contains_zero():
            break
        rows[0], rows[best] = rows[best], rows[0]
        names[0], names[best] = names[best], names[0]
        (first, *head), *rest = rows
        done.append(names.pop(0))
        product, scale = product * first, first**-1
        rows = [[v - row[0] * scale * h for v, h in zip(row[1:], head, strict=True)] for row in rest]
    low, high = product.bounds()
    return Minor(tuple(done), tuple(range(len(done))), low, high) if done else None


def round_outward(lo: Fraction, hi: Fraction, digits: int = 12) -> tuple[Fraction, Fraction]:
    """A slightly wider interval with short ends, still on the same side of zero.

    >>> round_outward(Fraction(1, 3), Fraction(1, 3), 3)
    (Fraction(341, 1024), Fraction(683, 2048))
    """
    bits = math.ceil(digits * math.log2(10))
    size = min(abs(lo), abs(hi))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    unit = Fraction(2) ** (exponent - bits)
    return math.floor(lo / unit) * unit, math.ceil(hi / unit) * unit
