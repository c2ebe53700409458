"""The epilogue of a matrix product: expressions of the spec on sums in registers, and 16 bytes at a time to memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from redalg.graph.node import Node, walk
from redalg.kernels.gemm.match import SUMS, sums_of
from redalg.kernels.gemm.tiles import PITCH
from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.rows.kernel import DISCRETE
from redalg.kernels.tile.scalars import TileScalars
from redalg.kernels.tile.stores import ROW, matrices, words
from redalg.source.names import axis_name

if TYPE_CHECKING:
    from redalg.kernels.gemm.kernel import GemmKernel

LIGHT = 12  # nodes of an epilogue whose loops are unrolled
QUICK = {name: f"fast_{name}" for name in ("exp", "log", "tanh", "sigmoid")}  # where all results are of 16 bits


def quick_names(results: Sequence[Result], column: str) -> dict[str, str]:
    """Functions and quotients whose errors in float32 are far below a unit of the results, where all of these are of
    16 bits: of e^x as if x were wrong by a unit or two in the last place, and sums are by more. Not where something
    discrete follows: a tie that is rounded, a comparison; nor where more is read of columns, whose addresses would then
    all be found first, and take registers (416 bytes of spills; the exact quotient branches, and nothing moves across).
    """
    if any(STORAGE[r.dtype] > 2 or "float" not in r.dtype for r in results):
        return {}
    nodes = list(walk(*(r.node for r in results)))
    if any(n.op in DISCRETE or n.op in ("tensor", "index") and column in n.axes for n in nodes):
        return {}
    return {**QUICK, f"/{column}": "fast_div"}


class Epilogue:
    def __init__(self, kernel: GemmKernel) -> None:
        self.kernel, self.out, self.made, self.plan = kernel, kernel.out, kernel.made, kernel.plan
        self.access, self.counter = kernel.access, count(1)
        self.sums, self.half = "S", 0
        self.tall = kernel.plan.tall
        self.parallel = {sums_of(k): name for k, name in enumerate(kernel.sums)}
        self.quick = quick_names(self.made.program.results, self.made.column)

    def write(self, tiles: list[str]) -> None:
        """Results of tiles that lie below each other: 64 rows of each warpgroup, or 16 of a warp, in one array."""
        out, p = self.out, self.plan
        for half, name in enumerate(tiles):
            self.sums, self.half = name, half if self.tall > 1 else 0
            out.comment(*self.kernel.own_rows(half, name, self._how()))
            out(f"own_first = {self.kernel.own_first(half)}")
            results = self.made.program.results
            if p.staged:
                self._finished(results[0])
                (self._bulk if p.bulk else self._staged)(results[0])
            else:
                self._direct()

    def _how(self) -> str:
        if self.plan.bulk:
            return "to shared memory, and from there to memory while the next tile is multiplied"
        return "to memory by way of shared memory" if self.plan.staged else "straight to memory"

    # --- expressions -------------------------------------------------------------------------------------------------

    def _leaf(self, node: Node) -> str:
        if node.op == "size":
            return self.access.size(node.attr)
        if node.op == "index":
            return self._index(node.attr)
        if node.op == "state":
            return f"{self.sums if node.attr.name == SUMS else self.parallel[node.attr.name]}[s]"
        return self.access.leaf(node, self._index)

    def _index(self, axis: str) -> str:
        return f"{'i' if axis in self.made.batch else 'clamped'}_{axis_name(axis)}"

    def _scope(self) -> TileScalars:
        kernel = self.kernel
        return TileScalars(kernel.real, kernel.kinds, self._leaf, self.access.size, self.counter, names=self.quick)

    def _flush(self, scope: TileScalars) -> None:
        self.out(*scope.lines)
        scope.lines = []

    def _rows(self, row: str, near: bool) -> None:
        """The indices of a row: of one that is there, if `near`."""
        out, rows = self.out, self.made.rows
        name = "clamped" if near else "i"
        if near:
            row = f"min({row}, {self.kernel.all_rows()} - 1)"
        if len(rows) == 1:
            out(f"{name}_{axis_name(rows[0])} = {row}")
            return
        out(f"outer = {row}")
        for axis in reversed(rows[1:]):
            out(f"above = quotient(outer, {self.access.size(axis)})")
            out(f"{name}_{axis_name(axis)} = outer - above * {self.access.size(axis)}", "outer = above")
        out(f"{name}_{axis_name(rows[0])} = outer")

    def _value(self, scope: TileScalars, result: Result) -> str:
        inner = scope.child((self.made.column,))
        inner.announce([result.node])
        kind = "b" if result.dtype == "bool" else "i" if "int" in result.dtype else "f"
        value = inner.converted(result.node, kind)
        self._flush(inner)
        return value

    def _by_column(self) -> bool:
        nodes = walk(*(r.node for r in self.made.program.results))
        return any(self.made.column in n.axes for n in nodes if n.op in ("tensor", "index"))

    def _hoisted(self) -> TileScalars:
        scope = self._scope()
        nodes = [r.node for r in self.made.program.results]
        scope.announce(nodes)
        scope.hoist(nodes, (self.made.column,))
        self._flush(scope)
        return scope

    def _loops(self, length: int) -> Iterator[str]:
        """Loops so short that they are unrolled, since only then registers are addressed by numbers.

        Columns are counted anew from time to time: addresses that are kept for other rows would take registers.
        """
        light = len(list(walk(*(r.node for r in self.made.program.results)))) <= LIGHT
        for first in range(0, length, 8):
            if self._by_column():
                self.out("syncwarp()", "own_column = opaque(column_first + 2 * (lane & 3))")
            last = min(first + 8, length)
            parts = [(first, last)] if light else [(k, k + 1) for k in range(first, last)]
            yield from (f"for k in range({low}, {high}):" for low, high in parts)

    def _elements(self, scope: TileScalars, result: Result) -> str:
        """The text of the result's value at register `s`."""
        column = self.made.column
        if self._by_column():
            at = f"own_column + 8 * (s >> {self.tall.bit_length() + 1}) + (s & 1)"
            self.out(f"clamped_{axis_name(column)} = min({at}, {self.access.size(column)} - 1)")
        return self._value(scope, result)

    # --- by way of shared memory -------------------------------------------------------------------------------------

    def _finished(self, result: Result) -> None:
        """Values in place of the sums."""
        out, p = self.out, self.plan
        if result.node.op == "state":
            return
        for below in (0, 8):
            self._rows(f"own_first + (lane >> 2) + {below}", True)
            scope = self._hoisted()
            for head in self._loops(p.own_columns // 4):
                with out.block(head):
                    out(f"s = {4 * self.tall} * (k >> 1) + {4 * self.half + below // 4} + (k & 1)")
                    out(f"{self.sums}[s] = {self._elements(scope, result)}")

    def _place(self) -> None:
        """Every warp has a part of shared memory of its own."""
        p = self.plan
        self.out(f"staged = {self.kernel.staging()} * {16 * p.pitch}")
        if p.instruction == "wgmma":
            self.out(f"place = staged + ({ROW}) * {p.pitch} + (lane >> 4) * 16")
        else:
            self.out(f"place = staged + (lane >> 2) * {p.pitch} + (lane & 3) * 4")

    def _rounded(self, result: Result, first: int, end: int) -> None:
        """Columns of the warp's 16 rows, rounded, to its part of shared memory."""
        for k in range(first // 8, end // 8, 2):
            place = f"place + {16 * k - 2 * first}"
            if self.plan.instruction == "wgmma":
                self.out(matrices(place, result.dtype, self.sums, k))
                continue
            for n in (k, k + 1):
                at, below = 4 * (self.tall * n + self.half), f" + {8 * self.plan.pitch}"
                self.out(*words(f"place + {16 * n - 2 * first}", result.dtype, self.sums, at, below))

    def _staged(self, result: Result) -> None:
        """64 columns at a time: every warp has a part of shared memory of its own."""
        out, p, made = self.out, self.plan, self.made
        name, column = self.access.result_names[result.name], made.column
        self._place()
        for first in range(0, p.own_columns, 64):
            width = min(64, p.own_columns - first)
            said = "the warp's rows to its own part of shared memory, then 16 bytes a lane to memory"
            out.comment(f"Columns {first} to {first + width - 1}: {said}.")
            out("syncwarp()")
            self._rounded(result, first, first + width)
            out("syncwarp()", f"i_{axis_name(column)} = column_first + {first} + 8 * (lane & 7)")
            with out.block("for k in range(4):"):
                out("across = 4 * k + (lane >> 3)", "own = own_first + across")
                place = f"i_{axis_name(column)}"
                there = f"own < {self.kernel.all_rows()} and {place} < {self.access.size(column)}"
                with out.block(f"if {there}{f' and (lane & 7) < {width // 8}' * (width < 64)}:"):
                    self._rows("own", False)
                    where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True))
                    out(f"copy_vector({name}, {where}, staged + {PITCH} * across + 16 * (lane & 7))")

    def _bulk(self, result: Result) -> None:
        """Whole rows, each a copy of its own: every warp has a part of shared memory for its 16."""
        out, p, made = self.out, self.plan, self.made
        name, column = self.access.result_names[result.name], made.column
        self._place()
        out.comment("The rows of the tile before have left shared memory.")
        out("tma_store_wait()", "syncwarp()")
        self._rounded(result, 0, p.own_columns)
        size = self.access.size(column)
        out("fence_proxy_async()", "syncwarp()", "own = own_first + lane", f"i_{axis_name(column)} = column_first")
        with out.block(f"if lane < 16 and own < {self.kernel.all_rows()} and column_first < {size}:"):
            self._rows("own", False)
            where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True))
            length = f"2 * min({p.own_columns}, {size} - column_first)"
            out(f"bulk_store({name}, {where}, staged + {p.pitch} * lane, {length})")

    # --- straight from registers -------------------------------------------------------------------------------------

    def _direct(self) -> None:
        out, p = self.out, self.plan
        for below in (0, 8):
            self._rows(f"own_first + (lane >> 2) + {below}", True)
            scope = self._hoisted()
            out(f"own = own_first + (lane >> 2) + {below}")
            self._rows("own", False)
            for head in self._loops(p.own_columns // 8):
                with out.block(head):
                    out(f"s = {4 * self.tall} * k + {4 * self.half + below // 4}")
                    self._pairs(scope)

    def _pairs(self, scope: TileScalars) -> None:
        """Both neighbours of a row that a thread holds, of every result."""
        out, column = self.out, self.made.column
        out(f"i_{axis_name(column)} = column_first + 8 * k + 2 * (lane & 3)")
        for result in self.made.program.results:
            left = self._named("value_left", scope, result)
            out("s += 1")
            right = self._named("value_right", scope, result)
            out("s -= 1")
            place = f"i_{axis_name(column)}"
            with out.block(f"if own < {self.kernel.all_rows()} and {place} < {self.access.size(column)}:"):
                self._stored(result, [left, right])

    def _named(self, name: str, scope: TileScalars, result: Result) -> str:
        self.out(f"{name} = {self._elements(scope, result)}")
        return name

    def _stored(self, result: Result, values: list[str]) -> None:
        out, access, column = self.out, self.access, self.made.column
        where = " + ".join(access.offset(result.name, result.axes, result.axes, True))
        if self.plan.vector and result.axes[-1] == column:
            out(access.store(result, where, values))
            return
        out(access.store(result, where, values[:1]))
        with out.block(f"if i_{axis_name(column)} + 1 < {access.size(column)}:"):
            step = access.stride(result.name, result.axes.index(column), True)
            out(access.store(result, f"{where} + {step}", values[1:]))


def pairs(result: Result, column: str, length: int) -> int:
    """Elements of a result that may be written together, where its columns are `length` long."""
    if result.axes[-1] != column:
        return 1
    most = 16 // STORAGE[result.dtype]
    return most if length % most == 0 else 2 if length % 2 == 0 else 1


__all__ = ["SUMS", "Epilogue", "pairs"]
