"""Kernels with more columns than one warpgroup's registers hold: two warpgroups share 64 rows.

A block of the stream has a part for each: it scores that part, and the two trade what their rows need of each other
(maxima, at the end sums). Weights go to shared memory, where both read all of them: each adds weights times values to
its half of the columns. The right operand comes chunk by chunk of 64 terms, multiplied as it arrives; where the tensor
with columns is the first contraction's right operand (latent attention) its tiles serve both.
"""

from __future__ import annotations

from collections.abc import Iterator

from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.launch.planned import Tile
from redalg.kernels.tile import comments
from redalg.kernels.tile.kernel import TensorKernel
from redalg.kernels.tile.level.cascade import Scale
from redalg.kernels.tile.level.cascade_wgmma import Skeleton
from redalg.kernels.tile.level.program import Arrive, Convert, Exchange, For, Free, Load, Meet, Mma, TileProgram, Wait
from redalg.kernels.tile.level.warpgroups import barriers, described
from redalg.kernels.tile.plan import WidePlan, chunks
from redalg.kernels.tile.results import TensorResults
from redalg.kernels.tile.stores import ROW, matrices
from redalg.source.names import axis_name, local


class WideSkeleton(Skeleton):
    """Prints a whole kernel; ``full`` and ``empty`` are the barriers of the two parts of a block."""

    plan: WidePlan
    kept, own = "both parts", ""

    def __init__(self, kernel: TensorKernel, tiles: TileProgram) -> None:
        super().__init__(kernel, tiles)
        self.chunks = chunks(self.plan.terms)
        self.chunk = False  # whether a chunk of terms behind the first one is multiplied

    def described(self) -> Iterator[str]:
        return comments.wide(self.kernel, self.drawn, self.nest())

    # --- shared memory -----------------------------------------------------------------------------------------------

    def shared(self) -> None:
        out, p = self.out, self.plan
        self.began()
        out("left_tile = shared_base(smem)", f"right_tile = left_tile + {p.left_bytes}")
        if not p.common:
            out(f"values_tile = right_tile + {2 * p.pair_bytes}")
        out(f"left_full = left_tile + {p.barriers}", "left_empty = left_full + 8")
        out("empty = left_full + 16", "values_full = left_full + 32", "full = left_full + 48")
        self.drawing(f"full + {16 * self.chunks}")
        with self.initialised():
            out(*barriers("left_full", "left_empty"))
            with out.block("for part in range(2):"):
                out("mbarrier_init(empty + 8 * part, 4 * CONSUMERS)")
                out(*([] if p.common else ["mbarrier_init(values_full + 8 * part, 1)"]))
            with out.block(f"for chunk in range({2 * self.chunks}):"):
                out("mbarrier_init(full + 8 * chunk, 1)")

    # --- the producer ------------------------------------------------------------------------------------------------

    def states(self, phase: int) -> list[str]:
        return [f"left_phase = {phase}", f"phase = {phase}"]

    def fill(self, op: For) -> None:
        """The parts of a block, which are alike, by one loop."""
        out = self.out
        parts = [self.part_of(t) for x in op.body if isinstance(x, Free) for t in x.tiles[:1]]
        assert parts == [0, 1] and len(op.body) % 2 == 0
        with out.block("for block in range(last, low - 1, -1):"):
            out("part = opaque(0)")
            with out.block("while part < 2:"):
                self.part()
                out("part = opaque(part + 1)")
            out("phase ^= 1")

    def load(self, op: Load) -> None:
        """The left tile."""
        ring = self.ring(op.tile)
        self.out(ring.expected(self.plan.left_bytes))
        self.chunks_of(Tile.LEFT, "left_tile", f"{axis_name(self.made.row)}_first", ring.full)

    def free(self, op: Free) -> None:
        self.out.comment("Left tile, once all consumer warps have read the last one.")
        super().free(op)

    def part(self) -> None:
        """A part of a block, each chunk with a barrier of its own."""
        out, p = self.out, self.plan
        out.comment("A part of the block: its right operand chunk by chunk, each with an mbarrier of its own.")
        out("mbarrier_wait(empty + 8 * part, phase)", f"first = block * SPAN + {p.columns} * part")
        self.chunks_of(
            Tile.RIGHT, f"right_tile + {p.pair_bytes} * part", "first", f"full + {8 * self.chunks} * part", True
        )
        if not p.common:
            out(f"mbarrier_expect_tx(values_full + 8 * part, {p.values_bytes})")
            self.chunks_of(Tile.VALUES, f"values_tile + {p.values_bytes} * part", "first", "values_full + 8 * part")

    def chunks_of(self, tile: Tile, place: str, row: str, barrier: str, apart: bool = False) -> None:
        """Boxes of a tile by loops that stay loops: this warpgroup has few registers."""
        out = self.out
        out(f"place = opaque({place})", f"barrier = opaque({barrier})")
        for m in (m for m in self.maps if m.tile is tile):
            each = 128 * m.rows
            out("term = opaque(0)")
            with out.block(f"while term < {CHUNK * m.count}:"):
                out(*([f"mbarrier_expect_tx(barrier, {each})"] if apart else []))
                self.box(m, "place", "barrier", "term", row)
                out(f"place = opaque(place + {each})", *(["barrier = opaque(barrier + 8)"] if apart else []))
                out(f"term = opaque(term + {CHUNK})")

    # --- the consumers -----------------------------------------------------------------------------------------------

    def consumer_head(self, said: str = "") -> None:
        out, p = self.out, self.plan
        super().consumer_head("warpgroup is 0 or 1")
        out(f"own_tile = right_tile + {p.pair_bytes} * warpgroup", f"own_full = full + {8 * self.chunks} * warpgroup")
        out(
            f"own_slot = left_tile + {p.trade} + 256 * warpgroup + 64 * warp + 4 * (lane >> 2)",
            "peer_slot = own_slot + 256 - 512 * warpgroup",
        )
        out(f"within = {ROW}", "swizzle = ((lane >> 4) * 16) ^ ((lane & 7) * 16)")
        out(f"weights = own_tile + {p.weights} + (16 * warp + within) * 128")

    def prepared(self) -> None:
        """Nothing: weights lie in shared memory, and no results are staged."""

    def ended(self) -> None:
        """Nothing: consumers meet in every block, and take no turns."""

    def scale(self, op: Scale) -> None:
        out, k = self.out, self.kernel
        out.comment("Most blocks move no maximum: rescaling is skipped where no row of the warp needs it.")
        out(f"moved = {k.share}[0] != f32(1) or {k.share}[1] != f32(1)", "any_moved = ballot(moved)")
        with out.block("if any_moved != 0:"):
            super().scale(op)

    def exchange(self, op: Exchange) -> None:
        """Numbers of rows: what every lane kept its share of is added up first."""
        if set(op.tiles) <= self.kernel.tile.deferred:
            TensorResults(self.kernel).summed()
        self.kernel.traded([(local(t), kind) for t, kind in zip(op.tiles, op.kinds, strict=True)])
        self.kernel.tile.scaled()

    def loop(self, op: For) -> None:
        if op.axis == self.made.stream:
            super().loop(op)
        elif op.blocks == "first":
            self.out.comment("S of this consumer's part of the block: each chunk is multiplied as it arrives.")
            self.consume(op.body)
        else:
            with self.out.block(f"for chunk in range(1, {self.chunks}):"):
                self.chunk = True
                self.consume(op.body)
                self.chunk = False

    def wait(self, op: Wait) -> None:
        if op.box:
            self.out(f"mbarrier_wait(own_full{' + 8 * chunk' * self.chunk}, phase)")
        elif op.products or op.tiles == (self.names.left,):
            super().wait(op)
        else:
            self.out(*(f"mbarrier_wait(values_full + {8 * self.part_of(t)}, phase)" for t in op.tiles))

    def part_of(self, tile: str) -> int:
        part = self.tiles.tiles[tile].part
        assert part is not None
        return part

    def arrive(self, op: Arrive) -> None:
        """The left operand's tile goes back, or a part of a block."""
        if op.tiles == (self.names.left,):
            super().arrive(op)
            return
        part = self.part_of(op.tiles[0])
        self.out(f"mbarrier_arrive(empty{' + 8' * part}, leader)", *(["phase ^= 1"] if part else []))

    def multiply(self, op: Mma) -> None:
        """Scores of this consumer's part, 64 terms of them; or weights times values of a part, to half the columns."""
        out, p = self.out, self.plan
        if op.tile == self.names.scores:
            left, right = (f" + {128 * n} * chunk" if self.chunk else "" for n in (p.rows, p.columns))
            tiles = f"{described(f'left_tile{left}')}, {described(f'own_tile{right}')}"
            out(f"{'multiply' if op.fresh else 'multiply_add'}(S, {tiles})")
            return
        part, chunk = self.part_of(op.right), 128 * p.columns
        tile, size = ("right", p.pair_bytes) if p.common else ("values", p.values_bytes)
        right = f"{tile}_tile + {size * part} + {p.own_columns // CHUNK * chunk} * warpgroup"
        left = f"right_tile + {p.pair_bytes * part + p.weights}"
        out(f"multiply_values(sums, {described(left)}, {described(right, chunk)})")

    def convert(self, op: Convert) -> None:
        """Weights to shared memory, where both consumers read all of them."""
        out, p, made = self.out, self.plan, self.made
        out.comment(f"P, rounded to {made.dtype}, to shared memory, where both consumers read all of it.")
        with out.block(f"for k in range(0, {p.columns // 8}, 2):"):
            out(matrices("weights + (swizzle ^ (16 * k))", made.dtype, "S"))

    def meet(self, op: Meet) -> None:
        out = self.out
        out.comment(
            "wgmma reads P by the asynchronous proxy: a fence after the stores, then the other consumer's P too."
        )
        out("fence_proxy_async()", "named_barrier_sync(2, 256)")
