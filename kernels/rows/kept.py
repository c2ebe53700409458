"""Rows that are walked side by side and kept in shared memory as they were loaded, until they are walked again.

What a thread of a column schedule reads in its first walk over a row it reads again in every later one, and nobody
else does: it leaves it in shared memory at a place of its own, so that no barrier is needed, and memory is read once.
Where results turn (`redalg.kernels.rows.turn`), every thread puts the result of an element where it found the element;
then the block meets, once, and writes what lies there row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.code.coarsen import SIDE
from redalg.kernels.ir.layouts import kept_arrays, kept_places
from redalg.kernels.ir.program import STORAGE, Result
from redalg.kernels.ir.schedule import ALIGNED, kept_bytes, kept_pitch
from redalg.kernels.rows.prefetch import WHOLE

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

    ahead = False  # whether copies bring rows while those before them are written (`redalg.kernels.rows.kept_ahead`)

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
