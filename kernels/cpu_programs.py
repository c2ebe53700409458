"""The passes from a form to functions on the CPU: its programs, and what is printed for arrays that lie as they do.

Loads neither Numba nor what prints for GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.kernels.cpu import plan as cpu
from redalg.kernels.cpu.columns import supported
from redalg.kernels.cpu.plan import CpuDraft, Kind
from redalg.kernels.cpu.schedule import CpuModule, CpuSchedule
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Program
from redalg.kernels.ir.schedule import Layout
from redalg.kernels.lower import program as lowering
from redalg.kernels.lower.draft import ProgramDraft
from redalg.kernels.lower.program import COMPENSATED
from redalg.kernels.lower.watched import watched
from redalg.kernels.programs import (
    COMPENSATE,
    GATHER,
    LOWER,
    Pass,
    lowered_by,
    named,
    rewriting,
    run_passes,
    usual_dtypes,
)

if TYPE_CHECKING:
    from redalg.form import Form


def _columns_of_rows(draft: CpuDraft) -> None:
    """Rows side by side become columns of a program lowered anew, where every fold can be walked so."""
    paired = draft.form.accuracy == COMPENSATED  # sums of such programs are arrays, which are not held as pairs
    found = cpu_program(draft.form, draft.kind, draft.across) if draft.across and not paired else draft.program
    if not (draft.across and paired) and supported(found):
        draft.program = found
    else:
        draft.across, draft.turned = (), False


# --- the lists ------------------------------------------------------------------------------------------------------

STORED = Pass("stored", "operands in the dtypes they are kept in", lowering.stored)
WATCH = Pass("watch", "sums and products that tell whether a row left the range of the reals", rewriting(watched))
CPU_COLUMN_PROGRAM = (*LOWER, STORED, WATCH)
CPU_PROGRAM = (*LOWER, GATHER, STORED, COMPENSATE, WATCH)

CPU = (
    Pass("side by side", "rows that are walked together, where the stream is not contiguous", cpu.side_by_side),
    Pass("turned", "short rows that are walked together once blocks of them are transposed", cpu.turned),
    Pass("columns", "such rows as columns of a program lowered anew: CPU_COLUMN_PROGRAM", _columns_of_rows),
    Pass("layout", "what strides allow a kernel to assume", cpu.placed),
    Pass("schedule", "rows as one tile, in tiles, or in splits", cpu.scheduled),
    Pass("past caches", "whether results go past the caches", cpu.streamed_out),
    Pass("print", "the functions' source", cpu.sourced),
)
NAMES = tuple(dict.fromkeys(p.name for passes in (CPU_PROGRAM, CPU) for p in passes))


# --- programs --------------------------------------------------------------------------------------------------------


def cpu_program(form: Form, kind: Kind, across: tuple[str, ...] = (), dump_after: str | None = None) -> Program:
    """The program of calls of a kind on the CPU; `across`: rows that become columns.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["softmax"])
    >>> made = cpu_program(form, Kind((("x", "bfloat16"),), (("x", "float32"),)))
    >>> made.operands[0].dtype, made.results[0].dtype
    ('float32', 'bfloat16')
    """
    draft = ProgramDraft(form, dict(kind.dtypes), across, dict(kind.stored))
    made = lowered_by(draft, CPU_COLUMN_PROGRAM if across else CPU_PROGRAM, named(dump_after, NAMES))
    if not kind.results:
        return made
    dtypes = dict(kind.results)
    return replace(made, results=tuple(replace(r, dtype=dtypes.get(r.name, r.dtype)) for r in made.results))


# --- functions -------------------------------------------------------------------------------------------------------


def plan_cpu(
    form: Form,
    kind: Kind,
    program: Program,
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    asked: str | None = None,
    dump_after: str | None = None,
) -> CpuDraft:
    """What runs where arrays lie like this, not yet printed: rows side by side become columns, long rows are split."""
    draft = CpuDraft(form, kind, program, sizes, views, asked)
    found = run_passes(CPU, draft, named(dump_after, NAMES), until="print")
    assert isinstance(found, CpuDraft)
    return found


def print_cpu(draft: CpuDraft, dump_after: str | None = None) -> CpuModule:
    """The functions of a plan."""
    module = run_passes(CPU, draft, named(dump_after, NAMES), since="print").module
    assert isinstance(module, CpuModule)
    return module


def typical_cpu(form: Form) -> CpuModule:
    """The functions for float64 arrays of moderate size."""
    kind = Kind(tuple(usual_dtypes(form, "float64").items()))
    schedule = CpuSchedule(resident=True)
    return print_cpu(CpuDraft(form, kind, cpu_program(form, kind), layout=Layout(), schedule=schedule))
