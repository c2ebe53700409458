"""Products whose rows are pixels of arrays: plans of calls without a GPU, and their kernels run by emulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import redalg as ra
from redalg.kernels.ir.layouts import View
from redalg.kernels.launch.planned import Planned
from redalg.kernels.pipeline import plan
from redalg.kernels.schedule.target import H200
from redalg.numeric.binding import with_readings
from redalg.numeric.casts import cast_array
from redalg.numeric.windows import stepped
from tests.support import forms
from tests.support.gemm_emulated import Product, stored

CONVOLUTION = "return y = sum[r,s,c](x[b,h+r-1,w+s-1,c]*U[r,s,c,n])"
CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "odd sides, channels that fill no chunk": (CONVOLUTION, {"x": (1, 5, 7, 72), "U": (2, 3, 72, 40)}),
    "steps, dilation, paddings": (
        "return y = relu(sum[r,s,c](x[b,2*h+r-1,w+2*s-2,c]*U[r,s,c,n])) + a[n]",
        {"x": (3, 8, 6, 40), "U": (3, 2, 40, 72), "a": (72,)},
    ),
    "elements that no window reads": (
        "return y = sum[r,s,c](x[b,3*h+r-1,2*w+s-1,c]*U[r,s,c,n])",
        {"x": (1, 9, 8, 8), "U": (2, 2, 8, 16)},
    ),
    "one dimension, terms last": ("return y = sum[r,c](x[b,h+r-2,c]*U[n,r,c])", {"x": (2, 33, 16), "U": (24, 4, 16)}),
    "no images": ("return y = sum[s,c](x[h+s-1,c]*U[s,c,n])", {"x": (70, 24), "U": (3, 24, 8)}),
    "windows along one of two": ("return y = sum[s,c](x[h,w+s,c]*U[s,c,n])", {"x": (5, 7, 16), "U": (4, 16, 24)}),
    "three dimensions": (
        "return y = sum[q,r,c](x[b,d+q-1,h+r-1,w,c]*U[q,r,c,n])",
        {"x": (2, 3, 4, 5, 8), "U": (3, 2, 8, 8)},
    ),
    "channels first among the terms": (
        "return y = sum[c,r,s](x[b,h+r,w+s,c]*U[c,r,s,n])",
        {"x": (1, 4, 9, 16), "U": (16, 2, 3, 24)},
    ),
    "rows of several axes": ("return y = relu(sum[c](x[b,h,w,c]*U[c,n]))", {"x": (2, 5, 7, 16), "U": (16, 24)}),
    "terms of several axes": ("return y = sum[d,e](x[i,d,e]*U[d,e,n])", {"x": (70, 3, 24), "U": (3, 24, 40)}),
}


def drawn(shapes: Mapping[str, tuple[int, ...]], kind: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Numbers of the format."""
    rng = np.random.default_rng(seed)
    return {n: np.asarray(cast_array(rng.standard_normal(s), kind), np.float64) for n, s in shapes.items()}


def read(form: Any, arrays: Mapping[str, np.ndarray], kind: str, padding: bool = True) -> dict[str, np.ndarray]:
    """The arrays as they lie in memory, as cells of the format, those that are read in windows as views of them; those
    with zeros around them as they are, without `padding`."""
    cells = {n: _stored(x, kind) for n, x in arrays.items()}
    return dict(with_readings(form.spec.tensors, cells, padding=padding))


def _stored(x: np.ndarray, kind: str) -> np.ndarray:
    """Cells in the place of numbers, with the same gaps between them."""
    base = x if x.base is None else x.base
    whole = stored(base, kind)
    first, at = (a.__array_interface__["data"][0] for a in (base, x))
    place = whole.reshape(-1)[(at - first) // x.itemsize :]
    return np.lib.stride_tricks.as_strided(place, x.shape, [s // x.itemsize * whole.itemsize for s in x.strides])


def planned(form: Any, cells: Mapping[str, np.ndarray], kind: str, schedule: Any = "tensor", **more: Any) -> Planned:
    views = {n: View(x.shape, tuple(s // x.itemsize for s in x.strides)) for n, x in cells.items()}
    for t in form.spec.tensors:
        if len(cells[t.name].shape) < len(t.axes):
            shape = with_readings(form.spec.tensors, cells)[t.name].shape
            views[t.name] = View(shape, stepped(t, views[t.name].strides), array=views[t.name].shape)
    return plan(form, dict.fromkeys(views, kind), views, H200, schedule=schedule, **more)


def emulated(made: Planned, cells: Mapping[str, Any], given: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Results of a launch and of those before it that are products; `given`: what others fill scratch with."""
    given, found = dict(given), {}
    for first in made.before:
        if first.maps:
            found |= emulated(first, cells, given, seed)
    product = Product(made, {n: x for n, x in cells.items() if n in {o.name for o in made.program.operands}})
    for n in made.scratch if not made.inside else ():
        product.fill(n, found.pop(n) if n in found else given[n])
    return found | product.run(seed)


def truth(form: Any, arrays: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The definition in float64, and the same of magnitudes."""
    found, size = (ra.reference(form.spec, **x) for x in (arrays, {n: abs(x) for n, x in arrays.items()}))
    name = next(iter(form.spec.outputs))
    return (found, size) if isinstance(found, dict) else ({name: found}, {name: size})


def form_of(text: str, axis: Any = None) -> Any:
    return forms.form_of_text(text, axis)


def case(name: str) -> tuple[Any, dict[str, np.ndarray], str]:
    text, shapes = CASES[name]
    kind = "float16" if sum(map(len, name)) % 2 else "bfloat16"
    return form_of(text), drawn(shapes, kind), kind


__all__ = ["CASES", "CONVOLUTION", "case", "drawn", "emulated", "form_of", "planned", "read", "truth"]
