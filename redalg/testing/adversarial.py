"""Input that breaks kernels, for any spec: ties, offsets, zeros, subnormals, huge numbers, infinities, NaN, masks.

Every case is a function of the spec, the lengths, the kind and a seed. Hypothesis draws the seeds of cases, and makes
smaller what fails (`redalg.testing.reducing`).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.graph.intervals import admits, is_interval, moved_array
from redalg.graph.node import outermost_reductions
from redalg.proofs.audits.drawing import drawn, strategy
from redalg.testing.arithmetic import NARROW
from redalg.testing.repeating import DIFFERENT, Repeats, repeatable

KINDS = ("ordinary", "ties", "offset", "zeros", "subnormals", "huge", "infinities", "nan", "masked")
LENGTHS = (0, 1, 2, 3, 17)  # of the first axis of outermost reductions
FURTHER = (1, 3)  # of further ones
LONG = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513, 1000, 1023, 1025, 2049)
FAR = (4097, 32769, 65537)  # of few different elements
USUAL = (*LONG, *FAR)
MANY = (5, 33, 130)  # short rows
Arrays = dict[str, Any]
Draw = Callable[[Mapping[str, int], int], Mapping[str, Any]]


@dataclass(frozen=True)
class Case:
    """Arguments of one call: what they were made for, the lengths of the axes, and which elements are equal."""

    kind: str
    sizes: Mapping[str, int]
    arrays: Arrays
    repeats: Repeats | None = None

    def __str__(self) -> str:
        return f"{self.kind}, {', '.join(f'{a}={n}' for a, n in self.sizes.items())}"


def special_values(kind: str, dtype: Any) -> tuple[float, ...]:
    """The special numbers of one kind in a float type; none for the kinds that are patterns of ordinary ones."""
    bits, least, largest, _ = NARROW.get(np.dtype(dtype).name, NARROW["float64"])
    subnormal = 2.0 ** (least - bits + 1)
    return {
        "zeros": (0.0, -0.0),
        "subnormals": (subnormal, -subnormal, 3 * subnormal, -3 * subnormal),
        "huge": (largest, -largest, largest / 2, -largest / 4, largest**0.625, -(largest**0.625)),
        "infinities": (np.inf, -np.inf),
        "nan": (np.nan,),
    }.get(kind, ())


def admitted(value: float, domain: frozenset[str]) -> bool:
    """Whether a declared domain has the number (NaN is in every domain of floats)."""
    if {"integer", "bool"} & domain:
        return False
    positive, nonnegative = "positive" in domain, bool({"nonnegative"} & domain)
    if is_interval(domain) and value == value and not admits(domain, value):
        return False
    return bool(value != value or not (positive or nonnegative) or value > 0 or (value == 0 and not positive))


def cases(
    spec: Any,
    dtype: Any,
    kinds: Sequence[str],
    sizes: Mapping[str, Sequence[int]],
    seed: int,
    draw: Draw | None = None,
) -> Iterator[Case]:
    """Cases of every kind for every combination of lengths; an empty axis gets ordinary ones only."""
    axes = list(dict.fromkeys(a for d in spec.tensors for a in d.axes))
    usual = usual_lengths(spec, axes) | dict(sizes)
    wanted = [
        (kind, dict(zip(axes, lengths, strict=True)))
        for lengths in itertools.product(*(usual[a] for a in axes))
        for kind in (kinds if all(lengths) else kinds[:1])
    ]
    yield from _drawn(spec, dtype, wanted, seed, draw)


def long_cases(
    spec: Any,
    dtype: Any,
    lengths: Sequence[int],
    sizes: Mapping[str, Sequence[int]],
    seed: int,
    draw: Draw | None = None,
) -> Iterator[Case]:
    """One ordinary case for every length of the first axis of the outermost reductions, all other axes of length 1;
    then, unless lengths are chosen, short rows, many of them along each other axis.

    What is longer than the longest of `LONG` has few different elements, forwards and backwards; where these do not
    decide alone (`repeatable`), the usual ones among such lengths are left out.
    """
    axes = list(dict.fromkeys(a for d in spec.tensors for a in d.axes))
    streamed = next((a for a in axes if a in outermost(spec)), None)
    found = {a: sizes[a][0] if a in sizes else 1 for a in axes}
    if streamed is None or not lengths:
        return
    others = [a for a in axes if a != streamed and a not in sizes] if streamed not in sizes else []
    yield from _drawn(spec, dtype, _walked_through(spec, streamed, others, lengths, found), seed, draw)
    for axis, far in _repeated(spec, streamed, others, lengths, found):
        yield from _repeating(spec, dtype, axis, far, seed, draw)


def _walked_through(
    spec: Any, streamed: str, others: Sequence[str], lengths: Sequence[int], found: Mapping[str, int]
) -> list[tuple[str, dict[str, int]]]:
    left_out = _far(spec, streamed, lengths).union(FAR if tuple(lengths) == USUAL else ())
    wanted = [("ordinary", {**found, streamed: n}) for n in lengths if n not in left_out]
    return wanted + [("ordinary", {**found, streamed: 3, a: n}) for a in others for n in MANY]


def _repeated(
    spec: Any, streamed: str, others: Sequence[str], lengths: Sequence[int], found: Mapping[str, int]
) -> list[tuple[str, dict[str, int]]]:
    rows = others if tuple(lengths) == USUAL else ()
    wanted = [(streamed, {**found, streamed: n}) for n in sorted(_far(spec, streamed, lengths))]
    return wanted + [(a, {**found, streamed: 3, a: n}) for a in rows for n in _far(spec, a, FAR[-1:])]


def _far(spec: Any, axis: str, lengths: Sequence[int]) -> set[int]:
    """The lengths of an axis that are tried with few different elements."""
    return {n for n in lengths if n > LONG[-1]} if repeatable(spec, axis) else set()


def _repeating(
    spec: Any, dtype: Any, axis: str, sizes: Mapping[str, int], seed: int, draw: Draw | None
) -> Iterator[Case]:
    """Few different elements along an axis, forwards and backwards."""
    length = sizes[axis]
    (case,) = _drawn(spec, dtype, [("ordinary", {**sizes, axis: DIFFERENT})], seed + length, draw)
    repeats = Repeats.drawn(axis, length, np.random.default_rng(zlib.crc32(f"{seed}:{axis}:{length}".encode())))
    for order in (repeats, repeats.turned):
        yield Case("ordinary", sizes, taken(spec, case.arrays, axis, order.which), order)


def taken(spec: Any, arrays: Arrays, axis: str, places: Any) -> Arrays:
    """The arguments at these positions of an axis."""
    along = {d.name: d.axes.index(axis) for d in spec.tensors if axis in d.axes}
    return {name: np.take(x, places, axis=along[name]) if name in along else x for name, x in arrays.items()}


def nearly(arrays: Arrays, others: Arrays) -> Iterator[Arrays]:
    """The same arguments but for one of them, which begins and ends as it did and has the same numbers in it."""
    for name, x in arrays.items():
        other = others[name]
        if isinstance(x, np.ndarray) and x.size > 3:
            other = x.copy()
            other.flat[1:-1] = x.ravel()[-2:0:-1]
        yield arrays | {name: other}


def _drawn(
    spec: Any, dtype: Any, wanted: Sequence[tuple[str, dict[str, int]]], seed: int, draw: Draw | None
) -> Iterator[Case]:
    """One case of every kind and lengths: Hypothesis draws what NumPy's generator is seeded with."""
    if not wanted:
        return
    entropy = drawn(strategy(lambda below: below(2**32)), len(wanted), f"{seed}")
    for (kind, sizes), number in zip(wanted, entropy, strict=True):
        yield Case(kind, sizes, make(spec, sizes, dtype, kind, number, draw))


def usual_lengths(spec: Any, axes: Sequence[str]) -> dict[str, Sequence[int]]:
    """Many lengths of one reduced axis, few of the others, so that the number of cases stays small."""
    reduced = [a for a in axes if a in outermost(spec)]
    other = 3 if len(axes) - len(reduced) <= 3 else 2
    return {a: LENGTHS if a in reduced[:1] else FURTHER if a in reduced else (other,) for a in axes}


def outermost(spec: Any) -> set[str]:
    """The axes of the outermost reductions of the outputs."""
    return {a for n in outermost_reductions(*spec.outputs.values()) for a in n.attr.axes}


def make(spec: Any, sizes: Mapping[str, int], dtype: Any, kind: str, seed: int, draw: Draw | None = None) -> Arrays:
    """The arguments of one case; scalars are Python numbers."""
    word = f"{seed}:{kind}:{sorted(sizes.items())}"
    rng = np.random.default_rng(zlib.crc32(word.encode()))
    given = draw(sizes, int(rng.integers(2**31))) if draw is not None else {}
    masks = any("bool" in d.domain for d in spec.tensors)
    arrays: Arrays = {}
    for decl in spec.tensors:
        shape = tuple(sizes[a] for a in decl.axes)
        array = _ordinary(decl, shape, dtype, kind, rng, given.get(decl.name))
        array = _spoilt(array, decl, kind, masks, rng)
        arrays[decl.name] = array if decl.axes else array.item()
    return arrays


def _ordinary(decl: Any, shape: tuple[int, ...], dtype: Any, kind: str, rng: Any, given: Any) -> np.ndarray:
    """Numbers of the order of 1; with `given`, those."""
    if given is not None:
        array = np.asarray(given)
        return array.astype(dtype) if array.dtype.kind == "f" and decl.axes else np.array(array)
    if "bool" in decl.domain:
        return np.asarray(rng.random(shape) < 0.7)
    positive = bool({"positive", "nonnegative"} & decl.domain)
    if "integer" in decl.domain:
        return moved_array(decl.domain, np.asarray(rng.integers(1 if positive else -4, 6, shape)))
    if kind == "ties":
        drawn = rng.choice([0.5, 1.0, 2.0] if positive else [-1.0, 0.0, 1.0], shape)
    else:
        drawn = rng.uniform(0.25, 2.0, shape) if positive else rng.standard_normal(shape)
    if is_interval(decl.domain):
        return moved_array(decl.domain, np.asarray(drawn)).astype(dtype)
    if kind == "offset":
        drawn = drawn + 2.0 ** (NARROW.get(np.dtype(dtype).name, NARROW["float64"])[0] // 2)
    return np.asarray(drawn).astype(dtype)


def _spoilt(array: np.ndarray, decl: Any, kind: str, masks: bool, rng: Any) -> np.ndarray:
    """Special values in about a third of the places, at least one; masks that leave nothing of a row, or all of it."""
    if kind == "masked":
        return _masked(array, decl, masks, rng)
    values = [v for v in special_values(kind, array.dtype) if admitted(v, decl.domain)]
    if not values or not array.size or array.dtype.kind in "biu" or not decl.axes:
        return array
    places = rng.random(array.shape) < 0.3
    places.flat[int(rng.integers(array.size))] = True
    return np.asarray(np.where(places, rng.choice(values, array.shape).astype(array.dtype), array))


def _masked(array: np.ndarray, decl: Any, masks: bool, rng: Any) -> np.ndarray:
    """First rows: nothing left, everything left. Where no tensor is a mask, -inf in the place of an element is one."""
    if not decl.axes or not array.size:
        return array
    hidden = rng.random(array.shape) < 0.5
    rows = hidden.reshape(-1, array.shape[-1])
    rows[0] = True
    if len(rows) > 1:
        rows[1] = False
    hidden = rows.reshape(array.shape)
    if "bool" in decl.domain:
        return np.asarray(~hidden)
    if masks or array.dtype.kind in "biu" or not admitted(-np.inf, decl.domain):
        return array
    return np.asarray(np.where(hidden, array.dtype.type(-np.inf), array))
