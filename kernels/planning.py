"""Everything that is decided about a kind of call before its first launch: program, schedule, kernel, grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels import driver
from redalg.kernels.choosing import Choice, Override, choose, micro
from redalg.kernels.driver import Geometry
from redalg.kernels.emit_cuda import emit
from redalg.kernels.emit_tensor import emit_merge, emit_tensor
from redalg.kernels.in_place import in_place
from redalg.kernels.ir import STORAGE, Module, Operand, Program, result_key
from redalg.kernels.layouts import View, Walk, walk_of
from redalg.kernels.lower import lower
from redalg.kernels.points import pointed
from redalg.kernels.sampling import sampled
from redalg.kernels.schedule import FAMILIES, Layout, Schedule
from redalg.kernels.target import Target
from redalg.kernels.tensor_anchor import steps as anchored
from redalg.kernels.tensor_class import TYPES, Class, Outside, classified
from redalg.kernels.tensor_gemm import GemmKernel
from redalg.kernels.tensor_gemm_class import FLOAT8, NoProduct
from redalg.kernels.tensor_gemm_launches import LAUNCHES, Prepared
from redalg.kernels.tensor_gemm_launches import inside as inside_of
from redalg.kernels.tensor_gemm_planning import First, GemmPlanned, gemm_planned, result_dtypes
from redalg.kernels.tensor_gemm_prologue import Inside
from redalg.kernels.tensor_mma_plan import MmaPlan, described, mma_plan_of, rate_of
from redalg.kernels.tensor_plan import TENSOR_RATE, Map, TensorPlan, WidePlan, fixed_of, maps_of, plan_of, require_large
from redalg.kernels.tensor_products import TF32
from redalg.kernels.tensor_reasons import conversions, origins

if TYPE_CHECKING:
    from redalg.form import Form


@dataclass(frozen=True)
class Planned:
    """Everything that is decided about a kind of call before its first launch."""

    program: Program
    choice: Choice
    module: Module
    sizes: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    geometry: Geometry
    maps: tuple[Map, ...] = ()
    fixed: Mapping[str, int] = field(default_factory=dict)
    again: Module | None = None  # a second kernel: it merges pieces, or computes anew what the first one noted
    again_geometry: Geometry | None = None
    before: tuple[Planned, ...] = ()  # kernels that fill `scratch`, and write what is not this one's to write
    scratch: Mapping[str, tuple[Operand, View]] = field(default_factory=dict)
    results: Mapping[str, View] = field(default_factory=dict)  # of results that are not contiguous
    over: Mapping[str, frozenset[str]] = field(default_factory=dict)  # result -> operands it may overwrite
    inside: tuple[Planned, ...] = ()  # kernels that are part of this one, as they would be apart


def plan(
    form: Form,
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
    deterministic: bool = False,
    schedule: Override = None,
    launches: int | None = None,
) -> Planned:
    """The kernel for arrays of these dtypes, shapes and strides. Needs no GPU.

    `launches`: 1 or 2 for a matrix product and what prepares an operand of it, 0 for what the model finds faster; by
    default `redalg.kernels.tensor_gemm_launches.LAUNCHES`.
    """
    if one := schedule == ONE_LAUNCH:
        launches = 1
    program, (rows, sizes, walk) = _lowered(form, dtypes), situation(form, dtypes, views)
    shapes = {r.name: tuple(sizes[a] for a in r.axes) for r in program.results}
    if schedule in (None, TENSOR, OPTIMISTIC, MMA, TF32, ONE_LAUNCH):
        found: tuple[Class, TensorPlan] | Outside = Outside("no product of matrices is its last fold")
        if not one:
            found = _on_tensor_cores(program, sizes, views, target, schedule, deterministic)
        if isinstance(found, tuple):
            return _tensor_planned(*found, sizes, shapes, target)
        product_of = False
        if schedule in (None, TENSOR, ONE_LAUNCH):
            try:
                insisted = schedule is not None
                product = gemm_planned(form, program, dtypes, sizes, views, target, insisted)
                made = _product_planned(program, product, views, shapes, target, deterministic, launches)
                if not insisted and not deterministic:
                    _require_faster(made, choose(rows, sizes, walk, target))
                return made
            except NoProduct:
                pass  # what stands against the other class says more
            except Outside as problem:
                found, product_of = problem, True
        if schedule is not None:
            why, fix = str(found), f"leave the schedule out, or name one of {', '.join(FAMILIES)}"
            raise RedalgError(f"schedule={schedule!r}", "form.compile", why, fix)
        schedule, note = None, (f"not on tensor cores: {found}",) if _contracts(program, product_of) else ()
    else:
        note = ()
    choice = choose(rows, sizes, walk, target, deterministic, schedule)
    choice = replace(choice, reasons=choice.reasons + note) if note else choice
    return _rows_planned(rows, choice, sizes, shapes)


def _rows_planned(
    program: Program, choice: Choice, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> Planned:
    """The plan of a kernel of rows."""
    choice, module = _printed(program, choice)
    s, rows = choice.schedule, prod(sizes[a] for a in program.rows)
    waiting = s.split if s.persistent and program.keeps else 1
    geometry = Geometry(-(-rows // s.abreast) * s.split * s.cluster, s.block, s.cluster, s.persistent, waiting)
    return Planned(program, choice, module, sizes, shapes, geometry, over=in_place(program))


def _printed(program: Program, choice: Choice) -> tuple[Choice, Module]:
    """The kernel; with one row to a thread where neighbours cannot be walked together."""
    try:
        return choice, emit(program, choice.schedule, choice.layout)
    except ValueError as problem:
        if choice.schedule.beside == 1:
            raise
        alone = replace(choice.schedule, beside=1)
        reasons = (*choice.reasons, f"one row to a thread: there is {problem}")
        return replace(choice, schedule=alone, reasons=reasons), emit(program, alone, choice.layout)


def situation(form: Form, dtypes: Mapping[str, Any], views: Mapping[str, View]) -> tuple[Program, dict[str, int], Walk]:
    """The program of a call as kernels of rows run it, the lengths of its axes, and how its arrays lie in memory."""
    program = _lowered(form, dtypes, pointed)
    sizes = dict(program.lengths)
    for o in program.operands:
        sizes |= zip(o.axes, views[o.name].shape, strict=True) if o.name in views else ()
    return program, sizes, walk_of(program, {**views, **_contiguous(program, sizes)})


def _contiguous(program: Program, sizes: Mapping[str, int]) -> dict[str, View]:
    """Results as they are made, by their keys."""
    return {r.key: View.contiguous(tuple(sizes[a] for a in r.axes)) for r in program.results}


ONE_LAUNCH = "one launch"  # of a product of matrices: what prepares an operand runs inside its kernel
TENSOR = "tensor"  # the schedule of `redalg.kernels.emit_tensor`
MMA = "mma"  # the same by mma.sync (`redalg.kernels.tensor_mma`), whatever the compute capability
OPTIMISTIC = "optimistic"  # the same with an anchor that stays (`redalg.kernels.tensor_anchor`)


def _contracts(program: Program, product: bool) -> bool:
    """Whether narrow tensors are multiplied: what someone would expect tensor cores for."""
    kinds = [o.dtype for o in program.operands if not o.number]
    if product and any(k in (*TYPES, *FLOAT8) for k in kinds):
        return True
    return (
        bool(program.passes) and sum(k in (*TYPES, *FLOAT8) for k in kinds) > 1 and bool(program.inner or program.lanes)
    )


def _on_tensor_cores(
    program: Program,
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    target: Target,
    schedule: Override,
    deterministic: bool,
) -> tuple[Class, TensorPlan] | Outside:
    """The program as one of the class with its tiles, or why it is none."""
    try:
        if any(n == 0 for n in sizes.values()):
            raise Outside("an axis has length 0")
        optimistic = schedule == OPTIMISTIC
        made = classified(program, sizes, schedule == TF32)
        if schedule is None:
            require_large(made, sizes)
        other = schedule == MMA or made.converted or target.cc[0] != 9
        planned = mma_plan_of if other and not optimistic else plan_of
        made, tiles = planned(made, sizes, views, target, deterministic)
        if isinstance(tiles, MmaPlan):
            return made, tiles
        if optimistic:
            tiles = _optimistic(made, tiles, sizes, deterministic)
        if tiles.uneven and tiles.pieces == 1 and fixed_of(made, tiles, sizes)["tiles"] > 2 * target.multiprocessors:
            tiles = replace(tiles, drawn=True)
        return made, tiles
    except Outside as why:
        return why


def _optimistic(made: Class, tiles: TensorPlan, sizes: Mapping[str, int], deterministic: bool) -> TensorPlan:
    """The tiles with an anchor that stays. Raises: Outside."""
    if deterministic:
        raise Outside("rows are computed again with their neighbours, whose bits they would follow")
    if tiles.long:
        raise Outside("without lanes an anchor costs next to nothing")
    anchored(made)
    return replace(tiles, anchor="stays", notes=1 if sizes[made.row] >= 8 else 8, pieces=1)


def _tensor_planned(
    made: Class, tiles: TensorPlan, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], target: Target
) -> Planned:
    fixed = fixed_of(made, tiles, sizes)
    blocks = fixed["tiles"] if isinstance(tiles, MmaPlan) else min(target.multiprocessors, fixed["tiles"])
    reasons = (
        described(tiles, made.stream) if isinstance(tiles, MmaPlan) else _layout(tiles, made.stream),
        *conversions(made),
        *(ANCHORED if tiles.anchor == "stays" else ()),
        f"{fixed['tiles']} tiles {'drawn by' if tiles.drawn else 'shared out among'} {blocks} blocks",
        f"{tiles.shared} bytes of shared memory for each block",
        *origins(made, tiles),
    )
    operations = 2 * fixed["batches"] * sizes[made.row] * sizes[made.stream] * (tiles.terms + tiles.lanes)
    arrays = [prod(sizes[a] for a in o.axes) * STORAGE[o.dtype] for o in made.program.operands if not o.number]
    arrays += [prod(shapes[r.name]) * STORAGE[r.dtype] for r in made.program.results]
    rate = rate_of(target) if isinstance(tiles, MmaPlan) else TENSOR_RATE
    rate = rate / 2 if made.multiplied == TF32 else rate
    seconds = max(operations / rate, sum(arrays) / target.reachable)
    schedule = Schedule(threads=tiles.threads, rows=1)
    choice = Choice(schedule, Layout(), reasons, seconds, sum(arrays))
    module = emit_tensor(made, tiles)
    geometry = again_geometry = Geometry(blocks, tiles.threads)
    again = emit_tensor(made, replace(tiles, anchor="again")) if tiles.anchor == "stays" else None
    if tiles.pieces > 1:
        rows = prod(sizes[a] for a in made.program.rows) * max(1, tiles.lanes)
        again, again_geometry = emit_merge(made, tiles), Geometry(-(-rows // 128), 128)
    maps = () if isinstance(tiles, MmaPlan) else maps_of(made, tiles)
    return Planned(
        made.program, choice, module, sizes, shapes, geometry, maps, fixed, again, again_geometry
    )  # fmt: skip


def _require_faster(made: Planned, usual: Choice) -> None:
    """Raises: Outside where kernels of rows are predicted to take less time than a product of matrices."""
    if usual.seconds < made.choice.seconds:
        times = f"{micro(made.choice.seconds)} are predicted, and {micro(usual.seconds)} without"
        raise Outside(f"as a product of matrices {times}")


def _layout(tiles: TensorPlan, stream: str) -> str:
    groups = f"{tiles.teams} warpgroups of 64 rows"
    if isinstance(tiles, WidePlan):
        groups = f"2 warpgroups share 64 rows, {tiles.own_lanes} lanes each"
    ahead = f"one more warpgroup brings {tiles.stages} of them ahead"
    return f"tensor cores: {groups}, blocks of {tiles.span} along {stream}, {ahead}"


def _product_planned(
    program: Program, found: GemmPlanned, views: Mapping[str, View], shapes: Mapping[str, tuple[int, ...]],
    target: Target, deterministic: bool, launches: int | None,
) -> Planned:  # fmt: skip
    """The plan of a matrix product with those of the kernels before it, or with one of them inside."""
    before = tuple(_before(first, found.sizes, views, target, deterministic) for first in found.firsts)
    launches = (0 if LAUNCHES == 1 else LAUNCHES) if launches is None else launches
    gemm, reasons, fixed = found.gemm, list(found.reasons), dict(found.fixed)
    inside: tuple[Planned, ...] = ()
    seconds = found.seconds + sum(made.choice.seconds for made in before)
    geometry = Geometry(found.blocks, found.plan.threads, found.plan.cluster)
    moved = sum(made.choice.bytes for made in before)
    if before and launches != 2:
        try:
            if len(before) > 1:
                raise Outside("both operands are prepared")
            within, took, line = _within(found, before[0], views, target, deterministic, launches == 1)
        except Outside as why:
            if launches == 1:
                raise
            reasons.append(f"a launch of its own: {why}")
        else:
            own = _before(found.firsts[0], found.sizes, views, target, deterministic, within.schedule)
            gemm, seconds, inside, before = replace(gemm, inside=within), found.seconds + took, (own,), ()
            reasons.append(line)
            # Blocks wait for each other: they are launched together, no more of them than run at once.
            geometry = replace(geometry, persistent=True, waiting=min(2, found.blocks))
    for made in before:
        names = ", ".join(r.name for r in made.program.results)
        reasons += [f"before it, {names}: {line}" for line in made.choice.reasons[:4]]
    kernel = GemmKernel(gemm)
    choice = Choice(Schedule(threads=found.plan.threads, rows=1), Layout(), tuple(reasons), seconds, moved)
    return Planned(
        program, choice, kernel.module(), found.sizes, shapes, geometry, found.maps, fixed | kernel.numbers(),
        before=before, scratch=found.scratch, inside=inside,
    )  # fmt: skip


def _before(
    first: First, sizes: Mapping[str, int], views: Mapping[str, View], target: Target, deterministic: bool,
    schedule: Override = None,
) -> Planned:  # fmt: skip
    """A kernel whose results another one reads: like any other, but for the dtypes and strides of its results."""
    program, walk = _walked(first, sizes, views)
    shapes = {r.name: tuple(sizes[a] for a in r.axes) for r in program.results}
    choice = choose(program, sizes, walk, target, deterministic, schedule)
    return replace(_rows_planned(program, choice, sizes, shapes), results=first.views)


def _walked(first: First, sizes: Mapping[str, int], views: Mapping[str, View]) -> tuple[Program, Walk]:
    program = result_dtypes(_lowered(first.form, first.dtypes, pointed), first.results)
    own = {result_key(name): view for name, view in first.views.items()}
    return program, walk_of(program, {**views, **_contiguous(program, sizes), **own})


def _within(
    found: GemmPlanned, made: Planned, views: Mapping[str, View], target: Target, deterministic: bool, insisted: bool
) -> tuple[Inside, float, str]:
    """What is printed into the product's kernel. Raises: Outside."""
    first = found.firsts[0]
    program, walk = _walked(first, found.sizes, views)
    prepared = Prepared(first, program, walk, made.choice.schedule, made.choice.seconds)
    return inside_of(found.gemm, prepared, found.sizes, target, deterministic, insisted)


ANCHORED = ("the anchor stays where the first block left it; a second kernel repeats rows whose sums fail the test",)


_PROGRAMS: dict[Any, Program] = {}


def _lowered(
    form: Form, dtypes: Mapping[str, Any], then: Callable[[Program], Program] = lambda program: program
) -> Program:
    """One program per form and dtypes: schedules are remembered by it."""
    key = (form, then is pointed, tuple(sorted((n, d if isinstance(d, type) else str(d)) for n, d in dtypes.items())))
    found = _PROGRAMS.get(key)
    return found if found is not None else _PROGRAMS.setdefault(key, sampled(then(lower(form, dtypes))))


def typical(form: Form, schedule: Override, deterministic: bool) -> Planned:
    """A plan for contiguous float32 arrays of moderate size on the first device."""
    sizes = dict.fromkeys(form.spec.axes, 64) | dict.fromkeys(form.plan.axis, 4096)
    dtypes: dict[str, Any] = {}
    views = {}
    for t in form.spec.tensors:
        word = next((w for w in ("bool", "integer") if w in t.domain), None)
        dtypes[t.name] = {"bool": "bool", "integer": "int64"}.get(word or "", "float32") if t.axes else float
        if t.axes:
            views[t.name] = View.contiguous(tuple(sizes[a] for a in t.axes))
    return plan(form, dtypes, views, driver.target_of(0), deterministic, schedule)
