"""A matrix product as a numba.cuda kernel by mma.sync, from compute capability 8.0 on.

All threads of a block bring chunks of both operands to a ring of stages (cp.async) and multiply them, each warp its own
rows and columns of the tile: `ldmatrix` transposes operands whose rows lie contiguous instead of their terms. One
barrier a chunk says that it is there and that the stage before it is free. Places, the order of tiles and the epilogue
are those of the kernel by wgmma (`redalg.kernels.gemm.kernel`), on the registers of a warp.
"""

from __future__ import annotations

from redalg.kernels.gemm import comments
from redalg.kernels.gemm.epilogue import Epilogue
from redalg.kernels.gemm.kernel import GemmKernel, module_of
from redalg.kernels.gemm.mma_tiles import MmaGemm
from redalg.kernels.ir.program import Module
from redalg.kernels.ir.tensor_cores import UNIT
from redalg.kernels.tile.level.cascade_mma import turned
from redalg.kernels.tile.level.program import Arrive, Clear, For, Load, Mma, Store, Wait
from redalg.source.names import axis_name, operand_name

SIDES = ("left", "right")


class MmaGemmKernel(GemmKernel):
    """Prints a whole kernel; strides of operands are arguments that are the same in every call."""

    plan: MmaGemm
    boxed = False

    def module(self) -> Module:
        self.epilogue = Epilogue(self)
        self.out.comment(*comments.mma(self.made, self.plan, self.tiles))
        self._began()
        with self.in_turns(self.fix("tiles")):
            self._places()
            self._operands_of_tile()
            self.consume(self.tiles.bodies["all"])
        return module_of(self, self.plan)

    def numbers(self) -> dict[str, int]:
        """Strides of operands: from one line of a tile to the next, and of the batch; 0 where there is one alone."""
        found = {}
        for side, m in zip(SIDES, self.made.maps, strict=True):
            found[f"{side}_step"] = m.steps[1] if m.steps[1] % 8 == 0 else 0
            found |= {f"{side}_batch{d}": step for d, step in enumerate(reversed(m.steps[2:]))}
        return found

    def makers(self) -> dict[str, str]:
        p = self.plan
        more = ", transposed=True" * p.flat + ", a_transposed=True" * p.left_flat
        more += f", tall={p.tall}" * (p.tall > 1)
        product = f'{p.warps.wide}, {p.chunk}, "{p.dtype}", {p.apart(1)}, a="shared", a_pitch={p.apart(0)}, fresh=False'
        return {
            **{f"load_{side}_tile": self._copy(k) for k, side in enumerate(SIDES)},
            "multiply_add": f"tile_product({product}{more})",
            "cp_async_wait_stage": f"cp_async_wait({p.stages - 2})",
        }

    def _copy(self, side: int) -> str:
        p = self.plan
        lines, length = p.lines(side)
        exact = ", ragged=True, exact=True" if self._ends(side) else ""
        return f"tile_copy({lines}, {2 * length // UNIT}, {p.apart(side)}, {p.threads}{exact})"

    def _across(self, side: int) -> bool:
        """Whether rows of an operand lie contiguous, not its terms."""
        return self.plan.flat if side else self.plan.left_flat

    def _ends(self, side: int) -> bool:
        """Whether a line of a tile may end early, by the byte."""
        return self._across(side) or self.plan.terms % self.plan.chunk > 0

    # --- who is where ------------------------------------------------------------------------------------------------

    def _began(self) -> None:
        out, p = self.out, self.plan
        down, across, tall, wide = p.warps
        out("t = cuda.threadIdx.x", "lane = t & 31", "warp = warp_uniform(t >> 5)")
        out("smem = cuda.shared.array(0, np.uint8)", "left_tile = shared_start(smem)")
        out.comment(
            f"Warps lie {down} below each other and {across} beside each other; the lane's address for ldmatrix."
        )
        out(f"warp_row = warp >> {across.bit_length() - 1}", f"warp_column = warp & {across - 1}")
        for side, word, count, first in ((0, "row", 16 * tall, 0), (1, "column", wide, p.left_bytes)):
            step = 2 * count if self._across(side) else count * p.apart(side)
            name = "left_lane" if self._across(side) is bool(side) else "right_lane"
            place = f"left_tile + {first} + {step} * warp_{word}" if first else f"left_tile + {step} * warp_{word}"
            out(f"{SIDES[side]}_at = {name}({place}, lane, {p.apart(side)})")
        out(f"S = cuda.local.array({p.sums}, np.float32)")

    def own_rows(self, half: int, name: str, how: str) -> list[str]:
        return [f"Epilogue: 16 of the warp's {16 * self.plan.tall} rows, {how}."]

    def own_first(self, half: int) -> str:
        return f"row_first + {16 * self.plan.tall} * warp_row{f' + {16 * half}' if half else ''}"

    def staging(self) -> str:
        return "left_tile + warp"

    # --- copies ------------------------------------------------------------------------------------------------------

    def _operands_of_tile(self) -> None:
        """Where the tile's operands begin in memory, and the first chunks under way."""
        out, p, batch = self.out, self.plan, self.made.batch
        for side, word in enumerate(SIDES):
            first = f"{('row', 'column')[side]}_first"
            starts = [f"i_{axis_name(a)} * {self.fix(f'{word}_batch{d}')}" for d, a in enumerate(batch)]
            starts.append(first if self._across(side) else f"{first} * {self.fix(f'{word}_step')}")
            out(f"{word}_row = {' + '.join(starts)}")
        out.comment(f"Nobody reads the tile before any more; {p.stages - 1} of {p.stages} stages under way.")
        out("cuda.syncthreads()", "term = opaque(0)", "read_at = opaque(0)", "write_at = opaque(0)")
        for _ in range(p.stages - 1):
            self._fetch()

    def _fetch(self) -> None:
        """Start copying the next chunk, if there is one."""
        out, p = self.out, self.plan
        with out.block(f"if term < {p.chunks * p.chunk}:"):
            for side, word in enumerate(SIDES):
                self._fetched(side, word)
            out(f"term = opaque(term + {p.chunk})")
        out("cp_async_commit()", turned("write_at", p.stage, p.stages))

    def _fetched(self, side: int, word: str) -> None:
        p, m, step = self.plan, self.made.maps[side], self.fix(f"{word}_step")
        length = self.access.size(self.made.column) if side else self.all_rows()
        rows, terms = f"{length} - {('row', 'column')[side]}_first", f"{p.terms} - term"
        across = self._across(side)
        count, inside = (terms, rows) if across else (rows, terms)
        start = f"{word}_row + term" + f" * {step}" * across
        place = f"left_tile + {p.left_bytes} + write_at" if side else "left_tile + write_at"
        given = [place, operand_name(m.operand), start, step, count, "t"]
        given += [f"2 * ({inside})"] if self._ends(side) else []
        self.out(f"load_{word}_tile({', '.join(given)})")

    # --- operations --------------------------------------------------------------------------------------------------

    def clear(self, op: Clear) -> None:
        with self.out.block(f"for k in range({self.plan.sums}):"):
            self.out("S[k] = f32(0)")

    def loop(self, op: For) -> None:
        with self.out.block("for chunk in range(CHUNKS):"):
            self.consume(op.body)

    def load(self, op: Load) -> None:
        """Chunks are asked for when the one before them has arrived."""

    def wait(self, op: Wait) -> None:
        self.out.comment(
            f"wait_group {self.plan.stages - 2} and a barrier: the chunk at read_at is there for all threads, and "
            "nobody reads the stage at write_at any more: the next chunk goes there."
        )
        self.out("cp_async_wait_stage()", "cuda.syncthreads()")
        self._fetch()

    def multiply(self, op: Mma) -> None:
        self.out("multiply_add(S, left_at + read_at, right_at + read_at)")

    def arrive(self, op: Arrive) -> None:
        self.out(turned("read_at", self.plan.stage, self.plan.stages))

    def store(self, op: Store) -> None:
        if self.plan.staged:
            self.out.comment("Results are staged where chunks lay: until everybody has read the last one.")
            self.out("cuda.syncthreads()")
        self.out(f"column_first = column_first + {self.plan.warps.wide} * warp_column")
        self.epilogue.write(["S"] * self.plan.tall)
