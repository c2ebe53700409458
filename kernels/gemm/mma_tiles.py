"""Tiles of a matrix product by mma.sync, for devices without wgmma: chosen by capacity, and by a model of rounds.

Warps lie in a grid over the block's tile, and each multiplies 16·``tall`` rows by ``wide`` columns of it; all threads
copy (cp.async) and all multiply. Rows of a stage are an odd number of 16-byte units apart, so that `ldmatrix` meets no
conflict of banks (`redalg.kernels.cuda.intrinsics.mma`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from redalg.kernels.gemm.tiles import GemmPlan, blocks_of
from redalg.kernels.ir.tensor_cores import pitch_of
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import Outside
from redalg.kernels.tile.mma_sync_plan import rate_of

REGISTERS = 96  # of a thread, beside its sums: fragments under way, addresses, the epilogue
READING = 176  # the same where the epilogue reads columns (240 to 255 in all, by ptxas for 8.0 to 10.3)
NARROW = 64  # sums of a thread where the epilogue reads columns: it is unrolled over them, and takes registers
LEAST, MOST_STAGES = 3, 6
REACHED = 0.9  # of the rate of instructions
SHARED = 115  # bytes a cycle of shared memory
BARRIER = 120  # cycles from the last product of a chunk to the first one of the next
LATE = 0.7e-6  # seconds from asking for a chunk to having it
FILL = 1.5e-6  # seconds of the first chunk of a tile, and of writing results


class Warps(NamedTuple):
    """Warps below and beside each other, 16 rows each of them multiplies so many times, and its columns."""

    down: int
    across: int
    tall: int
    wide: int


# Of a block, the largest first. What a warp loads of shared memory for a product falls with its own rows and columns.
SHAPES = (
    Warps(2, 4, 4, 64),
    Warps(2, 2, 4, 64),
    Warps(2, 2, 4, 32),
    Warps(2, 2, 2, 64),
    Warps(2, 2, 2, 32),
    Warps(1, 4, 2, 32),
    Warps(1, 4, 1, 32),
    Warps(1, 4, 1, 16),
)
DEPTHS = (64, 32)  # terms of a stage


@dataclass(frozen=True)
class MmaGemm(GemmPlan):
    """Sizes of one kernel by mma.sync; ``depth``: terms of a stage; ``held``: stages; ``resident``: blocks that share a
    multiprocessor. Everything else is as in `GemmPlan`."""

    warps: Warps = SHAPES[0]
    depth: int = DEPTHS[0]
    held: int = LEAST
    resident: int = 1

    instruction = "mma.sync"

    @property
    def rows(self) -> int:
        return 16 * self.warps.tall * self.warps.down

    @property
    def threads(self) -> int:
        return 32 * self.warps.down * self.warps.across

    @property
    def chunk(self) -> int:
        return self.depth

    @property
    def stages(self) -> int:
        return self.held

    @property
    def own_columns(self) -> int:
        return self.warps.wide

    @property
    def tall(self) -> int:  # type: ignore[override]
        return self.warps.tall

    @property
    def sums(self) -> int:
        return self.warps.tall * self.warps.wide // 2

    def lines(self, side: int) -> tuple[int, int]:
        """How many rows an operand has in a stage, 0 for the left one, and how many elements each of them has."""
        found = (self.columns if side else self.rows), self.depth
        return found[::-1] if (self.flat if side else self.left_flat) else found

    def apart(self, side: int) -> int:
        """Bytes from one such row to the next."""
        return pitch_of(2 * self.lines(side)[1])

    @property
    def left_bytes(self) -> int:
        return self.lines(0)[0] * self.apart(0)

    @property
    def right_bytes(self) -> int:
        return self.lines(1)[0] * self.apart(1)

    @property
    def staging(self) -> int:
        """Bytes for results on their way, where stages lay."""
        return self.threads // 32 * 16 * self.pitch if self.staged else 0

    @property
    def size(self) -> int:
        return max(self.held * self.stage, self.staging)


@dataclass(frozen=True)
class MmaRounds:
    """A product whose tiles are computed in rounds, by as many blocks as all multiprocessors hold at a time; operands
    as in `GemmPlan`. ``broad``: whether the epilogue takes few registers.

    >>> from redalg.kernels.schedule.target import A100, L40S
    >>> for target in (A100, L40S):
    ...     p = MmaRounds(("bfloat16", "bfloat16"), False, False, 4096, 4096, 4096, 1, target).best()
    ...     print(p.rows, p.columns, p.depth, p.stages, p.size >> 10, p.resident)
    128 256 64 3 162 1
    128 256 32 3 90 1
    """

    kinds: tuple[str, str]
    left_flat: bool
    flat: bool
    rows: int
    columns: int
    terms: int
    batches: int
    target: Target
    broad: bool = True

    def best(self) -> MmaGemm:
        """The tiles that take the least time. Raises: Outside."""
        found = min(self.plans(), key=self.seconds, default=None)
        if found is None:
            raise Outside(f"no tile fits {self.target.most_shared} bytes of shared memory")
        return found

    def plans(self) -> Iterator[MmaGemm]:
        """Every shape that fits registers and shared memory, with as many stages as fit."""
        own = self.target.multiprocessor
        for warps in SHAPES:
            if warps.tall * warps.wide // 2 > NARROW and not self.broad:
                continue
            registers = warps.tall * warps.wide // 2 + (REGISTERS if self.broad else READING)
            threads = 32 * warps.down * warps.across
            places = min(own.registers // (registers * threads), own.threads // threads)
            for depth in DEPTHS:
                for resident in range(1, min(places, 4) + 1):
                    yield from self._staged(warps, depth, resident)

    def _staged(self, warps: Warps, depth: int, resident: int) -> Iterator[MmaGemm]:
        """The shape with the stages that so many blocks leave each other."""
        most = min(self.target.most_shared, self.target.multiprocessor.shared // resident - 1024)
        columns, side = warps.across * warps.wide, self.target.multiprocessors**0.5
        plan = MmaGemm(
            self.kinds,
            self.flat,
            self.terms,
            max(1, warps.down * warps.across // 4),
            1,
            columns,
            False,
            group=max(1, round(side * (columns / (16 * warps.tall * warps.down)) ** 0.5)),
            staged=True,
            left_flat=self.left_flat,
            warps=warps,
            depth=depth,
            resident=resident,
        )
        stages = min(most // plan.stage, MOST_STAGES)
        plan = replace(plan, held=max(LEAST, min(stages, plan.chunks + 1)))
        if plan.size <= most:
            yield plan

    def seconds(self, plan: MmaGemm) -> float:
        """Of all rounds. A chunk takes as long as its products, what warps load of shared memory for them, or what
        comes from the second-level cache, of all blocks that share the multiprocessor; at its barrier a block waits,
        which others hide; and no chunk comes sooner than the latency lets the stages under way."""
        target, count = self.target, blocks_of(plan, self.rows, self.columns, self.batches)[0]
        together = min(plan.resident, -(-count // target.multiprocessors))
        rounds, terms = -(-count // (target.multiprocessors * together)), together * plan.depth
        rate = rate_of(target) / target.multiprocessors * REACHED
        warps, (_, _, tall, wide) = plan.threads // 32, plan.warps
        chunk = max(
            2 * plan.rows * plan.columns * terms / rate,
            2 * warps * (16 * tall + wide) * terms / (SHARED * target.clock),
            2 * (plan.rows + plan.columns) * terms * target.multiprocessors / target.l2_bandwidth,
        )
        chunk = max(chunk + BARRIER / (together * target.clock), LATE / (plan.stages - 1))
        once = 2 * self.terms * self.batches * (self.rows + self.columns) / target.reachable
        computing = rounds * plan.chunks * chunk + FILL * (1 + (rounds - 1) / together)
        return target.launch + max(computing, once) + 0.1 * min(computing, once)
