"""``schedule="measure"`` on a CPU: the ways to walk the rows, timed on the arrays of the first call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redalg.kernels.code.processor import processor
from redalg.kernels.cpu.threads import threads
from redalg.kernels.cpu.walk import Compiled, Prepared, steps_of
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.store import Disk
from redalg.kernels.schedule.tuning import Measured, Store, Time, Way, digest, measure, race


def seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def fastest(
    ways: Sequence[str],
    build: Callable[[Way], Compiled],
    arrays: Mapping[str, Any],
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    store: Store | None = None,
    clock: Callable[[Callable[[], Any]], float] = seconds,
) -> tuple[Compiled, Measured]:
    """The fastest of the ways on these arrays, by results in arrays of its own; the first is the one by sizes alone."""
    built: dict[Way, Compiled] = {}

    def runnable(way: Way) -> Callable[[], None]:
        made = built[way] = build(way)
        keys = [r.key for r in made.program.results]
        own = {**arrays, **{key: np.empty_like(arrays[key]) for key in keys}}
        seen = {**views, **{key: View(own[key].shape, steps_of(own[key])) for key in keys}}
        prepared, given = Prepared(made, sizes, seen, list(own)), list(own.values())

        def run() -> None:
            prepared(given)

        return run

    def timed(several: Sequence[Way]) -> list[Time]:
        return race([runnable(w) for w in several], clock)

    first = built[ways[0]] = build(ways[0])
    key = digest([first.program, sorted(sizes.items()), views, threads(), *processor()])
    found = measure(ways, timed, key, store or Disk(), lambda way: way in ways)
    return built.get(found.way) or build(found.way), found
