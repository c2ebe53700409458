"""Parts of the plan of a matrix product: what kernels before it prepare, where operands lie, where each comes from.

Operands that are not read in place (`redalg.kernels.gemm.tiles`) and the states of the epilogue are made by
ordinary kernels of derived forms, one for each operand; the product reads them from scratch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from redalg import _hooks
from redalg.errors import RedalgError
from redalg.graph.formula import spelled_out
from redalg.graph.node import Node, outermost_reductions, walk
from redalg.kernels.gemm.epilogue import pairs
from redalg.kernels.gemm.kernel import Gemm
from redalg.kernels.gemm.match import FLOAT8, TYPES, Cut, Side, merged
from redalg.kernels.gemm.mma_tiles import MmaGemm
from redalg.kernels.gemm.places import Place
from redalg.kernels.gemm.tiles import FILL, SIDES, GemmPlan
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Operand, Program, Result
from redalg.kernels.launch.planned import Map
from redalg.kernels.schedule.calibration import calibration_of
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import Outside
from redalg.text.nodes import short

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec


MOST_HELD = 4  # times the bytes of a call's arrays: what is larger between two products is what fusing is for


@dataclass(frozen=True)
class First:
    """What comes before the product: a form with its dtypes, the dtypes of its results, and where they are padded.

    ``side``: of the operand it makes, 0 the left one, 2 for what is beside both; ``axes``: that number its rows, in
    order. ``product``: it is a matrix product itself.
    """

    side: int
    axes: tuple[str, ...]
    form: Form
    dtypes: Mapping[str, Any]
    results: Mapping[str, str]
    views: Mapping[str, View]
    product: bool = False


@dataclass(frozen=True)
class Product:
    """The product, and what comes before it. ``scratch``: operands that a kernel before it fills, and how they lie."""

    gemm: Gemm
    plan: GemmPlan
    firsts: tuple[First, ...]
    scratch: Mapping[str, tuple[Operand, View]]
    maps: tuple[Map, ...]
    sizes: Mapping[str, int]
    fixed: Mapping[str, int]
    blocks: int
    reasons: tuple[str, ...]
    seconds: float


def seconds_of(plan: GemmPlan, width: int, tiles: int, moved: int, target: Target) -> float:
    """The time predicted for so many tiles of operands of this width, and so many elements that are read."""
    known = calibration_of(target.name).tensor_cores
    rounds = -(-tiles // max(1, target.multiprocessors // plan.cluster))
    filled = FILL - plan.bulk  # results are written beside the next tile
    tile = 2 * plan.rows * plan.columns * plan.products * (plan.chunks + filled) * plan.chunk
    rate = known.rate * (known.float8 if width == 1 else 1)
    computing = rounds * tile * target.multiprocessors / rate
    return target.launch + max(computing, width * moved / target.reachable)


def results_of(made: Cut, program: Program) -> tuple[Result, ...]:
    """The results that the product's kernel writes, from its sums: of functions that kernels have."""
    own = {r: spelled_out(made.outputs[r.name]) for r in program.results if r.name in made.outputs}
    return tuple(replace(r, node=_grouped(node, made.column), masked=None) for r, node in own.items())


def staged_width(results: Sequence[Result], column: str, sizes: Mapping[str, int]) -> tuple[bool, int]:
    """Whether results go by way of shared memory: there is one, of 16 bits; and how many may be written together."""
    width = min(pairs(r, column, sizes[column]) for r in results)
    return len(results) == 1 and results[0].dtype in TYPES and width == 8, width


def _grouped(node: Node, column: str) -> Node:
    """Factors of a row are one factor, computed once a row."""
    args = tuple(_grouped(a, column) for a in node.args)
    if node.op == "mul":
        still = [a for a in args if column not in a.axes]
        if 1 < len(still) < len(args):
            args = (Node("mul", tuple(still)), *(a for a in args if column in a.axes))
    return node if args == node.args else Node(node.op, args, node.attr)


def require_accuracy(made: Cut, kinds: tuple[str, str], program: Program, insisted: bool, whole: str = "") -> None:
    """An operand is rounded where the results are rounded as much anyway, or where it is asked for. `whole`: what
    those of the whole call are rounded to, of which this is a part."""
    rounded = [s for s in (made.left, made.right) if s.format is None]
    if not rounded or insisted:
        return
    if kinds[0] == "float16":
        raise Outside(f"{rounded[0].name} = {short(rounded[0].node)} may be too large for float16")
    wide = [r.name for r in program.results if STORAGE[r.dtype] > 2 and r.name in made.outputs]
    if wide and whole != kinds[0]:
        raise Outside(f"{wide[0]} is float32, and {short(rounded[0].node)} would be rounded to {kinds[0]}")


# --- what comes before -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _derived(spec: Spec, stream: tuple[str, ...]) -> Form:
    """Over the stream, or over the one other axis that it is folded over. Raises: RedalgError."""
    folded = {n.attr.axes for n in outermost_reductions(*spec.outputs.values())}
    along = stream if stream in folded or len(folded) > 1 else next(iter(folded), None)
    return _hooks.derive(spec, axis=along[0] if along and len(along) == 1 else along, max_passes=8)


def first_of(
    made: Cut, number: int, place: Place, program: Program, dtypes: Mapping[str, Any], sizes: Mapping[str, int]
) -> First | None:
    """The kernel that prepares one operand, or only its states."""
    side, kept = (made.left, made.right)[number], dict(made.given[number])
    if place.twice or not place.why and not kept:
        return None
    found: dict[str, View] = {}
    results = _formats(kept, program)
    if place.why:
        results[side.name] = place.dtype
        found[side.name] = _padded(made, side, place, sizes)
    product = bool(place.why) and made.chained[number]
    return _first(made, number, side.axes, made.made(number, bool(place.why)), dtypes, results, found, product)


def other_products_of(made: Cut, program: Program, dtypes: Mapping[str, Any]) -> First | None:
    """The kernel of other products that the epilogue reads, or that are results."""
    if not made.given[2]:
        return None
    axes = (*made.batch, *made.rows, made.column)
    return _first(made, 2, axes, made.made(2), dtypes, _formats(made.given[2], program), {}, True)


def _formats(kept: Mapping[str, Node], program: Program) -> dict[str, str]:
    """States are kept in float32, results in their own formats."""
    whole = {r.name: r.dtype for r in program.results}
    return {n: whole.get(n, "float32") for n in kept}


def _first(
    made: Cut,
    number: int,
    axes: tuple[str, ...],
    spec: Spec,
    dtypes: Mapping[str, Any],
    results: Mapping[str, str],
    views: Mapping[str, View],
    product: bool,
) -> First:
    try:
        form = _derived(spec, made.along)
    except RedalgError as problem:
        raise Outside(f"what comes before the product does not derive: {problem.why}") from problem
    return First(number, axes, form, {t.name: dtypes[t.name] for t in spec.tensors}, results, views, product)


def require_small(
    scratch: Mapping[str, tuple[Operand, View]], program: Program, sizes: Mapping[str, int], made: Cut
) -> None:
    """Raises: Outside where products on their way through memory are far larger than what a call reads and writes."""
    between = {s.name for s, chained in zip((made.left, made.right), made.chained, strict=True) if chained}
    held = sum(prod(v.shape) * STORAGE[o.dtype] for n, (o, v) in scratch.items() if n in between | {*made.given[2]})
    arrays = [(x.axes, x.dtype) for x in program.results]
    arrays += [(x.axes, x.dtype) for x in program.operands if not x.number]
    own = sum(prod(sizes[a] for a in axes) * STORAGE[dtype] for axes, dtype in arrays)
    if held > MOST_HELD * own:
        raise Outside(f"the product that it is chained to takes {held} bytes, and all of the call's arrays {own}")


def _padded(made: Cut, side: Side, place: Place, sizes: Mapping[str, int]) -> View:
    """An operand's scratch as the kernel that fills it sees it: rows start at multiples of 16 bytes."""
    batch, *parts = (tuple(sizes[a] for a in axes) for axes in (made.batch, side.axes[len(made.batch) :], made.along))
    steps = (View.contiguous(shape).strides for shape in parts)
    inner = [step * s for step, own in zip(place.strides[-2:], steps, strict=True) for s in own]
    return View((*batch, *(n for shape in parts for n in shape)), (*place.strides[:-2], *inner))


def scratch_of(made: Cut, places: Sequence[Place], sizes: Mapping[str, int]) -> dict[str, tuple[Operand, View]]:
    found = {}
    for side, place in zip(made.sides, places, strict=True):
        own = side.axes[len(made.batch) :]
        if place.why and not place.twice:
            axes, lengths, steps = (merged(own), made.stream), {}, place.strides[-2:]
            lengths = {axes[0]: prod(sizes[a] for a in own), axes[1]: sizes[made.stream]}
            if place.flat:  # as they lie, the outermost axis first
                axes, steps = axes[::-1], steps[::-1]
            shape = (*(sizes[a] for a in made.batch), *(lengths[a] for a in axes))
            lying = View(shape, (*place.strides[:-2], *steps))
            found[side.name] = Operand(side.name, (*made.batch, *axes), place.dtype), lying
    for name in (name for names in made.given for name in names if name in made.states):
        held = made.held(name)
        found[name] = Operand(name, held, "float32"), View.contiguous(tuple(sizes[a] for a in held))
    return found


def operands_of(
    made: Cut, places: Sequence[Place], program: Program, besides: Collection[str] = ()
) -> tuple[Operand, ...]:
    """Operands of the call that the product's kernel takes. `besides`: read by what becomes of its rows."""
    read = _read(made, places) | {*besides}
    return tuple(o for o in program.operands if o.number or o.name in read)


def _read(made: Cut, places: Sequence[Place]) -> set[str]:
    """Tensors of the call that the product reads."""
    leaves = {n.attr.name for n in walk(*made.outputs.values()) if n.op == "tensor"}
    return leaves | {p.name for p in places if not p.why}


def maps_of(made: Cut, places: Sequence[Place], plan: GemmPlan) -> tuple[Map, ...]:
    found = []
    for number, (side, place) in enumerate(zip(made.sides, places, strict=True)):
        tile, length = (SIDES[1], plan.columns) if number else (SIDES[0], plan.left_rows)
        half = plan.sharing.blocks if plan.shared is tile else 1
        axes, steps = _map_axes(made, side, place, places[0])
        rows = 64 if place.flat else length // half
        if plan.instruction == "mma.sync":
            axes, steps = _lines(made, side, place)
        found.append(Map(place.name, axes, rows, tile, 0, 1, steps, place.pixels))
    return tuple(found)


def _lines(made: Cut, side: Side, place: Place) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The axes of an operand whose rows threads copy, from the innermost on, and their strides."""
    two, own = (merged(side.axes[len(made.batch) :]), made.stream), place.strides[-2:]
    order = 1 if place.flat else -1
    return (*two[::order], *reversed(made.batch)), (*own[::order], *reversed(place.strides[:-2]))


def _map_axes(made: Cut, side: Side, place: Place, left: Place) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The axes of a map from the innermost on, and their strides where they are not those of a tensor's axes."""
    own = side.axes[len(made.batch) :]
    if left.pixels is not None:
        taps = [a for a, _ in left.pixels.taps]
        channel = next(a for a in made.along if a not in taps)
        if place.pixels is not None:
            return (channel, *(s.row for s in place.pixels.spatial)), ()
        row, stream, outer = own[0], channel, tuple(reversed(taps))
    else:
        row, stream, outer = merged(own), made.stream, tuple(reversed(made.batch))
    inner = (row, stream) if place.flat else (stream, row)
    if not place.twice and (place.why and not place.taps or len(own) == len(made.along) == 1):
        return (*inner, *outer), ()
    *batch, down, across = place.strides
    two = (down, across) if place.flat else (across, down)
    return (*inner, *outer), (*two, *reversed(place.taps or batch))


# --- words -----------------------------------------------------------------------------------------------------------


def _groups(plan: GemmPlan, blocks: int) -> str:
    if plan.cluster == 1 or plan.paired:
        return f"{blocks // plan.cluster} {'pairs of ' * plan.paired}blocks"
    return f"{blocks // plan.cluster} clusters of {plan.cluster} blocks"


def _walked(place: Place) -> str:
    """How rows that are pixels are read, in words."""
    if (made := place.pixels) is None:
        return ""
    rows = " by ".join(f"{s.row} in steps of {s.step}" if s.step > 1 else s.row for s in reversed(made.spatial))
    taps = " by ".join(str(n) for _, n in made.taps) or "1"
    waste = f", {made.padded} with zeros" if made.padded > made.channels else ""
    return f" as pixels (im2col boxes): {rows}, {taps} taps of {made.channels} channels{waste}"


def _by_warpgroups(made: Cut, plan: GemmPlan, count: int, blocks: int) -> list[str]:
    """The first lines of a product by wgmma."""
    rows = 64 * plan.halves
    several = plan.sharing.blocks
    pair = f", {'pairs of' if several == 2 else several} blocks share the {plan.shared} operand" * (several > 1)
    if plan.split > 1:
        pair += f", {plan.split} blocks take {plan.own_chunks} chunks each and exchange partial sums in their cluster"
    if plan.products > 1:
        pair += f", {plan.products} products of the left operand"
    if plan.parts > 1:
        pair += f", split-K: {plan.parts} parts of {plan.own_chunks} chunks write sums that the kernel behind adds"
    return [
        f"tensor cores: the fold {short(made.fold)} is a GEMM, {plan.consumers} warpgroups of {rows} rows "
        f"by {plan.columns} columns, a producer warpgroup prefetches {plan.stages} chunks of {plan.chunk} terms{pair}",
        f"{count} tiles shared out among {_groups(plan, blocks)}, {plan.group} rows of them before the next columns",
    ]


def reasons_of(
    made: Cut, kinds: tuple[str, str], places: Sequence[Place], plan: GemmPlan, count: int, blocks: int
) -> list[str]:
    if isinstance(plan, MmaGemm):
        lines = _by_warps(made, plan, count)
    else:
        lines = _by_warpgroups(made, plan, count, blocks)
    for side, place, kind in zip(made.sides, places, (*kinds, *kinds[1:] * len(made.parallel)), strict=True):
        rounding = "exact" if side.format is not None else f"rounded once to {kind}"
        where = f"prepared before the product, since {place.why}" if place.why else "read in place" + _walked(place)
        lines.append(f"{side.name} = {short(side.node)} as {kind}, {rounding}: {where}")
    for other in made.joined:
        lines.append(f"terms of {short(other.fold)} are added to the same sums, in chunks behind the others")
    for name, node in made.states.items():
        lines.append(f"{name} = {short(node)}, a stage that the epilogue reads, kept with it")
    for name, node in made.outputs.items():
        lines.append(f"epilogue: {name} = {short(node)}, on sums in registers")
    if kinds[0] in FLOAT8:
        lines.append(
            "sums of 128 terms are added in float32" if plan.promoted else "sums stay with about 14 bits of mantissa"
        )
    return lines


def _by_warps(made: Cut, plan: MmaGemm, count: int) -> list[str]:
    """The first lines of a product by mma.sync."""
    down, across, tall, wide = plan.warps
    return [
        f"tensor cores by mma.sync: the fold {short(made.fold)} is a GEMM, {down * across} warps of {16 * tall} rows "
        f"by {wide} columns, {plan.stages} chunks of {plan.chunk} terms in shared memory by cp.async",
        f"{count} tiles of {plan.rows} by {plan.columns}, {plan.group} rows of them before the next columns, "
        f"{plan.resident} blocks to a multiprocessor",
    ]


def result_dtypes(program: Program, wanted: Mapping[str, str]) -> Program:
    """The program with results of these dtypes: states are not rounded to that of the tensors."""

    def kept(r: Result) -> Result:
        narrow = r.dtype in wanted.values() or "float" in r.dtype
        return replace(r, dtype=wanted[r.name]) if r.name in wanted and narrow else r

    return replace(program, results=tuple(kept(r) for r in program.results))
