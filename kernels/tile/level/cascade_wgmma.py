"""Tile programs of cascades as statements, by wgmma: one method for every operation.

What is computed on registers between two products is printed by `redalg.kernels.tile.scores`; here are places in shared
memory, barriers, copies and products, in the order that the tile program has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from redalg.graph.node import is_const
from redalg.kernels.ir.tensor_cores import CHUNK, STEP, TF32
from redalg.kernels.launch.planned import Map, Tile
from redalg.kernels.tile import comments
from redalg.kernels.tile.comments import INIT
from redalg.kernels.tile.kernel import TensorKernel
from redalg.kernels.tile.level.cascade import Mask, PingPong, Reduce, Rows, Scale, names_of
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Convert,
    For,
    Free,
    Load,
    Mma,
    Op,
    Store,
    TileProgram,
    Wait,
)
from redalg.kernels.tile.level.warpgroups import (
    Ring,
    Warpgroups,
    at,
    barriers,
    described,
    indices,
    map_at,
    multiplied,
    registers,
)
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.plan import Fallback, Frozen, TensorPlan, WidePlan, maps_of, positive
from redalg.kernels.tile.splits import finished
from redalg.kernels.tile.stores import ROW
from redalg.source.names import axis_name, local, operand_name, result_name


def shapes(made: Class, plan: TensorPlan) -> dict[str, str]:
    """The functions of a kernel's shapes, by name."""
    wide, left = isinstance(plan, WidePlan), "registers" if plan.in_registers else "shared"
    held = "" if wide else f", {plan.columns // 4}"
    terms = CHUNK if plan.long or wide else plan.terms
    rows = {"rows": plan.rows, "b_rows": plan.columns}
    values = {"b_rows": plan.columns, "fresh": False, "transposed": True}
    lines = {
        "multiply": multiplied(plan.columns, terms, made.dtype, left, rows),
        "multiply_values": multiplied(plan.own_columns, plan.columns, made.dtype, "shared" if wide else "", values),
        "scores_wait_0": f"wgmma_wait(0, {plan.columns // 2})",
        "scores_wait_1": f"wgmma_wait(1, {plan.columns // 2})",
        "sums_wait_0": f"wgmma_wait(0, {plan.own_columns // 2}{held})",
        "sums_wait_1": f"wgmma_wait(1, {plan.own_columns // 2})",
        **registers(),
        "multiply_add": multiplied(plan.columns, terms, made.dtype, left, {**rows, "fresh": False}),
    }
    for m in maps_of(made, plan):
        if m.tile is Tile.RESULT:
            lines[f"store_{result_name(m.operand)}_rows"] = f"tma_store({len(m.axes)})"
        else:
            lines[f"load_{operand_name(m.operand)}_tile"] = f"tma_load({len(m.axes)})"
    return lines


class Skeleton(Warpgroups):
    """Prints a whole kernel."""

    kept = "the rings"  # what the producer keeps full
    own = "64 * warpgroup + "  # from the first row of a tile to those of a warpgroup

    def __init__(self, kernel: TensorKernel, tiles: TileProgram) -> None:
        self.kernel, self.out, self.plan, self.made = kernel, kernel.out, kernel.plan, kernel.made
        self.tiles, self.names = tiles, names_of(self.made, self.plan)
        kernel.shapes = self.shapes()
        self.block = ""  # of the stream
        self.body: tuple[Op, ...] = ()  # the operations on it
        self.loads: Counter[str] = Counter()  # of every tile before the loop over other blocks
        self.maps = maps_of(self.made, self.plan)

    def shapes(self) -> dict[str, str]:
        return shapes(self.made, self.plan)

    @property
    def consumers(self) -> int:
        return self.plan.consumers

    @property
    def has_values(self) -> bool:
        return self.made.values is not None

    @property
    def drawn(self) -> bool:
        """Whether blocks draw their tiles from a counter."""
        return self.plan.drawn and not isinstance(self.plan.anchor, Fallback)

    def write(self) -> None:
        out = self.out
        out.comment(*self.described())
        if isinstance(self.plan.anchor, Fallback):
            self.wanted()
        self.shared()
        self.roles()

    def described(self) -> Iterator[str]:
        """What stands above the kernel's first line."""
        return comments.wgmma(self.kernel, self.drawn, self.nest())

    def nest(self) -> list[str]:
        """The tile program in lines."""
        return ["Loop nest:", *(f"  {line}" for line in self.tiles.roles())]

    # --- shared memory -----------------------------------------------------------------------------------------------

    def shared(self) -> None:
        out, p = self.out, self.plan
        self.began()
        out("left_tile = shared_base(smem)", f"right_tile = left_tile + {p.left_bytes}")
        if self.has_values:
            out(f"values_tile = right_tile + STAGES * {p.right_bytes}")
        out(f"left_full = left_tile + {p.barriers}", "left_empty = left_full + 8", "right_full = left_full + 16")
        out("right_empty = right_full + 8 * STAGES")
        self.drawing(f"left_full + {8 * (2 + 4 * p.stages)}")
        if self.has_values:
            out("values_full = right_empty + 8 * STAGES", "values_empty = values_full + 8 * STAGES")
        with self.initialised():
            out(*barriers("left_full", "left_empty"))
            with out.block("for stage in range(STAGES):"):
                for name in ("right", "values") if self.has_values else ("right",):
                    out(*barriers(f"{name}_full + 8 * stage", f"{name}_empty + 8 * stage"))

    def began(self) -> None:
        self.out.comment("Addresses in shared memory, as the table above has them; mbarriers have 8 bytes.")
        super().began()

    @contextmanager
    def initialised(self, said: str = INIT, cluster: bool = False) -> Iterator[None]:
        """With the barriers of tiles that are drawn."""
        with super().initialised(said, cluster):
            yield
            if self.drawn:
                self.out(*barriers("tile_full", "tile_empty"))

    def drawing(self, place: str) -> None:
        """Where the number of the tile that is drawn next lies, and its barriers."""
        if self.drawn:
            self.out(f"tile_full = {place}", "tile_empty = tile_full + 8", "tile_slot = tile_full + 16")

    @contextmanager
    def draws(self, producer: bool) -> Iterator[None]:
        """A loop over tiles that are drawn from a counter: the producer tells the others."""
        out, tiles = self.out, self.kernel.fix("tiles")
        out(f"tile_phase = {int(producer)}", "tile = opaque(cuda.blockIdx.x)")
        with out.block(f"while tile < {tiles}:"):
            yield
            if producer:
                out.comment("The next tile: drawn from the counter, handed over as soon as all have read the last one.")
                out("tile = cuda.gridDim.x + atomic_inc_acq_rel(counter, 0)")
                out(
                    "mbarrier_wait(tile_empty, tile_phase)",
                    "shared_store_b32(tile_slot, tile)",
                    "mbarrier_arrive(tile_full, 1)",
                )
            else:
                out.comment("The number of the next tile, from the producer.")
                out("mbarrier_wait(tile_full, tile_phase)", "tile = shared_load_b32(tile_slot)")
                out("mbarrier_arrive(tile_empty, leader)")
            out("tile_phase ^= 1")

    @contextmanager
    def each_tile(self, producer: bool = False) -> Iterator[None]:
        """A loop over the tiles of a block."""
        out, flags = self.out, self.flags
        with self.draws(producer) if self.drawn else self.in_turns(self.kernel.fix("tiles")):
            if not isinstance(self.plan.anchor, Fallback):
                yield
                return
            out.comment("A flag of every warp: without one the tile's results stand.")
            out("failed = i64(0)")
            with out.block(f"for k in range({flags}):"):
                out(f"failed |= load_int32(fallback_flags, {flags} * tile + k)")
            with out.block("if failed != 0:"):
                yield

    @property
    def flags(self) -> int:
        """Fallback flags of a tile: one of every warp, whether any of its rows failed the test."""
        return 4 * self.plan.consumers

    def wanted(self) -> None:
        """Leave at once if no tile of this block is to be computed anew."""
        out = self.out
        out("failed = i64(0)", "k = i64(cuda.threadIdx.x)")
        mine = f"cuda.blockIdx.x + k // {self.flags} * cuda.gridDim.x"
        with out.block(f"while {mine} < {self.kernel.fix('tiles')}:"):
            out(
                f"failed |= load_int32(fallback_flags, {self.flags} * ({mine}) + k % {self.flags})",
                "k += cuda.blockDim.x",
            )
        with out.block("if cuda.syncthreads_or(failed) == 0:"):
            out("return")

    def largest(self) -> None:
        """The largest of the thread's sums with columns, before results take their place."""
        out = self.out
        out.comment(
            "Weights of a frozen maximum may be larger than 1, and take sums out of the range: the largest one."
        )
        out("most = f32(0)")
        with out.block(f"for k in range({self.kernel.held * self.plan.own_columns // 4}):"):
            out("most = max_nan_f32(most, abs_f32(sums[k]))")

    def flag(self) -> None:
        """Whether the sum of any row of the warp shows that something was lost."""
        out, k, tested = self.out, self.kernel, self.kernel.tested
        out.comment("Validation of the frozen maximum: a row that lost something raises its warp's fallback flag.")
        part = next(p for p in self.made.walk.parts if p.name == self.kernel.anchor)
        out("failed = False")
        with out.block("for r in range(2):"):
            k.row_places()
            lost = f"not (f32(1) <= {tested}[r] and {tested}[r] < LARGEST and abs_f32({local(part.name)}[r]) < INF)"
            out(f"failed = failed or (i_{axis_name(self.made.row)} < {k.access.size(self.made.row)} and {lost})")
        out(*(["failed = failed or not most < INF"] if self.has_values else []), "failed_rows = ballot(failed)")
        with out.block("if leader:"):
            place = f"{self.flags} * tile + 4 * warpgroup + warp"
            out(f"store_int32(fallback_flags, {place}, i64(1) if failed_rows != 0 else i64(0))")

    @staticmethod
    def advance(name: str, stages: int) -> tuple[str, ...]:
        """To the next stage; the phase of its barriers changes with every round."""
        if stages == 2:
            return f"{name}_phase ^= {name}_stage", f"{name}_stage ^= 1"
        return f"{name}_phase ^= {name}_stage == STAGES - 1", f"{name}_stage = ({name}_stage + 1) % STAGES"

    # --- the producer ------------------------------------------------------------------------------------------------

    def producer(self) -> None:
        """One thread asks for tiles as places for them get free."""
        self.producer_head(self.kept)
        with self.out.block("if t == 0:"):
            self.out(*self.states(1))
            with self.each_tile(True):
                self.kernel.tile_places()
                self.produce(self.tiles.bodies["producer"])

    def states(self, phase: int) -> list[str]:
        """Where a role stands in all rings: the producer begins with phase 1."""
        found = [f"left_phase = {phase}"]
        for name in ("right", "values") if self.has_values else ("right",):
            found += [f"{name}_stage = 0", f"{name}_phase = {phase}"]
        return found

    def fill(self, op: For) -> None:
        out = self.out
        if op.blocks != "other":
            out("block = last")
        if op.blocks == "first":
            self.produce(op.body)
            self.loads.update({x.tile for x in op.body if isinstance(x, Load)})
            return
        with out.block("while block >= low:" if op.blocks == "every" else "while block > low:"):
            self.produce(op.body)
            out("block = opaque(block - 1)")
        self.loads.clear()

    def free(self, op: Free) -> None:
        self.out(*self.ring(op.tiles[0]).freed)

    def ring(self, tile: str) -> Ring:
        name = self.role(tile)
        if name is Tile.LEFT:
            return Ring("left_full", "left_empty", "left_phase", ("left_phase ^= 1",), single=True)
        step = self.advance(name, self.plan.stages)
        return Ring(_nth(name, "full"), _nth(name, "empty"), f"{name}_phase", step)

    def role(self, tile: str) -> Tile:
        """What a tile's names begin with."""
        n = self.names
        return {n.left: Tile.LEFT, n.right: Tile.RIGHT, n.values: Tile.VALUES}[tile]

    def load(self, op: Load) -> None:
        name, ring, p = self.role(op.tile), self.ring(op.tile), self.plan
        size = {Tile.LEFT: p.left_bytes, Tile.RIGHT: p.right_bytes, Tile.VALUES: p.values_bytes}[name]
        self.out(ring.expected(size))
        block = f"block - {self.loads[op.tile]}" if self.loads[op.tile] else "block"
        row = f"{axis_name(self.made.row)}_first" if ring.single else f"({block}) * COLUMNS"
        place = "left_tile" if ring.single else _nth(name, "tile", size)
        for m in (m for m in self.maps if m.tile is name):
            for chunk in range(m.count):
                self.box(m, at(place, (m.first + chunk) * m.rows * 128), ring.full, str(CHUNK * chunk), row)
        self.out(*([] if ring.single else ring.step))

    def box(self, m: Map, place: str, barrier: str, term: str, row: str) -> None:
        """Up to 64 columns of a tile."""
        there = ", ".join([place, map_at(self.maps.index(m)), barrier, term, row, *indices(m)])
        self.out(f"load_{operand_name(m.operand)}_tile({there})")

    # --- the consumers -----------------------------------------------------------------------------------------------

    def consumer(self) -> None:
        self.consumer_head(f"warpgroup is 0 to {self.consumers - 1}")
        self.out(*self.states(0))
        self.declared()
        self.prepared()
        with self.each_tile():
            self.tile()
        self.ended()

    def declared(self) -> None:
        """Registers of a thread: scores, sums with columns, weights, numbers of rows."""
        p, k = self.plan, self.kernel
        self.out(k.registers)
        k.array("S", k.held * p.columns // 4)
        if self.has_values:
            k.array("sums", k.held * p.own_columns // 4)
            if not k.wide:
                k.array("P", k.held * p.columns // (4 if self.made.dtype == TF32 else 8), "np.uint32")
        for part in self.made.walk.parts:
            if not part.axes and part.name not in k.tile.top_k.lists:
                k.array(local(part.name), k.held)

    def prepared(self) -> None:
        """What a consumer computes before its tiles."""
        out, p = self.out, self.plan
        if p.in_registers:
            self.kernel.array("left_words", p.terms // 4, "np.uint32")
            out(f"fragment = 8192 * warpgroup + (16 * warp + {ROW}) * 128")
        if p.in_registers or p.staged:
            out("swizzle = ((lane >> 4) * 16) ^ ((lane & 7) * 16)")
        if p.consumers > 1:
            out.comment("Consumer 1 lets consumer 0 multiply first.")
            with out.block("if warpgroup == 1:"):
                out("named_barrier_arrive(1, 256)")

    def ended(self) -> None:
        """What a consumer does behind its tiles."""
        out, p = self.out, self.plan
        if p.staged:
            out.comment("Shared memory must outlive the bulk copies that read it.")
            out("tma_store_wait()")
        if p.consumers > 1:
            out.comment("The arrival of consumer 1's last turn is still to be taken.")
            with out.block("if warpgroup == 0:"):
                out("named_barrier_sync(1, 256)")

    def tile(self) -> None:
        """One tile of rows over all its blocks, the last block first."""
        self.kernel.tile_places()
        self.out(f"row = {axis_name(self.made.row)}_first + {self.own}16 * warp + (lane >> 2)")
        self.factor()
        self.consume(self.tiles.bodies["consumers"])

    def loop(self, op: For) -> None:
        if op.blocks == "first":
            self.out.comment("Block `last`, the first one: nothing to rescale yet.")
            self.of_block("last", op)
            return
        with self.out.block("for block in range(last - 1, low - 1, -1):"):
            self.of_block("block", op)

    def of_block(self, block: str, op: For) -> None:
        self.block, self.body = block, op.body
        self.consume(op.body)
        self.block = ""

    def mask(self, op: Mask) -> None:
        self.turn()
        self.kernel.block_places(self.block)
        self.masked(op)

    def masked(self, op: Mask) -> None:
        k = self.kernel
        k.tile.scores(op.edge)
        if any(isinstance(x, Scale) for x in self.body):
            k.array(k.share, k.held)

    def scale(self, op: Scale) -> None:
        out, k = self.out, self.kernel
        out.comment("The sums move to the new anchor.")
        with out.block(f"for k in range({k.held * self.plan.own_columns // 4}):"):
            out(f"sums[k] = sums[k] * {k.share}[(k >> 1) & {k.held - 1}]")

    def clear(self, op: Clear) -> None:
        with self.out.block(f"for k in range({self.kernel.held * self.plan.own_columns // 4}):"):
            self.out("sums[k] = f32(0)")

    def store(self, op: Store) -> None:
        frozen = isinstance(self.plan.anchor, Frozen)
        if frozen and self.has_values:
            self.largest()
        finished(self.kernel)
        if frozen:
            self.flag()

    def convert(self, op: Convert) -> None:
        if op.tile == self.names.fragments:
            self.pack()
        else:
            self.words()

    def wait(self, op: Wait) -> None:
        out, n = self.out, self.names
        if op.products:
            sums = op.tiles[-1] == n.sums
            under = f"; {op.under_way} under way" if op.under_way else ""
            out.comment(f"wgmma.wait_group {op.under_way}: {', '.join(op.tiles)} complete{under}.")
            held = "sums" if self.kernel.wide else "sums, P"
            out(f"sums_wait_{op.under_way}({held})" if sums else f"scores_wait_{op.under_way}(S)")
            return
        for ring in dict.fromkeys(map(self.ring, op.tiles)):
            out(*ring.filled)

    def arrive(self, op: Arrive) -> None:
        for tile in op.tiles:
            self.out(*self.ring(tile).given_back)
            if tile == self.names.left:
                self.signs()

    def turns(self, op: PingPong) -> None:
        if op.begins:
            self.out.comment("This consumer's turn to issue wgmma; the other one folds meanwhile.")
        self.out("named_barrier_sync(1 + warpgroup, 256)" if op.begins else "named_barrier_arrive(2 - warpgroup, 256)")

    def multiply(self, op: Mma) -> None:
        p, scores = self.plan, op.tile == self.names.scores
        name, size = (Tile.RIGHT, p.right_bytes) if scores else (Tile.VALUES, p.values_bytes)
        place = described(_nth(name, "tile", size), 16 if scores else p.columns * 128)
        left = "left_words" if p.in_registers else described("left_tile + 8192 * warpgroup")
        self.out(f"multiply(S, {left}, {place})" if scores else f"multiply_values(sums, P, {place})")

    def reduce(self, op: Reduce) -> None:
        self.kernel.tile.reduce(op.loop, op.first)

    def rows(self, op: Rows) -> None:
        self.kernel.tile.rows(op.steps, op.kept, op.end)

    def factor(self) -> None:
        """What scores are multiplied by, as a positive number; its sign goes to the left operand, or to the scores."""
        made, out, k = self.made, self.out, self.kernel
        if made.scale is None or is_const(made.scale, 1):
            return
        scope = k.row_scope()
        text = scope.converted(made.scale, "f")
        k.flush(scope)
        if positive(made):
            out(f"factor = {text}")
        elif self.turning:
            out(f"factor = {text}", "needs_sign = not (factor > f32(0))")
            out("sign = f32(-1) if factor < f32(0) else factor")
            out("factor = abs_f32(factor) if factor < f32(0) or factor > f32(0) else f32(1)")
        else:
            out(f"factor = {text}", "sign_bits = np.uint32(0x80008000) if factor < f32(0) else np.uint32(0)")
            out("keep_bits = np.uint32(0) if factor == f32(0) else np.uint32(0xffffffff)")
            out("factor = f32(1) if factor == f32(0) else abs_f32(factor)")
        out("rate = factor * LOG2E")

    def words(self) -> None:
        """The left operand's fragments."""
        out, p = self.out, self.plan
        out.comment("The left tile: fragments to registers.")
        chunk = p.rows * 128
        for step in range(p.terms // STEP):
            place = f"left_tile + fragment + (swizzle ^ {32 * (step % 4)})"
            place += f" + {step // 4 * chunk}" if step // 4 else ""
            out(f"ldmatrix_x4(left_words, {4 * step}, {place})")

    def signs(self) -> None:
        """The factor's sign to the left operand's fragments, once their tile has gone back."""
        p, made = self.plan, self.made
        if p.in_registers and made.scale is not None and not is_const(made.scale, 1) and not positive(made):
            with self.out.block(f"for k in range({p.terms // 4}):"):
                self.out("left_words[k] = (left_words[k] & keep_bits) ^ sign_bits")

    @property
    def turning(self) -> bool:
        return not self.plan.in_registers

    def turn(self) -> None:
        """Scores with the sign of their factor, where the left operand has no place for it; or times 0, or NaN."""
        made = self.made
        if not self.turning or made.scale is None or is_const(made.scale, 1) or positive(made):
            return
        with self.out.block("if needs_sign:"), self.out.block(f"for k in range({self.plan.columns // 2}):"):
            self.out("S[k] = sign * S[k]")

    def pack(self) -> None:
        """Weights as the left operand of the next product, rounded to its type."""
        with self.out.block(f"for k in range({self.plan.columns // 4}):"):
            self.out(f"P[k] = pack_{self.made.dtype}(S[2 * k], S[2 * k + 1])")


def _nth(name: str, what: str, size: int = 8) -> str:
    """The place of a tile's or a barrier's present stage."""
    return f"stage_at({name}_{what}, {size}, {name}_stage)"
