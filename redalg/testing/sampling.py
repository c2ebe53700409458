"""Input for specs: numbers that are exact in every arithmetic, and pieces of streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.intervals import moved_array


def draw(decl: Any, shape: Sequence[int], rng: Random) -> np.ndarray:
    """Small rationals with denominator 8 (floats hold them exactly) in the tensor's domain, ties not unlikely."""
    count = int(np.prod(shape, dtype=int))
    if "bool" in decl.domain:
        return np.array([rng.random() < 0.7 for _ in range(count)], dtype=bool).reshape(shape)
    if "integer" in decl.domain:
        low = 1 if "positive" in decl.domain else 0 if "nonnegative" in decl.domain else -4
        whole = np.array([rng.randint(low, 5) for _ in range(count)], dtype=np.int64).reshape(shape)
        return moved_array(decl.domain, whole)
    low = 2 if {"positive", "nonnegative"} & decl.domain else -16
    return moved_array(decl.domain, np.array([rng.randint(low, 16) / 8 for _ in range(count)]).reshape(shape))


def arguments(spec: Any, rng: Random, **sizes: int) -> dict[str, np.ndarray]:
    """One array per tensor of the spec; axes that are not named have length 2."""
    return {d.name: draw(d, [sizes.get(a, 2) for a in d.axes], rng) for d in spec.tensors}


def rationals(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The same numbers as object arrays of `Fraction` (conditions stay bool)."""
    return {k: v if np.asarray(v).dtype == bool else _fractions(np.asarray(v)) for k, v in arrays.items()}


def _fractions(array: np.ndarray) -> np.ndarray:
    result = np.empty(array.shape, dtype=object)
    for key in np.ndindex(array.shape):
        result[key] = Fraction(array[key].item())
    return result


def cuts(rng: Random, n: int, pieces: int = 4) -> list[int]:
    """Borders of unequal pieces of [0, n), at least one of them empty. ``[0, 2, 2, 7]``"""
    inner = sorted(rng.randint(0, n) for _ in range(pieces - 2))
    borders = [0, *inner, n]
    at = rng.randrange(len(borders))
    return [*borders[: at + 1], *borders[at:]]


def bracketing(rng: Random, pieces: int) -> list[int]:
    """A random bracketing of so many pieces, as `redalg.testing.simulate.fold` reads it."""
    return [rng.randrange(left - 1) for left in range(pieces, 1, -1)]


def first_axis(form: Any) -> str:
    return form.plan.axis[0]


def split(spec: Any, axis: str, arrays: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors that have the axis, tensors and scalars that have not)."""
    streamed = {d.name for d in spec.tensors if axis in d.axes}
    return {k: v for k, v in arrays.items() if k in streamed}, {k: v for k, v in arrays.items() if k not in streamed}


def piece(spec: Any, axis: str, arrays: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
    """Positions [start, stop) of every tensor along the axis."""
    where = {d.name: d.axes.index(axis) for d in spec.tensors if axis in d.axes}
    return {k: v[(slice(None),) * where[k] + (slice(start, stop),)] for k, v in arrays.items()}


def pieces(spec: Any, axis: str, arrays: Mapping[str, Any], borders: Sequence[int]) -> Iterator[dict[str, Any]]:
    for start, stop in zip(borders[:-1], borders[1:], strict=True):
        yield piece(spec, axis, arrays, start, stop)


def fold(combine: Callable[[Any, Any], Any], states: Sequence[Any], bracketing: Sequence[int]) -> Any:
    """The states merged in a bracketing: entry k merges the k-th with the next of those that are left.

    Raises: RedalgError for a bracketing that does not fit the number of states.

    >>> fold(lambda a, b: f"({a}{b})", "abcd", [1, 0, 0])
    '((a(bc))d)'
    """
    left = list(states)
    if len(bracketing) != len(left) - 1 or any(not 0 <= k < len(left) - 1 - t for t, k in enumerate(bracketing)):
        why = f"{len(left)} states take {len(left) - 1} merges, the t-th of them at one of {len(left) - 1} - t places"
        fix = "draw it with redalg.testing.bracketings(len(states))"
        raise RedalgError(f"the bracketing {list(bracketing)}", "redalg.testing.fold", why, fix)
    for k in bracketing:
        left[k : k + 2] = [combine(left[k], left[k + 1])]
    return left[0]
