"""combine as a printed function: two states of one pass become one (theory, sections 3.1-3.3 and 4).

The plan's order is walked once. An anchor gets its new value, how far each side has to move is noted, and every slot is
moved and joined. A side whose anchor stays where it is does not move at all: that is a test of equality, never
arithmetic, so that -inf - (-inf) does not occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from redalg.graph.node import walk
from redalg.graph.operators import Custom, Position, Product, TopK
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, Slot, UnitAnchor
from redalg.numeric import integers
from redalg.source.builder import Lines
from redalg.source.compiled import called
from redalg.source.names import local
from redalg.streaming.state import State
from redalg.streaming.tapes import join
from redalg.streaming.tapes.kernels import folded
from redalg.streaming.tapes.tape import Tape, key_name, literal


@dataclass(frozen=True)
class ElementAnchor(MeanAnchor):
    """A := that of some element, for good: among integers no anchor is better than another."""

    policy: ClassVar[str] = "element"


@dataclass(frozen=True)
class MoveStep:
    """One term of a moved slot: root `coefficient` of the slot's tape (None: exactly 1) times `source` (None: n)."""

    coefficient: int | None
    less_one: int | None  # root of coefficient - 1, where that is known without cancellation
    source: Slot | None
    own: bool
    selects: bool  # the coefficient is 0 by a condition: it drops the source, infinities and NaN included


@dataclass(frozen=True)
class SlotStep:
    slot: Slot
    moves: tuple[MoveStep, ...]
    tape: Tape | None
    roots: int  # of the tape
    inexact: bool  # a compensated sum
    combine: Any = None  # of a user's monoid: a tape


@dataclass(frozen=True)
class AnchorStep:
    anchor: Anchor
    alias: str | None
    tape: Tape | None
    needs: tuple[SlotStep, ...]  # slots read by the shift of a mean anchor
    clamp: bool
    weight: SlotStep | None = None  # of a mean whose elements may lose their weight when another extremum comes


Pair = tuple[str, str]  # a sum in printed text: what is added up, and what rounding took away ("" of no sum)


def combination(
    name: str,
    steps: Sequence[AnchorStep | SlotStep],
    anchors: Mapping[str, Anchor],
    held: Sequence[str],
    sums: Sequence[str],
    real: Any,
) -> Tape:
    """The function `name` of two states, of `careful` (whether it raises Overflow) and of parameters by their keys."""
    text = Combination(anchors, real)
    for part in held:
        x = local(part)
        text.out(f'{x}_a, {x}_b = a.parts["{part}"], b.parts["{part}"]')
        if part in sums:
            text.out(f'{x}_low_a, {x}_low_b = a.low["{part}"], b.low["{part}"]')
    text.all(steps, "n")
    keys = ("a", "b", "careful", *text.parameters)
    made = text.out.function(name, ["a", "b", "careful", *map(key_name, text.parameters)])
    return Tape(made, keys, (), (), (), tuple(text.calls), real)


class Combination:
    def __init__(self, anchors: Mapping[str, Anchor], real: Any) -> None:
        self.anchors, self.real = anchors, real
        self.out = Lines()
        self.new: dict[str, None] = {}
        self.low: dict[str, None] = {}
        self.calls: dict[Any, None] = {}
        self.parameters: dict[str, None] = {}
        self.out("n_a, n_b = a.n, b.n", "n = n_a + n_b")

    def call(self, fn: Callable[..., Any] | Tape, *arguments: str) -> str:
        name = fn.name if isinstance(fn, Tape) else called(fn)
        if not name.startswith("np."):
            self.calls[fn] = None
        return f"{name}({', '.join(arguments)})"

    def tape(self, tape: Tape, known: Mapping[str, str]) -> str:
        """A call of a tape, of which some arguments are known and the rest are parameters."""
        self.parameters |= dict.fromkeys(key for key in tape.keys if key not in known)
        return self.call(tape, *(known.get(key) or key_name(key) for key in tape.keys))

    def spread(self, text: str, axes: tuple[str, ...], target: tuple[str, ...]) -> str:
        """An array along `axes` as it broadcasts along `target`."""
        if axes == target:
            return text
        return self.call(join.spread, text, literal(axes, self.real), literal(target, self.real))

    def all(self, steps: Sequence[AnchorStep | SlotStep], count: str) -> None:
        """Every anchor and slot, and the state of `count` elements that they make."""
        for step in steps:
            if isinstance(step, AnchorStep):
                self.anchor(step)
            else:
                self.slot(step)
        parts, low = (
            ", ".join(f'"{part}": {local(part)}{end}' for part in names)
            for names, end in ((self.new, ""), (self.low, "_low"))
        )
        self.out(f"return {self.call(State, count, f'{{{parts}}}', f'{{{low}}}', 'a.wide')}")

    # --- anchors -------------------------------------------------------------------------------------------------

    def anchor(self, step: AnchorStep) -> None:
        anchor, name, x = step.anchor, step.anchor.name, local(step.anchor.name)
        if isinstance(anchor, ElementAnchor):
            self.out(f"{x} = {x}_a if n_a >= n_b else {x}_b")
        elif isinstance(anchor, MeanAnchor):
            self._centre(step, anchor)
        elif step.alias is not None:
            self.out(f"{x} = {local(step.alias)}")
        else:
            assert step.tape is not None
            found = self.tape(step.tape, {COUNT.attr.name: "n"} | {part: local(part) for part in self.new})
            self.out(f"{x} = np.broadcast_to({found}[0], {x}_a.shape)")
            if isinstance(anchor, UnitAnchor):  # the least unit, that of zeros, is another one in each dtype
                with self.out.block("if a.wide:"):
                    self.out(f"{x} = np.maximum({x}, np.maximum({x}_a, {x}_b))")
        self.new[name] = None
        for side in "ab":
            largest = _measured(anchor) if isinstance(anchor, UnitAnchor) else ()
            if largest:
                parts = (f"{local(part)}_{side}" for part in largest)
                shift = self.call(join.rescaled, x, f"{x}_{side}", *parts)
            else:
                shift = self._difference(anchor, x, f"{x}_{side}")
            self.out(f"shift_{x}_{side} = {shift}")

    def _difference(self, anchor: Anchor, new: str, old: str) -> str:
        return self.call(join.ratio if anchor.divides else join.difference, new, old)

    def _centre(self, step: AnchorStep, anchor: MeanAnchor) -> None:
        """The longer or heavier side's anchor plus the shift seen from there; kept where that is not finite."""
        assert step.tape is not None
        x = local(anchor.name)
        if step.weight is not None:
            self._heavier(step.weight, anchor, x)
        else:
            self.out(f"home, other = ({x}_a, {x}_b) if n_a >= n_b else ({x}_b, {x}_a)")
            for side, at_home in (("a", "n_a >= n_b"), ("b", "n_a < n_b")):
                self.out(f"shift_{x}_{side} = None if {at_home} else {self._difference(anchor, 'home', 'other')}")
        self.new[anchor.name] = None  # the shifts that follow are seen from there
        known = {COUNT.attr.name: "n"} | {part: local(part) for part in self.new} | {anchor.name: "home"}
        for needed in step.needs:
            self._joined(needed, "held_")
            known |= {part: f"held_{local(part)}" for part in needed.slot.parts}
        self.out(f"{x} = home + {self.tape(step.tape, known)}[0]")
        if step.clamp:
            self.out(f"{x} = np.minimum(np.maximum({x}, np.minimum(home, other)), np.maximum(home, other))")
        if not anchor.follows:
            self.out(f"{x} = {self.call(join.usable, x, 'home')}")

    def _heavier(self, weight: SlotStep, anchor: MeanAnchor, x: str) -> None:
        """Home is the side that has the larger weight now: elements that lost theirs may be of any size."""
        moved = (self._moved(weight, side)[0] for side in "ab")
        one, two = (self.spread(found, weight.slot.axes, anchor.axes) for found in moved)
        self.out(f"stays = {one} >= {two}")
        self.out(f"home, other = np.where(stays, {x}_a, {x}_b), np.where(stays, {x}_b, {x}_a)")
        for side in "ab":
            self.out(f"shift_{x}_{side} = {self._difference(anchor, 'home', f'{x}_{side}')}")

    # --- slots ---------------------------------------------------------------------------------------------------

    def slot(self, step: SlotStep) -> None:
        self._joined(step, "")
        self.new |= dict.fromkeys(step.slot.parts)
        if step.inexact:
            self.low[step.slot.parts[0]] = None

    def _joined(self, step: SlotStep, before: str) -> None:
        slot = step.slot
        names = [local(part) for part in slot.parts]
        results = ", ".join(f"{before}{name}" for name in names)
        sides = [f"({''.join(f'{name}_{side}, ' for name in names)})" for side in "ab"]
        if step.inexact:
            one, two = (f"({', '.join(self._moved(step, side))})" for side in "ab")
            counts = ("n_a", "n_b") if slot.average else ()
            found = self.call(join.averaged if counts else join.added, one, two, *counts)
            self.out(f"{results}, {results}_low = {found}")
            with self.out.block(f"if careful and not {self.call(join.all_finite, results)}:"):
                self.out(self.call(join.check_range, results, f"({', '.join(self._made_of(slot))},)"))
        elif isinstance(slot.op, TopK):
            self.out(f"{results} = {self.call(join.top, *sides)}")
        elif isinstance(slot.op, Position):
            self.out(f"{results} = {self.call(join.positions, repr(slot.op.kind), *sides)}")
        elif isinstance(slot.op, Custom):
            self.calls[step.combine] = None
            self.out(f"{results}, = {self.call(folded, *sides, step.combine.name)}")
        else:
            one, two = (self._moved(step, side)[0] for side in "ab")
            self.out(f"{results} = {self.call(join.PLAIN[slot.kind], one, two)}")

    def _made_of(self, slot: Slot) -> list[str]:
        """What a sum is made of, on both sides."""
        read = readings(slot)  # a contraction squared reads one anchor along two axes
        made_of = [] if slot.vanishes else [(slot.parts[0], slot.axes)]
        for name in slot.anchors:
            known = [axes for anchor, axes in read if anchor == name]
            made_of += [(name, axes) for axes in known or [self.anchors[name].axes]]
        return [self.spread(f"{local(name)}_{side}", axes, slot.axes) for side in "ab" for name, axes in made_of]

    # --- moves ---------------------------------------------------------------------------------------------------

    def _moved(self, step: SlotStep, side: str) -> Pair:
        """The slot of one side at the current anchors: Σ coefficient · slot, as a compensated pair for sums."""
        slot, x = step.slot, local(step.slot.parts[0])
        own = f"{x}_{side}", f"{x}_low_{side}" if step.inexact else ""
        if slot.vanishes:
            anchor = self.anchors[slot.anchors[0]]
            like = self.spread(f"{local(anchor.name)}_{side}", anchor.axes, slot.axes)
            self.out(f"{own[0]} = {own[1]} = np.zeros({like}.shape, REAL)")
        moving = [f"shift_{local(anchor)}_{side}" for anchor in slot.anchors if anchor in self.new]
        if not step.moves or not moving:
            return own
        moved = f"moved_{own[0]}", f"moved_{own[1]}" if step.inexact else ""
        self.out(*(f"{new} = {old}" for new, old in zip(moved, own, strict=True) if new))
        with self.out.block(f"if {' or '.join(f'{shift} is not None' for shift in moving)}:"):
            if isinstance(slot.op, Product):
                self._product(step, side, moved[0])
            else:
                self._terms(step, side, own, moved)
        return moved

    def _product(self, step: SlotStep, side: str, result: str) -> None:
        """A product of ratios at the new anchor: P·(A/A')^n, n the number of its factors on this side."""
        (move,) = step.slot.moves
        ratio, count = move.coefficient.args
        x, axes, target = local(ratio.attr.name.removeprefix("shift:")), ratio.attr.axes, step.slot.axes
        old, new = self.spread(f"{x}_{side}", axes, target), self.spread(x, axes, target)
        number = f"n_{side}"
        if count is not COUNT:
            number = self.spread(f"{local(count.attr.name)}_{side}", count.attr.axes, target)
        self.out(f"{result} = {self.call(join.carried, f'{local(step.slot.parts[0])}_{side}', old, new, number)}")

    def _terms(self, step: SlotStep, side: str, own: Pair, moved: Pair) -> None:
        if step.tape is not None:
            self._coefficients(step, step.tape, side)
        shifts = self._shifts(step.slot, side)
        first = True
        for move in step.moves:  # the slot itself comes first
            if move.own:
                self._own(move, own, step.inexact)
            elif move.source is not None and move.source.vanishes:
                continue
            else:
                source = self._source(step, move, side)
                if move.coefficient is not None:
                    how, last = (join.times, "True") if move.selects else (join.term, shifts)
                    source = self.call(how, f"c{move.coefficient}", source, last)
                self._plus(source, step.inexact, first)
            first = False
        if first:
            self.out(f"{moved[0]} = {own[0]} * 0")
        elif step.inexact:
            self.out(f"{', '.join(moved)} = {self.call(join.rested, 'total', 'rest', *own, shifts)}")
        else:
            self.out(f"{moved[0]} = {self.call(join.rested, 'total', 'None', own[0], 'None', shifts)}[0]")

    def _coefficients(self, step: SlotStep, tape: Tape, side: str) -> None:
        known = {COUNT.attr.name: f"n_{side}"}
        for name in step.slot.anchors:
            x, anchor = local(name), self.anchors[name]
            if isinstance(anchor, UnitAnchor):
                known[name] = x if name in self.new else f"{x}_a"
            shift = f"shift_{x}_{side}" if name in self.new else "None"
            single = len(step.slot.anchors) == 1
            known[f"shift:{name}"] = (
                shift if single else self.call(join.still, shift, f"{x}_{side}", str(int(anchor.divides)))
            )
        roots = ", ".join(f"c{k}" for k in range(step.roots))
        self.out(f"[{roots}] = {self.tape(tape, known)}")

    def _shifts(self, slot: Slot, side: str) -> str:
        """How far the anchors of a slot move, and the shift of one that stays, along the axes of the slot."""
        found = []
        for name, axes in readings(slot):
            if name in self.new:
                shift = self.spread(f"shift_{local(name)}_{side}", axes, slot.axes)
                found.append(f"({shift}, {int(self.anchors[name].divides)})")
            else:
                found.append("(None, 0)")
        return f"({''.join(f'{pair}, ' for pair in found)})"

    def _own(self, move: MoveStep, own: Pair, inexact: bool) -> None:
        """The first term of a moved slot and, for sums, its compensation."""
        if move.coefficient is None:
            self.out(f"total = {own[0]}", *([f"rest = {own[1]}"] if inexact else []))
            return
        c, selects = f"c{move.coefficient}", ", True" if move.selects else ""
        if inexact:
            less_one = "None" if move.less_one is None else f"c{move.less_one}"
            self.out(f"total, rest = {self.call(join.scaled, c, *own, less_one + selects)}")
        else:
            self.out(f"total = {self.call(join.times, c, own[0] + selects)}")

    def _plus(self, term: str, inexact: bool, first: bool) -> None:
        if first:
            self.out(f"total = {term}", *(["rest = np.zeros_like(total)"] if inexact else []))
        elif inexact:
            self.out(f"total, error = {self.call(join.two_sum, 'total', term)}", "rest = rest + error")
        else:
            self.out(f"total = {self.call(join.PLAIN['sum'], 'total', term)}")

    def _source(self, step: SlotStep, move: MoveStep, side: str) -> str:
        """The array a move reads, in the normalisation of the slot: averages hold sums divided by the count."""
        slot = step.slot
        if move.source is None:
            if slot.average:
                return "np.ones((), REAL)"
            return f"np.asarray(n_{side}, REAL)" if step.inexact else f"np.asarray(n_{side})"
        value = self.spread(f"{local(move.source.parts[0])}_{side}", move.source.axes, slot.axes)
        if move.source.average == slot.average:
            return value
        if not slot.average:
            return f"{value} * n_{side}"
        whole = "integer" in move.source.domain  # maybe beyond int64
        return self.call(integers.quotient, value, f"n_{side}") if whole else f"{value} / n_{side}"


def _measured(anchor: UnitAnchor) -> tuple[str, ...]:
    """The parts that are 0 where all that a unit measures is: the largest absolute values that it is made of."""
    parts = [n.attr for n in walk(anchor.target) if n.op == "state"]
    plain = all(n.op in ("state", "maximum", "pow2") for n in walk(anchor.target))
    return tuple(d.name for d in parts) if plain and all(d.axes == anchor.axes for d in parts) else ()


def readings(slot: Slot) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The anchors a slot moves with and the axes it reads them along (a contraction squared reads one along two)."""
    found = [n.attr for n in walk(*(move.coefficient for move in slot.moves)) if n.op == "state"]
    return tuple(dict.fromkeys((d.name.removeprefix("shift:"), d.axes) for d in found if d.name.startswith("shift:")))
