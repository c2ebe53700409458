"""Rows of an operand that appear while a simulated product runs (`gemm_simulated`), part by part, at any time.

`prologue_simulated` runs what writes them. A part's counter may have all counts but one before its rows are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from redalg.kernels.planning import Planned
from redalg.kernels.tensor_gemm_prologue import PARTS

Thread = Iterator[Callable[[], bool]]


def first_rows(planned: Planned) -> int:
    """Rows that a warpgroup prepares at a time."""
    found = re.search(r"^FIRST_ROWS = (\d+)$", planned.module.source, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


class Parts:
    """What a simulated launch knows of them: the counters, and what is still to happen to each part."""

    planned: Planned
    arrays: dict[str, Any]

    def __init__(self) -> None:
        self.finished = np.zeros(PARTS + 1, np.int32)
        self.unfinished: list[Callable[[], None]] = []
        if self.planned.inside:
            self._prepare_later()

    def _prepare_later(self) -> None:
        """Rows of scratch that appear during the launch."""
        teams, made = self.planned.geometry.threads // 128, self.planned.inside[0]
        workers = self.planned.geometry.blocks * teams
        rows = self.planned.fixed["row_groups"] * first_rows(self.planned)
        span = -(-self.planned.fixed["row_groups"] // (workers * PARTS)) * workers * first_rows(self.planned)
        ordered = not {"j"} & {*made.program.rows}  # of tests, the axis of the sum
        later = {n: self.arrays[n] for n in (r.name for r in made.program.results) if n in self.planned.scratch}
        for n, x in later.items():
            self.arrays[n] = np.full(x.shape, np.nan, x.dtype)

        def finish(part: int) -> None:
            assert self.finished[part] == workers - 1
            for n, x in later.items():
                size = self.planned.scratch[n][1].shape[-1] if x.ndim > 1 else 1
                low, high = part * span * size, (part + 1) * span * size
                if not ordered:  # some of every row is missing until the last part
                    low, high = (0, x.size) if (part + 1) * span >= rows else (0, 0)
                self.arrays[n].reshape(-1)[low:high] = x.reshape(-1)[low:high]
            self.finished[part] += 1

        def count(part: int) -> None:
            self.finished[part] = workers - 1

        assert span * PARTS >= rows
        for part in range(PARTS):
            self.unfinished += [lambda part=part: count(part), lambda part=part: finish(part)]

    # --- counters ----------------------------------------------------------------------------------------------------

    def count_wait(self, counters: np.ndarray, index: int, least: int) -> Thread:
        assert 0 <= index < PARTS
        yield lambda: counters[index] >= least

    def count_last(self, counters: np.ndarray, index: int) -> int:
        counters[index] += 1
        return int(counters[index]) - 1

    def store_int32(self, counters: np.ndarray, index: int, value: int) -> None:
        assert counters is self.finished
        while self.unfinished:  # what nobody waited for has long been counted when a launch ends
            self.unfinished.pop(0)()
        counters[index] = value
