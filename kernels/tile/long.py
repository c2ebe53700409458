"""Kernels without columns: contractions of any length come chunk by chunk, with a cascade over an axis of the result.

A block of scores is a product of 64 terms at a time; it is folded as soon as it is complete and never written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from redalg.kernels.cuda.intrinsics.wgmma import CHUNK
from redalg.kernels.tile import comments
from redalg.kernels.tile.splits import finished
from redalg.kernels.tile.wgmma import INIT, Skeleton
from redalg.source.names import axis_name, local, operand_name

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel


class LongSkeleton(Skeleton):
    """Both operands of the contraction come in chunks of 64 terms."""

    def __init__(self, kernel: TensorKernel) -> None:
        super().__init__(kernel)
        self.chunk_bytes = 128 * self.plan.rows, 128 * self.plan.columns

    def described(self) -> Iterator[str]:
        return comments.long(self.kernel, self.drawn)

    def shared(self) -> None:
        out, p = self.out, self.plan
        out.comment("Addresses in shared memory, as the table above has them; mbarriers have 8 bytes.")
        out("t = cuda.threadIdx.x", "warpgroup = warp_uniform(t >> 7)", "smem = cuda.shared.array(0, np.uint8)")
        left, right = self.chunk_bytes
        out("left_tile = shared_base(smem)", f"right_tile = left_tile + STAGES * {left}")
        out(f"full = left_tile + STAGES * {left + right}", "empty = full + 8 * STAGES")
        self.drawing("empty + 8 * STAGES")
        out.comment(INIT)
        with out.block("if t == 0:"):
            with out.block("for stage in range(STAGES):"):
                out("mbarrier_init(full + 8 * stage, 1)", "mbarrier_init(empty + 8 * stage, 4 * CONSUMERS)")
            out(*(["mbarrier_init(tile_full, 1)", "mbarrier_init(tile_empty, 4 * CONSUMERS)"] if self.drawn else []))
            out("fence_mbarrier_init()")
        out("cuda.syncthreads()")
        assert p.long

    def producer(self) -> None:
        out, p, made = self.out, self.plan, self.made
        if p.consumers > 1:
            out("setmaxnreg_dec()")
        left, right = self.chunk_bytes
        out.comment("Producer: one thread keeps the ring full; it waits for consumers only, at empty mbarriers.")
        with out.block("if t == 0:"):
            out("stage = 0", "phase = 1")
            with self.tiles(True):
                self.kernel.tile_places()
                out("block = last")
                with out.block("while block >= low:"):
                    out("term = opaque(0)")
                    with out.block(f"while term < {p.terms}:"):
                        out.comment("A chunk of both operands into the next stage; one mbarrier counts all its bytes.")
                        out("mbarrier_wait(empty + 8 * stage, phase)")
                        out(f"mbarrier_expect_tx(full + 8 * stage, {left + right})")
                        self.box(0, f"left_tile + {left} * stage", f"{axis_name(made.row)}_first")
                        self.box(1, f"right_tile + {right} * stage", "block * COLUMNS")
                        out(*self.step(), f"term = opaque(term + {CHUNK})")
                    out("block = opaque(block - 1)")

    def box(self, number: int, place: str, row: str) -> None:
        m = self.maps[number]
        address = f"maps + {128 * number}" if number else "maps"
        at = ", ".join(["term", row, *(f"i_{axis_name(a)}" for a in m.axes[2:])])
        self.out(f"load_{operand_name(m.operand)}_tile({place}, {address}, full + 8 * stage, {at})")

    @staticmethod
    def step() -> list[str]:
        return ["stage += 1", "phase ^= stage == STAGES", "stage = 0 if stage == STAGES else stage"]

    def consumer(self) -> None:
        out, p, k = self.out, self.plan, self.kernel
        if p.consumers > 1:
            out("setmaxnreg_inc()")
        out.comment(f"Consumers: from here on warpgroup is 0 to {p.consumers - 1}; lane 0 arrives for its warp.")
        out("warpgroup -= 1", "lane = t & 31", "warp = (t >> 5) & 3", "leader = lane == 0", "stage = 0", "phase = 0")
        out(k.registers)
        k.array("S", p.columns // 2)
        for part in self.made.walk.parts:
            if part.name not in k.tile.top_k.lists:
                k.array(local(part.name), 2)
        with self.tiles():
            self.tile()

    def tile(self) -> None:
        out, k, made = self.out, self.kernel, self.made
        k.tile_places()
        out(f"row = {axis_name(made.row)}_first + 64 * warpgroup + 16 * warp + (lane >> 2)")
        self.factor()
        k.tile.top_k.start()
        k.block_places("last")
        self.product(True)
        k.tile.scores(True)
        k.tile.fold(made.walk.lift, True)
        with out.block("for block in range(last - 1, low - 1, -1):"):
            k.block_places("block")
            self.product(False)
            k.tile.scores(False)
            k.tile.fold(made.walk.update, False)
        finished(k)

    def product(self, first: bool) -> None:
        """A block of scores; each chunk is given back when the next one is under way."""
        out, p = self.out, self.plan
        left, right = self.chunk_bytes
        tiles = f"descriptor(left_tile + {left} * stage + 8192 * warpgroup, 16)"
        tiles += f", descriptor(right_tile + {right} * stage, 16)"
        out.comment("S of the block, chunk by chunk; the first product overwrites S.")
        out("mbarrier_wait(full + 8 * stage, phase)", f"multiply(S, {tiles})", "before = stage", *self.step())
        columns = self.kernel.tile.columns
        columns.vote(first)
        if first:
            columns.early()
        if p.terms > CHUNK:
            with out.block(f"for chunk in range(1, {-(-p.terms // CHUNK)}):"):
                out.comment("wgmma.wait_group 1: the product before is done, so that its stage may be filled again.")
                out("mbarrier_wait(full + 8 * stage, phase)", f"multiply_add(S, {tiles})", "scores_wait_1(S)")
                out("mbarrier_arrive(empty + 8 * before, leader)", "before = stage", *self.step())
        out.comment("wgmma.wait_group 0: S is complete.")
        out("scores_wait_0(S)", "mbarrier_arrive(empty + 8 * before, leader)")
