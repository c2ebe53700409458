"""How a printed kernel for tensor cores introduces itself: grid, roles, loop nest, shared memory and barriers.

Every number is the plan's, the loop nest is the tile program. What is said at a single step stands where that step is
printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, assert_never

from redalg.graph.node import Node
from redalg.kernels.ir.tensor_cores import CHUNK, UNIT
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import STAGED, Fallback, Frozen, Running, TensorPlan, WidePlan, chunks, shares
from redalg.source.names import axis_name, operand_name

if TYPE_CHECKING:
    from redalg.kernels.tile.kernel import TensorKernel
    from redalg.kernels.tile.match import Class
INIT = (
    "One thread initialises the mbarriers; the fence shows them to the asynchronous proxy, the barrier to all threads."
)
ALIGNED = "1024 of them to align left_tile"


class Buffer(NamedTuple):
    """A part of shared memory: its first byte, stages, bytes of each, and what lies there."""

    name: str
    first: int
    stages: int
    bytes: int
    what: str

    def __str__(self) -> str:
        count = f"{self.stages} stages of " if self.stages > 1 else ""
        return f"  {self.name}, byte {self.first}: {count}{self.bytes} bytes, {self.what}"


def operands(leaves: Iterator[Node]) -> str:
    return " and ".join(dict.fromkeys(operand_name(n.attr.name) for n in leaves))


def grid(kernel: TensorKernel, how: str) -> Iterator[str]:
    """Which block computes which tile, and the blocks of the stream that a tile visits."""
    made, plan, bounds = kernel.made, kernel.plan, kernel.bounds
    row, stream = axis_name(made.row), axis_name(made.stream)
    batch = f" of one batch ({', '.join(map(axis_name, made.batch))})" if made.batch else ""
    split = f", one of {plan.splits} splits of {stream}" if plan.splits > 1 else ""
    yield f"Grid: {how}"
    visited = f"it visits blocks of {plan.span} of {stream}, from `last` down to `low`"
    if bounds.low or bounds.high:
        visited += "; blocks outside of these are masked as a whole and skipped"
    yield f"Tile: {plan.rows} rows of {row}{batch}{split}; {visited}."
    match plan.anchor:
        case Running():
            pass
        case Frozen():
            yield "The maximum is that of the first block; warps whose rows fail the test raise a fallback flag."
        case Fallback():
            yield "Only tiles with a raised fallback flag are computed, with a running maximum."
        case _ as never:
            assert_never(never)


def persistent(drawn: bool) -> str:
    if drawn:
        return (
            "persistent. Tiles differ in work and are drawn from a global counter: the producer draws the next "
            "one and hands it to the consumers through tile_slot (mbarriers tile_full, tile_empty)."
        )
    return "persistent; block b computes tiles b, b + gridDim.x, b + 2 * gridDim.x, ... of `tiles`."


def warpgroups(threads: int, consumers: int, registers: int = 0) -> str:
    """Who is who in a block. `registers`: that each consumer leaves to the producer."""
    several = consumers > 1
    fewer, more = (f", {n} registers a thread" if several else "" for n in shares(consumers, registers))
    who = f"Warpgroups 1 to {consumers} are consumers" if several else "Warpgroup 1 is the consumer"
    return (
        f"Block: {threads} threads. Warpgroup 0 is the producer: its thread 0 issues every TMA copy{fewer}. {who}{more}"
    )


def roles(plan: TensorPlan) -> Iterator[str]:
    """Warpgroups, and which elements of an accumulator a thread has."""
    several = plan.consumers > 1
    yield f"{warpgroups(plan.threads, plan.consumers)}, counted from 0 below."
    rows = "share 64 rows" if isinstance(plan, WidePlan) else "have 64 rows each" if several else "have 64 rows"
    yield (
        f"Consumers {rows}; a thread holds rows row and row + 8 of a warp's 16 and two columns of every eight, as "
        "wgmma leaves them: element k of row r is register s = 4 * (k >> 1) + 2 * r + (k & 1)."
    )


def fragment(tall: int) -> str:
    """Which elements of an accumulator a thread of mma.sync has."""
    rows = ", ".join(f"row + {8 * k}" if k else "row" for k in range(2 * tall))
    return (
        f"a thread holds rows {rows} of its warp's {16 * tall} and two columns of every eight (accumulators of m16n8)"
    )


# --- wgmma -----------------------------------------------------------------------------------------------------------


def opened(kernel: TensorKernel, drawn: bool, nest: Sequence[str], chunks: str) -> Iterator[str]:
    """What kernels with a producer and consumers begin with."""
    yield from grid(kernel, persistent(drawn))
    yield from roles(kernel.plan)
    yield from nest
    yield f"Shared memory: {kernel.plan.shared} bytes, {ALIGNED}; {chunks} with the 128-byte swizzle, from left_tile:"


def wgmma(kernel: TensorKernel, drawn: bool, nest: Sequence[str]) -> Iterator[str]:
    made, plan = kernel.made, kernel.plan
    yield from opened(kernel, drawn, nest, f"{CHUNK}-column chunks")
    yield from map(str, buffers(made, plan))
    arrivals = 4 * plan.consumers
    yield (
        "mbarriers: a full one completes by one arrival (the producer's expect_tx) and the bytes of its TMA copies, an "
        f"empty one by {arrivals} arrivals, of lane 0 of every consumer warp."
    )
    yield "  left_full, left_empty: once a tile; the phase flips with each."
    rings = "right_full, right_empty" + (", values_full, values_empty" if made.values is not None else "")
    yield f"  {rings}: rings of {plan.stages}; a phase flips when its stage wraps to 0."
    yield FRESH
    if plan.consumers > 1:
        yield (
            "Named barriers 1 and 2 (256 threads, ping-pong): consumer w syncs on 1 + w before it issues wgmma and "
            "arrives on 2 - w after, so that one folds while the other multiplies."
        )


FRESH = "  The producer's phases start at 1: a wait for the phase before a fresh mbarrier's first returns at once."


def buffers(made: Class, plan: TensorPlan) -> Iterator[Buffer]:
    left, right = (operands(getattr(p, side) for p in made.products) for side in ("left", "right"))
    tile = f"{plan.columns} x {plan.terms} {made.dtype}"
    yield Buffer("left_tile", 0, 1, plan.left_bytes, f"{left}, {plan.rows} x {plan.terms} {made.dtype}")
    yield Buffer("right_tile", plan.left_bytes, plan.stages, plan.right_bytes, f"{right}, {tile}")
    if made.values is not None:
        values = f"{operands(iter([made.values]))}, {plan.columns} x {plan.value_columns} {made.dtype}"
        first = plan.left_bytes + plan.stages * plan.right_bytes
        yield Buffer("values_tile", first, plan.stages, plan.values_bytes, values)
    yield Buffer("mbarriers", plan.barriers, 1, plan.staging - plan.barriers, "8 each, and padding")
    if plan.staged:
        size = plan.shared - 1024 - plan.staging
        yield Buffer("staging", plan.staging, 1, size, f"results on their way to TMA stores, {STAGED} rows a warp")


# --- two warpgroups share rows ---------------------------------------------------------------------------------------


def wide(kernel: TensorKernel, drawn: bool, nest: Sequence[str]) -> Iterator[str]:
    made, plan = kernel.made, kernel.plan
    assert isinstance(plan, WidePlan)
    parts = chunks(plan.terms)
    yield from opened(kernel, drawn, nest, f"{CHUNK}-column chunks")
    yield str(Buffer("left_tile", 0, 1, plan.left_bytes, f"{plan.rows} x {plan.terms} {made.dtype}"))
    within = f", P of 64 x {plan.columns} at byte {plan.weights} of each"
    yield str(Buffer("right_tile", plan.left_bytes, 2, plan.pair_bytes, f"{plan.columns} x {plan.terms}{within}"))
    if plan.common:
        yield "  values: the first columns of right_tile, which both products read"
    else:
        first = plan.left_bytes + 2 * plan.pair_bytes
        yield str(Buffer("values_tile", first, 2, plan.values_bytes, f"{plan.columns} x {plan.value_columns}"))
    yield str(Buffer("mbarriers", plan.barriers, 1, plan.trade - plan.barriers, "8 each, and padding"))
    yield str(Buffer("own_slot, peer_slot", plan.trade, 1, 512 * plan.slots, "numbers of rows that consumers trade"))
    yield (
        f"mbarriers: full[{2 * parts}], one for every chunk, values_full[2] and left_full complete by the producer's "
        f"expect_tx and the bytes; empty[2] and left_empty by {4 * plan.consumers} arrivals, lane 0 of consumer warps."
    )
    yield "  left_*: the phase flips with each tile; the others: with each block."
    yield FRESH
    yield "Named barriers (256 threads): 1 orders traded row numbers, 2 says that P of both parts is in shared memory."


# --- no columns ------------------------------------------------------------------------------------------------------


def long(kernel: TensorKernel, drawn: bool, nest: Sequence[str]) -> Iterator[str]:
    made, plan = kernel.made, kernel.plan
    left, right = 128 * plan.rows, 128 * plan.columns
    yield from opened(kernel, drawn, nest, "chunks")
    names = operands(p.left for p in made.products), operands(p.right for p in made.products)
    yield str(Buffer("left_tile", 0, plan.stages, left, f"{names[0]}, {plan.rows} x {CHUNK} {made.dtype}"))
    first = plan.stages * left
    yield str(Buffer("right_tile", first, plan.stages, right, f"{names[1]}, {plan.columns} x {CHUNK} {made.dtype}"))
    yield str(Buffer("mbarriers", plan.barriers, 1, plan.staging - plan.barriers, "8 each, and padding"))
    yield (
        f"mbarriers: full[{plan.stages}] complete by the producer's expect_tx and {left + right} bytes; "
        f"empty[{plan.stages}] by {4 * plan.consumers} arrivals, lane 0 of every consumer warp. The phase flips when "
        "the stage wraps to 0."
    )
    yield FRESH


# --- mma.sync --------------------------------------------------------------------------------------------------------


def mma(kernel: TensorKernel, nest: Sequence[str]) -> Iterator[str]:
    made, plan = kernel.made, kernel.plan
    assert isinstance(plan, MmaPlan)
    yield from grid(kernel, "one block for every tile, tile = blockIdx.x.")
    yield (
        f"Block: {plan.warps} warps of {16 * plan.tall} rows; all of them copy and all of them multiply. "
        f"In S and sums {fragment(plan.tall)}."
    )
    yield from nest
    yield f"Shared memory: {plan.shared} bytes from smem_base, {plan.stages} stages of {plan.stage_bytes}:"
    rows = f"{plan.columns} rows of {plan.right_pitch} bytes (pitch without bank conflicts)"
    yield str(Buffer("right", 0, 1, plan.right_bytes, f"{operands(p.right for p in made.products)}, {rows}"))
    if made.values is not None:
        rows = f"{plan.columns} rows of {plan.values_pitch} bytes"
        yield str(Buffer("values", plan.right_bytes, 1, plan.values_bytes, f"{operands(iter([made.values]))}, {rows}"))
    if not plan.in_registers:
        where = "in every stage" if plan.long else "behind the stages"
        rows = f"{plan.rows} rows of {plan.left_pitch} bytes, {where}"
        left = f"{operands(p.left for p in made.products)}, {rows}"
        yield str(Buffer("left_tile", plan.left_place, 1, plan.left_bytes, left))
    yield (
        f"Synchronisation: cp.async of {UNIT} bytes, a group for each {'chunk' if plan.long else 'block'}, empty where "
        f"there is none left, so that wait_group {plan.stages - 2} always means the next one. One __syncthreads each: "
        "what all threads copied is visible, and nobody still reads the stage that is filled next."
    )
