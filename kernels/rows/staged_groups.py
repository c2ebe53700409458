"""Rows that pass through shared memory in a persistent grid: a group is copied while the one before is computed.

A block's rows follow each other in memory, and may begin anywhere in a vector of 16 bytes: they are copied from the
multiple before, so that element i of the group lies at `skew + i` of the table, and results lie as far into theirs and
are written in whole vectors but for the ends. Every thread takes its elements to registers, the block meets, and copies
of the next group take their place while this one is reduced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.ir.layouts import VECTOR_BYTES
from redalg.kernels.ir.program import STORAGE, Operand, Result
from redalg.kernels.ir.schedule import staged_span
from redalg.kernels.rows.staging import WHOLE, Staging, bring

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


class StagedGroups(Staging):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.places: dict[str, int] = {}  # table -> its first element, in its own elements
        self.bytes, self.gone = 0, False
        self.arrays: list[Operand | Result] = [*self.operands, *self.results]
        for array in self.arrays:
            size = STORAGE[array.dtype]
            self.places[self._named(array)] = self.bytes // size
            self.bytes += staged_span(self.schedule, size)

    def _named(self, array: Operand | Result) -> str:
        names = self.access.array_names if isinstance(array, Operand) else self.access.result_names
        return self._table(names[array.name])

    def _at(self, table: str, place: str) -> str:
        first = self.places[table]
        return f"{place} + {first}" if first else place

    def _skewed(self, size: int) -> bool:
        """Whether groups begin elsewhere than at multiples of a vector."""
        return self.schedule.rows * size % VECTOR_BYTES != 0

    def _group(self, group: str, end: str) -> None:
        """Print where a group begins, how many elements it has, and how far into a vector it begins."""
        out, total = self.kernel.out, f"({self.kernel.total}) * length"
        step = "ROWS * length" if self.schedule.rows > 1 else "length"
        out(f"begin{end} = {group} * {step}", f"count{end} = min({step}, {total} - begin{end})")
        for size in self._sizes(self.operands if end else self.arrays):
            if self._skewed(size):
                out(f"skew{size}{end} = begin{end} % {VECTOR_BYTES // size}")

    @staticmethod
    def _sizes(arrays: Iterable[Operand | Result]) -> list[int]:
        return list(dict.fromkeys(STORAGE[a.dtype] for a in arrays))

    # --- in ----------------------------------------------------------------------------------------------------------

    def first(self, more: str) -> None:
        """Before the first group: tables, and its copies. `more`: whether there is a group of a number."""
        kernel, out = self.kernel, self.kernel.out
        kernel.comment("Prologue of the pipeline: the first rows to shared memory.")
        kernel.who()
        out(f"length = {kernel.row_length()}")
        for array in self.arrays:
            dtype = array.dtype
            cell = dtype if dtype in WHOLE or "int" in dtype else f"uint{8 * STORAGE[dtype]}"
            out(f"{self._named(array)} = cuda.shared.array(0, np.{cell}, {VECTOR_BYTES})")
        with out.block(f"if {more.format('group')}:"):
            self._bring_group("group")

    def _bring_group(self, group: str) -> None:
        """Start the copies of a group; what is left of the last vector of an array is read at once."""
        out, s = self.kernel.out, self.schedule
        self._group(group, "_next")
        for o in self.operands:
            size, array = STORAGE[o.dtype], self.access.array_names[o.name]
            table, vector = self._table(array), VECTOR_BYTES // size
            skew = f"skew{size}_next" if self._skewed(size) else ""
            start = f"begin_next - {skew}" if skew else "begin_next"
            left = f"({self.kernel.total}) * length - begin_next{f' + {skew}' if skew else ''}"
            out(f"held = {f'{skew} + count_next' if skew else 'count_next'}")
            out(f"whole = min((held + {vector - 1}) // {vector}, ({left}) // {vector}) * {vector}")
            rounds = -(-staged_span(s, size) // size // (s.block * vector))
            bring(out, o.dtype, s.block, rounds, (table, self._at(table, "j")), (array, start), "held")

    def begin(self) -> None:
        """Where this thread's row lies among those of its group, which have arrived."""
        kernel, self.gone = self.kernel, False
        self._group("group", "")
        if self.schedule.rows > 1:
            kernel.out("row_begin = r * length", "own_length = length if live else 0")
            self.stop = "own_length"
        kernel.comment("cp.async.wait_all: the group's rows are there, whoever copied them.")
        kernel.out("cp_async_wait_all()", "cuda.syncthreads()")

    def next(self) -> None:
        """When all threads have taken their elements: the next group."""
        kernel = self.kernel
        if self.gone:  # by a walk before
            return
        self.gone = True
        kernel.comment("All threads have their elements in registers: cp.async of the next rows takes their place.")
        kernel.out("cuda.syncthreads()")
        with kernel.out.block("if has_next:"):
            self._bring_group("next_group")

    def unbounded(self, leaf: Node) -> bool:
        return not self.gone and any(o.name == leaf.attr.name and o.axes == leaf.attr.axes for o in self.operands)

    def load(self, leaf: Node, at: str) -> str | None:
        return None if self.gone else super().load(leaf, at)

    def _place(self, table: str, size: int, at: str) -> str:
        terms = [f"skew{size}"] if self._skewed(size) else []
        terms += ["row_begin"] if self.schedule.rows > 1 else []
        return self._at(table, " + ".join([*terms, at]))

    # --- out ---------------------------------------------------------------------------------------------------------

    def declare(self, results: list[Result]) -> None:
        """Room for results is there from the beginning."""

    def write(self, results: list[Result]) -> None:
        kernel, s, out = self.kernel, self.schedule, self.kernel.out
        if not results:
            return
        kernel.comment("The group's results to memory, in vectors of 16 bytes, and by elements where these are cut.")
        out("cuda.syncthreads()")
        for r in results:
            size, array = STORAGE[r.dtype], self.access.result_names[r.name]
            table, vector = self._table(array), VECTOR_BYTES // size
            skew = f"skew{size}" if self._skewed(size) else ""
            start = f"begin - {skew}" if skew else "begin"
            out(f"held = {f'{skew} + count' if skew else 'count'}", f"whole = held // {vector} * {vector}")
            span = s.block * vector
            with out.block(f"for v in range({-(-staged_span(s, size) // size // span)}):"):
                out(f"j = cuda.threadIdx.x * {vector} + v * {span}")
                with out.block(f"if j >= {skew} and j < whole:" if skew else "if j < whole:"):
                    moved = f"load_shared_{r.dtype}x{vector}({table}, {self._at(table, 'j')})"
                    out(f"store_{r.dtype}x{vector}({array}, {start} + j, {moved})")
            single = f"store_{r.dtype}({array}, {start} + j, load_shared_{r.dtype}({table}, {self._at(table, 'j')}))"
            if skew:
                out("j = cuda.threadIdx.x")
                with out.block(f"if 0 < {skew} and j >= {skew} and j < min({vector}, whole):"):
                    out(single)
            out("j = whole + cuda.threadIdx.x")
            with out.block(f"if j >= {skew} and j < held:" if skew else "if j < held:"):
                out(single)


__all__ = ["StagedGroups"]
