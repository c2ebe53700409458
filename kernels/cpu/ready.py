"""One kind of call on the CPU, prepared: what its shapes, strides and dtypes settle is settled, the rest is looked at.

Looked at in every call are the magnitudes of integers, where dtypes and lengths leave open whether int64 holds what is
calculated; what `out` is, and whether it overlaps an input; and where arrays lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.kernels.cpu.rescue import Rescue, Telling
from redalg.kernels.cpu.walk import Compiled, Prepared, steps_of
from redalg.kernels.ir.layouts import View, memory_order
from redalg.kernels.ir.program import Program, Result, result_key
from redalg.kernels.launch.arrays import plain
from redalg.numeric.array_origin import BFLOAT16_BITS, narrowed
from redalg.numeric.binding import Bound, bind
from redalg.numeric.casts import cast_array
from redalg.numeric.definition import reference
from redalg.numeric.integer_bounds import Integers, infinite_extremum
from redalg.numeric.integers import LARGEST
from redalg.numeric.out import by_output, received, require_disjoint, same_place, shared
from redalg.streaming import run_numpy

if TYPE_CHECKING:
    from redalg.form import Form

WHERE = "the call"
LAYOUTS = 16  # layouts of `out` that are remembered
Builds = Callable[[Mapping[str, View], Mapping[str, Any]], Compiled]


class Ready:
    """What calls of one kind do. `held`: the arrays of the first of them, as kernels read them; `over`: the inputs that
    a result may overwrite where it lies as they do; `compiled`: the kernels for the views of all arrays."""

    def __init__(
        self,
        form: Form,
        program: Program,
        bound: Bound,
        held: Sequence[Any],
        sizes: Mapping[str, int],
        dtypes: Mapping[str, np.dtype],
        integers: Integers,
        over: Mapping[str, frozenset[str]],
        compiled: Builds,
        repeat: Callable[..., Any],
    ) -> None:
        self._form, self.sizes, self._origin, self._compiled, self._over = form, sizes, bound.origin, compiled, over
        self.wants = {r.name: (tuple(sizes[a] for a in r.axes), dtypes[r.name]) for r in program.results}
        self._names = tuple(bound.arrays)
        like = dict(zip(self._names, held, strict=True))
        self._fresh = [(r.key, *ordered(r, *self.wants[r.name], program, like)) for r in program.results]
        self._views = {n: view_of(x) for n, x in zip(self._names, held, strict=True) if isinstance(x, np.ndarray)}
        self._integers = None if integers.certain(sizes) else integers
        wide = {n for n, d in bound.dtypes.items() if d == np.uint64}  # numbers beyond int64 are refused
        self._wide = [number for number, name in enumerate(self._names) if name in wide]
        empty = _is_empty(sizes, (*program.rows, *program.stream, *program.columns))
        infinite = infinite_extremum(form.spec.outputs.values(), sizes, bound.dtypes)
        self._zero_length = infinite is not None or self._has_no_elements(program, empty)
        self._walks = not self._zero_length and not empty
        self._always = self._walks and self._integers is None and not self._wide  # computed by kernels
        self._restore = None if bound.origin.kind == "numpy" else bound.origin.restore
        self._rescue: Rescue | Telling | None = None
        if program.watched:
            self._rescue = Rescue(form, program, sizes, bound.dtypes, repeat)
        self._usual: Prepared | None = None  # for results in arrays of our own
        self._ways: dict[Any, Prepared] = {}  # by the strides of `out`
        self._fit: set[Any] = set()  # what `out` may be like

    def lie_contiguous(self) -> None:
        """Leave results in row-major order, whatever they are made of: parts are read so by others."""
        self._fresh = [
            (key, shape, dtype, None)
            for (key, *_), (shape, dtype) in zip(self._fresh, self.wants.values(), strict=True)
        ]

    def _has_no_elements(self, program: Program, empty: bool) -> bool:
        """Whether the definition says what results are: a stream of length 0, or results that lack such an axis, which
        no row writes, or which fold it where nothing is streamed."""
        left = empty or not program.passes and _is_empty(self.sizes, self.sizes)
        left = left and any(all(shape) for shape, _ in self.wants.values())
        return left or bool(program.passes) and _is_empty(self.sizes, program.stream)

    def __call__(self, given: Sequence[Any], arrays: Mapping[str, Any], out: Any) -> Any:
        """The results for arrays of this kind, as kernels read them (`given`) and as the caller passed them."""
        if out is None and self._usual is not None and self._always:
            return self._by_kernels(self._usual, given, arrays)
        for number in self._wide:
            if given[number].size and int(given[number].max()) > LARGEST:
                bind(self._form.spec, arrays, where=WHERE)  # which says so
        if out is not None:
            return self._into(out, dict(zip(self._names, given, strict=True)), arrays)
        made = self._empty()
        if self._walks and self._integers_fit(given):
            if self._usual is None:
                results = {key: x for (key, *_), x in zip(self._fresh, made, strict=True)}
                self._usual = self._prepared({**dict(zip(self._names, given, strict=True)), **results}, results)
            return self._by_kernels(self._usual, given, arrays)
        self._elsewhere(given, arrays, dict(zip(self.wants, made, strict=True)))
        if self._restore is not None:
            made = [self._restore(x) for x in made]
        return made[0] if len(made) == 1 else dict(zip(self.wants, made, strict=True))

    def _empty(self) -> list[np.ndarray]:
        """Arrays for results."""
        return [
            np.empty(shape, dtype) if turn is None else np.empty(shape, dtype).transpose(turn)
            for _, shape, dtype, turn in self._fresh
        ]

    def _by_kernels(self, prepared: Prepared, given: Sequence[Any], arrays: Mapping[str, Any]) -> Any:
        """Results in arrays of our own, where nothing is left to be looked at."""
        made = self._empty()
        marks = prepared((*given, *made))
        if marks is not None:
            self._rescued(prepared, marks, arrays, dict(zip(self.wants, made, strict=True)))
        if self._restore is not None:
            made = [self._restore(x) for x in made]
        return made[0] if len(made) == 1 else dict(zip(self.wants, made, strict=True))

    def restored(self, x: np.ndarray) -> Any:
        """A result as the caller's library has it."""
        return x if self._restore is None else self._restore(x)

    @property
    def last(self) -> tuple[Compiled, ...]:
        """What calls run, once there was one: those without `out`, or else those with the last kind of it."""
        ways = [self._usual] if self._usual is not None else [*self._ways.values()][-1:]
        return tuple(prepared.compiled for prepared in ways)

    def tell_marks(self) -> None:
        """Leave rows that leave the range to what these calls are the last part of."""
        if isinstance(self._rescue, Rescue):
            self._rescue = Telling(self._rescue.program, self.sizes)

    @property
    def rescued(self) -> int:
        """Rows that left the range of the reals and were computed in wider numbers, of all calls so far."""
        return self._rescue.rows if self._rescue is not None else 0

    # --- what kernels do not compute ---------------------------------------------------------------------------------

    def _integers_fit(self, given: Sequence[Any]) -> bool:
        """Whether int64 holds every integer of the call; else NumPy computes it, and raises where it has to."""
        if self._integers is None:
            return True
        return self._integers.fits(self.sizes, dict(zip(self._names, given, strict=True)))

    def _rescued(
        self, prepared: Prepared, marks: np.ndarray, arrays: Mapping[str, Any], made: Mapping[str, np.ndarray]
    ) -> None:
        """Rows that left the range of the reals, in wider numbers."""
        assert self._rescue is not None
        self._rescue(prepared.compiled.program, marks, arrays, made)

    def _elsewhere(self, given: Sequence[Any], arrays: Mapping[str, Any], made: Mapping[str, np.ndarray]) -> None:
        """A stream of length 0, and what no row writes, by the definition, integers beyond int64 by NumPy; rows of
        nothing need nothing else."""
        if not self._zero_length and self._integers_fit(given):
            return
        own = bind(self._form.spec, arrays, where=WHERE).arrays
        found = reference(self._form.spec, **own) if self._zero_length else run_numpy(self._form, own)
        for name, value in (found if isinstance(found, dict) else {next(iter(made)): found}).items():
            dtype = made[name].dtype
            made[name][...] = narrowed(cast_array(value, "bfloat16"), dtype) if dtype == BFLOAT16_BITS else value

    # --- results in the caller's arrays ------------------------------------------------------------------------------

    def _into(self, out: Any, held: dict[str, Any], arrays: Mapping[str, Any]) -> Any:
        targets, given = self.received(out), list(held.values())
        if not self._walks or not self._integers_fit(given):
            self._elsewhere(given, arrays, targets)
        else:
            made = self._written(targets, held)
            walked = {result_key(name): x for name, x in made.items()}
            held |= walked
            way = tuple(x.strides for x in made.values())
            prepared = self._ways.get(way)
            if prepared is None:
                self._ways = dict([*self._ways.items()][1 - LAYOUTS :])
                prepared = self._ways[way] = self._prepared(held, walked)
            self._run_into(prepared, [*given, *walked.values()], held, arrays, made)
            for name, x in made.items():
                if x is not targets[name]:
                    targets[name][...] = x
        own = by_output(out, list(targets), WHERE)
        return own[next(iter(targets))] if len(targets) == 1 else {name: own[name] for name in targets}

    def _run_into(
        self,
        prepared: Prepared,
        given: list[Any],
        held: Mapping[str, Any],
        arrays: Mapping[str, Any],
        made: Mapping[str, np.ndarray],
    ) -> None:
        """Run the kernels. Operands that results lie over are needed once more for rows that leave the range: of those
        that cannot be spared, there is a copy."""
        spare = False
        if self._rescue is not None and prepared.watches:
            over = [n for n in self._views for x in made.values() if shared(held[n], x)]
            spare = bool(over) and prepared.spares and self._rescue.plain
            if over and not spare:
                arrays = {**arrays, **{n: _copied(arrays[n]) for n in over}}
        marks = prepared(given, spare)
        if marks is not None:
            self._rescued(prepared, marks, arrays, made)

    def received(self, out: Any) -> Mapping[str, np.ndarray]:
        """The arrays of `out` in the order of the results; what they are like is looked at once for each likeness."""
        given = out if isinstance(out, dict) else dict.fromkeys(self.wants, out)
        found = [given.get(name) for name in self.wants]
        if len(given) == len(found) == len(self.wants) and all(x.__class__ is np.ndarray for x in found):
            like = (
                isinstance(out, dict),
                *((x.shape, x.strides, x.dtype, x.flags.writeable) for x in found),  # type: ignore[union-attr]
            )
            if like in self._fit:
                targets = dict(zip(self.wants, found, strict=True))
                require_disjoint(targets, WHERE)  # type: ignore[arg-type]
                return targets  # type: ignore[return-value]
            checked = received(out, self.wants, self._origin, WHERE)
            if len(self._fit) < LAYOUTS:
                self._fit.add(like)
            return checked
        return received(out, self.wants, self._origin, WHERE)

    def _written(self, targets: Mapping[str, np.ndarray], held: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Where kernels write the results: elsewhere first, if they would overwrite what has yet to be read."""
        found = {}
        for name, x in targets.items():
            found[name] = plain(x)
            overlapping = {n for n in self._views if shared(held[n], x)}
            if overlapping and found[name] is x:
                safe = self._over.get(name, frozenset())
                if not (overlapping <= safe and all(same_place(held[n], x) for n in overlapping)):
                    found[name] = np.empty(x.shape, x.dtype)
        return found

    def _prepared(self, arrays: Mapping[str, Any], made: Mapping[str, np.ndarray]) -> Prepared:
        views = {**self._views, **{key: view_of(x) for key, x in made.items()}}
        return Prepared(self._compiled(views, arrays), self.sizes, views, (*self._names, *made))


Turned = tuple[tuple[int, ...], np.dtype, tuple[int, ...] | None]


def ordered(
    result: Result, shape: tuple[int, ...], dtype: np.dtype, program: Program, held: Mapping[str, Any]
) -> Turned:
    """A shape, a dtype and how its axes are to be turned, so that a result lies in memory as the first operand with the
    same axes does, as NumPy's element-wise operations have it: what is read and what is written are walked alike.
    """
    for operand in program.operands:
        x = held.get(operand.name)
        if result.keeps and isinstance(x, np.ndarray) and sorted(operand.axes) == sorted(result.axes):
            along = [operand.axes.index(a) for a in result.axes]
            memory = memory_order(shape, [x.strides[d] for d in along])
            if tuple(x.shape[d] for d in along) != shape or memory == tuple(range(len(shape))):
                break
            return tuple(shape[a] for a in memory), dtype, tuple(memory.index(a) for a in range(len(shape)))
    return shape, dtype, None


def _copied(x: Any) -> Any:
    return x.clone() if hasattr(x, "clone") else x.copy()


def view_of(x: np.ndarray) -> View:
    return View(x.shape, steps_of(x))


def _is_empty(sizes: Mapping[str, int], axes: Iterable[str]) -> bool:
    """Whether one of the axes has length 0."""
    return not all(sizes[a] for a in axes)
