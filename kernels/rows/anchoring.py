"""Several tiles of a thread about one anchor, that of the first of them, joined to its state together.

Why that is enough: `redalg.kernels.schedule.sampling`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.ir.program import Pass, Step
from redalg.kernels.rows.group import MANY
from redalg.kernels.rows.steps import StepPrinter
from redalg.kernels.schedule.sampling import anchored

if TYPE_CHECKING:
    from redalg.kernels.rows.kernel import Kernel


class Anchoring:
    def __init__(self, kernel: Kernel, p: Pass, counted: bool, tiles: int) -> None:
        found = anchored(p)
        assert found is not None and counted
        self.kernel, self.p, self.parts, self.tiles = kernel, p, found, tiles

    def print(self) -> None:
        """The loop over tiles: fold each, and join every few to the state."""
        kernel, out, folding = self.kernel, self.kernel.out, self.kernel.folding
        kernel.comment(f"{self.tiles} tiles at a time are summed about one anchor, which the first of them gives.")
        out("n_b = i64(0)")
        with kernel.elements.tiles(self.p.ordered, then=self._join):
            out(f"n_tile = {kernel.elements.count()}")
            kernel.elements.load_tile((*self.parts.before, self.parts.sums))
            kernel.elements.shared = set()
            with out.block("if n_b == 0:"):
                out("n_b = n_tile")
                self._steps(self.parts.before)
                folding.start(self.parts.sums.folds)
            with out.block("else:"):
                out("n_b += n_tile")
            folding.add(self.parts.sums, kernel.row.child())

    def _steps(self, steps: tuple[Step, ...]) -> None:
        printer = StepPrinter(self.kernel, self.kernel.row.child())
        self.kernel.group.reciprocals(steps, printer.scope, MANY)
        printer.steps(steps)

    def _join(self) -> None:
        """After a tile: the last of those that are joined at once, or of the row."""
        kernel, out = self.kernel, self.kernel.out
        with out.block(f"if n_b >= {self.tiles} * TILE or first >= {kernel.elements.stop}:"):
            self._steps(self.parts.after)
            kernel.group.absorb(self.p, True)
            out("n_b = i64(0)")
