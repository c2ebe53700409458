"""A matrix product as a numba.cuda kernel for compute capability 9.0: every block computes tile after tile of it.

One warpgroup brings chunks of both operands to a ring of stages, the others multiply them, each 64 or 128 rows of a
tile. Blocks of a cluster share one operand: each brings a part of it to all (multicast). Blocks of a cluster may share
the terms of a tile, too: each multiplies some of the chunks, sends partial sums of columns to the block that writes
these (a push into a place for every source, counted by an mbarrier of that block), and adds those it gets in the
order of the terms. Several right operands of one left operand (a gate) are multiplied side by side. Tiles are taken
in groups of rows, so that what is computed at the same time reads the same operands from L2. The epilogue
(`redalg.kernels.gemm.epilogue`) is printed from the spec.

An operand may be prepared in the same launch (`redalg.kernels.gemm.prologue`): all warpgroups first write rows
of it to memory and count them as finished, and whoever brings a tile waits until its rows are. Blocks that meet at
a grid barrier must all be running: there are no more of them than run at once, one on a multiprocessor, and the driver
starts all of them or none (a cooperative launch), whatever else runs on the device; what they wait for they do before
they wait. What a warpgroup wrote reaches the copies of other blocks in these steps: a fence between its stores and bulk
copies, a release with its count, an acquire by the thread that asks for copies, the same fence there. The epilogue's
loads come after that acquire too: a consumer waits for the full barrier, at which that thread arrives later.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from redalg.kernels.gemm import comments
from redalg.kernels.gemm.epilogue import Epilogue
from redalg.kernels.gemm.held import NOTHING, Held
from redalg.kernels.gemm.match import sums_of
from redalg.kernels.gemm.program import scheduled, sums_named
from redalg.kernels.gemm.prologue import COUNTERS, Inside, Prologue
from redalg.kernels.gemm.row_states import RowStates
from redalg.kernels.gemm.tiles import SIDES, GemmPlan
from redalg.kernels.ir.kinds import program_kinds
from redalg.kernels.ir.program import Module, Param, Program
from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.launch import planned
from redalg.kernels.launch.planned import Tile
from redalg.kernels.tile.comments import INIT
from redalg.kernels.tile.level.cascade import Reduce
from redalg.kernels.tile.level.grid import LAST, ONCE, Count, Follow, Prepare, Reset, Writer, Written
from redalg.kernels.tile.level.program import (
    Arrive,
    Clear,
    Exchange,
    For,
    Free,
    Load,
    Map,
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
    map_at,
    multiplied,
    registers,
)
from redalg.kernels.tile.printer import NUMBERS, TilePrinter
from redalg.source.names import axis_name, result_name
from redalg.source.statements import Function

WAITING = 8  # registers that each consumer leaves a producer for what it has to know to wait
CLUSTER_INIT = f"{INIT.removesuffix('.')} of both blocks."


@dataclass(frozen=True)
class Gemm:
    """What is printed: `program` holds operands and results, whose nodes read the leaves `sums_of`; ``row``: the axes
    that number rows, taken together; ``maps``: those of the left and of the right operands, then both of every product
    whose terms are added to the same sums; ``inside``: what prepares
    one of them in the same launch; ``late``: arrays that others write, and who does; ``counted``: results that are
    counted, for a product behind this one in the same launch; ``states``: what its rows are reduced to;
    ``held``: tensors that the epilogue finds in shared memory."""

    program: Program
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    column: str
    stream: str
    plan: GemmPlan
    maps: tuple[planned.Map, ...]
    inside: Inside | None = None
    late: Mapping[str, Writer] = field(default_factory=dict)
    counted: tuple[str, ...] = ()
    states: RowStates | None = None
    held: Held = NOTHING

    def with_rows(self, inside: Inside) -> Gemm:
        """With what prepares an operand in the same launch."""
        return replace(self, inside=inside, late={r.name: Writer.PROLOGUE for r in inside.program.results})


def module_of(printer: TilePrinter, plan: GemmPlan, functions: Sequence[Function] = ()) -> Module:
    """The module of what has been printed."""
    name = f"{result_name(printer.program.name)}_kernel"
    about = printer.about(f"tiles of {plan.rows} by {plan.columns}, on tensor cores")
    return printer.finished(name, about, plan.threads, plan.size, functions)


class GemmKernel(TilePrinter, Warpgroups):
    """Prints a whole kernel."""

    first_map = 0

    def __init__(self, made: Gemm, tiles: TileProgram | None = None) -> None:
        super().__init__(made.program)
        self.made, self.plan = made, made.plan
        self.tiles, self.half, self.stage = tiles or scheduled(made), 0, "stage"
        self.half_filled: bool | None = None  # stages are half filled: whether they begin anywhere in the ring
        if made.states is not None:
            self.kinds.names.update(program_kinds(made.states.program).names)
        self.kinds.names.update((sums_of(k), "f") for k in range(made.plan.products))
        self.prologue = Prologue(made.inside, made.plan.consumers + 1) if made.inside else None

    def module(self) -> Module:
        self.epilogue = Epilogue(self)
        out, p = self.out, self.plan
        out.comment(*comments.kernel(self.made, self.tiles, WAITING if self.prologue else 0))
        exchanges = [p.meeting] * 2 if p.meeting > 1 else [p.split]
        self.shared(exchanges, p.cluster, len(self.made.maps))
        self.consume(self.tiles.bodies.get(ONCE, ()))
        self.roles()
        return module_of(self, p, () if self.prologue is None else self.prologue.device_functions)

    # --- text around the kernel --------------------------------------------------------------------------------------

    def _prepared(self) -> list[tuple[str, Param]]:
        """The arguments of what runs before the product in the same launch."""
        if self.prologue is None:
            return []
        return [(COUNTERS.name, COUNTERS), *self.prologue.given([o.name for o in self.program.operands])]

    def numbers(self) -> dict[str, int]:
        """The arguments that are the same in every call, of what runs before the product."""
        return {} if self.prologue is None else self.prologue.fixed()

    def _handed(self) -> list[str]:
        return [name for name, _ in self._prepared()][1:]

    def params(self) -> dict[str, Param]:
        found = super().params()
        return found | {given: x for given, x in self._prepared() if given not in found}

    def constants(self) -> dict[str, object]:
        p = self.plan
        return {
            **({} if self.prologue is None else self.prologue.defined()),
            **NUMBERS,
            "ROWS": p.rows,
            "COLUMNS": p.columns,
            "STAGES": p.stages,
            "CONSUMERS": p.consumers,
            "CLUSTER": p.cluster,
            "GROUP": p.group,
            "CHUNKS": p.chunks,
            "OWN_CHUNKS": p.own_chunks,
        }

    def makers(self) -> dict[str, str]:
        p = self.plan
        wide = p.columns * p.products
        words: dict[str, object] = {"transposed": p.flat, "a_transposed": p.left_flat}
        words |= {"a_rows": p.brought, "tiles": p.products if p.products > 1 else 0}
        shape = {"rows": p.left_rows, "b_rows": wide} | {word: n for word, n in words.items() if n}
        lines = {
            "multiply": multiplied(wide, CHUNK * p.deep, p.dtype, "shared", shape),
            "multiply_add": multiplied(wide, CHUNK * p.deep, p.dtype, "shared", {**shape, "fresh": False}),
            "sums_wait_0": f"wgmma_wait(0, {p.columns // 2})",
            "sums_wait_1": f"wgmma_wait(1, {p.columns // 2})",
            **registers(p.consumers, WAITING if self.prologue else 0),
        }
        for m, side in zip(self.made.maps[:2], SIDES, strict=True):
            shared = p.sharing.blocks > 1 and p.shared is side
            load = "tma_multicast" if shared and not p.paired else "tma_load"
            more = ", pair=True" * (shared and p.paired)
            more += f", offsets={len(m.pixels.spatial)}" if m.pixels is not None else ""
            lines[f"load_{side}_tile"] = f"{load}({m.rank}{more})"
        return lines

    # --- shared memory -----------------------------------------------------------------------------------------------

    def _right_tile(self) -> str:
        p = self.plan
        step = p.left_bytes if p.neighbour[0] else f"STAGES * {p.left_bytes}"
        return f"right_tile = left_tile + {step}"

    def shared(self, exchanges: Sequence[int], cluster: int, maps: int) -> None:
        """`exchanges`: blocks that exchange partial sums, for each of its mbarriers; `maps`: of the kernel."""
        out, p = self.out, self.plan
        self.began()
        if cluster > 1:
            out(f"rank = opaque(cuda.blockIdx.x) & {cluster - 1}")
        if cluster == p.cluster > 1 and not p.paired:
            out.comment("`among` the blocks that share an operand; `piece` of the terms.")
            out(f"among = rank & {p.sharing.blocks - 1}", f"piece = rank >> {p.sharing.blocks.bit_length() - 1}")
        out("left_tile = shared_base(smem)", self._right_tile())
        out(f"full = left_tile + {p.barriers}", "empty = full + 8 * STAGES")
        if max(exchanges) > 1:
            out("exchanged = empty + 8 * STAGES", f"partial = left_tile + {p.barriers + 256 + p.staging}")
        with self.initialised(CLUSTER_INIT if cluster > 1 else INIT, cluster > 1):
            out("prefetch_map(maps)", *(f"prefetch_map(maps + {128 * k})" for k in range(1, maps)))
            with out.block("for stage in range(STAGES):"):
                sharing = p.sharing.blocks
                times = " * CLUSTER" if sharing == p.cluster else f" * {sharing}"
                arrivals = "4 * CONSUMERS" + times * (sharing > 1)
                out(*barriers("full + 8 * stage", "empty + 8 * stage", arrivals))
            for k, blocks in enumerate(exchanges):
                if blocks > 1:
                    out(f"mbarrier_init(exchanged{f' + {8 * k}' * (k > 0)}, {4 * p.consumers * blocks})")

    def _places(self) -> None:
        """Where the tile lies: rows, columns, batch."""
        out, made, p = self.out, self.made, self.plan
        out.comment("Which tile: groups of GROUP rows of tiles, column by column, so that both operands stay in L2.")
        down, over = self.fix("down"), self.fix("over")
        rest = "tile"
        if made.batch:
            out(f"batch = quotient(tile, {down} * {over})", f"rest = tile - batch * ({down} * {over})")
            rest = "rest"
        out(f"group = quotient({rest}, GROUP * {over})", f"part = {rest} - group * (GROUP * {over})")
        out(f"wide = min(GROUP, {down} - group * GROUP)", "across = quotient(part, wide)")
        out("along = group * GROUP + (part - across * wide)")
        ranked = f" * {p.sharing.blocks} + {'rank' if p.paired else 'among'}" if p.sharing.blocks > 1 else ""
        tall, broad = (ranked, "") if p.shared is Tile.RIGHT else ("", ranked)
        out(f"row_first = (along{tall}) * ROWS", f"column_first = (across{broad}) * COLUMNS")
        out(*self.access.places("batch", made.batch))
        if p.parts > 1:
            out(f"piece = i_{axis_name(made.batch[0])}")

    # --- the producer ------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> int:
        return self.plan.consumers

    def producer(self) -> None:
        """One thread asks for chunks as places for them get free."""
        out = self.out
        self.producer_head("the ring")
        with out.block("if t == 0:"):
            out("stage = 0", "phase = 1")
            self._rows_of_a_part()
            self.filled()
            self.last()

    def filled(self) -> None:
        """Chunk after chunk of every tile, as the producer's program has it."""
        out, p = self.out, self.plan
        with self.in_turns(self.fix("tiles"), p.cluster):
            self._places()
            self._first_pixel()
            body, stop = self.tiles.bodies["producer"], ""
            for op in body:
                if isinstance(op, Written):
                    self.written(op)
                    continue
                stop = stop or self._terms()
                assert isinstance(op, For)
                if op.blocks == "filled":
                    self._prefill(op, stop)
                    continue
                with out.block(f"while term < {stop}:"):
                    out.comment("A chunk of both operands into the next stage; one mbarrier counts all its bytes.")
                    self.chunk(op)
                    out(*self.step(), f"term = opaque(term + {p.chunk})")

    def _terms(self) -> str:
        """The terms of this block: from `term` on; where they end."""
        out, p = self.out, self.plan
        stop = p.chunks * p.chunk
        if p.split == p.parts == 1:
            out("term = opaque(0)")
            return str(stop)
        out(f"term = opaque(piece * {p.own_chunks * p.chunk})", f"stop = min(term + {p.own_chunks * p.chunk}, {stop})")
        return "stop"

    def chunk(self, loop: For) -> None:
        """What is loaded of a chunk."""
        self._tap()
        self.produce(loop.body)

    @property
    def ring(self) -> Ring:
        return Ring("full + 8 * stage", "empty + 8 * stage", "phase", self.step())

    def free(self, op: Free) -> None:
        """A chunk's bytes are expected with the first of it."""
        self.out(*self.ring.freed)
        self._expect()

    def load(self, op: Load) -> None:
        number = [*self.tiles.tiles].index(op.tile)
        if not self.plan.joined:
            self._load(number)
            return
        self._load_of(number, 0)

    def _load_of(self, number: int, product: int) -> None:
        """An operand's chunk of the product that the term belongs to: of this one, or of one behind it."""
        firsts = self.plan.first_terms
        if product == len(firsts) - 2:
            self._load(number, product)
            return
        with self.out.block(f"if term < {firsts[product + 1]}:"):
            self._load(number, product)
        with self.out.block("else:"):
            self._load_of(number, product + 1)

    def _load(self, number: int, product: int = 0) -> None:
        p = self.plan
        if number:
            self._boxes(number, self._right_place(number - 1), "column_first", p.columns, p.flat, product)
        else:
            self._boxes(0, f"left_tile + {p.steps[0]} * stage", "row_first", p.left_rows, p.left_flat, product)

    @property
    def pixels(self) -> planned.Pixels | None:
        """How rows of the left operand are walked, where they are pixels."""
        return self.made.maps[0].pixels

    def _first_pixel(self) -> None:
        """Where the first row that this block brings of a tile lies in the array: the corner of its window."""
        if self.pixels is None:
            return
        out = self.out
        out.comment("The window of the tile's first row: the map walks on from it, image by image.")
        out(f"outer = {self._shared_first(0, 'row_first', self.plan.left_rows)}")
        for s in self.pixels.spatial:
            size, name = self.access.size(s.row), f"pixel_{axis_name(s.row)}"
            scaled = f"(outer - above * {size})" + f" * {s.step}" * (s.step > 1)
            corner = f" - {-s.lower}" if s.lower < 0 else ""
            out(f"above = quotient(outer, {size})", f"{name} = {scaled}{corner}", "outer = above")
        out("image = outer")

    def _tap(self) -> None:
        """Which element of the windows, and which of its channels, a chunk begins with."""
        if self.pixels is None:
            return
        out, taps = self.out, self.pixels.taps
        if not taps:
            out("channel = term")
            return
        out(f"tap = quotient(term, {self.pixels.padded})", f"channel = term - tap * {self.pixels.padded}")
        for axis, length in reversed(taps[1:]):
            out(f"above = quotient(tap, {length})", f"tap_{axis_name(axis)} = tap - above * {length}", "tap = above")
        out(f"tap_{axis_name(taps[0][0])} = tap")

    def _pixel_box(self) -> list[str]:
        """Coordinates of a box of pixels, and how far the tap moves them."""
        assert self.pixels is not None
        spatial = self.pixels.spatial
        moved = [f"tap_{axis_name(s.tap)}{f' * {s.dilation}' * (s.dilation > 1)}" if s.tap else "0" for s in spatial]
        return ["channel", *(f"pixel_{axis_name(s.row)}" for s in spatial), "image", *moved]

    def _shared_first(self, number: int, first: str, length: int) -> str:
        """The first row of what this block brings of an operand."""
        p = self.plan
        if p.sharing.blocks == 1 or p.shared is not SIDES[min(number, 1)]:
            return first
        return f"{first} + {length // p.sharing.blocks} * {'rank' if p.paired else 'among'}"

    def _expect(self) -> None:
        self.out(self.ring.expected(self.plan.left_bytes + self.plan.right_bytes))

    def _prefill(self, loop: For, stop: str) -> None:
        """Prefetch: stages filled with what waits for nobody, then, from the same stage on, with the rest. Those that
        are waited for may begin anywhere in the ring; else all are free."""
        out, p, second = self.out, self.plan, self.half_filled is not None
        anywhere = self.half_filled if second else any(isinstance(op, Free) for op in loop.body)
        self.half_filled = None if second else anywhere
        if second:
            out(f"stage = {'first_stage' if anywhere else 0}", "term = opaque(first_term)")
        else:
            said = (
                "other blocks end the first product; then its"
                if anywhere
                else "the kernel before this one ends; then its"
            )
            out.comment(f"Right operands of the first chunks while {said} results.")
            out("first_term = term", *(["first_stage = stage"] if anywhere else []))
            out(f"filled = min({stop}, term + {p.stages * p.chunk})")
        with out.block("while term < filled:"):
            if not (second or anywhere):
                self._expect()
            self.chunk(loop)
            turned = self.step()[::2] if second else self.step()
            out(*(turned if anywhere else ["stage += 1"]), f"term = opaque(term + {p.chunk})")
        if second and not anywhere:
            out(*self.step()[1:])

    def _right_place(self, number: int) -> str:
        """Right operands of a stage lie one behind the other, in rows of 128 bytes."""
        return at(f"right_tile + {self.plan.steps[1]} * stage", 128 * self.plan.columns * number)

    def _rows_of_a_part(self) -> None:
        if self.prologue is not None:
            warpgroups, groups = self.plan.consumers + 1, self.fix("row_groups")
            out = self.out
            out(
                f"grid_warpgroups = opaque(cuda.gridDim.x * {warpgroups})",
                "ready = opaque(-1)  # parts that are known to be finished",
            )
            out(f"waves = quotient({groups} + grid_warpgroups * PARTS - 1, grid_warpgroups * PARTS)")
            out("span = opaque(waves * grid_warpgroups * PROLOGUE_ROWS)")

    def follow(self, op: Follow) -> None:
        self.out("kernel_behind_launch()")

    def prepare(self, op: Prepare) -> None:
        self.out.comment("Every warpgroup prepares its share of the rows first; tiles wait for theirs below.")
        self.out(f"prologue(warpgroup, {', '.join([COUNTERS.name, self.fix('row_groups'), *self._handed()])})")

    def count(self, op: Count) -> None:
        """The prologue counts its own rows, part by part."""

    def written(self, op: Written) -> None:
        """Until the kernel before has ended, or the rows of the tile are prepared. Parts are finished in order: the one
        of the last row will do."""
        if op.by is Writer.KERNEL:
            self.out("kernel_before_wait()")
            return
        assert self.prologue is not None
        out, made, left = self.out, self.made, self.prologue.made.side == 0
        all_rows = self.all_rows() if left else self.access.size(made.column)
        last = f"min({'row_first + ROWS' if left else 'column_first + COLUMNS'}, {all_rows}) - 1"
        batch = f"batch * {all_rows} + " if made.batch else ""
        if not self.prologue.made.ordered:
            batch, last = "", f"{self.fix('row_groups')} * PROLOGUE_ROWS - 1"
        out.comment("Until the part with the tile's last row is written by all; parts are finished in order.")
        out(f"needed = quotient({batch}{last}, span)")
        with out.block("if needed > ready:"):
            out(f"counter_wait_acquire({COUNTERS.name}, needed, grid_warpgroups)", "ready = needed")

    def reset(self, op: Reset) -> None:
        """The last block that waits no more leaves the counters as it found them, when nobody counts any more: a
        warpgroup may still have to count parts without rows, for which no tile waits."""
        out, name = self.out, COUNTERS.name
        out.comment("The last block that waits for rows resets the counters, for the next launch.")
        with out.block(f"if counter_add_acq_rel({name}, PARTS) == cuda.gridDim.x - 1:"):
            out(f"counter_wait_acquire({name}, PARTS - 1, grid_warpgroups)")
            with out.block("for part in range(PARTS + 1):"):
                out(f"store_int32({name}, part, 0)")

    def last(self) -> None:
        """What the producer does behind its tiles."""
        for op in self.tiles.bodies.get(LAST, ()):
            if not isinstance(op, For):
                self.consume((op,))
                continue
            self.out.comment("The other block's consumers arrive at these mbarriers, too: they must outlive that.")
            with self.out.block("for last in range(STAGES):"):
                self.out("mbarrier_wait(empty + 8 * stage, phase)", *self.step())

    def all_rows(self) -> str:
        """How many rows there are, of all axes that number them."""
        rows = self.made.rows
        return self.access.size(rows[0]) if len(rows) == 1 else self.fix("all_rows")

    def _boxes(self, number: int, place: str, first: str, length: int, flat: bool, product: int) -> None:
        """A chunk of one operand, of which a block of a pair brings half."""
        at_map = number + 2 * product
        p, m, side = self.plan, self.made.maps[at_map], SIDES[min(number, 1)]
        blocks = p.sharing.blocks
        shared = blocks > 1 and p.shared is side
        count, rank, to = length // 64 if flat else 1, "rank" if p.paired else "among", []
        if shared:
            length, count = length // blocks, max(1, count // blocks)
            place, first = f"{place} + {128 * length} * {rank}", self._shared_first(number, first, length * blocks)
            to = [] if p.paired else [f"{(1 << blocks) - 1} << ({blocks} * piece)"]
        address = map_at(at_map + self.first_map)
        step = 8192 if flat else 128 * (p.columns * p.products if number else p.left_rows)
        before = p.first_terms[product]
        for d, k in itertools.product(range(p.deep), range(count)):
            where = at(place, step * d + 8192 * p.deep * k), address, self.ring.full
            box = [*where, *to, *self._place(m, p.box_terms * d - before, at(first, 64 * k), flat)]
            self.out(f"load_{side}_tile({', '.join(box)})")

    def _place(self, m: planned.Map, offset: int, first: str, flat: bool) -> list[str]:
        """Coordinates of a box, from the innermost on; `offset`: of its first term from that of the chunk."""
        if m.pixels is not None:
            return self._pixel_box()
        walked = self.pixels is not None
        term = "channel" if walked else at("term", offset) if offset >= 0 else f"term - {-offset}"
        outer = [f"{'tap' if walked else 'i'}_{axis_name(a)}" for a in m.axes[2:]]
        return [first, term, *outer] if flat else [term, first, *outer]

    # --- the consumers -----------------------------------------------------------------------------------------------

    def consumer(self) -> None:
        self.consumer_head("counted from 0")
        self.out("stage = 0", "phase = 0")
        self.compute()

    def compute(self) -> None:
        """The sums of every tile, and what becomes of them; what others write is waited for before the first one."""
        out, p, body = self.out, self.plan, self.tiles.bodies["consumers"]
        waits = [op for op in body if isinstance(op, Written)]
        self.consume(waits)
        for sums in self.sums:
            out(f"{sums} = cuda.local.array({p.columns // 2}, np.float32)")
        for half in range(p.halves) if p.promoted else ():
            out(f"total_{half} = cuda.local.array({p.columns // 2}, np.float32)")
        out(*(["turn = 0"] if p.meeting > 1 else []))
        with self.in_turns(self.fix("tiles"), p.cluster):
            self._places()
            self.epilogue.bringing.bring()
            self.consume(body[len(waits) :])
        if p.bulk:
            out.comment("Shared memory has to outlive the copies of the last tile.")
            out("tma_store_wait()")

    @property
    def sums(self) -> list[str]:
        """The arrays of sums, of every product."""
        return sums_named(self.plan.products)

    def _operands(self, half: int = 0) -> str:
        p = self.plan
        first = f" + {8192 * half}" if half else ""
        leading = 8192 * p.deep if p.flat else 16
        left = described(f"left_tile + {p.steps[0]} * stage + {8192 * p.halves} * warpgroup{first}")
        return f"{left}, {described(f'right_tile + {p.steps[1]} * stage', leading)}"

    # --- operations --------------------------------------------------------------------------------------------------

    def loop(self, op: For) -> None:
        """Chunks: the first one overwrites S; a chunk is given back when the next one is under way. Sums that are added
        to totals are of 64 rows at a time."""
        out, p = self.out, self.plan
        self.stage = "stage" if op.blocks == "every" else "before"
        if op.blocks == "first":
            out.comment("The first chunk of the tile overwrites S.")
            self.by_chunks(op, 1)
        elif op.blocks == "other":
            several = p.split * p.parts > 1
            count = "own_chunks" if several else "CHUNKS"
            if several:
                out("own_chunks = min(OWN_CHUNKS, CHUNKS - OWN_CHUNKS * piece)")
            self.by_chunks(op, count)
        else:
            with out.block("for chunk in range(CHUNKS):"):
                for self.half in range(p.halves):
                    last = self.half == p.halves - 1
                    once: list[Op] = [x for x in op.body if isinstance(x, Arrive) and not last]
                    once += [x for x in op.body if isinstance(x, Wait) and not x.products and self.half]
                    self.consume([x for x in op.body if x not in once])
                out(*self.step())

    def clear(self, op: Clear) -> None:
        self.out.comment("Totals in float32: S of each chunk is added to them while the other consumer multiplies.")
        with self.out.block(f"for k in range({self.plan.columns // 2}):"):
            self.out(*(f"{total}[k] = f32(0)" for total in self.totals))

    @property
    def totals(self) -> list[str]:
        return [f"total_{half}" for half in range(self.plan.halves)]

    def wait(self, op: Wait) -> None:
        if not op.products:
            self.out(*self.ring.filled)
            return
        under = f", {op.under_way} under way" if op.under_way else ""
        groups = op.under_way // self.plan.products
        self.out.comment(f"wgmma.wait_group {groups}: {', '.join(op.tiles)} complete{under}.")
        self.out(*(f"sums_wait_{int(op.under_way > 0)}({s})" for s in op.tiles))

    def multiply(self, op: Mma) -> None:
        """Products of one chunk are one instruction, with the first of them."""
        if op.tile == self.sums[0]:
            how, sums = "multiply" if op.fresh else "multiply_add", ", ".join(self.sums)
            self.out(f"{how}({sums}, {self._operands(self.half)})")

    def reduce(self, op: Reduce) -> None:
        """Printed with the results: rows are reduced 16 of a warp at a time (`redalg.kernels.gemm.row_folds`)."""

    rows = reduce

    def map(self, op: Map) -> None:
        if self.made.states is not None:
            return  # with the results, too
        total = self.totals[self.half]
        with self.out.block(f"for k in range({self.plan.columns // 2}):"):
            self.out(f"{total}[k] = {total}[k] + S[k]")

    def arrive(self, op: Arrive) -> None:
        p, stage = self.plan, self.stage
        if p.paired or p.sharing.blocks == 1:
            self.out(f"{'mbarrier_arrive_pair' if p.paired else 'mbarrier_arrive'}(empty + 8 * {stage}, leader)")
            return
        peers = (f"{p.sharing.blocks} * piece + {k}" for k in range(p.sharing.blocks))
        self.out(*(f"mbarrier_arrive_peer(empty + 8 * {stage}, {peer}, leader)" for peer in peers))

    def own_rows(self, half: int, name: str, how: str) -> list[str]:
        """What is said of a part of the epilogue."""
        return [f"Epilogue: {'S' if name == 'S' else 'totals'} of 64 rows, 16 of each warp, {how}."]

    def own_first(self, half: int) -> str:
        """The first of the 16 rows that the warp writes."""
        below = f" + {64 * half}" if half else ""
        return f"row_first + {64 * self.plan.halves} * warpgroup{below} + 16 * warp"

    def staging(self) -> str:
        """Where results are staged, and the number of the warp."""
        return f"left_tile + {self.plan.barriers + 256} + (4 * warpgroup + warp)"

    def store(self, op: Store) -> None:
        self.epilogue.write(self.totals if self.plan.promoted else ["S"])

    def exchange(self, op: Exchange) -> None:
        """Partial sums of columns to the block of the split that writes them; S begins with those of its own then."""
        out, p = self.out, self.plan
        if p.meeting > 1:
            return  # states of rows: with the results
        each, lane = p.own_columns // 8, 2048 * p.consumers  # four registers of a thread at a time; bytes to the next
        source = lane * each * p.products
        out.comment("Straight on: a loop that is not unrolled would keep S in memory.")
        out.comment(f"Reduce-scatter: block `piece` of the split adds and writes {p.own_columns} columns of the tile.")
        out("slots = partial + 16 * (t - 128)", f"mine = slots + {source} * piece")
        for other in range(p.split):
            out(f"target = {p.sharing.blocks * other} + among")
            for number, sums in enumerate(self.sums):
                for k in range(each):
                    four = ", ".join(f"{sums}[{4 * (k + each * other) + j}]" for j in range(4))
                    out(f"peer_store_quad(mine + {lane * (k + each * number)}, target, {four})")
        out("fence_cluster()", "syncwarp()")
        out(*(f"mbarrier_arrive_peer(exchanged, {p.sharing.blocks * k} + among, leader)" for k in range(p.split)))
        out.comment("Sums of all pieces, in the order of the terms; a cluster computes one tile, so the phase is 0.")
        out("mbarrier_wait_cluster(exchanged, 0)", "pushed = cuda.local.array(4, np.float32)")
        for number, sums in enumerate(self.sums):
            for k in range(each):
                own = lane * (k + each * number)
                out(f"shared_load_quad({sums}, {4 * k}, slots + {own})")
                for peer in range(1, p.split):
                    out(f"shared_load_quad(pushed, 0, slots + {own + source * peer})")
                    out(*(f"{sums}[{4 * k + j}] = {sums}[{4 * k + j}] + pushed[{j}]" for j in range(4)))
        out(f"column_first = column_first + {p.own_columns} * piece")
