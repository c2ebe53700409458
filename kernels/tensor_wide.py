"""Kernels with more lanes than one warpgroup's registers hold: two warpgroups share 64 rows.

A block of the stream has a part for each: it scores that part, and the two trade what their rows need of each other
(maxima, at the end sums). Weights go to shared memory, where both read all of them: each adds weights times values to
its half of the lanes. The right operand comes chunk by chunk of 64 terms, multiplied as it arrives; where the tensor
with lanes is the first contraction's right operand (latent attention) its tiles serve both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.kernels.intrinsics_tensor import CHUNK
from redalg.kernels.tensor_pieces import finished
from redalg.kernels.tensor_plan import WidePlan, chunks
from redalg.kernels.tensor_skeleton import Skeleton
from redalg.naming import axis_name, local, operand_name

if TYPE_CHECKING:
    from redalg.kernels.emit_tensor import TensorKernel


class WideSkeleton(Skeleton):
    """Prints a whole kernel; ``full`` and ``free`` are the barriers of the two parts of a block."""

    plan: WidePlan

    def __init__(self, kernel: TensorKernel) -> None:
        super().__init__(kernel)
        self.chunks = chunks(self.plan.terms)

    # --- shared memory -----------------------------------------------------------------------------------------------

    def shared(self) -> None:
        out, p = self.out, self.plan
        out("t = cuda.threadIdx.x", "team = uniform(t >> 7)", "room = cuda.shared.array(0, np.uint8)")
        out("left_tile = shared_base(room)", f"right_tile = left_tile + {p.left_bytes}")
        if not p.common:
            out(f"values_tile = right_tile + {2 * p.pair_bytes}")
        out(f"left_full = left_tile + {p.barriers}", "left_free = left_full + 8")
        out("free = left_full + 16", "values_full = left_full + 32", "full = left_full + 48")
        self.drawing(f"full + {16 * self.chunks}")
        with out.block("if t == 0:"):
            out("barrier_init(left_full, 1)", "barrier_init(left_free, 4 * TEAMS)")
            with out.block("for part in range(2):"):
                out("barrier_init(free + 8 * part, 4 * TEAMS)")
                out(*([] if p.common else ["barrier_init(values_full + 8 * part, 1)"]))
            with out.block(f"for chunk in range({2 * self.chunks}):"):
                out("barrier_init(full + 8 * chunk, 1)")
            out(*(["barrier_init(drawn_full, 1)", "barrier_init(drawn_free, 4 * TEAMS)"] if self.drawn else []))
            out("barrier_ready()")
        out("cuda.syncthreads()")

    # --- the producer ------------------------------------------------------------------------------------------------

    def producer(self) -> None:
        out, p = self.out, self.plan
        out("fewer_registers()")
        with out.block("if t == 0:"):
            out("left_phase = 1", "phase = 1")
            with self.tiles(True):
                self.kernel.tile_places()
                out("barrier_wait(left_free, left_phase)", "left_phase ^= 1")
                out(f"barrier_expect(left_full, {p.left_bytes})")
                self.chunks_of("left", "left_tile", f"{axis_name(self.made.row)}_first", "left_full")
                with out.block("for block in range(last, low - 1, -1):"):
                    out("part = opaque(0)")
                    with out.block("while part < 2:"):
                        self.part()
                        out("part = opaque(part + 1)")
                    out("phase ^= 1")

    def part(self) -> None:
        """A part of a block, each chunk with a barrier of its own."""
        out, p = self.out, self.plan
        out("barrier_wait(free + 8 * part, phase)", f"first = block * SPAN + {p.columns} * part")
        self.chunks_of(
            "right", f"right_tile + {p.pair_bytes} * part", "first", f"full + {8 * self.chunks} * part", True
        )
        if not p.common:
            out(f"barrier_expect(values_full + 8 * part, {p.values_bytes})")
            self.chunks_of("values", f"values_tile + {p.values_bytes} * part", "first", "values_full + 8 * part")

    def chunks_of(self, tile: str, place: str, row: str, barrier: str, apart: bool = False) -> None:
        """Boxes of a tile by loops that stay loops: this warpgroup has few registers."""
        out = self.out
        out(f"place = opaque({place})", f"barrier = opaque({barrier})")
        for m in (m for m in self.maps if m.tile == tile):
            number, each = self.maps.index(m), 128 * m.rows
            at = ", ".join(["term", row, *(f"i_{axis_name(a)}" for a in m.axes[2:])])
            out("term = opaque(0)")
            with out.block(f"while term < {CHUNK * m.count}:"):
                out(*([f"barrier_expect(barrier, {each})"] if apart else []))
                address = f"maps + {128 * number}" if number else "maps"
                out(f"load_{operand_name(m.operand)}_tile(place, {address}, barrier, {at})")
                out(f"place = opaque(place + {each})", *(["barrier = opaque(barrier + 8)"] if apart else []))
                out(f"term = opaque(term + {CHUNK})")

    # --- the consumers -----------------------------------------------------------------------------------------------

    def consumer(self) -> None:
        out, p, k = self.out, self.plan, self.kernel
        out("more_registers()", "team -= 1", "lane = t & 31", "warp = (t >> 5) & 3", "leader = lane == 0")
        out(f"own_tile = right_tile + {p.pair_bytes} * team", f"own_full = full + {8 * self.chunks} * team")
        out(
            f"mine = left_tile + {p.trade} + 256 * team + 64 * warp + 4 * (lane >> 2)",
            "theirs = mine + 256 - 512 * team",
        )
        out("within = (lane & 7) + ((lane >> 3) & 1) * 8", "swizzle = ((lane >> 4) * 16) ^ ((lane & 7) * 16)")
        out(f"weights = own_tile + {p.weights} + (16 * warp + within) * 128", "left_phase = 0", "phase = 0")
        out("# registers")
        k.array("S", p.columns // 2)
        k.array("sums", p.own_lanes // 2)
        for part in self.made.walk.parts:
            if not part.axes:
                k.array(local(part.name), 2)
        with self.tiles():
            self.tile()

    def tile(self) -> None:
        """One tile of rows over all its blocks, the last block first."""
        out, k, made, p = self.out, self.kernel, self.made, self.plan
        k.tile_places()
        out(f"row = {axis_name(made.row)}_first + 16 * warp + (lane >> 2)")
        self.factor()
        out("barrier_wait(left_full, left_phase)", "left_phase ^= 1")
        self.product()
        k.block_places("last")
        k.tile.scores(True)
        k.tile.fold(made.walk.lift, True)
        with out.block(f"for k in range({p.own_lanes // 2}):"):
            out("sums[k] = f32(0)")
        self.add()
        with out.block("for block in range(last - 1, low - 1, -1):"):
            self.product()
            k.block_places("block")
            k.tile.scores(False)
            shared = self.shares()
            if shared:
                k.array(k.share, 2)
            k.tile.fold(k.steps, False)
            if shared:
                out(f"moved = {k.share}[0] != f32(1) or {k.share}[1] != f32(1)", "any_moved = ballot(moved)")
                with out.block("if any_moved != 0:"), out.block(f"for k in range({p.own_lanes // 2}):"):
                    out(f"sums[k] = sums[k] * {k.share}[(k >> 1) & 1]")
            self.add()
        out("barrier_arrive(left_free, leader)")
        finished(k)
        if p.anchor == "stays":
            self.note()

    def product(self) -> None:
        """Scores of this warpgroup's part of a block, chunk by chunk as they come."""
        out, p = self.out, self.plan
        out("barrier_wait(own_full, phase)")
        out("multiply(S, descriptor(left_tile, 16), descriptor(own_tile, 16))")
        if self.chunks > 1:
            with out.block(f"for chunk in range(1, {self.chunks}):"):
                out("barrier_wait(own_full + 8 * chunk, phase)")
                left, right = f"left_tile + {128 * p.rows} * chunk", f"own_tile + {128 * p.columns} * chunk"
                out(f"multiply_more(S, descriptor({left}, 16), descriptor({right}, 16))")
        out("scores_done(S)")
        self.turn()

    def add(self) -> None:
        """Weights to shared memory, then weights times values of both parts, to half of the lanes."""
        out, p, made = self.out, self.plan, self.made
        pack = f"pack_{made.dtype}"
        with out.block(f"for k in range(0, {p.columns // 8}, 2):"):
            words = [f"{pack}(S[4 * k + {2 * j}], S[4 * k + {2 * j + 1}])" for j in range(4)]
            out(f"store_matrices(weights + (swizzle ^ (16 * k)), {', '.join(words)})")
        out("proxy_fence()", "turn_wait(2, 256)")
        chunk = 128 * p.columns
        for part in range(2):
            left = f"right_tile + {p.pair_bytes * part + p.weights}"
            half = f"{p.own_lanes // CHUNK * chunk} * team"
            if p.common:
                right = f"right_tile + {p.pair_bytes * part} + {half}"
            else:
                out(f"barrier_wait(values_full + {8 * part}, phase)")
                right = f"values_tile + {p.values_bytes * part} + {half}"
            out(f"weigh(sums, descriptor({left}, 16), descriptor({right}, {chunk}))")
        out("sums_first(sums)", "barrier_arrive(free, leader)", "sums_done(sums)")
        out("barrier_arrive(free + 8, leader)", "phase ^= 1")
