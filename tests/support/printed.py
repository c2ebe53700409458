"""Printed kernels of the catalog, for tests that read them: CPU, and CUDA under a schedule of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import redalg as ra
from redalg.errors import RedalgError
from redalg.kernels.cpu import kernel as emit_numba
from redalg.kernels.cpu.schedule import CpuSchedule
from redalg.kernels.ir.program import Module, Program
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.rows import kernel as emit_cuda
from redalg.kernels.schedule.families import candidates_of
from tests.support.kernel_cases import SPECS, case_of, program

NAMES = [*ra.catalog, *SPECS]
SHAPES = [(7, 4096, "C"), (500, 100, "F")]  # rows, length of the stream, order of the arrays


class Printed(NamedTuple):
    label: str
    module: Module


def kind(s: Schedule) -> tuple[object, ...]:
    """Schedules of one kind are printed alike, numbers apart."""
    return s.family, s.resident, s.vector > 1, s.exact


def cpu(p: Program) -> Iterator[tuple[str, Module]]:
    """The row as one tile, walked in tiles, or split; operands with stride 1 along the stream, or any stride."""
    unit = frozenset(o.name for o in p.operands if p.stream and o.axes[-1:] == p.stream[-1:])
    for schedule in (CpuSchedule(resident=True), CpuSchedule(), CpuSchedule(split=True)):
        for layout in (Layout(unit), Layout(flat=False)):
            label = f"cpu, {schedule}, unit stride: {', '.join(sorted(layout.unit))}"
            yield label, emit_numba.emit_cpu(p, layout, schedule)


def cuda(p: Program, turn: int = 0) -> Iterator[tuple[str, Module]]:
    """The first schedule of every kind for a few shapes: of every second kind, others for the next turn."""
    for rows, length, order in SHAPES:
        _, walk, case = case_of(p, rows, length, order=order)
        kinds = {kind(s): s for s in reversed(candidates_of(case))}
        for s in list(kinds.values())[turn % 2 :: 2] if len(kinds) > 1 else kinds.values():
            yield f"cuda, {rows}x{length} in {order} order, {s!r}", emit_cuda.emit(p, s, walk.layout(s.vector))


def modules(p: Program, turn: int) -> Iterator[tuple[str, Module]]:
    """Everything that is printed for one program; what a target refuses is left out."""
    yield from cpu(p)
    try:
        yield from cuda(p, turn)
    except RedalgError as refusal:
        assert "a CUDA kernel" in refusal.where


@cache
def printed(name: str, dtype: str = "float32") -> tuple[Printed, ...]:
    return tuple(Printed(*made) for made in modules(program(name, dtype), NAMES.index(name)))
