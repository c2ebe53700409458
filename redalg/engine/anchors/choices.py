"""Which anchor centres what: one per target, shared by everything that is centred on that target.

A generator may have several anchors: its mean under one mask and its mean under another are two, and so are the maxima
of two groups. Which of them is meant is decided where the generator stands: a sum of an element and stage values is
centred on the location among those; a sum of elements alone on the mean under its own weight; an exponential on the
extremum under its mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono
from redalg.engine.anchors.units import Units
from redalg.graph.node import ONE, TRUE, Node, logical, negate, walk
from redalg.graph.plan import ExtremumAnchor, MeanAnchor, ScaleAnchor, UnitAnchor


@dataclass(frozen=True)
class MeanChoice:
    """One anchor to be: what is centred on its mean, and why."""

    generator: Node
    weights: Mono  # the raw monomial g of Σgx/Σg
    why: str

    anchor: ClassVar[type[MeanAnchor]] = MeanAnchor

    def axes(self, axis: tuple[str, ...]) -> frozenset[str]:
        """The axes of the anchor: those of its generator and of its weights, but for the streamed."""
        return (self.generator.axes | nf.mono_node(self.weights).axes) - frozenset(axis)


@dataclass(frozen=True)
class TargetChoice:
    """One anchor to be: what is centred, on what, how, and why."""

    generator: Node
    target: Node  # over stages
    why: str
    anchor: type[ExtremumAnchor | ScaleAnchor | UnitAnchor] = ExtremumAnchor

    def axes(self, axis: tuple[str, ...]) -> frozenset[str]:
        """The axes of the anchor: those of its generator and of its target, but for the streamed."""
        return (self.generator.axes | self.target.axes) - frozenset(axis)


@dataclass(frozen=True)
class BoundedChoice(TargetChoice):
    """A scale that is a stage value, or 1."""

    bound: Node = field(kw_only=True)  # the stage value that bounds the generator


@dataclass(frozen=True)
class WeightedChoice(TargetChoice):
    """The largest exponent of those elements that count for any of the sums that are held at it."""

    counts: Node = field(kw_only=True)  # whether one does: a weight of it is not 0, or its exponential no number
    weights: frozenset[frozenset[Node]] = field(kw_only=True)  # of every sum, what its elements are multiplied by


Choice = MeanChoice | TargetChoice
Kept = TypeVar("Kept", bound=Choice)


def conditions(mask: Node) -> frozenset[Node]:
    """What a mask asks for: nothing, one condition or several."""
    if mask is TRUE:
        return frozenset()
    return frozenset(mask.args) if mask.op == "and" else frozenset({mask})


def selected_by(choice: Choice) -> frozenset[Node]:
    """Under which conditions an anchor is a number: extrema under a mask are infinite until an element is selected."""
    found = list[Node]()
    for n in walk(choice.target) if isinstance(choice, TargetChoice) else ():
        if n.op == "reduce" and n.attr.kind in ("max", "min") and n.args[0].op == "where":
            c, a, b = n.args[0].args
            found += [c] if b.op == "special" else [negate(c)] if a.op == "special" else []
    return conditions(logical("and", *found))


@dataclass
class Choices:
    """Keys have plain axis names: a contraction that is left open reads the same anchor along an axis of its own."""

    exponents: dict[tuple[Node, Node], TargetChoice] = field(default_factory=dict)  # (u, mask) -> anchor of e^u there
    deviations: dict[tuple[Node, Node], Choice] = field(default_factory=dict)  # (stage, elements + stage values)
    elements: dict[Node, list[Choice]] = field(default_factory=dict)  # x -> its anchors
    inside: dict[tuple[Node, Node], Choice] = field(default_factory=dict)  # (stage, x) -> anchor of x alone there
    scales: dict[Node, BoundedChoice] = field(default_factory=dict)  # generator -> its scale
    ties: dict[tuple[Node, Node], TargetChoice] = field(default_factory=dict)  # (element, extremum stage)
    casts: dict[tuple[Node, Node], BoundedChoice] = field(default_factory=dict)  # (G, H)
    units: Units = field(default_factory=Units)  # powers of 2 that elements are divided by
    # (stage, u, mask, tensors of what e^u is multiplied by) -> unit of rates
    growths: dict[tuple[Node, Node, Node, frozenset[Node]], Fraction] = field(default_factory=dict)
    paces: dict[tuple[Node, Node], Node] = field(default_factory=dict)  # (u, mask) -> k, where v of u = k·v is centred
    uncentred: set[tuple[Node, Node, Mono]] = field(
        default_factory=set
    )  # (stage, x, exponentials that x stands beside)
    _shared: dict[Any, Any] = field(default_factory=dict)

    def shared(self, choice: Kept) -> Kept:
        """The one anchor for this target."""
        found: Kept = self._shared.setdefault(replace(choice, why=""), choice)
        return found

    def centre(self, choice: Kept) -> Kept:
        """Make it an anchor of its generator."""
        choice = self.shared(choice)
        known = self.elements.setdefault(choice.generator, [])
        if choice not in known:
            known.append(choice)
        return choice

    def exponent(self, u: Node, mask: Node) -> TargetChoice | None:
        """The anchor of e^u under a mask: its own, else that under a condition which the mask implies."""
        return self.exponents.get(self.key(u, mask))

    def pace(self, u: Node, mask: Node) -> Node:
        """By what the anchor of e^u is multiplied: e^(k·(v - A)) for u = k·v."""
        return self.paces.get(self.key(u, mask), ONE)

    def key(self, u: Node, mask: Node) -> tuple[Node, Node]:
        """Under which exponent and mask the anchor of e^u under a mask is known."""
        if (u, mask) in self.exponents:
            return u, mask
        held = conditions(mask)
        return next((key for key in self.exponents if key[0] is u and conditions(key[1]) < held), (u, mask))

    def growth(self, stage: Node, u: Node, mask: Node, tensors: frozenset[Node]) -> Fraction | None:
        """The unit of rates where e^u is held by how far it is from 1, with a weight of these tensors or fewer."""
        for (s, v, m, held), unit in self.growths.items():
            if s is stage and v is u and m is mask and tensors <= held:
                return unit
        return None

    def with_exponent(self, u: Node) -> list[TargetChoice]:
        """The anchors that u has as an exponent, or inside one as what is multiplied, under whatever masks."""
        return [c for c in self.exponents.values() if c.generator is u]

    def element(self, x: Node, stage: Node | None) -> Choice | None:
        """The anchor of x where it stands alone in the body of a stage (None: in an output)."""
        if stage is not None:
            return self.inside.get((stage, x))
        own = (c for c in self.elements.get(x, ()) if not c.axes(()) - x.axes)
        return next((c for c in own if not selected_by(c)), None)

    def all(self) -> list[Choice]:
        """Every anchor a form could do without, once, those of elements first."""
        tables = (self.inside, self.deviations, self.scales, self.exponents)
        found = [c for cs in self.elements.values() for c in cs] + [c for t in tables for c in t.values()]
        return list({id(c): c for c in found}.values())

    def without(self, gone: Choice) -> Choices:
        """Everything but one anchor (ties are counted at theirs all the same)."""

        def kept(table: dict[Any, Kept]) -> dict[Any, Kept]:
            return {key: c for key, c in table.items() if c is not gone}

        left = {x: [c for c in cs if c is not gone] for x, cs in self.elements.items()}
        first, rest = (kept(self.exponents), kept(self.deviations)), (kept(self.inside), kept(self.scales))
        formal = self.ties, kept(self.casts)
        return Choices(*first, left, *rest, *formal, self.units, self.growths, self.paces, self.uncentred)


__all__ = ["BoundedChoice", "Choice", "Choices", "MeanChoice", "TargetChoice", "WeightedChoice"]
