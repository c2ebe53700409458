"""Tensors as the tensor memory accelerator is told of them: 128 bytes each, made once for every set of addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import STORAGE, Operand, Result
from redalg.kernels.ir.tensor_cores import CHUNK
from redalg.kernels.launch.driver import checked, kept
from redalg.kernels.launch.planned import Map, Planned, Tile

_WRITTEN: dict[tuple[int, bytes], int] = {}  # by device and contents: maps of arrays that come back lie there already


class TensorMaps:
    """The maps of one kind of call, some hundred bytes for every set of addresses."""

    def __init__(self, planned: Planned, views: Mapping[str, View], device: int = 0) -> None:
        self.planned, self.views, self.device = planned, views, device
        self._made: dict[tuple[int, ...], int] = {}

    def at(self, pointers: Sequence[int]) -> int:
        """Where the maps of tensors at these addresses lie."""
        key = tuple(pointers)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = self._written(key)
        return found

    def _written(self, pointers: tuple[int, ...]) -> int:
        from cuda.bindings import driver as d

        words = [w for i, pointer in enumerate(pointers) for w in self._map(i, pointer)]
        held = (ctypes.c_uint64 * len(words))(*words)  # until the copy is done, which `kept` waits for
        key = self.device, bytes(held)
        if key not in _WRITTEN:
            size, at = ctypes.sizeof(held), ctypes.addressof(held)

            def fill(there: int, stream: object) -> object:
                return d.cuMemcpyHtoDAsync(there, at, size, stream)

            _WRITTEN[key] = kept(size, fill, "tensor maps")
        return _WRITTEN[key]

    def _map(self, number: int, pointer: int) -> list[int]:
        from cuda.bindings import driver as d

        m = self.planned.maps[number]
        tensor, view = self._tensor(m)
        each, pixels = STORAGE[tensor.dtype], m.pixels
        lengths, steps = self._lengths(m, tensor, view)
        kinds, words = d.CUtensorMapDataType, {"bfloat16": "BFLOAT16", "float16": "FLOAT16"}  # float8: bytes
        before = (
            getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{words.get(tensor.dtype, 'UINT8')}"),
            len(lengths),
            pointer,
            [d.cuuint64_t(n) for n in lengths],
            [d.cuuint64_t(s * each if n > 1 else 16) for n, s in zip(lengths[1:], steps[1:], strict=True)],
        )
        behind = (
            d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            d.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            # A row of a box: by 256 bytes, decoding keeps L2 97 % busy and takes 0.514 ms instead of 0.465 (H200).
            d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        wide = 2 * CHUNK // each
        if pixels is None:
            box = [d.cuuint32_t(n) for n in (wide, m.rows, *[1] * (len(lengths) - 2))]
            made = d.cuTensorMapEncodeTiled(*before, box, [d.cuuint32_t(1)] * len(lengths), *behind)
        else:
            corners = [s.lower for s in pixels.spatial], [s.upper for s in pixels.spatial]
            walked = [d.cuuint32_t(n) for n in (1, *(s.step for s in pixels.spatial), 1)]
            made = d.cuTensorMapEncodeIm2col(*before, *corners, wide, m.rows, walked, *behind)
        return [int(w) for w in checked(made, f"the map of {m.operand}").opaque]

    def _lengths(self, m: Map, tensor: Operand | Result, view: View) -> tuple[Sequence[int], Sequence[int]]:
        """Of every dimension of a map, and the stride in elements."""
        if m.pixels is not None:
            return m.pixels.lengths, m.pixels.strides
        lengths = [self.planned.sizes[a] for a in m.axes]
        if m.steps:
            return lengths, m.steps
        strides = dict(zip(tensor.axes, view.strides, strict=True))
        return lengths, [strides[a] for a in m.axes]

    def _tensor(self, m: Map) -> tuple[Operand | Result, View]:
        """What a map is of, and how it lies in memory."""
        planned = self.planned
        if m.tile is Tile.RESULT:
            shape = planned.shapes[m.operand]
            result = next(r for r in planned.program.results if r.name == m.operand)
            return result, planned.results.get(m.operand) or View.contiguous(shape)
        seen = planned.kernel.seen.arrays.get(m.operand)
        if seen is None and m.operand in planned.scratch:
            return planned.scratch[m.operand]
        view = self.views[m.operand] if seen is None else seen.view
        return next(o for o in planned.program.operands if o.name == m.operand), view


def places(maps: Sequence[Map], inputs: Mapping[str, int], results: Mapping[str, int]) -> list[int]:
    """Where the tensors of maps stand among the arrays of a call, its results behind its inputs."""
    return [len(inputs) + results[m.operand] if m.tile is Tile.RESULT else inputs[m.operand] for m in maps]
