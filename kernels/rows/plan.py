"""Passes of kernels of rows: how arrays lie, which schedule, how its kernel is printed, how it is launched."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View, Walk, memory_order, walk_of
from redalg.kernels.ir.program import STORAGE, Module, Program, Watch, result_key
from redalg.kernels.ir.schedule import ALONE, Neighbours, Schedule, partial_sums
from redalg.kernels.launch.driver import Geometry
from redalg.kernels.launch.in_place import in_place
from redalg.kernels.launch.planned import Kernel, Planned
from redalg.kernels.lower.draft import Call, program_text
from redalg.kernels.lower.packed_keys import packed
from redalg.kernels.lower.tilings import shared_axes
from redalg.kernels.lower.watched import watched
from redalg.kernels.rows import outer
from redalg.kernels.rows.kernel import emit
from redalg.kernels.schedule.choose import Choice, choose
from redalg.kernels.schedule.outer import Outer
from redalg.kernels.schedule.outer_cost import choose_outer

WORTH_TELLING = 3  # times what memory takes
LONG = 1e-3  # seconds from which on more than that is warned of


@dataclass
class RowsDraft:
    """A kernel of rows under way. Each field is written by one pass and read by later ones.

    ``others``: programs of the same results with other states, and the lengths of their axes; the fastest becomes
    ``program``, and ``whole`` is the one a call knows. ``results``: where results lie that are not contiguous (scratch
    of another kernel); ``neighbours``: other kernels of the same call; ``printed``: the program as the kernel computes
    it; ``watches``: whether rows that leave the range of the reals get marks.
    """

    call: Call
    program: Program
    sizes: Mapping[str, int]
    results: Mapping[str, View] = field(default_factory=dict)
    neighbours: Neighbours = ALONE
    remarks: tuple[str, ...] = ()
    others: Sequence[tuple[Program, Mapping[str, int]]] = ()
    watches: bool = False
    whole: Program | None = None
    walk: Walk | None = None
    walks: Sequence[Walk] = ()
    choice: Choice | None = None
    outer: Outer | None = None
    printed: Program | None = None
    module: Module | None = None
    planned: Planned | None = None

    def text(self) -> str:
        """The draft in lines, as ``dump_after=`` prints it."""
        if self.module is not None:
            return self.module.source
        if self.printed is not None:
            return program_text(self.printed)
        if self.choice is not None:
            return "\n".join([repr(self.choice.schedule), repr(self.choice.layout), *self.choice.reasons])
        return "\n".join(map(repr, self.walk.arrays)) if self.walk is not None else program_text(self.program)


def sizes_of(program: Program, views: Mapping[str, View]) -> dict[str, int]:
    """The lengths of a program's axes in a call."""
    sizes = dict(program.lengths)
    for o in program.operands:
        sizes |= zip(o.axes, views[o.name].shape, strict=True) if o.name in views else ()
    return sizes


def lying_alike(program: Program, views: Mapping[str, View], sizes: Mapping[str, int]) -> dict[str, View]:
    """How results of elements lie that do as the first operand with their axes does, where that is not row-major: as
    results of element-wise operations of NumPy, PyTorch and CuPy lie, what is read and what is written is walked alike.
    """
    found = {}
    for r in program.results:
        like = next((o for o in program.operands if sorted(o.axes) == sorted(r.axes)), None)
        if not r.keeps or like is None or like.name not in views:
            continue
        steps = dict(zip(like.axes, views[like.name].strides, strict=True))
        shape = tuple(sizes[a] for a in r.axes)
        order = memory_order(shape, [steps[a] for a in r.axes])
        if order != tuple(range(len(shape))):
            packed = View.contiguous(tuple(shape[d] for d in order)).strides
            found[r.name] = View(shape, tuple(packed[order.index(d)] for d in range(len(shape))))
    return found


def placed(draft: RowsDraft) -> None:
    """How every array moves with the stream: side by side, row by row, or here and there."""
    made = {
        r.key: View.contiguous(tuple(draft.sizes[a] for a in r.axes)) for r in draft.program.results if not r.summed
    }
    own = {result_key(name): view for name, view in draft.results.items()}
    draft.walk = walk_of(draft.program, {**draft.call.views, **made, **own})
    draft.walks = [walk_of(program, {**draft.call.views, **made, **own}) for program, _ in draft.others]


def scheduled(draft: RowsDraft) -> None:
    """Who shares a row, and how much of it a thread holds (`redalg.kernels.schedule.choose`)."""
    assert draft.walk is not None
    draft.whole = draft.program
    ways = [(draft.program, draft.sizes, draft.walk)]
    ways += [(*other, walk) for other, walk in zip(draft.others, draft.walks, strict=True)]
    shared = _shared_out(draft)
    asked = shared is not None and draft.call.schedule is not None
    choice = shared[0] if shared is not None and asked else _fastest(draft, ways)
    if shared is not None and (asked or shared[0].seconds < choice.seconds):
        choice, draft.outer = shared
        draft.program, draft.sizes, draft.walk = ways[0]
    lost = _lost(draft, choice)
    remarks = (*draft.remarks, *([lost] if lost else []))
    draft.choice = (
        replace(choice, reasons=choice.reasons + remarks, slow=_slow(draft, choice, lost)) if remarks else choice
    )


def _fastest(draft: RowsDraft, ways: Sequence[tuple[Program, Mapping[str, int], Walk]]) -> Choice:
    """The best choice among equal programs, which the draft goes on with. Raises: RedalgError where none has one."""
    found: list[tuple[Choice, tuple[Program, Mapping[str, int], Walk]]] = []
    refused = None
    for program, sizes, walk in ways:
        call = draft.call
        try:
            choice = choose(program, sizes, walk, call.target, call.deterministic, call.schedule)
            found.append((choice, (program, sizes, walk)))
        except RedalgError as why:
            refused = why
    if not found:
        assert refused is not None
        raise refused
    choice, (draft.program, draft.sizes, draft.walk) = min(found, key=lambda pair: pair[0].seconds)
    return choice


def _shared_out(draft: RowsDraft) -> tuple[Choice, Outer] | None:
    """Blocks that share out a state along two axes, as asked for, or as is fastest; None where that is not possible."""
    call, program = draft.call, draft.program
    asked = call.schedule
    wanted = asked if isinstance(asked, Schedule) else Schedule(**asked) if isinstance(asked, Mapping) else None
    if asked is not None and not (wanted is not None and wanted.entries):
        return None
    assert draft.walk is not None
    found = choose_outer(
        program, draft.sizes, draft.walk, call.views, call.target, call.deterministic, wanted, draft.results
    )
    if found is None and wanted is not None:
        why = "no two axes of a state vary apart in what is read of an element"
        raise RedalgError(f"schedule={asked!r}", "form.compile", why, "leave entries= out")
    return found


def _lost(draft: RowsDraft, choice: Choice) -> str:
    """What a kernel loses that adds every element to many entries of a state by ordinary arithmetic."""
    program, factor = draft.program, _factor(draft, choice)
    if factor < WORTH_TELLING or not program.passes or program.keeps:
        return ""
    if program.columns:
        why = (
            f"the state holds arrays along {', '.join(program.columns)}, to which a warp adds one element after another"
        )
    elif axes := ", ".join(shared_axes(draft.whole or program, draft.sizes)):
        tiles = {p.outer: str(p.tile) for p in program.places.values() if p.outer}
        tiles |= dict.fromkeys(draft.outer.axes if draft.outer else (), str(choice.schedule.entries))
        held = f", in tiles of {' by '.join(tiles.values())}" if tiles else ""
        why = f"every element is added to all entries of the state along {axes} by ordinary arithmetic{held}"
    else:
        return ""
    return f"{why}: predicted to take {factor:.0f} times as long as reading and writing take."


def _factor(draft: RowsDraft, choice: Choice) -> float:
    """How many times longer it takes than reading and writing everything once does."""
    target = draft.call.target
    return choice.seconds / (choice.moved / target.reachable + target.launch)


def _slow(draft: RowsDraft, choice: Choice, lost: str) -> str:
    """What is warned of where a kernel that is launched loses much time."""
    if not lost or choice.seconds < LONG:
        return ""
    times = f"{choice.seconds * 1e3:.1f} ms, {_factor(draft, choice):.0f} times as long as reading and writing take"
    what = f"{draft.program.name} on {draft.call.target.name}: {times}"
    fix = "a product of matrices (torch.matmul, cuBLAS), where the spec is one"
    return str(RedalgError(what, "form.compile", lost.partition(":")[0], fix)).replace("refused: ", "slow: ", 1)


def warned(found: Planned) -> Planned:
    """A plan that is taken, once its kernels have warned where they lose much time; those that it was compared with
    say nothing."""
    waiting = [found]
    while waiting:
        made = waiting.pop()
        waiting += made.before
        if made.choice.slow:
            warnings.warn(made.choice.slow, UserWarning, stacklevel=3)
    return found


def packed_keys(draft: RowsDraft) -> None:
    """Positions of extrema packed with their values."""
    draft.printed = packed(draft.program)


def watching(draft: RowsDraft) -> None:
    """What tells of rows that leave the range of the reals, where a call has one kernel whose rows are the spec's."""
    program = draft.printed
    assert program is not None
    apart = program.columns or program.summed or program.places or draft.outer is not None or draft.results
    if draft.watches and not apart:
        found = watched(program)
        sums = (_looked_at(program, w) for w in found.watched if not w.extremum)
        draft.printed = replace(found, watched=tuple(w for w in sums if w.above or w.factors))


def _looked_at(program: Program, w: Watch) -> Watch:
    """What is watched of a sum: not what vanishes of products of all elements, and of sums over further axes."""
    axes = {o.name: {*o.axes} - {*program.rows, *program.stream} for o in program.operands}
    return replace(w, product=False, factors=() if any(axes[f.tensor] for f in w.factors) else w.factors)


def sourced(draft: RowsDraft) -> None:
    """The kernel's source; with one row to a thread where neighbours cannot be walked together."""
    assert draft.choice is not None and draft.printed is not None
    choice = draft.choice
    if draft.outer is not None:
        draft.module = outer.emit(draft.printed, choice.schedule, choice.layout, draft.outer)
        return
    try:
        draft.module = emit(draft.printed, choice.schedule, choice.layout, draft.neighbours)
    except ValueError as problem:
        if choice.schedule.coarsen == 1:
            raise
        alone = replace(choice.schedule, coarsen=1)
        reasons = (*choice.reasons, f"one row to a thread: there is {problem}")
        draft.choice = replace(choice, schedule=alone, reasons=reasons)
        draft.module = emit(draft.printed, alone, choice.layout, draft.neighbours)


def _early(draft: RowsDraft, geometry: Geometry) -> bool:
    """Whether the kernel begins while the one before it ends: alone on the stream behind it, without counters that are
    cleared between both, and without barriers across its blocks."""
    assert draft.module is not None
    cleared = any(p.role == "scratch" and p.dtype == "uint32" for p in draft.module.params)
    return draft.neighbours.before and draft.outer is None and geometry.waiting == 1 and not cleared


def launched(draft: RowsDraft) -> None:
    """The grid, and which results may be written over operands."""
    assert draft.choice is not None and draft.module is not None
    program, s = draft.program, draft.choice.schedule
    own = tuple(a for a in program.rows if draft.outer is None or a not in draft.outer.axes)
    rows = prod(draft.sizes[a] for a in own) * (draft.outer.areas if draft.outer is not None else 1)
    waiting = s.split if s.persistent and (program.keeps or s.entries) else 1
    geometry = Geometry(-(-rows // s.rows_per_block) * s.split * s.cluster, s.block, s.cluster, s.persistent, waiting)
    results = dict(draft.results)
    if draft.choice.blocks is not None:  # the grid is what the partial sums say, however many blocks run at once
        geometry = Geometry(draft.choice.blocks, s.block, s.cluster)
        parts = partial_sums(s, draft.choice.blocks, STORAGE[program.real])
        whole = View.contiguous((parts, *(draft.sizes[a] for a in program.stream)))
        results |= {r.name: whole for r in program.summed}
    geometry = replace(geometry, early=_early(draft, geometry))
    over = {} if rows % s.neighbours else in_place(program)  # else threads read what another may have overwritten
    kernel = Kernel(draft.module, geometry)
    draft.planned = Planned(_known(draft, own), draft.choice, kernel, draft.sizes, results=results, over=over)


def _known(draft: RowsDraft, rows: tuple[str, ...]) -> Program:
    """The program as a call knows it: whole arrays, the rows of the kernel, and what the kernel watches."""
    assert draft.module is not None and draft.printed is not None
    found = draft.program
    if draft.whole is not None:
        found = replace(draft.whole, rows=rows, columns=found.columns)
    marks = any(p.role == "marks" for p in draft.module.params)
    return replace(found, watched=draft.printed.watched) if marks else found
