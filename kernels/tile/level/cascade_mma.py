"""The part of a kernel for mma.sync that does not depend on the mathematics: copies, and products of a warp's rows.

Every warp of a block multiplies 16 rows with the tiles that all of them copy: while one tile is worked on, the next
ones are under way (cp.async), and one barrier a tile says that it is there and that the place of the last one is free
(Dao, "FlashAttention-2", 2023, section 3.3: rows shared out among warps). What is computed on registers between the
two products is printed by `redalg.kernels.tile.scores`, as it is for warpgroups.
"""

from __future__ import annotations

from redalg.graph.node import Node, is_const
from redalg.kernels.ir.tensor_cores import TF32, UNIT
from redalg.kernels.tile import comments
from redalg.kernels.tile.contractions import NARROW, TYPES
from redalg.kernels.tile.level.cascade import Mask
from redalg.kernels.tile.level.cascade_wgmma import Skeleton
from redalg.kernels.tile.level.program import Arrive, Convert, For, Load, Mma, Store, Wait
from redalg.kernels.tile.match import Class
from redalg.kernels.tile.mma_sync_plan import CHUNK, MmaPlan
from redalg.kernels.tile.plan import positive
from redalg.source.names import axis_name, operand_name


def shapes(made: Class, plan: MmaPlan) -> dict[str, str]:
    """The functions of a kernel's shapes, by name."""
    p, (left_type, right_type, values_type) = plan, made.stored
    width, converted = p.terms_wide, right_type not in TYPES
    left = "" if p.in_registers else f', a="shared", a_pitch={p.left_pitch}'
    if converted and not p.in_registers and left_type not in TYPES and (p.long or left_type in NARROW):
        left += f', left="{left_type}"'
    tall = f", tall={p.tall}" if p.tall > 1 else ""
    product = f"{_product(p.columns, width, made.multiplied, right_type, p.right_pitch)}{left}{tall}"
    multiply_values = _product(p.value_columns, p.columns, made.dtype, values_type, p.values_pitch)
    loads = {}
    for k, part in enumerate(p.parts):
        first, given, wide = part
        more = tall + (f", first={first}" if first else "")
        loads[f"load_left_words{number(k)}"] = f"left_load({wide}, {given}{more})"
        if converted:
            types = f'"{left_type}", "{made.multiplied}"'
            loads[f"load_left_words{number(k)}"] = f"converted_load({wide}, {given}, {types}{more})"
        loads[f"load_left_tile{number(k)}"] = _copy(p, part, p.rows, p.left_pitch, p.bytes_each[0])
        loads[f"load_right_tile{number(k)}"] = _copy(p, part, p.columns, p.right_pitch, p.bytes_each[1])
    return loads | {
        "load_values_tile": f"tile_copy({p.columns}, {p.value_columns * p.bytes_each[2] // UNIT}, {p.values_pitch}, "
        f"{p.threads})",
        "multiply": f"{product})",
        "multiply_add": f"{product}, fresh=False)",
        "multiply_values": f"{multiply_values}, fresh=False, transposed=True{tall})",
        "sort_lanes": f"lanes_sorted({p.value_columns}{tall})",
        "cp_async_drain": "cp_async_wait(0)",
        "cp_async_wait_stage": f"cp_async_wait({p.stages - 2})",
    }


def _product(columns: int, terms: int, kind: str, right: str, pitch: int) -> str:
    """The beginning of a product's text."""
    if right in TYPES:
        return f'tile_product({columns}, {terms}, "{kind}", {pitch}'
    return f'converted_product({columns}, {terms}, "{kind}", "{right}", {pitch}'


def number(k: int) -> str:
    """What names that belong to a contraction end in."""
    return str(k + 1) if k else ""


def turned(name: str, size: int, stages: int) -> str:
    """An address of so many stages of `size` bytes, to the next one."""
    if stages == 2:
        return f"{name} = opaque({size} - {name})"
    return f"{name} = opaque(0 if {name} == {(stages - 1) * size} else {name} + {size})"


def _copy(plan: MmaPlan, part: tuple[int, int, int], rows: int, pitch: int, size: int) -> str:
    """Of rows of a contraction's operand, whose elements have `size` bytes."""
    (_, given, width), each = part, UNIT // size
    units, more = given // each, f", wide={width // each}" if given < width else ""
    if plan.long:
        units, more = width // each, ", ragged=True" if plan.given % CHUNK else ""
    return f"tile_copy({rows}, {units}, {pitch}, {plan.threads}{more})"


class MmaSkeleton(Skeleton):
    """Prints a whole kernel: one block for every tile of rows."""

    plan: MmaPlan

    def shapes(self) -> dict[str, str]:
        return shapes(self.made, self.plan)

    def write(self) -> None:
        out, k, p = self.out, self.kernel, self.plan
        out.comment(*comments.mma(k, self.nest()))
        out(
            "t = cuda.threadIdx.x",
            "lane = t & 31",
            "warp = warp_uniform(t >> 5)",
            "smem = cuda.shared.array(0, np.uint8)",
        )
        out("smem_base = shared_start(smem)")
        self.declared()
        out("tile = opaque(cuda.blockIdx.x)")
        k.tile_places()
        out(f"row = {axis_name(self.made.row)}_first + {16 * p.tall} * warp + (lane >> 2)")
        self.factor()
        self.signs()
        self.places()
        self.begin()
        self.words()
        self.consume(self.tiles.bodies["all"])

    # --- where operands lie ------------------------------------------------------------------------------------------

    def origin(self, leaf: Node, inner: str, along: str) -> tuple[str, str]:
        """The texts of a tensor's first element for the batch of the tile, and of its stride from row to row."""
        access = self.kernel.access
        strides = {a: access.stride(leaf.attr.name, d) for d, a in enumerate(leaf.attr.axes)}
        others = [f"i_{axis_name(a)} * {s}" for a, s in strides.items() if a not in (inner, along)]
        return " + ".join(others) or "i64(0)", strides[along]

    def places(self) -> None:
        """First elements in memory, and the lane's addresses in shared memory."""
        out, p, made = self.out, self.plan, self.made
        self.left_steps, self.right_steps = list[str](), list[str]()
        out.comment("Operands: where the batch begins in memory, and the lane's addresses for ldmatrix.")
        for k, product in enumerate(made.products):
            start, step = self.origin(product.left, product.terms, made.row)
            out(f"left_row{number(k)} = {start}")
            self.left_steps.append(step)
            start, step = self.origin(product.right, product.terms, made.stream)
            out(f"right_row{number(k)} = {start}")
            self.right_steps.append(step)
        name = "row_lane" if made.stored[1] in NARROW else "right_lane"
        out(f"right_at = {name}(smem_base, lane, {p.right_pitch})")
        if made.summed is not None:
            start, self.values_step = self.origin(made.summed.values, made.summed.column, made.stream)
            out(f"values_row = {start}")
            name = "values_lane" if made.dtype == TF32 else "left_lane"
            out(f"values_at = {name}(smem_base + {p.right_bytes}, lane, {p.values_pitch})")
        if not p.in_registers:
            out(f"left_tile = smem_base + {p.left_place}")
            out.comment(
                "The left tile stays in shared memory." if not p.long else "The left operand comes with the right."
            )
            name = "quad_lane" if made.stored[0] in TYPES and made.stored[1] in NARROW else "left_lane"
            out(f"left_at = {name}(left_tile + {16 * p.tall * p.left_pitch} * warp, lane, {p.left_pitch})")
            for k in range(0 if p.long else len(made.products)):
                self.left_copied("left_tile", f"left_row{number(k)}", k)
        out("read_at = opaque(0)")

    def left_copied(self, place: str, start: str, k: int = 0, more: str = "") -> None:
        made, step, load = self.made, self.left_steps[k], f"load_left_tile{number(k)}"
        row, size, name = made.row, self.kernel.access.size(made.row), operand_name(made.products[k].left.attr.name)
        place += self.offset(k, 0)
        first = f"{axis_name(row)}_first"
        self.out(f"{load}({place}, {name}, {start} + {first} * {step}, {step}, {size} - {first}, t{more})")

    def offset(self, k: int, side: int) -> str:
        """Where the terms of a contraction begin in a row of the left tile or the right one."""
        at = self.plan.parts[k][0] * self.plan.bytes_each[side]
        return f" + {at}" if at else ""

    # --- copies ------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start copying what the first blocks read."""
        self.out.comment(f"Prologue of the pipeline: {self.plan.stages - 1} of {self.plan.stages} stages under way.")
        for k in range(self.plan.stages - 1):
            self.fetch(f"last - {k}" if k else "last", str(k * self.plan.stage_bytes))

    def fetch(self, block: str, place: str) -> None:
        """Start copying a block of the stream, if there is one."""
        out, made = self.out, self.made
        out(f"prefetch_block = {block}")
        with out.block("if prefetch_block >= low:"):
            for k, product in enumerate(made.products):
                what, start, at = f"right_tile{number(k)}", f"right_row{number(k)}", place + self.offset(k, 1)
                self.copied(what, product.right, start, self.right_steps[k], at)
            if made.values is not None:
                self.copied(
                    "values_tile", made.values, "values_row", self.values_step, f"{place} + {self.plan.right_bytes}"
                )
        out("cp_async_commit()")

    def copied(self, what: str, leaf: Node, start: str, step: str, place: str, more: str = "") -> None:
        first = f"{start} + prefetch_block * (COLUMNS * {step})"
        name, count = operand_name(leaf.attr.name), f"{self.kernel.length} - prefetch_block * COLUMNS"
        # Asked anew, so that no register holds from block to block what follows from it.
        self.out(f"load_{what}(smem_base + {place}, {name}, {first}, {step}, {count}, this_thread(){more})")

    def turned(self, name: str) -> str:
        """To the next stage."""
        return turned(f"{name}_at", self.plan.stage_bytes, self.plan.stages)

    def arrived(self, block: str) -> None:
        """The next tile is there, everybody is done with the one before it, and its place is filled again."""
        size, stages = self.plan.stage_bytes, self.plan.stages
        free = f"{size} - read_at"
        self.out.comment(
            f"wait_group {stages - 2} and a barrier: the stage at read_at is there for all threads, and nobody "
            "reads the "
            "one before it any more: that is filled next."
        )
        self.out("cp_async_wait_stage()", "cuda.syncthreads()")
        if stages > 2:
            free = "write_at"
            self.out(f"write_at = {(stages - 1) * size} if read_at == 0 else read_at - {size}")
        self.fetch(f"{block} - {stages - 1}", free)

    @property
    def turning(self) -> bool:
        return False  # threads can write to the left operand wherever it lies

    def words(self) -> None:
        """The left operand's fragments, with the factor's sign."""
        out, p, made, k = self.out, self.plan, self.made, self.kernel
        if p.in_registers:
            out.comment("The left operand: fragments straight from memory, in registers for the whole tile.")
        signed = made.scale is not None and not is_const(made.scale, 1) and not positive(made)
        if not p.in_registers:
            if signed or made.multiplied == TF32:
                self.signed(signed)
            return
        count = p.held * p.terms // (4 if made.multiplied == TF32 else 8)
        k.array("left_words", count, "np.uint32")
        size, each = k.access.size(made.row), "" if made.multiplied == TF32 else "2 * "
        each = "4 * " if made.stored[1] in NARROW else each
        for n, product in enumerate(made.products):
            name, step = operand_name(product.left.attr.name), self.left_steps[n]
            first = f"left_row{number(n)} + row * {step} + {each}(lane & 3)"
            out(f"load_left_words{number(n)}(left_words, {name}, {first}, {step}, {size} - row)")
        if signed:
            with out.block(f"for k in range({count}):"):
                out("left_words[k] = (left_words[k] & keep_bits) ^ sign_bits")

    def signs(self) -> None:
        """The factor's sign in words of the left operand that do not hold two numbers of 16 bits."""
        made, p = self.made, self.plan
        if made.scale is None or is_const(made.scale, 1) or positive(made):
            return
        if made.multiplied == TF32:
            self.out("sign_bits = sign_bits & np.uint32(0x80000000)")
        elif made.stored[0] in NARROW and not p.in_registers:
            self.out("sign_bits = sign_bits | (sign_bits >> np.uint32(8))")

    def signed(self, signed: bool) -> None:
        """Give the left operand in shared memory the factor's sign, which is the same for all of the tile, and round
        float32, which every warp would round anew for every block."""
        out, p, single = self.out, self.plan, self.made.multiplied == TF32
        word = "tf32_word(shared_load_f32(left_tile + 4 * k))" if single else "shared_load_b32(left_tile + 4 * k)"
        out.comment("The left tile as it is multiplied: signed and rounded once, not by every warp for every block.")
        with out.block(None if single else "if (keep_bits ^ sign_bits) != np.uint32(0xffffffff):"):
            out("cp_async_drain()", "cuda.syncthreads()")
            with out.block(f"for k in range(t, {p.left_bytes // 4}, {p.threads}):"):
                out(f"shared_store_b32(left_tile + 4 * k, {f'({word} & keep_bits) ^ sign_bits' if signed else word})")

    # --- blocks ------------------------------------------------------------------------------------------------------

    def loop(self, op: For) -> None:
        """Blocks of the stream, the last one first; what rows keep is begun before it."""
        out = self.out
        if op.blocks == "first":
            self.kernel.tile.top_k.start()
            super().loop(op)
            return
        out.comment("The other blocks, down to `low`.")
        out("block = opaque(last)", "low_step = opaque(low)")
        with out.block("while block > low_step:"):
            out("block = opaque(block - 1)")
            self.of_block("block", op)

    def store(self, op: Store) -> None:
        self.who()
        if self.has_values and self.made.stored[2] in NARROW:
            self.out("sort_lanes(sums)")
        super().store(op)

    def who(self) -> None:
        """The thread's first row, asked anew: no register holds it from block to block."""
        row, tall = self.made.row, self.plan.tall
        self.out.comment("The thread's first row, computed anew: no register holds it across the product.")
        self.out("t = this_thread()", "lane = t & 31")
        self.out(f"row = {axis_name(row)}_first + {16 * tall} * (t >> 5) + (lane >> 2)")

    def mask(self, op: Mask) -> None:
        k = self.kernel
        self.who()
        k.block_places(self.block)
        k.tile.columns.vote(op.edge)
        if op.edge:
            k.tile.columns.early()
        self.masked(op)

    def pack(self) -> None:
        single = self.made.dtype == TF32
        self.out.comment(f"Weights, rounded to {self.made.dtype}, as the left operand's fragments P.")
        with self.out.block(f"for k in range({self.plan.held * self.plan.columns // (4 if single else 8)}):"):
            self.out("P[k] = tf32_word(S[k])" if single else f"P[k] = pack_{self.made.dtype}(S[2 * k], S[2 * k + 1])")

    def load(self, op: Load) -> None:
        """What stays is there; a block's tiles are asked for when the one before them has arrived."""

    def wait(self, op: Wait) -> None:
        if self.block:
            self.arrived(self.block)

    def arrive(self, op: Arrive) -> None:
        if self.block:
            self.out(self.turned("read"))

    def multiply(self, op: Mma) -> None:
        if op.tile == self.names.scores:
            self.out.comment("S of the block.")
            self.out(f"multiply(S, {'left_words' if self.plan.in_registers else 'left_at'}, right_at + read_at)")
        else:
            self.out.comment("sums += P * values of the stage at read_at; then on to the next stage.")
            self.out("multiply_values(sums, P, values_at + read_at)")


class LongMmaSkeleton(MmaSkeleton):
    """Both operands of the contraction come in chunks of 64 terms, and there are no columns."""

    def begin(self) -> None:
        self.out.comment(f"Prologue of the pipeline: {self.plan.stages - 1} of {self.plan.stages} stages under way.")
        self.out("term = 0", "prefetch_block = last", "write_at = opaque(0)")
        for _ in range(self.plan.stages - 1):
            self.fetch("", "write_at")

    def fetch(self, block: str, place: str) -> None:
        """Start copying the next chunk, if there is one."""
        out, p = self.out, self.plan
        left, right = (self.units_left(size) for size in p.bytes_each[:2])
        with out.block("if prefetch_block >= low:"):
            self.copied("right_tile", self.made.right, "right_row + term", self.right_steps[0], place, right)
            self.left_copied(f"left_tile + {place}", "left_row + term", 0, left)
            out(f"term += {CHUNK}")
            with out.block(f"if term >= {p.terms}:"):
                out("term = 0", "prefetch_block -= 1")
        out("cp_async_commit()", self.turned("write"))

    def units_left(self, size: int) -> str:
        """How many units of 16 bytes there are from a chunk on, where the last one is not whole."""
        terms, shift = self.plan.terms, (UNIT // size).bit_length() - 1
        return f", {terms >> shift} - (term >> {shift})" if terms % CHUNK else ""

    def loop(self, op: For) -> None:
        if op.axis == self.made.stream:
            super().loop(op)
        elif op.blocks == "first":
            self.kernel.array("score_parts", self.plan.held * self.plan.columns // 4)
            self.consume(op.body)
        else:
            with self.out.block(f"for chunk in range(1, {-(-self.plan.terms // CHUNK)}):"):
                self.consume(op.body)

    def convert(self, op: Convert) -> None:
        self.out.comment("The fold works on S, which need not stay in registers while the next chunks are multiplied.")
        with self.out.block(f"for k in range({self.plan.held * self.plan.columns // 4}):"):
            self.out("S[k] = score_parts[k]")

    def wait(self, op: Wait) -> None:
        self.out.comment(
            f"wait_group {self.plan.stages - 2} and a barrier: the chunk at read_at is there for all threads, and "
            "nobody "
            "reads the stage at write_at any more: the next chunk goes there."
        )
        self.out("cp_async_wait_stage()", "cuda.syncthreads()")
        self.fetch("", "write_at")

    def multiply(self, op: Mma) -> None:
        name = "multiply" if op.fresh else "multiply_add"
        self.out(f"{name}(score_parts, left_at + read_at, right_at + read_at)")
