"""Kernels without lanes: contractions of any length, brought chunk by chunk, and a cascade over an axis of the result.

A block of scores is a product of 64 terms at a time; it is folded as soon as it is complete and never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.intrinsics_tensor import CHUNK
from redalg.kernels.tensor_pieces import finished
from redalg.kernels.tensor_skeleton import Skeleton
from redalg.naming import axis_name, local, operand_name

if TYPE_CHECKING:
    from redalg.kernels.emit_tensor import TensorKernel


class LongSkeleton(Skeleton):
    """Both operands of the contraction come in chunks of 64 terms."""

    def __init__(self, kernel: TensorKernel) -> None:
        super().__init__(kernel)
        self.chunk_bytes = 128 * self.plan.rows, 128 * self.plan.columns

    def shared(self) -> None:
        out, p = self.out, self.plan
        out("t = cuda.threadIdx.x", "team = uniform(t >> 7)", "room = cuda.shared.array(0, np.uint8)")
        left, right = self.chunk_bytes
        out("left_tile = shared_base(room)", f"right_tile = left_tile + STAGES * {left}")
        out(f"full = left_tile + STAGES * {left + right}", "free = full + 8 * STAGES")
        self.drawing("free + 8 * STAGES")
        with out.block("if t == 0:"):
            with out.block("for stage in range(STAGES):"):
                out("barrier_init(full + 8 * stage, 1)", "barrier_init(free + 8 * stage, 4 * TEAMS)")
            out(*(["barrier_init(drawn_full, 1)", "barrier_init(drawn_free, 4 * TEAMS)"] if self.drawn else []))
            out("barrier_ready()")
        out("cuda.syncthreads()")
        assert p.long

    def producer(self) -> None:
        out, p, made = self.out, self.plan, self.made
        if p.teams > 1:
            out("fewer_registers()")
        left, right = self.chunk_bytes
        with out.block("if t == 0:"):
            out("stage = 0", "phase = 1")
            with self.tiles(True):
                self.kernel.tile_places()
                out("block = last")
                with out.block("while block >= low:"):
                    out("term = opaque(0)")
                    with out.block(f"while term < {p.terms}:"):
                        out("barrier_wait(free + 8 * stage, phase)")
                        out(f"barrier_expect(full + 8 * stage, {left + right})")
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
        if p.teams > 1:
            out("more_registers()")
        out("team -= 1", "lane = t & 31", "warp = (t >> 5) & 3", "leader = lane == 0", "stage = 0", "phase = 0")
        out("# registers")
        k.array("S", p.columns // 2)
        for part in self.made.walk.parts:
            if part.name not in k.tile.picks.lists:
                k.array(local(part.name), 2)
        with self.tiles():
            self.tile()

    def tile(self) -> None:
        out, k, made = self.out, self.kernel, self.made
        k.tile_places()
        out(f"row = {axis_name(made.row)}_first + 64 * team + 16 * warp + (lane >> 2)")
        self.factor()
        k.tile.picks.start()
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
        tiles = (
            f"descriptor(left_tile + {left} * stage + 8192 * team, 16), descriptor(right_tile + {right} * stage, 16)"
        )
        out("barrier_wait(full + 8 * stage, phase)", f"multiply(S, {tiles})", "before = stage", *self.step())
        columns = self.kernel.tile.columns
        columns.vote(first)
        if first:
            columns.early()
        if p.terms > CHUNK:
            with out.block(f"for chunk in range(1, {-(-p.terms // CHUNK)}):"):
                out("barrier_wait(full + 8 * stage, phase)", f"multiply_more(S, {tiles})", "scores_first(S)")
                out("barrier_arrive(free + 8 * before, leader)", "before = stage", *self.step())
        out("scores_done(S)", "barrier_arrive(free + 8 * before, leader)")
