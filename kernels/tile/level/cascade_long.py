"""Kernels without columns: contractions of any length come chunk by chunk, with a cascade over an axis of the result.

A block of scores is a product of 64 terms at a time; it is folded as soon as it is complete and never written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redalg.kernels.cuda.intrinsics.wgmma import CHUNK
from redalg.kernels.tile import comments
from redalg.kernels.tile.comments import INIT
from redalg.kernels.tile.kernel import TensorKernel
from redalg.kernels.tile.level.cascade import Mask
from redalg.kernels.tile.level.cascade_wgmma import Skeleton
from redalg.kernels.tile.level.program import Arrive, For, Free, Load, Mma, Op, TileProgram, Wait
from redalg.source.names import axis_name, local, operand_name


class LongSkeleton(Skeleton):
    """Both operands of the contraction come in chunks of 64 terms."""

    def __init__(self, kernel: TensorKernel, tiles: TileProgram) -> None:
        super().__init__(kernel, tiles)
        self.chunk_bytes = 128 * self.plan.rows, 128 * self.plan.columns

    def described(self) -> Iterator[str]:
        return comments.long(self.kernel, self.drawn, self.nest())

    def shared(self) -> None:
        out = self.out
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
            self.initialised()
        out("cuda.syncthreads()")

    def producer(self) -> None:
        out = self.out
        if self.plan.consumers > 1:
            out("setmaxnreg_dec()")
        out.comment("Producer: one thread keeps the ring full; it waits for consumers only, at empty mbarriers.")
        with out.block("if t == 0:"):
            out("stage = 0", "phase = 1")
            with self.each_tile(True):
                self.kernel.tile_places()
                self.produce(self.tiles.bodies["producer"])

    def produce(self, body: Sequence[Op]) -> None:
        out, (left, right) = self.out, self.chunk_bytes
        for op in body:
            if isinstance(op, For) and op.axis == self.made.stream:
                out("block = last")
                with out.block("while block >= low:"):
                    self.produce(op.body)
                    out("block = opaque(block - 1)")
            elif isinstance(op, For):
                out("term = opaque(0)")
                with out.block(f"while term < {self.plan.terms}:"):
                    self.produce(op.body)
                    out(*self.step(), f"term = opaque(term + {CHUNK})")
            elif isinstance(op, Free):
                out.comment("A chunk of both operands into the next stage; one mbarrier counts all its bytes.")
                out("mbarrier_wait(empty + 8 * stage, phase)", f"mbarrier_expect_tx(full + 8 * stage, {left + right})")
            elif isinstance(op, Load) and op.tile == self.names.left:
                self.box(0, f"left_tile + {left} * stage", f"{axis_name(self.made.row)}_first")
            elif isinstance(op, Load):
                self.box(1, f"right_tile + {right} * stage", "block * COLUMNS")

    def box(self, number: int, place: str, row: str) -> None:
        m = self.maps[number]
        address = f"maps + {128 * number}" if number else "maps"
        at = ", ".join(["term", row, *(f"i_{axis_name(a)}" for a in m.axes[2:])])
        self.out(f"load_{operand_name(m.operand)}_tile({place}, {address}, full + 8 * stage, {at})")

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
        with self.each_tile():
            self.tile()

    def factor(self) -> None:
        super().factor()
        self.kernel.tile.top_k.start()

    def loop(self, op: For) -> None:
        """Blocks of the stream, or chunks of a block's product: the first one overwrites S."""
        out = self.out
        if op.axis == self.made.stream:
            super().loop(op)
        elif op.blocks == "first":
            out.comment("S of the block, chunk by chunk; the first product overwrites S.")
            self.consume(op.body)
            out("before = stage", *self.step())
            columns, first = self.kernel.tile.columns, self.block == "last"
            columns.vote(first)
            if first:
                columns.early()
        else:
            with out.block(f"for chunk in range(1, {-(-self.plan.terms // CHUNK)}):"):
                self.consume(op.body)
                out("before = stage", *self.step())

    def of_block(self, block: str, op: For) -> None:
        self.kernel.block_places(block)
        super().of_block(block, op)

    def mask(self, op: Mask) -> None:
        self.masked(op)

    def wait(self, op: Wait) -> None:
        if op.products:
            super().wait(op)
        else:
            self.out("mbarrier_wait(full + 8 * stage, phase)")

    def arrive(self, op: Arrive) -> None:
        self.out("mbarrier_arrive(empty + 8 * before, leader)")

    def multiply(self, op: Mma) -> None:
        left, right = self.chunk_bytes
        tiles = f"descriptor(left_tile + {left} * stage + 8192 * warpgroup, 16)"
        tiles += f", descriptor(right_tile + {right} * stage, 16)"
        self.out(f"{'multiply' if op.fresh else 'multiply_add'}(S, {tiles})")
