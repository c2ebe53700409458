"""A program of the tensor-core class as a numba.cuda kernel for compute capability 9.0.

One warpgroup brings tiles to shared memory, the others compute: for every block of the stream the scores of 64 rows by
the tensor cores, the folds on registers, the weights times values by the tensor cores while the next block's scores are
under way (Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2: warp specialisation, ping-pong, overlap).
Everything that makes it attention, or something else, is printed from the derived form by `redalg.kernels.tile.scores`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from redalg.graph.node import Node, is_const, walk
from redalg.kernels.code.text import joined
from redalg.kernels.ir.program import Module, Param, Step
from redalg.kernels.tile.bounds import Bounds
from redalg.kernels.tile.frozen_max import anchor_of, frozen_steps, largest, nodes_of
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import Frozen, Running, TensorPlan, WidePlan
from redalg.kernels.tile.printer import NUMBERS, QUICK, TilePrinter
from redalg.kernels.tile.scalars import UNROLLED, Element, TileScalars
from redalg.kernels.tile.scores import Tile
from redalg.kernels.tile.splits import merging
from redalg.source.names import axis_name, local, result_name


class TensorKernel(TilePrinter):
    def __init__(self, made: Class, plan: TensorPlan) -> None:
        super().__init__(made.program)
        self.boxed = not isinstance(plan, MmaPlan)
        self.made, self.plan = made, plan
        self.shapes: Mapping[str, str] = {}  # functions of the shapes of tiles, which whoever prints products names
        self.single = False  # whether a thread holds one row, and names are numbers
        self.share, self.held = "rescale", plan.held
        self.each_row = f"for r in range({plan.held}):"
        self.pair = f"s = {2 * plan.held} * (k >> 1) + 2 * r"
        self.register = f"{self.pair} + (k & 1)"  # of element k of row r
        self.wide = isinstance(plan, WidePlan)
        self.span = "SPAN" if self.wide else "COLUMNS"
        self.trades: list[str] = []  # what two warpgroups trade, by its place
        self.at = f"i_{axis_name(made.stream)}"
        self.steps: Sequence[Step] = made.walk.update
        self.tested = self.anchor = ""
        self.edge = False  # whether the block that is printed may reach beyond the end of the stream
        if isinstance(plan.anchor, Frozen):
            self.steps, tested = frozen_steps(made)
            self.tested, self.anchor = local(tested), anchor_of(made)
        self.tile = Tile(self)
        self.edges: dict[Node, str] = {}
        self.bounds = self._bounds()

    # --- leaves ------------------------------------------------------------------------------------------------------

    @property
    def length(self) -> str:
        return self.access.size(self.made.stream)

    def leaf(self, node: Node) -> str:
        if node.op == "state":
            name = local(node.attr.name)
            if node.attr.name in self.tile.top_k.lists:
                return self.tile.top_k.leaf(node.attr.name, node.attr.axes)
            return name if name == "n" or self.single else f"{name}[r]"
        return super().leaf(node)

    def is_clamped(self, axis: str) -> bool:
        return not self.single and (axis == self.made.row or axis == self.made.stream and self.edge)

    def row_scope(self) -> TileScalars:
        return TileScalars(
            self.real,
            self.kinds,
            self.leaf,
            self.access.size,
            self.counter,
            bounded=frozenset(n + end for n in self.program.attained for end in ("", "_b", "_new")),
            names=QUICK,
        )

    def flush(self, scope: TileScalars) -> None:
        self.out(*scope.lines)
        scope.lines = []

    def element(self) -> Element:
        """How the value of an element is written once `Tile.scores` is done."""
        scale = self.made.scale
        floats = self.floats()
        if scale is None or is_const(scale, 1):
            return Element(self.made.value, "S[s]", floats=floats)
        return Element(self.made.value, "S[s]", "factor", "rate", floats=floats)

    def floats(self) -> dict[Node, str]:
        """Positions as exact float32."""
        found = {Node("index", (), self.made.stream): f"f32_i32({self.at})"}
        for axis in self.program.rows:
            found[Node("index", (), axis)] = f"f32_i32(i_{axis_name(axis)})"
        return found

    # --- places ------------------------------------------------------------------------------------------------------

    def row_places(self) -> None:
        row = self.made.row
        self.out(f"i_{axis_name(row)} = row + 8 * r")
        if self._read_along(row):
            self.out(f"clamped_{axis_name(row)} = min(i_{axis_name(row)}, {self.access.size(row)} - 1)")

    def _read_along(self, axis: str) -> bool:
        """Whether single elements of a tensor along this axis are read."""
        made = self.made
        steps = [n for s in (*made.walk.lift, *made.walk.update) for n in nodes_of(s)]
        ends = [e.node for e in made.walk.exports] + [r.node for r in self.program.results]
        found = walk(*steps, *ends, done={made.scores, made.values})
        return any(n.op == "tensor" and axis in n.axes for n in found)

    @contextmanager
    def elements(self, position: bool, first: int = 0, there: bool = False, read: bool = False) -> Iterator[None]:
        """A loop over the elements of a row; `there`: whether each exists, and a position to `read` at that does."""
        count = self.plan.columns // 4
        with self.out.block(f"for k in range({f'{first}, ' if first else ''}{min(count, UNROLLED)}):") as body:
            self.out(self.register)
            if position:
                self.out(f"{self.at} = column + 8 * (k >> 1) + (k & 1)")
            if there:
                self.out(f"in_bounds = {self.at} < {self.length}")
            if read and self.edge:
                self.out(f"clamped_{axis_name(self.made.stream)} = min({self.at}, {self.length} - 1)")
            yield
        for part in range(UNROLLED, count, UNROLLED):
            with self.out.block(f"for k in range({part}, {min(count, part + UNROLLED)}):"):
                self.out(*body)

    def traded(self, found: Sequence[tuple[str, str]]) -> None:
        """Join numbers of both rows, (name, kind), with those of the warpgroup that shares the rows."""
        for name, _ in found:
            if name not in self.trades:
                self.trades.append(name)
        self.out.comment("Both consumers have elements of these rows: one number a row to the other, by shared memory.")
        with self.out.block("if lane & 3 == 0:"), self.out.block("for r in range(2):"):
            for name, _ in found:
                self.out(f"shared_store_f32(own_slot + {512 * self.trades.index(name)} + 32 * r, {name}[r])")
        self.out("named_barrier_sync(1, 256)")
        with self.out.block("for r in range(2):"):
            for name, kind in found:
                theirs = f"shared_load_f32(peer_slot + {512 * self.trades.index(name)} + 32 * r)"
                self.out(f"{name}[r] = {joined(kind, 'f', self.real, f'{name}[r]', theirs)}")

    # --- which blocks ------------------------------------------------------------------------------------------------

    def _bounds(self) -> Bounds:
        made = self.made
        found = self.bounded(made.condition, made.row, made.stream, self.row_scope, self._at_edge)
        # the first positions take what there is not enough of to fill a list, or where nothing is seen at all
        return replace(found, low=None) if self.tile.top_k.lists else found

    def _at_edge(self, node: Node) -> str:
        """A number that bounds read, which a tile reads once."""
        if node.op == "tensor" and node.axes:
            return self.edges.setdefault(node, f"edge{len(self.edges)}")
        return self.leaf(node)

    def whole(self, first: bool) -> str:
        """Whether all elements of the block exist and are shown, as a test."""
        b = self.bounds.whole
        if b == "False":
            return "False"
        if first:
            return f"{axis_name(self.made.stream)}_last < {self.length}" + (f" and {b}" if b != "True" else "")
        return b

    def block_places(self, block: str) -> None:
        """The first and last position of a block, and the thread's first column."""
        s = axis_name(self.made.stream)
        self.edge = block == "last"
        own = f"{block} * {self.span}" + (" + COLUMNS * warpgroup" if self.wide else "")
        self.out(f"{s}_first = {own}", f"{s}_last = {s}_first + (COLUMNS - 1)")
        self.out(f"column = {s}_first + 2 * (lane & 3)")

    def tile_places(self) -> None:
        """Rows, batch indices and blocks of a tile of the output."""
        out, made, tile = self.out, self.made, "tile"
        out.comment("Which tile: its batch, its first row, and the blocks of the stream that it visits.")
        if self.plan.splits > 1:
            out(f"whole = quotient(tile, {self.plan.splits})", f"split = tile - whole * {self.plan.splits}")
            tile = "whole"
        self.located(made.batch, made.row, tile, self.descending if self.plan.uneven else "")
        out(*(f"{name} = {self.leaf(node)}" for node, name in self.edges.items()))
        self.visited(self.bounds, self.length, self.span)
        if self.plan.splits > 1:
            self.split_places()

    def split_places(self) -> None:
        """The blocks of a split: where there are fewer blocks than splits some take one beyond the end, all masked."""
        out, n = self.out, self.plan.splits
        if not self.plan.uneven:
            out("all_blocks = last + 1", f"low = quotient(split * all_blocks, {n})")
            out(f"last = quotient((split + 1) * all_blocks, {n}) - 1")
            return
        out(
            "all_blocks = last - low + 1", "first_block = low", f"low = first_block + quotient(split * all_blocks, {n})"
        )
        out(f"last = first_block + quotient((split + 1) * all_blocks, {n}) - 1")
        beyond = f"quotient({self.length} + ({self.span} - 1), {self.span})"
        out("none = last < low", f"last = {beyond} if none else last", "low = last if none else low")

    # --- the kernel --------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        """What has been printed, as a module."""
        return self._module("kernel", self.plan.threads, self.plan.shared)

    def merging(self) -> Module:
        """The kernel that merges the states of splits, a thread for every row and column."""
        merging(self)
        return self._module("merge", 0, 0)

    def _module(self, what: str, threads: int, shared: int) -> Module:
        p = self.plan
        about = self.about(f"tiles of {p.rows} rows, blocks of {p.span} of the stream, on tensor cores")
        return self.finished(f"{result_name(self.program.name)}_{what}", about, threads, shared)

    def arguments(self) -> list[Param]:
        return [*super().arguments(), *self._scratch()]

    def _scratch(self) -> Iterator[Param]:
        if not isinstance(self.plan.anchor, Running):
            yield Param("scratch", "fallback_flags", "int32", size=self.plan.anchor.flags)
        if self.plan.drawn:
            yield Param("scratch", "counter", "uint32")
        if self.plan.splits > 1:
            for p in self.made.walk.parts:
                dtype, entries = self.tile.top_k.left(p)
                size = self.plan.splits * (self.plan.value_columns if p.axes else entries)
                yield Param("scratch", f"{local(p.name)}_splits", dtype, size=size)

    def constants(self) -> dict[str, object]:
        p = self.plan
        extremes = {"LARGEST": f"f32(2.0**{largest(self.made)})", "LOWEST": "f32(-2.0**127)"}
        sizes = {"ROWS": p.rows, "COLUMNS": p.columns, "SPAN": p.span, "STAGES": p.stages, "CONSUMERS": p.consumers}
        return {**NUMBERS, **extremes, **sizes}

    def makers(self) -> Mapping[str, str]:
        return self.shapes
