"""Reductions down stacked columns, by emulation: all kernels of a call in their order, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from redalg import Monoid, Spec, parse, reduce, reference, tensors
from redalg.form import Form
from redalg.kernels.emulate import run as emulation
from redalg.kernels.emulate.arguments import Arguments
from redalg.kernels.emulate.memory import CELL, Pointer
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import result_key
from redalg.kernels.launch.arrays import dtype_name
from redalg.kernels.launch.planned import Planned
from redalg.kernels.lower.draft import Call
from redalg.kernels.lower.stacked import stacked
from redalg.kernels.pipeline import ROWS, plan
from redalg.kernels.programs import ROW_PROGRAM, program_of, run_passes
from redalg.kernels.rows.plan import lying_alike, sizes_of
from redalg.kernels.schedule.target import H200, Target
from redalg.kernels.stacked import Lines, in_two_steps
from tests.support.forms import Forms
from tests.support.simulated import _poisoned, _scratch, _seen, no_marks

CASES = {  # states of every kind: sums, products, extrema, conditions, counts, monoids of users, integers, numbers
    "sum and product": "return s = sum[t](x[t,c]), p = prod[t](1 + x[t,c]/64)",
    "extrema": "return a = max[t](x[t,c]), b = min[t](x[t,c]), y = x[t,c] - max[t](x[t,c])",
    "conditions": "return a = any[t](x[t,c] > 2), b = all[t](x[t,c] > -2), s = sum[t](where(x[t,c] > 0, x[t,c], 0))",
    "temperature": "tensors x[t,c], k; m = max[t](k*x[t,c]); e = exp(k*x[t,c] - m);"
    "return y = e/sum[t](e), z = m + log(sum[t](e))",
    "integers": "tensors n[t,c] integer; return s = sum[t](n[t,c]), m = max[t](n[t,c]), y = n[t,c] - max[t](n[t,c])",
    "mask": "tensors x[t,c], ok[t,c] bool; s = sum[t](where(ok[t,c], x[t,c], 0));"
    "return y = where(ok[t,c], x[t,c] - s, 0)",
    "moments": "u = mean[t](x[t,c]); v = mean[t]((x[t,c] - u)**2);"
    "return y = (x[t,c] - u)/sqrt(v + 1/1000), v = v, n = v*size(t)",
    "affine norm": "tensors x[t,c], w[c], b[c]; u = mean[t](x[t,c]); v = mean[t]((x[t,c] - u)**2);"
    "return y = (x[t,c] - u)/sqrt(v + 1/1000)*w[c] + b[c]",
    "weights of lines": "tensors x[t,c], w[t], b[t]; u = mean[t](x[t,c]); v = mean[t]((x[t,c] - u)**2);"
    "return y = (x[t,c] - u)/sqrt(v + 1/1000)*w[t] + b[t], s = sqrt(v), z = x[t,c]*size(t)",
    "names": "tensors states[t,c], of_column[c], elements; line = max[t](states[t,c]); n = mean[t](states[t,c]);"
    "return entry = exp(states[t,c] - line)*of_column[c]*elements, states_ = n, merged = sum[t]((states[t,c] - n)**2)",
    "covariance": "tensors x[t,c], z[t,c]; a = mean[t](x[t,c]); b = mean[t](z[t,c]);"
    "return k = mean[t]((x[t,c] - a)*(z[t,c] - b)), y = z[t,c] - b",
}
_X, _Z = tensors("x[t,c] z[t,c]")
_TURN = Monoid("turn", lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), (1, 0), commutative=True)
_RE, _IM = reduce((1 + _X / 64, _Z / 64), "t", monoid=_TURN)
SPECS = {name: parse(text) for name, text in CASES.items()} | {"monoid": Spec(re=_RE, im=_IM, y=_X * _RE)}
TURNED = ", transposed"  # in the name of a case whose lines are the second axis of its tensors
SPECS |= {name + TURNED: parse(text.replace("[t,c]", "[c,t]")) for name, text in CASES.items()}
FORMS = Forms(SPECS, axis="t")


def form_of(name: str) -> Form:
    """The form of a case, streamed over its lines."""
    return FORMS[name]


def drawn(name: str, lines: int, columns: int, dtype: str, seed: int) -> dict[str, Any]:
    """Arguments of a case."""
    rng, found = np.random.default_rng(seed), dict[str, Any]()
    for t in SPECS[name].tensors:
        shape = tuple({"t": lines, "c": columns}[a] for a in sorted(t.axes, reverse=True))
        if not t.axes:
            found[t.name] = 0.75
        elif "bool" in t.domain:
            found[t.name] = rng.random(shape) < 0.6
        elif "integer" in t.domain:
            found[t.name] = rng.integers(-9, 9, shape).astype(np.int32)
        else:
            found[t.name] = rng.standard_normal(shape).astype(getattr(ml_dtypes, dtype, None) or dtype)
    return {n: a.T if name.endswith(TURNED) and isinstance(a, np.ndarray) else a for n, a in found.items()}


def agrees(name: str, found: Mapping[str, Any], arrays: Mapping[str, Any], unit: float = 2.0**-20) -> None:
    """With the definition in float64: NaN and infinities where it has them, else off by `unit` of the largest."""
    wide = {
        n: a.astype(np.float64) if getattr(a, "dtype", np.dtype(int)).kind in "fV" else a for n, a in arrays.items()
    }
    with np.errstate(all="ignore"):
        true = reference(SPECS[name], **wide)
    for output, value in (true if isinstance(true, dict) else {next(iter(found)): true}).items():
        got, value = np.asarray(found[output]), np.asarray(value)
        if value.dtype.kind != "f":
            np.testing.assert_array_equal(got, value)
            continue
        size = np.max(np.abs(value), where=np.isfinite(value), initial=1e-3)
        np.testing.assert_allclose(got.astype(np.float64), value, rtol=unit, atol=unit * size)


def planned_of(form: Form, arrays: Mapping[str, Any], count: int, target: Target = H200) -> Planned:
    """The plan that reads `count` lines as one, whatever is faster, or of one kernel if it is 0. `arrays`: numbers,
    and [lines, columns] as they lie, seen along the axes of the spec."""
    held = {n: a for n, a in arrays.items() if isinstance(a, np.ndarray)}
    views = {n: View(a.shape, tuple(s // a.itemsize for s in a.strides)) for n, a in held.items()}
    dtypes = {n: dtype_name(a) if n in held else type(a) for n, a in arrays.items()}
    if not count:
        return plan(form, dtypes, views, target, schedule={}, alike=True)
    call = Call(form, dtypes, views, target)
    program = program_of(form, dtypes, ROW_PROGRAM)
    (stream,), (column,) = program.stream, program.rows
    lengths = sizes_of(program, views)
    found = stacked(program)
    assert not isinstance(found, str), found
    lines = Lines(lengths[stream], lengths[column], count)
    results = lying_alike(program, views, lengths)
    made = in_two_steps(call, program, found, lines, lambda draft: run_passes(ROWS, draft).planned, results)
    assert made is not None
    return made


def emulated(made: Planned, arrays: Mapping[str, Any], seed: int | None = None) -> dict[str, Any]:
    """The results of a plan, and of the kernels before it."""
    memory = {n: a.ravel(order="K") if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
    strides = {n: [s // a.itemsize for s in a.strides] for n, a in arrays.items() if isinstance(a, np.ndarray)}
    results = {r.name: _poisoned((prod(made.shapes[r.name]),), r.dtype) for r in made.program.results}
    for name, (operand, view) in made.scratch.items():
        results[name] = memory[name] = _poisoned((prod(view.shape),), operand.dtype)
        strides[name] = list(view.strides)
    for kernel in (*made.before, made):
        _launch(kernel, memory, strides, results, seed)
    return {r.name: _lying(_seen(results[r.name], r.dtype), made, r.name) for r in made.program.results}


def _lying(cells: Any, made: Planned, name: str) -> Any:
    """A result along its axes."""
    shape = made.shapes[name]
    steps = made.results.get(name, View.contiguous(shape)).strides
    return np.lib.stride_tricks.as_strided(cells, shape, [n * cells.itemsize for n in steps])


def _launch(
    made: Planned, memory: Mapping[str, Any], strides: Mapping[str, Any], results: Mapping[str, Any], seed: int | None
) -> None:
    (portions, lengths), program, s = made.kernel.seen, made.program, made.choice.schedule
    sizes = {**made.sizes, **lengths}
    rows = prod(sizes[a] for a in program.rows)
    operands = {n: Pointer(_cells(a)) if isinstance(a, np.ndarray) else a for n, a in memory.items()}
    outputs = {r.name: Pointer(_cells(results[r.name])) for r in program.results if r.name in results}
    for name, part in portions.items():
        for table in (operands, {result_key(n): p for n, p in outputs.items()}):
            if name in table:
                table[name].offset += part.first
    own = {n: list(p.view.strides) for n, p in portions.items() if n in strides}
    given = Arguments(
        operands,
        outputs,
        {p.name: _scratch(p, rows) for p in made.module.params if p.role == "scratch"} | no_marks(),
        sizes,
        strides={**strides, **own},
        strides_out={r.name: _view_of(made, r.name, r.key).strides for r in program.results},
    )
    blocks = -(-rows // s.rows_per_block) * s.split * s.cluster
    blocks = min(blocks, 2 * s.cluster * s.split) if s.persistent else blocks
    emulation.run(made.module, given, blocks, s.block, s.cluster, s.cluster * made.geometry.waiting, seed)


def _view_of(made: Planned, name: str, key: str) -> View:
    """A result as its kernel sees it."""
    seen = made.kernel.seen.arrays
    return seen[key].view if key in seen else made.results.get(name, View.contiguous(made.shapes[name]))


def _cells(a: Any) -> Any:
    name = dtype_name(a) if a.dtype.kind != "u" else ""
    return a.view(CELL[name]) if name in CELL and a.dtype != CELL[name] else a


__all__ = ["SPECS", "agrees", "drawn", "emulated", "form_of", "planned_of"]
