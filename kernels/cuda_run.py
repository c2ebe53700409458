"""`CudaRun`: a form as one call on an NVIDIA GPU. What a call needs is worked out once for every kind of call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.kernels import driver
from redalg.kernels.admitting import NUMBERS, admitted
from redalg.kernels.arrays import NUMPY, Framework, alignment, dtype_name, framework_of, handle_of
from redalg.kernels.choosing import Override
from redalg.kernels.counters import Counters
from redalg.kernels.cuda_integers import looking
from redalg.kernels.cuda_receiving import Receiving, filled
from redalg.kernels.driver import Launch
from redalg.kernels.ir import STORAGE
from redalg.kernels.layouts import View
from redalg.kernels.nothing import definition_of_nothing
from redalg.kernels.planning import Planned, plan, typical
from redalg.kernels.store import Once
from redalg.kernels.tensor_maps import TensorMaps, places
from redalg.kernels.tuning import MEASURE
from redalg.shown import Shown

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"


class CudaRun(Shown):
    """A form compiled for CUDA: ``run(Q=…, K=…, out=None, stream=None)``.

    Arrays of PyTorch, CuPy, Numba or JAX on a GPU are read where they are, whatever their strides; NumPy arrays are
    copied there. The same kind comes back. Work is enqueued on the caller's current stream (or `stream`) and may be
    captured in a CUDA graph. `out` receives the results instead of new arrays; where it overlaps an operand, they are
    computed elsewhere and copied, unless the kernel reads every element before, and only for, the one that takes its
    place.

    ``schedule="measure"``: the first call with arrays of a kind times the schedules the model finds best on them
    (seconds, most of it compiling) and keeps the fastest, also on disk; `deterministic` leaves those that add in the
    same order. Such a call cannot be captured, nor can one whose integers might leave int64 (sums of int64, products of
    int32): it looks at their magnitudes on the device first, and NumPy computes it where these leave it open.

    Contractions of float16 and bfloat16 run on tensor cores, by wgmma where the compute capability is 9.0 and by
    mma.sync elsewhere; ``schedule="tensor"`` insists on that, ``schedule="mma"`` on mma.sync. There float8 is read as
    it is and multiplied as 16 bits, which hold it exactly, and, with ``schedule="tf32"`` alone, float32 is rounded to
    tf32 (each factor by a relative 2^-11). Sums are kept in float32, weights are rounded to the tensors' type before
    they multiply (a relative 2^-8 for bfloat16, 2^-11 for float16, of Σ|weight·value|). ``schedule="block"``, or any
    other of the families, computes without that rounding.
    Specs whose last fold is a product of matrices run there too, float8 included: what makes an operand is a kernel of
    its own before the product's, or part of it with ``schedule="one launch"``, and an operand that is no tensor and no
    cast is rounded once, as weights are. Sums of 128 float8 products are added in float32 (each is off by at most
    4·33·2^-13 of Σ|L·R|).

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, mixed kinds or devices, a schedule that
    breaks a law of the program, and whatever the driver refuses.

    >>> import numpy as np
    >>> import redalg as ra
    >>> from redalg.kernels.driver import available
    >>> form = ra.derive_incremental(ra.catalog["max_abs_scaling"])
    >>> if available():
    ...     run = form.compile("cuda")
    ...     assert run(x=np.array([[1.0, -4.0]])).tolist() == [[0.25, -1.0]]
    ...     assert "cuda" in run.source and "Schedule" in str(run.schedule) and "target:   cuda" in run.explain()

    Without a GPU, `redalg.explore.kernel` prints what would be launched.
    """

    target = "cuda"

    def __init__(self, form: Form, schedule: Override = None, deterministic: bool = False) -> None:
        driver.require()
        self.form, self.requested, self.deterministic = form, schedule, deterministic
        self._names = tuple(t.name for t in form.spec.tensors)
        self._single = len(form.spec.outputs) == 1
        self._ready: dict[Any, Ready] = {}
        self.looks = True  # at integers that might leave int64
        self._once = Once()
        self._last: Ready | None = None

    def __reduce__(self) -> Any:
        return CudaRun, (self.form, self.requested, self.deterministic)

    def __call__(self, *, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        try:
            given = [arrays[name] for name in self._names]
            first = next((a for a in given if not isinstance(a, int | float)), None)
            framework = framework_of(first)
            assert framework is not None
            key = (framework.kind, len(arrays), *_key(framework, given))
            ready = self._ready[key]
        except (KeyError, AttributeError, AssertionError, TypeError, RedalgError):
            ready = self._prepared(arrays, stream)
            given = [arrays[name] for name in self._names]
        return ready(given, out, stream)

    # --- once per kind of call ---------------------------------------------------------------------------------------

    def _prepared(self, arrays: Mapping[str, Any], stream: Any) -> Ready:
        framework, dtypes = admitted(self.form, arrays)
        given = [arrays[name] for name in self._names]
        key = (
            framework.kind,
            len(arrays),
            *[framework.key(a) if a.__class__ not in NUMBERS else a.__class__ for a in given],
        )

        def make() -> Ready:
            held = {
                n: a if _is_number(a) else framework.enter(np.asarray(a) if framework is NUMPY else a)
                for n, a in arrays.items()
            }
            with driver.relaxed():
                if self.requested == MEASURE:
                    return self._measured(framework, dtypes, held, stream)
                return Ready(self, framework, dtypes, held, self.requested)

        ready: Ready = self._once(key, make)
        self._ready[key] = self._last = ready
        return ready

    def _measured(self, framework: Framework, dtypes: Mapping[str, Any], held: Mapping[str, Any], stream: Any) -> Ready:
        from redalg.kernels.measuring import measured

        first = Ready(self, framework, dtypes, held, None)
        if first.launch is None:
            return first
        about = self.form, dtypes, first.views, driver.target_of(first.device), self.deterministic
        where = framework.stream(first.device) if stream is None else handle_of(stream)

        def make(way: Override) -> Ready:
            return Ready(self, framework, dtypes, held, way)

        return measured(first, make, about, [held[name] for name in self._names], where)

    @property
    def planned(self) -> Planned:
        """The plan of the last kind of call, or of a typical one before the first."""
        if self._last is not None:
            return self._last.planned
        asked = None if self.requested == MEASURE else self.requested
        return typical(self.form, asked, self.deterministic)

    @property
    def source(self) -> str:
        """The generated kernel: numba.cuda source of the last kind of call (before the first: of a typical one)."""
        return self.planned.module.source

    @property
    def schedule(self) -> Any:
        """The schedule of the last kind of call."""
        return self.planned.choice.schedule

    def explain(self) -> str:
        """The form's explanation, and how and why the kernel is scheduled as it is."""
        lines = [self.form.explain().rstrip(), "", "run", f"  target:   {self.target}"]
        lines += [f"  {line}" for line in self.planned.choice.reasons]
        if self._last is not None and self._last.looking is not None:
            lines.append(f"  {self._last.looking}")
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return f"<Run of {', '.join(self.form.spec.outputs)} on {self.target}>"


def _key(framework: Framework, given: list[Any]) -> list[Any]:
    ask = framework.key
    return [ask(a) if a.__class__ not in NUMBERS else _number_key(a) for a in given]


def _number_key(a: Any) -> Any:
    """Integers outside int64 are no kind of call: they are refused when one is prepared."""
    return a.__class__ if a.__class__ is not int or -(1 << 63) <= a < 1 << 63 else None


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
    ) -> None:
        """`given`: the arguments of a call, arrays on the device."""
        self.run, self.framework = run, framework
        names = run._names
        held = {n: a for n, a in given.items() if not _is_number(a)}
        self.device = next((framework.device(a) for a in held.values()), 0)
        driver.activate(self.device)
        target = driver.target_of(self.device)
        self.views = views = {
            n: View(tuple(a.shape), framework.strides(a), alignment(framework.pointer(a))) for n, a in held.items()
        }
        self.planned = planned or plan(run.form, dtypes, views, target, run.deterministic, schedule)
        self.before = [Ready(run, framework, dtypes, given, None, made) for made in self.planned.before]
        p = self.planned.program
        self.outputs = [(r.name, self.planned.shapes[r.name], r.dtype) for r in p.results]
        places = {n: names.index(n) for n in views}
        each = {n: STORAGE[dtype_name(a)] for n, a in held.items()}
        over = self.planned.over
        self.receiving = Receiving(framework, self.device, self.outputs, views, each, places, over)
        rows = prod(self.planned.sizes[a] for a in p.rows)
        self.nothing = any(self.planned.sizes[a] == 0 for a in p.stream) and bool(p.passes)
        self.no_rows = (
            rows == 0
            or any(self.planned.sizes[a] == 0 for a in p.stream)
            or any(self.planned.sizes[a] == 0 for a in p.lanes)
        )
        self.names = (*names, *self.planned.scratch)
        self._order = self._arguments(rows)
        self.launch: Callable[..., Any] | None = None
        if not self.no_rows:
            made, fixed = self.planned, self._fixed(views)
            self.launch = Launch(made.module, target.cc, made.choice.registers, made.geometry, fixed)
        self.again: Callable[..., Any] | None = None
        if self.planned.again is not None and not self.no_rows:
            geometry = self.planned.again_geometry
            assert geometry is not None
            self.again = Launch(self.planned.again, target.cc, None, geometry, self._fixed(views))
        self.maps = TensorMaps(self.planned, views) if self.planned.maps else None
        self.looking = None
        if run.looks and planned is None and self.launch is not None:
            self.looking = looking(run.form, framework, self.device, dtypes, views)
        counts = next((p.size for p in self.planned.module.params if p.role == "counters"), 0)
        self.counters = Counters(counts) if counts else None

    def _fixed(self, views: Mapping[str, View]) -> dict[tuple[str, str, int], int]:
        """The arguments that are the same in every call of this kind."""
        found = {("size", axis, 0): n for axis, n in self.planned.sizes.items()}
        found |= {("fixed", name, 0): n for name, n in self.planned.fixed.items()}
        for name, view in views.items():
            found |= {("stride", name, d): s for d, s in enumerate(view.strides)}
        for name, shape in self.planned.shapes.items():
            view = self.planned.results.get(name) or View.contiguous(shape)
            found |= {("stride_out", name, d): s for d, s in enumerate(view.strides)}
        for name, (_, view) in self.planned.scratch.items():
            found |= {("stride", name, d): s for d, s in enumerate(view.strides)}
        return found

    def _arguments(self, rows: int) -> list[tuple[str, Any]]:
        """Where each argument that changes comes from."""
        found: list[tuple[str, Any]] = []
        results, inputs = ({x: i for i, x in enumerate(s)} for s in ([o[0] for o in self.outputs], self.names))
        for p in self.planned.module.params:
            if p.role in ("operand", "number", "result"):
                found.append((p.role, (results if p.role == "result" else inputs)[p.name]))
            elif p.role == "scratch":
                found.append((p.role, (p.size * rows or 1, p.dtype)))
            elif p.role == "counters":
                found.append((p.role, None))
            elif p.role == "maps":
                found.append((p.role, places(self.planned.maps, inputs, results)))
        return found

    def __call__(self, given: list[Any], out: Any, stream: Any) -> Any:
        f = self.framework
        if self.nothing or self.looking is not None and not self._fits(given, stream):
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
            made = self._home(made, out)
        f.finish()
        if self.run._single:
            return made[0]
        return {name: x for (name, _, _), x in zip(self.outputs, made, strict=True)}

    def _go_and_copy(self, held: list[Any], targets: list[Any], like: Any, stream: Any) -> None:
        """With results in the caller's arrays: those that operands lie in are filled when these have been read."""
        f, made = self.framework, list(targets)
        for number in (apart := self.receiving.elsewhere(held, targets)):
            _, shape, dtype = self.outputs[number]
            made[number] = f.empty(shape, dtype, like)
        self._go(held, made, like, stream)
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

    def _go(self, held: list[Any], made: list[Any], like: Any, stream: Any) -> None:
        f, pointer = self.framework, self.framework.pointer
        values: list[Any] = []
        where = self._where(stream)
        driver.activate(self.device)
        kept = self._prepared(held, made, like, stream) if self.planned.scratch else []
        held = [*held, *kept] if kept else held
        for role, at in self._order:
            if role == "operand":
                values.append(pointer(held[at]))
            elif role == "result":
                values.append(pointer(made[at]))
            elif role == "number":
                values.append(held[at])
            elif role == "maps":
                assert self.maps is not None
                every = [*held, *made]
                values.append(self.maps.at([pointer(every[i]) for i in at]))
            elif role == "counters":
                assert self.counters is not None
                values.append(self.counters.at(where))
            else:
                kept.append(f.empty((at[0],), _SCRATCH.get(at[1], at[1]), like))
                values.append(pointer(kept[-1]))
                if at[1] == "uint32":
                    driver.clear(values[-1], at[0], where)
        assert self.launch is not None
        self.launch(values, where)
        if self.again is not None:
            self.again(values, where)
        if stream is not None:
            for x in kept:
                f.used(x, where)

    def _prepared(self, held: list[Any], made: list[Any], like: Any, stream: Any) -> list[Any]:
        """What kernels before this one leave for it, in scratch."""
        given = {name: x for (name, _, _), x in zip(self.outputs, made, strict=True)}
        for name, (operand, view) in self.planned.scratch.items():
            room = max(1, view.shape[0] * view.strides[0] if view.shape else 1)
            given[name] = self.framework.empty((room,), operand.dtype, like)
        for first in self.before:
            first._go(held, [given[name] for name, _, _ in first.outputs], like, stream)
        return [given[name] for name in self.planned.scratch]

    def _outputs(self, out: Any, like: Any) -> list[Any]:
        f = self.framework
        targets = None if out is None else self.receiving.checked(out)
        if targets is None or f is NUMPY:
            return [f.empty(shape, dtype, like) for _, shape, dtype in self.outputs]
        return targets

    def _home(self, made: list[Any], out: Any) -> list[Any]:
        found = [x if isinstance(x, np.ndarray) else NUMPY.leave(x, None) for x in made]
        found = [x.reshape(shape) for x, (_, shape, _) in zip(found, self.outputs, strict=True)]
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

    def _of_nothing(self, given: list[Any]) -> list[Any]:
        """A stream of length 0: the definition on the host, and back."""
        arrays = dict(zip(self.run._names, given, strict=True))
        return definition_of_nothing(self.run.form, self.framework, arrays, self.outputs)

    def _on_host(self, given: list[Any], out: Any, stream: Any) -> list[Any]:
        """What kernels cannot compute: a stream of length 0, and integers that might leave int64."""
        if self.nothing:
            made = self._of_nothing(given)
        else:
            assert self.looking is not None
            arrays = dict(zip(self.run._names, given, strict=True))
            made = self.looking.computed(arrays, self.outputs, stream)
        if out is not None:
            made = filled(self.receiving.checked(out), made)
        if stream is not None:  # results came on the current one
            driver.wait(self.framework.stream(self.device))
        return made


_SCRATCH = {"uint32": "int32"}  # PyTorch has few operations on unsigned integers; the bits are the same


def _is_number(x: Any) -> bool:
    return x.__class__ in NUMBERS
