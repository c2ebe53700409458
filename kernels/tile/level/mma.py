"""Tile programs as statements, by mma.sync (compute capability 8.0 and later).

Every warp of a block multiplies and maps 16 rows, or 32, with the tiles that all of them copy: while one block of the
stream is worked on, the next one is on its way (cp.async), and one barrier a block says that it is there and that the
stage of the last one is free. Values of the stream are read then, too, and written behind the first product.
"""

from __future__ import annotations

from redalg.kernels.ir.tensor_cores import UNIT
from redalg.kernels.tile.level.derive import Box
from redalg.kernels.tile.level.elements import TileKernel
from redalg.kernels.tile.level.mma_sizes import WarpSizes
from redalg.kernels.tile.level.program import Arrive, For, Load, Map, Mma, Wait, inner
from redalg.kernels.tile.printer import NUMBERS
from redalg.source.names import axis_name, operand_name

EACH = UNIT // 2  # elements of one copy
OTHER = " + (STAGE_BYTES - read_at)"  # of two stages


class MmaPrinter(TileKernel):
    """Prints one kernel: one block for every tile of rows."""

    boxed = False
    sizes: WarpSizes

    def constants(self) -> dict[str, object]:
        s = self.sizes
        return {**NUMBERS, "ROWS": s.rows, "COLUMNS": s.columns, "STAGE_BYTES": s.stage_bytes}

    def makers(self) -> dict[str, str]:
        return {**self.shapes, "cp_async_drain": "cp_async_wait(0)"}

    def write(self) -> None:
        out, parts, b = self.out, self.parts, self.bounds
        out.comment(*self.tiles.text().splitlines()[1:])
        out("t = cuda.threadIdx.x", "lane = t & 31", "warp = warp_uniform(t >> 5)")
        out("smem = cuda.shared.array(0, np.uint8)", "smem_base = shared_start(smem)")
        self.declared()
        out(self.registers, "tile = opaque(cuda.blockIdx.x)")
        across = "" if parts.condition is None else self.descending if b.high else "across"
        self.located(parts.batch, parts.row, across=across)
        self.visited(b, self.access.size(parts.stream), "COLUMNS")
        out(f"row = {self.row}_first + {16 * self.sizes.tall} * warp + (lane >> 2)")
        self.places()
        self.mapped_values()
        self.consume(self.body)

    # --- where operands lie ------------------------------------------------------------------------------------------

    def places(self) -> None:
        """The lane's addresses for ldmatrix, by how products read a box."""
        self.out.comment("The lane's addresses for ldmatrix.")
        made = set()
        for op in (x for x in inner(self.body) if isinstance(x, Mma)):
            for tile, how in ((op.left, "left"), (op.right, self.reading(op))):
                if tile in self.parts.boxes and (tile, how) not in made:
                    made.add((tile, how))
                    pitch = self.sizes.pitch(tile)
                    at = f"smem_base + {self.sizes.place(tile)}"
                    if how == "left":
                        at += f" + {16 * self.sizes.tall * pitch} * warp"
                    function = "right_lane" if how == "right" else "left_lane"
                    self.out(f"{operand_name(tile)}_{how} = {function}({at}, lane, {pitch})")

    def reading(self, op: Mma) -> str:
        """How a product reads its right operand: row by row of its terms, or across."""
        return "right" if self.parts.boxes[op.right].axes[1] == op.over else "across"

    # --- copies ------------------------------------------------------------------------------------------------------

    def load(self, op: Load) -> None:
        """What stays; a block of the stream is asked for ahead."""
        if op.tile not in self.tiles.ring:
            b, size = self.parts.boxes[op.tile], self.access.size(self.parts.row)
            step = self.stride(b, self.parts.row)
            self.copied(b, "", f"{self.begin(b)}{self.row}_first * {step}, {step}, {size} - {self.row}_first, t")

    def stride(self, b: Box, axis: str) -> str:
        return self.access.stride(b.leaf.attr.name, b.leaf.attr.axes.index(axis))

    def begin(self, b: Box) -> str:
        """Where the batch begins in memory, and a plus."""
        others = [a for a in b.leaf.attr.axes if a not in b.axes]
        return "".join(f"i_{axis_name(a)} * {self.stride(b, a)} + " for a in others)

    def copied(self, b: Box, stage: str, given: str) -> None:
        s, name = self.sizes, f"load_{operand_name(b.name)}"
        outer, wide = (s.length(a, self.parts) for a in b.axes)
        ragged = ", ragged=True" if b.axes[1] == self.parts.stream else ""
        self.shapes[name] = f"tile_copy({outer}, {wide // EACH}, {s.pitch(b.name)}, {s.threads}{ragged})"
        place = f"smem_base + {s.place(b.name)}{stage}"
        self.out(f"{name}({place}, {operand_name(b.leaf.attr.name)}, {given})")

    def fetch(self, block: str, stage: str) -> None:
        """Start copying a block of the stream, if there is one, and read its values."""
        out, p, size = self.out, self.parts, self.access.size(self.parts.stream)
        out(f"prefetch_block = {block}")
        # Asked anew, so that no register holds from block to block what follows from it.
        out(*(f"i_{axis_name(a)} = opaque(i_{axis_name(a)})" for a in p.batch))
        with out.block("if prefetch_block <= last:"):
            for b in (b for b in p.boxes.values() if b.streamed):
                begin, left = self.begin(b), f"{size} - prefetch_block * COLUMNS"
                if b.axes[1] == p.stream:
                    step, terms = self.stride(b, b.axes[0]), self.sizes.length(b.axes[0], p)
                    given = f"{begin}prefetch_block * COLUMNS, {step}, {terms}, this_thread(), ({left}) >> 3"
                else:
                    step = self.stride(b, p.stream)
                    given = f"{begin}prefetch_block * (COLUMNS * {step}), {step}, {left}, this_thread()"
                self.copied(b, stage, given)
        out("cp_async_commit()")
        if self.vectors:
            self.stream_values([*self.vectors], "prefetch_block * COLUMNS + (this_thread() & (COLUMNS - 1))")
            for number in range(len(self.vectors)):
                out(f"next_{number} = value_{number} if inside else f32(0)")

    def written(self, stage: str) -> None:
        """Values of the stream to the stage that is being filled."""
        out, s = self.out, self.sizes
        if not self.vectors:
            return
        out("number = this_thread()")
        with out.block("if number < COLUMNS:"):
            for k in range(len(self.vectors)):
                out(f"shared_store_f32(smem_base + {s.values_at + 4 * s.columns * k}{stage} + 4 * number, next_{k})")

    # --- blocks ------------------------------------------------------------------------------------------------------

    def loop(self, op: For) -> None:
        out, s = self.out, self.stream
        first = next(x for x in op.body if isinstance(x, Mma))
        out.comment("Prologue of the pipeline: the first block is on its way.")
        self.fetch("low", "")
        self.written("")
        out("read_at = opaque(0)", "block = opaque(low)")
        with out.block("while block <= last:"):
            out(f"{s}_first = block * COLUMNS", f"{s}_last = {s}_first + (COLUMNS - 1)")
            for x in op.body:
                self.consume((x,))
                if x is first:
                    self.written(OTHER)
            out("block = opaque(block + 1)")

    def wait(self, op: Wait) -> None:
        """The next block is there, everybody is done with the one before it, and its stage is filled again."""
        if not self.tiles.ring & set(op.tiles):
            return
        self.out.comment(
            "All copies and a barrier: the stage at read_at is there for all threads, and nobody reads the other one "
            "any more: that is filled next."
        )
        self.out("cp_async_drain()", "cuda.syncthreads()")
        self.fetch("block + 1", OTHER)

    def arrive(self, op: Arrive) -> None:
        if self.tiles.ring & set(op.tiles):
            self.out("read_at = opaque(STAGE_BYTES - read_at)")

    # --- products and maps -------------------------------------------------------------------------------------------

    def multiply(self, op: Mma) -> None:
        p, s, tiles = self.parts, self.sizes, self.tiles.tiles
        columns, terms, how = tiles[op.tile].lengths[1], s.length(op.over, p), self.reading(op)
        name, more = f"multiply_{op.tile}", [str(s.pitch(op.right))]
        left = f"{op.left.removesuffix(chr(39))}_words"
        if op.left in p.boxes:
            left = f"{operand_name(op.left)}_left"
            more += ['a="shared"', f"a_pitch={s.pitch(op.left)}"]
        more += ["fresh=False"] * (not op.fresh) + ["transposed=True"] * (how == "across")
        more += [f"tall={s.tall}"] * (s.tall > 1)
        self.shapes[name] = f'tile_product({columns}, {terms}, "{p.dtype}", {", ".join(more)})'
        self.out(f"{name}({op.tile}, {left}, {operand_name(op.right)}_{how} + read_at)")

    def value(self, vector: str, c: int) -> str:
        return f"{vector}_pair[{c}]"

    def group(self, op: Map) -> None:
        """Values of the stream for a thread's two columns."""
        for v in op.values:
            self.array(f"{v}_pair", 2)
            number = list(self.vectors.values()).index(v)
            at = f"smem_base + {self.sizes.values_at + 4 * self.sizes.columns * number} + read_at"
            self.out(f"shared_load_pair({v}_pair, 0, {at} + 32 * k + 8 * (lane & 3))")
