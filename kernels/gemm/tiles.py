"""Tiles of a matrix product on tensor cores, and where they lie in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log2
from typing import NamedTuple

from redalg.kernels.gemm.match import FLOAT8
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.ir.tensor_cores import TYPE
from redalg.kernels.launch.planned import Tile
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import Outside
from redalg.kernels.tile.plan import MOST_SHARED

# Chunks of a tile, at most, whose rows are written by bulk copies, and of which no blocks share an operand. On an H100
# (benchmarks/records/convolutions.md, "Tiles of many rows") products of 2 to 36 chunks took 0.74 to 0.98 of the time by
# bulk copies, and by tiles of 128 and 256 columns 1.04 to 1.33 times as long by pairs of blocks.
SHORT = 40
FILL = 4  # chunks that take the time of filling the pipeline, and of writing results
LEAST = 3  # stages that are left where whole tiles are staged
PITCH = 144  # bytes from one staged row of 64 results to the next: neighbours start in other banks
SIDES = (Tile.LEFT, Tile.RIGHT)


class Sharing(NamedTuple):
    """Blocks of a cluster that share an operand of which each brings a part."""

    blocks: int = 1
    operand: Tile = Tile.RIGHT


@dataclass(frozen=True)
class GemmPlan:
    """Sizes of one kernel.

    ``consumers``: warpgroups of 64·``halves`` rows each; tiles are ``columns`` wide, ``stages`` chunks of 128 bytes are
    prefetched. ``flat``, ``left_flat``: rows of the right and of the left operand lie contiguous, not their terms.
    ``promoted``: sums of a chunk are added to sums in float32, since products of float8 are added to about 14 bits by
    the tensor cores.
    ``products``: of one left operand with several right ones, tiles side by side in a stage. ``split``: blocks of a
    cluster that multiply a part of the terms each, and exchange partial sums: each adds those of its own columns.
    ``parts``: of the terms, each of which a block multiplies and writes partial sums (`redalg.kernels.gemm.parts`).
    ``deep``: pieces of 128 bytes of a row in a stage. ``brought``: rows of the left operand in a stage where there are
    fewer than a product multiplies; it reads what lies behind them, too, and nothing is written of that.
    ``neighbour``: bytes of a stage, and for partial sums, of another product in the same kernel, which fills the same
    ring: stages are as large as the larger one's, left and right operand side by side.
    ``early``: it begins while the kernel before it ends, and brings right operands before it waits for that;
    ``followed``: a kernel behind it may begin so.
    ``group``: rows of blocks that are computed before the next columns. ``staged``: results are written by way of
    shared memory, 16 bytes at a time, or, ``bulk``, by the copy engine, row by row, while the block multiplies its next
    tile; ``vector``: pairs of neighbours, else single numbers. ``most_shared``:
    bytes of shared memory that a block may have. ``joined``: terms of other products that are added to the same sums;
    chunks hold terms of one product. ``states``: numbers of the state of a row that is reduced in the epilogue, which
    blocks side by side exchange (`redalg.kernels.gemm.row_states`). ``vectors``: tensors that the epilogue reads along
    columns alone, whose numbers for a tile every consumer warpgroup has in shared memory. ``residual``: a tensor
    that lies like the result comes to where that is staged while the tile is computed.
    """

    kinds: tuple[str, str]
    flat: bool
    terms: int
    consumers: int
    halves: int
    columns: int
    promoted: bool
    sharing: Sharing = Sharing()
    group: int = 8
    staged: bool = False
    bulk: bool = False
    vector: bool = False
    most_shared: int = MOST_SHARED
    products: int = 1
    split: int = 1
    deep: int = 1
    brought: int = 0
    neighbour: tuple[int, int] = (0, 0)
    early: bool = False
    followed: bool = False
    left_flat: bool = False
    parts: int = 1
    joined: tuple[int, ...] = ()
    states: int = 0
    vectors: int = 0
    residual: bool = False

    instruction = "wgmma"
    resident = 1  # blocks that share a multiprocessor
    tall = 1  # times 16 rows of one array of sums

    @property
    def sums(self) -> int:
        """Registers of a thread for sums."""
        return self.columns // 2 * (self.halves + 1 if self.promoted else self.products)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster: those that share an operand, times those that share a tile's terms."""
        return self.sharing.blocks * self.split

    @property
    def paired(self) -> bool:
        """Whether the cluster is a pair of blocks that share an operand, and nothing else."""
        return self.sharing.blocks == self.cluster == 2

    @property
    def own_columns(self) -> int:
        """Columns of a tile that a block writes."""
        return self.columns // self.split

    @property
    def own_chunks(self) -> int:
        """Chunks that a block multiplies; the last one of a split, or the last part, has the rest."""
        return -(-self.chunks // (self.split * self.parts))

    @property
    def shared(self) -> Tile:
        """The operand that they share."""
        return self.sharing.operand

    @property
    def rows(self) -> int:
        return 64 * self.consumers * self.halves

    @property
    def threads(self) -> int:
        return 128 * (self.consumers + 1)

    @property
    def left_rows(self) -> int:
        """Rows of the left operand in a stage."""
        return self.brought or self.rows

    @property
    def box_terms(self) -> int:
        """Terms that lie in 128 bytes."""
        return 128 // STORAGE[self.kinds[0]]

    @property
    def chunk(self) -> int:
        """Terms of a stage."""
        return self.box_terms * self.deep

    @property
    def chunks(self) -> int:
        return self.first_terms[-1] // self.chunk

    @property
    def first_terms(self) -> list[int]:
        """Where the terms of every product begin, in whole chunks, and where all end."""
        found = [0]
        for terms in (self.terms, *self.joined):
            found.append(found[-1] + -(-terms // self.chunk) * self.chunk)
        return found

    @property
    def left_bytes(self) -> int:
        return 128 * self.deep * self.left_rows

    @property
    def right_bytes(self) -> int:
        return 128 * self.deep * self.columns * self.products

    @property
    def meeting(self) -> int:
        """Blocks that exchange the states of their rows, 1 where there is nothing to exchange."""
        return self.sharing.blocks if self.states else 1

    @property
    def quads(self) -> int:
        """Times 16 bytes of a row's state."""
        return -(-self.states // 4)

    @property
    def exchanged(self) -> int:
        """Bytes for partial sums that come from the other blocks of a split, or for states of rows, of this tile and of
        the one before it, which others may still read."""
        if self.meeting > 1:
            return 2 * self.state_bytes
        return 4 * self.rows * self.columns * self.products if self.split > 1 else 0

    @property
    def state_bytes(self) -> int:
        """Bytes for the states of a tile's rows, of all blocks."""
        return 16 * self.quads * self.rows * self.meeting

    @property
    def staging(self) -> int:
        """Bytes for results on their way."""
        return 4 * self.consumers * 16 * self.pitch if self.staged or self.neighbour[0] else 0

    @property
    def pitch(self) -> int:
        """Bytes from one staged row to the next."""
        return 2 * self.own_columns + 16 if self.bulk else PITCH

    @property
    def stages(self) -> int:
        left = self.most_shared - 1024 - 256 - self.staging - max(self.exchanged, self.neighbour[1])
        return min(8, (left - self.vector_bytes) // self.stage)

    @property
    def stage(self) -> int:
        """Bytes of a stage."""
        return max(self.left_bytes + self.right_bytes, self.neighbour[0])

    @property
    def steps(self) -> tuple[int, int]:
        """Bytes from one stage to the next, of the left and of the right operand."""
        return (self.stage, self.stage) if self.neighbour[0] else (self.left_bytes, self.right_bytes)

    @property
    def barriers(self) -> int:
        """Where barriers lie; results are staged after them, then come partial sums or states, then vectors."""
        return self.stages * self.stage

    @property
    def vector_bytes(self) -> int:
        """Bytes of what the epilogue reads along columns."""
        return 4 * self.columns * self.consumers * self.vectors

    @property
    def vectors_at(self) -> int:
        """Where that lies."""
        return self.barriers + 256 + self.staging + max(self.exchanged, self.neighbour[1])

    @property
    def size(self) -> int:
        """Bytes of shared memory, 1 KB of them for rounding its address."""
        return self.vectors_at + self.vector_bytes + 1024

    @property
    def dtype(self) -> str:
        """The type of operands as `tile_product` takes it."""
        return "/".join(dict.fromkeys(self.kinds)) if self.kinds[0] != self.kinds[1] else self.kinds[0]


# --- tiles -----------------------------------------------------------------------------------------------------------

Shape = tuple[int, int, int]  # warpgroups, halves, columns
SUMS = 256  # columns of all products of a tile: sums of two warpgroups that fit registers


def shapes(promoted: bool, broad: bool = True, products: int = 1, flat: bool = False) -> Iterator[Shape]:
    """Tiles whose sums fit registers, the largest first: these where the epilogue takes few, `broad`.

    Those between 128 and 256 columns make the last round of multiprocessors a fuller one: 640 rows by 4096 columns are
    80 tiles of 128 by 256, for 132 multiprocessors, and 130 of 128 by 160 (42.7 and 30.3 us with 4096 terms, H200). Of
    96 columns none was faster. Several `products` have no tiles of more columns than 256 for all; a `flat` operand
    comes in boxes of 64 columns.
    """
    if products == 1 and broad:
        yield from ((2, 1, columns) for columns in range(256, 128, -64 if flat else -32) if not promoted)
        yield from ([(2, 2, 128)] if promoted else [])
    step = 64 if products == 1 or flat else 16
    for columns in range(min(128, SUMS // products // step * step), 63 if products == 1 else 31, -step):
        for consumers in (2, 1):
            yield consumers, 1, columns


# How much longer an element of a tile takes, by the elements of a tile; between these, by their logarithms.
SLOW = ((128 * 256, 1.0), (128 * 128, 1.15), (64 * 128, 1.4), (64 * 64, 1.8))


def slowed(area: int) -> float:
    """How much longer an element of a tile of so many takes.

    >>> slowed(128 * 256), slowed(128 * 128), round(slowed(128 * 192), 2), slowed(64 * 32)
    (1.0, 1.15, 1.06, 1.8)
    """
    for (above, least), (below, most) in pairwise(SLOW):
        if area > below:
            part = log2(min(area, above) / below) / log2(above / below)
            return most + part * (least - most)
    return SLOW[-1][1]


@dataclass(frozen=True)
class Rounds:
    """A product whose tiles are computed in rounds, one by every multiprocessor at a time, and the tiles that take the
    least time by that model. Operands as in `GemmPlan`.

    ``promoted``, whatever the types of a spec: sums of float8 products that stay with the tensor cores are off by up to
    33·2^-13 of their largest for every 32 terms, K/32·33·2^-13 of Σ|L·R| in all, which at K = 4096 is half of it. No
    rounding of the spec bounds that: operands are exact (their casts are part of the spec), and results are rounded by
    2^-9 of themselves, not of Σ|L·R|. Promoted, it is 4·33·2^-13, whatever K is.

    >>> from redalg.kernels.schedule.target import H200
    >>> kinds = "bfloat16", "bfloat16"
    >>> p = Rounds(kinds, False, 4096, 4096, 4096, 1, H200).best()
    >>> (p.rows, p.columns, p.cluster, p.stages), Rounds(kinds, False, 300, 200, 4096, 1, H200).best().columns
    ((128, 256, 2, 4), 64)
    """

    kinds: tuple[str, str]
    flat: bool
    rows: int
    columns: int
    terms: int
    batches: int
    target: Target
    products: int = 1
    left_flat: bool = False
    joined: tuple[int, ...] = ()
    residual: bool = False

    @property
    def promoted(self) -> bool:
        return self.kinds[0] in FLOAT8

    def best(self, broad: bool = True) -> GemmPlan:
        """The tiles that take the least time. Raises: Outside."""
        return min(self.plans(broad), key=self.time)

    def plans(self, broad: bool = True) -> list[GemmPlan]:
        """Tiles of every shape that fits. Raises: Outside."""
        every = map(self.plan, shapes(self.promoted, broad, self.products, self.flat))
        found = [plan for plan in every if plan.stages >= 2]
        if not found:
            raise Outside(f"no tile fits {self.target.most_shared} bytes of shared memory")
        return found

    def plan(self, shape: Shape) -> GemmPlan:
        """Tiles of a shape, with the pair of blocks that shares an operand, and the order of tiles."""
        consumers, halves, wide = shape
        plan = GemmPlan(
            self.kinds,
            self.flat,
            self.terms,
            consumers,
            halves,
            wide,
            self.promoted,
            staged=True,
            most_shared=self.target.most_shared,
            products=self.products,
            left_flat=self.left_flat,
            joined=self.joined,
        )
        shared = Tile.LEFT if halves == 2 else Tile.RIGHT
        size = 2 if self._pairs(plan, shared) else 1
        side = (self.target.multiprocessors / size) ** 0.5
        tall = plan.rows * (size if shared is Tile.RIGHT else 1)
        broad = wide * (size if shared is Tile.LEFT else 1)
        group = max(1, round(side * (broad / tall) ** 0.5))
        plan = replace(plan, sharing=Sharing(size, shared), group=group)
        bulk = replace(plan, bulk=True, residual=self.residual)
        return bulk if (self.residual or plan.chunks <= SHORT) and bulk.stages >= LEAST else plan

    def _pairs(self, plan: GemmPlan, shared: Tile) -> bool:
        """Whether there are neighbours that share an operand, of large tiles, and enough for every multiprocessor."""
        down, over = -(-self.rows // plan.rows), -(-self.columns // plan.columns)
        neighbours = over if shared is Tile.LEFT else down
        large = plan.columns * plan.rows * plan.products >= 128 * 128
        several = self.batches * down * over > 2 * self.target.multiprocessors
        return neighbours > 1 and large and several and plan.chunks > SHORT

    def time(self, plan: GemmPlan) -> float:
        """Of all rounds, in a unit of its own."""
        count = blocks_of(plan, self.rows, self.columns, self.batches)[0]
        rounds = -(-count // (self.target.multiprocessors // plan.cluster))
        area = plan.rows * plan.columns * self.products
        return rounds * area * slowed(area) * (plan.chunks + FILL)


def blocks_of(plan: GemmPlan, rows: int, columns: int, batches: int) -> tuple[int, int, int]:
    """Tiles of clusters in all, and how many of them lie below and beside each other."""
    tall = plan.rows * (plan.sharing.blocks if plan.shared is Tile.RIGHT else 1)
    wide = plan.columns * (plan.sharing.blocks if plan.shared is Tile.LEFT else 1)
    down, over = -(-rows // tall), -(-columns // wide)
    return plan.parts * batches * down * over, down, over


assert set(FLOAT8) < set(TYPE)
