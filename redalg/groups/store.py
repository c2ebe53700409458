"""The states of all groups: arrays with a leading axis of groups, and those that need more range one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from redalg.streaming.lift import Engine
from redalg.streaming.pieces import nbytes, shifted
from redalg.streaming.state import State
from redalg.streaming.tapes.join import Overflow
from redalg.streaming.tapes.tape import Array


class Part(NamedTuple):
    """Groups by number, and the batch of their states: all are made of as many elements."""

    numbers: Array
    state: State


def classes(*counts: Array) -> Iterator[Array]:
    """Positions at which all counts are alike."""
    if not len(counts[0]):
        return
    order = np.lexsort(counts[::-1])
    changes = np.any([np.diff(c[order]) != 0 for c in counts], axis=0)
    yield from np.split(order, np.flatnonzero(changes) + 1)


class Store:
    """States by number. `put` replaces some of them, in place; what it is given was computed before."""

    def __init__(self) -> None:
        self.counts = np.zeros(0, np.int64)
        self.parts: dict[str, Array] = {}
        self.low: dict[str, Array] = {}
        self.apart: dict[int, State] = {}  # with a larger range

    def __len__(self) -> int:
        return len(self.counts)

    def copy(self) -> Store:
        twin = Store()
        twin.counts = self.counts.copy()
        twin.parts = {name: x.copy() for name, x in self.parts.items()}
        twin.low = {name: x.copy() for name, x in self.low.items()}
        twin.apart = dict(self.apart)  # states are never modified
        return twin

    @property
    def nbytes(self) -> int:
        arrays = (self.counts, *self.parts.values(), *self.low.values())
        return sum(x.nbytes for x in arrays) + sum(map(nbytes, self.apart.values()))

    @property
    def filled(self) -> Array:
        """The groups that have elements."""
        return np.flatnonzero(self.counts)

    # --- reading -------------------------------------------------------------------------------------------------

    def batches(self, engine: Engine, numbers: Array, flat: bool = False) -> Iterator[Part]:
        """The states of groups that have elements, as few batches as their counts allow; one if they are `flat`."""
        together = numbers
        if self.apart:
            alone = np.isin(numbers, np.fromiter(self.apart, np.int64, len(self.apart)))
            together = numbers[~alone]
            for k in numbers[alone].tolist():
                yield Part(np.array([k]), self.apart[k])
        counts = self.counts[together]
        if flat:
            if len(together):
                yield Part(together, self._taken(engine, together, counts))
            return
        for at in classes(counts):
            yield Part(together[at], self._taken(engine, together[at], int(counts[at[0]])))

    def _taken(self, engine: Engine, numbers: Array, n: Any) -> State:
        parts = {name: x[numbers] for name, x in self.parts.items()}
        parts |= {anchor: parts[part] for anchor, part in engine.program.aliases.items()}
        return State(n, parts, {name: x[numbers] for name, x in self.low.items()})

    # --- joining -------------------------------------------------------------------------------------------------

    def joined(self, engine: Engine, fresh: Sequence[Part], flat: bool = False) -> list[Part]:
        """What the states of these groups become when those in `fresh` follow them. Nothing is changed."""
        found: list[Part] = []
        for numbers, state in fresh:
            inside = numbers < len(self)
            before = np.where(inside, self.counts[np.where(inside, numbers, 0)], 0) if len(self) else 0 * numbers
            new = np.flatnonzero(before == 0)
            if len(new):
                found.append(Part(numbers[new], _picked(state, new)))
            old = np.flatnonzero(before)
            place = {int(numbers[k]): k for k in old.tolist()} if self.apart else {}
            if not len(old):
                continue
            sorter = np.argsort(numbers)
            for held, mine in self.batches(engine, numbers[old], flat):
                at = [place[int(k)] for k in held] if place else sorter[np.searchsorted(numbers, held, sorter=sorter)]
                found += _followed(engine, held, mine, _picked(state, np.asarray(at)))
        return found

    # --- writing -------------------------------------------------------------------------------------------------

    def put(self, engine: Engine, groups: int, parts: Sequence[Part]) -> None:
        """Take in states, of `groups` groups in all."""
        grown = dict.fromkeys(engine.program.arrays)
        for name in grown:
            self.parts[name] = _grown(self.parts.get(name), groups, [p.state.parts[name] for p in parts])
        for name in engine.program.sums:
            self.low[name] = _grown(self.low.get(name), groups, [p.state.low[name] for p in parts])
        self.counts = _grown(self.counts, groups, [])
        for numbers, state in parts:
            self.counts[numbers] = state.n
            for k in numbers.tolist() if self.apart or state.wide else ():
                self.apart.pop(k, None)
            if state.wide:
                self.apart[int(numbers[0])] = state
                continue
            for name in grown:
                self.parts[name][numbers] = state.parts[name]
            for name, x in state.low.items():
                self.low[name][numbers] = x


def _picked(state: State, at: Array) -> State:
    if state.wide:
        return state
    return state.map(lambda x: x[at], n=state.n[at] if isinstance(state.n, np.ndarray) else state.n)


def _followed(engine: Engine, numbers: Array, first: State, then: State) -> list[Part]:
    """Two batches joined item by item; those that need more range one by one, found by halves."""
    if isinstance(first.n, np.ndarray) or isinstance(then.n, np.ndarray):
        return _flat(engine, numbers, first, then)
    later = shifted(engine, then, first.n) or then
    if not first.wide and not then.wide:
        try:
            return [Part(numbers, engine.paired(first, later))]
        except Overflow:
            if len(numbers) > 1:
                half = len(numbers) // 2
                cuts = slice(0, half), slice(half, None)
                return [p for at in cuts for p in _followed(engine, numbers[at], first.at(at), then.at(at))]
    alone = [slice(k, k + 1) for k in range(len(numbers))]
    return [Part(numbers[k], engine.joined(first.at(k), later.at(k))) for k in alone]


class Counts(np.ndarray):
    """Counts by group that all compare alike, so that one branch of `combine` is that of all."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """What is calculated of them is an array as others are."""
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Counts) else x for x in inputs), **options)

    def __ge__(self, other: Any) -> Any:
        return bool(np.all(np.greater_equal(np.asarray(self), np.asarray(other))))

    def __lt__(self, other: Any) -> Any:
        return bool(np.all(np.less(np.asarray(self), np.asarray(other))))

    def __gt__(self, other: Any) -> Any:
        return bool(np.all(np.greater(np.asarray(self), np.asarray(other))))


def _counts(n: Array) -> Any:
    return n.view(Counts) if len(n) > 1 else int(n[0])


def _flat(engine: Engine, numbers: Array, first: State, then: State) -> list[Part]:
    """The same for batches of groups with counts of their own."""
    shape = np.shape(numbers)
    n_a, n_b = (np.broadcast_to(s.n, shape) for s in (first, then))
    if first.wide or then.wide:
        return _by_counts(engine, numbers, first, then, n_a, n_b)
    found: list[Part] = []
    longer = n_a >= n_b
    for at in (np.flatnonzero(longer), np.flatnonzero(~longer)):
        if not len(at):
            continue
        a, b = (replace(_picked(replace(s, n=0), at), n=_counts(n[at])) for s, n in ((first, n_a), (then, n_b)))
        later = {name: np.where(x < 0, x, x + n_a[at]) for name, x in b.parts.items() if name in engine.program.placed}
        try:
            joined = engine.paired(a, replace(b, parts={**b.parts, **later}))
            found.append(Part(numbers[at], replace(joined, n=n_a[at] + n_b[at])))
        except Overflow:
            one, two = (replace(_picked(replace(s, n=0), at), n=0) for s in (first, then))
            found += _by_counts(engine, numbers[at], one, two, n_a[at], n_b[at])
    return found


def _by_counts(engine: Engine, numbers: Array, first: State, then: State, n_a: Array, n_b: Array) -> list[Part]:
    found: list[Part] = []
    for at in classes(n_a, n_b):
        a, b = (replace(_picked(s, at), n=int(n[at[0]])) for s, n in ((first, n_a), (then, n_b)))
        found += _followed(engine, numbers[at], a, b)
    return found


def _grown(held: Array | None, groups: int, fresh: Sequence[Array]) -> Array:
    """The array with room for so many groups, and for the dtypes and shapes that come."""
    kinds = {x.dtype for x in fresh} | ({held.dtype} if held is not None else set())
    dtype = np.dtype(object) if np.dtype(object) in kinds else next(iter(kinds))
    if held is not None and np.dtype(object) not in kinds:
        dtype = held.dtype  # what has more range is held apart
    shape = next((x.shape[1:] for x in fresh), held.shape[1:] if held is not None else ())
    if held is not None and len(held) >= groups and held.dtype == dtype:
        return held
    found = np.zeros((groups, *shape), dtype)
    if held is not None and len(held):
        found[: len(held)] = held
    return found
