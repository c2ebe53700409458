"""⊕ of two states as steps: move both to common anchors, then join slot by slot (theory, sections 3.1-3.3 and 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redalg.algebra.state import alias, divisors, nonzero, positive_names, resolve
from redalg.graph.node import ONE, ZERO, Node, add, compare, const, div, is_const, leaves, logical, mul, state, where
from redalg.graph.operators import Additive, Product, Sum
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, Slot, UnitAnchor, unit
from redalg.kernels.ir.program import Fold, Join, Let, Loop, Step

if TYPE_CHECKING:
    from redalg.kernels.lower.passes import PassLowering

FAR = 2**62  # of an integer anchor that had no value: exponentials of it are 0 or infinite, as of an infinity


class Combining:
    """`lifting`: the second side is a tile that is lifted on the way, at the new anchors, and does not move."""

    def __init__(self, low: PassLowering, lifting: bool = False) -> None:
        self.low, self.lifting, self.axes, self.plan = low, lifting, low.axes, low.plan
        self.sides = (low.side(""), low.side("_b"))
        self.new = {COUNT.attr.name: state("n_new", (), COUNT.attr.domain)}
        self.moves: tuple[dict[str, Node], dict[str, Node]] = ({}, {})
        self.positive = positive_names(self.plan)
        self.found: list[Step] = []
        self.seen: dict[str, list[tuple[tuple[str, ...], tuple[tuple[Node, ...], ...]]]] = {}
        self.pending: list[Fold] = []
        self.quotients: dict[Node, Node] = {}  # that coefficients multiply -> what holds them

    def steps(self) -> list[Step]:
        low = self.low
        a, b = (side[COUNT.attr.name] for side in self.sides)
        self.found.append(Let("n_new", add(a, b)))
        for anchor in self.plan.anchors:  # until an anchor has its new value, both sides are held at a's
            apart = self._between(anchor, self.sides[0][anchor.name], self.sides[1][anchor.name])
            self.moves[0][f"shift:{anchor.name}"] = anchor.still
            self.moves[1][f"shift:{anchor.name}"] = apart
        for name in low.names:
            if name in low.anchors:
                self._anchor(low.anchors[name])
            elif not low.slots[name].vanishes:
                self._slot(low.slots[name])
        return self.found

    # --- anchors -----------------------------------------------------------------------------------------------------

    def _between(self, anchor: Anchor, new: Node, old: Node) -> Node:
        """How far `old` moves to `new`; exactly 0 (or 1) where it stays, also at an infinity."""
        return where(compare("eq", new, old), anchor.still, self._way(anchor, new, old))

    def _way(self, anchor: Anchor, new: Node, old: Node) -> Node:
        """From an integer extremum of nothing it is a long one: int64 has no infinity, and a difference would wrap."""
        found, target = anchor.between(old, new), alias(anchor, self.plan)
        slot = next((s for s in self.plan.slots if target in s.parts), None)
        if slot is None or slot.kind not in ("max", "min") or self.low.kinds.of(old) != "i":
            return found
        identity, far = (-(2**63), FAR) if slot.kind == "max" else (2**63 - 1, -FAR)
        return where(compare("eq", old, const(identity)), const(far), found)

    def _anchor(self, anchor: Anchor) -> None:
        name = anchor.name
        if isinstance(anchor, MeanAnchor):
            value = self._centre(anchor)
        else:
            target = alias(anchor, self.plan)
            value = self.new[target] if target else resolve(anchor.target, self.new, self.axes)
            if target is None and value.op != "state":
                value = self._let(f"{name}_new", value, anchor.axes)
                value = unit(value.attr.name, anchor.axes) if isinstance(anchor, UnitAnchor) else value
        self.new[name] = value
        for k in (0,) if self.lifting else (0, 1):
            moved = self._between(anchor, value, self.sides[k][name])
            self.moves[k][f"shift:{name}"] = self._let(f"move~{name}{('', '_b')[k]}", moved, anchor.axes)

    def _let(self, name: str, node: Node, axes: tuple[str, ...]) -> Node:
        self.found.append(Let(name, node))
        self.low.kinds.learn(name, node)
        return state(name, axes)

    def _centre(self, anchor: MeanAnchor) -> Node:
        """a's anchor plus the shift seen from there; a's anchor where that is not finite."""
        name, home = anchor.name, self.sides[0][anchor.name]
        held = dict(self.new)
        read = {leaf.attr.name for leaf in leaves(anchor.shift, "state")}
        for s in self.plan.slots:
            if read & set(s.parts):
                names = self._seen(s)
                held |= {part: state(seen, s.axes) for part, seen in zip(s.parts, names, strict=True)}
        held[name] = home
        zero = [d for d in divisors(anchor.shift) if not nonzero(d, self.positive)]
        step = add(home, resolve(anchor.shift, held, self.axes))
        if zero:
            undefined = logical("or", *(compare("eq", resolve(d, held, self.axes), ZERO) for d in zero))
            step = where(undefined, home, step)
        seen = self._let(f"{name}_seen", step, anchor.axes)
        return self._let(f"{name}_new", where(self.low._usable(anchor, seen), seen, home), anchor.axes)

    def _seen(self, slot: Slot) -> tuple[str, ...]:
        """The names of the slot joined at the anchors of now: once for all anchors that see the same."""
        sides = self._sides(slot)
        known = [names for names, joined in self.seen.get(slot.name, ()) if joined == sides]
        if known:
            return known[0]
        number = len(self.seen.setdefault(slot.name, [])) + 1
        names = tuple(f"{part}_seen{number if number > 1 else ''}" for part in slot.parts)
        self.seen[slot.name].append((names, sides))
        self._join(slot, names)
        return names

    # --- slots -------------------------------------------------------------------------------------------------------

    def _slot(self, slot: Slot) -> None:
        if self.lifting:
            bodies = tuple(self.low._body(n, {**self.sides[1], **self.new}) for n in slot.lift)
            names = tuple(part + "_b" for part in slot.parts)
            fold = Fold(names, slot.op, bodies, self.low.columns(slot.axes))
            self._loop(fold, slot)
        names = tuple(part + "_new" for part in slot.parts)
        self._join(slot, names)
        self.new |= {part: self.low._part(slot, i, "_new") for i, part in enumerate(slot.parts)}

    def _loop(self, fold: Fold, slot: Slot) -> None:
        """Fold in the last walk over the tile if nothing it reads was assigned since."""
        if slot.average:
            total = fold.names[0] + "~sum"
            self.low.kinds.names[total] = self.low.kinds.reduced("sum", fold.bodies)
            fold = Fold((total,), Sum(), fold.bodies, fold.axes)
        read = {leaf.attr.name for body in fold.bodies for leaf in leaves(body, "state")}
        for at in reversed(range(len(self.found))):
            step = self.found[at]
            if isinstance(step, Loop):
                if not read & _names(step):
                    self.found[at] = Loop((*step.folds, fold))
                    break
            if read & _names(step):
                at = -1
                break
        else:
            at = -1
        if at < 0:
            self.found.append(Loop((fold,)))
        if slot.average:
            count = self.sides[1][COUNT.attr.name]
            self._let(slot.parts[0] + "_b", div(state(fold.names[0], slot.axes), count), slot.axes)

    def _sides(self, slot: Slot) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The slot of both sides, moved to the anchors of now."""
        second = self._moved(slot, 1) if not self.lifting else self.low._part(slot, 0, "_b")
        a, b = (tuple(side[part] for part in slot.parts[1:]) for side in self.sides)
        return (self._moved(slot, 0), *a), (second, *b)

    def _join(self, slot: Slot, names: tuple[str, ...]) -> None:
        a, b = self._sides(slot)
        self.found.append(Join(names, slot.op, a, b, self.low.columns(slot.axes)))
        for name, part in zip(names, slot.parts, strict=True):
            self.low.kinds.names[name] = self.low.kinds.names.get(part, "f")

    def _moved(self, slot: Slot, k: int) -> Node:
        """The slot of one side, carried to the current anchors: Σ T·u."""
        values = self.sides[k]
        if not slot.moves:
            return values[slot.parts[0]]
        return add(*(self._term(slot, m.coefficient, m.slot, k) for m in slot.moves))

    def _term(self, slot: Slot, coefficient: Node, source: str, k: int) -> Node:
        values, count = self.sides[k], self.sides[k][COUNT.attr.name]
        if source == COUNT.attr.name:
            value = ONE if slot.average else count
        else:
            held = self.low.slots[source]
            value = values[held.parts[0]]
            if held.average != slot.average and value is not ZERO:  # in the normalisation of the moved slot
                value = div(value, count) if slot.average else mul(value, count)
        units = {a.name: self.new.get(a.name, self.sides[0][a.name]) for a in self.plan.units}
        counts = values if isinstance(slot.op, Product) else {COUNT.attr.name: count}
        factor = self._factor(coefficient, counts | self.moves[k] | units, slot.axes)
        if value.op == "state" and isinstance(slot.op, Additive):
            chosen, factor = _conditions(factor)
            if chosen:  # what is not selected is dropped, infinities and NaN included
                return where(logical("and", *chosen), mul(factor, value), ZERO)
        term = mul(factor, value)
        if value.op == "state" and isinstance(slot.op, Additive | Product) and self._may_overflow(coefficient):
            return where(compare("eq", value, ZERO), ZERO, term)
        return term

    def _factor(self, coefficient: Node, known: dict[str, Node], axes: tuple[str, ...]) -> Node:
        """A coefficient over the values of now. Quotients that it takes before it multiplies are steps of their own:
        h_x·h_z/(S_x·S_z) may leave the range where each h/S is far from its ends."""
        if coefficient.op == "add":
            return add(*(self._factor(a, known, axes) for a in coefficient.args))
        if coefficient.op != "mul" or all(a.op != "mul" for a in coefficient.args):
            return resolve(coefficient, known, self.axes)
        factors = [self._factor(a, known, axes) for a in coefficient.args]
        return mul(*(self._quotient(f, axes) if f.op == "mul" and f.axes <= set(axes) else f for f in factors))

    def _quotient(self, node: Node, axes: tuple[str, ...]) -> Node:
        if node not in self.quotients:
            along = tuple(a for a in axes if a in node.axes)
            self.quotients[node] = self._let(f"way~{len(self.quotients)}", node, along)
        return self.quotients[node]

    def _may_overflow(self, coefficient: Node) -> bool:
        """Whether a slot that is 0 could be carried by an infinite factor: 0 stays 0 whatever it is."""
        if coefficient.op == "exp" and self._falling(coefficient.args[0]):
            return False
        if coefficient.op not in ("const", "state", "tensor", "add", "mul", "pow", "size"):
            return True
        if coefficient.op == "pow" and not (is_const(coefficient.args[1]) and coefficient.args[1].attr > 0):
            return True
        if coefficient.op == "state" and coefficient.attr.name.startswith("shift:") and self._unbounded(coefficient):
            return True
        return any(map(self._may_overflow, coefficient.args))

    def _unbounded(self, leaf: Node) -> bool:
        """Whether how an anchor moves may be infinite: a ratio, or the way from an extremum of nothing."""
        anchor = self.low.anchors[leaf.attr.name.removeprefix("shift:")]
        return not isinstance(anchor, MeanAnchor)

    def _falling(self, arg: Node) -> bool:
        """Whether the argument is c·shift with a sign in which the extremum it follows can only make it negative.

        A maximum grows: shift = A' - A >= 0, so that c < 0 is safe; a minimum falls.
        """
        c, rest = (arg.args[0].attr, arg.args[1:]) if arg.op == "mul" and is_const(arg.args[0]) else (1, (arg,))
        if len(rest) != 1 or rest[0].op != "state" or not rest[0].attr.name.startswith("shift:"):
            return False
        anchor = self.low.anchors[rest[0].attr.name.removeprefix("shift:")]
        target = alias(anchor, self.plan)
        slot = next((s for s in self.plan.slots if target in s.parts), None)
        return slot is not None and (slot.kind == "max" and c < 0 or slot.kind == "min" and c > 0)


def _conditions(factor: Node) -> tuple[list[Node], Node]:
    """The conditions without which a coefficient is 0, and what it is under them."""
    factors = factor.args if factor.op == "mul" else (factor,)
    choices = {f: f.args for f in factors if f.op == "where" and is_const(f.args[2], 0)}
    return [c for c, _, _ in choices.values()], mul(*(choices[f][1] if f in choices else f for f in factors))


def _names(step: Step) -> set[str]:
    if isinstance(step, Loop):
        return {name for fold in step.folds for name in fold.names}
    return set(step.names) if isinstance(step, Join) else {step.name}
