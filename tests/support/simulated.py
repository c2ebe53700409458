"""Forms run by emulation: the kernel that would be printed for a call, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from redalg import Spec, reference
from redalg.form import Form
from redalg.kernels.emulate import run as emulation
from redalg.kernels.emulate.arguments import Arguments
from redalg.kernels.emulate.math import NARROW
from redalg.kernels.emulate.memory import CELL, Pointer
from redalg.kernels.emulate.run import Moved
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Param
from redalg.kernels.launch.arrays import alignment, dtype_name
from redalg.kernels.launch.planned import Planned
from redalg.kernels.pipeline import plan
from redalg.kernels.rows.watch import BITS, TABLE
from redalg.kernels.schedule.target import H200


def run(
    form: Form,
    arrays: Mapping[str, Any],
    schedule: Any = None,
    seed: int | None = None,
    deterministic: bool = False,
    align: int = 16,
    over: Mapping[str, str] | None = None,
    marks: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], Planned, dict[str, Moved]]:
    """The outputs of a form for NumPy arrays (bfloat16 of ml_dtypes) and numbers, the plan, and the bytes moved.

    Arrays are read where they lie in the array they are views of, which is taken to start at a multiple of 16 bytes.
    `over`: result -> operand that it is written over; `marks`: memory for those of rows (`no_marks`).
    """
    held = {n: np.asarray(a) for n, a in arrays.items() if not _is_number(a)}
    dtypes = {n: type(a) if _is_number(a) else dtype_name(held[n]) for n, a in arrays.items()}
    memory = {n: _memory(a) for n, a in held.items()}
    views = {
        n: View(a.shape, tuple(s // a.itemsize for s in a.strides), min(align, _alignment(memory[n], a.itemsize)))
        for n, a in held.items()
    }
    planned = plan(form, dtypes, views, H200, deterministic, schedule)
    results = {r.name: _poisoned(planned.shapes[r.name], r.dtype) for r in planned.program.results}
    results |= {name: held[operand] for name, operand in (over or {}).items()}
    rows = prod(planned.sizes[a] for a in planned.program.rows)
    given = Arguments(
        {n: memory.get(n, a) for n, a in arrays.items()},
        results,
        {p.name: _scratch(p, rows) for p in planned.module.params if p.role == "scratch"} | dict(marks or no_marks()),
        planned.sizes,
        strides={n: [step // a.itemsize for step in a.strides] for n, a in held.items()},
        strides_out={n: View.contiguous(shape).strides for n, shape in planned.shapes.items()},
    )
    s = planned.choice.schedule
    together = s.cluster * planned.geometry.waiting  # blocks of a cooperative launch run together
    blocks = -(-rows // s.rows_per_block) * s.split * s.cluster
    blocks = min(blocks, 2 * s.cluster * s.split) if s.persistent else blocks
    moved = emulation.run(planned.module, given, blocks, s.block, s.cluster, together, seed)
    names = [f"{p.role} {p.name}" for p in planned.module.params]
    return (
        {r.name: _seen(results[r.name], r.dtype) for r in planned.program.results},
        planned,
        {n: m for n, m in zip(names, moved, strict=True) if m is not None},
    )


def no_marks() -> dict[str, Any]:
    """Memory for marks of rows that left the range, none of which is set."""
    return {"marks": np.zeros(TABLE * BITS, np.uint8), "marked": np.zeros(1, np.int64)}


def _is_number(a: Any) -> bool:
    return isinstance(a, bool | int | float)


def _poisoned(shape: tuple[int, ...], dtype: str) -> Any:
    cell = CELL[dtype] if dtype in NARROW else np.dtype(dtype)
    return np.frombuffer(b"\xff" * (prod(shape) * cell.itemsize), cell).reshape(shape).copy()


def _seen(cells: Any, dtype: str) -> Any:
    import ml_dtypes

    return cells.view(getattr(ml_dtypes, dtype, None) or dtype) if dtype in NARROW else cells


def _scratch(p: Param, rows: int) -> Any:
    return np.zeros(p.size * rows, np.uint32) if p.dtype == "uint32" else _poisoned((p.size * rows,), p.dtype)


def _memory(a: Any) -> Pointer:
    """Where an array's first element lies in the array that it is a view of."""
    whole = a
    while isinstance(base := getattr(whole.base, "base", None) if _is_strided(whole) else whole.base, np.ndarray):
        if base.dtype != a.dtype:
            break
        whole = base
    if not (whole.flags.c_contiguous or whole.T.flags.c_contiguous):
        raise ValueError("an array whose memory is unknown")
    first, at = (x.__array_interface__["data"][0] for x in (whole, a))
    return Pointer(whole if whole.flags.c_contiguous else whole.T, (at - first) // a.itemsize)


def _is_strided(a: Any) -> bool:
    """Whether it is a view by `as_strided`, which holds its array through an object of its own."""
    return a.base is not None and not isinstance(a.base, np.ndarray)


def _alignment(pointer: Pointer, each: int) -> int:
    return alignment(pointer.offset * each)


def agree(spec: Spec, found: Mapping[str, Any], given: Mapping[str, Any], bound: float) -> None:
    """Assert that outputs are the definition's in float64: integers exactly, NaN and infinities where it has them, the
    others within `bound` of the largest."""
    whole = {n for n, a in given.items() if isinstance(a, float) or np.asarray(a).dtype.kind in "iu"}
    wide = {n: a if n in whole else np.asarray(a, np.float64) for n, a in given.items()}
    with np.errstate(all="ignore"):
        true = reference(spec, **wide)
    true = true if isinstance(true, dict) else {next(iter(spec.outputs)): true}
    for name, value in found.items():
        a, b = np.asarray(value, np.float64), np.asarray(true[name], np.float64)
        assert a.shape == b.shape
        if np.asarray(true[name]).dtype.kind in "iu":
            np.testing.assert_array_equal(a, b, err_msg=name)
            continue
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        finite = np.isfinite(b)
        np.testing.assert_array_equal(a[~finite], b[~finite], err_msg=name)
        assert np.abs(a[finite] - b[finite]).max(initial=0) <= bound * max(1.0, np.abs(b[finite]).max(initial=0)), name
