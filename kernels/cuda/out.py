"""Arrays on a GPU that receive the results of a call: what they must be like, and what is computed elsewhere first.

A kernel reads its operands while it writes its results. Where a result would be written over memory that an operand
still lies in, it goes to an array of its own and is copied when the kernel is done, in the order of the stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE
from redalg.kernels.launch.arrays import NUMPY, Framework, alignment, dtype_name, framework_of
from redalg.numeric.out import FRESH, by_output, require_apart

WHERE = "the call"
Output = tuple[str, tuple[int, ...], str]  # name, shape, dtype


class Receiving:
    """The results of one kind of call.

    `views`: how operands lie, by name; `sizes`: bytes of their elements; `places`: where they stand among the arrays of
    a call; `over`: the operands a result may overwrite where it lies index by index (`redalg.kernels.launch.in_place`).
    """

    def __init__(
        self,
        framework: Framework,
        device: int,
        outputs: Sequence[Output],
        views: Mapping[str, View],
        sizes: Mapping[str, int],
        places: Mapping[str, int],
        over: Mapping[str, frozenset[str]],
    ) -> None:
        self.framework, self.device, self.outputs = framework, device, outputs
        self.bytes = [prod(shape) * STORAGE[dtype] for _, shape, dtype in outputs]
        self.extents = [(places[n], *extent_of(view, sizes[n])) for n, view in views.items() if 0 not in view.shape]
        self.over = [
            frozenset(
                places[n]
                for n in over.get(name, ())
                if sizes[n] == STORAGE[dtype] and views[n].strides == View.contiguous(shape).strides
            )
            for name, shape, dtype in outputs
        ]

    def checked(self, out: Any) -> list[Any]:
        """The arrays of `out`, in the order of the outputs. Raises: RedalgError for what cannot take its result."""
        given = by_output(out, [name for name, _, _ in self.outputs], WHERE)
        for name, shape, dtype in self.outputs:
            self._check(name, given[name], shape, dtype)
        found = [given[name] for name, _, _ in self.outputs]
        if self.framework is NUMPY:
            require_apart(given, WHERE)
        else:
            self._require_apart(found)
        return found

    def elsewhere(self, held: Sequence[Any], targets: Sequence[Any]) -> list[int]:
        """The numbers of the results that would overwrite memory of an operand that is still to be read.

        Operands are taken to fill everything between their first byte and their last.
        """
        pointer, found = self.framework.pointer, []
        at = [(place, pointer(held[place]), low, high) for place, low, high in self.extents]
        for number, (target, size, over) in enumerate(zip(targets, self.bytes, self.over, strict=True)):
            first = pointer(target)
            beneath = [p for p, start, low, high in at if start + low < first + size and first < start + high]
            if size and any(p not in over or pointer(held[p]) != first for p in beneath):
                found.append(number)
        return found

    def _require_apart(self, targets: Sequence[Any]) -> None:
        pointer = self.framework.pointer
        spans = [(pointer(x), n) for x, n in zip(targets, self.bytes, strict=True)]
        for (a, (p, n)), (b, (q, m)) in combinations(enumerate(spans), 2):
            if n and m and p < q + m and q < p + n:
                what = f"out for {self.outputs[a][0]} and out for {self.outputs[b][0]}"
                raise RedalgError(what, WHERE, "they share memory, and one result would overwrite the other", FRESH)

    def _check(self, name: str, x: Any, shape: tuple[int, ...], dtype: str) -> None:
        kind = framework_of(x)
        if kind is not self.framework or not hasattr(x, "shape"):
            why = f"the arrays of the call are {self.framework.kind}"
            raise RedalgError(f"out for {name} of type {type(x).__name__}", WHERE, why, "pass an array of that kind")
        if tuple(x.shape) != shape or dtype_name(x) != dtype:
            what = f"out for {name} of shape {tuple(x.shape)} and dtype {dtype_name(x)}"
            why = f"the result has shape {shape} and dtype {dtype}"
            raise RedalgError(what, WHERE, why, "pass an array of that shape and dtype")
        fixed = kind.fixed(x)
        if fixed:
            raise RedalgError(f"out for {name}", WHERE, fixed, "pass an array that results can be written to")
        if kind is not NUMPY:
            self._check_place(name, x, shape)

    def _check_place(self, name: str, x: Any, shape: tuple[int, ...]) -> None:
        """Raises: RedalgError for an array on a GPU that kernels do not write to."""
        kind = self.framework
        if kind.device(x) != self.device:
            why = f"it lies on device {kind.device(x)}, the arrays of the call on device {self.device}"
            raise RedalgError(f"out for {name}", WHERE, why, f"pass an array on device {self.device}")
        strides = kind.strides(x)
        if prod(shape) > 1 and strides != View.contiguous(shape).strides:
            what = f"out for {name} with strides {strides}"
            raise RedalgError(what, WHERE, "results are written to contiguous arrays", "pass a contiguous array")
        if 0 not in shape and alignment(kind.pointer(x)) < 16:
            what = f"out for {name} at an address that is no multiple of 16"
            why, fix = "results are written 16 bytes at a time", "pass an array that starts at one, or leave out away"
            raise RedalgError(what, WHERE, why, fix)


def extent_of(view: View, size: int) -> tuple[int, int]:
    """From where to where the elements of an array lie, in bytes from its address.

    >>> extent_of(View((3, 4), (-4, 1)), 4), extent_of(View((3, 4), (0, 2)), 2)
    ((-32, 16), (0, 14))
    """
    reach = [s * (n - 1) for s, n in zip(view.strides, view.shape, strict=True)]
    return size * sum(min(0, r) for r in reach), size * (1 + sum(max(0, r) for r in reach))


def filled(targets: list[Any], found: Sequence[np.ndarray | Any]) -> list[Any]:
    """The targets, with what was found in them."""
    for target, value in zip(targets, found, strict=True):
        target[...] = value
    return targets
