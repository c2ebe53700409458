"""Three ways to feed a stream: one element at a time, unequal chunks, a balanced merge tree of unequal chunks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

FEEDS = ("one by one", "chunks", "merge tree")
Arrays = dict[str, np.ndarray]


def cuts(n: int, feed: str) -> list[int]:
    """Borders of the pieces: all of length 1, or lengths 1, 2, 3, … (the last cut short, one piece empty)."""
    if feed == "one by one":
        return list(range(n + 1))
    borders = [0, 0]
    for length in itertools.cycle((1, 2, 3, 5, 8, 13)):
        if borders[-1] + length >= n:
            return [*borders, n]
        borders.append(borders[-1] + length)
    raise AssertionError("itertools.cycle never ends")


def pieces(arrays: Arrays, feed: str, axis: int = 1) -> list[Arrays]:
    n = next(iter(arrays.values())).shape[axis]
    return [{k: v[:, a:b] for k, v in arrays.items()} for a, b in itertools.pairwise(cuts(n, feed))]


def balanced(states: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Merge neighbours until one is left."""
    level = list(states)
    while len(level) > 1:
        pairs = [merge(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
        level = pairs
    return level[0]


def run_peer(peer: Any, arrays: Arrays, feed: str) -> dict[str, np.ndarray] | None:
    """The results of a published algorithm, or None where its author gave no such update."""
    parts = [p for p in pieces(arrays, feed) if next(iter(p.values())).shape[1]]
    with np.errstate(all="ignore"):
        if feed == "one by one" and peer.step:
            state = None
            for part in parts:
                state = peer.step(state, {k: v[:, 0] for k, v in part.items()})
            return peer.finish(state)
        if peer.merge is None:
            return None
        states = [peer.lift(p) for p in parts]
        if feed == "merge tree":
            return peer.finish(balanced(states, peer.merge))
        total = states[0]
        for s in states[1:]:
            total = peer.merge(total, s)
        return peer.finish(total)


def run_form(form: Any, arrays: Arrays, feed: str, bound: dict[str, Any]) -> dict[str, np.ndarray]:
    """Our form over the same pieces (the empty one included)."""
    parts = pieces(arrays, feed)
    if feed != "merge tree":
        total = form.accumulator(**bound)
        for part in parts:
            total.update(**part)
        return _named(form, total.result())
    accumulators = []
    for part in parts:
        accumulators.append(form.accumulator(**bound))
        accumulators[-1].update(**part)

    def merge(a: Any, b: Any) -> Any:
        a.merge(b)
        return a

    return _named(form, balanced(accumulators, merge).result())


def _named(form: Any, result: Any) -> dict[str, np.ndarray]:
    return result if isinstance(result, dict) else {next(iter(form.spec.outputs)): result}
