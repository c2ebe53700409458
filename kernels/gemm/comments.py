"""How a printed GEMM introduces itself: grid, roles, loop nest, shared memory and barriers, by the plan's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from redalg.kernels.gemm.tiles import PITCH, GemmPlan
from redalg.kernels.ir.tensor_cores import CHUNK, STEP
from redalg.kernels.launch.planned import Tile
from redalg.kernels.tile.comments import ALIGNED, Buffer, fragment, warpgroups
from redalg.source.names import axis_name, operand_name

if TYPE_CHECKING:
    from redalg.kernels.gemm.kernel import Gemm
    from redalg.kernels.gemm.mma_tiles import MmaGemm
    from redalg.kernels.tile.level.program import TileProgram


def kernel(made: Gemm, tiles: TileProgram, registers: int) -> Iterator[str]:
    """`registers`: that the producer has beyond its own, for a prologue in the same launch."""
    plan = made.plan
    yield from _grid(made)
    who = warpgroups(plan.threads, plan.consumers, registers)
    yield f"{who}, counted from 0 below, of {64 * plan.halves} rows each."
    yield "Loop nest:"
    yield from (f"  {line}" for line in tiles.roles())
    yield f"  where {_product(plan)}"
    yield f"Shared memory: {plan.size} bytes, {ALIGNED}; chunks with the 128-byte swizzle, from left_tile:"
    left, *others = (operand_name(m.operand) for m in made.maps[: plan.products + 1])
    right = " and ".join(others) + (", each" if len(others) > 1 else "")
    kinds = plan.kinds
    shape = f"{plan.chunk} x {plan.left_rows}" if plan.left_flat else f"{plan.left_rows} x {plan.chunk}"
    yield str(Buffer("left_tile", 0, plan.stages, plan.left_bytes, f"{left}, {shape} {kinds[0]}"))
    shape = f"{plan.chunk} x {plan.columns}" if plan.flat else f"{plan.columns} x {plan.chunk}"
    first = plan.stages * plan.left_bytes
    yield str(Buffer("right_tile", first, plan.stages, plan.right_bytes, f"{right}, {shape} {kinds[1]}"))
    yield str(Buffer("mbarriers", plan.barriers, 1, 256, "8 each, and padding"))
    if plan.staged:
        what = f"16 rows of 64 results a warp, {PITCH} bytes from row to row (no bank conflicts)"
        yield str(Buffer("staged", plan.barriers + 256, 1, plan.staging, what))
    if plan.split > 1:
        what = f"partial sums of {plan.own_columns} columns in float32, one place for each of {plan.split} blocks"
        yield str(Buffer("partial", plan.barriers + 256 + plan.staging, 1, plan.exchanged, what))
    if plan.meeting > 1:
        what = f"states of {plan.rows} rows, {16 * plan.quads} bytes each, of {plan.meeting} blocks; tiles in turns"
        yield str(Buffer("partial", plan.barriers + 256 + plan.staging, 2, plan.state_bytes, what))
    if plan.vectors:
        names = ", ".join(operand_name(leaf.attr.name) for leaf in made.held.vectors)
        what = f"{names} of the tile's {plan.columns} columns in float32, once for each consumer warpgroup"
        yield str(Buffer("vectors", plan.vectors_at, plan.consumers, plan.vector_bytes // plan.consumers, what))
    yield from _barriers(plan)


def mma(made: Gemm, plan: MmaGemm, tiles: TileProgram) -> Iterator[str]:
    """A product by mma.sync."""
    yield from _grid(made)
    down, across, tall, wide = plan.warps
    yield (
        f"Block: {down * across} warps of {16 * tall} rows by {wide} columns; all of them copy and all of them "
        f"multiply. In S {fragment(tall)}."
    )
    yield "Loop nest:"
    yield from (f"  {line}" for line in tiles.roles())
    yield "  where S += left * right, mma.sync m16n8k16, both from shared memory by ldmatrix, sums in float32"
    yield f"Shared memory: {plan.size} bytes from left_tile, {plan.stages} stages of {plan.stage}:"
    first = 0
    for k, (m, kind) in enumerate(zip(made.maps, plan.kinds, strict=True)):
        lines, length = plan.lines(k)
        what = (
            f"{operand_name(m.operand)}, {lines} x {length} {kind}, rows of {plan.apart(k)} bytes (no bank conflicts)"
        )
        yield str(Buffer("right" if k else "left", first, 1, plan.right_bytes if k else plan.left_bytes, what))
        first = plan.left_bytes
    if plan.staged:
        what = f"16 rows of results a warp, {plan.pitch} bytes from row to row"
        yield str(Buffer("staged", 0, 1, plan.staging, what))
    yield (
        f"Synchronisation: cp.async of 16 bytes, a group for each chunk, empty where there is none left, so that "
        f"wait_group {plan.stages - 2} always means the next one; one __syncthreads each."
    )


def chain(first: Gemm, second: Gemm, tiles: TileProgram) -> Iterator[str]:
    """Two products in one kernel."""
    plans = first.plan, second.plan
    size = max(p.split for p in plans)
    together = f", in clusters of {size}" if size > 1 else ""
    yield f"Grid: all blocks run at once{together}; tiles of each product are taken in turns."
    who = warpgroups(plans[0].threads, plans[0].consumers)
    yield f"{who}, counted from 0 below, of {64 * plans[0].halves} rows each."
    yield "Loop nest:"
    for made, program in ((first, tiles), (second, tiles.behind)):
        assert program is not None
        plan, split = made.plan, f" by each of {made.plan.split} blocks" if made.plan.split > 1 else ""
        yield from (f"  {line}" for line in _pixels(made))
        yield f"  {plan.rows} by {plan.columns} of {axis_name(made.column)}, {plan.own_chunks} chunks{split}:"
        yield from (f"  {line}" for line in program.roles())
        yield f"  where {_product(plan)}"
    plan = max(plans, key=lambda p: p.split)
    stage = f"{plan.stages} stages of {plan.stage} bytes, left and right operand of a chunk"
    yield f"Shared memory: {plan.size} bytes, {ALIGNED}; {stage}, with the 128-byte swizzle, from left_tile."
    yield from _barriers(plan)


def _grid(made: Gemm) -> Iterator[str]:
    plan, rows = made.plan, " ".join(map(axis_name, made.rows))
    pair, size = plan.sharing.blocks > 1, plan.cluster
    who, step = (f"cluster c, {size} blocks,", f"gridDim.x / {size}") if size > 1 else ("block c", "gridDim.x")
    yield f"Grid: persistent; {who} computes tiles c, c + {step}, c + 2 * {step}, ... of `tiles`."
    batch = f" of one batch ({', '.join(map(axis_name, made.batch))})" if made.batch else ""
    wide = f"{plan.rows} rows of {rows} by {plan.columns} columns of {axis_name(made.column)}"
    order = f"{plan.group} rows of tiles before the next columns, for L2"
    yield f"Tile: {wide}{batch}, reduced over {axis_name(made.stream)}; {order}."
    yield from _pixels(made)
    if pair:
        other = Tile.LEFT if plan.shared is Tile.RIGHT else Tile.RIGHT
        yield (
            f"Cluster: {'both' if plan.paired else plan.sharing.blocks} blocks multiply the same {plan.shared} tile "
            f"with {other} tiles of their own; each loads {'half' if plan.paired else 'a part'} of it and multicasts "
            f"it to {'both' if plan.paired else 'them'}."
        )
    if plan.parts > 1:
        yield (
            f"Split-K: part `piece` of {plan.parts} multiplies {plan.own_chunks} of the {plan.chunks} chunks, and "
            f"writes partial sums; the kernel behind adds those of all parts, in order."
        )
    if made.states is not None:
        merged = f", which its {plan.meeting} blocks exchange and merge" if plan.meeting > 1 else ""
        parts = ", ".join(p.name for p in made.states.walk.parts)
        yield f"Rows: reduced in registers to states ({parts}){merged}; results are of whole rows."
    if plan.split > 1:
        yield (
            f"Split: {plan.split} blocks of a cluster multiply {plan.own_chunks} of the {plan.chunks} chunks each, and "
            f"write {plan.own_columns} columns each: partial sums are exchanged through distributed shared memory."
        )


def _pixels(made: Gemm) -> Iterator[str]:
    """How rows that are pixels are read."""
    first = made.maps[0]
    if (pixels := first.pixels) is None:
        return
    walked = ", ".join(
        f"{axis_name(s.row)} {s.step} apart from {s.lower} on"
        + f", {axis_name(s.tap)} {s.dilation} apart" * bool(s.tap)
        for s in reversed(pixels.spatial)
    )
    taps = " by ".join(f"{n} of {axis_name(a)}" for a, n in pixels.taps) or "one tap"
    yield (
        f"Rows are windows of {operand_name(first.operand)} (implicit GEMM): a box is {first.rows} of them, walked "
        f"image by image by a map in im2col mode, {walked}, and 64 of {pixels.channels} channels; zeros outside the "
        f"array. Terms: {taps}, {pixels.padded} channels each."
    )


def _product(plan: GemmPlan) -> str:
    terms = STEP if plan.box_terms == CHUNK else 2 * STEP
    found = f"S (+)= left * right, wgmma m64n{plan.columns}k{terms}, both from shared memory"
    if not plan.promoted:
        return f"{found}, one group in flight behind the next"
    tiles = " for each 64 rows" if plan.halves > 1 else ""
    return f"{found}{tiles}, each chunk's S added to totals in float32 (tensor cores add float8 to about 14 bits)"


def _barriers(plan: GemmPlan) -> Iterator[str]:
    arrivals = 4 * plan.consumers * plan.sharing.blocks
    both = " of both blocks" if plan.paired else " of the blocks that share" if plan.sharing.blocks > 1 else ""
    yield (
        f"mbarriers: full[{plan.stages}] complete by one arrival, the producer's expect_tx, and "
        f"{plan.left_bytes + plan.right_bytes} bytes of TMA copies; empty[{plan.stages}] by {arrivals} "
        f"arrivals, lane 0 "
        f"of every consumer warp{both}. A phase flips when its stage wraps to 0."
    )
    yield "  The producer's phase starts at 1: a wait for the phase before a fresh mbarrier's first returns at once."


def prologue(warpgroups: int, parts: int) -> Iterator[str]:
    """What the function that prepares an operand says of itself."""
    yield (
        f"Grid: all {warpgroups} warpgroups of all blocks take groups of PROLOGUE_ROWS rows in turns, grid_warpgroups "
        f"apart, in {parts} parts of the rows; named barrier 1 + warpgroup (128 threads) stands for a block's barrier."
    )
    yield (
        "A part is counted in `finished` by every warpgroup; the producer of a tile waits until the part of its last "
        "row is counted by all. What is written by stores is read by TMA, in another proxy: fence.proxy.async by every "
        "writer, the warpgroup's barrier, a release of the counter; acquire and the same fence where it is awaited."
    )
