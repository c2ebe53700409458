"""What kernels without columns do while the first chunk of a block is multiplied: conditions that are the same for all
rows of a tile, as bits, and what results read of the rows.

A warp asks once for every column of the block: a lane for one of 32, which a vote makes one word. Every lane has two
of every eight columns, at ``2·(lane mod 4)``; the words are shifted by that, so that element k of a row is the bit
``8·(k/2 mod 4) + k mod 2`` of word k/8, a number that the compiler knows. Where all folds are extrema of the elements
themselves, elements that a condition excludes are passed over instead of being given a number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.graph.node import Node, walk
from redalg.graph.operators import Extremum
from redalg.kernels.code.scalars import ATOM
from redalg.kernels.tile.match import folds
from redalg.kernels.tile.plan import columnwise
from redalg.kernels.tile.scalars import TileScalars
from redalg.source.names import axis_name

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel

SHOWN = "has_bit(bits[k >> 3], 8 * ((k >> 1) & 3) + (k & 1))"
EARLY = 4  # leaves of results that are kept in registers from the start of a tile


class Columns:
    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel, self.out, self.made, self.plan = kernel, kernel.out, kernel.made, kernel.plan
        self.voted = self.plan.long and columnwise(self.made)
        self.passed_over = self.voted and self._extrema()
        self.leaves = self._leaves() if self.plan.long else []

    def _extrema(self) -> bool:
        """Whether every fold is an extremum of the value, for which `missing` is its identity."""
        made = self.made
        every = folds(made.walk)
        return not made.guarded and all(isinstance(f.op, Extremum) and f.bodies[0] is made.value for f in every)

    def vote(self, first: bool) -> None:
        """The condition of every column of the block."""
        if not self.voted:
            return
        kernel, out, stream = self.kernel, self.out, self.made.stream
        assert self.made.condition is not None
        kernel.array("bits", self.plan.columns // 32, "np.uint32")
        out.comment("The condition depends on the column alone: one ballot makes a word of 32 of them.")
        with out.block(f"for word in range({self.plan.columns // 32}):"):
            out(f"{kernel.at} = {axis_name(stream)}_first + 32 * word + lane")
            if first:
                out(f"clamped_{axis_name(stream)} = min({kernel.at}, {kernel.length} - 1)")
            scope = kernel.row_scope().child([stream])
            scope.announce([self.made.condition])
            text = scope.text(self.made.condition, ATOM)
            kernel.flush(scope)
            there = f"({kernel.at} < {kernel.length}) & " if first else ""
            out(f"bits[word] = ballot({there}{text}) >> np.uint32(2 * (lane & 3))")

    # --- rows --------------------------------------------------------------------------------------------------------

    def early(self) -> None:
        """Leaves of results that vary with the row, and with nothing but it and the batch, before they are needed."""
        kernel, out = self.kernel, self.out
        if not self.leaves:
            return
        with out.block(kernel.each_row):
            kernel.row_places()
            for k, leaf in enumerate(self.leaves):
                kernel.array(f"early{k}", kernel.held)
                out(f"early{k}[r] = {kernel.leaf(leaf)}")

    def _leaves(self) -> list[Node]:
        made, kernel = self.made, self.kernel
        nodes = [e.node for e in made.walk.exports] + [r.node for r in kernel.program.results]
        rows = set(kernel.program.rows)
        leaves = [n for n in walk(*nodes) if n.op == "tensor" and made.row in n.axes and n.axes <= rows]
        found = [n for n in leaves if kernel.kinds.of(n) == "f"]
        return found if self.plan.splits == 1 and len(found) <= EARLY else []

    def knows(self, scope: TileScalars) -> None:
        """What was read early, by name."""
        scope.known |= {leaf: f"early{k}[r]" for k, leaf in enumerate(self.leaves)}
