"""The registers of a tape under construction, and what kind of number each holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from redalg.numeric.integers import as_float, nearest_float
from redalg.source.names import axis_name, local
from redalg.streaming.tapes import kernels
from redalg.streaming.tapes.printer import Printer
from redalg.streaming.tapes.tape import (
    Aside,
    Load,
    Ramp,
    Root,
    Step,
    Tape,
    Value,
    complex_of,
    dtype_names,
    key_name,
    of_copy,
    size_name,
)

RANK = {"b": 0, "i": 1, "f": 2, "c": 3}


class Registers:
    """Appends steps; knows kinds (b, i, f, c), folds constants, and turns the list into a `Tape`."""

    def __init__(self, layout: Sequence[str], real: np.dtype) -> None:
        self.position = {axis: p for p, axis in enumerate(layout, start=1)}
        self.rank = len(layout) + 1
        self.real = np.dtype(real)
        self.known: dict[int, Any] = {}
        self.values: dict[int, Value] = {}
        self.steps: list[Step] = []
        self.loads: list[Load] = []
        self.ramps: list[Ramp] = []
        self.lengths: dict[int, str] = {}
        self.memo: dict[Any, Value] = {}

    def closed(
        self, name: str, found: Sequence[Value], orders: Sequence[Sequence[str]], spread: bool, results: Sequence[str]
    ) -> Tape:
        """The function of this name that ends with these values, the `results`."""
        printer = Printer(self.known, self.values, self.real)
        roots = [self._root(v, tuple(order), spread) for v, order in zip(found, orders, strict=True)]
        printer.names |= {reg: size_name(axis) for reg, axis in self.lengths.items()}
        for load in self.loads:
            printer.load(load)
        for ramp in self.ramps:
            printer.ramp(ramp)
        printer.steps(self.steps, [v.reg for v in found])
        names = [local(result) for result in results]
        for result, root in zip(names, roots, strict=True):
            printer.out(f"{result} = {printer.root(root)}")
        printer.out(f"return [{', '.join(names)}]")
        keys = dict.fromkeys(load.name for load in self.loads)
        lengths = self._lengths(roots)
        starts = dict.fromkeys(r.axis for r in self.ramps)
        takes = [*map(key_name, keys), *map(size_name, lengths), *(f"start_{axis_name(axis)}" for axis in starts)]
        extents = {tuple(sorted(self.values[step.out].axes)) for step in self.steps}
        return Tape(
            printer.out.function(name, takes),
            tuple(keys),
            tuple(lengths),
            tuple(starts),
            tuple(sorted(extents)),
            tuple(printer.calls),
            self.real,
        )

    def _lengths(self, roots: Sequence[Root]) -> dict[str, None]:
        """The axes whose lengths are asked for."""
        found = [*self.lengths.values(), *(r.axis for r in self.ramps), *(a for r in roots if r.lacks for a in r.axes)]
        return dict.fromkeys(map(of_copy, found))

    def _root(self, v: Value, order: tuple[str, ...], spread: bool) -> Root:
        places = [self.position[axis] for axis in order]
        rest = [p for p in range(1, self.rank) if p not in places]
        lacks = spread and not v.axes >= frozenset(order)
        return Root(v.reg, (0, *places, *rest), 1 + len(order), order, lacks, not v.owned, self.dtype(v.kind))

    def dtype(self, kind: str) -> np.dtype:
        if kind == "c":
            return complex_of(self.real)
        return self.real if kind == "f" else np.dtype(np.int64 if kind == "i" else np.bool_)

    def _register(self, kind: str, axes: Iterable[str] = (), scalar: bool = False, owned: bool = False) -> Value:
        v = Value(len(self.values), kind, frozenset(axes), scalar, owned)
        self.values[v.reg] = v
        return v

    def step(
        self,
        fn: Callable[..., Any],
        kind: str,
        *args: Value,
        free: Iterable[str] | None = None,
        ufunc: bool = False,
        owned: bool = True,
        aside: Aside | None = None,
        **statics: Any,
    ) -> Value:
        """Append one operation. On numbers alone the result is brought back to a number; constants are folded here."""
        weak = all(a.scalar for a in args)
        if not aside and all(a.reg in self.known for a in args):
            with np.errstate(all="ignore"):
                return self.number(self._folded(fn, kind, [self.known[a.reg] for a in args], statics), kind)
        axes = frozenset().union(*(a.axes for a in args)) if free is None else frozenset(free)
        out = self._register(kind, axes, weak, owned and not weak)
        ins = tuple(a.reg for a in args)
        self.steps.append(Step(fn, out.reg, ins, statics, kind if weak else "", ufunc and not weak, aside))
        return out

    def _folded(self, fn: Callable[..., Any], kind: str, args: Sequence[Any], statics: dict[str, Any]) -> Any:
        """Numbers alone are calculated with as in printed text."""
        names = dtype_names(self.real)
        args = [as_float(x, names["WIDE"]) for x in args] if kind == "f" else args
        typed = {k: v.type if isinstance(v, np.dtype) else v for k, v in statics.items()}
        return {"b": bool, "i": int, "f": names["REAL"], "c": names["COMPLEX"]}[kind](fn(*args, **typed))

    def number(self, value: Any, kind: str = "") -> Value:
        if isinstance(value, Fraction):
            value = int(value) if value.denominator == 1 else nearest_float(value)
        if not kind:
            kind = {bool: "b", int: "i", complex: "c"}.get(type(value), "f")
        v = self._register(kind, scalar=True)
        self.known[v.reg] = value
        return v

    # --- kinds ---------------------------------------------------------------------------------------------------

    def counted(self, v: Value) -> Value:
        if v.kind != "b":
            return v
        return self._converted(v, "i", int if v.scalar else kernels.counted)

    def inexact(self, v: Value) -> Value:
        v = self.counted(v)
        if v.kind != "i":
            return v
        return self._converted(v, "f", as_float, dtype=self.real)

    def _converted(self, v: Value, kind: str, fn: Callable[..., Any], **statics: Any) -> Value:
        key = ("convert", kind, v.reg)
        if key not in self.memo:
            self.memo[key] = self.step(fn, kind, v, **statics)
        return self.memo[key]

    def unified(self, values: Sequence[Value]) -> list[Value]:
        values = [self.counted(v) for v in values]
        return values if widest(v.kind for v in values) == "i" else [self.inexact(v) for v in values]


def widest(kinds: Iterable[str]) -> str:
    """The kind that holds all of them: b(ool) < i(nt) < f(loat) < c(omplex)."""
    return max(kinds, key=RANK.__getitem__, default="i")
