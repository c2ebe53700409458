"""Results of a tile of rows: what waited for the end is added up, and what is finalised is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redalg.graph import walk
from redalg.kernels.cuda_text import literal
from redalg.kernels.intrinsics_tensor import CHUNK
from redalg.kernels.ir import Result
from redalg.kernels.tensor_plan import STAGED, maps_of
from redalg.kernels.tensor_scalars import TileScalars
from redalg.kernels.tensor_tile import QUAD
from redalg.naming import axis_name, local, result_name

if TYPE_CHECKING:
    from redalg.kernels.emit_tensor import TensorKernel


class TensorResults:
    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel, self.out, self.program, self.plan = kernel, kernel.out, kernel.program, kernel.plan
        self.access = kernel.access

    def write(self) -> None:
        """Results of both rows of a thread."""
        out, kernel, program = self.out, self.kernel, self.program
        row, size = kernel.made.row, kernel.access.size(kernel.made.row)
        out(f"n = {kernel.length}")
        kernel.tile.picks.exchange(kernel.element())
        self.summed()
        with out.block(self.kernel.each_row):
            kernel.row_places()
            scope = kernel.row_scope()
            kernel.tile.columns.knows(scope)
            lets = kernel.made.walk.exports
            scope.announce([let.node for let in lets])
            for let in lets:
                kernel.array(local(let.name), kernel.held)
                scope.lines.append(f"{local(let.name)}[r] = {scope.converted(let.node, kernel.kinds.names[let.name])}")
            kernel.flush(scope)
            laned = [r for r in program.results if set(r.axes) & set(program.lanes)]
            totals = [r for r in program.results if r not in laned]
            for result in laned if self.plan.staged else ():
                self._finished(result, scope)
            direct = totals if self.plan.staged else program.results
            if direct:
                with out.block(f"if i_{axis_name(row)} < {size}:"):
                    for result in direct:
                        (self._laned if result in laned else self._total)(result, scope)
        for result in laned if self.plan.staged else ():
            self._staged(result)

    def totals(self) -> None:
        """Results of one row, from its state under names of numbers."""
        out, kernel = self.out, self.kernel
        out(f"n = {kernel.length}")
        scope = kernel.row_scope()
        scope.announce([let.node for let in kernel.made.walk.exports])
        for let in kernel.made.walk.exports:
            scope.lines.append(f"{local(let.name)} = {scope.converted(let.node, kernel.kinds.names[let.name])}")
        kernel.flush(scope)
        lanes = set(self.program.lanes)
        for result in (r for r in self.program.results if lanes & set(r.axes)):
            self._stored(result, scope)
        totals = [r for r in self.program.results if not lanes & set(r.axes)]
        if totals:
            with out.block(f"if i_{axis_name(self.program.lanes[0])} == 0:" if lanes else None):
                for result in totals:
                    self._stored(result, scope)

    def summed(self) -> None:
        """Add up sums of which every thread has kept its share."""
        found = sorted(self.kernel.tile.deferred)
        if found:
            with self.out.block(QUAD), self.out.block(self.kernel.each_row):
                for part in found:
                    name = f"{local(part)}[r]"
                    self.out(f"{name} = {name} + shfl_xor_f32({name}, 1 << step)")
            if self.kernel.wide:
                self.kernel.traded([(local(part), "sum") for part in found])

    def _total(self, result: Result, scope: TileScalars) -> None:
        with self.out.block("if lane & 3 == 0:"):
            self._stored(result, scope)

    def _stored(self, result: Result, scope: TileScalars) -> None:
        out, tops = self.out, [a for a in result.axes if a in self.program.lengths]
        outer = scope.child()
        outer.hoist([result.node], tops)
        self.kernel.flush(outer)
        depth = out.depth
        for axis in tops:
            out(f"for i_{axis_name(axis)} in range({self.program.lengths[axis]}):")
            out.depth += 1
        inner = outer.child(tops)
        inner.announce([result.node])
        value = self._value(inner, result)
        self.kernel.flush(inner)
        where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True)) or "0"
        out(self.access.store(result, where, [value]))
        out.depth = depth

    # --- sums with lanes ---------------------------------------------------------------------------------------------

    def _hoisted(self, result: Result, scope: TileScalars) -> None:
        nodes = [result.node, *([result.void] if result.void is not None else [])]
        scope.announce(nodes)
        scope.hoist(nodes, self.program.lanes)
        self.kernel.flush(scope)

    def _at(self, scope: TileScalars, result: Result, register: str) -> str:
        """The text of the result's value where the sum is in this register."""
        inner = scope.child(self.program.lanes)
        part = next(p for p in self.kernel.made.walk.parts if p.axes)
        for leaf in [n for n in walk(result.node) if n.op == "state" and n.attr.name == part.name]:
            inner.known[leaf] = register
        inner.announce([result.node])
        value = self._value(inner, result)
        self.kernel.flush(inner)
        return value

    def _laned(self, result: Result, scope: TileScalars) -> None:
        """Straight from registers: neighbours are two lanes wide."""
        out, lane = self.out, self.program.lanes[0]
        self._hoisted(result, scope)
        row = [a for a in result.axes if a != lane]
        where = " + ".join(self.access.offset(result.name, result.axes, row, True)) or "0"
        name = self.access.result_names[result.name]
        out(f"{name}_row = {where}")
        with self.pairs():
            left = self._at(scope, result, "sums[s]")
            if self._by_lane(result):
                out(f"value_left = {left}", f"i_{axis_name(lane)} += 1")
                right = self._at(scope, result, "sums[s + 1]")
                out(f"value_right = {right}", f"i_{axis_name(lane)} -= 1")
                values = ["value_left", "value_right"]
            else:
                values = [left, self._at(scope, result, "sums[s + 1]")]
            if result.axes[-1] == lane:
                out(self.access.store(result, f"{name}_row + i_{axis_name(lane)}", values))
                return
            step = self.access.stride(result.name, result.axes.index(lane), True)
            for j, value in enumerate(values):
                out(self.access.store(result, f"{name}_row + (i_{axis_name(lane)} + {j}) * {step}", [value]))

    @contextmanager
    def pairs(self) -> Iterator[None]:
        """A loop over a thread's sums of a row, two neighbouring lanes at a time: sums[s] and sums[s + 1]."""
        own = f"{self.plan.own_lanes} * team + " if self.kernel.wide else ""
        with self.out.block(f"for k in range(0, {self.plan.own_lanes // 4}, 2):"):
            self.out(self.kernel.pair, f"i_{axis_name(self.program.lanes[0])} = {own}8 * (k >> 1) + 2 * (lane & 3)")
            yield

    def _by_lane(self, result: Result) -> bool:
        """Whether what is done at the end depends on the lane, beside the sum itself."""
        return any(self.program.lanes[0] in n.axes for n in walk(result.node) if n.op in ("tensor", "index"))

    def _finished(self, result: Result, scope: TileScalars) -> None:
        """The values in place of the sums."""
        out, lane = self.out, self.program.lanes[0]
        self._hoisted(result, scope)
        with out.block(f"for k in range({self.plan.lanes // 4}):"):
            out(self.kernel.register)
            if self._by_lane(result):
                out(f"i_{axis_name(lane)} = 8 * (k >> 1) + 2 * (lane & 3) + (k & 1)")
            out(f"sums[s] = {self._at(scope, result, 'sums[s]')}")

    def _staged(self, result: Result) -> None:
        """By way of shared memory, where every warp has a part of its own; the copy engine takes rows from there.

        Nothing waits for it but the next rows that are put there.
        """
        out, plan, row = self.out, self.plan, self.kernel.made.row
        maps = maps_of(self.kernel.made, plan)
        number = next(k for k, m in enumerate(maps) if m.tile == "result")
        m, pack, size = maps[number], f"pack_{result.dtype}", 128 * STAGED
        out("rows_stored()", "syncwarp()")
        out(f"stage = left_tile + {plan.staging} + (4 * team + warp) * {m.count * size}")
        out("place = stage + ((lane & 7) + ((lane >> 3) & 1) * 8) * 128")
        with out.block(f"for k in range(0, {plan.lanes // 8}, 2):"):
            words = ", ".join(f"{pack}(sums[4 * k + {2 * j}], sums[4 * k + {2 * j + 1}])" for j in range(4))
            chunk = f" + {size} * (k >> 3)" if m.count > 1 else ""
            out(f"store_matrices(place + (swizzle ^ (16 * (k & 7))){chunk}, {words})")
        out("proxy_fence()", "syncwarp()")
        with out.block("if leader:"):
            first = f"{axis_name(row)}_first + 64 * team + 16 * warp"
            at = ", ".join([first, *(f"i_{axis_name(a)}" for a in m.axes[2:])])
            for part in range(m.count):
                where = f"stage + {part * size}" if part else "stage"
                out(f"store_{result_name(m.operand)}_rows({where}, maps + {128 * number}, {CHUNK * part}, {at})")

    def _value(self, scope: TileScalars, result: Result) -> str:
        kind = "b" if result.dtype == "bool" else "i" if "int" in result.dtype else "f"
        value = scope.converted(result.node, kind)
        if result.void is None:
            return value
        return f"{literal(float(result.empty), kind, 'f32')} if {scope.text(result.void, 1)} else {value}"
