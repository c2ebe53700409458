"""Straight-line NumPy programs: what a graph becomes once, so that a call is nothing but a list of array operations.

A `Tape` works on registers. Every array in a register has one dimension per axis of the layout, of length 1 where it
does not vary, behind one leading batch dimension; so broadcasting is NumPy's own. Numbers known without data stay
Python or NumPy scalars. A step may write into the register of an argument that nobody reads afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from redalg.numeric_integers import LARGEST

Array = Any
COMPLEX = {"f": "F", "d": "D", "g": "G"}  # real type code -> complex type code


def complex_of(real: np.dtype) -> np.dtype:
    return np.dtype(COMPLEX[real.char])


class Value(NamedTuple):
    """What is known of a register when the tape is built: b(ool) i(nt) f(loat) c(omplex), and whether it is ours."""

    reg: int
    kind: str
    axes: frozenset[str]
    scalar: bool = False
    owned: bool = False


class Step(NamedTuple):
    fn: Callable[..., Any]
    out: int
    ins: tuple[int, ...]
    into: int = -1  # register whose array the result overwrites, or -1
    frees: tuple[int, ...] = ()


class Load(NamedTuple):
    """How an argument enters: dimensions permuted to the layout's order, new ones inserted, converted if needed."""

    reg: int
    name: str
    perm: tuple[int, ...]
    place: tuple[Any, ...]
    dtype: np.dtype | None
    contiguous: bool


class Ramp(NamedTuple):
    """``index(axis)``: consecutive positions from the offset on."""

    reg: int
    axis: str
    shape: tuple[int, ...]


class Root(NamedTuple):
    """How a result leaves: dimensions in the order asked for; axes it lacks are broadcast."""

    reg: int
    perm: tuple[int, ...]
    drop: tuple[Any, ...]
    order: tuple[str, ...]
    lacks: bool
    copy: bool
    dtype: np.dtype


@dataclass(frozen=True)
class Tape:
    """A compiled list of nodes; `run` is thread-safe."""

    template: tuple[Any, ...]
    lengths: tuple[tuple[int, str], ...]
    loads: tuple[Load, ...]
    ramps: tuple[Ramp, ...]
    steps: tuple[Step, ...]
    roots: tuple[Root, ...]
    extents: tuple[frozenset[str], ...]  # the distinct axis sets of temporaries

    def run(self, env: Mapping[str, Any], sizes: Mapping[str, int] = {}, offset: Mapping[str, int] = {}) -> list[Array]:
        """The roots as arrays with a leading batch dimension. Scalars (`n`, Python numbers) are taken as they are."""
        regs = list(self.template)
        for reg, axis in self.lengths:
            regs[reg] = length_of(axis, sizes)
        for reg, name, perm, index, dtype, contiguous in self.loads:
            regs[reg] = _enter(env[name], perm, index, dtype, contiguous)
        for reg, axis, shape in self.ramps:
            start = offset.get(axis, 0)
            regs[reg] = np.arange(start, start + length_of(axis, sizes), dtype=np.int64).reshape(shape)
        execute(self.steps, regs)
        return [_leave(regs[root.reg], root, sizes) for root in self.roots]

    def extent(self, sizes: Mapping[str, int], streamed: str) -> int:
        """Elements that the largest temporary along the streamed axis has per index of it."""
        along = (axes - {streamed} for axes in self.extents if streamed in axes)
        return max((prod(sizes.get(of_copy(axis), 1) for axis in axes) for axes in along), default=1)


def of_copy(axis: str) -> str:
    """The axis itself: that of ``g'``, a second index along ``g``, is ``g``."""
    return axis.rstrip("'")


def length_of(axis: str, sizes: Mapping[str, int]) -> int:
    return sizes[of_copy(axis)]


def execute(steps: Sequence[Step], regs: list[Any]) -> None:
    for fn, out, ins, into, frees in steps:
        if into < 0:
            regs[out] = fn(*[regs[i] for i in ins])
        else:
            regs[out] = fn(*[regs[i] for i in ins], out=regs[into])
        for reg in frees:
            regs[reg] = None


def _enter(value: Any, perm: tuple[int, ...], index: tuple[Any, ...], dtype: np.dtype | None, contiguous: bool) -> Any:
    if not perm:  # a number, or an array without dimensions
        if isinstance(value, np.ndarray) and value.dtype == object:
            return value[index]
        return value if dtype is None or not isinstance(value, np.ndarray) else value.astype(dtype)[index]
    value = value.transpose(perm)[index]
    if dtype is not None and value.dtype != dtype and value.dtype != object:  # objects are integers beyond int64
        return value.astype(dtype, order="C" if contiguous else "K")
    return np.ascontiguousarray(value) if contiguous else value


def _leave(value: Any, root: Root, sizes: Mapping[str, int]) -> Array:
    if not isinstance(value, np.ndarray) or not value.ndim:
        wide = root.dtype.kind == "i" and not isinstance(value, np.ndarray) and abs(int(value)) > LARGEST
        value = np.asarray(value, object if wide else root.dtype).reshape((1,) * len(root.perm))
    result = value.transpose(root.perm)[root.drop]
    if root.lacks:
        result = np.broadcast_to(result, (result.shape[0], *(length_of(axis, sizes) for axis in root.order)))
    if root.copy or result.dtype != root.dtype and result.dtype != object:
        result = result.astype(root.dtype if result.dtype != object else object, order="C")
    return result


def finish(steps: Sequence[tuple[Step, bool]], values: Mapping[int, Value], kept: Sequence[int]) -> tuple[Step, ...]:
    """Free registers after their last use, and let ufuncs (flagged) write into an argument that dies there."""
    last: dict[int, int] = {}
    for number, (step, _) in enumerate(steps):
        last.update(dict.fromkeys(step.ins, number))
    done = []
    for number, (step, ufunc) in enumerate(steps):
        dying = [i for i in dict.fromkeys(step.ins) if last[i] == number and i not in kept]
        out = values[step.out]
        fit = [i for i in dying if ufunc and _fits(values[i], out)]
        done.append(step._replace(into=fit[0] if fit else -1, frees=tuple(dying)))
    return tuple(done)


def _fits(argument: Value, out: Value) -> bool:
    return argument.owned and not argument.scalar and argument.kind == out.kind in "fc" and argument.axes == out.axes
