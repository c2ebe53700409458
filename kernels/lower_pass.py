"""One pass of a plan as steps: lift a tile, combine two states, update a state with a tile (laws in `redalg.plan`)."""

from __future__ import annotations

from collections.abc import Iterable

from redalg.graph import (
    INF,
    NEG_INF,
    TRUE,
    ZERO,
    Node,
    add,
    compare,
    div,
    is_const,
    leaves,
    logical,
    state,
    where,
)  # fmt: skip
from redalg.kernels.ir import First, Fold, Let, Loop, Part, Pass, Step
from redalg.kernels.kinds import Kinds
from redalg.kernels.lower_void import bounding, guard
from redalg.kernels.roles import Roles
from redalg.plan import COUNT, Anchor, PassPlan, Slot
from redalg.symbolic import alias, declared_axes, resolve
from redalg.void import finite

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
IDENTITY = {
    "sum": (0.0, 0), "prod": (1.0, 1), "max": (float("-inf"), INT_MIN), "min": (float("inf"), INT_MAX),
    "any": (False, False), "all": (True, True),
}  # fmt: skip
EXTREMA = {"argmax": "max", "argmin": "min", "topk": "max"}


class PassLowering:
    def __init__(self, p: PassPlan, part: Roles, kinds: Kinds) -> None:
        self.plan, self.roles, self.kinds = p, part, kinds
        self.anchors, self.slots = {a.name: a for a in p.anchors}, {s.name: s for s in p.slots}
        self.axes = declared_axes(p)
        self.names = [name for name in p.order if name in self.anchors or name in self.slots]
        self.stored = [s for s in p.slots if not s.vanishes]
        self.firsts: dict[str, list[tuple[Node, ...]]] = {}
        self.means = [a for a in p.anchors if a.policy == "mean"]

    def lowered(self) -> Pass:
        lift = self.lift()
        parts = self.parts()
        update = [] if self.means or any(s.vanishes for s in self.plan.slots) else self.update()
        ordered = any(s.kind == "monoid" and not s.extra.commutative for s in self.plan.slots)  # type: ignore[attr-defined]
        absorbs = not self.means and not any(s.average for s in self.stored)
        absorbs &= all(s.kind in ("sum", "argmax", "argmin", "topk", "monoid") or not s.moves for s in self.stored)
        return Pass(parts, tuple(lift), tuple(self.combine()), tuple(update), absorbs, ordered)

    # --- names -------------------------------------------------------------------------------------------------------

    @staticmethod
    def resolved(p: PassPlan, node: Node) -> Node:
        """A node over stored parts only: anchors that follow from slots, and slots that vanish, by value."""
        values = {a.name: a.target or ZERO for a in p.anchors if a.policy == "extremum"}
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
                if anchor.policy == "extremum":
                    target = alias(anchor, self.plan)
                    found[name] = found[target] if target else resolve(anchor.target or ZERO, found, self.axes)
        return found

    def _part(self, s: Slot, i: int, suffix: str) -> Node:
        leaf = s.leaf(i)
        return state(leaf.attr.name + suffix, leaf.attr.axes, leaf.attr.domain)

    def lanes(self, axes: Iterable[str]) -> tuple[str, ...]:
        return tuple(a for a in self.roles.lanes if a in axes)

    def parts(self) -> tuple[Part, ...]:
        found = []
        for name in self.names:
            if name in self.anchors:
                a = self.anchors[name]
                if a.policy == "mean":
                    found.append(Part(name, "f", 1.0 if a.kind == "mul" else 0.0, self.lanes(a.axes)))
            elif not self.slots[name].vanishes:
                found += self._parts_of(self.slots[name])
        return tuple(found)

    def _parts_of(self, s: Slot) -> list[Part]:
        lanes = self.lanes(s.axes)
        if s.kind == "monoid":
            identity = [float(n.attr) if is_const(n) else _special(n) for n in s.extra.identity_nodes]  # type: ignore[attr-defined]
            kinds = [self.kinds.names[part] for part in s.parts]
            values = [v if k == "f" else bool(v) if k == "b" else int(v) for v, k in zip(identity, kinds, strict=True)]
            return [Part(part, k, v, lanes) for part, k, v in zip(s.parts, kinds, values, strict=True)]
        kind = self.kinds.names[s.parts[0]]
        value = IDENTITY[EXTREMA.get(s.kind, s.kind)][kind != "f"]
        top = s.extra[0] if s.kind == "topk" else None  # type: ignore[index]
        found = [Part(s.parts[0], kind, value, lanes, top)]
        if s.kind in EXTREMA:  # padding of lists is -1; a position that loses every tie
            found.append(Part(s.parts[1], "i", -1 if s.kind == "topk" else INT_MAX, lanes, top))
        return found

    # --- lift --------------------------------------------------------------------------------------------------------

    def lift(self) -> list[Step]:
        """The tile's own state: `name_b`. Slots that need nothing of the tile share its first walk, and so on."""
        levels = _Levels()
        side = self.side("_b")
        for name in self.names:
            if name in self.slots:
                if not self.slots[name].vanishes:
                    self._fold(levels, self.slots[name], side, "_b")
            elif self.anchors[name].policy == "mean":
                self._centre(levels, self.anchors[name], side)
        return levels.steps()

    def _fold(self, levels: _Levels, s: Slot, side: dict[str, Node], suffix: str) -> None:
        bodies = tuple(self._body(n, side) for n in s.lift)
        self._learn(s, bodies, suffix)
        names = tuple(part + suffix for part in s.parts)
        if s.kind == "sum" and s.average:
            total = names[0] + "~sum"
            levels.fold(Fold((total,), "sum", bodies, self.lanes(s.axes)))
            self.kinds.names[total] = self.kinds.reduced("sum", bodies)
            levels.let(Let(names[0], div(state(total, s.axes), self.side("_b")["n"])))
        else:
            levels.fold(Fold(names, s.kind, bodies, self.lanes(s.axes), s.extra, s.ignore_nan))

    def _body(self, node: Node, side: dict[str, Node]) -> Node:
        return resolve(guard(node, bounds(self.plan)), side, self.axes, raw=True)

    def _learn(self, s: Slot, bodies: tuple[Node, ...], suffix: str) -> None:
        kind = "f" if s.average else self.kinds.reduced(s.kind, bodies)
        kinds = [kind]
        if s.kind in EXTREMA:
            kinds = [self.kinds.reduced("max", bodies), "i"]
        elif s.kind == "monoid":
            kinds = _monoid_kinds(s, bodies, self.kinds)
        for part, k in zip(s.parts, kinds, strict=True):
            for end in ("", "_b", "_new", suffix):
                self.kinds.names[part + end] = k

    def _centre(self, levels: _Levels, a: Anchor, side: dict[str, Node]) -> None:
        """A = A0 + shift, the shift seen from a first guess A0; A0 where that is not finite."""
        assert a.shift is not None
        own = a.generator.axes  # one first element for all groups of an anchor that has one value for each
        guess = state(f"{a.name}_first", tuple(x for x in a.axes if x in own))
        for end in ("", "_b", "_new", "_first", "_seen_b"):
            self.kinds.names[a.name + end] = "f"
        neutral = 1 if a.kind == "mul" else 0
        levels.let(First(guess.attr.name, resolve(a.generator, side, self.axes, raw=True), neutral, a.kind == "mul"))
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
    def _usable(a: Anchor, value: Node) -> Node:
        if a.follows:
            return TRUE
        usable = finite(value)
        return logical("and", usable, compare("ne", value, ZERO)) if a.kind == "mul" else usable

    # --- combine and update ------------------------------------------------------------------------------------------

    def combine(self) -> list[Step]:
        from redalg.kernels.lower_combine import Combining

        return Combining(self).steps()

    def update(self) -> list[Step]:
        """A tile folded straight into the state: lifted at the anchors of the whole, so that only the state moves."""
        from redalg.kernels.lower_combine import Combining

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
    found: dict[Node, tuple[Node, ...]] = {
        s.leaf(): (s.lift[0],) for s in p.slots if s.kind == "max" and not s.vanishes
    }
    for a in p.anchors:
        if a.policy == "extremum" and a.target in found:
            found[a.leaf] = found[a.target]
    return found


def _special(n: Node) -> float:
    return {NEG_INF: float("-inf"), INF: float("inf")}.get(n, float("nan"))


def _monoid_kinds(s: Slot, bodies: tuple[Node, ...], kinds: Kinds) -> list[str]:
    """The kinds of a user's state once combining no longer widens any."""
    current = [kinds.of(b) for b in bodies]
    width = len(bodies)
    a, b = (tuple(state(f"monoid.{side}{i}") for i in range(width)) for side in "ab")
    combined = s.extra.combine_nodes(a, b)  # type: ignore[attr-defined]
    for _ in range(width + 2):
        local = Kinds({}, {f"monoid.{side}{i}": k for side in "ab" for i, k in enumerate(current)})
        current = [max((k, local.of(n)), key="bif".index) for k, n in zip(current, combined, strict=True)]
    return current


def attained_sums(p: PassPlan) -> list[str]:
    """Sums of exp(u - max u): the maximum is attained, so that one term is 1. Their reciprocal is at most 1."""
    known = bounds(p)
    return [s.parts[0] for s in p.slots if s.kind == "sum" and not s.average and s.lift[0].op == "exp"
            and bounding(s.lift[0].args[0], known) is not None]  # fmt: skip
