"""Models as refutations: what a solver says an obligation fails at, tried exactly at that point.

A model of the exported text need not be a refutation: it chooses values of sums, exponentials and quotients by 0 as it
likes. So its values of the leaves are put into the obligation itself, with one place along an axis for every element
that is named, and both sides are evaluated as `redalg.proofs.falsification.falsify` does, in exact numbers and
enclosures.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from redalg.proofs.document.document import Document, Obligation
from redalg.proofs.document.intervals import admits, moved
from redalg.proofs.document.terms import Term
from redalg.proofs.falsification.evaluate import BUDGET, TooMuch, Unfit
from redalg.proofs.falsification.falsify import Sample
from redalg.proofs.smt.instances import unmarked

PLACES = 5  # along an axis
Point = Mapping[Term, Fraction | bool]


def confirmed(obligation: Obligation, doc: Document, point: Point) -> dict[str, Any] | None:
    """The point with both values, where the sides certainly differ there and everything given holds; else None."""
    try:
        sample = Placed(obligation, doc, 0, BUDGET)
        found = sample.compared() if sample.place(point) and sample.holds() else None
    except (Unfit, TooMuch, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class Placed(Sample):
    """A sample whose point is given."""

    def place(self, point: Point) -> bool:
        """Put values on leaves, 1 on the others; False where a value is not of its leaf's domain."""
        marks = self._marks(point)
        self.sizes = self.made | {a: max(1, len(marks.get(a, ()))) for a in self.axes}
        self._share_sizes()
        self.starts = {b: self.sizes.get(a, 0) for a, b in list(zip(*self.doc.sides, strict=True))[:1]}
        self.values = {}
        for (name, axes), domain in self.leaves.items():
            if "complex" in domain:
                return False
            values = self.values.setdefault(name, {})
            for at in self._places(axes):
                values.setdefault(at, "bool" in domain or moved(domain, Fraction(1)))
        for leaf, value in point.items():
            key = leaf.attr.name, tuple(unmarked(a) for a in leaf.attr.axes)
            if key not in self.leaves:
                continue
            if not _fits(value, self.leaves[key]):
                return False
            if all(a in marks[unmarked(a)] for a in leaf.attr.axes):
                place = (marks[unmarked(a)].index(a) + self.starts.get(unmarked(a), 0) for a in leaf.attr.axes)
                self.values[key[0]][tuple(place)] = value
        self._evaluate()
        return True

    def _marks(self, point: Point) -> dict[str, list[str]]:
        """The named elements along each axis."""
        found: dict[str, list[str]] = {}
        for leaf in point:
            for a in leaf.attr.axes:
                named = found.setdefault(unmarked(a), [])
                if a not in named and len(named) < PLACES:
                    named.append(a)
        return found

    def _places(self, axes: tuple[str, ...]) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = [()]
        for a in axes:
            start = self.starts.get(a, 0)
            found = [(*at, start + i) for at in found for i in range(self.sizes[a])]
        return found


def _fits(value: Fraction | bool, domain: frozenset[str]) -> bool:
    if isinstance(value, bool):
        return "bool" in domain
    whole = "integer" not in domain or value.denominator == 1
    return whole and "bool" not in domain and admits(domain, value)
