"""Printed matrix products run by emulation (`redalg.kernels.emulate.run`): every thread of the grid.

What prepares an operand in the same launch runs too: rows of scratch appear while tiles wait for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redalg.kernels.emulate.arguments import Arguments
from redalg.kernels.emulate.math import NARROW, narrowed, widened
from redalg.kernels.emulate.memory import CELL, Numbers, Pointer
from redalg.kernels.emulate.run import run
from redalg.kernels.emulate.tiles import PixelMap, TensorMap, TensorMaps
from redalg.kernels.gemm.prologue import PARTS
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import result_key
from redalg.kernels.launch.planned import Map, Planned, Tile


def stored(x: Any, dtype: str) -> Any:
    """Numbers as cells of memory."""
    return narrowed(np.asarray(x, np.float32), dtype, np.float32) if dtype in NARROW else np.asarray(x, CELL[dtype])


def memory(x: Any) -> Any:
    """An array as it lies in memory: one whose last two axes are exchanged, as it was before; what `laid` has laid out;
    nothing of other views, which are read by tensor maps alone."""
    if isinstance(x.base, np.ndarray) and x.base.ndim == 1 and x.ctypes.data == x.base.ctypes.data:
        return x.base.view(x.dtype)
    found = x if x.flags.c_contiguous else np.swapaxes(x, -1, -2)
    return found if found.flags.c_contiguous else np.empty(0, x.dtype)


def laid(x: Any, view: View) -> Any:
    """An array that lies as a view says, NaN between its rows."""
    room = Product.fresh(view, x.dtype.name)
    found = np.ndarray(view.shape, x.dtype, room, 0, [s * x.itemsize for s in view.strides])
    found[...] = x
    return found


def first_rows(planned: Planned) -> int:
    """Rows that a warpgroup prepares at a time."""
    found = re.search(r"^PROLOGUE_ROWS = (\d+)$", planned.module.source, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


@dataclass
class Product:
    """One launch. `cells`: operands as they lie in memory, logical axes; numbers by value. Scratch starts as NaN."""

    planned: Planned
    cells: Mapping[str, Any]

    def __post_init__(self) -> None:
        planned, seen = self.planned, self.planned.kernel.seen.arrays
        self.cells = {n: x.reshape(seen[n].view.shape) if n in seen else x for n, x in self.cells.items()}
        self.operands = {o.name: o for o in (*planned.program.operands, *(o for o, _ in planned.scratch.values()))}
        # what is handed on beside the operands of the product: results of what runs inside
        inside = {r.name: r for made in planned.inside for r in made.program.results}
        self.views = {n: view for n, (_, view) in planned.scratch.items()}
        self.views |= {n: View.contiguous(planned.shapes[n]) for n in inside if n not in self.views}
        kinds = {n: o.dtype for n, (o, _) in planned.scratch.items()} | {n: r.dtype for n, r in inside.items()}
        self.scratch = {n: self.fresh(view, kinds[n]) for n, view in self.views.items()}
        self.kinds = kinds
        params = {p.name for p in planned.module.params if p.role == "result"}
        own = [r for r in planned.program.results if r.name in params and r.name not in self.scratch]
        self.results = {r.name: self.numbers(r.name) for r in own}
        self.dtypes = {r.name: r.dtype for r in own}
        self.finished = np.zeros(PARTS + 1, np.int32)

    @staticmethod
    def fresh(view: View, dtype: str) -> Any:
        cell = CELL[dtype]
        return np.full(
            max([1, *(n * s for n, s in zip(view.shape, view.strides, strict=True))]) * cell.itemsize, 0xFF, np.uint8
        ).view(cell)

    def fill(self, name: str, x: Any) -> None:
        """Scratch that a launch before this one has filled."""
        self.seen(name)[...] = stored(x, self.kinds[name]).reshape(self.views[name].shape)

    def seen(self, name: str) -> Any:
        """An operand with its logical shape."""
        if name not in self.scratch:
            return self.cells[name]
        view, flat = self.views[name], self.scratch[name]
        return np.lib.stride_tricks.as_strided(flat, view.shape, [s * flat.itemsize for s in view.strides])

    def map(self, m: Map) -> TensorMap | PixelMap:
        if m.tile is Tile.RESULT:
            return self.map_of_result(m)
        operand = self.operands[m.operand]
        if m.pixels is not None or m.steps:
            x, pixels = self.seen(m.operand), m.pixels
            shape = [self.planned.sizes[a] for a in m.axes] if pixels is None else pixels.lengths
            steps = [s * x.itemsize for s in (m.steps if pixels is None else pixels.strides)]
            turned = np.lib.stride_tricks.as_strided(x, shape[::-1], steps[::-1])
            if pixels is None:
                return TensorMap(turned, operand.dtype, m.rows)
            corners = zip(*((s.lower, s.upper, s.step) for s in pixels.spatial), strict=True)
            return PixelMap(turned, operand.dtype, m.rows, *corners)
        turned = np.transpose(self.seen(m.operand), [operand.axes.index(a) for a in reversed(m.axes)])
        return TensorMap(turned, operand.dtype, m.rows)

    def map_of_result(self, m: Map) -> TensorMap:
        """Rows are written by way of shared memory."""
        written = next(r for r in self.planned.program.results if r.name == m.operand)
        x, own = self.results[m.operand], dict(zip(written.axes, self.results[m.operand].strides, strict=False))
        shape = [self.planned.sizes[a] for a in m.axes]
        steps = [s * x.itemsize for s in m.steps] or [own[a] for a in m.axes]
        turned = np.lib.stride_tricks.as_strided(x, shape[::-1], steps[::-1])
        return TensorMap(turned, self.dtypes[m.operand], m.rows)

    def arguments(self) -> Arguments:
        kinds = {o.name: o.dtype for made in (self.planned, *self.planned.inside) for o in made.program.operands}
        once = self.planned.module.threads > 0  # the last rows of others may be those of two threads
        arrays = {n: x for n, x in self.cells.items() if np.ndim(x)}
        made = {n: Pointer(x, dtype=self.kinds[n]) for n, x in self.scratch.items()}
        pointers = {n: Pointer(memory(x), dtype=kinds[n]) for n, x in arrays.items() if n in kinds}
        strides = {n: [s // x.itemsize for s in x.strides] for n, x in arrays.items()}
        strides |= {n: view.strides for n, view in self.views.items()}
        shapes = {n: View.contiguous(s).strides for n, s in self.planned.shapes.items()}
        return Arguments(
            {**self.cells, **pointers, **made},
            {**{n: Numbers(x, self.dtypes[n], once=once) for n, x in self.results.items()}, **made},
            {"finished": Pointer(self.finished)},
            self.planned.sizes,
            self.planned.fixed,
            strides,
            {**shapes, **{n: v.strides for n, v in self.planned.results.items()}, **self.apart()},
            TensorMaps(tuple(self.map(m) for m in self.planned.maps)),
        )

    def apart(self) -> dict[str, tuple[int, ...]]:
        """Strides of results that the kernel sees otherwise than the call."""
        seen = self.planned.kernel.seen.arrays
        return {n: seen[result_key(n)].view.strides for n in self.results if result_key(n) in seen}

    def run(self, seed: int = 0) -> dict[str, Any]:
        """The results as numbers. A counter that is left is an error, where something waited for it."""
        g = self.planned.geometry
        together = g.blocks if self.planned.inside else g.cluster
        run(self.planned.module, self.arguments(), g.blocks, g.threads, g.cluster, together, seed)
        assert not self.finished[self.counters()].any(), "a counter is left"
        return {n: np.asarray(self.lying(n, x), np.float64) for n, x in self.results.items()}

    def numbers(self, name: str) -> Any:
        """Memory for a result, whose rows may be padded."""
        view = self.planned.results.get(name)
        size = (
            self.planned.shapes[name]
            if view is None
            else (max(n * s for n, s in zip(view.shape, view.strides, strict=True)),)
        )
        return np.full(size, np.nan, np.float32)

    def lying(self, name: str, x: Any) -> Any:
        """A result without what lies between its rows."""
        view = self.planned.results.get(name)
        if view is None:
            return x
        return np.lib.stride_tricks.as_strided(x, view.shape, [s * x.itemsize for s in view.strides])

    def counters(self) -> list[int]:
        """Those of the parts that have rows, and the one of blocks that wait no more."""
        if not self.planned.inside:
            return [PARTS]
        if "row_groups" not in self.planned.fixed:  # a chain, which counts blocks
            return [0, 1]
        groups = self.planned.fixed["row_groups"]
        span = -(-groups // (workers(self.planned) * PARTS)) * workers(self.planned)
        return [*(part for part in range(PARTS) if part * span < groups), PARTS]


def workers(planned: Planned) -> int:
    """Warpgroups of the grid, which prepare rows."""
    return planned.geometry.blocks * planned.geometry.threads // 128


def product_of(planned: Planned, given: Mapping[str, Any], views: Mapping[str, View] | None = None) -> Product:
    """A launch with these numbers for operands; scratch is filled where nothing in the launch does it. `views`: how
    operands lie."""
    kinds = {o.name: o.dtype for made in (planned, *planned.inside, *planned.before) for o in made.program.operands}
    cells = {n: stored(x, kinds[n]) if np.ndim(x) else x for n, x in given.items() if n in kinds}
    cells = {n: x for n, x in cells.items() if n not in planned.scratch}
    cells |= {n: laid(cells[n], view) for n, view in (views or {}).items() if n in cells}
    product = Product(planned, cells)
    for n in planned.scratch if not planned.inside else ():
        product.fill(n, given[n])
    return product


def prepared(planned: Planned, cells: Mapping[str, Any], parts: int = PARTS, seed: int = 0) -> dict[str, Any]:
    """What is in scratch and results, as cells, when the first parts are prepared and nothing else; the counters."""
    source = planned.module.source.replace("for part in range(PARTS):", f"for part in range({parts}):", 1)
    call = re.search(r"    prologue\(\s*warpgroup, .*?\)\n", source, re.DOTALL)
    assert call is not None and parts <= PARTS
    source = f"{source[: call.end()]}    return\n{source[call.end() :]}"
    product, module = Product(planned, cells), replace(planned.module, source=source)
    g = planned.geometry
    run(module, product.arguments(), g.blocks, g.threads, g.cluster, g.blocks, seed)
    return {**product.scratch, "finished": product.finished}


def numbers(product: Product, name: str) -> Any:
    """What scratch holds."""
    cells = product.seen(name)
    dtype = product.kinds[name]
    return np.asarray(widened(np.ascontiguousarray(cells), dtype) if dtype in NARROW else cells, np.float64)
