"""The part of a tensor-core kernel that does not depend on the mathematics: barriers, warp roles, the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redalg.graph import is_const
from redalg.kernels import intrinsics_tensor
from redalg.kernels.intrinsics_tensor import CHUNK, STEP
from redalg.kernels.tensor_class import Class
from redalg.kernels.tensor_pieces import finished
from redalg.kernels.tensor_plan import TensorPlan, WidePlan, maps_of, positive
from redalg.naming import axis_name, local, operand_name, result_name

if TYPE_CHECKING:
    from redalg.kernels.emit_tensor import TensorKernel

PRODUCER, CONSUMER = 24, 240  # registers of a thread where three warpgroups share 65,536


def factories(made: Class, plan: TensorPlan, names: Collection[str]) -> tuple[set[str], list[str]]:
    """What is imported from `intrinsics_tensor`, and the functions of this kernel's shapes."""
    kind = made.dtype
    wide = isinstance(plan, WidePlan)
    weights = ', "shared"' if wide else ""
    left = f'"{"registers" if plan.in_registers else "shared"}", rows={plan.rows}'
    lines = {
        "multiply": f'tile_product({plan.columns}, {plan.terms}, "{kind}", {left}, b_rows={plan.columns})',
        "weigh": f'tile_product({plan.own_lanes}, {plan.columns}, "{kind}"{weights}, b_rows={plan.columns}, '
        "fresh=False, transposed=True)",
        "scores_done": f"tile_wait(0, {plan.columns // 2})",
        "scores_first": f"tile_wait(1, {plan.columns // 2})",
        "sums_done": f"tile_wait(0, {plan.own_lanes // 2}" + (")" if wide else f", {plan.columns // 4})"),
        "sums_first": f"tile_wait(1, {plan.own_lanes // 2})",
        "fewer_registers": f"registers({PRODUCER}, False)",
        "more_registers": f"registers({CONSUMER}, True)",
    }
    if plan.long or wide:
        shape = f'{plan.columns}, {CHUNK}, "{kind}", {left}, b_rows={plan.columns}'
        lines |= {"multiply": f"tile_product({shape})", "multiply_more": f"tile_product({shape}, fresh=False)"}
    for m in maps_of(made, plan):
        if m.tile == "result":
            lines[f"store_{result_name(m.operand)}_rows"] = f"tensor_store({len(m.axes)})"
        else:
            lines[f"load_{operand_name(m.operand)}_tile"] = f"tensor_load({len(m.axes)})"
    own = {n for n in intrinsics_tensor.MAKERS if n in names}
    used = {n: text for n, text in lines.items() if n in names}
    own |= {text.split("(")[0] for text in used.values()}
    return own, [f"{n} = {text}" for n, text in used.items()]


class Skeleton:
    """Prints a whole kernel."""

    def __init__(self, kernel: TensorKernel) -> None:
        self.kernel, self.out, self.plan, self.made = kernel, kernel.out, kernel.plan, kernel.made
        self.maps = maps_of(self.made, self.plan)
        self.has_values = self.made.values is not None
        self.drawn = self.plan.drawn and self.plan.anchor != "again"

    def write(self) -> None:
        out = self.out
        if self.plan.anchor == "again":
            self.wanted()
        self.shared()
        with out.block("if team == 0:"):
            self.producer()
        with out.block("else:"):
            self.consumer()

    # --- shared memory -----------------------------------------------------------------------------------------------

    def shared(self) -> None:
        out, p = self.out, self.plan
        out("t = cuda.threadIdx.x", "team = uniform(t >> 7)", "room = cuda.shared.array(0, np.uint8)")
        out("left_tile = shared_base(room)", f"right_tile = left_tile + {p.left_bytes}")
        if self.has_values:
            out(f"values_tile = right_tile + STAGES * {p.right_bytes}")
        out(f"left_full = left_tile + {p.barriers}", "left_free = left_full + 8", "right_full = left_full + 16")
        out("right_free = right_full + 8 * STAGES")
        self.drawing(f"left_full + {8 * (2 + 4 * p.stages)}")
        if self.has_values:
            out("values_full = right_free + 8 * STAGES", "values_free = values_full + 8 * STAGES")
        with out.block("if t == 0:"):
            out("barrier_init(left_full, 1)", "barrier_init(left_free, 4 * TEAMS)")
            with out.block("for stage in range(STAGES):"):
                for name in ("right", "values") if self.has_values else ("right",):
                    out(f"barrier_init({name}_full + 8 * stage, 1)")
                    out(f"barrier_init({name}_free + 8 * stage, 4 * TEAMS)")
            out(*(["barrier_init(drawn_full, 1)", "barrier_init(drawn_free, 4 * TEAMS)"] if self.drawn else []))
            out("barrier_ready()")
        out("cuda.syncthreads()")

    def drawing(self, place: str) -> None:
        """Where the number of the tile that is drawn next lies, and its barriers."""
        if self.drawn:
            self.out(f"drawn_full = {place}", "drawn_free = drawn_full + 8", "drawn = drawn_full + 16")

    @contextmanager
    def draws(self, producer: bool) -> Iterator[None]:
        """A loop over tiles that are drawn from a counter: the producer tells the others."""
        out, tiles = self.out, self.kernel.fix("tiles")
        out(f"draw_phase = {int(producer)}", "tile = opaque(cuda.blockIdx.x)")
        with out.block(f"while tile < {tiles}:"):
            yield
            if producer:
                out("tile = cuda.gridDim.x + atomic_inc_acq_rel(counter, 0)")
                out("barrier_wait(drawn_free, draw_phase)", "word_store(drawn, tile)", "barrier_arrive(drawn_full, 1)")
            else:
                out("barrier_wait(drawn_full, draw_phase)", "tile = word_load(drawn)")
                out("barrier_arrive(drawn_free, leader)")
            out("draw_phase ^= 1")

    @contextmanager
    def tiles(self, producer: bool = False) -> Iterator[None]:
        """A loop over the tiles of a block."""
        out, notes = self.out, self.notes
        if self.drawn:
            with self.draws(producer):
                yield
            return
        out("tile = opaque(cuda.blockIdx.x)")
        with out.block(f"while tile < {self.kernel.fix('tiles')}:"):
            if self.plan.anchor == "again":
                out("missed = i64(0)")
                with out.block(f"for k in range({notes}):"):
                    out(f"missed |= load_int32(notes, {notes} * tile + k)")
                with out.block("if missed != 0:"):
                    yield
            else:
                yield
            out("tile = opaque(tile + cuda.gridDim.x)")

    @property
    def notes(self) -> int:
        """Notes of a tile: one of every warp, whether any of its rows failed the test."""
        return 4 * self.plan.teams

    def wanted(self) -> None:
        """Leave at once if no tile of this block is to be computed again."""
        out = self.out
        out("missed = i64(0)", "k = i64(cuda.threadIdx.x)")
        mine = f"cuda.blockIdx.x + k // {self.notes} * cuda.gridDim.x"
        with out.block(f"while {mine} < {self.kernel.fix('tiles')}:"):
            out(f"missed |= load_int32(notes, {self.notes} * ({mine}) + k % {self.notes})", "k += cuda.blockDim.x")
        with out.block("if cuda.syncthreads_or(missed) == 0:"):
            out("return")

    def note(self) -> None:
        """Whether the sum of any row of the warp shows that something was lost."""
        out, k, tested = self.out, self.kernel, self.kernel.tested
        part = next(p for p in self.made.walk.parts if p.name == self.kernel.anchor)
        out("missed = False")
        with out.block("for r in range(2):"):
            k.row_places()
            lost = f"not (f32(1) <= {tested}[r] and {tested}[r] < LARGEST and abs_f32({local(part.name)}[r]) < INF)"
            out(f"missed = missed or (i_{axis_name(self.made.row)} < {k.access.size(self.made.row)} and {lost})")
        out("missed_rows = ballot(missed)")
        with out.block("if leader:"):
            out(f"store_int32(notes, {self.notes} * tile + 4 * team + warp, i64(1) if missed_rows != 0 else i64(0))")

    @staticmethod
    def advance(name: str, stages: int) -> list[str]:
        """To the next stage; the phase of its barriers changes with every round."""
        if stages == 2:
            return [f"{name}_phase ^= {name}_stage", f"{name}_stage ^= 1"]
        return [f"{name}_phase ^= {name}_stage == STAGES - 1", f"{name}_stage = ({name}_stage + 1) % STAGES"]

    # --- the producer ------------------------------------------------------------------------------------------------

    def producer(self) -> None:
        """One thread asks for tiles as places for them get free."""
        out, p = self.out, self.plan
        if p.teams > 1:
            out("fewer_registers()")
        with out.block("if t == 0:"):
            out("left_phase = 1", "right_stage = 0", "right_phase = 1")
            out(*(["values_stage = 0", "values_phase = 1"] if self.has_values else []))
            with self.tiles(True):
                self.kernel.tile_places()
                out("barrier_wait(left_free, left_phase)", "left_phase ^= 1")
                out(f"barrier_expect(left_full, {p.left_bytes})")
                self.boxes("left", "left_tile", "left_full", f"{axis_name(self.made.row)}_first")
                out("block = last")
                self.bring("right", "block")
                with out.block("while block > low:"):
                    self.bring("right", "block - 1")
                    if self.has_values:
                        self.bring("values", "block")
                    out("block = opaque(block - 1)")
                if self.has_values:
                    self.bring("values", "block")

    def bring(self, name: str, block: str) -> None:
        out = self.out
        size = self.plan.right_bytes if name == "right" else self.plan.values_bytes
        place, full, free = _nth(name, "tile", size), _nth(name, "full"), _nth(name, "free")
        out(f"barrier_wait({free}, {name}_phase)", f"barrier_expect({full}, {size})")
        self.boxes(name, place, full, f"({block}) * COLUMNS")
        out(*self.advance(name, self.plan.stages))

    def boxes(self, tile: str, place: str, barrier: str, row: str) -> None:
        """A tile comes in chunks of 64 columns."""
        for m in (m for m in self.maps if m.tile == tile):
            for chunk in range(m.count):
                number, first = self.maps.index(m), (m.first + chunk) * m.rows * 128
                at = ", ".join([str(CHUNK * chunk), row, *(f"i_{axis_name(a)}" for a in m.axes[2:])])
                where = f"{place} + {first}" if first else place
                address = f"maps + {128 * number}" if number else "maps"
                self.out(f"load_{operand_name(m.operand)}_tile({where}, {address}, {barrier}, {at})")

    # --- the consumers -----------------------------------------------------------------------------------------------

    def consumer(self) -> None:
        out, p, k = self.out, self.plan, self.kernel
        if p.teams > 1:
            out("more_registers()")
        out("team -= 1", "lane = t & 31", "warp = (t >> 5) & 3", "leader = lane == 0")
        out("left_phase = 0", "right_stage = 0", "right_phase = 0")
        out(*(["values_stage = 0", "values_phase = 0"] if self.has_values else []))
        out("# registers")
        k.array("S", p.columns // 2)
        if self.has_values:
            k.array("sums", p.lanes // 2)
            k.array("P", p.columns // 4, "np.uint32")
        for part in self.made.walk.parts:
            if not part.axes:
                k.array(local(part.name), 2)
        if p.in_registers:
            k.array("left_words", p.terms // 4, "np.uint32")
            out("fragment = 8192 * team + (16 * warp + (lane & 7) + ((lane >> 3) & 1) * 8) * 128")
        if p.in_registers or p.staged:
            out("swizzle = ((lane >> 4) * 16) ^ ((lane & 7) * 16)")
        if p.teams > 1:
            with out.block("if team == 1:"):
                out("turn_pass(1, 256)")
        with self.tiles():
            self.tile()
        if p.staged:
            out("rows_stored()")
        if p.teams > 1:
            with out.block("if team == 0:"):
                out("turn_wait(1, 256)")

    def tile(self) -> None:
        """One tile of rows over all its blocks, the last block first."""
        out, k, made = self.out, self.kernel, self.made
        k.tile_places()
        out(f"row = {axis_name(made.row)}_first + 64 * team + 16 * warp + (lane >> 2)")
        self.factor()
        out("barrier_wait(left_full, left_phase)", "left_phase ^= 1")
        self.words()
        self.multiply()
        out("scores_done(S)")
        self.release("right")
        self.turn()
        k.block_places("last")
        k.tile.scores(True)
        k.tile.fold(made.walk.lift, True)
        if self.has_values:
            with out.block(f"for k in range({self.plan.lanes // 2}):"):
                out("sums[k] = f32(0)")
            self.pack()
        self.blocks()
        if self.has_values:
            self.weigh()
            out("sums_done(sums, P)")
            self.release("values")
        if not self.plan.in_registers:
            out("barrier_arrive(left_free, leader)")
        finished(k)
        if self.plan.anchor == "stays":
            self.note()

    def blocks(self) -> None:
        out, k = self.out, self.kernel
        with out.block("for block in range(last - 1, low - 1, -1):"):
            self.multiply(self.has_values)
            out("scores_first(S)" if self.has_values else "scores_done(S)")
            self.release("right")
            self.turn()
            k.block_places("block")
            k.tile.scores(False)
            shared = self.shares()
            if shared:
                k.array(k.share, 2)
            k.tile.fold(k.steps, False)
            if self.has_values:
                out("sums_done(sums, P)")
                self.release("values")
                if shared:
                    with out.block(f"for k in range({self.plan.lanes // 2}):"):
                        out(f"sums[k] = sums[k] * {k.share}[(k >> 1) & 1]")
                self.pack()

    def shares(self) -> bool:
        from redalg.kernels.emit_tensor import join_of

        step = join_of(self.kernel.steps)
        return step is not None and self.kernel.tile.share(step) is not None

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
            out(f"factor = {text}", "turns = not (factor > f32(0))")
            out("turned = f32(-1) if factor < f32(0) else factor")
            out("factor = abs_f32(factor) if factor < f32(0) or factor > f32(0) else f32(1)")
        else:
            out(f"factor = {text}", "minus = np.uint32(0x80008000) if factor < f32(0) else np.uint32(0)")
            out("keep = np.uint32(0) if factor == f32(0) else np.uint32(0xffffffff)")
            out("factor = f32(1) if factor == f32(0) else abs_f32(factor)")
        out("rate = factor * LOG2E")

    def words(self) -> None:
        """The left operand's fragments, with the factor's sign."""
        out, p, made = self.out, self.plan, self.made
        if not p.in_registers:
            return
        chunk = p.rows * 128
        for step in range(p.terms // STEP):
            place = f"left_tile + fragment + (swizzle ^ {32 * (step % 4)})"
            place += f" + {step // 4 * chunk}" if step // 4 else ""
            out(f"load_matrices(left_words, {4 * step}, {place})")
        out("barrier_arrive(left_free, leader)")
        if made.scale is not None and not is_const(made.scale, 1) and not positive(made):
            with out.block(f"for k in range({p.terms // 4}):"):
                out("left_words[k] = (left_words[k] & keep) ^ minus")

    @property
    def turning(self) -> bool:
        return not self.plan.in_registers

    def turn(self) -> None:
        """Scores with the sign of their factor, where the left operand has no place for it; or times 0, or NaN."""
        made = self.made
        if not self.turning or made.scale is None or is_const(made.scale, 1) or positive(made):
            return
        with self.out.block("if turns:"), self.out.block(f"for k in range({self.plan.columns // 2}):"):
            self.out("S[k] = turned * S[k]")

    def multiply(self, weigh: bool = False) -> None:
        """Start the next block's scores, and the sums that the last block's weights go into."""
        out, p = self.out, self.plan
        left = "left_words" if p.in_registers else "descriptor(left_tile + 8192 * team, 16)"
        out(f"barrier_wait({_nth('right', 'full')}, right_phase)")
        if p.teams > 1:
            out("turn_wait(1 + team, 256)")
        out(f"multiply(S, {left}, descriptor({_nth('right', 'tile', p.right_bytes)}, 16))")
        if weigh:
            self.weigh()
        if p.teams > 1:
            out("turn_pass(2 - team, 256)")

    def weigh(self) -> None:
        p = self.plan
        self.out(f"barrier_wait({_nth('values', 'full')}, values_phase)")
        self.out(f"weigh(sums, P, descriptor({_nth('values', 'tile', p.values_bytes)}, {p.columns * 128}))")

    def release(self, name: str) -> None:
        self.out(f"barrier_arrive({_nth(name, 'free')}, leader)", *self.advance(name, self.plan.stages))

    def pack(self) -> None:
        """Weights as the left operand of the next product, rounded to its type."""
        with self.out.block(f"for k in range({self.plan.columns // 4}):"):
            self.out(f"P[k] = pack_{self.made.dtype}(S[2 * k], S[2 * k + 1])")


def _nth(name: str, what: str, size: int = 8) -> str:
    """The place of a tile's or a barrier's present stage."""
    return f"nth({name}_{what}, {size}, {name}_stage)"
