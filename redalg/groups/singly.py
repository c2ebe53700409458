"""One accumulator per key, for forms whose states cannot be arrays over groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.groups.keys import Codes, Groups
from redalg.numeric.binding import Bound
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.tapes.tape import Array

if TYPE_CHECKING:
    from redalg.form import Form

Commit = Callable[[], None]


class Singly:
    """Accumulators by the number of their key. Placed at 0 where a body reads the position in its group."""

    def __init__(self, form: Form, arrays: Mapping[str, Any]) -> None:
        self._form, self._bound = form, dict(arrays)
        self._all: list[Accumulator] = []

    def copy(self) -> Singly:
        twin = Singly(self._form, self._bound)
        twin._all = [a.copy() for a in self._all]
        return twin

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self._all)

    def held(self, groups: int) -> Array:
        """Which of so many groups have elements."""
        return np.array([k < len(self._all) and not _is_empty(self._all[k]) for k in range(groups)], bool)

    def _new(self, like: Accumulator) -> Accumulator:
        return Accumulator(self._form, self._bound, start=0 if like._layout.positional else None)

    def promoted(self, before: Accumulator, after: Accumulator, where: str) -> Singly:
        """With the states of `before` in the dtypes of `after`; this one where these are the same."""
        dtypes = after._now.dtypes
        if dtypes is None or before._now.dtypes in (None, dtypes):
            return self
        twin = self.copy()
        for a in twin._all:
            a._take_dtypes(dtypes, where)
        return twin

    def at_once(self, like: Accumulator, found: Bound, codes: Codes) -> None:
        """Nothing: groups are updated one by one."""

    def updated_by(
        self, quick: Any, like: Accumulator, found: Bound, codes: Codes, numbers: Array, count: int
    ) -> Commit:
        raise AssertionError("groups are updated one by one")

    def updated(self, like: Accumulator, found: Bound, groups: Groups, numbers: Array, count: int) -> Commit:
        first, streamed = like._layout.axis[0], like._layout.streamed
        after: dict[int, Accumulator] = {}
        for k, number in enumerate(numbers.tolist()):
            rows = groups.order[groups.starts[k] : groups.starts[k + 1]]
            a = self._all[number].copy() if number < len(self._all) else self._new(like)
            a.update(**{d.name: np.take(found.arrays[d.name], rows, axis=d.axes.index(first)) for d in streamed})
            after[number] = a
        return lambda: self._put(like, after, count)

    def merged(self, like: Accumulator, other: Singly | Any, numbers: Array, count: int) -> Commit:
        after: dict[int, Accumulator] = {}
        for number, theirs in zip(numbers.tolist(), other._all, strict=True):
            known = number < len(self._all)
            after[number] = self._all[number].copy().merge(theirs) if known else theirs.copy()
        return lambda: self._put(like, after, count)

    def _put(self, like: Accumulator, after: Mapping[int, Accumulator], count: int) -> None:
        self._all += [self._new(like) for _ in range(count - len(self._all))]
        for number, a in after.items():
            self._all[number] = a

    def next_pass(self) -> None:
        after = [a.copy() for a in self._all]
        for a in after:
            if not _is_empty(a):
                a.next_pass()
        self._all = after

    def values(self, like: Accumulator, order: Array, names: Sequence[str]) -> dict[str, Array]:
        """The outputs of these groups, in this order."""
        found = [self._all[k].result() for k in order.tolist()]
        if not isinstance(found[0], dict):
            return {names[0]: np.stack([np.asarray(x) for x in found])}
        return {name: np.stack([np.asarray(x[name]) for x in found]) for name in names}


def _is_empty(a: Accumulator) -> bool:
    """Whether it has no element in any pass: all rows of its key were left out."""
    return a._now.number == 0 and a._now.pieces.empty
