"""The passes over tile programs: tile, place, skip, order, pipeline, roles, tile scheduling, lower.

Each maps a tile program to one that says more, and keeps a law that is tested after it
(`redalg.kernels.tile.level.check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from redalg.graph.node import Node, state, substitute, walk
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Module, Program
from redalg.kernels.ir.schedule import MMA, TENSOR, Layout, Schedule
from redalg.kernels.ir.tensor_cores import CHUNK, STEP
from redalg.kernels.launch.driver import Geometry
from redalg.kernels.launch.planned import Kernel, Map, Planned
from redalg.kernels.launch.planned import Tile as Use
from redalg.kernels.lower.draft import Call, program_text
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.choose import Choice
from redalg.kernels.tile.contractions import Outside
from redalg.kernels.tile.level import check
from redalg.kernels.tile.level.derive import LONGEST, Parts, assuming, derived, one_sided, taken_apart
from redalg.kernels.tile.level.elements import by_base_2
from redalg.kernels.tile.level.mma import MmaPrinter
from redalg.kernels.tile.level.mma_sizes import WarpSizes, warp_candidates
from redalg.kernels.tile.level.program import (
    Convert,
    For,
    Home,
    Load,
    Mma,
    Op,
    Tile,
    TileProgram,
    loop_of,
)
from redalg.kernels.tile.level.program import Map as MapOp
from redalg.kernels.tile.level.schedule import parted, waited
from redalg.kernels.tile.level.sizes import Sizes, WarpgroupSizes, candidates
from redalg.kernels.tile.level.wgmma import KernelPrinter
from redalg.kernels.tile.match import is_bounded
from redalg.kernels.tile.mma_sync_plan import rate_of
from redalg.kernels.tile.plan import CONSUMER, EXACT

WORDS = (None, TENSOR, MMA)


@dataclass
class LevelDraft:
    """A kernel by tile programs under way. Each field is written by one pass and read by later ones.

    ``before``: kernels that compute values of one side; ``asked``: warpgroups, columns of a block and stages, where
    somebody has chosen them (benchmarks of variants).
    """

    call: Call
    program: Program
    lengths: Mapping[str, int]
    asked: tuple[int, int, int] | None = None
    parts: Parts | None = None
    tiles: TileProgram | None = None
    sizes: Sizes | None = None
    before: tuple[Planned, ...] = ()
    fixed: Mapping[str, int] = field(default_factory=dict)
    module: Module | None = None
    planned: Planned | None = None

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        if self.module is not None:
            return self.module.source
        return program_text(self.program) if self.tiles is None else self.tiles.text()

    def check(self) -> None:
        if self.tiles is not None:
            check.check(self.tiles)

    @property
    def by_mma(self) -> bool:
        """Whether mma.sync multiplies: where it is asked for, and where there is no wgmma."""
        return self.call.schedule == MMA or self.call.target.cc[0] != 9

    @property
    def settled(self) -> tuple[Parts, TileProgram, Sizes]:
        assert self.parts is not None and self.tiles is not None and self.sizes is not None
        return self.parts, self.tiles, self.sizes


# --- tile ------------------------------------------------------------------------------------------------------------


def tiled(draft: LevelDraft) -> None:
    """The program as operations on tiles. Raises: Outside."""
    call, lengths = draft.call, draft.lengths
    if call.target.cc < (8, 0):
        raise Outside(f"tiles are multiplied from compute capability 8.0 on, the device has {call.target.cc[0]}.x")
    if any(n == 0 for n in lengths.values()):
        raise Outside("an axis has length 0")
    draft.parts = parts = taken_apart(draft.program, lengths, call.views)
    if call.schedule is None and lengths[parts.row] * lengths[parts.stream] < 1 << 12:
        raise Outside("it is too small for tiles")
    if call.schedule is None and parts.dtype == "float16" and any(map(_grows, parts.weights.values())):
        raise Outside("weights that may be larger than 1 are not rounded to float16")
    if max(lengths[parts.row], lengths[parts.stream]) >= EXACT:
        raise Outside(f"positions of {EXACT} and more are not told apart by float32")
    for name in parts.boxes:
        _require_box(parts, name, draft)
        _require_length(parts, name, lengths)
    draft.tiles = derived(parts)


def _grows(weight: Node) -> bool:
    """Whether a weight is as large as the one score that it reads may be."""
    return len(_read(weight)) == 1 and not is_bounded(weight) and not any(n.op == "exp" for n in walk(weight))


def _require_box(parts: Parts, name: str, draft: LevelDraft) -> None:
    """What copies ask of a tensor: the copy engine, or copies of 16 bytes."""
    box, lengths = parts.boxes[name], draft.lengths
    view, axes = draft.call.views[box.leaf.attr.name], box.leaf.attr.axes
    steps = {a: 2 * n for a, n in zip(axes, view.strides, strict=True) if a != box.axes[1]}
    for axis, step in steps.items():
        if length(parts, axis, lengths) > 1 and (step % 16 or step <= 0 and not draft.by_mma):
            raise Outside(f"{name} has a stride of {step} bytes along {axis}, not a positive multiple of 16")
    if view.align < 16 or len(axes) > 5 and not draft.by_mma:
        raise Outside(f"{name} does not start at a multiple of 16 bytes, or has more than 5 axes")
    if draft.by_mma and box.axes[1] == parts.stream and lengths[parts.stream] % 8:
        raise Outside(f"rows of {name} end within 16 bytes: {parts.stream} has length {lengths[parts.stream]}")


def _require_length(parts: Parts, name: str, lengths: Mapping[str, int]) -> None:
    other = next(a for a in parts.boxes[name].axes if a not in (parts.row, parts.stream))
    n = length(parts, other, lengths)
    if n % STEP or n > LONGEST:
        raise Outside(f"{other} has length {n}, which is no multiple of {STEP} up to {LONGEST}")


def length(parts: Parts, axis: str, lengths: Mapping[str, int]) -> int:
    return lengths[parts.program.inner.get(axis, axis)]


# --- place -----------------------------------------------------------------------------------------------------------


def placed(draft: LevelDraft) -> None:
    """Homes and lengths of tiles, by the registers of a consumer and the block's shared memory. Raises: Outside."""
    parts, tiles = draft.parts, draft.tiles
    assert parts is not None and tiles is not None
    wide = {a: length(parts, a, draft.lengths) for box in parts.boxes.values() for a in box.axes}
    vectors = vectors_of(parts)
    sizes = _fitted(draft, parts, wide, len(vectors))
    draft.sizes = sizes
    found = {name: _at_home(t, parts, sizes) for name, t in tiles.tiles.items()}
    found |= {
        name: Tile(name, (parts.stream,), "float32", Home.SHARED, (sizes.columns,), sizes.stages) for name in vectors
    }
    values = tuple(Load(name, node, False) for name, node in vectors.items())
    loop = loop_of(tiles.bodies["all"])
    loads = tuple(op for op in loop.body if isinstance(op, Load))
    others = (op for op in loop.body if not isinstance(op, Load))
    body = (*loads, *values, *(mapped(parts, op.targets) if isinstance(op, MapOp) else op for op in others))
    whole = tuple(replace(op, body=body) if op is loop else op for op in tiles.bodies["all"])
    facts = sizes.facts | {"registers for tiles": sizes.registers, "shared bytes": sizes.shared}
    draft.tiles = replace(tiles, tiles=found).with_body(whole).knows(**facts)


def _fitted(draft: LevelDraft, parts: Parts, wide: Mapping[str, int], vectors: int) -> Sizes:
    target = draft.call.target
    found: Iterable[Sizes] = candidates(parts, wide, vectors)
    if draft.by_mma:
        found = warp_candidates(parts, wide, vectors, draft.lengths[parts.row], target)
    least = 0
    for sizes in found:
        if draft.asked not in (None, sizes.asked):
            continue
        if sizes.registers <= sizes.most_registers and sizes.shared <= target.most_shared:
            return sizes
        least = min(least or sizes.shared, sizes.shared)
    raise Outside(
        f"no tiles of these lengths fit {target.most_shared} bytes of shared memory (the smallest take {least}) and "
        "the registers of a thread"
    )


def vectors_of(parts: Parts) -> dict[str, Node]:
    """Values of the stream alone that maps read, by name."""
    nodes = [n for w in parts.weights.values() for n in rewritten(parts, w)]
    found = dict.fromkeys(n for n, side in one_sided(nodes, parts.row, parts.stream) if side == "stream")
    return {f"v{k}": n for k, n in enumerate(found)}


def values_of(parts: Parts, nodes: Iterable[Node]) -> tuple[str, ...]:
    """The values of the stream that are parts of these nodes."""
    below = {n for node in nodes for made in rewritten(parts, node) for n in walk(made)}
    return tuple(name for name, n in vectors_of(parts).items() if n in below)


def mapped(parts: Parts, targets: Sequence[tuple[str, Node]], guarded: Iterable[str] = ()) -> MapOp:
    return MapOp(tuple(targets), tuple(guarded), values_of(parts, (n for _, n in targets)))


def rewritten(parts: Parts, weight: Node) -> Iterator[Node]:
    """A weight where its condition holds, and in general, with exponentials by base 2."""
    if parts.condition is not None:
        yield by_base_2(assuming(weight, parts.condition, True))
    yield by_base_2(weight)


def _at_home(t: Tile, parts: Parts, sizes: Sizes) -> Tile:
    box = parts.boxes.get(t.name)
    lengths = tuple(sizes.length(a, parts) for a in t.axes)
    if box is not None:
        return replace(t, home=Home.SHARED, lengths=lengths, stages=sizes.stages if box.streamed else 1)
    home = Home.LEFT if t.name.endswith("'") else Home.ACCUMULATOR
    return replace(t, home=home, lengths=lengths)


# --- skip ------------------------------------------------------------------------------------------------------------


def skipped(draft: LevelDraft) -> None:
    """Blocks that the condition empties are left out; elements beyond the end of the stream weigh nothing."""
    parts, tiles, _ = draft.settled
    loop = loop_of(tiles.bodies["all"])
    names = tuple(parts.weights)
    skips = "" if parts.condition is None else "where the condition holds nowhere"
    body = tuple(replace(op, guarded=names) if isinstance(op, MapOp) else op for op in loop.body)
    found = tuple(replace(op, body=body, skips=skips) if op is loop else op for op in tiles.bodies["all"])
    draft.tiles = tiles.with_body(found)


# --- order -----------------------------------------------------------------------------------------------------------


def ordered(draft: LevelDraft) -> None:
    """Which products run under which maps: what one score alone decides is mapped while the next ones are multiplied,
    and the next weights while sums take the first ones. Between blocks nothing is under way: ptxas serialises products
    whose accumulators a loop carries; the other warpgroup multiplies meanwhile. By mma.sync nothing runs under a map,
    and a score is multiplied where it is read, so that no register holds it before."""
    parts, tiles, _ = draft.settled
    loop = loop_of(tiles.bodies["all"])
    early = early_map(parts)
    scores = [op for op in loop.body if isinstance(op, Mma) and op.fresh]
    if early is not None:
        scores.sort(key=lambda op: op.tile != early[0])
    loads = _loads_in_order(loop, scores)
    sums = [op for op in loop.body if isinstance(op, Mma) and not op.fresh]
    whole = next(op for op in loop.body if isinstance(op, MapOp))
    held = dict(tiles.tiles)
    body: list[Op] = [*loads, *scores]
    for targets, guarded in _maps(parts, whole, early, held):
        body.append(mapped(parts, targets, guarded))
        body += _multiplied(guarded, sums)
    if draft.by_mma:
        body = _late(body, scores)
    found = tuple(replace(op, body=tuple(body)) if op is loop else op for op in tiles.bodies["all"])
    draft.tiles = replace(tiles, tiles=held).with_body(found)


Targets = tuple[tuple[str, Node], ...]


def _maps(
    parts: Parts, whole: MapOp, early: tuple[str, Node] | None, held: dict[str, Tile]
) -> Iterator[tuple[Targets, list[str]]]:
    """What is mapped first, in the place of the score that it reads, and what reads that; the weights among them."""
    if early is None:
        yield whole.targets, [w for w, _ in whole.targets]
        return
    score, node = early
    targets: Targets = tuple((w, n) for w, n in whole.targets if n is node)
    done = [w for w, _ in targets]
    if not targets:
        targets = (("P", node),)
        held["P"] = replace(held[score], name="P")
    yield targets, done
    known = {node: state(targets[0][0], (parts.row, parts.stream))}
    rest = tuple((w, substitute(n, dict(known), raw=True)) for w, n in whole.targets if w not in done)
    if rest:
        yield rest, [w for w, _ in rest]


def _late(body: Sequence[Op], scores: Sequence[Mma]) -> list[Op]:
    """Scores right before what reads them."""
    found: list[Op] = []
    for op in (op for op in body if op not in scores):
        found += [s for s in scores if s.tile in op.reads and s not in found]
        found.append(op)
    return found


def _loads_in_order(loop: For, scores: list[Mma]) -> list[Load]:
    """Boxes in the order that scores multiply them."""
    order = [op.right for op in scores]
    loads = [op for op in loop.body if isinstance(op, Load)]
    return sorted(loads, key=lambda op: order.index(op.tile) if op.tile in order else len(order))


def _multiplied(names: list[str], sums: list[Mma]) -> Iterator[Op]:
    for name in names:
        yield Convert(f"{name}'", name)
        yield from (op for op in sums if op.left == f"{name}'")


def early_map(parts: Parts) -> tuple[str, Node] | None:
    """The score that a weight or an exponential reads alone, and that node: it can be mapped before other scores are
    there. None where there is one score, or several such nodes."""
    weights = list(parts.weights.values())
    alone = [w for w in weights if len(_read(w)) == 1]
    if not alone and len(weights) == 1:
        alone = [n for n in walk(*weights) if n.op == "exp" and len(_read(n)) == 1]
    if len(parts.scores) == 1 or len(alone) != 1:
        return None
    (score,) = _read(alone[0])
    leaves = [n for n in walk(*weights) if n.op == "state" and n.attr.name == score]
    return (score, alone[0]) if all(_within(n, alone[0], parts) for n in leaves) else None


def _within(leaf: Node, node: Node, parts: Parts) -> bool:
    """Whether weights read the leaf through the node alone."""
    return leaf not in walk(*parts.weights.values(), done={node} - {leaf})


def _read(node: Node) -> list[str]:
    return list(dict.fromkeys(n.attr.name for n in walk(node) if n.op == "state"))


# --- pipeline --------------------------------------------------------------------------------------------------------


def pipelined(draft: LevelDraft) -> None:
    """Stages, waits and arrivals: a load is waited for where it is first read, products where their tiles are, and a
    stage goes back when the last product that reads it has ended."""
    _, tiles, _ = draft.settled
    draft.tiles = waited(tiles, together=True)


# --- roles -----------------------------------------------------------------------------------------------------------


def cast(draft: LevelDraft) -> None:
    """A producer that loads, and consumers that do everything else. They multiply as they come: in turns they took as
    long (H200, dQ and dK, dV of 64 and 128 dimensions). By mma.sync all threads do everything."""
    _, tiles, _ = draft.settled
    if draft.by_mma:
        return
    registers = {"registers of a consumer's thread": CONSUMER}
    draft.tiles = parted(tiles, turns=False, together=True).knows(**registers)


# --- tile scheduling -------------------------------------------------------------------------------------------------


def scheduled(draft: LevelDraft) -> None:
    """The grid: persistent blocks that take tiles in turns, the longest first where a condition makes them differ."""
    parts, tiles, sizes = draft.settled
    batches = prod(draft.lengths[a] for a in parts.batch)
    blocks = -(-draft.lengths[parts.row] // sizes.rows)
    per_batch = draft.lengths[parts.stream] * sum(sizes.length(b.axes[1], parts) for b in parts.boxes.values()) * 2
    section = max(1, min(batches, (24 << 20) // max(1, per_batch)))
    draft.fixed = {"tiles": batches * blocks, "row_blocks": blocks, "batches": batches, "section": section}
    order = "longest first" if parts.condition is not None else "batch by batch"
    draft.tiles = tiles.knows(tiles=f"{batches * blocks}, {order}")


# --- lower -----------------------------------------------------------------------------------------------------------


def lowered(draft: LevelDraft) -> None:
    """Statements, by wgmma or by mma.sync."""
    parts, tiles, sizes = draft.settled
    if isinstance(sizes, WarpgroupSizes):
        draft.module = KernelPrinter(parts, tiles, sizes, maps_of(parts, sizes)).module()
    elif isinstance(sizes, WarpSizes):
        draft.module = MmaPrinter(parts, tiles, sizes).module()


def maps_of(parts: Parts, sizes: Sizes) -> tuple[Map, ...]:
    """The tensors that boxes are copied of."""
    found = []
    for box in parts.boxes.values():
        operand = next(o for o in parts.program.operands if o.name == box.leaf.attr.name)
        own = dict(zip(box.leaf.attr.axes, operand.axes, strict=True))
        others = [a for a in reversed(box.leaf.attr.axes) if a not in box.axes]
        axes = (box.axes[1], box.axes[0], *others)
        inner = sizes.length(box.axes[1], parts)
        use = Use.RIGHT if box.streamed else Use.LEFT
        rows = sizes.length(box.axes[0], parts)
        found.append(Map(operand.name, tuple(own[a] for a in axes), rows, use, 0, -(-inner // CHUNK)))
    return tuple(found)


def finished(draft: LevelDraft) -> None:
    """Everything together."""
    parts, _, sizes = draft.settled
    assert draft.module is not None
    lengths, tiles = draft.lengths, draft.fixed["tiles"]
    seconds, moved = _predicted(draft, parts, sizes)
    blocks = tiles if draft.by_mma else min(draft.call.target.multiprocessors, tiles)
    reasons = (
        _described(parts, sizes, len(parts.scores) + len(parts.sums)),
        f"{tiles} tiles shared out among {blocks} blocks",
        f"{sizes.shared} bytes of shared memory for each block",
        *(
            f"{name} = {n.attr.kind} of one side alone: a kernel of its own before it"
            for name, n in parts.firsts.items()
        ),
    )
    seconds += sum(made.choice.seconds for made in draft.before)
    choice = Choice(Schedule(threads=sizes.threads, rows=1), Layout(), reasons, seconds, moved)
    operands = {o.name: o for o in parts.program.operands}
    scratch = {n: (operands[n], View.contiguous(tuple(lengths[a] for a in operands[n].axes))) for n in parts.firsts}
    draft.planned = Planned(
        draft.program,
        choice,
        Kernel(draft.module, Geometry(blocks, sizes.threads)),
        lengths,
        () if draft.by_mma else maps_of(parts, sizes),
        draft.fixed,
        before=draft.before,
        scratch=scratch,
    )


def _predicted(draft: LevelDraft, parts: Parts, sizes: Sizes) -> tuple[float, int]:
    """The seconds of the launch, and the bytes of all arrays."""
    target, lengths, program, tiles = draft.call.target, draft.lengths, draft.program, draft.fixed["tiles"]
    most = target.multiprocessors
    pairs = tiles * sizes.rows * lengths[parts.stream]  # of whole tiles: rows that are not there take as long
    terms = [length(parts, s.over, lengths) for s in parts.scores]
    terms += [length(parts, parts.part[s.tile][1], lengths) for s in parts.sums]
    arrays = [prod(lengths[a] for a in o.axes) * STORAGE[o.dtype] for o in program.operands if not o.number]
    arrays += [prod(lengths[a] for a in r.axes) * STORAGE[r.dtype] for r in program.results]
    rate = rate_of(target) if draft.by_mma else calibration_of(target.name).tensor_cores.rate
    busy = -(-tiles // most) * most / tiles  # multiprocessors wait for those with a tile more, or with one at all
    return target.launch + max(2 * pairs * sum(terms) * busy / rate, sum(arrays) / target.reachable), sum(arrays)


def _described(parts: Parts, sizes: Sizes, products: int) -> str:
    """The line of `run.explain()`."""
    blocks = f"along {parts.row}, blocks of {sizes.columns} along {parts.stream}"
    if isinstance(sizes, WarpSizes):
        return (
            f"tensor cores by mma.sync: a tile program of {products} products, {sizes.warps} warps of "
            f"{16 * sizes.tall} rows {blocks}, {sizes.stages} stages by cp.async"
        )
    return (
        f"tensor cores: a tile program of {products} products, {sizes.rows // 64} warpgroups of 64 rows {blocks}, a "
        f"producer fills {sizes.stages} stages"
    )
