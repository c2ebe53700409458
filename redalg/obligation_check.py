"""Tests an obligation at random exact points: rationals stay rational, everything else has 60 digits.

Imports neither the engine nor SymPy: it knows the graph and how to evaluate it, one scalar at a time. A point is a
value for every leaf of the pair (all elements of all tensors, on axes of one or two places) that satisfies the pair's
assumptions; `tested` means that the sides agreed wherever both are defined, and never that they are equal.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from typing import Any

from redalg.graph import Node, walk
from redalg.obligation_values import Scalars, agree, is_nan
from redalg.plan import Obligation

ATTEMPTS = 12  # draws per wanted point: assumptions are met by rejection


def check(obligation: Obligation, points: int = 20, seed: object = 0, budget: int = 100_000) -> str:
    """`tested`, `refuted`, or `vacuous` when no drawn point met the assumptions with both sides defined.

    `budget` bounds the node evaluations; large pairs are tested at fewer points (at least one is drawn).
    """
    return refutation(obligation, points, seed, budget)[0]


def refutation(
    obligation: Obligation, points: int = 20, seed: object = 0, budget: int = 100_000
) -> tuple[str, dict[str, Any]]:
    """The status, and for a refuted pair the point: {"name[place]": value, "left": …, "right": …}."""
    sample, found = Sample(obligation, seed), 0
    for attempt in range(points * ATTEMPTS):
        if found == points or (attempt and sample.spent > budget):
            break
        verdict = sample.draw(attempt)
        if verdict is False:
            return "refuted", sample.point()
        found += verdict is True
    return ("tested" if found else "vacuous"), {}


class Sample:
    """Draws points for one obligation; deterministic in the seed."""

    def __init__(self, obligation: Obligation, seed: object) -> None:
        self.pair = obligation
        self.random = random.Random(f"{seed}:{obligation.name}:{obligation.subject}")
        self.nodes = (obligation.left, obligation.right, *obligation.assumptions)
        self.fixed = dict(_fixed_sizes(obligation.assumptions))
        self.axes = sorted(_axes(self.nodes) - set(self.fixed))
        self.leaves = sorted((n for n in walk(*self.nodes) if n.op in ("tensor", "state")), key=lambda n: n.digest)
        self.spent = 0
        self.scalars: Scalars | None = None
        self.failed: tuple[dict[str, int], Any, Any] | None = None

    def draw(self, attempt: int) -> bool | None:
        """True: the sides agree at a new point; False: they differ; None: the point does not count."""
        wide = attempt % 4 == 3  # mostly one place per free axis: cheap, and no broadcasting can hide there
        sizes = self.fixed | dict.fromkeys(self.axes, 2 if wide else 1)
        positive = self.random.random() < 0.4  # so that logarithms and roots are met inside their domain
        values: dict[tuple[str, tuple[int, ...]], Any] = {}
        for leaf in self.leaves:
            for place in product(*(range(sizes[a]) for a in leaf.attr.axes)):
                values.setdefault((leaf.attr.name, place), self._value(leaf.attr.domain, positive))
        self.scalars = Scalars(values, sizes)
        try:
            return self._holds(self.scalars, sizes)
        finally:
            self.spent += self.scalars.evaluations

    def _holds(self, scalars: Scalars, sizes: dict[str, int]) -> bool | None:
        for assumption in self.pair.assumptions:
            if not all(scalars.value(assumption, at) is True for at in _places(assumption.axes, sizes)):
                return None
        counted = None
        for at in _places(self.pair.left.axes | self.pair.right.axes, sizes):
            right = scalars.value(self.pair.right, at)
            if is_nan(right):
                continue
            left = scalars.value(self.pair.left, at)
            if not agree(left, right, scalars.magnitude):
                self.failed = (at, left, right)
                return False
            counted = True
        return counted

    def _value(self, domain: frozenset[str], positive: bool) -> Any:
        draw = self.random
        if "bool" in domain:
            return draw.random() < 0.5
        whole = "integer" in domain or draw.random() < 0.5  # small integers, so that ties and zeros happen
        value = Fraction(draw.randint(-3, 3)) if whole else Fraction(draw.randint(-40, 40), draw.randint(1, 16))
        if "positive" in domain or positive:
            value = abs(value) or Fraction(1)
        if "nonnegative" in domain:
            value = abs(value)
        return self._complex(value) if "complex" in domain else value

    def _complex(self, real: Fraction) -> Any:
        assert Scalars.context is not None
        imaginary = Fraction(self.random.randint(-12, 12), 4)
        return Scalars.complex(real, imaginary)

    def point(self) -> dict[str, Any]:
        assert self.scalars is not None and self.failed is not None
        shown = {f"{name}{list(place) if place else ''}": v for (name, place), v in self.scalars.values.items()}
        at, left, right = self.failed
        return shown | {"at": at, "left": left, "right": right}


def _fixed_sizes(assumptions: Iterable[Node]) -> Iterable[tuple[str, int]]:
    for node in assumptions:
        if node.op == "eq" and node.args[0].op == "size" and node.args[1].op == "const":
            yield node.args[0].attr, int(node.args[1].attr)


def _axes(nodes: Iterable[Node]) -> set[str]:
    found: set[str] = set()
    for node in walk(*nodes):
        found |= node.axes
        if node.op == "reduce":
            found |= set(node.attr.axes)
        elif node.op == "size":
            found.add(node.attr)
    return found


def _places(axes: Iterable[str], sizes: dict[str, int]) -> Iterable[dict[str, int]]:
    names = sorted(axes)
    return (dict(zip(names, at, strict=True)) for at in product(*(range(sizes[a]) for a in names)))
