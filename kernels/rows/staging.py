"""Short rows that follow each other in memory pass through shared memory, all rows of a block at once.

Rows of 3 or 19 elements start anywhere, and a thread that reads its own row asks for a few bytes at a time. All rows of
a block together are one piece of memory, which begins at a multiple of 16 bytes: the block copies it in vectors of 16
bytes to shared memory as it is (`cp.async`), whatever belongs to whom, meets, and every thread takes its elements from
there. Results go the same way back. An array is *dense* where that is so (`redalg.kernels.ir.layouts.Placed`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.ir.layouts import VECTOR_BYTES
from redalg.kernels.ir.program import STORAGE, Operand, Result
from redalg.source.builder import Builder

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

WHOLE = ("float32", "float64")


def bring(
    out: Builder, dtype: str, block: int, rounds: int, to: tuple[str, str], source: tuple[str, str], held: str
) -> None:
    """Elements of an array from where it begins, to places j of a table: the first `whole` of them by copies of whole
    vectors, so many rounds of all threads of a block; the rest of those that are held one by one."""
    (table, at), (array, start), vector = to, source, VECTOR_BYTES // STORAGE[dtype]
    with out.block(f"for v in range({rounds}):"):
        out(f"j = cuda.threadIdx.x * {vector} + v * {block * vector}")
        with out.block("if j < whole:"):
            out(f"copy_{dtype}x{vector}({table}, {at}, {array}, {start} + j)")
    out("j = whole + cuda.threadIdx.x")
    with out.block(f"if j < {held}:"):
        out(f"store_shared_{dtype}({table}, {at}, load_{dtype}({array}, {start} + j))")


class Staging:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule, self.access = kernel, kernel.schedule, kernel.access
        names = kernel.layout.staged if kernel.schedule.staged else frozenset()
        self.operands = [o for o in kernel.program.operands if o.name in names]
        self.results = [r for r in kernel.program.results if r.key in names]

    def _table(self, name: str) -> str:
        return f"{name}_block"

    def _declared(self, name: str, dtype: str) -> str:
        s = self.schedule
        cell = dtype if dtype in WHOLE or "int" in dtype else f"uint{8 * STORAGE[dtype]}"
        return f"{self._table(name)} = cuda.shared.array({s.rows * s.threads * s.tile}, np.{cell}, {VECTOR_BYTES})"

    bytes = 0  # of shared memory that a launch gives
    stop = ""  # where a row ends, where that is not its length

    # --- in ----------------------------------------------------------------------------------------------------------

    def first(self, more: str) -> None:
        """Before the first group of rows of a persistent grid."""

    def next(self) -> None:
        """When all elements have been taken to registers."""

    def unbounded(self, leaf: Node) -> bool:
        """Whether places beyond this thread's row may be read: they are of the same table, whatever lies there."""
        return False

    def begin(self) -> None:
        """All rows of the block to shared memory; where this thread's row lies there."""
        if not self.schedule.staged:
            return
        kernel, out, rows = self.kernel, self.kernel.out, self.kernel.program.rows
        kernel.comment(
            "cp.async: the block's rows, one piece of memory, to shared memory in vectors of 16 bytes; every thread "
            "takes its row from there."
        )
        total = " * ".join(self.access.size(a) for a in rows)
        out("block_begin = i64(cuda.blockIdx.x) * ROWS * length")
        out(f"block_count = min(ROWS * length, {total} * length - block_begin)")
        out("row_begin = row * length - block_begin")
        for o in self.operands:
            self._bring(o)
        out("cp_async_wait_all()", "cuda.syncthreads()")

    def _vectors(self, dtype: str) -> int:
        """Elements of a vector; the text of how many elements of the block lie in whole ones is printed."""
        vector = VECTOR_BYTES // STORAGE[dtype]
        self.kernel.out(f"whole = block_count // {vector} * {vector}")
        return vector

    def _bring(self, o: Operand) -> None:
        s, out, array = self.schedule, self.kernel.out, self.access.array_names[o.name]
        table = self._table(array)
        out(self._declared(array, o.dtype))
        vector = self._vectors(o.dtype)
        rounds = -(-s.rows * s.threads * s.tile // (s.block * vector))
        bring(out, o.dtype, s.block, rounds, (table, "j"), (array, "block_begin"), "block_count")

    def load(self, leaf: Node, at: str) -> str | None:
        """The text that reads an element of this thread's row; None where it is not there."""
        o = next((o for o in self.operands if o.name == leaf.attr.name and leaf.attr.axes == o.axes), None)
        if o is None:
            return None
        table = self._table(self.access.array_names[o.name])
        text = f"load_shared_{o.dtype}({table}, {self._place(table, STORAGE[o.dtype], at)})"
        return self.access.as_real(o.dtype, text)

    def _place(self, table: str, size: int, at: str) -> str:
        """The text of where an element of this thread's row lies in a table of elements of so many bytes."""
        return "row_begin" if at == "0" else f"row_begin + {at}"

    # --- out ---------------------------------------------------------------------------------------------------------

    def of(self, results: list[Result]) -> list[Result]:
        return [r for r in results if r in self.results]

    def declare(self, results: list[Result]) -> None:
        """Before the walk that writes: room for the results."""
        for r in results:
            self.kernel.out(self._declared(self.access.result_names[r.name], r.dtype))

    def keep(self, r: Result, value: str) -> None:
        """An element of this thread's row, to shared memory; threads beyond the last row write what it has."""
        table = self._table(self.access.result_names[r.name])
        self.kernel.out(f"store_shared_{r.dtype}({table}, {self._place(table, STORAGE[r.dtype], 'at')}, {value})")

    def write(self, results: list[Result]) -> None:
        """The rows of the block to memory."""
        kernel, s, out = self.kernel, self.schedule, self.kernel.out
        if not results:
            return
        kernel.comment("The block's results to memory, in vectors of 16 bytes.")
        out("cuda.syncthreads()")
        for r in results:
            array = self.access.result_names[r.name]
            table = self._table(array)
            vector = self._vectors(r.dtype)
            span = s.block * vector
            with out.block(f"for v in range({-(-s.rows * s.threads * s.tile // span)}):"):
                out(f"j = cuda.threadIdx.x * {vector} + v * {span}")
                with out.block("if j < whole:"):
                    moved = f"load_shared_{r.dtype}x{vector}({table}, j)"
                    out(f"store_{r.dtype}x{vector}({array}, block_begin + j, {moved})")
            out("j = whole + cuda.threadIdx.x")
            with out.block("if j < block_count:"):
                out(f"store_{r.dtype}({array}, block_begin + j, load_shared_{r.dtype}({table}, j))")
