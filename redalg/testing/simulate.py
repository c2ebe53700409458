"""Run a plan on pieces of a stream in any arithmetic: the laws of `redalg.graph.plan`, executed one scalar at a time.

    lift(piece)      anchors chosen from the piece, then u = ⊕_j slot.lift[j]
    combine(a, b)    anchors chosen from both, then u = move(u_a) ⊕ move(u_b)
    finalize(state)  the outputs

It is the second implementation of those laws, written from their statement: tests compare the accumulator with it in
rational arithmetic, and the error bounds are its run in ball arithmetic. An anchor is whatever number it is: its ball
has radius 0, because the laws hold for every anchor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from redalg.graph.node import Node, leaves
from redalg.graph.operators import (
    Additive,
    Average,
    Custom,
    Extremum,
    NumberExtremum,
    Position,
    Product,
    Quantifier,
    Sum,
    TopK,
)
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, Move, PassPlan, Plan, Slot, UnitAnchor
from redalg.testing.arithmetic import Arithmetic
from redalg.testing.evaluator import Evaluator

Values = dict[tuple[int, ...], Any]
Parts = dict[str, Values]


@dataclass(frozen=True)
class State:
    """A state of one pass: elements seen, and every anchor and slot part by name."""

    count: int
    parts: Parts


@dataclass(frozen=True)
class Machine:
    """One pass of a plan, ready to run: `env` holds the tensors (and what earlier passes exported)."""

    plan: Plan
    number: int
    arithmetic: Arithmetic
    env: Mapping[str, Any]
    sizes: Mapping[str, int]

    @property
    def stage(self) -> PassPlan:
        return self.plan.passes[self.number]

    # --- lift -------------------------------------------------------------------------------------------------

    def lift(self, start: int, stop: int) -> State:
        """The state of positions [start, stop) of the (first) streamed axis."""
        if start == stop:
            return State(0, {})
        count = self._count(start, stop)
        parts: Parts = {}
        for name in self.stage.order:
            anchor = self._anchor(name)
            if anchor is None:
                self._lift_slot(self._slot(name), parts, start, stop)
            elif isinstance(anchor, MeanAnchor):
                parts[name] = self._mean_anchor(anchor, parts, start, stop)
            else:
                parts[name] = self._exactly(self._evaluate(anchor.target, anchor.axes, parts, count))
        return self._stored(count, parts)

    def _count(self, start: int, stop: int) -> int:
        return (stop - start) * math.prod(self.sizes[a] for a in self.plan.axis[1:])

    def _lift_slot(self, slot: Slot, parts: Parts, start: int, stop: int) -> None:
        axis = self.plan.axis
        inner = Evaluator(self.arithmetic, {**self.env, **parts}, self.sizes, {axis[0]: range(start, stop)})
        places = [tuple(p[a] for a in axis) for p in inner.points(axis)]
        for point in inner.points(slot.axes):
            rows = [[inner.value(e, {**point, **dict(zip(axis, p, strict=True))}) for e in slot.lift] for p in places]
            values = self._reduce(slot, rows, start, inner)
            for part, value in zip(slot.parts, values, strict=True):
                _store(slot, part, point, value, parts)

    def _reduce(self, slot: Slot, rows: list[list[Any]], start: int, inner: Evaluator) -> list[Any]:
        values = [row[0] for row in rows]
        if isinstance(slot.op, Position | TopK):
            order = inner.ranking(values, slot.op.kind != "argmin")
            offset = start * math.prod(self.sizes[a] for a in self.plan.axis[1:])
            ranked = [(values[i], self.arithmetic.number(i + offset)) for i in order]
            return self._keep(slot.op, ranked)
        if isinstance(slot.op, Custom):
            return list(inner.fold_monoid(slot.op.monoid, [tuple(row) for row in rows]))
        if isinstance(slot.op, NumberExtremum):
            values = [v for v in values if not math.isnan(self.arithmetic.middle(v))]
        total = inner.fold(slot.kind, values)
        return [self.arithmetic.mul([total, self._inverse(len(rows))]) if slot.average else total]

    def _keep(self, op: Position | TopK, ranked: list[tuple[Any, Any]]) -> list[Any]:
        if isinstance(op, Position):
            return [ranked[0][0], ranked[0][1]]
        k = op.k
        void = (self.arithmetic.number(-math.inf), self.arithmetic.number(-1))
        ranked = (ranked + [void] * k)[:k]
        return [[v for v, _ in ranked], [i for _, i in ranked]]

    def _inverse(self, n: int) -> Any:
        return self.arithmetic.power(self.arithmetic.number(n), self.arithmetic.number(-1))

    def _mean_anchor(self, anchor: MeanAnchor, parts: Parts, start: int, stop: int) -> Values:
        """A0 = the generator at the first position; A = A0 + shift, where the shift is measured at A0."""
        first = dict.fromkeys(self.plan.axis, 0) | {self.plan.axis[0]: start}
        inner = Evaluator(self.arithmetic, {**self.env, **parts}, self.sizes)
        begin = {
            tuple(p[a] for a in anchor.axes): self._finite(inner.value(anchor.generator, {**p, **first}))
            for p in inner.points(anchor.axes)
        }
        trial = {**parts, anchor.name: self._exactly(begin)}
        for slot in self._slots_of(anchor.shift):
            self._lift_slot(slot, trial, start, stop)
        return self._advance(anchor, trial[anchor.name], trial, self._count(start, stop))

    def _advance(self, anchor: MeanAnchor, at: Values, parts: Parts, count: int) -> Values:
        moved = self._evaluate(anchor.shift, anchor.axes, parts, count)
        new = {p: self.arithmetic.add([at[p], moved[p]]) for p in at}
        return self._exactly({p: v if self._usable(v) else at[p] for p, v in new.items()})

    # --- combine ----------------------------------------------------------------------------------------------

    def combine(self, a: State, b: State) -> State:
        """`a` followed by `b`. An empty state changes nothing."""
        if not a.count or not b.count:
            return a if a.count else b
        parts: Parts = {}
        n = a.count + b.count
        for name in self.stage.order:
            anchor = self._anchor(name)
            if anchor is None:
                self._combine_slot(self._slot(name), a, b, parts)
            elif isinstance(anchor, MeanAnchor):
                parts[name] = self._mean_merge(anchor, a, b, parts)
            else:
                parts[name] = self._exactly(self._evaluate(anchor.target, anchor.axes, parts, n))
        return self._stored(n, parts)

    def _stored(self, count: int, parts: Parts) -> State:
        """A lean form does not keep a slot that vanishes at its anchor: over the reals it is zero there."""
        gone = {part for s in self.stage.slots if s.vanishes for part in s.parts}
        zero = self.arithmetic.number(0)
        return State(count, {k: dict.fromkeys(v, zero) if k in gone else v for k, v in parts.items()})

    def _mean_merge(self, anchor: MeanAnchor, a: State, b: State, parts: Parts) -> Values:
        at = a.parts[anchor.name]
        trial = {**parts, anchor.name: at}
        for slot in self._slots_of(anchor.shift):
            self._combine_slot(slot, a, b, trial)
        return self._advance(anchor, at, trial, a.count + b.count)

    def _combine_slot(self, slot: Slot, a: State, b: State, parts: Parts) -> None:
        left, right = self.move(slot, a, parts), self.move(slot, b, parts)
        inner = Evaluator(self.arithmetic, {}, self.sizes)
        for key in left[0]:
            x, y = ([side[key] for side in moved] for moved in (left, right))
            for part, value in zip(slot.parts, self._join(slot, x, y, a.count, b.count, inner), strict=True):
                parts.setdefault(part, {})[key] = value
        if isinstance(slot.op, TopK):
            self._merge_topk(slot, slot.op, a, b, parts)

    def _join(self, slot: Slot, x: list[Any], y: list[Any], na: int, nb: int, inner: Evaluator) -> list[Any]:
        match slot.op:
            case Position(kind):
                return (x, y)[inner.ranking([x[0], y[0]], kind == "argmax")[0]]
            case Custom(monoid):
                return list(inner.combine_monoid(monoid, tuple(x), tuple(y)))
            case TopK():
                return x
            case NumberExtremum(kind):
                return [inner.fold(kind, [v for v in (x[0], y[0]) if not math.isnan(self.arithmetic.middle(v))])]
            case Average():
                ar, inverse = self.arithmetic, self._inverse(na + nb)
                return [ar.add([ar.mul([ar.number(k), inverse, v[0]]) for k, v in ((na, x), (nb, y))])]
            case Sum() | Product() | Extremum() | Quantifier():
                return [inner.fold(slot.kind, [x[0], y[0]])]
            case _:
                assert_never(slot.op)

    def _merge_topk(self, slot: Slot, op: TopK, a: State, b: State, parts: Parts) -> None:
        values, indices = slot.parts
        inner = Evaluator(self.arithmetic, {}, self.sizes)
        for outer in {key[:-1] for key in a.parts[values]}:
            both = [(s.parts[values][*outer, i], s.parts[indices][*outer, i]) for s in (a, b) for i in range(op.k)]
            real = [pair for pair in both if self.arithmetic.middle(pair[1]) >= 0]
            ranked = [real[i] for i in inner.ranking([v for v, _ in real])]
            for part, column in zip(slot.parts, self._keep(op, ranked), strict=True):
                parts.setdefault(part, {}).update({(*outer, i): v for i, v in enumerate(column)})

    def move(self, slot: Slot, old: State, parts: Parts) -> list[Values]:
        """The slot of `old` at the anchors in `parts`: Σ coefficient(A' - A)·u(A), terms with u = 0 left out."""
        if not slot.moves:
            return [old.parts[p] for p in slot.parts]
        env = {**self.env, **self._shifts(slot, old, parts)}
        inner = Evaluator(self.arithmetic, env, self.sizes)
        values: Values = {}
        for point in inner.points(slot.axes):
            key = tuple(point[a] for a in slot.axes)
            values[key] = self._moved([self._term(slot, m, old, inner, point) for m in slot.moves])
        return [values, *(old.parts[p] for p in slot.parts[1:])]

    def _moved(self, terms: list[Any]) -> Any:
        present = [t for t in terms if t is not None]
        return self.arithmetic.add(present) if present else self.arithmetic.number(0)

    def _term(self, slot: Slot, move: Move, old: State, inner: Evaluator, point: dict[str, int]) -> Any:
        if move.slot == COUNT.attr.name:  # of an average the elements are counted by the weight of its piece
            count = self.arithmetic.number(1 if slot.average else old.count)
            return self.arithmetic.mul([inner.value(move.coefficient, point), count])
        source = self._slot(move.slot)
        value = old.parts[source.parts[0]][tuple(point[a] for a in source.axes)]
        if self.arithmetic.middle(value) == 0 and getattr(value, "rad", 0) == 0:
            return None
        if isinstance(source.op, Extremum | Position) and isinstance(value, bool):
            return value
        factors = [inner.value(move.coefficient, point), value]
        if source.average != slot.average and isinstance(source.op, Additive):  # a total per element, or back
            factors.append(self._inverse(old.count) if slot.average else self.arithmetic.number(old.count))
        return self.arithmetic.mul(factors)

    def _shifts(self, slot: Slot, old: State, parts: Parts) -> Parts:
        env: Parts = {"n": {(): self.arithmetic.number(old.count)}}
        for name in slot.anchors:
            anchor = self._anchor(name)
            assert anchor is not None
            env[f"shift:{name}"] = {
                key: self._shift(anchor, old.parts[name][key], new) for key, new in parts[name].items()
            }
            if isinstance(anchor, UnitAnchor):
                env[name] = parts[name]
        return env

    def _shift(self, anchor: Anchor, old: Any, new: Any) -> Any:
        ar = self.arithmetic
        if ar.middle(old) == ar.middle(new) and bool(ar.equal(old, new)):
            return ar.number(int(anchor.divides))
        if anchor.divides:
            return ar.mul([old, ar.power(new, ar.number(-1))])
        return ar.add([new, ar.mul([ar.number(-1), old])])

    # --- values -----------------------------------------------------------------------------------------------

    def exports(self, state: State) -> Parts:
        """What later passes read, each along the axes of the leaves that read it."""
        later = (n for p in self.plan.passes[self.number + 1 :] for n in _nodes(p))
        axes = {
            leaf.attr.name: leaf.attr.axes
            for n in (*later, *(o.value for o in self.plan.outputs))
            for leaf in leaves(n, "state")
        }
        return {
            name: self._evaluate(node, axes[name], state.parts, state.count)
            for name, node in self.stage.exports
            if name in axes
        }

    def outputs(self, state: State) -> dict[str, Values]:
        return {o.name: self._evaluate(o.value, o.axes, state.parts, state.count) for o in self.plan.outputs}

    def _evaluate(self, node: Node, axes: Sequence[str], parts: Parts, count: int) -> Values:
        counted = {COUNT.attr.name: {(): self.arithmetic.number(count)}}
        return Evaluator(self.arithmetic, {**self.env, **parts, **counted}, self.sizes).array(node, axes)

    def _slots_of(self, node: Node) -> list[Slot]:
        used = {leaf.attr.name for leaf in leaves(node, "state")}
        return [s for s in self.stage.slots if used & set(s.parts)]

    def _anchor(self, name: str) -> Anchor | None:
        return next((a for a in self.stage.anchors if a.name == name), None)

    def _slot(self, name: str) -> Slot:
        return next(s for s in self.stage.slots if s.name == name)

    def _exactly(self, values: Values) -> Values:
        return {
            k: self.arithmetic.number(self.arithmetic.middle(v)) if hasattr(v, "rad") else v for k, v in values.items()
        }

    def _usable(self, v: Any) -> bool:
        return math.isfinite(self.arithmetic.middle(v))

    def _finite(self, v: Any) -> Any:
        return v if self._usable(v) else self.arithmetic.number(0)


def _nodes(stage: PassPlan) -> list[Node]:
    moves = [m.coefficient for s in stage.slots for m in s.moves]
    anchors = [n for a in stage.anchors for n in (a.generator, a.source)]
    return [*(e for s in stage.slots for e in s.lift), *moves, *anchors, *(n for _, n in stage.exports)]


def _store(slot: Slot, part: str, point: Mapping[str, int], value: Any, parts: Parts) -> None:
    key = tuple(point[a] for a in slot.axes)
    target = parts.setdefault(part, {})
    if isinstance(slot.op, TopK):
        target.update({(*key, i): v for i, v in enumerate(value)})
    else:
        target[key] = value


def fold(machine: Machine, cuts: Sequence[int], tree: Sequence[int] | None = None) -> State:
    """The state of a stream cut at `cuts` (piece k is [cuts[k], cuts[k+1])), merged in the bracketing `tree`.

    `tree[t]` says which two neighbours the t-th merge joins: entry k joins the k-th and (k+1)-th of what is left.
    Without a tree the pieces are merged from the left, as a streaming update does.
    """
    states = [machine.lift(a, b) for a, b in itertools.pairwise(cuts)]
    for k in tree if tree is not None else [0] * (len(states) - 1):
        k %= len(states) - 1
        states[k : k + 2] = [machine.combine(states[k], states[k + 1])]
    return states[0]


def simulate(
    plan: Plan,
    arithmetic: Arithmetic,
    env: Mapping[str, Any],
    sizes: Mapping[str, int],
    cuts: Sequence[int],
    tree: Sequence[int] | None = None,
) -> dict[str, Values]:
    """All passes of `plan` over the pieces, then the outputs: name -> {positions of the output's axes: scalar}."""
    env, total = dict(env), State(0, {})
    machine = Machine(plan, 0, arithmetic, env, sizes)
    for number in range(len(plan.passes)):
        machine = Machine(plan, number, arithmetic, env, sizes)
        total = fold(machine, cuts, tree)
        env = {**env, **machine.exports(total)}
    return machine.outputs(total)
