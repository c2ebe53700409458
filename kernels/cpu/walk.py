"""One call of a compiled CPU kernel: its arguments, and who computes which rows and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from redalg.kernels.cpu.build import Function
from redalg.kernels.cpu.kernel import RANGE
from redalg.kernels.cpu.schedule import BLOCK, CpuModule, CpuSchedule, span_of
from redalg.kernels.cpu.threads import share, threads
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Program, result_key

SMALL = 1 << 15  # elements below which one thread is quicker than telling others
ROWS_EACH = 2  # rows for every thread from which on a row is computed by one thread, whatever its length


@dataclass(frozen=True)
class Compiled:
    program: Program
    schedule: CpuSchedule
    module: CpuModule
    functions: tuple[Function, ...]


class Prepared:
    """Everything of a call that follows from shapes and strides: `views` by name, those of results by their keys."""

    def __init__(self, compiled: Compiled, sizes: Mapping[str, int], views: Mapping[str, View]) -> None:
        self.compiled = compiled
        program, split = compiled.program, compiled.schedule.split
        axes = program.rows, program.columns, program.stream
        rows, columns, length = (prod([sizes[a] for a in each]) for each in axes)
        across = compiled.schedule.across
        self._units, width = (rows * -(-columns // BLOCK), BLOCK) if across else (rows, columns)
        span = span_of(program, sizes) if split else length
        self._splits = -(-length // span)
        self._elements = rows * columns * length
        stages = zip(compiled.functions, compiled.module.stages, strict=True)
        self._calls = [(f, self._splits if s.counts == "splits" else 1) for f, s in stages]
        self._values, self._places = self._arguments(sizes, views, span)
        self._tables = self._rooms(self._units * self._splits, width)

    def __call__(self, arrays: Mapping[str, Any]) -> None:
        """Fill the results from the other arrays and numbers."""
        values = self._values.copy()
        for at, name in self._places:
            x = arrays[name]
            values[at] = x.__array_interface__["data"][0] if isinstance(x, np.ndarray) else x
        rooms = [(at, np.empty(size, dtype)) for at, size, dtype in self._tables]
        for at, buffer in rooms:
            values[at] = buffer.__array_interface__["data"][0]
        if self._elements < SMALL:
            self._rows(values, 0, self._units)
        else:
            self._shared(values, threads())

    def _rows(self, values: list[Any], low: int, high: int) -> None:
        """Row by row, so that what is read again is still in the caches."""
        step = 1 if len(self._calls) > 1 and self._splits > 1 else high - low
        for row in range(low, high, step):
            for function, per_row in self._calls:
                function(*values, row * per_row, (row + step) * per_row)

    def _shared(self, values: list[Any], workers: int) -> None:
        units = self._units
        if self._splits == 1 or workers == 1 or units >= ROWS_EACH * workers:
            share(units, workers, lambda low, high: self._rows(values, low, high))
            return
        for function, per_row in self._calls:

            def part(low: int, high: int, function: Function = function) -> None:
                function(*values, low, high)

            share(units * per_row, workers, part)

    def _rooms(self, splits: int, width: int) -> list[tuple[int, int, str]]:
        """Room for the states of so many splits, some of them arrays of this width: which argument, size and dtype."""
        scratch = [(at, p) for at, p in enumerate(self.compiled.module.params) if p.role == "scratch"]
        return [(at, splits * p.size * (width if p.dim else 1), p.dtype) for at, p in scratch]

    def _arguments(
        self, sizes: Mapping[str, int], views: Mapping[str, View], span: int
    ) -> tuple[list[Any], list[tuple[int, str]]]:
        """The arguments of every function of the module, up to its range, and which of them a call fills in."""
        values: list[Any] = []
        places: list[tuple[int, str]] = []
        for at, p in enumerate(self.compiled.module.params[: -len(RANGE)]):
            name = result_key(p.name) if p.role in ("result", "stride_out") else p.name
            if p.role == "size":
                values.append(sizes[name])
            elif p.role == "span":
                values.append(span)
            elif p.role in ("stride", "stride_out"):
                values.append(views[name].strides[p.dim])
            else:
                values.append(0)
                places += [(at, name)] if p.role != "scratch" else []
        return values, places


def steps_of(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)
