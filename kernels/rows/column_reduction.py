"""Reductions of resident rows that lie side by side: the threads of a row are spread over the warps of a block.

Neighbouring threads have neighbouring rows, so that ``lanes`` threads of a row, `ROWS` apart, lie in every one of
``warps`` parts of the block. A butterfly over those lanes leaves a value for every row in every part; these go to a
table with a line for every part, padded to an odd length, are read again with neighbouring threads at the values of
one row, and reduced by a second butterfly. Blocks of a cluster write their values to all of them by distributed shared
memory (`Group.pushed`), and each does the same once more. All threads of all blocks join the same values in the same
order: they know the same result, bit by bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.ir.program import Fold
from redalg.kernels.ir.schedule import lanes_of, parts_of
from redalg.kernels.rows.merge import field
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.rows.group import Group


class ColumnReduction:
    """Every fold over all threads of its row, in `table_entries` of shared memory for each of its names."""

    def __init__(self, group: Group, folds: list[Fold]) -> None:
        self.group, self.folds = group, folds
        self.kernel, self.schedule, self.out = group.kernel, group.schedule, group.kernel.out

    def print(self) -> None:
        s = self.schedule
        lanes, parts = lanes_of(s), parts_of(s)
        if lanes > 1:
            self.kernel.comment(f"Warp reduction: shuffles over the {lanes} lanes of a row, {s.rows} apart.")
            self._butterfly(lanes, s.rows)
        if parts > 1:
            self._of_block(lanes, parts)
        if s.cluster > 1:
            self._of_cluster()

    def _butterfly(self, count: int, apart: int = 1) -> None:
        mask = "1 << step" if apart == 1 else f"{apart} << step"
        with self.out.block(f"for step in range({count.bit_length() - 1}):"):
            for fold in self.folds:
                names = range(len(fold.names))
                self.group._joined(fold, [self.group._shuffled(fold, i, mask) for i in names])

    def _tables(self, what: str, size: int) -> list[list[str]]:
        return [[self.group._table(f, i, what, size) for i in range(len(f.names))] for f in self.folds]

    def _to(self, tables: list[list[str]], at: str) -> None:
        for fold, names in zip(self.folds, tables, strict=True):
            self.out(*(f"{table}[{at}] = {local(n)}" for table, n in zip(names, fold.names, strict=True)))

    def _from(self, tables: list[list[str]], at: str) -> None:
        for fold, names in zip(self.folds, tables, strict=True):
            self.out(*(f"{local(n)} = {table}[{at}]" for table, n in zip(names, fold.names, strict=True)))

    def _of_block(self, lanes: int, parts: int) -> None:
        """From the values of all parts those of rows, which all threads read."""
        s, out = self.schedule, self.out
        pitch = s.rows | 1
        self.kernel.comment(
            f"Block reduction: the values of {parts} parts of the block to lines of {pitch} entries, read again with"
            " neighbouring threads at one row."
        )
        lines, totals = self._tables("parts_of_rows", parts * pitch), self._tables("rows", s.rows)
        out(f"entry = {field(s.rows * lanes, parts)} * {pitch} + {field(1, s.rows)}")
        with out.block(f"if {field(s.rows, lanes)} == 0:" if lanes > 1 else None):
            self._to(lines, "entry")
        out("cuda.syncthreads()", f"entry = {field(1, parts * s.rows)}")
        self._from(lines, f"(entry & {parts - 1}) * {pitch} + (entry >> {parts.bit_length() - 1})")
        self._butterfly(parts)
        self._share(totals, parts)

    def _share(self, totals: list[list[str]], count: int) -> None:
        """What one thread of `count` knows of a row, to all threads of the row."""
        rows = self.schedule.rows
        with self.out.block(f"if {field(1, count)} == 0 and cuda.threadIdx.x < {count * rows}:"):
            self._to(totals, f"entry >> {count.bit_length() - 1}")
        self.out("cuda.syncthreads()")
        self._from(totals, field(1, rows))

    def _of_cluster(self) -> None:
        """From the values of all blocks of the cluster those of rows."""
        s, out, group = self.schedule, self.out, self.group
        self.kernel.comment(
            f"Cluster reduction: every block writes its values to all {s.cluster} by distributed shared memory; they"
            " are read with neighbouring threads at one row."
        )
        tables = self._tables("blocks", s.cluster * s.rows)
        group.met()
        group.uses_cluster |= s.persistent  # what is read there is written to again
        values = [
            (local(n), table, group.shuffled_kind(fold, i))
            for fold, names in zip(self.folds, tables, strict=True)
            for i, (table, n) in enumerate(zip(names, fold.names, strict=True))
        ]
        group.pushed(values, f"split * {s.rows} + r" if s.rows > 1 else "split", s.rows)
        out(f"entry = {field(1, s.cluster * s.rows)}")
        self._from(tables, f"(entry & {s.cluster - 1}) * {s.rows} + (entry >> {s.cluster.bit_length() - 1})")
        self._butterfly(s.cluster)
        self._share(self._tables("clusters", s.rows), s.cluster)
