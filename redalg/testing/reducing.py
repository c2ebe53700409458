"""Making a failing input smaller with Hypothesis: positions of axes that go, and numbers that are easier to read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from redalg.graph.intervals import admits
from redalg.proofs.audits.domain import SMALL, Below, Domain, cost, held
from redalg.proofs.audits.drawing import smallest, strategy
from redalg.testing.adversarial import Arrays
from redalg.testing.arithmetic import NARROW

BUDGET = 400  # inputs tried
PRICED = 50  # elements of an input that cost as much as trying it
EXAMPLES = 20  # inputs drawn near the failing one
SELDOM = 5000  # one of so many draws leaves something out
SHORT = 40  # positions of an axis that are left out one by one
READABLE = 300  # different numbers of an input that are replaced by easier ones
Found = TypeVar("Found")


def reduced(
    spec: Any, arrays: Arrays, found: Found, difference: Callable[[Arrays], Found | None]
) -> tuple[Arrays, Found]:
    """The smallest input that Hypothesis reaches from a failing one, and what `difference` says of it."""
    lengths = {a: n for d in spec.tensors for a, n in zip(d.axes, np.shape(arrays[d.name]), strict=True)}
    numbers = {d.name: list(_numbers(arrays[d.name])) for d in spec.tensors}
    if sum(map(len, numbers.values())) > READABLE:
        numbers = {name: [] for name in numbers}
    easier = {d.name: _easier(arrays[d.name], d.domain) for d in spec.tensors}

    def smaller(below: Below) -> Arrays:
        """Most draws of most inputs change nothing; there are always as many, so that each keeps its meaning."""
        kept = {axis: _kept(n, below) for axis, n in lengths.items()}
        result = dict(arrays)
        for decl in spec.tensors:
            array = result[decl.name]
            for value in numbers[decl.name] if easier[decl.name] else ():
                array = _replaced(array, arrays[decl.name], value, easier[decl.name], below)
            for k, axis in enumerate(decl.axes):
                array = np.take(array, kept[axis], axis=k)
            result[decl.name] = array
        return result

    price = lambda given: 1 + sum(map(np.size, given.values())) // PRICED  # noqa: E731
    known: dict[str, Found | None] = {repr(_plain(arrays)): found}
    drawing = strategy(smaller)
    return smallest(drawing, difference, known, EXAMPLES, "reduced", BUDGET, price, _plain) or (arrays, found)


def _plain(arrays: Arrays) -> Any:
    """What is in the arrays, as a value whose text tells one input from another."""
    return {k: (np.shape(v), np.asarray(v).tobytes()) for k, v in arrays.items()}


def _kept(n: int, below: Below) -> list[int]:
    """Positions of an axis that stay: of a short one any, of a long one the first; one at least, where there is one."""
    if n > SHORT:
        return list(range(min(n, 1 + below(SELDOM * n))))
    kept = [k for k in range(n) if below(SELDOM)]
    return kept or list(range(min(n, 1)))


def _numbers(array: Any) -> Iterator[float]:
    """The different numbers of an array; equal ones stay equal when they are replaced."""
    if isinstance(array, np.ndarray) and array.dtype.kind != "b" and array.size <= 10 * READABLE:
        yield from {repr(v): v for v in array.astype(float).reshape(-1).tolist()}.values()


def _easier(array: Any, words: frozenset[str]) -> list[Any]:
    """Numbers of the domain and the type, the easiest to read first."""
    if not isinstance(array, np.ndarray) or array.dtype.kind == "b":
        return []
    integral = array.dtype.kind in "iu"
    domain = Domain(words & {"positive", "nonnegative"} | ({"integer"} if integral else set()) or frozenset({"real"}))
    found = sorted({*SMALL, *(() if integral else _powers(array.dtype.name))}, key=cost)
    return [array.dtype.type(float(x)) for x in found if x in domain and admits(words, float(x))]


def _powers(dtype: str) -> Iterator[Fraction]:
    """Powers of ten, up to the largest of the type."""
    last = math.floor(math.log10(NARROW.get(dtype, NARROW["float64"])[2]))
    for e in (k for k in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, last) if k <= last):
        yield from (Fraction(sign * held(10.0**e, dtype)) for sign in (1, -1))


def _replaced(array: np.ndarray, original: np.ndarray, value: float, easier: list[Any], below: Below) -> np.ndarray:
    """The array with an easier number in all places where the original has `value`, or none if the draw is large."""
    at = below(SELDOM)
    if at >= len(easier) or cost(_rational(value)) <= cost(_rational(float(easier[at]))):
        return array
    numbers = original.astype(float)
    return np.asarray(np.where((numbers == value) | (np.isnan(numbers) & (value != value)), easier[at], array))


def _rational(x: float) -> Any:
    return Fraction(x) if math.isfinite(x) else x
