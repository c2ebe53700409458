"""One call of a compiled CPU kernel: its arguments, and who computes which rows and pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from redalg.kernels.cpu_build import Function
from redalg.kernels.cpu_schedule import BLOCK, CpuModule, CpuSchedule, span_of
from redalg.kernels.cpu_threads import share, threads
from redalg.kernels.emit_numba import RANGE
from redalg.kernels.ir import Program, result_key

SMALL = 1 << 15  # elements below which one thread is quicker than telling others
ROWS_EACH = 2  # rows for every thread from which on a row is computed by one thread, whatever its length


@dataclass(frozen=True)
class Compiled:
    program: Program
    schedule: CpuSchedule
    module: CpuModule
    functions: tuple[Function, ...]


def walk(compiled: Compiled, held: Mapping[str, Any], made: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    """Fill the arrays `made` from those `held`."""
    program, stages = compiled.program, compiled.module.stages
    lanes = prod(sizes[a] for a in program.lanes)
    units = prod(sizes[a] for a in program.rows) * (-(-lanes // BLOCK) if compiled.schedule.across else 1)
    length = prod(sizes[a] for a in program.stream)
    span = span_of(program, sizes) if compiled.schedule.split else length
    pieces = -(-length // span)
    work = prod(sizes[a] for a in program.rows) * lanes * length
    workers = threads() if work >= SMALL else 1
    width = BLOCK if compiled.schedule.across else lanes
    tables = {
        p.name: np.empty(units * pieces * p.size * (width if p.dim else 1), p.dtype)
        for p in compiled.module.params
        if p.role == "scratch"
    }
    values = _values(compiled, {**held, **{result_key(n): x for n, x in made.items()}}, sizes, span, tables)
    calls = [(f, pieces if s.counts == "pieces" else 1) for f, s in zip(compiled.functions, stages, strict=True)]

    def whole_rows(low: int, high: int) -> None:
        """Row by row, so that what is read again is still in the caches."""
        step = 1 if len(calls) > 1 and pieces > 1 else high - low
        for row in range(low, high, step):
            for function, per_row in calls:
                function(*values, row * per_row, (row + step) * per_row)

    if pieces == 1 or workers == 1 or units >= ROWS_EACH * workers:
        share(units, workers, whole_rows)
        return
    for function, per_row in calls:

        def part(low: int, high: int, function: Function = function) -> None:
            function(*values, low, high)

        share(units * per_row, workers, part)


def _values(
    compiled: Compiled, arrays: Mapping[str, Any], sizes: Mapping[str, int], span: int, tables: Mapping[str, Any]
) -> list[Any]:
    """The arguments of every function of the module, up to its range. Results go by their keys."""
    values: list[Any] = []
    for p in compiled.module.params[: -len(RANGE)]:
        if p.role == "number":
            values.append(arrays[p.name])
        elif p.role == "size":
            values.append(sizes[p.name])
        elif p.role == "span":
            values.append(span)
        elif p.role in ("stride", "stride_out"):
            values.append(steps_of(arrays[p.name if p.role == "stride" else result_key(p.name)])[p.dim])
        else:
            name = result_key(p.name) if p.role == "result" else p.name
            values.append((tables if p.role == "scratch" else arrays)[name].__array_interface__["data"][0])
    return values


def steps_of(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)
