"""A program as Numba functions for CPUs: the printers of CUDA kernels, with one thread that walks every row.

A row that is not too long is lifted as one tile, which stays in the first-level caches; a longer one is folded tile by
tile. Every walk over a tile is a loop over a buffer that LLVM vectorises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from redalg.kernels.cpu_elements import CpuElements, CpuFolding
from redalg.kernels.cpu_lanes import CpuLaneRows
from redalg.kernels.cpu_results import CpuResults
from redalg.kernels.cpu_schedule import BLOCK, ROWS, STRIP, STRIPE, TILE, WHOLE, CpuModule, CpuSchedule, Stage
from redalg.kernels.cuda_access import Access
from redalg.kernels.cuda_element import Elements
from redalg.kernels.cuda_fold import Folding
from redalg.kernels.cuda_imports import CPU, imports
from redalg.kernels.cuda_text import definitions, settled
from redalg.kernels.emit_cuda import Kernel, read
from redalg.kernels.ir import Param, Program, result_key
from redalg.kernels.schedule import Layout, Schedule
from redalg.kernels.sweeping import called, names_read, swept
from redalg.naming import axis_name, result_name

FLAGS = '@njit(nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})'
RANGE = (Param("low", "low", "int64"), Param("high", "high", "int64"))
Prints = Callable[["CpuKernel"], None]


def emit_cpu(program: Program, layout: Layout, schedule: CpuSchedule) -> CpuModule:
    """The functions of a program; each takes the arguments `Module.params` says, then a range of what it counts.

    >>> import redalg as ra
    >>> from redalg.kernels.lower import lower
    >>> program = lower(ra.derive_incremental(ra.catalog["softmax"]), {"x": "float32"})
    >>> [stage.name for stage in emit_cpu(program, Layout(), CpuSchedule(resident=True)).stages]
    ['y_rows']
    >>> [(stage.name, stage.counts) for stage in emit_cpu(program, Layout(), CpuSchedule(split=True)).stages]
    [('y_fold', 'pieces'), ('y_merge', 'rows'), ('y_write', 'pieces')]
    """
    printed = [CpuKernel(program, schedule, layout, s, prints) for s, prints in _stages(program, schedule)]
    used = {name: p for kernel in printed for name, p in kernel.access.used.items()}
    for kernel in printed:
        kernel.access.used = used
    texts = [kernel.function() for kernel in printed]
    names = frozenset[str]().union(*(found for _, found in texts))
    first = printed[0]
    params = read({first.argument(p): p for p in first.params()}, names)
    functions = called({name: text for kernel in printed for name, text in kernel.functions.items()}, names)
    names = names.union(*map(names_read, functions.values()))
    bodies = [_headed(kernel.stage.name, params, text) for kernel, (text, _) in zip(printed, texts, strict=True)]
    whole = "\n\n\n".join([first.header(names), *map(_as_njit, functions.values()), *bodies]) + "\n"
    stages = tuple(kernel.stage for kernel in printed)
    return settled(CpuModule(whole, stages[0].name, (*params.values(), *RANGE), stages=stages))


def _headed(name: str, params: Iterable[str], text: str) -> str:
    """A function with its arguments, instead of its first line."""
    return "\n".join([FLAGS, f"def {name}({', '.join([*params, 'low', 'high'])}):", text.split("\n", 1)[1].rstrip()])


def _stages(program: Program, schedule: CpuSchedule) -> Iterator[tuple[Stage, Prints]]:
    from redalg.kernels.cpu_split import fold, merge, write

    name = result_name(program.name)
    if not schedule.split:
        yield Stage(f"{name}_rows", "rows", _how(schedule)), CpuKernel.write
        return
    for number, p in enumerate(program.passes):
        end = str(number + 1) if number else ""
        yield Stage(f"{name}_fold{end}", "pieces", "the state of every piece of a row"), fold(p)
        yield Stage(f"{name}_merge{end}", "rows", "the states of a row's pieces, merged"), merge(p)
    if program.keeps:
        yield Stage(f"{name}_write", "pieces", "what keeps the axis, piece by piece"), write


def _how(schedule: CpuSchedule) -> str:
    if schedule.across:
        return "rows side by side, walked together"
    return f"a row {'is one tile' if schedule.resident else 'is walked in tiles'}"


class CpuAccess(Access):
    def offset(self, array: str, axes: Iterable[str], wanted: Iterable[str], result: bool = False) -> list[str]:
        """Where all lanes of an array lie side by side, their number is their offset."""
        axes, wanted = list(axes), set(wanted)
        lanes = {a for a in axes if a in self.program.lanes}
        if (result_key(array) if result else array) in self.layout.across and lanes and lanes <= wanted:
            return [*super().offset(array, axes, wanted - lanes, result), "lane"]
        return super().offset(array, axes, wanted, result)


class CpuKernel(Kernel):
    """One function of a module."""

    elements: CpuElements
    results: CpuResults
    packs = False
    approximates = False  # all of `redalg.kernels.cpu_math` is as quick as it is exact

    def __init__(self, program: Program, schedule: CpuSchedule, layout: Layout, stage: Stage, prints: Prints) -> None:
        self.cpu, self.stage = schedule, stage
        resident = schedule.resident and not schedule.split and not program.lanes
        super().__init__(program, Schedule(threads=1, rows=1, vector=1, tile=TILE, resident=resident), layout)
        self.out.depth = 2
        self._where_am_i()
        prints(self)
        self.length = " * ".join(self.access.size(a) for a in program.stream) or "1"
        self.lanes = " * ".join(self.access.size(a) for a in program.lanes)

    def addresses(self) -> Access:
        return CpuAccess(self.program, self.schedule, self.layout)

    @property
    def origin(self) -> str:
        """What lies before the first lane of a block, as a term."""
        return "origin + " if self.cpu.across else ""

    def writer(self) -> CpuResults:
        return CpuResults(self)

    def lane_rows(self) -> CpuLaneRows:
        return CpuLaneRows(self)

    def parts(self) -> tuple[type[Elements], type[Folding]]:
        return CpuElements, CpuFolding

    def function(self) -> tuple[str, frozenset[str]]:
        """The text of the function without what it does not need, and the names it reads."""
        head = [f"def {self.stage.name}():", *self.about()]
        pointers = {self.argument(p): p.dtype for p in self.params() if p.role in ("operand", "result", "scratch")}
        head += [f"    {name} = pointer_{dtype}({name})" for name, dtype in pointers.items()]
        head += [f"    LANES = {self.lanes}"] if self.lanes and not self.cpu.across else []
        body, buffers, heap = _hoisted(self.out.lines, "BLOCK" if self.cpu.across else "LANES")
        head += [f"    length = {self.length}"]
        head += ["    pieces = (length + span - 1) // span"] if self.cpu.split else []
        head += [*buffers, *_unless_missing(heap)]
        each = "job" if self.stage.counts == "pieces" else "unit" if self.cpu.across else "row"
        head += [f"    for {each} in range(low, high):", *body, *(f"    free({name})" for name in heap)]
        head += ["    drained()"] if self.results.streamed else []
        return swept("\n".join([*head, ""]))

    def walk(self) -> str:
        return f"; {self.stage.does}"

    def argument(self, p: Param) -> str:
        return p.name if p.role == "span" else super().argument(p)

    def header(self, names: frozenset[str]) -> str:
        lines = ["import numpy as np", "from numba import njit", "", *imports(names, CPU), ""]
        tile = WHOLE if self.schedule.resident else ROWS if self.cpu.across else TILE
        constants = {
            "INF": f"{self.real}(np.inf)", "NAN": f"{self.real}(np.nan)", "PI": f"{self.real}(np.pi)",
            "E": f"{self.real}(np.e)", "TILE": tile, "BLOCK": BLOCK, "STRIP": STRIP, "STRIPE": STRIPE,
            "THREADS": 1, "MISSING": "i64(2**62)",
        }  # fmt: skip
        return "\n".join([*lines, *definitions(names, constants)])

    def _where_am_i(self) -> None:
        out, rows = self.out, self.program.rows
        if self.cpu.split:
            self.access.used["span"] = Param("span", "span", "int64")
        unit = "unit" if self.cpu.across else "row"
        if self.stage.counts == "pieces":
            out(f"{unit} = job // pieces", "piece = job % pieces")
        if self.cpu.across:
            total = " * ".join(self.access.size(a) for a in self.program.lanes)
            out(f"lanes = {total}", "blocks = (lanes + BLOCK - 1) // BLOCK", "row = unit // blocks")
            out("origin = unit % blocks * BLOCK", "LANES = min(BLOCK, lanes - origin)")
        out("t = 0")
        rest = "row"
        for axis in reversed(rows[1:]):
            size = self.access.size(axis)
            out(f"i_{axis_name(axis)} = {rest} % {size}", f"rest = {rest} // {size}")
            rest = "rest"
        if rows:
            out(f"i_{axis_name(rows[0])} = {rest}")
        self.elements.offsets()


_BUFFER = re.compile(r"^( *)(\w+) = cuda\.local\.array\((\w+), (?:np\.)?(.*)\)$")


def _hoisted(lines: list[str], lanes: str) -> tuple[list[str], list[str], list[str]]:
    """Buffers are made once, before the rows; and what threads would tell each other, one thread knows.

    The lines that remain, those that make buffers, and the names of buffers the C library has to give back.
    """
    body, buffers, heap = [], {}, []
    for line in lines:
        found = _BUFFER.match(line)
        if found:
            _, name, size, dtype = found.groups()
            size = lanes if size == "LANES" else size
            small = size != "LANES"
            buffers[name] = f"    {name} = {'stack' if small else 'heap'}_{dtype.strip('_')}({size})"
            heap += [] if small or name in heap else [name]
        else:
            body.append(re.sub(r"shfl_idx_\w+\((.*), owner\)$", r"\1", line))
    return body, list(buffers.values()), heap


def _unless_missing(heap: list[str]) -> list[str]:
    if not heap:
        return []
    return [f"    if {' or '.join(f'missing({name})' for name in heap)}:", "        raise MemoryError"]


def _as_njit(function: str) -> str:
    return function.replace("@cuda.jit(device=True)", FLAGS.replace("nogil=True, ", "")).rstrip()
