"""One pass of a plan as steps: lift a tile, combine two states, update a state with a tile (`redalg.graph.plan`)."""

from __future__ import annotations

from collections.abc import Iterable

from redalg.algebra.starts import first_counts
from redalg.algebra.state import alias, declared_axes, resolve
from redalg.errors import RedalgError
from redalg.graph.masked import finite
from redalg.graph.node import FALSE, INF, NEG_INF, TRUE, ZERO, Node, add, div, is_const, leaves, state, where
from redalg.graph.operators import Custom, Extremum, Position, Product, Quantifier, Sum, TopK, UserMonoid
from redalg.graph.plan import COUNT, MeanAnchor, PassPlan, Slot
from redalg.kernels.ir.axis_roles import Roles
from redalg.kernels.ir.kinds import Kinds
from redalg.kernels.ir.program import First, Fold, Let, Loop, Part, Pass, Step
from redalg.kernels.lower.combine import Combining
from redalg.kernels.lower.masked import bounding, guard

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
IDENTITY = {
    "sum": (0.0, 0),
    "prod": (1.0, 1),
    "max": (float("-inf"), INT_MIN),
    "min": (float("inf"), INT_MAX),
    "any": (False, False),
    "all": (True, True),
}
EXTREMA = {"argmax": "max", "argmin": "min", "topk": "max"}


class PassLowering:
    def __init__(self, p: PassPlan, part: Roles, kinds: Kinds) -> None:
        self.plan, self.roles, self.kinds = p, part, kinds
        self.anchors, self.slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
        self.axes = declared_axes(p)
        self.names = [name for name in p.order if name in self.anchors or name in self.slots]
        self.stored = [s for s in p.slots if not s.vanishes]
        self.firsts: dict[str, list[tuple[Node, ...]]] = {}
        self.means = p.means

    def lowered(self) -> Pass:
        lift = self.lift()
        parts = self.parts()
        update = [] if self.means or any(s.vanishes for s in self.plan.slots) else self.update()
        ordered = any(isinstance(s.op, Custom) and not s.op.monoid.commutative for s in self.plan.slots)
        absorbs = not self.means and not any(s.average for s in self.stored)
        absorbs &= not any(isinstance(s.op, Product | Extremum | Quantifier) and s.moves for s in self.stored)
        return Pass(parts, tuple(lift), tuple(self.combine()), tuple(update), absorbs, ordered)

    # --- names -------------------------------------------------------------------------------------------------------

    @staticmethod
    def resolved(p: PassPlan, node: Node) -> Node:
        """A node over stored parts only: anchors that follow from slots, and slots that vanish, by value."""
        values = {a.name: a.target for a in p.anchors if not isinstance(a, MeanAnchor)}
        values |= {part: ZERO for s in p.slots if s.vanishes for part in s.parts}
        axes = declared_axes(p)
        for _ in range(len(p.anchors) + 1):  # a target may read another anchor
            node = resolve(node, values, axes, raw=True)
        return node

    def leaf(self, name: str, suffix: str = "") -> Node:
        return state(name + suffix, self._leaf_axes(name))

    def _leaf_axes(self, name: str) -> tuple[str, ...]:
        return self.axes[name]

    def side(self, suffix: str) -> dict[str, Node]:
        """Every name of the pass as a node over the stored parts `name + suffix`."""
        found: dict[str, Node] = {COUNT.attr.name: COUNT if not suffix else state(f"n{suffix}", (), COUNT.attr.domain)}
        for name in self.names:
            if name in self.slots:
                s = self.slots[name]
                found |= {part: ZERO if s.vanishes else self._part(s, i, suffix) for i, part in enumerate(s.parts)}
            else:
                anchor = self.anchors[name]
                found[name] = self.leaf(name, suffix)
                if not isinstance(anchor, MeanAnchor):
                    target = alias(anchor, self.plan)
                    found[name] = found[target] if target else resolve(anchor.target, found, self.axes)
        return found

    def _part(self, s: Slot, i: int, suffix: str) -> Node:
        leaf = s.leaf(i)
        return state(leaf.attr.name + suffix, leaf.attr.axes, leaf.attr.domain)

    def columns(self, axes: Iterable[str]) -> tuple[str, ...]:
        return tuple(a for a in self.roles.columns if a in axes)

    def parts(self) -> tuple[Part, ...]:
        found = []
        for name in self.names:
            if name in self.anchors:
                a = self.anchors[name]
                if isinstance(a, MeanAnchor):
                    found.append(Part(name, "f", 0.0, self.columns(a.axes)))
            elif not self.slots[name].vanishes:
                found += self._parts_of(self.slots[name])
        return tuple(found)

    def _parts_of(self, s: Slot) -> list[Part]:
        columns = self.columns(s.axes)
        if isinstance(s.op, Custom):
            identity = [float(n.attr) if is_const(n) else _special(n) for n in s.op.monoid.identity_nodes]
            kinds = [self.kinds.names[part] for part in s.parts]
            values = [_start(s.op.monoid, v, k) for v, k in zip(identity, kinds, strict=True)]
            return [Part(part, k, v, columns) for part, k, v in zip(s.parts, kinds, values, strict=True)]
        kind = self.kinds.names[s.parts[0]]
        value = IDENTITY[EXTREMA.get(s.kind, s.kind)][kind != "f"]
        match s.op:
            case TopK(k):  # padding is -1
                return [Part(s.parts[0], kind, value, columns, k), Part(s.parts[1], "i", -1, columns, k)]
            case Position():  # one that loses every tie
                return [Part(s.parts[0], kind, value, columns), Part(s.parts[1], "i", INT_MAX, columns)]
            case _:
                return [Part(s.parts[0], kind, value, columns)]

    # --- lift --------------------------------------------------------------------------------------------------------

    def lift(self) -> list[Step]:
        """The tile's own state: `name_b`. Slots that need nothing of the tile share its first walk, and so on."""
        levels = _Levels()
        side = self.side("_b")
        for name in self.names:
            if name in self.slots:
                if not self.slots[name].vanishes:
                    self._fold(levels, self.slots[name], side, "_b")
            elif isinstance(anchor := self.anchors[name], MeanAnchor):
                self._centre(levels, anchor, side)
        return levels.steps()

    def _fold(self, levels: _Levels, s: Slot, side: dict[str, Node], suffix: str) -> None:
        bodies = tuple(self._body(n, side) for n in s.lift)
        self._learn(s, bodies, suffix)
        names = tuple(part + suffix for part in s.parts)
        if s.average:
            total = names[0] + "~sum"
            levels.fold(Fold((total,), Sum(), bodies, self.columns(s.axes)))
            self.kinds.names[total] = self.kinds.reduced("sum", bodies)
            levels.let(Let(names[0], div(state(total, s.axes), self.side("_b")["n"]), guess=suffix != "_b"))
        else:
            levels.fold(Fold(names, s.op, bodies, self.columns(s.axes)))

    def _body(self, node: Node, side: dict[str, Node]) -> Node:
        return resolve(guard(node, bounds(self.plan)), side, self.axes, raw=True)

    def _learn(self, s: Slot, bodies: tuple[Node, ...], suffix: str) -> None:
        kinds = ["f" if s.average else self.kinds.reduced(s.kind, bodies)]
        if isinstance(s.op, Position | TopK):
            kinds = [self.kinds.reduced("max", bodies), "i"]
        elif isinstance(s.op, Custom):
            kinds = _monoid_kinds(s.op.monoid, bodies, self.kinds)
        for part, k in zip(s.parts, kinds, strict=True):
            for end in ("", "_b", "_new", suffix):
                self.kinds.names[part + end] = k

    def _centre(self, levels: _Levels, a: MeanAnchor, side: dict[str, Node]) -> None:
        """A = A0 + shift, the shift seen from a first guess A0; A0 where that is not finite."""
        begin = where(first_counts(self.plan, a), a.generator, ZERO)
        own = begin.axes  # one first element for all groups of an anchor that has one value for each
        guess = state(f"{a.name}_first", tuple(x for x in a.axes if x in own))
        for end in ("", "_b", "_new", "_first", "_seen_b"):
            self.kinds.names[a.name + end] = "f"
        levels.let(First(guess.attr.name, resolve(begin, side, self.axes, raw=True)))
        held = {**side, a.name: guess}
        read = {leaf.attr.name for leaf in leaves(a.shift, "state")}
        for s in self.plan.slots:
            if read & set(s.parts):
                suffix = self._first(s, {**side, a.name: guess})
                self._fold(levels, s, {**side, a.name: guess}, suffix)
                held |= {part: self._part(s, i, suffix) for i, part in enumerate(s.parts)}
        seen = state(f"{a.name}_seen_b", a.axes)
        levels.let(Let(seen.attr.name, add(guess, resolve(a.shift, held, self.axes))))
        levels.let(Let(f"{a.name}_b", where(self._usable(a, seen), seen, guess)))

    def _first(self, s: Slot, side: dict[str, Node]) -> str:
        """The ending of the slot's parts at a first guess: one for all anchors whose guesses it does not tell apart."""
        known = self.firsts.setdefault(s.name, [])
        bodies = tuple(self._body(n, side) for n in s.lift)
        if bodies not in known:
            known.append(bodies)
        number = known.index(bodies) + 1
        return f"_first{number if number > 1 else ''}"

    @staticmethod
    def _usable(a: MeanAnchor, value: Node) -> Node:
        return TRUE if a.follows else finite(value)

    # --- combine and update ------------------------------------------------------------------------------------------

    def combine(self) -> list[Step]:
        return Combining(self).steps()

    def update(self) -> list[Step]:
        """A tile folded straight into the state: lifted at the anchors of the whole, so that only the state moves."""
        return Combining(self, lifting=True).steps()


class _Levels:
    """Steps in as few walks over the tile as their dependences allow."""

    def __init__(self) -> None:
        self.level: dict[str, int] = {}
        self.lets: dict[int, list[Step]] = {}
        self.folds: dict[int, list[Fold]] = {}

    def _after(self, nodes: Iterable[Node]) -> int:
        names = (leaf.attr.name for n in nodes for leaf in leaves(n, "state"))
        return max((self.level.get(name, 0) for name in names), default=0)

    def fold(self, fold: Fold) -> None:
        at = self._after(fold.bodies)
        if fold in self.folds.setdefault(at, []):
            return
        self.folds[at].append(fold)
        self.level |= dict.fromkeys(fold.names, at + 1)

    def let(self, step: Let | First) -> None:
        at = self._after([step.node])
        self.lets.setdefault(at, []).append(step)
        self.level[step.name] = at

    def steps(self) -> list[Step]:
        found: list[Step] = []
        for at in range(1 + max([*self.lets, *self.folds], default=-1)):
            found += self.lets.get(at, [])
            if self.folds.get(at):
                found.append(Loop(tuple(self.folds[at])))
        return found


def bounds(p: PassPlan) -> dict[Node, tuple[Node, ...]]:
    """Leaves that are the maximum of an element node: slots, and the anchors that are these slots."""
    found: dict[Node, tuple[Node, ...]] = {s.leaf(): (s.lift[0],) for s in p.slots if s.kind == "max"}
    for a in p.anchors:
        if not isinstance(a, MeanAnchor) and a.target in found:
            found[a.leaf] = found[a.target]
    return found


def _special(n: Node) -> float:
    return {NEG_INF: float("-inf"), INF: float("inf"), FALSE: 0.0, TRUE: 1.0}.get(n, float("nan"))


def _start(monoid: UserMonoid, value: float, kind: str) -> float | int | bool:
    """A part of an identity as a number of its kind. Raises: RedalgError for integers that no kernel starts from."""
    if kind != "i":
        return bool(value) if kind == "b" else value
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise RedalgError(
            f"the monoid {monoid.name}, whose identity has {value:g}, of integers",
            "form.compile",
            "a kernel keeps its state in int64, where no number stands for that",
            'form.compile("numpy"), or the tensors as float64',
        )
    return int(value)


def _monoid_kinds(monoid: UserMonoid, bodies: tuple[Node, ...], kinds: Kinds) -> list[str]:
    """The kinds of a user's state once combining no longer widens any."""
    current = [kinds.of(b) for b in bodies]
    width = len(bodies)
    a, b = (tuple(state(f"monoid.{side}{i}") for i in range(width)) for side in "ab")
    combined = monoid.combine_nodes(a, b)
    for _ in range(width + 2):
        local = Kinds({}, {f"monoid.{side}{i}": k for side in "ab" for i, k in enumerate(current)})
        current = [max((k, local.of(n)), key="bif".index) for k, n in zip(current, combined, strict=True)]
    return current


def attained_sums(p: PassPlan) -> list[str]:
    """Sums of exp(u - max u): the maximum is attained, so that one term is 1. Their reciprocal is at most 1."""
    known = bounds(p)
    return [
        s.parts[0]
        for s in p.slots
        if isinstance(s.op, Sum) and s.lift[0].op == "exp" and bounding(s.lift[0].args[0], known) is not None
    ]
