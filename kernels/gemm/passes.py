"""Passes of matrix products: where the spec is cut, what is multiplied, tiles, and what runs inside the kernel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from redalg.graph.node import Node, walk
from redalg.kernels.gemm import library
from redalg.kernels.gemm.chain import Chained, ChainKernel
from redalg.kernels.gemm.chain_plan import Chain, best, cluster
from redalg.kernels.gemm.chain_plan import told as told_chain
from redalg.kernels.gemm.check import check
from redalg.kernels.gemm.held import NOTHING, Held, reads_columns, residual_of, vectors_of
from redalg.kernels.gemm.kernel import Gemm, GemmKernel
from redalg.kernels.gemm.launches import Prepared
from redalg.kernels.gemm.launches import inside as inside_of
from redalg.kernels.gemm.match import FLOAT8, Cut, Lacking, cut, merged, operand_types
from redalg.kernels.gemm.mma_kernel import MmaGemmKernel
from redalg.kernels.gemm.mma_tiles import MmaGemm, MmaRounds
from redalg.kernels.gemm.narrow import ROWS, Narrow, narrow, told
from redalg.kernels.gemm.parts import OVER, Partial, Splitting, chosen, partial_of, refusal
from redalg.kernels.gemm.places import Place, places_of
from redalg.kernels.gemm.plan import (
    Product,
    first_of,
    maps_of,
    operands_of,
    other_products_of,
    reasons_of,
    require_accuracy,
    require_small,
    results_of,
    scratch_of,
    seconds_of,
    staged_width,
)
from redalg.kernels.gemm.program import chained, scheduled
from redalg.kernels.gemm.prologue import Inside
from redalg.kernels.gemm.row_states import RowStates, require_folds
from redalg.kernels.gemm.row_states import chosen as tiles_of_rows
from redalg.kernels.gemm.row_states import seconds as row_seconds
from redalg.kernels.gemm.row_states import told as told_states
from redalg.kernels.gemm.tiles import GemmPlan, Rounds, blocks_of
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Program, Result
from redalg.kernels.ir.schedule import FUSED_PROLOGUE, MMA, TENSOR, Layout, Schedule
from redalg.kernels.launch.driver import Geometry
from redalg.kernels.launch.planned import Kernel, Planned, Vendor
from redalg.kernels.lower.draft import Call, program_text
from redalg.kernels.schedule.choose import Choice, micro
from redalg.kernels.tile.level.grid import Writer
from redalg.kernels.tile.level.program import TileProgram
from redalg.kernels.tile.match import Outside

EARLY = True  # whether products of few rows begin while the one before them ends; off to measure what that gives
WIDE = 32  # columns of a tile of split terms from which on that pays: of 16, 12.9 us early and 9.2 behind (H100)
WORDS = (None, TENSOR, MMA, FUSED_PROLOGUE)  # schedules under which such kernels are tried


class Operands(NamedTuple):
    """The types that are multiplied, left and right, where each operand is read, also of every product that is joined,
    and the results of the epilogue."""

    kinds: tuple[str, str]
    places: tuple[Place, ...]
    results: tuple[Result, ...] = ()
    joined: tuple[tuple[Place, ...], ...] = ()


class Joined(NamedTuple):
    """What runs inside the product's kernel: how, as the kernel it would be apart, seconds, bytes, and a line on it."""

    inside: Inside
    own: Planned
    seconds: float
    bytes: int
    line: str


class InOne(NamedTuple):
    """A chain in one kernel: what is printed, its blocks, seconds, bytes, what runs inside, and lines on it."""

    made: Chained
    first: Planned
    blocks: int
    cluster: int
    seconds: float
    bytes: int
    lines: tuple[str, ...]


class Parted(NamedTuple):
    """Split-K: what parts of the terms write, and the seconds of the product and of the kernel that adds them."""

    partial: Partial
    seconds: float


def _quiet(name: str, draft: Any) -> None:
    """Prints nothing."""


@dataclass
class GemmDraft:
    """A product under way. Each field is written by one pass and read by later ones.

    ``made``: the spec taken apart; ``before``: kernels that prepare operands, in launches of their own; ``joined``: the
    one that runs inside instead, or why none does. ``dump``: what prints kernels before the product, after a pass.
    ``behind``: the product before this one, whose results it reads. ``narrow``: the model of few rows that chose its
    tiles.
    ``part``: it is a kernel before another product itself, so that the whole is compared with other ways.
    ``states``: what its rows are reduced to in the epilogue, where they are.
    ``vendor``: what a library computes instead of the kernel. ``parted``: how terms are shared out among blocks;
    ``whole``: why they are not.
    """

    call: Call
    program: Program
    sizes: Mapping[str, int]
    made: Cut | None = None
    operands: Operands | None = None
    tiles: GemmPlan | None = None
    product: Product | None = None
    before: tuple[Planned, ...] = ()
    joined: Joined | InOne | str = ""
    dump: Callable[[str, Any], None] = _quiet
    part: bool = False
    behind: GemmDraft | None = None
    narrow: Narrow | None = None
    choice: Choice | None = None
    states: RowStates | None = None
    vendor: Vendor | None = None
    parted: Parted | None = None
    whole: str = ""
    operations: TileProgram | None = None
    planned: Planned | None = None

    @property
    def mma(self) -> bool:
        """Whether it is multiplied by mma.sync: where there is no wgmma, or where it is asked for."""
        return self.call.schedule == MMA or not (9, 0) <= self.call.target.cc < (10, 0)

    @property
    def insisted(self) -> bool:
        """Whether a product was asked for by name."""
        return self.call.schedule is not None

    @property
    def launches(self) -> int | None:
        return 1 if self.call.schedule == FUSED_PROLOGUE else self.call.launches

    @property
    def rows(self) -> int:
        assert self.made is not None
        return prod(self.sizes[a] for a in self.made.rows)

    @property
    def terms(self) -> int:
        """Of a row, with zeros behind the channels of each tap."""
        assert self.made is not None and self.operands is not None
        pixels = self.operands.places[0].pixels
        return self.sizes[self.made.stream] if pixels is None else pixels.terms

    @property
    def joined_terms(self) -> tuple[int, ...]:
        """Of products that are added to the same sums."""
        assert self.made is not None
        return tuple(self.sizes[x.stream] for x in self.made.joined)

    @property
    def batches(self) -> int:
        assert self.made is not None
        return prod(self.sizes[a] for a in self.made.batch)

    def check(self) -> None:
        """Raises: RedalgError where what passes have written breaks an invariant (`redalg.kernels.gemm.check`)."""
        check(self)

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        if self.planned is not None:
            return self.planned.module.source
        if self.operations is not None:
            return self.operations.text()
        if self.choice is not None:
            return "\n".join(self.choice.reasons)
        if self.tiles is not None:
            return repr(self.tiles)
        if self.made is None:
            return program_text(self.program)
        made, lines = self.made, [f"left: {self.made.made(0)}", f"right: {self.made.made(1)}"]
        lines.append(f"batch {made.batch}, rows {made.rows}, column {made.column}, stream {made.stream}")
        return "\n".join([*lines, *(map(repr, self.operands.places) if self.operands is not None else ())])


def taken_apart(draft: GemmDraft) -> None:
    """The spec as operands, the last fold, and the epilogue. Raises: NoProduct, Outside."""
    if any(n == 0 for n in draft.sizes.values()):
        raise Outside("an axis has length 0")
    form = draft.call.form
    draft.made = made = cut(form.spec, form.plan.axis, _formats(draft))
    draft.sizes = {**draft.sizes, **{x.stream: prod(draft.sizes[a] for a in x.along) for x in (made, *made.joined)}}


def _formats(draft: GemmDraft) -> dict[str, str]:
    return {o.name: o.dtype for o in draft.program.operands}


def read(draft: GemmDraft) -> None:
    """Which types are multiplied, and which operands are read in place. Raises: Outside."""
    made, target = draft.made, draft.call.target
    assert made is not None
    if target.cc < (8, 0):
        raise Lacking(f"{target.name} has compute capability {target.cc[0]}.{target.cc[1]}, below 8.0")
    if draft.program.real != "float32":
        raise Outside("it accumulates in float64")
    formats = _formats(draft)
    leaves = (n for n in walk(made.left.node, made.right.node) if n.op == "tensor" and n.axes)
    kinds = operand_types(made.left, made.right, {formats[n.attr.name] for n in leaves})
    require_accuracy(made, kinds, draft.program, draft.insisted, draft.call.rounded)
    if draft.mma:
        _require_mma(draft, made, kinds)
    places = _places(draft, made, kinds)
    joined = tuple(_places(draft, x, kinds) for x in made.joined)
    joins = not joined or _joins(draft, kinds, places, joined)
    parallel = not made.parallel or _parallel(draft, kinds, places)
    if not (joins and parallel):
        spec, along = draft.call.form.spec, draft.call.form.plan.axis
        draft.made = made = cut(spec, along, formats, parallel=parallel, joins=joins)
        places, joined = _places(draft, made, kinds), ()
    draft.operands = Operands(kinds, places, results_of(made, draft.program), joined)
    if draft.states is not None:
        _with_states(draft, draft.states)


def _with_states(draft: GemmDraft, states: RowStates) -> None:
    """Results of what the product's rows are reduced to, in place of the product's own. Raises: Outside."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    require_folds(states.program, made.column)
    for refused, why in (
        (draft.mma, "rows are reduced in epilogues by wgmma alone, on compute capability 9.0"),
        (operands.kinds[0] in FLOAT8, "sums of float8 leave the tensor cores after every chunk"),
        (len(made.sides) > 2, "several products are multiplied side by side"),
        ({*made.batch, *made.rows} != {*states.program.rows}, "rows are not those of the product"),
        (any(p.pixels is not None for p in operands.places), "rows are windows"),
        (draft.call.deterministic, "blocks that share a row depend on its length alone, tiles on the number of rows"),
    ):
        if refused:
            raise Outside(why)
    draft.states = states = states.over(operands.results)
    draft.operands = operands._replace(results=states.results())


def _parallel(draft: GemmDraft, kinds: tuple[str, str], places: tuple[Place, ...]) -> bool:
    """Whether products of one left operand are multiplied in one kernel: with tensors that lie alike, in place."""
    rights = places[1:]
    apart = any(p.why for p in rights) or len({p.flat for p in rights}) > 1
    return not (kinds[0] in FLOAT8 or draft.mma or apart)


def _joins(
    draft: GemmDraft, kinds: tuple[str, str], places: tuple[Place, ...], joined: tuple[tuple[Place, ...], ...]
) -> bool:
    """Whether terms of other products come to the same stages: from tensors that are read in place and lie alike."""
    made = draft.made
    assert made is not None
    if draft.mma or kinds[0] in FLOAT8 or draft.launches is not None:
        return False
    formats = {(x.left.format, x.right.format) for x in (made, *made.joined)}
    lying = {tuple(p.flat for p in x) for x in (places, *joined)}
    apart = (p.why or p.pixels is not None or p.taps for p in itertools.chain(places, *joined))
    return len(formats) == len(lying) == 1 and not any(apart)


def _require_mma(draft: GemmDraft, made: Cut, kinds: tuple[str, str]) -> None:
    """Raises: Lacking for what is multiplied by wgmma alone."""
    if {*kinds} & {*FLOAT8}:
        raise Lacking("products of float8 are multiplied by wgmma alone, on compute capability 9.0")
    leaves = [side.node.attr for side in made.sides if side.bare]
    if any(t.dimensions for t in leaves) or any(v.array for v in draft.call.views.values()):
        raise Lacking("sums over windows are multiplied by wgmma alone, on compute capability 9.0")


def _places(draft: GemmDraft, made: Cut, kinds: tuple[str, str]) -> tuple[Place, ...]:
    every = (*kinds, *kinds[1:] * len(made.parallel))
    return places_of(made, every, draft.sizes, draft.call.views, not draft.mma)


def _few(draft: GemmDraft) -> Narrow | None:
    """What is multiplied, where no prologue may run inside."""
    made = draft.made
    assert made is not None
    if draft.mma or draft.launches in (0, 1) and not made.chained[0]:
        return None
    return _shape_of(draft)


def _shape_of(draft: GemmDraft) -> Narrow:
    """What is multiplied, for models of bytes at every level."""
    made, operands, sizes = draft.made, draft.operands, draft.sizes
    assert made is not None and operands is not None
    shape = draft.rows, sizes[made.column], draft.terms, draft.batches
    call, products, left = draft.call, len(made.sides) - 1, operands.places[0]
    how = call.deterministic, left.pixels is not None, left.flat, draft.joined_terms
    return Narrow(operands.kinds, operands.places[1].flat, *shape, products, call.target, *how)


def tiled(draft: GemmDraft) -> None:
    """How many rows and columns tiles have, and how results are written."""
    made, operands, sizes = draft.made, draft.operands, draft.sizes
    assert made is not None and operands is not None
    staged, width = staged_width(operands.results, made.column, sizes)
    if draft.states is not None:
        _tiled_rows(draft, draft.states)
        return
    few = _few(draft)
    plan = None if few is None else narrow(few)
    draft.narrow = few if plan is not None else None
    plan = plan or _tiles(draft, draft.rows)
    parted = _parts(draft, plan)
    if isinstance(parted, GemmPlan):
        plan, draft.narrow = parted, None
        staged, width = staged_width(_written(draft), made.column, sizes)
    else:
        draft.whole = parted
    staged = staged and plan.own_columns % 16 == 0
    draft.tiles = replace(
        _with_vectors(draft, plan),
        staged=staged,
        bulk=plan.bulk and staged,
        residual=plan.residual and staged,
        vector=width > 1,
        early=_begins_early(draft, plan),
        followed=draft.narrow is not None and draft.part,
    )


def _tiled_rows(draft: GemmDraft, states: RowStates) -> None:
    """Tiles of clusters that have whole rows, which are reduced in the epilogue. Raises: Outside."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    draft.narrow = few = _shape_of(draft)
    wide = [r for r in operands.results if made.column in r.axes]
    staged, width = staged_width(wide, made.column, draft.sizes) if wide else (False, 1)
    broad = not reads_columns(states.elements(), made.column, _vectors(draft))
    plan = tiles_of_rows(few, len(states.walk.parts), broad)
    draft.states = replace(states, whole=draft.sizes[made.column] == plan.columns * plan.sharing.blocks)
    draft.tiles = replace(_with_vectors(draft, plan), staged=staged, vector=width > 1)


def _begins_early(draft: GemmDraft, plan: GemmPlan) -> bool:
    """Whether blocks bring the right operand while the kernel before them, which prepares the left one, ends."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    if not EARLY or draft.narrow is None or plan.split > 1 and plan.columns < WIDE:
        return False
    count = blocks_of(plan, draft.rows, draft.sizes[made.column], draft.batches)[0]
    left, *rights = operands.places
    once = count <= draft.call.target.multiprocessors // plan.cluster
    return once and bool(left.why) and not any(p.why for p in rights)


def _shape(draft: GemmDraft, rows: int) -> tuple[int, int, int, int]:
    assert draft.made is not None
    return rows, draft.sizes[draft.made.column], draft.terms, draft.batches


def _by_mma(draft: GemmDraft, rows: int) -> MmaRounds:
    """The product with so many rows, for the model of rounds by mma.sync."""
    assert draft.made is not None and draft.operands is not None
    left, right = draft.operands.places
    shape = _shape(draft, rows)
    broad = not reads_columns([r.node for r in draft.operands.results], draft.made.column)
    return MmaRounds(draft.operands.kinds, left.flat, right.flat, *shape, draft.call.target, broad)


def _rounds(draft: GemmDraft, rows: int) -> Rounds:
    """The product with so many rows, for the model of rounds."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    left, right = operands.places[:2]
    shape = _shape(draft, rows)
    how = len(made.sides) - 1, left.flat, draft.joined_terms
    return Rounds(operands.kinds, right.flat, *shape, draft.call.target, *how)


def _tiles(draft: GemmDraft, rows: int) -> GemmPlan:
    """Tiles of so many rows, by the model of rounds."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    if draft.mma:
        return _by_mma(draft, rows).best()
    staged = staged_width(operands.results, made.column, draft.sizes)[0]
    nodes, rounds, residual = [r.node for r in operands.results], _rounds(draft, rows), _residual(draft)
    if staged and residual is not None:
        held = replace(rounds, residual=True)
        plan = held.best(not reads_columns(nodes, made.column, {*_vectors(draft), residual}))
        if plan.residual:
            return plan
    return rounds.best(staged and not reads_columns(nodes, made.column, _vectors(draft)))


def _residual(draft: GemmDraft) -> Node | None:
    """A tensor of the call that lies like its one result, of a product whose sums stay with the tensor cores."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    if draft.mma or operands.kinds[0] in FLOAT8 or len(operands.results) != 1:
        return None
    (result,), dtypes = operands.results, {o.name: o.dtype for o in draft.program.operands}
    return residual_of([result.node], result, made.column, dtypes, draft.call.views)


def _vectors(draft: GemmDraft) -> tuple[Node, ...]:
    """What the epilogue reads along columns alone, of the call's tensors."""
    made, operands = draft.made, draft.operands
    assert made is not None and operands is not None
    nodes = [r.node for r in operands.results] if draft.states is None else draft.states.elements()
    return vectors_of(nodes, made.rows, made.column, draft.program.operands)


def _with_vectors(draft: GemmDraft, plan: GemmPlan) -> GemmPlan:
    """With places in shared memory for these, where a block writes all columns of its tile, and they leave room."""
    if draft.mma or draft.parted is not None or plan.split > 1:
        return plan
    found = replace(plan, vectors=len(_vectors(draft)))
    return found if found.stages >= min(3, plan.stages) else plan


def _parts(draft: GemmDraft, alone: GemmPlan) -> GemmPlan | str:
    """Tiles whose terms are shared out among blocks (split-K), where that is predicted to be faster; else why not:
    empty where every multiprocessor has a tile anyway."""
    made, operands, call = draft.made, draft.operands, draft.call
    assert made is not None and operands is not None
    if draft.mma:
        return "terms are shared out among blocks by wgmma alone"
    pixels, whole = operands.places[0].pixels is not None, call.deterministic or draft.launches == 1
    case = Splitting(draft.rows, draft.sizes[made.column], draft.batches, call.target)
    if why := refusal(made, operands.kinds, pixels, draft.part, whole):
        return why if [*case.parted(alone)] else ""
    seconds = _seconds(draft, alone) / (OVER if draft.narrow is not None else 1)
    plan = chosen(_rounds(draft, draft.rows).plans(), case, seconds)
    if isinstance(plan, GemmPlan):
        draft.parted = Parted(partial_of(made), case.seconds(plan))
        draft.sizes = {**draft.sizes, draft.parted.partial.axis: plan.parts}
    return plan


def _written(draft: GemmDraft) -> tuple[Result, ...]:
    """What the product's kernel writes: results, or partial sums."""
    assert draft.made is not None and draft.operands is not None
    return draft.operands.results if draft.parted is None else draft.parted.partial.results(draft.made)


def _seconds(draft: GemmDraft, plan: GemmPlan) -> float:
    """The time predicted for the product's own launch."""
    made, operands, target, sizes = draft.made, draft.operands, draft.call.target, draft.sizes
    assert made is not None and operands is not None
    if isinstance(plan, MmaGemm):
        return _by_mma(draft, draft.rows).seconds(plan)
    if draft.parted is not None:
        return draft.parted.seconds
    if draft.narrow is not None and draft.states is not None:
        return target.launch + row_seconds(draft.narrow, plan)
    if draft.narrow is not None:
        return target.launch * (not plan.early) + draft.narrow.seconds(plan)
    pixels = operands.places[0].pixels
    left = draft.rows * draft.batches * sizes[made.stream] if pixels is None else prod(pixels.lengths)
    count = blocks_of(plan, draft.rows, sizes[made.column], draft.batches)[0]
    moved = left + sizes[made.stream] * sizes[made.column]
    moved += sum(draft.joined_terms) * (draft.rows + sizes[made.column]) * draft.batches
    return seconds_of(plan, STORAGE[operands.kinds[0]], count, moved, target)


def assembled(draft: GemmDraft) -> None:
    """The product as it is printed, with what comes before it, its grid and the time it takes. Raises: Outside."""
    made, operands, plan, sizes = draft.made, draft.operands, draft.tiles, draft.sizes
    assert made is not None and operands is not None and plan is not None
    places, program, target = operands.places, draft.program, draft.call.target
    firsts = [other_products_of(made, program, draft.call.dtypes)]
    firsts += [first_of(made, k, places[k], program, draft.call.dtypes, sizes) for k in range(2)]
    scratch = scratch_of(made, places, sizes)
    require_small(scratch, program, sizes, made)
    whole = Program(
        program.name,
        made.rows,
        (made.stream,),
        (made.column,),
        operands_of(made, (*places, *itertools.chain(*operands.joined)), program, _read_besides(draft))
        + tuple(o for o, _ in scratch.values()),
        _written(draft),
        (),
        "float32",
        title=program.title,
    )
    maps = maps_of(made, places, plan)
    for other, where in zip(made.joined, operands.joined, strict=True):
        maps += maps_of(other, where, plan)
    count, down, over = blocks_of(plan, draft.rows, sizes[made.column], draft.batches)
    most = plan.resident * target.multiprocessors // plan.cluster
    if draft.states is not None and draft.narrow is not None:
        most = draft.narrow.running(plan)  # others would begin when these have computed all of theirs
    blocks = plan.cluster * min(count, most)
    parts = () if draft.parted is None else (draft.parted.partial.axis,)
    draft.product = Product(
        Gemm(
            whole,
            (*parts, *made.batch),
            made.rows,
            made.column,
            made.stream,
            plan,
            maps,
            states=draft.states,
            held=Held(_vectors(draft) if plan.vectors else (), _residual(draft) if plan.residual else None),
        ),
        plan,
        tuple(f for f in firsts if f is not None),
        scratch,
        maps,
        {**sizes, merged(made.rows): draft.rows},
        {"tiles": count, "down": down, "over": over, "all_rows": draft.rows},
        blocks,
        tuple(reasons_of(made, operands.kinds, places, plan, count, blocks)),
        _seconds(draft, plan),
    )


def _read_besides(draft: GemmDraft) -> set[str]:
    """Tensors that what becomes of the product's rows reads."""
    return set() if draft.states is None else {o.name for o in draft.states.program.operands} - {draft.states.tensor}


def within(draft: GemmDraft, prepared: Prepared) -> tuple[Inside, float, str]:
    """How the only kernel before the product would run in its kernel, in how many seconds. Raises: Outside."""
    assert draft.product is not None
    call = draft.call
    if draft.mma:
        raise Outside("rows are prepared inside a kernel by wgmma alone, on compute capability 9.0")
    _require_one(draft)
    return inside_of(
        draft.product.gemm, prepared, draft.product.sizes, call.target, call.deterministic, draft.launches == 1
    )


def _require_one(*drafts: GemmDraft) -> None:
    """Raises: Outside, where a product has terms of several."""
    if any(draft.joined_terms for draft in drafts):
        raise Outside("terms of several products are added")


def _chain_of(draft: GemmDraft, behind: GemmDraft) -> Chain:
    """The product and the one before it. Raises: Outside, with the reason why they are two kernels."""
    found, first, own = draft.product, behind.product, behind.planned
    assert found is not None and first is not None and own is not None
    if draft.mma:
        raise Outside("two products are one kernel by wgmma alone, on compute capability 9.0")
    _require_one(draft, behind)
    if draft.narrow is None or behind.narrow is None:
        raise Outside(f"more than {ROWS} rows, or of float8: tensor cores or launches of their own decide")
    if first.firsts or len(found.firsts) > 1 or not {r.name for r in own.program.results} <= {*found.scratch}:
        raise Outside("something else is computed before either product, or beside it")
    if {*first.scratch} & {*found.scratch} or draft.made is None or not draft.made.chained[0]:
        raise Outside("the right operand is made of a product")
    return Chain(behind.narrow, draft.narrow)


def in_one_kernel(draft: GemmDraft) -> InOne:
    """The product and the one before it as one kernel. Raises: Outside, with the reason why they are two."""
    found, behind = draft.product, draft.behind
    assert found is not None and behind is not None and behind.planned is not None
    chain, own = _chain_of(draft, behind), behind.planned
    pair = best(chain)
    if pair is None:
        raise Outside("no pair of plans keeps the laws of a chain in one kernel")
    seconds, apart = draft.call.target.launch + chain.seconds(pair), found.seconds + own.choice.seconds
    if seconds > apart and draft.launches != 1:
        raise Outside(
            f"{micro(seconds)} are predicted in one kernel, and {micro(apart)} in two, the second begun early"
        )
    made = Chained.of(
        _with(behind, pair[0]),
        _with(draft, pair[1]),
        {n: v.strides for n, v in own.results.items()},
    )
    lines = tuple(told_chain(pair, chain, seconds, apart))
    return InOne(made, own, chain.blocks(pair), cluster(pair), seconds, own.choice.bytes, lines)


def _with(draft: GemmDraft, plan: GemmPlan) -> Gemm:
    """The product with another plan, and the way its results are written as in `tiled`."""
    made, operands, found = draft.made, draft.operands, draft.product
    assert made is not None and operands is not None and found is not None
    staged, width = staged_width(operands.results, made.column, draft.sizes)
    plan = replace(plan, staged=staged and plan.own_columns % 16 == 0, vector=width > 1)
    return replace(found.gemm, plan=plan, maps=maps_of(made, operands.places, plan), held=NOTHING)


def _fixed(draft: GemmDraft, plan: GemmPlan) -> dict[str, int]:
    assert draft.made is not None
    count, down, over = blocks_of(plan, draft.rows, draft.sizes[draft.made.column], draft.batches)
    return {"tiles": count, "down": down, "over": over, "all_rows": draft.rows}


def _in_one(draft: GemmDraft, joined: InOne) -> Planned:
    """Both products as they are launched: all blocks together, since they meet."""
    found, behind, choice = draft.product, draft.behind, draft.choice
    assert found is not None and behind is not None and behind.product is not None and choice is not None
    assert draft.operations is not None
    printed, made = ChainKernel(joined.made, draft.operations), joined.made
    plan = made.second.plan
    fixed = _fixed(behind, made.first.plan) | {f"{n}_2": x for n, x in _fixed(draft, plan).items()}
    return Planned(
        draft.program,
        choice,
        Kernel(printed.module(), Geometry(joined.blocks, plan.threads, joined.cluster, waiting=2)),
        {**behind.product.sizes, **found.sizes},
        (*made.first.maps, *made.second.maps),
        {**fixed, **printed.numbers()},
        scratch=found.scratch,
        inside=(joined.first,),
    )


def explained(draft: GemmDraft) -> None:
    """What is predicted for everything together, and the reasons for what was decided."""
    found, joined = draft.product, draft.joined
    assert found is not None
    seconds, reasons = found.seconds, list(found.reasons)
    moved = _moved(draft, found) + sum(made.choice.bytes for made in draft.before)
    if draft.states is not None:
        reasons.insert(1, told_states(draft.states, found.plan))
    elif draft.narrow is not None:
        reasons.append(told(draft.narrow, found.plan))
    if draft.whole:
        reasons.append(f"no split-K: {draft.whole}")
    if isinstance(joined, Joined):
        seconds, moved = seconds + joined.seconds, moved + joined.bytes
        reasons.append(joined.line)
    elif isinstance(joined, InOne):
        seconds, moved = joined.seconds, moved + joined.bytes
        reasons = [*joined.lines, *reasons]
    else:
        seconds += sum(made.choice.seconds for made in draft.before)
        reasons += [f"a launch of its own: {joined}"] if joined else []
    for made in draft.before:
        names = ", ".join(r.name for r in made.program.results)
        reasons += [f"before it, {names}: {line}" for line in made.choice.reasons[:4]]
    schedule = Schedule(threads=found.plan.threads, rows=1)
    draft.choice = Choice(schedule, Layout(), tuple(reasons), seconds, moved)


def _moved(draft: GemmDraft, found: Product) -> int:
    """Bytes of the product's operands and results, each read or written once."""
    own = found.gemm.program
    views = dict(draft.call.views) | {n: v for n, (_, v) in found.scratch.items()}
    views |= {r.name: View.contiguous(tuple(found.sizes[a] for a in r.axes)) for r in own.results}
    arrays = [(x.name, x.dtype) for x in own.operands] + [(x.name, x.dtype) for x in own.results]
    return sum(STORAGE[dtype] * views[name].elements for name, dtype in arrays if name in views)


def left_to_library(draft: GemmDraft) -> None:
    """A product of a chain as a call of a library, where that keeps to the numbers and is predicted to be faster."""
    made, operands, found, choice = draft.made, draft.operands, draft.product, draft.choice
    assert made is not None and operands is not None and found is not None and choice is not None
    if not (draft.part or made.chained[0]) or made.joined or draft.joined and not isinstance(draft.joined, str):
        return
    whole = library.Shared(made, operands.kinds, operands.places, operands.results, draft.sizes)
    each, column = STORAGE[operands.kinds[0]], draft.sizes[made.column]

    def own_of(rows: int) -> float:
        plan = _tiles(draft, rows)
        if isinstance(plan, MmaGemm):
            return _by_mma(draft, rows).seconds(plan)
        moved = (rows + column) * draft.sizes[made.stream]
        return seconds_of(plan, each, blocks_of(plan, rows, column, draft.batches)[0], moved, draft.call.target)

    vendor, seconds, line = library.chosen(whole, draft.call, found.seconds, own_of)
    draft.vendor, saved = vendor, found.seconds - seconds
    draft.choice = replace(
        choice, reasons=(*choice.reasons[:1], line, *choice.reasons[1:]), seconds=choice.seconds - saved
    )


def require_faster(draft: GemmDraft, usual: Choice) -> None:
    """Raises: Outside where kernels of rows are predicted to take less time than a product of matrices."""
    assert draft.choice is not None
    if usual.seconds < draft.choice.seconds:
        times = f"{micro(draft.choice.seconds)} are predicted, and {micro(usual.seconds)} without"
        raise Outside(f"as a GEMM {times}")


def operated(draft: GemmDraft) -> None:
    """The tile program: chunks that come and are multiplied, waits and arrivals, a producer and consumers."""
    assert draft.product is not None
    if isinstance(draft.joined, InOne):
        draft.operations = chained(draft.joined.made.first, draft.joined.made.second)
    else:
        draft.operations = scheduled(_whole(draft))


def _whole(draft: GemmDraft) -> Gemm:
    """The product with what others write for it: rows in the same launch, or the kernels before it."""
    assert draft.product is not None
    gemm, joined = draft.product.gemm, draft.joined
    if isinstance(joined, Joined):
        return gemm.with_rows(joined.inside)
    before = (name for first in draft.product.firsts for name in first.results)
    return replace(gemm, late=dict.fromkeys(before, Writer.KERNEL)) if gemm.plan.early else gemm


def sourced(draft: GemmDraft) -> None:
    """The kernel's source, its grid, and its arguments that are the same in every call."""
    found, joined, choice = draft.product, draft.joined, draft.choice
    assert found is not None and choice is not None and draft.operations is not None
    if isinstance(joined, InOne):
        draft.planned = _in_one(draft, joined)
        return
    inside: tuple[Planned, ...] = ()
    geometry = Geometry(found.blocks, found.plan.threads, found.plan.cluster, early=found.plan.early)
    if isinstance(joined, Joined):
        inside = (joined.own,)
        # A grid barrier: blocks are launched together, no more of them than run at once.
        geometry = replace(geometry, persistent=True, waiting=min(2, found.blocks))
    mma = isinstance(found.plan, MmaGemm)
    printed = (MmaGemmKernel if mma else GemmKernel)(_whole(draft), draft.operations)
    own = draft.parted is None and draft.states is None
    program = draft.program if own else replace(draft.program, results=_written(draft))
    draft.planned = Planned(
        program,
        choice,
        Kernel(printed.module(), geometry, draft.vendor),
        found.sizes,
        () if mma else found.maps,
        {**found.fixed, **printed.numbers()},
        before=draft.before,
        scratch=found.scratch,
        inside=inside,
    )
