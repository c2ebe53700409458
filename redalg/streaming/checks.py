"""What an accumulator refuses, before anything is computed: every error has four parts."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.errors import RedalgError
from redalg.graph.node import Decl, walk
from redalg.graph.plan import Plan
from redalg.numeric.array_origin import Origin
from redalg.numeric.binding import Bound, bind_arrays, with_readings
from redalg.numeric.integer_bounds import infinite_extremum
from redalg.streaming import ids, promote
from redalg.streaming.snapshot import Layout, Snapshot
from redalg.streaming.span import Span
from redalg.text.nodes import short

if TYPE_CHECKING:
    from redalg.streaming.accumulator import Accumulator

CREATE, UPDATE, MERGE, APPLY = "form.accumulator", "Accumulator.update", "Accumulator.merge", "Accumulator.apply"


def without_axis(plan: Plan) -> str:
    """Why a plan streams along no axis."""
    if any(n.op == "reduce" for n in walk(*(o.value for o in plan.outputs))):
        return "its outputs read no tensor along the axes of their reductions"
    return "its outputs are maps without a reduction"


def bound(layout: Layout, arrays: Mapping[str, Any]) -> Bound:
    """The tensors without the axis, validated, as arrays of our own."""
    if not layout.axis:
        why = f"{without_axis(layout.plan)}, so there is no axis to stream"
        raise RedalgError("an accumulator for this form", CREATE, why, "run = form.compile(); run(...)")
    read = {d.array for d in layout.fixed}
    early = [d for d in layout.streamed if d.name in arrays and d.name not in read]
    if early:
        why = f"{early[0]} has the streamed axis {layout.axis[0]!r}"
        raise RedalgError(
            f"an array named {early[0].name!r}", CREATE, why, f"pass {early[0].name}= to update, in chunks"
        )
    found = bind_arrays(layout.fixed, arrays, where=CREATE)
    own = {name: np.array(x) if isinstance(x, np.ndarray) else x for name, x in found.arrays.items()}
    return Bound(own, found.sizes, found.dtypes, found.origin)


def origin_of(found: Bound) -> Origin | None:
    """Where the arrays of a call come from; None where only Python numbers were given."""
    return found.origin if any(isinstance(x, np.ndarray) for x in found.arrays.values()) else None


FARTHEST = 1 << 62  # no stream is long enough to leave int64 from there


def start(value: Any) -> int | None:
    if value is None:
        return None
    try:
        position = operator.index(value)
    except TypeError:
        position = -1
    if isinstance(value, bool | np.bool_) or position < 0:
        why = "a position is a whole number, 0 for the first element of the stream"
        raise RedalgError(f"start={value!r}", CREATE, why, "start=0, or leave it out")
    if position > FARTHEST:
        why = f"positions are int64, and a piece may begin at {FARTHEST} at the latest"
        raise RedalgError(f"start={value!r}", CREATE, why, "number the elements from a nearer one")
    return position


def chunk(layout: Layout, now: Snapshot, arrays: Mapping[str, Any], where: str = UPDATE) -> Bound:
    """A chunk that fits the spec, what was bound and what came before."""
    arrays = _shared(layout, arrays, now.sizes, where)
    for decl in layout.fixed:
        if decl.name in arrays:
            why = f"{decl} lacks the streamed axis {layout.axis[0]!r} and was bound when the accumulator was made"
            raise RedalgError(f"an array named {decl.name!r}", where, why, f"leave {decl.name!r} out")
    cut = layout.axis[:1]
    found = bind_arrays(layout.streamed, arrays, sizes=now.sizes, origin=now.origin, where=where, partial=cut)
    if layout.axis[0] not in found.sizes:
        raise RedalgError(
            "a chunk without arrays", where, f"no tensor has the axis {layout.axis[0]!r}", "use form.compile()"
        )
    if found.sizes[layout.axis[0]] and now.dtypes is not None and now.dtypes != found.dtypes:
        found = _promoted(now, found, where)
    if where == UPDATE and layout.positional and not now.span.placed:
        why = f"the form reads index({layout.axis[0]!r}), and this accumulator does not know its place in the stream"
        raise RedalgError("a chunk without a place", where, why, "form.accumulator(..., start=0)")
    return found


def _shared(layout: Layout, arrays: Mapping[str, Any], sizes: Mapping[str, int], where: str) -> Mapping[str, Any]:
    """The chunk of a tensor is also that of its other readings that have the axis in the same dimension."""
    _no_slices(layout, arrays, where)
    place: dict[str, tuple[int, Decl]] = {}
    for d in layout.streamed:
        at = d.place(layout.axis[0])
        first, other = place.setdefault(d.array or d.name, (at, d))
        if first != at and not (d.name in arrays and other.name in arrays):
            why = f"it is read as {other} and as {d}, and a chunk holds the elements of one of them"
            raise RedalgError(f"a chunk of {d.array or d.name}", where, why, "run = form.compile(); run(...)")
    return with_readings(layout.streamed, arrays, sizes, where, partial=layout.axis[:1])


def _no_slices(layout: Layout, arrays: Mapping[str, Any], where: str) -> None:
    """A chunk of windows is no chunk of the array that they overlap in."""
    for d in layout.streamed:
        given = arrays.get(d.array or d.name)
        crossed = [dim for dim in d.dimensions if len(dim.terms) > 1 and layout.axis[0] in {a for a, _, _ in dim.terms}]
        if crossed and given is not None and np.ndim(given) == d.rank:
            why = f"it is read at {crossed[0]}, and elements of several places of {layout.axis[0]!r} lie in one"
            fix = f"pass the windows, with the axes ({', '.join(d.axes)}), or run = form.compile(); run(...)"
            raise RedalgError(f"a chunk of {d.array or d.name}", where, why, fix)


def _promoted(now: Snapshot, found: Bound, where: str) -> Bound:
    """The chunk in the result type of its dtypes and of those before; refused where the state cannot follow."""
    assert now.dtypes is not None
    return promote.converted_chunk(found, _may_follow(now, found.dtypes, where), where)


def _may_follow(now: Snapshot, found: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The dtypes of both. Raises: RedalgError where the state has to stay in those that it has."""
    assert now.dtypes is not None
    after = promote.common(now.dtypes, found)
    if after != now.dtypes:
        _may_change(now, found, where)
        promote.check_held(now.dtypes, after, now.beyond, where)
    return after


def _may_change(now: Snapshot, found: Mapping[str, Any], where: str) -> None:
    assert now.dtypes is not None
    name = next(name for name in now.dtypes if now.dtypes[name] != found[name])
    why = f"earlier chunks had dtype {now.dtypes[name]}"
    if now.deterministic:
        why += ", and the bits of a deterministic result would depend on where the dtype changes"
    elif where == APPLY:
        why += ", and the results have been made of them"
    elif now.number:
        why += ", also those of the passes before"
    else:
        return
    fix = f"give {name} one dtype throughout the stream"
    raise RedalgError(f"{name} with dtype {found[name]}", where, why, fix)


def some_integers(a: Accumulator, found: Bound) -> None:
    """Raises: RedalgError for a chunk in which an extremum of no integers is calculated with; one of length 0 adds
    nothing."""
    dtypes, sizes = {**a._bound.dtypes, **found.dtypes}, {**found.sizes, a._layout.axis[0]: 1}
    node = infinite_extremum(a.form.spec.outputs.values(), sizes, dtypes)
    if node is None:
        return
    empty = next(axis for axis, n in sizes.items() if n == 0)
    raise RedalgError(
        f"a chunk with an axis {empty!r} of length 0",
        UPDATE,
        f"{short(node)} is an infinity there, which no integer of a state is",
        "pass the integers as floats, or compile the form, which leaves such a call to the definition",
    )


def aligned(span: Span, inner: int) -> None:
    if span.stop % max(inner, 1):
        why = f"a composite axis is fed whole rows of {inner} positions"
        raise RedalgError(f"a piece at position {span.stop}", UPDATE, why, f"start at a multiple of {inner}")


# --- merging ---------------------------------------------------------------------------------------------------------


def no_accumulator(other: Any) -> RedalgError:
    return RedalgError(f"a {type(other).__name__}", MERGE, "it is not an accumulator", "merge form.accumulator(...)")


def shared(where: str) -> RedalgError:
    why = "another thread is changing it, or has done so since this call began"
    fix = "one accumulator for each thread, merged at the end, or a lock around the calls"
    return RedalgError("an accumulator of several threads", where, why, fix)


def mergeable(a: Accumulator, b: Accumulator) -> None:
    """Same form, same bound tensors, same pass with the same exports, same kind of placement, sizes and dtypes."""
    if a.form is not b.form and (a.form.spec != b.form.spec or a.form.plan != b.form.plan):
        why = "it belongs to another form"
        raise RedalgError("this accumulator", MERGE, why, "make both with the accumulator method of one form")
    x, y = a._now, b._now
    if x.span.placed != y.span.placed:
        which = "placed" if y.span.placed else "not placed"
        why = f"it is {which}, and the other is{' not' if y.span.placed else ''}: their order is not known"
        raise RedalgError("this accumulator", MERGE, why, "give start= to both or to neither")
    if x.deterministic != y.deterministic:
        why = "one is deterministic and the other is not, so the result could not be"
        raise RedalgError("this accumulator", MERGE, why, "make both with the same deterministic=")
    if x.nulls != y.nulls:
        why = f"it has nulls={y.nulls!r} and the other nulls={x.nulls!r}: their elements are not the same"
        raise RedalgError("this accumulator", MERGE, why, "make both with the same nulls=")
    _same_ids(x, y)
    if x.number != y.number:
        why = f"it is in pass {y.number + 1}, and the other in pass {x.number + 1}"
        raise RedalgError("this accumulator", MERGE, why, "call next_pass on both at the same point")
    _same_arrays("the bound tensor", a._bound.arrays, b._bound.arrays, "bind the same arrays in both")
    fix = "merge before next_pass, and share the merged accumulator's copies for the next pass"
    _same_arrays("the first pass's value", x.exports, y.exports, fix)
    for axis, n in y.sizes.items():
        if x.sizes.get(axis, n) != n:
            why = f"axis {axis!r} has length {n} there and {x.sizes[axis]} here"
            raise RedalgError("this accumulator", MERGE, why, f"feed both arrays of one length along {axis!r}")
    if x.dtypes is not None and y.dtypes is not None:
        for now, other in ((x, y.dtypes), (y, x.dtypes)):
            _may_follow(now, other, MERGE)


def _same_ids(x: Snapshot, y: Snapshot) -> None:
    again = ids.shared(x.ids, y.ids)
    if again is not None:
        why = f"the part {again!r} is in both"
        raise RedalgError("this accumulator", MERGE, why, "merge each part once, and name parts differently")
    if bool(x.ids) != bool(y.ids) and not x.pieces.empty and not y.pieces.empty:
        why = f"{'it' if x.ids else 'the other'} has elements without a name, which could be counted twice"
        raise RedalgError("this accumulator", MERGE, why, "give id= to every part or to none")


def _same_arrays(what: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], fix: str) -> None:
    for name, x in mine.items():
        y = theirs[name]
        if x is y:
            continue
        p, q = np.asarray(x), np.asarray(y)
        if p.dtype != q.dtype or p.shape != q.shape or not np.all((p == q) & _signed_alike(p, q) | (p != p) & (q != q)):
            raise RedalgError("this accumulator", MERGE, f"{what} {name} differs between the two", fix)


def joined_span(layout: Layout, mine: Snapshot, theirs: Snapshot) -> Span:
    """The positions covered by both. Overlaps are refused, and so are gaps where the order of merging matters."""
    if not mine.span.placed:
        return mine.span.extended(theirs.span.count) if theirs.span.count else mine.span
    shared = mine.span.overlap(theirs.span)
    if shared is not None:
        why = f"both cover the positions [{shared[0]}, {shared[1]})"
        raise RedalgError("this accumulator", MERGE, why, "give every piece its own positions with start=")
    joined = mine.span.joined(theirs.span)
    if not layout.commutative and not mine.deterministic and len(joined.intervals) > 1:
        gap = f"[{joined.intervals[0][1]}, {joined.intervals[1][0]})"
        why = f"the monoid does not commute, and the positions {gap} between the pieces are missing"
        raise RedalgError("this accumulator", MERGE, why, "merge neighbours first")
    return joined


def _signed_alike(p: np.ndarray, q: np.ndarray) -> Any:
    """Whether zeros are of one sign: what is divided by them is not."""
    if p.dtype.kind not in "fc":
        return True
    return (np.signbit(p.real) == np.signbit(q.real)) & (np.signbit(p.imag) == np.signbit(q.imag))


# --- passes and results ----------------------------------------------------------------------------------------------


def may_go_on(a: Accumulator) -> None:
    last = a._layout.passes - 1
    if a._now.number >= last:
        why = f"the plan has {last + 1} pass{'es' if last else ''}, and this is the last"
        raise RedalgError("a further pass", "Accumulator.next_pass", why, "call result() or apply()")
    if a._now.pieces.empty:
        why = "this pass has not seen an element"
        raise RedalgError("the next pass of an empty stream", "Accumulator.next_pass", why, "update first")


def readable(a: Accumulator) -> None:
    now, last = a._now, a._layout.passes - 1
    if now.number < last and not now.pieces.empty:
        why = f"this is pass {now.number + 1} of {last + 1}"
        raise RedalgError(
            "the result of an unfinished plan", "Accumulator.result", why, "call next_pass() and feed the stream again"
        )
    if now.expected is not None and now.span.count != now.expected:
        why = f"the first pass saw {now.expected} elements, this one {now.span.count}"
        raise RedalgError("a result", "Accumulator.result", why, "feed every pass the same stream")


def row_start(a: Accumulator, given: Any) -> int:
    """Where a chunk to be mapped begins."""
    if given is None and a._layout.positional_rows:
        why = f"the form reads index({a._layout.axis[0]!r})"
        raise RedalgError("a chunk without a place", "Accumulator.apply", why, "apply(start=..., ...)")
    return start(given) or 0
