"""Results whose rows lie in memory one after another, from operands whose rows lie side by side.

A column schedule reads such operands with neighbouring threads in neighbouring rows; results written in the same order
would take a sector of memory for every element. They go through a table in shared memory instead: a line for every
row of the block, padded to an odd length so that neither way meets a bank twice, as long as a tile of all threads. The
threads of the block meet, write the lines out with neighbouring threads at neighbouring elements, and meet again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.code.coarsen import SIDE
from redalg.kernels.code.whole import in_two
from redalg.kernels.ir.program import Result
from redalg.kernels.ir.schedule import Schedule

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


TOGETHER = 4  # elements of a line that a thread takes before it writes them, where rows are kept


def pitch(s: Schedule) -> int:
    """Entries of a line."""
    return s.threads * s.turned | 1


class Turn:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule = kernel, kernel.schedule
        self.kept_at: dict[str, str] = {}  # the kept arrays whose places results have, by their keys

    def of(self, results: list[Result]) -> list[Result]:
        """The results that go through shared memory."""
        return [r for r in results if r.key in self.kernel.layout.turned]

    def begin(self, results: list[Result]) -> None:
        """Before the walk that writes: tables, and the first row of the block."""
        s, out, kernel = self.schedule, self.kernel.out, self.kernel
        if not results:
            return
        self.kept_at = kernel.kept.targets(results)
        group = f"i64(cuda.blockIdx.x{f' // {s.blocks_per_row}' if s.blocks_per_row > 1 else ''})"
        group = f"block_row = {'group' if s.persistent else group} * {s.rows_per_block}"
        if self.kept_at:
            kernel.comment("Results turn in shared memory, in the places of the rows that are kept there.")
            out(group)
            return
        kernel.comment(
            f"Results turn in shared memory: lines of {pitch(s)} entries for the block's {s.rows_per_block} rows."
        )
        for r in results:
            out(f"{self._table(r)} = cuda.shared.array({s.rows * pitch(s)}, {kernel.results._dtype(r)})")
        out(group)

    def _table(self, r: Result) -> str:
        return f"{self.kernel.access.result_names[r.name]}_lines"

    def keep(self, r: Result, value: str) -> None:
        """One element of this thread's row, to its line."""
        s, kept = self.schedule, self.kernel.kept
        if r.key in self.kept_at:
            name = self.kept_at[r.key]
            self.kernel.out(f"store_shared_{r.dtype}({kept.table(name)}, {kept.place(name, 'at')}, {value})")
            return
        k = "u" if s.turned < s.tile else "k"
        mine = f"{k} * {s.threads} + t" if s.threads > 1 else k
        self.kernel.out(f"{self._table(r)}[r * {pitch(s)} + {mine}] = {value}")

    def write(self, results: list[Result], base: str, stop: str) -> None:
        """The lines of a tile that begins at `base`, to memory."""
        s, out, access = self.schedule, self.kernel.out, self.kernel.access
        if not results or self.kept_at:
            return
        span = s.threads * s.turned
        out("cuda.syncthreads()")
        with out.block(f"for entry in range(cuda.threadIdx.x, {s.rows * span}, {s.block}):"):
            out(f"line = entry // {span}", f"place = entry % {span}", f"to = {base} + place" if base else "to = place")
            total = access.size(self.kernel.program.rows[0])
            number = f"block_row + {'line' if s.coarsen == 1 else f'line * COARSEN + {SIDE}'}"
            if self.kernel.layout.astride:
                number = f"min(block_row + line * COARSEN, {total} - COARSEN) + {SIDE}"
            out(f"number = {number}")
            with out.block(f"if number < {total} and to < {stop}:"):
                for r in results:
                    row = access.offset(r.name, r.axes, self.kernel.program.rows, True)[0].partition(" * ")[2]
                    out(access.store(r, f"number * {row} + to", [f"{self._table(r)}[line * {pitch(s)} + place]"]))
        out("cuda.syncthreads()")

    def finish(self, results: list[Result], stop: str) -> None:
        """After the walk that writes: what lies in the places of kept rows, row by row, to memory."""
        s, out, kernel, access = self.schedule, self.kernel.out, self.kernel, self.kernel.access
        if not results or not self.kept_at:
            return
        each = s.block // s.rows_per_block  # threads of a line
        total = access.size(kernel.program.rows[0])
        out("cuda.syncthreads()", f"line = cuda.threadIdx.x // {each}")
        number = "block_row + line"
        if kernel.layout.astride:
            number = f"min(block_row + line // COARSEN * COARSEN, {total} - COARSEN) + line % COARSEN"
        out(f"number = {number}")
        for r in results:
            out(f"{self._part(r)} = cuda.local.array({TOGETHER}, {kernel.results._dtype(r)})")
        with out.block(f"if block_row + line < {total}:" if not kernel.layout.astride else None):
            first = f"cuda.threadIdx.x % {each}"
            first = f"low + {first}" if s.split > 1 else first
            with out.block(f"for to in range({first}, {stop}, {TOGETHER * each}):"):
                with out.apart() as said:
                    for moving in (self._taken, self._left):
                        with out.block(f"for u in range({TOGETHER}):"):
                            out(f"at = to + u * {each}")
                            with out.block(f"if at < {stop}:"):
                                for r in results:
                                    moving(r)
                out(*in_two(said, stop, f"to + {(TOGETHER - 1) * each} < {stop}"))

    def _part(self, r: Result) -> str:
        return f"{self.kernel.access.result_names[r.name]}_part"

    def _taken(self, r: Result) -> None:
        """An element of a line from the places of kept rows."""
        kept, name = self.kernel.kept, self.kept_at[r.key]
        place = kept.place(name, "at", "line")
        self.kernel.out(f"{self._part(r)}[u] = load_shared_{r.dtype}({kept.table(name)}, {place})")

    def _left(self, r: Result) -> None:
        """The same, to memory."""
        access, rows = self.kernel.access, self.kernel.program.rows
        row = access.offset(r.name, r.axes, rows, True)[0].partition(" * ")[2]
        self.kernel.out(access.store(r, f"number * {row} + at", [f"{self._part(r)}[u]"]))
