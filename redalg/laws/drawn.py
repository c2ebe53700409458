"""The data on which forms are run with infinities: one infinity or NaN at a place, among numbers, zeros, infinities;
and finite elements whose stage values vanish.

They depend on the shapes and domains of the tensors and on which of them are read together, on no name: specs that are
alike in that share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from redalg.graph.intervals import admits, is_interval, moved_array

INFINITE = (np.inf, -np.inf)
PATTERNS = (-1, -1, -1, -1, -2, 1, 0)  # of bits of a place: which of some numbers beside an infinity are negative
Beside = tuple[
    int, int, int
]  # which numbers, a sign of all of them, and every how many of them is 0 (0: none, or `OTHERS`)
NUMBERS: tuple[Beside, ...] = tuple((which, sign, 0) for which in range(len(PATTERNS)) for sign in (1, -1))
OTHERS = -1  # every element of the other tensors is 0
ZEROS = (1, 2, OTHERS)
SIMPLE, THIRD = -2, -3  # elements are small multiples of 1/4, so that sums of products are exact; every third one is 0
ONES = -6  # every element of the other tensors is 1, whose powers are 1 whatever the exponent is
ROWS_OF = {-7: 0, -8: 1}  # every element at some places of the stream is that: 0 and log 1 under an infinite factor
PAIRED = (-4, -5)  # such multiples, of which some sums and differences of two tensors are 0; which of these is larger
BESIDE = (
    *NUMBERS,
    *((which, sign, zeros) for which in (0, -1) for zeros in ZEROS for sign in (1, -1)),
    *((0, sign, pairs) for pairs in PAIRED for sign in (1, -1)),
    (0, 1, ONES),
    *((-rows, sign, place) for place, rows in ROWS_OF.items() for sign in (1, -1)),
)  # oo·0 is NaN wherever it stands
SINGLE = 6  # of one sign, so that sums leave the domains of functions
DYADIC: tuple[Beside, ...] = tuple(
    (which, sign, zeros) for which, zeros in ((0, SIMPLE), (5, THIRD), (SINGLE, SIMPLE)) for sign in (1, -1)
)
ALL = (*BESIDE, *DYADIC)
GOLDEN = 1.618033988749895  # its multiples lie evenly between whole numbers
KEPT = 64  # data of so many structures
_Place = tuple[tuple[Any, ...], Any]  # an index of a tensor, and what lies there
_Case = tuple[Beside, dict[int, _Place]]  # what is finite, and number of a tensor -> (place, value)


class Tensor(NamedTuple):
    """What the data of a tensor depend on; `along`: which of its dimensions is streamed over; `read`: dimensions whose
    positions conditions may read."""

    shape: tuple[int, ...]
    domain: frozenset[str]
    along: int | None
    read: tuple[int, ...] = ()

    @property
    def drawn(self) -> bool:
        """Whether it may hold infinities."""
        return not self.domain & {"bool", "integer"}

    def admitted(self, value: float) -> bool:
        """Whether a declared domain, which is taken at its word, has an infinity."""
        if value < 0 and self.domain & {"positive", "nonnegative"}:
            return False
        return not is_interval(self.domain) or admits(self.domain, value)

    def places(self) -> list[tuple[int, ...]]:
        """The places along the stream."""
        steps = range(self.shape[self.along]) if self.along is not None else (0,)
        return [tuple(j if d == self.along else 0 for d in range(len(self.shape))) for j in steps]

    def aside(self) -> Iterator[_Place]:
        """Infinities and NaN at the second and the last place of a dimension whose positions are read."""
        moved = [(d, k) for d in self.read for k in sorted({1, self.shape[d] - 1})]
        for (d, k), at in product(moved, self.places()):
            yield from (((*at[:d], k, *at[d + 1 :]), v) for v in (*INFINITE, np.nan) if np.isnan(v) or self.admitted(v))

    def infinite(self) -> Iterator[_Place]:
        """Where it is made infinite, and with which sign."""
        values = [v for v in INFINITE if self.admitted(v)]
        yield from product(self.places(), values)
        if self.along is not None:
            both = [np.where(self._along() % 2, np.inf, -np.inf)] if len(values) == len(INFINITE) else []
            yield from (((...,), value) for value in (*values, *both, np.nan))

    def broken(self) -> Iterator[_Place]:
        """Where it is made NaN: a position is that of the NaN, or the first where a stage value is NaN."""
        yield from ((at, np.nan) for at in self.places())

    def alike(self, which: int) -> Iterator[Any]:
        """All 0 (False), all alike (True), a sum of 0 along the stream, or extrema of 0."""
        if "bool" in self.domain:
            yield from ((False,), (True,), (), ())[which]
        elif which == 2 and self.along is not None and self.admitted(-1.0):
            lies = self._along()
            yield np.where(lies % 2, -1, 1) * (1 + lies // 2)
        elif which == 3 and self.along is not None and "positive" not in self.domain and self.admitted(0.0):
            lies = self._along()
            yield from (sign * (lies % 2) * (1 + lies // 2) for sign in (1, -1) if self.admitted(float(sign)))
        elif which == 0 and "positive" not in self.domain and self.admitted(0.0):
            yield 0
        elif which == 1 and self.admitted(1.0):
            yield 1

    def _along(self) -> np.ndarray:
        """The position of every element in the stream."""
        assert self.along is not None
        return np.arange(self.shape[self.along]).reshape([-1 if d == self.along else 1 for d in range(len(self.shape))])


Batches = tuple[tuple[int, ...], ...]  # numbers of tensors that are made infinite together


@lru_cache(maxsize=KEPT)
def data(tensors: tuple[Tensor, ...], batches: Batches) -> tuple[np.ndarray, ...]:
    """The elements of every tensor in all cases, along the last axis: NumPy's inner loops are over them, and long. Not
    to be written to.

    >>> x = Tensor((4,), frozenset(), 0)
    >>> (found,) = data((x,), ((0,),))
    >>> found.shape, int(np.isinf(found).any(axis=0).sum())
    ((4, 225), 211)
    """
    cases, number = _listed(tensors, batches), {beside: k for k, beside in enumerate(ALL)}
    found = []
    for k, t in enumerate(tensors):
        kinds = _kinds(t, k)
        own = [number[0, beside[1], 0] if beside[2] in (OTHERS, ONES) else n for n, beside in enumerate(ALL)]
        chosen = [own[number[beside]] if k in places else number[beside] for beside, places in cases]
        array = kinds[chosen]
        for at, (_, places) in enumerate(cases):
            if k in places:
                place, value = places[k]
                array[(at, *place)] = value
        found.append(array)
    kept = _distinct(found)
    found = [np.ascontiguousarray(np.moveaxis(array[kept], 0, -1)) for array in found]
    for array in found:
        array.flags.writeable = False
    return tuple(found)


def _distinct(arrays: Sequence[np.ndarray]) -> list[int]:
    """The first of all cases that are alike: beside a tensor that is infinite everywhere and alone nothing differs."""
    rows = np.concatenate([x.reshape(len(x), -1).astype(float) for x in arrays], axis=1)
    first: dict[bytes, int] = {}
    for number, row in enumerate(rows):
        first.setdefault(row.tobytes(), number)
    return list(first.values())


def count(tensors: tuple[Tensor, ...], batches: Batches) -> int:
    """How many cases there are, those that are alike included: `data` has each once."""
    return len(_listed(tensors, batches))


@lru_cache(maxsize=KEPT)
def _listed(tensors: tuple[Tensor, ...], batches: Batches) -> tuple[_Case, ...]:
    return tuple(_cases(tensors, batches))


def _cases(tensors: Sequence[Tensor], batches: Batches) -> Iterator[_Case]:
    """One infinity or NaN, at every place along the stream of every tensor, and nothing else in one of them:
    infinities of either sign, of both, and NaN. What is beside an infinity has either sign, or is 0, or (at a place of
    the other tensors) infinite."""
    yield from _single(tensors, batches)
    yield from _in_pairs(tensors, batches)
    yield from ((numbers, at) for numbers in DYADIC for at in _vanishing(tensors))


def _single(tensors: Sequence[Tensor], batches: Batches) -> Iterator[_Case]:
    """One infinity or NaN."""
    for which, beside in ((Tensor.infinite, BESIDE), (Tensor.broken, NUMBERS[:2]), (Tensor.aside, NUMBERS[:2])):
        for batch in batches:
            places = [list(which(tensors[k])) for k in batch]
            for step in range(max(map(len, places), default=0)):
                at = {k: found[step] for k, found in zip(batch, places, strict=True) if step < len(found)}
                yield from ((numbers, at) for numbers in beside)


def _in_pairs(tensors: Sequence[Tensor], batches: Batches) -> Iterator[_Case]:
    """Whole tensors of infinities, and one in the others."""
    places = {k: t.places() for k, t in enumerate(tensors) if t.drawn}
    admitted = {value: [k for k in places if tensors[k].admitted(value)] for value in INFINITE}
    others = {(v, last): {k: (places[k][last], v) for k in admitted[v]} for v in INFINITE for last in (0, -1)}
    for batch in batches:
        for value, other, last in product(INFINITE, INFINITE, (0, -1)):
            at = others[other, last] | {k: ((...,), value) for k in batch if tensors[k].admitted(value)}
            yield from ((numbers, at) for numbers in NUMBERS[:2])


def _vanishing(tensors: Sequence[Tensor]) -> Iterator[dict[int, _Place]]:
    """Finite elements whose stage values vanish: conditions that select nothing or all, numbers that add up to 0, are 0
    or all alike, or 0 is the least or the largest; in one tensor, and in all of them."""
    for which in range(4):
        found = [(k, ((...,), value)) for k, t in enumerate(tensors) for value in t.alike(which)]
        yield from ({k: place} for k, place in found)
        if len(dict(found)) > 1:
            yield dict(found)


@lru_cache(maxsize=4 * KEPT)
def _kinds(tensor: Tensor, number: int) -> np.ndarray:
    """The finite elements of the tensor of this number, in the order of `ALL`."""
    found = []
    for beside in ALL:
        which, sign, place = beside
        if place in ROWS_OF:
            numbers = _numbers(tensor.shape, tensor.domain, number, (which, sign, 0))
            found.append(_with_rows(tensor, numbers, ROWS_OF[place]))
        else:
            found.append(_numbers(tensor.shape, tensor.domain, number, beside))
    return np.stack(found)


def _with_rows(tensor: Tensor, numbers: np.ndarray, value: int) -> np.ndarray:
    """Numbers with a value at every third place of the stream, in every tensor at the same ones: so are their products,
    contractions and extrema."""
    has_value = tensor.drawn and tensor.admitted(value) and (value or "positive" not in tensor.domain)
    return np.where(tensor._along() % 3 == 1, value, numbers) if has_value and tensor.along is not None else numbers


def _numbers(shape: tuple[int, ...], domain: frozenset[str], number: int, beside: Beside) -> np.ndarray:
    """The finite elements of the tensor of this number: no two alike, so that what rounding decides is not judged;
    and zeros, where its domain has 0."""
    (which, sign, zeros), count = beside, prod(shape)
    at = np.arange(count) + 1 + count * (which % len(PATTERNS))
    ones = np.array([((k + number) & PATTERNS[which]).bit_count() % 2 for k in range(count)], dtype=int).reshape(shape)
    if "bool" in domain:
        return np.asarray(ones == (sign < 0))
    signs = 1 if domain & {"positive", "nonnegative"} else sign * (1 - 2 * ones)
    if "integer" in domain:
        found = np.asarray((1 + (5 * at + 3 * number) % 8).reshape(shape) * signs)
    else:
        spread = (at * at * GOLDEN + number * (GOLDEN - 1) / 3) % 1  # of squares: equal steps would add up to 0
        found = np.asarray((0.25 + 1.75 * spread.reshape(shape)) * signs)
        if zeros <= SIMPLE:
            found = (1 + (5 * at + 3 * number) % 8).reshape(shape) / 4 * signs
        if zeros == ONES:
            found = np.ones(shape)
        if zeros in PAIRED:
            place = np.indices(shape).sum(axis=0)
            found = (1 + 5 * place % 8) / 4 * sign * np.array([-3, -1, 1, 3])[place % 4] ** ((number + zeros) % 2)
            found = np.abs(found) if domain & {"positive", "nonnegative"} else found
    found = np.asarray(moved_array(domain, found))
    zeros = {SIMPLE: 0, THIRD: 3, **dict.fromkeys((ONES, *PAIRED), 0)}.get(zeros, zeros)
    if zeros and "positive" not in domain and (not is_interval(domain) or admits(domain, 0)):
        found[(np.indices(shape).sum(axis=0) + number) % zeros == 0] = 0
    return found
