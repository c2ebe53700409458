"""`CpuRun`: a form as one call on the CPU, by generated code in all cores."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.cpu.build import functions
from redalg.kernels.cpu.kernel import RANGE
from redalg.kernels.cpu.measure import fastest
from redalg.kernels.cpu.plan import CpuDraft, Kind
from redalg.kernels.cpu.products.blocks import InBlocks, TooLarge, cut
from redalg.kernels.cpu.products.calls import Multiplied, multiplied
from redalg.kernels.cpu.ready import Ready, view_of
from redalg.kernels.cpu.schedule import FAMILIES, Family
from redalg.kernels.cpu.threads import threads
from redalg.kernels.cpu.walk import Compiled, steps_of
from redalg.kernels.cpu_partitioned import Asked, Choice, InParts, Parts, all_floats, asked_of
from redalg.kernels.cpu_programs import NAMES, cpu_program, plan_cpu, print_cpu, typical_cpu
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import Program
from redalg.kernels.launch.arrays import plain
from redalg.kernels.launch.in_place import in_place
from redalg.kernels.launch.store import Once
from redalg.kernels.programs import named
from redalg.kernels.schedule.tuning import MEASURE
from redalg.numeric.array_origin import format_name
from redalg.numeric.binding import Bound, bind, result_dtypes, with_readings, with_unnamed
from redalg.numeric.call_kinds import Unkeyed, kind_of_call
from redalg.numeric.integer_bounds import Integers
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"
LOG = logging.getLogger("redalg")
CALLS = 256  # kinds of calls, shapes and strides included, that are remembered
BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e5m2": np.uint8}


Prepared = Ready | InParts | InBlocks | Multiplied  # what calls of a kind do


class CpuRun(Shown):
    """A form compiled for the CPU: ``run(Q=…, K=…, out=None)`` gives the outputs, one array or a dict by name.

    Rows, and splits of long rows, are shared out among threads (``REDALG_THREADS``, else one per core). How a row is
    cut depends on its length alone and splits are merged in the order of the stream, so that results depend neither on
    the number of threads nor on that of rows (of rows side by side in memory, on how many do). Products of matrices are
    the exception: of rows enough they are multiplied by tiles of sums (`redalg.kernels.cpu.products`), and where these
    are part of a spec it may run in blocks of rows; with `deterministic` they are summed row by row, and a row has the
    same bits in every batch.

    NumPy arrays and those of PyTorch and JAX on the CPU are read where they are, whatever their strides (bfloat16 and
    float8 of the latter two from a copy in float32); the same kind comes back. `out` receives the results; where it
    overlaps an input, by way of an array of its own, unless every element is read before, and only for, the one that
    takes its place. ``schedule="measure"`` times the ways to walk the arrays of the first call and keeps the fastest,
    also on disk (`deterministic`: there is one way, which follows from sizes alone).

    Where sums of products stand inside of other reductions, a spec runs in parts if that takes fewer operations
    (`redalg.kernels.cpu_partitioned`), or its products are multiplied by tiles; not where `schedule` names one, and
    with `deterministic` by a choice that does not depend on the number of rows.

    `dump_after`: the name of a pass of `redalg.kernels.cpu_programs`, after which what there is of the kernel is
    printed, once for every kind of call.

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, for complex numbers, for a stream, and for
    a pass that there is not.

    >>> import redalg as ra
    >>> x = ra.tensors("x[i,j]")
    >>> run = ra.derive_incremental(ra.Spec(m=ra.max(x, "j"), at=ra.argmax(x, "j"))).compile("cpu")
    >>> {name: value.tolist() for name, value in run(x=[[1.0, 3.0, 2.0], [5.0, 4.0, 5.0]]).items()}
    {'m': [3.0, 5.0], 'at': [1, 0]}
    >>> run.target, "njit" in run.source, run.schedule in run.explain()
    ('cpu', True, True)
    """

    target = "cpu"

    def __init__(
        self, form: Form, schedule: Any = None, deterministic: bool = False, dump_after: str | None = None
    ) -> None:
        if schedule not in (None, MEASURE, *FAMILIES):
            why = f"the CPU target knows the schedules {', '.join(FAMILIES)} and {MEASURE}"
            raise RedalgError(f"schedule={schedule!r}", "form.compile", why, f"leave it out, or {FAMILIES[0]!r}")
        named(dump_after, NAMES, "form.compile")
        self.form, self.deterministic, self.dump_after = form, deterministic, dump_after
        self._asked = schedule
        self._once, self._calls = Once(), Once(limit=CALLS)
        self._names = tuple(t.name for t in form.spec.tensors)
        self._aliased = any(t.array or t.dimensions for t in form.spec.tensors)
        self._ready: dict[Hashable, tuple[Prepared, tuple[int, ...]]] = {}
        self._recent: Prepared | None = None  # of whichever thread came last
        self._built: Compiled | None = None  # for results in arrays of the caller's
        self._told: tuple[str, ...] = ()  # what was measured

    def __reduce__(self) -> Any:
        return CpuRun, (self.form, self._asked, self.deterministic, self.dump_after)

    def __call__(self, /, *unnamed: Any, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        if unnamed:
            arrays = with_unnamed(self.form.spec.tensors, unnamed, arrays, WHERE)
        if stream is not None:
            raise RedalgError(f"stream={stream!r}", WHERE, "the CPU target has no streams", "leave it out")
        if self._aliased:
            arrays = dict(with_readings(self.form.spec.tensors, arrays))
        try:
            given, kind = kind_of_call(self._names, arrays)
            ready, copied = self._ready[kind]
        except Unkeyed:
            ready, given = self._prepared(arrays)
        except KeyError:
            ready, held = self._prepared(arrays)
            self._remember(kind, ready, [i for i, x in enumerate(held) if x is not given[i]])
            given = held
        else:
            for i in copied:
                given[i] = plain(given[i])
        self._recent = ready
        return ready(given, arrays, out)

    # --- once per kind of call ------------------------------------------------------------

    def _remember(self, kind: Hashable, ready: Prepared, copied: Sequence[int]) -> None:
        """`copied`: the arrays that kernels read from copies."""
        if len(self._ready) >= CALLS:
            self._ready = {}
        self._ready[kind] = ready, tuple(copied)

    def _prepared(self, arrays: Mapping[str, Any]) -> tuple[Prepared, list[Any]]:
        """What such calls are prepared to do, and the arrays as kernels read them."""
        bound = bind(self.form.spec, arrays, where=WHERE)
        held = [_raw(arrays[name], bound.arrays[name]) for name in self._names]
        shapes = tuple((x.shape, steps_of(x)) for x in held if isinstance(x, np.ndarray))
        kind = _kind(bound, dict(zip(self._names, held, strict=True)))
        key = kind, tuple(bound.dtypes.items()), bound.origin, shapes
        return cast("Prepared", self._calls(key, lambda: self._made_ready(kind, bound, held))), held

    @property
    def _multiplies(self) -> bool:
        """Whether products are multiplied by tiles: how many rows there are decides, and so would the bits of a row."""
        return self._asked is None and not self.deterministic and not self.form.accuracy

    @cached_property
    def _parts(self) -> Parts:
        """The ways to run in parts: there are none where a schedule is asked for."""
        return Parts(self.form, self._program_of, self._like, self._asked is None, self._multiplies)

    def _like(self, form: Form) -> CpuRun:
        """A run of another form, compiled like this one, for a part of a call."""
        made = CpuRun(form, None, self.deterministic, self.dump_after)
        made._parts.tried = self._parts.tried
        return made

    def _program_of(self, kind: Kind) -> Program:
        return cast(Program, self._once(kind, lambda: cpu_program(self.form, kind, dump_after=self.dump_after)))

    def _made_ready(
        self,
        kind: Kind,
        bound: Bound,
        held: Sequence[Any],
        wanted: Mapping[str, np.dtype] | None = None,
        asked: Asked | None = None,
    ) -> Prepared:
        """What calls of a kind are prepared to do, in parts or as one kernel. Of a part of a call: `wanted` dtypes of
        results, and what was asked for it when it was chosen."""
        program = self._program_of(kind)
        dtypes = wanted or self._once(("results", *bound.dtypes.items()), lambda: result_dtypes(self.form.spec, bound))
        _require_alike(program, dtypes)
        whole = self._as_one_kernel(kind, bound, held, dtypes, program)
        if self._multiplies and all(whole.sizes.values()):
            found = multiplied(self.form.spec, whole, program, dict(zip(self._names, held, strict=True)), dtypes)
            if found is not None:
                return found
        if not (self._parts.able and all(whole.sizes.values()) and all_floats(bound.dtypes)):
            return whole
        if asked is None:
            views = {n: view_of(x) for n, x in zip(self._names, held, strict=True) if isinstance(x, np.ndarray)}
            asked = asked_of(self.form.spec, kind, whole.sizes, views)
            choice = self._parts.choice(asked, of_part=False)
            made: Prepared = whole
            if choice.partition is not None:
                made = self._in_parts(choice, asked, program, bound, held, whole)
        else:
            choice, made = self._parts.choice(asked), whole
            if choice.partition is not None:
                made = self._parts.ready(choice, asked, program, bound, held, whole)
        rows_alone = isinstance(made, InParts) and not made.multiplies  # of few rows, products are summed row by row
        return made if not rows_alone or choice.pays_by_rows(asked, self.deterministic) else whole

    def _in_parts(
        self, choice: Choice, asked: Asked, program: Program, bound: Bound, held: Sequence[Any], whole: Ready
    ) -> Ready | InParts | InBlocks:
        """What calls do that are in parts, in blocks of rows where that keeps in the caches what lies between them."""
        try:
            block = self._parts.block(choice, asked, program, held)
        except TooLarge:
            return whole
        if block is None:
            return self._parts.ready(choice, asked, program, bound, held, whole)
        axis, dtypes = block[0], {n: dtype for n, (_, dtype) in whole.wants.items()}
        along = [t.axes.index(axis) if axis in t.axes else None for t in self.form.spec.tensors]
        into = {n: axes.index(axis) for n, axes in self.form.spec.output_axes.items()}

        def made(rows: int) -> InParts:
            own = [cut(x, d, 0, rows) for x, d in zip(held, along, strict=True)]
            sizes = {**bound.sizes, axis: rows}
            part = Bound(dict(zip(bound.arrays, own, strict=True)), sizes, bound.dtypes)
            one = self._as_one_kernel(asked.kind, part, own, dtypes, program)
            own_asked = replace(asked, sizes={**asked.sizes, axis: rows})
            return self._parts.ready(choice, own_asked, program, part, own, one)

        return InBlocks(whole, block, made, self._names, along, into)

    def _as_one_kernel(
        self, kind: Kind, bound: Bound, held: Sequence[Any], dtypes: Mapping[str, np.dtype], program: Program
    ) -> Ready:
        nodes, known = list(self.form.spec.outputs.values()), tuple(bound.dtypes.items())
        integers = self._once(("integers", *known), lambda: Integers(nodes, bound.dtypes, self.form.plan, program.real))
        over = self._once((kind, "in place"), lambda: in_place(program))
        sizes = bound.sizes | program.lengths

        def compiled(views: Mapping[str, View], arrays: Mapping[str, Any]) -> Compiled:
            return self._compiled(kind, program, sizes, views, arrays)

        return Ready(self.form, program, bound, held, sizes, dtypes, integers, over, compiled, self)

    def _compiled(
        self,
        kind: Kind,
        program: Program,
        sizes: Mapping[str, int],
        views: Mapping[str, View],
        arrays: Mapping[str, Any],
    ) -> Compiled:
        """What calls with arrays of these shapes and strides run: many shapes share their code."""

        def build(asked: Any) -> Compiled:
            draft = plan_cpu(self.form, kind, program, sizes, views, asked, self.dump_after)
            key = (kind, draft.layout, draft.schedule)
            return cast(Compiled, self._once(key, lambda: _build(draft, self.dump_after)))

        def make() -> tuple[Compiled, tuple[str, ...]]:
            if self._asked != MEASURE:
                return build(self._asked), ()
            ways = self._ways(kind, program, sizes, views)
            if len(ways) == 1:
                return build(ways[0]), ("nothing to measure: there is one way to walk such rows",)
            compiled, found = fastest(ways, build, arrays, sizes, views)
            return compiled, found.lines(lambda word: plan_cpu(self.form, kind, program, sizes, views, word).schedule)

        found, told = cast(Any, self._calls((kind, *views.items()), make))
        self._built, self._told = found, told  # of whichever thread came last
        return cast(Compiled, found)

    def _ways(self, kind: Kind, program: Program, sizes: Mapping[str, int], views: Mapping[str, View]) -> list[str]:
        """The families that walk these arrays in different ways, the one by sizes alone first (``columns`` is that
        where no rows lie side by side); that one alone where results must not follow from times."""
        ways: dict[Any, str] = {}
        for word in (Family.COLUMNS, *(w for w in FAMILIES if w is not Family.COLUMNS and not self.deterministic)):
            draft = plan_cpu(self.form, kind, program, sizes, views, word)
            ways.setdefault((draft.layout, draft.schedule), word)
        return list(ways.values())

    # --- what was done ------------------------------------------------------------

    @property
    def _last(self) -> tuple[Compiled, ...]:
        """What the last call ran, kernel by kernel."""
        found = self._recent.last if self._recent is not None else ()
        return found or ((self._built,) if self._built is not None else ())

    @property
    def source(self) -> str:
        """The generated source, which Numba takes, too, of the last kind of call (before the first: of float64); that
        of all parts, one after the other."""
        return "\n\n".join(c.module.source for c in self._last) or typical_cpu(self.form).source

    @property
    def schedule(self) -> str:
        """How rows and threads met in the last call, in words."""
        if not self._last:
            return f"chosen by the first call; {threads()} threads"
        told = self._recent.summary() if isinstance(self._recent, InParts | InBlocks) else self._last[0].schedule
        return f"{told}; {threads()} threads"

    def explain(self) -> str:
        """The form's explanation, and how this target runs it."""
        lines = [self.form.explain().rstrip(), "", "run", f"  target:   {self.target}", f"  schedule: {self.schedule}"]
        lines += ["  sums:     as pairs (accuracy='compensated')"] if self.form.accuracy else []
        lines += [f"  {line}" for line in self._recent.lines()] if isinstance(self._recent, InParts | InBlocks) else []
        lines += self._range()
        return "\n".join([*lines, *(f"  {line}" for line in self._told)]) + "\n"

    def _range(self) -> list[str]:
        """What is done about rows that leave the range of the reals, of the last kind of call."""
        programs = [c.program for c in self._last]
        names = ", ".join(dict.fromkeys(w.part for program in programs for w in program.watched))
        if not names:
            return []
        program = programs[0]
        wider = "float64" if program.real == "float32" else "longdouble"
        rows = sum(ready.rescued for ready in {ready for ready, _ in self._ready.values()})
        told = f"rows where one of {names} leaves the range of {program.real} are computed by NumPy in {wider}"
        return [f"  range:    {told} ({rows} so far)"]

    def __repr__(self) -> str:
        return f"<Run of {', '.join(self.form.spec.outputs)} on {self.target}>"


def _build(draft: CpuDraft, dump_after: str | None) -> Compiled:
    begin = time.perf_counter()
    module = print_cpu(draft, dump_after)
    found = functions(module.source, [stage.name for stage in module.stages], module.params[: -len(RANGE)])
    assert draft.schedule is not None
    kind = ", ".join(f"{name} {getattr(dtype, '__name__', dtype)}" for name, dtype in draft.kind.dtypes)
    outputs = ", ".join(r.name for r in draft.program.results)
    LOG.info("%s on cpu for %s: %s; ready in %.3f s", outputs, kind, draft.schedule, time.perf_counter() - begin)
    return Compiled(draft.program, draft.schedule, module, tuple(found[stage.name] for stage in module.stages))


def _raw(given: Any, array: Any) -> Any:
    """The array as kernels read it: narrow formats as their bits where NumPy has them, else as float32."""
    if not isinstance(array, np.ndarray):
        return array
    if isinstance(given, np.ndarray) and given.dtype.name in BITS:
        return plain(np.asarray(given))
    return plain(array)


def _require_alike(program: Program, dtypes: Mapping[str, np.dtype]) -> None:
    """Kernels write past an array of another dtype than theirs. Raises: RedalgError."""
    for r in program.results:
        if r.dtype != format_name(dtypes[r.name]):
            why = f"the kernel writes {r.dtype}, and the result is {format_name(dtypes[r.name])}"
            raise RedalgError(f"the result {r.name}", WHERE, why, "this is a defect of redalg: please report the spec")


def _kind(bound: Bound, held: Mapping[str, Any]) -> Kind:
    stored = tuple((n, x.dtype.name) for n, x in held.items() if isinstance(x, np.ndarray))
    return Kind(tuple((n, _name(d)) for n, d in bound.dtypes.items()), stored)


def _name(dtype: Any) -> Any:
    if isinstance(dtype, type):
        return dtype
    return dtype.names[0] if dtype.names else dtype.name
