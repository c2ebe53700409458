"""Results of a tile of rows: what waited for the end is added up, and what is finalised is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from redalg.graph.node import walk
from redalg.kernels.code.text import literal
from redalg.kernels.ir.program import Result
from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.launch.planned import Tile
from redalg.kernels.tile.plan import STAGED, maps_of
from redalg.kernels.tile.scalars import TileScalars
from redalg.kernels.tile.scores import QUAD
from redalg.kernels.tile.stores import ROW, matrices
from redalg.source.names import axis_name, local, result_name

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel


class TensorResults:
    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel, self.out, self.program, self.plan = kernel, kernel.out, kernel.program, kernel.plan
        self.access = kernel.access

    def write(self) -> None:
        """Results of both rows of a thread."""
        out, kernel, program = self.out, self.kernel, self.program
        row, size = kernel.made.row, kernel.access.size(kernel.made.row)
        out.comment("Epilogue: states are complete; results of rows that exist.")
        out(f"n = {kernel.length}")
        kernel.tile.top_k.exchange(kernel.element())
        if not kernel.wide:  # else it is an operation of the tile program
            self.summed()
        with out.block(self.kernel.each_row):
            kernel.row_places()
            scope = kernel.row_scope()
            kernel.tile.columns.knows(scope)
            self._exported(scope)
            with_columns = [r for r in program.results if set(r.axes) & set(program.columns)]
            totals = [r for r in program.results if r not in with_columns]
            for result in with_columns if self.plan.staged else ():
                self._finished(result, scope)
            direct = totals if self.plan.staged else program.results
            if direct:
                with out.block(f"if i_{axis_name(row)} < {size}:"):
                    for result in direct:
                        (self._with_columns if result in with_columns else self._total)(result, scope)
        for result in with_columns if self.plan.staged else ():
            self._staged(result)

    def _exported(self, scope: TileScalars) -> None:
        """What results read of the state, of both rows of a thread."""
        kernel = self.kernel
        lets = kernel.made.walk.exports
        scope.announce([let.node for let in lets])
        for let in lets:
            kernel.array(local(let.name), kernel.held)
            scope.lines.append(f"{local(let.name)}[r] = {scope.converted(let.node, kernel.kinds.names[let.name])}")
        kernel.flush(scope)

    def totals(self) -> None:
        """Results of one row, from its state under names of numbers."""
        out, kernel = self.out, self.kernel
        out(f"n = {kernel.length}")
        scope = kernel.row_scope()
        scope.announce([let.node for let in kernel.made.walk.exports])
        for let in kernel.made.walk.exports:
            scope.lines.append(f"{local(let.name)} = {scope.converted(let.node, kernel.kinds.names[let.name])}")
        kernel.flush(scope)
        columns = set(self.program.columns)
        for result in (r for r in self.program.results if columns & set(r.axes)):
            self._stored(result, scope)
        totals = [r for r in self.program.results if not columns & set(r.axes)]
        if totals:
            with out.block(f"if i_{axis_name(self.program.columns[0])} == 0:" if columns else None):
                for result in totals:
                    self._stored(result, scope)

    def summed(self) -> None:
        """Add up sums of which every thread has kept its share."""
        found = sorted(self.kernel.tile.deferred)
        if found:
            self.out.comment("Sums that every lane kept its share of: joined once, over the quad.")
            with self.out.block(QUAD), self.out.block(self.kernel.each_row):
                for part in found:
                    name = f"{local(part)}[r]"
                    self.out(f"{name} = {name} + shfl_xor_f32({name}, 1 << step)")

    def _total(self, result: Result, scope: TileScalars) -> None:
        with self.out.block("if lane & 3 == 0:"):
            self._stored(result, scope)

    def _stored(self, result: Result, scope: TileScalars) -> None:
        out, tops = self.out, [a for a in result.axes if a in self.program.lengths]
        outer = scope.child()
        outer.hoist([result.node], tops)
        self.kernel.flush(outer)
        with ExitStack() as loops:
            for axis in tops:
                loops.enter_context(out.block(f"for i_{axis_name(axis)} in range({self.program.lengths[axis]}):"))
            inner = outer.child(tops)
            inner.announce([result.node])
            value = self._value(inner, result)
            self.kernel.flush(inner)
            where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True)) or "0"
            out(self.access.store(result, where, [value]))

    # --- sums with columns -------------------------------------------------------------------------------------------

    def _hoisted(self, result: Result, scope: TileScalars) -> None:
        nodes = [result.node, *([result.masked] if result.masked is not None else [])]
        scope.announce(nodes)
        scope.hoist(nodes, self.program.columns)
        self.kernel.flush(scope)

    def _at(self, scope: TileScalars, result: Result, register: str) -> str:
        """The text of the result's value where the sum is in this register."""
        inner = scope.child(self.program.columns)
        part = next(p for p in self.kernel.made.walk.parts if p.axes)
        for leaf in [n for n in walk(result.node) if n.op == "state" and n.attr.name == part.name]:
            inner.known[leaf] = register
        inner.announce([result.node])
        value = self._value(inner, result)
        self.kernel.flush(inner)
        return value

    def _with_columns(self, result: Result, scope: TileScalars) -> None:
        """Straight from registers: neighbours are two columns wide."""
        out, column = self.out, self.program.columns[0]
        self._hoisted(result, scope)
        row = [a for a in result.axes if a != column]
        where = " + ".join(self.access.offset(result.name, result.axes, row, True)) or "0"
        name = self.access.result_names[result.name]
        out(f"{name}_row = {where}")
        with self.pairs():
            left = self._at(scope, result, "sums[s]")
            if self._by_column(result):
                out(f"value_left = {left}", f"i_{axis_name(column)} += 1")
                right = self._at(scope, result, "sums[s + 1]")
                out(f"value_right = {right}", f"i_{axis_name(column)} -= 1")
                values = ["value_left", "value_right"]
            else:
                values = [left, self._at(scope, result, "sums[s + 1]")]
            if result.axes[-1] == column:
                out(self.access.store(result, f"{name}_row + i_{axis_name(column)}", values))
                return
            step = self.access.stride(result.name, result.axes.index(column), True)
            for j, value in enumerate(values):
                out(self.access.store(result, f"{name}_row + (i_{axis_name(column)} + {j}) * {step}", [value]))

    @contextmanager
    def pairs(self) -> Iterator[None]:
        """A loop over a thread's sums of a row, two neighbouring columns at a time: sums[s] and sums[s + 1]."""
        own = f"{self.plan.own_columns} * warpgroup + " if self.kernel.wide else ""
        with self.out.block(f"for k in range(0, {self.plan.own_columns // 4}, 2):"):
            self.out(self.kernel.pair, f"i_{axis_name(self.program.columns[0])} = {own}8 * (k >> 1) + 2 * (lane & 3)")
            yield

    def _by_column(self, result: Result) -> bool:
        """Whether what is done at the end depends on the column, beyond the sum itself."""
        return any(self.program.columns[0] in n.axes for n in walk(result.node) if n.op in ("tensor", "index"))

    def _finished(self, result: Result, scope: TileScalars) -> None:
        """The values in place of the sums."""
        out, column = self.out, self.program.columns[0]
        self._hoisted(result, scope)
        with out.block(f"for k in range({self.plan.value_columns // 4}):"):
            out(self.kernel.register)
            if self._by_column(result):
                out(f"i_{axis_name(column)} = 8 * (k >> 1) + 2 * (lane & 3) + (k & 1)")
            out(f"sums[s] = {self._at(scope, result, 'sums[s]')}")

    def _staged(self, result: Result) -> None:
        """By way of shared memory, where every warp has a part of its own; the copy engine takes rows from there.

        Nothing waits for it but the next rows that are put there.
        """
        out, plan, row = self.out, self.plan, self.kernel.made.row
        maps = maps_of(self.kernel.made, plan)
        number = next(k for k, m in enumerate(maps) if m.tile is Tile.RESULT)
        m, size = maps[number], 128 * STAGED
        out.comment(
            f"Results of a warp: {STAGED} rows to its part of staging by stmatrix, from there by a TMA store. The last "
            "store must have read staging before it is overwritten."
        )
        out("tma_store_wait()", "syncwarp()")
        out(f"stage = left_tile + {plan.staging} + (4 * warpgroup + warp) * {m.count * size}")
        out(f"place = stage + ({ROW}) * 128")
        with out.block(f"for k in range(0, {plan.value_columns // 8}, 2):"):
            chunk = f" + {size} * (k >> 3)" if m.count > 1 else ""
            out(matrices(f"place + (swizzle ^ (16 * (k & 7))){chunk}", result.dtype, "sums"))
        out.comment(
            "TMA reads by the asynchronous proxy: each lane's stores are fenced, then one lane issues the copy."
        )
        out("fence_proxy_async()", "syncwarp()")
        with out.block("if leader:"):
            first = f"{axis_name(row)}_first + 64 * warpgroup + 16 * warp"
            at = ", ".join([first, *(f"i_{axis_name(a)}" for a in m.axes[2:])])
            for part in range(m.count):
                where = f"stage + {part * size}" if part else "stage"
                out(f"store_{result_name(m.operand)}_rows({where}, maps + {128 * number}, {CHUNK * part}, {at})")

    def _value(self, scope: TileScalars, result: Result) -> str:
        kind = "b" if result.dtype == "bool" else "i" if "int" in result.dtype else "f"
        value = scope.converted(result.node, kind)
        if result.masked is None:
            return value
        return f"{literal(float(result.empty), kind, 'f32')} if {scope.text(result.masked, 1)} else {value}"
