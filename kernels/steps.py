"""Sums along innermost axes first, then what is small, then what is wide: specs in steps as kernels of one launch.

`planned` makes a kernel of rows for each step by the passes of `redalg.kernels.pipeline.ROWS`; what later steps read of
earlier ones lies in scratch, in the precision that kernels calculate in. Of all ways (`redalg.gradients.steps`), one
reading of the rows among them, the one that is predicted to be the fastest is taken. It raises `Outside` where that is
the specs one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from redalg.errors import RedalgError
from redalg.kernels import joint as one_reading
from redalg.kernels.gemm.plan import result_dtypes
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Operand
from redalg.kernels.ir.schedule import Neighbours
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.pipeline import ROWS
from redalg.kernels.programs import ROW_PROGRAM, program_of, run_passes, usual_dtypes
from redalg.kernels.rows.plan import RowsDraft, sizes_of
from redalg.kernels.schedule.choose import Override, micro, size
from redalg.kernels.schedule.target import DEPENDENT, EARLIER, Target
from redalg.kernels.tile.match import Outside

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.gradients.steps import Steps

Scratch = dict[str, tuple[Operand, View]]


def planned(
    steps: Steps, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target, schedule: Override = None
) -> Planned:
    """The kernels for arrays of these dtypes, shapes and strides. `schedule`: {} takes the best way without comparing
    it with the specs one after the other.

    Raises: Outside, with the reason why the specs run one after the other.
    """
    _require_floats(dtypes, views)
    held = [(t.axes, views[t.name].shape) for t in steps.spec.tensors if t.name in views]
    lengths = {a: n for own, shape in held for a, n in zip(own, shape, strict=True)}
    units, narrow = steps.narrowed(a for a, n in lengths.items() if n == 1)
    if narrow is None:
        return _planned(steps, dtypes, views, target, schedule)
    axes = {t.name: t.axes for t in steps.spec.tensors} | dict(steps.spec.output_axes)
    kept = {n: [d for d, a in enumerate(own) if a not in units] for n, own in axes.items()}
    own = {n: _some(view, kept[n]) for n, view in views.items()}
    make: Any = one_reading.planned if hasattr(narrow, "elements") else _planned
    return _widened(make(narrow, dtypes, own, target, schedule), axes, kept, dict.fromkeys(units, 1))


def _some(view: View, dims: list[int]) -> View:
    """An array without its other dimensions, whose length is 1."""
    return replace(view, shape=tuple(view.shape[d] for d in dims), strides=tuple(view.strides[d] for d in dims))


def _widened(
    made: Planned, axes: Mapping[str, tuple[str, ...]], kept: Mapping[str, list[int]], units: Mapping[str, int]
) -> Planned:
    """A plan over arrays without axes of length 1 as one over the arrays of a call."""
    params = tuple(
        replace(p, dim=kept[p.name][p.dim]) if "stride" in p.role and p.name in kept else p for p in made.module.params
    )
    kernel = made.kernel._replace(module=replace(made.module, params=params))
    results = tuple(replace(r, axes=axes.get(r.name, r.axes)) for r in made.program.results)
    program = replace(made.program, results=results)
    before = tuple(_widened(b, axes, kept, units) for b in made.before)
    return replace(made, program=program, kernel=kernel, sizes={**made.sizes, **units}, before=before)


def _planned(
    steps: Steps, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target, schedule: Override
) -> Planned:
    apart = [one_reading.alone(form, dtypes, views, target) for form in steps.forms]
    wanted = {r.name: r for program, _ in apart for r in program.results}
    best = _best(steps, wanted, dtypes, views, target)
    together, seconds = best.choice.seconds, sum(seconds for _, seconds in apart)
    one = _one_reading(steps, dtypes, views, target)
    if one is not None and one.choice.seconds < min(together, seconds):
        return one
    if schedule is None and seconds <= together:
        raise Outside(f"{micro(together)} are predicted in steps, and {micro(seconds)} one after the other")
    taken = sum(prod(view.shape) * STORAGE[operand.dtype] for operand, view in best.scratch.values())
    reasons = (
        f"{len(best.before) + 1} kernels in steps for {', '.join(steps.spec.outputs)}, with {size(taken)} between: "
        f"predicted {micro(together)}, and {micro(seconds)} for the specs one after the other.",
        *(f"  {_told(step)}" for step in (*best.before, best)),
    )
    whole = replace(best.program, results=tuple(wanted[n] for n in steps.spec.outputs))
    return replace(best, program=whole, choice=replace(best.choice, reasons=reasons))


def _one_reading(steps: Steps, dtypes: Mapping[str, Any], views: Mapping[str, View], target: Target) -> Planned | None:
    """The kernels that write rows and sums over them in one reading, where rows can be held with such sums."""
    if steps.joint is None:
        return None
    try:
        return one_reading.planned(steps.joint, dtypes, views, target, {})
    except RedalgError:
        return None


def _require_floats(dtypes: Mapping[str, Any], views: Mapping[str, View]) -> None:
    """Raises: Outside."""
    if any("float" not in str(d) for n, d in dtypes.items() if n in views):
        raise Outside("steps pass floats to one another, and a tensor holds other numbers")
    if not prod(n for view in views.values() for n in view.shape):
        raise Outside("there are no elements")


def _best(
    steps: Steps,
    wanted: Mapping[str, Any],
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
) -> Planned:
    """The way that is predicted to be the fastest. Raises: Outside, where a step of every way has no kernel."""
    found, why = [], ""
    for number in range(len(steps.ways)):
        try:
            found.append(_way(steps.stepwise(number), wanted, dtypes, views, target))
        except RedalgError as refused:
            why = refused.why
    if not found:
        raise Outside(f"a step has no kernel of rows: {why}")
    return min(found, key=lambda made: made.choice.seconds)


def _told(step: Planned) -> str:
    """A step in a line: what it makes, and how its rows are shared."""
    return f"{', '.join(r.name for r in step.program.results)}: {step.choice.reasons[0]}"


def _way(
    forms: tuple[Form, ...],
    wanted: Mapping[str, Any],
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
) -> Planned:
    """The kernels of one way as the last of them, after the others; `seconds` are those of all."""
    scratch: Scratch = {}
    concurrent = _concurrent(forms) if target.cc >= DEPENDENT else [False] * len(forms)
    made = []
    for form, *neighbours in zip(forms, concurrent, [*concurrent[1:], False], strict=True):
        made.append(_step(form, wanted, dtypes, views, target, scratch, Neighbours(*neighbours)))
    *before, last = made
    hidden, following = sum(concurrent), len(made) - 1 - sum(concurrent)
    seconds = sum(step.choice.seconds for step in made) - hidden * target.launch - following * EARLIER
    every = {a: n for step in made for a, n in step.sizes.items()}
    choice = replace(last.choice, seconds=seconds)
    return replace(last, choice=choice, sizes=every, before=tuple(before), scratch=scratch, over={})


def _concurrent(forms: Sequence[Form]) -> list[bool]:
    """Whether each step reads nothing of the one before it, nor of those that may run when that begins."""
    found, running = list[bool](), set[str]()
    for form in forms:
        alone = not running or not running.isdisjoint(t.name for t in form.spec.tensors)
        running = {*form.spec.outputs} | (set() if alone else running)
        found.append(not alone)
    return found


def _step(
    form: Form,
    wanted: Mapping[str, Any],
    dtypes: Mapping[str, Any],
    views: Mapping[str, View],
    target: Target,
    scratch: Scratch,
    neighbours: Neighbours,
) -> Planned:
    """The kernel of one step; what others read of it is added to `scratch`."""
    names = {t.name for t in form.spec.tensors}
    given = {n: d for n, d in dtypes.items() if n in names} | {
        n: o.dtype for n, (o, _) in scratch.items() if n in names
    }
    lying = {n: v for n, v in views.items() if n in names} | {n: v for n, (_, v) in scratch.items() if n in names}
    program = program_of(form, given, ROW_PROGRAM)
    formats = {r.name: wanted[r.name].dtype if r.name in wanted else program.real for r in program.results}
    program = result_dtypes(program, formats)
    sizes = sizes_of(program, lying)
    draft = RowsDraft(Call(form, given, lying, target), program, sizes, neighbours=neighbours)
    made: Planned = run_passes(ROWS, draft).planned
    for r in made.program.results:
        if r.name not in wanted:
            view = View.contiguous(tuple(sizes[a] for a in r.axes))
            scratch[r.name] = Operand(r.name, r.axes, r.dtype), view
    return made


def typical(steps: Steps, target: Target) -> Planned:
    """A plan for contiguous float32 arrays of moderate size."""
    views = {t.name: View.contiguous((64,) * len(t.axes)) for t in steps.spec.tensors if t.axes}
    dtypes = usual_dtypes(steps.forms[0], "float32") | dict.fromkeys(views, "float32")
    return planned(steps, dtypes, views, target, {})


__all__ = ["planned", "typical"]
