"""Calls in parts, a block of rows after the other: what lies between parts stays in the caches, and is no larger than a
block's, however many rows there are.

A block is a range of an axis that no reduction runs along and that all that is written has. Its parts are those of a
call of so many rows; what they compute lies in slices of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from redalg.kernels.cpu.ready import WHERE, Ready
from redalg.numeric.out import by_output, shared

USUAL, MOST = 32 << 20, 256 << 20  # bytes of a block between parts: what third-level caches hold, and at most
LEAST = 96  # rows of a block: products of fewer pack their right operand for little


def block_of(axes: Mapping[str, int], held: int) -> tuple[str, int] | None:
    """The axis that is cut in blocks, and the rows of one; None where all rows are one. `axes`: those that may be, and
    their lengths; `held`: bytes between parts for all rows.

    Raises: TooLarge where no block is small enough.

    >>> block_of({"h": 8, "i": 256}, 4 << 20), block_of({"h": 8, "i": 8192}, 4 << 30), block_of({"h": 64}, 4 << 30)
    (None, ('i', 96), ('h', 1))
    """
    if held <= USUAL:
        return None
    for axis, length in sorted(axes.items(), key=lambda pair: -pair[1]):
        each = -(-held // length)
        for least in (LEAST, 1):
            rows = max(least, USUAL // each)
            if rows < length and rows * each <= MOST:
                return axis, rows
    if held > MOST:
        raise TooLarge
    return None


class TooLarge(Exception):
    """More would lie between parts than is worth it."""


class InBlocks:
    """What calls of one kind do that run in blocks of rows, as `redalg.kernels.cpu.ready.Ready` is for one kernel.

    `made`: what is prepared for so many rows; `arrays` and `results`: along which dimension each has the axis, if at
    all.
    """

    def __init__(
        self,
        whole: Ready,
        block: tuple[str, int],
        made: Callable[[int], Any],
        names: Sequence[str],
        arrays: Sequence[int | None],
        results: Mapping[str, int],
    ) -> None:
        self._whole, (self.axis, self.rows), self._names = whole, block, tuple(names)
        self._arrays, self._results, self.wants, self.sizes = arrays, results, whole.wants, whole.sizes
        length = whole.sizes[self.axis]
        self._ranges = [(low, min(low + self.rows, length)) for low in range(0, length, self.rows)]
        self._full = made(self.rows)
        rest = length % self.rows
        self._rest = made(rest) if rest else self._full

    def __call__(self, given: Sequence[Any], arrays: Mapping[str, Any], out: Any) -> Any:
        """The results for arrays of this kind, as kernels read them (`given`) and as the caller passed them."""
        if out is None:
            made = self._fresh()
            self._walk(given, made)
            found = [self._whole.restored(x) for x in made.values()]
            return found[0] if len(found) == 1 else dict(zip(made, found, strict=True))
        targets = self._whole.received(out)
        made = self._fresh() if self._meet(given, targets) else dict(targets)
        self._walk(given, made)
        for n, x in targets.items():
            if made[n] is not x:
                x[...] = made[n]
        named = by_output(out, list(targets), WHERE)
        return named[next(iter(targets))] if len(targets) == 1 else {n: named[n] for n in targets}

    def _fresh(self) -> dict[str, np.ndarray]:
        return {n: np.empty(shape, dtype) for n, (shape, dtype) in self.wants.items()}

    def _walk(self, given: Sequence[Any], made: Mapping[str, np.ndarray]) -> None:
        """Block by block, into slices of the results."""
        for low, high in self._ranges:
            ready = self._full if high - low == self.rows else self._rest
            own = [cut(x, d, low, high) for x, d in zip(given, self._arrays, strict=True)]
            into = {n: cut(x, self._results[n], low, high) for n, x in made.items()}
            ready(own, dict(zip(self._names, own, strict=True)), into if len(into) > 1 else next(iter(into.values())))

    @staticmethod
    def _meet(given: Sequence[Any], targets: Mapping[str, np.ndarray]) -> bool:
        """Whether a result overlaps what later blocks read."""
        return any(isinstance(x, np.ndarray) and shared(x, target) for x in given for target in targets.values())

    @property
    def last(self) -> tuple[Any, ...]:
        """What calls ran, kernel by kernel."""
        return tuple(self._full.last)

    @property
    def rescued(self) -> int:
        """Rows that left the range of the reals and were computed in wider numbers, of all calls so far."""
        return sum(ready.rescued for ready in {self._full, self._rest})

    def summary(self) -> str:
        """What runs, in a line."""
        return f"blocks of {self.rows} of {self.axis}, each {self._full.summary()}"

    def lines(self) -> Iterator[str]:
        """Why, and what each part does."""
        yield from self._full.lines()


def cut(x: Any, dimension: int | None, low: int, high: int) -> Any:
    return x if dimension is None else x[(slice(None),) * dimension + (slice(low, high),)]


__all__ = ["InBlocks", "TooLarge", "block_of", "cut"]
