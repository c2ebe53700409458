"""Sums over rows, in the reading that computes these rows: every thread adds the elements that it holds of its rows.

A block of a persistent grid has one row after another, and a thread of it the same places of every row. What is added
over rows at such a place stays in a register from row to row, and is written once, when the block has no further row:
one array of partial sums for each block (the rows that lie side by side in it are added in shared memory first, in
halves, where that holds them) or for each group of threads that share a row, which a second kernel adds up. Every sum
has a fixed order, for the grid has as many blocks as the plan says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.ir.schedule import added_bytes

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

STORED = {"float32": 4, "float64": 2}  # partial sums that are written together


class Sums:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.results = kernel, kernel.program.summed

    def _name(self, r: Result) -> str:
        return f"{self.kernel.access.result_names[r.name]}_sums"

    def begin(self) -> None:
        """Before the first row: sums of nothing."""
        kernel, out = self.kernel, self.kernel.out
        if not self.results:
            return
        kernel.comment(
            "Sums over the rows of this block, one for each place that a thread has; they stay in registers."
        )
        for r in self.results:
            out(f"{self._name(r)} = cuda.local.array({kernel.peel.entries}, {kernel.elements.real})")
        with out.block(f"for k in range({kernel.peel.entries}):"):
            out(*(f"{self._name(r)}[k] = {kernel.real}(0)" for r in self.results))

    def add(self, r: Result, value: str) -> None:
        """One more element, of the place in hand."""
        self.kernel.out(f"{self._name(r)}[k] += {value}")

    def write(self) -> None:
        """After the last row: the sums of this block, or of this group of threads, side by side."""
        kernel, s, out = self.kernel, self.kernel.schedule, self.kernel.out
        if not self.results:
            return
        if added_bytes(s, STORAGE[kernel.program.real]):
            self._write_added()
            return
        kernel.comment("The sums over all rows that these threads had, to their row of the partial sums.")
        kernel.who()
        block = "i64(cuda.blockIdx.x)" + (f" // {s.blocks_per_row}" if s.blocks_per_row > 1 else "")
        out(f"length = {kernel.row_length()}")
        out(f"partial = ({block}{' * ROWS + r' if s.rows > 1 else ''}) * length")
        kernel.peel.print()
        kernel.elements.start()
        width = STORED[kernel.program.real]
        if s.vector % width or s.peel:
            with kernel.elements.each(position=True):
                for r in self.results:
                    out(kernel.access.store(r, "partial + at", [f"{self._name(r)}[k]"]))
            return
        with kernel.elements.vectors():
            for r in self.results:
                for c in range(0, s.vector, width):
                    values = [f"{self._name(r)}[v * VECTOR + {c + i}]" for i in range(width)]
                    out(kernel.access.store(r, f"partial + j{f' + {c}' if c else ''}", values))

    def _write_added(self) -> None:
        """The same where rows lie side by side in a block: one half is added to the other, until one is left."""
        kernel, s, out = self.kernel, self.kernel.schedule, self.kernel.out
        kernel.comment("The sums of all rows of this block, in shared memory: halves of the rows are added to others.")
        kernel.who()
        span, place = s.threads * s.tile, "t" if s.vector == 1 else "t * VECTOR"
        out(f"length = {kernel.row_length()}", "partial = i64(cuda.blockIdx.x) * length")
        out(f"added = cuda.shared.array({s.rows * span}, {kernel.elements.real})")
        for r in self.results:
            with out.block(f"for v in range({s.tile // s.vector}):"), out.block("for c in range(VECTOR):"):
                at = f"r * {span} + {place} + v * {kernel.elements.stride} + c"
                out(f"added[{at}] = {self._name(r)}[v * VECTOR + c]")
            out("cuda.syncthreads()", "half = ROWS // 2")
            with out.block("while half > 0:"):
                with out.block(f"for j in range(cuda.threadIdx.x, half * {span}, {s.block}):"):
                    out(f"added[j] += added[j + half * {span}]")
                out("cuda.syncthreads()", "half = half // 2")
            with out.block(f"for at in range(cuda.threadIdx.x, length, {s.block}):"):
                out(kernel.access.store(r, "partial + at", ["added[at]"]))
            if r is not self.results[-1]:
                out("cuda.syncthreads()")


__all__ = ["Sums"]
