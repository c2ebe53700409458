"""`CpuRun`: a form as one call on the CPU, by generated Numba code in all cores."""

from __future__ import annotations

import linecache
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.binding import Bound, bind
from redalg.definition import reference
from redalg.errors import RedalgError
from redalg.kernels.arrays import plain
from redalg.kernels.check import check
from redalg.kernels.emit_numba import WHOLE, emit_cpu
from redalg.kernels.ir import Module, Program
from redalg.kernels.layouts import View, walk_of
from redalg.kernels.lower import lower
from redalg.kernels.schedule import Layout
from redalg.kernels.store import Once, digest
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"
SMALL = 1 << 15  # elements below which one thread is quicker than telling others
BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


@dataclass(frozen=True)
class Compiled:
    program: Program
    module: Module
    function: Any


class CpuRun(Shown):
    """A form compiled for the CPU: ``run(Q=…, K=…, out=None)`` gives the outputs, one array or a dict by name.

    Rows are shared out among threads (``REDALG_THREADS``, else one per core); every row is computed by one of them in
    the order of the stream, so that results do not depend on how many there are. NumPy arrays and those of PyTorch and
    JAX on the CPU are read where they are, whatever their strides; the same kind comes back.

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, for complex numbers, and for a stream.

    >>> import redalg as ra
    >>> x = ra.tensors("x[i,j]")
    >>> run = ra.derive_incremental(ra.Spec(m=ra.max(x, "j"), at=ra.argmax(x, "j"))).compile("cpu")
    >>> {name: value.tolist() for name, value in run(x=[[1.0, 3.0, 2.0], [5.0, 4.0, 5.0]]).items()}
    {'m': [3.0, 5.0], 'at': [1, 0]}
    """

    target = "cpu"

    def __init__(self, form: Form, schedule: Any = None, deterministic: bool = False) -> None:
        if schedule not in (None, "rows"):
            why = "the CPU target has one schedule: rows shared out among threads, each walked in tiles"
            raise RedalgError(f"schedule={schedule!r}", "form.compile", why, 'leave the schedule out, or "rows"')
        self.form, self.deterministic = form, deterministic
        self._once = Once()
        self._last: Compiled | None = None

    def __reduce__(self) -> Any:
        return CpuRun, (self.form, None, self.deterministic)

    def __call__(self, *, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        if stream is not None:
            raise RedalgError(f"stream={stream!r}", WHERE, "the CPU target has no streams", "leave it out")
        bound = bind(self.form.spec, arrays, where=WHERE)
        held = {name: _raw(arrays[name], x) for name, x in bound.arrays.items()}
        compiled = self._compiled(bound, held)
        sizes = bound.sizes | compiled.program.lengths
        shapes = {r.name: tuple(sizes[a] for a in r.axes) for r in compiled.program.results}
        made = self._targets(compiled.program, shapes, out, bound)
        if any(sizes[a] == 0 for a in compiled.program.stream) and compiled.program.passes:
            found = reference(self.form.spec, **bound.arrays)
            for name, value in (found if isinstance(found, dict) else {next(iter(shapes)): found}).items():
                made[name][...] = value
        elif all(sizes[a] for a in (*compiled.program.rows, *compiled.program.stream, *compiled.program.lanes)):
            walked = {name: plain(x) for name, x in made.items()}
            _walk(compiled, held, walked, sizes)
            for name in (n for n, x in made.items() if walked[n] is not x):
                made[name][...] = walked[name]
        results = {name: x if out is not None else bound.origin.restore(x) for name, x in made.items()}
        if out is not None:
            results = dict(out) if isinstance(out, dict) else {next(iter(results)): out}
        return next(iter(results.values())) if len(results) == 1 else results

    # --- once per kind of call ------------------------------------------------------------

    def _compiled(self, bound: Bound, held: Mapping[str, Any]) -> Compiled:
        views = {n: View(x.shape, _steps(x)) for n, x in held.items() if isinstance(x, np.ndarray)}
        dtypes = {n: _name(d) for n, d in bound.dtypes.items()}
        stored = {n: _stored(x) for n, x in held.items() if isinstance(x, np.ndarray)}
        program = self._once(("program", *dtypes.items(), *stored.items()), lambda: self._program(dtypes, stored))
        layout, resident = laid_out(program, views, bound.sizes)
        key = (program.operands, layout, resident)
        made: Compiled = self._once(key, lambda: _build(program, layout, resident))
        self._last = made
        return made

    def _program(self, dtypes: Mapping[str, Any], stored: Mapping[str, str]) -> Program:
        program = lower(self.form, dtypes)
        operands = tuple(replace(o, dtype=stored.get(o.name, o.dtype)) for o in program.operands)
        return check(replace(program, operands=operands))

    def _targets(
        self, program: Program, shapes: Mapping[str, tuple[int, ...]], out: Any, bound: Bound
    ) -> dict[str, Any]:
        from redalg.binding import result_flows
        from redalg.streaming.run import _check_target

        flows = result_flows(self.form.spec, bound)
        if out is None:
            return {name: np.empty(shape, flows[name].dtype) for name, shape in shapes.items()}
        targets = out if isinstance(out, dict) else {next(iter(shapes)): out}
        if not isinstance(out, dict) and len(shapes) > 1 or set(targets) != set(shapes):
            why, fix = f"the outputs are {', '.join(shapes)}", "pass one array, or a dict with one for each output"
            raise RedalgError(f"out={type(out).__name__}", WHERE, why, fix)
        for name, shape in shapes.items():
            like = bound.origin.restore(np.broadcast_to(np.zeros((), flows[name].dtype), shape))
            _check_target(name, targets[name], like)
        return {name: x if isinstance(x, np.ndarray) else x.numpy() for name, x in targets.items()}

    # --- what was done ------------------------------------------------------------

    @property
    def source(self) -> str:
        """The generated Numba source of the last kind of call (before the first: of float64 arrays)."""
        if self._last is not None:
            return self._last.module.source
        dtypes: dict[str, Any] = {}
        for t in self.form.spec.tensors:
            word = next((w for w in ("bool", "integer") if w in t.domain), "")
            dtypes[t.name] = {"bool": "bool", "integer": "int64"}.get(word, "float64") if t.axes else float
        return emit_cpu(lower(self.form, dtypes), Layout(), True).source

    @property
    def schedule(self) -> str:
        """How rows and threads meet, in words."""
        how = f"a row of at most {WHOLE} elements as one tile, longer ones tile by tile"
        return f"rows in ranges for {threads()} threads; {how}"

    def explain(self) -> str:
        """The form's explanation, and how this target runs it."""
        return f"{self.form.explain().rstrip()}\n\nrun\n  target:   {self.target}\n  schedule: {self.schedule}\n"

    def __repr__(self) -> str:
        return f"<Run of {', '.join(self.form.spec.outputs)} on {self.target}>"


def laid_out(program: Program, views: Mapping[str, View], sizes: Mapping[str, int]) -> tuple[Layout, bool]:
    """What the strides of arrays allow (results are contiguous), and whether a row is one tile."""
    known = {**sizes, **program.lengths}
    results = {r.name: View.contiguous(tuple(known[a] for a in r.axes)) for r in program.results}
    layout = walk_of(program, {**views, **results}).layout(1)
    resident = bool(program.passes) and prod(sizes[a] for a in program.stream) <= WHOLE
    return replace(layout, unit=layout.unit - set(results)), resident


def threads() -> int:
    """How many threads share the rows of a call."""
    given = os.environ.get("REDALG_THREADS", "")
    return max(1, int(given)) if given.isdigit() else os.cpu_count() or 1


@lru_cache(maxsize=4)
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="redalg")


_compiling = threading.RLock()


def _build(program: Program, layout: Layout, resident: bool) -> Compiled:
    module = emit_cpu(program, layout, resident)
    file = f"<redalg cpu kernel {digest(module.source)[:12]}>"
    linecache.cache[file] = (len(module.source), None, module.source.splitlines(keepends=True), file)
    made = ModuleType(file)
    with _compiling:
        exec(compile(module.source, file, "exec"), made.__dict__)
    return Compiled(program, module, getattr(made, module.entry))


def _walk(compiled: Compiled, held: Mapping[str, Any], made: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
    values = []
    for p in compiled.module.params[:-2]:
        if p.role in ("operand", "result"):
            values.append((held if p.role == "operand" else made)[p.name].__array_interface__["data"][0])
        elif p.role == "number":
            values.append(held[p.name])
        elif p.role == "size":
            values.append(sizes[p.name])
        else:
            values.append(_steps((held if p.role == "stride" else made)[p.name])[p.dim])
    rows = prod(sizes[a] for a in compiled.program.rows)
    work = rows * prod(sizes[a] for a in (*compiled.program.stream, *compiled.program.lanes))
    workers = min(threads(), rows)
    if workers == 1 or work < SMALL or not compiled.function.signatures:
        compiled.function(*values, 0, 1)  # compiles, if need be, before several threads ask for it
        compiled.function(*values, 1, rows)
        return
    pieces = min(rows, 4 * workers)
    edges = [rows * k // pieces for k in range(pieces + 1)]
    submit: Any = _pool(workers).submit
    jobs = [submit(compiled.function, *values, a, b) for a, b in zip(edges, edges[1:], strict=False)]
    for job in jobs:
        job.result()


def _raw(given: Any, array: Any) -> Any:
    """The array as kernels read it: narrow formats as their bits where NumPy has them, else as float32."""
    if not isinstance(array, np.ndarray):
        return array
    if isinstance(given, np.ndarray) and given.dtype.name in BITS:
        return plain(given)
    return plain(array)


def _stored(array: np.ndarray) -> str:
    return array.dtype.name


def _name(dtype: Any) -> Any:
    if isinstance(dtype, type):
        return dtype
    return dtype.names[0] if dtype.names else dtype.name


def _steps(array: np.ndarray) -> tuple[int, ...]:
    return tuple(s // array.itemsize for s in array.strides)
