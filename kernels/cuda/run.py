"""`CudaRun`: a form as one call on an NVIDIA GPU. What a call needs is worked out once for every kind of call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels.cuda import library
from redalg.kernels.cuda.admit import NUMBERS, admitted
from redalg.kernels.cuda.counters import WORDS, Counters
from redalg.kernels.cuda.integers import has_infinite_extremum, looking
from redalg.kernels.cuda.marks import row_marks
from redalg.kernels.cuda.measure import measured
from redalg.kernels.cuda.out import Receiving, filled
from redalg.kernels.cuda.quick import ELSEWHERE, MISS, SCRATCH, Quickly
from redalg.kernels.cuda.readings import Readings
from redalg.kernels.ir.layouts import View
from redalg.kernels.ir.program import BARRIER, STORAGE, Operand, Param, Program, result_key
from redalg.kernels.ir.schedule import current
from redalg.kernels.launch import driver
from redalg.kernels.launch.arrays import NUMPY, TURNING, Framework, alignment, dtype_name, framework_of, handle_of
from redalg.kernels.launch.driver import Launch, NotLaunched
from redalg.kernels.launch.planned import Planned
from redalg.kernels.launch.store import Once
from redalg.kernels.launch.zero_length import definition_of_zero_length
from redalg.kernels.lower.draft import Call
from redalg.kernels.pipeline import NAMES, plan, plans, typical
from redalg.kernels.programs import named
from redalg.kernels.schedule.choose import Override
from redalg.kernels.schedule.target import Target
from redalg.kernels.schedule.tuning import MEASURE
from redalg.kernels.tile.match import Outside
from redalg.kernels.tile.tensor_maps import TensorMaps, places
from redalg.numeric.binding import with_unnamed
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form
    from redalg.language.spec import Spec

WHERE = "the call"


class CudaRun(Shown):
    """A form compiled for CUDA: ``run(Q=…, K=…, out=None, stream=None)``.

    Arrays of PyTorch, CuPy, Numba or JAX on a GPU are read where they are, whatever their strides; NumPy arrays are
    copied there. The same kind comes back. Work is enqueued on the caller's current stream (or `stream`) and may be
    captured in a CUDA graph. Results with all axes of an operand lie in memory as it does, where kernels of rows write
    arrays of PyTorch or CuPy, as those of element-wise operations do; others are contiguous. `out` receives the
    results instead of new arrays, and is contiguous; where it overlaps an operand, they are computed elsewhere and
    copied, unless the kernel reads every element before, and only for, the one that takes its place.

    ``schedule="measure"``: the first call with arrays of a kind times the schedules the model finds best on them
    (seconds, most of it compiling) and keeps the fastest, also on disk; `deterministic` leaves those that add in the
    same order. Such a call cannot be captured, nor can one whose integers might leave int64 (sums of int64, products of
    int32): it looks at their magnitudes on the device first, and NumPy computes it where these leave it open.

    `deterministic`, where rows are reduced: the schedule follows from the lengths of the stream, dtypes and the layout
    of rows in memory alone, so that a row has the same bits alone and in every batch, whatever the number of
    multiprocessors. Rows that start anywhere are then not read in vectors at multiples of their size, since where those
    begin in a row depends on its number.

    Contractions of float16 and bfloat16 run on tensor cores, by wgmma where the compute capability is 9.0 and by
    mma.sync elsewhere; ``schedule="tensor"`` insists on that, ``schedule="mma"`` on mma.sync. There float8 is read as
    it is and multiplied as 16 bits, which hold it exactly, and, with ``schedule="tf32"`` alone, float32 is rounded to
    tf32 (each factor by a relative 2^-11). Sums are kept in float32, weights are rounded to the tensors' type before
    they multiply (a relative 2^-8 for bfloat16, 2^-11 for float16, of Σ|weight·value|). ``schedule="block"``, or any
    other of the families, computes without that rounding.
    Specs whose last fold is a GEMM run there too, by wgmma with float8 included: what makes an operand is a kernel of
    its own before the product's, or part of it with ``schedule="fused_prologue"``, and an operand that is no tensor and
    no cast is rounded once, as weights are. Sums of 128 float8 products are added in float32 (each is off by at most
    4·33·2^-13 of Σ|L·R|).

    `dump_after`: the name of a pass of `redalg.kernels.pipeline`, after which what there is of the kernel is printed,
    once for every kind of call.

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, mixed kinds or devices, a schedule that
    breaks a law of the program, a pass that there is not, and whatever the driver refuses.

    >>> import numpy as np
    >>> import redalg as ra
    >>> from redalg.kernels.launch.driver import available
    >>> form = ra.derive_incremental(ra.catalog["max_abs_scaling"])
    >>> if available():
    ...     run = form.compile("cuda")
    ...     assert run(x=np.array([[1.0, -4.0]])).tolist() == [[0.25, -1.0]]
    ...     assert "cuda" in run.source and "Schedule" in str(run.schedule) and "target:   cuda" in run.explain()
    ...     assert run.spec is form.spec
    ...     run.check()

    Without a GPU, `redalg.explore.kernel` prints what would be launched.
    """

    target = "cuda"
    looks = True  # at integers that might leave int64
    alike = True  # results lie as operands do

    def __init__(
        self, form: Form, schedule: Override = None, deterministic: bool = False, dump_after: str | None = None
    ) -> None:
        named(dump_after, NAMES, "form.compile")
        driver.require()
        self.form, self.requested, self.deterministic = form, current(schedule), deterministic
        self.dump_after = dump_after
        self._names = tuple(t.name for t in self.spec.tensors)
        self._readings = Readings(self.spec.tensors)
        self._ready: dict[Any, Ready] = {}
        self._refused: dict[Any, list[NotLaunched]] = defaultdict(
            list
        )  # plans that the device refused, by kind of call
        self._once = Once()
        self._last: Ready | None = None
        self._quickly = Quickly()

    def __reduce__(self) -> Any:
        return CudaRun, (self.form, self.requested, self.deterministic, self.dump_after)

    def __call__(self, /, *unnamed: Any, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        if unnamed:
            arrays = with_unnamed(self.form.spec.tensors, unnamed, arrays, WHERE)
        if out is None and stream is None:
            try:
                found = self._quickly.call(arrays)
                if found is not MISS:
                    return found
            except (NotLaunched, *ELSEWHERE):  # which the general way handles
                pass
        return self._generally(arrays, out, stream)

    def _generally(self, arrays: Mapping[str, Any], out: Any, stream: Any) -> Any:
        """A call of any kind, which is prepared if it is the first of its kind."""
        if self._readings.padded:
            found = self._without_zeros(arrays, out, stream)
            if found is not MISS:
                return found
        if self._readings.aliased:
            arrays = self._readings.read(arrays)
        try:
            given = [arrays[name] for name in self._names]
            first = next((a for a in given if not isinstance(a, int | float)), None)
            framework = framework_of(first)
            assert framework is not None
            key = (framework.kind, len(arrays), out is None, *_key(framework, given))
            ready = self._ready[key]
        except (KeyError, AttributeError, AssertionError, TypeError, RedalgError):
            ready = self._prepared(arrays, stream, out is None)
            given = [arrays[name] for name in self._names]
        try:
            found = ready(given, out, stream)
        except NotLaunched as error:
            return self._with_next(ready, error, out, stream, arrays)
        if out is None and not self._readings.aliased:  # results of calls with `out` lie otherwise
            self._quickly.remember(ready, arrays)
        return found

    def _without_zeros(self, arrays: Mapping[str, Any], out: Any, stream: Any) -> Any:
        """The call with arrays that have no zeros around them in memory, where tensor maps read these; else `MISS`."""
        found = None if self.requested == MEASURE else self._readings.without_zeros(arrays, _key)
        if found is None:
            return MISS
        framework, held, key = found
        try:
            ready = self._ready.get(key) or self._once(key, lambda: self._ready_without_zeros(framework, held))
            made = ready([held[name] for name in self._names], out, stream)
        except (Outside, NotLaunched):
            self._readings.copied.add(key)
            return MISS
        self._ready[key] = self._last = ready
        if out is None and held.keys() == arrays.keys() and all(held[n] is x for n, x in arrays.items()):
            self._quickly.remember(ready, arrays)
        return made

    def _ready_without_zeros(self, framework: Framework, held: Mapping[str, Any]) -> Ready:
        """Raises: Outside, where something else than a tensor map would read what lies beyond an array."""
        _, dtypes = admitted(self.spec, held)
        self._readings.require_pixels(held, dtypes)
        with driver.relaxed():
            return Ready(self, framework, dtypes, _entered(framework, held), self.requested)

    def _with_next(self, ready: Ready, error: NotLaunched, out: Any, stream: Any, arrays: Mapping[str, Any]) -> Any:
        """The call by the next plan, where the device refused to launch one that nobody asked for by name."""
        self._require_others(error)
        self._quickly = Quickly()
        self._refused[ready.key].append(error)
        self._ready.pop(ready.key, None)
        return self(out=out, stream=stream, **arrays)

    # --- once per kind of call ---------------------------------------------------------------------------------------

    def _prepared(self, arrays: Mapping[str, Any], stream: Any, fresh: bool = True) -> Ready:
        """`fresh`: results are arrays of the call's own."""
        framework, dtypes = admitted(self.spec, arrays)
        given = [arrays[name] for name in self._names]
        key = (
            framework.kind,
            len(arrays),
            fresh,
            *[framework.key(a) if a.__class__ not in NUMBERS else a.__class__ for a in given],
        )

        def make() -> Ready:
            held = _entered(framework, arrays)
            while True:
                try:
                    with driver.relaxed():
                        if self.requested == MEASURE:
                            return self._measured(framework, dtypes, held, stream, refused)
                        alike = fresh and self.alike and framework in TURNING
                        return Ready(self, framework, dtypes, held, self.requested, refused=refused, alike=alike)
                except NotLaunched as error:  # while it was loaded
                    self._require_others(error)
                    refused.append(error)

        refused = self._refused[key]
        ready: Ready = self._once((key, len(refused)), make)
        self._ready[key] = self._last = ready
        ready.key = key
        return ready

    def _require_others(self, error: NotLaunched) -> None:
        """Raises: `error`, where the plan was asked for by name."""
        if self.requested not in (None, MEASURE):
            raise error

    def _measured(
        self,
        framework: Framework,
        dtypes: Mapping[str, Any],
        held: Mapping[str, Any],
        stream: Any,
        refused: Sequence[NotLaunched],
    ) -> Ready:
        first = Ready(self, framework, dtypes, held, None, refused=refused)
        if first.launch is None:
            return first
        about = self.form, dtypes, first.views, driver.target_of(first.device), self.deterministic
        where = framework.stream(first.device) if stream is None else handle_of(stream)

        def make(way: Override) -> Ready:
            return Ready(self, framework, dtypes, held, way)

        return measured(first, make, about, [held[name] for name in self._names], where)

    @property
    def spec(self) -> Spec:
        """What a call computes, over the tensors that it takes."""
        return self.form.spec

    @property
    def planned(self) -> Planned:
        """The plan of the last kind of call, or of a typical one before the first."""
        if self._last is not None:
            return self._last.planned
        asked = None if self.requested == MEASURE else self.requested
        return typical(self.form, asked, self.deterministic)

    @property
    def source(self) -> str:
        """The generated kernels: numba.cuda source of the last kind of call (before the first: of a typical one)."""
        made = self.planned
        return f"{library.said(made.vendor)}{made.source}"

    @property
    def schedule(self) -> Any:
        """The schedule of the last kind of call."""
        return self.planned.choice.schedule

    def explain(self) -> str:
        """The form's explanation, and how and why the kernel is scheduled as it is."""
        lines = [self.form.explain().rstrip(), "", "run", f"  target:   {self.target}"]
        lines += ["  sums:     as pairs (accuracy='compensated')"] if self.form.accuracy else []
        lines += [f"  {line}" for line in self.planned.choice.reasons]
        if self._last is not None and self._last.looking is not None:
            lines.append(f"  {self._last.looking}")
        if self._last is not None and self._last.marks is not None:
            lines.append(f"  {self._last.marks.line()}")
        return "\n".join(lines) + "\n"

    def check(self) -> None:
        """Wait for the device, and tell of rows of earlier calls whose state left the range of float32 or float64.

        A sum or product in such a state is not finite, or lies below normal numbers.
        Rows of arrays on a GPU, of any floating dtype; those of NumPy are computed anew by the call itself. Which
        kernels mark rows, and which rows are not told of, is in ``docs/limits.md``. Raises: RedalgError, naming one
        such row of the calls since the last check; rows with infinities or NaN are named as well.
        """
        for ready in list(self._ready.values()):
            if ready.marks is not None:
                driver.finished(ready.device)
                found = ready.marks.asked()
                if found is not None:
                    raise found

    def _plan_of(self, call: Call) -> Planned:
        """The plan of a kind of call. Raises: RedalgError."""
        asked = call.deterministic, call.schedule
        arrays, library = (call.dtypes, call.views, call.target), call.library
        return plan(call.form, *arrays, *asked, dump_after=self.dump_after, library=library, alike=call.alike)

    def _plan_after(self, number: int, call: Call) -> Planned | None:
        """The plan after so many that the device refused, if there is one."""
        asked = call.deterministic, call.schedule, call.library, call.alike
        every = plans(call.form, call.dtypes, call.views, call.target, *asked)
        return next(islice(every, number, None), None)

    def __repr__(self) -> str:
        return f"<Run of {', '.join(self.form.spec.outputs)} on {self.target}>"


def _key(framework: Framework, given: list[Any]) -> list[Any]:
    ask = framework.key
    return [ask(a) if a.__class__ not in NUMBERS else _number_key(a) for a in given]


def _number_key(a: Any) -> Any:
    """Integers outside int64 are no kind of call: they are refused when one is prepared."""
    return a.__class__ if a.__class__ is not int or -(1 << 63) <= a < 1 << 63 else None


Scratch = dict[str, tuple[Operand, View]]


def _turned(view: View | None) -> tuple[tuple[int, ...], ...]:
    """The axes of an array from the outermost on, as it lies in memory; nothing for one that is contiguous."""
    if view is None:
        return ()
    found = tuple(sorted(range(len(view.shape)), key=lambda d: (-view.strides[d], -view.shape[d], d)))
    return (found,) if found != tuple(range(len(view.shape))) else ()


class Ready:
    """One kind of call, ready to be launched: shapes, kernel and arguments are settled."""

    def __init__(
        self,
        run: CudaRun,
        framework: Framework,
        dtypes: Mapping[str, Any],
        given: Mapping[str, Any],
        schedule: Override,
        planned: Planned | None = None,
        refused: Sequence[NotLaunched] = (),
        after: Ready | None = None,
        alike: bool = False,
    ) -> None:
        """`given`: the arguments of a call, arrays on the device; `refused`: why plans before this one do not run;
        `after`: what this one comes before, whose scratch it may read and fill; `alike`: `Call.alike`."""
        self.run, self.framework = run, framework
        held = {n: a for n, a in given.items() if not _is_number(a)}
        self.device = next(map(framework.device, held.values()), 0)
        driver.activate(self.device)
        target = driver.target_of(self.device)
        self.views = views = run._readings.viewed({n: _view(framework, a) for n, a in held.items()}, held)
        self.key: Any = None  # by which the run remembers it
        call = Call(run.form, dtypes, views, target, run.deterministic, schedule, library=framework.kind, alike=alike)
        self.planned = planned or _plan_after(refused, run, call)
        self.names, self._scratch = self._held(after)
        self.before = [Ready(run, framework, dtypes, given, None, made, after=self) for made in self.planned.before]
        p = self.planned.program
        self.outputs = [(r.name, self.planned.shapes[r.name], r.dtype) for r in p.results]
        self.turned = [_turned(self.planned.results.get(n)) if alike else () for n, _, _ in self.outputs]
        self.receiving = self._receiving(held)
        rows = prod(self.planned.sizes[a] for a in p.rows)
        self.no_rows = rows == 0 or self._is_empty((*p.stream, *p.columns))
        self.zero_length = self._has_no_elements(p, dtypes)
        self._order, self.counters = self._arguments(rows)
        self.marks = row_marks(run, self.planned, rows)
        self.launch: Launch | library.Product | None = self._first_launch(target)
        self.second: Callable[..., Any] | None = self._second_launch(target)
        self.maps = self._maps()
        self.looking = None
        if run.looks and planned is None and self.launch is not None:
            self.looking = looking(run.form, framework, self.device, dtypes, views, p.real)

    def _held(self, after: Ready | None) -> tuple[tuple[str, ...], Scratch]:
        """Names of the arrays that kernels may read, as `_go` lines them up, and what is known of scratch.

        A name that scratch of `after` has too is there twice, and the last one is meant.
        """
        names, scratch = (after.names, after._scratch) if after else (self.run._names, {})
        return (*names, *self.planned.scratch), {**scratch, **self.planned.scratch}

    def _is_empty(self, axes: Iterable[str]) -> bool:
        """Whether one of the axes has length 0."""
        return any(self.planned.sizes[a] == 0 for a in axes)

    def _has_no_elements(self, p: Program, dtypes: Mapping[str, Any]) -> bool:
        """Whether the definition says what results are: a stream of length 0, results that lack such an axis, and
        extrema of no integers."""
        left = self.no_rows or not p.passes and self._is_empty(self.planned.sizes)
        left = left and any(all(shape) for _, shape, _ in self.outputs)
        left = left or has_infinite_extremum(self.run.form, dtypes, self.views)
        return left or self._is_empty(p.stream) and bool(p.passes)

    def _receiving(self, held: Mapping[str, Any]) -> Receiving:
        """What is done with a call's `out`, next to the arrays that it reads."""
        places = {n: self.run._names.index(n) for n in held}
        each = {n: STORAGE[dtype_name(a)] for n, a in held.items()}
        over = self.planned.over
        return Receiving(self.framework, self.device, self.outputs, self.views, each, places, over)

    def _maps(self) -> TensorMaps | None:
        """The tensor maps of its kernel, of arrays of the call and of scratch."""
        known = self.views | {n: view for n, (_, view) in self._scratch.items()}
        needed = self.planned.maps and self.planned.vendor is None
        return TensorMaps(self.planned, known, self.device) if needed else None

    def _first_launch(self, target: Target) -> Launch | library.Product | None:
        made = self.planned
        if self.no_rows:
            return None
        if made.vendor is not None:
            return library.Product(made.vendor, self.names, [o[:2] for o in self.outputs])
        return Launch(made.module, target.cc, made.choice.registers, made.geometry, self._fixed(self.views))

    def _second_launch(self, target: Target) -> Launch | None:
        """The kernel that merges splits, or computes anew the rows that the first one flagged."""
        made = self.planned
        if self.no_rows or made.second is None:
            return None
        return Launch(made.second.module, target.cc, None, made.second.geometry, self._fixed(self.views))

    def _fixed(self, views: Mapping[str, View]) -> dict[tuple[str, str, int], int]:
        """The arguments that are the same in every call of this kind."""
        found = {("size", axis, 0): n for axis, n in self.planned.sizes.items()}
        found |= {("fixed", name, 0): n for name, n in self.planned.fixed.items()}
        found |= self.marks.fixed if self.marks is not None else {}
        for name, view in views.items():
            found |= {("stride", name, d): s for d, s in enumerate(view.strides)}
        for name, shape in self.planned.shapes.items():
            view = self.planned.results.get(name) or View.contiguous(shape)
            found |= {("stride_out", name, d): s for d, s in enumerate(view.strides)}
        for name, (_, view) in self._scratch.items():
            found |= {("stride", name, d): s for d, s in enumerate(view.strides)}
        seen = self.planned.kernel.seen
        found |= {("size", axis, 0): n for axis, n in seen.lengths.items()}
        results = {r.key: ("stride_out", r.name) for r in self.planned.program.results}
        for name, part in seen.arrays.items():
            role = results.get(name, ("stride", name))
            found |= {(*role, d): s for d, s in enumerate(part.view.strides)}
        return found

    def _arguments(self, rows: int) -> tuple[list[tuple[str, Any]], Counters | None]:
        """Where each argument that changes comes from, and the words that are counted in from call to call."""
        found: list[tuple[str, Any]] = []
        counters = None
        results, inputs = ({x: i for i, x in enumerate(s)} for s in ([o[0] for o in self.outputs], self.names))
        for p in self.planned.module.params:
            if p.role in ("operand", "number", "result"):
                found.append(self._array(p, (results if p.role == "result" else inputs)[p.name]))
            elif p.role == "counters" or self._is_counted(p, rows) and counters is None:
                count = p.size if p.role == "counters" else p.size * rows
                counters = Counters(count, self.device, barrier=p.name == BARRIER)
                found.append(("counters", None))
            elif p.role == "scratch":
                found.append((p.role, (p.size * rows or 1, p.dtype)))
            elif p.role == "maps":
                found.append((p.role, places(self.planned.maps, inputs, results)))
        return found, counters

    def _array(self, p: Param, at: int) -> tuple[str, Any]:
        """Where an operand or a result comes from: the array number `at`, or from an element of it on."""
        part = self.planned.kernel.seen.arrays.get(result_key(p.name) if p.role == "result" else p.name)
        more = part.first * STORAGE[p.dtype] if part is not None else 0
        return ("portion", (p.role, at, more)) if more else (p.role, at)

    @staticmethod
    def _is_counted(p: Param, rows: int) -> bool:
        """Whether splits leave these words as they found them; words of a call's own would be cleared before."""
        return p.role == "scratch" and p.dtype == "uint32" and 0 < p.size * rows <= WORDS

    def __call__(self, given: list[Any], out: Any, stream: Any) -> Any:
        if self.marks is None:
            return self._called(given, out, stream)
        if self.framework is NUMPY:
            with self.marks.lock:
                return self._called(given, out, stream)
        if self.marks.word.value:
            self.marks.tell()
        return self._called(given, out, stream)

    def _called(self, given: list[Any], out: Any, stream: Any) -> Any:
        f = self.framework
        if self.zero_length or self.looking is not None and not self._fits(given, stream):
            made = self._on_host(given, out, stream)
        else:
            held = [a if _is_number(a) else f.enter(a) for a in given]
            like = next((a for a in held if not _is_number(a)), None)
            made = self._outputs(out, like)
            if self.launch is not None and (out is None or f is NUMPY):
                self._go(held, made, like, stream)
            elif self.launch is not None:
                self._go_and_copy(held, made, like, stream)
        if f is NUMPY:
            made = self._home(made, out, given)
        f.finish()
        if len(made) == 1:
            return made[0]
        return {name: x for (name, _, _), x in zip(self.outputs, made, strict=True)}

    def _go_and_copy(self, held: list[Any], targets: list[Any], like: Any, stream: Any) -> None:
        """With results in the caller's arrays: those that operands lie in are filled when these have been read."""
        f, made = self.framework, list(targets)
        for number in (apart := self.receiving.elsewhere(held, targets)):
            _, shape, dtype = self.outputs[number]
            made[number] = f.empty(shape, dtype, like)
        self._go(held, made, like, stream, False)
        for number in apart:
            where = self._where(stream)
            driver.copy(f.pointer(targets[number]), f.pointer(made[number]), self.receiving.bytes[number], where)
            if stream is not None:
                f.used(made[number], where)

    def rehearsal(self, held: list[Any], made: list[Any], stream: int) -> Callable[[], None]:
        """A launch that can be repeated, with results in `made`."""
        like = next((a for a in held if not _is_number(a)), None)
        return lambda: self._go(held, made, like, stream)

    def scratch(self, held: list[Any]) -> list[Any]:
        """Arrays for results that nobody sees."""
        return self._outputs(None, next((a for a in held if not _is_number(a)), None))

    def _go(self, held: list[Any], made: list[Any], like: Any, stream: Any, fresh: bool = True) -> None:
        """Launches everything. `fresh`: results may be other arrays than those in `made`, which are replaced there."""
        f, pointer = self.framework, self.framework.pointer
        values: list[Any] = []
        where = self._where(stream)
        driver.activate(self.device)
        kept = self._prepared(held, made, like, stream, fresh) if self.before or self.planned.scratch else []
        held = [*held, *kept] if kept else held
        if isinstance(self.launch, library.Product):
            self.launch.run(held, made, where if stream is not None else None, fresh)
            if stream is not None:
                for x in kept:
                    f.used(x, where)
            return
        for role, at in self._order:
            value = self._argument(role, at, held, made, where)
            if value is None:  # scratch of this call
                kept.append(f.empty((at[0],), SCRATCH.get(at[1], at[1]), like))
                value = pointer(kept[-1])
                if at[1] == "uint32":
                    driver.clear(value, at[0], where)
            values.append(value)
        assert self.launch is not None
        self.launch(values, where)
        if self.second is not None:
            self.second(values, where)
        if stream is not None:
            for x in kept:
                f.used(x, where)

    def _argument(self, role: str, at: Any, held: list[Any], made: list[Any], where: int) -> Any:
        """An argument of the kernel; None for scratch, which is taken anew."""
        pointer = self.framework.pointer
        if role in ("operand", "result"):
            return pointer((held if role == "operand" else made)[at])
        if role == "number":
            return held[at]
        if role == "portion":
            which, number, more = at
            return self._argument(which, number, held, made, where) + more
        if role == "maps":
            assert self.maps is not None
            every = [*held, *made]
            return self.maps.at([pointer(every[i]) for i in at])
        if role == "counters":
            assert self.counters is not None
            return self.counters.at(where)
        return None

    def _prepared(self, held: list[Any], made: list[Any], like: Any, stream: Any, fresh: bool) -> list[Any]:
        """What kernels before this one leave for it, in scratch."""
        given = {name: x for (name, _, _), x in zip(self.outputs, made, strict=True)}
        for name, (operand, view) in self.planned.scratch.items():
            count = max(1, view.shape[0] * view.strides[0] if view.shape else 1)
            given[name] = self.framework.empty((count,), operand.dtype, like)
        for first in self.before:
            names = [name for name, _, _ in first.outputs]
            results, own = [given[name] for name in names], [given[name] for name in self.planned.scratch]
            first._go([*held, *own], results, like, stream, fresh or all(n in self.planned.scratch for n in names))
            given |= zip(names, results, strict=True)
        scratch = self.planned.scratch
        made[:] = [x if name in scratch else given[name] for x, (name, _, _) in zip(made, self.outputs, strict=True)]
        return [given[name] for name in scratch]

    def _outputs(self, out: Any, like: Any) -> list[Any]:
        f = self.framework
        targets = None if out is None else self.receiving.checked(out)
        if targets is None or f is NUMPY:
            return [f.empty(*o[1:], like, *axes) for o, axes in zip(self.outputs, self.turned, strict=True)]
        return targets

    def _home(self, made: list[Any], out: Any, given: Sequence[Any] = ()) -> list[Any]:
        found = [x if isinstance(x, np.ndarray) else NUMPY.leave(x, None) for x in made]
        found = [x.reshape(shape) for x, (_, shape, _) in zip(found, self.outputs, strict=True)]
        if given and self.marks is not None and not self.zero_length:
            arrays = dict(zip(self.run._names, given, strict=True))
            self.marks.repaired(arrays, {name: x for (name, _, _), x in zip(self.outputs, found, strict=True)})
        if out is None:
            return found
        return filled([out[name] for name, _, _ in self.outputs] if isinstance(out, dict) else [out], found)

    def _where(self, stream: Any) -> int:
        return self.framework.stream(self.device) if stream is None else handle_of(stream)

    def _fits(self, given: list[Any], stream: Any) -> bool:
        """Whether int64 holds every integer of the call."""
        assert self.looking is not None
        arrays = dict(zip(self.run._names, given, strict=True))
        return self.looking.fits(arrays, stream)

    def _of_zero_length(self, given: list[Any]) -> list[Any]:
        """A stream of length 0, or no rows: the definition on the host, and back."""
        arrays = dict(zip(self.run._names, given, strict=True))
        return definition_of_zero_length(self.run.form, self.framework, arrays, self.outputs)

    def _on_host(self, given: list[Any], out: Any, stream: Any) -> list[Any]:
        """What kernels cannot compute: a stream of length 0, what no row writes, integers that might leave int64."""
        if self.zero_length:
            made = self._of_zero_length(given)
        else:
            assert self.looking is not None
            arrays = dict(zip(self.run._names, given, strict=True))
            made = self.looking.computed(arrays, self.outputs, stream)
        if out is not None:
            made = filled(self.receiving.checked(out), made)
        if stream is not None:  # results came on the current one
            driver.wait(self.framework.stream(self.device))
        return made


def _entered(framework: Framework, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays on the device, and numbers."""
    return {
        n: a if _is_number(a) else framework.enter(np.asarray(a) if framework is NUMPY else a)
        for n, a in arrays.items()
    }


def _plan_after(refused: Sequence[NotLaunched], run: CudaRun, call: Call) -> Planned:
    """The plan of a call, after those that the device refused. Raises: RedalgError after the last."""
    if not refused:
        return run._plan_of(call)
    found = run._plan_after(len(refused), call)
    if found is None:
        last = refused[-1]
        why = f"{last.why}, and so it did with all {len(refused)} plans for such a call"
        raise RedalgError(last.what, last.where, why, 'form.compile("cpu"), or a schedule of your own')
    told = tuple(f"instead of a plan that the device refused, {error.where}: {error.what}" for error in refused)
    reasons = (*(x for x in found.choice.reasons if not x.startswith("asked for by schedule=")), *told)
    return replace(found, choice=replace(found.choice, reasons=reasons))


def _view(framework: Framework, array: Any) -> View:
    return View(tuple(array.shape), framework.strides(array), alignment(framework.pointer(array)))


def _is_number(x: Any) -> bool:
    return x.__class__ in NUMBERS
