"""`CpuRun`: a form as one call on the CPU, by generated Numba code in all cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from redalg.binding import Bound, bind, result_flows
from redalg.definition import reference
from redalg.errors import RedalgError
from redalg.integer_bounds import Integers
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
from redalg.kernels.in_place import in_place
from redalg.kernels.ir import Program, result_key
from redalg.kernels.layouts import View
from redalg.kernels.lower import lower
from redalg.kernels.points import pointed
from redalg.kernels.schedule import Layout
from redalg.kernels.store import Once
from redalg.kernels.tuning import MEASURE
from redalg.receiving import by_output, received, same_place, shared
from redalg.shown import Shown
from redalg.streaming import run_numpy

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"
CALLS = 256  # kinds of calls, shapes and strides included, that are remembered
BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


@dataclass(frozen=True)
class Kind:
    """Everything about the numbers of a call that its kernels depend on.

    ``dtypes``: what the dtypes of results follow from (a Python type for a number). ``stored``: what kernels read,
    which is wider where NumPy lacks a format: bfloat16 and float32 that are both read as float32 have kernels of their
    own, since their results differ.
    """

    dtypes: tuple[tuple[str, Any], ...]
    stored: tuple[tuple[str, str], ...] = ()

    def program(self, form: Form, across: tuple[str, ...] = ()) -> Program:
        """The program of such a call; `across`: rows that become lanes.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.catalog["softmax"])
        >>> made = Kind((("x", "bfloat16"),), (("x", "float32"),)).program(form)
        >>> made.operands[0].dtype, made.results[0].dtype
        ('float32', 'bfloat16')
        """
        made, stored = lower(form, dict(self.dtypes), across), dict(self.stored)
        made = made if across else pointed(made)
        operands = tuple(replace(o, dtype=stored.get(o.name, o.dtype)) for o in made.operands)
        return check(replace(made, operands=operands))


class CpuRun(Shown):
    """A form compiled for the CPU: ``run(Q=…, K=…, out=None)`` gives the outputs, one array or a dict by name.

    Rows, and pieces of long rows, are shared out among threads (``REDALG_THREADS``, else one per core). How a row is
    cut depends on its length alone and pieces are merged in the order of the stream, so that results depend neither on
    the number of threads nor on that of rows, with `deterministic` or without. NumPy arrays and those of PyTorch and
    JAX on the CPU are read where they are, whatever their strides (bfloat16 and float8 of the latter two from a copy in
    float32); the same kind comes back. `out` receives the results; where it overlaps an input, by way of an array of
    its own, unless every element is read before, and only for, the one that takes its place. ``schedule="measure"``
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
        kind = _kind(bound, held)
        program = cast(Program, self._once(kind, lambda: kind.program(self.form)))
        sizes = bound.sizes | program.lengths
        dtypes = self._once(("results", *bound.dtypes.items()), lambda: _result_dtypes(self.form, bound))
        wants = {r.name: (tuple(sizes[a] for a in r.axes), dtypes[r.name]) for r in program.results}
        if out is None:
            made = walked = {name: np.empty(*want) for name, want in wants.items()}
        else:
            made = received(out, wants, bound.origin, WHERE)
            walked = self._room(kind, program, made, held)
        nothing = any(sizes[a] == 0 for a in program.stream) and program.passes
        if nothing or not self._integers_fit(bound, sizes):
            found = reference(self.form.spec, **bound.arrays) if nothing else run_numpy(self.form, bound.arrays)
            for name, value in (found if isinstance(found, dict) else {next(iter(wants)): found}).items():
                made[name][...] = value
        elif all(sizes[a] for a in (*program.rows, *program.stream, *program.lanes)):
            arrays = {n: x for n, x in held.items() if isinstance(x, np.ndarray)}
            arrays |= {result_key(n): x for n, x in walked.items()}
            views = {n: View(x.shape, steps_of(x)) for n, x in arrays.items()}
            walk(self._compiled(kind, program, sizes, views, held, walked), held, walked, sizes)
            for name in (n for n, x in made.items() if walked[n] is not x):
                made[name][...] = walked[name]
        given = None if out is None else by_output(out, list(made), WHERE)
        results = {name: bound.origin.restore(x) if given is None else given[name] for name, x in made.items()}
        return next(iter(results.values())) if len(results) == 1 else results

    def _integers_fit(self, bound: Bound, sizes: Mapping[str, int]) -> bool:
        """Whether int64 holds every integer of the call; else NumPy computes it, and raises where it has to."""
        nodes, dtypes = list(self.form.spec.outputs.values()), tuple(bound.dtypes.items())
        found = self._once(("integers", *dtypes), lambda: Integers(nodes, bound.dtypes))
        certain = self._calls(("integers", *dtypes, *sizes.items()), lambda: found.certain(sizes))
        return certain or found.fits(sizes, bound.arrays)

    # --- once per kind of call ------------------------------------------------------------

    def _compiled(
        self,
        kind: Kind,
        program: Program,
        sizes: Mapping[str, int],
        views: Mapping[str, View],
        held: Mapping[str, Any],
        made: Mapping[str, Any],
    ) -> Compiled:
        """What calls with arrays of these shapes and strides run: many shapes share their code."""

        def build(asked: Any) -> Compiled:
            chosen, layout, schedule = planned(self.form, kind, program, sizes, views, asked)
            return cast(Compiled, self._once((kind, layout, schedule), lambda: _build(chosen, layout, schedule)))

        def make() -> tuple[Compiled, tuple[str, ...]]:
            if self._asked != MEASURE:
                return build(self._asked), ()
            ways = self._ways(kind, program, sizes, views)
            if len(ways) == 1:
                return build(ways[0]), ("nothing to measure: there is one way to walk such rows",)
            compiled, found = fastest(ways, build, held, made, sizes, views)
            return compiled, found.lines(lambda word: planned(self.form, kind, program, sizes, views, word)[2])

        found, told = cast(Any, self._calls((kind, *views.items()), make))
        self._last, self._told = found, told  # of whichever thread came last
        return cast(Compiled, found)

    def _ways(self, kind: Kind, program: Program, sizes: Mapping[str, int], views: Mapping[str, View]) -> list[str]:
        """The families that walk these arrays in different ways, the one by sizes alone first (``columns`` is that
        where no rows lie side by side); that one alone where results must not follow from times."""
        ways: dict[Any, str] = {}
        for word in ("columns", *(w for w in FAMILIES if w != "columns" and not self.deterministic)):
            _, layout, schedule = planned(self.form, kind, program, sizes, views, word)
            ways.setdefault((layout, schedule), word)
        return list(ways.values())

    def _room(
        self, kind: Kind, program: Program, made: Mapping[str, np.ndarray], held: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """Where kernels write the results `made`: elsewhere first, if they would overwrite what has yet to be read."""
        found = {}
        inputs = {n: x for n, x in held.items() if isinstance(x, np.ndarray)}
        for name, x in made.items():
            found[name] = plain(x)
            beneath = {n: a for n, a in inputs.items() if shared(a, x)}
            if beneath and found[name] is x:
                safe = self._once((kind, "in place"), lambda: in_place(program))
                if not (beneath.keys() <= safe.get(name, set()) and all(same_place(a, x) for a in beneath.values())):
                    found[name] = np.empty(x.shape, x.dtype)
        return found

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
    form: Form,
    kind: Kind,
    program: Program,
    sizes: Mapping[str, int],
    views: Mapping[str, View],
    asked: str | None = None,
) -> tuple[Program, Layout, CpuSchedule]:
    """What runs where arrays lie like this: rows side by side become lanes, long rows are split."""
    across = across_of(program, views) if asked in (None, "columns", "split") else ()
    if across:
        laned = kind.program(form, across)
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


def _result_dtypes(form: Form, bound: Bound) -> dict[str, np.dtype]:
    return {name: flow.dtype for name, flow in result_flows(form.spec, bound).items()}


def _kind(bound: Bound, held: Mapping[str, Any]) -> Kind:
    stored = tuple((n, x.dtype.name) for n, x in held.items() if isinstance(x, np.ndarray))
    return Kind(tuple((n, _name(d)) for n, d in bound.dtypes.items()), stored)


def _name(dtype: Any) -> Any:
    if isinstance(dtype, type):
        return dtype
    return dtype.names[0] if dtype.names else dtype.name
