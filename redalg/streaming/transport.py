"""A state carried to given anchors, as a printed function: what ranks do between two collectives.

The moves are those of `combine` (`redalg.streaming.merge`). There the new anchors follow from two states, and here
they are given, since they were made of the anchors of many.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from redalg.source.builder import Lines
from redalg.source.names import local
from redalg.streaming.merge import AnchorStep, Combination, SlotStep
from redalg.streaming.program import Program
from redalg.streaming.state import State
from redalg.streaming.tapes.tape import Array, Tape, key_name


@lru_cache(maxsize=64)
def transport(program: Program) -> Tape:
    """The function of a state, of anchors by name, and of parameters by their keys."""
    text = _Transport(program.anchors, program.real)
    for part in (*program.arrays, *program.aliases):
        text.out(f'{local(part)}_a = a.parts["{part}"]')
        if part in program.sums:
            text.out(f'{local(part)}_low_a = a.low["{part}"]')
    text.all(program.steps, "n_a")
    name, keys = f"transport{program.suffix}", ("a", "to", *text.parameters)
    made = text.out.function(name, ["a", "to", *map(key_name, text.parameters)])
    return Tape(made, keys, (), (), (), tuple(text.calls), program.real)


def carried(tape: Tape, state: State, anchors: Mapping[str, Array], parameters: Mapping[str, Any]) -> State:
    """The state at these anchors."""
    found: State = tape.call(state, dict(anchors), *(parameters[key] for key in tape.keys[2:]))
    return found


class _Transport(Combination):
    def __init__(self, anchors: Mapping[str, Any], real: Any) -> None:
        super().__init__(anchors, real)
        self.out = Lines()
        self.out("n_a = a.n")

    def anchor(self, step: AnchorStep) -> None:
        x = local(step.anchor.name)
        self.out(f'{x} = to["{step.anchor.name}"]')
        self.new[step.anchor.name] = None
        self.out(f"shift_{x}_a = {self._difference(step.anchor, x, f'{x}_a')}")

    def slot(self, step: SlotStep) -> None:
        slot = step.slot
        if step.moves:
            moved, x = self._moved(step, "a"), local(slot.parts[0])
            self.out(f"{x} = {moved[0]}", *([f"{x}_low = {moved[1]}"] if step.inexact else []))
        else:
            self.out(*(f"{local(part)} = {local(part)}_a" for part in slot.parts))
            if step.inexact:
                self.out(f"{local(slot.parts[0])}_low = {local(slot.parts[0])}_low_a")
        self.new |= dict.fromkeys(slot.parts)
        if step.inexact:
            self.low[slot.parts[0]] = None
