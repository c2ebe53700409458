"""Ranks without processes: threads that meet in a barrier stand for a process group, so that the fast suite has any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from redalg.adapters.ranks import collective
from redalg.adapters.ranks.channel import Channel

Work = Callable[["Rank"], Any]


class Group:
    """What the threads share. A rank that waits in vain for the others makes all of them fail."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.board = ranks, [None] * ranks
        self.barrier = threading.Barrier(ranks, timeout=120)


class Rank(Channel):
    """A channel over a `Group`; sums go in an order that changes from call to call."""

    def __init__(self, group: Group, rank: int) -> None:
        self.shared, self.rank, self.ranks, self.backend, self.calls = group, rank, group.ranks, "threads", 0

    def _met(self, mine: Any) -> list[Any]:
        self.calls += 1
        self.shared.board[self.rank] = mine
        self.shared.barrier.wait()
        found = list(self.shared.board)
        self.shared.barrier.wait()
        return found

    def gathered(self, mine: np.ndarray) -> list[np.ndarray]:
        found = self._met(np.array(mine))
        assert len({(x.dtype, x.shape) for x in found}) == 1
        return [x.copy() for x in found]

    def gather_into(self, everyone: Any, mine: Any) -> None:
        for k, x in enumerate(self._met(mine.clone())):
            everyone[k * len(mine) : (k + 1) * len(mine)] = x

    def reduce_into(self, mine: Any, op: str) -> None:
        """MAX drops NaN, as a backend may."""
        found = [x.numpy() for x in self._met(mine.clone())]
        mine.copy_(mine.new_tensor(reduce(np.fmax if op == "MAX" else np.add, found)))

    def reduced(self, buffers: Sequence[tuple[np.ndarray, str]]) -> list[np.ndarray]:
        found = self._met([(x.copy(), op) for x, op in buffers])
        assert len({tuple((x.dtype, x.shape, op) for x, op in sent) for sent in found}) == 1
        turned = found[self.calls % self.ranks :] + found[: self.calls % self.ranks]
        fold = {"MAX": np.maximum, "SUM": np.add}
        with np.errstate(all="ignore"):
            return self._folded(turned, fold, buffers)

    def _folded(self, turned: Any, fold: Any, buffers: Any) -> list[np.ndarray]:
        return [
            reduce(lambda a, b, op=op: fold[op](a, b), [sent[k][0] for sent in turned])
            for k, (_, op) in enumerate(buffers)
        ]


def in_threads(ranks: int, work: Work, monkeypatch: Any) -> list[Any]:
    """``work(rank)`` on every rank, in which ``form.collective()`` meets the others: results, or errors, by rank."""
    group, found = Group(ranks), [None] * ranks
    mine = threading.local()
    monkeypatch.setattr(collective, "Channel", lambda _: mine.rank)

    def run(r: int) -> None:
        mine.rank = Rank(group, r)
        try:
            found[r] = work(mine.rank)
        except Exception as error:
            found[r] = error

    threads = [threading.Thread(target=run, args=(r,)) for r in range(ranks)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    _tell_why(found)
    return found


def _tell_why(found: list[Any]) -> None:
    """Ranks that waited in vain for one that failed fail as that one did."""
    failed = [e for e in found if isinstance(e, Exception)]
    why = next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), None)
    for r, e in enumerate(found):
        if why and isinstance(e, threading.BrokenBarrierError):
            found[r] = why
