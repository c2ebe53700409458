"""Rows that are prefetched to shared memory while the ones before them are computed.

A block of a persistent grid computes one row after another. Every thread starts to copy its elements of the next row as
soon as it has read those of this one for the last time, and waits for them before it begins the next row. It reads
what it copied itself, so that no barrier is needed; and the copies hold no registers. With a prefetch distance, the
places of tiles are taken in turns, and copies are under way while a row is walked for the first time, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.code.dead_code import eliminated
from redalg.kernels.ir.layouts import prefetched_arrays
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.schedule import ALIGNED
from redalg.source.builder import Builder
from redalg.source.statements import reads

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel

WHOLE = ("float32", "float64")


class Prefetch:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule, self.access = kernel, kernel.schedule, kernel.access
        self.arrays = dict(prefetched_arrays(kernel.program)) if kernel.schedule.prefetch else {}

    @property
    def span(self) -> int:
        """Elements of a tile of all threads of a row."""
        return self.schedule.threads * self.schedule.tile

    @property
    def bytes(self) -> int:
        """Of shared memory."""
        return sum(self._size(n) for n in self.arrays)

    def _size(self, name: str) -> int:
        """Bytes of shared memory that an array has."""
        return STORAGE[self.access.operands[name].dtype] * self.schedule.ring * self.schedule.rows

    # --- around the loop over rows -----------------------------------------------------------------------------------

    def begin(self, step: str, more: str) -> None:
        """Before the first row: who this thread is, where its elements will lie, and the first copies.

        `step`: to a block's next row; `more`: whether there is one of a number."""
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        kernel.comment("Prologue of the pipeline: the first row to shared memory.")
        kernel.who()
        for name in self.arrays:
            dtype = self.access.operands[name].dtype
            cell = dtype if dtype in WHOLE or "int" in dtype else f"uint{8 * STORAGE[dtype]}"
            out(f"{self.access.array_names[name]}_shared = cuda.shared.array(0, np.{cell}, {ALIGNED})")
        out(f"length = {kernel.row_length()}")
        if s.peel:
            for name in self.arrays:
                out(f"next_{self._edge(name)} = {self._edge_of(name, f'min(group, {self._last_group})')}")
        if s.prefetch_distance:
            self._first_turns(step, more)
        else:
            self._first_row(more)

    def _first_row(self, more: str) -> None:
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        if s.rows > 1 or s.blocks_per_row > 1:
            out(f"smem_row = {'r * PREFETCH' if s.rows > 1 else '-split * PREFETCH'}")
        with out.block(f"if {more.format('group')}:"):
            if s.resident:
                kernel.elements.start()
                self._bring("group", "first", "")
                return
            with kernel.elements.tiles():
                self._bring("group", "first", "")

    def _first_turns(self, step: str, more: str) -> None:
        """As many tiles of the first rows as shared memory holds."""
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        low = f"split * {s.prefetch}" if s.blocks_per_row > 1 else ""
        mine = " + ".join(x for x in ("r * RING" if s.rows > 1 else "", "t * VECTOR" if s.vector > 1 else "t") if x)
        out(f"ring_thread = {mine}", "ring_row = 0")
        kernel.elements.stop = "stop" if s.blocks_per_row > 1 else "length"
        tiles = "" if s.tiles == 1 else f" // {s.tiles}"
        with out.block(f"for k in range({s.tiles + s.prefetch_distance}):"):
            place = "" if s.tiles == 1 else f"k % {s.tiles} * (THREADS * TILE)"
            out(f"prefetch_group = group + k{tiles} * {step}")
            out(f"first = {kernel.elements.placed(' + '.join(x for x in (low, place) if x), led=False)}")
            with out.block(f"if {more.format('prefetch_group')}:"):
                self._bring("prefetch_group", "first", "ring_thread + k * (THREADS * TILE)")
            out("cp_async_commit()")

    def arrive(self) -> None:
        """Wait for a row's elements."""
        self.kernel.comment(
            "cp.async.wait_group: this thread's elements are there; it reads only what it copied, so no barrier "
            "is needed."
        )
        self.kernel.out(
            f"cp_async_wait_{self.schedule.prefetch_distance}()"
            if self.schedule.prefetch_distance
            else "cp_async_wait_all()"
        )
        for name in self.arrays if self.schedule.peel else ():
            edge = self._edge(name)
            self.kernel.out(f"{edge} = next_{edge}")
            following = f"min(group + group_stride, {self._last_group})"
            self.kernel.out(f"next_{edge} = {self._edge_of(name, following)}")

    # --- elements beside whole vectors -------------------------------------------------------------------------------

    _last_group = "groups - 1"

    def _edge(self, name: str) -> str:
        return f"{self.access.array_names[name]}_edge"

    def edge(self, leaf: Node) -> str | None:
        """Where the element of a leaf beside whole vectors is kept: it was read a row before, into a register."""
        name = leaf.attr.name
        return self._edge(name) if self.schedule.peel and self.arrays.get(name) == leaf.attr.axes else None

    def _edge_of(self, name: str, row: str) -> str:
        """The text that reads it, by a function of the row."""
        kernel, elements, axes = self.kernel, self.kernel.elements, self.arrays[name]
        saved, kernel.out = kernel.out, Builder()
        bases, results = dict(elements.bases), dict(elements.result_bases)
        self._row_of()
        load = self.access.load(self.access.operands[name], f"{elements.bases[name, axes]} + edge")
        with kernel.out.block("if edge < length:"):
            kernel.out(f"return {load}")
        kind = kernel.kinds.names.get(name, "f") if "int" not in self.access.operands[name].dtype else "i"
        kernel.out("return i64(0)" if kind == "i" else f"return {kernel.real}(0)")
        body, kernel.out = kernel.out, saved
        elements.bases, elements.result_bases = bases, results
        given = self._arguments(reads(body.body()))
        doc = ["This thread's element of a row beside whole vectors, if it has one."]
        function = f"{self._edge(name)}_of"
        kernel.functions[function] = eliminated(body.function(function, ["row", *given], doc, "cuda.jit(device=True)"))
        return f"{function}({', '.join([row, *given])})"

    def _row_of(self) -> None:
        """Print where a row of a number begins in every array, and where its vectors do."""
        elements = self.kernel.elements
        elements.bases, elements.result_bases = {}, {}
        self.kernel.row_axes()
        elements.offsets()
        self.kernel.peel.print()

    def leave(self) -> None:
        """After a row: where the next one begins."""
        s = self.schedule
        if s.prefetch_distance:
            self.kernel.out(f"ring_row = {self._turned('ring_row', s.prefetch)}")

    def _turned(self, name: str, step: int) -> str:
        ring = self.schedule.ring
        return f"{name} + {step} if {name} + {step} < {ring} else {name} - {ring - step}"

    # --- inside a walk -----------------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Before the first tile of a walk: its place."""
        if self.schedule.prefetch_distance:
            self.kernel.out("smem_index = ring_row + ring_thread" if self.schedule.resident else "ring_tile = ring_row")

    def tile(self) -> None:
        """At the beginning of a tile."""
        if self.schedule.prefetch_distance:
            self.kernel.out("smem_index = ring_tile + ring_thread")

    def turn(self) -> None:
        """At the end of a tile."""
        if self.schedule.prefetch_distance:
            self.kernel.out(f"ring_tile = {self._turned('ring_tile', self.span)}")

    def next(self) -> None:
        """The tile that will have this one's place, where there is one: this row has no further use for it."""
        out, s = self.kernel.out, self.schedule
        if not self.arrays:
            return
        self.kernel.comment("This tile has been read for the last time: cp.async of a later row's takes its place.")
        if not s.prefetch_distance:
            with out.block("if has_next:"):
                self._bring("next_group", "first", "")
            return
        rows, rest = divmod(s.tiles + s.prefetch_distance, s.tiles)
        out(f"prefetch_group = group + {f'{rows} * ' if rows > 1 else ''}group_stride")
        begins = "first - head" if self.kernel.layout.leader else "first"
        first = begins
        if rest:
            first = "prefetch_first"
            out(f"prefetch_first = {begins} + {rest * self.span}")
            whole = f"{f'(split + 1) * {s.prefetch}' if s.blocks_per_row > 1 else s.prefetch}"
            with out.block(f"if prefetch_first >= {whole if s.peel else self.kernel.elements.stop}:"):
                out("prefetch_group += group_stride", f"prefetch_first -= {s.prefetch}")
        with out.block("if prefetch_group < groups:"):
            self._bring("prefetch_group", first, "smem_index")
        out("cp_async_commit()")

    # --- one tile ----------------------------------------------------------------------------------------------------

    def _bring(self, group: str, first: str, spot: str) -> None:
        kernel, s, row = self.kernel, self.schedule, group
        if s.rows > 1:
            total = " * ".join(self.access.size(a) for a in kernel.program.rows)
            row = f"min({group} * ROWS + r, {total} - 1)"
        given = {"first": first, "smem_index": spot}
        kernel.out(f"prefetch_tile({', '.join([row, *(given.get(n, n) for n in self._function())])})")

    def place(self, name: str) -> str:
        """The text of where element j, of vector v of the tile, lies in an array's part of the shared memory."""
        s, names = self.schedule, [*self.arrays]
        before = sum(self._size(n) for n in names[: names.index(name)])
        first = before // STORAGE[self.access.operands[name].dtype]
        terms = [f"smem_index + v * {self.kernel.elements.stride}"] if s.prefetch_distance else ["j"]
        terms += ["smem_row"] if not s.prefetch_distance and (s.rows > 1 or s.blocks_per_row > 1) else []
        return " + ".join([*terms, *([str(first)] if first else [])])

    def load(self, leaf: Node, width: int) -> str | None:
        """The text that reads a vector of a leaf from there; None where it is not prefetched."""
        name = leaf.attr.name
        if self.arrays.get(name) != leaf.attr.axes:
            return None
        call = f"load_shared_{self.access.operands[name].dtype}" + (f"x{width}" if width > 1 else "")
        return f"{call}({self.access.array_names[name]}_shared, {self.place(name)})"

    def _function(self) -> list[str]:
        """Write the function that starts the copies of a tile; the names it is given beside the row."""
        kernel, s = self.kernel, self.schedule
        saved, kernel.out = kernel.out, Builder()
        out = kernel.out
        stop = kernel.peel.end if s.peel else kernel.elements.stop
        elements = kernel.elements
        bases, results = dict(elements.bases), dict(elements.result_bases)
        if s.peel:
            self._row_of()
        else:
            kernel.row_axes()
            for name, axes in self.arrays.items():
                terms = self.access.offset(name, axes, kernel.program.rows)
                out(f"{self.access.array_names[name]}_row = {' + '.join(terms)}")
        elements.bases, elements.result_bases = bases, results
        with out.block(f"for v in range({s.tile // s.vector}):"):
            head = "head + " if kernel.layout.leader else ""
            out(f"j = {head}first + v * {kernel.elements.stride}")
            with out.block(None if s.exact else f"if j < {stop}:"):
                for name in self.arrays:
                    array, dtype = self.access.array_names[name], self.access.operands[name].dtype
                    copy = f"copy_{dtype}" + (f"x{s.vector}" if s.vector > 1 else "")
                    out(f"{copy}({array}_shared, {self.place(name)}, {array}, {array}_row + j)")
        kernel.out = saved
        arguments = self._arguments(reads(out.body()))
        doc = ["Start to copy this thread's elements of a tile to shared memory."]
        kernel.functions["prefetch_tile"] = eliminated(
            out.function("prefetch_tile", ["row", *arguments], doc, "cuda.jit(device=True)")
        )
        return arguments

    def _arguments(self, used: frozenset[str]) -> list[str]:
        arrays: Sequence[str] = [self.access.array_names[n] for n in self.arrays]
        every = [*self.access.array_names.values(), *self.access.result_names.values()]
        known = [
            "first",
            "smem_index",
            *(["t", "split", "length"] if self.schedule.peel else [self.kernel.elements.stop]),
            "smem_row",
            *(every if self.schedule.peel else arrays),
            *(f"{a}_shared" for a in arrays),
        ]
        return [n for n in [*known, *sorted(self.access.used)] if n in used]
