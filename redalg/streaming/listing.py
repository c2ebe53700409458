"""The straight-line programs of a form as Python text: what the NumPy runtime executes, one line per array operation.

Functions named ``np.…`` are NumPy's; the others are those of `redalg.streaming.kernels` and `redalg.numeric_*`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from redalg.graph import Decl
from redalg.plan import Plan, given
from redalg.spec import Spec
from redalg.streaming.machine import machine_for
from redalg.streaming.program import AnchorStep, Program
from redalg.streaming.snapshot import Layout
from redalg.streaming.tape import Tape

KINDS = {"bool": "b", "integer": "i", "complex": "c"}  # declared domain -> kind of number; real otherwise


def listing(spec: Spec, plan: Plan, real: Any = np.float64) -> str:
    """The programs for arrays of the dtype `real` (integer, bool and complex where a tensor is declared so)."""
    layout = Layout.of(spec, plan)
    kinds = given({d.name: _kind(d) for d in spec.tensors})
    numbers = frozenset(given({d.name: d for d in spec.tensors if not d.axes}))
    machine = machine_for(layout.plan, layout.voids, kinds, numbers, np.dtype(real), spec.axes)
    outputs = [o.name for o in plan.outputs]
    if not plan.passes:
        return "\n\n\n".join(_function("maps", machine.maps.tape, outputs, machine.layout))
    parts: list[str] = []
    for number in range(len(plan.passes)):
        suffix = f"_{number + 1}" if len(plan.passes) > 1 else ""
        program = machine.program(number)
        parts += _function(f"lift{suffix}", program.block, program.arrays, machine.layout)
        parts += _combine(program, suffix)
        if plan.passes[number].exports:
            names = [name for name, _ in plan.passes[number].exports]
            parts += _function(f"exports{suffix}", machine.export_tape(number), names, machine.layout)
    for title, finale in (("finalize", machine.totals), ("apply", machine.rows)):
        if finale.outputs:
            names = [o.name for o in finale.outputs] + [f"void_{name}" for name in finale.conditions]
            parts += _function(title, finale.tape, names, machine.layout)
    return "\n\n\n".join(parts) + "\n"


def _kind(decl: Decl) -> str:
    return next((kind for word, kind in KINDS.items() if word in decl.domain), "f")


def _combine(program: Program, suffix: str) -> Iterator[str]:
    """The parts of combine that are programs: new anchors, and the coefficients by which slots move to them."""
    for step in program.steps:
        if step.tape is None:
            continue
        if isinstance(step, AnchorStep):
            yield from _function(f"anchor_{step.anchor.name}{suffix}", step.tape, [step.anchor.name], program.layout)
        else:
            count = len(step.tape.roots)
            names = [f"move_{step.slot.name}_{k}" if count > 1 else f"move_{step.slot.name}" for k in range(count)]
            yield from _function(f"moves_{step.slot.name}{suffix}", step.tape, names, program.layout)


def _function(name: str, tape: Tape, results: Iterable[str], axes: Iterable[str]) -> Iterator[str]:
    inputs = _arguments(load.name for load in tape.loads)
    lengths = {f"size_{axis}": None for _, axis in tape.lengths} | {f"size_{ramp.axis}": None for ramp in tape.ramps}
    head = f"def {_identifier(name)}({', '.join([*inputs.values(), *lengths])}):"
    lines = [f"{head}  # dimensions: batch, {', '.join(axes)}"]
    lines += [f"r{reg} = size_{axis}" for reg, axis in tape.lengths]
    lines += [f"r{load.reg} = {_loaded(load, inputs[load.name])}" for load in tape.loads]
    lines += [f"r{ramp.reg} = np.arange(size_{ramp.axis}).reshape({ramp.shape})" for ramp in tape.ramps]
    constants = {reg: _constant(value) for reg, value in enumerate(tape.template) if value is not None}
    for step in tape.steps:
        arguments = [constants.get(i, f"r{i}") for i in step.ins]
        if step.into >= 0:
            arguments.append(f"out=r{step.into}")
        lines.append(f"r{step.out} = {_called(step.fn)}({', '.join(arguments)})")
    values = [constants.get(root.reg, f"r{root.reg}") for root in tape.roots]
    names = ", ".join(map(_identifier, results))
    lines.append(f"return {', '.join(values)}  # {names}")
    yield "\n    ".join(lines)


def _loaded(load: Any, text: str) -> str:
    """The argument as it enters: behind a batch dimension, one dimension per axis of the layout."""
    if load.perm and load.perm != tuple(range(len(load.perm))):
        text += f".transpose({load.perm})"
    if load.place:
        text += "[" + ", ".join("None" if i is None else "..." if i is Ellipsis else ":" for i in load.place) + "]"
    return f"{text}.astype({str(load.dtype)!r})" if load.dtype is not None else text


def _constant(value: Any) -> str:
    text = repr(value)
    return {"inf": "np.inf", "-inf": "-np.inf", "nan": "np.nan"}.get(text, text)


def _called(fn: Any) -> str:
    if isinstance(fn, functools.partial):
        return _called(fn.func)
    name: str = getattr(fn, "__qualname__", type(fn).__name__).split(".<locals>")[0].split(".")[-1].strip("_")
    if isinstance(fn, np.ufunc):
        return f"np.{fn.__name__}"
    return f"np.{name}" if getattr(np, name, None) is fn else _identifier(name)


def _arguments(keys: Iterable[str]) -> dict[str, str]:
    """The name of every input. Parts of a state come first: a tensor may have the name of one."""
    found: dict[str, str] = {}
    for key in sorted(dict.fromkeys(keys), key=lambda k: k.startswith("given:")):
        name = _identifier(key.removeprefix("given:"))
        while name in found.values():
            name += "_"
        found[key] = name
    return found


def _identifier(name: str) -> str:
    return "".join(c if c.isidentifier() or c.isdigit() else "_" for c in name)
