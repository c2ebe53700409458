"""Everything that changes in an accumulator, as one immutable value: replacing it is what makes calls atomic.

`Feed`: what the dtypes, shapes and strides of a chunk settle about the way from one to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.graph import masked
from redalg.graph.node import Decl, Node, walk
from redalg.graph.operators import Custom
from redalg.graph.plan import Plan, given, list_axes
from redalg.numeric.array_origin import NARROW_ONLY, Origin
from redalg.numeric.integers import LARGEST
from redalg.streaming.few import Asked
from redalg.streaming.lift import Engine, Stretch
from redalg.streaming.machine import pass_nodes, plan_nodes
from redalg.streaming.masked import Masked, with_masked
from redalg.streaming.pieces import Pieces, Single
from redalg.streaming.promote import beyond
from redalg.streaming.remember import Remember
from redalg.streaming.span import Span

if TYPE_CHECKING:
    from redalg.language.spec import Spec


@dataclass(frozen=True)
class Layout:
    """What never changes: the streamed axis, which tensors come in chunks, what the plan's bodies ask of a piece."""

    axis: tuple[str, ...]
    streamed: tuple[Decl, ...]
    fixed: tuple[Decl, ...]
    positional: bool  # a body reads `index` of the first streamed axis
    positional_rows: bool  # so does an output that keeps the axis
    commutative: bool
    keeps: tuple[str, ...]  # outputs that keep the axis
    passes: int
    new_axes: tuple[tuple[str, int], ...]  # lengths of the axes that top-k lists have
    plan: Plan  # the form's, with what empty= needs
    masked: Masked

    @staticmethod
    def of(spec: Spec, plan: Plan) -> Layout:
        """The layout of a form, made once."""
        return _LAYOUTS(plan, lambda: Layout._made(spec, plan))

    @staticmethod
    def _made(spec: Spec, plan: Plan) -> Layout:
        plan, masked = with_masked(spec, plan)
        first = plan.axis[0] if plan.axis else None
        streamed = tuple(d for d in spec.tensors if first in d.axes)
        fixed = tuple(d for d in spec.tensors if first not in d.axes)
        positional = _reads_index(first, pass_nodes(plan))
        positional_rows = _reads_index(first, [o.value for o in plan.outputs])
        ops = [s.op for p in plan.passes for s in p.slots]
        commutative = all(op.monoid.commutative for op in ops if isinstance(op, Custom))
        keeps = tuple(o.name for o in plan.outputs if o.keeps_axis)
        return Layout(
            plan.axis,
            streamed,
            fixed,
            positional,
            positional_rows,
            commutative,
            keeps,
            max(1, len(plan.passes)),
            new_axes(plan),
            plan,
            masked,
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensors that come in chunks."""
        return tuple(d.name for d in self.streamed)

    @cached_property
    def integers_held(self) -> float:
        """A bound on the integers of a state below which those of its results are in int64."""
        finals = [o.value for o in self.plan.outputs if not o.keeps_axis]
        if not finals:
            return inf
        return LARGEST if all(value.op == "state" for value in finals) else 1 << 8  # what is calculated with grows

    def inner(self, sizes: Mapping[str, int]) -> int:
        """Positions per index of the first streamed axis."""
        return prod(sizes[a] for a in self.axis[1:])


_LAYOUTS = Remember()


def _reads_index(axis: str | None, nodes: Iterable[Node]) -> bool:
    return any(n.op == "index" and n.attr == axis for n in walk(*nodes))


def new_axes(plan: Plan) -> tuple[tuple[str, int], ...]:
    """The axes top-k lists make, in slots and in inner reductions, with their lengths."""
    nodes = plan_nodes(plan)
    slots = [s for p in plan.passes for s in p.slots]
    return tuple(sorted((masked.new_axes(*nodes) | list_axes(slots, nodes)).items()))


@dataclass(frozen=True)
class Snapshot:
    span: Span
    sizes: dict[str, int]
    deterministic: bool = False
    pieces: Pieces = field(default_factory=Single)
    dtypes: dict[str, Any] | None = None  # of the tensors in chunks; None until an element was seen
    number: int = 0  # of the pass
    exports: dict[str, Any] = field(default_factory=dict)
    expected: int | None = None  # elements the first pass saw
    origin: Origin | None = None
    nulls: str = "propagate"  # what becomes of missing elements
    ids: frozenset[str] = frozenset()  # names of the parts that were merged
    beyond: Mapping[str, int] = field(default_factory=dict)  # tensor -> an integer element that no float64 holds
    nothing: dict[str, Any] | None = None  # the dtypes of chunks of length 0, which count while no element was seen

    def after(self, **changes: Any) -> Snapshot:
        """The same with other values; `dataclasses.replace` takes several times as long."""
        found = object.__new__(Snapshot)
        found.__dict__.update(self.__dict__, **changes)
        return found


SMALL = 256  # elements of a chunk that numbers are faster for than arrays
KINDS = 64  # kinds of chunks that an accumulator remembers


@dataclass(frozen=True, slots=True)
class Feed:
    """How to go on from a snapshot with the same `sizes`, `dtypes` and `origin`, as objects, in the same pass.

    `names`: of the arrays; `stretch`: of a chunk, whose arrays and start are the next one's; `whole`: a chunk
    is one block; `whole_numbers`: some result is an integer, which must not leave int64; `small`: of chunks of
    contiguous vectors of the state's floats, so short that numbers are faster than arrays; `inner`: positions per index
    of the first axis; `long`: some elements are integers of 64 bits.
    """

    sizes: Mapping[str, int]
    dtypes: Mapping[str, Any] | None
    origin: Origin | None
    number: int
    names: tuple[str, ...]
    stretch: Stretch
    engine: Engine
    whole: bool
    whole_numbers: bool
    small: Asked | None
    inner: int
    long: bool  # some elements are integers of 64 bits

    @property
    def length(self) -> int:
        """Positions of a chunk."""
        return self.stretch.length * self.inner

    def follows(self, now: Snapshot) -> bool:
        same = now.sizes is self.sizes and now.dtypes is self.dtypes and now.origin is self.origin
        return same and now.number == self.number

    def advanced(self, now: Snapshot, arrays: Sequence[Any]) -> Snapshot:
        """The snapshot after a chunk."""
        span = now.span
        noted = beyond(now.beyond, dict(zip(self.names, arrays, strict=True))) if self.long else now.beyond
        pieces: Pieces | None = None
        if self.small is not None and isinstance(now.pieces, Single) and (few := self.small()) is not None:
            pieces = few.extended(now.pieces, arrays, span.stop)
        if pieces is None:
            with np.errstate(all="ignore"):
                pieces = self._by_arrays(now, arrays)
        return now.after(span=span.extended(self.length), pieces=pieces, beyond=noted)

    def _by_arrays(self, now: Snapshot, arrays: Sequence[Any]) -> Pieces:
        held, stop = self.stretch, now.span.stop
        chunk = {**held.arrays, **given(dict(zip(self.names, arrays, strict=True)))}
        stretch = Stretch(chunk, held.axes, held.sizes, held.axis, stop // self.inner)
        if self.whole and isinstance(now.pieces, Single):
            return Single(self.engine.combine(now.pieces.state, self.engine.lift(stretch)))
        return now.pieces.extended(self.engine, stretch)


def may_be_fed(arrays: Sequence[Any]) -> bool:
    """Whether such arrays are what an accumulator reads, and nothing is left to look at: uint64 may leave int64."""
    dtypes = [x.dtype for x in arrays if isinstance(x, np.ndarray)]
    return not any(d == np.uint64 or d.names or d.name in NARROW_ONLY for d in dtypes)
