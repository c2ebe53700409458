"""Making a failing input smaller: shorter axes first, then numbers that are easier to read. Deterministic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from redalg.intervals import admits
from redalg.proofs.audit_domain import Domain, cost, simpler
from redalg.testing.adversarial import Arrays

BUDGET = 400  # inputs tried
ELEMENTS = 20_000  # in all of them
READABLE = 40  # elements of an array whose numbers are simplified one by one
Found = TypeVar("Found")


def reduced(
    spec: Any, arrays: Arrays, found: Found, difference: Callable[[Arrays], Found | None]
) -> tuple[Arrays, Found]:
    """The smallest input that greedy steps reach, and what `difference` says of it."""
    left, elements = BUDGET, ELEMENTS
    progress = True
    while progress and left > 0:
        progress = False
        for candidate in _candidates(spec, arrays):
            elements -= sum(np.size(a) for a in candidate.values())
            left = left - 1 if elements > 0 else 0
            again = difference(candidate)
            if again is not None:
                arrays, found, progress = candidate, again, True
                break
            if left <= 0:
                break
    return arrays, found


def _candidates(spec: Any, arrays: Arrays) -> Iterator[Arrays]:
    lengths = {a: n for d in spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}
    for axis, n in lengths.items():
        for keep in _kept(n):
            yield {d.name: _taken(arrays[d.name], d.axes, axis, keep) for d in spec.tensors}
    for decl in spec.tensors:
        if not isinstance(arrays[decl.name], np.ndarray):
            continue
        for easier in _simpler(arrays[decl.name], decl.domain):
            yield arrays | {decl.name: easier}


def _kept(n: int) -> Iterator[list[int]]:
    """Positions to keep: halves, then all but one where they are few."""
    if n > 3:
        yield list(range(n // 2))
        yield list(range(n // 2, n))
    if 1 < n <= READABLE:
        yield from ([i for i in range(n) if i != k] for k in range(n))


def _taken(array: Any, axes: tuple[str, ...], axis: str, keep: list[int]) -> Any:
    return np.take(array, keep, axis=axes.index(axis)) if axis in axes else array


def _simpler(array: np.ndarray, words: frozenset[str]) -> Iterator[np.ndarray]:
    """All numbers at once, then equal ones together, then one by one: simpler numbers of the domain each time."""
    if not array.size or array.size > READABLE or array.dtype.kind == "b":
        return
    integral = {"integer"} if array.dtype.kind in "iu" else set()
    domain = Domain(words & {"positive", "nonnegative"} | integral or frozenset({"real"}), array.dtype.name)
    for same in (np.zeros_like(array), np.ones_like(array)):
        if float(same.flat[0]) in domain and admits(words, float(same.flat[0])) and _weight(same) < _weight(array):
            yield same
    values = {repr(float(v)): float(v) for v in array.reshape(-1)}
    for value in values.values():
        places = (array == value) | (np.isnan(array.astype(float)) & (value != value))
        for simple in simpler(_rational(value), domain):
            new = array.dtype.type(float(simple))
            if not admits(words, float(new)):
                continue
            yield np.where(places, new, array)
            if places.sum() > 1:
                yield from (_with(array, key, new) for key in zip(*np.nonzero(places), strict=True))


def _rational(x: float) -> Any:
    return Fraction(x) if math.isfinite(x) else x


def _with(array: np.ndarray, key: Any, value: Any) -> np.ndarray:
    result = array.copy()
    result[key] = value
    return result


def _weight(array: np.ndarray) -> int:
    return sum(cost(_rational(float(x)))[0] for x in array.reshape(-1))
