"""The slot backend: slots of centred generators, and their moves (theory, section 3.1).

What is left of a body after centring, per monomial of centred generators, is a slot; moving an anchor by h maps
monomials to monomials (binomials, e^{-λh}, ratios), and `closed` adds the slots those images need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from math import comb
from operator import or_
from typing import Any

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly
from redalg.algebra.work import MOVES, SLOTS, spend, within
from redalg.engine.anchors import ratios
from redalg.engine.anchors.centred import BESIDE, AnchorSite, label, unscaled
from redalg.engine.anchors.choices import TargetChoice, WeightedChoice
from redalg.engine.anchors.locations import exponentials_of
from redalg.engine.anchors.measured import Measured
from redalg.engine.anchors.policy import mask_of, normalised, tensors_of, weight_of
from redalg.engine.rules.cascade import may_lack
from redalg.engine.rules.separate import EXPONENT, Separator
from redalg.graph import node as g
from redalg.graph.degrees import as_node, times
from redalg.graph.node import Node
from redalg.graph.operators import Additive, Average, Custom, Operator, Position, Quantifier, Sum, TopK, operator
from redalg.graph.plan import COUNT, Anchor, MeanAnchor, Move, Slot, UnitAnchor, shift

COUNTS = "counts"  # the role of conditions that select elements of some weight
DATA, SPREAD = 1, 2  # what parts of a state are as large as: bits, for a value may read several


@dataclass
class SlotBackend(Measured):
    """Collects slots under centred generators."""

    averaged_stages: frozenset[Node] = frozenset()
    sums: dict[Mono, Slot] = field(default_factory=dict)
    monos: dict[str, Mono] = field(default_factory=dict)
    others: dict[tuple[Any, ...], Slot] = field(default_factory=dict)
    counted: dict[str, tuple[AnchorSite, Node]] = field(default_factory=dict)  # product -> anchor, number of factors
    apart: dict[Node, None] = field(default_factory=dict)  # what products multiply for want of an anchor
    paced: dict[Node, tuple[Node, Node]] = field(default_factory=dict)  # e^(k(v-A)) -> the exponent k·v, and k
    growing: dict[Node, Node] = field(default_factory=dict)  # e^(k(u-A)) - 1 -> k
    moved: int = 0  # terms in all moves
    sized: dict[Node, int] = field(default_factory=dict)  # what `_size_below` found

    @property
    def centring(self) -> SlotBackend:
        return self

    def without_growths(self) -> SlotBackend:
        """The same anchors and slots for a cascade that leaves every e^(u-A) whole."""
        return replace(self, choices=replace(self.choices, growths={}))

    def moves(self, p: Poly) -> bool:
        """Whether a stage value has a term of the size of the data, which a body's own anchor may cancel.

        Terms with a centred slot in them (residuals, central moments) are of the size of the spread, or less.
        """
        return any(self._sizes(m) == {DATA} for m in p.terms)

    def _sizes(self, m: Mono) -> set[int]:
        """What the parts of a state in a monomial are as large as: of a difference (A + residual - D) those of a term
        as large as the data, if it has one."""
        found: set[int] = set()
        for gen, _ in m:
            terms = [self._size_below(t) for t in (gen.args if gen.op == "add" else (gen,))]
            found |= {DATA} if DATA in terms else {size for held in terms for size in (DATA, SPREAD) if held & size}
        return found

    def _size_below(self, root: Node) -> int:
        """What the parts of a state below a node are as large as, bits; each node is looked at once."""
        held = self.sized
        for n in g.walk(root, done=held):
            if n.op == "state":
                held[n] = 0 if n is COUNT else SPREAD if self._is_centred(n) else DATA
            else:
                held[n] = reduce(or_, (held[a] for a in n.args), 0)
        return held[root]

    def _is_centred(self, part: Node) -> bool:
        slot = self.sums.get(self.monos[part.attr.name]) if part.attr.name in self.monos else None
        return slot is not None and bool(slot.anchors) and slot.average and slot.leaf() is part

    # --- terms of a body ---

    def terms(self, varying: Mono, separator: Separator, stage: Node) -> list[tuple[Mono, Poly]]:
        """A monomial of a sum's body over centred generators; e^(u-A) as (e^(u-A) - 1) + 1 where it is near 1."""
        centred, factor = self.term(varying, separator)
        found = self._grown(varying, centred, factor, stage) or [(centred, factor)]
        beside = exponentials_of(nf.plain(varying))
        whole = {x for s, x, e in self.choices.uncentred if s is stage and e == beside}
        return [t for m, f in found for t in self._uncentred(m, f, whole)] if whole else found

    def _grown(self, varying: Mono, centred: Mono, factor: Poly, stage: Node) -> list[tuple[Mono, Poly]] | None:
        """The terms of a monomial with an exponential that is near 1; None of others."""
        for gen, p in centred:
            found = self.role_of(gen)
            if found is None or found[1] != "exponent":
                continue
            site, _, names = found
            u, pace = self.pace(gen, site, names)
            plain = nf.plain(varying)
            unit = self.choices.growth(stage, u, mask_of(plain, self), tensors_of(weight_of(plain)))
            if unit is not None and (p / unit).denominator == 1:
                growth, k = g.rename_axes(self.growth_about(site, g.mul(g.const(unit), pace)), names), int(p / unit)
                rest = tuple(t for t in centred if t[0] is not gen)
                powers = [
                    nf.mono_mul(rest, ((growth, Fraction(i)),)) if i else self._of_all(rest) for i in range(k + 1)
                ]
                return [(m, factor.scale(Fraction(comb(k, i)))) for i, m in enumerate(powers) if m is not None]
        return None

    def of_all(self, m: Mono) -> Mono:
        """A monomial without conditions that only tell elements of some weight from others."""
        return tuple(t for t in m if (r := self.role_of(t[0])) is None or r[1] != COUNTS)

    def _of_all(self, m: Mono) -> Mono:
        """The same where no exponential needs them any more."""
        roles = (self.role_of(gen) for gen, _ in m)
        return m if any(r is not None and r[1] in ("exponent", "growth") for r in roles) else self.of_all(m)

    def _uncentred(self, m: Mono, factor: Poly, whole: set[Node]) -> list[tuple[Mono, Poly]]:
        """Powers of x - A as polynomials of x again, where there is an exponential beside them still."""
        roles = {gen: self.role_of(gen) for gen, _ in m}
        if not any(r is not None and r[1] in ("exponent", "growth") for r in roles.values()):
            return [(m, factor)]
        found = [(nf.UNIT, factor)]
        for gen, p in m:
            pieces = self._pieces(gen, p, whole)
            found = [(_product(e, piece), f * c) for e, f in found for piece, c in pieces]
        return [self.in_units(e, f) for e, f in found]

    def _pieces(self, gen: Node, p: Fraction, whole: set[Node]) -> list[tuple[Mono, Poly]]:
        """(x - A)^p as Σ binomial·x^i·(-A)^(p-i) for an x that stays whole; anything else as it is."""
        found = self.role_of(gen)
        if found is None or found[1] != "power" or found[0].choice.generator not in whole or p.denominator != 1:
            return [(((gen, p),), nf.constant(1))]
        (site, _, names), powers = found, self.powers_of(gen)
        units = {g.rename_axes(of.leaf, names): -p * d for of, d in powers if isinstance(d, Fraction)}
        if len(units) < len(powers):
            return [(((gen, p),), nf.constant(1))]
        x, away = (g.rename_axes(node, names) for node in (site.choice.generator, site.leaf))
        minus, k, scale = -nf.generator(away), int(p), nf.from_mono(nf.mono(units) or nf.UNIT)
        return [
            (((x, Fraction(i)),) if i else nf.UNIT, scale * (minus ** (k - i)).scale(Fraction(comb(k, i))))
            for i in range(k + 1)
        ]

    def pace(self, gen: Node, site: AnchorSite, names: dict[str, str]) -> tuple[Node, Node]:
        """The exponent that an exponential is of, and what its deviation from the anchor is multiplied by."""
        own = g.rename_axes(gen, {v: k for k, v in names.items()})
        return self.paced.get(own, (site.choice.generator, g.ONE))

    def growth(self, gen: Node, rate: Fraction) -> Node:
        """e^(k·rate·(v-A)) - 1 for a centred exponential e^(k·(v-A))."""
        found = self.role_of(gen)
        assert found is not None
        site, _, names = found
        return g.rename_axes(self.growth_about(site, g.mul(g.const(rate), self.pace(gen, site, names)[1])), names)

    def growth_about(self, site: AnchorSite, unit: Node) -> Node:
        """e^(u-A) - 1, also for an element that is -oo where the anchor is."""
        u = site.choice.generator
        difference = g.fn("expm1", g.mul(unit, g.sub(u, site.leaf)))
        growth = g.where(g.compare("eq", u, g.NEG_INF), g.MINUS_ONE, difference)
        self.centred[growth] = (site, "growth")
        self.growing[growth] = unit
        return growth

    def term(self, varying: Mono, separator: Separator) -> tuple[Mono, Poly]:
        """Centre the exponentials and scaled powers of a monomial; the factor goes to the coefficient."""
        _, undo = nf.plain_axes(nf.mono_node(varying))
        if undo:
            fresh = {v: k for k, v in undo.items()}
            plain, factor = self.term(nf.renamed(varying, undo), separator)
            return nf.renamed(plain, fresh), Poly({nf.renamed(m, fresh): c for m, c in factor.terms.items()})
        factor = nf.constant(1)
        kept: dict[Node, Fraction] = {}
        rates, units = self._rates(exponent_of(separator, varying), mask_of(varying, self)), self.choices.units
        for gen, p in varying:
            scale = self.choices.scales.get(gen) if units.of(gen, units.axes) is None else None
            if gen.op == "exp" and rates and not separator.centring.is_centred(gen):
                continue
            if scale is not None and p >= 2:
                site = self.site(scale)
                new = g.div(gen, site.leaf)
                self.centred[new] = (site, "scale")
                kept[new] = p
                ratio = nf.generator(unscaled(scale.bound), p)
                factor = factor * ratio * _power(self.separator_poly(scale.bound), p, scale.bound)
            else:
                kept[gen] = kept.get(gen, Fraction(0)) + p
        for choice, u, pace, lam in rates:
            site, value = self.site(choice), nf.constant(lam)
            new = g.fn("exp", g.mul(pace, g.sub(choice.generator, site.leaf)))
            self.centred[new] = (site, "exponent")
            if isinstance(choice, WeightedChoice):
                self.centred[choice.counts] = (site, COUNTS)
                kept[choice.counts] = Fraction(1)
            if pace is not g.ONE:
                self.paced[new] = u, pace
                value = self.separator_poly(pace).scale(lam)
            kept[new] = lam
            factor = factor * _exp_poly(self.value_at(site) * value)
        result = nf.mono(kept)
        assert result is not None
        return self.in_units(result, factor)

    def _rates(self, rate: Poly, mask: Node) -> list[tuple[TargetChoice, Node, Node, Fraction]]:
        """The anchors of an exponent, of the whole or of its terms, with what they are of, paces and coefficients."""
        if not rate:
            return []
        whole = len(rate) == 1 or self.choices.exponent(nf.poly_node(normalised(rate)[0]), mask) is not None
        pieces = [rate] if whole else [nf.from_mono(m, c) for m, c in rate.ordered()]
        nodes = [(nf.poly_node(u), lam) for u, lam in map(normalised, pieces)]
        found = [(self.choices.exponent(u, mask), u, self.choices.pace(u, mask), lam) for u, lam in nodes]
        known = [(choice, u, pace, lam) for choice, u, pace, lam in found if choice is not None]
        return known if len(known) == len(found) else []

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
            about_mean = any(site.choice.anchor is MeanAnchor for site, role, _ in found_roles if role == "power")
            average = not scaled and (average or about_mean)
            lift = self.lifted(varying)
            words = (self._word(gen, p) for gen, p in self.of_all(varying))
            name = self.fresh(("avg_" if average else "sum_") + "_".join(words))
            sites = [*(site for site, _, _ in found_roles), *self.units_in(varying)]
            anchors = tuple(dict.fromkeys(site.name for site in sites))
            axes = self.ordered_axes(lift.axes - frozenset(self.axis))
            found = Slot(name, (Sum(), Average())[average], axes, (lift,), (name,), _domain(lift), anchors)
            self.sums[varying] = found
            self.monos[name] = varying
            within(len(self.sums), SLOTS, "slots in one pass")
        return found

    def _word(self, gen: Node, p: Fraction) -> str:
        found = self.role_of(gen)
        base, role = (found[0].choice.generator, found[1]) if found else (gen, "")
        word = "exp" if role == "exponent" else role if role in BESIDE.values() else label(base)
        return word + (str(p) if p != 1 and p.denominator == 1 and p > 0 and role != "exponent" else "")

    def slot(
        self, kind: str, *lift: Node, ignore_nan: bool = False, extra: Any = None, varying: Mono | None = None
    ) -> Node:
        op = operator(kind, "ignore_nan" if ignore_nan else extra)
        key = (replace(op, axis="") if isinstance(op, TopK) else op, lift)
        found = self.others.get(key)
        if found is None:
            found = self._other(op, lift)
            if varying is not None:
                moved = [r[0].name for r in (self.role_of(gen) for gen, _ in varying) if r is not None]
                found = replace(found, anchors=tuple(dict.fromkeys(moved)))
                self.monos[found.name] = varying
            self.others[key] = found
        leaf = found.leaf(extra[1] if isinstance(op, Custom) else int(kind in g.POSITIONS))
        if isinstance(op, TopK):  # the same slot may be read along another name of the new axis
            leaf = g.rename_axes(leaf, {leaf.attr.axes[-1]: op.axis})
        return leaf

    def _other(self, op: Operator, lift: tuple[Node, ...]) -> Slot:
        """A slot that is no sum, under a fresh name."""
        name = self.fresh(f"{op.kind}_{label(lift[0])}")
        axes = self.ordered_axes(frozenset().union(*(x.axes for x in lift)) - frozenset(self.axis))
        domain = frozenset({"bool"}) if isinstance(op, Quantifier) else _domain(lift[0])
        return Slot(name, op, axes, lift, _parts(name, op, len(lift)), domain)

    def ratio(self, varying: Node, fixed: Node, mask: Node | None, count: Node) -> Node | None:
        """Π x·h over the elements under a mask, held as P = Π x/A at A = 1/h; `count`: how many they are.

        It moves by (A/A')^count. Where 1/h is no number, or 0, A is the largest |x| and h·A stands outside the product.
        """
        if not ratios.has_anchor(varying, fixed) or not self._counts(count):
            self.apart[varying] = None
            return None
        size = g.fn("abs", varying)
        largest = self.slot("max", size if mask is None else g.where(mask, size, g.ZERO))
        site = self.site(self.choices.shared(ratios.centre(varying, fixed, largest)))
        lift = g.div(varying, site.leaf)
        leaf = self.slot("prod", lift if mask is None else g.where(mask, lift, g.ONE))
        key = next(k for k, s in self.others.items() if s.parts[0] == leaf.attr.name)
        self.others[key] = replace(self.others[key], anchors=(site.name,))
        self.counted[self.others[key].name] = (site, count)
        return g.mul(leaf, g.power(ratios.outside(fixed, count, site.leaf), count))

    def _counts(self, count: Node) -> bool:
        """Whether a node is the count, or a sum over the elements that no anchor moves."""
        held = {s.leaf(): s for s in self.sums.values() if not s.average and not s.anchors}
        return count is COUNT or count in held

    def may_lack(self, value: Node) -> bool:
        """Whether a value is an extremum, held in a slot or not, of elements that may all be infinite."""
        if value.op != "state":
            return may_lack(value)
        held = next((s for s in self.others.values() if value.attr.name in s.parts), None)
        return held is not None and any(n.op == "special" for n in g.walk(held.lift[0]))

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
            replace(s, moves=self._moves(self.monos.get(s.name, ()), s)) if s.anchors else s
            for s in self.others.values()
        ]
        return [*others, *done.values()]

    def _moves(self, m: Mono, slot: Slot) -> tuple[Move, ...]:
        if not slot.anchors:
            return ()
        if slot.name in self.counted:
            site, count = self.counted[slot.name]
            return (Move(g.power(shift(site.name, site.axes), count), slot.name),)
        images: dict[Mono, list[Node]] = {(): [g.ONE]}
        for gen, p in m:
            powers = self._image(gen, p)
            spend(len(images) * len(powers))
            grown: dict[Mono, list[Node]] = {}
            for base, coefficients in images.items():
                for extra, c in powers:
                    product = nf.mono_mul(base, extra)
                    assert product is not None
                    grown.setdefault(product, []).extend(_times(k, c) for k in coefficients)
            images = grown
        images = self._gathered(images)
        self.moved += len(images)
        within(self.moved, MOVES, "terms in the moves of one pass")
        moves = []
        for image, coefficients in sorted(images.items(), key=lambda t: nf.mono_key(t[0])):
            if not isinstance(slot.op, Additive):  # scaled by a non-negative factor: the slot itself
                reached = slot
            elif image:
                reached = self.sum_slot(image)
            moves.append(Move(_total(coefficients), reached.name if image else "n"))
        return tuple(moves)

    def _gathered(self, images: dict[Mono, list[Node]]) -> dict[Mono, list[Node]]:
        """Images without conditions that make no difference: where no weight is, nothing is summed."""
        found: dict[Mono, list[Node]] = {}
        for m, coefficients in images.items():
            found.setdefault(self._of_all(m) if self.is_weighed(m) else m, []).extend(coefficients)
        return found

    def is_weighed(self, m: Mono) -> bool:
        """Whether a monomial is 0 wherever a condition of its own says that an element does not count."""
        held = {gen for gen, _ in m}
        sites = (r[0].choice for gen, _ in m if (r := self.role_of(gen)) is not None and r[1] == COUNTS)
        return all(isinstance(c, WeightedChoice) and any(w <= held for w in c.weights) for c in sites)

    def _image(self, gen: Node, p: Fraction) -> list[tuple[Mono, Node]]:
        found = self.role_of(gen)
        if found is None:
            return [(((gen, p),), g.ONE)]
        site, role, names = found
        h = g.rename_axes(shift(site.name, site.axes), names)
        one: Mono = ((gen, p),)
        if role == "exponent":
            _, pace = self.pace(gen, site, names)
            return [(one, g.fn("exp", g.mul(g.const(-p), g.rename_axes(pace, names), h)))]
        if role == COUNTS:
            return [(one, g.ONE)]
        if role in BESIDE.values():
            return self._image_beside(gen, role, h, names)
        if role == "scale":
            return [(one, g.power(h, times(p, self.degree_of(gen))))]
        if role == "growth":  # e^(u-A') - 1 = e^-h·(e^(u-A) - 1) + (e^-h - 1)
            pace = self.growing[g.rename_axes(gen, {v: k for k, v in names.items()})]
            rate = g.mul(g.MINUS_ONE, g.rename_axes(pace, names), h)
            moved, apart = g.fn("exp", rate), g.fn("expm1", rate)
            return [
                (
                    ((gen, Fraction(i)),) if i else (),
                    g.mul(g.const(comb(int(p), i)), g.power(moved, i), g.power(apart, int(p) - i)),
                )
                for i in range(int(p) + 1)
            ]
        k, ratio = int(p), g.ONE
        for of, d in self.powers_of(gen):  # (u - A')/S'^d = (S/S')^d·(u - A)/S^d - h/S'^d
            unit_leaf, moved = (g.rename_axes(x, names) for x in (of.leaf, shift(of.name, of.axes)))
            h, ratio = g.div(h, g.power(unit_leaf, as_node(d))), g.mul(ratio, g.power(moved, as_node(d)))
        out: list[tuple[Mono, Node]] = []
        for i in range(k + 1):
            power: Mono = ((gen, Fraction(i)),) if i else ()
            out.append((power, g.mul(g.const(comb(k, i)), g.power(ratio, i), g.power(g.neg(h), k - i))))
        return out

    def _image_beside(self, gen: Node, role: str, h: Node, names: dict[str, str]) -> list[tuple[Mono, Node]]:
        """Ties stay ties while the extremum stays; when another one comes they flow into what is strictly inside.

        To a NaN no element is tied, and none lies inside.
        """
        plain = g.rename_axes(gen, {v: k for k, v in names.items()})
        tie: Mono = ((g.rename_axes(self.tied[plain], names), Fraction(1)),)
        own: Mono = ((gen, Fraction(1)),)
        if role == "tie":
            return [(own, g.where(g.compare("eq", h, g.ZERO), g.ONE, g.ZERO))]
        if role == "apart":
            return [(own, g.ONE), (tie, g.where(Node("ne", (h, g.ZERO)), g.ONE, g.ZERO))]
        outward = (g.ZERO, h) if role == "below" else (h, g.ZERO)
        return [
            (own, g.where(g.compare("le", *outward), g.ONE, g.ZERO)),
            (tie, g.where(g.compare("lt", *outward), g.ONE, g.ZERO)),
        ]

    def anchors(self, separator: Separator, emit: Callable[[Node], Node]) -> list[Anchor]:
        """The anchors in use, with target or shift over slots."""
        out: list[Anchor] = []
        while len(out) < len(self.sites):  # weights may bring their own anchors
            site = list(self.sites.values())[len(out)]
            c = site.choice
            if isinstance(c, TargetChoice):
                target = emit(c.target)
                target = self.usable(site, target) if c.anchor is UnitAnchor else target
                out.append(c.anchor(site.name, site.axes, emit(c.generator), target, c.why))
            else:
                weights, _ = self.term(self._current(c.weights, separator), separator)
                _, of_weights = self.in_units(self.bare(weights), nf.constant(1))
                gen = g.sub(c.generator, site.leaf)
                self.centred[gen] = (site, "power")
                bare = nf.mono_mul(self.bare(weights), ((gen, Fraction(1)),))
                whole, of_whole = self.in_units(bare or nf.UNIT, nf.constant(1))
                unit = g.div(nf.poly_node(of_whole), nf.poly_node(of_weights))
                step = g.mul(unit, self._ratio(self.sum_slot(whole), weights))
                out.append(MeanAnchor(site.name, site.axes, emit(c.generator), step, c.why))
        return out

    def _current(self, weights: Mono, separator: Separator) -> Mono:
        """Weights over anchors: of elements at an extremum, those at the present one count."""
        found: Mono = nf.UNIT
        for gen, p in weights:
            mixed = bool(self.choices.ties) and any(n.op == "reduce" for n in g.walk(gen))
            one = separator.poly(gen).single() if mixed else None
            product = nf.mono_mul(found, one[1] if one is not None else ((gen, p),))
            assert product is not None
            found = product
        return found

    def _ratio(self, top: Slot, weights: Mono) -> Node:
        if not weights:
            return top.leaf() if top.average else g.div(top.leaf(), COUNT)
        bottom = self.sum_slot(weights)
        n = {(True, False): COUNT, (False, True): g.power(COUNT, -1)}.get((top.average, bottom.average), g.ONE)
        return g.mul(n, g.div(top.leaf(), bottom.leaf()))


def _product(a: Mono, b: Mono) -> Mono:
    product = nf.mono_mul(a, b)
    assert product is not None
    return product


def _times(a: Node, b: Node) -> Node:
    """The product. Quotients by units are taken before they meet: of h_x·h_z/(S_x·S_z) what is divided may leave the
    range though each h/S is far from its ends."""
    if g.ONE in (a, b):
        return b if a is g.ONE else a
    return Node("mul", (a, b)) if _divides(a) and _divides(b) else g.mul(a, b)


def _total(coefficients: list[Node]) -> Node:
    """The sum; products that keep their order are no like terms."""
    if len(coefficients) < 2:
        return coefficients[0]
    kept = any(f.op == "mul" for c in coefficients if c.op == "mul" for f in c.args)
    return Node("add", tuple(coefficients)) if kept else g.add(*coefficients)


def _divides(node: Node) -> bool:
    return any(g.is_inverse(n) for n in g.walk(node))


def _parts(name: str, op: Operator, width: int) -> tuple[str, ...]:
    if isinstance(op, Position):
        return (f"{name}_value", name)
    if isinstance(op, TopK):
        return (f"{name}_values", f"{name}_indices")
    return tuple(f"{name}_{i}" for i in range(width)) if width > 1 else (name,)


def exponent_of(separator: Separator, m: Mono) -> Poly:
    total = Poly()
    for gen, p in m:
        if gen.op == "exp" and not separator.centring.is_centred(gen):
            total = total + separator.poly(gen.args[0], EXPONENT).scale(p)
    return total


def _power(p: Poly, e: Fraction, node: Node) -> Poly:
    one = p.single()
    if one is None or one[0] != 1 or nf.divides_by_condition(one[1], e):
        return nf.generator(node, e)
    return nf.from_mono(nf.mono_pow(one[1], e))


def _exp_poly(p: Poly) -> Poly:
    """exp of a polynomial as a monomial of exponential generators."""
    out = nf.constant(1)
    for m, c in p.ordered():
        out = out * nf.generator(g.fn("exp", nf.mono_node(m)), c)
    return out


def _domain(lift: Node) -> frozenset[str]:
    return frozenset({"complex"}) if nf.may_be_complex(lift) else frozenset()


__all__ = ["SlotBackend", "exponent_of"]
