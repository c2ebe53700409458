"""Passes from a form and the dtypes of its tensors to a `Program`: the kernel before any decision about threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.node import ZERO, Node, compare, const, size, state, substitute, walk, where
from redalg.graph.operators import Custom, TopK
from redalg.graph.plan import COUNT, Output, Plan
from redalg.kernels.ir.axis_roles import Roles, aligned, roles
from redalg.kernels.ir.contractions import apart, spelled, unknown_inside
from redalg.kernels.ir.kinds import Kinds
from redalg.kernels.ir.program import STORAGE, Let, Loop, Operand, Pass, Program, Result
from redalg.kernels.lower.adjoined import adjoined
from redalg.kernels.lower.alike import alike
from redalg.kernels.lower.compensated import compensated
from redalg.kernels.lower.draft import ProgramDraft
from redalg.kernels.lower.first_positions import from_zero
from redalg.kernels.lower.masked import guard
from redalg.kernels.lower.nested import joined
from redalg.kernels.lower.passes import PassLowering, attained_sums, bounds
from redalg.kernels.lower.unrolled import lists, unrolled, written_out
from redalg.numeric.array_origin import BFLOAT16_BITS
from redalg.numeric.definition import check_empty
from redalg.numeric.dtypes import Flow, accumulation_dtype, output_flows
from redalg.streaming.masked import with_masked

COMPENSATED = "compensated"  # of `Form.accuracy`
PYTHON = {bool: "bool", int: "int64", float: "float64"}


def masked_slots(draft: ProgramDraft) -> None:
    """Slots that say where a row has no valid element, beside the plan's own."""
    draft.plan, masked = with_masked(draft.form.spec, draft.form.plan)
    draft.masked = dict(masked)


def first_positions(draft: ProgramDraft) -> None:
    """Positions among elements that are all alike, on streams that start at 0."""
    assert draft.plan is not None
    draft.plan = _sized(from_zero(draft.plan))


def aligned_plan(draft: ProgramDraft) -> None:
    """What is read along other axes than it is held in, as slots of their own; reductions of reductions as one."""
    assert draft.plan is not None
    draft.plan = aligned(joined(draft.plan))


def typed(draft: ProgramDraft) -> None:
    """Dtypes of operands, of results, and of the reals between them.

    Raises: RedalgError for complex tensors, which kernels do not compute with, and for dtypes they do not read.
    """
    spec = draft.form.spec
    known = {name: _numpy(name, dtype) for name, dtype in draft.dtypes.items()}
    outputs = output_flows(spec, known)
    _refuse_complex(outputs, known)
    draft.flows, draft.real = outputs, accumulation_dtype(outputs.values(), known).name
    draft.operands = tuple(_operand(t.name, t.axes, known[t.name]) for t in spec.tensors)


def assigned(draft: ProgramDraft) -> None:
    """Which axes number rows, which are streamed over, and which a row's state holds."""
    assert draft.plan is not None
    _refuse_lists_inside(draft.plan)
    draft.roles = roles(draft.plan, draft.form.spec.axes).across(draft.across)
    _refuse_second_indices((*draft.roles.rows, *draft.roles.columns))


def _refuse_lists_inside(plan: Plan) -> None:
    """Raises: RedalgError for a list of every element; what printers refuse, too, may lie along no axis of a state."""
    for n in walk(*(n for p in plan.passes for s in p.slots for n in s.lift)):
        if n.op == "reduce" and n.attr.kind.startswith("topk"):
            raise unknown_inside(n)


def lowered(draft: ProgramDraft) -> None:
    """Nodes of the plan as steps: lift a tile, combine two states, update, and what is written; contractions inside an
    element are over axes of their own."""
    plan, part, form = draft.plan, draft.roles, draft.form
    assert plan is not None and part is not None
    listed = lists(plan, part)
    part = replace(part, columns=(*part.columns, *listed))
    passes = _passes(plan, part, Kinds({o.name: _kind(o.dtype) for o in draft.operands}))
    what = ", ".join(form.spec.outputs) + (f" along {','.join(plan.axis)}" if plan.axis else "")
    program = Program(
        "_".join(form.spec.outputs),
        part.rows,
        part.stream,
        part.columns,
        draft.operands,
        _results(draft, plan),
        passes,
        draft.real,
        part.lengths,
        frozenset(name for p in plan.passes for name in attained_sums(p)),
        f"{what}: {form.spec}",
    )
    draft.program = apart(spelled(written_out(program, listed) if listed else program))


def unroll(draft: ProgramDraft) -> None:
    """Columns as single values, those that are alike as one. Raises: Whole."""
    assert draft.program is not None
    if draft.tiles:
        draft.program = alike(unrolled(draft.program, draft.tiles))


def stored(draft: ProgramDraft) -> None:
    """Operands in the dtypes they are kept in, where those are wider than what results follow from."""
    assert draft.program is not None
    operands = tuple(replace(o, dtype=draft.stored.get(o.name, o.dtype)) for o in draft.program.operands)
    draft.program = replace(draft.program, operands=operands)


def compensate(draft: ProgramDraft) -> None:
    """Sums as pairs. Raises: RedalgError for such sums, and users' monoids, that are arrays of a row's state."""
    assert draft.program is not None
    _refuse_arrays_of_monoids(draft.program)
    if draft.form.accuracy == COMPENSATED:
        draft.program = compensated(draft.program)


def _operand(name: str, axes: tuple[str, ...], dtype: Any) -> Operand:
    if isinstance(dtype, type):
        return Operand(name, axes, PYTHON[dtype], True)
    return Operand(name, axes, _name(dtype))


def _numpy(name: str, dtype: Any) -> Any:
    if isinstance(dtype, type) and dtype in PYTHON:
        return dtype
    text = str(dtype)
    if text in _EXTENSION:
        return _EXTENSION[text]
    try:
        return np.dtype(dtype)
    except TypeError as problem:
        what, why = f"{name} of dtype {text}", f"kernels read {', '.join(STORAGE)}"
        raise RedalgError(what, "form.compile", why, "convert it") from problem


# NumPy alone has no such dtypes; structured ones of the same width stand for them in the promotion rules.
_EXTENSION = {
    "bfloat16": BFLOAT16_BITS,
    "float8_e4m3fn": np.dtype([("float8_e4m3fn", np.uint8)]),
    "float8_e5m2": np.dtype([("float8_e5m2", np.uint8)]),
}


def _name(dtype: np.dtype) -> str:
    return dtype.names[0] if dtype.names else dtype.name


def _kind(dtype: str) -> str:
    return {"b": "b", "i": "i", "u": "i"}.get(dtype[0], "f") if dtype != "bfloat16" else "f"


def _refuse_second_indices(axes: tuple[str, ...]) -> None:
    """A state along g and g' holds a number for every pair of groups; an axis is one index of a kernel."""
    for axis in (a for a in axes if a.endswith("'")):
        raise RedalgError(
            f"a state with two indices along {axis.rstrip(chr(39))}",
            "form.compile",
            "a product of two sums over one inner axis holds a number per pair; kernels have one index per axis",
            'form.compile("numpy"), or an accumulator',
        )


def _refuse_arrays_of_monoids(program: Program) -> None:
    """An entry of a state along columns is one number, that ⊕ of a kind joins."""
    for f in (f for p in program.passes for loop in p.lift if isinstance(loop, Loop) for f in loop.folds if f.axes):
        if isinstance(f.op, Custom):
            raise RedalgError(
                f"the monoid {f.op.monoid.name} along {', '.join(f.axes)}",
                "form.compile",
                "a row's state holds an array of its values, and kernels combine single ones by a user's function",
                'form.compile("numpy"), or an accumulator',
            )


def _refuse_complex(outputs: Mapping[str, Flow], known: Mapping[str, Any]) -> None:
    bad = [n for n, d in known.items() if isinstance(d, np.dtype) and d.kind == "c" or d is complex]
    bad += [n for n, f in outputs.items() if f.kind == "c"]
    if bad:
        raise RedalgError(
            f"{bad[0]} of complex numbers",
            "form.compile",
            "generated kernels compute with real numbers, integers and Booleans",
            'form.compile("numpy"), or real and imaginary parts as tensors of their own',
        )
    unknown = [n for n, d in known.items() if isinstance(d, np.dtype) and _name(d) not in STORAGE]
    if unknown:
        name = unknown[0]
        raise RedalgError(
            f"{name} of dtype {known[name]}", "form.compile", f"kernels read {', '.join(STORAGE)}", "convert it"
        )


def _sized(plan: Plan) -> Plan:
    """An equal plan that has the length for the count, where no pass keeps anything: means of weights that sum to 1."""
    if any(p.order or p.exports for p in plan.passes):
        return plan
    known = {COUNT: size(plan.axis)}
    return replace(plan, outputs=tuple(o.map(lambda node: substitute(node, known)) for o in plan.outputs))


def _passes(plan: Plan, part: Roles, kinds: Kinds) -> tuple[Pass, ...]:
    found = []
    for p in plan.passes:
        if not p.order and not p.exports:
            continue
        lowered = PassLowering(adjoined(p), part, kinds).lowered()
        exported = tuple(Let(name, PassLowering.resolved(p, guard(node, bounds(p)))) for name, node in p.exports)
        for let in exported:
            kinds.learn(let.name, let.node)
        found.append(replace(lowered, exports=exported))
    return tuple(found)


def _ended(value: Node, plan: Plan, dtype: str) -> Node:
    """A list of integers, which are kept in int64, ends with the least number of its own dtype where it is short."""
    places = {s.parts[0]: s.parts[1] for p in plan.passes for s in p.slots if isinstance(s.op, TopK)}
    if value.op != "state" or value.attr.name not in places or _kind(dtype) != "i" or dtype == "int64":
        return value
    missing = compare("lt", state(places[value.attr.name], value.attr.axes), ZERO)
    return where(missing, const(int(np.iinfo(dtype).min)), value)


def _refuse_result(o: Output, axes: Sequence[str], dtype: str, masked: bool, plan: Plan) -> None:
    """A result along a list for every element, and one of integers that masked rows would fill with another number."""
    lists = [s.op.axis for p in plan.passes for s in p.slots if isinstance(s.op, TopK) and s.op.axis in axes]
    if o.keeps_axis and lists:
        why = f"{o.name} has an entry for every one of the list {lists[0]}, for every element; kernels write one each"
        raise RedalgError(
            f"{o.name} along {lists[0]} and the streamed axis", "form.compile", why, 'form.compile("numpy")'
        )
    if masked and _kind(dtype) != "f":
        check_empty(cast(Any, o.empty), np.dtype(dtype), o.name, "form.compile")


def _computed(o: Output, dtype: str) -> Node:
    """An output with its guard, but not where that makes a float of an integer, which has no NaN."""
    floats = o.guard is not None and o.guard.otherwise.op == "special" and _kind(dtype) == "i"
    return o.value if floats else o.guarded


def _results(draft: ProgramDraft, plan: Plan) -> tuple[Result, ...]:
    form, rows, outputs = draft.form, draft.masked, draft.flows
    last = plan.passes[-1] if plan.passes else None
    found = []
    for o in plan.outputs:
        dtype = _name(outputs[o.name].dtype)
        value, masked = guard(_computed(o, dtype), bounds(last) if last else {}), rows.get(o.name)
        if last is not None:
            value = PassLowering.resolved(last, value)
            masked = None if masked is None else PassLowering.resolved(last, masked)
        value = _ended(value, plan, dtype)
        axes = form.spec.output_axes[o.name]
        keeps = o.keeps_axis or not any(p.order for p in plan.passes)  # a map is evaluated for every element
        _refuse_result(o, axes, dtype, masked is not None, plan)
        found.append(Result(o.name, axes, dtype, value, keeps, masked, o.empty))
    order = list(form.spec.outputs)
    return tuple(sorted(found, key=lambda r: order.index(r.name)))
