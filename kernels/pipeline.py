"""The passes between a form and a launched kernel, in order. Nothing else calls one.

A form's plan and the dtypes of its tensors become a `Program`; a program and the arrays of a call become a kernel by
one list for each way to compute it: `ATTENTION` (tiles of scores on tensor cores), `TILES` (tile programs: sums of
weights made from several contractions), `GEMM` (a product of matrices, and what prepares its operands),
`ROWS` (everything else on a GPU). The lists of programs are a page of their own, `redalg.kernels.programs`, and so are
those of the CPU, `redalg.kernels.cpu_programs`. On a GPU the ways are tried in this order; a pass that raises `Outside`
says why its way does not fit, and the next one is tried. After every pass that made a program the invariants of the IR
are tested (`redalg.kernels.ir.check`), and those of a matrix product (`redalg.kernels.gemm.check`) after every pass of
`GEMM`; a failure names the pass. ``dump_after=`` prints the draft after any pass.

What decides X? Find X in a list below, in its second column; the third names the function, which is where it is
decided. How wide a tile of attention is: "tiles" of `ATTENTION` -> `cascade_passes.tiled` -> `tile.plan.fitted`, whose
candidates are the line ``for columns in …`` of `_candidates`; of a product of matrices: "tiles" of `GEMM` ->
`gemm.tiles.Rounds`; how many elements a thread of a row holds: "schedule" of `ROWS` -> `schedule.choose`.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels import partitioned, stacked
from redalg.kernels.gemm import passes as gemm
from redalg.kernels.gemm.launches import LAUNCHES, Prepared
from redalg.kernels.gemm.match import FLOAT8, Lacking, NoProduct
from redalg.kernels.gemm.parts import summed
from redalg.kernels.gemm.passes import GemmDraft, Joined
from redalg.kernels.gemm.plan import First, result_dtypes
from redalg.kernels.gemm.row_states import RowStates
from redalg.kernels.ir.layouts import View, Walk
from redalg.kernels.ir.program import Operand, Program, Result
from redalg.kernels.ir.schedule import FAMILIES, MMA, TENSOR, current
from redalg.kernels.launch import driver
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.lower.program import COMPENSATED
from redalg.kernels.partitioned import least_seconds
from redalg.kernels.programs import (
    QUIET,
    ROW_PROGRAM,
    TILE_PROGRAM,
    Dump,
    Pass,
    named,
    program_of,
    run_passes,
    tiled_programs,
    usual_dtypes,
)
from redalg.kernels.reshaped import coalesced, of_one_row
from redalg.kernels.rows import plan as rows
from redalg.kernels.rows.plan import RowsDraft, sizes_of
from redalg.kernels.schedule.case import Case
from redalg.kernels.schedule.choose import Override, lesser, micro
from redalg.kernels.schedule.target import TABLE, Target
from redalg.kernels.tile.level import cascade_passes as tile
from redalg.kernels.tile.level import passes as level
from redalg.kernels.tile.level.cascade_passes import TileDraft
from redalg.kernels.tile.level.firsts import firsts_of
from redalg.kernels.tile.level.passes import LevelDraft
from redalg.kernels.tile.match import TYPES, Class, Outside
from redalg.kernels.tile.mma_sync_plan import MmaPlan
from redalg.kernels.tile.plan import TensorPlan

if TYPE_CHECKING:
    from redalg.form import Form

LAUNCHED = 2e-6  # seconds that one more launch takes the host, by which parts have to be faster
WATCHES = True  # whether kernels of rows mark those that leave the range of the reals; benchmarks compare both


# --- what runs passes of another list --------------------------------------------------------------------------------


def _prepared(draft: GemmDraft) -> None:
    """ROWS over what prepares operands, or GEMM over what ends in a product itself (a chain)."""
    assert draft.product is not None
    draft.before = tuple(
        _product_before(draft, first)
        if first.product
        else run_passes(ROWS, _row_draft(draft, first), draft.dump).planned
        for first in draft.product.firsts
    )


def _product_before(draft: GemmDraft, first: First) -> Planned:
    """The kernel of a product that another one reads. Raises: Outside."""
    schedule = MMA if draft.call.schedule == MMA else TENSOR if draft.insisted else None
    call = replace(draft.call, form=first.form, dtypes=first.dtypes, schedule=schedule, launches=None)
    program = result_dtypes(program_of(first.form, first.dtypes, TILE_PROGRAM), first.results)
    made: GemmDraft = run_passes(GEMM, GemmDraft(call, program, draft.sizes, dump=draft.dump, part=True), draft.dump)
    assert made.planned is not None
    draft.behind, made.planned = made, replace(made.planned, results=first.views)
    return made.planned


def _joined(draft: GemmDraft) -> None:
    """The kernel before the product as a part of it, where there is one and that is asked for or predicted to be
    faster; ROWS once more over its schedule there. Raises: Outside where it is asked for and does not fit."""
    if draft.behind is not None and draft.launches != 2:
        _chained(draft)
        return
    default = 0 if LAUNCHES == 1 else LAUNCHES
    launches = default if draft.launches is None else draft.launches
    if not draft.before or launches == 2:
        return
    try:
        assert draft.product is not None
        if len(draft.before) > 1 or draft.product.firsts[0].product:
            several = len(draft.before) > 1
            raise Outside("both operands are prepared" if several else "what prepares its operand is a GEMM itself")
        apart, first = draft.before[0], draft.product.firsts[0]
        own = run_passes(ROWS, _row_draft(draft, first), until="schedule")
        own = run_passes(ROWS, own, since="pack", until="print")
        prepared = Prepared(first, own.program, own.printed, own.walk, apart.choice.schedule, apart.choice.seconds)
        inside, seconds, line = gemm.within(draft, prepared)
    except Outside as why:
        if launches == 1:
            raise
        draft.joined = str(why)
        return
    own = run_passes(ROWS, _row_draft(draft, first, inside.schedule), draft.dump)
    assert own.planned is not None
    draft.before, draft.joined = (), Joined(inside, own.planned, seconds, apart.choice.bytes, line)


def _chained(draft: GemmDraft) -> None:
    """Both products of a chain in one kernel, or why not. Raises: Outside where it is asked for and does not fit."""
    try:
        draft.joined = gemm.in_one_kernel(draft)
        draft.before = ()
    except Outside as why:
        if draft.launches == 1:
            raise
        draft.joined = str(why)


def _compared(draft: GemmDraft) -> None:
    """ROWS as far as their schedule: they are taken where that is predicted to be faster. Raises: Outside."""
    call = draft.call
    if draft.insisted or call.deterministic or draft.part:
        return
    assert draft.choice is not None
    if least_seconds(call.form.spec, draft.sizes, call.target) >= draft.choice.seconds:
        return
    usual = run_passes(ROWS, _rows_of(call), until="pack").choice
    assert usual is not None
    gemm.require_faster(draft, usual)


def _summed(draft: GemmDraft) -> None:
    """ROWS over the sums of all parts (split-K), behind the product that writes them."""
    if draft.parted is None:
        return
    made, partial, product = draft.call, draft.parted.partial, draft.planned
    assert product is not None and draft.choice is not None
    form = summed(partial.spec, partial.axis)
    names = {t.name for t in partial.spec.tensors}
    scratch = {
        r.name: (Operand(r.name, r.axes, r.dtype), View.contiguous(product.shapes[r.name]))
        for r in product.program.results
    }
    dtypes = {n: d for n, d in made.dtypes.items() if n in names} | dict.fromkeys(partial.names, "float32")
    views = {n: v for n, v in made.views.items() if n in names} | {n: v for n, (_, v) in scratch.items()}
    program = result_dtypes(program_of(form, dtypes, ROW_PROGRAM), {r.name: r.dtype for r in draft.program.results})
    call = replace(made, form=form, dtypes=dtypes, views=views, schedule=None)
    behind: Planned = run_passes(ROWS, RowsDraft(call, program, sizes_of(program, views)), draft.dump).planned
    reasons = (*draft.choice.reasons, *(f"behind it, {line}" for line in behind.choice.reasons[:3]))
    choice = replace(behind.choice, seconds=draft.choice.seconds, reasons=reasons)
    sizes = {**product.sizes, **behind.sizes}
    draft.planned = replace(
        behind, program=draft.program, choice=choice, sizes=sizes, before=(product,), scratch=scratch, over={}
    )


def _values(draft: LevelDraft) -> None:
    """ROWS over what varies along rows alone, or along the stream alone, and takes a reduction."""
    assert draft.parts is not None
    made = []
    for first in firsts_of(draft.parts, draft.call.dtypes):
        views = {name: draft.call.views[name] for name in first.dtypes}
        program = result_dtypes(program_of(first.form, first.dtypes, ROW_PROGRAM), first.results)
        call = replace(draft.call, form=first.form, dtypes=first.dtypes, views=views, schedule=None)
        made.append(run_passes(ROWS, RowsDraft(call, program, sizes_of(program, views))).planned)
    draft.before = tuple(made)


def _row_draft(draft: GemmDraft, first: First, schedule: Override = None) -> RowsDraft:
    """What comes before a product: like any other, but for the dtypes and strides of its results."""
    assert draft.product is not None
    call = replace(draft.call, form=first.form, dtypes=first.dtypes, schedule=schedule)
    program = result_dtypes(program_of(first.form, first.dtypes, ROW_PROGRAM), first.results)
    return RowsDraft(call, program, draft.product.sizes, first.views)


# --- the lists -------------------------------------------------------------------------------------------------------

ATTENTION = (
    Pass("match", "the program as cascades over scores that are a contraction", tile.matched),
    Pass("instruction", "multiply by wgmma or by mma.sync", tile.instructed),
    Pass("copies", "whether TMA boxes, or copies of 16 bytes, can bring operands as they lie", tile.admitted),
    Pass("tiles", "how many rows and columns tiles have, and how many are under way", tile.tiled),
    Pass("split", "splits of the stream, where rows are too few for the device", tile.split),
    Pass("frozen maximum", "a frozen maximum, with a fallback, where it is asked for", tile.frozen),
    Pass("grid", "blocks, and whether they draw tiles one by one", tile.launched),
    Pass("predict", "the time it takes, and where every part comes from", tile.predicted),
    Pass("operations", "a tile program: loads, products, maps, reductions, stores", tile.operated),
    Pass("order", "which products run under which maps", tile.ordered),
    Pass("pipeline", "stages, waits and arrivals", tile.pipelined),
    Pass("roles", "a producer that loads, and consumers that multiply and map", tile.cast),
    Pass("print", "the kernel's source", tile.sourced),
    Pass("print second", "the source of what merges splits or repeats rows", tile.followed),
    Pass("finish", "arguments of a launch, with the tensor maps of TMA boxes", tile.completed),
)
TILES = (
    Pass("tile", "the program as operations on tiles, by its contractions, maps and sums", level.tiled),
    Pass("place", "homes and lengths of tiles, by registers and shared memory", level.placed),
    Pass("skip", "blocks that a condition empties, elements beyond the end", level.skipped),
    Pass("order", "which products run under which maps", level.ordered),
    Pass("pipeline", "stages, waits and arrivals", level.pipelined),
    Pass("roles", "a producer that loads, and consumers that multiply and map", level.cast),
    Pass("tile scheduling", "persistent blocks, and the order in which they take tiles", level.scheduled),
    Pass("values", "kernels that compute what varies along one side alone: ROWS", _values),
    Pass("lower", "statements, by wgmma or by mma.sync", level.lowered),
    Pass("assembled", "arguments of a launch, with the tensor maps of TMA boxes", level.finished),
)
GEMM = (
    Pass("cut", "the spec as two operands, the last fold, and the epilogue", gemm.taken_apart),
    Pass("operands", "types that are multiplied, and operands that are read in place", gemm.read),
    Pass("tiles", "how many rows and columns tiles have, and how results are written", gemm.tiled),
    Pass("assemble", "what the kernel reads and writes, its grid, the time it takes", gemm.assembled),
    Pass("prepare", "kernels that prepare operands: ROWS", _prepared),
    Pass("join", "such a kernel inside the product's own, where that is faster", _joined),
    Pass("predict", "the time of all launches, and the reasons", gemm.explained),
    Pass("library", "products of chains left to cuBLAS or cuDNN, where these are faster", gemm.left_to_library),
    Pass("compare", "left to ROWS, where they are predicted to be faster", _compared),
    Pass("operations", "chunks that come and are multiplied, waits, arrivals, a producer and consumers", gemm.operated),
    Pass("print", "the kernel's source and its launch", gemm.sourced),
    Pass("sum", "what adds the sums of parts of the terms (split-K): ROWS", _summed),
)
ROWS = (
    Pass("walk", "how every array moves with the stream: side by side, or here and there", rows.placed),
    Pass("schedule", "who shares a row, how much of it a thread holds, and the predicted time", rows.scheduled),
    Pass("pack", "positions of extrema packed with their values", rows.packed_keys),
    Pass("watch", "sums and products that tell whether a row left the range of the reals", rows.watching),
    Pass("print", "the kernel's source; one row to a thread where neighbours differ", rows.sourced),
    Pass("launch", "the grid, and results that may be written over operands", rows.launched),
)
LISTS = (TILE_PROGRAM, ROW_PROGRAM, ATTENTION, TILES, GEMM, ROWS)
NAMES = tuple(dict.fromkeys(p.name for passes in LISTS for p in passes))


# --- on a GPU --------------------------------------------------------------------------------------------------------


def plan(
    form: Form,
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
    deterministic: bool = False,
    schedule: Override = None,
    launches: int | None = None,
    dump_after: str | None = None,
    library: str = "",
    alike: bool = False,
) -> Planned:
    """The kernel for arrays of these dtypes, shapes and strides. Needs no GPU.

    `launches`: 1 or 2 for a GEMM and what prepares an operand of it, 0 for what the model finds faster; by
    default `redalg.kernels.gemm.launches.LAUNCHES`. `dump_after`: the name of a pass, after which the draft is printed.
    `library`: whose arrays they are, where products of a chain may be left to it (`redalg.kernels.gemm.library`).
    `alike`: kernels of rows leave results of elements as the operands with their axes lie.

    Raises: RedalgError for dtypes that kernels do not read and schedules that break a law; BrokenPass.
    """
    schedule = current(schedule)
    call = Call(
        form, dtypes, views, target, deterministic, schedule, launches, library if schedule is None else "", alike
    )
    return rows.warned(_whole(call, named(dump_after, NAMES)))


def _whole(call: Call, dump: Dump = QUIET) -> Planned:
    """The kernels of a call, or of a part of one. Raises: RedalgError."""
    words, schedule, form = {*tile.WORDS, *gemm.WORDS}, call.schedule, call.form
    if any(view.array for view in call.views.values()):
        return _without_zeros(call, dump)
    draft = _rows_of(call, dump)
    if form.accuracy == COMPENSATED:
        _refuse_tiles(schedule, words)
        return _finished(ROWS, draft, dump)
    if not (schedule is None or isinstance(schedule, str) and schedule in words):
        return _finished(ROWS, draft, dump)
    program = _written(call, program_of(form, call.dtypes, TILE_PROGRAM, dump))
    found = _on_tensor_cores(call, program, draft.sizes, dump)
    if isinstance(found, Planned):
        return _or_folded(call, program, draft, _laid(call, found))
    objection, product = found
    expected = _contracts(program, product)
    others = _of_one_row(call, draft, dump) or _in_parts(call, program, draft, dump, str(objection) if expected else "")
    if others is not None:
        return others
    if schedule is not None:
        fix = f"leave the schedule out, or name one of {', '.join(FAMILIES)}"
        raise RedalgError(f"schedule={schedule!r}", "form.compile", str(objection), fix)
    if expected:
        if isinstance(objection, Lacking):
            _warn_slow(form, call.target, objection)
        draft.remarks = (f"not on tensor cores: {objection}",)
    usual = _finished(ROWS, draft, dump)
    if call.results:
        return usual
    program = program_of(form, call.dtypes, ROW_PROGRAM)
    return stacked.faster(call, program, usual, lambda part: _finished(ROWS, part, QUIET))


def _written(call: Call, program: Program) -> Program:
    """The program with results as a part of a call writes them."""
    return result_dtypes(program, {n: dtype for n, (dtype, _) in call.results.items()}) if call.results else program


def _laid(call: Call, found: Planned) -> Planned:
    """A plan whose results lie as a part of a call writes them."""
    views = {n: view for n, (_, view) in call.results.items() if view != View.contiguous(view.shape)}
    return replace(found, results={**found.results, **views}) if views else found


def _in_parts(call: Call, program: Program, draft: RowsDraft, dump: Dump, objection: str) -> Planned | None:
    """The spec in parts, where products in it are read by others (`redalg.kernels.partitioned`): with tensor cores
    where they are asked for, else where that is predicted to be faster than a kernel of rows. That depends on how many
    rows there are, and so would the bits of a row: with `deterministic` it stays in one kernel."""
    if call.deterministic or call.schedule not in (None, TENSOR):
        return None
    found = partitioned.parted(call, program, draft.sizes, _whole, _rows_folded)
    if found is None or call.schedule == TENSOR and not partitioned.on_tensor_cores(found):
        return None
    said = [f"in one kernel, not on tensor cores: {objection}"] if objection else []
    if call.schedule is None:
        least, seconds = least_seconds(call.form.spec, draft.sizes, call.target), found.choice.seconds
        if least < seconds:
            least = run_passes(ROWS, _rows_of(call), until="pack").choice.seconds
        if least <= seconds + LAUNCHED * len(found.before):
            return None
        said.append(f"in one kernel, by ordinary arithmetic: {micro(least)} at least")
    return replace(found, choice=replace(found.choice, reasons=(*found.choice.reasons, *said)))


def _or_folded(call: Call, program: Program, draft: RowsDraft, found: Planned) -> Planned:
    """What was found, or rows of a product that are reduced in parts, where these are predicted to be faster: a kernel
    that has their elements once, block after block, has few blocks where there are few rows."""
    if call.deterministic or call.schedule is not None or program.columns:
        return found
    others = partitioned.parted(call, program, draft.sizes, _whole, _rows_folded)
    return found if others is None or others.choice.seconds >= found.choice.seconds else others


def _rows_folded(call: Call, rows: Form, tensor: str, results: tuple[Result, ...]) -> Planned:
    """A product whose rows are reduced in its epilogue, by the form of the rows. Raises: RedalgError, Outside."""
    dtypes = {t.name: "float32" if t.name == tensor else call.dtypes[t.name] for t in rows.spec.tensors}
    dtype_of = {r.name: r.dtype for r in results}
    program = _written(call, program_of(call.form, call.dtypes, TILE_PROGRAM))
    behind = result_dtypes(program_of(rows, dtypes, TILE_PROGRAM), dtype_of)
    names = {o.name for o in program.operands}
    program = replace(
        program, operands=(*program.operands, *(o for o in behind.operands if o.name not in {*names, tensor}))
    )
    others = tuple(r for r in program.results if r.name != tensor)
    states = RowStates(behind, tensor, others=others)
    sizes = sizes_of(program, call.views) | sizes_of(behind, {**call.views, tensor: call.results[tensor][1]})
    draft = GemmDraft(replace(call, launches=2), program, sizes, states=states, part=True)
    made: Planned = _finished(GEMM, draft, QUIET)
    if {r.name for r in made.program.results} != dtype_of.keys():
        raise Outside("a result is made by neither the product nor its rows")
    order = {name: k for k, name in enumerate(dtype_of)}
    own = tuple(sorted(made.program.results, key=lambda r: order[r.name]))
    return _laid(call, replace(made, program=replace(made.program, results=own)))


def _of_one_row(call: Call, draft: RowsDraft, dump: Dump) -> Planned | None:
    """Vectors as matrices of one row (`redalg.kernels.reshaped`), where that is predicted to be faster than a kernel of
    rows; how many rows there are would decide, and does not with `deterministic`."""
    made = of_one_row(call, draft.sizes)
    if made is None:
        return None
    program = _written(made.call, program_of(made.call.form, call.dtypes, TILE_PROGRAM))
    found = _on_tensor_cores(made.call, program, sizes_of(program, made.call.views), dump)
    if not isinstance(found, Planned):
        return None
    usual = None if call.schedule is not None or call.deterministic else run_passes(ROWS, _rows_of(call), until="pack")
    if usual is not None and usual.choice.seconds <= found.choice.seconds:
        return None
    return _laid(call, made.told(found))


def _without_zeros(call: Call, dump: Dump) -> Planned:
    """The plan of a call with arrays whose zeros around them lie nowhere: only maps of pixels read these.

    Raises: Outside, where something else does.
    """
    if call.form.accuracy == COMPENSATED or call.schedule not in gemm.WORDS:
        raise Outside("zeros around an array are read by products of matrices alone")
    program = program_of(call.form, call.dtypes, TILE_PROGRAM, dump)
    found = _finished(GEMM, GemmDraft(call, program, sizes_of(program, call.views), dump=dump), dump)
    names, stack = {n for n, view in call.views.items() if view.array}, [found]
    while stack:
        made = stack.pop()
        stack += [*made.before, *made.inside]
        read = names & {o.name for o in made.program.operands} if not made.maps else set()
        read |= {m.operand for m in made.maps if m.pixels is None} & names
        if read:
            raise Outside(f"{', '.join(sorted(read))} is read otherwise, too")
    return found


def _refuse_tiles(schedule: Override, words: Container[object]) -> None:
    if isinstance(schedule, str) and schedule in words:
        what, why = f"schedule={schedule!r} with accuracy='compensated'", "tensor cores add in an order of their own"
        raise RedalgError(what, "form.compile", why, "leave one of them out")


def _on_tensor_cores(
    call: Call, program: Program, sizes: Mapping[str, int], dump: Dump
) -> Planned | tuple[Outside, bool]:
    """The first way that fits; else what stands against it, and whether the spec is a matrix product."""
    schedule = call.schedule
    try:
        found = _finished(ATTENTION, TileDraft(call, program, sizes), dump)
        return found if schedule is not None else _faster_chain(call, program, sizes, found, dump)
    except Outside as why:
        objection, product = why, False
    if schedule in level.WORDS:
        draft = LevelDraft(call, program, sizes)
        try:
            found = _finished(TILES, draft, dump)
            return found if schedule is not None else _faster_chain(call, program, sizes, found, dump)
        except Outside as why:
            objection = objection if draft.parts is None else why  # of a tile program, this says more
    if schedule in gemm.WORDS:
        try:
            return _product(call, program, sizes, dump)
        except NoProduct:
            pass  # what stands against the other class says more
        except Outside as why:
            objection, product = why, True
    return objection, product


def _product(call: Call, program: Program, sizes: Mapping[str, int], dump: Dump) -> Planned:
    """A matrix product; axes that are one another's rows or columns are one (`redalg.kernels.reshaped`).

    Raises: Outside.
    """
    made = coalesced(call, sizes) if call.launches is None else None
    if made is not None:
        with suppress(RedalgError, Outside):
            short = _written(made.call, program_of(made.call.form, call.dtypes, TILE_PROGRAM))
            draft = GemmDraft(made.call, short, sizes_of(short, made.call.views), dump=dump)
            return made.told(_finished(GEMM, draft, dump))
    return _finished(GEMM, GemmDraft(call, program, sizes, dump=dump), dump)


def by_tiles(
    form: Form,
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
    dump_after: str | None = None,
    asked: tuple[int, int, int] | None = None,
    schedule: str | None = TENSOR,
) -> LevelDraft:
    """The draft of a tile program for arrays of these dtypes, shapes and strides, whatever `plan` would take.

    `asked`: warpgroups of consumers, columns of a block, stages; by mma.sync warps, times 16 rows of one, columns;
    chosen by capacity where it is not given.

    Raises: Outside for what is no tile program; BrokenPass.
    """
    call, dump = Call(form, dtypes, views, target, schedule=schedule), named(dump_after, NAMES)
    program = program_of(form, dtypes, TILE_PROGRAM, dump)
    found = run_passes(TILES, LevelDraft(call, program, sizes_of(program, views), asked), dump)
    assert isinstance(found, LevelDraft)
    return found


def plans(
    form: Form,
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
    deterministic: bool = False,
    schedule: Override = None,
    library: str = "",
    alike: bool = False,
) -> Iterator[Planned]:
    """The plan of a call, then those to go on with where the device refuses to launch it; none for one by name."""
    first = plan(form, dtypes, views, target, deterministic, schedule, library=library, alike=alike)
    yield first
    if schedule is not None:
        return
    call = Call(form, dtypes, views, target, deterministic, alike=alike)
    refused = first.choice.schedule
    if first.module.threads or first.before:  # on tensor cores, or in parts
        with suppress(RedalgError, Outside):
            other = plan(form, dtypes, views, target, deterministic, MMA)
            if other.module.source != first.module.source:
                yield other
        usual = _finished(ROWS, _rows_of(call), QUIET)
        refused = usual.choice.schedule
        yield usual
    program, sizes, walk = situation(form, dtypes, views)
    for s in lesser(Case.of(program, sizes, walk, target), refused, deterministic):
        yield _finished(ROWS, _rows_of(replace(call, schedule=s)), QUIET)


def _faster_chain(call: Call, program: Program, sizes: Mapping[str, int], found: Planned, dump: Dump) -> Planned:
    """What was found, or products one after the other, through memory, where these are predicted to be faster."""
    try:
        draft = run_passes(GEMM, GemmDraft(call, program, sizes), QUIET, until="operands")
        if not any(draft.made.chained):
            return found
        chain = _finished(GEMM, draft, QUIET)
    except Outside:
        return found
    if chain.choice.seconds >= found.choice.seconds:
        return found
    return chain if dump is QUIET else _finished(GEMM, GemmDraft(call, program, sizes, dump=dump), dump)


def _rows_of(call: Call, dump: Dump = QUIET) -> RowsDraft:
    """A call as kernels of rows compute it."""
    program = _written(call, program_of(call.form, call.dtypes, ROW_PROGRAM, dump))
    words = {*tile.WORDS, *gemm.WORDS}
    schedule = None if isinstance(call.schedule, str) and call.schedule in words else call.schedule
    sizes = sizes_of(program, call.views)
    others = (
        ()
        if call.form.accuracy == COMPENSATED
        else tiled_programs(call.form, call.dtypes, program, sizes, call.deterministic)
    )
    own = not any(t.array or t.dimensions for t in call.form.spec.tensors)
    results = rows.lying_alike(program, call.views, sizes) if call.alike else {}
    results |= {n: view for n, (_, view) in call.results.items() if view != View.contiguous(view.shape)}
    call, watches = replace(call, schedule=schedule), WATCHES and own and not call.results
    written = tuple((_written(call, other), lengths) for other, lengths in others)
    return RowsDraft(call, program, sizes, results, others=written, watches=watches)


def _finished(passes: Sequence[Pass], draft: Any, dump: Dump) -> Planned:
    planned = run_passes(passes, draft, dump).planned
    assert isinstance(planned, Planned)
    return planned


def _warn_slow(form: Form, target: Target, why: Lacking) -> None:
    """That a product of narrow matrices runs without tensor cores, which is far from what the device can do."""
    what = f"{', '.join(form.spec.outputs)} without tensor cores on {target.name}"
    where, fix = "form.compile", "torch.matmul (or cuBLAS) for the product, and a form for what comes before it"
    warnings.warn(
        str(RedalgError(what, where, str(why), fix)).replace("refused: ", "slow: ", 1), UserWarning, stacklevel=3
    )


def _contracts(program: Program, product: bool) -> bool:
    """Whether narrow tensors are multiplied: what someone would expect tensor cores for."""
    narrow = sum(o.dtype in (*TYPES, *FLOAT8) for o in program.operands if not o.number)
    if product and narrow:
        return True
    return bool(program.passes) and narrow > 1 and bool(program.inner or program.columns)


def situation(form: Form, dtypes: Mapping[str, Any], views: Mapping[str, View]) -> tuple[Program, dict[str, int], Walk]:
    """The program of a call as kernels of rows run it, the lengths of its axes, and how its arrays lie in memory."""
    program = program_of(form, dtypes, ROW_PROGRAM)
    sizes = sizes_of(program, views)
    draft = run_passes(ROWS, RowsDraft(Call(form, dtypes, views, TABLE[0]), program, sizes), until="schedule")
    assert draft.walk is not None
    return program, sizes, draft.walk


def typical(form: Form, schedule: Override, deterministic: bool) -> Planned:
    """A plan for contiguous float32 arrays of moderate size on the first device."""
    sizes = typical_sizes(form)
    views = {t.name: View.usual(t, sizes) for t in form.spec.tensors if t.axes}
    return plan(form, usual_dtypes(form, "float32"), views, driver.target_of(0), deterministic, schedule)


def typical_sizes(form: Form) -> dict[str, int]:
    """Moderate lengths of all axes, longer ones of those that are streamed."""
    return dict.fromkeys(form.spec.axes, 64) | dict.fromkeys(form.plan.axis, 4096)


def wgmma_tiles(
    made: Class, sizes: Mapping[str, int], views: Mapping[str, View], target: Target, deterministic: bool = False
) -> tuple[Class, TensorPlan]:
    """The tiles of a program of the class for arrays of these shapes, and the class as it is printed.

    Raises: Outside for shapes, strides or devices they do not fit.
    """
    call = Call(None, {}, views, target, deterministic)  # type: ignore[arg-type]  # from here on no pass reads a form
    return _tiled(TileDraft(call, made.program, sizes, made))


def mma_tiles(
    made: Class, sizes: Mapping[str, int], views: Mapping[str, View], target: Target, deterministic: bool = False
) -> tuple[Class, MmaPlan]:
    """The same by mma.sync."""
    call = Call(None, {}, views, target, deterministic)  # type: ignore[arg-type]
    made, tiles = _tiled(TileDraft(call, made.program, sizes, made, by_mma=True))
    assert isinstance(tiles, MmaPlan)
    return made, tiles


def _tiled(draft: TileDraft) -> tuple[Class, TensorPlan]:
    found: TileDraft = run_passes(ATTENTION, draft, since="copies", until="frozen maximum")
    return found.settled
