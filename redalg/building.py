"""The slot backend: centred generators, slots and their moves (theory, section 3.1).

Centring rewrites every element generator that has an anchor A: x = c + T, e^u = E·e^T, g = c·A, with T the value
the anchor stands for. What is left of a body after that, per monomial of centred generators, is a slot; moving an
anchor by h maps monomials to monomials (binomials, e^{-λh}, ratios), and `closed` adds the slots those images need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import comb
from typing import Any

from redalg import graph as g
from redalg import normal as nf
from redalg.anchoring import Choice, Choices, normalised
from redalg.graph import Node
from redalg.normal import Mono, Poly
from redalg.plan import COUNT, Anchor, Move, Slot, shift
from redalg.separate import EXPONENT, Separator

PARTS = {
    "argmax": ("_value", ""),
    "argmin": ("_value", ""),
    "topk": ("_values", "_indices"),
}


@dataclass
class AnchorSite:
    """An anchor while the plan is being built."""

    choice: Choice
    leaf: Node
    name: str
    axes: tuple[str, ...]


@dataclass
class SlotBackend:
    """Collects slots under centred generators; also the `Centring` of the final analysis."""

    choices: Choices
    axis: tuple[str, ...]
    axis_order: tuple[str, ...]
    averaged_stages: frozenset[Node]
    separator_poly: Callable[[Node], Poly] = lambda _: Poly()
    sites: dict[int, AnchorSite] = field(default_factory=dict)
    centred: dict[Node, tuple[AnchorSite, str]] = field(default_factory=dict)  # generator -> (anchor, role)
    sums: dict[Mono, Slot] = field(default_factory=dict)
    monos: dict[str, Mono] = field(default_factory=dict)
    others: dict[tuple[Any, ...], Slot] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # taken: the count, the spec's tensors, what has been named so far

    @property
    def centring(self) -> SlotBackend:
        return self

    # --- names and axes ---

    def fresh(self, base: str) -> str:
        name, k = base, 1
        while name in self.names or name.endswith(("_a", "_b")):  # these endings name the sides of a combine
            k += 1
            name = f"{base}{k}"
        self.names.add(name)
        return name

    def ordered_axes(self, axes: frozenset[str]) -> tuple[str, ...]:
        known = [a for a in self.axis_order if a in axes]
        return (*known, *sorted(axes - set(known)))

    # --- anchors ---

    def site(self, choice: Choice) -> AnchorSite:
        found = self.sites.get(id(choice))
        if found is None:
            target = choice.target
            axes = (choice.generator.axes - frozenset(self.axis)) | (target.axes if target is not None else frozenset())
            if choice.policy == "mean":
                axes |= nf.mono_node(choice.weights or ()).axes - frozenset(self.axis)
            ordered = self.ordered_axes(axes)
            name = self.fresh(f"A_{_label(choice.generator)}")
            found = AnchorSite(choice, g.state(name, ordered), name, ordered)
            self.sites[id(choice)] = found
        return found

    def value_at(self, site: AnchorSite) -> Poly:
        """What the anchor stands for in the coefficients: the extremum itself, or the anchor's own leaf."""
        if site.choice.policy == "extremum" and site.choice.kind == "add":
            assert site.choice.target is not None
            return self.separator_poly(site.choice.target)
        return nf.generator(site.leaf)

    # --- Centring protocol ---

    def element(self, node: Node) -> Poly | None:
        plain, undo = nf.plain_axes(node)
        choice = self.choices.elements.get(plain)
        if choice is None:
            return None
        site = self.site(choice)
        fresh = {v: k for k, v in undo.items()}
        gen, value = g.sub(plain, site.leaf), self.value_at(site)
        self.centred[gen] = (site, "power")
        if fresh:  # an open contraction reads the same anchor along its own axis
            gen = g.rename_axes(gen, fresh)
            value = Poly({nf.renamed(m, fresh): c for m, c in value.terms.items()})
            self.centred[gen] = (site, "power")
        return nf.generator(gen) + value

    def tie(self, element: Node, stage: Node) -> Node | None:
        site = self.site(self.choices.ties[element, stage])
        gen = g.compare("eq", element, site.leaf)
        self.centred[gen] = (site, "tie")
        return gen

    def cast(self, dtype: str, element: Poly, context: Poly) -> Poly | None:
        big = nf.poly_node(element)
        choice = next((c for (e, _), c in self.choices.casts.items() if e is big), None)
        if choice is None:
            return None
        site = self.site(choice)
        gen = Node("cast", (g.div(big, site.leaf),), dtype)
        self.centred[gen] = (site, "scale")
        assert choice.bound is not None
        return nf.generator(gen) * nf.generator(_unscaled(choice.bound))

    def is_centred(self, node: Node) -> bool:
        return self.role_of(node) is not None

    def role_of(self, gen: Node) -> tuple[AnchorSite, str, dict[str, str]] | None:
        """(anchor, role, renaming of the anchor's axes) of a centred generator, also where it reads other axes."""
        if gen in self.centred:
            return (*self.centred[gen], {})
        names = {a: a.rstrip("'").split("~")[0] for a in gen.axes if a.endswith("'") or "~" in a}
        if not names or len(set(names.values())) < len(names):
            return None
        plain = self.centred.get(g.rename_axes(gen, names))
        return (*plain, {v: k for k, v in names.items()}) if plain else None

    def is_active(self) -> bool:
        return bool(self.choices.elements)

    def moves(self, p: Poly) -> bool:
        """Whether a stage value has a term of the size of the data, which a body's own anchor may cancel.

        Terms with a centred slot in them (residuals, central moments) are of the size of the spread, or less.
        """
        centred = {s.leaf() for s in self.sums.values() if s.anchors and s.average}
        leaves = [{x for gen, _ in m for x in g.leaves(gen, "state") if x is not COUNT} for m in p.terms]
        return any(held and not held & centred for held in leaves)

    def holds_anchor(self, p: Poly) -> bool:
        leaves = {site.leaf for site in self.sites.values()}
        return any(x in leaves for gen in p.generators() for x in g.leaves(gen, "state"))

    # --- terms of a body ---

    def term(self, varying: Mono, separator: Separator) -> tuple[Mono, Poly]:
        """Centre the exponentials and scaled powers of a monomial; the factor goes to the coefficient."""
        factor = nf.constant(1)
        kept: dict[Node, Fraction] = {}
        rates = self._rates(exponent_of(separator, varying))
        for gen, p in varying:
            scale = self.choices.scales.get(gen)
            if gen.op == "exp" and rates and not separator.centring.is_centred(gen):
                continue
            if scale is not None and p >= 2:
                site = self.site(scale)
                new = g.div(gen, site.leaf)
                self.centred[new] = (site, "scale")
                kept[new] = p
                assert scale.bound is not None
                ratio = nf.generator(_unscaled(scale.bound), p)
                factor = factor * ratio * _power(self.separator_poly(scale.bound), p, scale.bound)
            else:
                kept[gen] = kept.get(gen, Fraction(0)) + p
        for choice, lam in rates:
            site = self.site(choice)
            new = g.fn("exp", g.sub(choice.generator, site.leaf))
            self.centred[new] = (site, "exponent")
            kept[new] = lam
            factor = factor * _exp_poly(self.value_at(site).scale(lam))
        result = nf.mono(kept)
        assert result is not None
        return result, factor

    def _rates(self, rate: Poly) -> list[tuple[Choice, Fraction]]:
        """The anchors of an exponent with their coefficients: of the whole, else of its terms."""
        if not rate:
            return []
        pieces = [rate] if len(rate) == 1 or nf.poly_node(normalised(rate)[0]) in self.choices.exponents else [
            nf.from_mono(m, c) for m, c in rate.ordered()
        ]  # fmt: skip
        found = [(self.choices.exponents.get(nf.poly_node(u)), lam) for u, lam in map(normalised, pieces)]
        return [(c, lam) for c, lam in found if c is not None] if all(c for c, _ in found) else []

    def leaf(self, varying: Mono, stage: Node) -> Poly:
        slot = self.sum_slot(varying, average=stage in self.averaged_stages)
        leaf = nf.generator(slot.leaf())
        return leaf * nf.generator(COUNT) if slot.average else leaf

    def sum_slot(self, varying: Mono, average: bool = False) -> Slot:
        found = self.sums.get(varying)
        if found is None:
            found_roles = [r for r in (self.role_of(gen) for gen, _ in varying) if r is not None]
            roles = [role for _, role, _ in found_roles]
            scaled = any(role != "power" for role in roles) or any(gen.op == "exp" for gen, _ in varying)
            about_mean = any(site.choice.policy == "mean" for site, role, _ in found_roles if role == "power")
            average = not scaled and (average or about_mean)
            lift = nf.mono_node(varying)
            name = self.fresh(("avg_" if average else "sum_") + "_".join(self._word(gen, p) for gen, p in varying))
            anchors = tuple(dict.fromkeys(site.name for site, _, _ in found_roles))
            found = Slot(
                name,
                "sum",
                self.ordered_axes(lift.axes - frozenset(self.axis)),
                (lift,),
                (name,),
                domain=_domain(lift),
                anchors=anchors,
                average=average,
            )
            self.sums[varying] = found
            self.monos[name] = varying
        return found

    def _word(self, gen: Node, p: Fraction) -> str:
        found = self.role_of(gen)
        base, role = (found[0].choice.generator, found[1]) if found else (gen, "")
        word = {"exponent": "exp", "tie": "tie"}.get(role, "") or _label(base)
        return word + (str(p) if p != 1 and p.denominator == 1 and p > 0 and role != "exponent" else "")

    def slot(
        self, kind: str, *lift: Node, ignore_nan: bool = False, extra: Any = None, varying: Mono | None = None
    ) -> Node:
        family = "topk" if kind.startswith("topk") else kind
        shared = extra[0] if family == "monoid" else extra
        key = (family, lift, ignore_nan, shared if family != "topk" else extra[0])
        found = self.others.get(key)
        if found is None:
            name = self.fresh(f"{family}_{_label(lift[0])}")
            if family == "monoid":
                parts = tuple(f"{name}_{i}" for i in range(len(lift))) if len(lift) > 1 else (name,)
            else:
                parts = tuple(name + suffix for suffix in PARTS.get(family, ("",)))
            axes = frozenset().union(*(x.axes for x in lift)) - frozenset(self.axis)
            domain = frozenset({"bool"}) if kind in ("any", "all") else _domain(lift[0])
            found = Slot(
                name,
                family,
                self.ordered_axes(axes),
                lift,
                parts,
                domain=domain,
                ignore_nan=ignore_nan,
                extra=shared if family == "monoid" else extra,
            )
            if varying is not None:
                moved = [r[0].name for r in (self.role_of(gen) for gen, _ in varying) if r is not None]
                found = replace(found, anchors=tuple(dict.fromkeys(moved)))
                self.monos[name] = varying
            self.others[key] = found
        part = {"argmax": 1, "argmin": 1, "topk_indices": 1}.get(kind, extra[1] if family == "monoid" else 0)
        leaf = found.leaf(part)
        if family == "topk" and found.extra != extra:  # the same slot read along another name of the new axis
            leaf = g.rename_axes(leaf, {found.extra[1]: extra[1]})  # type: ignore[index]
        return leaf

    # --- moves ---

    def closed(self) -> list[Slot]:
        """All slots with their moves; adds the slots that moves need."""
        done: dict[str, Slot] = {}
        while True:
            todo = [m for m, s in self.sums.items() if s.name not in done]
            if not todo:
                break
            for m in todo:
                slot = self.sums[m]
                done[slot.name] = replace(slot, moves=self._moves(m, slot))
        others = [
            replace(s, moves=self._moves(self.monos[s.name], s)) if s.anchors else s for s in self.others.values()
        ]
        return [*others, *done.values()]

    def _moves(self, m: Mono, slot: Slot) -> tuple[Move, ...]:
        if not slot.anchors:
            return ()
        images: dict[Mono, list[Node]] = {(): [g.ONE]}
        for gen, p in m:
            powers = self._image(gen, p)
            grown: dict[Mono, list[Node]] = {}
            for base, coefficients in images.items():
                for extra, c in powers:
                    product = nf.mono_mul(base, extra)
                    assert product is not None
                    grown.setdefault(product, []).extend(g.mul(k, c) for k in coefficients)
            images = grown
        moves = []
        for image, coefficients in sorted(images.items(), key=lambda t: nf.mono_key(t[0])):
            if slot.kind != "sum":  # scaled by a non-negative factor: the slot itself
                reached = slot
            elif image:
                reached = self.sum_slot(image)
            moves.append(Move(g.add(*coefficients), reached.name if image else "n"))
        return tuple(moves)

    def _image(self, gen: Node, p: Fraction) -> list[tuple[Mono, Node]]:
        found = self.role_of(gen)
        if found is None:
            return [(((gen, p),), g.ONE)]
        site, role, names = found
        h = g.rename_axes(shift(site.name, site.axes), names)
        one: Mono = ((gen, p),)
        if role == "exponent":
            return [(one, g.fn("exp", g.mul(g.const(-p), h)))]
        if role == "tie":
            return [(one, g.where(g.compare("eq", h, g.ZERO), g.ONE, g.ZERO))]
        if role == "scale":
            return [(one, g.power(h, p))]
        k = int(p)
        out: list[tuple[Mono, Node]] = []
        for i in range(k + 1):
            power: Mono = ((gen, Fraction(i)),) if i else ()
            out.append((power, g.mul(g.const(comb(k, i)), g.power(g.neg(h), k - i))))
        return out

    def anchors(self, separator: Separator, emit: Callable[[Node], Node]) -> list[Anchor]:
        """The anchors in use, with target or shift over slots."""
        out: list[Anchor] = []
        while len(out) < len(self.sites):  # weights may bring their own anchors
            site = list(self.sites.values())[len(out)]
            c = site.choice
            target = emit(c.target) if c.target is not None else None
            move = None
            if c.policy == "mean":
                weights, _ = self.term(c.weights or nf.UNIT, separator)
                gen = g.sub(c.generator, site.leaf)
                self.centred[gen] = (site, "power")
                top = self.sum_slot(nf.mono_mul(weights, ((gen, Fraction(1)),)) or nf.UNIT)
                move = self._ratio(top, weights)
            out.append(Anchor(site.name, site.axes, c.kind, emit(c.generator), c.policy, target, move, c.why))
        return out

    def _ratio(self, top: Slot, weights: Mono) -> Node:
        if not weights:
            return top.leaf() if top.average else g.div(top.leaf(), COUNT)
        bottom = self.sum_slot(weights)
        n = {(True, False): COUNT, (False, True): g.power(COUNT, -1)}.get((top.average, bottom.average), g.ONE)
        return g.mul(n, g.div(top.leaf(), bottom.leaf()))


def exponent_of(separator: Separator, m: Mono) -> Poly:
    total = Poly()
    for gen, p in m:
        if gen.op == "exp" and not separator.centring.is_centred(gen):
            total = total + separator.poly(gen.args[0], EXPONENT).scale(p)
    return total


def _unscaled(bound: Node) -> Node:
    """scale / bound: 1, since the scale is the bound, except for rows of zeros, where the definition divides by 0."""
    return g.where(g.compare("eq", bound, g.ZERO), g.power(bound, -1), g.ONE)


def _power(p: Poly, e: Fraction, node: Node) -> Poly:
    one = p.single()
    return nf.from_mono(nf.mono_pow(one[1], e)) if one is not None and one[0] == 1 else nf.generator(node, e)


def _exp_poly(p: Poly) -> Poly:
    """exp of a polynomial as a monomial of exponential generators."""
    out = nf.constant(1)
    for m, c in p.ordered():
        out = out * nf.generator(g.fn("exp", nf.mono_node(m)), c)
    return out


def _domain(lift: Node) -> frozenset[str]:
    complex_ = any("complex" in leaf.attr.domain for leaf in g.leaves(lift))
    return frozenset({"complex"}) if complex_ and lift.op not in ("abs", "re", "im") else frozenset()


def _label(node: Node) -> str:
    names = [leaf.attr.name for leaf in g.leaves(node)]
    if node.op == "tensor":
        return str(names[0])
    if node.op in ("abs", "log", "sin", "cos", "relu", "cast") or node.is_boolean:
        return f"{'if' if node.is_boolean else node.op}_{names[0] if names else 'j'}"
    return names[0] if len(set(names)) == 1 else "u" if names else "c"


__all__ = ["AnchorSite", "SlotBackend", "exponent_of"]
