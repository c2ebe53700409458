"""Rows that left the range of the reals inside a kernel, computed in wider numbers and put among its results.

A mark says that a sum of a row is not finite, or below normal numbers (`redalg.kernels.cpu.watch`). That is what the
definition has where an element is an infinity or NaN, and where a row is 0 or constant: such rows stay as they are. For
all others NumPy computes the row anew, in float64 for float32 and in `numpy.longdouble` for float64.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph.node import Node, walk
from redalg.kernels.cpu.watch import HELD
from redalg.kernels.ir.program import Program, Watch
from redalg.kernels.rows.watch import BELOW, bits
from redalg.numeric.array_origin import narrowed, to_numpy
from redalg.numeric.binding import bind, by_output
from redalg.streaming import run_wide

if TYPE_CHECKING:
    from redalg.form import Form

LOG = logging.getLogger("redalg")
WHERE = "the call"
FLOATS = "efd"  # what NumPy has by itself
PAIR = 2  # degrees of products of two numbers: nothing leaves the range before they do
MORE = 24  # bits by which terms are larger than what is lost of them
Arrays = Mapping[str, np.ndarray]
Call = Callable[..., Any]


class Rescue:
    """What is done about the marks of calls of one form. `repeat`: a call of the form like the one that was made."""

    def __init__(
        self,
        form: Form,
        program: Program,
        sizes: Mapping[str, int],
        dtypes: Mapping[str, Any],
        repeat: Call,
        target: str = "cpu",
    ) -> None:
        self.form, self.program, self.sizes, self.repeat, self.target = form, program, sizes, repeat, target
        nodes = tuple(walk(*form.spec.outputs.values()))
        counted = any(n.op in ("size", "index") and n.attr in program.rows for n in nodes)
        self.read_along = _read_along(nodes, program.rows)
        whole = counted or self.read_along or any(t.dimensions for t in form.spec.tensors)
        self.apart = not whole  # rows may be taken from a call
        self.plain = all(isinstance(d, type) or d.char in FLOATS or d.kind in "iub" for d in dtypes.values())
        self.rows = 0  # that were computed anew

    def __call__(self, watched: Program, marks: np.ndarray, arrays: Mapping[str, Any], results: Arrays) -> None:
        """Correct the results. `watched`: the program whose kernel left marks; `arrays`: as the caller gave them."""
        own = bind(self.form.spec, arrays, where=WHERE).arrays
        grid = marks.reshape([self.sizes[a] for a in self.program.rows])
        chosen = self._chosen(grid)
        wrong = np.zeros(grid.shape, bool)
        wrong[_box(chosen)] = _Rows(self.program, self._taken(own, chosen), self.read_along).wrong(
            watched, grid[_box(chosen)]
        )
        if wrong.any():
            self._computed_anew(own, wrong, arrays, results)
        held = (grid & HELD != 0) & ~wrong
        if held.any():
            self._put(lambda taken: self.repeat(**taken), own, held, results)

    def anew(self, wrong: np.ndarray, arrays: Mapping[str, Any], results: Arrays) -> None:
        """Compute these rows in wider numbers."""
        self._computed_anew(bind(self.form.spec, arrays, where=WHERE).arrays, wrong, arrays, results)

    def _computed_anew(
        self, own: Mapping[str, Any], wrong: np.ndarray, arrays: Mapping[str, Any], results: Arrays
    ) -> None:
        count, real = int(wrong.sum()), self.program.real
        self.rows += count
        LOG.info("%s on %s: %d rows left the range of %s", ", ".join(results), self.target, count, real)
        self._put(lambda taken: run_wide(self.form, taken if self.plain else arrays), own, wrong, results)

    def _chosen(self, grid: np.ndarray) -> list[np.ndarray]:
        """The indices along every axis of rows among which all marks are."""
        if not (self.apart and self.plain):
            return [np.arange(n) for n in grid.shape]
        others = [tuple(b for b in range(grid.ndim) if b != a) for a in range(grid.ndim)]
        return [np.flatnonzero(grid.any(axis=along)) for along in others]

    def _taken(self, arrays: Mapping[str, Any], chosen: Sequence[np.ndarray]) -> dict[str, Any]:
        """The parts of arrays that these rows read."""
        found = dict(arrays)
        for t in self.form.spec.tensors:
            for axis, at in zip(self.program.rows, chosen, strict=True):
                if axis in t.axes and len(at) < self.sizes[axis]:
                    found[t.name] = np.take(found[t.name], at, t.axes.index(axis))
        return found

    def _put(self, call: Call, arrays: Mapping[str, Any], rows: np.ndarray, results: Arrays) -> None:
        """Write what a call gives for these rows."""
        chosen = self._chosen(rows)
        found, rows = call(self._taken(arrays, chosen)), rows[_box(chosen)]
        values = by_output(results, found)
        places = dict(zip(self.program.rows, chosen, strict=True))
        for r in self.program.results:
            target = results[r.name]
            lacking = tuple(at for at, a in enumerate(self.program.rows) if a not in r.axes)
            kept = [a for a in self.program.rows if a in r.axes]
            own = np.asarray(rows.any(axis=lacking)).transpose([kept.index(a) for a in r.axes if a in kept])
            own = own.reshape([len(places[a]) if a in kept else 1 for a in r.axes])
            value = to_numpy(values[r.name])
            value = value if value.dtype == target.dtype else narrowed(value, target.dtype)
            index = np.ix_(*(places.get(a, np.arange(n)) for a, n in zip(r.axes, target.shape, strict=True)))
            target[index] = np.where(own, value, target[index])


class Telling:
    """In the place of a `Rescue` of rows that are those of a larger spec: marks are told to who calls."""

    plain, rows = True, 0

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.axes, self.shape = program.rows, [sizes[a] for a in program.rows]

    def __call__(self, watched: Program, marks: np.ndarray, arrays: Any, results: Arrays) -> None:
        """`arrays` has a list of what is marked (`redalg.kernels.cpu_partitioned.Seen`)."""
        arrays.marked.append((self.axes, marks.reshape(self.shape)))


def _box(chosen: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The index of these indices along every axis."""
    return np.ix_(*chosen) if chosen else ()


def _read_along(nodes: Iterable[Node], rows: Sequence[str]) -> dict[str, set[str]]:
    """The axes of rows along which tensors are also reduced: a row reads what lies in others."""
    found: dict[str, set[str]] = {}
    for n in nodes:
        along = set(n.attr.axes) & set(rows) if n.op == "reduce" else set()
        for t in walk(n) if along else ():
            if t.op == "tensor":
                found.setdefault(t.attr.name, set()).update(along)
    return found


class _Rows:
    """What rows are made of; `read_along`: axes of rows along which a row reads all of a tensor."""

    def __init__(self, program: Program, arrays: Mapping[str, Any], read_along: Mapping[str, set[str]]) -> None:
        self.program, self.arrays, self.read_along = program, arrays, read_along
        self.axes = {o.name: o.axes for o in program.operands}
        self.known: dict[Any, np.ndarray] = {}

    def wrong(self, watched: Program, marks: np.ndarray) -> np.ndarray:
        """The rows that are not what the definition has."""
        found, kinds = np.zeros(marks.shape, bool), bits(watched)
        for w in watched.watched:
            found |= (marks & kinds[w.reads] != 0) & self._sound(w) & self._beyond(w, watched.real)
            if w.low:
                found |= (marks & BELOW != 0) & self._sound(w) & self._lost(w, watched.real)
        return found

    def _sound(self, w: Watch) -> np.ndarray:
        """Rows whose elements are numbers, and such as the sum has a value for."""
        found = np.ones((), bool)
        for name in sorted(w.reads):
            found = found & self._all(name, "finite", np.isfinite)
        for name in w.positive:
            found = found & self._all(name, "positive", lambda x: x > 0)
        return found

    def _lost(self, w: Watch, real: str) -> np.ndarray:
        """Rows of terms that are not 0 and so small that they are no normal numbers, as far as the largest show."""
        info = np.finfo(real)
        if w.product:
            found = np.ones((), bool)
            for name in sorted(w.reads):
                found = found & self._all(name, "not 0", lambda x: x != 0)
            return found
        if w.extremum:
            return self._bound(w, real, above=False) < info.minexp / w.least + w.slack + 1
        length = prod(x for n in w.reads for x in np.shape(self.arrays[n])) or 1
        size = np.zeros(())
        for f in w.factors:
            with np.errstate(divide="ignore"):
                largest = self._largest(f.tensor, f.centred)
                size = size + f.degree * np.log2(largest)
                for name in f.others:  # a unit that both are held in
                    size = size - f.degree * np.log2(np.maximum(largest, self._largest(name, False)))
        return (size > -np.inf) & (size < info.minexp / w.least + MORE + np.log2(length))

    def _beyond(self, w: Watch, real: str) -> np.ndarray:
        """Rows whose terms may be above the range: not those of no elements, or of none that is selected."""
        if not w.bounds:
            return np.ones((), bool)
        most = np.finfo(real).maxexp / w.power - w.terms - w.slack - self._length(w)
        return self._bound(w, real, above=True) > most

    def _all(self, name: str, word: str, test: Callable[[Any], Any]) -> np.ndarray:
        key = name, word
        if key not in self.known:
            x = np.asarray(self.arrays[name])
            held = test(x) if x.dtype.kind == "f" else np.ones((), bool)
            self.known[key] = self._by_row(name, held, np.logical_and)
        return self.known[key]

    def _largest(self, name: str, centred: bool) -> np.ndarray:
        """The largest magnitude in a row, of differences from the first element where these are asked for."""
        key = name, centred
        if key not in self.known:
            x = np.asarray(self.arrays[name])
            x = x.astype(np.result_type(x, np.float32), copy=False)  # where differences are 0 of equal numbers alone
            if centred:
                along = [a in self.program.rows for a in self.axes[name]]
                with np.errstate(all="ignore"):  # rows of others than finite numbers are none of those that are lost
                    x = x - x[tuple(slice(None) if a else slice(0, 1) for a in along)]
            self.known[key] = self._by_row(name, np.abs(x), np.maximum, 0)
        return self.known[key]

    def _end(self, name: str, join: np.ufunc) -> np.ndarray:
        """The log2 of the largest magnitude in a row, or of the smallest that is not 0."""
        key = name, join
        if key not in self.known:
            x = np.abs(np.asarray(self.arrays[name], np.longdouble))
            least = join is np.minimum
            x = self._by_row(name, np.where(x > 0, x, np.inf) if least else x, join, np.inf if least else 0)
            with np.errstate(divide="ignore"):
                self.known[key] = np.log2(x)
        return self.known[key]

    def _bound(self, w: Watch, real: str, above: bool) -> np.ndarray:
        """The log2 of what the terms of an extremum are at most, or at least where they are not 0."""
        size, digits = np.zeros(()), np.finfo(real).nmant + 2
        inside = len(w.bounds) > 1 and sum(abs(f.degree) for f in w.bounds) > PAIR
        for f in w.bounds:
            upper = (f.degree > 0) == above
            join = np.maximum if upper else np.minimum
            names = (f.tensor, *f.others)
            end = self._end(names[0], join)
            for name in names[1:]:
                end = join(end, self._end(name, join))
            if names[1:] or inside:  # for terms of smaller degrees, and what is multiplied before others
                end = np.maximum(end, 0) if upper else np.minimum(end, 0)
            more = 0 if not f.centred else 1 + self._length(w) if upper else -digits
            size = size + f.degree * (end + more)
        return size

    def _length(self, w: Watch) -> float:
        """The log2 of more terms than a sum inside an element has."""
        return float(np.log2(max([2, *(prod(np.shape(self.arrays[n])) for n in w.reads)])))

    def _by_row(self, name: str, x: np.ndarray, join: np.ufunc, none: Any = True) -> np.ndarray:
        """What an array has for every row, along the axes of rows; `none`: for rows of no elements."""
        if not x.ndim:
            return x
        axes, rows = self.axes[name], self.program.rows
        whole = tuple(at for at, a in enumerate(axes) if a in self.read_along.get(name, ()))
        x = np.broadcast_to(join.reduce(x, axis=whole, keepdims=True, initial=none), x.shape) if whole else x
        along = tuple(at for at, a in enumerate(axes) if a not in rows)
        x = join.reduce(x, axis=along, keepdims=False, initial=none)
        left = [a for a in axes if a in rows]
        x = x.transpose([left.index(a) for a in rows if a in left])
        return x[tuple(slice(None) if a in left else None for a in rows)]
