"""Sums of exponentials less 1, by how far these are from 1 at the anchor, or as they are (theory, section 3.3).

A stage Σ w·(e^(u-D) - 1) has two forms over slots that are centred on A, the largest u:

    e^(A-D)·Σ w·(e^(u-A) - 1) + (e^(A-D) - 1)·Σ w       and       e^(A-D)·Σ w·e^(u-A) - Σ w.

Where A is near D, the first has the digits of every u - D, which the second has lost. Where A lies far above D, both of
its terms are as large as e^(A-D)·Σ w, and they cancel but for what the elements at A add, which have little weight or
are few. In general a stage is Σ_r h_r·Σ w·e^(r·(u-A)), and the first form has Σ_r h_r before Σ w where the second has
h_0: it is taken where that is not the much larger one, which A - D <= 1 says where D is in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from redalg.algebra import polynomial as nf
from redalg.algebra.polynomial import Mono, Poly
from redalg.engine.anchors.policy import normalised
from redalg.engine.rules.cascade import Cascade
from redalg.engine.rules.separate import EXPONENT
from redalg.engine.slots import COUNTS, SlotBackend
from redalg.graph import node as g
from redalg.graph.node import Node

TWO = g.const(2)  # e^(A-D) - 1 is as large where A - D is about 1


@dataclass
class Growths:
    """The values of stages, in both forms where they have two: `near` the anchor, and as they are (`whole`)."""

    near: Cascade
    whole: Cascade
    slots: SlotBackend
    conditions: dict[Node, Node] = field(default_factory=dict)  # stage -> where its first form is the better one
    far: set[Node] = field(default_factory=set)  # second forms: nothing in them is near 1

    def __call__(self, stage: Node) -> Node:
        """The value of a stage over slots."""
        near, condition = self.near.value(stage).node, self._where_near(stage)
        if condition is g.TRUE:
            return near
        found = self.whole.value(stage)
        if found.blocked is not None or found.node is near:
            return near
        self.far |= _terms(found.node)
        return g.where(condition, near, self._at_finite(stage, found.node))

    def inside(self, node: Node) -> bool:
        """Whether a value reads a stage that has two forms."""
        return any(self._where_near(s) is not g.TRUE for s in g.walk(node) if self.near.scope.is_stage(s))

    def _where_near(self, stage: Node) -> Node:
        """Where a stage takes its first form: it and the stages that it reads are near 1 there. False where there is
        nothing that an exponential is near to: a sum of positive terms is whole."""
        found = self.conditions.get(stage)
        if found is None:
            read = (s for s in g.walk(*stage.args) if self.near.scope.is_stage(s))
            below = (c for s in read if (c := self._own(s)) is not g.FALSE)
            found = g.logical("and", self._own(stage), *below)
            self.conditions[stage] = found = found if found.axes <= stage.axes else g.TRUE
        return found

    def _own(self, stage: Node) -> Node:
        if not any(key[0] is stage for key in self.slots.choices.growths):
            return g.TRUE
        rows = self._rows(stage)
        exponentials = {gen: None for e in rows for gen, _ in e if self._is_exponential(gen)}
        groups = [group for gen in exponentials for group in _groups(rows, gen) if len(group) > 1]
        if not any(sum(group, Poly()) for group in groups):
            return g.TRUE if groups else g.FALSE
        apart = self._apart(groups)
        return g.logical("and", *map(self._is_small, groups)) if apart is None else g.compare("le", apart, g.ONE)

    def _at_finite(self, stage: Node, whole: Node) -> Node:
        """The second form where A - D is finite: of weights of both signs oo - oo may be any infinity."""
        rows = self._rows(stage)
        apart = {self._exponent(m) for h in rows.values() for m in h.terms} - {Poly()}
        found = {normalised(p)[0] for p in apart}
        if len(found) != 1:
            return whole
        return g.where(g.compare("eq", nf.poly_node(found.pop()), g.INF), g.special("nan"), whole)

    def _apart(self, groups: list[list[Poly]]) -> Node | None:
        """A - D, up to a factor, where every coefficient is one of powers of e^(A-D); None where there are others, or
        a stage value is what exponentials are near."""
        found = {self._exponent(m) for group in groups for h in group for m in h.terms} - {Poly()}
        apart = {normalised(p)[0] for p in found}
        return nf.poly_node(apart.pop()) if len(apart) == 1 else None

    def _rows(self, stage: Node) -> dict[Mono, Poly]:
        """What multiplies the terms of a sum's body, over centred generators."""
        rows: dict[Mono, Poly] = {}
        for e, h in self.whole.separator.rows(self.whole.value(stage).body or Poly()).items():
            centred, factor = self.slots.term(e, self.whole.separator)
            centred = tuple(t for t in centred if not self._counts(t[0]))
            rows[centred] = rows.get(centred, Poly()) + h * factor
        return rows

    def _counts(self, gen: Node) -> bool:
        found = self.slots.role_of(gen)
        return found is not None and found[1] == COUNTS

    def _is_exponential(self, gen: Node) -> bool:
        found = self.slots.role_of(gen)
        return found is not None and found[1] == "exponent"

    def _is_small(self, group: list[Poly]) -> Node:
        """Whether coefficients add up to no more than the last, but for a factor; any exponential that all of them
        have is left out: it may be beyond the range."""
        total = sum(group, Poly())
        if not total:
            return g.TRUE
        exponents = [self._exponent(m) for h in group for m, _ in h.ordered()]
        common = exponents[-1] if all(exponents) else Poly()
        added, last = (g.fn("abs", self._without(h, common)) for h in (total, group[-1]))
        return g.compare("le", added, g.mul(TWO, last))

    def _without(self, h: Poly, common: Poly) -> Node:
        terms = []
        for m, c in h.ordered():
            rest = tuple(t for t in m if t[0].op != "exp")
            terms.append(g.mul(nf.mono_node(rest, c), g.fn("exp", nf.poly_node(self._exponent(m) - common))))
        return g.add(*terms)

    def _exponent(self, m: Mono) -> Poly:
        total = Poly()
        for gen, p in m:
            if gen.op == "exp":
                total = total + self.whole.separator.poly(gen.args[0], EXPONENT).scale(p)
        return total


def _terms(value: Node) -> set[Node]:
    """The sums that a value is made of, but for those inside of functions."""
    found, stack = set[Node](), [value]
    while stack:
        n = stack.pop()
        if n not in found and n.op in ("add", "mul", "where"):
            found.add(n)
            stack += n.args
    return found


def _groups(rows: dict[Mono, Poly], gen: Node) -> list[list[Poly]]:
    """The coefficients of rows that differ in the power of an exponential alone, which some of them have."""
    found: dict[Mono, dict[Fraction, Poly]] = {}
    for e, h in rows.items():
        found.setdefault(tuple(t for t in e if t[0] is not gen), {})[dict(e).get(gen, Fraction(0))] = h
    return [[hs[p] for p in sorted(hs, reverse=True) if hs[p]] for hs in found.values() if any(hs)]


__all__ = ["Growths"]
