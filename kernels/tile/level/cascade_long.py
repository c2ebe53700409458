"""Kernels without columns: contractions of any length come chunk by chunk, with a cascade over an axis of the result.

A block of scores is a product of 64 terms at a time; it is folded as soon as it is complete and never written."""

from __future__ import annotations

from collections.abc import Iterator

from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.tile import comments
from redalg.kernels.tile.kernel import TensorKernel
from redalg.kernels.tile.level.cascade import Mask
from redalg.kernels.tile.level.cascade_wgmma import Skeleton
from redalg.kernels.tile.level.program import Arrive, For, Free, Load, Mma, TileProgram
from redalg.kernels.tile.level.warpgroups import Ring, barriers, described
from redalg.kernels.tile.plan import chunks
from redalg.source.names import axis_name


class LongSkeleton(Skeleton):
    """Both operands of the contraction come in chunks of 64 terms."""

    kept = "the ring"

    def __init__(self, kernel: TensorKernel, tiles: TileProgram) -> None:
        super().__init__(kernel, tiles)
        self.chunk_bytes = 128 * self.plan.rows, 128 * self.plan.columns

    def described(self) -> Iterator[str]:
        return comments.long(self.kernel, self.drawn, self.nest())

    def shared(self) -> None:
        out = self.out
        self.began()
        left, right = self.chunk_bytes
        out("left_tile = shared_base(smem)", f"right_tile = left_tile + STAGES * {left}")
        out(f"full = left_tile + STAGES * {left + right}", "empty = full + 8 * STAGES")
        self.drawing("empty + 8 * STAGES")
        with self.initialised(), out.block("for stage in range(STAGES):"):
            out(*barriers("full + 8 * stage", "empty + 8 * stage"))

    def states(self, phase: int) -> list[str]:
        return ["stage = 0", f"phase = {phase}"]

    def ring(self, tile: str = "") -> Ring:
        return Ring("full + 8 * stage", "empty + 8 * stage", "phase", self.step())

    def fill(self, op: For) -> None:
        if op.axis == self.made.stream:
            super().fill(op)
            return
        self.out("term = opaque(0)")
        with self.out.block(f"while term < {self.plan.terms}:"):
            self.produce(op.body)
            self.out(*self.step(), f"term = opaque(term + {CHUNK})")

    def free(self, op: Free) -> None:
        self.out.comment("A chunk of both operands into the next stage; one mbarrier counts all its bytes.")
        self.out(*self.ring().freed, self.ring().expected(sum(self.chunk_bytes)))

    def load(self, op: Load) -> None:
        number, row = (0, f"{axis_name(self.made.row)}_first") if op.tile == self.names.left else (1, "block * COLUMNS")
        place = f"{('left', 'right')[number]}_tile + {self.chunk_bytes[number]} * stage"
        self.box(self.maps[number], place, self.ring().full, "term", row)

    def prepared(self) -> None:
        """Nothing: both operands lie in shared memory, and no results are staged."""

    def ended(self) -> None:
        """Nothing: consumers take no turns."""

    def factor(self) -> None:
        super().factor()
        self.kernel.tile.top_k.start()

    def loop(self, op: For) -> None:
        """Blocks of the stream, or chunks of a block's product: the first one overwrites S."""
        if op.axis == self.made.stream:
            super().loop(op)
            return
        if op.blocks == "first":
            self.out.comment("S of the block, chunk by chunk; the first product overwrites S.")
        self.by_chunks(op, chunks(self.plan.terms))
        if op.blocks == "first":
            columns, first = self.kernel.tile.columns, self.block == "last"
            columns.vote(first)
            if first:
                columns.early()

    def of_block(self, block: str, op: For) -> None:
        self.kernel.block_places(block)
        super().of_block(block, op)

    def mask(self, op: Mask) -> None:
        self.masked(op)

    def arrive(self, op: Arrive) -> None:
        self.out("mbarrier_arrive(empty + 8 * before, leader)")

    def multiply(self, op: Mma) -> None:
        left, right = self.chunk_bytes
        tiles = described(f"left_tile + {left} * stage + 8192 * warpgroup")
        tiles += f", {described(f'right_tile + {right} * stage')}"
        self.out(f"{'multiply' if op.fresh else 'multiply_add'}(S, {tiles})")
