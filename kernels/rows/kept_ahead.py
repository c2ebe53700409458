"""Rows side by side that asynchronous copies bring to where they are kept, while the rows before them are written.

A block of a persistent grid has one group of rows after another. What a thread keeps of a group it reads for the last
time when it writes results: the same elements of the next group then start on their way to the same places, without a
register, and all of them are under way while the blocks of a row meet. A thread waits for what it copied itself, so
that no barrier is needed. Where results turn in these places, copies start when the block has written them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.code.coarsen import SIDE
from redalg.kernels.code.dead_code import eliminated
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.schedule import COPIED
from redalg.kernels.rows.kept import Kept
from redalg.source.builder import Builder
from redalg.source.statements import parameters, reads

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


def comes_ahead(kernel: Kernel, kept: Kept) -> bool:
    """Whether everything that is kept can be copied: neighbours of a thread together, by 4, 8 or 16 bytes."""
    s, layout, access = kernel.schedule, kernel.layout, kernel.access

    def copied(name: str, axes: tuple[str, ...]) -> bool:
        size = STORAGE[access.operands[name].dtype] * s.coarsen
        beside = s.coarsen == 1 or name in layout.coarsened and not layout.astride
        return size in COPIED and beside and access.walks_flat(axes)

    return s.persistent and bool(kept.arrays) and all(copied(n, axes) for n, axes in kept.arrays.items())


class KeptAhead(Kept):
    ahead = True

    def has(self, leaf: Node) -> bool:
        return self.arrays.get(leaf.attr.name) == leaf.attr.axes

    def takes(self, leaf: Node) -> bool:
        return False

    def first(self, more: str) -> None:
        kernel, out = self.kernel, self.kernel.out
        kernel.comment("Prologue of the pipeline: the first rows to shared memory.")
        kernel.who()
        self.declare()
        out(f"length = {kernel.row_length()}")
        with out.block(f"if {more.format('group')}:"):
            self._all("group")

    def begin(self) -> None:
        self.kernel.comment(
            "cp.async.wait_all: this thread's elements are there; it reads only what it copied, so no barrier is needed."
        )
        self.kernel.out("cp_async_wait_all()")

    def next(self) -> None:
        if self.kernel.turn.kept_at:
            return
        self.kernel.comment("This tile has been read for the last time: cp.async of the next rows' takes its place.")
        with self.kernel.out.block("if has_next:"):
            self._bring("next_group")

    def after(self) -> None:
        if self.kernel.turn.kept_at:
            self.kernel.comment("The places of the rows are free: the next ones to shared memory.")
            with self.kernel.out.block("if has_next:"):
                self._all("next_group")

    def _all(self, group: str) -> None:
        """All tiles of a thread."""
        with self.kernel.elements.tiles():
            self._bring(group)

    def _bring(self, group: str) -> None:
        kernel, s = self.kernel, self.schedule
        last = f"{kernel.total} - {1 if s.coarsen == 1 else 'COARSEN'}"
        row = kernel.numbered(f"i64({group}) * ROWS + r" if s.rows > 1 else f"i64({group})")
        kernel.out(f"bring_tile({', '.join([f'min({row}, {last})', *self._function()])})")

    def _function(self) -> list[str]:
        """Write the function that starts the copies of a tile; the names it is given beside the row."""
        kernel, s, elements = self.kernel, self.schedule, self.kernel.elements
        bases, results = dict(elements.bases), dict(elements.result_bases)
        saved, kernel.out = kernel.out, Builder()
        out, elements.bases, elements.result_bases = kernel.out, {}, {}
        row = "row" if s.coarsen == 1 else "first_row"
        out(*([f"row = first_row + {SIDE}"] if s.coarsen > 1 else []))
        kernel.row_axes()
        elements.offsets()
        with out.block("for k in range(TILE):"):
            out(f"at = first + k * {elements.stride}", f"source = min(at, {elements.stop} - 1)")
            for name, axes in self.arrays.items():
                array, dtype = self.access.array_names[name], self.access.operands[name].dtype
                source = elements.index_of(name, axes, "source")
                out(f"copy_{dtype}({self.table(name)}, {self.place(name, 'at')}, {array}, {source})")
        kernel.out, elements.bases, elements.result_bases = saved, bases, results
        doc = ["Start to copy this thread's elements of a tile to shared memory."]
        made = eliminated(kernel.several(out.function("bring_tile", [row], doc, "cuda.jit(device=True)")))
        used = reads(made.body)
        every = [*self.access.array_names.values(), *self.access.result_names.values()]
        known = ["r", "first", "low", elements.stop, *every, *map(self.table, self.arrays), *sorted(self.access.used)]
        arguments = [n for n in known if n in used]
        kernel.functions["bring_tile"] = replace(made, parameters=parameters([row, *arguments]))
        return arguments
