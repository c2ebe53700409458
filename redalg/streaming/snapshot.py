"""Everything that changes in an accumulator, as one immutable value: replacing it is what makes calls atomic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from redalg.binding_origin import Origin
from redalg.graph import Decl, Node, walk
from redalg.plan import Plan
from redalg.streaming.machine import pass_nodes, plan_nodes
from redalg.streaming.pieces import Pieces, Single
from redalg.streaming.remember import Remember
from redalg.streaming.span import Span
from redalg.streaming.voids import Voids, with_voids

if TYPE_CHECKING:
    from redalg.spec import Spec


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
    voids: Voids

    @staticmethod
    def of(spec: Spec, plan: Plan) -> Layout:
        """The layout of a form, made once."""
        return _LAYOUTS(plan, lambda: Layout._made(spec, plan))

    @staticmethod
    def _made(spec: Spec, plan: Plan) -> Layout:
        plan, voids = with_voids(spec, plan)
        first = plan.axis[0] if plan.axis else None
        streamed = tuple(d for d in spec.tensors if first in d.axes)
        fixed = tuple(d for d in spec.tensors if first not in d.axes)
        positional = _reads_index(first, pass_nodes(plan))
        positional_rows = _reads_index(first, [o.value for o in plan.outputs])
        monoids = [s.extra for p in plan.passes for s in p.slots if s.kind == "monoid"]
        commutative = all(m.commutative for m in monoids)  # type: ignore[attr-defined]
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
            voids,
        )

    def inner(self, sizes: Mapping[str, int]) -> int:
        """Positions per index of the first streamed axis."""
        return prod(sizes[a] for a in self.axis[1:])


_LAYOUTS = Remember()


def _reads_index(axis: str | None, nodes: Iterable[Node]) -> bool:
    return any(n.op == "index" and n.attr == axis for n in walk(*nodes))


def new_axes(plan: Plan) -> tuple[tuple[str, int], ...]:
    """The axes top-k lists make, in slots and in inner reductions, with their lengths."""
    nodes = walk(*plan_nodes(plan))
    extras = [n.attr.extra for n in nodes if n.op == "reduce" and n.attr.kind.startswith("topk")]
    extras += [s.extra for p in plan.passes for s in p.slots if s.kind == "topk"]
    return tuple(sorted({axis: k for k, axis in extras}.items()))


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


def array_kind(dtype: Any) -> str:
    """b, i, f or c for a dtype or the type of a Python number."""
    if isinstance(dtype, type):
        return {bool: "b", int: "i", complex: "c"}.get(dtype, "f")
    return {"b": "b", "i": "i", "u": "i", "c": "c"}.get(np.dtype(dtype).kind, "f")
