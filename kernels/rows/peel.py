"""Rows that start anywhere: whole vectors at multiples of their size, and the elements beside them one by one.

A row of n elements begins `head` elements before the first address that is a multiple of a vector's size. Vectors are
read from there to `body_end`; of the elements before and after them, fewer than two vectors' worth, thread t of the row
has one, at `edge`, or none, where `edge` is no place of the row. It lies in the tile behind the others, and whatever is
done with every element of a vector is done with it as well. Arrays whose rows start elsewhere than the leader's
(`Layout.leader`) are read by pairs of aligned vectors (`load_shifted_…`); without a leader, all of them are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.source.statements import Block, Statement

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


class Peel:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.on = kernel, kernel.schedule.peel
        self.repeated: list[Statement] | None = None  # of the last walk, what is said of one element
        self.clamped = False  # whether places beyond the row are those of its last vector (`Elements.clamps`)
        self.any_left: str | None = None  # in a walk, the test whether a thread has elements, where it may have none

    @property
    def end(self) -> str:
        """Where a row's whole vectors end."""
        return "body_end" if self.on else "length"

    @property
    def in_whole_vectors(self) -> str:
        """How many elements of a row lie in whole vectors."""
        return f"{self.end} - head" if self.kernel.layout.leader else self.end

    @property
    def way(self) -> str:
        """How elements of a tile are loaded: where it is held and has no branches, LLVM may not move a load into the
        branch that takes it, where the other loads would have been waited for.

        Softmax of 700 rows of 30001 bfloat16 takes 37 us, 48 without; of 50 of 1253 float16 2.6 and 3.0 (H100,
        2026-11-27).
        """
        return "early_" if self.clamped and self.kernel.schedule.resident else ""

    @property
    def entries(self) -> str:
        """The length of a tile."""
        return "ENTRIES" if self.on else "TILE"

    # --- where vectors begin -----------------------------------------------------------------------------------------

    def print(self) -> None:
        """Where a row's vectors begin and end, and the element beside them that this thread has, if any."""
        s, out, leader = self.kernel.schedule, self.kernel.out, self.kernel.layout.leader
        if not self.on:
            return
        self.kernel.comment(
            "Vectors begin at multiples of their size; of the elements before the first and after the last, thread t "
            "has one, at `edge` (there is none where that is no place of the row)."
        )
        if leader is None:
            out("body_end = length & -VECTOR", "edge = body_end + t")
        else:
            # A row has a whole vector (`legality._peeled`), and so no fewer elements than come before the first.
            out(f"head = {self._unaligned(leader)}", "body_end = length - (length - head & VECTOR - 1)")
            out("edge = t if t < head else body_end + t - head")
        if s.blocks_per_row > 1:
            out("edge = edge if split == 0 else length")
        if not s.resident:
            out("own_edge = edge")

    def _unaligned(self, leader: str) -> str:
        """The text of how many elements of a row come before the first multiple of a vector."""
        access, elements = self.kernel.access, self.kernel.elements
        operand = access.operands.get(leader)
        if operand is not None:
            base = next((text for (name, _), text in elements.bases.items() if name == leader), "0")
            name, dtype = access.array_names[leader], operand.dtype
        else:
            result = next(r for r in self.kernel.program.results if r.key == leader)
            base = elements.result_base(result) or "0"
            name, dtype = access.result_names[result.name], result.dtype
        return f"unaligned_{dtype}x{self.kernel.schedule.vector}({name}, {base})"

    # --- walks -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Before a walk over tiles."""
        if self.on:
            self.kernel.out("edge = own_edge")

    def more(self, stop: str) -> str:
        """The text of whether a walk goes on; where rows are prefetched, all threads walk as many tiles."""
        s, self.any_left = self.kernel.schedule, None
        more = f"first < {stop}{' or edge < length' if self.on else ''}"
        if not (self.on and s.prefetch):
            return more
        self.kernel.out("last = first + PREFETCH")
        self.any_left = f"if {more}:"
        return "first < last"

    def done(self) -> list[str]:
        """At the end of a tile: the element beside whole vectors belongs to the first one."""
        return ["edge = length"] if self.on else []

    def count(self, vectors: str, most: int) -> str:
        """The text of the elements of a tile that has room for so many vectors."""
        return f"max(0, min({most}, {vectors})) * VECTOR + (1 if edge < length else 0)"

    def fill(self, leaves: Sequence[Node]) -> None:
        """Load the element beside whole vectors."""
        kernel = self.kernel
        if not self.on:
            return
        with kernel.elements.beyond(leaves, kernel.schedule.resident):
            with kernel.out.block(None if self.clamped else "if edge < length:"):
                kernel.out("at = min(edge, length - 1)" if self.clamped else "at = edge")
                if not all(kernel.access.walks_flat(leaf.attr.axes) for leaf in leaves):
                    kernel.elements.places_along(kernel.program.stream)
                for leaf in leaves:
                    value = kernel.prefetch.edge(leaf) or kernel.elements.read(leaf, "at")
                    kernel.out(f"{kernel.elements.tiles_of[leaf]}[TILE] = {value}")

    def repeat(self, axes: Iterable[str] = (), change: Callable[[Block], Block] = lambda block: block) -> None:
        """What was said of every element of a vector, of the one beside whole vectors; `change`: what is different."""
        said, self.repeated, kernel = self.repeated, None, self.kernel
        if not self.on or kernel.elements.bounds.part or said is None:
            return
        with kernel.out.block("if edge < length:"):
            kernel.out("k = TILE", "at = edge")
            kernel.elements.places_along(axes)
            kernel.out(*change(tuple(said)))
