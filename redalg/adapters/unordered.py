"""What engines share that deliver blocks in any order, perhaps twice: positions, names, or forms without an order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redalg.adapters.operands import own_tensors
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.operators import Position, TopK
from redalg.numeric.windows import refuse_windows
from redalg.streaming import Accumulator
from redalg.streaming.snapshot import Layout


@dataclass(frozen=True)
class Unordered:
    """A form as the four functions of an engine: empty, updated, merged, result.

    A block is a mapping of tensors to arrays (or to one element each). With `placed` it says where it begins
    (``start``), with `named` what it is called (``id``): then one that is delivered twice is refused.
    """

    form: Form
    where: str
    bound: Mapping[str, Any]
    nulls: str = "propagate"
    placed: bool = False
    named: bool = False

    def __post_init__(self) -> None:
        layout, slots = self.layout, [s for p in self.form.plan.passes for s in p.slots]
        fix = "form.dask, or form.accumulator"
        refuse_windows(self.form.spec.tensors, self.where)
        if layout.passes > 1:
            why = "the engine reads the data once"
            raise RedalgError(f"a plan of {layout.passes} passes", self.where, why, fix)
        if layout.keeps:
            why = f"{layout.keeps[0]} keeps the streamed axis, and an aggregate is one value for all rows"
            raise RedalgError("this form as an aggregate", self.where, why, fix)
        ordered = layout.positional or not layout.commutative or any(isinstance(s.op, Position | TopK) for s in slots)
        if ordered and not self.placed:
            why = "its result depends on the order of the rows, and the engine merges parts in any order"
            raise RedalgError("this form as an aggregate", self.where, why, "placed blocks where the engine takes them")
        self.empty()

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.form.spec, self.form.plan)

    @cached_property
    def names(self) -> list[str]:
        """The tensors of a block."""
        streamed = set(self.layout.names)
        return [d.name for d in own_tensors(self.form.spec) if d.name in streamed]

    def empty(self) -> Accumulator:
        return self.form.accumulator(start=0 if self.placed else None, nulls=self.nulls, **self.bound)

    def updated(self, acc: Accumulator, block: Any) -> Accumulator:
        """With one more block; it stays as it was where that is refused."""
        if not isinstance(block, Mapping):
            block = {self.names[0]: block} if len(self.names) == 1 else dict(zip(self.names, block, strict=True))
        found = dict(block)
        keys = (["start"] if self.placed else []) + (["id"] if self.named else [])
        missing = [key for key in keys if key not in found]
        if missing:
            why = f"it has {', '.join(map(str, found)) or 'nothing'}"
            raise RedalgError(f"a block without {missing[0]!r}", self.where, why, f'{{"{missing[0]}": …, …}}')
        own = {key: found.pop(key) for key in keys}
        arrays = {n: self._as_block(n, x) for n, x in found.items()}
        if not own:
            acc.update(**arrays)
            return acc
        part = self.form.accumulator(nulls=self.nulls, **{"start": None, **own}, **self.bound)
        part.update(**arrays)
        return acc.merge(part)

    def _as_block(self, name: str, x: Any) -> Any:
        """One element is a block of length 1."""
        decl = next((d for d in self.layout.streamed if d.name == name), None)
        if decl is None or np.ndim(x) != len(decl.axes) - 1:
            return x
        return np.expand_dims(np.asarray(x), decl.axes.index(self.layout.axis[0]))

    def merged(self, accs: Iterable[Accumulator]) -> Accumulator:
        total = self.empty()
        for acc in accs:
            total.merge(acc)
        return total


__all__ = ["Unordered"]
