"""``schedule="measure"`` on a CPU: the ways to walk the rows, timed on the arrays of the first call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redalg.kernels.cpu_build import processor
from redalg.kernels.cpu_threads import threads
from redalg.kernels.cpu_walk import Compiled, walk
from redalg.kernels.layouts import View
from redalg.kernels.store import Disk
from redalg.kernels.tuning import Measured, Store, Time, Way, digest, measure, race


def seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def fastest(
    ways: Sequence[str],
    build: Callable[[Way], Compiled],
    held: Mapping[str, Any],
    made: Mapping[str, Any],
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    store: Store | None = None,
    clock: Callable[[Callable[[], Any]], float] = seconds,
) -> tuple[Compiled, Measured]:
    """The fastest of the ways on these arrays, by results in arrays of its own; the first is the one by sizes alone."""
    scratch = {name: np.empty_like(x) for name, x in made.items()}
    built: dict[Way, Compiled] = {}

    def runnable(way: Way) -> Callable[[], None]:
        built[way] = build(way)
        return lambda: walk(built[way], held, scratch, sizes)

    def timed(several: Sequence[Way]) -> list[Time]:
        return race([runnable(w) for w in several], clock)

    first = built[ways[0]] = build(ways[0])
    key = digest([first.program, sorted(sizes.items()), views, threads(), *processor()])
    found = measure(ways, timed, key, store or Disk(), lambda way: way in ways)
    return built.get(found.way) or build(found.way), found
