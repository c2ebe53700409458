"""A program of the tensor-core class as a numba.cuda kernel for compute capability 9.0.

One warpgroup brings tiles to shared memory, the others compute: for every block of the stream the scores of 64 rows by
the tensor cores, the folds on registers, the weights times values by the tensor cores while the next block's scores are
under way (Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2: warp specialisation, ping-pong, overlap).
Everything that makes it attention, or something else, is printed from the derived form by `redalg.kernels.tensor_tile`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from redalg.graph import Node, is_const
from redalg.kernels.cuda_access import Access
from redalg.kernels.cuda_imports import imports
from redalg.kernels.cuda_text import Text, definitions, joined, settled
from redalg.kernels.emit_cuda import read
from redalg.kernels.ir import Join, Module, Param, Step
from redalg.kernels.kinds import program_kinds
from redalg.kernels.schedule import Layout, Schedule
from redalg.kernels.sweeping import names_read
from redalg.kernels.tensor_anchor import anchor_of, largest, nodes_of
from redalg.kernels.tensor_anchor import steps as anchored
from redalg.kernels.tensor_bounds import Bounds, bounds
from redalg.kernels.tensor_class import Class
from redalg.kernels.tensor_mma_plan import MmaPlan
from redalg.kernels.tensor_plan import TensorPlan, WidePlan
from redalg.kernels.tensor_scalars import Element, TileScalars
from redalg.kernels.tensor_tile import Tile
from redalg.kernels.wrapping import documented
from redalg.naming import axis_name, local, result_name

QUICK = {"exp": "fast_exp", "tanh": "fast_tanh"}  # functions as exact as weights of 16 bits need them


def emit_tensor(made: Class, plan: TensorPlan) -> Module:
    """The kernel's module; its parameters of role "maps" and "fixed" are `TensorPlan`'s."""
    return TensorKernel(made, plan).module()


def emit_merge(made: Class, plan: TensorPlan) -> Module:
    """The module of the kernel that merges the states of pieces, a thread for every row and lane."""
    return TensorKernel(made, plan).merging()


UNROLLED = 32  # elements of a row in one loop: of longer ones the compiler leaves the registers in memory


class TensorKernel:
    real = "f32"

    def __init__(self, made: Class, plan: TensorPlan) -> None:
        self.made, self.plan, self.program = made, plan, made.program
        self.access = Access(self.program, Schedule(), Layout())
        self.kinds = program_kinds(self.program)
        self.out = Text()
        self.arrays: dict[str, str] = {}
        self.fixed: dict[str, Param] = {}
        self.counter = count(1)
        self.single = False  # whether a thread holds one row, and names are numbers
        self.share, self.held = "share", plan.held
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
        if plan.anchor == "stays":
            self.steps, tested = anchored(made)
            self.tested, self.anchor = local(tested), anchor_of(made)
        self.tile = Tile(self)
        self.edges: dict[Node, str] = {}
        self.bounds = self._bounds()

    # --- leaves ------------------------------------------------------------------------------------------------------

    @property
    def length(self) -> str:
        return self.access.size(self.made.stream)

    def leaf(self, node: Node) -> str:
        if node.op == "size":
            return self.access.size(node.attr)
        if node.op == "index":
            return f"i_{axis_name(node.attr)}"
        if node.op == "state":
            name = local(node.attr.name)
            if node.attr.name in self.tile.picks.lists:
                return self.tile.picks.leaf(node.attr.name, node.attr.axes)
            return name if name == "n" or self.single else f"{name}[r]"
        operand = self.access.operands[node.attr.name]
        if operand.number:
            name = self.access.array_names[operand.name]
            return {"float64": f"f32({name})", "int64": name, "bool": name}[operand.dtype]
        terms = [
            f"{'near' if self._clamped(a) else 'i'}_{axis_name(a)} * {self.access.stride(operand.name, d)}"
            for d, a in enumerate(node.attr.axes)
        ]
        return self.access.load(operand, " + ".join(terms) or "0")

    def _clamped(self, axis: str) -> bool:
        """Whether a tile may reach beyond the end of an axis, where nothing must be read."""
        return not self.single and (axis == self.made.row or axis == self.made.stream and self.edge)

    def row_scope(self) -> TileScalars:
        return TileScalars(
            self.real, self.kinds, self.leaf, self.access.size, self.counter,
            bounded=frozenset(n + end for n in self.program.attained for end in ("", "_b", "_new")),
            names=QUICK,
        )  # fmt: skip

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
            self.out(f"near_{axis_name(row)} = min(i_{axis_name(row)}, {self.access.size(row)} - 1)")

    def _read_along(self, axis: str) -> bool:
        """Whether single elements of a tensor along this axis are read."""
        made = self.made
        steps = [n for s in (*made.walk.lift, *made.walk.update) for n in nodes_of(s)]
        ends = [e.node for e in made.walk.exports] + [r.node for r in self.program.results]
        stack, seen = [*steps, *ends], {made.scores, made.values}
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            if node.op == "tensor" and axis in node.axes:
                return True
            seen.add(node)
            stack += node.args
        return False

    @contextmanager
    def elements(self, position: bool, first: int = 0, there: bool = False, read: bool = False) -> Iterator[None]:
        """A loop over the elements of a row; `there`: whether each exists, and a position to `read` at that does."""
        start, count = len(self.out.lines), self.plan.columns // 4
        with self.out.block(f"for k in range({f'{first}, ' if first else ''}{min(count, UNROLLED)}):"):
            self.out(self.register)
            if position:
                self.out(f"{self.at} = column + 8 * (k >> 1) + (k & 1)")
            if there:
                self.out(f"there = {self.at} < {self.length}")
            if read and self.edge:
                self.out(f"near_{axis_name(self.made.stream)} = min({self.at}, {self.length} - 1)")
            yield
        body = self.out.lines[start + 1 :]
        for part in range(UNROLLED, count, UNROLLED):
            self.out(f"for k in range({part}, {min(count, part + UNROLLED)}):")
            self.out.lines += body

    def traded(self, found: Sequence[tuple[str, str]]) -> None:
        """Join numbers of both rows, (name, kind), with those of the warpgroup that shares the rows."""
        for name, _ in found:
            if name not in self.trades:
                self.trades.append(name)
        with self.out.block("if lane & 3 == 0:"), self.out.block("for r in range(2):"):
            for name, _ in found:
                self.out(f"number_store(mine + {512 * self.trades.index(name)} + 32 * r, {name}[r])")
        self.out("turn_wait(1, 256)")
        with self.out.block("for r in range(2):"):
            for name, kind in found:
                theirs = f"number_load(theirs + {512 * self.trades.index(name)} + 32 * r)"
                self.out(f"{name}[r] = {joined(kind, 'f', self.real, f'{name}[r]', theirs)}")

    def array(self, name: str, count: int, dtype: str = "np.float32") -> None:
        self.arrays[name] = f"{name} = cuda.local.array({count}, {dtype})"

    # --- which blocks ------------------------------------------------------------------------------------------------

    def _bounds(self) -> Bounds:
        if self.made.condition is None:
            return Bounds(None, None, "True")

        def prints(node: Node, row: str, stream: str) -> str:
            scope = self.row_scope()
            names = {self.made.row: row, self.made.stream: stream}
            scope.leaf = lambda n: names.get(n.attr, f"i_{axis_name(n.attr)}") if n.op == "index" else self._at_edge(n)
            return scope.text(node, 2)

        found = bounds(self.made.condition, self.made.row, self.made.stream, prints)
        # the first positions take what there is not enough of to fill a list, or where nothing is seen at all
        return replace(found, low=None) if self.tile.picks.lists else found

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
        own = f"{block} * {self.span}" + (" + COLUMNS * team" if self.wide else "")
        self.out(f"{s}_first = {own}", f"{s}_last = {s}_first + (COLUMNS - 1)")
        self.out(f"column = {s}_first + 2 * (lane & 3)")

    def tile_places(self) -> None:
        """Rows, batch indices and blocks of a tile of the output."""
        out, made, row = self.out, self.made, axis_name(self.made.row)
        blocks, batches, tile = self.fix("row_blocks"), self.fix("batches"), "tile"
        if self.plan.pieces > 1:
            out(f"whole = quotient(tile, {self.plan.pieces})", f"piece = tile - whole * {self.plan.pieces}")
            tile = "whole"
        if self.plan.uneven:
            section = self.fix("section")
            out(f"part = quotient({tile}, {section} * {blocks})", f"rest = {tile} - part * ({section} * {blocks})")
            out(f"wide = min({section}, {batches} - part * {section})", "across = quotient(rest, wide)")
            out(f"batch = part * {section} + (rest - across * wide)")
            out(f"{row}_first = ({blocks} - 1 - across) * ROWS")
        else:
            out(f"batch = quotient({tile}, {blocks})", f"{row}_first = ({tile} - batch * {blocks}) * ROWS")
        out(*self.access.places("batch", made.batch))
        out(f"{row}_last = min({row}_first + (ROWS - 1), {self.access.size(made.row)} - 1)")
        out(*(f"{name} = {self.leaf(node)}" for node, name in self.edges.items()))
        b = self.bounds
        high = f"min({self.length}, {b.high})" if b.high else self.length
        out(f"last = max((({high}) + ({self.span} - 1)) // {self.span}, 1) - 1")
        out(f"low = min(max({b.low}, 0) // {self.span}, last)" if b.low else "low = 0")
        if self.plan.pieces > 1:
            self.piece_places()

    def piece_places(self) -> None:
        """The blocks of a piece: where there are fewer blocks than pieces some take one beyond the end, all masked."""
        out, n = self.out, self.plan.pieces
        if not self.plan.uneven:
            out("all_blocks = last + 1", f"low = quotient(piece * all_blocks, {n})")
            out(f"last = quotient((piece + 1) * all_blocks, {n}) - 1")
            return
        out(
            "all_blocks = last - low + 1", "first_block = low", f"low = first_block + quotient(piece * all_blocks, {n})"
        )
        out(f"last = first_block + quotient((piece + 1) * all_blocks, {n}) - 1")
        beyond = f"quotient({self.length} + ({self.span} - 1), {self.span})"
        out("none = last < low", f"last = {beyond} if none else last", "low = last if none else low")

    def fix(self, name: str) -> str:
        self.fixed.setdefault(name, Param("fixed", name, "int64"))
        return name

    # --- the kernel --------------------------------------------------------------------------------------------------

    def module(self) -> Module:
        from redalg.kernels.tensor_long import LongSkeleton
        from redalg.kernels.tensor_skeleton import Skeleton
        from redalg.kernels.tensor_wide import WideSkeleton

        name = f"{result_name(self.program.name)}_kernel"
        self.out.depth = 1
        if isinstance(self.plan, MmaPlan):
            from redalg.kernels.tensor_mma import LongMmaSkeleton, MmaSkeleton

            (LongMmaSkeleton if self.plan.long else MmaSkeleton)(self).write()
        else:
            (LongSkeleton if self.plan.long else WideSkeleton if self.wide else Skeleton)(self).write()
        return self._finished(name, self.plan.threads, self.plan.shared)

    def merging(self) -> Module:
        """The kernel that merges the states of pieces."""
        from redalg.kernels.tensor_pieces import merging

        self.out.depth = 1
        merging(self)
        return self._finished(f"{result_name(self.program.name)}_merge", 0, 0)

    def _finished(self, name: str, threads: int, shared: int) -> Module:
        params = {self._argument(p): p for p in self.params()}
        lines = self.out.lines
        for place in [i for i, line in enumerate(lines) if line.endswith("    # registers")][:1]:
            before = lines[place].removesuffix("# registers")
            lines = [*lines[:place], *(before + line for line in self.arrays.values()), *lines[place + 1 :]]
        body = "\n".join([*self.about(), *lines, ""])
        names = names_read(f"def {name}({', '.join(params)}):\n{body}")
        params = read(params, names)
        text = f"@cuda.jit\ndef {name}({', '.join(params)}):\n{body}"
        source = "\n\n".join([self._header(names), text])
        return settled(Module(source, name, tuple(params.values()), threads, shared))

    def params(self) -> list[Param]:
        found = [] if isinstance(self.plan, MmaPlan) else [Param("maps", "maps", "uint64")]
        found += [Param("number" if o.number else "operand", o.name, o.dtype) for o in self.program.operands]
        found += [Param("result", r.name, r.dtype) for r in self.program.results]
        found += [Param("scratch", "notes", "int32", size=self.plan.notes)] if self.plan.anchor != "moves" else []
        found += [Param("scratch", "counter", "uint32")] if self.plan.drawn else []
        if self.plan.pieces > 1:
            for p in self.made.walk.parts:
                dtype, entries = self.tile.picks.left(p)
                size = self.plan.pieces * (self.plan.lanes if p.axes else entries)
                found.append(Param("scratch", f"{local(p.name)}_pieces", dtype, size=size))
        return [*found, *self.fixed.values(), *self.access.more()]

    def _argument(self, p: Param) -> str:
        results, arrays = self.access.result_names, self.access.array_names
        if p.role in ("stride", "stride_out"):
            return f"{(arrays if p.role == 'stride' else results)[p.name]}_s{p.dim}"
        if p.role in ("maps", "fixed", "scratch"):
            return p.name
        return f"size_{axis_name(p.name)}" if p.role == "size" else (results if p.role == "result" else arrays)[p.name]

    def about(self) -> list[str]:
        what, _, spec = self.program.title.partition(": ")
        p = self.plan
        how = f"tiles of {p.rows} rows, blocks of {p.span} of the stream, on tensor cores"
        return documented(f"{what}; {how}.", spec.split("; "))

    def _header(self, names: frozenset[str]) -> str:
        p = self.plan
        constants = {
            "INF": "f32(np.inf)", "NAN": "f32(np.nan)", "LOG2E": "f32(1.4426950408889634)", "PI": "f32(np.pi)",
            "E": "f32(np.e)", "LARGEST": f"f32(2.0**{largest(self.made)})", "LOWEST": "f32(-2.0**127)",
            "ROWS": p.rows, "COLUMNS": p.columns, "SPAN": p.span, "STAGES": p.stages, "TEAMS": p.teams,
        }  # fmt: skip
        from redalg.kernels.tensor_mma import header
        from redalg.kernels.tensor_skeleton import factories

        if isinstance(p, MmaPlan):
            lines = ["import numpy as np", "from numba import cuda", "", *imports(names)]
            brought, made = header(self.made, p, names)
            return "\n".join([*lines, *brought, "", *definitions(names, constants), "", *made]) + "\n"
        lines = ["import numpy as np", "from numba import cuda", "", *imports(names)]
        own, makers = factories(self.made, p, names)
        lines += [f"from redalg.kernels.intrinsics_tensor import {', '.join(sorted(own))}"] if own else []
        lines.append("")
        return "\n".join([*lines, *definitions(names, constants), "", *makers]) + "\n"


def join_of(steps: Iterable[Step]) -> Join | None:
    return next((s for s in steps if isinstance(s, Join) and s.axes), None)
