"""Rows and sums over them in one reading: a kernel of rows that adds up elements, and one for its partial sums.

`planned` makes both kernels by the passes of `redalg.kernels.pipeline.ROWS`. In the first, elements of sums are results
that threads of a persistent grid add over their rows (`redalg.kernels.rows.sums`); the second is the form over partial
sums, an ordinary one. It raises `Outside` where rows do not fit blocks or clusters with such sums, and where the specs
one after the other are predicted to take no longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels.gemm.plan import result_dtypes
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Operand, Program, Result
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.pipeline import ROWS
from redalg.kernels.programs import ROW_PROGRAM, program_of, run_passes, usual_dtypes
from redalg.kernels.rows.plan import RowsDraft, sizes_of
from redalg.kernels.schedule.choose import Override, micro, size
from redalg.kernels.schedule.target import Target
from redalg.kernels.tile.match import Outside

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.joint import Joint

# What the model predicts of specs one after the other counts so many times: of 32 cells of norms that were measured
# both ways (H100, 2026-11-25), numbers from 1.7 to 2 take the slower way least often and lose least by it. Sums over
# rows by columns of narrow tensors are predicted too fast.
APART = 1.8


def planned(
    joint: Joint, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target, schedule: Override = None
) -> Planned:
    """The kernels for arrays of these dtypes, shapes and strides. `schedule`: of the rows; then nothing is compared.

    Raises: Outside, with the reason why the specs run one after the other; RedalgError for a schedule that breaks a
    law.
    """
    program = program_of(joint.rows, dtypes, ROW_PROGRAM)
    _require_rows(joint, program)
    program = replace(program, results=tuple(_summed(r, program, joint.elements) for r in program.results))
    sizes = sizes_of(program, views)
    if not prod(sizes[a] for a in (*program.rows, *program.stream)):
        raise Outside("there are no elements")
    try:
        rows = run_passes(ROWS, RowsDraft(Call(joint.rows, dtypes, views, target, schedule=schedule), program, sizes))
    except RedalgError as why:
        if schedule is not None:
            raise
        raise Outside(f"{why.why}") from why
    own: Planned = rows.planned
    sums, scratch = _sums(joint, own, dtypes, views, target)
    apart = [alone(form, dtypes, views, target) for form in joint.forms]
    together, after = own.choice.seconds + sums.choice.seconds, APART * sum(seconds for _, seconds in apart)
    if schedule is None and after <= together:
        raise Outside(f"{micro(together)} are predicted in one reading, and {micro(after)} one after the other")
    made = {r.name: r for p, _ in apart for r in p.results}
    names = ", ".join(sums.shapes)
    taken = sum(prod(view.shape) * STORAGE[operand.dtype] for operand, view in scratch.values())
    parts = next(iter(scratch.values()))[1].shape[0]
    reasons = (
        f"one reading for {', '.join(made)}: {names} are added over rows by the threads that compute these.",
        *own.choice.reasons,
        f"{parts} partial sums ({size(taken)}) in a fixed order by a second kernel, predicted "
        f"{micro(sums.choice.seconds)}: {micro(together)} in all, {micro(after)} one after the other.",
    )
    choice = replace(own.choice, reasons=reasons, seconds=together, registers=sums.choice.registers)
    whole = replace(sums.program, results=tuple(made[n] for n in joint.spec.outputs))
    every = {**own.sizes, **sums.sizes}
    return Planned(whole, choice, sums.kernel, every, before=(own,), scratch=scratch, over=own.over)


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
    draft = RowsDraft(Call(joint.sums, given, lying, target), own, sizes_of(own, lying))
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
