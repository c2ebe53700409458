"""Heads in slabs: products made by the library's matrix product, consumed by derived kernels of rows, and forgotten.

A slab is a part of one axis, of rows or of columns. What has the axis is cut; a gradient that has it is written slab
by slab, any other is a sum over slabs, in float32. Slabs come in order: the same call gives the same bits.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from redalg.adapters.heads.parts import Head, Placed, Product, hoisted, placed, reduces, slabs
from redalg.adapters.operands import OnHost, own_tensors
from redalg.adapters.torch_op import numpy_dtype, torch_dtype
from redalg.form import Form
from redalg.gradients.calls import Vjp, derived
from redalg.graph.node import Decl
from redalg.language.spec import Spec
from redalg.numeric.binding import by_output
from redalg.numeric.dtypes import output_flows

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

NARROWEST = 1024  # columns of a slab; with fewer, slabs of rows move less memory
WORKSPACE = 512 << 20  # bytes of products at a time, where a plan has no reason for more
PITCH = 128  # bytes that rows of products start at multiples of: whole vectors, and what matrix products like
ADDED = 128 << 20  # bytes of a product that is made before it is added
Arrays = dict[str, Any]


class Slabs:
    """The values of a head's rows, and their gradients; arrays are tensors of PyTorch by name.

    `held`: the dtype that products are held in, None for at least float32; `workspace`: bytes of products at a time,
    None for what a plan chooses.
    """

    def __init__(self, parts: Head, held: str | None, workspace: int | None) -> None:
        self.parts, self.held, self.workspace = parts, held, workspace
        operands = [d for p in parts.products for d in (p.left, p.right)]
        # values that are saved, since sums along rows again would rule out slabs of columns
        self.vjp = Vjp(parts.values, given="all", taken=[d.name for d in operands])
        self.forward = placed(self.vjp.forward, (parts.row,))
        self._runs: dict[tuple[Spec, str], Any] = {}
        specs = (self.forward.spec, *self.vjp.specs.values())
        self.decls = {d.name: d for s in specs for d in s.tensors} | {d.name: d for d in operands}

        self.kept, self.cotangents = list(self.vjp.forward.outputs), self.vjp.cotangents

    # --- rows ---

    def shapes(self, arrays: Arrays) -> Arrays:
        """Tensors like the values, without their numbers."""
        products = {p.leaf.name: self.product_dtype(arrays[p.left.name].dtype) for p in self.parts.products}
        return shapes_of(self.forward, self.decls.values(), arrays, products)

    def values(self, arrays: Arrays) -> Arrays:
        """Every output of `Vjp.forward`, whole, from slabs of rows."""
        row = self.parts.row
        found: Arrays = {}
        for start, stop in self.row_slabs(arrays):
            for name, value in self.values_of(self.cut(arrays, row, start, stop), start, arrays).items():
                axes = self.forward.spec.output_axes[name]
                if row not in axes:  # a length, the same for all slabs
                    found[name] = value
                    continue
                at = axes.index(row)
                if name not in found:
                    shape = [*value.shape[:at], self.length(arrays, row), *value.shape[at + 1 :]]
                    found[name] = value.new_empty(shape)
                found[name].narrow(at, start, stop - start).copy_(value)
        return found

    def values_of(self, part: Arrays, start: int, whole: Arrays) -> Arrays:
        """Of one slab, from what it reads, the products among it or made here."""
        read = part if self._first.leaf.name in part else part | self.products(part)
        return self.run(self.forward, read, {self.parts.row: start}, whole)

    def row_slabs(self, arrays: Arrays, graded: bool = False) -> list[tuple[int, int]]:
        """At least one, of no rows where there are none; `graded`: gradients are added up over them.

        Sums of the gradients of the right operands, in float32, would take memory and traffic of their own: as much is
        spent on products first, of which one slab may then hold all, and nothing is added up.
        """
        rows, columns = (self.length(arrays, a) for a in (self.parts.row, self.parts.column))
        room = self.workspace or WORKSPACE
        if graded and self.workspace is None:
            room = max(room, sum(4 * arrays[p.right.name].numel() for p in self.parts.products))
        return list(slabs(rows, self._bytes(arrays) * columns, room)) or [(0, 0)]

    # --- gradients ---

    def gradients(self, arrays: Arrays, kept: Arrays, cotangents: Arrays) -> Arrays:
        """Of the caller's tensors, from the values of `values` and the cotangents of those that have one."""
        beside = {tensor: kept[name] for tensor, name in self.vjp.saved_tensors.items()}
        beside |= {self.vjp.cotangents[n]: c for n, c in cotangents.items()}
        axis, parts = self._gradient_slabs(arrays)
        found = Gradients(self, arrays, axis, len(parts))
        for start, stop in parts:
            part = self.cut({**arrays, **beside}, axis, start, stop)
            found.add(part, self.products(part), start, stop)
        return found.results()

    def _gradient_slabs(self, arrays: Arrays) -> tuple[str, list[tuple[int, int]]]:
        """The axis that is cut, and its parts."""
        columns = self.length(arrays, self.parts.column)
        each = self._bytes(arrays) * self.length(arrays, self.parts.row)
        room = self.workspace or WORKSPACE
        if self._by_columns() and room // max(1, each) >= min(NARROWEST, columns):
            return self.parts.column, list(slabs(columns, each, room))
        return self.parts.row, self.row_slabs(arrays, graded=True)

    def _by_columns(self) -> bool:
        """Whether nothing is reduced along a row, and everything that has a gradient has columns."""
        column, leaves = self.parts.column, {p.leaf.name for p in self.parts.products}
        if any(column not in d.axes for n, d in self.vjp.wrt.items() if n not in leaves):
            return False
        return not any(reduces(s, column) for s in self.vjp.specs.values())

    @cached_property
    def gradient_specs(self) -> list[tuple[Placed | None, Placed]]:
        """Of every spec of gradients what varies along rows alone, if it is a map, and the rest."""
        axes, found = (self.parts.row, self.parts.column), []
        for spec in dict.fromkeys(self.vjp.specs.values()):
            of_rows, rest = (None, spec) if any(reduces(spec, a) for a in axes) else hoisted(spec, *axes)
            found.append((None if of_rows is None else placed(of_rows, axes), placed(rest, axes)))
        return found

    # --- what both do ---

    def cut(self, arrays: Arrays, axis: str, start: int, stop: int) -> Arrays:
        """What has the axis, cut to a part of it; all else as it is."""
        return {n: narrowed(a, self.decls[n], axis, start, stop) if n in self.decls else a for n, a in arrays.items()}

    def products(self, part: Arrays) -> Arrays:
        """The products of the operands as they are cut, by the name of their leaf."""
        found = {}
        for p in self.parts.products:
            left, right = self.matrices(p, part)
            dtype = self.product_dtype(left.dtype)
            pitch = -(-right.shape[0] * dtype.itemsize // PITCH) * PITCH // dtype.itemsize
            out = left.new_empty((left.shape[0], pitch), dtype=dtype)[:, : right.shape[0]]
            found[p.leaf.name] = multiplied(out, left, right.mT)
        return found

    def matrices(self, p: Product, arrays: Arrays) -> tuple[Any, Any]:
        """Both operands, or what has their shapes, as matrices of rows and of columns."""
        return matrix(arrays[p.left.name], p.left, p.inner), matrix(arrays[p.right.name], p.right, p.inner)

    def run(
        self, spec: Placed, read: Arrays, starts: Mapping[str, int], whole: Arrays, out: Any | None = None
    ) -> Arrays:
        """The results of a spec on a part of the axes in `starts`, which says where they begin; `whole`: lengths."""
        arguments = {d.name: read[d.name] for d in own_tensors(spec.spec) if d.name in read}
        arguments |= {name: starts.get(a, 0) for a, name in spec.first.items()}
        arguments |= {name: self.length(whole, a) for a, name in spec.lengths.items()}
        target = "cuda" if any(getattr(a, "is_cuda", False) for a in arguments.values()) else "cpu"
        run = self._runs.get((spec.spec, target))
        if run is None:
            run = self._runs[spec.spec, target] = compiled(derived(spec.spec), target)
        found = run(**arguments) if out is None else run(**arguments, out=out)
        return by_output(spec.spec.outputs, found)

    def product_dtype(self, dtype: Any) -> Any:
        return getattr(torch, self.held) if self.held else torch.promote_types(dtype, torch.float32)

    def length(self, arrays: Arrays, axis: str) -> int:
        """Of the whole arrays."""
        own = (d for d in self.decls.values() if axis in d.axes and d.name in arrays)
        d = next(own)
        return int(arrays[d.name].shape[d.axes.index(axis)])

    @property
    def _first(self) -> Product:
        return self.parts.products[0]

    def _bytes(self, arrays: Arrays) -> int:
        """Of all products, for one row and one column."""
        return sum(self.product_dtype(arrays[p.left.name].dtype).itemsize for p in self.parts.products)


class Gradients:
    """What slabs of one axis add up to, by tensor of the caller."""

    def __init__(self, slabs: Slabs, arrays: Arrays, axis: str, count: int) -> None:
        self.slabs, self.arrays, self.axis = slabs, arrays, axis
        leaves = {f"grad_{p.leaf.name}" for p in slabs.parts.products}
        made = list(slabs.gradient_specs)
        made.sort(key=lambda pair: not leaves.isdisjoint(pair[1].spec.outputs))  # these may overwrite products
        self.specs = made
        sources = self._sources()
        self.once = {n for n, s in sources.items() if s == 1 and (count == 1 or axis in slabs.decls[n].axes)}
        self.found = {
            n: torch.empty_like(arrays[n], memory_format=torch.contiguous_format) if n in self.once else _sum(arrays[n])
            for n in sources
        }

    def _sources(self) -> dict[str, int]:
        """How many gradients each floating-point tensor of the caller is given: of the values' spec, of products."""
        vjp, products = self.slabs.vjp, self.slabs.parts.products
        found = dict.fromkeys((d.name for p in products for d in (p.left, p.right)), 0)
        found |= dict.fromkeys((n for n in vjp.wrt if n in self.arrays), 0)
        for n in vjp.specs:
            if n in found:
                found[n] += 1
        for p in products:
            if p.leaf.name in vjp.specs:
                found[p.left.name] += 1
                found[p.right.name] += 1
        return {n: count for n, count in found.items() if self.arrays[n].is_floating_point()}

    def add(self, part: Arrays, products: Arrays, start: int, stop: int) -> None:
        """The gradients of a slab: `part` is what it reads, cut; its `products` may be overwritten."""
        slopes: Arrays = {}
        for of_rows, spec in self.specs:
            read = part
            if of_rows is not None:
                read = part | self.slabs.run(of_rows, part, {self.axis: start}, self.arrays)
            made = self._made(spec, read, products, start)
            for name, value in made.items():
                own = name.removeprefix("grad_")
                if own in self.found:
                    self._put(own, value, spec.spec.output_axes[name], part[own], start, stop)
                else:
                    slopes[own] = self._whole(value, spec.spec.output_axes[name], products[own])
        for p in self.slabs.parts.products:
            if p.leaf.name in slopes:
                self._multiplied(p, slopes[p.leaf.name], part, start, stop)

    def _made(self, spec: Placed, part: Arrays, products: Arrays, start: int) -> Arrays:
        """The gradients of a slab. That of a product alone, element by element, takes its place in memory.

        Rows of products are padded to whole vectors: a map may run over what pads them, too, and a result that has
        the place of an operand has to be contiguous.
        """
        names, leaf = list(spec.spec.outputs), next(iter(spec.spec.outputs)).removeprefix("grad_")
        read = [d for d in spec.spec.tensors if self.slabs.parts.column in d.axes]
        if len(names) > 1 or [d.name for d in read] != [leaf] or reduces(spec.spec, self.slabs.parts.column):
            return self.slabs.run(spec, part | products, {self.axis: start}, self.arrays)
        padded = whole_rows(products[leaf])
        made = self.slabs.run(spec, {**part, leaf: padded}, {self.axis: start}, self.arrays, out=padded)
        return {names[0]: made[names[0]][:, : products[leaf].shape[1]]}

    def _whole(self, value: Any, axes: tuple[str, ...], product: Any) -> Any:
        """The gradient of a product along both axes: that of a plain sum is the same all along a row."""
        for at, axis in enumerate((self.slabs.parts.row, self.slabs.parts.column)):
            value = value if axis in axes else value.unsqueeze(at)
        return value.expand_as(product)

    def _put(self, name: str, value: Any, axes: tuple[str, ...], like: Any, start: int, stop: int) -> None:
        """A gradient that the values' spec has of a tensor, repeated along the axes that it lacks."""
        for at, axis in enumerate(self.slabs.decls[name].axes):
            value = value if axis in axes else value.unsqueeze(at)
        target = self._part(name, start, stop)
        target.copy_(value.expand_as(like)) if name in self.once else target.add_(value.expand_as(like))

    def _multiplied(self, p: Product, slope: Any, part: Arrays, start: int, stop: int) -> None:
        """dH = dZ·W and dW = dZᵀ·H, with dZ rounded to the operands' dtype."""
        left, right = self.slabs.matrices(p, part)
        slope = slope.to(left.dtype)
        for d, a, b in ((p.left, slope, right), (p.right, slope.mT, left)):
            if d.name in self.found:
                target = matrix(self._part(d.name, start, stop), d, p.inner)
                multiplied(target, a, b, added=d.name not in self.once)

    def _part(self, name: str, start: int, stop: int) -> Any:
        return narrowed(self.found[name], self.slabs.decls[name], self.axis, start, stop)

    def results(self) -> Arrays:
        return {n: x.to(self.arrays[n].dtype) for n, x in self.found.items()}


def shapes_of(spec: Placed, decls: Iterable[Decl], arrays: Arrays, products: Mapping[str, Any]) -> Arrays:
    """Tensors like the results of a spec: `arrays` are the caller's, `products` the dtypes of products."""
    like, outputs = next(iter(arrays.values())), spec.spec.output_axes
    dtypes = {n: numpy_dtype(a.dtype) for n, a in arrays.items()}
    dtypes |= {n: numpy_dtype(x) for n, x in products.items()}
    dtypes |= {n: numpy_dtype(torch.int64) for n in (*spec.first.values(), *spec.lengths.values())}
    own = [d for d in decls if d.name in arrays]
    sizes = {a: n for d in own for a, n in zip(d.axes, arrays[d.name].shape, strict=True)}
    return {
        n: like.new_empty([sizes[a] for a in outputs[n]], dtype=torch_dtype(f.dtype))
        for n, f in output_flows(spec.spec, dtypes).items()
    }


def narrowed(array: Any, d: Decl, axis: str, start: int, stop: int) -> Any:
    """A part of an array along an axis, where it has the axis."""
    return array.narrow(d.axes.index(axis), start, stop - start) if axis in d.axes else array


def matrix(array: Any, d: Decl, inner: str) -> Any:
    """An operand with the axis that is summed last."""
    return array if d.axes[1] == inner else array.mT


def whole_rows(product: Any) -> Any:
    """A product with what pads its rows: contiguous."""
    return product.as_strided((product.shape[0], product.stride(0)), (product.stride(0), 1))


def multiplied(out: Any, a: Any, b: Any, added: bool = False) -> Any:
    """``out = a·b``, or ``out += a·b``: added in at least float32, rounded once to the format of `out`."""
    if a.dtype == out.dtype:
        return out.addmm_(a, b) if added else torch.mm(a, b, out=out)
    if a.is_cuda and out.dtype == torch.float32 and not added:
        return torch.mm(a, b, out_dtype=out.dtype, out=out)
    # PyTorch's own addition to another dtype makes a copy of all of `out`: products of some rows are made and added.
    rows = max(1, ADDED // max(1, 4 * b.shape[1]))
    for start in range(0, a.shape[0], rows):
        part, product = out[start : start + rows], _wide(a[start : start + rows], b)
        part.add_(product) if added else part.copy_(product)
    return out


def _wide(a: Any, b: Any) -> Any:
    """The product of operands of 16 bits in float32."""
    if a.dtype.itemsize > 2:
        return torch.mm(a, b)
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.mm(a.float(), b.float())


def _sum(like: Any) -> Any:
    return torch.zeros(like.shape, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)


def compiled(form: Form, target: str) -> Any:
    """On the CPU, by NumPy what has no kernel. Results are contiguous."""
    if target != "cuda":
        return OnHost(form)
    run = form.compile("cuda")
    run.alike = False
    return run


__all__ = ["PITCH", "WORKSPACE", "Arrays", "Gradients", "Slabs", "compiled", "multiplied", "shapes_of"]
