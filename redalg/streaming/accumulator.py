"""`Accumulator`: a stream's state, fed in chunks of any length, merged with others, read at any time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from redalg import _hooks
from redalg._moved import deprecated
from redalg.graph.node import Decl
from redalg.graph.plan import given
from redalg.numeric.binding import Bound, with_unnamed
from redalg.numeric.call_kinds import Unkeyed, kind_of_call
from redalg.streaming import checks, ids, promote, results
from redalg.streaming import nulls as null
from redalg.streaming.few import Asked
from redalg.streaming.lift import Engine, Stretch, engine_of
from redalg.streaming.machine import Machine, built
from redalg.streaming.pieces import Pieces, Single
from redalg.streaming.snapshot import KINDS, SMALL, Feed, Layout, Snapshot, may_be_fed
from redalg.streaming.span import Span
from redalg.streaming.state import State, stored
from redalg.streaming.tapes.tape import Array
from redalg.streaming.tree import Tree
from redalg.streaming.whole import as_planned

if TYPE_CHECKING:
    from redalg.form import Form


class Accumulator:
    """The streaming state of a form: empty at first, advanced by `update`, joined by `merge`, read by `result`.

    `arrays` are the tensors without the streamed axis. Without `start` the stream counts from 0 and ``a.merge(b)``
    means a's stream followed by b's; with `start` it covers positions [start, stop), pieces merge in any order, ties
    go to the lowest position and overlaps are refused. A form whose bodies read ``index`` of the axis takes placed
    pieces only. A user's monoid that does not commute merges only pieces that touch. For a composite axis positions are
    row-major, chunks extend the first axis and hold the others whole.

    `nulls`: what becomes of missing elements (pandas' NA and, in its float columns, NaN; nulls of Polars and Arrow;
    masked arrays). "propagate" takes chunks as NumPy reads them (floats have NaN for a null; what has no number for it
    is refused), "skip" leaves out an element of the stream where any tensor is null, "error" refuses the chunk.

    `id`: a name for the part, a text or a whole number. An accumulator holds the names of all parts that were merged
    into it (consecutive numbers as one); two that share one are refused, and so are named elements beside unnamed ones.

    No element is kept, the size of the state does not depend on how many were seen, temporaries are bounded, and
    `update` and `merge` complete or leave everything as it was. Sums carry what rounding took away (in `nbytes`, not
    in `state`). With `deterministic` the result has the same bits for every chunking and every split: a fixed binary
    tree over absolute positions, of which a few states per level are held (`redalg.streaming.tree`).

    Pickles. Not thread-safe: one thread per accumulator; forms are shared freely. Calls of two threads that would lose
    elements are refused (under the GIL): one of them raises, and has changed nothing.

    Raises: RedalgError, in four parts, for arrays that do not fit the spec, what was bound or what came before.

    >>> import numpy as np, redalg as ra
    >>> x = ra.tensors("x[j]")
    >>> form = ra.derive_incremental(ra.Spec(v=ra.mean((x - ra.mean(x, "j")) ** 2, "j")))
    >>> a, b = form.accumulator(), form.accumulator()
    >>> a.update(x=[1.0, 2.0]); b.update(x=[4.0])
    >>> a.merge(b).count, a.result()
    (3, array(1.55555556))
    >>> twin = a.copy(); twin.update(x=[0.0]); a.count, twin.count
    (3, 4)
    >>> sorted(a.state), a.nbytes
    (['A_x', 'avg_x', 'avg_x2'], 40)
    >>> late = form.accumulator(start=10); late.update(x=[5.0, 5.0]); late.start, late.stop, late.covered
    (10, 12, ((10, 12),))
    """

    __slots__ = (
        "form",
        "_layout",
        "_bound",
        "_now",
        "_engines",
        "_machines",
        "_feeds",
        "_results",
        "_axes",
        "__weakref__",
    )

    def __init__(
        self,
        form: Form,
        arrays: Mapping[str, Any],
        start: int | None = None,
        deterministic: bool = False,
        nulls: str = "propagate",
        id: str | int | None = None,
    ) -> None:
        self.form = form
        self._ready()
        self._bound = checks.bound(self._layout, arrays)
        span = Span.at(checks.start(start))
        sizes = {**self._bound.sizes, **dict(self._layout.new_axes)}
        pieces: Pieces = Tree() if deterministic else Single()
        policy = null.checked(self._layout, nulls, span.placed, checks.CREATE)
        origin = checks.origin_of(self._bound)
        names = ids.named(id, checks.CREATE)
        self._now = Snapshot(span, sizes, bool(deterministic), pieces, origin=origin, nulls=policy, ids=names)

    def _ready(self) -> None:
        """What is computed from the rest, and neither pickled nor shared."""
        self._layout = Layout.of(self.form.spec, self.form.plan)
        self._engines: dict[Any, Engine] = {}
        self._machines: dict[Any, Machine] = {}
        self._feeds: dict[Hashable, Feed] = {}
        self._results: dict[Any, dict[str, np.dtype]] = {}
        self._axes = given({d.name: d.axes for d in self.form.spec.tensors})

    # --- the stream ----------------------------------------------------------------------------------------------

    def update(self, /, *unnamed: Any, **chunks: Any) -> None:
        """Append a chunk: one array for every tensor with the streamed axis, of any common length, 0 included.

        Where one tensor has it, its array may come without a name. Raises: RedalgError for a chunk that does not fit,
        and everything stays as it was.

        >>> import redalg as ra
        >>> acc = ra.derive_incremental(ra.parse("return y = mean[j](x[j])")).accumulator()
        >>> acc.update([1.0, 2.0]); acc.update(x=[]); acc.update([6.0])
        >>> acc.result()
        array(3.)
        """
        if unnamed:
            chunks = with_unnamed(self._streamed, unnamed, chunks, checks.UPDATE)
        now = self._now
        if now.nulls != "propagate":
            chunks = dict(null.without(self._layout, chunks, now.nulls, checks.UPDATE))
        try:
            arrays, kind = kind_of_call(self._layout.names, chunks)
        except Unkeyed:
            arrays, kind = [], None
        feed = self._feeds.get(kind)
        if feed is None or not feed.follows(now):
            found = checks.chunk(self._layout, now, chunks)
            after = self._readable(self._advanced(now, found))
            self._put(now, after, checks.UPDATE)
            if kind is not None and may_be_fed(arrays) and _in_own(found, self._layout.names, arrays):
                self._remember(after, kind, found, arrays)
            return
        if feed.inner > 1:
            checks.aligned(now.span, feed.inner)
        after = feed.advanced(now, arrays)
        self._put(now, self._readable(after) if feed.whole_numbers else after, checks.UPDATE)

    def _put(self, before: Snapshot, after: Snapshot, where: str) -> None:
        """Go on from a snapshot that was read. Raises: RedalgError if another one would be lost."""
        if self._now is not before:
            raise checks.shared(where)
        self._now = after

    @property
    def _streamed(self) -> list[Decl]:
        """The tensors with the streamed axis, of which chunks are."""
        return [d for d in self.form.spec.tensors if d.name in self._layout.names]

    def _update_once(self, chunks: Mapping[str, Any]) -> None:
        """An update that prepares for no further one."""
        if self._now.nulls != "propagate":
            chunks = dict(null.without(self._layout, chunks, self._now.nulls, checks.UPDATE))
        now = self._now
        self._now = self._readable(self._advanced(now, checks.chunk(self._layout, now, chunks)))

    def _take(self, found: Bound, cuts: Sequence[int]) -> None:
        """An update by a chunk that fits, piece by piece: what pieces with accumulators of their own merge to."""
        self._now = self._readable(self._advanced(self._now, found, cuts))

    def _remember(self, now: Snapshot, kind: Hashable, found: Bound, arrays: Sequence[Any]) -> None:
        """Prepare for more chunks of this kind, of which there was one."""
        axis = self._layout.axis
        length = found.sizes[axis[0]]
        if not length or not self._layout.inner(found.sizes):
            return
        stretch = self._stretch(found.arrays, {**now.sizes, axis[0]: length}, 0)
        engine = self._engine(self._machine(now.dtypes))
        kinds = [dtype.kind for dtype in results.output_dtypes(self).values()]
        whole = length <= engine.block_length(stretch)
        held = replace(stretch, arrays={**given(self._bound.arrays), **now.exports})
        keys = tuple(given(dict.fromkeys(self._layout.names)))
        if len(self._feeds) >= KINDS:
            self._feeds.clear()
        real = engine.program.real
        short = whole and length <= SMALL and all(_is_vector(x, real) for x in arrays)
        small = Asked(engine, keys, length) if short else None
        self._feeds[kind] = Feed(
            now.sizes,
            now.dtypes,
            now.origin,
            now.number,
            tuple(self._layout.names),
            held,
            engine,
            whole,
            "i" in kinds,
            small,
            stretch.inner,
            any(x.dtype == np.int64 for x in arrays if isinstance(x, np.ndarray)),
        )

    def _advanced(self, now: Snapshot, found: Bound, cuts: Sequence[int] = ()) -> Snapshot:
        """What is held after a chunk, which is taken at once or in the pieces between `cuts`."""
        axis = self._layout.axis
        sizes = _same(now.sizes, {**now.sizes, **{a: n for a, n in found.sizes.items() if a != axis[0]}})
        length, inner = found.sizes[axis[0]], self._layout.inner(sizes)
        if not length or not inner:
            nothing = promote.joint(now.nothing, found.dtypes)
            return now.after(sizes=sizes, origin=now.origin or checks.origin_of(found), nothing=nothing)
        checks.some_integers(self, found)
        checks.aligned(now.span, inner)
        machine = self._machine(found.dtypes)
        stretch = self._stretch(found.arrays, sizes | {axis[0]: length}, now.span.stop // inner)
        after, engine = self._promoted(now, found.dtypes, checks.UPDATE), self._engine(machine)
        with np.errstate(all="ignore"):
            for low, high in pairwise(cuts or (0, length)):
                after = after.extended(engine, stretch.cut(axis[0], low, high))
        span = now.span.extended(length * inner)
        dtypes, origin = _same(now.dtypes, found.dtypes), _same(now.origin, checks.origin_of(found))
        noted = promote.beyond(now.beyond, found.arrays)
        return now.after(pieces=after, sizes=sizes, span=span, dtypes=dtypes, origin=origin, beyond=noted)

    def _promoted(self, now: Snapshot, dtypes: Mapping[str, Any], where: str) -> Pieces:
        """What a snapshot holds, for tensors of these dtypes."""
        if now.pieces.empty or now.dtypes is None or now.dtypes == dtypes:
            return now.pieces
        source, target = self._built(now.dtypes), self._built(dtypes)
        params = {**given(self._bound.arrays), **now.exports}
        return promote.Conversion(source, target, now.number, params, where).pieces(now.pieces)

    def _take_dtypes(self, dtypes: dict[str, Any], where: str) -> None:
        """Go on with tensors of these dtypes, promoted ones of those before."""
        now = self._now
        if now.dtypes is not None:
            self._now = now.after(pieces=self._promoted(now, dtypes, where), dtypes=dtypes)

    def merge(self, other: Accumulator) -> Self:
        """Take in another accumulator's elements, in place; `other` is left untouched (an unplaced one may be self).

        Returns: this accumulator.
        """
        if not isinstance(other, Accumulator):
            raise checks.no_accumulator(other)
        mine, theirs = self._now, other._now
        checks.mergeable(self, other)
        span = checks.joined_span(self._layout, mine, theirs)
        sizes, dtypes = _same(mine.sizes, {**theirs.sizes, **mine.sizes}), promote.joint(mine.dtypes, theirs.dtypes)
        pieces = mine.pieces
        if not theirs.pieces.empty:
            assert dtypes is not None
            engine = self._engine(self._machine(dtypes))
            one, two = (self._promoted(now, dtypes, checks.MERGE) for now in (mine, theirs))
            with np.errstate(all="ignore"):
                pieces = one.joined(engine, two, mine.span, theirs.span)
        origin, noted = mine.origin or theirs.origin, promote.farthest(mine.beyond, theirs.beyond)
        names, nothing = ids.joined(mine.ids, theirs.ids), promote.joint(mine.nothing, theirs.nothing)
        whole = mine.after(pieces=pieces, span=span, sizes=sizes, dtypes=dtypes, origin=origin, beyond=noted)
        self._put(mine, self._readable(whole.after(ids=names, nothing=nothing)), checks.MERGE)
        return self

    def __add__(self, other: object) -> Accumulator:
        """A new accumulator with the elements of both; unplaced ones mean this stream followed by the other.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return y = max[j](x[j])"))
        >>> parts = [form.accumulator() for _ in range(3)]
        >>> for part, chunk in zip(parts, ([1.0], [5.0, 2.0], [])):
        ...     part.update(x=chunk)
        >>> (parts[0] + parts[1]).result(), sum(parts).count, parts[0].count
        (array(5.), 3, 1)
        """
        return self.copy().merge(other) if isinstance(other, Accumulator) else NotImplemented

    def __radd__(self, other: object) -> Accumulator:
        """0 + a is a copy of a, so that `sum` adds accumulators."""
        return self.copy() if type(other) is int and other == 0 else NotImplemented

    def _readable(self, after: Snapshot) -> Snapshot:
        """The snapshot, if its integer results are in int64. Raises: RedalgError if not: nothing has changed then."""
        layout = self._layout
        if after.number == layout.passes - 1 and after.pieces.reach > layout.integers_held:
            if any(dtype.kind == "i" for dtype in results.output_dtypes(self, after).values()):
                twin = self.copy()
                twin._now = after.after(expected=None)
                twin.result()
        return after

    def copy(self) -> Accumulator:
        """An independent accumulator with the same state (states are never modified, so nothing is copied)."""
        return self._of(self.form, self._bound, self._now)

    __copy__ = copy

    @staticmethod
    def _of(form: Form, bound: Bound, now: Snapshot) -> Accumulator:
        """An accumulator that holds what another one held."""
        twin = object.__new__(Accumulator)
        twin.form, twin._bound, twin._now = form, bound, now
        twin._ready()
        return twin

    def next_pass(self, start: int | None = None, id: str | int | None = None) -> None:
        """Go on to the next pass of a plan: keep what it needs of this one, and start reading the stream again.

        `start` places the accumulator anew and `id` names it, so that copies can share the second reading.

        >>> import redalg as ra
        >>> deviation = ra.parse("u = mean[j](x[j]); return y = mean[j](abs(x[j] - u))")
        >>> acc = ra.derive_incremental(deviation, max_passes=2).accumulator()
        >>> acc.update(x=[1.0, 2.0, 6.0]); acc.next_pass(); acc.update(x=[1.0, 2.0, 6.0]); acc.result()
        array(2.)
        """
        now = self._now
        checks.may_go_on(self)
        with np.errstate(all="ignore"):
            exports = results.exports(self._machine(now.dtypes), results.read(self), self)
        placed = now.span.start if start is None and now.span.placed else checks.start(start)
        after = now.after(
            number=now.number + 1,
            exports={**now.exports, **exports},
            expected=now.expected or now.span.count,
            span=Span.at(placed),
            pieces=now.pieces.cleared(),
            ids=ids.named(id, "Accumulator.next_pass"),
        )
        self._put(now, after, "Accumulator.next_pass")

    # --- results -------------------------------------------------------------------------------------------------

    def result(self) -> Any:
        """The outputs for everything seen so far, as the design's results: one array, or a dict of them by name.

        Outputs that keep the axis are not among them: see `apply`.
        """
        checks.readable(self)
        with np.errstate(all="ignore"):
            return results.totals(self)

    def apply(self, /, *unnamed: Any, start: int | None = None, **chunks: Any) -> Any:
        """The outputs that keep the axis, for a chunk, from everything seen so far; `start` is the chunk's position.

        Where one tensor has the axis, its array may come without a name. Raises: RedalgError for several of them.

        >>> import redalg as ra
        >>> acc = ra.derive_incremental(ra.catalog["max_abs_scaling"]).accumulator()
        >>> acc.update(x=[[1.0, -4.0]]); acc.update(x=[[2.0]])
        >>> acc.apply(x=[[1.0, -4.0]])
        array([[ 0.25, -1.  ]])
        """
        checks.readable(self)
        if len(unnamed) == 1 and chunks and (unnamed[0] is None or isinstance(unnamed[0], Integral)):
            deprecated("acc.apply(start, …)", "start=")
            start = None if unnamed[0] is None else int(unnamed[0])
        elif unnamed:
            chunks = with_unnamed(self._streamed, unnamed, chunks, checks.APPLY)
        if self._now.nulls == "error":
            chunks = dict(null.without(self._layout, chunks, "error", checks.APPLY))
        found = checks.chunk(self._layout, self._now, chunks, checks.APPLY)
        with np.errstate(all="ignore"):
            return results.rows(self, found, checks.row_start(self, start))

    # --- as data -------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """What is held, bound tensors included, as bytes that `Form.from_bytes` reads on any machine.

        Versioned, little-endian, checksummed, without pickle; the digests of spec and form are in it.

        >>> import redalg as ra
        >>> form = ra.derive_incremental(ra.parse("return y = mean[j](x[j])"))
        >>> acc = form.accumulator()
        >>> acc.update(x=[1.0, 2.0])
        >>> blob = acc.to_bytes()
        >>> form.from_bytes(blob).result()
        array(1.5)
        """
        return _hooks.state_bytes(self)

    def state_dict(self) -> dict[str, Array]:
        """The same as a flat dict of arrays, for `np.savez` and `torch.save`; `Form.from_state_dict` reads it.

        All of it but the arrays is in the entry ``"redalg"``, a vector of bytes.

        >>> import redalg as ra
        >>> acc = ra.derive_incremental(ra.parse("return y = max[j](x[j])")).accumulator()
        >>> acc.update(x=[1.0, 7.0])
        >>> sorted(acc.state_dict())
        ['part/max_x', 'redalg']
        """
        return _hooks.state_dict(self)

    def to_arrow(self) -> Any:
        """The same as an Arrow record batch of one row (extra ``arrow``); `Form.from_arrow` reads it.

        Raises: RedalgError without pyarrow.

        >>> import redalg as ra
        >>> acc = ra.derive_incremental(ra.parse("return y = max[j](x[j])")).accumulator()
        >>> acc.to_arrow().num_rows                                              # doctest: +SKIP
        1
        """
        return _hooks.state_arrow(self)

    # --- what is held --------------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """Elements seen (in this pass)."""
        return self._now.span.count

    @property
    def start(self) -> int:
        """The first position covered (0 for an accumulator without a place)."""
        return self._now.span.start

    @property
    def stop(self) -> int:
        """One past the last position covered; the next chunk goes there."""
        return self._now.span.stop

    @property
    def covered(self) -> tuple[tuple[int, int], ...]:
        """The positions covered, as disjoint intervals [start, stop) in order."""
        return self._now.span.intervals

    @property
    def state(self) -> Mapping[str, Array]:
        """Slot and anchor parts by name, read-only; empty as long as nothing was seen."""
        state = self._state()
        if state is None:
            return MappingProxyType({})
        machine, p = self._machine(self._now.dtypes), self.form.plan.passes[self._now.number]
        if machine.exact:
            parts = as_planned(p, state.parts, state.n)
            return MappingProxyType({name: _read_only(parts[name][0, ...], parts[name].dtype) for name in stored(p)})
        dtypes = machine.program(self._now.number).dtypes
        return MappingProxyType({name: _read_only(state.parts[name][0, ...], dtypes[name]) for name in stored(p)})

    @property
    def nbytes(self) -> int:
        """Bytes of the state, compensations included; not those of the bound tensors."""
        return self._now.pieces.nbytes

    def __repr__(self) -> str:
        intervals = " ".join(f"[{a}, {b})" for a, b in self.covered) or "nothing"
        kind = "placed" if self._now.span.placed else "unplaced"
        policy = "" if self._now.nulls == "propagate" else f", nulls={self._now.nulls!r}"
        return f"<Accumulator {kind}, {self.count} elements, covering {intervals}, {self.nbytes} bytes{policy}>"

    # --- inside --------------------------------------------------------------------------------------------------

    def _state(self) -> State | None:
        pieces = self._now.pieces
        if pieces.empty:
            return None
        with np.errstate(all="ignore"):
            return pieces.total(self._engine(self._machine(self._now.dtypes)))

    def _machine(self, dtypes: Mapping[str, Any] | None) -> Machine:
        key = tuple((dtypes or {}).items())
        found = self._machines.get(key)
        if found is None:
            found = self._built(dtypes or {})
            self._machines = {key: found}
        return found

    def _built(self, dtypes: Mapping[str, Any]) -> Machine:
        found = {**self._bound.dtypes, **dtypes}
        real = results.real_dtype(self.form.spec, found)
        return built(self._layout.plan, self._layout.masked, found, real, self.form.spec.axes)

    def _engine(self, machine: Machine) -> Engine:
        key = (id(machine), self._now.number)
        found = self._engines.get(key)
        if found is None:
            known = {**given(self._bound.arrays), **self._now.exports}
            found = engine_of(machine, key[1], known)
            self._engines = {key: found}
        return found

    def _stretch(self, arrays: Mapping[str, Any], sizes: Mapping[str, int], start: int) -> Stretch:
        everything = {**given(self._bound.arrays), **self._now.exports, **given(arrays)}
        return Stretch(everything, self._axes, sizes, self._layout.axis, start)

    def __getstate__(self) -> dict[str, Any]:
        return {"form": self.form, "_bound": self._bound, "_now": self._now}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            setattr(self, name, value)
        self._ready()


def _is_vector(x: Any, real: np.dtype) -> bool:
    """Whether it is contiguous floats of this type along one axis."""
    return isinstance(x, np.ndarray) and x.ndim == 1 and x.dtype == real and x.flags.contiguous


def _in_own(found: Bound, names: Sequence[str], arrays: Sequence[Any]) -> bool:
    """Whether a chunk is taken in as it is given: its dtypes are those of the stream, and it is not read in windows."""
    pairs = [(n, x) for n, x in zip(names, arrays, strict=True) if isinstance(x, np.ndarray)]
    return all(found.dtypes[n] == x.dtype and np.shape(found.arrays[n]) == x.shape for n, x in pairs)


def _same(known: Any, found: Any) -> Any:
    """What is known already, if the new one equals it: feeds tell by identity that nothing has changed."""
    return known if known == found else found


def _read_only(x: Array, dtype: np.dtype) -> Array:
    with np.errstate(over="ignore"):
        view = x.astype(dtype) if x.dtype not in (dtype, object) else x.view()
    view.flags.writeable = False
    return view
