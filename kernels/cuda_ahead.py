"""Rows that are brought to shared memory while the ones before them are computed.

A block of a persistent grid computes one row after another. Every thread starts to copy its elements of the next row as
soon as it has read those of this one for the last time, and waits for them before it begins the next row. It reads
what it copied itself, so that no barrier is needed; and the copies hold no registers. With a lead, the places of tiles
are taken in turns, and copies are under way while a row is walked for the first time, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redalg.graph import Node
from redalg.kernels.cuda_text import Text
from redalg.kernels.ir import STORAGE
from redalg.kernels.layouts import brought
from redalg.kernels.sweeping import names_read

if TYPE_CHECKING:
    from redalg.kernels.emit_cuda import Kernel

WHOLE = ("float32", "float64")
ALIGNED = 16  # bytes that every array in shared memory starts at a multiple of


class Ahead:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.schedule, self.access = kernel, kernel.schedule, kernel.access
        self.arrays = dict(brought(kernel.program)) if kernel.schedule.room else {}

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
        kernel.who()
        for name in self.arrays:
            dtype = self.access.operands[name].dtype
            cell = dtype if dtype in WHOLE or "int" in dtype else f"uint{8 * STORAGE[dtype]}"
            out(f"{self.access.array_names[name]}_room = cuda.shared.array(0, np.{cell}, {ALIGNED})")
        out(f"length = {kernel.row_length()}")
        if s.lead:
            self._first_turns(step, more)
        else:
            self._first_row(more)

    def _first_row(self, more: str) -> None:
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        if s.rows > 1 or s.pieces > 1:
            out(f"home = {'r * ROOM' if s.rows > 1 else '-piece * ROOM'}")
        with out.block(f"if {more.format('group')}:"):
            if s.resident:
                kernel.elements.start()
                self._bring("group", "first", "")
                return
            with kernel.elements.tiles():
                self._bring("group", "first", "")

    def _first_turns(self, step: str, more: str) -> None:
        """As many tiles of the first rows as there is room for."""
        kernel, out, s = self.kernel, self.kernel.out, self.schedule
        low = f"piece * {s.room}" if s.pieces > 1 else ""
        mine = " + ".join(x for x in ("r * RING" if s.rows > 1 else "", "t * VECTOR" if s.vector > 1 else "t") if x)
        out(f"mine = {mine}", "turn = 0")
        kernel.elements.stop = "stop" if s.pieces > 1 else "length"
        tiles = "" if s.tiles == 1 else f" // {s.tiles}"
        with out.block(f"for k in range({s.tiles + s.lead}):"):
            place = "" if s.tiles == 1 else f"k % {s.tiles} * (THREADS * TILE)"
            out(f"coming = group + k{tiles} * {step}")
            out(f"first = {kernel.elements.placed(' + '.join(x for x in (low, place) if x))}")
            with out.block(f"if {more.format('coming')}:"):
                self._bring("coming", "first", "mine + k * (THREADS * TILE)")
            out("copies_sent()")

    def arrive(self) -> None:
        """Wait for a row's elements."""
        self.kernel.out(f"copies_left_{self.schedule.lead}()" if self.schedule.lead else "copies_here()")

    def leave(self) -> None:
        """After a row: where the next one begins."""
        s = self.schedule
        if s.lead:
            self.kernel.out(f"turn = {self._turned('turn', s.room)}")

    def _turned(self, name: str, step: int) -> str:
        ring = self.schedule.ring
        return f"{name} + {step} if {name} + {step} < {ring} else {name} - {ring - step}"

    # --- inside a walk -----------------------------------------------------------------------------------------------

    def walk(self) -> None:
        """Before the first tile of a walk: its place."""
        if self.schedule.lead:
            self.kernel.out("spot = turn + mine" if self.schedule.resident else "slot = turn")

    def tile(self) -> None:
        """At the beginning of a tile."""
        if self.schedule.lead:
            self.kernel.out("spot = slot + mine")

    def turn(self) -> None:
        """At the end of a tile."""
        if self.schedule.lead:
            self.kernel.out(f"slot = {self._turned('slot', self.span)}")

    def next(self) -> None:
        """The tile that will have this one's place, where there is one: this row has no further use for it."""
        out, s = self.kernel.out, self.schedule
        if not self.arrays:
            return
        if not s.lead:
            with out.block("if more:"):
                self._bring("next_group", "first", "")
            return
        rows, rest = divmod(s.tiles + s.lead, s.tiles)
        out(f"coming = group + {f'{rows} * ' if rows > 1 else ''}between")
        first = "first"
        if rest:
            first = "further"
            out(f"further = first + {rest * self.span}")
            with out.block(f"if further >= {self.kernel.elements.stop}:"):
                out("coming += between", f"further -= {s.room}")
        with out.block("if coming < groups:"):
            self._bring("coming", first, "spot")
        out("copies_sent()")

    # --- one tile ----------------------------------------------------------------------------------------------------

    def _bring(self, group: str, first: str, spot: str) -> None:
        kernel, s, row = self.kernel, self.schedule, group
        if s.rows > 1:
            total = " * ".join(self.access.size(a) for a in kernel.program.rows)
            row = f"min({group} * ROWS + r, {total} - 1)"
        given = {"first": first, "spot": spot}
        kernel.out(f"bring({', '.join([row, *(given.get(n, n) for n in self._function())])})")

    def place(self, name: str) -> str:
        """The text of where element j, of vector v of the tile, lies in an array's part of the shared memory."""
        s, names = self.schedule, [*self.arrays]
        before = sum(self._size(n) for n in names[: names.index(name)])
        first = before // STORAGE[self.access.operands[name].dtype]
        terms = [f"spot + v * {self.kernel.elements.stride}"] if s.lead else ["j"]
        terms += ["home"] if not s.lead and (s.rows > 1 or s.pieces > 1) else []
        return " + ".join([*terms, *([str(first)] if first else [])])

    def load(self, leaf: Node, width: int) -> str | None:
        """The text that reads a vector of a leaf from there; None where it is not brought ahead."""
        name = leaf.attr.name
        if self.arrays.get(name) != leaf.attr.axes:
            return None
        call = f"load_shared_{self.access.operands[name].dtype}" + (f"x{width}" if width > 1 else "")
        return f"{call}({self.access.array_names[name]}_room, {self.place(name)})"

    def _function(self) -> list[str]:
        """Write the function that starts the copies of a tile; the names it is given beside the row."""
        kernel, s = self.kernel, self.schedule
        saved, kernel.out = kernel.out, Text()
        kernel.out.depth = 1
        out = kernel.out
        out('"""Start to copy this thread\'s elements of a tile to shared memory."""')
        kernel.row_axes()
        for name, axes in self.arrays.items():
            terms = self.access.offset(name, axes, kernel.program.rows)
            out(f"{self.access.array_names[name]}_row = {' + '.join(terms)}")
        with out.block(f"for v in range({s.tile // s.vector}):"):
            out(f"j = first + v * {kernel.elements.stride}")
            with out.block(None if s.exact else f"if j < {kernel.elements.stop}:"):
                for name in self.arrays:
                    array, dtype = self.access.array_names[name], self.access.operands[name].dtype
                    copy = f"copy_{dtype}" + (f"x{s.vector}" if s.vector > 1 else "")
                    out(f"{copy}({array}_room, {self.place(name)}, {array}, {array}_row + j)")
        body, kernel.out = kernel.out.text().rstrip(), saved
        arguments = self._arguments(body)
        head = f"def bring({', '.join(['row', *arguments])}):"
        kernel.functions["bring"] = "\n".join(["@cuda.jit(device=True)", head, body])
        return arguments

    def _arguments(self, body: str) -> list[str]:
        used = names_read(f"def bring():\n{body}")
        arrays: Sequence[str] = [self.access.array_names[n] for n in self.arrays]
        known = ["first", "spot", self.kernel.elements.stop, "home", *arrays, *(f"{a}_room" for a in arrays)]
        return [n for n in [*known, *sorted(self.access.used)] if n in used]
