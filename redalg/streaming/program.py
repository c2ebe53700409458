"""What one pass of a plan becomes for given dtypes: tapes for lift, for every step of combine, and for its exports.

A lift is one tape: anchors are bound to the expressions that give them on the piece itself, so what several slots share
(the scores of attention) is computed once per block. Variants, all over the same plan::

    block    the streamed axes are reduced away; mean anchors start from `start:A` and move to the block's own mean
    single   one position only: a mean anchor is its element's generator, so its residual is exactly 0
    rows     the first streamed axis is kept as a batch of one-position pieces (the deterministic tree)
    first    where the anchors start: the generators at the block's first position
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from redalg.algebra.starts import counts, first_counts, weight
from redalg.graph.functions import FUNCTIONS
from redalg.graph.node import (
    FALSE,
    INF,
    NEG_INF,
    ZERO,
    Node,
    add,
    compare,
    div,
    extremum,
    fn,
    is_const,
    leaves,
    logical,
    reduction,
    state,
    sub,
    substitute,
    walk,
    where,
)
from redalg.graph.operators import Additive, Custom, Position, Product, TopK
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, Move, PassPlan, Slot, key
from redalg.numeric.dtypes import Flow, flows
from redalg.numeric.integer_bounds import decisive
from redalg.source.names import local
from redalg.streaming.merge import AnchorStep, ElementAnchor, MoveStep, SlotStep, combination
from redalg.streaming.state import alias
from redalg.streaming.tapes.build import Bound, Builder, monoid_combine
from redalg.streaming.tapes.tape import Tape

SHOWING = frozenset({"add", "mul", "where", "abs"})  # as large as one of their arguments, or larger
DTYPES = {"b": np.dtype(bool), "i": np.dtype(np.int64), "f": np.dtype(np.float64), "c": np.dtype(np.complex128)}
VANISHING = frozenset(f.name for f in FUNCTIONS.values() if "0" in (f.low, f.high) and not f.exact)


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
        suffix: str = "",
    ) -> None:
        self.suffix = suffix  # of the names of functions, where there are several passes
        self.plan, self.axis, self.real, self.layout = p, axis, np.dtype(real), tuple(layout)
        self.rounds = False  # whether a move or a target is inexact
        self.numbers = numbers | {COUNT.attr.name}
        self.given = {name: kind for name, kind in kinds.items() if name.startswith("given:")}
        self.kinds = dict(kinds) | {COUNT.attr.name: "i"}
        self.anchors = {a.name: a for a in p.anchors}
        self.slots = {s.name: s for s in p.slots}
        self.single, found = self._lift("lift_one" if self.means else "lift", single=True, rows=False)
        self.kinds |= dict(zip(self.arrays, found, strict=True))
        self.kinds |= {name: self.kinds[part] for name, part in self.aliases.items()}
        self.kinds |= {f"shift:{a.name}": self._shift_kind(a) for a in p.anchors}

    @cached_property
    def for_numbers(self) -> dict[Any, Any]:
        """Functions for numbers by kind of chunk: see `redalg.streaming.few`."""
        return {}

    # --- parts of the state ----------------------------------------------------------------------------------------

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Anchors that a part of a slot holds."""
        return {a: part for a in self.anchors if (part := alias(self.plan, a))}

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """What is stored."""
        parts = (part for s in self.plan.slots if not s.vanishes for part in s.parts)
        return (*(a for a in self.anchors if a not in self.aliases), *parts)

    @cached_property
    def part_axes(self) -> tuple[tuple[str, ...], ...]:
        parts = (s.leaf(i).attr.axes for s in self.plan.slots for i in range(len(s.parts)))
        return (*(a.axes for a in self.plan.anchors), *parts)

    @cached_property
    def means(self) -> tuple[str, ...]:
        return tuple(a.name for a in self.plan.means)

    @cached_property
    def drifting(self) -> tuple[str, ...]:
        """Means that follow the data, and are inexact even where the elements are integers."""
        return tuple(a.name for a in self.plan.means if not isinstance(a, ElementAnchor))

    @cached_property
    def whole(self) -> bool:
        """Whether integers alone are held and calculated with."""
        return bool(self.steps) and not self.rounds and all(self.kinds[name] in "bi" for name in self.arrays)

    @cached_property
    def batched(self) -> frozenset[str]:
        """Leaves that have a batch dimension in `combine`."""
        parts = {part for s in self.plan.slots for part in s.parts}
        return frozenset({*self.arrays, *self.aliases, *parts, *(f"shift:{a}" for a in self.anchors)})

    @cached_property
    def dtypes(self) -> dict[str, np.dtype]:
        builder = Builder((), {}, self.real)
        return {name: builder.dtype(self.kinds[name]) for name in (*self.arrays, *self.aliases)}

    @cached_property
    def sums(self) -> tuple[str, ...]:
        """Sums that are compensated."""
        held = (s.parts[0] for s in self.plan.slots if isinstance(s.op, Additive) and not s.vanishes)
        return tuple(part for part in held if self.kinds[part] in "fc")

    @cached_property
    def integers(self) -> bool:
        """Whether integers are read that can be too large for floats: for sums of these, for what they decide, or where
        an extremum of them is a float, as beside -oo."""
        return "i" in self.given.values() and bool(self.sums or self.means or self.decides or self.converts)

    @cached_property
    def converts(self) -> bool:
        """Whether integers are made floats."""
        found = self._flows
        return any(found[a].kind == "i" for n in found if found[n].kind in "fc" for a in n.args)

    @cached_property
    def decides(self) -> bool:
        """Whether integers are made floats that something is decided by."""
        return "i" in self.given.values() and bool(decisive(self._flows))

    @cached_property
    def _flows(self) -> Mapping[Node, Flow]:
        """The dtypes of what is lifted."""
        dtypes = {name.removeprefix("given:"): DTYPES[kind] for name, kind in self.given.items()}
        return flows(self._lifted, dtypes)

    @property
    def _lifted(self) -> list[Node]:
        return [*(n for s in self.plan.slots for n in s.lift), *(a.generator for a in self.plan.anchors)]

    @cached_property
    def reads(self) -> dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]]:
        """The axes of every sum, and the arrays it reads, by their keys and with their axes."""
        found = {}
        for slot in self.plan.slots:
            if slot.parts[0] in self.sums:
                nodes = [*slot.lift, *(self.anchors[a].generator for a in slot.anchors)]
                found[slot.parts[0]] = slot.axes, {key(n): n.attr.axes for n in walk(*nodes) if n.op == "tensor"}
        return found

    @cached_property
    def noted(self) -> tuple[str, ...]:
        """What floats do on the way that says that something is lost: of products alone, sums show it themselves.

        Exponentials vanish as they should, and so do powers by an array or a scalar; one that overflows hides which of
        several is the largest.
        """
        if any(map(_vanishes, walk(*self._lifted))):
            compared = [n for s in self.plan.slots if not isinstance(s.op, Additive) for n in s.lift]
            return ("over",) if any(map(_vanishes, walk(*compared))) else ()
        if self.hides or not set(self.products) <= set(self.sums):
            return ("over", "under")
        return ("under",) if self.products else ()

    @cached_property
    def products(self) -> tuple[str, ...]:
        """The parts that are made of products."""
        made = (s for s in self.plan.slots if isinstance(s.op, Product) or any(map(_is_product, walk(*s.lift))))
        return tuple(s.parts[0] for s in made)

    @cached_property
    def hides(self) -> bool:
        """Whether a part may be a number that a product on the way to it is not."""
        lifted = [n for s in self.plan.slots for n in s.lift]
        return not {*filter(_is_product, walk(*lifted))} <= {f for n in lifted for f in _shown(n)}

    @cached_property
    def degree(self) -> float:
        """How many numbers the largest product of a lift has for its factors."""
        return max((_degree(n) for s in self.plan.slots for n in s.lift), default=0.0)

    @cached_property
    def placed(self) -> tuple[str, ...]:
        """Positions."""
        return tuple(s.parts[1] for s in self.plan.slots if isinstance(s.op, Position | TopK))

    def _shift_kind(self, anchor: Anchor) -> str:
        kind = self.kinds[anchor.name]
        return "f" if kind == "i" and anchor.divides else kind

    def builder(self, bound: Mapping[str, Bound] | None = None, fixed: bool = False) -> Builder:
        batched = self.batched if bound is None else frozenset()
        return Builder(self.layout, self.kinds, self.real, bound, batched, self.numbers, fixed)

    # --- lift ----------------------------------------------------------------------------------------------------

    @cached_property
    def block(self) -> Tape:
        return self._lift("lift", single=False, rows=False)[0] if self.means else self.single

    @cached_property
    def rows(self) -> Tape:
        return self._lift("lift_rows", single=len(self.axis) == 1, rows=True)[0]

    @cached_property
    def first(self) -> Tape:
        return self._starts(rows=False)

    @cached_property
    def first_rows(self) -> Tape:
        return self._starts(rows=True)

    def _lift(self, name: str, single: bool, rows: bool) -> tuple[Tape, list[str]]:
        bound, batch = self._bindings(single, rows), self.axis[:1] if rows else ()
        self.kinds |= {start_name(a): "f" if a in self.drifting else "i" for a in self.means}
        roots = [bound[name].node for name in self.arrays]
        orders = [(*batch, *bound[name].axes) for name in self.arrays]
        builder = self.builder(bound, fixed=rows)
        for mean in self.drifting:
            builder.memo[bound[mean].node] = builder.inexact(builder.value(bound[mean].node))
        return builder.tape(name + self.suffix, roots, orders, self.arrays)

    def _starts(self, rows: bool) -> Tape:
        bound, batch = self._bindings(True, rows), self.axis[:1] if rows else ()
        zero = {a.name for a in self.plan.means if first_counts(self.plan, a) is FALSE}
        roots = [ZERO if name in zero else bound[name].node for name in self.means]
        orders = [(*batch, *self.anchors[name].axes) for name in self.means]
        builder, name = self.builder(bound, fixed=rows), "start_rows" if rows else "start"
        return builder.tape(name + self.suffix, roots, orders, self.means, inexact=bool(self.drifting))[0]

    def _bindings(self, single: bool, rows: bool) -> dict[str, Bound]:
        reduced = self.axis[1:] if rows else self.axis
        bound: dict[str, Bound] = {}
        for name in self.plan.order:
            if name in self.slots:
                bound |= part_nodes(self.slots[name], reduced)
            elif isinstance(anchor := self.anchors[name], ElementAnchor):
                start = state(start_name(name), (*(self.axis[:1] if rows else ()), *anchor.axes))
                bound[name] = Bound(anchor.axes, anchor.generator if single else start)
            elif isinstance(anchor, MeanAnchor):
                node = (
                    self._own_value(anchor)
                    if single
                    else self._mean_value(anchor, reduced, self.axis[:1] if rows else ())
                )
                bound[name] = Bound(anchor.axes, node)
            else:
                bound[name] = Bound(anchor.axes, anchor.target)
        return bound

    def _own_value(self, anchor: MeanAnchor) -> Node:
        """The anchor of a single element: its generator; 0 if that is not finite or has no weight."""
        g = anchor.generator
        return g if anchor.follows else where(logical("and", is_finite(g), counts(self.plan, anchor)), g, ZERO)

    def _mean_value(self, anchor: MeanAnchor, reduced: tuple[str, ...], batch: tuple[str, ...]) -> Node:
        """start + shift, with the shift's slots held at the start; the start itself where that is not finite."""
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
        return where(is_finite(target), target, start.node)

    def clamps(self, anchor: MeanAnchor) -> bool:
        """Whether an anchor is kept inside the data. A plain mean is there by itself; a weighted one need not be."""
        lean = any(s.vanishes and anchor.name in s.anchors for s in self.plan.slots)
        if lean or self.kinds.get(anchor.name) == "c":
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

    @cached_property
    def combine(self) -> Tape:
        """Two states as one: called with them, whether it raises `Overflow`, and parameters."""
        held = (*self.arrays, *self.aliases)
        return combination(f"combine{self.suffix}", self.steps, self.anchors, held, self.sums, self.real)

    def _anchor_step(self, anchor: Anchor) -> AnchorStep:
        if isinstance(anchor, ElementAnchor):
            return AnchorStep(anchor, None, None, (), False)
        if not isinstance(anchor, MeanAnchor):
            same = alias(self.plan, anchor.name)
            tape = None if same else self._tape(f"target_{local(anchor.name)}", [anchor.target], [anchor.axes])
            return AnchorStep(anchor, same, tape, (), False)
        names = {leaf.attr.name for leaf in leaves(anchor.shift, "state")}
        needs = tuple(self._slot_step(s) for s in self.plan.slots if names & set(s.parts))
        moving = weight(self.plan, anchor) if first_counts(self.plan, anchor) is FALSE else None
        for s in needs:
            self.kinds.setdefault(s.slot.parts[0], "f")  # a slot that vanishes and is not stored
        return AnchorStep(
            anchor,
            None,
            self._tape(f"shift_{local(anchor.name)}", [anchor.shift], [anchor.axes], inexact=True),
            needs,
            self.clamps(anchor),
            next((s for s in needs if s.slot is moving), None),
        )

    def _tape(self, name: str, roots: Sequence[Node], orders: Sequence[Sequence[str]], inexact: bool = False) -> Tape:
        for s in self.plan.slots:
            if s.vanishes:
                self.kinds.setdefault(s.parts[0], "f")
        names = [f"root{k}" for k in range(len(roots))]
        tape, kinds = self.builder().tape(name + self.suffix, roots, orders, names, spread=False, inexact=inexact)
        self.rounds |= any(kind in "fc" for kind in kinds)
        return tape

    def _slot_step(self, slot: Slot) -> SlotStep:
        roots: list[Node] = []
        moves = [self._move_step(m, slot, roots) for m in sorted(slot.moves, key=lambda m: m.slot != slot.name)]
        tape = self._tape(f"moves_{local(slot.name)}", roots, [slot.axes] * len(roots)) if roots else None
        inexact = isinstance(slot.op, Additive) and self.kinds.get(slot.parts[0], "f") in "fc"
        combine = None
        if isinstance(slot.op, Custom):
            combine = monoid_combine(slot.op.monoid, tuple(self.kinds[part] for part in slot.parts), self.real)[1]
        return SlotStep(slot, tuple(moves), tape, len(roots), inexact, combine)

    def _move_step(self, move: Move, slot: Slot, roots: list[Node]) -> MoveStep:
        """One term of a moved slot; what its coefficient is computed from is added to the roots of the slot's tape."""
        source = None if move.slot == COUNT.attr.name and move.slot not in self.slots else self.slots[move.slot]
        number = less_one = None
        if not is_const(move.coefficient, 1):
            number = len(roots)
            roots.append(move.coefficient)
        if source is slot and move.coefficient.op == "exp" and isinstance(slot.op, Additive):
            less_one = len(roots)
            roots.append(fn("expm1", move.coefficient.args[0]))
        selects = any(f.op == "where" and is_const(f.args[2], 0) for f in _factors(move.coefficient))
        return MoveStep(number, less_one, source, source is slot, selects)


def _factors(node: Node) -> Iterator[Node]:
    """The factors of a product, also of one whose factors are products."""
    if node.op != "mul":
        yield node
    else:
        for factor in node.args:
            yield from _factors(factor)


# --- nodes of a lift -------------------------------------------------------------------------------------------------


def start_name(anchor: str) -> str:
    return f"start:{anchor}"


def is_finite(node: Node) -> Node:
    return compare("lt", fn("abs", node), INF)


def part_nodes(slot: Slot, reduced: tuple[str, ...]) -> dict[str, Bound]:
    """The parts of a slot as reductions of its lift over the piece."""
    nodes, axes = slot.reduced(reduced), slot.leaf().attr.axes
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


def _vanishes(n: Node) -> bool:
    return n.op in VANISHING or n.op == "pow" and n.args[1].op != "const"


def _is_product(node: Node) -> bool:
    return node.op == "pow" or node.op == "mul" and sum(n.op != "const" for n in node.args) > 1


def _shown(node: Node) -> Iterator[Node]:
    """What a value shows of the values that it is made of."""
    yield node
    for n in node.args if node.op in SHOWING else ():
        yield from _shown(n)


def _degree(node: Node) -> float:
    inner = [_degree(n) for n in node.args]
    if node.op == "mul":
        return sum(inner)
    if node.op == "pow" and node.args[1].op == "const":
        return inner[0] * abs(float(node.args[1].attr))
    return max(inner, default=float(node.op in ("tensor", "state")))
