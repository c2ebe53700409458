"""Rows of a tile of sums, reduced in registers and merged over the blocks of a cluster, as statements.

A thread has columns of two rows of its warp's 16 (those of lane/4 and 8 below); the four lanes of a row fold what they
have, join it by shuffles, and all know the state of the block's columns. Each of them sends it to a quarter of the
blocks (a push into a place for every source, counted by an mbarrier of that block), and merges what all have sent, in
the order of the columns. Places and mbarriers are two, for tiles in turns: who has all states of a tile knows that all
blocks have read those of the tile before, so that their places may be written when the one after the next comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.graph.node import Node
from redalg.kernels.code.scalars import Scalars
from redalg.kernels.code.text import joined, literal
from redalg.kernels.gemm.match import SUMS
from redalg.kernels.gemm.row_states import RowStates
from redalg.kernels.ir.program import First, Fold, Loop
from redalg.kernels.rows.fold import IDENTITY
from redalg.kernels.rows.steps import Steps
from redalg.kernels.tile.scalars import TileScalars
from redalg.source.builder import Builder
from redalg.source.names import local

if TYPE_CHECKING:
    from redalg.kernels.gemm.epilogue import Epilogue

HALVES = (0, 1)  # a thread's rows: of lane/4, and 8 below


class RowFolds:
    """Prints what comes between the sums of a tile and its results. Stands for the kernel of rows that steps are
    printed into (`redalg.kernels.rows.steps`)."""

    def __init__(self, epilogue: Epilogue, states: RowStates) -> None:
        self.epilogue, self.states, self.kernel = epilogue, states, epilogue.kernel
        self.out: Builder = epilogue.out
        self.plan, self.made, self.access = epilogue.plan, epilogue.made, epilogue.access
        self.kinds, self.real = self.kernel.kinds, self.kernel.real
        self.parts = [local(p.name) for p in states.walk.parts]

    def write(self) -> None:
        """The state of every row of the tile, under the names that results read."""
        self._places()
        for half in HALVES:
            self._lift(half)
        if self.plan.meeting > 1:
            self._met()
            for half in HALVES:
                self._merge(half)

    # --- the kernel that steps are printed into ----------------------------------------------------------------------

    def flush(self, scope: Scalars) -> None:
        self.out(*scope.lines)
        scope.lines = []

    def scope(self) -> TileScalars:
        """Of one row: states under their own names."""
        quick = self.epilogue.quick
        attained = self.states.program.attained
        bounded = frozenset(n + end for n in attained for end in ("", "_b", "_new"))
        counter, size = self.epilogue.counter, self.access.size
        return TileScalars(self.real, self.kinds, self._leaf, size, counter, bounded=bounded, names=quick)

    def _leaf(self, node: Node) -> str:
        return local(node.attr.name) if node.op == "state" and node.attr.name != SUMS else self.epilogue.leaf(node)

    # --- one block ---------------------------------------------------------------------------------------------------

    @property
    def ragged(self) -> bool:
        """Whether the last block has columns beyond the end."""
        return not self.states.whole

    def _columns(self, first: str) -> str:
        """The number of a block's columns, from `first` on."""
        if not self.ragged:
            return "i64(COLUMNS)"
        return f"i64(min(COLUMNS, {self.access.size(self.made.column)} - {first}))"

    def _lift(self, half: int) -> None:
        """The state of the block's columns of a row."""
        rows = "rows lane/4 of each warp" if half == 0 else "rows 8 below"
        self.out.comment(
            f"The state of the block's columns, {rows}: folds of registers, then of the four lanes of a row."
        )
        self.epilogue.at(half)
        self.out(f"n_b = {self._columns('column_first')}")
        scope = self.scope()
        RowSteps(self, scope, half).steps(self.states.steps(self.states.walk.lift))
        if self.plan.meeting > 1:
            self._push(half)
        else:
            self.out(*(f"{name}_{half} = {name}_b" for name in self.parts))

    def fold(self, loop: Loop, scope: Scalars, half: int) -> None:
        """One walk over the registers of a row."""
        out, bodies = self.out, [b for f in loop.folds for b in f.bodies]
        scope.hoist(bodies, (self.made.column,))
        self.flush(scope)
        for f in loop.folds:
            out(f"{local(f.names[0])} = {literal(IDENTITY[f.kind], 'f', self.real)}")
        for head in self.epilogue.loops(self.plan.columns // 4, self.ragged):
            with out.block(head):
                self.epilogue.register(half, self.ragged)
                inner = scope.child((self.made.column,))
                inner.announce(bodies)
                items = [inner.converted(f.bodies[0], "f", 2) for f in loop.folds]
                self.flush(inner)
                for f, item in zip(loop.folds, items, strict=True):
                    out(self._added(f, item))
        for mask in (1, 2):
            out(*(self._shuffled(f, mask) for f in loop.folds))

    def _added(self, f: Fold, item: str) -> str:
        name = local(f.names[0])
        text = joined(f.kind, "f", self.real, name, item)
        return f"{name} = {text} if there else {name}" if self.ragged else f"{name} = {text}"

    def _shuffled(self, f: Fold, mask: int) -> str:
        name = local(f.names[0])
        return f"{name} = {joined(f.kind, 'f', self.real, name, f'shfl_xor_{self.real}({name}, {mask})')}"

    # --- all blocks of the cluster -----------------------------------------------------------------------------------

    def _places(self) -> None:
        if self.plan.meeting == 1:
            return
        p, out = self.plan, self.out
        out.comment("States of rows lie by block, then row; tiles in turns have two places, and two mbarriers.")
        out(f"slots = partial + {p.state_bytes} * (turn & 1)", "met = exchanged + 8 * (turn & 1)")
        out("own_slot = slots + 16 * (64 * warpgroup + 16 * warp + (lane >> 2))")

    def _at(self, block: str, quad: int, half: int) -> str:
        """Where a thread finds 16 bytes of its row's state of a block."""
        p = self.plan
        return f"own_slot + {16 * p.rows * p.quads} * {block} + {16 * p.rows * quad + 128 * half}"

    def _push(self, half: int) -> None:
        """The block's state of a row to all blocks of the cluster, itself among them."""
        p, out = self.plan, self.out
        if half == 0:
            out.comment(f"Each lane of a row sends its state to blocks lane & 3, 4 further, ... of the {p.meeting}.")
        names = [f"{name}_b" for name in self.parts]
        for first in range(0, p.meeting, 4):
            target = "lane & 3" if first == 0 else f"{first} + (lane & 3)"
            with out.block(f"if (lane & 3) < {p.meeting}:" if p.meeting < 4 else None):
                for quad in range(p.quads):
                    own = [*names[4 * quad : 4 * quad + 4], *["f32(0)"] * 3][:4]
                    out(f"peer_store_quad({self._at('rank', quad, half)}, {target}, {', '.join(own)})")

    def _met(self) -> None:
        p, out = self.plan, self.out
        out.comment("Every warp has sent its rows to all blocks; then all states are here.")
        out("fence_cluster()", "syncwarp()")
        out(*(f"mbarrier_arrive_peer(met, {block}, leader)" for block in range(p.meeting)))
        out("mbarrier_wait_cluster(met, (turn >> 1) & 1)", "turn += 1")
        out(f"sent = cuda.local.array({4 * p.quads}, np.float32)")

    def _merge(self, half: int) -> None:
        """The states of all blocks, in the order of the columns, by the form's combine."""
        p, out = self.plan, self.out
        if half == 0:
            out.comment("Cluster merge: the states of all blocks, in the order of the columns, by the form's combine.")
        self.epilogue.at(half)
        self._read("0", half, "")
        out("n = i64(COLUMNS)")
        with out.block(f"for block in range(1, {p.meeting}):"):
            self._read("block", half, "_b")
            out(f"n_b = {self._columns('block * COLUMNS')}", "n_new = n + n_b")
            scope = self.scope()
            steps = (s for s in self.states.walk.combine if getattr(s, "name", "") != "n_new")
            Steps(self, scope).steps(self.states.steps(tuple(steps)))
            out(*(f"{name} = {name}_new" for name in self.parts), "n = n_new")
        out(*(f"{name}_{half} = {name}" for name in self.parts))

    def _read(self, block: str, half: int, end: str) -> None:
        for quad in range(self.plan.quads):
            self.out(f"shared_load_quad(sent, {4 * quad}, {self._at(block, quad, half)})")
        self.out(*(f"{name}{end} = sent[{k}]" for k, name in enumerate(self.parts)))


class RowSteps(Steps):
    """Steps whose walks are over registers of a tile's row."""

    def __init__(self, folds: RowFolds, scope: Scalars, half: int) -> None:
        super().__init__(folds, scope)
        self.folds, self.half = folds, half

    def _walk(self, loop: Loop, whole: bool) -> None:
        self.folds.flush(self.scope)
        self.folds.fold(loop, self.scope, self.half)

    def _first(self, step: First) -> None:
        """Of the block's first column, which the first of the four lanes has."""
        folds, out, name, real = self.folds, self.folds.out, local(step.name), self.folds.real
        folds.flush(self.scope)
        out("k = 0", "own_column = column_first + 2 * (lane & 3)")
        folds.epilogue.register(self.half, False)
        inner = self.scope.child((folds.made.column,))
        text = inner.converted(step.node, "f")
        folds.flush(inner)
        out(f"{name} = {text}", f"{name} = shfl_idx_{real}({name}, lane & 28)")
        out(f"{name} = {name} if is_finite_{real}({name}) else {real}(0)")


__all__ = ["HALVES", "RowFolds"]
