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
from redalg.engine.anchors.units import WHY, Held, Unit, deviation_in_units, in_unit
from redalg.graph import node as g
from redalg.graph.degrees import Degree, above, added, times
from redalg.graph.masked import finite
from redalg.graph.node import Node
from redalg.graph.plan import Slot, UnitAnchor, unit

Powers = tuple[tuple[AnchorSite, Degree], ...]


@dataclass
class Measured(Centred):
    """Centred elements of which some are divided by units."""

    unit_sites: dict[Unit, AnchorSite] = field(default_factory=dict)
    scaled: dict[Node, tuple[Node, Powers]] = field(default_factory=dict)  # c/S^d -> c, and every S with its degree

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
        return [site for gen, _ in varying for site, _ in self.powers_of(gen)]

    def degree_of(self, gen: Node) -> Degree:
        """By which power of its unit a generator is divided; 1 for one that has another scale."""
        return next((d for _, d in self.powers_of(gen)), Fraction(1))

    def powers_of(self, gen: Node) -> Powers:
        """The units that a generator is divided by, with their powers."""
        found = self.scaled.get(gen) or self.scaled.get(g.rename_axes(gen, fresh_axes(gen)))
        return () if found is None else found[1]

    def bare(self, varying: Mono) -> Mono:
        """The monomial without units."""
        found = nf.mono({self.scaled[gen][0] if gen in self.scaled else gen: p for gen, p in varying})
        assert found is not None
        return found

    def in_units(self, varying: Mono, factor: Poly) -> tuple[Mono, Poly]:
        """The powers of a monomial divided by their units; not where that would undo a contraction with other axes."""
        beside = frozenset().union(*(gen.axes for gen, _ in varying))
        found = {gen: u for gen, p in varying if p > 0 and (u := self._units_of(gen, beside))}
        axes = frozenset().union(*(gen.axes for gen, _ in varying)) - frozenset(self.axis)
        own = frozenset().union(*(gen.axes for gen in found))
        degrees = (times(p, d) for gen, p in varying for _, d in found.get(gen, ()))
        if not above(added(degrees), 1) and not axes <= own:
            return varying, factor
        kept: dict[Node, Fraction] = {}
        for gen, p in varying:
            if gen in found:
                for held, d in found[gen]:
                    power, leaf = times(p, d), self.unit_site(held).leaf
                    factor = factor * nf.generator(
                        *((g.power(leaf, power), 1) if isinstance(power, Node) else (leaf, power))
                    )
                gen = self._in_units_of_its_own(gen, found[gen])
            kept[gen] = p
        result = nf.mono(kept)
        assert result is not None
        return result, factor

    def usable(self, site: AnchorSite, target: Node) -> Node:
        """The target of a unit: one whose power, by which deviations are divided, is a normal number as its inverse is.

        Of elements that are 0 (or as small) a unit is the least one, 2^-1022 in float64: its square would be 0.
        """
        total = max((sum(d for _, d in powers) for powers in self._deviating(site)), default=Fraction(0))
        if total <= 1:
            return target
        size = target.args[0]
        least = g.fn("pow2", g.extremum("minimum", size, g.ZERO))
        root = Fraction(1, 2) if total <= 2 else Fraction(1, int(total) + 2)
        return g.fn("pow2", g.extremum("maximum", size, g.power(least, root)))

    def _deviating(self, site: AnchorSite) -> list[list[tuple[AnchorSite, Fraction]]]:
        """The powers of units that deviations are divided by, of those that are divided by this one."""
        found = [(gen, powers) for gen, powers in self.scaled.values() if gen in self.centred]
        held = [[(of, d) for of, d in powers if isinstance(d, Fraction)] for _, powers in found]
        return [powers for powers in held if any(of is site for of, _ in powers)]

    def is_raised(self, body: Node) -> bool:
        """Whether an element is a product or a power of what has units: of a higher degree than one of them."""
        units = self.choices.units
        return above(added(d for _, d in units.all_of(body, units.axes)), 1)

    def _in_units_of_its_own(self, gen: Node, units: tuple[tuple[Unit, Degree], ...]) -> Node:
        """A generator divided by its units."""
        powers = tuple((self.unit_site(held), d) for held, d in units)
        site = self.centred.get(gen)
        if site is None:
            ((held, d),), ((of, _),) = units, powers
            new = in_unit(gen, of.leaf, d, held.members)
            site = (of, "scale")
        else:
            new = deviation_in_units(gen, [(of.leaf, d) for of, d in powers])
        self.scaled[new], self.centred[new] = (gen, powers), site
        return new

    def _units_of(self, gen: Node, beside: frozenset[str]) -> tuple[tuple[Unit, Degree], ...]:
        """The units of a generator: of an element one, of a deviation u - A those of u, in whose powers u is."""
        units = self.choices.units
        if not units.found or gen.is_boolean or gen.op == "exp" or gen in self.scaled:
            return ()
        site, role = self.centred.get(gen, (None, ""))
        if site is None:
            held = units.of(gen, beside)
            return () if held is None else (held,)
        every = units.all_of(site.choice.generator, beside) if role == "power" else ()
        return every if all(isinstance(d, Fraction) for _, d in every) else ()

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
        powers = {of.leaf: d for _, units in self.scaled.values() for of, d in units if isinstance(d, Node)}
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
