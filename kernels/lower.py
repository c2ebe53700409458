"""From a form and the dtypes of its tensors to a `Program`: the kernel before any decision about threads."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.binding_dtypes import Flow, accumulation_dtype, flows
from redalg.binding_origin import BFLOAT16_BITS
from redalg.errors import RedalgError
from redalg.graph import Node
from redalg.kernels.check import check
from redalg.kernels.ir import STORAGE, Let, Operand, Pass, Program, Result
from redalg.kernels.kinds import Kinds
from redalg.kernels.lower_inner import apart
from redalg.kernels.lower_pass import PassLowering, attained_sums, bounds
from redalg.kernels.lower_void import guard
from redalg.kernels.roles import Roles, aligned, roles
from redalg.plan import Plan
from redalg.streaming.voids import with_voids

if TYPE_CHECKING:
    from redalg.form import Form

PYTHON = {bool: "bool", int: "int64", float: "float64"}


def lower(form: Form, dtypes: Mapping[str, Any], across: Container[str] = ()) -> Program:
    """The program of a form. `dtypes`: tensor -> name of a dtype, or a Python type for a number passed by value.

    `across`: axes that would number rows and become lanes, so that one walk over the stream serves all of them.

    Raises: RedalgError for complex tensors, which kernels do not compute with.

    >>> import redalg as ra
    >>> form = ra.derive_incremental(ra.catalog["logsumexp"])
    >>> program = lower(form, {"x": "float32"})
    >>> program.rows, program.stream, [part.name for part in program.passes[0].parts]
    (('i',), ('j',), ['max_x', 'sum_exp'])
    """
    plan, voids = with_voids(form.spec, form.plan)
    plan = aligned(plan)
    known = {name: _numpy(name, dtype) for name, dtype in dtypes.items()}
    found = flows(form.spec.outputs.values(), known)
    outputs = {name: found[node] for name, node in form.spec.outputs.items()}
    _refuse_complex(outputs, known)
    real = accumulation_dtype(outputs.values(), known).name
    part = roles(plan, form.spec.axes).across(across)
    _refuse_second_indices((*part.rows, *part.lanes))
    operands = tuple(
        Operand(t.name, t.axes, PYTHON[known[t.name]] if isinstance(known[t.name], type) else _name(known[t.name]),
                isinstance(known[t.name], type))
        for t in form.spec.tensors
    )  # fmt: skip
    kinds = Kinds({o.name: _kind(o.dtype) for o in operands})
    passes = _passes(plan, part, kinds)
    results = _results(form, plan, dict(voids), outputs, part)
    what = ", ".join(form.spec.outputs) + (f" along {','.join(plan.axis)}" if plan.axis else "")
    name = "_".join(form.spec.outputs)
    attained = frozenset(name for p in plan.passes for name in attained_sums(p))
    title = f"{what}: {form.spec}"
    made = Program(
        name, part.rows, part.stream, part.lanes, operands, results, passes, real, part.lengths, attained, title
    )
    return check(apart(made))


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


def _passes(plan: Plan, part: Roles, kinds: Kinds) -> tuple[Pass, ...]:
    found = []
    for p in plan.passes:
        if not p.order and not p.exports:
            continue
        lowered = PassLowering(p, part, kinds).lowered()
        exported = tuple(Let(name, PassLowering.resolved(p, guard(node, bounds(p)))) for name, node in p.exports)
        for let in exported:
            kinds.learn(let.name, let.node)
        found.append(replace(lowered, exports=exported))
    return tuple(found)


def _results(
    form: Form, plan: Plan, voids: Mapping[str, Node], outputs: Mapping[str, Flow], part: Roles
) -> tuple[Result, ...]:
    last = plan.passes[-1] if plan.passes else None
    found = []
    for o in plan.outputs:
        value, void = guard(o.guarded, bounds(last) if last else {}), voids.get(o.name)
        if last is not None:
            value = PassLowering.resolved(last, value)
            void = None if void is None else PassLowering.resolved(last, void)
        dtype = _name(outputs[o.name].dtype)
        axes = form.spec.output_axes[o.name]
        keeps = o.keeps_axis or not any(p.order for p in plan.passes)  # a map is evaluated for every element
        found.append(Result(o.name, axes, dtype, value, keeps, void, o.empty))
    order = list(form.spec.outputs)
    return tuple(sorted(found, key=lambda r: order.index(r.name)))
