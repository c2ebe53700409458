"""Rows and sums over them, which read the same arrays: in one reading, or by kernels side by side.

`planned` takes the faster of two ways, both by the passes of `redalg.kernels.pipeline.ROWS`. In one reading, elements
of sums are results of the rows' kernel, which threads of a persistent grid add over their rows
(`redalg.kernels.rows.sums`); a second kernel is the form over partial sums. Where rows are so few that a block has one,
there are as many partial sums as elements: then each spec has a kernel of its own, and the next one begins while one
runs. It raises `Outside` where the specs are none of rows and sums over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels.gemm.plan import result_dtypes
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Operand, Program, Result
from redalg.kernels.ir.schedule import ALONE, Neighbours
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.pipeline import ROWS
from redalg.kernels.programs import ROW_PROGRAM, program_of, run_passes, usual_dtypes
from redalg.kernels.rows.plan import RowsDraft, sizes_of
from redalg.kernels.schedule.choose import Override, micro, size
from redalg.kernels.schedule.target import DEPENDENT, Target
from redalg.kernels.tile.match import Outside

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.joint import Joint

# What the model predicts of kernels side by side counts so many times, where L2 keeps what the first has read for the
# next, and where it does not: of 17 cells of norms that were measured both ways (H100, 2026-11-26), numbers from 1.02
# to 1.07 and from 1.22 to 1.44 take none of the slower ways.
NEAR, FAR = 1.05, 1.35


def planned(
    joint: Joint, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target, schedule: Override = None
) -> Planned:
    """The kernels for arrays of these dtypes, shapes and strides. `schedule`: of the rows in one reading, which is not
    compared then.

    Raises: Outside, with the reason why the specs run one after the other; RedalgError for a schedule that breaks a
    law.
    """
    program = program_of(joint.rows, dtypes, ROW_PROGRAM)
    _require_rows(joint, program)
    sizes = sizes_of(program, views)
    if not prod(sizes[a] for a in (*program.rows, *program.stream)):
        raise Outside("there are no elements")
    apart = [alone(form, dtypes, views, target) for form in joint.forms]
    wanted = {r.name: r for p, _ in apart for r in p.results}
    results = tuple(wanted[n] for n in joint.spec.outputs)
    call = Call(joint.rows, dtypes, views, target, schedule=schedule)
    if schedule is not None:
        return _one_reading(joint, call, program, results)
    several = _seconds(joint, apart, views, target)
    try:
        found = _one_reading(joint, call, program, results)
        together = found.choice.seconds
        why = f"{micro(together)} are predicted in one reading"
    except Outside as refused:
        found, together, why = None, inf, str(refused)
    if found is None or several <= together:
        why = f"{why}, and {micro(several)} in several"
        return _side_by_side(joint, call, results, several, why)
    reasons = (*found.choice.reasons, f"{micro(together)} in all, {micro(several)} in several readings.")
    return replace(found, choice=replace(found.choice, reasons=reasons))


def _seconds(joint: Joint, apart: Sequence[tuple[Program, float]], views: Mapping[str, View], target: Target) -> float:
    """Of kernels side by side, of which one's launch is hidden by the one before."""
    seconds = sum(seconds for _, seconds in apart) - (len(apart) - 1) * target.launch * (target.cc >= DEPENDENT)
    whole = {*joint.spec.axes}
    read = {o.name: o.dtype for program, _ in apart for o in program.operands if {*o.axes} == whole}
    size = sum(prod(views[name].shape) * STORAGE[dtype] for name, dtype in read.items())
    return seconds * (NEAR if size <= target.l2 else FAR)


def _one_reading(joint: Joint, call: Call, program: Program, results: tuple[Result, ...]) -> Planned:
    """The kernels of one reading: of rows, and of the partial sums of these. Raises: Outside, RedalgError."""
    program = replace(program, results=tuple(_summed(r, program, joint.elements) for r in program.results))
    try:
        draft = RowsDraft(call, program, sizes_of(program, call.views))
        own: Planned = run_passes(ROWS, draft).planned
    except RedalgError as why:
        if call.schedule is not None:
            raise
        raise Outside(f"{why.why}") from why
    sums, scratch = _sums(joint, own, call.dtypes, call.views, call.target)
    names = ", ".join(sums.shapes)
    taken = sum(prod(view.shape) * STORAGE[operand.dtype] for operand, view in scratch.values())
    parts = next(iter(scratch.values()))[1].shape[0]
    seconds = own.choice.seconds + sums.choice.seconds
    reasons = (
        f"one reading for {', '.join(r.name for r in results)}: {names} are added over rows by their threads.",
        *own.choice.reasons,
        f"{parts} partial sums ({size(taken)}) in a fixed order by a second kernel, predicted "
        f"{micro(sums.choice.seconds)}.",
    )
    choice = replace(own.choice, reasons=reasons, seconds=seconds, registers=sums.choice.registers)
    whole = replace(sums.program, results=results)
    every = {**own.sizes, **sums.sizes}
    return Planned(whole, choice, sums.kernel, every, before=(own,), scratch=scratch, over=own.over)


def _side_by_side(joint: Joint, call: Call, results: tuple[Result, ...], seconds: float, why: str) -> Planned:
    """A kernel for each of the specs: none reads what another writes, so that they run at the same time, where one
    leaves room for the next."""
    made: list[Planned] = []
    last = len(joint.forms) - 1
    for number, form in enumerate(joint.forms):
        program = _program(form, call.dtypes)
        names = {o.name for o in program.operands}
        own = replace(call, form=form, views={n: v for n, v in call.views.items() if n in names})
        neighbours = Neighbours(number > 0, number < last) if call.target.cc >= DEPENDENT else ALONE
        draft = RowsDraft(own, program, sizes_of(program, own.views), neighbours=neighbours)
        made.append(run_passes(ROWS, draft).planned)
    told = (r for p in made for r in (f"{', '.join(p.shapes)}:", *(f"  {x}" for x in p.choice.reasons)))
    reasons = (f"{len(made)} kernels side by side, each with a reading of its own: {why}.", *told)
    choice = replace(made[-1].choice, reasons=reasons, seconds=seconds)
    every = {a: n for p in made for a, n in p.sizes.items()}
    whole = replace(made[-1].program, results=results)
    return replace(made[-1], program=whole, choice=choice, sizes=every, before=tuple(made[:-1]), over={})


def _require_rows(joint: Joint, program: Program) -> None:
    """Raises: Outside."""
    if program.stream != joint.along or program.columns or not program.passes:
        raise Outside("rows hold no reduction along one stream")
    found = {r.name: r for r in program.results}
    whole = {*program.rows, *program.stream}
    for name in joint.elements:
        if not found[name].keeps or {*found[name].axes} != whole or "float" not in found[name].dtype:
            raise Outside(f"{name} is no element of every place of the rows")


def _summed(r: Result, program: Program, elements: Mapping[str, str]) -> Result:
    return replace(r, summed=True, dtype=program.real) if r.name in elements else r


def _sums(
    joint: Joint, rows: Planned, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target
) -> tuple[Planned, dict[str, tuple[Operand, View]]]:
    """The kernel that adds up partial sums, and where these lie."""
    program = rows.program
    axes = (joint.parts, *program.stream)
    scratch = {name: (Operand(name, axes, program.real), rows.results[name]) for name in joint.elements}
    names = {t.name for t in joint.sums.spec.tensors}
    given = {n: d for n, d in dtypes.items() if n in names} | dict.fromkeys(scratch, program.real)
    lying = {n: v for n, v in views.items() if n in names} | {n: view for n, (_, view) in scratch.items()}
    own = program_of(joint.sums, given, ROW_PROGRAM)
    wanted = {r.name: r.dtype for form in joint.forms for r in _program(form, dtypes).results}
    own = result_dtypes(own, {r.name: wanted[r.name] for r in own.results})
    call = Call(joint.sums, given, lying, target)
    draft = RowsDraft(call, own, sizes_of(own, lying))
    return run_passes(ROWS, draft).planned, scratch


def _program(form: Form, dtypes: Mapping[str, Any]) -> Program:
    names = {t.name for t in form.spec.tensors}
    return program_of(form, {n: d for n, d in dtypes.items() if n in names}, ROW_PROGRAM)


def alone(form: Form, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target) -> tuple[Program, float]:
    """One of the specs apart as kernels of rows compute it, and the seconds that is predicted to take."""
    program = _program(form, dtypes)
    names = {o.name for o in program.operands}
    own = Call(form, dtypes, {n: v for n, v in views.items() if n in names}, target)
    draft = run_passes(ROWS, RowsDraft(own, program, sizes_of(program, own.views)), until="pack")
    return program, draft.choice.seconds


def typical(joint: Joint, target: Target) -> Planned:
    """A plan for contiguous float32 arrays of moderate size."""
    sizes = dict.fromkeys(joint.spec.axes, 64) | dict.fromkeys(joint.along, 1024)
    views = {t.name: View.contiguous(tuple(sizes[a] for a in t.axes)) for t in joint.spec.tensors if t.axes}
    return planned(joint, usual_dtypes(joint.rows, "float32"), views, target, {})


__all__ = ["alone", "planned", "typical"]
