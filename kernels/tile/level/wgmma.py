"""Tile programs of a producer and consumers as statements, by wgmma (compute capability 9.0).

One thread of the producer warpgroup asks the copy engine for boxes, a warp of it computes values of the stream, and
every consumer warpgroup multiplies and maps 64 rows. Each operation of the tile program is printed by one method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.launch.planned import Map as TensorMap
from redalg.kernels.tile.level.derive import Parts
from redalg.kernels.tile.level.elements import TileKernel
from redalg.kernels.tile.level.program import (
    Arrive,
    For,
    Free,
    Load,
    Map,
    Mma,
    TileProgram,
    Wait,
    inner,
)
from redalg.kernels.tile.level.sizes import WarpgroupSizes
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
from redalg.kernels.tile.printer import NUMBERS
from redalg.source.names import operand_name


class KernelPrinter(TileKernel, Warpgroups):
    """Prints one kernel."""

    sizes: WarpgroupSizes

    def __init__(self, parts: Parts, tiles: TileProgram, sizes: WarpgroupSizes, maps: Sequence[TensorMap]) -> None:
        super().__init__(parts, tiles, sizes)
        self.maps = maps
        self.boxes = [b.name for b in parts.boxes.values()]
        self.streamed = [b.name for b in parts.boxes.values() if b.streamed]

    def value(self, vector: str, c: int) -> str:
        return f"{vector}_pairs[2 * k + {c}]"

    # --- the kernel --------------------------------------------------------------------------------------------------

    def constants(self) -> dict[str, object]:
        s = self.sizes
        sizes = {"ROWS": s.rows, "COLUMNS": s.columns, "STAGES": s.stages, "CONSUMERS": s.consumers}
        return {**NUMBERS, **sizes}

    def makers(self) -> dict[str, str]:
        return {**self.shapes, **registers()}

    @property
    def consumers(self) -> int:
        return self.sizes.consumers

    def write(self) -> None:
        out = self.out
        out.comment(*self.tiles.text().splitlines()[1:])
        self.shared()
        self.roles()

    def producer(self) -> None:
        """One thread asks for boxes, and a few warps compute values of the stream."""
        out, bodies = self.out, self.tiles.bodies
        self.producer_head()
        with out.block("if t == 0:"):
            out("stage = 0", "phase = 1", "stay_phase = 1")
            with self.each_tile():
                self.produce(bodies["producer"])
        if "values" in bodies:
            with out.block(f"if t >= 32 and t < {32 + 32 * self.sizes.value_warps}:"):
                out("number = t - 32", "lane = t & 31", "stage = 0", "phase = 1")
                with self.each_tile():
                    self.tile_values([op.source for op in inner(bodies["values"]) if isinstance(op, Load)], [])
                    self.produce(bodies["values"])

    def shared(self) -> None:
        out, s = self.out, self.sizes
        self.began()
        out("base = shared_base(smem)")
        for name in self.boxes:
            out(f"{operand_name(name)}_tile = base + {s.place(name)}")
        out(f"values_at = base + {s.values_at}", f"stay_full = base + {s.barriers_at}", "stay_free = stay_full + 8")
        place = "stay_full + 16"
        for name in self.streamed:
            out(f"{operand_name(name)}_full = {place}")
            place = f"{operand_name(name)}_full + 8 * STAGES"
        out(f"values_full = {place}", "free = values_full + 8 * STAGES")
        with self.initialised():
            out(*barriers("stay_full", "stay_free"))
            with out.block("for k in range(STAGES):"):
                out(*(f"mbarrier_init({operand_name(name)}_full + 8 * k, 1)" for name in self.streamed))
                out(
                    f"mbarrier_init(values_full + 8 * k, {s.value_warps})", "mbarrier_init(free + 8 * k, 4 * CONSUMERS)"
                )

    # --- tiles of the result -----------------------------------------------------------------------------------------

    @contextmanager
    def each_tile(self) -> Iterator[None]:
        parts, b = self.parts, self.bounds
        with self.in_turns(self.fix("tiles")):
            across = "" if parts.condition is None else self.descending if b.high else "across"
            self.located(parts.batch, parts.row, across=across)
            self.visited(b, self.access.size(parts.stream), "COLUMNS")
            yield

    # --- producers ---------------------------------------------------------------------------------------------------

    def ring(self, tile: str) -> Ring:
        """What stays has a barrier of its own; boxes of a stage have one each, and one that says that all are read."""
        step = "phase ^= stage == STAGES - 1", "stage = (stage + 1) % STAGES"
        if tile in self.parts.boxes and not self.parts.boxes[tile].streamed:
            return Ring("stay_full", "stay_free", "stay_phase", ("stay_phase ^= 1",), single=True)
        name = "values" if tile in self.vectors.values() else operand_name(tile)
        return Ring(f"{name}_full + 8 * stage", "free + 8 * stage", "phase", step)

    def fill(self, op: For) -> None:
        out = self.out
        out("block = low")
        with out.block("while block <= last:"):
            self.produce(op.body)
            values = [x for x in op.body if isinstance(x, Load) and not x.box]
            if values:
                self.computed(values)
            out("phase ^= stage == STAGES - 1", "stage = (stage + 1) % STAGES", "block = opaque(block + 1)")

    def free(self, op: Free) -> None:
        ring = self.ring(op.tiles[0])
        self.out(*ring.freed, *([ring.expected(self.sizes.stay_bytes)] if ring.single else []))

    def load(self, op: Load) -> None:
        """A tile, in chunks of 64 columns."""
        if not op.box:
            return
        b, size, ring = self.parts.boxes[op.tile], self.sizes.bytes_of(op.tile), self.ring(op.tile)
        number, load, place = (
            self.boxes.index(op.tile),
            f"load_{operand_name(op.tile)}",
            f"{operand_name(op.tile)}_tile",
        )
        m = self.maps[number]
        starts = {self.parts.row: f"{self.row}_first", self.parts.stream: "block * COLUMNS"}
        first, row = starts.get(b.axes[1]), starts.get(b.axes[0], "0")
        self.shapes[load] = f"tma_load({m.rank})"
        if not ring.single:
            self.out(ring.expected(size))
            place += f" + {size} * stage"
        for k in range(m.count):
            column = at(first, CHUNK * k) if first else str(CHUNK * k)
            where = at(place, k * m.rows * 128), map_at(number), ring.full
            self.out(f"{load}({', '.join([*where, column, row, *indices(m)])})")

    def computed(self, loads: Sequence[Load]) -> None:
        """Values of the stream, by some warps: 0 beyond its end. All of a thread's are loaded before one is stored,
        since a store orders memory and loads take long."""
        out, s = self.out, self.sizes
        threads = 32 * s.value_warps
        with out.block(f"for k in range({-(-s.columns // threads)}):"):
            out(f"column = number + {threads} * k")
            self.stream_values([op.source for op in loads], "block * COLUMNS + column")
            with out.block("if column < COLUMNS:" if s.columns % threads else None):
                for number in range(len(loads)):
                    at = f"values_at + {s.vector_bytes} * stage + {4 * s.columns * number} + 4 * column"
                    out(f"shared_store_f32({at}, value_{number} if inside else f32(0))")
        out("syncwarp()", "mbarrier_arrive(values_full + 8 * stage, lane == 0)")

    # --- consumers ---------------------------------------------------------------------------------------------------

    def consumer(self) -> None:
        out = self.out
        self.consumer_head()
        out("stay_phase = 0", "stage = 0", "phase = 0")
        out(self.registers)
        self.declared()
        with self.each_tile():
            out(f"row = {self.row}_first + 64 * warpgroup + 16 * warp + (lane >> 2)")
            self.mapped_values()
            self.consume(self.tiles.bodies["consumers"])

    def loop(self, op: For) -> None:
        out, s = self.out, self.stream
        with out.block("for block in range(low, last + 1):"):
            out(f"{s}_first = block * COLUMNS", f"{s}_last = {s}_first + (COLUMNS - 1)")
            for x, after in zip(op.body, (*op.body[1:], None), strict=True):
                if isinstance(x, Wait) and x.products and isinstance(after, Map):
                    self.preloaded(after)
                self.consume((x,))

    def wait(self, op: Wait) -> None:
        if op.products:
            for tile in op.tiles:
                self.wait_product(tile, op.under_way)
            return
        for ring in dict.fromkeys(map(self.ring, op.tiles)):
            self.out(*ring.filled)

    def wait_product(self, tile: str, groups: int) -> None:
        size = self.tiles.tiles[tile].lengths[1] // 2
        name, left = f"{tile}_wait_{groups}", next((s.left for s in self.parts.sums if s.tile == tile), None)
        held = f", {self.sizes.columns // 4}" if left else ""
        self.shapes[name] = f"wgmma_wait({groups}, {size}{held})"
        self.out(f"{name}({tile}{f', {left}_words' if left else ''})")

    def multiply(self, op: Mma) -> None:
        p, s, tiles = self.parts, self.sizes, self.tiles.tiles
        box = p.boxes[op.right]
        size = s.bytes_of(op.right)
        columns, terms = tiles[op.tile].lengths[1], s.length(op.over, p)
        across = box.axes[1] != op.over if op.fresh else box.axes[1] != p.stream
        rows = s.length(box.axes[0], p)
        right = described(f"stage_at({operand_name(op.right)}_tile, {size}, stage)", rows * 128 if across else 16)
        kind, name = "shared" if op.fresh else "registers", f"multiply_{op.tile}"
        more = {"rows": s.rows, "b_rows": rows, "fresh": op.fresh, "transposed": across}
        self.shapes[name] = multiplied(columns, terms, p.dtype, kind, more)
        left = f"{op.left.removesuffix(chr(39))}_words"
        if op.fresh:
            left = described(f"{operand_name(op.left)}_tile + 8192 * warpgroup")
        self.out(f"{name}({op.tile}, {left}, {right})")

    def arrive(self, op: Arrive) -> None:
        self.out(*self.ring(op.tiles[0]).given_back)

    def preloaded(self, op: Map) -> None:
        """What a map reads of the stream's values, to registers, while products that it waits for are under way."""
        if not op.values:
            return
        with self.out.block(f"for k in range({self.sizes.columns // 8}):"):
            for v in op.values:
                self.array(f"{v}_pairs", self.sizes.columns // 4)
                number = list(self.vectors.values()).index(v)
                at = f"values_at + {self.sizes.vector_bytes} * stage + {4 * self.sizes.columns * number}"
                self.out(f"shared_load_pair({v}_pairs, 2 * k, {at} + 32 * k + 8 * (lane & 3))")
