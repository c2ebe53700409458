"""A form over the ranks of a process group: each folds its part, the states are merged, every rank has the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from redalg.adapters.blocks import refuse_double_readings
from redalg.adapters.operands import own_tensors
from redalg.adapters.ranks.channel import WHERE, Channel, Part, agreed, array_digest, digest, guarded
from redalg.adapters.ranks.device import DeviceCollective, check
from redalg.adapters.ranks.links import GLOO, NCCL, NVLINK, Choice, Links
from redalg.adapters.ranks.pieces import cut, joined, starts_of, zigzag
from redalg.adapters.ranks.states import Reduction, Shape, gather, hindrance, merged
from redalg.errors import RedalgError
from redalg.form import Form
from redalg.graph.operators import Average, Extremum, Quantifier, Sum
from redalg.numeric.binding import by_output, with_readings
from redalg.numeric.windows import refuse_windows
from redalg.streaming import checks
from redalg.streaming.accumulator import Accumulator
from redalg.streaming.checks import without_axis
from redalg.streaming.machine import Machine
from redalg.streaming.pieces import Pieces, Single
from redalg.streaming.run import run_numpy
from redalg.streaming.snapshot import Layout
from redalg.streaming.span import Span
from redalg.streaming.state import State

WAYS = ("reduce", "gather")


class Collective:
    """``form.collective(group)(x=local_part)``: what ``form.compile()(x=whole)`` gives, of parts that ranks hold.

    The parts lie one after the other in the order of ranks, or at ``start=`` (positions along the axis, on all ranks or
    on none; gaps count as nothing). A list ``start=[a, b]`` cuts a part into pieces of equal length at these places.
    They may differ in length and be empty. Tensors without the streamed axis are the same on all ranks. Every rank gets
    the outputs without the axis for the whole, and the outputs that keep the axis for its own part. Dtypes are those of
    a run on the whole.

    Each pass of a plan is a fold of the local part and one merge of states, in one of two ways. *gather*: all-gather of
    the states, merged in the order of positions; any monoid, equal bits in every run. *reduce*: MAX of extrema and SUM
    of centres, each state carried to the anchors of all, SUM of the rest; where every slot is a sum or an extremum. A
    model of latency and bytes (`Links`) chooses the faster one; `way=` or ``deterministic=True`` (gather) decides.
    A reduction that is not finite, or leaves its dtype, is done again as a gather, by all ranks.

    Raises: RedalgError, on every rank, where ranks differ in form, dtypes, lengths of other axes or in the tensors
    without the axis, where one refuses its arguments, and where parts overlap. What torch.distributed raises (a rank
    that died, a time limit) is passed on.

    >>> merge = ra.derive_incremental(ra.catalog["variance"]).collective()                   # doctest: +SKIP
    >>> merge(x=rows_of_this_rank)                                                           # doctest: +SKIP
    """

    def __init__(self, form: Form, group: Any, way: str | None, deterministic: bool, links: Links | None) -> None:
        self.form = form
        self.layout = Layout.of(form.spec, form.plan)
        if not self.layout.axis:
            why = f"{without_axis(form.plan)}, so ranks have nothing to merge"
            raise RedalgError("a collective of this form", "form.collective", why, "form.compile() on every rank")
        refuse_double_readings(self.layout, "form.collective", "of which a rank has a part", "the whole")
        refuse_windows(form.spec.tensors, "form.collective")
        if way not in (None, *WAYS):
            raise RedalgError(f"way={way!r}", "form.collective", f"the ways are {', '.join(WAYS)}", 'way="gather"')
        if deterministic and way == "reduce":
            why = "the order of an all-reduce is not ours"
            raise RedalgError('way="reduce" with deterministic=True', "form.collective", why, "leave one of them out")
        self.way = "gather" if deterministic else way
        self.deterministic = deterministic
        self.channel = Channel(group)
        self._device_links = links or NVLINK
        self.links = links or (NCCL if "nccl" in self.channel.backend else GLOO)
        self._device: DeviceCollective | None = None
        self.choices: tuple[Choice, ...] = ()  # of the last call, one for every pass

    def __call__(self, /, *given: Any, start: int | Sequence[int] | None = None, **named: Any) -> Any:
        arrays = _arguments(self.form, given, named)
        if any(getattr(x, "is_cuda", False) for x in arrays.values()):
            return self._on_device(arrays, starts_of(start))
        call, error = guarded(lambda: _Call(self, given, named, start))
        parts = agreed(self.channel, None if error is not None else call.part)
        if error is not None:
            raise error
        found: Any = call.run(parts)
        return found

    def zigzag(self, length: int) -> list[tuple[int, int]]:
        """The positions [start, stop) of this rank's two pieces of so many, one from either end.

        Under a causal mask all ranks then have the same to do: ``start=[a for a, _ in made.zigzag(length)]``.
        """
        return zigzag(length, self.channel.rank, self.channel.ranks)

    def _on_device(self, arrays: Mapping[str, Any], start: tuple[int, ...] | None) -> Any:
        """By compiled kernels, on tensors of a GPU: states are joined there."""
        if self._device is None:
            self._device = DeviceCollective(self.form, self.channel, "cuda", self.way, self._device_links)
        check(self.form, arrays)
        found = self._device(start, **arrays)
        self.choices = self._device.choices
        return found

    def explain(self) -> str:
        """Which way each pass of the last call took, and why; before a call, what decides."""
        head = f"{len(self.form.plan.passes)} round(s) of {self.channel.ranks} ranks over {self.channel.backend}"
        if not self.choices:
            asked = f"always {self.way}" if self.way else f"the faster way by the model {self.links.name!r}"
            return f"{head}; {asked}; nothing was called yet"
        return "\n".join([head, *(f"pass {k}: {choice}" for k, choice in enumerate(self.choices, 1))])

    def __repr__(self) -> str:
        return f"<Collective of {', '.join(self.form.spec.outputs)} over {self.channel.ranks} ranks>"

    def choice(self, shape: Shape) -> Choice:
        """How states of this shape are merged. Raises: RedalgError where ``way="reduce"`` is asked for in vain."""
        why_not, ranks = hindrance(shape.program), self.channel.ranks
        seconds = {"gather": self.links.gather_seconds(shape.nbytes, ranks)}
        if why_not is not None:
            if self.way == "reduce":
                raise RedalgError('way="reduce"', "form.collective", why_not, 'way="gather"')
            return Choice("gather", why_not, ranks, shape.nbytes, None, seconds)
        sent = Reduction(shape).nbytes
        seconds["reduce"] = self.links.reduce_seconds(*sent, ranks)
        way, why = self.links.choose(*sent, shape.nbytes, ranks), f"the faster by the model {self.links.name!r}"
        if self.way is not None:
            way, why = self.way, "deterministic=True" if self.deterministic else "way= asks for it"
        return Choice(way, why, ranks, shape.nbytes, sent, seconds)


class _Call:
    """One call on one rank: its arguments validated, then pass after pass."""

    def __init__(self, collective: Collective, given: tuple[Any, ...], named: Mapping[str, Any], start: Any) -> None:
        self.collective, self.form, self.layout = collective, collective.form, collective.layout
        self.arrays = _arguments(self.form, given, named)
        arrays = with_readings(self.form.spec.tensors, self.arrays)
        chunks = {n: x for n, x in arrays.items() if n in self.layout.names}
        fixed = {n: x for n, x in arrays.items() if n not in self.layout.names}
        starts = starts_of(start)
        self.starts = starts or (0,)
        self.chunks = cut(self.form, chunks, len(self.starts))
        _check_pieces(self.layout, len(self.starts))
        self.acc = Accumulator(self.form, fixed, start=self.starts[0])
        self.found = checks.chunk(self.layout, self.acc._now, chunks, WHERE)
        length = self.found.sizes[self.layout.axis[0]] * self.layout.inner(self.found.sizes)
        self.part = Part(self._topics(starts), length, None if starts is None else starts[0])

    def _topics(self, starts: tuple[int, ...] | None) -> tuple[int, ...]:
        found, bound, first = self.found, self.acc._bound, self.layout.axis[0]
        sizes = sorted((axis, n) for axis, n in found.sizes.items() if axis != first)
        dtypes = {name: _word(dtype) for name, dtype in sorted({**bound.dtypes, **found.dtypes}.items())}
        values = sorted((name, array_digest(x)) for name, x in bound.arrays.items())
        c = self.collective
        options = (c.way, c.deterministic, c.links)
        return (_identity(self.form), digest(options), digest(dtypes), digest(sizes), digest(values), _word_of(starts))

    def run(self, parts: list[Part]) -> Any:
        """The results. Raises: RedalgError on all ranks alike, or this rank's own error after the others know of it."""
        places = _places(self.collective.channel, parts, self.starts)
        spans = _spans(self.layout, places)
        if not any(part.length for part in parts):
            return run_numpy(self.form, self.arrays)
        order = sorted(range(len(parts)), key=lambda r: (spans[r].start, parts[r].length, r))
        self.collective.choices = ()
        rank, total = self.collective.channel.rank, sum(part.length for part in parts)
        whole = Span.at(0)
        for r in order:
            whole = whole.joined(spans[r])
        begins = [begin for begin, _ in places[rank]]
        for number in range(self.layout.passes):
            folded, error = guarded(partial(self._fold, number, begins))
            self._merge(number, order, folded, error, whole._replace(placed=True), total)
        return self._results(begins)

    def _fold(self, number: int, begins: list[int]) -> list[Pieces]:
        """What each piece of the part comes to."""
        if number:
            self.acc.next_pass(start=begins[0])
        before, found = self.acc._now, []
        for begin, chunk in zip(begins, self.chunks, strict=True):
            self.acc._now = replace(before, span=Span.at(begin))
            self.acc.update(**chunk)
            found.append(self.acc._now.pieces)
        return found

    def _merge(
        self,
        number: int,
        order: list[int],
        folded: list[Pieces] | None,
        error: Exception | None,
        whole: Span,
        total: int,
    ) -> None:
        c, acc = self.collective, self.acc
        acc._now = replace(acc._now, dtypes=self.found.dtypes)
        machine: Machine = acc._machine(acc._now.dtypes)
        engine = acc._engine(machine)
        shape = Shape(machine.program(number), {**self.found.sizes, **acc._now.sizes})
        choice = c.choice(shape)
        with np.errstate(all="ignore"):
            own = [None if p.empty else p.total(engine) for p in folded or ()]
            mine = merged(engine, own, list(range(len(own))))
        state: State | None = None
        if choice.way == "reduce":
            state = Reduction(shape).run(c.channel, engine, mine, error, total)
            if state is None:
                choice = replace(choice, way="gather", why="the reduction was not finite, or not in the plan's dtypes")
        if choice.way == "gather":
            states = gather(c.channel, shape, mine, error)
            with np.errstate(all="ignore"):
                state = merged(engine, states, order)
        c.choices = (*c.choices, choice)
        acc._now = acc._readable(replace(acc._now, pieces=Single(state), span=whole))

    def _results(self, begins: list[int]) -> Any:
        outputs, names = self.layout.plan.outputs, list(self.form.spec.outputs)
        found: dict[str, Any] = {}
        if not all(o.keeps_axis for o in outputs):
            found |= by_output(names, self.acc.result())
        if any(o.keeps_axis for o in outputs):
            pieces = [by_output(names, self.acc.apply(start=a, **x)) for a, x in zip(begins, self.chunks, strict=True)]
            axes, axis = self.form.spec.output_axes, self.layout.axis[0]
            found |= {o: joined([p[o] for p in pieces], axes[o].index(axis)) for o in pieces[0]}
        return found[names[0]] if len(names) == 1 else {name: found[name] for name in names}


def _arguments(form: Form, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by name: one alone may be passed by place."""
    if not given:
        return dict(named)
    own = own_tensors(form.spec)
    if len(given) > 1 or len(own) > 1 or named:
        why = f"the spec reads {', '.join(map(str, own))}"
        raise RedalgError(f"{len(given)} arrays without a name", WHERE, why, "pass them by name")
    return {own[0].name: given[0]}


def _identity(form: Form) -> int:
    """A digest of the spec and of what the states of its plan are."""
    passes = [
        (
            [(a.name, a.policy, a.axes) for a in p.anchors],
            [(s.name, s.kind, s.average, s.axes) for s in p.slots],
            p.order,
        )
        for p in form.plan.passes
    ]
    return digest(form.spec.digest, form.plan.axis, passes)


def _word(dtype: Any) -> str:
    return dtype.__name__ if isinstance(dtype, type) else str(np.dtype(dtype))


def _word_of(starts: tuple[int, ...] | None) -> int:
    """How many pieces, or that nothing was said of places."""
    return 0 if starts is None else len(starts)


def _check_pieces(layout: Layout, count: int) -> None:
    """Raises: RedalgError for several pieces of what has to be merged in the order of positions."""
    kinds = {type(s.op) for p in layout.plan.passes for s in p.slots}
    if count > 1 and not kinds <= {Sum, Average, Extremum, Quantifier}:
        why = "its states are merged in the order of positions, and the pieces of ranks lie between one another"
        raise RedalgError("a part of several pieces", WHERE, why, "one start= on every rank")


def _places(channel: Channel, parts: list[Part], mine: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """Where the pieces of every rank begin, and their lengths."""
    count, at, found = len(mine), 0, []
    told = channel.gathered(np.array(mine, np.int64)) if count > 1 else []
    for r, part in enumerate(parts):
        begin = at if part.start is None else part.start
        at += part.length
        starts = [int(x) for x in told[r]] if told else [begin]
        found.append([(a, part.length // count) for a in starts])
    return found


def _spans(layout: Layout, places: list[list[tuple[int, int]]]) -> list[Span]:
    """Where each part lies. Raises: RedalgError for overlaps, and for gaps where the monoid does not commute."""
    spans = []
    for pieces in places:
        span = Span.at(pieces[0][0])
        for begin, length in pieces:
            span = span.joined(Span.at(begin).extended(length)) if length else span
        spans.append(span)
    inner = sorted(((a, a + n), r) for r, pieces in enumerate(places) for a, n in pieces if n)
    for (a, p), (b, q) in zip(inner, inner[1:], strict=False):
        if b[0] < a[1]:
            why = f"ranks {p} and {q} both cover the positions [{b[0]}, {min(a[1], b[1])})"
            raise RedalgError("parts that overlap", WHERE, why, "give every rank its own positions with start=")
        if b[0] > a[1] and not layout.commutative:
            why = f"the monoid does not commute, and no rank has the positions [{a[1]}, {b[0]})"
            raise RedalgError("parts with a gap", WHERE, why, "give the ranks parts that touch")
    return spans


def collective(
    form: Form, group: Any = None, *, way: str | None = None, deterministic: bool = False, links: Links | None = None
) -> Collective:
    """The form over the ranks of a group. Raises: RedalgError without PyTorch, a process group or an axis."""
    return Collective(form, group, way, deterministic, links)


__all__ = ["Choice", "Collective", "collective"]
