"""A program as Numba functions for CPUs: the printers of CUDA kernels, with one thread that walks every row.

A row that is not too long is lifted as one tile, which stays in the first-level caches; a longer one is folded tile by
tile. Every walk over a tile is a loop over a buffer that LLVM vectorises.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from redalg.graph.node import Node
from redalg.kernels.code.dead_code import called, eliminated
from redalg.kernels.code.fused import fused, once
from redalg.kernels.code.imports import CPU, imports
from redalg.kernels.code.in_turn import in_turn
from redalg.kernels.code.roles import Role
from redalg.kernels.code.text import definitions, finished
from redalg.kernels.cpu import splits
from redalg.kernels.cpu.columns import CpuColumnRows
from redalg.kernels.cpu.elements import CpuElements, CpuFolding
from redalg.kernels.cpu.results import CpuResults
from redalg.kernels.cpu.schedule import (
    BLOCK,
    IN_PLACE,
    LANES,
    ROWS,
    STRIP,
    STRIPE,
    TILE,
    WHOLE,
    CpuModule,
    CpuSchedule,
    Stage,
)
from redalg.kernels.cpu.watch import Watching
from redalg.kernels.ir.program import Param, Pass, Program, result_key
from redalg.kernels.ir.schedule import Layout, Schedule
from redalg.kernels.rows.access import Access
from redalg.kernels.rows.element import Elements
from redalg.kernels.rows.fold import Folding
from redalg.kernels.rows.kernel import Kernel, read
from redalg.source.builder import Builder
from redalg.source.names import result_name
from redalg.source.render import text
from redalg.source.statements import (
    Assign,
    Block,
    Expression,
    Function,
    Statement,
    Table,
    changed,
    expression,
    parameters,
    reads,
    renamed,
)

ENTRY = expression('njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})')
INNER = expression('njit(error_model="numpy", fastmath={"reassoc", "contract"})')  # called by an entry
RANGE = (Param("low", "low", "int64"), Param("high", "high", "int64"))
Prints = Callable[["CpuKernel"], None]


def emit_cpu(program: Program, layout: Layout, schedule: CpuSchedule) -> CpuModule:
    """The functions of a program; each takes the arguments `Module.params` says, then a range of what it counts.

    >>> import redalg as ra
    >>> from redalg.kernels.programs import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> [stage.name for stage in emit_cpu(program, Layout(), CpuSchedule(resident=True)).stages]
    ['y_rows']
    >>> [(stage.name, stage.counts) for stage in emit_cpu(program, Layout(), CpuSchedule(split=True)).stages]
    [('y_fold', 'splits'), ('y_merge', 'rows'), ('y_write', 'splits')]
    """
    printed = [CpuKernel(program, schedule, layout, s, prints) for s, prints in _stages(program, schedule)]
    known = {name: p for kernel in printed for name, p in kernel.access.used.items()}
    for kernel in printed:
        kernel.access.used = known
    made = [kernel.function() for kernel in printed]
    first = printed[0]
    used = reads(made)
    params = read({first.argument(p): p for p in first.params()}, used)
    takes = parameters([*params, "low", "high"])
    entries = [replace(f, parameters=takes) for f in made]
    functions = called({name: f for kernel in printed for name, f in kernel.functions.items()}, used)
    inner = [replace(f, decorators=(INNER,)) for f in functions.values()]
    used = reads([*inner, *made])
    first.buffered = any(kernel.buffered for kernel in printed)
    body = (*definitions(used, first.numbers()), *inner, *entries)
    block = (*imports(used | reads(body), CPU), *body)
    stages = tuple(kernel.stage for kernel in printed)
    return finished(CpuModule("", stages[0].name, (*params.values(), *RANGE), stages=stages), block)


def _stages(program: Program, schedule: CpuSchedule) -> Iterator[tuple[Stage, Prints]]:
    name = result_name(program.name)
    if not schedule.split:
        yield Stage(f"{name}_rows", "rows", _how(schedule)), CpuKernel.write
        return
    for number, p in enumerate(program.passes):
        end = str(number + 1) if number else ""
        yield Stage(f"{name}_fold{end}", "splits", "the state of every split of a row"), splits.fold(p)
        yield Stage(f"{name}_merge{end}", "rows", "the states of a row's splits, merged"), splits.merge(p)
    if program.keeps:
        yield Stage(f"{name}_write", "splits", "what keeps the axis, split by split"), splits.write


def _how(schedule: CpuSchedule) -> str:
    if schedule.across:
        return "rows side by side, walked together"
    return f"a row {'is one tile' if schedule.resident else 'is walked in tiles'}"


class CpuAccess(Access):
    def offset(self, array: str, axes: Iterable[str], wanted: Iterable[str], result: bool = False) -> list[str]:
        """Where all columns of an array lie side by side, their number is their offset."""
        axes, wanted = list(axes), set(wanted)
        columns = {a for a in axes if a in self.program.columns}
        if (result_key(array) if result else array) in self.layout.across and columns and columns <= wanted:
            return [*super().offset(array, axes, wanted - columns, result), "column"]
        return super().offset(array, axes, wanted, result)


class CpuKernel(Kernel):
    """One function of a module."""

    elements: CpuElements
    results: CpuResults
    reused: Mapping[Node, str] = MappingProxyType({})  # values of results that a walk over rows side by side has kept
    buffered = False  # whether elements of a tile are copied
    approximates = False  # all of `redalg.kernels.cpu.math.functions` is as quick as it is exact

    def __init__(self, program: Program, schedule: CpuSchedule, layout: Layout, stage: Stage, prints: Prints) -> None:
        self.cpu, self.stage = schedule, stage
        self.per_column: set[str] = set()  # arrays with an entry for every column
        resident = schedule.resident and not schedule.split and not program.columns
        super().__init__(program, Schedule(threads=1, rows=1, vector=1, tile=TILE, resident=resident), layout)
        self.watching = Watching(self)
        self._where_am_i()
        prints(self)
        stream = () if schedule.single else program.stream
        self.length = " * ".join(self.access.size(a) for a in stream) or "1"
        self.columns = " * ".join(self.access.size(a) for a in program.columns)

    def addresses(self) -> Access:
        return CpuAccess(self.program, self.schedule, self.layout)

    @property
    def origin(self) -> str:
        """What lies before the first column of a block, as a term."""
        return "origin + " if self.cpu.across else ""

    def writer(self) -> CpuResults:
        return CpuResults(self)

    def column_rows(self) -> CpuColumnRows:
        return CpuColumnRows(self)

    def parts(self) -> tuple[type[Elements], type[Folding]]:
        return CpuElements, CpuFolding

    def look(self, p: Pass, names: dict[str, str]) -> None:
        self.watching.state(p, names)

    @property
    def writes(self) -> str | None:
        return self.watching.writes

    def function(self) -> Function:
        """The function without what it does not need; what it takes is still to be said."""
        out = Builder()
        self._take_arguments(out)
        hoisted = _Hoisted("BLOCK" if self.cpu.across else "COLUMNS", self.cpu.whole > WHOLE)
        body = hoisted.block(self.out.body())
        if self.cpu.single:
            body = _one_name(fused(once(body)), hoisted.buffers)
        self.buffered = any("TILE" in made for made in hoisted.buffers.values())
        out(*hoisted.buffers.values())
        if hoisted.heap:
            with out.block(f"if {' or '.join(f'missing({name})' for name in hoisted.heap)}:"):
                out("raise MemoryError")
        each = "job" if self.stage.counts == "splits" else "unit" if self.cpu.across else "row"
        with out.block(f"for {each} in range(low, high):", Role.ROWS):
            out(*body)
        out(*(f"free({name})" for name in hoisted.heap))
        if self.results.streamed:
            out("drained()")
        made = eliminated(out.function(self.stage.name, (), self.about(), text(ENTRY)))
        return in_turn(made, self.real) if self.cpu.resident and not (self.cpu.across or self.cpu.split) else made

    def _take_arguments(self, out: Builder) -> None:
        """Arguments as pointers, and lengths by their names."""
        for p in self.params():
            if p.role in ("operand", "result", "scratch", "marks", "marked"):
                out(f"{self.argument(p)} = pointer_{p.dtype}({self.argument(p)})")
        if self.columns and not self.cpu.across:
            out(f"COLUMNS = {self.columns}")
        out(f"length = {self.length}")
        if self.cpu.split:
            out("splits = (length + span - 1) // span")

    def comment(self, text: str) -> None:
        """Nothing: those comments tell of threads, warps and shared memory."""

    def told(self, value: str, real: str, lane: str) -> str:
        """What threads would tell each other, one thread knows."""
        return value

    def walk(self) -> str:
        return f"; {self.stage.does}"

    def argument(self, p: Param) -> str:
        return p.name if p.role in ("span", "width", "marks", "marked", "spare") else super().argument(p)

    def numbers(self) -> dict[str, object]:
        return {
            "INF": f"{self.real}(np.inf)",
            "NAN": f"{self.real}(np.nan)",
            "PI": f"{self.real}(np.pi)",
            "E": f"{self.real}(np.e)",
            "TILE": self._tile(),
            "BLOCK": BLOCK,
            "STRIP": STRIP,
            "LANES": LANES,
            "STRIPE": STRIPE,
            "THREADS": 1,
            "MISSING": "i64(2**62)",
            **self.watching.numbers(),
        }

    def _tile(self) -> int:
        """Elements of a tile at most. One that is read where it lies takes no room, and each ends in sums over the
        elements of vectors; whether it is copied is known once all functions are printed."""
        if self.cpu.resident:
            return self.cpu.whole
        if self.cpu.across:
            return ROWS * self.cpu.groups
        return TILE if self.buffered else IN_PLACE

    def _where_am_i(self) -> None:
        out, rows = self.out, self.program.rows
        if self.cpu.split:
            self.access.used["span"] = Param("span", "span", "int64")
        unit = "unit" if self.cpu.across else "row"
        if self.stage.counts == "splits":
            if self.cpu.interleaved:
                out(
                    f"rows = {' * '.join(self.access.size(a) for a in rows)}", "row = job % rows", "split = job // rows"
                )
            else:
                out(f"{unit} = job // splits", "split = job % splits")
        if self.cpu.across:
            total = " * ".join(self.access.size(a) for a in self.program.columns)
            self.access.used["width"] = Param("width", "width", "int64")
            out(f"columns = {total}", "blocks = (columns + width - 1) // width", "row = unit // blocks")
            out("origin = unit % blocks * width", "COLUMNS = min(width, columns - origin)")
            if self.cpu.groups > 1:
                out(f"lanes = {self.cpu.groups} * COLUMNS")
        out("t = 0")
        out(*self.access.indices("row", rows))
        self.elements.offsets()
        self.watching.begin()


class _Hoisted:
    """Buffers are made once, before the rows.

    `buffers`: statements that make them, by name; `heap`: names of those the C library has to give back.
    """

    def __init__(self, columns: str, long: bool) -> None:
        self.columns, self.buffers, self.heap = columns, dict[str, str](), list[str]()
        self.large = {"COLUMNS", "TILE"} if long else {"COLUMNS"}  # lengths of buffers for which the stack is too small

    def block(self, block: Block) -> Block:
        """What remains inside the loop over rows."""
        return changed(block, self._taken)

    def _taken(self, s: Statement) -> Block:
        """Nothing for a statement that makes a buffer, which is made elsewhere then."""
        if not isinstance(s, Table):
            return (s,)
        size = text(s.size)
        size = self.columns if size == "COLUMNS" else size
        small = size not in self.large and not isinstance(s.size, ast.BinOp)
        self.buffers[s.name] = f"{s.name} = {'stack' if small else 'heap'}_{s.dtype}({size})"
        self.heap += [] if small or s.name in self.heap else [s.name]
        return ()


def _one_name(block: Block, buffers: Mapping[str, str]) -> Block:
    """The statements where a buffer has one name, and columns, of which there are many, are counted by another: vectors
    begin at lines then (`redalg.kernels.cpu.translate.COLUMN`)."""
    new: dict[str, str | Expression] = {
        text(s.targets[0]): text(s.value)
        for s in block
        if isinstance(s, Assign) and not s.operator and text(s.value) in buffers and len(s.targets) == 1
    }
    kept = tuple(s for s in block if not (isinstance(s, Assign) and text(s.targets[0]) in new))
    return renamed(kept, new | {"m": "each"})
