"""How far a computed result may lie from the definition of a spec, whoever computed it.

The bound is the larger of two running error analyses (`redalg.testing.balls`): of the definition as written, whose sums
may be bracketed in any way, and, where that one is exceeded and a form derives, of the incremental form fed whole and
in short pieces (`redalg.testing.bounds`), which is another algorithm for the same value. Where a comparison, the order
of two positions or a divisor is open within the errors, and where a number that the definition meets on its way to a
value is beyond the largest of the type, nothing can be said: the bound is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redalg.graph.functions import POLES
from redalg.graph.node import Node, walk
from redalg.numeric.definition import reference
from redalg.testing.arithmetic import NARROW
from redalg.testing.balls import Ball, Balls, total
from redalg.testing.bounds import axis_sizes, error_bounds
from redalg.testing.evaluator import Evaluator

Named = dict[str, np.ndarray]
OPEN = Ball(0.0, math.inf)
PIECES = 64  # that a stream is cut into for the analysis of its incremental form


class Watchful(Balls):
    """Balls that admit what they cannot follow: such a value, and whatever depends on it, is open (radius infinite).

    * A finite computation that leaves the type, in some order of its terms or factors. Infinities that the input
      holds, and those of 1/0 and log 0, are values like others.
    * A pole (1/x, log x) within the errors of x. A root there is |a^e - b^e| <= |a - b|^e, e < 1.
    """

    def __init__(self, dtype: str, flush: bool) -> None:
        super().__init__(dtype, flush=flush)
        bits, least, self.largest, _ = NARROW[dtype]
        self.normal = 2.0**least

    def add(self, terms: Sequence[Ball]) -> Ball:
        finite = [t.mid for t in terms if math.isfinite(t.mid)]
        sides = (total([m for m in finite if m > 0]), -total([m for m in finite if m < 0]))
        return self._watched(super().add(terms), terms, max(sides) > self.largest)

    def mul(self, factors: Sequence[Ball]) -> Ball:
        sizes = [abs(f.mid) for f in factors if math.isfinite(f.mid)]
        large, small = math.prod(m for m in sizes if m > 1), math.prod(m for m in sizes if m < 1)
        result = self._watched(super().mul(factors), factors, large > self.largest)
        if not 0 < small < self.normal or not math.isfinite(result.mid):
            return result
        return Ball(result.mid, result.rad + len(sizes) * self.tiny * large)  # underflow before the large factors

    def power(self, base: Ball, exponent: Ball) -> Ball:
        e = exponent.mid
        near_zero = base.rad > 0 and base.low <= 0 <= base.high
        if near_zero and 0 < e < 1 and not exponent.rad and not math.isinf(base.rad):
            mid = max(base.mid, 0.0) ** e
            return Ball(mid, base.rad**e + 4 * self.u * mid + self.tiny)
        if near_zero and (e < 0 or e != e or exponent.rad):
            return OPEN
        pole = base.mid == 0 == base.rad and e < 0
        result = super().power(base, exponent)
        return self._watched(result, (base, exponent), not pole and self._beyond(result, (base, exponent)))

    def unary(self, name: str, a: Ball) -> Ball:
        if name in POLES and a.rad > 0 and a.low <= POLES[name]:
            return OPEN
        result = super().unary(name, a) if not math.isinf(a.rad) else OPEN
        return self._watched(result, (a,), name not in POLES and self._beyond(result, (a,)))

    def cast(self, a: Ball, dtype: str) -> Ball:
        return super().cast(a, dtype) if not math.isinf(a.rad) else OPEN

    def _beyond(self, result: Ball, given: Sequence[Ball]) -> bool:
        return abs(result.mid) > self.largest and all(math.isfinite(a.mid) for a in given)

    def _watched(self, result: Ball, given: Sequence[Ball], beyond: bool) -> Ball:
        return OPEN if beyond or any(math.isinf(a.rad) for a in given) else result


class Careful(Evaluator):
    """An evaluator over balls that admits when the order of two values, and with it a position, is open."""

    def fold(self, kind: str, values: Sequence[Any]) -> Any:
        found = super().fold(kind, values)
        if kind in ("argmax", "argmin") and values and self._open(values, [int(found.mid)]):
            return Ball(found.mid, math.inf)
        return found

    def _topk(self, node: Node, inner: list[dict[str, int]], point: Mapping[str, int]) -> Any:
        found = super()._topk(node, inner, point)
        values = [self.value(node.args[0], p) for p in inner]
        if node.attr.kind == "topk_indices":
            order, rank = self.ranking(values), point[node.attr.extra[1]]
            if rank < len(order) and self._open(values, [order[rank]]):
                return Ball(found.mid, math.inf)
            return found
        return Ball(found.mid, max([found.rad, *(v.rad for v in values if math.isfinite(v.mid))]))

    @staticmethod
    def _open(values: Sequence[Ball], chosen: Sequence[int]) -> bool:
        """Another value, not known to be the same number, lies within the errors of a chosen one."""
        return any(
            values[k].rad + v.rad > 0 and abs(values[k].mid - v.mid) <= values[k].rad + v.rad
            for k in chosen
            for i, v in enumerate(values)
            if i != k
        )


@dataclass(frozen=True)
class Limits:
    """Per output the definition in float64 (exact to 50 digits before) and the bound; infinite where it is open."""

    exact: Named
    bounds: Named


def definition_limits(spec: Any, arrays: Mapping[str, Any], dtype: str, flush: bool = False) -> Limits:
    """The exact value of every output and the bound of its definition, evaluated in arithmetic of the float type."""
    found = reference(spec, exact=True, **arrays)
    named = found if isinstance(found, dict) else {next(iter(spec.outputs)): found}
    exact = {name: _floats(values) for name, values in named.items()}
    sizes = axis_sizes(spec, arrays)
    evaluator = Careful(Watchful(dtype, flush), {k: np.asarray(v) for k, v in arrays.items()}, sizes)
    bounds = {}
    for name, node in spec.outputs.items():
        axes = spec.output_axes[name]
        radii = np.zeros([evaluator.sizes[a] for a in axes])
        for key, ball in evaluator.array(node, axes).items():
            radii[key] = radius_of(ball)
        bounds[name] = radii
    return Limits(exact, bounds)


def unbounded_stages(spec: Any, arrays: Mapping[str, Any], dtype: str, flush: bool = False) -> Named:
    """Per output and place: whether a reduction on the way to it is no finite number, or a divisor of it is 0."""
    sizes = axis_sizes(spec, arrays)
    evaluator = Careful(Watchful(dtype, flush), {k: np.asarray(v) for k, v in arrays.items()}, sizes)
    found = {}
    for name, root in spec.outputs.items():
        axes = tuple(spec.output_axes[name])
        found[name] = np.zeros([evaluator.sizes[a] for a in axes], bool)
        for node in walk(root):
            if node.op == "reduce":
                found[name] |= _places(evaluator, node, node.axes, axes, _unbounded)
            elif node.op == "pow" and node.args[1].op == "const" and node.args[1].attr < 0:
                found[name] |= _places(evaluator, node.args[0], node.axes, axes, _no_divisor)
    return found


def _places(
    evaluator: Careful, value: Node, over: Iterable[str], axes: tuple[str, ...], bad: Callable[[Any], bool]
) -> np.ndarray:
    """Where a value is bad, broadcast over the output's `axes`; along an axis that the output has not, anywhere."""
    own = tuple(sorted(over))
    found = np.zeros([evaluator.sizes[a] for a in own], bool)
    for key, ball in evaluator.array(value, own).items():
        found[key] = bad(ball)
    kept = tuple(a for a in own if a in axes)
    found = np.asarray(found.any(axis=tuple(k for k, a in enumerate(own) if a not in axes)))
    found = found.transpose([kept.index(a) for a in axes if a in kept])
    return found.reshape([evaluator.sizes[a] if a in kept else 1 for a in axes])


def _no_divisor(ball: Any) -> bool:
    return _unbounded(ball) or ball.mid == 0


def _unbounded(ball: Any) -> bool:
    return not isinstance(ball, bool) and (ball is None or not math.isfinite(ball.mid))


def radius_of(ball: Any) -> float:
    if isinstance(ball, bool):
        return 0.0
    return math.inf if ball is None else float(ball.rad)


def _floats(values: np.ndarray) -> np.ndarray:
    result = np.empty(values.shape)
    for key in np.ndindex(*values.shape):
        result[key] = float_of(values[key])
    return result


def float_of(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def form_bounds(form: Any, arrays: Mapping[str, Any], dtype: str) -> Named:
    """The bounds of an incremental form, fed in one piece and in short ones, merged from the left."""
    sizes = axis_sizes(form.spec, arrays)
    n = sizes[form.plan.axis[0]]
    if not n:
        return {name: np.zeros(()) for name in form.spec.outputs}  # no state, no other algorithm
    step = max(1, -(-n // PIECES))
    rounds = "cast_commutes" in form.assumptions
    feeds = ([0, n], [*range(0, n, step), n])
    found = [error_bounds(form.plan, form.spec, arrays, cuts, None, dtype, rounds) for cuts in feeds]
    return {name: np.fmax(found[0][name], found[1][name]) for name in found[0]}
