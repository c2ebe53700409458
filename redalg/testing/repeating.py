"""Long streams of few different elements: their definition, and its bound, cost a fold over those that differ.

Equal elements have equal values of every body that reads no position, so that a sum is one of so many times each value,
and an extremum is one of few. Positions are those of the first element of each kind.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redalg.graph.node import Node, walk
from redalg.testing.arithmetic import Digits
from redalg.testing.balls import Ball, total
from redalg.testing.bounds import axis_sizes
from redalg.testing.evaluator import Evaluator
from redalg.testing.limits import OPEN, Careful, Limits, Watchful, float_of, radius_of

DIFFERENT = 16  # elements of a stream
FIRST_ORDER = 2.0**-7  # what roundings may add up to, for a bound that leaves out their products


@dataclass(frozen=True, eq=False)
class Repeats:
    """Which element stands at each position along an axis."""

    axis: str
    which: np.ndarray

    @staticmethod
    def drawn(axis: str, length: int, rng: np.random.Generator) -> Repeats:
        """Half of the elements come in the first half alone, the others in the second; one is the last alone."""
        half = DIFFERENT // 2
        early = rng.integers(0, half, length // 2)
        late = rng.integers(half, DIFFERENT - 1, length - length // 2 - 1)
        return Repeats(axis, np.concatenate([early, late, [DIFFERENT - 1]]))

    @property
    def turned(self) -> Repeats:
        return Repeats(self.axis, self.which[::-1])

    def until(self, length: int) -> Repeats:
        return Repeats(self.axis, self.which[:length])

    @cached_property
    def _found(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _, first, place, counts = np.unique(self.which, return_index=True, return_inverse=True, return_counts=True)
        return first, place, counts

    @cached_property
    def first(self) -> tuple[int, ...]:
        """The first positions of the elements that there are."""
        return tuple(sorted(self._found[0].tolist()))

    @cached_property
    def counts(self) -> dict[int, int]:
        """How often the element comes that is first at this position."""
        return dict(zip(self._found[0].tolist(), self._found[2].tolist(), strict=True))

    def spread(self, values: np.ndarray, along: int) -> np.ndarray:
        """Values of the elements in order of `first`, at every position."""
        rank = np.argsort(np.argsort(self._found[0]))
        return np.take(values, rank[self._found[1]], axis=along)

    def is_along(self, axis: str) -> bool:
        """d~1, d~2 are copies of the axis d."""
        return axis.partition("~")[0] == self.axis


def repeatable(spec: Any, axis: str) -> bool:
    """Whether nothing but the elements decides along an axis, and they are folded by what is known here."""
    if any(d.array for d in spec.tensors):
        return False
    return not any(_by_place(n, axis) for n in walk(*spec.outputs.values()))


def _by_place(n: Node, axis: str) -> bool:
    if n.op == "index":
        return bool(n.attr.partition("~")[0] == axis)
    along = n.op == "reduce" and axis in {a.partition("~")[0] for a in n.attr.axes}
    return along and (n.attr.kind.startswith("topk") or n.attr.kind == "monoid")


class Repeating(Evaluator, ABC):
    """An evaluator that visits the first of equal elements, and folds it as often as it comes."""

    repeats: Repeats

    def positions(self, axis: str) -> Iterable[int]:
        return self.repeats.first if self.repeats.is_along(axis) else super().positions(axis)

    def _reduce(self, node: Node, point: Mapping[str, int]) -> Any:
        along = [a for a in node.attr.axes if self.repeats.is_along(a)]
        if not along:
            return super()._reduce(node, point)
        places = list(self.points(node.attr.axes))
        values = [self.value(node.args[0], {**point, **p}) for p in places]
        times = [math.prod(self.repeats.counts[p[a]] for a in along) for p in places]
        kind = node.attr.kind
        if kind == "sum":
            return self._sum(values, times)
        if kind == "prod":
            return self.arithmetic.mul([self._power(v, t) for v, t in zip(values, times, strict=True)])
        found = self.fold(kind, values)
        if kind not in ("argmax", "argmin"):
            return found
        return self._placed(found, values, times, [self._flat(node.attr.axes, p) for p in places])

    def _flat(self, axes: Sequence[str], place: Mapping[str, int]) -> int:
        """A position of a composite axis, row-major."""
        found = 0
        for a in axes:
            found = found * self.size(a) + place[a]
        return found

    @abstractmethod
    def _sum(self, values: Sequence[Any], times: Sequence[int]) -> Any:
        """Each value so many times, added up."""

    @abstractmethod
    def _power(self, value: Any, times: int) -> Any:
        """A value multiplied with itself so many times."""

    @abstractmethod
    def _placed(self, found: Any, values: Sequence[Any], times: Sequence[int], places: Sequence[int]) -> Any:
        """The position of what an extremum found among the values that differ."""


class RepeatingDigits(Repeating):
    """The definition, to 60 digits."""

    arithmetic: Digits

    def _sum(self, values: Sequence[Any], times: Sequence[int]) -> Any:
        ar = self.arithmetic
        return ar.add([ar.mul([v, ar.number(t)]) for v, t in zip(values, times, strict=True)])

    def _power(self, value: Any, times: int) -> Any:
        return self.arithmetic.wide(value) ** times

    def _placed(self, found: Any, values: Sequence[Any], times: Sequence[int], places: Sequence[int]) -> Any:
        return self.arithmetic.number(places[int(found)])


class RepeatingBalls(Repeating, Careful):
    """Its running error analysis: open where roundings are too many for one of first order."""

    def _sum(self, values: Sequence[Any], times: Sequence[int]) -> Any:
        pairs = [(v, t) for v, t in zip(values, times, strict=True) if not v.mid == 0 == v.rad]
        if not pairs:
            return self.arithmetic.number(0)
        return pairs[0][0] if len(pairs) == 1 == pairs[0][1] else self._rounded_sum(pairs)

    def _rounded_sum(self, pairs: Sequence[tuple[Ball, int]]) -> Ball:
        ar: Any = self.arithmetic
        mid = total([t * v.mid for v, t in pairs])
        if not math.isfinite(mid) and not all(math.isfinite(v.mid) for v, _ in pairs):
            return Ball(mid, 0.0)
        largest = max(sum(t * abs(v.mid) for v, t in pairs if (v.mid > 0) is up) for up in (True, False))
        radius, size = total([t * v.rad for v, t in pairs]), sum(t * (abs(v.mid) + v.rad) for v, t in pairs)
        roundings = sum(t for _, t in pairs) - 1
        if math.isinf(radius) or largest > ar.largest or roundings * ar.u > FIRST_ORDER:
            return OPEN
        return Ball(mid, radius + (roundings * ar.u + 2.0**-52) * size)

    def _power(self, value: Any, times: int) -> Any:
        ar: Any = self.arithmetic
        return value if times == 1 else OPEN if times * ar.u > FIRST_ORDER else ar.power(value, ar.number(times))

    def _placed(self, found: Any, values: Sequence[Any], times: Sequence[int], places: Sequence[int]) -> Any:
        at = int(found.mid)
        tied = values[at].rad > 0 and times[at] > 1  # equal elements need not be rounded alike
        return Ball(float(places[at]), math.inf if tied else found.rad)


def repeated_limits(spec: Any, arrays: Mapping[str, Any], dtype: str, flush: bool, repeats: Repeats) -> Limits:
    """What `redalg.testing.limits.definition_limits` gives, for a stream of few different elements."""
    sizes, env = axis_sizes(spec, arrays), {k: np.asarray(v) for k, v in arrays.items()}
    exact: dict[str, np.ndarray] = {}
    bounds: dict[str, np.ndarray] = {}
    for of, arithmetic, value, into in (
        (RepeatingDigits, Digits(), float_of, exact),
        (RepeatingBalls, Watchful(dtype, flush), radius_of, bounds),
    ):
        evaluator = of(arithmetic, env, sizes)
        evaluator.repeats = repeats
        for name, node in spec.outputs.items():
            axes = spec.output_axes[name]
            few = [len(list(evaluator.positions(a))) for a in axes]
            found = np.reshape([value(v) for v in evaluator.array(node, axes).values()], few).astype(float)
            into[name] = repeats.spread(found, axes.index(repeats.axis)) if repeats.axis in axes else found
    return Limits(exact, bounds)
