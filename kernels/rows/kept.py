"""Rows that are walked side by side and kept in shared memory as they were loaded, until they are walked again.

What a thread of a column schedule reads in its first walk over a row it reads again in every later one, and nobody
else does: it leaves it in shared memory at a place of its own, so that no barrier is needed, and memory is read once.
Where results turn (`redalg.kernels.rows.turn`), every thread puts the result of an element where it found the element;
then the block meets, once, and writes what lies there row by row.

Where rows are kept by splits, a block of a persistent grid has one group of rows after another. What a thread keeps of
a group it reads for the last time when it writes results: the same elements of the next group then start on their way
to the same places by asynchronous copies, without a register, and all of them are under way while the blocks of a row
meet. A thread waits for what it copied itself, so that no barrier is needed. Where results turn in these places, copies
start when the block has written them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.code.coarsen import SIDE
from redalg.kernels.code.dead_code import eliminated
from redalg.kernels.ir.layouts import kept_arrays, kept_places
from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.ir.schedule import ALIGNED, COPIED, kept_bytes, kept_pitch
from redalg.kernels.rows.prefetch import WHOLE
from redalg.source.builder import Builder
from redalg.source.statements import parameters, reads

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


class Kept:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule, self.access = kernel, kernel.schedule, kernel.access
        self.arrays = dict(kept_arrays(kernel.program)) if kernel.schedule.kept else {}
        self.there: set[Node] = set()  # leaves that an earlier walk has left there

    @property
    def bytes(self) -> int:
        """Of shared memory."""
        return sum(self._size(n) for n in self.arrays)

    @property
    def tables(self) -> frozenset[str]:
        """The names of the arrays in shared memory."""
        return frozenset(self.table(n) for n in self.arrays)

    def _size(self, name: str) -> int:
        return kept_bytes(self.schedule, STORAGE[self.access.operands[name].dtype], bool(self.kernel.layout.turned))

    def _pitch(self, name: str) -> int:
        return kept_pitch(self.schedule, STORAGE[self.access.operands[name].dtype], bool(self.kernel.layout.turned))

    def table(self, name: str) -> str:
        return f"{self.access.array_names[name]}_kept"

    prefetches = False  # whether copies bring rows while those before them are written (`KeptPrefetch`)

    def first(self, more: str) -> None:
        """Before the first group of rows of a persistent grid; `more`: whether there is one of a number."""

    def next(self) -> None:
        """When a tile has been read for the last time."""

    def after(self) -> None:
        """When all results of a group are written, and nobody reads what is kept any more."""

    def begin(self) -> None:
        """Where a group of rows begins."""
        if self.arrays:
            self.kernel.comment("Rows are kept in shared memory; a thread finds there what it put there itself.")
        self.declare()

    def declare(self) -> None:
        """Name the arrays in shared memory."""
        for name in self.arrays:
            dtype = self.access.operands[name].dtype
            cell = dtype if dtype in WHOLE else f"uint{8 * STORAGE[dtype]}"
            self.kernel.out(f"{self.table(name)} = cuda.shared.array(0, np.{cell}, {ALIGNED})")

    def has(self, leaf: Node) -> bool:
        """Whether an earlier walk has left an element there."""
        return leaf in self.there

    def takes(self, leaf: Node) -> bool:
        """Whether this walk is to leave it there."""
        return self.arrays.get(leaf.attr.name) == leaf.attr.axes and leaf not in self.there

    def place(self, name: str, at: str, row: str = "") -> str:
        """The text of where an element lies; `row`: of which row of the block, if not of this thread's. A split keeps
        its own elements, the first of which is at `low`."""
        s, names = self.schedule, [*self.arrays]
        before = sum(self._size(n) for n in names[: names.index(name)]) // STORAGE[self.access.operands[name].dtype]
        mine = "r" if s.coarsen == 1 else f"r * COARSEN + {SIDE}"
        at = at if s.split == 1 else f"({at} - low)"
        return f"{at} * {self._pitch(name)} + {row or mine}" + (f" + {before}" if before else "")

    def load(self, leaf: Node) -> str:
        """The text that reads an element at `at`."""
        name = leaf.attr.name
        dtype = self.access.operands[name].dtype
        return self.access.as_real(dtype, f"load_shared_{dtype}({self.table(name)}, {self.place(name, 'at')})")

    def keep(self, leaf: Node, value: str) -> None:
        """Leave an element at `at` there."""
        name = leaf.attr.name
        dtype = self.access.operands[name].dtype
        self.kernel.out(f"store_shared_{dtype}({self.table(name)}, {self.place(name, 'at')}, {value})")

    # --- results that turn -------------------------------------------------------------------------------------------

    def targets(self, results: list[Result]) -> dict[str, str]:
        """The kept arrays whose places results that turn have, by the keys of these."""
        return kept_places(self.kernel.program, results) if self.arrays else {}


# --- brought while the rows before them are written -------------------------------------------------------------------


def can_prefetch(kernel: Kernel, kept: Kept) -> bool:
    """Whether everything that is kept can be copied: neighbours of a thread together, by 4, 8 or 16 bytes."""
    s, layout, access = kernel.schedule, kernel.layout, kernel.access

    def copied(name: str, axes: tuple[str, ...]) -> bool:
        size = STORAGE[access.operands[name].dtype] * s.coarsen
        contiguous = s.coarsen == 1 or name in layout.coarsened and not layout.astride
        return size in COPIED and contiguous and access.walks_flat(axes)

    return s.persistent and bool(kept.arrays) and all(copied(n, axes) for n, axes in kept.arrays.items())


class KeptPrefetch(Kept):
    prefetches = True

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
            "cp.async.wait_all: this thread's elements are there; it reads what it copied itself, without a barrier."
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
