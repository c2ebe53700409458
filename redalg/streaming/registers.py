"""The registers of a tape under construction, and what kind of number each holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.numeric_integers import as_float
from redalg.streaming.lowering import nearest_float, widest
from redalg.streaming.tape import Load, Ramp, Root, Step, Tape, Value, complex_of, finish


class Registers:
    """Appends steps; knows kinds (b, i, f, c), folds constants, and turns the list into a `Tape`."""

    def __init__(self, layout: Sequence[str], real: np.dtype) -> None:
        self.position = {axis: p for p, axis in enumerate(layout, start=1)}
        self.rank = len(layout) + 1
        self.real = np.dtype(real)
        self.template: list[Any] = []
        self.known: dict[int, Any] = {}
        self.values: dict[int, Value] = {}
        self.steps: list[tuple[Step, bool]] = []
        self.loads: list[Load] = []
        self.ramps: list[Ramp] = []
        self.lengths: list[tuple[int, str]] = []
        self.memo: dict[Any, Value] = {}

    def closed(self, found: Sequence[Value], orders: Sequence[Sequence[str]], spread: bool) -> Tape:
        """The tape that ends with these values."""
        leaving = [self._root(v, tuple(order), spread) for v, order in zip(found, orders, strict=True)]
        steps = finish(self.steps, self.values, [v.reg for v in found])
        extents = {self.values[step.out].axes for step in steps}
        return Tape(
            tuple(self.template),
            tuple(self.lengths),
            tuple(self.loads),
            tuple(self.ramps),
            steps,
            tuple(leaving),
            tuple(extents),
        )

    def _root(self, v: Value, order: tuple[str, ...], spread: bool) -> Root:
        places = [self.position[axis] for axis in order]
        rest = [p for p in range(1, self.rank) if p not in places]
        drop = (slice(None),) * (1 + len(order)) + (0,) * len(rest)
        lacks = spread and not v.axes >= frozenset(order)
        return Root(v.reg, (0, *places, *rest), drop, order, lacks, not v.owned, self.dtype(v.kind))

    def dtype(self, kind: str) -> np.dtype:
        if kind == "c":
            return complex_of(self.real)
        return self.real if kind == "f" else np.dtype(np.int64 if kind == "i" else np.bool_)

    def _register(
        self, kind: str, axes: Iterable[str] = (), scalar: bool = False, owned: bool = False, value: Any = None
    ) -> Value:
        v = Value(len(self.template), kind, frozenset(axes), scalar, owned)
        self.template.append(value)
        self.values[v.reg] = v
        return v

    def step(
        self,
        fn: Callable[..., Any],
        kind: str,
        *args: Value,
        axes: Iterable[str] | None = None,
        ufunc: bool = False,
        owned: bool = True,
    ) -> Value:
        """Append one operation. On numbers alone the result is brought back to a number; constants are folded here."""
        weak = all(a.scalar for a in args)
        run = self._on_numbers(fn, kind) if weak else fn
        if all(a.reg in self.known for a in args):
            with np.errstate(all="ignore"):
                return self.number(run(*(self.known[a.reg] for a in args)), kind)
        free = frozenset().union(*(a.axes for a in args)) if axes is None else frozenset(axes)
        out = self._register(kind, free, weak, owned and not weak)
        self.steps.append((Step(run, out.reg, tuple(a.reg for a in args)), ufunc and not weak))
        return out

    def _on_numbers(self, fn: Callable[..., Any], kind: str) -> Callable[..., Any]:
        convert = {"b": bool, "i": int, "f": self.real.type, "c": complex_of(self.real).type}[kind]
        wide = np.result_type(self.real, np.float64)
        ready = (lambda x: wide.type(x)) if kind == "f" else (lambda x: x)
        return lambda *args: convert(fn(*map(ready, args)))

    def number(self, value: Any, kind: str = "") -> Value:
        if isinstance(value, Fraction):
            whole = value.denominator == 1 and abs(value) < 2**63
            value = int(value) if whole else nearest_float(value)
        if not kind:
            kind = {bool: "b", int: "i", complex: "c"}.get(type(value), "f")
        v = self._register(kind, scalar=True, value=value)
        self.known[v.reg] = value
        return v

    # --- kinds ---------------------------------------------------------------------------------------------------

    def counted(self, v: Value) -> Value:
        if v.kind != "b":
            return v
        return self._converted(v, "i", int if v.scalar else lambda x: x.astype(np.int64))

    def inexact(self, v: Value) -> Value:
        v = self.counted(v)
        if v.kind != "i":
            return v
        return self._converted(v, "f", lambda x: as_float(x, self.real.type))

    def _converted(self, v: Value, kind: str, fn: Callable[[Any], Any]) -> Value:
        key = ("convert", kind, v.reg)
        if key not in self.memo:
            self.memo[key] = self.step(fn, kind, v)
        return self.memo[key]

    def unified(self, values: Sequence[Value]) -> list[Value]:
        values = [self.counted(v) for v in values]
        return values if widest(v.kind for v in values) == "i" else [self.inexact(v) for v in values]
