"""Centred elements: what stands for a generator that has an anchor (theory, section 3.1).

Centring rewrites every element generator that has an anchor A: x = c + T, e^u = E·e^T, g = c·A, with T the value the
anchor stands for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Poly
from redalg.algebra.scope import beside
from redalg.engine.anchors.choices import Choice, Choices, TargetChoice
from redalg.graph import node as g
from redalg.graph.node import Node
from redalg.graph.plan import UnitAnchor

# The roles of elements at an extremum, strictly inside it, and not at it.
BESIDE = {("eq", "max"): "tie", ("eq", "min"): "tie", ("lt", "max"): "below", ("lt", "min"): "above"}
BESIDE |= {("ne", "max"): "apart", ("ne", "min"): "apart"}
# What stands behind the name of a slot or an anchor: the sides of a combine, parts, values on the way to another.
ENDINGS = re.compile(r"_(a|b|new|other|best|some|start|values?|indices|(seen|first)\d*)$")


@dataclass
class AnchorSite:
    """An anchor while the plan is being built."""

    choice: Choice
    leaf: Node
    name: str
    axes: tuple[str, ...]


@dataclass
class Centred:
    """The anchors in use and the generators they centre; the `Centring` of the final analysis."""

    choices: Choices
    axis: tuple[str, ...]
    axis_order: tuple[str, ...]
    separator_poly: Callable[[Node], Poly] = lambda _: Poly()
    sites: dict[int, AnchorSite] = field(default_factory=dict)
    centred: dict[Node, tuple[AnchorSite, str]] = field(default_factory=dict)  # generator -> (anchor, role)
    tied: dict[Node, Node] = field(default_factory=dict)  # how elements lie to an extremum -> the event that they tie
    names: set[str] = field(default_factory=set)  # taken: the count, the spec's tensors, what has been named so far

    # --- names and axes ---

    def fresh(self, base: str) -> str:
        name, k = base, 1
        while name in self.names or ENDINGS.search(name):
            k += 1
            name = f"{base}_{k}" if ENDINGS.search(f"{base}{k}") else f"{base}{k}"
        self.names.add(name)
        return name

    def ordered_axes(self, axes: frozenset[str]) -> tuple[str, ...]:
        known = [a for a in self.axis_order if a in axes]
        return (*known, *sorted(axes - set(known)))

    # --- anchors ---

    def site(self, choice: Choice) -> AnchorSite:
        found = self.sites.get(id(choice))
        if found is None:
            ordered = self.ordered_axes(choice.axes(self.axis))
            name = self.fresh(f"A_{label(choice.generator)}")
            found = AnchorSite(choice, g.state(name, ordered), name, ordered)
            self.sites[id(choice)] = found
        return found

    def value_at(self, site: AnchorSite) -> Poly:
        """What the anchor stands for in the coefficients: the extremum itself, or the anchor's own leaf."""
        choice = site.choice
        if isinstance(choice, TargetChoice) and not choice.anchor.divides:
            return self.separator_poly(choice.target)
        return nf.generator(site.leaf)

    # --- Centring protocol ---

    def element(self, node: Node, stage: Node | None) -> Poly | None:
        """An element that stands alone, as c + A."""
        plain, undo = nf.plain_axes(node)
        choice = self.choices.element(plain, stage)
        return None if choice is None else self._centred(choice, undo)

    def deviation(self, node: Node, stage: Node | None) -> Poly | None:
        """The elements of a sum of elements and stage values, as c + A."""
        plain, undo = nf.plain_axes(node)
        choice = self.choices.deviations.get((stage, plain)) if stage is not None else None
        return None if choice is None else self._centred(choice, undo)

    def factor(self, node: Node, stage: Node | None) -> Node | None:
        """The product of elements in a larger one that is centred as a value, with the axis names of the larger one."""
        plain, undo = nf.plain_axes(node)
        for x in self.choices.elements:
            if x.op == "mul" and x is not plain and set(x.args) < set(plain.args) and self.choices.element(x, stage):
                return g.rename_axes(x, {v: k for k, v in undo.items()})
        return None

    def _centred(self, choice: Choice, undo: dict[str, str]) -> Poly:
        site = self.site(choice)
        gen, value = g.sub(choice.generator, site.leaf), self.value_at(site)
        self.centred[gen] = (site, "power")
        fresh = {v: k for k, v in undo.items() if v in choice.generator.axes | set(site.axes)}
        if fresh:  # an open contraction reads the same anchor along its own axis
            gen = g.rename_axes(gen, fresh)
            value = Poly({nf.renamed(m, fresh): c for m, c in value.terms.items()})
            self.centred[gen] = (site, "power")
        return nf.generator(gen) + value

    def tie(self, element: Node, stage: Node, op: str) -> Node:
        site = self.site(self.choices.ties[element, stage])
        kind = stage.attr.kind
        gen, tie = beside(op, element, site.leaf, kind), beside("eq", element, site.leaf, kind)
        self.centred |= {tie: (site, "tie"), gen: (site, BESIDE[op, kind])}
        self.tied |= {tie: tie, gen: tie}
        return gen

    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None:
        big = nf.poly_node(element)
        choice = next((c for (e, _), c in self.choices.casts.items() if e is big), None)
        if choice is None:
            return None
        site = self.site(choice)
        gen = Node("cast", (g.div(big, site.leaf),), dtype)
        self.centred[gen] = (site, "scale")
        return nf.generator(gen) * nf.generator(unscaled(choice.bound))

    def is_centred(self, node: Node) -> bool:
        return self.role_of(node) is not None

    def role_of(self, gen: Node) -> tuple[AnchorSite, str, dict[str, str]] | None:
        """(anchor, role, renaming of the anchor's axes) of a centred generator, also where it reads other axes."""
        if gen in self.centred:
            return (*self.centred[gen], {})
        names = fresh_axes(gen)
        if not names or len(set(names.values())) < len(names):
            return None
        plain = self.centred.get(g.rename_axes(gen, names))
        return (*plain, {v: k for k, v in names.items()}) if plain else None

    def is_active(self) -> bool:
        return bool(self.choices.elements)

    def holds_anchor(self, p: Poly) -> bool:
        leaves = {site.leaf for site in self.sites.values() if site.choice.anchor is not UnitAnchor}
        return any(x in leaves for gen in p.generators() for x in g.leaves(gen, "state"))


def fresh_axes(gen: Node) -> dict[str, str]:
    """The axes that a generator reads under other names, with their own."""
    return {a: a.rstrip("'").split("~")[0] for a in gen.axes if a.endswith("'") or "~" in a}


def unscaled(bound: Node) -> Node:
    """scale / bound: 1, since the scale is the bound, except for rows of zeros, where the definition divides by 0."""
    return g.where(g.compare("eq", bound, g.ZERO), g.power(bound, -1), g.ONE)


def label(node: Node) -> str:
    names = [leaf.attr.name for leaf in g.leaves(node)]
    if node.op == "tensor":
        return str(names[0])
    if node.op in ("abs", "log", "sin", "cos", "relu", "cast") or node.is_boolean:
        return f"{'if' if node.is_boolean else node.op}_{names[0] if names else 'j'}"
    return names[0] if len(set(names)) == 1 else "u" if names else "c"


__all__ = ["AnchorSite", "Centred", "fresh_axes", "label", "unscaled"]
