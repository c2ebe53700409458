"""Reductions down columns in two steps, over stacked columns that begin at sectors of memory.

`faster` compares them with one kernel, for arrays of L lines of C columns without gaps: read as L/M lines of M·C
columns, they begin at multiples of 32 bytes, and few columns become many (`redalg.kernels.lower.stacked` has the
programs). The kernels of one call: states of the lines that are left over and states of all others, side by side; one
state for each column; results that every element has, of both kinds of lines again, or line by line where they read
numbers of a line. What one leaves for the next lies in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import VECTOR_BYTES, View
from redalg.kernels.ir.program import STORAGE, Operand, Program, Result, result_key
from redalg.kernels.ir.schedule import ALONE, SECTOR, Neighbours
from redalg.kernels.launch.planned import Planned, Portion, Seen
from redalg.kernels.lower.draft import Call
from redalg.kernels.lower.stacked import Stacked, stacked
from redalg.kernels.rows.plan import RowsDraft, sizes_of
from redalg.kernels.schedule.choose import micro, size
from redalg.kernels.schedule.target import DEPENDENT, EARLIER

Rows = Callable[[RowsDraft], Planned]  # `redalg.kernels.pipeline.ROWS`, run

LEAST = 64  # lines of stacked columns, at least: states take a small part of what the array does
LEAST_BYTES = 1 << 22  # of an array: below, five launches cost a program more than they save the device
WIDE = 1 << 9  # bytes of a line at least: so many lie side by side in a load of a warp

# How often what the model says of one kernel counts beside what it says of two steps, by 38 cells that were measured
# both ways (H200, 2026-11-29; benchmarks/records/gpu_random_before_after.md): of results of elements of 16 bits one
# kernel takes 0.41 to 3.2 times the prediction, 1.1 in the median, of float32 0.85 to 1.5 where lines begin inside of
# sectors and 0.77 to 1.03 elsewhere, of results of columns 0.67 to 1.2; two steps 0.73 to 1.2, 0.98 in the median.
NARROW, CUT, OTHER = 1.25, 1.1, 0.8


@dataclass(frozen=True)
class Lines:
    """An array of lines without gaps: how many, of how many columns; `stacked` of them are read as one."""

    lines: int
    columns: int
    stacked: int

    @property
    def whole(self) -> int:
        """Lines of stacked columns."""
        return self.lines // self.stacked

    @property
    def width(self) -> int:
        """Columns of such a line."""
        return self.stacked * self.columns

    @property
    def left(self) -> int:
        """Lines that are left over."""
        return self.lines % self.stacked

    @property
    def entries(self) -> int:
        """States of each column."""
        return self.stacked + (self.left > 0)


def faster(call: Call, program: Program, usual: Planned, rows: Rows) -> Planned:
    """The kernels in two steps where these are predicted to be faster than `usual`, the plan of one kernel."""
    lines = lines_of(call, program, usual.results)
    if lines is None:
        return usual
    wanted = usual.choice.seconds * _counted(program, lines)
    if wanted <= _least(call, program, lines):
        return usual
    found = stacked(program)
    made = None if isinstance(found, str) else in_two_steps(call, program, found, lines, rows, usual.results)
    if made is None or made.choice.seconds >= wanted:
        return usual
    reason = f"by one kernel: {micro(usual.choice.seconds)}, with {usual.choice.schedule}"
    choice = replace(made.choice, reasons=(*made.choice.reasons, reason), moved=usual.choice.moved)
    return replace(made, choice=choice)


def _counted(program: Program, lines: Lines) -> float:
    """How often the prediction of one kernel counts."""
    sizes = _sizes(program)
    if not program.keeps:
        return OTHER
    cut = any(lines.columns * size % SECTOR for size in sizes)
    return NARROW if max(sizes) <= 2 else CUT if cut else OTHER


def _sizes(program: Program) -> list[int]:
    """Bytes of an element of each array that is read."""
    whole = {*program.stream, *program.rows}
    return [STORAGE[o.dtype] for o in program.operands if {*o.axes} == whole]


def _least(call: Call, program: Program, lines: Lines) -> float:
    """Seconds that two steps take at least: what is read of elements, once more for results of elements, and these."""
    sizes = _sizes(program)
    kept = [STORAGE[r.dtype] for r in program.results if r.keeps]
    moved = lines.lines * lines.columns * (sum(sizes) * (1 + bool(kept)) + sum(kept))
    return moved / call.target.reachable + (1 + bool(kept)) * (call.target.launch - EARLIER)


def lines_of(call: Call, program: Program, results: Mapping[str, View]) -> Lines | None:
    """How many lines are to be read as one, where all elements lie in lines of columns without gaps. `results`: how
    those of elements lie that are not contiguous."""
    if call.deterministic or call.schedule is not None or not len(program.rows) == len(program.stream) == 1:
        return None
    sizes = sizes_of(program, call.views)
    lines, columns = (sizes[axes[0]] for axes in (program.stream, program.rows))
    widths = _sizes(program)
    if columns < 2 or lines * columns * min(widths, default=0) < LEAST_BYTES or not _in_lines(call, program, results):
        return None
    count = max(SECTOR // gcd(SECTOR, columns * size) for size in widths)
    while count * columns * min(widths) < WIDE:
        count *= 2
    return Lines(lines, columns, count) if lines >= LEAST * count else None


def _in_lines(call: Call, program: Program, results: Mapping[str, View]) -> bool:
    """Whether all elements, and results of them, lie in lines without gaps, from a multiple of 16 bytes on."""
    sizes, (column,) = sizes_of(program, call.views), program.rows
    steps = {program.stream[0]: sizes[column], column: 1}
    lying = [(o.axes, call.views[o.name]) for o in program.operands if {*o.axes} == {*steps}]
    for r in (r for r in program.results if r.keeps):
        lying.append((r.axes, results.get(r.name, View.contiguous(tuple(sizes[a] for a in r.axes)))))
    return all(
        {*axes} == {*steps} and view.align == VECTOR_BYTES and view.strides == tuple(steps[a] for a in axes)
        for axes, view in lying
    )


def in_two_steps(
    call: Call, program: Program, found: Stacked, lines: Lines, rows: Rows, results: Mapping[str, View]
) -> Planned | None:
    """The kernels in two steps; None where one of them has no schedule. `results`: how those lie that are not
    contiguous."""
    kernels = _Kernels(call, found, lines, rows, results)
    try:
        made = list(kernels.every())
    except RedalgError:
        return None
    *before, last = made
    hidden = sum(p.geometry.early for p in made)
    seconds = sum(p.choice.seconds for p in made) - hidden * call.target.launch - (len(before) - hidden) * EARLIER
    scratch = kernels.scratch()
    taken = sum(view.elements * STORAGE[o.dtype] for o, view in scratch.values())
    reasons = (
        f"in two steps: {lines.stacked} lines of {lines.columns} columns are read as one, and {lines.entries} states "
        f"of a column ({size(taken)}) are merged by a second kernel: predicted {micro(seconds)}.",
        *(f"  {', '.join(r.name for r in p.program.results)}: {p.choice.reasons[0]}" for p in made),
    )
    whole = replace(last.program, results=program.results, operands=program.operands)
    sizes = {**last.sizes, **sizes_of(program, call.views), found.axis: lines.entries}
    choice = replace(last.choice, seconds=seconds, reasons=reasons, moved=sum(p.choice.moved for p in made))
    return replace(
        last, program=whole, choice=choice, sizes=sizes, before=tuple(before), scratch=scratch, results=results, over={}
    )


@dataclass(frozen=True)
class _Kernels:
    """The kernels of a call, in their order."""

    call: Call
    found: Stacked
    lines: Lines
    rows: Rows
    results: Mapping[str, View]

    @property
    def copies(self) -> int:
        """How often what results of elements read of a column is written: for lines of stacked columns."""
        return self.lines.stacked if self.found.flat else 1

    def scratch(self) -> dict[str, tuple[Operand, View]]:
        """What one kernel leaves for the next."""
        lines, found = self.lines, self.found
        table = View((lines.entries, self.copies, lines.columns), (lines.columns, 0, 1))
        handed = View.contiguous((self.copies * lines.columns,))
        return {t.name: (t, table) for t in found.tables} | {o.name: (o, handed) for o in found.handed}

    def every(self) -> Iterator[Planned]:
        found = self.found
        yield from self._over_lines(found.states, self._states)
        yield self._made(found.merged, {}, {})
        if found.mapped is not None and found.flat:
            yield from self._over_lines(found.mapped, self._elements)
        elif found.mapped is not None:  # line by line, since numbers of a line are read
            yield self._made(found.mapped, {}, self.results)

    def _over_lines(self, program: Program, make: Callable[[Program, Lines, Neighbours], Planned]) -> Iterator[Planned]:
        """Of the lines that are left, and of those that are stacked, side by side."""
        lines = self.lines
        overlaps = lines.left > 0 and self.call.target.cc >= DEPENDENT
        if lines.left:
            yield make(program, replace(lines, lines=lines.left, stacked=1), Neighbours(False, overlaps))
        yield make(program, lines, Neighbours(overlaps, False))

    def _states(self, program: Program, own: Lines, neighbours: Neighbours) -> Planned:
        """The kernel that makes states of some lines; of those that are left, behind the states of all others."""
        made = self._seen(program, own, neighbours)
        place = Portion(0 if own is self.lines else self.lines.stacked * own.columns, View.contiguous((own.width,)))
        return self._with(made, {result_key(r.name): place for r in program.results}, {})

    def _elements(self, program: Program, own: Lines, neighbours: Neighbours) -> Planned:
        """The kernel that writes results of some lines; those that are left are one."""
        if own is not self.lines:
            own = replace(own, stacked=own.lines)
        results = {r.name: self._portion(r, own) for r in program.results}
        made = self._seen(program, own, neighbours, {n: part.view for n, part in results.items()})
        (stream,), (column,) = program.rows, program.stream
        lengths = {stream: own.whole, column: own.width}
        return self._with(made, {result_key(n): part for n, part in results.items()}, lengths)

    def _portion(self, x: Operand | Result, own: Lines) -> Portion:
        """An array of elements as some lines."""
        (stream,), (column,) = self.found.states.stream, self.found.states.rows
        lengths, steps = {stream: own.whole, column: own.width}, {stream: own.width, column: 1}
        return Portion(self._first(own), View(tuple(lengths[a] for a in x.axes), tuple(steps[a] for a in x.axes)))

    def _first(self, own: Lines) -> int:
        """The first element of some lines: of all, or of those that are left."""
        return 0 if own.lines == self.lines.lines else (self.lines.lines - self.lines.left) * own.columns

    def _seen(
        self, program: Program, own: Lines, neighbours: Neighbours, results: Mapping[str, View] | None = None
    ) -> Planned:
        """A kernel that sees arrays of elements as some lines, stacked or not."""
        whole, arrays, views = {*program.stream, *program.rows}, {}, dict[str, View]()
        for o in program.operands:
            if {*o.axes} == whole:
                arrays[o.name] = self._portion(o, own)
                views[o.name] = arrays[o.name].view
            elif o.axes == self.found.states.rows:
                views[o.name] = View.contiguous((own.width,))
        program = replace(program, operands=tuple(o for o in program.operands if o.number or o.name in views))
        return self._with(self._made(program, views, results or {}, neighbours), arrays, {})

    @staticmethod
    def _with(made: Planned, arrays: Mapping[str, Portion], lengths: Mapping[str, int]) -> Planned:
        seen = made.kernel.seen
        own = Seen({**seen.arrays, **arrays}, {**seen.lengths, **lengths})
        return replace(made, kernel=made.kernel._replace(seen=own))

    def _made(
        self, program: Program, more: Mapping[str, View], results: Mapping[str, View], neighbours: Neighbours = ALONE
    ) -> Planned:
        """A kernel of rows for a program of this call, beside arrays of its scratch."""
        names, scratch = {o.name for o in program.operands}, {n: v for n, (_, v) in self.scratch().items()}
        views = {n: v for n, v in {**self.call.views, **scratch, **more}.items() if n in names}
        call, sizes = replace(self.call, views=views), sizes_of(program, views)
        return self.rows(RowsDraft(call, program, sizes, results, neighbours=neighbours))


__all__ = ["Lines", "faster", "in_two_steps", "lines_of"]
