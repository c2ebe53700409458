"""Passes of kernels over tiles of scores (attention, and all of its class): what they multiply by, tiles, launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from redalg.kernels.ir.program import STORAGE, Module, Program
from redalg.kernels.ir.schedule import FROZEN_MAX, FUSED_PROLOGUE, MMA, TENSOR, Layout, Schedule
from redalg.kernels.ir.tensor_cores import TF32
from redalg.kernels.launch.driver import Geometry
from redalg.kernels.launch.planned import Kernel, Planned
from redalg.kernels.lower.draft import Call, program_text
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.choose import Choice
from redalg.kernels.tile.frozen_max import frozen_steps
from redalg.kernels.tile.level.cascade_print import (
    emit_merge,
    emit_tensor,
    in_order,
    in_roles,
    is_together,
    operations,
    printed,
)
from redalg.kernels.tile.level.check import check
from redalg.kernels.tile.level.program import TileProgram
from redalg.kernels.tile.level.schedule import waited
from redalg.kernels.tile.match import Class, Outside, classified
from redalg.kernels.tile.mma_sync_plan import (
    MmaPlan,
    described,
    mma_splits_of,
    mma_tiles_of,
    rate_of,
    require_copies,
)
from redalg.kernels.tile.plan import (
    Fallback,
    Frozen,
    TensorPlan,
    WidePlan,
    fixed_of,
    maps_of,
    require_boxes,
    require_large,
    splits_of,
    tiles_of,
)
from redalg.kernels.tile.reasons import conversions, origins

WORDS = (None, TENSOR, FROZEN_MAX, MMA, TF32)  # schedules under which such kernels are tried
FROZEN = (
    "frozen maximum: the anchor is that of the first block; a fallback kernel repeats rows whose sums fail the test",
)


@dataclass
class TileDraft:
    """A kernel of the class under way. Each field is written by one pass and read by later ones.

    ``by_mma``: multiplied by mma.sync, not wgmma; ``operations``: the tile program; ``second``: the
    kernel that merges splits, or repeats rows, with its grid.
    """

    call: Call
    program: Program
    sizes: Mapping[str, int]
    made: Class | None = None
    by_mma: bool = False
    tiles: TensorPlan | None = None
    blocks: int = 0
    choice: Choice | None = None
    operations: TileProgram | None = None
    module: Module | None = None
    second: Kernel | None = None
    planned: Planned | None = None

    def check(self) -> None:
        if self.operations is not None:
            check(self.operations)

    @property
    def settled(self) -> tuple[Class, TensorPlan]:
        """What is computed and by which tiles, once there are some."""
        assert self.made is not None and self.tiles is not None
        return self.made, self.tiles

    @property
    def fixed(self) -> dict[str, int]:
        """Arguments that are the same in every call."""
        return fixed_of(*self.settled, self.sizes)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {r.name: tuple(self.sizes[a] for a in r.axes) for r in self.program.results}

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        if self.module is not None:
            return "\n\n".join([self.module.source, *([self.second.module.source] if self.second else [])])
        if self.operations is not None:
            return self.operations.text()
        if self.choice is not None:
            return "\n".join([repr(self.tiles), *self.choice.reasons])
        if self.tiles is not None:
            return repr(self.tiles)
        if self.made is None:
            return program_text(self.program)
        made = self.made
        lines = [f"rows of tiles: {made.row}; stream: {made.stream}; columns: {made.column}"]
        return "\n".join([*lines, f"by mma.sync: {self.by_mma}", program_text(made.program)])


def matched(draft: TileDraft) -> None:
    """The program as one of the class. Raises: Outside."""
    if draft.call.schedule == FUSED_PROLOGUE:
        raise Outside("no GEMM is its last fold")
    if any(n == 0 for n in draft.sizes.values()):
        raise Outside("an axis has length 0")
    draft.made = classified(draft.program, draft.sizes, draft.call.schedule == TF32)
    if draft.call.schedule is None:
        require_large(draft.made, draft.sizes)


def instructed(draft: TileDraft) -> None:
    """wgmma where the device has it and operands are multiplied as they are, else mma.sync."""
    assert draft.made is not None
    other = draft.call.schedule == MMA or draft.made.converted or draft.call.target.cc[0] != 9
    draft.by_mma = other and draft.call.schedule != FROZEN_MAX


def admitted(draft: TileDraft) -> None:
    """Shapes and strides that copies of boxes, or of 16 bytes, can bring. Raises: Outside."""
    assert draft.made is not None
    require = require_copies if draft.by_mma else require_boxes
    require(draft.made, draft.sizes, draft.call.views, draft.call.target)


def tiled(draft: TileDraft) -> None:
    """How many rows and columns tiles have, and how many are on their way. Raises: Outside where none fits."""
    assert draft.made is not None
    if draft.by_mma:
        draft.made, draft.tiles = mma_tiles_of(draft.made, draft.sizes, draft.call.target)
    else:
        draft.made, draft.tiles = tiles_of(draft.made, draft.sizes, draft.call.target.most_shared)


def split(draft: TileDraft) -> None:
    """Splits of the stream: none if `deterministic`, since their number follows from that of the rows."""
    made, tiles = draft.settled
    if draft.call.deterministic:
        return
    target = draft.call.target
    if isinstance(tiles, MmaPlan):
        draft.tiles = replace(tiles, splits=mma_splits_of(made, tiles, draft.sizes, target))
    else:
        draft.tiles = replace(tiles, splits=splits_of(made, tiles, draft.sizes, target))


def frozen(draft: TileDraft) -> None:
    """A frozen maximum, where it is asked for. Raises: Outside."""
    made, tiles = draft.settled
    if draft.call.schedule != FROZEN_MAX:
        return
    if draft.call.deterministic:
        raise Outside("rows are computed again with their neighbours, whose bits they would follow")
    if tiles.long:
        raise Outside("without columns an anchor costs next to nothing")
    frozen_steps(made)
    draft.tiles = replace(tiles, anchor=Frozen(1 if draft.sizes[made.row] >= 8 else 8), splits=1)


def launched(draft: TileDraft) -> None:
    """The grid: blocks take tiles in turns, or draw them one by one where they differ in work."""
    _, tiles = draft.settled
    processors = draft.call.target.multiprocessors
    count = draft.fixed["tiles"]
    draft.blocks = count if isinstance(tiles, MmaPlan) else min(processors, count)
    if not isinstance(tiles, MmaPlan) and tiles.uneven and tiles.splits == 1 and count > 2 * processors:
        draft.tiles = replace(tiles, drawn=True)


def predicted(draft: TileDraft) -> None:
    """The time it takes, and the reasons for what was decided."""
    made, tiles = draft.settled
    target, sizes, fixed, shapes = draft.call.target, draft.sizes, draft.fixed, draft.shapes
    operations = 2 * fixed["batches"] * sizes[made.row] * sizes[made.stream] * (tiles.terms + tiles.value_columns)
    arrays = [prod(sizes[a] for a in o.axes) * STORAGE[o.dtype] for o in made.program.operands if not o.number]
    arrays += [prod(shapes[r.name]) * STORAGE[r.dtype] for r in made.program.results]
    rate = rate_of(target) if isinstance(tiles, MmaPlan) else calibration_of(target.name).tensor_cores.rate
    rate = rate / 2 if made.multiplied == TF32 else rate
    rounds = -(-fixed["tiles"] // draft.blocks)
    busy = min(1.0, fixed["tiles"] / (rounds * target.multiprocessors))  # of the multiprocessors, on average
    seconds = target.launch + max(operations / (rate * busy), sum(arrays) / target.reachable)
    reasons = (
        described(tiles, made.stream) if isinstance(tiles, MmaPlan) else _layout(tiles, made.stream),
        *conversions(made),
        *(FROZEN if isinstance(tiles.anchor, Frozen) else ()),
        f"{fixed['tiles']} tiles {'drawn by' if tiles.drawn else 'shared out among'} {draft.blocks} blocks",
        f"{tiles.shared} bytes of shared memory for each block",
        *origins(made, tiles),
    )
    draft.choice = Choice(Schedule(threads=tiles.threads, rows=1), Layout(), reasons, seconds, sum(arrays))


def operated(draft: TileDraft) -> None:
    """The tile program: loads, products, maps, reductions, stores."""
    draft.operations = operations(*draft.settled)


def ordered(draft: TileDraft) -> None:
    """Products of one block under what is done with the next one's scores, where instructions are asynchronous."""
    assert draft.operations is not None
    draft.operations = in_order(draft.operations, draft.settled[1])


def pipelined(draft: TileDraft) -> None:
    """Waits before the first use, arrivals after the last."""
    assert draft.operations is not None
    draft.operations = waited(draft.operations, is_together(draft.settled[1]))


def cast(draft: TileDraft) -> None:
    """A producer and consumers, where copies are asked for by one thread."""
    assert draft.operations is not None
    draft.operations = in_roles(draft.operations, draft.settled[1])


def sourced(draft: TileDraft) -> None:
    """The kernel's source."""
    draft.module = printed(*draft.settled, draft.operations)


def followed(draft: TileDraft) -> None:
    """The second kernel: it merges splits, or repeats rows where the frozen anchor failed."""
    made, tiles = draft.settled
    if tiles.splits > 1:
        rows = prod(draft.sizes[a] for a in made.program.rows) * max(1, tiles.value_columns)
        draft.second = Kernel(emit_merge(made, tiles), Geometry(-(-rows // 128), 128))
    elif isinstance(tiles.anchor, Frozen):
        module = emit_tensor(made, replace(tiles, anchor=Fallback(tiles.anchor.flags)))
        draft.second = Kernel(module, Geometry(draft.blocks, tiles.threads))


def completed(draft: TileDraft) -> None:
    """Everything together, with the maps of what comes as boxes."""
    made, tiles = draft.settled
    assert draft.choice is not None and draft.module is not None
    geometry = Geometry(draft.blocks, tiles.threads)
    maps = () if isinstance(tiles, MmaPlan) else maps_of(made, tiles)
    draft.planned = Planned(
        made.program,
        draft.choice,
        Kernel(draft.module, geometry),
        draft.sizes,
        maps,
        draft.fixed,
        draft.second,
    )


def _layout(tiles: TensorPlan, stream: str) -> str:
    groups = f"{tiles.consumers} warpgroups of 64 rows"
    if isinstance(tiles, WidePlan):
        groups = f"2 warpgroups share 64 rows, {tiles.own_columns} columns each"
    prefetched = f"a producer warpgroup prefetches {tiles.stages} of them"
    return f"tensor cores: {groups}, blocks of {tiles.span} along {stream}, {prefetched}"
