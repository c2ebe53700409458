"""What adapters of engines share: pure functions of blocks and states, and where the whole may be cut.

A state travels without its form and its bound tensors: `total` and `part` are what an accumulator has beside them
(`redalg.streaming.snapshot.Snapshot`), and a template, an empty accumulator, goes to each worker once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.node import walk
from redalg.numeric.binding import Bound, bind, by_output
from redalg.streaming import Accumulator, ids
from redalg.streaming.snapshot import Layout, Snapshot
from redalg.streaming.span import Span

Chunks = Sequence[Any]


def free_axes(form: Form) -> tuple[str, ...]:
    """Axes along which results are independent: reduced nowhere, and neither counted nor numbered."""
    held: set[str] = set(form.plan.axis)
    for n in walk(*form.spec.outputs.values()):
        if n.op in ("index", "size"):
            held.add(n.attr)
        elif n.op == "reduce":
            held |= set(n.attr.axes)
    return tuple(dict.fromkeys(a for d in form.spec.tensors for a in d.axes if a not in held))


def refuse_double_readings(
    layout: Layout, where: str, cut: str = "which comes in blocks", whole: str = "the whole in one task"
) -> None:
    """Raises: RedalgError for a tensor that is both cut along the streamed axis and read as a whole."""
    parts = {d.array or d.name: d for d in layout.streamed}
    for d in layout.fixed:
        other = parts.get(d.array or d.name)
        if other is not None:
            why = f"it is read as {other}, {cut}, and as {d}, which would be {whole}"
            fix = "give the two readings tensors of their own"
            raise RedalgError(f"the tensor {d.array or d.name}", where, why, fix)


def described(form: Form, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, Any], where: str) -> Bound:
    """Lengths and dtypes, validated on stand-ins of no size; numbers of Python are given as dtypes of themselves."""
    stands = {
        name: np.broadcast_to(np.zeros((), dtype), shapes[name]) if isinstance(dtype, np.dtype) else dtype
        for name, dtype in dtypes.items()
    }
    return bind(form.spec, stands, where=where)


# --- states ----------------------------------------------------------------------------------------------------------


def template(
    form: Form, options: Mapping[str, Any], dtypes: Mapping[str, Any] | None, names: Sequence[str], arrays: Chunks
) -> Accumulator:
    """An empty accumulator with the tensors all parts share; `dtypes` of the others are those of an empty whole."""
    empty = form.accumulator(**options, **dict(zip(names, arrays, strict=True)))
    return _holding(empty, replace(empty._now, dtypes=None if dtypes is None else dict(dtypes)))


def part(empty: Accumulator, start: int | None, number: int, names: Sequence[str], chunks: Chunks) -> Snapshot:
    """The state of one block: placed at `start`, or named by its number."""
    now = empty._now
    own = ids.named(number, "a block") if start is None else frozenset()
    acc = _holding(empty, replace(now, span=Span.at(start), ids=own))
    acc._update_once(dict(zip(names, chunks, strict=True)))
    return acc._now


def merged(empty: Accumulator, parts: Sequence[Snapshot]) -> Snapshot:
    """Neighbours in order."""
    acc = _holding(empty, parts[0])
    for other in parts[1:]:
        acc.merge(_holding(empty, other))
    return acc._now


def total(empty: Accumulator, state: Snapshot, blocks: int, length: float) -> Accumulator:
    """The accumulator of the whole. Raises: RedalgError unless every block is in it, once."""
    if state.span.placed:
        there = state.span.intervals == (((0, int(length)),) if length else ())
    else:
        wanted = "0" if blocks == 1 else f"0..{blocks - 1}"
        there = state.ids == {wanted} and (math.isnan(length) or state.nulls == "skip" or state.span.count == length)
    if not there:
        covered = state.span.intervals if state.span.placed else sorted(state.ids)
        why = f"it has {covered} of {blocks} blocks and {length} positions"
        raise RedalgError("a state that is not that of the whole", "the engine", why, "compute it again")
    return _holding(empty, state)


def next_pass(acc: Accumulator, placed: bool) -> Accumulator:
    """The template of the pass that follows; the same where nothing was seen."""
    if acc._now.pieces.empty:
        return _holding(acc, replace(acc._now, span=Span.at(0 if placed else None), ids=frozenset()))
    twin = acc.copy()
    twin.next_pass(start=0 if placed else None)
    return twin


def results(acc: Accumulator) -> dict[str, Any]:
    """The outputs without the axis, by name."""
    return by_output(acc.form.spec.outputs, acc.result())


def rows(acc: Accumulator, start: int | None, names: Sequence[str], chunks: Chunks) -> dict[str, Any]:
    """The outputs that keep the axis, of one block."""
    return by_output(acc.form.spec.outputs, acc.apply(start=start, **dict(zip(names, chunks, strict=True))))


def whole(form: Form, names: Sequence[str], arrays: Chunks) -> dict[str, Any]:
    """A form without a streamed axis, on one block."""
    found = form.compile("numpy")(**dict(zip(names, arrays, strict=True)))
    return by_output(form.spec.outputs, found)


def _holding(like: Accumulator, state: Snapshot) -> Accumulator:
    return Accumulator._of(like.form, like._bound, state)
