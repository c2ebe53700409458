"""Two products, one behind the other, as one kernel: a chain that is launched once.

All blocks run at once, meet between the products at a grid barrier, and pass the first one's results through the
second-level cache. The ring of stages goes through: while other blocks still end the first product, a block's producer
fills the stages that get free with right operands of the second one, which nobody has to wait for; then it waits at the
barrier, and brings the left operand. So memory is read without a pause between the products.

What was written before the barrier reaches the copies behind it as in `redalg.kernels.gemm.kernel`: a fence by every
writer, a barrier of the consumers, a release by the thread that counts its block; an acquire by the thread that asks
for copies, and the same fence. Every block counts once more when it waits no longer, and the last one leaves the
counters at zero, for the next launch.

Names of the second product that depend on its shape end in ``_2``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from redalg.kernels.gemm import comments
from redalg.kernels.gemm.epilogue import Epilogue
from redalg.kernels.gemm.kernel import Gemm, GemmKernel, module_of
from redalg.kernels.ir.program import Module, Param
from redalg.kernels.tile.level.grid import DONE, Count, Reset, Writer, Written
from redalg.kernels.tile.level.program import TileProgram
from redalg.kernels.tile.printer import TilePrinter
from redalg.source.statements import renamed

COUNTERS = Param("counters", "finished", "int32", size=2)  # blocks that have ended the first product; that wait no more
OWN = (  # names of a product that depend on its shape, beside those of its sums
    *"multiply multiply_add sums_wait_0 sums_wait_1 load_left_tile load_right_tile COLUMNS CHUNKS OWN_CHUNKS".split(),
    *"GROUP tiles down over all_rows".split(),
)


@dataclass(frozen=True)
class Chained:
    """Both products, and the strides of what lies between them, by the name of its array."""

    first: Gemm
    second: Gemm
    between: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, first: Gemm, second: Gemm, between: Mapping[str, tuple[int, ...]]) -> Self:
        """Blocks meet when they have written what lies between."""
        late = dict.fromkeys(between, Writer.PRODUCT)
        return cls(replace(first, counted=tuple(between)), replace(second, late=late), between)


class _Meeting(GemmKernel):
    """A product of a chain: the blocks of the grid are counted, each when it has ended the first one."""

    def count(self, op: Count) -> None:
        out = self.out
        out.comment("Every writer's fence, all consumers, then the block is counted: its results are there.")
        out("fence_proxy_async_global()", f"named_barrier_sync(1, {128 * self.plan.consumers})")
        with out.block("if t == 128:"):
            out(f"counter_add_release({COUNTERS.name}, 0)")

    def written(self, op: Written) -> None:
        self.out(f"counter_wait_acquire({COUNTERS.name}, 0, opaque(cuda.gridDim.x))")

    def reset(self, op: Reset) -> None:
        out, name = self.out, COUNTERS.name
        out.comment("The last block that waits no more resets the counters, for the next launch.")
        with out.block(f"if counter_add_acq_rel({name}, 1) == cuda.gridDim.x - 1:"):
            out(f"counter_wait_acquire({name}, 0, opaque(cuda.gridDim.x))")
            out(f"store_int32({name}, 0, 0)", f"store_int32({name}, 1, 0)")


class ChainKernel(TilePrinter):
    """Prints both products."""

    def __init__(self, made: Chained, tiles: TileProgram) -> None:
        assert tiles.behind is not None
        super().__init__(made.second.program)
        self.made, self.tiles = made, tiles
        self.first, self.second = _Meeting(made.first, tiles), _Meeting(made.second, tiles.behind)
        self.first.out = self.second.out = self.out
        self.second.first_map = len(made.first.maps)

    def module(self) -> Module:
        out = self.out
        for kernel in (self.first, self.second):
            kernel.epilogue = Epilogue(kernel)
        out.comment(*comments.chain(self.made.first, self.made.second, self.tiles))
        splits, maps = (
            [x.plan.split for x in (self.first, self.second)],
            (*self.made.first.maps, *self.made.second.maps),
        )
        self.first.shared(splits, max(splits), len(maps))
        with out.block("if warpgroup == 0:"):
            self.first.producer_head("the ring")
            with out.block("if t == 0:"):
                out("stage = 0", "phase = 1")
                self._begin(self.first)
                self.first.filled()
                self._begin(self.second)
                with self._with_second_names():
                    self.second.filled()
                    self.second.last()
        with out.block("else:"):
            self.first.consumer_head("counted from 0")
            out("stage = 0", "phase = 0")
            self._begin(self.first)
            self.first.compute()
            self.first.consume(self.tiles.bodies[DONE])
            self._begin(self.second)
            with self._with_second_names():
                self.second.compute()
        return module_of(self, self.made.second.plan)

    @property
    def _names(self) -> dict[str, str]:
        """What the second product's own names are."""
        return {name: f"{name}_2" for name in (*OWN, *self.second.sums)}

    @contextmanager
    def _with_second_names(self) -> Iterator[None]:
        """What is said inside, of the second product, has names of its own."""
        with self.out.block(None) as here:
            before = len(here)
            yield
            here[before:] = renamed(tuple(here[before:]), self._names)

    def _begin(self, kernel: GemmKernel) -> None:
        """Where operands of a product lie in a stage, its piece of the terms, and what counts its partial sums."""
        p, second = kernel.plan, kernel is self.second
        self.out.comment("The second product." if second else "The first product.")
        if second:
            self.out(f"right_tile = left_tile + {p.left_bytes}")
        if p.split > 1:
            said = "`piece` of the terms; `among` the blocks of the cluster, where those that split these terms begin."
            self.out.comment(said)
            self.out(f"piece = rank & {p.split - 1}", "among = rank - piece")
            self.out(f"exchanged = empty + 8 * STAGES{' + 8' * second}")

    # --- text around the kernel --------------------------------------------------------------------------------------

    def params(self) -> dict[str, Param]:
        found: dict[str, Param] = {COUNTERS.name: COUNTERS}
        for kernel, names in ((self.first, dict[str, str]()), (self.second, self._names)):
            for text, x in kernel.params().items():
                own, param = self._param(kernel, text, x)
                fixed = Param("fixed", names.get(x.name, x.name), x.dtype) if x.role == "fixed" else param
                found.setdefault(names.get(own, own), fixed)
        return found

    def _param(self, kernel: GemmKernel, text: str, x: Param) -> tuple[str, Param]:
        """An argument, by its name in the text: results of the first product are an operand of the second one."""
        if kernel is self.first and x.name in self.made.between:
            if x.role == "result":
                return text, Param("operand", x.name, x.dtype)
            if x.role == "stride_out":
                return text, Param("fixed", f"{x.name} {x.dim}", "int64")
        return text, x

    def numbers(self) -> dict[str, int]:
        """The arguments that are the same in every call: strides of what lies between."""
        return {f"{n} {d}": s for n, strides in self.made.between.items() for d, s in enumerate(strides)}

    def makers(self) -> dict[str, str]:
        names = self._names
        second = {names[n]: text for n, text in self.second.makers().items() if n in names}
        return {**self.first.makers(), **second}

    def constants(self) -> dict[str, object]:
        names = self._names
        second = {names[n]: x for n, x in self.second.constants().items() if n in names}
        return self.first.constants() | second
