"""Steps as the body of a printed function. Registers become names, which are taken again when nobody reads them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redalg.numeric.integers import as_float
from redalg.source.builder import Lines
from redalg.source.compiled import called
from redalg.source.names import axis_name
from redalg.streaming.tapes import kernels
from redalg.streaming.tapes.tape import Aside, Load, Ramp, Root, Step, Tape, Value, key_name, literal, size_name

CONVERT = {"b": "bool", "i": "int", "f": "REAL", "c": "COMPLEX"}


class Printer:
    """One function under construction; `known` are numbers, `values` what is known of every register."""

    def __init__(self, known: Mapping[int, Any], values: Mapping[int, Value], real: np.dtype) -> None:
        self.real, self.values = real, values
        self.names = {reg: self.literal(value) for reg, value in known.items()}
        self.free: list[str] = []
        self.temporaries: set[str] = set()
        self.calls: dict[Any, None] = {}
        self.out = Lines()

    def literal(self, value: Any) -> str:
        if isinstance(value, Tape):
            self.calls[value] = None
        return literal(value, self.real)

    def call(self, fn: Any) -> str:
        name = called(fn)
        if not name.startswith("np."):
            self.calls[fn] = None
        return name

    def _say(self, reg: int, text: str) -> None:
        name = self.free.pop() if self.free else f"t{len(self.temporaries) + 1}"
        self.temporaries.add(name)
        self.names[reg] = name
        self.out(f"{name} = {text}")

    # --- what enters and leaves ----------------------------------------------------------------------------------

    def load(self, load: Load) -> None:
        name = key_name(load.name)
        if load.dtype is None:
            self.names[load.reg] = name
            return
        dtype = self.literal(load.dtype)
        if not load.perm:
            self._say(load.reg, f"{self.call(kernels.single)}({name}, {len(load.place)}, {dtype})")
            return
        turned = "" if load.perm == tuple(range(len(load.perm))) else f".transpose({self.literal(load.perm)})"
        place = ", ".join("None" if i is None else ":" for i in load.place)
        whole = ", contiguous=True" if load.contiguous else ""
        self._say(load.reg, f"{self.call(kernels.entered)}({name}{turned}[{place}], {dtype}{whole})")

    def ramp(self, ramp: Ramp) -> None:
        start = f"start_{axis_name(ramp.axis)}"
        self._say(ramp.reg, f"np.arange({start}, {start} + {size_name(ramp.axis)}).reshape({ramp.shape})")

    def root(self, root: Root) -> str:
        """The expression of a result."""
        options = [", copy=True"] if root.copy else []
        options += [f", shape=({''.join(size_name(a) + ', ' for a in root.axes)})"] if root.lacks else []
        arguments = f"{self.names[root.reg]}, {root.order}, {root.kept}, {self.literal(root.dtype)}"
        return f"{self.call(kernels.left)}({arguments}{''.join(options)})"

    # --- steps ---------------------------------------------------------------------------------------------------

    def steps(self, steps: Sequence[Step], kept: Sequence[int]) -> None:
        """All steps in order; the registers `kept` are read afterwards."""
        last: dict[int, int] = {}
        for number, step in enumerate(steps):
            last.update(dict.fromkeys(step.ins, number))
        for number, step in enumerate(steps):
            self._step(step, [i for i in dict.fromkeys(step.ins) if last[i] == number and i not in kept])

    def _step(self, step: Step, dying: Sequence[int]) -> None:
        masked = self._aside(step.aside) if step.aside else ""
        fit = next((i for i in dying if step.ufunc and _fits(self.values[i], self.values[step.out])), None)
        text = self._text(step, masked if fit is None else f"{masked}, out={self.names[fit]}")
        self.free += [self.names[i] for i in dying if self.names[i] in self.temporaries and i != fit]
        if fit is not None:
            self.free.append(self.names[fit])
        self._say(step.out, text)

    def _aside(self, aside: Aside) -> str:
        watched = self.names[aside.watched]
        sound = f"np.isfinite({watched})" if aside.finite else f"np.equal({watched}, {watched})"
        self.out("masked = None")
        free, self.free = self.free, []
        with self.out.block(f"if not np.all({sound}):"):
            self.steps(aside.steps, [aside.check, *(i for step in aside.steps for i in step.ins)])
            self.out(f"masked = {self.names[aside.check]}")
        self.free = free
        return ", masked"

    def _text(self, step: Step, rest: str) -> str:
        names = [self.names[i] for i in (step.ins[:1] if step.aside else step.ins)]
        if step.fn is operator.getitem:
            return f"{names[0]}[{step.statics['item']}]"
        if step.number == "f":
            names = [f"{self.call(as_float)}({name}, WIDE)" for name in names]
        if step.fn in (int, float):
            return f"int({names[0]})"
        rest += "".join(f", {name}={self.literal(value)}" for name, value in step.statics.items())
        text = f"{self.call(step.fn)}({', '.join(names)}{rest})"
        return f"{CONVERT[step.number]}({text})" if step.number else text


def _fits(argument: Value, out: Value) -> bool:
    return argument.owned and not argument.scalar and argument.kind == out.kind in "fc" and argument.axes == out.axes
