"""Which positions an accumulator covers."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """Disjoint, non-adjacent intervals of positions in order, and where the next chunk goes.

    A piece without a place counts from 0 and is one interval.

    >>> Span.at(10).extended(5)
    Span(placed=True, intervals=((10, 15),), start=10, stop=15)
    """

    placed: bool
    intervals: tuple[tuple[int, int], ...]
    start: int
    stop: int

    @staticmethod
    def at(start: int | None) -> Span:
        return Span(start is not None, (), start or 0, start or 0)

    @property
    def count(self) -> int:  # type: ignore[override]
        return sum(b - a for a, b in self.intervals)

    def extended(self, length: int) -> Span:
        """After `length` more positions at `stop`."""
        if length and self.intervals and self.intervals[-1][1] == self.stop:
            intervals = (*self.intervals[:-1], (self.intervals[-1][0], self.stop + length))
        else:
            intervals = _normal([*self.intervals, (self.stop, self.stop + length)])
        return Span(self.placed, intervals, self.start, self.stop + length)

    def joined(self, other: Span) -> Span:
        """The union; an empty side adds nothing."""
        if not other.intervals:
            return self
        intervals = _normal([*self.intervals, *other.intervals])
        return Span(self.placed, intervals, intervals[0][0], intervals[-1][1])

    def overlap(self, other: Span) -> tuple[int, int] | None:
        """The first interval both cover, if any."""
        for a, b in self.intervals:
            for c, d in other.intervals:
                if max(a, c) < min(b, d):
                    return max(a, c), min(b, d)
        return None


def _normal(intervals: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    done: list[tuple[int, int]] = []
    for a, b in sorted(i for i in intervals if i[0] < i[1]):
        if done and done[-1][1] == a:
            done[-1] = (done[-1][0], b)
        else:
            done.append((a, b))
    return tuple(done)
