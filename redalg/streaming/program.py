"""What one pass of a plan becomes for given dtypes: tapes for lift, for every step of combine, and for its exports.

A lift is one tape: anchors are bound to the expressions that give them on the piece itself, so what several slots share
(the scores of attention) is computed once per block. Variants, all over the same plan::

    block    the streamed axes are reduced away; mean anchors start from `start:A` and move to the block's own mean
    single   one position only: a mean anchor is its element's generator, so its residual is exactly 0
    rows     the first streamed axis is kept as a batch of one-position pieces (the deterministic tree)
    first    where the anchors start: the generators at the block's first position
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from redalg.graph import (
    INF,
    NEG_INF,
    ONE,
    ZERO,
    Node,
    add,
    compare,
    div,
    extremum,
    fn,
    is_const,
    leaves,
    reduction,
    state,
    sub,
    substitute,
    where,
)
from redalg.plan import COUNT, Anchor, PassPlan, Slot
from redalg.streaming.build import Builder, monoid_combine
from redalg.streaming.lowering import Bound
from redalg.streaming.state import alias
from redalg.streaming.tape import Tape


@dataclass(frozen=True)
class MoveStep:
    """One term of a moved slot: root `coefficient` of the slot's tape (None: exactly 1) times `source` (None: n)."""

    coefficient: int | None
    less_one: int | None  # root of coefficient - 1, where that is known without cancellation
    source: Slot | None
    perm: tuple[int, ...]
    index: tuple[Any, ...]
    own: bool
    selects: bool  # the coefficient is 0 by a condition: it drops the source, infinities and NaN included


@dataclass(frozen=True)
class SlotStep:
    slot: Slot
    moves: tuple[MoveStep, ...]
    tape: Tape | None
    inexact: bool  # a compensated sum
    combine: Any = None  # of a user's monoid


@dataclass(frozen=True)
class AnchorStep:
    anchor: Anchor
    alias: str | None
    tape: Tape | None
    needs: tuple[SlotStep, ...]  # slots read by the shift of a mean anchor
    clamp: bool


class Program:
    """The compiled pass. `kinds` of tensors, parameters and exports are known; those of the state are found here."""

    def __init__(
        self,
        p: PassPlan,
        axis: tuple[str, ...],
        kinds: Mapping[str, str],
        real: np.dtype,
        layout: Sequence[str],
        numbers: frozenset[str],
    ) -> None:
        self.plan, self.axis, self.real, self.layout = p, axis, np.dtype(real), tuple(layout)
        self.numbers = numbers | {COUNT.attr.name}
        self.kinds = dict(kinds) | {COUNT.attr.name: "i"}
        self.anchors = {a.name: a for a in p.anchors}
        self.slots = {s.name: s for s in p.slots}
        self.aliases = {a.name: part for a in p.anchors if (part := alias(p, a.name))}
        self.arrays = (
            *(a.name for a in p.anchors if a.name not in self.aliases),
            *(part for s in p.slots if not s.vanishes for part in s.parts),
        )
        self.part_axes = (
            *(a.axes for a in p.anchors),
            *(s.leaf(i).attr.axes for s in p.slots for i in range(len(s.parts))),
        )
        self.means = tuple(a.name for a in p.anchors if a.policy == "mean")
        self.single, found = self._lift(single=True, rows=False)
        self.kinds |= dict(zip(self.arrays, found, strict=True))
        self.kinds |= {name: self.kinds[part] for name, part in self.aliases.items()}
        self.kinds |= {f"shift:{a.name}": self._shift_kind(a) for a in p.anchors}
        self.batched = (
            frozenset({*self.arrays, *self.aliases})
            | {part for s in p.slots for part in s.parts}
            | {f"shift:{a}" for a in self.anchors}
        )
        self.dtypes = {
            name: Builder((), {}, self.real).dtype(self.kinds[name]) for name in (*self.arrays, *self.aliases)
        }
        self.sums = tuple(
            s.parts[0] for s in p.slots if s.kind == "sum" and not s.vanishes and self.kinds[s.parts[0]] in "fc"
        )
        self.placed = tuple(s.parts[1] for s in p.slots if s.kind in ("argmax", "argmin", "topk"))

    def _shift_kind(self, anchor: Anchor) -> str:
        kind = self.kinds[anchor.name]
        return "f" if kind == "i" and anchor.kind == "mul" else kind

    def builder(self, bound: Mapping[str, Bound] | None = None, fixed: bool = False) -> Builder:
        batched = self.batched if bound is None else frozenset()
        return Builder(self.layout, self.kinds, self.real, bound, batched, self.numbers, fixed)

    # --- lift ----------------------------------------------------------------------------------------------------

    @cached_property
    def block(self) -> Tape:
        return self._lift(single=False, rows=False)[0] if self.means else self._lift(single=True, rows=False)[0]

    @cached_property
    def rows(self) -> Tape:
        return self._lift(single=len(self.axis) == 1, rows=True)[0]

    @cached_property
    def first(self) -> Tape:
        return self._starts(rows=False)

    @cached_property
    def first_rows(self) -> Tape:
        return self._starts(rows=True)

    def _lift(self, single: bool, rows: bool) -> tuple[Tape, list[str]]:
        bound, batch = self._bindings(single, rows), self.axis[:1] if rows else ()
        self.kinds |= {start_name(a): "f" for a in self.means}
        roots = [bound[name].node for name in self.arrays]
        orders = [(*batch, *bound[name].axes) for name in self.arrays]
        builder = self.builder(bound, fixed=rows)
        for name in self.means:  # anchors are inexact even where the elements are integers
            builder.memo[bound[name].node] = builder.inexact(builder.value(bound[name].node))
        return builder.tape(roots, orders)

    def _starts(self, rows: bool) -> Tape:
        bound, batch = self._bindings(True, rows), self.axis[:1] if rows else ()
        roots = [bound[name].node for name in self.means]
        orders = [(*batch, *self.anchors[name].axes) for name in self.means]
        return self.builder(bound, fixed=rows).tape(roots, orders, inexact=True)[0]

    def _bindings(self, single: bool, rows: bool) -> dict[str, Bound]:
        reduced = self.axis[1:] if rows else self.axis
        bound: dict[str, Bound] = {}
        for name in self.plan.order:
            if name in self.slots:
                bound |= part_nodes(self.slots[name], reduced)
            elif (anchor := self.anchors[name]).policy == "mean":
                node = (
                    own_value(anchor)
                    if single
                    else self._mean_value(anchor, bound, reduced, self.axis[:1] if rows else ())
                )
                bound[name] = Bound(anchor.axes, node)
            else:
                assert anchor.target is not None, f"anchor {name} has no target"
                bound[name] = Bound(anchor.axes, anchor.target)
        return bound

    def _mean_value(
        self, anchor: Anchor, bound: dict[str, Bound], reduced: tuple[str, ...], batch: tuple[str, ...]
    ) -> Node:
        """start + shift, with the shift's slots held at the start; the start itself where that is not finite."""
        assert anchor.shift is not None, f"anchor {anchor.name} has no shift"
        start = Bound(anchor.axes, state(start_name(anchor.name), (*batch, *anchor.axes)))
        needed = {leaf.attr.name for leaf in leaves(anchor.shift, "state")}
        held: dict[str, Bound] = {}
        for slot in self.slots.values():
            if needed & set(slot.parts):
                held |= {
                    n: Bound(b.axes, resolved(b.node, {anchor.name: start}))
                    for n, b in part_nodes(slot, reduced).items()
                }
        target = add(start.node, resolved(anchor.shift, held))
        if self.clamps(anchor):
            g, finite = anchor.generator, is_finite(anchor.generator)
            low = reduction("min", reduced, where(finite, g, INF))
            high = reduction("max", reduced, where(finite, g, NEG_INF))
            target = extremum("minimum", extremum("maximum", target, low), high)
        if anchor.follows:
            return target
        usable = is_finite(target)
        if anchor.kind == "mul":
            usable = Node("and", (usable, compare("ne", target, ZERO)))
        return where(usable, target, start.node)

    def clamps(self, anchor: Anchor) -> bool:
        """Whether an anchor is kept inside the data. A plain mean is there by itself; a weighted one need not be."""
        lean = any(s.vanishes and anchor.name in s.anchors for s in self.plan.slots)
        if lean or anchor.kind != "add" or self.kinds.get(anchor.name) == "c" or anchor.shift is None:
            return False
        centred = sub(anchor.generator, anchor.leaf)
        plain = [s.leaf() if s.average else div(s.leaf(), COUNT) for s in self.plan.slots if s.lift == (centred,)]
        return anchor.shift not in plain

    # --- combine -------------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[SlotStep | AnchorStep, ...]:
        made: list[SlotStep | AnchorStep] = []
        for name in self.plan.order:
            made.append(
                self._anchor_step(self.anchors[name]) if name in self.anchors else self._slot_step(self.slots[name])
            )
        return tuple(s for s in made if isinstance(s, AnchorStep) or not s.slot.vanishes)

    def _anchor_step(self, anchor: Anchor) -> AnchorStep:
        if anchor.policy != "mean":
            same = alias(self.plan, anchor.name)
            assert anchor.target is not None
            tape = None if same else self._tape([anchor.target], [anchor.axes])
            return AnchorStep(anchor, same, tape, (), False)
        assert anchor.shift is not None
        names = {leaf.attr.name for leaf in leaves(anchor.shift, "state")}
        needs = tuple(self._slot_step(s) for s in self.plan.slots if names & set(s.parts))
        for s in needs:
            self.kinds.setdefault(s.slot.parts[0], "f")  # a slot that vanishes and is not stored
        return AnchorStep(
            anchor, None, self._tape([anchor.shift], [anchor.axes], inexact=True), needs, self.clamps(anchor)
        )

    def _tape(self, roots: Sequence[Node], orders: Sequence[Sequence[str]], inexact: bool = False) -> Tape:
        for s in self.plan.slots:
            if s.vanishes:
                self.kinds.setdefault(s.parts[0], "f")
        return self.builder().tape(roots, orders, spread=False, inexact=inexact)[0]

    def _slot_step(self, slot: Slot) -> SlotStep:
        roots: list[Node] = []
        moves = []
        for move in sorted(slot.moves, key=lambda m: m.slot != slot.name):
            source = None if move.slot == COUNT.attr.name and move.slot not in self.slots else self.slots[move.slot]
            number = less_one = None
            if not is_const(move.coefficient, 1):
                number = len(roots)
                roots.append(move.coefficient)
            if source is slot and move.coefficient.op == "exp" and slot.kind == "sum":
                less_one = len(roots)
                roots.append(fn("expm1", move.coefficient.args[0]))
            perm, index = _alignment(source.axes if source else (), slot.axes)
            factors = move.coefficient.args if move.coefficient.op == "mul" else (move.coefficient,)
            selects = any(f.op == "where" and is_const(f.args[2], 0) for f in factors)
            moves.append(MoveStep(number, less_one, source, perm, index, source is slot, selects))
        tape = self._tape(roots, [slot.axes] * len(roots)) if roots else None
        inexact = slot.kind == "sum" and self.kinds.get(slot.parts[0], "f") in "fc"
        combine = None
        if slot.kind == "monoid":
            combine = monoid_combine(slot.extra, tuple(self.kinds[part] for part in slot.parts), self.real)[1]
        return SlotStep(slot, tuple(moves), tape, inexact, combine)


def _alignment(axes: Sequence[str], target: Sequence[str]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """How an array along `axes` (behind the batch) broadcasts along `target`."""
    order = sorted(range(len(axes)), key=lambda d: target.index(axes[d]))
    index = tuple(slice(None) if axis in axes else None for axis in target)
    return (0, *(d + 1 for d in order)), (slice(None), *index)


# --- nodes of a lift -------------------------------------------------------------------------------------------------


def start_name(anchor: str) -> str:
    return f"start:{anchor}"


def is_finite(node: Node) -> Node:
    return compare("lt", fn("abs", node), INF)


def own_value(anchor: Anchor) -> Node:
    """The anchor of a single element: its generator; 0 (or 1, where it divides) if that cannot be one."""
    g = anchor.generator
    if anchor.follows:
        return g
    usable, other = is_finite(g), ZERO
    if anchor.kind == "mul":
        usable, other = Node("and", (usable, compare("ne", g, ZERO))), ONE
    return where(usable, g, other)


def part_nodes(slot: Slot, reduced: tuple[str, ...]) -> dict[str, Bound]:
    """The parts of a slot as reductions of its lift over the piece."""
    kind, body, axes = slot.kind, slot.lift[0], slot.axes
    if kind in ("argmax", "argmin"):
        nodes = [reduction("max" if kind == "argmax" else "min", reduced, body), reduction(kind, reduced, body)]
    elif kind == "topk":
        nodes = [reduction(name, reduced, body, extra=slot.extra) for name in ("topk_values", "topk_indices")]
        axes = slot.leaf().attr.axes
    elif kind == "monoid":
        nodes = [reduction(kind, reduced, *slot.lift, extra=(slot.extra, i)) for i in range(len(slot.parts))]
    else:
        nodes = [reduction(kind, reduced, body, extra="ignore_nan" if slot.ignore_nan else None)]
        if slot.average:
            nodes = [div(nodes[0], COUNT)]
    return {part: Bound(axes, node) for part, node in zip(slot.parts, nodes, strict=True)}


def resolved(node: Node, values: Mapping[str, Bound]) -> Node:
    """Leaves replaced by name, keeping the order of evaluation."""
    mapping = {}
    for leaf in leaves(node, "state"):
        if leaf.attr.name in values:
            known = values[leaf.attr.name]
            assert leaf.attr.axes == known.axes, f"{leaf.attr} is read along other axes than {known.axes}"
            mapping[leaf] = known.node
    return substitute(node, mapping, raw=True) if mapping else node
