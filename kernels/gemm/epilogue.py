"""The epilogue of a matrix product: expressions of the spec on sums in registers, and 16 bytes at a time to memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from redalg.graph.node import Node, is_inverse, walk
from redalg.kernels.gemm.held import Bringing, reads_columns
from redalg.kernels.gemm.match import SUMS, sums_of
from redalg.kernels.gemm.row_folds import HALVES, RowFolds
from redalg.kernels.gemm.tiles import PITCH
from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.rows.kernel import DISCRETE
from redalg.kernels.tile.scalars import TileScalars
from redalg.kernels.tile.stores import ROW, matrices, words
from redalg.source.names import axis_name, local

if TYPE_CHECKING:
    from redalg.kernels.gemm.kernel import GemmKernel

LIGHT = 12  # nodes of an epilogue whose loops are unrolled
UNROLLED = 16  # registers of a row in one loop
AHEAD = 4  # pairs of a row whose values are computed before any is stored, where they are read from memory
CELLS_OF = {"f": "np.float32", "i": "np.int64", "b": "np.bool_"}
QUICK = {name: f"fast_{name}" for name in ("exp", "log", "tanh", "sigmoid", "erfc")}  # where all results are of 16 bits


def quick_names(results: Sequence[Result], column: str, vectors: Collection[Node] = ()) -> dict[str, str]:
    """Functions and quotients whose errors in float32 are far below a unit of the results, where all of these are of
    16 bits: of e^x as if x were wrong by a unit or two in the last place, and sums are by more. Not where something
    discrete follows: a tie that is rounded, a comparison; nor where more is read of columns, from memory, whose
    addresses would then all be found first, and take registers (416 bytes of spills; the exact quotient branches, and
    nothing moves across).
    """
    if any(STORAGE[r.dtype] > 2 or "float" not in r.dtype for r in results):
        return {}
    nodes = list(walk(*(r.node for r in results)))
    if any(n.op in DISCRETE or n.op in ("tensor", "index") and column in n.axes and n not in vectors for n in nodes):
        return {}
    return {**QUICK, f"/{column}": "fast_div"}


def quick_of_rows(results: Sequence[Result], column: str) -> dict[str, str]:
    """The same where rows are reduced: comparisons with the ends of a maximum are of no quotient."""
    if any(STORAGE[r.dtype] > 2 or "float" not in r.dtype for r in results):
        return {}
    judged = [a for n in walk(*(r.node for r in results)) if n.op in DISCRETE for a in n.args]
    return QUICK | ({} if any(is_inverse(n) for n in walk(*judged)) else {f"/{column}": "fast_div"})


class Epilogue:
    def __init__(self, kernel: GemmKernel) -> None:
        self.kernel, self.out, self.made, self.plan = kernel, kernel.out, kernel.made, kernel.plan
        self.access, self.counter = kernel.access, count(1)
        self.sums, self.half, self.row = "S", 0, 0
        states, results, column = self.made.states, self.made.program.results, self.made.column
        own = states is None
        self.quick = quick_names(results, column, self.made.held.nodes) if own else quick_of_rows(results, column)
        self.folds = RowFolds(self, states) if states is not None else None
        self.bringing = Bringing(self)

    @property
    def tall(self) -> int:
        return self.plan.tall

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What is computed of elements, and of rows."""
        states = self.made.states
        return tuple(r.node for r in self.made.program.results) if states is None else states.elements()

    @property
    def wide(self) -> list[Result]:
        """Results along columns."""
        return [r for r in self.made.program.results if self.made.column in r.axes]

    @property
    def of_rows(self) -> list[Result]:
        """Results that a row has one of."""
        return [r for r in self.made.program.results if self.made.column not in r.axes]

    def write(self, tiles: list[str]) -> None:
        """Results of tiles that lie below each other: 64 rows of each warpgroup, or 16 of a warp, in one array."""
        out, p = self.out, self.plan
        for half, name in enumerate(tiles):
            self.sums, self.half = name, half if self.tall > 1 else 0
            out.comment(*self.kernel.own_rows(half, name, self._how()))
            out(f"own_first = {self.kernel.own_first(half)}")
            if self.folds is not None:
                self._reduced(self.folds)
            if p.staged:
                self._finished(self.wide[0].node, _kind(self.wide[0]))
                (self._bulk if p.bulk else self._staged)(self.wide[0])
            elif self.wide:
                self._direct()

    def _reduced(self, folds: RowFolds) -> None:
        """What rows are reduced to, of the product's values in the place of the sums; results without columns."""
        assert folds.states.value is not None
        self._finished(folds.states.value, "f")
        folds.write()
        for half in HALVES if self.of_rows else ():
            self.at(half)
            scope = self._scope()
            scope.hoist([r.node for r in self.of_rows], ())
            self._flush(scope)
            self.out(f"own = own_first + (lane >> 2) + {8 * half}")
            self.indices("own", False)
            one = "(lane & 3) == 0" + " and rank == 0" * (self.plan.meeting > 1)
            with self.out.block(f"if {one} and own < {self.kernel.all_rows()}:"):
                for result in self.of_rows:
                    value = scope.converted(result.node, _kind(result))
                    self._flush(scope)
                    where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True)) or "0"
                    self.out(self.access.store(result, where, [value]))

    def at(self, half: int) -> None:
        """The thread's row of lane/4, or that 8 below: what is read along rows is of it."""
        self.row = half
        self.indices(f"own_first + (lane >> 2) + {8 * half}", True)

    def register(self, half: int, there: bool) -> None:
        """Register `s` of the thread's row, of its number `k` there; where that is, if something reads it. `there`:
        whether it is one of a column that exists."""
        out, column = self.out, self.made.column
        out(f"s = {4 * self.tall} * (k >> 1) + {4 * self.half + 2 * half} + (k & 1)")
        if there or self._by_column():
            size = self.access.size(column)
            out(f"column = own_column + 8 * (s >> {self.tall.bit_length() + 1}) + (s & 1)")
            out(f"clamped_{axis_name(column)} = min(column, {size} - 1)")
            out(*([f"there = column < {size}"] if there else []))

    def loops(self, length: int, there: bool) -> Iterator[str]:
        """Loops over the registers of a row, as many as LLVM unrolls: only then they are addressed by numbers."""
        placed = there or self._by_column()
        step = 8 if placed else UNROLLED
        for first in range(0, length, step):
            self.out(*(["syncwarp()", "own_column = opaque(column_first + 2 * (lane & 3))"] if placed else []))
            yield f"for k in range({first}, {min(first + step, length)}):"

    def _how(self) -> str:
        if self.plan.bulk:
            return "to shared memory, and from there to memory while the next tile is multiplied"
        return "to memory by way of shared memory" if self.plan.staged else "straight to memory"

    # --- expressions -------------------------------------------------------------------------------------------------

    def leaf(self, node: Node) -> str:
        if node.op == "size":
            return self.access.size(node.attr)
        if node.op == "index":
            return self.index(node.attr)
        if node.op == "state":
            return self._state(node.attr.name)
        if node in self.made.held.nodes:
            return self.bringing.text(node)
        return self.access.leaf(node, self.index)

    def _state(self, name: str) -> str:
        """A sum, or the state of a row of the tile."""
        parallel = {sums_of(k): sums for k, sums in enumerate(self.kernel.sums)}
        if name in parallel:
            return f"{self.sums if name == SUMS else parallel[name]}[s]"
        return f"i64({self.access.size(self.made.column)})" if name == "n" else f"{local(name)}_{self.row}"

    def index(self, axis: str) -> str:
        return f"{'i' if axis in self.made.batch else 'clamped'}_{axis_name(axis)}"

    def _scope(self) -> TileScalars:
        kernel = self.kernel
        return TileScalars(kernel.real, kernel.kinds, self.leaf, self.access.size, self.counter, names=self.quick)

    def _flush(self, scope: TileScalars) -> None:
        self.out(*scope.lines)
        scope.lines = []

    def indices(self, row: str, near: bool) -> None:
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

    def _value(self, scope: TileScalars, node: Node, kind: str) -> str:
        inner = scope.child((self.made.column,))
        inner.announce([node])
        value = inner.converted(node, kind)
        self._flush(inner)
        return value

    def _by_column(self) -> bool:
        return reads_columns(self.nodes, self.made.column, self.made.held.nodes)

    def _hoisted(self, nodes: Sequence[Node]) -> TileScalars:
        scope = self._scope()
        scope.announce(nodes)
        scope.hoist(nodes, (self.made.column,))
        self._flush(scope)
        return scope

    def _loops(self, length: int, nodes: Sequence[Node]) -> Iterator[str]:
        """Loops so short that they are unrolled, since only then registers are addressed by numbers.

        Columns are counted anew from time to time: addresses that are kept for other rows would take registers.
        """
        light = self.folds is not None or len(list(walk(*nodes))) <= LIGHT
        for first in range(0, length, 8):
            if self._by_column():
                self.out("syncwarp()", "own_column = opaque(column_first + 2 * (lane & 3))")
            last = min(first + 8, length)
            parts = [(first, last)] if light else [(k, k + 1) for k in range(first, last)]
            yield from (f"for k in range({low}, {high}):" for low, high in parts)

    def _elements(self, scope: TileScalars, node: Node, kind: str) -> str:
        """The text of a value at register `s`."""
        column = self.made.column
        if self._by_column():
            at = f"own_column + 8 * (s >> {self.tall.bit_length() + 1}) + (s & 1)"
            self.out(f"clamped_{axis_name(column)} = min({at}, {self.access.size(column)} - 1)")
        return self._value(scope, node, kind)

    # --- by way of shared memory -------------------------------------------------------------------------------------

    def _finished(self, node: Node, kind: str) -> None:
        """Values in place of the sums."""
        out, p = self.out, self.plan
        if node.op == "state":
            return
        self.bringing.wait()
        for half in HALVES:
            self.at(half)
            scope = self._hoisted([node])
            for head in self._loops(p.own_columns // 4, [node]):
                with out.block(head):
                    out(f"s = {4 * self.tall} * (k >> 1) + {4 * self.half + 2 * half} + (k & 1)")
                    out(f"{self.sums}[s] = {self._elements(scope, node, kind)}")

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
                    self.indices("own", False)
                    where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True))
                    out(f"copy_vector({name}, {where}, staged + {PITCH} * across + 16 * (lane & 7))")

    def _bulk(self, result: Result) -> None:
        """Whole rows, each a copy of its own: every warp has a part of shared memory for its 16."""
        out, p, made = self.out, self.plan, self.made
        name, column = self.access.result_names[result.name], made.column
        self._place()
        if made.held.residual is None:
            out.comment("The rows of the tile before have left shared memory.")
            out("tma_store_wait()")
        out("syncwarp()")
        self._rounded(result, 0, p.own_columns)
        size = self.access.size(column)
        out("fence_proxy_async()", "syncwarp()", "own = own_first + lane", f"i_{axis_name(column)} = column_first")
        with out.block(f"if lane < 16 and own < {self.kernel.all_rows()} and column_first < {size}:"):
            self.indices("own", False)
            where = " + ".join(self.access.offset(result.name, result.axes, result.axes, True))
            length = f"2 * min({p.own_columns}, {size} - column_first)"
            out(f"bulk_store({name}, {where}, staged + {p.pitch} * lane, {length})")

    # --- straight from registers -------------------------------------------------------------------------------------

    def _direct(self) -> None:
        """Pairs of neighbours in a row, of every result. Where more is read of columns than the sums, values of several
        pairs come before what stores them: no load moves before a store, and each would be waited for alone."""
        out, p, nodes = self.out, self.plan, [r.node for r in self.wide]
        apart = self._by_column()
        for number, result in enumerate(self.wide if apart else ()):
            out(f"values_{number} = cuda.local.array({2 * AHEAD}, {CELLS_OF[_kind(result)]})")
        for half in HALVES:
            self.at(half)
            scope = self._hoisted(nodes)
            out(f"own = own_first + (lane >> 2) + {8 * half}")
            self.indices("own", False)
            if apart:
                self._batches(scope, half)
                continue
            for head in self._loops(p.own_columns // 8, nodes):
                with out.block(head):
                    self._at_pair(half)
                    for result in self.wide:
                        left = self._named("value_left", scope, result)
                        out("s += 1")
                        right = self._named("value_right", scope, result)
                        out("s -= 1")
                        self._guarded(result, [left, right])

    def _batches(self, scope: TileScalars, half: int) -> None:
        """Values of so many pairs, then their stores."""
        out, length = self.out, self.plan.own_columns // 8
        light = len(list(walk(*self.nodes))) <= LIGHT
        for first in range(0, length, AHEAD):
            last = min(first + AHEAD, length)
            spans = [(first, last)] if light else [(k, k + 1) for k in range(first, last)]
            out("syncwarp()", "own_column = opaque(column_first + 2 * (lane & 3))")
            for low, high in spans:
                with out.block(f"for k in range({low}, {high}):"):
                    self._at_pair(half)
                    for c in range(2):
                        for number, result in enumerate(self.wide):
                            value = self._elements(scope, result.node, _kind(result))
                            out(f"values_{number}[2 * (k - {first}) + {c}] = {value}")
                        out(*(["s += 1"] if c == 0 else []))
            with out.block(f"for k in range({first}, {last}):"):
                self._at_pair(half)
                for number, result in enumerate(self.wide):
                    self._guarded(result, [f"values_{number}[2 * (k - {first}) + {c}]" for c in range(2)])

    def _at_pair(self, half: int) -> None:
        """Where pair `k` of a row lies: from register `s` on."""
        self.out(f"s = {4 * self.tall} * k + {4 * self.half + 2 * half}")
        self.out(f"i_{axis_name(self.made.column)} = column_first + 8 * k + 2 * (lane & 3)")

    def _guarded(self, result: Result, values: list[str]) -> None:
        place = f"i_{axis_name(self.made.column)}"
        there = f"own < {self.kernel.all_rows()} and {place} < {self.access.size(self.made.column)}"
        with self.out.block(f"if {there}:"):
            self._stored(result, values)

    def _named(self, name: str, scope: TileScalars, result: Result) -> str:
        self.out(f"{name} = {self._elements(scope, result.node, _kind(result))}")
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


def _kind(result: Result) -> str:
    """The kind of numbers a result is of."""
    return "b" if result.dtype == "bool" else "i" if "int" in result.dtype else "f"


def pairs(result: Result, column: str, length: int) -> int:
    """Elements of a result that may be written together, where its columns are `length` long."""
    if result.axes[-1] != column:
        return 1
    most = 16 // STORAGE[result.dtype]
    return most if length % most == 0 else 2 if length % 2 == 0 else 1


__all__ = ["SUMS", "Epilogue", "pairs"]
