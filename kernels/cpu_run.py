"""`CpuRun`: a form as one call on the CPU, by generated Numba code in all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from redalg.binding import Bound, bind
from redalg.definition import reference
from redalg.errors import RedalgError
from redalg.kernels.arrays import plain
from redalg.kernels.check import check
from redalg.kernels.cpu_build import functions
from redalg.kernels.cpu_lanes import supported
from redalg.kernels.cpu_layout import across_of, layout_of
from redalg.kernels.cpu_measuring import fastest
from redalg.kernels.cpu_schedule import FAMILIES, WHOLE, CpuSchedule, past_caches, span_of
from redalg.kernels.cpu_threads import threads
from redalg.kernels.cpu_walk import Compiled, steps_of, walk
from redalg.kernels.emit_numba import RANGE, emit_cpu
from redalg.kernels.ir import Operand, Program
from redalg.kernels.layouts import View
from redalg.kernels.lower import lower
from redalg.kernels.points import pointed
from redalg.kernels.schedule import Layout
from redalg.kernels.store import Once
from redalg.kernels.tuning import MEASURE
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"
CALLS = 256  # kinds of calls, shapes and strides included, that are remembered
BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


class CpuRun(Shown):
    """A form compiled for the CPU: ``run(Q=…, K=…, out=None)`` gives the outputs, one array or a dict by name.

    Rows, and pieces of long rows, are shared out among threads (``REDALG_THREADS``, else one per core). How a row is
    cut depends on its length alone and pieces are merged in the order of the stream, so that results depend neither on
    the number of threads nor on that of rows, with `deterministic` or without. NumPy arrays and those of PyTorch and
    JAX on the CPU are read where they are, whatever their strides; the same kind comes back. ``schedule="measure"``
    times the ways to walk the arrays of the first call and keeps the fastest, also on disk (`deterministic`: there is
    one way, which follows from sizes alone).

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, for complex numbers, and for a stream.

    >>> import redalg as ra
    >>> x = ra.tensors("x[i,j]")
    >>> run = ra.derive_incremental(ra.Spec(m=ra.max(x, "j"), at=ra.argmax(x, "j"))).compile("cpu")
    >>> {name: value.tolist() for name, value in run(x=[[1.0, 3.0, 2.0], [5.0, 4.0, 5.0]]).items()}
    {'m': [3.0, 5.0], 'at': [1, 0]}
    >>> run.target, "njit" in run.source, run.schedule in run.explain()
    ('cpu', True, True)
    """

    target = "cpu"

    def __init__(self, form: Form, schedule: Any = None, deterministic: bool = False) -> None:
        if schedule not in (None, MEASURE, *FAMILIES):
            why = f"the CPU target knows the schedules {', '.join(FAMILIES)} and {MEASURE}"
            raise RedalgError(f"schedule={schedule!r}", "form.compile", why, f"leave it out, or {FAMILIES[0]!r}")
        self.form, self.deterministic = form, deterministic
        self._asked = schedule
        self._once, self._calls = Once(), Once(limit=CALLS)
        self._last: Compiled | None = None
        self._told: tuple[str, ...] = ()  # what was measured

    def __reduce__(self) -> Any:
        return CpuRun, (self.form, self._asked, self.deterministic)

    def __call__(self, *, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        if stream is not None:
            raise RedalgError(f"stream={stream!r}", WHERE, "the CPU target has no streams", "leave it out")
        bound = bind(self.form.spec, arrays, where=WHERE)
        held = {name: _raw(arrays[name], x) for name, x in bound.arrays.items()}
        program = self._program(bound, held)
        sizes = bound.sizes | program.lengths
        shapes = {r.name: tuple(sizes[a] for a in r.axes) for r in program.results}
        made = self._targets(shapes, out, bound)
        if any(sizes[a] == 0 for a in program.stream) and program.passes:
            found = reference(self.form.spec, **bound.arrays)
            for name, value in (found if isinstance(found, dict) else {next(iter(shapes)): found}).items():
                made[name][...] = value
        elif all(sizes[a] for a in (*program.rows, *program.stream, *program.lanes)):
            walked = {name: plain(x) for name, x in made.items()}
            arrays = {n: x for n, x in held.items() if isinstance(x, np.ndarray)} | walked
            views = {n: View(x.shape, steps_of(x)) for n, x in arrays.items()}
            walk(self._compiled(program, sizes, views, held, walked), held, walked, sizes)
            for name in (n for n, x in made.items() if walked[n] is not x):
                made[name][...] = walked[name]
        results = {name: x if out is not None else bound.origin.restore(x) for name, x in made.items()}
        if out is not None:
            results = dict(out) if isinstance(out, dict) else {next(iter(results)): out}
        return next(iter(results.values())) if len(results) == 1 else results

    # --- once per kind of call ------------------------------------------------------------

    def _program(self, bound: Bound, held: Mapping[str, Any]) -> Program:
        dtypes = {n: _name(d) for n, d in bound.dtypes.items()}
        stored = {n: _stored(x) for n, x in held.items() if isinstance(x, np.ndarray)}

        def make() -> Program:
            return _as_stored(pointed(lower(self.form, dtypes)), stored)

        found: Program = self._once(("program", *dtypes.items(), *stored.items()), make)
        return found

    def _compiled(
        self,
        program: Program,
        sizes: Mapping[str, int],
        views: Mapping[str, View],
        held: Mapping[str, Any],
        made: Mapping[str, Any],
    ) -> Compiled:
        """What calls with arrays of these shapes and strides run: many shapes share their code."""

        def build(asked: Any) -> Compiled:
            chosen, layout, schedule = planned(self.form, program, sizes, views, asked)
            key = (chosen.operands, layout, schedule)
            return cast(Compiled, self._once(key, lambda: _build(chosen, layout, schedule)))

        def make() -> tuple[Compiled, tuple[str, ...]]:
            if self._asked != MEASURE:
                return build(self._asked), ()
            ways = self._ways(program, sizes, views)
            if len(ways) == 1:
                return build(ways[0]), ("nothing to measure: there is one way to walk such rows",)
            compiled, found = fastest(ways, build, held, made, sizes, views)
            return compiled, found.lines(lambda word: planned(self.form, program, sizes, views, word)[2])

        self._last, self._told = cast(Any, self._calls((program.operands, *views.items()), make))
        assert self._last is not None
        return self._last

    def _ways(self, program: Program, sizes: Mapping[str, int], views: Mapping[str, View]) -> list[str]:
        """The families that walk these arrays in different ways, the one by sizes alone first (``columns`` is that
        where no rows lie side by side); that one alone where results must not follow from times."""
        ways: dict[Any, str] = {}
        for word in ("columns", *(w for w in FAMILIES if w != "columns" and not self.deterministic)):
            _, layout, schedule = planned(self.form, program, sizes, views, word)
            ways.setdefault((layout, schedule), word)
        return list(ways.values())

    def _targets(self, shapes: Mapping[str, tuple[int, ...]], out: Any, bound: Bound) -> dict[str, Any]:
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
        return emit_cpu(pointed(lower(self.form, dtypes)), Layout(), CpuSchedule(resident=True)).source

    @property
    def schedule(self) -> str:
        """How rows and threads met in the last call, in words."""
        if self._last is None:
            return f"chosen by the first call; {threads()} threads"
        return f"{self._last.schedule}; {threads()} threads"

    def explain(self) -> str:
        """The form's explanation, and how this target runs it."""
        lines = [self.form.explain().rstrip(), "", "run", f"  target:   {self.target}", f"  schedule: {self.schedule}"]
        return "\n".join([*lines, *(f"  {line}" for line in self._told)]) + "\n"

    def __repr__(self) -> str:
        return f"<Run of {', '.join(self.form.spec.outputs)} on {self.target}>"


def planned(
    form: Form, program: Program, sizes: Mapping[str, int], views: Mapping[str, View], asked: str | None = None
) -> tuple[Program, Layout, CpuSchedule]:
    """What runs where arrays lie like this: rows side by side become lanes, long rows are split."""
    across = across_of(program, views) if asked in (None, "columns", "split") else ()
    if across:
        laned = lower(form, {o.name: _typed(o) for o in program.operands}, across)
        laned = replace(laned, operands=program.operands)
        program, across = (laned, across) if supported(laned) else (program, ())
    schedule = _schedule(program, sizes, across, asked)
    return program, layout_of(program, views), replace(schedule, past=past_caches(program, sizes))


def _schedule(program: Program, sizes: Mapping[str, int], across: tuple[str, ...], asked: str | None) -> CpuSchedule:
    """By the sizes of a row alone: neither the number of rows nor that of threads changes a bit."""
    length = prod(sizes[a] for a in program.stream)
    split = asked == "split" or not program.passes or length >= 2 * span_of(program, sizes)
    if split and asked != "rows":
        return CpuSchedule(split=True, across=across)
    return CpuSchedule(resident=bool(program.passes) and length <= WHOLE and not program.lanes, across=across)


def _build(program: Program, layout: Layout, schedule: CpuSchedule) -> Compiled:
    module = emit_cpu(program, layout, schedule)
    found = functions(module.source, [stage.name for stage in module.stages], module.params[: -len(RANGE)])
    return Compiled(program, schedule, module, tuple(found[stage.name] for stage in module.stages))


def _raw(given: Any, array: Any) -> Any:
    """The array as kernels read it: narrow formats as their bits where NumPy has them, else as float32."""
    if not isinstance(array, np.ndarray):
        return array
    if isinstance(given, np.ndarray) and given.dtype.name in BITS:
        return plain(given)
    return plain(array)


def _as_stored(program: Program, stored: Mapping[str, str]) -> Program:
    operands = tuple(replace(o, dtype=stored.get(o.name, o.dtype)) for o in program.operands)
    return check(replace(program, operands=operands))


def _typed(o: Operand) -> Any:
    return {"float64": float, "int64": int, "bool": bool}[o.dtype] if o.number else o.dtype


def _stored(array: np.ndarray) -> str:
    return array.dtype.name


def _name(dtype: Any) -> Any:
    if isinstance(dtype, type):
        return dtype
    return dtype.names[0] if dtype.names else dtype.name
