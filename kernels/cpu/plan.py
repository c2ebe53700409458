"""Passes of CPU kernels: how rows are walked, what is assumed of strides, and the functions that are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from redalg.kernels.cpu.blocks import blocks_of
from redalg.kernels.cpu.kernel import emit_cpu
from redalg.kernels.cpu.layout import across_of, groups_of, interleaved, layout_of
from redalg.kernels.cpu.schedule import (
    KEPT,
    LONG,
    ROWS,
    WHOLE,
    CpuModule,
    CpuSchedule,
    Family,
    keeps_dear,
    near,
    past_caches,
    span_of,
)
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Program
from redalg.kernels.ir.schedule import Layout
from redalg.kernels.lower.draft import program_text

if TYPE_CHECKING:
    from redalg.form import Form


@dataclass(frozen=True)
class Kind:
    """Everything about the numbers of a call that its kernels depend on.

    ``dtypes``: what the dtypes of results follow from (a Python type for a number). ``stored``: what kernels read,
    which is wider where NumPy lacks a format: bfloat16 and float32 that are both read as float32 have kernels of their
    own, since their results differ. ``results``: of a part of a call, the dtypes of its results
    (`redalg.kernels.cpu_partitioned`).
    """

    dtypes: tuple[tuple[str, Any], ...]
    stored: tuple[tuple[str, str], ...] = ()
    results: tuple[tuple[str, str], ...] = ()


@dataclass
class CpuDraft:
    """CPU kernels under way. Each field is written by one pass and read by later ones. `asked`: the schedule's word."""

    form: Form
    kind: Kind
    program: Program
    sizes: Mapping[str, int] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    asked: str | None = None
    across: tuple[str, ...] = ()
    turned: bool = False
    layout: Layout | None = None
    schedule: CpuSchedule | None = None
    module: CpuModule | None = None

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        if self.module is not None:
            return self.module.source
        lines = [f"rows walked together along {', '.join(self.across)}"] if self.across else []
        lines += [repr(x) for x in (self.layout, self.schedule) if x is not None]
        return "\n".join([*lines, program_text(self.program)])


def side_by_side(draft: CpuDraft) -> None:
    """Rows that lie side by side, where walking them together is how the stream is better walked."""
    if draft.asked in (None, Family.COLUMNS, Family.SPLIT):
        draft.across = across_of(draft.program, draft.views)


def turned(draft: CpuDraft) -> None:
    """Short rows that do not lie side by side, where blocks of them are turned so that they do."""
    if draft.across or draft.asked not in (None, Family.COLUMNS) or draft.program.columns:
        return
    blocks = blocks_of(draft.program, draft.sizes, draft.views)
    if blocks is not None:
        draft.across, draft.turned = draft.program.rows, True


def placed(draft: CpuDraft) -> None:
    """What the strides of a call allow a kernel to assume."""
    views = draft.views
    if draft.turned:
        blocks = blocks_of(draft.program, draft.sizes, views)
        assert blocks is not None
        views = blocks.views
    draft.layout = layout_of(draft.program, views)


def scheduled(draft: CpuDraft) -> None:
    """Rows as one tile, in tiles, or cut into splits, by the sizes of a row alone: neither the number of rows nor that
    of threads changes a bit, but how many lie side by side does."""
    program, asked = draft.program, draft.asked
    length = prod(draft.sizes[a] for a in program.stream)
    inside = not draft.across and interleaved(program, draft.views)
    groups = _groups(draft)
    span = span_of(program, draft.sizes, inside, groups)
    cut = asked == Family.SPLIT or not program.passes or length >= 2 * span
    if cut and asked != Family.ROWS:
        draft.schedule = CpuSchedule(split=True, across=draft.across, interleaved=inside, groups=groups)
        return
    if draft.across and length <= (KEPT if draft.turned or keeps_dear(program) else ROWS):
        whole = CpuSchedule(True, across=draft.across, whole=KEPT, turned=draft.turned, single=length == 1)
        draft.schedule = replace(whole, groups=groups)
        return
    whole_row = _longest(program, length, inside)
    resident = bool(program.passes) and length <= whole_row and not program.columns
    whole_row = whole_row if resident else WHOLE
    rows = CpuSchedule(resident=resident, across=draft.across, whole=whole_row, interleaved=inside)
    draft.schedule = replace(rows, groups=groups)


def _groups(draft: CpuDraft) -> int:
    if not draft.across or draft.turned:
        return 1
    return groups_of(draft.program, draft.views, draft.program.columns)


def _longest(program: Program, length: int, inside: bool) -> int:
    """Elements of the longest row that is one tile. Of rows that lie in one another tiles are copies: those that are
    read once stay in the first-level cache."""
    return WHOLE if length <= WHOLE or inside and not program.keeps else LONG // STORAGE[program.real]


def streamed_out(draft: CpuDraft) -> None:
    """Whether results go to memory past the caches, and what is read lies in them."""
    assert draft.schedule is not None
    past, asks = past_caches(draft.program, draft.sizes), bool(draft.across) and not draft.turned
    draft.schedule = replace(draft.schedule, past=past, near=asks and near(draft.program, draft.sizes))


def sourced(draft: CpuDraft) -> None:
    """The functions' source."""
    assert draft.schedule is not None and draft.layout is not None
    draft.module = emit_cpu(draft.program, draft.layout, draft.schedule)
