"""Extrema over rows of products: values by a kernel that holds no product, gradients by sums of rows named by an index.

On a GPU, operands of 16 bits go by tensor cores in one kernel that keeps the extremum and its position; elsewhere
products are made in slabs of columns and consumed. The gradient of a value flows to one row of the left operand: that
of the right one is a sum of rows by their positions, that of the left one a sum of the right one's rows over all values
with one position. Those are sorted, cut into parts of `PART` entries and added up part by part: no atomics, however
many values share a position, and the same bits in every call.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from functools import cached_property
from math import prod
from typing import Any

from redalg.adapters.heads.extrema import Extremum, Pooled
from redalg.adapters.heads.parts import placed, slabs
from redalg.adapters.heads.slabs import PITCH, WORKSPACE, Arrays, compiled, multiplied, shapes_of
from redalg.adapters.operands import own_tensors
from redalg.api import derive_incremental
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.gradients.calls import Jvp, Vjp, derived
from redalg.kernels.cuda.gathered import gathered_sums
from redalg.language.spec import Spec
from redalg.numeric.binding import by_output

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

PART = 128  # entries that are added up one after the other; parts are added after that


class Gathers:
    """The values of a `Pooled` spec, and their gradients; arrays are tensors of PyTorch by name. See `Slabs`."""

    def __init__(self, parts: Pooled, held: str | None, workspace: int | None) -> None:
        self.parts, self.held, self.workspace = parts, held, workspace
        self.product = parts.products[0]
        self.kept = list(parts.values.outputs)
        self.cotangents = {e.value: f"grad_{e.value}" for e in parts.extrema}
        self.axes = (*parts.left, *parts.right)
        self.cut = parts.right[0]
        self.sliced = placed(parts.values, (self.cut,))
        self.derivatives = [Vjp(e.element, given=()) for e in parts.extrema]
        self._runs: dict[Any, Any] = {}
        self._whole = derive_incremental(parts.whole, parts.stream, max_passes=1)

    # --- values ---

    def values(self, arrays: Arrays) -> Arrays:
        """Every value with its position."""
        return self._by_tensor_cores(arrays) or self._in_slabs(arrays)

    def _by_tensor_cores(self, arrays: Arrays) -> Arrays | None:
        """None where there are none for such arrays."""
        left = arrays[self.product.left.name]
        if not left.is_cuda or left.dtype.itemsize != 2 or self.held is not None:
            return None
        given = {**arrays, self.parts.size: self._length(arrays)}
        read = {d.name: given[d.name] for d in own_tensors(self.parts.whole)}
        key = ("tensor", *((a.dtype, a.shape, a.stride()) for a in read.values() if isinstance(a, torch.Tensor)))
        if key not in self._runs:
            self._runs[key] = self._whole.compile("cuda", schedule="tensor")
        run = self._runs[key]
        if run is None:
            return None
        try:
            return dict(run(**read))
        except RedalgError:
            self._runs[key] = None
            return None

    def _in_slabs(self, arrays: Arrays) -> Arrays:
        left, right = self.matrices(self.product, arrays)
        operands = self.product.left, self.product.right
        shape = {a: n for d in operands for a, n in zip(d.axes, arrays[d.name].shape, strict=True)}
        dtype = self.product_dtype(left.dtype)
        beside = prod(shape[a] for a in self.parts.right[1:])
        width, each = shape[self.cut], left.shape[0] * beside * dtype.itemsize
        found: Arrays = {}
        for start, stop in list(slabs(width, each, self.workspace or WORKSPACE)) or [(0, 0)]:
            columns = (stop - start) * beside
            pitch = -(-columns * dtype.itemsize // PITCH) * PITCH // dtype.itemsize
            out = left.new_empty((left.shape[0], pitch), dtype=dtype)[:, :columns]
            made = multiplied(out, left, right[start * beside : stop * beside].mT)
            made = made.unflatten(1, [stop - start, *(shape[a] for a in self.parts.right[1:])])
            made = made.unflatten(0, [*(shape[a] for a in self.parts.left), shape[self.parts.stream]])
            for name, value in self._run(self.sliced.spec, self._slab(arrays, made, start, stop, width)).items():
                if name not in found:
                    found[name] = value.new_empty([shape[a] for a in self.axes])
                found[name].narrow(self.axes.index(self.cut), start, stop - start).copy_(value)
        return found

    def _slab(self, arrays: Arrays, products: Any, start: int, stop: int, width: int) -> Arrays:
        """What the values of some columns read; `width`: how many columns there are."""
        read: Arrays = {self.product.leaf.name: products, self.parts.size: self._length(arrays)}
        for d in own_tensors(self.sliced.spec):
            if d.name in arrays:
                a = arrays[d.name]
                read[d.name] = a.narrow(d.axes.index(self.cut), start, stop - start) if self.cut in d.axes else a
        numbers = dict.fromkeys(self.sliced.first.values(), start) | dict.fromkeys(self.sliced.lengths.values(), width)
        return read | numbers

    def shapes(self, arrays: Arrays) -> Arrays:
        """Tensors like the values, without their numbers."""
        return shapes_of(
            self.sliced,
            own_tensors(self.parts.spec),
            arrays,
            {self.product.leaf.name: self.product_dtype(self._like(arrays).dtype)},
        )

    # --- gradients ---

    def gradients(self, arrays: Arrays, kept: Arrays, cotangents: Arrays) -> Arrays:
        """Of the caller's tensors, from values with their positions and the cotangents of values."""
        found: Arrays = {}
        for e, vjp in zip(self.parts.extrema, self.derivatives, strict=True):
            for name, value in self._of_one(e, vjp, arrays, kept, cotangents[e.value]).items():
                found[name] = found[name] + value if name in found else value
        return {n: x.to(arrays[n].dtype) for n, x in found.items() if arrays[n].is_floating_point()}

    def _of_one(self, e: Extremum, vjp: Vjp, arrays: Arrays, kept: Arrays, cotangent: Any) -> Arrays:
        position = kept[e.position]
        at, some = position.clamp_min(0), position >= 0
        there = self._there(e, vjp.specs.values(), arrays, at)
        given = {**arrays, **there, e.position: position, self.parts.size: self._length(arrays)}
        given[vjp.cotangents[e.value]] = cotangent
        sources = {new: old for old, new in e.there.items()}
        found: Arrays = {}
        if not self._length(arrays):
            return found
        for spec in dict.fromkeys(vjp.specs.values()):
            for output, value in self._run(spec, given).items():
                name, axes = output.removeprefix("grad_"), spec.output_axes[output]
                if name == e.product:
                    weights = torch.where(some, value, 0)
                    for operand, made in self._of_product(weights, at, arrays).items():
                        found[operand] = found[operand] + made if operand in found else made
                elif name in sources:
                    whole = torch.where(some, self._stretched(value, axes, at.shape), 0)
                    found[sources[name]] = self._back(sources[name], whole, at, arrays)
                else:
                    found[name] = self._as_tensor(name, value, axes, arrays)
        return found

    def tangents(self, arrays: Arrays, kept: Arrays, moving: Arrays) -> Arrays:
        """Of the values, along those of some tensors: how the elements at the positions move."""
        found = {e.value: torch.zeros_like(kept[e.value]) for e in self.parts.extrema}
        for e, jvp in zip(self.parts.extrema, self._pushes, strict=True):
            if jvp.spec is None or not self._length(arrays):
                continue
            position = kept[e.position]
            at, some = position.clamp_min(0), position >= 0
            given = {**arrays, **self._there(e, [jvp.spec], arrays, at), self.parts.size: self._length(arrays)}
            given[e.position] = position
            moved = self._moved(e, arrays, moving, at)
            for name, tangent in jvp.tangents.items():
                still = torch.zeros_like(arrays.get(name, kept[e.value]))
                given[tangent] = moved.get(name, still)
            ((output, value),) = self._run(jvp.spec, given).items()
            found[e.value] = torch.where(some, self._stretched(value, jvp.spec.output_axes[output], at.shape), 0)
        return found

    def _moved(self, e: Extremum, arrays: Arrays, moving: Arrays, at: Any) -> Arrays:
        """The tangents of what an element reads, but those that are 0."""
        taken = {new: self._taken(moving[n], n, at) for n, new in e.there.items() if n in moving}
        operands = (self.product.left.name, self.product.right.name)
        products = [self._products_at(at, arrays | {n: moving[n]}) for n in operands if n in moving]
        return moving | taken | ({e.product: sum(products)} if products else {})

    @cached_property
    def _pushes(self) -> list[Jvp]:
        return [Jvp(e.element) for e in self.parts.extrema]

    def _there(self, e: Extremum, specs: Iterable[Spec], arrays: Arrays, at: Any) -> Arrays:
        """What the element's derivative reads at the positions."""
        read = {d.name for s in specs for d in s.tensors}
        found = {}
        for name, new in e.there.items():
            if new in read:
                found[new] = self._taken(arrays[name], name, at)
        if e.product in read:
            found[e.product] = self._products_at(at, arrays)
        return found

    def _taken(self, array: Any, name: str, at: Any) -> Any:
        """A tensor along rows at positions of values: along the axes of these."""
        own = next(d for d in self.parts.spec.tensors if d.name == name).axes
        order = [own.index(a) for a in (*(a for a in self.axes if a in own), self.parts.stream)]
        array = array.permute(order)
        for k, a in enumerate(self.axes):
            array = array if a in own else array.unsqueeze(k)
        return torch.take_along_dim(array, at.unsqueeze(-1), -1).squeeze(-1)

    def _products_at(self, at: Any, arrays: Arrays) -> Any:
        """The product at every position, in slabs of columns."""
        left, right = self.matrices(self.product, arrays)
        where = self._rows(at, arrays)
        wide = torch.promote_types(left.dtype, torch.float32)
        made = left.new_empty(where.shape, dtype=wide)
        each = where.shape[0] * left.shape[1] * (left.dtype.itemsize + wide.itemsize)
        for start, stop in slabs(where.shape[1], each, self.workspace or WORKSPACE, 1):
            rows = left[where[:, start:stop]].to(wide)
            made[:, start:stop] = torch.einsum("nvd,vd->nv", rows, right[start:stop].to(wide))
        return made.view(at.shape)

    def _of_product(self, weights: Any, at: Any, arrays: Arrays) -> Arrays:
        """The gradients of both operands, by the gradient of the product at the positions."""
        p, (left, right) = self.product, self.matrices(self.product, arrays)
        where = self._rows(at, arrays)
        weights = weights.reshape(where.shape).to(torch.promote_types(left.dtype, torch.float32))
        by_left = by_position(weights, at.reshape(where.shape), right, self._length(arrays))
        by_right = by_entry(weights, where, left)
        found = {}
        for d, made, lead in (
            (p.left, by_left, (*self.parts.left, self.parts.stream)),
            (p.right, by_right, self.parts.right),
        ):
            sizes = dict(zip(d.axes, arrays[d.name].shape, strict=True))
            made, order = made.view([*(sizes[a] for a in lead), sizes[p.inner]]), (*lead, p.inner)
            found[d.name] = made.permute([order.index(a) for a in d.axes])
        return found

    def _back(self, name: str, value: Any, at: Any, arrays: Arrays) -> Any:
        """The gradient of a tensor along rows, from that of what was read of it at the positions."""
        d = next(d for d in self.parts.spec.tensors if d.name == name)
        lead = [a for a in self.axes if a in d.axes]
        order = [self.axes.index(a) for a in (*lead, *(a for a in self.axes if a not in lead))]
        sizes = dict(zip(d.axes, arrays[name].shape, strict=True))
        shape = (prod(sizes[a] for a in lead), -1)
        one = value.new_ones((1, 1))
        value, at = (x.permute(order).reshape(shape) for x in (value, at))
        made = by_position(value, at, one.expand(value.shape[1], 1), sizes[self.parts.stream])
        own = (*lead, self.parts.stream)
        return made.view([sizes[a] for a in own]).permute([own.index(a) for a in d.axes])

    def _as_tensor(self, name: str, value: Any, axes: tuple[str, ...], arrays: Arrays) -> Any:
        d = next(d for d in self.parts.spec.tensors if d.name == name)
        for k, a in enumerate(d.axes):
            value = value if a in axes else value.unsqueeze(k)
        return value.expand(arrays[name].shape)

    def _stretched(self, value: Any, axes: tuple[str, ...], shape: Any) -> Any:
        for k, a in enumerate(self.axes):
            value = value if a in axes else value.unsqueeze(k)
        return value.expand(shape)

    # --- what both do ---

    def matrices(self, p: Any, arrays: Arrays) -> tuple[Any, Any]:
        """Both operands as matrices: every row of the left one, every column of the values of the right one."""
        found = []
        for d, lead in ((p.left, (*self.parts.left, self.parts.stream)), (p.right, self.parts.right)):
            a = arrays[d.name].permute([d.axes.index(x) for x in (*lead, p.inner)])
            found.append(a.reshape(-1, a.shape[-1]) if a.shape[-1] else a.reshape(prod(a.shape[:-1]), 0))
        return found[0], found[1]

    def product_dtype(self, dtype: Any) -> Any:
        return getattr(torch, self.held) if self.held else torch.promote_types(dtype, torch.float32)

    def _like(self, arrays: Arrays) -> Any:
        return arrays[self.product.left.name]

    def _length(self, arrays: Arrays) -> int:
        return int(self._like(arrays).shape[self.product.left.axes.index(self.parts.stream)])

    def _rows(self, at: Any, arrays: Arrays) -> Any:
        """The positions as numbers of rows of the left matrix, [left, right]."""
        count = prod(at.shape[: len(self.parts.left)])
        at = at.reshape(count, -1) if at.numel() else at.reshape(count, prod(at.shape[len(self.parts.left) :]))
        return at + torch.arange(count, device=at.device)[:, None] * self._length(arrays)

    def _run(self, spec: Spec, given: Mapping[str, Any]) -> Arrays:
        read = {d.name: given[d.name] for d in own_tensors(spec)}
        target = "cuda" if any(getattr(a, "is_cuda", False) for a in read.values()) else "cpu"
        run = self._runs.get((spec, target))
        if run is None:
            run = self._runs[spec, target] = compiled(self._form(spec), target)
        found = run(**read)
        return by_output(spec.outputs, found)

    def _form(self, spec: Spec) -> Form:
        return derived(spec)


def by_entry(weights: Any, rows: Any, left: Any) -> Any:
    """[right, d]: Σ over the first axis of weights[n, v]·left[rows[n, v]]."""
    count, columns = weights.shape
    if left.is_cuda:
        starts = torch.arange(columns, device=left.device, dtype=torch.int32) * count
        out = torch.empty((columns, left.shape[1]), device=left.device, dtype=weights.dtype)
        places = rows.T.contiguous().int()
        return gathered_sums(left.contiguous(), places, weights.T.contiguous(), starts, starts + count, out)
    found = weights.new_zeros((columns, left.shape[1]))
    for k in range(count):
        found += weighted(left[rows[k]], weights[k])
    return found


def by_position(weights: Any, at: Any, right: Any, length: int) -> Any:
    """[left, length, d]: for every position the sum over values that are taken there of weights[n, v]·right[v]."""
    count, columns = weights.shape
    shape = (count, length, right.shape[1])
    if not weights.is_cuda:
        found = weights.new_zeros(shape)
        for k in range(count):
            found[k].index_add_(0, at[k], weighted(right, weights[k]))
        return found
    if not weights.numel() or not length:
        return weights.new_zeros(shape)
    order, start, stop, first, last = parts_by_position(weights, at, length)
    sums = torch.empty((len(start), right.shape[1]), device=right.device, dtype=weights.dtype)
    gathered_sums(right.contiguous(), order, torch.gather(weights, 1, order.long()), start, stop, sums)
    out = torch.empty((count * length, right.shape[1]), device=right.device, dtype=weights.dtype)
    every = torch.arange(len(start), device=right.device, dtype=torch.int32)
    return gathered_sums(sums, every, weights.new_ones(len(start)), first, last, out).view(shape)


def parts_by_position(weights: Any, at: Any, length: int) -> tuple[Any, ...]:
    """Values of weights that are not 0 in the order of their positions, cut into parts; everything is of int32.

    ``order[n, :]``: the values of a row, sorted; those of one position and row follow each other, in their own order.
    Part p has the entries from ``start[p]`` to ``stop[p]`` of all rows one after the other, position r the parts from
    ``first[r]`` to ``last[r]``. How many parts there may be follows from the shapes alone; those at the end are empty.
    """
    (count, columns), device = weights.shape, weights.device
    narrow = torch.int16 if length < 1 << 15 else torch.int32
    key, order = torch.sort(torch.where(weights != 0, at, length).to(narrow), dim=1, stable=True)
    every = torch.arange(length + 1, device=device, dtype=narrow).expand(count, length + 1).contiguous()
    bounds = torch.searchsorted(key, every) + torch.arange(count, device=device)[:, None] * columns
    begin, end = bounds[:, :-1].flatten(), bounds[:, 1:].flatten()
    last = torch.cumsum((end - begin + PART - 1) // PART, 0)
    first = torch.cat([last.new_zeros(1), last[:-1]])
    number = torch.arange(len(begin) + -(-count * columns // PART), device=device)
    run = torch.searchsorted(last, number, right=True).clamp_max(len(begin) - 1)
    start = begin[run] + (number - first[run]) * PART
    stop = torch.minimum(start + PART, end[run])
    start = torch.minimum(start, stop)
    return tuple(x.to(torch.int32) for x in (order, start, stop, first, last))


def weighted(rows: Any, weights: Any) -> Any:
    """Rows times weights; rows of weight 0 are not read."""
    return torch.where(weights[:, None] != 0, rows.to(weights.dtype) * weights[:, None], 0)


__all__ = ["PART", "Gathers", "by_entry", "by_position", "parts_by_position"]
