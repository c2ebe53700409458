"""A program as Numba functions for CPUs: the printers of CUDA kernels, with one thread that walks every row.

A row that is not too long is lifted as one tile, which stays in the first-level caches; a longer one is folded tile by
tile. Every walk over a tile is a loop over a buffer that LLVM vectorises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from redalg.kernels.cpu_elements import CpuElements, CpuFolding
from redalg.kernels.cpu_lanes import CpuLaneRows
from redalg.kernels.cpu_schedule import BLOCK, ROWS, STRIP, TILE, WHOLE, CpuModule, CpuSchedule, Stage
from redalg.kernels.cuda_access import Access
from redalg.kernels.cuda_element import Elements
from redalg.kernels.cuda_fold import Folding
from redalg.kernels.cuda_text import local
from redalg.kernels.emit_cuda import Kernel
from redalg.kernels.ir import Param, Program
from redalg.kernels.schedule import Layout, Schedule

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
    helpers = {name: _as_njit(text) for kernel in printed for name, text in kernel.functions.items()}
    parts = [*helpers.values(), *texts]
    whole = "\n\n\n".join([printed[0].header("\n".join(parts)), *parts])
    stages = tuple(kernel.stage for kernel in printed)
    return CpuModule(whole + "\n", stages[0].name, (*printed[0].params(), *RANGE), stages)


def _stages(program: Program, schedule: CpuSchedule) -> Iterator[tuple[Stage, Prints]]:
    from redalg.kernels.cpu_split import fold, merge, write

    name = local(program.name)
    if not schedule.split:
        yield Stage(f"{name}_rows", "rows"), CpuKernel.write
        return
    for number, p in enumerate(program.passes):
        end = str(number + 1) if number else ""
        yield Stage(f"{name}_fold{end}", "pieces"), fold(p)
        yield Stage(f"{name}_merge{end}", "rows"), merge(p)
    if program.keeps:
        yield Stage(f"{name}_write", "pieces"), write


class CpuAccess(Access):
    def offset(self, array: str, axes: Iterable[str], wanted: Iterable[str], result: bool = False) -> list[str]:
        """Where all lanes of an array lie side by side, their number is their offset."""
        axes, wanted = list(axes), set(wanted)
        lanes = {a for a in axes if a in self.program.lanes}
        if array in self.layout.across and lanes and lanes <= wanted:
            return [*super().offset(array, axes, wanted - lanes, result), "lane"]
        return super().offset(array, axes, wanted, result)


class CpuKernel(Kernel):
    """One function of a module."""

    packs = False

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

    def lane_rows(self) -> CpuLaneRows:
        return CpuLaneRows(self)

    def parts(self) -> tuple[type[Elements], type[Folding]]:
        return CpuElements, CpuFolding

    def function(self) -> str:
        """The text of the function, once it is known which arguments all functions of the module take."""
        params = self.params()
        head = [f"def {self.stage.name}({', '.join([*map(self.argument, params), 'low', 'high'])}):"]
        head.append(f'    """{self.program.title}."""')
        for p in params:
            if p.role in ("operand", "result", "scratch") and re.search(rf"\b{self.argument(p)}, ", self.out.text()):
                head.append(f"    {self.argument(p)} = pointer_{p.dtype}({self.argument(p)})")
        head += [f"    LANES = {self.lanes}"] if self.lanes and not self.cpu.across else []
        body, buffers, heap = _hoisted(self.out.lines, "BLOCK" if self.cpu.across else "LANES")
        head += [f"    length = {self.length}"]
        head += ["    pieces = (length + span - 1) // span"] if self.cpu.split else []
        head += [*buffers, *_unless_missing(heap)]
        each = "job" if self.stage.counts == "pieces" else "unit" if self.cpu.across else "row"
        head += [f"    for {each} in range(low, high):", *body, *(f"    free({name})" for name in heap)]
        return "\n".join([FLAGS, *head])

    def argument(self, p: Param) -> str:
        return p.name if p.role == "span" else super().argument(p)

    def header(self, body: str) -> str:
        lines = ["import numpy as np", "from numba import njit", ""]
        memory = sorted(set(re.findall(r"\b((?:load|store|pointer|stack|heap)_\w+|free|missing|prefetch)\(", body)))
        maths = sorted(set(re.findall(r"\b([a-z]\w*_f(?:32|64))\(", body)) - set(memory) - set(SHUFFLES))
        for module, names in (("cpu_memory", memory), ("cpu_math", maths)):
            if names:
                lines.append(f"from redalg.kernels.{module} import {', '.join(names)}")
        lines += ["", "f32, f64, i32, i64 = np.float32, np.float64, np.int32, np.int64"]
        tile = WHOLE if self.schedule.resident else ROWS if self.cpu.across else TILE
        constants = {
            "INF": f"{self.real}(np.inf)", "NAN": f"{self.real}(np.nan)", "PI": f"{self.real}(np.pi)",
            "E": f"{self.real}(np.e)", "TILE": tile, "BLOCK": BLOCK, "STRIP": STRIP, "THREADS": 1,
            "MISSING": "i64(2**62)",
        }  # fmt: skip
        lines += [f"{k} = {v}" for k, v in constants.items() if re.search(rf"\b{k}\b", body)]
        return "\n".join(lines)

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
            out(f"i_{axis} = {rest} % {self.access.size(axis)}", f"rest = {rest} // {self.access.size(axis)}")
            rest = "rest"
        if rows:
            out(f"i_{rows[0]} = {rest}")
        self.elements.offsets()


SHUFFLES = frozenset({"shfl_idx_f32", "shfl_idx_f64"})
_BUFFER = re.compile(r"^( *)(\w+) = cuda\.local\.array\((\w+), np\.(.*)\)$")


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
