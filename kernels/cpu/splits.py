"""Rows in splits: fold every split into a state, merge the states of a row, write what keeps the axis split by split.

Between the functions states lie in tables with an entry for every split; the merged state of a row, and what its
passes export, lie in the entries of its first split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.code.roles import each_column
from redalg.kernels.ir.program import Param, Pass
from redalg.kernels.rows.element import DTYPE
from redalg.kernels.rows.group import Group
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.cpu.kernel import CpuKernel, Prints

STORAGE = {"i": "int64", "b": "bool"}


def fold(p: Pass) -> Prints:
    """The state of every split, from what earlier passes export."""

    def prints(kernel: CpuKernel) -> None:
        tables = Tables(kernel)
        tables.begin(before(kernel, p))
        if kernel.program.columns:
            kernel.column_rows().walk(p)
        else:
            kernel._streamed(p, False)
        tables.write_state(p, "(home + split)" if kernel.cpu.interleaved else "job")

    return prints


def merge(p: Pass) -> Prints:
    """The state of every row, its exports, and after the last pass the results there is one of in a row."""

    def prints(kernel: CpuKernel) -> None:
        tables, program = Tables(kernel), kernel.program
        tables.begin(before(kernel, p))
        tables.merge(p)
        kernel.look(p, {})
        last = p is program.passes[-1]
        if last and program.keeps:
            tables.write_state(p, "home")
        tables.write_exports(p)
        totals = [r for r in program.results if not r.keeps]
        if last and totals:
            kernel.results.some(totals, {})

    return prints


def write(kernel: CpuKernel) -> None:
    """The results that keep the axis."""
    tables, passes = Tables(kernel), kernel.program.passes
    tables.begin(passes)
    if passes:
        kernel.out("n = length")
        tables.read_state(passes[-1], "home")
    kernel.watching.known()
    with kernel.out.block(kernel.writes):
        kernel.results.some([r for r in kernel.program.results if r.keeps], {})


def before(kernel: CpuKernel, p: Pass) -> Sequence[Pass]:
    passes = kernel.program.passes
    return passes[: passes.index(p)]


class Tables:
    """Loads and stores of states in tables."""

    def __init__(self, kernel: CpuKernel) -> None:
        self.kernel, self.out = kernel, kernel.out
        self.group: Group = kernel.group
        self.columns = frozenset(kernel.program.columns)

    def begin(self, passes: Sequence[Pass]) -> None:
        """Where the entries of a row are, and what earlier passes export."""
        kernel = self.kernel
        unit = "unit" if kernel.cpu.across else "row"
        self.out(f"home = {unit} * splits")
        for let in [let for p in passes for let in p.exports]:
            self.load(local(let.name), kernel.kinds.names[let.name], "home", columnar=self.columnar(let.node))
        kernel.row = kernel.row.child()

    def columnar(self, node: Node) -> bool:
        return bool(node.axes & self.columns)

    # --- one value ---------------------------------------------------------------------------------------------------

    def _entries(self, name: str, kind: str, top: int | None, columnar: bool) -> tuple[str, str, str | None]:
        """The table of a value, the type of its entries, and how many there are for a split, unless it is one."""
        dtype = STORAGE.get(kind, self.kernel.program.real)
        width = "BLOCK" if self.kernel.cpu.across else "COLUMNS"
        count = width if columnar else str(top) if top else None
        table = self.group.scratch(f"{name}_parts", dtype, top or 1)
        if columnar:
            self.kernel.access.used[f"scratch_{table}"] = Param("scratch", table, dtype, dim=1, size=1)
        return table, dtype, count

    def store(self, name: str, kind: str, at: str, top: int | None = None, columnar: bool = False) -> None:
        table, dtype, count = self._entries(name, kind, top, columnar)
        if count is None:
            self.out(f"store_{dtype}({table}, {at}, {name})")
            return
        with each_column(self.out) if columnar else self.out.block(f"for m in range({count}):"):
            self.out(f"store_{dtype}({table}, {at} * {count} + m, {name}[m])")

    def load(
        self, name: str, kind: str, at: str, end: str = "", top: int | None = None, columnar: bool = False
    ) -> None:
        table, dtype, count = self._entries(name, kind, top, columnar)
        if count is None:
            self.out(f"{name}{end} = load_{dtype}({table}, {at})")
            return
        size = "COLUMNS" if columnar else count
        self.out(f"{name}{end} = cuda.local.array({size}, {DTYPE.get(kind, self.kernel.elements.real)})")
        if columnar:
            self.kernel.per_column.add(f"{name}{end}")
        with each_column(self.out) if columnar else self.out.block(f"for m in range({count}):"):
            self.out(f"{name}{end}[m] = load_{dtype}({table}, {at} * {count} + m)")

    # --- states and exports ------------------------------------------------------------------------------------------

    def write_state(self, p: Pass, at: str) -> None:
        for part in p.parts:
            self.store(local(part.name), part.kind, at, part.top, bool(part.axes))

    def read_state(self, p: Pass, at: str, end: str = "") -> None:
        for part in p.parts:
            self.load(local(part.name), part.kind, at, end, part.top, bool(part.axes))

    def write_exports(self, p: Pass) -> None:
        kernel = self.kernel
        if kernel.program.columns:
            kernel.column_rows().exports(p)
        kernel.row.announce([let.node for let in p.exports])
        for let in p.exports if not kernel.program.columns else ():
            kernel.row.assign(local(let.name), let.node)
        kernel.flush(kernel.row)
        for let in p.exports:
            self.store(local(let.name), kernel.kinds.names[let.name], "home", columnar=self.columnar(let.node))

    def merge(self, p: Pass) -> None:
        """Read the state of the first split, and join those of the others in turn."""
        kernel, columns = self.kernel, bool(self.columns)
        counted = columns or self.group.counts(p)
        rows = kernel.column_rows()
        if not columns:
            self.group.combine(p, counted)  # before the loop: it may have to read parameters of the row
        kernel.flush(kernel.row)
        self.read_state(p, "home")
        self.out(*(["n = min(span, length)"] if counted else []))
        with self.out.block("for split in range(1, splits):"):
            self.read_state(p, "(home + split)", "_b")
            self.out(*(["n_b = min(span, length - split * span)"] if counted else []))
            if columns:
                rows.printer.scope = kernel.row.child()
                rows.join(p)
            else:
                self.group.absorb(p, counted)
        self.out("n = length")
