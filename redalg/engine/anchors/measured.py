"""Elements in units of the data: what stands for a generator that is divided by a power of 2 (theory, section 3.6).

A generator x, or x - A, that has a unit S is held as x/S or (x - A)/S wherever it is summed; the power of S that this
takes away stands in the coefficient. `redalg.engine.anchors.units` says which generators have one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly
from redalg.engine.anchors.centred import AnchorSite, Centred, fresh_axes, label
from redalg.engine.anchors.choices import TargetChoice
from redalg.engine.anchors.units import WHY, Held, Unit, in_unit
from redalg.graph import node as g
from redalg.graph.degrees import Degree, above, added, times
from redalg.graph.masked import finite
from redalg.graph.node import Node
from redalg.graph.plan import Slot, UnitAnchor, unit


@dataclass
class Measured(Centred):
    """Centred elements of which some are divided by units."""

    unit_sites: dict[Unit, AnchorSite] = field(default_factory=dict)
    scaled: dict[Node, tuple[Node, AnchorSite, Degree]] = field(default_factory=dict)  # c/S -> (c, S, degree)

    def unit_site(self, found: Unit) -> AnchorSite:
        site = self.unit_sites.get(found)
        if site is None:
            choice = TargetChoice(found.generator, found.target, WHY, UnitAnchor)
            axes, name = self.ordered_axes(found.target.axes), self.fresh(f"S_{label(found.generator)}")
            site = AnchorSite(choice, unit(name, axes), name, axes)
            self.unit_sites[found] = self.sites[id(choice)] = site
        return site

    def units_in(self, varying: Mono) -> list[AnchorSite]:
        """The units that generators of a monomial are divided by."""
        found = (self._scaled(gen) for gen, _ in varying)
        return [scaled[1] for scaled in found if scaled is not None]

    def degree_of(self, gen: Node) -> Degree:
        """By which power of its unit a generator is divided; 1 for one that has another scale."""
        scaled = self._scaled(gen)
        return Fraction(1) if scaled is None else scaled[2]

    def _scaled(self, gen: Node) -> tuple[Node, AnchorSite, Degree] | None:
        return self.scaled.get(gen) or self.scaled.get(g.rename_axes(gen, fresh_axes(gen)))

    def bare(self, varying: Mono) -> Mono:
        """The monomial without units."""
        found = nf.mono({self.scaled[gen][0] if gen in self.scaled else gen: p for gen, p in varying})
        assert found is not None
        return found

    def in_units(self, varying: Mono, factor: Poly) -> tuple[Mono, Poly]:
        """The powers of a monomial divided by their units; not where that would undo a contraction with other axes."""
        beside = frozenset().union(*(gen.axes for gen, _ in varying))
        found = {gen: u for gen, p in varying if p > 0 and (u := self._unit_of(gen, beside)) is not None}
        axes = frozenset().union(*(gen.axes for gen, _ in varying)) - frozenset(self.axis)
        own = frozenset().union(*(gen.axes for gen in found))
        degrees = (times(p, found[gen][1]) for gen, p in varying if gen in found)
        if not above(added(degrees), 1) and not axes <= own:
            return varying, factor
        kept: dict[Node, Fraction] = {}
        for gen, p in varying:
            if gen in found:
                held, d = found[gen]
                site = self.unit_site(held)
                power = times(p, d)
                of = (g.power(site.leaf, power), 1) if isinstance(power, Node) else (site.leaf, power)
                factor = factor * nf.generator(*of)
                new = in_unit(gen, site.leaf, d, held.members)
                self.scaled[new] = (gen, site, d)
                self.centred[new] = self.centred.get(gen) or (site, "scale")
                gen = new
            kept[gen] = p
        result = nf.mono(kept)
        assert result is not None
        return result, factor

    def _unit_of(self, gen: Node, beside: frozenset[str]) -> tuple[Unit, Degree] | None:
        if not self.choices.units.found or gen.is_boolean or gen.op == "exp" or gen in self.scaled:
            return None
        site, role = self.centred.get(gen, (None, ""))
        if site is None:
            return self.choices.units.of(gen, beside)
        held = self.choices.units.of(site.choice.generator, beside)
        return held if role == "power" and held is not None and held[1] == 1 else None

    def lifted(self, varying: Mono) -> Node:
        """What is summed; elements are divided by their units before they are multiplied."""
        factors = [g.power(gen, p) for gen, p in varying if gen in self.scaled]
        if not factors:
            return nf.mono_node(varying)
        conditions = [gen for gen, _ in varying if gen.is_boolean]
        plain = nf.mono_node(tuple((gen, p) for gen, p in varying if gen not in self.scaled and not gen.is_boolean))
        factors = factors if plain is g.ONE else [plain, *factors]
        body = factors[0] if len(factors) == 1 else Node("mul", tuple(factors))
        return g.where(g.logical("and", *conditions), body, g.ZERO)

    def at_finite_exponents(self, value: Node) -> Node:
        """NaN where a scalar that is the exponent of a unit is infinite: (x/S)^oo has lost what S^oo would be."""
        powers = {site.leaf: d for _, site, d in self.scaled.values() if isinstance(d, Node)}
        read = [powers[x] for x in g.leaves(value, "state") if x in powers]
        if not read or value.is_boolean:
            return value
        scalars = g.leaves(g.add(*read))
        return g.where(g.logical("and", *map(finite, scalars)), value, g.special("nan"))

    def held(self, slots: Iterable[Slot]) -> list[Held]:
        """What is known of every unit in use and of the state around it."""
        parts = {part: (s, i) for s in slots for i, part in enumerate(s.parts)}
        anchors = {s.name: s.choice.generator for s in self.sites.values() if not s.choice.anchor.divides}
        names = frozenset(s.name for s in self.unit_sites.values())
        return [Held(s.leaf, u.members, names, anchors, parts) for u, s in self.unit_sites.items()]


__all__ = ["Measured"]
