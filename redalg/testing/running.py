"""Feed a form's accumulator in pieces, in any bracketing and (where legal) any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from redalg.graph.node import walk
from redalg.testing.bounds import axis_sizes
from redalg.testing.sampling import first_axis, pieces, split

Results = dict[str, np.ndarray]


def named(form: Any, result: Any) -> Results:
    """A result as a dict, whether the form has one output or several."""
    return dict(result) if isinstance(result, Mapping) else {next(iter(form.spec.outputs)): result}


def needs_positions(form: Any) -> bool:
    """True if a body reads the position along the axis: such pieces must say where they start."""
    return any(n.op == "index" and n.attr in form.plan.axis for o in form.spec.outputs.values() for n in walk(o))


def streamed(form: Any, arrays: Mapping[str, Any], borders: Sequence[int], placed: bool | None = None) -> Results:
    """One accumulator updated with one piece after the other, through all passes."""
    axis = first_axis(form)
    moving, bound = split(form.spec, axis, arrays)
    start = 0 if (needs_positions(form) if placed is None else placed) else None
    total = form.accumulator(start=start, **bound)
    return _finish(form, total, moving, lambda acc: _update_all(form, acc, moving, borders))


def _update_all(form: Any, acc: Any, moving: Mapping[str, Any], borders: Sequence[int]) -> Any:
    for part in pieces(form.spec, first_axis(form), moving, borders):
        acc.update(**part)
    return acc


def merged(form: Any, arrays: Mapping[str, Any], borders: Sequence[int], tree: Sequence[int]) -> Results:
    """One accumulator per piece, neighbours merged in the bracketing `tree`. Single-pass forms."""
    states = _states(form, arrays, borders, needs_positions(form))
    for k in tree:
        states[k].merge(states.pop(k + 1))
    return _finish(form, states[0], split(form.spec, first_axis(form), arrays)[0], lambda acc: acc)


def shuffled(form: Any, arrays: Mapping[str, Any], borders: Sequence[int], rng: Random) -> Results:
    """Placed accumulators merged in random order."""
    states = _states(form, arrays, borders, True)
    rng.shuffle(states)
    while len(states) > 1:
        a, b = states.pop(), states.pop()
        a.merge(b)
        states.insert(rng.randrange(len(states) + 1), a)
    return _finish(form, states[0], split(form.spec, first_axis(form), arrays)[0], lambda acc: acc)


def _states(form: Any, arrays: Mapping[str, Any], borders: Sequence[int], placed: bool) -> list[Any]:
    axis = first_axis(form)
    moving, bound = split(form.spec, axis, arrays)
    row = math.prod(axis_sizes(form.spec, arrays)[a] for a in form.plan.axis[1:])
    states = []
    for start, part in zip(borders, pieces(form.spec, axis, moving, borders), strict=False):
        states.append(form.accumulator(start=start * row if placed else None, **bound))
        states[-1].update(**part)
    return states


def _finish(form: Any, acc: Any, moving: Mapping[str, Any], feed: Callable[[Any], Any]) -> Results:
    """Later passes, the statistics, and the outputs that keep the axis."""
    feed(acc)
    for _ in range(form.passes.statistics - 1):
        acc = acc.next_pass() or acc
        feed(acc)
    kept = [o.name for o in form.plan.outputs if o.keeps_axis]
    statistics = {} if len(kept) == len(form.plan.outputs) else named(form, acc.result())
    if kept:
        applied = acc.apply(**moving, **({"start": 0} if needs_positions(form) else {}))
        statistics |= {k: v for k, v in named(form, applied).items() if k in kept}
    return statistics
